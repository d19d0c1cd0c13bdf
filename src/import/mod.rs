//! Other people's recordings as a run directory.
//!
//! Reading order: `format` and `sources` (what there is), `draft` (what a reader finds), one file for each
//! format, `rows` (drafts as rows), `lacks` (what is missing for what), `parallel`. A reader never makes up
//! what its format does not tell, and one bad record never ends an import: it is counted and listed.

// Fields are named as their formats name them.
#![allow(clippy::struct_field_names)]

mod batchbench;
mod claude_code;
mod claude_thread;
mod codex;
mod codex_thread;
mod conversations;
mod document;
mod draft;
mod exchanges;
pub mod format;
mod hashed;
mod json_text;
mod lacks;
mod lines;
mod links;
mod mlperf;
mod parallel;
pub mod problems;
mod row_source;
mod rows;
mod sources;
mod tables;
mod times;
mod tracelab;
mod weka;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::shutdown::Shutdown;
use crate::trace::{HostInfo, Manifest, RunKind, RunWriter};
use draft::Drafts;
use format::Format;
use problems::Problems;
use row_source::RowSource;
use rows::RowMaker;
use sources::Piece;

/// What to import.
#[derive(Debug, Clone)]
pub struct ImportConfig {
    /// Files and folders.
    pub sources: Vec<PathBuf>,
    /// The run directory to make; must not exist, or be empty.
    pub out: PathBuf,
    /// The format of all of them; none: told by each file's first records.
    pub format: Option<Format>,
    /// Name of the run; empty: one made of the time.
    pub run_id: String,
    /// Threads that parse.
    pub threads: usize,
    /// The command line, for the manifest.
    pub argv: Vec<String>,
    /// The machine, for the manifest.
    pub host: HostInfo,
}

/// How far an import is; read while it goes.
#[derive(Debug, Default)]
pub struct ImportProgress {
    /// Pieces of work: sessions of logs, files of rows.
    pub pieces: AtomicU64,
    /// Of these, done.
    pub pieces_done: AtomicU64,
    /// Turns written.
    pub turns: AtomicU64,
    /// Tool calls written.
    pub calls: AtomicU64,
    /// Records that could not be read.
    pub problems: AtomicU64,
}

/// Writes a run directory of what the sources hold.
///
/// # Errors
/// `Error::Config` where a source is missing or none has a turn; `Error::Cancelled` after a shutdown; what
/// the file system says. In all cases nothing is left at `out`.
pub fn import(
    config: &ImportConfig,
    progress: &ImportProgress,
    shutdown: &Shutdown,
) -> Result<(Manifest, Problems)> {
    let mut problems = Problems::default();
    let pieces = sources::pieces(&config.sources, config.format, &mut problems)?;
    progress.pieces.store(pieces.len() as u64, Ordering::Relaxed);
    let clock = Clock::start();
    let writer = RunWriter::create(&config.out, manifest(config, &pieces, &clock))?;
    let mut import = Import {
        config,
        progress,
        shutdown,
        writer,
        maker: RowMaker::new(&config.run_id),
        problems,
    };
    match import.all(&pieces) {
        Ok(()) => import.finish(&clock),
        Err(error) => {
            import.writer.discard();
            Err(error)
        }
    }
}

struct Import<'a> {
    config: &'a ImportConfig,
    progress: &'a ImportProgress,
    shutdown: &'a Shutdown,
    writer: RunWriter,
    maker: RowMaker,
    problems: Problems,
}

/// What came of a piece of work, or of a part of one.
type Read = Result<(Drafts, Problems)>;

impl Import<'_> {
    fn all(&mut self, pieces: &[Piece]) -> Result<()> {
        let (rows, logs): (Vec<&Piece>, Vec<&Piece>) =
            pieces.iter().partition(|piece| piece.format().is_rows());
        let mut outcome = Ok(());
        parallel::in_order(logs.into_iter(), self.config.threads, read_log, |read| {
            outcome = self.take(read);
            self.progress.pieces_done.fetch_add(1, Ordering::Relaxed);
            outcome.is_ok()
        });
        outcome?;
        for piece in rows {
            if let Piece::Rows(path, format) = piece {
                self.rows(path, *format)?;
            }
            self.progress.pieces_done.fetch_add(1, Ordering::Relaxed);
        }
        if self.maker.seen().turns == 0 {
            return Err(Error::config(nothing_found(self.config, &self.problems)));
        }
        Ok(())
    }

    /// A file of rows: its lines are parsed in batches, side by side.
    fn rows(&mut self, path: &Path, format: Format) -> Result<()> {
        let source = RowSource::open(path, format)?;
        if source.needs_block_size {
            let what =
                "the size of the blocks does not follow from lengths and hashes; 512 is taken";
            self.problems.add("unknown block size", path, 0, what);
        }
        let mut unread = Problems::default();
        let mut outcome = Ok(());
        let batches = source.batches(&mut unread)?;
        parallel::in_order(
            batches,
            self.config.threads,
            |batch| Ok(source.parse(&batch)),
            |read| {
                outcome = self.take(read);
                outcome.is_ok()
            },
        );
        self.problems.append(unread);
        outcome
    }

    fn take(&mut self, read: Read) -> Result<()> {
        if self.shutdown.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let (drafts, problems) = read?;
        self.problems.append(problems);
        let sender = self.writer.sender();
        for turn in drafts.turns {
            for row in self.maker.rows(turn, &drafts.conversations) {
                sender.send_blocking(row);
            }
        }
        for row in drafts.rows {
            sender.send_blocking(row);
        }
        // Half an import is of no use to anybody, unlike half a recording.
        if sender.dropped() > 0 {
            let said = sender.last_error().unwrap_or_else(|| "rows were lost".into());
            return Err(Error::io(&self.config.out, std::io::Error::other(said)));
        }
        let seen = self.maker.seen();
        self.progress.turns.store(seen.turns, Ordering::Relaxed);
        self.progress.calls.store(seen.calls, Ordering::Relaxed);
        self.progress.problems.store(self.problems.total(), Ordering::Relaxed);
        Ok(())
    }

    fn finish(self, clock: &Clock) -> Result<(Manifest, Problems)> {
        let Self { writer, maker, problems, .. } = self;
        let seen = maker.seen().clone();
        writer.update_manifest(|manifest| {
            manifest.ended = Some(crate::clock::unix_seconds(clock.now_ns()));
            for (name, n) in [
                ("sessions", maker.sessions() as u64),
                ("threads", maker.threads() as u64),
                ("turns_told_again", seen.replayed),
                ("records_left_out", problems.total()),
            ] {
                manifest.counts.insert(name.to_owned(), n);
            }
            manifest.settings.insert("lacks".to_owned(), json!(lacks::lacks(&seen)));
            manifest.settings.insert("problems".to_owned(), json!(problems.listed()));
            manifest.settings.insert("problem_counts".to_owned(), json!(problems.counts()));
        })?;
        Ok((writer.finish()?, problems))
    }
}

fn read_log(piece: &Piece) -> Read {
    let mut problems = Problems::default();
    let drafts = match piece {
        Piece::ClaudeCode(files) => claude_code::read(files, &mut problems)?,
        Piece::Codex(path) => codex::read(path, &mut problems)?,
        Piece::Rows(path, Format::Mlperf) => mlperf::read(path, &mut problems)?,
        Piece::Rows(..) => return Err(Error::Internal("rows are no log".to_owned())),
    };
    Ok((drafts, problems))
}

fn nothing_found(config: &ImportConfig, problems: &Problems) -> String {
    let first = problems
        .listed()
        .first()
        .map(|problem| format!("; {}:{}: {}", problem.file.display(), problem.line, problem.what));
    let sources: Vec<String> =
        config.sources.iter().map(|source| source.display().to_string()).collect();
    format!(
        "nothing to import in {}{}; formats are {}",
        sources.join(", "),
        first.unwrap_or_default(),
        Format::names()
    )
}

fn manifest(config: &ImportConfig, pieces: &[Piece], clock: &Clock) -> Manifest {
    let mut manifest = Manifest::new(RunKind::Import, config.run_id.clone(), clock);
    manifest.argv.clone_from(&config.argv);
    manifest.host = config.host.clone();
    let mut formats: Vec<&str> = pieces.iter().map(|piece| piece.format().as_str()).collect();
    formats.sort_unstable();
    formats.dedup();
    let sources: Vec<String> =
        config.sources.iter().map(|source| source.display().to_string()).collect();
    manifest.dataset = Some(sources.join(", "));
    manifest.settings.insert("formats".to_owned(), json!(formats));
    let times: std::collections::BTreeSet<&str> =
        pieces.iter().map(|piece| piece.format().time_base().as_str()).collect();
    manifest.settings.insert("times".to_owned(), json!(times));
    manifest.notes = pieces
        .iter()
        .map(Piece::format)
        .collect::<std::collections::BTreeSet<_>>()
        .into_iter()
        .flat_map(Format::notes)
        .map(|note| (*note).to_owned())
        .collect();
    manifest
}
