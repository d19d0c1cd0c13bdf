//! What the turns of a run come to: counts and sums for the last lines of a capture.
//!
//! A sum is over the turns whose usage tells the value, and is null when none does.

use std::collections::BTreeSet;

use serde::Serialize;

use super::reader::Run;
use super::record::{Outcome, TurnRow};
use crate::error::Result;

/// Sums over the turns of a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TurnTotals {
    /// Requests recorded.
    pub turns: u64,
    /// Requests that the proxy answered by itself; nothing else here counts them.
    pub answered_locally: u64,
    /// Of the turns, the ones that were not answered whole.
    pub failed: u64,
    /// Sessions.
    pub sessions: u64,
    /// Threads.
    pub threads: u64,
    /// Prompt tokens.
    pub isl: Option<u64>,
    /// Prompt tokens served from cache.
    pub isl_cached: Option<u64>,
    /// Prompt tokens of the turns whose usage tells what was cached: the base of a hit rate.
    pub isl_with_cached: Option<u64>,
    /// Output tokens.
    pub osl: Option<u64>,
    /// Time between a response and the next request of its thread.
    pub tool_exec_ms: Option<f64>,
    /// From the first request's arrival to the end of the last response.
    pub span_ms: Option<f64>,
}

/// The columns that are read.
const COLUMNS: [&str; 10] = [
    "changes",
    "session_id",
    "thread_id",
    "request_time",
    "response_end_time",
    "tool_exec_ms",
    "outcome",
    "isl",
    "isl_cached",
    "osl",
];

/// Adds up the turns of a run, streamed.
pub fn turn_totals(run: &Run) -> Result<TurnTotals> {
    let mut sums = Sums::default();
    for turn in run.rows_of_columns::<TurnRow>(&COLUMNS)? {
        sums.add(&turn?);
    }
    Ok(sums.finish())
}

#[derive(Default)]
struct Sums {
    totals: TurnTotals,
    sessions: BTreeSet<String>,
    threads: BTreeSet<(String, String)>,
    first: Option<f64>,
    last: Option<f64>,
}

impl Sums {
    fn add(&mut self, turn: &TurnRow) {
        let totals = &mut self.totals;
        if turn.is_answered_locally() {
            totals.answered_locally += 1;
            return;
        }
        totals.turns += 1;
        totals.failed += u64::from(turn.outcome != Outcome::Ok);
        add_known(&mut totals.isl, turn.isl);
        add_known(&mut totals.isl_cached, turn.isl_cached);
        add_known(&mut totals.isl_with_cached, turn.isl_cached.and(turn.isl));
        add_known(&mut totals.osl, turn.osl);
        add_known(&mut totals.tool_exec_ms, turn.tool_exec_ms);
        self.sessions.insert(turn.session_id.clone());
        self.threads.insert((turn.session_id.clone(), turn.thread_id.clone()));
        let end = turn.response_end_time.unwrap_or(turn.request_time);
        self.first =
            Some(self.first.map_or(turn.request_time, |first| first.min(turn.request_time)));
        self.last = Some(self.last.map_or(end, |last| last.max(end)));
    }

    fn finish(self) -> TurnTotals {
        TurnTotals {
            sessions: self.sessions.len() as u64,
            threads: self.threads.len() as u64,
            span_ms: self.last.zip(self.first).map(|(last, first)| (last - first) * 1e3),
            ..self.totals
        }
    }
}

fn add_known<T: std::ops::Add<Output = T> + Copy>(sum: &mut Option<T>, value: Option<T>) {
    *sum = match (*sum, value) {
        (Some(sum), Some(value)) => Some(sum + value),
        (sum, value) => sum.or(value),
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(thread: &str, at: f64, isl: Option<u64>, isl_cached: Option<u64>) -> TurnRow {
        TurnRow {
            session_id: "s".into(),
            thread_id: thread.into(),
            request_time: at,
            response_end_time: Some(at + 0.5),
            isl,
            isl_cached,
            tool_exec_ms: (at > 10.0).then_some(250.0),
            ..TurnRow::default()
        }
    }

    #[test]
    fn sums_are_over_what_is_known() {
        let mut sums = Sums::default();
        sums.add(&turn("a", 10.0, Some(100), None));
        sums.add(&turn("b", 11.0, Some(200), Some(150)));
        sums.add(&TurnRow { outcome: Outcome::HttpError, ..turn("a", 12.0, None, None) });
        let changes = Some(vec![TurnRow::ANSWERED_LOCALLY.to_owned()]);
        sums.add(&TurnRow { changes, ..turn("c", 9.0, None, None) });
        let totals = sums.finish();
        assert_eq!(totals.answered_locally, 1);
        assert_eq!((totals.turns, totals.failed, totals.sessions, totals.threads), (3, 1, 1, 2));
        assert_eq!((totals.isl, totals.isl_cached), (Some(300), Some(150)));
        assert_eq!((totals.isl_with_cached, totals.osl), (Some(200), None));
        assert_eq!((totals.tool_exec_ms, totals.span_ms), (Some(500.0), Some(2500.0)));
    }

    #[test]
    fn no_turns_come_to_nothing_known() {
        assert_eq!(Sums::default().finish(), TurnTotals::default());
    }
}
