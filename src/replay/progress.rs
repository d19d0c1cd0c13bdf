//! How far a run is: counters that tasks raise and anybody reads.
//!
//! What each agent does is `doing`'s to say, what the latest answers were like `recent`'s, how long it goes on
//! `time_left`'s. What is seen of the engine and of power is filled in by who polls and samples.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::doing::{Agents, AgentsByState};
use super::measure::failure_kind;
use super::recent::{Recent, RecentFigures};
use super::time_left::{Ahead, Done};
use crate::clock::Clock;
use crate::trace::record::{Phase, RequestRow, RequestStatus};

/// A replay at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayProgress {
    /// Since the replay started; of one that has ended, its length.
    pub elapsed_s: f64,
    /// How long it is expected to go on: to the time after which nothing more is started, or by the pace
    /// of the work that is planned; null where neither says anything yet.
    pub time_left_s: Option<f64>,
    /// The part of the run it is in.
    pub phase: Phase,
    /// The engine is a simulation.
    pub simulated: bool,
    /// Agents by what they do now.
    pub agents: AgentsByState,
    /// Requests sent.
    pub requests_sent: u64,
    /// Answered whole.
    pub requests_ok: u64,
    /// Failed.
    pub requests_failed: u64,
    /// Cut off by the end of the run.
    pub requests_cancelled: u64,
    /// On their way now.
    pub requests_in_flight: u64,
    /// Requests that failed, by kind.
    pub failures: BTreeMap<String, u64>,
    /// Trajectories that have ended.
    pub trajectories_done: u64,
    /// Trajectories to work through; none where time ends the run.
    pub trajectories_planned: Option<u64>,
    /// Time after which nothing more is started.
    pub duration_s: Option<f64>,
    /// Prompt tokens of the requests answered whole, from their usage; like the other tokens null while no
    /// usage has told them.
    pub prompt_tokens: Option<u64>,
    /// Those served from cache.
    pub cached_tokens: Option<u64>,
    /// Prompt tokens of the requests whose usage tells what was cached: the base of a hit rate.
    pub prompt_tokens_with_cached: Option<u64>,
    /// Output tokens of the requests answered whole, from their usage.
    pub completion_tokens: Option<u64>,
    /// The latest answers.
    #[serde(flatten)]
    pub recent: RecentFigures,
    /// What the engine and power sampling tell now.
    #[serde(flatten)]
    pub outside: Outside,
    /// The replay has ended.
    pub done: bool,
}

/// What is seen from outside of agents: null where nothing is polled or sampled, or the last look failed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Outside {
    /// Requests that the engine runs.
    pub engine_running: Option<f64>,
    /// Requests that wait in the engine.
    pub engine_waiting: Option<f64>,
    /// KV-cache use, 0 to 100.
    pub engine_kv_cache_usage_pct: Option<f64>,
    /// Power of all devices, times the power usage effectiveness where one was given.
    pub power_w: Option<f64>,
}

impl ReplayProgress {
    /// What stays of a worker that is gone: its agents have ended, and what was on its way has no row.
    #[must_use]
    pub fn of_lost(self) -> Self {
        Self {
            agents: all_ended(self.agents),
            requests_sent: self.requests_sent - self.requests_in_flight,
            requests_in_flight: 0,
            time_left_s: Some(0.0),
            ..self
        }
    }

    /// The progress of a run whose workers are so far; `recent` is of the answers of all of them. `done`
    /// and `phase` are the run's own.
    pub fn sum(workers: &[Self], phase: Phase, recent: RecentFigures) -> Self {
        let workers = workers.iter();
        let total = |count: fn(&Self) -> u64| workers.clone().map(count).sum();
        let told = |tokens: fn(&Self) -> Option<u64>| {
            workers.clone().filter_map(tokens).reduce(|one, other| one + other)
        };
        let first = |value: fn(&Self) -> Option<f64>| workers.clone().find_map(value);
        let mut failures = BTreeMap::new();
        for (kind, n) in workers.clone().flat_map(|worker| &worker.failures) {
            *failures.entry(kind.clone()).or_default() += n;
        }
        let left: Option<Vec<f64>> = workers.clone().map(|worker| worker.time_left_s).collect();
        Self {
            elapsed_s: workers.clone().map(|worker| worker.elapsed_s).fold(0.0, f64::max),
            // The run goes on until the last worker has ended; one that cannot tell leaves that open.
            time_left_s: left.and_then(|left| left.into_iter().reduce(f64::max)),
            phase,
            simulated: workers.clone().any(|worker| worker.simulated),
            agents: workers
                .clone()
                .map(|worker| worker.agents)
                .fold(AgentsByState::default(), AgentsByState::and),
            requests_sent: total(|worker| worker.requests_sent),
            requests_ok: total(|worker| worker.requests_ok),
            requests_failed: total(|worker| worker.requests_failed),
            requests_cancelled: total(|worker| worker.requests_cancelled),
            requests_in_flight: total(|worker| worker.requests_in_flight),
            failures,
            trajectories_done: total(|worker| worker.trajectories_done),
            trajectories_planned: workers.clone().find_map(|worker| worker.trajectories_planned),
            duration_s: first(|worker| worker.duration_s),
            prompt_tokens: told(|worker| worker.prompt_tokens),
            cached_tokens: told(|worker| worker.cached_tokens),
            prompt_tokens_with_cached: told(|worker| worker.prompt_tokens_with_cached),
            completion_tokens: told(|worker| worker.completion_tokens),
            recent,
            outside: Outside::default(),
            done: false,
        }
    }
}

/// A sum of what usages tell; none while none has told it.
#[derive(Debug, Default)]
struct Told {
    sum: AtomicU64,
    told: AtomicBool,
}

impl Told {
    fn add(&self, tokens: Option<u64>) {
        if let Some(tokens) = tokens {
            self.sum.fetch_add(tokens, Ordering::Relaxed);
            self.told.store(true, Ordering::Relaxed);
        }
    }

    fn read(&self) -> Option<u64> {
        self.told.load(Ordering::Relaxed).then(|| self.sum.load(Ordering::Relaxed))
    }
}

/// The counters.
#[derive(Debug)]
pub(super) struct Progress {
    clock: Clock,
    started_ns: i64,
    /// 0 while it goes on.
    ended_ns: AtomicI64,
    ahead: Ahead,
    /// When the last request ended; without planned requests, the last trajectory.
    last_ns: AtomicI64,
    /// What each agent does.
    pub(super) agents: Agents,
    sent: AtomicU64,
    ok: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    /// Planned requests of trajectories that ended before them.
    given_up: AtomicU64,
    trajectories_done: AtomicU64,
    prompt_tokens: Told,
    cached_tokens: Told,
    prompt_tokens_with_cached: Told,
    completion_tokens: Told,
    recent: Mutex<Recent>,
    failures: Mutex<BTreeMap<String, u64>>,
}

impl Progress {
    pub(super) fn new(clock: Clock, ahead: Ahead) -> Self {
        Self {
            clock,
            started_ns: clock.now_ns(),
            ended_ns: AtomicI64::new(0),
            last_ns: AtomicI64::new(0),
            ahead,
            agents: Agents::default(),
            sent: AtomicU64::new(0),
            ok: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            given_up: AtomicU64::new(0),
            trajectories_done: AtomicU64::new(0),
            prompt_tokens: Told::default(),
            cached_tokens: Told::default(),
            prompt_tokens_with_cached: Told::default(),
            completion_tokens: Told::default(),
            recent: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    pub(super) fn request_sent(&self) {
        self.sent.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn request_ended(&self, row: &RequestRow) {
        let ended = match row.status {
            RequestStatus::Ok => &self.ok,
            RequestStatus::Failed => &self.failed,
            RequestStatus::Cancelled => &self.cancelled,
        };
        ended.fetch_add(1, Ordering::Relaxed);
        if self.ahead.requests.is_some() {
            self.piece_ended();
        }
        match row.status {
            RequestStatus::Ok => self.add_tokens(row),
            RequestStatus::Failed => {
                let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
                *failures.entry(failure_kind(row).to_owned()).or_default() += 1;
            }
            RequestStatus::Cancelled => {}
        }
        self.recent.lock().unwrap_or_else(PoisonError::into_inner).see(row);
    }

    fn piece_ended(&self) {
        self.last_ns.store(self.clock.now_ns(), Ordering::Relaxed);
    }

    fn add_tokens(&self, row: &RequestRow) {
        self.prompt_tokens.add(row.prompt_tokens);
        self.cached_tokens.add(row.cached_tokens);
        self.prompt_tokens_with_cached.add(row.cached_tokens.and(row.prompt_tokens));
        self.completion_tokens.add(row.completion_tokens);
    }

    /// Requests that were answered whole and that failed, so far.
    pub(super) fn ended(&self) -> (u64, u64) {
        (self.ok.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    /// A trajectory has ended, so many of its planned requests unsent.
    pub(super) fn trajectory_ended(&self, unsent: u64) {
        self.trajectories_done.fetch_add(1, Ordering::Relaxed);
        self.given_up.fetch_add(unsent, Ordering::Relaxed);
        if self.ahead.requests.is_none() {
            self.piece_ended();
        }
    }

    pub(super) fn set_done(&self) {
        self.ended_ns.store(self.clock.now_ns(), Ordering::Release);
    }

    pub(super) fn read(&self, phase: Phase) -> ReplayProgress {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ended_ns = self.ended_ns.load(Ordering::Acquire);
        let done = ended_ns != 0;
        let until_ns = if done { ended_ns } else { self.clock.now_ns() };
        let elapsed_s = (until_ns - self.started_ns) as f64 / 1e9;
        // Ends are read before starts, so that none seems to have ended before it was sent.
        let (ok, failed, cancelled) = (load(&self.ok), load(&self.failed), load(&self.cancelled));
        let ended = ok + failed + cancelled;
        let trajectories_done = load(&self.trajectories_done);
        let sent = load(&self.sent);
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let agents = self.agents.by_state();
        let agents = if done { all_ended(agents) } else { agents };
        let last_ns = self.last_ns.load(Ordering::Relaxed);
        let so_far = Done {
            requests: ended + load(&self.given_up),
            trajectories: trajectories_done,
            at_s: (last_ns - self.started_ns) as f64 / 1e9,
        };
        ReplayProgress {
            elapsed_s,
            time_left_s: if done {
                Some(0.0)
            } else {
                self.ahead.left_s(elapsed_s, so_far, agents)
            },
            phase,
            simulated: self.ahead.simulated,
            agents,
            requests_sent: sent,
            requests_ok: ok,
            requests_failed: failed,
            requests_cancelled: cancelled,
            requests_in_flight: sent.saturating_sub(ended),
            failures: self.failures.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            trajectories_done,
            trajectories_planned: self.ahead.trajectories,
            duration_s: self.ahead.duration_s,
            prompt_tokens: self.prompt_tokens.read(),
            cached_tokens: self.cached_tokens.read(),
            prompt_tokens_with_cached: self.prompt_tokens_with_cached.read(),
            completion_tokens: self.completion_tokens.read(),
            recent: recent.figures(),
            outside: Outside::default(),
            done,
        }
    }
}

/// A run that has ended has no agent that still does something.
fn all_ended(agents: AgentsByState) -> AgentsByState {
    AgentsByState { ended: agents.total(), ..AgentsByState::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::doing::Does;

    #[test]
    fn before_anything_is_told_a_run_is_not_in_steady_state() {
        assert_eq!(ReplayProgress::default().phase, Phase::Ramp);
    }

    #[test]
    fn workers_add_up_and_what_one_of_them_cannot_tell_is_not_told() {
        let worker = |sent: u64, left: Option<f64>, kinds: &[(&str, u64)]| ReplayProgress {
            requests_sent: sent,
            time_left_s: left,
            agents: AgentsByState { decode: 1, tool: 2, ..AgentsByState::default() },
            failures: kinds.iter().map(|(kind, n)| ((*kind).to_owned(), *n)).collect(),
            ..ReplayProgress::default()
        };
        let recent = RecentFigures { recent_answers: 3, ..RecentFigures::default() };
        let sum = |left| {
            let workers = [
                worker(3, Some(8.0), &[("connect", 1), ("http 503", 2)]),
                worker(4, left, &[("http 503", 5)]),
            ];
            ReplayProgress::sum(&workers, Phase::Steady, recent)
        };
        let together = sum(Some(9.0));
        assert_eq!((together.requests_sent, together.time_left_s), (7, Some(9.0)));
        assert_eq!((together.agents.decode, together.agents.total()), (2, 6));
        let failures: Vec<(&str, u64)> =
            together.failures.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
        assert_eq!(failures, [("connect", 1), ("http 503", 7)]);
        assert_eq!((together.recent, together.phase), (recent, Phase::Steady));
        assert_eq!(sum(None).time_left_s, None);
        let lost = ReplayProgress { requests_in_flight: 1, ..worker(3, None, &[]) }.of_lost();
        assert_eq!((lost.requests_sent, lost.requests_in_flight), (2, 0));
        assert_eq!((lost.agents.ended, lost.agents.total(), lost.time_left_s), (3, 3, Some(0.0)));
    }

    #[test]
    fn what_ended_is_counted_by_kind_and_time_stands_still_after_the_end() {
        let progress = Progress::new(Clock::start(), Ahead::default());
        let agent = progress.agents.add();
        let answer = agent.begin(Does::FirstToken);
        for (status, error) in [
            (RequestStatus::Ok, None),
            (RequestStatus::Failed, Some("http 503: busy")),
            (RequestStatus::Failed, Some("http 503: busy again")),
            (RequestStatus::Failed, Some("connect: refused")),
            (RequestStatus::Cancelled, None),
        ] {
            progress.request_sent();
            let error = error.map(str::to_owned);
            progress.request_ended(&RequestRow { status, error, ..RequestRow::default() });
        }
        progress.request_sent();
        let seen = progress.read(Phase::Steady);
        assert_eq!((seen.requests_sent, seen.requests_failed, seen.requests_in_flight), (6, 3, 1));
        let failures: Vec<(&str, u64)> =
            seen.failures.iter().map(|(kind, n)| (kind.as_str(), *n)).collect();
        assert_eq!(failures, [("connect", 1), ("http 503", 2)]);
        assert_eq!((seen.agents.first_token, seen.time_left_s, seen.done), (1, None, false));
        progress.set_done();
        let ended = progress.read(Phase::Tail);
        assert_eq!((ended.agents.ended, ended.agents.first_token), (1, 0));
        assert_eq!((ended.time_left_s, ended.done), (Some(0.0), true));
        assert_eq!(progress.read(Phase::Tail), ended);
        drop(answer);
    }
}
