//! Text into tokens: groups of four bytes, or a real `tokenizer.json`.
//!
//! A prompt is cut into segments first: marks (turn begins, turn ends, …) are tokens of their own, and
//! each text between them is cut afresh. So a conversation that grows keeps the tokens it had, and text
//! that was generated comes back as the tokens it was generated as.

use std::ops::Range;
use std::path::Path;

use crate::error::{Error, Result};

/// A mark in a rendered prompt: one token that no text can spell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// A turn begins.
    Start,
    /// A turn ends; also the token with which a reply ends by itself.
    End,
    /// A tool call begins.
    CallStart,
    /// A tool call ends.
    CallEnd,
}

impl Mark {
    // UTF-8 has no byte 0xff, so no group of text bytes equals one of these.
    fn id(self) -> u32 {
        match self {
            Self::Start => 0xff00_0001,
            Self::End => 0xff00_0002,
            Self::CallStart => 0xff00_0003,
            Self::CallEnd => 0xff00_0004,
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Start => "<|im_start|>",
            Self::End => "<|im_end|>",
            Self::CallStart => "<tool_call>",
            Self::CallEnd => "</tool_call>",
        }
    }
}

/// A piece of a rendered prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Segment {
    /// A mark.
    Mark(Mark),
    /// Text.
    Text(String),
}

/// How text becomes tokens.
#[derive(Debug)]
pub enum Tokenizer {
    /// Groups of four bytes.
    FourBytes,
    /// A tokenizer in the `tokenizer.json` format.
    File(Box<tokenizers::Tokenizer>),
}

impl Tokenizer {
    /// Four-byte groups, or the tokenizer that a file holds.
    pub fn load(path: Option<&Path>) -> Result<Self> {
        let Some(path) = path else { return Ok(Self::FourBytes) };
        let tokenizer = tokenizers::Tokenizer::from_file(path).map_err(|error| {
            let error = error.to_string().replace('\n', " ");
            Error::config(format!(
                "{}: not a usable tokenizer.json: {error}; leave the tokenizer out for four-byte tokens",
                path.display()
            ))
        })?;
        Ok(Self::File(Box::new(tokenizer)))
    }

    /// Appends the tokens of a rendered prompt.
    pub fn encode(&self, segments: &[Segment]) -> Vec<u32> {
        let mut ids = Vec::new();
        for segment in segments {
            match segment {
                Segment::Mark(mark) => ids.extend(self.mark(*mark)),
                Segment::Text(text) => self.encode_text(text, &mut ids),
            }
        }
        ids
    }

    fn encode_text(&self, text: &str, ids: &mut Vec<u32>) {
        match self {
            Self::FourBytes => ids.extend(text.as_bytes().chunks(4).map(group_id)),
            // Without offsets, which a prompt does not need and which cost time.
            Self::File(tokenizer) => {
                if let Ok(encoding) = tokenizer.encode_fast(text, false) {
                    ids.extend_from_slice(encoding.get_ids());
                }
            }
        }
    }

    /// The tokens of a mark: one, unless a tokenizer file does not know it.
    pub fn mark(&self, mark: Mark) -> Vec<u32> {
        match self {
            Self::FourBytes => vec![mark.id()],
            Self::File(tokenizer) => match tokenizer.token_to_id(mark.text()) {
                Some(id) => vec![id],
                None => self.pieces(mark.text()).into_iter().map(|piece| piece.0).collect(),
            },
        }
    }

    /// The tokens of a text, each with the bytes it stands for; the ranges cover the text.
    pub fn pieces(&self, text: &str) -> Vec<(u32, Range<usize>)> {
        match self {
            Self::FourBytes => four_byte_pieces(text),
            Self::File(tokenizer) => file_pieces(tokenizer, text),
        }
    }
}

fn group_id(group: &[u8]) -> u32 {
    group.iter().rev().fold(0, |id, byte| id << 8 | u32::from(*byte))
}

fn four_byte_pieces(text: &str) -> Vec<(u32, Range<usize>)> {
    let bytes = text.as_bytes();
    let pieces = bytes
        .chunks(4)
        .enumerate()
        .map(|(index, group)| (group_id(group), index * 4..index * 4 + group.len()));
    pieces.collect()
}

fn file_pieces(tokenizer: &tokenizers::Tokenizer, text: &str) -> Vec<(u32, Range<usize>)> {
    // An encoder that refuses a text is a tokenizer without an unknown token; its text counts as none.
    let Ok(encoding) = tokenizer.encode(text, false) else { return Vec::new() };
    let offsets = encoding.get_offsets();
    let mut pieces = Vec::with_capacity(offsets.len());
    let mut from = 0;
    for (index, id) in encoding.get_ids().iter().enumerate() {
        let last = index + 1 == offsets.len();
        let mut until = if last { text.len() } else { offsets[index].1.max(from).min(text.len()) };
        // Byte-level tokens may end inside a character: its text then comes with the token that
        // completes it.
        while !text.is_char_boundary(until) {
            until -= 1;
        }
        let until = until.max(from);
        pieces.push((*id, from..until));
        from = until;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_bytes_are_a_token() {
        let check = |text: &str, ids: &[u32]| {
            let got: Vec<u32> = Tokenizer::FourBytes.pieces(text).iter().map(|it| it.0).collect();
            assert_eq!(got, ids, "{text:?}");
        };
        check("", &[]);
        check("a", &[0x61]);
        check("abcd", &[0x6463_6261]);
        check("abcde", &[0x6463_6261, 0x65]);
        check("aéb", &[0x62a9_c361]);
        let segments = [
            Segment::Mark(Mark::Start),
            Segment::Text("user\n".into()),
            Segment::Text("hi".into()),
            Segment::Mark(Mark::End),
        ];
        assert_eq!(
            Tokenizer::FourBytes.encode(&segments),
            [0xff00_0001, 0x7265_7375, 0x0a, 0x6968, 0xff00_0002]
        );
    }

    #[test]
    fn a_tokenizer_file_is_used() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokenizer.json");
        let json = serde_json::json!({
            "version": "1.0", "truncation": null, "padding": null, "normalizer": null,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": null, "decoder": null,
            "added_tokens": [{"id": 4, "content": "<|im_end|>", "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
            "model": {"type": "WordLevel", "unk_token": "?",
                "vocab": {"?": 0, "fix": 1, "the": 2, "test": 3}},
        });
        std::fs::write(&path, json.to_string()).unwrap();
        let tokenizer = Tokenizer::load(Some(&path)).unwrap();
        assert_eq!(tokenizer.pieces("fix the test"), [(1, 0..3), (2, 3..7), (3, 7..12)]);
        assert_eq!(tokenizer.mark(Mark::End), [4]);
        // A mark that the file does not know is spelled out.
        assert_eq!(tokenizer.mark(Mark::Start), [0]);
    }

    #[test]
    fn a_broken_file_is_a_wrong_setting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("tokenizer.json");
        let error = Tokenizer::load(Some(&path)).unwrap_err().to_string();
        assert!(error.contains("tokenizer.json: not a usable tokenizer.json"), "{error}");
        std::fs::write(&path, "{}").unwrap();
        assert!(matches!(Tokenizer::load(Some(&path)), Err(Error::Config(_))));
    }
}
