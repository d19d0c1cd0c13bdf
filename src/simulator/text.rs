//! What the simulated engine says when nobody told it what to say: text of its own, of a length drawn
//! like a coding agent's.
//!
//! Pure, and the same for the same prompt under the same seed: neither the order of requests nor their
//! timing changes a word. The text means nothing; only its length matters to a benchmark.

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, LogNormal};

use super::tokens::Tokenizer;

/// Median of a coding agent's output, in tokens (published by `TraceLab`).
const MEDIAN_TOKENS: f64 = 214.0;
/// Spread of the logarithm around it.
const SIGMA: f64 = 0.9;

const WORDS: [&str; 64] = [
    "the", "a", "this", "each", "one", "file", "test", "line", "function", "value", "result",
    "error", "check", "module", "name", "path", "list", "loop", "state", "field", "type", "case",
    "branch", "commit", "change", "call", "cache", "index", "input", "output", "reads", "writes",
    "returns", "takes", "keeps", "fails", "passes", "shows", "needs", "holds", "first", "next",
    "last", "small", "whole", "empty", "other", "same", "clear", "local", "and", "then", "but",
    "so", "with", "from", "into", "after", "before", "where", "because", "here", "again", "now",
];

/// A source of text and lengths for one reply.
#[derive(Debug)]
pub struct Speaker {
    rng: StdRng,
}

impl Speaker {
    /// What is said follows from this seed alone.
    pub fn new(seed: u64) -> Self {
        Self { rng: StdRng::seed_from_u64(seed) }
    }

    /// Number of tokens after which a reply ends by itself, the ending token included.
    pub fn natural_length(&mut self) -> u32 {
        // Both parameters are constants within the distribution's domain.
        LogNormal::new(MEDIAN_TOKENS.ln(), SIGMA)
            .map_or(MEDIAN_TOKENS, |lengths| lengths.sample(&mut self.rng))
            .round()
            .clamp(2.0, 1e6) as u32
    }

    /// A text of exactly `count` tokens: their ids, the text, and where in it each token ends.
    pub fn text(&mut self, tokenizer: &Tokenizer, count: u32) -> Spoken {
        let count = count as usize;
        let mut text = String::new();
        let mut pieces = Vec::new();
        // A tokenizer that makes few tokens of much text gets more of it, within reason.
        for round in 0..8 {
            let bytes = (count * 4) << round;
            while text.len() < bytes {
                self.sentence(&mut text);
            }
            if matches!(tokenizer, Tokenizer::FourBytes) {
                text.truncate(bytes);
                full_stop(&mut text);
            }
            pieces = tokenizer.pieces(&text);
            if pieces.len() >= count {
                break;
            }
        }
        pieces.truncate(count);
        let end = pieces.last().map_or(0, |piece| piece.1.end);
        text.truncate(end);
        pieces.resize(count, (0, end..end));
        let (ids, ends) = pieces.into_iter().map(|(id, range)| (id, range.end)).unzip();
        Spoken { ids, text, ends }
    }

    fn sentence(&mut self, text: &mut String) {
        let words = self.rng.random_range(5..14);
        for index in 0..words {
            if !text.is_empty() {
                text.push(' ');
            }
            let word = WORDS[self.rng.random_range(0..WORDS.len())];
            if index == 0 {
                text.push(word.as_bytes()[0].to_ascii_uppercase() as char);
                text.push_str(&word[1..]);
            } else {
                text.push_str(word);
            }
        }
        text.push('.');
    }
}

/// Agents trim white space at the end of a reply: a cut text must not end with any.
fn full_stop(text: &mut String) {
    if text.ends_with(' ') {
        text.pop();
        text.push('.');
    }
}

/// Tokens with their text.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spoken {
    /// Token ids.
    pub ids: Vec<u32>,
    /// The text of all.
    pub text: String,
    /// Byte offset in `text` at which each token ends.
    pub ends: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_exactly_the_tokens_asked_for() {
        for count in [0, 1, 2, 7, 50, 1_000] {
            let spoken = Speaker::new(3).text(&Tokenizer::FourBytes, count);
            assert_eq!(spoken.ids.len(), count as usize);
            assert_eq!(spoken.ends.len(), count as usize);
            assert_eq!(spoken.text.len(), count as usize * 4);
            assert!(!spoken.text.ends_with(' '));
            let again: Vec<u32> =
                Tokenizer::FourBytes.pieces(&spoken.text).iter().map(|it| it.0).collect();
            assert_eq!(again, spoken.ids, "text comes back as the tokens it was made of");
        }
    }

    #[test]
    fn a_tokenizer_file_changes_no_count() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokenizer.json");
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
            "added_tokens": [],
            "model": {"type": "WordLevel", "unk_token": "?", "vocab": {"?": 0, "the": 1}},
        });
        std::fs::write(&path, json.to_string()).unwrap();
        let tokenizer = Tokenizer::load(Some(&path)).unwrap();
        for count in [1, 9, 300] {
            let spoken = Speaker::new(3).text(&tokenizer, count);
            assert_eq!((spoken.ids.len(), spoken.ends.len()), (count as usize, count as usize));
            assert_eq!(spoken.text.split_whitespace().count(), count as usize);
        }
    }

    #[test]
    fn a_seed_says_the_same_again_and_another_does_not() {
        let say = |seed| Speaker::new(seed).text(&Tokenizer::FourBytes, 40);
        assert_eq!(say(5), say(5));
        assert_ne!(say(5).text, say(6).text);
    }

    #[test]
    fn lengths_spread_around_the_published_median() {
        let mut lengths: Vec<u32> =
            (0..4_000).map(|seed| Speaker::new(seed).natural_length()).collect();
        lengths.sort_unstable();
        let median = lengths[2_000];
        assert!((195..235).contains(&median), "{median}");
        // One standard deviation of the logarithm up and down.
        let above = lengths.iter().filter(|it| f64::from(**it) > 214.0 * 0.9_f64.exp()).count();
        assert!((540..730).contains(&above), "{above} of 4,000; 635 expected");
    }
}
