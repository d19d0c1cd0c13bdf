//! Masks for what must not be written down: e-mail addresses, user and host names, home paths, keys.
//!
//! Pure, but for the key that is drawn once: a text in, the places to change out. A mask follows from the
//! masked text, its kind and that key alone, never from what stands around it: the same text gives the same
//! mask in every prompt and reply of a run, so that a prompt that grows still begins with the one before.
//! The key is not written into the run, so a mask cannot be guessed back. `detectors` knows what keys look like,
//! `json` looks into the strings of JSON text. Whose texts are masked, and when, is `capture`'s affair.

mod detectors;
mod json;

use std::fmt;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

use sha2::{Digest, Sha256};

use self::detectors::Detectors;

/// What a mask stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// An e-mail address.
    Email,
    /// A key, a token or a password.
    Key,
    /// A person's name on a machine, in a home path or by itself.
    User,
    /// A machine's name.
    Host,
    /// An account's or a device's id at a model provider.
    Account,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Email, Self::Key, Self::User, Self::Host, Self::Account];

    /// The word in masks and counts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Key => "key",
            Self::User => "user",
            Self::Host => "host",
            Self::Account => "account",
        }
    }
}

/// Names to mask wherever they stand as words of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Users of this machine.
    pub users: Vec<String>,
    /// This machine.
    pub hosts: Vec<String>,
}

impl Names {
    /// Names that say nothing of anybody and stand in every other text would mask half of it.
    const COMMON: [&'static str; 26] = [
        "root",
        "user",
        "users",
        "admin",
        "guest",
        "nobody",
        "home",
        "test",
        "tests",
        "dev",
        "app",
        "node",
        "git",
        "docker",
        "runner",
        "worker",
        "agent",
        "claude",
        "codex",
        "ubuntu",
        "debian",
        "vscode",
        "build",
        "main",
        "localhost",
        "localhost.localdomain",
    ];

    /// The names that can be masked: three characters or more, and not words that anybody uses.
    #[must_use]
    pub fn usable(self) -> Self {
        let usable = |name: &String| {
            let lower = name.to_lowercase();
            name.chars().count() >= 3 && !Self::COMMON.contains(&lower.as_str())
        };
        let keep = |names: Vec<String>| names.into_iter().filter(usable).collect();
        Self { users: keep(self.users), hosts: keep(self.hosts) }
    }
}

/// A place in a text, and what is to stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// What it stands for.
    pub kind: Kind,
    /// The bytes to replace.
    pub span: Range<usize>,
    /// The mask.
    pub mask: String,
}

/// Masks texts of one run.
pub struct Masker {
    key: [u8; 16],
    detectors: Detectors,
}

impl Masker {
    /// With a key of its own, and with names to mask.
    pub fn new(names: Names) -> Self {
        // The standard library keys its hash tables with the system's random numbers.
        let random = RandomState::new();
        let (first, second) = (random.hash_one(0_u8), random.hash_one(1_u8));
        let key = ((u128::from(first) << 64) | u128::from(second)).to_be_bytes();
        Self::with_key(key, names)
    }

    /// With a key that is kept elsewhere, so that several runs have the same masks.
    pub fn with_key(key: [u8; 16], names: Names) -> Self {
        Self { key, detectors: Detectors::new(&names.usable()) }
    }

    /// What is to be masked in a plain text, in order.
    pub fn find(&self, text: &str) -> Vec<Edit> {
        let found = self.detectors.find(text);
        let edit = |(kind, span): (Kind, Range<usize>)| {
            let mask = self.mask(kind, &text[span.clone()]);
            Edit { kind, span, mask }
        };
        found.into_iter().map(edit).collect()
    }

    /// The same in JSON text: in its strings, as they read, whatever their spelling. The bytes beside the masks
    /// stay, and what was JSON stays JSON.
    pub fn find_in_json(&self, json: &str) -> Vec<Edit> {
        json::find(json, |text| self.find(text))
    }

    /// A text with its masks.
    pub fn text(&self, text: &str) -> String {
        apply(text, &self.find(text))
    }

    /// JSON text with its masks.
    pub fn json(&self, json: &str) -> String {
        apply(json, &self.find_in_json(json))
    }

    /// The mask of a text: a word of letters, digits and hyphens, which fits wherever the text stood.
    pub fn mask(&self, kind: Kind, text: &str) -> String {
        let mut hasher = Sha256::new();
        hasher.update(self.key);
        hasher.update(kind.as_str());
        hasher.update([0]);
        // A name that is spelt with escapes is the name.
        hasher.update(detectors::unescaped(text).as_bytes());
        let digest = hasher.finalize();
        let mut number = [0; 8];
        number[3..].copy_from_slice(&digest[..5]);
        format!("redacted-{}-{:010x}", kind.as_str(), u64::from_be_bytes(number))
    }
}

/// Neither key nor names get into a log.
impl fmt::Debug for Masker {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Masker").finish_non_exhaustive()
    }
}

/// A text with its edits, which are in order and do not overlap.
pub fn apply(text: &str, edits: &[Edit]) -> String {
    let mut masked = String::with_capacity(text.len());
    let mut position = 0;
    for edit in edits {
        masked.push_str(&text[position..edit.span.start]);
        masked.push_str(&edit.mask);
        position = edit.span.end;
    }
    masked.push_str(&text[position..]);
    masked
}

#[cfg(test)]
mod tests;
