//! A streamed response as it comes: which chunks carry output, when, and how many tokens.
//!
//! Pure: bytes and stamps in, rows' columns out. What events mean is `api`'s to say; bytes come from
//! `client`.

use crate::api::{Api, Reply, ReplyBlock, ReplyDecoder};
use crate::clock::elapsed_ms;

/// Reads one stream. Every event is stamped with the arrival of the bytes that ended it.
#[derive(Debug)]
pub struct ResponseReader {
    decoder: ReplyDecoder,
    outputs: Vec<Output>,
    unknown_tokens: bool,
    tokens_counted: u64,
    first_reasoning_ns: Option<i64>,
    first_visible_ns: Option<i64>,
}

/// A chunk whose delta carries text, reasoning or a tool call.
#[derive(Debug, Clone, Copy)]
struct Output {
    at_ns: i64,
    tokens: u32,
}

/// What a stream came to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Received {
    /// The first chunk with output.
    pub first_output_ns: Option<i64>,
    /// The first chunk with reasoning.
    pub first_reasoning_ns: Option<i64>,
    /// The first chunk with text or a tool call.
    pub first_visible_ns: Option<i64>,
    /// The last chunk with output.
    pub last_output_ns: Option<i64>,
    /// Gaps between output chunks.
    pub chunk_gap_ms: Vec<f64>,
    /// Output tokens of each output chunk; empty where the engine does not tell them.
    pub chunk_tokens: Vec<u32>,
    /// The reply, read whole.
    pub reply: Reply,
}

impl ResponseReader {
    /// A reader of one response in this API.
    pub fn new(api: Api) -> Self {
        Self {
            decoder: ReplyDecoder::new(api),
            outputs: Vec::new(),
            unknown_tokens: false,
            tokens_counted: 0,
            first_reasoning_ns: None,
            first_visible_ns: None,
        }
    }

    /// Takes the next piece, cut anywhere.
    pub fn take(&mut self, mut bytes: &[u8], at_ns: i64) {
        // Event by event, so that each chunk's own count of tokens is seen where several events came
        // in one piece.
        while !bytes.is_empty() {
            let (event, rest) = bytes.split_at(event_end(bytes));
            bytes = rest;
            let fed = self.decoder.feed(event);
            if fed.output_chunks > 0 {
                self.see_kinds(at_ns);
            }
            let counted = fed.completion_tokens_so_far;
            for index in 0..fed.output_chunks {
                let last_of_piece = index + 1 == fed.output_chunks;
                let tokens = counted.filter(|_| last_of_piece).map(|counted| {
                    let more = counted.saturating_sub(self.tokens_counted);
                    self.tokens_counted = counted.max(self.tokens_counted);
                    more as u32
                });
                self.unknown_tokens |= tokens.is_none();
                self.outputs.push(Output { at_ns, tokens: tokens.unwrap_or_default() });
            }
        }
    }

    /// Stamps the first output of either kind, which is what the reply holds for the first time.
    fn see_kinds(&mut self, at_ns: i64) {
        if self.first_reasoning_ns.is_some() && self.first_visible_ns.is_some() {
            return;
        }
        for block in &self.decoder.reply().blocks {
            let first = match block {
                ReplyBlock::Reasoning { text, .. } if !text.is_empty() => {
                    &mut self.first_reasoning_ns
                }
                ReplyBlock::Text { text } if !text.is_empty() => &mut self.first_visible_ns,
                ReplyBlock::ToolCall { .. } => &mut self.first_visible_ns,
                ReplyBlock::Reasoning { .. } | ReplyBlock::Text { .. } => continue,
            };
            first.get_or_insert(at_ns);
        }
    }

    /// The first chunk with output so far.
    pub fn first_output_ns(&self) -> Option<i64> {
        self.outputs.first().map(|output| output.at_ns)
    }

    /// The stream has ended, well or not.
    pub fn finish(self) -> Received {
        let stamps = || self.outputs.iter().map(|output| output.at_ns);
        let tokens = self.outputs.iter().map(|output| output.tokens);
        Received {
            first_output_ns: stamps().next(),
            first_reasoning_ns: self.first_reasoning_ns,
            first_visible_ns: self.first_visible_ns,
            last_output_ns: stamps().next_back(),
            chunk_gap_ms: stamps().zip(stamps().skip(1)).map(|(a, b)| elapsed_ms(a, b)).collect(),
            chunk_tokens: if self.unknown_tokens { Vec::new() } else { tokens.collect() },
            reply: self.decoder.finish(),
        }
    }
}

/// Length of the first event in `bytes`, its blank line included; all of it where none ends here.
fn event_end(bytes: &[u8]) -> usize {
    let mut line_start = 0;
    while let Some(length) = bytes[line_start..].iter().position(|byte| *byte == b'\n') {
        let line = &bytes[line_start..line_start + length];
        line_start += length + 1;
        if line.is_empty() || line == b"\r" {
            return line_start;
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chat(delta: &str, tokens: Option<u64>) -> String {
        let usage = tokens.map_or(String::new(), |tokens| {
            format!(r#","usage":{{"prompt_tokens":7,"completion_tokens":{tokens}}}"#)
        });
        format!("data: {{\"choices\":[{{\"index\":0,\"delta\":{delta}}}]{usage}}}\n\n")
    }

    fn text(word: &str, tokens: Option<u64>) -> String {
        chat(&format!(r#"{{"content":"{word}"}}"#), tokens)
    }

    /// Pieces with their arrival in ms -> first and last output in ms, gaps, tokens.
    #[track_caller]
    fn check(pieces: &[(i64, String)], outputs: (i64, i64), gaps: &[f64], tokens: &[u32]) {
        let mut reader = ResponseReader::new(Api::Chat);
        for (at_ms, piece) in pieces {
            reader.take(piece.as_bytes(), at_ms * 1_000_000);
        }
        let received = reader.finish();
        assert_eq!(received.first_output_ns, Some(outputs.0 * 1_000_000));
        assert_eq!(received.last_output_ns, Some(outputs.1 * 1_000_000));
        assert_eq!(received.chunk_gap_ms, gaps);
        assert_eq!(received.chunk_tokens, tokens);
    }

    #[test]
    fn only_chunks_with_output_count() {
        check(
            &[
                (10, chat(r#"{"role":"assistant","content":""}"#, None)),
                (50, text("a", None)),
                (90, text("b", None)),
                (95, chat("{}", None)),
                (99, "data: [DONE]\n\n".into()),
            ],
            (50, 90),
            &[40.0],
            &[],
        );
    }

    #[test]
    fn running_usage_gives_the_tokens_of_each_chunk() {
        check(
            &[
                (10, chat(r#"{"role":"assistant","content":""}"#, Some(0))),
                (50, text("a", Some(1))),
                (90, text("bcde", Some(5))),
                (130, text("fghi", Some(9))),
                (130, chat("{}", Some(10))),
            ],
            (50, 130),
            &[40.0, 40.0],
            &[1, 4, 4],
        );
        // A token without text of its own counts with the chunk that shows it.
        check(
            &[
                (10, text("a", Some(1))),
                (20, chat(r#"{"content":""}"#, Some(2))),
                (30, text("é", Some(3))),
            ],
            (10, 30),
            &[20.0],
            &[1, 2],
        );
    }

    #[test]
    fn events_that_came_in_one_piece_keep_their_own_tokens() {
        let events = text("a", Some(1)) + &text("bc", Some(3)) + &text("d", Some(4));
        check(&[(10, events)], (10, 10), &[0.0, 0.0], &[1, 2, 1]);
        // An event cut by the network is stamped when it is whole.
        let event = text("b", Some(2));
        let (head, tail) = event.split_at(9);
        check(
            &[(10, text("a", Some(1)) + head), (30, tail.to_owned())],
            (10, 30),
            &[20.0],
            &[1, 1],
        );
    }

    #[test]
    fn reasoning_and_what_the_user_sees_have_first_chunks_of_their_own() {
        let call =
            r#"{"tool_calls":[{"index":0,"id":"c","function":{"name":"ls","arguments":""}}]}"#;
        let reasoning = |text: &str| chat(&format!(r#"{{"reasoning_content":"{text}"}}"#), None);
        for (pieces, expected) in [
            (vec![(10, reasoning("hm")), (20, reasoning("so")), (30, text("a", None))], (10, 30)),
            (vec![(10, chat(r#"{"content":""}"#, None)), (20, text("a", None))], (0, 20)),
            (vec![(5, reasoning("hm")), (25, chat(call, None))], (5, 25)),
            (vec![(5, reasoning("hm"))], (5, 0)),
            (vec![], (0, 0)),
        ] {
            let mut reader = ResponseReader::new(Api::Chat);
            for (at_ms, piece) in &pieces {
                reader.take(piece.as_bytes(), *at_ms);
            }
            let received = reader.finish();
            let at = |ns: Option<i64>| ns.unwrap_or_default();
            let seen = (at(received.first_reasoning_ns), at(received.first_visible_ns));
            assert_eq!(seen, expected, "{pieces:?}");
        }
    }

    #[test]
    fn one_chunk_without_a_count_makes_the_counts_unknown() {
        check(&[(10, text("a", Some(1))), (20, text("b", None))], (10, 20), &[10.0], &[]);
    }

    #[test]
    fn events_end_at_their_blank_line() {
        for (bytes, expected) in
            [("a\n\nb", 3), ("a\r\n\r\nb", 5), ("a\nb\n", 4), ("\nb", 1), ("a", 1), ("a\n", 2)]
        {
            assert_eq!(event_end(bytes.as_bytes()), expected, "{bytes:?}");
        }
    }
}
