//! Other people's recordings as a run directory.
//!
//! Reading order: `format` and `sources` (what there is), `draft` (what a reader finds), one file for each
//! format, `rows` (drafts as rows), `lacks` (what is missing for what), `parallel`. A reader never makes up
//! what its format does not tell, and one bad record never ends an import: it is counted and listed.

mod claude_code;
mod claude_thread;
mod codex;
mod codex_thread;
mod draft;
pub mod format;
mod json_text;
mod lacks;
mod lines;
mod parallel;
pub mod problems;
mod rows;
mod sources;
mod times;
mod tracelab;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::json;

use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::shutdown::Shutdown;
use crate::trace::{HostInfo, Manifest, RunKind, RunWriter};
use draft::Drafts;
use format::Format;
use lines::Lines;
use problems::Problems;
use rows::RowMaker;
use sources::Piece;

/// Lines of rows that are parsed as one.
const BATCH_LINES: usize = 512;
/// The same in bytes.
const BATCH_BYTES: usize = 1 << 20;

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
    fn rows(&mut self, path: &std::path::Path, format: Format) -> Result<()> {
        let mut lines = Lines::open(path)?;
        let mut unread = Problems::default();
        let mut outcome = Ok(());
        let batches = std::iter::from_fn(|| batch(&mut lines, &mut unread));
        parallel::in_order(
            batches,
            self.config.threads,
            |batch| Ok(parse_rows(path, format, &batch)),
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
        Piece::Rows(..) => return Err(Error::Internal("rows are no log".to_owned())),
    };
    Ok((drafts, problems))
}

/// Lines that are parsed as one, with their numbers.
struct Batch {
    text: String,
    lines: Vec<(u64, usize)>,
}

fn batch(lines: &mut Lines, problems: &mut Problems) -> Option<Batch> {
    let mut batch = Batch { text: String::new(), lines: Vec::new() };
    while batch.lines.len() < BATCH_LINES && batch.text.len() < BATCH_BYTES {
        let Some((number, line)) = lines.next(problems) else { break };
        batch.text.push_str(line);
        batch.lines.push((number, batch.text.len()));
    }
    (!batch.lines.is_empty()).then_some(batch)
}

fn parse_rows(path: &std::path::Path, format: Format, batch: &Batch) -> (Drafts, Problems) {
    let (mut drafts, mut problems) = (Drafts::default(), Problems::default());
    let mut start = 0;
    for (number, end) in &batch.lines {
        let line = &batch.text[start..*end];
        start = *end;
        let read = match format {
            Format::TraceLab => tracelab::row(line, &mut drafts),
            Format::ClaudeCode | Format::Codex => Err("no rows".to_owned()),
        };
        if let Err(what) = read {
            problems.add("not a record", path, *number, what);
        }
    }
    (drafts, problems)
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
