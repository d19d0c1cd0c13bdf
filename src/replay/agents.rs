//! Live agents: requests that somebody makes from what the engine has just said, sent and stamped as a
//! replay's are.
//!
//! What a request says, and when it is ready to be sent, is the caller's affair; here it becomes a row
//! with the same fields and meanings as in a replay, in a phase of the run. Of a task the caller tells the
//! beginning and the end.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::agents_asked::PreparedAgents;
use super::attempts::RequestKey;
use super::beside::{Beside, Wire};
use super::client::Client;
use super::doing::Does;
use super::progress::{Progress, ReplayProgress};
use super::request_row::request_row;
use super::rows::{RowQueue, RowThread};
use super::settings::{EndedBy, ReplaySettings};
use super::time_left::Ahead;
use super::watch::Watch;
use super::window::PhaseTracker;
use crate::api::{Api, Reply};
use crate::clock::{Clock, elapsed_ms};
use crate::error::Result;
use crate::trace::record::{Phase, RequestRow, RequestStatus, TrajectoryRow};
use crate::trace::{EngineInfo, RowSender};

impl PreparedAgents {
    /// Makes ready to send, on the current tokio runtime.
    pub fn start(self, rows: RowSender) -> Result<AgentLoad> {
        let Self { client, engine, api, continuous_usage, settings, clock } = self;
        let watch = Watch::start(clock, rows.clone(), None)?;
        let (queue, row_thread) = RowQueue::start(rows, None)?;
        tracing::info!(agents = settings.agents, url = settings.url, "live agents start");
        let ahead = Ahead {
            trajectories: settings.trajectories,
            simulated: settings.simulated,
            ..Ahead::default()
        };
        let progress = Progress::new(clock, ahead);
        for number in 0..settings.agents {
            progress.agents.of(number);
        }
        Ok(AgentLoad {
            progress,
            state: Mutex::new(State {
                phases: PhaseTracker::new(settings.agents),
                agents: HashMap::new(),
                tasks: HashMap::new(),
                rows: Some(queue),
                all_done: false,
            }),
            request_ended: Notify::new(),
            ending: Mutex::new(Some((watch, row_thread))),
            client,
            engine,
            api,
            continuous_usage,
            settings,
            clock,
        })
    }
}

/// One request of an agent.
#[derive(Debug, Clone)]
pub struct AgentRequest {
    /// The task's run.
    pub trajectory_id: String,
    /// The agent, from 0.
    pub agent_id: u32,
    /// How many tasks it had worked on before.
    pub invocation: u32,
    /// Index of the request in its task.
    pub turn: u32,
    /// The request's name in the recording beside.
    pub request_id: String,
    /// What it says.
    pub body: Bytes,
    /// How long ago all that it is made of was there.
    pub ready_for: Duration,
    /// How long the tools ran whose results it brings.
    pub tool_time_ms: Option<f64>,
}

/// What came of it.
#[derive(Debug)]
pub struct AgentAnswer {
    /// The row that was written.
    pub row: RequestRow,
    /// What the model said.
    pub reply: Reply,
    /// The answer as it came.
    pub wire: Wire,
    /// Start of the attempt.
    pub sent_ns: i64,
    /// End of the stream, or the moment it broke.
    pub ended_ns: i64,
}

/// How a task ended, as the caller knows it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TaskEnd {
    /// The task's run.
    pub trajectory_id: String,
    /// The agent.
    pub agent_id: u32,
    /// How many tasks it had worked on before.
    pub invocation: u32,
    /// The task.
    pub task_id: String,
    /// What ended the work; see the column.
    pub outcome: String,
    /// The model ended its work by itself.
    pub claimed: bool,
    /// What the check said.
    pub check_passed: Option<bool>,
    /// Why it did not pass or run.
    pub check_note: Option<String>,
    /// Answers of the model.
    pub steps: u32,
    /// Its calls.
    pub tool_calls: u32,
    /// Calls that came back as an error.
    pub tool_errors: u32,
    /// Calls that no tool could take.
    pub malformed_calls: u32,
}

/// What the requests of one task add up to.
#[derive(Debug, Clone, Copy, Default)]
struct Totals {
    /// An agent has taken it up, and is seen at work on it.
    taken_up: bool,
    /// On their way now.
    open: u32,
    start_ms: f64,
    end_ms: Option<f64>,
    sent: u32,
    ok: u32,
    failed: u32,
    prompt_tokens: u64,
    completion_tokens: u64,
    tool_time_ms: f64,
}

#[derive(Debug)]
struct State {
    phases: PhaseTracker,
    /// Agents that have begun: whether in the ramp, and whether their first request has ended.
    agents: HashMap<u32, (bool, bool)>,
    tasks: HashMap<String, Totals>,
    /// None once the run has ended.
    rows: Option<RowQueue>,
    all_done: bool,
}

/// Sends the requests of live agents.
#[derive(Debug)]
pub struct AgentLoad {
    client: Client,
    engine: EngineInfo,
    api: Api,
    continuous_usage: bool,
    settings: ReplaySettings,
    clock: Clock,
    progress: Progress,
    state: Mutex<State>,
    /// Told after each request.
    request_ended: Notify,
    ending: Mutex<Option<(Watch, RowThread)>>,
}

impl AgentLoad {
    /// The API that requests are to speak.
    pub fn api(&self) -> Api {
        self.api
    }

    /// The model that they are to name.
    pub fn model(&self) -> &str {
        &self.settings.model
    }

    /// Whether each chunk tells the tokens so far where a request asks for it.
    pub fn continuous_usage(&self) -> bool {
        self.continuous_usage
    }

    /// The engine as it told.
    pub fn engine(&self) -> &EngineInfo {
        &self.engine
    }

    /// How far the run is.
    pub fn progress(&self) -> ReplayProgress {
        let phase = self.lock().phases.phase();
        self.progress.read(phase)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request and writes its row; `abort` cuts it off.
    pub async fn send(&self, request: AgentRequest, abort: &CancellationToken) -> AgentAnswer {
        let due_ns = self.clock.now_ns() - request.ready_for.as_nanos() as i64;
        let phase = self.request_starts(request.agent_id, &request.trajectory_id);
        let mut wire = Wire::default();
        let (key, body) = (RequestKey::default(), request.body);
        let agent = self.progress.agents.of(request.agent_id);
        let exchange = {
            let answer = agent.begin(Does::FirstToken);
            let first_output = || answer.becomes(Does::Decode);
            let beside = Beside { wire: Some(&mut wire), first_output: Some(&first_output) };
            self.client.send_beside(self.api, body, key, abort, beside).await
        };
        let (sent_ns, ended_ns) = (exchange.sent_ns, exchange.end_ns);
        let reply = exchange.received.reply.clone();
        let row = RequestRow {
            session_id: request.trajectory_id.clone(),
            thread_id: request.trajectory_id.clone(),
            trajectory_id: request.trajectory_id,
            agent_id: request.agent_id,
            invocation: request.invocation,
            turn: request.turn,
            source_request_id: request.request_id,
            api: self.api.as_str().to_owned(),
            tool_time_ms: request.tool_time_ms,
            phase,
            ..request_row(due_ns, self.clock.anchor_ns(), None, exchange)
        };
        let rows = self.request_ended(&row, ended_ns);
        if let Some(rows) = rows {
            rows.send(row.clone()).await;
        }
        AgentAnswer { row, reply, wire, sent_ns, ended_ns }
    }

    fn request_starts(&self, agent: u32, trajectory_id: &str) -> Phase {
        self.progress.request_sent();
        let run_ms = self.clock.run_ms();
        let mut state = self.lock();
        let State { phases, agents, tasks, .. } = &mut *state;
        agents.entry(agent).or_insert_with(|| (phases.agent_started(run_ms), false));
        let begun = || Totals { start_ms: run_ms, ..Totals::default() };
        tasks.entry(trajectory_id.to_owned()).or_insert_with(begun).open += 1;
        phases.phase()
    }

    /// Counts a request; the queue for its row, while there is one.
    fn request_ended(&self, row: &RequestRow, ended_ns: i64) -> Option<RowQueue> {
        self.progress.request_ended(row);
        let mut state = self.lock();
        let run_ms = self.clock.run_ms();
        if let Some((in_ramp, warmed_up)) = state.agents.get_mut(&row.agent_id)
            && !std::mem::replace(warmed_up, true)
        {
            let in_ramp = *in_ramp;
            state.phases.first_request_ended(run_ms, in_ramp);
        }
        if let Some(totals) = state.tasks.get_mut(&row.trajectory_id) {
            totals.open = totals.open.saturating_sub(1);
            totals.sent += 1;
            totals.ok += u32::from(row.status == RequestStatus::Ok);
            totals.failed += u32::from(row.status == RequestStatus::Failed);
            totals.prompt_tokens += row.prompt_tokens.unwrap_or_default();
            totals.completion_tokens += row.completion_tokens.unwrap_or_default();
            totals.tool_time_ms += row.tool_time_ms.unwrap_or_default();
            totals.end_ms = Some(elapsed_ms(self.clock.anchor_ns(), ended_ns));
        }
        self.request_ended.notify_waiters();
        state.rows.clone()
    }

    /// An agent has taken up a task. What it does beside its requests counts as tools.
    pub fn task_started(&self, trajectory_id: &str, agent_id: u32) {
        let totals = Totals { taken_up: true, start_ms: self.clock.run_ms(), ..Totals::default() };
        let known = self.lock().tasks.insert(trajectory_id.to_owned(), totals);
        if !known.is_some_and(|known| known.taken_up) {
            self.progress.agents.of(agent_id).add(Does::ToolWait);
        }
    }

    /// A task has ended, its check included: writes its row once none of its requests is on its way.
    pub async fn task_ended(&self, end: TaskEnd) {
        loop {
            // Registered before it is looked, so that no end is missed.
            let request_ended = self.request_ended.notified();
            let open = self.lock().tasks.get(&end.trajectory_id).is_some_and(|task| task.open > 0);
            if !open {
                break;
            }
            request_ended.await;
        }
        let (totals, rows) = {
            let mut state = self.lock();
            (state.tasks.remove(&end.trajectory_id).unwrap_or_default(), state.rows.clone())
        };
        if totals.taken_up {
            self.progress.agents.of(end.agent_id).remove(Does::ToolWait);
        }
        self.progress.trajectory_ended(0);
        if let Some(rows) = rows {
            rows.send(task_row(end, totals)).await;
        }
    }

    /// An agent finds no task that is left: the steady state ends.
    pub fn nothing_left(&self, agent_id: u32) {
        self.progress.agents.of(agent_id).end();
        let run_ms = self.clock.run_ms();
        self.lock().phases.nothing_left(run_ms);
    }

    /// Every task was worked through: what ends the run is not somebody who told it to stop.
    pub fn all_done(&self) {
        self.lock().all_done = true;
    }

    /// Ends the run, once nothing is on its way: the settings as they ended, and the number of rows that were
    /// lost.
    pub async fn finish(&self) -> Result<(ReplaySettings, u64)> {
        let (window, all_done) = {
            let mut state = self.lock();
            state.rows = None;
            (state.phases.window(), state.all_done)
        };
        let ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner).take();
        let mut rows_lost = 0;
        if let Some((watch, row_thread)) = ending {
            watch.stop().await?;
            rows_lost = row_thread.finish().await?;
        }
        self.progress.set_done();
        let ended_by = if all_done { EndedBy::Trajectories } else { EndedBy::Shutdown };
        Ok((ReplaySettings { ended_by, window, ..self.settings.clone() }, rows_lost))
    }
}

/// A live agent plans nothing: what it sent is what there was to send.
fn task_row(end: TaskEnd, totals: Totals) -> TrajectoryRow {
    TrajectoryRow {
        session_id: end.trajectory_id.clone(),
        trajectory_id: end.trajectory_id,
        agent_id: end.agent_id,
        worker: None,
        invocation: end.invocation,
        due_at_ms: Some(totals.start_ms),
        admission_wait_ms: None,
        start_ms: totals.start_ms,
        end_ms: totals.end_ms,
        n_planned: totals.sent,
        n_sent: totals.sent,
        n_failed: totals.failed,
        completed: totals.sent > 0 && totals.ok == totals.sent,
        prompt_tokens: totals.prompt_tokens,
        completion_tokens: totals.completion_tokens,
        tool_wait_ms: totals.tool_time_ms,
        level: None,
        task_id: Some(end.task_id),
        outcome: Some(end.outcome),
        claimed: Some(end.claimed),
        check_passed: end.check_passed,
        check_note: end.check_note,
        steps: Some(end.steps),
        tool_calls: Some(end.tool_calls),
        tool_errors: Some(end.tool_errors),
        malformed_calls: Some(end.malformed_calls),
    }
}
