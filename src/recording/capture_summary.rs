//! What a run of recorded turns comes to: a capture, or sessions made up.
//!
//! Nothing of it is kept in the run directory: it is read from the tables whenever it is asked for.
//! Latencies and lengths are of turns that were answered whole; the others are counted beside them.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::Result;
use crate::replay::engine_figures::{EngineFigures, Span, engine_figures, figures_by_engine};
use crate::replay::statistics::Statistic;
use crate::trace::record::{EngineSampleRow, Outcome, ToolCallRow, TurnKind, TurnRow};
use crate::trace::{Run, TurnTotals, turn_totals};

/// The figures of a capture.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct CaptureSummary {
    /// Counts and sums.
    pub totals: TurnTotals,
    /// Turns by how they ended.
    pub outcomes: BTreeMap<String, u64>,
    /// Turns by what they were for: `main`, `subagent`, `utility`.
    pub kinds: BTreeMap<String, u64>,
    /// Turns by coding agent; `unknown` where the wire did not tell.
    pub agents: BTreeMap<String, u64>,
    /// Turns by the model asked for.
    pub models: BTreeMap<String, u64>,
    /// Turns by API.
    pub apis: BTreeMap<String, u64>,
    /// Every numeric column of a turn, by name.
    pub fields: BTreeMap<String, Statistic>,
    /// Tool calls by tool.
    pub tools: BTreeMap<String, ToolFigures>,
    /// The engine's own counters from the first turn to the last; null where it was not polled.
    pub engine: Option<EngineFigures>,
    /// The same engine by engine, by its name, where several were polled.
    pub engines: BTreeMap<String, EngineFigures>,
}

/// The calls of one tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ToolFigures {
    /// Calls that a model made.
    pub calls: u64,
    /// Calls whose result the agent marked as an error.
    pub errors: u64,
    /// From the end of the response that made a call to the request that brought its result.
    pub wire_ms: Option<Statistic>,
}

type Field = fn(&TurnRow) -> Option<f64>;

fn count(tokens: Option<u64>) -> Option<f64> {
    tokens.map(|tokens| tokens as f64)
}

const FIELDS: [(&str, Field); 9] = [
    ("ttft_ms", |turn| turn.ttft_ms),
    ("itl_ms_mean", |turn| turn.itl_ms_mean),
    ("e2e_ms", |turn| turn.e2e_ms),
    ("isl", |turn| count(turn.isl)),
    ("isl_cached", |turn| count(turn.isl_cached)),
    ("isl_new", |turn| count(turn.isl_new)),
    ("osl", |turn| count(turn.osl)),
    ("tool_exec_ms", |turn| turn.tool_exec_ms),
    ("residual_wait_ms", |turn| turn.residual_wait_ms),
];

/// The columns that are read: no texts.
const COLUMNS: [&str; 18] = [
    "changes",
    "session_id",
    "api",
    "agent",
    "kind",
    "model",
    "outcome",
    "request_time",
    "response_end_time",
    "ttft_ms",
    "itl_ms_mean",
    "e2e_ms",
    "isl",
    "isl_cached",
    "isl_new",
    "osl",
    "tool_exec_ms",
    "residual_wait_ms",
];

/// The figures of a run directory that holds turns.
pub fn summarize_capture(run: &Run) -> Result<CaptureSummary> {
    let mut turns: Vec<TurnRow> =
        run.rows_of_columns::<TurnRow>(&COLUMNS)?.collect::<Result<_>>()?;
    turns.retain(|turn| !turn.is_answered_locally());
    let calls = run.rows_of_columns::<ToolCallRow>(&["name", "wire_ms", "is_error"])?;
    let calls: Vec<ToolCallRow> = calls.collect::<Result<_>>()?;
    let samples: Vec<EngineSampleRow> = run.rows::<EngineSampleRow>()?.collect::<Result<_>>()?;
    Ok(CaptureSummary { totals: turn_totals(run)?, ..figures(&turns, &calls, &samples) })
}

fn figures(
    turns: &[TurnRow],
    calls: &[ToolCallRow],
    samples: &[EngineSampleRow],
) -> CaptureSummary {
    let mut summary = CaptureSummary::default();
    let add = |counts: &mut BTreeMap<String, u64>, name: &str| {
        *counts.entry(name.to_owned()).or_default() += 1;
    };
    for turn in turns {
        add(&mut summary.outcomes, outcome_name(turn.outcome));
        add(&mut summary.kinds, kind_name(turn.kind));
        add(&mut summary.agents, turn.agent.as_deref().unwrap_or("unknown"));
        add(&mut summary.models, turn.model.as_deref().unwrap_or("unknown"));
        add(&mut summary.apis, &turn.api);
    }
    for (name, field) in FIELDS {
        let whole = turns.iter().filter(|turn| turn.outcome == Outcome::Ok);
        if let Some(statistic) = Statistic::of(whole.filter_map(field)) {
            summary.fields.insert(name.to_owned(), statistic);
        }
    }
    let mut by_tool: BTreeMap<&str, Vec<&ToolCallRow>> = BTreeMap::new();
    for call in calls {
        by_tool.entry(&call.name).or_default().push(call);
    }
    for (name, calls) in by_tool {
        let errors = calls.iter().filter(|call| call.is_error == Some(true)).count() as u64;
        let wire_ms = Statistic::of(calls.iter().filter_map(|call| call.wire_ms));
        let tool = ToolFigures { calls: calls.len() as u64, errors, wire_ms };
        summary.tools.insert(name.to_owned(), tool);
    }
    if let Some(span) = span_of(turns) {
        summary.engine = engine_figures(samples, span);
        summary.engines = figures_by_engine(samples, span);
    }
    summary
}

/// The first request's arrival to the end of the last response.
fn span_of(turns: &[TurnRow]) -> Option<Span> {
    let end_of = |turn: &TurnRow| turn.response_end_time.unwrap_or(turn.request_time);
    Some(Span {
        start: turns.iter().map(|turn| turn.request_time).reduce(f64::min)?,
        end: turns.iter().map(end_of).reduce(f64::max)?,
    })
}

fn outcome_name(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Ok => "ok",
        Outcome::HttpError => "http_error",
        Outcome::UpstreamError => "upstream_error",
        Outcome::ClientCancelled => "client_cancelled",
        Outcome::Truncated => "truncated",
    }
}

fn kind_name(kind: TurnKind) -> &'static str {
    match kind {
        TurnKind::Main => "main",
        TurnKind::Subagent => "subagent",
        TurnKind::Utility => "utility",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_are_of_turns_answered_whole_and_the_others_are_counted() {
        let turn = |ttft_ms, outcome| TurnRow {
            agent: Some("claude-code".into()),
            api: "chat".into(),
            ttft_ms: Some(ttft_ms),
            outcome,
            ..TurnRow::default()
        };
        let turns =
            [turn(10.0, Outcome::Ok), turn(30.0, Outcome::Ok), turn(900.0, Outcome::Truncated)];
        let call = |wire_ms, is_error| ToolCallRow {
            name: "Bash".into(),
            wire_ms,
            is_error,
            ..ToolCallRow::default()
        };
        let calls = [call(Some(4.0), Some(true)), call(Some(8.0), None), call(None, None)];
        let summary = figures(&turns, &calls, &[]);
        assert_eq!((summary.fields["ttft_ms"].n, summary.fields["ttft_ms"].mean), (2, 20.0));
        assert_eq!(summary.outcomes["ok"], 2);
        assert_eq!(summary.outcomes["truncated"], 1);
        assert_eq!(summary.agents["claude-code"], 3);
        assert_eq!(summary.models["unknown"], 3);
        let bash = &summary.tools["Bash"];
        assert_eq!((bash.calls, bash.errors), (3, 1));
        assert_eq!(bash.wire_ms.map(|wire| (wire.n, wire.mean)), Some((2, 6.0)));
        assert!(!summary.fields.contains_key("osl") && summary.engine.is_none());
    }
}
