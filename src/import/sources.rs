//! From what the user names to pieces of work: files found, their formats told, those that belong together
//! put together, in the order of their first records.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;

use super::claude_code::SessionFiles;
use super::format::Format;
use super::lines::Lines;
use super::problems::Problems;
use super::times::unix_of;
use crate::error::{Error, Result};

/// Endings of files that may hold records.
const ENDINGS: [&str; 8] =
    [".jsonl", ".jsonl.gz", ".csv", ".csv.gz", ".json", ".json.gz", ".traj", ".ndjson"];

/// Something to read as one.
#[derive(Debug, Clone)]
pub(super) enum Piece {
    /// A session of Claude Code.
    ClaudeCode(SessionFiles),
    /// A thread of Codex.
    Codex(PathBuf),
    /// A file whose lines stand by themselves.
    Rows(PathBuf, Format),
}

impl Piece {
    pub(super) fn format(&self) -> Format {
        match self {
            Self::ClaudeCode(_) => Format::ClaudeCode,
            Self::Codex(_) => Format::Codex,
            Self::Rows(_, format) => *format,
        }
    }

    pub(super) fn files(&self) -> Vec<&Path> {
        match self {
            Self::ClaudeCode(files) => {
                files.main.iter().chain(&files.subagents).map(PathBuf::as_path).collect()
            }
            Self::Codex(path) | Self::Rows(path, _) => vec![path],
        }
    }
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
    let mut sessions: BTreeMap<PathBuf, SessionFiles> = BTreeMap::new();
    let mut pieces = Vec::new();
    for path in files {
        let format = match forced {
            Some(format) => Some(format),
            None => Format::of(&path)?,
        };
        match format {
            Some(Format::ClaudeCode) => belongs_to(&mut sessions, path),
            Some(Format::Codex) => pieces.push(Piece::Codex(path)),
            Some(format) => pieces.push(Piece::Rows(path, format)),
            // What lies beside records (notes, settings) is no loss; what was named is.
            None if sources.contains(&path) || !path.to_string_lossy().ends_with(".json") => {
                problems.add("unknown format", &path, 0, "no known format; --format names it");
            }
            None => {}
        }
    }
    pieces.extend(sessions.into_values().map(Piece::ClaudeCode));
    Ok(in_order_of_telling(pieces))
}

/// Who told a turn first is whose it is. A fork begins with a copy of its origin, so files that begin at the
/// same moment are compared time by time: the origin goes on sooner, or ends before its fork does.
fn in_order_of_telling(pieces: Vec<Piece>) -> Vec<Piece> {
    let first = |piece: &Piece| times(piece).next().unwrap_or(f64::MAX);
    let mut timed: Vec<(f64, Piece)> =
        pieces.into_iter().map(|piece| (first(&piece), piece)).collect();
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
    let meta = std::fs::metadata(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => Error::config(format!(
            "nothing to import at {}: no such file or folder",
            path.display()
        )),
        _ => Error::io(path, error),
    })?;
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

/// `SESSION.jsonl` and `SESSION/subagents/agent-*.jsonl` are one session.
fn belongs_to(sessions: &mut BTreeMap<PathBuf, SessionFiles>, path: PathBuf) {
    let folder = path.parent().unwrap_or(Path::new(""));
    if folder.file_name().is_some_and(|name| name == "subagents")
        && let Some(session) = folder.parent()
    {
        sessions.entry(session.to_owned()).or_default().subagents.push(path);
    } else {
        let stem = path.with_extension("");
        sessions.entry(stem).or_default().main = Some(path);
    }
}

/// The times of a piece's records, as they stand. What no clock stamps has none.
fn times(piece: &Piece) -> impl Iterator<Item = f64> + use<> {
    #[derive(Deserialize)]
    struct Stamped {
        timestamp: String,
    }
    let path = piece.files().first().map(|path| path.to_path_buf());
    let is_log = !matches!(piece, Piece::Rows(..));
    let mut lines = path.filter(|_| is_log).and_then(|path| Lines::open(&path).ok());
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
