//! Plans of sessions in `TraceLab`'s row format: a line of JSON for each round, counts and times without text.
//!
//! For making a data set of that project's size: what reads its rows is tried on as many of them.

// Fields are named as the format names them.
#![allow(clippy::struct_field_names)]

use std::io::Write;

use chrono::DateTime;
use serde::Serialize;

use super::DEFAULT_START_NS;
use super::plan::{CallPlan, Cause, SessionPlan, ThreadPlan, ThreadRole, TurnPlan};
use super::planner::plan_session;
use super::profile::Profile;
use crate::error::Result;

/// Characters of a token, about.
const CHARS_PER_TOKEN: u64 = 4;
/// A session begins so long after the one before it.
const BETWEEN_SESSIONS_US: i64 = 60_000_000;

/// How much was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RoundCounts {
    /// Sessions; subagents are sessions of their own there.
    pub sessions: u64,
    /// Rounds: a line each.
    pub rounds: u64,
    /// Tool calls.
    pub tool_calls: u64,
}

#[derive(Serialize)]
struct Round<'a> {
    provider: &'a str,
    project: &'a str,
    session_id: &'a str,
    round_index: u64,
    round_id: String,
    model: &'a str,
    input_tokens_total: u32,
    prefix_tokens: u32,
    newly_append_tokens: u32,
    claude_uncached_input_tokens: u32,
    claude_cache_creation_input_tokens: u32,
    claude_cache_read_input_tokens: u32,
    output_tokens: u32,
    reasoning_output_tokens: Option<u32>,
    timing_events: Vec<Event>,
    tools: Vec<Tool<'a>>,
    first_input_event_type: &'a str,
    store: &'a str,
    trace_key: String,
}

#[derive(Serialize)]
struct Event {
    event_type: &'static str,
    timestamp: String,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_chars: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_chars: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
}

#[derive(Serialize)]
struct Tool<'a> {
    tool_index: usize,
    tool_name: &'a str,
    tool_call_id: String,
    emitted_at: String,
    input_chars: u64,
    result_chars: u64,
    tool_wall_latency_ms: i64,
    tool_internal_latency_ms: Option<i64>,
    is_error: bool,
    result_at: String,
}

/// Writes whole sessions until `rounds` lines are there.
///
/// # Errors
/// `Error::Config` for an unknown profile, `Error::Io` for what `out` refuses.
pub fn write_round_rows(
    profile: &str,
    seed: u64,
    rounds: u64,
    out: &mut impl Write,
) -> Result<RoundCounts> {
    let profile = Profile::by_name(profile)?;
    let mut counts = RoundCounts::default();
    let mut start_us = DEFAULT_START_NS / 1000;
    for index in 0.. {
        if counts.rounds >= rounds {
            break;
        }
        let plan = plan_session(&profile, seed, index, None);
        session(&plan, start_us, &mut counts, out)
            .map_err(|error| crate::error::Error::io("round rows", error))?;
        start_us += BETWEEN_SESSIONS_US;
    }
    Ok(counts)
}

fn session(
    plan: &SessionPlan,
    start_us: i64,
    counts: &mut RoundCounts,
    out: &mut impl Write,
) -> std::io::Result<()> {
    let main = format!("claude:{:08x}-0000-4000-8000-000000000000", plan.index);
    let mut main_rounds = 0;
    counts.sessions += 1;
    for (index, thread) in plan.threads.iter().enumerate() {
        let (session_id, mut round_index) = match thread.role {
            ThreadRole::Main | ThreadRole::Continued => (main.clone(), main_rounds),
            ThreadRole::Subagent { .. } => {
                counts.sessions += 1;
                (format!("{main}-{index}"), 0)
            }
        };
        let mut before: Option<&TurnPlan> = None;
        for turn in &thread.turns {
            let row = round(&session_id, round_index, thread, (before, turn), start_us);
            serde_json::to_writer(&mut *out, &row)?;
            out.write_all(b"\n")?;
            round_index += 1;
            counts.rounds += 1;
            counts.tool_calls += turn.calls.len() as u64;
            before = Some(turn);
        }
        if !matches!(thread.role, ThreadRole::Subagent { .. }) {
            main_rounds = round_index;
        }
    }
    Ok(())
}

fn round<'a>(
    session_id: &'a str,
    round_index: u64,
    thread: &ThreadPlan,
    turns: (Option<&TurnPlan>, &'a TurnPlan),
    start_us: i64,
) -> Round<'a> {
    let (before, turn) = turns;
    let round_id = format!("msg_{:x}{round_index:08x}", thread.turns.len());
    let held = if turn.prefix_held { turn.prefix_tokens } else { 0 };
    let new = turn.prompt_tokens() - held;
    let events = events(before, turn, round_index, start_us);
    let tool = |(index, call): (usize, &'a CallPlan)| Tool {
        tool_index: index,
        tool_name: call.tool,
        tool_call_id: call_id(round_index, index),
        emitted_at: time(start_us + turn.end_us),
        input_chars: 100,
        result_chars: u64::from(call.result_tokens) * CHARS_PER_TOKEN,
        tool_wall_latency_ms: call.own_us / 1000,
        tool_internal_latency_ms: (index % 2 == 0).then_some(call.own_us / 1000),
        is_error: call.is_error,
        result_at: time(start_us + turn.end_us + call.own_us),
    };
    Round {
        provider: "claude",
        project: "project_synthetic",
        session_id,
        round_index,
        trace_key: format!("claude:{session_id}:{round_id}"),
        round_id,
        model: "synthetic",
        input_tokens_total: turn.prompt_tokens(),
        prefix_tokens: held,
        newly_append_tokens: new,
        claude_uncached_input_tokens: new,
        claude_cache_creation_input_tokens: 0,
        claude_cache_read_input_tokens: held,
        output_tokens: turn.output_tokens,
        reasoning_output_tokens: None,
        first_input_event_type: events.first().map_or("", |event| event.event_type),
        timing_events: events,
        tools: turn.calls.iter().enumerate().map(tool).collect(),
        store: ".claude",
    }
}

fn call_id(round: u64, index: usize) -> String {
    format!("toolu_{round:012x}{index:08x}")
}

/// What came in, what came back, what was called.
fn events(
    before: Option<&TurnPlan>,
    turn: &TurnPlan,
    round_index: u64,
    start_us: i64,
) -> Vec<Event> {
    let event = |event_type, at_us: i64, source| Event {
        event_type,
        timestamp: time(start_us + at_us),
        source,
        content_chars: None,
        result_chars: None,
        tool_call_id: None,
    };
    let mut events = Vec::new();
    let results = before.map(|before| before.calls.as_slice()).unwrap_or_default();
    for (index, call) in results.iter().enumerate() {
        let mut result = event("tool_result", turn.start_us, "user.content.tool_result");
        result.result_chars = Some(u64::from(call.result_tokens) * CHARS_PER_TOKEN);
        result.tool_call_id = Some(call_id(round_index.saturating_sub(1), index));
        events.push(result);
    }
    if let Cause::User { tokens } | Cause::Task { tokens } | Cause::Summary { tokens } = turn.cause
    {
        let mut asked = event("user_message", turn.start_us, "user.message");
        asked.content_chars = Some(u64::from(tokens) * CHARS_PER_TOKEN);
        events.push(asked);
    }
    let mut text = event("text", turn.start_us + turn.ttft_us, "assistant.content.text");
    text.content_chars = Some(u64::from(turn.output_tokens) * CHARS_PER_TOKEN);
    events.push(text);
    for index in 0..turn.calls.len() {
        let mut call = event("tool_call", turn.end_us, "assistant.content.tool_use");
        call.tool_call_id = Some(call_id(round_index, index));
        events.push(call);
    }
    events
}

fn time(unix_us: i64) -> String {
    let time = DateTime::from_timestamp_micros(unix_us).unwrap_or_default();
    time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_many_rounds_are_written_as_asked_for_and_their_counts_add_up() {
        let mut text = Vec::new();
        let counts = write_round_rows("tracelab", 7, 500, &mut text).unwrap();
        let rows: Vec<serde_json::Value> = String::from_utf8(text)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(rows.len() as u64, counts.rounds);
        assert!((500..3000).contains(&counts.rounds), "{counts:?}");
        let calls: usize = rows.iter().map(|row| row["tools"].as_array().unwrap().len()).sum();
        assert_eq!(calls as u64, counts.tool_calls);
        for row in &rows {
            let [total, held, new] = ["input_tokens_total", "prefix_tokens", "newly_append_tokens"]
                .map(|name| row[name].as_u64().unwrap());
            assert_eq!(total, held + new);
        }
        assert_eq!(rows[0]["timing_events"][0]["timestamp"], "2026-01-05T09:00:00.000Z");
    }
}
