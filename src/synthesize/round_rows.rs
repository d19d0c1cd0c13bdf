//! Plans of sessions in `TraceLab`'s row format: a line of JSON for each round, counts and times without text.
//!
//! For making a data set of that project's size: what reads its rows is tried on as many of them. Each row says that
//! it is synthetic, by a member of its own, and names no real model.

// Fields are named as the format names them.
#![allow(clippy::struct_field_names)]

use std::path::Path;

use chrono::DateTime;
use serde::Serialize;

use super::plan::{CallPlan, Cause, SessionPlan, ThreadPlan, ThreadRole, TurnPlan};
use super::planner::{COMPACTION_TOKENS, plan_session};
use super::profile::Profile;
use super::{DEFAULT_START_NS, until_next_ns};
use crate::error::{Error, Result};
use crate::out_file::OutFile;
use crate::shutdown::Shutdown;

/// Characters of a token, about.
const CHARS_PER_TOKEN: u64 = 4;
/// An odd factor, so that numbers that follow on each other make ids that have nothing in common.
const SCATTER: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;

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

/// What to write.
#[derive(Debug, Clone)]
pub struct RoundConfig<'a> {
    /// The file, gzip where its name ends in `.gz`; must not exist.
    pub out: &'a Path,
    /// The profile's name, one of `profile::PROFILE_NAMES`.
    pub profile: &'a str,
    /// Same seed, same bytes.
    pub seed: u64,
    /// Rounds to write; the last session ends where they are full.
    pub rounds: u64,
}

#[derive(Serialize)]
struct Round<'a> {
    provider: &'a str,
    project: String,
    session_id: &'a str,
    round_index: u64,
    round_id: String,
    model: &'static str,
    input_tokens_total: u32,
    prefix_tokens: u32,
    newly_append_tokens: u32,
    claude_uncached_input_tokens: Option<u32>,
    claude_cache_creation_input_tokens: Option<u32>,
    claude_cache_read_input_tokens: Option<u32>,
    output_tokens: u32,
    reasoning_output_tokens: Option<u32>,
    timing_events: Vec<Event<'a>>,
    tools: Vec<Tool<'a>>,
    current_input_event_count: usize,
    current_user_message_count: usize,
    current_tool_result_count: usize,
    first_input_event_type: &'static str,
    store: &'static str,
    trace_key: String,
    synthetic: bool,
}

#[derive(Default, Serialize)]
struct Event<'a> {
    event_type: &'static str,
    timestamp: String,
    source: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    content_chars: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_call_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_name: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_index: Option<usize>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result_chars: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_error: Option<bool>,
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

/// Writes rows of as many sessions as it takes.
///
/// # Errors
/// `Error::Config` for an unknown profile, no rounds, or a file that is there; `Error::Cancelled` after a shutdown;
/// what the file system says. In all cases nothing is left at `out`.
pub fn write_round_rows(config: &RoundConfig<'_>, shutdown: &Shutdown) -> Result<RoundCounts> {
    let profile = Profile::by_name(config.profile)?;
    if config.rounds == 0 {
        return Err(Error::config("0 rounds: give at least 1"));
    }
    let mut rows = Rows {
        file: OutFile::create(config.out)?,
        most: config.rounds,
        counts: RoundCounts::default(),
        start_us: DEFAULT_START_NS / 1000,
    };
    for index in 0.. {
        if rows.is_full() {
            break;
        }
        if shutdown.is_cancelled() {
            return Err(Error::Cancelled);
        }
        rows.session(&plan_session(&profile, config.seed, index, None))?;
        rows.start_us += until_next_ns(&profile, config.seed, index) / 1000;
    }
    rows.file.publish()?;
    Ok(rows.counts)
}

struct Rows {
    file: OutFile,
    most: u64,
    counts: RoundCounts,
    /// When the session at hand begins.
    start_us: i64,
}

impl Rows {
    fn is_full(&self) -> bool {
        self.counts.rounds >= self.most
    }

    fn session(&mut self, plan: &SessionPlan) -> Result<()> {
        // Half of them as one agent's logs tell it, half as the other's.
        let provider = if plan.index.is_multiple_of(2) { "claude" } else { "codex" };
        let main = format!("{provider}:{}", session_id(plan.index));
        let mut of_main = 0;
        for (index, thread) in plan.threads.iter().enumerate() {
            let is_subagent = matches!(thread.role, ThreadRole::Subagent { .. });
            let session = if is_subagent { format!("{main}-{index}") } else { main.clone() };
            if self.is_full() {
                return Ok(());
            }
            self.counts.sessions += u64::from(is_subagent || of_main == 0);
            let first = if is_subagent { 0 } else { of_main };
            let mut before: &[CallPlan] = &[];
            for (turn, round_index) in thread.turns.iter().zip(first..) {
                if self.is_full() {
                    return Ok(());
                }
                let place = (provider, session.as_str(), round_index, self.counts.rounds);
                self.file.line(&round(place, (thread, turn), before, self.start_us))?;
                self.counts.rounds += 1;
                self.counts.tool_calls += turn.calls.len() as u64;
                before = &turn.calls;
            }
            if !is_subagent {
                of_main += thread.turns.len() as u64;
            }
        }
        Ok(())
    }
}

/// `number` is the round's among all.
fn round<'a>(
    (provider, session_id, round_index, number): (&'a str, &'a str, u64, u64),
    (thread, turn): (&ThreadPlan, &'a TurnPlan),
    before: &'a [CallPlan],
    start_us: i64,
) -> Round<'a> {
    let is_claude = provider == "claude";
    let held = if turn.prefix_held { turn.prefix_tokens } else { 0 };
    let new = turn.prompt_tokens() - held;
    let written = new - new / 3;
    let round_id = format!("msg_{}", id(u128::from(number)));
    let inputs = inputs(turn, before, number, start_us);
    let count = |kind: &str| inputs.iter().filter(|event| event.event_type == kind).count();
    let (n_messages, n_results) = (count("user_message"), count("tool_result"));
    Round {
        provider,
        project: format!("project_{:08x}", thread.turns.len()),
        session_id,
        round_index,
        trace_key: format!("{provider}:{session_id}:{round_id}"),
        round_id,
        model: "synthetic",
        input_tokens_total: turn.prompt_tokens(),
        prefix_tokens: held,
        newly_append_tokens: new,
        claude_uncached_input_tokens: is_claude.then_some(new - written),
        claude_cache_creation_input_tokens: is_claude.then_some(written),
        claude_cache_read_input_tokens: is_claude.then_some(held),
        output_tokens: turn.output_tokens,
        reasoning_output_tokens: (!is_claude).then_some(turn.output_tokens / 4),
        current_input_event_count: inputs.len(),
        current_user_message_count: n_messages,
        current_tool_result_count: n_results,
        first_input_event_type: inputs.first().map_or("", |event| event.event_type),
        timing_events: inputs
            .into_iter()
            .chain(outputs(turn, number, start_us, is_claude))
            .collect(),
        tools: turn.calls.iter().enumerate().map(|it| tool(it, turn, number, start_us)).collect(),
        store: if is_claude { ".claude" } else { ".codex" },
        synthetic: true,
    }
}

fn tool<'a>(
    (index, call): (usize, &'a CallPlan),
    turn: &TurnPlan,
    number: u64,
    start_us: i64,
) -> Tool<'a> {
    Tool {
        tool_index: index,
        tool_name: call.tool,
        tool_call_id: call_id(number, index),
        emitted_at: time(start_us + turn.end_us),
        input_chars: 100,
        result_chars: u64::from(call.result_tokens) * CHARS_PER_TOKEN,
        tool_wall_latency_ms: call.own_us / 1000,
        tool_internal_latency_ms: (index % 2 == 0).then_some(call.own_us / 1000),
        is_error: call.is_error,
        result_at: time(start_us + turn.end_us + call.own_us),
    }
}

/// What came in: results of the calls of the round before it in its thread, and what was asked.
fn inputs<'a>(turn: &TurnPlan, before: &[CallPlan], number: u64, start_us: i64) -> Vec<Event<'a>> {
    let result = |(index, call): (usize, &CallPlan)| Event {
        event_type: "tool_result",
        timestamp: time(start_us + turn.start_us),
        source: "user.content.tool_result",
        result_chars: Some(u64::from(call.result_tokens) * CHARS_PER_TOKEN),
        tool_call_id: Some(call_id(number.wrapping_sub(1), index)),
        is_error: Some(call.is_error),
        ..Event::default()
    };
    let mut events: Vec<Event<'_>> = before.iter().enumerate().map(result).collect();
    let asked = match turn.cause {
        Cause::User { tokens } | Cause::Task { tokens } | Cause::Summary { tokens } => Some(tokens),
        // The agent asks for a summary in its user's name.
        Cause::Compaction { user_tokens } => Some(user_tokens.unwrap_or(COMPACTION_TOKENS)),
        Cause::Results => None,
    };
    events.extend(asked.map(|tokens| Event {
        event_type: "user_message",
        timestamp: time(start_us + turn.start_us),
        source: "user.message",
        content_chars: Some(u64::from(tokens) * CHARS_PER_TOKEN),
        ..Event::default()
    }));
    events
}

/// What came back, what was called, and the report of tokens that the one agent's logs have. A log stamps a block
/// when it is complete.
fn outputs<'a>(
    turn: &'a TurnPlan,
    number: u64,
    start_us: i64,
    is_claude: bool,
) -> impl Iterator<Item = Event<'a>> {
    let text = Event {
        event_type: "text",
        timestamp: time(start_us + turn.end_us),
        source: "assistant.content.text",
        content_chars: Some(u64::from(turn.output_tokens) * CHARS_PER_TOKEN),
        ..Event::default()
    };
    let called = move |(index, call): (usize, &'a CallPlan)| Event {
        event_type: "tool_call",
        timestamp: time(start_us + turn.end_us),
        source: "assistant.content.tool_use",
        tool_call_id: Some(call_id(number, index)),
        tool_name: Some(call.tool),
        tool_index: Some(index),
        ..Event::default()
    };
    let report = (!is_claude).then(|| Event {
        event_type: "usage_report",
        timestamp: time(start_us + turn.end_us),
        source: "event_msg.token_count",
        ..Event::default()
    });
    std::iter::once(text).chain(turn.calls.iter().enumerate().map(called)).chain(report)
}

fn call_id(round: u64, index: usize) -> String {
    format!("toolu_{}", id(u128::from(round) << 16 | index as u128))
}

fn session_id(index: u32) -> String {
    let digits = id(u128::from(index) << 64);
    format!("{}-{}-4000-8000-{}", &digits[..8], &digits[8..12], &digits[12..])
}

/// An id as long and as hard to compress as real ones are.
fn id(number: u128) -> String {
    format!("{:024x}", (number + 1).wrapping_mul(SCATTER) >> 32)
}

fn time(unix_us: i64) -> String {
    let time = DateTime::from_timestamp_micros(unix_us).unwrap_or_default();
    time.format("%Y-%m-%dT%H:%M:%S%.3fZ").to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::time::Duration;

    use serde_json::Value;

    use super::*;

    fn written(rounds: u64, seed: u64) -> (RoundCounts, Vec<Value>) {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("rows.jsonl");
        let config = RoundConfig { out: &out, profile: "tracelab", seed, rounds };
        let going = Shutdown::new(Duration::from_secs(1));
        let counts = write_round_rows(&config, &going).unwrap();
        let text = std::fs::read_to_string(&out).unwrap();
        (counts, text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }

    #[test]
    fn as_many_rounds_are_written_as_asked_for_and_their_counts_add_up() {
        let (counts, rows) = written(5000, 7);
        assert_eq!((counts.rounds, rows.len()), (5000, 5000));
        let calls: usize = rows.iter().map(|row| row["tools"].as_array().unwrap().len()).sum();
        assert_eq!(calls as u64, counts.tool_calls);
        let mut rounds: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        let mut ids: BTreeSet<&str> = BTreeSet::new();
        for row in &rows {
            let [total, held, new] = ["input_tokens_total", "prefix_tokens", "newly_append_tokens"]
                .map(|name| row[name].as_u64().unwrap());
            assert_eq!(total, held + new);
            assert_eq!(row["synthetic"], true);
            assert!(
                ["user_message", "tool_result"]
                    .contains(&row["first_input_event_type"].as_str().unwrap())
            );
            let session = row["session_id"].as_str().unwrap();
            rounds.entry(session).or_default().push(row["round_index"].as_u64().unwrap());
            assert!(ids.insert(row["round_id"].as_str().unwrap()));
        }
        assert_eq!(rounds.len() as u64, counts.sessions);
        for (session, indexes) in rounds {
            let n = indexes.len() as u64;
            assert_eq!(indexes, (0..n).collect::<Vec<_>>(), "{session}");
        }
        assert_eq!(rows[0]["timing_events"][0]["timestamp"], "2026-01-05T09:00:00.000Z");
        assert_eq!(written(40, 7).1, rows[..40], "the same seed, the same rows");
        assert_ne!(written(40, 8).1, rows[..40]);
    }

    #[test]
    fn results_bear_the_ids_of_the_calls_before_them() {
        let (_, rows) = written(300, 3);
        let ids = |list: &Value, kind: &str| -> Vec<String> {
            let list = list.as_array().unwrap().iter();
            let of_kind = list.filter(|it| kind.is_empty() || it["event_type"] == kind);
            of_kind.map(|it| it["tool_call_id"].as_str().unwrap().to_owned()).collect()
        };
        let mut seen = 0;
        for pair in rows.windows(2) {
            let results = ids(&pair[1]["timing_events"], "tool_result");
            if !results.is_empty() {
                assert_eq!(results, ids(&pair[0]["tools"], ""));
                assert_eq!(results, ids(&pair[0]["timing_events"], "tool_call"));
                seen += results.len();
            }
        }
        assert!(seen > 100, "{seen}");
    }

    #[test]
    fn what_cannot_be_made_is_told_and_leaves_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let out = folder.path().join("rows.jsonl");
        let going = Shutdown::new(Duration::from_secs(1));
        for (profile, rounds, told) in [("none", 5, "no profile"), ("small", 0, "0 rounds")] {
            let config = RoundConfig { out: &out, profile, seed: 0, rounds };
            let error = write_round_rows(&config, &going).unwrap_err().to_string();
            assert!(error.contains(told), "{error}");
        }
        going.cancel();
        let config = RoundConfig { out: &out, profile: "small", seed: 0, rounds: 5 };
        assert!(matches!(write_round_rows(&config, &going), Err(Error::Cancelled)));
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
