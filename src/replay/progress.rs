//! How far a replay is: counters that tasks raise and anybody reads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::measure::itl_ms;
use crate::clock::Clock;
use crate::trace::record::{Phase, RequestRow, RequestStatus};

/// Answers over which the recent means run.
const RECENT: usize = 100;

/// A replay at one moment.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ReplayProgress {
    /// Since the replay started.
    pub elapsed_s: f64,
    /// The part of the run it is in.
    pub phase: Phase,
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
    /// Trajectories that have ended.
    pub trajectories_done: u64,
    /// Trajectories to work through; none where time ends the run.
    pub trajectories_planned: Option<u64>,
    /// Time after which nothing more is started.
    pub duration_s: Option<f64>,
    /// Prompt tokens, from usage.
    pub prompt_tokens: u64,
    /// Prompt tokens served from cache, from usage.
    pub cached_tokens: u64,
    /// Output tokens, from usage.
    pub completion_tokens: u64,
    /// Mean over the last 100 answers.
    pub recent_ttft_ms: Option<f64>,
    /// Mean over the last 100 answers.
    pub recent_itl_ms: Option<f64>,
    /// The replay has ended.
    pub done: bool,
}

impl ReplayProgress {
    /// The progress of a run whose workers are so far. `done` and `phase` are the run's own.
    pub fn sum(workers: &[Self], phase: Phase) -> Self {
        let workers = workers.iter();
        let total = |count: fn(&Self) -> u64| workers.clone().map(count).sum();
        let first = |value: fn(&Self) -> Option<f64>| workers.clone().find_map(value);
        Self {
            elapsed_s: workers.clone().map(|worker| worker.elapsed_s).fold(0.0, f64::max),
            phase,
            requests_sent: total(|worker| worker.requests_sent),
            requests_ok: total(|worker| worker.requests_ok),
            requests_failed: total(|worker| worker.requests_failed),
            requests_cancelled: total(|worker| worker.requests_cancelled),
            requests_in_flight: total(|worker| worker.requests_in_flight),
            trajectories_done: total(|worker| worker.trajectories_done),
            trajectories_planned: workers.clone().find_map(|worker| worker.trajectories_planned),
            duration_s: first(|worker| worker.duration_s),
            prompt_tokens: total(|worker| worker.prompt_tokens),
            cached_tokens: total(|worker| worker.cached_tokens),
            completion_tokens: total(|worker| worker.completion_tokens),
            recent_ttft_ms: mean(workers.clone().filter_map(|worker| worker.recent_ttft_ms)),
            recent_itl_ms: mean(workers.clone().filter_map(|worker| worker.recent_itl_ms)),
            done: false,
        }
    }
}

/// The counters.
#[derive(Debug)]
pub(super) struct Progress {
    clock: Clock,
    started_ns: i64,
    trajectories_planned: Option<u64>,
    duration_s: Option<f64>,
    sent: AtomicU64,
    ok: AtomicU64,
    failed: AtomicU64,
    cancelled: AtomicU64,
    trajectories_done: AtomicU64,
    prompt_tokens: AtomicU64,
    cached_tokens: AtomicU64,
    completion_tokens: AtomicU64,
    recent: Mutex<VecDeque<(Option<f64>, Option<f64>)>>,
    done: AtomicBool,
}

impl Progress {
    pub(super) fn new(
        clock: Clock,
        trajectories_planned: Option<u64>,
        duration_s: Option<f64>,
    ) -> Self {
        Self {
            clock,
            started_ns: clock.now_ns(),
            trajectories_planned,
            duration_s,
            sent: AtomicU64::new(0),
            ok: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            cancelled: AtomicU64::new(0),
            trajectories_done: AtomicU64::new(0),
            prompt_tokens: AtomicU64::new(0),
            cached_tokens: AtomicU64::new(0),
            completion_tokens: AtomicU64::new(0),
            recent: Mutex::new(VecDeque::with_capacity(RECENT)),
            done: AtomicBool::new(false),
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
        for (total, tokens) in [
            (&self.prompt_tokens, row.prompt_tokens),
            (&self.cached_tokens, row.cached_tokens),
            (&self.completion_tokens, row.completion_tokens),
        ] {
            total.fetch_add(tokens.unwrap_or_default(), Ordering::Relaxed);
        }
        if row.status == RequestStatus::Ok {
            let mut recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
            if recent.len() == RECENT {
                recent.pop_front();
            }
            recent.push_back((row.ttft_ms, itl_ms(row)));
        }
    }

    /// Requests that were answered whole and that failed, so far.
    pub(super) fn ended(&self) -> (u64, u64) {
        (self.ok.load(Ordering::Relaxed), self.failed.load(Ordering::Relaxed))
    }

    pub(super) fn trajectory_ended(&self) {
        self.trajectories_done.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn set_done(&self) {
        self.done.store(true, Ordering::Release);
    }

    pub(super) fn read(&self, phase: Phase) -> ReplayProgress {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        // Ends are read before starts, so that none seems to have ended before it was sent.
        let (ok, failed, cancelled) = (load(&self.ok), load(&self.failed), load(&self.cancelled));
        let sent = load(&self.sent);
        let recent = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        ReplayProgress {
            elapsed_s: (self.clock.now_ns() - self.started_ns) as f64 / 1e9,
            phase,
            requests_sent: sent,
            requests_ok: ok,
            requests_failed: failed,
            requests_cancelled: cancelled,
            requests_in_flight: sent.saturating_sub(ok + failed + cancelled),
            trajectories_done: load(&self.trajectories_done),
            trajectories_planned: self.trajectories_planned,
            duration_s: self.duration_s,
            prompt_tokens: load(&self.prompt_tokens),
            cached_tokens: load(&self.cached_tokens),
            completion_tokens: load(&self.completion_tokens),
            recent_ttft_ms: mean(recent.iter().filter_map(|(ttft, _)| *ttft)),
            recent_itl_ms: mean(recent.iter().filter_map(|(_, itl)| *itl)),
            done: self.done.load(Ordering::Acquire),
        }
    }
}

fn mean(values: impl Iterator<Item = f64>) -> Option<f64> {
    let (n, sum) = values.fold((0_u32, 0.0), |(n, sum), value| (n + 1, sum + value));
    (n > 0).then(|| sum / f64::from(n))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn before_anything_is_told_a_run_is_not_in_steady_state() {
        assert_eq!(ReplayProgress::default().phase, Phase::Ramp);
    }
}
