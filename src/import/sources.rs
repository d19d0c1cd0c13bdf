//! From what the user names to pieces of work: files found, their formats told, those that belong together
//! put together, in the order of their first records.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::claude_code::SessionFiles;
use super::format::Format;
use super::head::{Container, Head};
use super::lines::Lines;
use super::opencode_store::{files_of, is_session_file};
use super::problems::Problems;
use super::row_source::RowSource;
use super::times::unix_of;
use crate::error::{Error, Result};
use crate::trace::Table;

/// Endings of files that may hold records.
const ENDINGS: [&str; 10] = [
    ".jsonl",
    ".jsonl.gz",
    ".csv",
    ".csv.gz",
    ".json",
    ".json.gz",
    ".traj",
    ".ndjson",
    ".parquet",
    ".db",
];
const MANIFEST: &str = "manifest.json";

/// Something to read as one.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    /// A session of Claude Code.
    ClaudeCode(SessionFiles),
    /// A log that is read as a whole.
    Log(PathBuf, Format),
    /// A file whose records stand by themselves.
    Rows(Box<RowSource>),
    /// A folder of our own tables.
    Run(PathBuf),
}

impl Piece {
    pub(super) fn format(&self) -> Format {
        match self {
            Self::ClaudeCode(_) => Format::ClaudeCode,
            Self::Log(_, format) => *format,
            Self::Rows(source) => source.format,
            Self::Run(_) => Format::Run,
        }
    }

    /// The files that it is made of.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        match self {
            Self::ClaudeCode(files) => files.main.iter().chain(&files.subagents).cloned().collect(),
            Self::Log(path, _) => vec![path.clone()],
            Self::Rows(source) if source.container == Container::Storage => files_of(&source.path),
            Self::Rows(source) if source.container == Container::Sqlite => {
                // What was written last may lie in its log alone.
                let mut log = source.path.clone().into_os_string();
                log.push("-wal");
                let log = PathBuf::from(log);
                std::iter::once(source.path.clone()).chain(log.exists().then_some(log)).collect()
            }
            Self::Rows(source) => vec![source.path.clone()],
            Self::Run(folder) => Table::ALL
                .iter()
                .map(|table| folder.join(format!("{}.parquet", table.stem())))
                .filter(|path| path.exists())
                .collect(),
        }
    }

    /// What it is known by from one import to the next.
    pub(super) fn key(&self) -> String {
        let path = match self {
            Self::ClaudeCode(files) => match (&files.main, files.subagents.first()) {
                (Some(main), _) => main.with_extension(""),
                (None, Some(path)) => path.ancestors().nth(2).unwrap_or(path).to_owned(),
                (None, None) => PathBuf::new(),
            },
            Self::Log(path, _) | Self::Run(path) => path.clone(),
            Self::Rows(source) => source.path.clone(),
        };
        let path = absolute(&path);
        match self {
            Self::Rows(source) if source.identity.is_some() => {
                format!("{}#{}", path.display(), source.identity.as_deref().unwrap_or_default())
            }
            _ => path.display().to_string(),
        }
    }
}

/// A path that means the same from any folder.
pub(super) fn absolute(path: &Path) -> PathBuf {
    std::fs::canonicalize(path)
        .or_else(|_| std::path::absolute(path))
        .unwrap_or_else(|_| path.to_owned())
}

/// Everything below the sources, as pieces of work.
pub(super) fn pieces(
    sources: &[PathBuf],
    forced: Option<Format>,
    problems: &mut Problems,
) -> Result<Vec<Piece>> {
    let mut files = Vec::new();
    for source in sources {
        find(source, true, &mut files)?;
    }
    files.sort();
    files.dedup();
    let mut found = Found { sources, ..Found::default() };
    for path in files {
        found.take(path, forced, problems)?;
    }
    Ok(found.pieces())
}

#[derive(Default)]
struct Found<'a> {
    sources: &'a [PathBuf],
    /// Pieces with the times of their first records.
    timed: Vec<(f64, Piece)>,
    sessions: BTreeMap<PathBuf, (f64, SessionFiles)>,
    /// Folders of our own tables.
    runs: BTreeSet<PathBuf>,
}

impl Found<'_> {
    fn take(
        &mut self,
        path: PathBuf,
        forced: Option<Format>,
        problems: &mut Problems,
    ) -> Result<()> {
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        if self.runs.contains(&folder) || is_table(&path, &folder) {
            return Ok(());
        }
        let head = if is_session_file(&path) {
            Head::of(Container::Storage, Some(Format::OpenCode))
        } else if is_part_of_session(&path) {
            return Ok(());
        } else {
            match Head::read(&path, forced) {
                Ok(head) => head,
                Err(error) if self.sources.contains(&path) => return Err(error),
                // One file that cannot be read is no reason to leave out the others.
                Err(error) => {
                    problems.add("cannot be read", &path, 0, error.to_string());
                    return Ok(());
                }
            }
        };
        let time = head.first_time.unwrap_or(f64::MAX);
        match head.format {
            Some(Format::ClaudeCode) => self.belongs_to(path, time),
            Some(Format::Run) => self.run(&path, folder, problems),
            Some(format @ (Format::Codex | Format::Mlperf)) => {
                let time = if format == Format::Codex { time } else { f64::MAX };
                self.timed.push((time, Piece::Log(path, format)));
            }
            Some(format) => {
                let source = RowSource::new(path, format, head);
                self.timed.push((f64::MAX, Piece::Rows(Box::new(source))));
            }
            // Nothing is lost of what holds nothing; who names it is told.
            None if head.is_empty && !self.sources.contains(&path) => {}
            None if head.is_empty => problems.add("empty file", &path, 0, "it is empty"),
            // What lies beside records (notes, settings) is no loss; what was named is.
            None if self.sources.contains(&path) || !is_side_file(&path) => {
                problems.add("unknown format", &path, 0, "no known format; --format names it");
            }
            None => {}
        }
        Ok(())
    }

    fn run(&mut self, path: &Path, folder: PathBuf, problems: &mut Problems) {
        if folder.join(MANIFEST).exists() {
            let what = "of a run directory, which needs no import: give the directory itself to \
                        analyze, replay or export";
            problems.add("a run already", path, 0, what);
        } else if self.runs.insert(folder.clone()) {
            self.timed.push((f64::MAX, Piece::Run(folder)));
        }
    }

    /// `SESSION.jsonl` and `SESSION/subagents/agent-*.jsonl` are one session.
    fn belongs_to(&mut self, path: PathBuf, time: f64) {
        let folder = path.parent().unwrap_or(Path::new(""));
        if folder.file_name().is_some_and(|name| name == "subagents")
            && let Some(session) = folder.parent()
        {
            let (first, files) = self.session(session.to_owned());
            if files.main.is_none() && files.subagents.is_empty() {
                *first = time;
            }
            files.subagents.push(path);
        } else {
            let (first, files) = self.session(path.with_extension(""));
            *first = time;
            files.main = Some(path);
        }
    }

    fn session(&mut self, stem: PathBuf) -> &mut (f64, SessionFiles) {
        self.sessions.entry(stem).or_insert((f64::MAX, SessionFiles::default()))
    }

    fn pieces(self) -> Vec<Piece> {
        let mut timed = self.timed;
        let sessions = self.sessions.into_values();
        timed.extend(sessions.map(|(time, files)| (time, Piece::ClaudeCode(files))));
        in_order_of_telling(timed)
    }
}

/// Another table of a folder of ours.
fn is_table(path: &Path, folder: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default();
    let is_ours = path.extension().is_some_and(|ending| ending == "parquet")
        && Table::ALL.iter().any(|table| stem == table.stem());
    let turns = folder.join(format!("{}.parquet", Table::Turns.stem()));
    is_ours
        && turns != path
        && Head::read(&turns, None).is_ok_and(|head| head.format == Some(Format::Run))
}

fn is_side_file(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "json" || ending == "db" || ending == "parquet")
}

/// A message or a part of one, of `OpenCode`'s folders.
fn is_part_of_session(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy()).unwrap_or_default();
    let storage = path.ancestors().nth(3).and_then(Path::file_name);
    storage.is_some_and(|name| name == "storage")
        && (name.starts_with("msg_") || name.starts_with("prt_"))
}

/// Who told a turn first is whose it is. A fork begins with a copy of its origin, so files that begin at the
/// same moment are compared time by time: the origin goes on sooner, or ends before its fork does.
fn in_order_of_telling(mut timed: Vec<(f64, Piece)>) -> Vec<Piece> {
    timed.sort_by(|a, b| a.0.total_cmp(&b.0));
    for group in timed.chunk_by_mut(|a, b| a.0.total_cmp(&b.0).is_eq()) {
        if group.len() > 1 && group[0].0 < f64::MAX {
            group.sort_by_cached_key(|(_, piece)| times(piece).map(order_of).collect::<Vec<_>>());
        }
    }
    timed.into_iter().map(|(_, piece)| piece).collect()
}

/// Microseconds, which have an order.
fn order_of(seconds: f64) -> i64 {
    (seconds * 1e6) as i64
}

/// Files below a folder; one that is named itself is taken whatever it is called.
fn find(path: &Path, is_named: bool, files: &mut Vec<PathBuf>) -> Result<()> {
    let meta = match std::fs::metadata(path) {
        Ok(meta) => meta,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            // A link into nothing, or a file that went meanwhile.
            return if is_named { Err(nothing_at(path)) } else { Ok(()) };
        }
        Err(error) => return Err(Error::io(path, error)),
    };
    if meta.is_dir() {
        let entries = std::fs::read_dir(path).map_err(|error| Error::io(path, error))?;
        for entry in entries {
            find(&entry.map_err(|error| Error::io(path, error))?.path(), false, files)?;
        }
        return Ok(());
    }
    let name = path.to_string_lossy();
    if is_named || ENDINGS.iter().any(|ending| name.ends_with(ending)) {
        files.push(path.to_owned());
    }
    Ok(())
}

fn nothing_at(path: &Path) -> Error {
    Error::config(format!("nothing to import at {}: no such file or folder", path.display()))
}

/// The times of a log's records, as they stand.
fn times(piece: &Piece) -> impl Iterator<Item = f64> + use<> {
    #[derive(Deserialize)]
    struct Stamped {
        timestamp: String,
    }
    let path = piece.files().into_iter().next();
    let mut lines = path.and_then(|path| Lines::peek(&path).ok());
    let mut unheard = Problems::default();
    std::iter::from_fn(move || {
        loop {
            let (_, line) = lines.as_mut()?.next(&mut unheard)?;
            let time = serde_json::from_str::<Stamped>(line).ok();
            if let Some(time) = time.and_then(|stamped| unix_of(&stamped.timestamp)) {
                return Some(time);
            }
        }
    })
}
