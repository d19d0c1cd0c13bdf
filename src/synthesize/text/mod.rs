//! The words of synthetic sessions: prose, code and command output from templates of our own.
//!
//! Nothing here comes from anybody's code or conversation. A text is asked for by its size in tokens of
//! 4 bytes as it stands in JSON (a line end counts twice), and is the same for the same generator.

pub(crate) mod code;
pub(crate) mod output;
pub(crate) mod prose;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

const NOUNS: [&str; 32] = [
    "invoice", "session", "queue", "parser", "ledger", "cache", "router", "worker", "schema",
    "token", "report", "order", "account", "payment", "catalog", "index", "snapshot", "retry",
    "budget", "webhook", "cursor", "batch", "tenant", "quota", "shard", "digest", "manifest",
    "channel", "policy", "profile", "window", "backlog",
];
const VERBS: [&str; 24] = [
    "load",
    "merge",
    "validate",
    "render",
    "flush",
    "encode",
    "resolve",
    "schedule",
    "collect",
    "split",
    "normalise",
    "compare",
    "archive",
    "restore",
    "count",
    "filter",
    "publish",
    "refresh",
    "trim",
    "verify",
    "rotate",
    "expand",
    "group",
    "replay",
];
const FOLDERS: [&str; 8] = ["core", "api", "storage", "billing", "jobs", "web", "tools", "tests"];

/// The project that a session works on, and the hand that writes about it.
#[derive(Debug)]
pub(crate) struct Author {
    pub(crate) rng: StdRng,
    project: String,
    nouns: Vec<&'static str>,
    verbs: Vec<&'static str>,
}

impl Author {
    /// A project of its own for each generator.
    pub(crate) fn new(rng: StdRng) -> Self {
        let mut author = Self { rng, project: String::new(), nouns: Vec::new(), verbs: Vec::new() };
        for _ in 0..9 {
            let noun = author.pick(&NOUNS);
            let verb = author.pick(&VERBS);
            author.nouns.push(noun);
            author.verbs.push(verb);
        }
        author.project =
            format!("{}-{}", author.pick(&NOUNS), author.pick(&["service", "kit", "hub"]));
        author
    }

    /// The hand that wrote what all sessions share: system prompt and tools.
    pub(crate) fn shared(seed: u64) -> Self {
        Self::new(StdRng::seed_from_u64(seed))
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.rng.random_range(0..from.len())]
    }

    pub(crate) fn number(&mut self, below: u32) -> u32 {
        self.rng.random_range(0..below)
    }

    pub(crate) fn project(&self) -> &str {
        &self.project
    }

    pub(crate) fn noun(&mut self) -> &'static str {
        self.nouns[self.rng.random_range(0..self.nouns.len())]
    }

    pub(crate) fn verb(&mut self) -> &'static str {
        self.verbs[self.rng.random_range(0..self.verbs.len())]
    }

    /// A function's name.
    pub(crate) fn function(&mut self) -> String {
        format!("{}_{}", self.verb(), self.noun())
    }

    /// A file of the project.
    pub(crate) fn path(&mut self) -> String {
        let folder = self.pick(&FOLDERS);
        let noun = self.noun();
        let prefix = if folder == "tests" { "test_" } else { "" };
        format!("/repo/{}/{folder}/{prefix}{noun}.py", self.project)
    }

    /// An id of `length` letters and digits.
    pub(crate) fn id(&mut self, length: usize) -> String {
        const LETTERS: &[u8] = b"abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
        (0..length).map(|_| char::from(self.pick(LETTERS))).collect()
    }

    /// Lines until `tokens` are reached; the last one is cut. All text here is ASCII.
    pub(crate) fn lines(
        &mut self,
        tokens: u32,
        mut line: impl FnMut(&mut Self) -> String,
    ) -> String {
        let budget = tokens.max(1) as usize * 4;
        let mut text = String::new();
        let mut used = 0;
        while used < budget {
            if !text.is_empty() {
                text.push('\n');
                used += 2;
            }
            let next = line(self);
            for letter in next.chars() {
                used += json_bytes(letter);
                if used > budget {
                    return text;
                }
                text.push(letter);
            }
        }
        text
    }
}

/// Bytes that a character takes inside a JSON string.
fn json_bytes(letter: char) -> usize {
    match letter {
        '"' | '\\' | '\n' | '\t' | '\r' => 2,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every kind of text comes in the size asked for, in JSON, within a line end.
    fn check(kind: &str, write: fn(&mut Author, u32) -> String) {
        for (seed, tokens) in [(1, 8), (2, 30), (3, 400), (4, 5000)] {
            let mut author = Author::shared(seed);
            let text = write(&mut author, tokens);
            let json = serde_json::to_string(&text).unwrap();
            let off = json.len() as i64 - 2 - i64::from(tokens) * 4;
            assert!((-2..=2).contains(&off), "{kind} of {tokens} tokens is off by {off} bytes");
            assert!(text.is_ascii());
            assert_eq!(text, write(&mut Author::shared(seed), tokens), "{kind} is not repeatable");
            assert_ne!(text, write(&mut Author::shared(seed + 50), tokens));
        }
    }

    #[test]
    fn texts_have_the_size_asked_for_and_are_repeatable() {
        check("prose", Author::prose);
        check("code", Author::code);
        check("numbered code", Author::numbered_code);
        check("test log", Author::test_log);
        check("service log", Author::service_log);
        check("listing", Author::listing);
        check("matches", Author::matches);
        check("diff", Author::diff);
    }
}
