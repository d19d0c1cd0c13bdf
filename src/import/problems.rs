//! Records that could not be read: each is counted, the first are kept with their place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// So many are listed; the others are only counted.
const LISTED: usize = 100;

/// A record that was left out, or read only in part.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The file.
    pub file: PathBuf,
    /// Its line, from 1; 0 for the whole file.
    pub line: u64,
    /// What is wrong.
    pub what: String,
}

impl Problem {
    /// Where and what, for people.
    pub(super) fn told(&self) -> String {
        let Self { file, line, what } = self;
        match line {
            0 => format!("{}: {what}", file.display()),
            line => format!("{}:{line}: {what}", file.display()),
        }
    }
}

/// All of an import's problems.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Problems {
    listed: Vec<Problem>,
    counts: BTreeMap<String, u64>,
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
        match self.counts.get_mut(kind) {
            Some(n) => *n += 1,
            None => drop(self.counts.insert(kind.to_owned(), 1)),
        }
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

    /// Takes over those of another look at the same places: what is found again is one problem.
    pub(super) fn look_again(&mut self, other: Self) {
        for (kind, n) in other.counts {
            let known = self.counts.entry(kind).or_default();
            *known = n.max(*known);
        }
        let new = other.listed.into_iter().filter(|problem| !self.listed.contains(problem));
        let new: Vec<Problem> = new.take(LISTED - self.listed.len()).collect();
        self.listed.extend(new);
    }

    /// The first of them.
    pub fn listed(&self) -> &[Problem] {
        &self.listed
    }

    /// How many of each kind.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// How many in all.
    pub fn total(&self) -> u64 {
        self.counts.values().sum()
    }
}
