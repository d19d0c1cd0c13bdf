//! Codex's own logs, a file for each thread.
//!
//! A turn is what the model gave between some input and the token count that reports it; a report that
//! repeats the last one is an echo. Files of forks and subagents tell their parent's history again: those
//! turns carry the parent's turn ids and are told apart by them. Cumulative snapshots are not added up. Tool
//! definitions are not in these logs; instructions and all items are.

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::codex_thread::{Item, Reported, Thread};
use super::draft::{Drafts, Tokens};
use super::lines::{Lines, Tally};
use super::problems::Problems;
use super::times::unix_of;
use crate::error::Result;

#[derive(Debug, Deserialize)]
struct Record<'a> {
    #[serde(borrow, default)]
    timestamp: Option<Cow<'a, str>>,
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    payload: Option<&'a RawValue>,
}

/// What a file says of its thread.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SessionMeta {
    id: String,
    session_id: Option<String>,
    forked_from_id: Option<String>,
    parent_thread_id: Option<String>,
    source: serde_json::Value,
    base_instructions: Option<Instructions>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Instructions {
    text: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TurnContext {
    turn_id: Option<String>,
    model: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Compacted {
    message: String,
    replacement_history: Option<Vec<Box<RawValue>>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    turn_id: Option<String>,
    info: Option<TokenInfo>,
    call_id: Option<String>,
    duration: Option<Duration>,
    exit_code: Option<i64>,
    success: Option<bool>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct TokenInfo {
    total_token_usage: Usage,
    last_token_usage: Option<Usage>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(super) struct Usage {
    input_tokens: Option<u64>,
    cached_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    reasoning_output_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Duration {
    secs: u64,
    nanos: u64,
}

/// Reads one thread's file.
pub(super) fn read(path: &Path, tally: &Tally, problems: &mut Problems) -> Result<Drafts> {
    let mut reader = Reader::default();
    let mut lines = Lines::open(path, tally)?;
    while let Some((number, line)) = lines.next(problems) {
        let record: std::result::Result<Record<'_>, _> = serde_json::from_str(line);
        let told =
            record.map_err(|error| error.to_string()).and_then(|record| reader.record(&record));
        if let Err(what) = told {
            problems.add("not a record", path, number, what);
        }
    }
    Ok(reader.finish())
}

#[derive(Default)]
struct Reader {
    meta: Option<SessionMeta>,
    thread: Thread,
    last_report: Option<(Usage, Usage)>,
}

impl Reader {
    fn record(&mut self, record: &Record<'_>) -> std::result::Result<(), String> {
        let Some(payload) = record.payload else { return Ok(()) };
        let time = match &record.timestamp {
            Some(text) => Some(unix_of(text).ok_or_else(|| format!("no time: {text:?}"))?),
            None => None,
        };
        match record.kind.as_ref() {
            // Later ones are those of the history that a fork tells again.
            "session_meta" if self.meta.is_none() => {
                let meta: SessionMeta = read_payload(payload)?;
                if let Some(instructions) = &meta.base_instructions {
                    self.thread.instructions(&instructions.text);
                }
                self.meta = Some(meta);
            }
            "turn_context" => {
                let context: TurnContext = read_payload(payload)?;
                self.thread.turn_is(context.turn_id.as_deref());
                self.thread.model_is(context.model);
            }
            "response_item" => {
                let item: Item<'_> =
                    serde_json::from_str(payload.get()).map_err(|error| error.to_string())?;
                self.thread.item(&item, payload, time);
            }
            "compacted" => {
                let compacted: Compacted = read_payload(payload)?;
                self.thread.compacted(&compacted.message, compacted.replacement_history.as_deref());
            }
            "event_msg" => self.event(&read_payload(payload)?, time),
            _ => {}
        }
        Ok(())
    }

    fn event(&mut self, event: &Event, time: Option<f64>) {
        match event.kind.as_str() {
            "task_started" | "turn_started" => self.thread.turn_is(event.turn_id.as_deref()),
            "user_message" => self.thread.asked(time),
            "token_count" => {
                let Some(info) = &event.info else { return };
                let Some(last) = info.last_token_usage else { return };
                // The same report again says nothing new.
                if self.last_report.replace((last, info.total_token_usage))
                    != Some((last, info.total_token_usage))
                {
                    self.thread.reported(&Reported { tokens: tokens(last), time });
                }
            }
            "exec_command_end" | "patch_apply_end" => {
                let own_ms = event
                    .duration
                    .as_ref()
                    .map(|duration| duration.secs as f64 * 1e3 + duration.nanos as f64 / 1e6);
                let is_error =
                    event.exit_code.map(|code| code != 0).or(event.success.map(|success| !success));
                if let Some(call_id) = &event.call_id {
                    self.thread.tool_ended(call_id, own_ms, is_error);
                }
            }
            _ => {}
        }
    }

    fn finish(self) -> Drafts {
        let meta = self.meta.unwrap_or_default();
        let spawned = &meta.source["subagent"]["thread_spawn"]["parent_thread_id"];
        let parent = meta.parent_thread_id.clone().or_else(|| spawned.as_str().map(str::to_owned));
        let is_subagent = parent.is_some() || !meta.source["subagent"].is_null();
        let session_id = meta.session_id.clone().or_else(|| parent.clone());
        let session_id = session_id.unwrap_or_else(|| meta.id.clone());
        // A fork goes on by itself: its parent started nothing.
        tracing::debug!(thread = meta.id, forked_from = ?meta.forked_from_id, "codex log read");
        self.thread.finish(&session_id, &meta.id, parent.as_deref(), is_subagent)
    }
}

fn read_payload<T: for<'a> Deserialize<'a>>(payload: &RawValue) -> std::result::Result<T, String> {
    serde_json::from_str(payload.get()).map_err(|error| error.to_string())
}

fn tokens(usage: Usage) -> Tokens {
    Tokens {
        isl: usage.input_tokens,
        cached: usage.cached_input_tokens,
        cache_write: None,
        osl: usage.output_tokens,
        reasoning: usage.reasoning_output_tokens,
    }
}
