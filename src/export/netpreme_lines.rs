//! The lines of an export: names and order of the fields that its readers know, then ours.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use crate::trace::record::{EngineMetricsRow, Outcome, TurnKind, TurnRow};

/// A line of `turn_traces.jsonl`. The first five fields are the layout's own; the rest tell threads
/// and attempts apart, which the layout cannot.
#[derive(Debug, Serialize)]
pub(super) struct TurnLine<'a> {
    request_time: f64,
    tool_exec_ms: Option<f64>,
    isl_new_text: &'a str,
    isl_text: Option<&'a str>,
    osl_text: &'a str,
    session_id: &'a str,
    thread_id: &'a str,
    parent_thread_id: Option<&'a str>,
    turn: u32,
    request_id: &'a str,
    kind: TurnKind,
    model: Option<&'a str>,
    outcome: Outcome,
    isl: Option<u64>,
    isl_new: Option<u64>,
    osl: Option<u64>,
    ttft_ms: Option<f64>,
    e2e_ms: Option<f64>,
    engine_row: Option<u64>,
}

impl<'a> TurnLine<'a> {
    pub(super) fn new(turn: &'a TurnRow, isl_text: Option<&'a str>) -> Self {
        Self {
            request_time: turn.request_time,
            tool_exec_ms: turn.tool_exec_ms,
            isl_new_text: &turn.isl_new_text,
            isl_text,
            osl_text: &turn.osl_text,
            session_id: &turn.session_id,
            thread_id: &turn.thread_id,
            parent_thread_id: turn.parent_thread_id.as_deref(),
            turn: turn.turn,
            request_id: &turn.request_id,
            kind: turn.kind,
            model: turn.model.as_deref(),
            outcome: turn.outcome,
            isl: turn.isl,
            isl_new: turn.isl_new,
            osl: turn.osl,
            ttft_ms: turn.ttft_ms,
            e2e_ms: turn.e2e_ms,
            engine_row: turn.engine_row,
        }
    }
}

/// A line of `engine_metrics.jsonl`.
#[derive(Debug, Serialize)]
pub(super) struct EngineLine {
    ts: f64,
    n: u64,
    isl: Option<f64>,
    osl: Option<f64>,
    isl_new: Option<f64>,
    prefill_ms: Option<f64>,
    decode_ms: Option<f64>,
    queue_ms: Option<f64>,
    itl_ms: Option<f64>,
    e2e_ms: Option<f64>,
    /// Completions per reason.
    stop_reason: Value,
    kv_cache_usage_pct_peak: Option<f64>,
    prefix_cache_hits: Option<u64>,
    external_prefix_cache_hits: Option<u64>,
}

impl EngineLine {
    pub(super) fn new(tick: &EngineMetricsRow) -> Self {
        let reasons = serde_json::from_str(&tick.stop_reason);
        Self {
            ts: tick.ts,
            n: tick.n,
            isl: tick.isl,
            osl: tick.osl,
            isl_new: tick.isl_new,
            prefill_ms: tick.prefill_ms,
            decode_ms: tick.decode_ms,
            queue_ms: tick.queue_ms,
            itl_ms: tick.itl_ms,
            e2e_ms: tick.e2e_ms,
            stop_reason: reasons.unwrap_or_else(|_| Value::String(tick.stop_reason.clone())),
            kv_cache_usage_pct_peak: tick.kv_cache_usage_pct_peak,
            prefix_cache_hits: tick.prefix_cache_hits,
            external_prefix_cache_hits: tick.external_prefix_cache_hits,
        }
    }
}

/// What `session.json` says, gathered turn by turn.
#[derive(Debug, Default)]
pub(super) struct SessionSummary {
    turns: u64,
    failed: u64,
    first_request: Option<f64>,
    last_end: Option<f64>,
    agent: Option<String>,
    /// Turns and parent of each thread.
    threads: BTreeMap<String, (u64, Option<String>)>,
    /// Turns per model.
    models: BTreeMap<String, u64>,
}

impl SessionSummary {
    pub(super) fn add(&mut self, turn: &TurnRow) {
        self.turns += 1;
        self.failed += u64::from(turn.outcome != Outcome::Ok);
        let first = self.first_request.unwrap_or(turn.request_time);
        self.first_request = Some(first.min(turn.request_time));
        let end = turn.response_end_time.unwrap_or(turn.request_time);
        self.last_end = Some(self.last_end.unwrap_or(end).max(end));
        if self.agent.is_none() {
            self.agent.clone_from(&turn.agent);
        }
        let thread = self.threads.entry(turn.thread_id.clone()).or_default();
        thread.0 += 1;
        thread.1.clone_from(&turn.parent_thread_id);
        if let Some(model) = &turn.model {
            *self.models.entry(model.clone()).or_default() += 1;
        }
    }

    pub(super) fn json(&self, session_id: &str) -> Value {
        let threads: Vec<Value> = self
            .threads
            .iter()
            .map(|(id, (turns, parent))| {
                json!({"thread_id": id, "parent_thread_id": parent, "turns": turns})
            })
            .collect();
        json!({
            "session_id": session_id,
            "agent": self.agent,
            "models": self.models,
            "turns": self.turns,
            "turns_not_ok": self.failed,
            "first_request_time": self.first_request,
            "last_response_end_time": self.last_end,
            "threads": threads,
        })
    }
}
