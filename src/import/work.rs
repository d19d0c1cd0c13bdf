//! The work of an import: pieces read side by side, their rows made and written in order, and what the
//! manifest says of them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;

use serde_json::{Value, json};

use super::draft::Drafts;
use super::existing::Existing;
use super::format::Format;
use super::lines::Tally;
use super::problems::Problems;
use super::row_source::RowSource;
use super::rows::{RowMaker, Seen};
use super::sources::{Piece, absolute};
use super::state::{Known, Part, State};
use super::{ImportConfig, ImportProgress, Imported};
use super::{claude_code, codex, lacks, mlperf, parallel, run_folder};
use crate::clock::{Clock, unix_seconds};
use crate::error::{Error, Result};
use crate::shutdown::Shutdown;
use crate::trace::{BulkWriter, Manifest, RunKind, Table};

/// An import that goes.
pub(super) struct Work<'a> {
    config: &'a ImportConfig,
    progress: &'a ImportProgress,
    shutdown: &'a Shutdown,
    writer: BulkWriter,
    maker: RowMaker,
    state: State,
    /// Of the run that is added to.
    earlier: Option<Manifest>,
    refused: Vec<String>,
    /// What the pieces came to that were read this time.
    new: Seen,
    new_problems: u64,
}

/// What came of a piece of work, or of a part of one.
type Read = Result<(Drafts, Problems)>;

impl<'a> Work<'a> {
    pub(super) fn start(
        config: &'a ImportConfig,
        progress: &'a ImportProgress,
        shutdown: &'a Shutdown,
        existing: Option<(Existing, Vec<String>)>,
    ) -> Result<Self> {
        let (writer, maker, state, earlier, refused) = match existing {
            None => {
                let writer = BulkWriter::create(&config.out)?;
                (writer, RowMaker::new(&config.run_id), State::default(), None, Vec::new())
            }
            Some((mut existing, refused)) => {
                let run_id = existing.manifest.run_id.clone();
                let (maker, kept) = existing.keep(&run_id)?;
                let writer = BulkWriter::rewrite(&config.out, &kept)?;
                (writer, maker, existing.state, Some(existing.manifest), refused)
            }
        };
        Ok(Self {
            config,
            progress,
            shutdown,
            writer,
            maker,
            state,
            earlier,
            refused,
            new: Seen::default(),
            new_problems: 0,
        })
    }

    /// Reads the pieces and closes the run.
    pub(super) fn run(
        mut self,
        pieces: &[Piece],
        problems: Problems,
        clock: &Clock,
    ) -> Result<Imported> {
        self.new_problems = problems.total();
        self.state.other_problems.look_again(problems);
        match self.all(pieces) {
            Ok(()) => self.finish(pieces, clock),
            Err(error) => {
                self.writer.discard();
                Err(error)
            }
        }
    }

    fn all(&mut self, pieces: &[Piece]) -> Result<()> {
        let (rows, logs): (Vec<&Piece>, Vec<&Piece>) =
            pieces.iter().partition(|piece| matches!(piece, Piece::Rows(_) | Piece::Run(_)));
        self.logs(&logs)?;
        for piece in rows {
            let before = self.writer.rows();
            let (tallies, problems) = match piece {
                Piece::Rows(source) => self.rows(source)?,
                Piece::Run(folder) => self.folder(piece, folder)?,
                Piece::ClaudeCode(_) | Piece::Log(..) => continue,
            };
            self.done(piece, &tallies, problems, &before);
        }
        let turns: u64 = self.state.pieces.iter().map(|piece| piece.seen.turns).sum();
        if turns == 0 {
            return Err(Error::config(super::nothing_found(self.config, &self.all_problems())));
        }
        Ok(())
    }

    fn logs(&mut self, logs: &[&Piece]) -> Result<()> {
        let mut outcome = Ok(());
        let mut pieces = logs.iter();
        let read = |piece: &&Piece| {
            let tallies: Vec<Tally> = piece.files().iter().map(|_| Tally::default()).collect();
            let read = read_log(piece, &tallies);
            (tallies, read)
        };
        parallel::in_order(logs.iter(), self.config.threads, read, |(tallies, read)| {
            let Some(piece) = pieces.next() else { return false };
            let before = self.writer.rows();
            outcome = read.and_then(|(drafts, problems)| {
                self.take(drafts)?;
                let bytes = tallies.iter().map(Tally::bytes).sum();
                self.progress.bytes_read.fetch_add(bytes, Ordering::Relaxed);
                self.done(piece, &tallies, problems, &before);
                Ok(())
            });
            outcome.is_ok()
        });
        outcome
    }

    /// A file of rows: its lines are parsed in batches, side by side.
    fn rows(&mut self, source: &RowSource) -> Result<(Vec<Tally>, Problems)> {
        let mut problems = Problems::default();
        if source.needs_block_size {
            let what =
                "the size of the blocks does not follow from lengths and hashes; 512 is taken";
            problems.add("unknown block size", &source.path, 0, what);
        }
        let tally = Tally::default();
        let mut unread = Problems::default();
        let mut outcome = Ok(());
        let read_before = self.progress.bytes_read.load(Ordering::Relaxed);
        parallel::in_order(
            source.batches(&mut unread, &tally)?,
            self.config.threads,
            |batch| source.parse(&batch),
            |(drafts, found)| {
                problems.append(found);
                outcome = self.take(drafts);
                let read = read_before + tally.bytes();
                self.progress.bytes_read.store(read, Ordering::Relaxed);
                outcome.is_ok()
            },
        );
        outcome?;
        problems.append(unread);
        Ok((tallies(source, tally)?, problems))
    }

    fn folder(
        &mut self,
        piece: &Piece,
        folder: &std::path::Path,
    ) -> Result<(Vec<Tally>, Problems)> {
        let tallies = whole_files(piece)?;
        let (maker, writer, shutdown) = (&mut self.maker, &mut self.writer, self.shutdown);
        run_folder::copy(folder, |mut row| {
            if shutdown.is_cancelled() {
                return Err(Error::Cancelled);
            }
            maker.adopt(&mut row);
            writer.push(row)
        })?;
        Ok((tallies, Problems::default()))
    }

    fn take(&mut self, drafts: Drafts) -> Result<()> {
        if self.shutdown.is_cancelled() {
            return Err(Error::Cancelled);
        }
        for turn in drafts.turns {
            self.maker.rows(turn, &drafts.conversations, |row| self.writer.push(row))?;
        }
        for row in drafts.rows {
            self.writer.push(row)?;
        }
        let seen = self.maker.seen();
        self.progress.turns.store(self.new.turns + seen.turns, Ordering::Relaxed);
        self.progress.calls.store(self.new.calls + seen.calls, Ordering::Relaxed);
        Ok(())
    }

    /// A piece is read: what it came to is noted.
    fn done(
        &mut self,
        piece: &Piece,
        tallies: &[Tally],
        problems: Problems,
        before: &BTreeMap<Table, u64>,
    ) {
        let parts = piece.files().into_iter().zip(tallies).map(|(path, tally)| Part {
            path: absolute(&path),
            bytes: tally.bytes(),
            sha256: tally.hash(),
        });
        let rows = self.writer.rows().into_iter().map(|(table, rows)| {
            (table.stem().to_owned(), rows - before.get(&table).copied().unwrap_or(0))
        });
        let seen = self.maker.take_seen();
        self.new.add(&seen);
        self.new_problems += problems.total();
        self.progress.problems.store(self.new_problems, Ordering::Relaxed);
        self.progress.pieces_done.fetch_add(1, Ordering::Relaxed);
        self.state.pieces.push(Known {
            key: piece.key(),
            format: piece.format().as_str().to_owned(),
            files: parts.collect(),
            rows: rows.filter(|(_, rows)| *rows > 0).collect(),
            seen,
            problems,
        });
    }

    fn all_problems(&self) -> Problems {
        let mut all = self.state.other_problems.clone();
        for piece in &self.state.pieces {
            all.append(piece.problems.clone());
        }
        all
    }

    fn finish(self, pieces: &[Piece], clock: &Clock) -> Result<Imported> {
        let problems = self.all_problems();
        let Self { config, writer, maker, mut state, earlier, refused, new, .. } = self;
        let mut seen = Seen::default();
        for piece in &state.pieces {
            seen.add(&piece.seen);
        }
        let mut manifest = manifest(config, pieces, clock, earlier, &new);
        manifest.ended = Some(unix_seconds(clock.now_ns()));
        for (name, n) in [
            ("sessions", maker.sessions() as u64),
            ("threads", maker.threads() as u64),
            ("turns_told_again", seen.replayed),
            ("records_left_out", problems.total()),
        ] {
            manifest.counts.insert(name.to_owned(), n);
        }
        for (name, value) in [
            ("lacks", json!(lacks::lacks(&seen))),
            ("problems", json!(problems.listed())),
            ("problem_counts", json!(problems.counts())),
        ] {
            manifest.settings.insert(name.to_owned(), value);
        }
        if seen.synthetic > 0 {
            manifest.synthetic = true;
            manifest.counts.insert("synthetic_turns".to_owned(), seen.synthetic);
        }
        writer.finish(&mut manifest, |dir| state.store(dir))?;
        Ok(Imported { manifest, refused, is_new: true })
    }
}

/// What was read of each file of a piece of rows.
fn tallies(source: &RowSource, tally: Tally) -> Result<Vec<Tally>> {
    if tally.bytes() > 0 {
        return Ok(vec![tally]);
    }
    // Something else than lines was read, by a library.
    whole_files(&Piece::Rows(Box::new(source.clone())))
}

fn whole_files(piece: &Piece) -> Result<Vec<Tally>> {
    let tallies = piece.files().into_iter().map(|path| {
        let tally = Tally::default();
        tally.whole_file(&path).map(|()| tally)
    });
    tallies.collect()
}

fn read_log(piece: &Piece, tallies: &[Tally]) -> Read {
    let mut problems = Problems::default();
    let drafts = match (piece, tallies) {
        (Piece::ClaudeCode(files), tallies) => claude_code::read(files, tallies, &mut problems)?,
        (Piece::Log(path, Format::Codex), [tally]) => codex::read(path, tally, &mut problems)?,
        (Piece::Log(path, Format::Mlperf), [tally]) => mlperf::read(path, tally, &mut problems)?,
        _ => return Err(Error::Internal("no log".to_owned())),
    };
    Ok((drafts, problems))
}

/// The manifest of the run as it is now: what an earlier import said of it stays.
fn manifest(
    config: &ImportConfig,
    pieces: &[Piece],
    clock: &Clock,
    earlier: Option<Manifest>,
    new: &Seen,
) -> Manifest {
    let is_update = earlier.is_some();
    let mut manifest = earlier.unwrap_or_else(|| {
        let mut manifest = Manifest::new(RunKind::Import, config.run_id.clone(), clock);
        manifest.argv.clone_from(&config.argv);
        manifest.host = config.host.clone();
        manifest
    });
    let formats: BTreeSet<Format> = pieces.iter().map(Piece::format).collect();
    let mut sources: BTreeSet<String> =
        config.sources.iter().map(|source| source.display().to_string()).collect();
    sources.extend(manifest.dataset.iter().flat_map(|known| known.split(", ")).map(str::to_owned));
    manifest.dataset = Some(sources.into_iter().collect::<Vec<_>>().join(", "));
    union(&mut manifest, "formats", formats.iter().map(|format| format.as_str()));
    union(&mut manifest, "times", formats.iter().map(|format| format.time_base().as_str()));
    for note in formats.into_iter().flat_map(Format::notes) {
        if !manifest.notes.iter().any(|known| known == note) {
            manifest.notes.push((*note).to_owned());
        }
    }
    if is_update {
        let added = json!({"at": unix_seconds(clock.now_ns()), "turns": new.turns, "tool_calls": new.calls});
        let updates = manifest.settings.entry("updates").or_insert_with(|| json!([]));
        if let Value::Array(updates) = updates {
            updates.push(added);
        }
    }
    manifest
}

/// Adds names to a list of the settings, each once, in order.
fn union<'a>(manifest: &mut Manifest, setting: &str, names: impl Iterator<Item = &'a str>) {
    let mut all: BTreeSet<String> = names.map(str::to_owned).collect();
    let known = manifest.settings.get(setting).and_then(Value::as_array);
    all.extend(known.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned));
    manifest.settings.insert(setting.to_owned(), json!(all));
}
