//! A run's sessions, one after another, however their rows lie among each other in the tables.
//!
//! This is what every writer of a format is given: a session with its threads, their turns in order, and
//! the calls of each turn. A first pass counts the rows of each session; the second holds a session's rows
//! until the last of them has come, so what is held are the sessions that go on side by side.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;

use super::tally::Tally;
use crate::error::{Error, Result};
use crate::shutdown::Shutdown;
use crate::trace::record::{Outcome, ToolCallRow, TurnKind, TurnRow};
use crate::trace::{Run, Table};

/// Columns that every format looks at; texts are most of a table, and read only where a format has them.
const COLUMNS: [&str; 34] = [
    "session_id",
    "thread_id",
    "parent_thread_id",
    "turn",
    "request_id",
    "api",
    "agent",
    "kind",
    "model",
    "stream",
    "params",
    "unit_hashes",
    "block_hashes",
    "block_size",
    "server_history",
    "changes",
    "request_time",
    "first_output_time",
    "last_output_time",
    "response_end_time",
    "ttft_ms",
    "e2e_ms",
    "tool_exec_ms",
    "http_status",
    "outcome",
    "error",
    "stop_reason",
    "isl",
    "isl_cached",
    "isl_cache_write",
    "isl_new",
    "osl",
    "reasoning_tokens",
    "engine",
];
/// The same of tool calls.
const CALL_COLUMNS: [&str; 13] = [
    "session_id",
    "thread_id",
    "turn",
    "index",
    "call_id",
    "name",
    "argument_bytes",
    "emitted_time",
    "result_time",
    "wire_ms",
    "own_ms",
    "result_bytes",
    "is_error",
];

/// What else a format reads.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Columns {
    /// Of turns.
    pub(super) turns: &'static [&'static str],
    /// Of tool calls.
    pub(super) calls: &'static [&'static str],
}

/// One session.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) id: String,
    /// In the order in which they began.
    pub(super) threads: Vec<Thread>,
}

/// One growing conversation.
#[derive(Debug, Default)]
pub(super) struct Thread {
    pub(super) id: String,
    pub(super) parent: Option<String>,
    pub(super) kind: TurnKind,
    /// In order.
    pub(super) turns: Vec<Turn>,
}

/// One request with what its reply called.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) row: TurnRow,
    /// In the order of the reply.
    pub(super) calls: Vec<ToolCallRow>,
    /// When it was made; none where the run does not know.
    pub(super) request: Option<f64>,
}

impl Turn {
    /// Whether it was answered whole, by an engine.
    pub(super) fn is_answered(&self) -> bool {
        self.row.outcome == Outcome::Ok && !self.row.is_answered_locally()
    }

    /// The last byte of the response, or the last output where that is all that is known.
    pub(super) fn end(&self) -> Option<f64> {
        let by_length = || Some(self.request? + self.row.e2e_ms? / 1e3);
        self.row.response_end_time.or_else(by_length).or(self.row.last_output_time)
    }

    /// When the first output came.
    pub(super) fn first_output(&self) -> Option<f64> {
        let by_length = || Some(self.request? + self.row.ttft_ms? / 1e3);
        self.row.first_output_time.or_else(by_length)
    }
}

impl Thread {
    /// The wait after a turn, to the microsecond: what its successor waited.
    pub(super) fn wait_after_ms(&self, turn: usize) -> Option<f64> {
        self.turns.get(turn + 1)?.row.tool_exec_ms.map(round_ms)
    }

    /// When it began.
    pub(super) fn begun(&self) -> Option<f64> {
        self.turns.first()?.request
    }
}

impl Session {
    /// Leaves out what no engine answered whole: most formats tell lengths of answers and no failures.
    pub(super) fn keep_answered(&mut self, tally: &mut Tally) {
        for thread in &mut self.threads {
            thread.turns.retain(|turn| {
                if !turn.is_answered() {
                    tally.left_out("turns that no engine answered whole");
                }
                turn.is_answered()
            });
        }
        self.threads.retain(|thread| !thread.turns.is_empty());
    }

    /// A name for each thread that no other thread of the run has: the first conversation has the
    /// session's, others stand below it.
    pub(super) fn thread_name(&self, thread: usize) -> String {
        let Thread { id, .. } = &self.threads[thread];
        if self.first() == Some(thread) {
            self.id.clone()
        } else if *id != self.id && id.starts_with(&self.id) {
            id.clone()
        } else {
            format!("{}/{id}", self.id)
        }
    }

    /// The conversation that the session is known by.
    fn first(&self) -> Option<usize> {
        let place = |is_it: &dyn Fn(&Thread) -> bool| self.threads.iter().position(is_it);
        place(&|thread| thread.id == self.id)
            .or_else(|| place(&|thread| thread.parent.is_none() && thread.kind == TurnKind::Main))
            .or_else(|| place(&|thread| thread.parent.is_none()))
    }

    /// When it began.
    pub(super) fn begun(&self) -> Option<f64> {
        self.threads.iter().filter_map(Thread::begun).min_by(f64::total_cmp)
    }
}

/// What a run holds, as a first pass over its tables tells.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Turns and calls of each session.
    rows: HashMap<String, (usize, usize)>,
    /// The first request of the run; none where it has no times.
    pub(super) begun: Option<f64>,
    /// Sizes of recorded blocks.
    pub(super) block_sizes: BTreeSet<u32>,
    /// A time of 0 is none.
    zero_is_unknown: bool,
}

impl Survey {
    /// Counts. Blocks: reads the tables.
    pub(super) fn of(run: &Run, shutdown: &Shutdown) -> Result<Self> {
        let mut survey = Self { zero_is_unknown: zero_is_unknown(run), ..Self::default() };
        let columns = ["session_id", "request_time", "block_size"];
        for turn in run.rows_of_columns::<TurnRow>(&columns)? {
            if shutdown.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let turn = turn?;
            survey.rows.entry(turn.session_id).or_default().0 += 1;
            survey.block_sizes.extend(turn.block_size);
            if survey.knows(turn.request_time) {
                let begun = survey.begun.unwrap_or(turn.request_time);
                survey.begun = Some(begun.min(turn.request_time));
            }
        }
        for call in run.rows_of_columns::<ToolCallRow>(&["session_id"])? {
            survey.rows.entry(call?.session_id).or_default().1 += 1;
        }
        Ok(survey)
    }

    fn knows(&self, time: f64) -> bool {
        time != 0.0 || !self.zero_is_unknown
    }

    /// Milliseconds after the run's first request, to the microsecond.
    pub(super) fn ms_after_start(&self, time: f64) -> f64 {
        round_ms((time - self.begun.unwrap_or_default()) * 1e3)
    }
}

/// Milliseconds to the microsecond: wall times hold no more.
pub(super) fn round_ms(ms: f64) -> f64 {
    (ms * 1e3).round() / 1e3
}

/// Some formats have no times, and a row of theirs says 0.
fn zero_is_unknown(run: &Run) -> bool {
    let times = run.manifest().settings.get("times").and_then(Value::as_array);
    times.is_some_and(|times| times.iter().any(|base| base == "none"))
}

/// Gives every session to `take`, each once it is whole.
pub(super) fn each_session(
    run: &Run,
    survey: &Survey,
    columns: Columns,
    shutdown: &Shutdown,
    mut take: impl FnMut(Session) -> Result<()>,
) -> Result<()> {
    let turn_columns: Vec<&str> = COLUMNS.iter().chain(columns.turns).copied().collect();
    let call_columns: Vec<&str> = CALL_COLUMNS.iter().chain(columns.calls).copied().collect();
    let mut calls = run.rows_of_columns::<ToolCallRow>(&call_columns)?;
    let mut open: HashMap<String, Rows> = HashMap::new();
    for turn in run.rows_of_columns::<TurnRow>(&turn_columns)? {
        if shutdown.is_cancelled() {
            return Err(Error::Cancelled);
        }
        let turn = turn?;
        let id = turn.session_id.clone();
        let (n_turns, n_calls) = survey.rows.get(&id).copied().unwrap_or_default();
        let rows = open.entry(id.clone()).or_default();
        rows.turns.push(turn);
        if rows.turns.len() < n_turns {
            continue;
        }
        while open.get(&id).is_some_and(|rows| rows.calls.len() < n_calls)
            && let Some(call) = calls.next().transpose()?
        {
            open.entry(call.session_id.clone()).or_default().calls.push(call);
        }
        take(session(id.clone(), open.remove(&id).unwrap_or_default(), survey))?;
    }
    Ok(())
}

/// A session's rows so far.
#[derive(Debug, Default)]
struct Rows {
    turns: Vec<TurnRow>,
    calls: Vec<ToolCallRow>,
}

fn session(id: String, rows: Rows, survey: &Survey) -> Session {
    let mut calls: HashMap<(String, u32), Vec<ToolCallRow>> = HashMap::new();
    for call in rows.calls {
        calls.entry((call.thread_id.clone(), call.turn)).or_default().push(call);
    }
    let mut threads: Vec<Thread> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    for row in rows.turns {
        let place = *places.entry(row.thread_id.clone()).or_insert_with(|| {
            threads.push(Thread { id: row.thread_id.clone(), kind: row.kind, ..Thread::default() });
            threads.len() - 1
        });
        let thread = &mut threads[place];
        if thread.parent.is_none() {
            thread.parent.clone_from(&row.parent_thread_id);
        }
        let mut calls = calls.remove(&(row.thread_id.clone(), row.turn)).unwrap_or_default();
        calls.sort_by_key(|call| call.index);
        let request = Some(row.request_time).filter(|time| survey.knows(*time));
        thread.turns.push(Turn { row, calls, request });
    }
    for thread in &mut threads {
        thread.turns.sort_by_key(|turn| turn.row.turn);
        forget_shared_times(&mut thread.turns);
    }
    threads.sort_by(|a, b| a.begun().unwrap_or_default().total_cmp(&b.begun().unwrap_or_default()));
    Session { id, threads }
}

/// Workloads tell a session's arrival alone, and an import gives it to all of the turns: only the first
/// was made then.
fn forget_shared_times(turns: &mut [Turn]) {
    let Some((first, later)) = turns.split_first_mut() else { return };
    for turn in later {
        if turn.request == first.request && first.end().is_none() {
            turn.request = None;
        }
    }
}

/// Refuses a run that nothing can be made of.
pub(super) fn check_has_turns(run: &Run) -> Result<()> {
    if run.has(Table::Turns) {
        return Ok(());
    }
    Err(Error::config(format!(
        "run {} has no turns: export a recording, an import or a synthetic run",
        run.manifest().run_id
    )))
}
