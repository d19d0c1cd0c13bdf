//! What an import has read, in a file beside its tables, so that a later one takes in only what is new.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::problems::Problems;
use super::rows::Seen;
use crate::error::{Error, Result};
use crate::trace::{Table, write_whole};

const FILE: &str = "import_sources.json";
const VERSION: u32 = 1;

/// What was read of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Part {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
    /// Of these bytes.
    pub(super) sha256: String,
}

/// A piece of work that was done.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Known {
    /// What it is known by.
    pub(super) key: String,
    pub(super) format: String,
    pub(super) files: Vec<Part>,
    /// Rows that it came to in each table; those of all pieces follow one another.
    pub(super) rows: BTreeMap<String, u64>,
    pub(super) seen: Seen,
    pub(super) problems: Problems,
}

/// All that an import has read.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct State {
    version: u32,
    pub(super) pieces: Vec<Known>,
    /// What is wrong with files that are no piece of work.
    pub(super) other_problems: Problems,
}

impl State {
    pub(super) fn load(dir: &Path) -> Result<Self> {
        let path = dir.join(FILE);
        let remedy = "import everything into a new directory";
        let bytes = std::fs::read(&path).map_err(|_| {
            Error::config(format!(
                "{}: no {FILE}, so what it was made of is not known; {remedy}",
                dir.display()
            ))
        })?;
        let state: Self = serde_json::from_slice(&bytes)
            .map_err(|error| Error::config(format!("{}: {error}; {remedy}", path.display())))?;
        if state.version > VERSION {
            return Err(Error::config(format!(
                "{}: written by a later agentbench; update agentbench",
                path.display()
            )));
        }
        Ok(state)
    }

    pub(super) fn store(&mut self, dir: &Path) -> Result<()> {
        self.version = VERSION;
        let bytes = serde_json::to_vec(self).map_err(|error| Error::Internal(error.to_string()))?;
        write_whole(&dir.join(FILE), &bytes)
    }

    /// Which rows of a table stay where only the pieces that `stays` says do; the pieces that go are taken
    /// out.
    pub(super) fn keep(
        &mut self,
        stays: impl Fn(&Known) -> bool,
    ) -> BTreeMap<Table, Vec<Range<u64>>> {
        let mut kept: BTreeMap<Table, Vec<Range<u64>>> = BTreeMap::new();
        let mut starts: BTreeMap<Table, u64> = BTreeMap::new();
        for piece in &self.pieces {
            let stays = stays(piece);
            for table in tables() {
                let rows = piece.rows.get(table.stem()).copied().unwrap_or(0);
                let start = starts.entry(table).or_default();
                let ranges = kept.entry(table).or_default();
                if stays && rows > 0 {
                    match ranges.last_mut().filter(|last| last.end == *start) {
                        Some(last) => last.end += rows,
                        None => ranges.push(*start..*start + rows),
                    }
                }
                *start += rows;
            }
        }
        self.pieces.retain(stays);
        kept
    }

    /// Which piece each row of the turns is of.
    pub(super) fn piece_of_turns(&self) -> impl Iterator<Item = usize> + '_ {
        self.pieces.iter().enumerate().flat_map(|(index, piece)| {
            let rows = piece.rows.get(Table::Turns.stem()).copied().unwrap_or(0);
            (0..rows).map(move |_| index)
        })
    }
}

/// Tables whose rows are a piece's own: units are shared.
fn tables() -> impl Iterator<Item = Table> {
    Table::ALL.into_iter().filter(|table| *table != Table::Units)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[allow(clippy::single_range_in_vec_init)]
    fn rows_that_stay_are_those_of_the_pieces_that_stay() {
        let piece = |key: &str, turns: u64, calls: u64| Known {
            key: key.to_owned(),
            format: String::new(),
            files: Vec::new(),
            rows: [("turn_traces".to_owned(), turns), ("tool_calls".to_owned(), calls)].into(),
            seen: Seen::default(),
            problems: Problems::default(),
        };
        let mut state = State {
            pieces: vec![piece("a", 3, 0), piece("b", 2, 4), piece("c", 1, 1), piece("d", 5, 2)],
            ..State::default()
        };
        let of: Vec<usize> = state.piece_of_turns().collect();
        assert_eq!(of, [0, 0, 0, 1, 1, 2, 3, 3, 3, 3, 3]);
        let kept = state.keep(|piece| piece.key != "b");
        assert_eq!(kept[&Table::Turns], [0..3, 5..11]);
        assert_eq!(kept[&Table::ToolCalls], [4..7]);
        assert_eq!(kept[&Table::Power], []);
        assert_eq!(state.pieces.len(), 3);

        let folder = tempfile::tempdir().unwrap();
        assert!(State::load(folder.path()).unwrap_err().to_string().contains("new directory"));
        state.store(folder.path()).unwrap();
        assert_eq!(State::load(folder.path()).unwrap(), state);
    }
}
