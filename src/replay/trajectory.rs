//! One agent works through one recorded session: its threads side by side, each request when what it
//! follows has ended and the recorded wait is over.
//!
//! Due times are instants of the run clock, never chains of sleeps. What a request follows is an end of
//! a response, which is a cause, never the moment at which another request happened to be sent; what
//! follows nothing is due from the trajectory's own due start. So no late timer is ever carried on. What is sent is `content`'s affair, sending it `client`'s.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tokio::sync::SetOnce;
use tokio_util::sync::CancellationToken;

use super::attempts::RequestKey;
use super::beside::Beside;
use super::client::Exchange;
use super::content::{Content, Conversation};
use super::doing::Does;
use super::load::{Agent, Load};
use super::plan::{PlannedRequest, SessionPlan, ThreadPlan};
use super::request_row::request_row;
use super::settings::OnError;
use crate::clock::elapsed_ms;
use crate::trace::record::{RequestRow, RequestStatus, TrajectoryRow};

/// How long before it is due a body is built, at most: long enough for the largest, short enough that
/// the bodies of waiting agents take no memory.
const BUILD_LEAD_NS: i64 = 250_000_000;

/// When a trajectory was to begin, and did.
#[derive(Debug, Clone, Copy)]
#[allow(clippy::struct_field_names)] // the unit is in the names
pub(super) struct Start {
    /// When it was due. What starts with the session is due from here on.
    pub(super) due_ns: i64,
    /// When an agent took it up.
    pub(super) taken_up_ns: i64,
    /// How long it waited for a place under a cap on active agents; none without such a cap.
    pub(super) waited_ns: Option<i64>,
}

/// One play of one session.
pub(super) struct Trajectory<'run> {
    load: &'run Arc<Load>,
    agent: &'run Agent,
    session: &'run SessionPlan,
    session_index: usize,
    /// Its number in the run.
    index: u64,
    id: String,
    invocation: u32,
    start: Start,
    /// When each request's response ended.
    ended_ns: Vec<SetOnce<i64>>,
    /// Nothing more of this trajectory is started.
    halt: CancellationToken,
    totals: Totals,
}

#[derive(Default)]
struct Totals {
    sent: AtomicU32,
    ok: AtomicU32,
    failed: AtomicU32,
    prompt_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    tool_wait_us: AtomicU64,
}

impl<'run> Trajectory<'run> {
    pub(super) fn new(
        load: &'run Arc<Load>,
        agent: &'run Agent,
        invocation: u32,
        index: u64,
        session_index: usize,
        start: Start,
    ) -> Self {
        let session = &load.plan.sessions[session_index];
        Self {
            load,
            agent,
            session,
            session_index,
            index,
            id: match load.level {
                Some(level) => format!("level-{level:03}-trajectory-{index:06}"),
                None => format!("trajectory-{index:06}"),
            },
            invocation,
            start,
            ended_ns: session.requests.iter().map(|_| SetOnce::new()).collect(),
            halt: load.halt.child_token(),
            totals: Totals::default(),
        }
    }

    /// Works the session through. False when requests were sent and none was answered whole.
    pub(super) async fn play(&self) -> bool {
        let threads = self.session.threads.iter().map(|thread| self.play_thread(thread));
        futures_util::future::join_all(threads).await;
        let load = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        let (sent, ok) = (load(&self.totals.sent), load(&self.totals.ok));
        if sent > 0 {
            self.load.rows.send(self.row()).await;
            let unsent = (self.session.requests.len() as u64).saturating_sub(u64::from(sent));
            self.load.progress.trajectory_ended(unsent);
        }
        self.load.shared.trajectory_ended(self.index);
        sent == 0 || ok > 0
    }

    /// One thread: a request after another, until one cannot be started any more.
    async fn play_thread(&self, thread: &ThreadPlan) {
        let mut conversation = self.load.contents.conversation();
        for at in thread.requests.clone() {
            let request = &self.session.requests[at];
            let due = self.halt.run_until_cancelled(self.due_ns(request)).await;
            let Some(due_ns) = due else { return };
            let waits = Does::waiting(request.waits_for);
            let _waiting = waits.map(|does| self.agent.activity.begin(does));
            if !self.load.reached(due_ns - BUILD_LEAD_NS, &self.halt).await {
                return;
            }
            let content = self.build(at, &mut conversation).await;
            if !self.load.reached(due_ns, &self.halt).await {
                return;
            }
            let (row, ended_ns) =
                self.perform(thread, at, due_ns, content, &mut conversation).await;
            let failed = row.status != RequestStatus::Ok;
            self.load.rows.send(row).await;
            if failed && self.load.on_error != OnError::Continue {
                self.halt.cancel();
            }
            // Each request is sent once, so the cell is empty.
            let _ = self.ended_ns[at].set(ended_ns);
        }
    }

    /// When a request is due, known once all that it follows has ended.
    async fn due_ns(&self, request: &PlannedRequest) -> i64 {
        let mut from_ns = self.start.due_ns;
        for (index, other) in request.after.iter().enumerate() {
            let ended_ns = *self.ended_ns[*other].wait().await;
            from_ns = if index == 0 { ended_ns } else { from_ns.max(ended_ns) };
        }
        from_ns + (request.wait_ms * 1e6) as i64
    }

    /// Builds a body on a thread that no byte waits for.
    async fn build(&self, at: usize, conversation: &mut Conversation) -> Result<Content, String> {
        let permit = self.load.builders.acquire().await.map_err(|error| error.to_string())?;
        let contents = Arc::clone(&self.load.contents);
        let session = self.session_index;
        let salt = self.load.shared.salts.of(self.index, at);
        let mut taken = std::mem::take(conversation);
        let built = tokio::task::spawn_blocking(move || {
            (contents.build(session, at, &mut taken, salt.as_ref()), taken)
        });
        let content;
        (content, *conversation) = built.await.map_err(|error| error.to_string())?;
        drop(permit);
        content
    }

    /// Sends a request; its row, and when its response ended.
    async fn perform(
        &self,
        thread: &ThreadPlan,
        at: usize,
        due_ns: i64,
        content: Result<Content, String>,
        conversation: &mut Conversation,
    ) -> (RequestRow, i64) {
        let (load, request) = (self.load, &self.session.requests[at]);
        let phase = {
            let mut phases = load.phases();
            if !self.agent.started.swap(true, Ordering::Relaxed) {
                let in_ramp = phases.agent_started(load.clock.run_ms());
                self.agent.began_in_ramp.store(in_ramp, Ordering::Relaxed);
            }
            phases.phase()
        };
        let planned_cached_tokens =
            load.shared.planned_cached_tokens(&load.plan.prefixes, self.index, request);
        load.progress.request_sent();
        self.totals.sent.fetch_add(1, Ordering::Relaxed);
        let live = content.as_ref().ok().and_then(|content| content.live);
        let mut exchange = match content {
            Ok(content) => {
                let key = RequestKey { trajectory: self.index, request: at as u64 };
                let answer = self.agent.activity.begin(Does::FirstToken);
                let first_output = || answer.becomes(Does::Decode);
                let beside = Beside { first_output: Some(&first_output), ..Beside::default() };
                load.client.send_beside(content.api, content.body, key, &load.abort, beside).await
            }
            Err(message) => Exchange::unsent(load.clock.now_ns(), &message),
        };
        if !self.agent.warmed_up.swap(true, Ordering::Relaxed) {
            let in_ramp = self.agent.began_in_ramp.load(Ordering::Relaxed);
            load.phases().first_request_ended(load.clock.run_ms(), in_ramp);
        }
        conversation.answered(|| {
            let ok = exchange.failure.is_none() && !exchange.cancelled;
            ok.then(|| std::mem::take(&mut exchange.received.reply.blocks))
        });
        let ended_ns = exchange.end_ns;
        let api = load.contents.api(request).as_str().to_owned();
        let row = RequestRow {
            trajectory_id: self.id.clone(),
            agent_id: self.agent.id,
            invocation: self.invocation,
            session_id: self.session.session_id.clone(),
            thread_id: thread.thread_id.clone(),
            api,
            phase,
            level: load.level,
            planned_cached_tokens,
            live_answers: live.map(|live| live.live),
            recorded_answers: live.map(|live| live.recorded),
            live_results_as_text: live.map(|live| live.departures.results_as_text),
            live_calls_unanswered: live.map(|live| live.departures.calls_unanswered),
            live_results_of_other_tools: live.map(|live| live.departures.results_of_other_tools),
            live_arguments_malformed: live.map(|live| live.departures.arguments_malformed),
            turn: request.turn,
            source_request_id: request.request_id.clone(),
            tool_wait_ms: (!request.after.is_empty()).then_some(request.wait_ms),
            planned_prompt_tokens: request.planned_prompt_tokens,
            ..request_row(due_ns, load.clock.anchor_ns(), request.target_output_tokens, exchange)
        };
        self.count(&row);
        (row, ended_ns)
    }

    fn count(&self, row: &RequestRow) {
        match row.status {
            RequestStatus::Ok => self.totals.ok.fetch_add(1, Ordering::Relaxed),
            RequestStatus::Failed => self.totals.failed.fetch_add(1, Ordering::Relaxed),
            RequestStatus::Cancelled => 0,
        };
        let add = |total: &AtomicU64, more: u64| total.fetch_add(more, Ordering::Relaxed);
        add(&self.totals.prompt_tokens, row.prompt_tokens.unwrap_or_default());
        add(&self.totals.completion_tokens, row.completion_tokens.unwrap_or_default());
        add(&self.totals.tool_wait_us, (row.tool_wait_ms.unwrap_or_default() * 1e3) as u64);
        self.load.progress.request_ended(row);
        self.load.judge_failures(row.status);
    }

    fn row(&self) -> TrajectoryRow {
        let load = |counter: &AtomicU32| counter.load(Ordering::Relaxed);
        let run_ms = |at_ns: i64| elapsed_ms(self.load.clock.anchor_ns(), at_ns);
        let end_ns = self.ended_ns.iter().filter_map(SetOnce::get).max();
        let n_planned = self.session.requests.len() as u32;
        TrajectoryRow {
            trajectory_id: self.id.clone(),
            agent_id: self.agent.id,
            worker: None,
            invocation: self.invocation,
            session_id: self.session.session_id.clone(),
            due_at_ms: Some(run_ms(self.start.due_ns)),
            admission_wait_ms: self.start.waited_ns.map(|waited_ns| waited_ns as f64 / 1e6),
            start_ms: run_ms(self.start.taken_up_ns),
            end_ms: end_ns.map(|end_ns| run_ms(*end_ns)),
            n_planned,
            n_sent: load(&self.totals.sent),
            n_failed: load(&self.totals.failed),
            completed: load(&self.totals.ok) == n_planned,
            prompt_tokens: self.totals.prompt_tokens.load(Ordering::Relaxed),
            completion_tokens: self.totals.completion_tokens.load(Ordering::Relaxed),
            tool_wait_ms: self.totals.tool_wait_us.load(Ordering::Relaxed) as f64 / 1e3,
            level: self.load.level,
            ..TrajectoryRow::default()
        }
    }
}
