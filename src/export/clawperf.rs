//! `ClawPerf`'s recordings: a file for each conversation, an exchange a line.
//!
//! Request bodies are those that were sent, byte for byte. A run keeps what a reply says and not how its stream
//! was cut, so `response_chunks` are an event for each block of it.

use std::path::Path;

use serde::Serialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::chat;
use super::files::{Folder, folder_name};
use super::number::Plain;
use super::sessions::{Columns, Session, Thread, Turn};
use super::tally::{Part, Tally};
use super::{Source, TURNS, Writer};
use crate::api::{Api, ReplyBlock};
use crate::error::{Error, Result};
use crate::trace::Run;
use crate::trace::record::{Outcome, TurnRow};

const LOST: [Part; 6] =
    [Part::Agents, Part::Threads, Part::Parents, Part::Kinds, Part::Times, Part::Waits];

#[derive(Debug, Serialize)]
struct Exchange<'a> {
    index: u32,
    request_body: &'a RawValue,
    response_chunks: Vec<String>,
    ttft_ms: Option<Plain>,
    e2e_ms: Option<Plain>,
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    status_code: Option<u16>,
    error: Option<String>,
}

pub(super) struct Clawperf<'a> {
    folder: Folder,
    run: &'a Run,
    bytes: u64,
}

impl<'a> Clawperf<'a> {
    pub(super) fn new(source: &'a Source<'_>, out: &Path, tally: &mut Tally) -> Result<Self> {
        tally.note(
            "response_chunks are an event for each block of a reply: a run does not keep how its stream was cut"
                .to_owned(),
        );
        Ok(Self { folder: Folder::create(out)?, run: source.run, bytes: 0 })
    }

    /// The lines of a conversation.
    fn lines(&self, thread: &Thread, tally: &mut Tally) -> Result<Vec<u8>> {
        let mut text = Vec::new();
        for turn in &thread.turns {
            let api = Api::from_name(&turn.row.api);
            let body = self.body(&turn.row)?;
            let (Some(api), Some(body)) = (api, body) else {
                tally.left_out("turns whose request body was not recorded");
                continue;
            };
            let Some(chunks) = chunks(api, turn) else {
                tally.left_out("turns of Responses, whose streams have no form here");
                continue;
            };
            text.extend(crate::out_file::json(&exchange(turn, &body, chunks))?);
            text.push(b'\n');
            tally.wrote(1, TURNS);
            tally.wrote(turn.calls.len(), "tool_calls");
        }
        Ok(text)
    }

    fn body(&self, row: &TurnRow) -> Result<Option<Box<RawValue>>> {
        if row.body_template.is_empty() {
            return Ok(None);
        }
        let body = self.run.request_body(row)?;
        let text = String::from_utf8(body).ok();
        Ok(text.and_then(|text| RawValue::from_string(text).ok()))
    }
}

impl Writer for Clawperf<'_> {
    fn columns(&self) -> Columns {
        Columns { turns: chat::COLUMNS, calls: &[] }
    }

    fn tells_failures(&self) -> bool {
        true
    }

    fn session(&mut self, session: &Session, tally: &mut Tally) -> Result<()> {
        tally.without(session, &LOST);
        for (place, thread) in session.threads.iter().enumerate() {
            let text = self.lines(thread, tally)?;
            if text.is_empty() {
                continue;
            }
            let name = folder_name(&session.thread_name(place));
            let path = self.folder.path().join(format!("{name}.jsonl"));
            std::fs::write(&path, &text).map_err(|error| Error::io(&path, error))?;
            self.bytes += text.len() as u64;
            tally.wrote(1, "conversations");
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.folder.publish()?;
        Ok(self.bytes)
    }
}

fn exchange<'a>(turn: &Turn, body: &'a RawValue, response_chunks: Vec<String>) -> Exchange<'a> {
    let row = &turn.row;
    let failed = row.outcome != Outcome::Ok;
    Exchange {
        index: row.turn,
        request_body: body,
        response_chunks,
        ttft_ms: row.ttft_ms.map(Plain),
        e2e_ms: row.e2e_ms.map(Plain),
        input_tokens: row.isl,
        output_tokens: row.osl,
        status_code: row.http_status,
        error: row.error.clone().or_else(|| failed.then(|| "not answered whole".to_owned())),
    }
}

/// A reply as events of its API's stream; none for an API whose events nobody reads there.
fn chunks(api: Api, turn: &Turn) -> Option<Vec<String>> {
    let row = &turn.row;
    let blocks: Vec<ReplyBlock> = serde_json::from_str(&row.reply_blocks).unwrap_or_default();
    let events = match api {
        Api::Chat => chat_events(row, &blocks),
        Api::Messages => message_events(row, &blocks),
        Api::Completions => completion_events(row, &blocks),
        Api::Responses => return None,
    };
    Some(events.into_iter().map(|event| format!("data: {event}")).collect())
}

/// The usage of a Chat or Completions response, as far as it is known.
fn usage(row: &TurnRow) -> Option<Value> {
    let (isl, osl) = (row.isl?, row.osl?);
    let mut usage = json!({
        "prompt_tokens": isl, "completion_tokens": osl, "total_tokens": isl + osl,
    });
    if let Some(cached) = row.isl_cached {
        usage["prompt_tokens_details"] = json!({"cached_tokens": cached});
    }
    if let Some(reasoning) = row.reasoning_tokens {
        usage["completion_tokens_details"] = json!({"reasoning_tokens": reasoning});
    }
    Some(usage)
}

fn with_end(mut events: Vec<Value>, row: &TurnRow, last: Value) -> Vec<Value> {
    if let Some(reason) = &row.stop_reason {
        let mut choice = last;
        choice["finish_reason"] = json!(reason);
        events.push(json!({"choices": [choice]}));
    }
    if let Some(usage) = usage(row) {
        events.push(json!({"choices": [], "usage": usage}));
    }
    events
}

fn chat_events(row: &TurnRow, blocks: &[ReplyBlock]) -> Vec<Value> {
    let mut n_calls = 0_usize;
    let deltas = blocks.iter().map(|block| match block {
        ReplyBlock::Text { text } => json!({"content": text}),
        ReplyBlock::Reasoning { text, .. } => json!({"reasoning_content": text}),
        ReplyBlock::ToolCall { id, name, arguments } => {
            n_calls += 1;
            json!({"tool_calls": [{
                "index": n_calls - 1, "id": id, "type": "function",
                "function": {"name": name, "arguments": arguments},
            }]})
        }
    });
    let events = deltas.map(|delta| json!({"choices": [{"index": 0, "delta": delta}]})).collect();
    with_end(events, row, json!({"index": 0, "delta": {}}))
}

fn completion_events(row: &TurnRow, blocks: &[ReplyBlock]) -> Vec<Value> {
    let texts = blocks.iter().filter_map(|block| match block {
        ReplyBlock::Text { text } => Some(text),
        ReplyBlock::Reasoning { .. } | ReplyBlock::ToolCall { .. } => None,
    });
    let events = texts.map(|text| json!({"choices": [{"index": 0, "text": text}]})).collect();
    with_end(events, row, json!({"index": 0, "text": ""}))
}

fn message_events(row: &TurnRow, blocks: &[ReplyBlock]) -> Vec<Value> {
    let mut usage = Map::new();
    let uncached = || {
        let cached = row.isl_cached.unwrap_or_default() + row.isl_cache_write.unwrap_or_default();
        row.isl?.checked_sub(cached)
    };
    for (name, tokens) in [
        ("input_tokens", uncached()),
        ("cache_read_input_tokens", row.isl_cached),
        ("cache_creation_input_tokens", row.isl_cache_write),
    ] {
        usage.extend(tokens.map(|tokens| (name.to_owned(), json!(tokens))));
    }
    let message = json!({"type": "message", "role": "assistant", "content": [], "model": row.model, "usage": usage});
    let mut events = vec![json!({"type": "message_start", "message": message})];
    for (index, block) in blocks.iter().enumerate() {
        let (block, deltas) = match block {
            ReplyBlock::Text { text } => (
                json!({"type": "text", "text": ""}),
                vec![json!({"type": "text_delta", "text": text})],
            ),
            ReplyBlock::Reasoning { text, signature } => {
                let thinking = json!({"type": "thinking_delta", "thinking": text});
                let signature = signature.iter();
                let signed =
                    signature.map(|text| json!({"type": "signature_delta", "signature": text}));
                let deltas = std::iter::once(thinking).chain(signed).collect();
                (json!({"type": "thinking", "thinking": "", "signature": ""}), deltas)
            }
            ReplyBlock::ToolCall { id, name, arguments } => (
                json!({"type": "tool_use", "id": id, "name": name, "input": {}}),
                vec![json!({"type": "input_json_delta", "partial_json": arguments})],
            ),
        };
        events.push(json!({"type": "content_block_start", "index": index, "content_block": block}));
        events.extend(
            deltas.into_iter().map(
                |delta| json!({"type": "content_block_delta", "index": index, "delta": delta}),
            ),
        );
        events.push(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": row.stop_reason, "stop_sequence": null});
    let output = row.osl.map(|osl| json!({"output_tokens": osl}));
    events.push(json!({"type": "message_delta", "delta": delta, "usage": output}));
    events.push(json!({"type": "message_stop"}));
    events
}
