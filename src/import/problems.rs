//! Records that could not be read: each is counted, the first are kept with their place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// So many are listed; the others are only counted.
const LISTED: usize = 100;

/// A record that was left out, or read only in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Its line, from 1; 0 for the whole file.
    pub line: u64,
    /// What is wrong.
    pub what: String,
}

/// All of an import's problems.
#[derive(Debug, Clone, Default)]
pub struct Problems {
    listed: Vec<Problem>,
    counts: BTreeMap<&'static str, u64>,
}

impl Problems {
    /// Notes one. `kind` is what it is counted under.
    pub(super) fn add(
        &mut self,
        kind: &'static str,
        file: &Path,
        line: u64,
        what: impl Into<String>,
    ) {
        *self.counts.entry(kind).or_default() += 1;
        if self.listed.len() < LISTED {
            self.listed.push(Problem { file: file.to_owned(), line, what: what.into() });
        }
    }

    /// Takes over those of a part of the work.
    pub(super) fn append(&mut self, other: Self) {
        for (kind, n) in other.counts {
            *self.counts.entry(kind).or_default() += n;
        }
        let room = LISTED - self.listed.len();
        self.listed.extend(other.listed.into_iter().take(room));
    }

    /// The first of them.
    pub fn listed(&self) -> &[Problem] {
        &self.listed
    }

    /// How many of each kind.
    pub fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }

    /// How many in all.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}
