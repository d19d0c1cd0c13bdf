//! `TraceLab`'s rows: a round of a session each.
//!
//! A round is a turn; a thread beside the first of its session is a session of its own, as a subagent is
//! there. Events are stamped with what the run knows: results with their arrival, what came out with the
//! end of the response, for a recording does not tell when a block of a reply was complete.

use std::path::Path;

use chrono::{DateTime, SecondsFormat};
use serde::Serialize;

use super::number::Plain;
use super::sessions::{Columns, Session, Turn, round_ms};
use super::tally::{Part, Tally};
use super::{TURNS, Writer};
use crate::api::ReplyBlock;
use crate::error::Result;
use crate::out_file::OutFile;
use crate::trace::record::ToolCallRow;

const LOST: [Part; 7] = [
    Part::Text,
    Part::Threads,
    Part::Parents,
    Part::Kinds,
    Part::FirstOutputs,
    Part::Blocks,
    Part::StopReasons,
];

#[derive(Debug, Serialize)]
struct Round<'a> {
    provider: &'a str,
    project: Option<&'a str>,
    session_id: &'a str,
    round_index: u32,
    round_id: &'a str,
    model: Option<&'a str>,
    input_tokens_total: Option<u64>,
    prefix_tokens: Option<u64>,
    newly_append_tokens: Option<u64>,
    claude_uncached_input_tokens: Option<u64>,
    claude_cache_creation_input_tokens: Option<u64>,
    claude_cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    reasoning_output_tokens: Option<u64>,
    timing_events: Vec<Event<'a>>,
    tools: Vec<Tool<'a>>,
    current_input_event_count: usize,
    current_user_message_count: usize,
    current_tool_result_count: usize,
    first_input_event_type: Option<&'static str>,
    trace_key: String,
}

#[derive(Debug, Default, Serialize)]
struct Event<'a> {
    event_type: &'static str,
    timestamp: Option<String>,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_chars: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_index: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_chars: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
}

#[derive(Debug, Serialize)]
struct Tool<'a> {
    tool_index: u32,
    tool_name: &'a str,
    tool_call_id: &'a str,
    emitted_at: Option<String>,
    result_at: Option<String>,
    input_chars: u64,
    result_chars: Option<u64>,
    tool_wall_latency_ms: Option<Plain>,
    tool_internal_latency_ms: Option<Plain>,
    is_error: Option<bool>,
}

/// Who stamps an event.
const SOURCE: &str = "agentbench";

pub(super) struct TraceLab {
    file: OutFile,
}

impl TraceLab {
    pub(super) fn new(out: &Path) -> Result<Self> {
        Ok(Self { file: OutFile::create(out)? })
    }
}

impl Writer for TraceLab {
    fn columns(&self) -> Columns {
        Columns { turns: &["reply_blocks"], calls: &["arguments"] }
    }

    fn session(&mut self, session: &Session, tally: &mut Tally) -> Result<()> {
        tally.without(session, &LOST);
        for (place, thread) in session.threads.iter().enumerate() {
            let name = session.thread_name(place);
            let mut before: Option<&Turn> = None;
            for turn in &thread.turns {
                if turn.row.isl.is_none() && turn.row.osl.is_none() && turn.request.is_none() {
                    tally.left_out("turns of which neither counts nor times are known");
                    continue;
                }
                self.file.line(&round(turn, before, &name))?;
                tally.wrote(1, TURNS);
                tally.wrote(turn.calls.len(), "tool_calls");
                before = Some(turn);
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.file.publish()
    }
}

fn round<'a>(turn: &'a Turn, before: Option<&'a Turn>, session_id: &'a str) -> Round<'a> {
    let row = &turn.row;
    let provider = match row.agent.as_deref() {
        Some("claude-code") => "claude",
        agent => agent.unwrap_or_default(),
    };
    // An import of such rows has made the id of both.
    let round_id =
        row.request_id.strip_suffix(&format!("#{}", row.turn)).unwrap_or(&row.request_id);
    let inputs = inputs(turn, before);
    let count = |kind: &str| inputs.iter().filter(|event| event.event_type == kind).count();
    let (n_messages, n_results) = (count("user_message"), count("tool_result"));
    let uncached = || row.isl?.checked_sub(row.isl_cached? + row.isl_cache_write?);
    let of_claude = |tokens: Option<u64>| tokens.filter(|_| row.isl_cache_write.is_some());
    Round {
        provider,
        project: None,
        session_id,
        round_index: row.turn,
        round_id,
        model: row.model.as_deref(),
        input_tokens_total: row.isl,
        prefix_tokens: row.isl_cached,
        newly_append_tokens: row.isl_new,
        claude_uncached_input_tokens: uncached(),
        claude_cache_creation_input_tokens: row.isl_cache_write,
        claude_cache_read_input_tokens: of_claude(row.isl_cached),
        output_tokens: row.osl,
        reasoning_output_tokens: row.reasoning_tokens,
        current_input_event_count: inputs.len(),
        current_user_message_count: n_messages,
        current_tool_result_count: n_results,
        first_input_event_type: inputs.first().map(|event| event.event_type),
        timing_events: inputs.into_iter().chain(outputs(turn)).collect(),
        tools: turn.calls.iter().map(tool).collect(),
        trace_key: format!("{provider}:{session_id}:{round_id}"),
    }
}

/// What came in: results of the calls of the turn before, and a message where these do not say when the
/// request was made.
fn inputs<'a>(turn: &Turn, before: Option<&'a Turn>) -> Vec<Event<'a>> {
    // Only the earliest sign of output is known of a request whose input nobody saw.
    let unseen = turn.row.e2e_ms.is_none() && turn.row.response_end_time.is_some();
    let Some(request) = turn.request.filter(|_| !unseen) else { return Vec::new() };
    let results = before.into_iter().flat_map(|before| &before.calls);
    let mut events: Vec<Event<'a>> = results
        .filter_map(|call| Some((call, call.result_time.filter(|time| *time <= request)?)))
        .map(|(call, time)| Event {
            event_type: "tool_result",
            timestamp: Some(rfc3339(time)),
            source: SOURCE,
            tool_call_id: Some(&call.call_id),
            result_chars: call.result_bytes,
            is_error: call.is_error,
            ..Event::default()
        })
        .collect();
    let at = rfc3339(request);
    if !events.iter().any(|event| event.timestamp.as_ref() == Some(&at)) {
        events.push(Event {
            event_type: "user_message",
            timestamp: Some(at),
            source: SOURCE,
            ..Event::default()
        });
    }
    events
}

/// What came out, and the report of tokens that ends it.
fn outputs(turn: &Turn) -> Vec<Event<'_>> {
    let end = turn.end().map(rfc3339);
    let blocks: Vec<ReplyBlock> = serde_json::from_str(&turn.row.reply_blocks).unwrap_or_default();
    let mut events = Vec::new();
    for block in &blocks {
        let (event_type, text) = match block {
            ReplyBlock::Text { text } => ("text", text),
            ReplyBlock::Reasoning { text, .. } => ("reasoning", text),
            ReplyBlock::ToolCall { .. } => continue,
        };
        events.push(Event {
            event_type,
            timestamp: end.clone(),
            source: SOURCE,
            content_chars: Some(text.chars().count()),
            ..Event::default()
        });
    }
    events.extend(turn.calls.iter().map(|call| Event {
        event_type: "tool_call",
        timestamp: known(call.emitted_time).map(rfc3339),
        source: SOURCE,
        tool_call_id: Some(&call.call_id),
        tool_name: Some(&call.name),
        tool_index: Some(call.index),
        ..Event::default()
    }));
    if let Some(end) = end {
        events.push(Event {
            event_type: "usage_report",
            timestamp: Some(end),
            source: SOURCE,
            ..Event::default()
        });
    }
    events
}

fn tool(call: &ToolCallRow) -> Tool<'_> {
    let ms = |ms: Option<f64>| ms.map(|ms| Plain(round_ms(ms)));
    Tool {
        tool_index: call.index,
        tool_name: &call.name,
        tool_call_id: &call.call_id,
        emitted_at: known(call.emitted_time).map(rfc3339),
        result_at: call.result_time.map(rfc3339),
        input_chars: match call.arguments.as_str() {
            "" => call.argument_bytes,
            text => text.chars().count() as u64,
        },
        result_chars: call.result_bytes,
        tool_wall_latency_ms: ms(call.wire_ms),
        tool_internal_latency_ms: ms(call.own_ms),
        is_error: call.is_error,
    }
}

/// A call's time is 0 where nothing tells it.
fn known(time: f64) -> Option<f64> {
    (time != 0.0).then_some(time)
}

/// A time as logs write it, to the microsecond.
fn rfc3339(time: f64) -> String {
    let micros = (time * 1e6).round() as i64;
    DateTime::from_timestamp_micros(micros)
        .unwrap_or_default()
        .to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn times_are_written_as_logs_write_them() {
        for (time, text) in [
            (1_780_292_420.151, "2026-06-01T05:40:20.151Z"),
            (1_780_292_420.151_25, "2026-06-01T05:40:20.151250Z"),
            (0.0, "1970-01-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(time), text);
        }
    }
}
