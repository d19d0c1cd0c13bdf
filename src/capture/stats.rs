//! Figures of a running capture, for a live view: counted where things happen, read at any time.
//!
//! The run directory is the record; nothing here is computed from it or written to it.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::switches::Change;
use crate::redact::Kind;
use crate::trace::record::{Outcome, TurnKind, TurnRow};

/// How many of the latest turns are kept for a live view.
const LATEST_TURNS: usize = 16;

/// Figures of a capture at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CaptureStats {
    /// Requests received.
    pub requests: u64,
    /// Requests whose response has not ended yet.
    pub active: u64,
    /// Requests recorded as rows; attempts of one turn count each.
    pub turns: u64,
    /// Requests passed on without a row: model lists, token counts, every other path.
    pub side_requests: u64,
    /// Of the side requests, those for the model list.
    pub side_models: u64,
    /// Of the side requests, those that count tokens.
    pub side_count_tokens: u64,
    /// Sessions seen.
    pub sessions: u64,
    /// Threads seen.
    pub threads: u64,
    /// Turns whose prompt the server keeps in part, and which part is not known here.
    pub prompts_incomplete: u64,
    /// Turns that could not be recorded because the queue was full.
    pub turns_dropped: u64,
    /// Bytes of request bodies.
    pub bytes_up: u64,
    /// Bytes of response bodies.
    pub bytes_down: u64,
    /// Requests that got no response, or a broken one, from the upstream.
    pub upstream_errors: u64,
    /// Requests whose client went away before the end.
    pub client_cancelled: u64,
    /// Requests that went to another engine than their turn's, because nothing could be sent to that one.
    pub requests_moved: u64,
    /// Distinct texts that were masked, by kind.
    pub redacted: [(&'static str, u64); Kind::ALL.len()],
    /// The engines, in the order given.
    pub engines: Vec<EngineTraffic>,
    /// Prompt tokens of all turns whose usage tells them.
    pub isl: u64,
    /// Of these, the ones served from cache.
    pub isl_cached: u64,
    /// Prompt tokens of the turns whose usage tells what was cached: the base of a hit rate.
    pub isl_with_cached: u64,
    /// Time between a response and the next request of its thread, over all turns.
    pub tool_exec_ms: f64,
    /// Output tokens of all turns whose usage tells them.
    pub osl: u64,
    /// The latest turns, the newest last.
    pub latest: Vec<LatestTurn>,
    /// How many turns each switch changed, by the change's name; empty where none did.
    pub changed: BTreeMap<&'static str, u64>,
}

/// What went to one engine.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct EngineTraffic {
    /// Its name in rows.
    pub engine: String,
    /// Requests that went to it, turns and others.
    pub requests: u64,
    /// Of these, the ones that got no response or a broken one.
    pub errors: u64,
}

/// One recorded turn, in short.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LatestTurn {
    /// The session.
    pub session_id: String,
    /// The thread.
    pub thread_id: String,
    /// What the thread is for.
    pub kind: TurnKind,
    /// Index in the thread.
    pub turn: u32,
    /// The agent, where known.
    pub agent: Option<String>,
    /// Prompt tokens.
    pub isl: Option<u64>,
    /// Of these, the ones served from cache.
    pub isl_cached: Option<u64>,
    /// Output tokens.
    pub osl: Option<u64>,
    /// Time to the first output.
    pub ttft_ms: Option<f64>,
    /// Time to the end.
    pub e2e_ms: Option<f64>,
    /// Time since the response before it in its thread.
    pub tool_exec_ms: Option<f64>,
    /// How it ended.
    pub outcome: Outcome,
}

impl From<&TurnRow> for LatestTurn {
    fn from(row: &TurnRow) -> Self {
        Self {
            session_id: row.session_id.clone(),
            thread_id: row.thread_id.clone(),
            kind: row.kind,
            turn: row.turn,
            agent: row.agent.clone(),
            isl: row.isl,
            isl_cached: row.isl_cached,
            osl: row.osl,
            ttft_ms: row.ttft_ms,
            e2e_ms: row.e2e_ms,
            tool_exec_ms: row.tool_exec_ms,
            outcome: row.outcome,
        }
    }
}

/// What a request that is not recorded is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SideClass {
    Models,
    CountTokens,
    Other,
}

impl SideClass {
    pub(super) fn of(path: &str) -> Self {
        let path = path.trim_end_matches('/');
        let counts = ["/count_tokens", "/tokenize", "/input_tokens"];
        if counts.iter().any(|end| path.ends_with(end)) {
            Self::CountTokens
        } else if path.ends_with("/models") || path.contains("/v1/models/") {
            Self::Models
        } else {
            Self::Other
        }
    }
}

/// The counters behind `CaptureStats`.
#[derive(Debug, Default)]
pub(super) struct Counters {
    requests: AtomicU64,
    active: AtomicU64,
    turns: AtomicU64,
    side: [AtomicU64; 3],
    sessions: AtomicU64,
    threads: AtomicU64,
    prompts_incomplete: AtomicU64,
    turns_dropped: AtomicU64,
    pub(super) bytes_up: AtomicU64,
    pub(super) bytes_down: AtomicU64,
    upstream_errors: AtomicU64,
    client_cancelled: AtomicU64,
    requests_moved: AtomicU64,
    redacted: [AtomicU64; Kind::ALL.len()],
    engines: Vec<EngineCounters>,
    isl: AtomicU64,
    isl_cached: AtomicU64,
    isl_with_cached: AtomicU64,
    tool_exec_us: AtomicU64,
    osl: AtomicU64,
    latest: Mutex<VecDeque<LatestTurn>>,
    changed: [AtomicU64; Change::ALL.len()],
}

/// The counters of one engine.
#[derive(Debug)]
struct EngineCounters {
    label: Arc<str>,
    requests: AtomicU64,
    errors: AtomicU64,
}

impl Counters {
    pub(super) fn new<'a>(engines: impl Iterator<Item = &'a Arc<str>>) -> Self {
        let counters = |label: &Arc<str>| EngineCounters {
            label: Arc::clone(label),
            requests: AtomicU64::new(0),
            errors: AtomicU64::new(0),
        };
        Self { engines: engines.map(counters).collect(), ..Self::default() }
    }

    pub(super) fn sent_to(&self, engine: usize) {
        if let Some(counters) = self.engines.get(engine) {
            counters.requests.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn redacted(&self, kind: Kind) {
        self.redacted[kind as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn request_moved(&self, from: &str, to: &str) {
        if self.requests_moved.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("nothing could be sent to {from}: the request goes to {to}, counted");
        }
    }

    pub(super) fn request(self: &Arc<Self>) -> Active {
        self.requests.fetch_add(1, Ordering::Relaxed);
        self.active.fetch_add(1, Ordering::Relaxed);
        Active(Arc::clone(self))
    }

    pub(super) fn side_request(&self, class: SideClass) {
        self.side[class as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn upstream_error(&self, engine: usize) {
        self.upstream_errors.fetch_add(1, Ordering::Relaxed);
        if let Some(counters) = self.engines.get(engine) {
            counters.errors.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(super) fn client_cancelled(&self) {
        self.client_cancelled.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn prompt_incomplete(&self) {
        if self.prompts_incomplete.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("a prompt lies with the server in part; its turn is marked and counted");
        }
    }

    pub(super) fn changed(&self, change: Change) {
        self.changed[change as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn turn_dropped(&self) {
        if self.turns_dropped.fetch_add(1, Ordering::Relaxed) == 0 {
            tracing::warn!("the recording falls behind: turns are dropped and counted");
        }
    }

    pub(super) fn turn(&self, row: &TurnRow, sessions: u64, threads: u64) {
        self.turns.fetch_add(1, Ordering::Relaxed);
        self.isl.fetch_add(row.isl.unwrap_or(0), Ordering::Relaxed);
        self.isl_cached.fetch_add(row.isl_cached.unwrap_or(0), Ordering::Relaxed);
        let base = row.isl_cached.and(row.isl).unwrap_or(0);
        self.isl_with_cached.fetch_add(base, Ordering::Relaxed);
        let tool_us = row.tool_exec_ms.unwrap_or(0.0) * 1e3;
        self.tool_exec_us.fetch_add(tool_us.max(0.0).round() as u64, Ordering::Relaxed);
        self.osl.fetch_add(row.osl.unwrap_or(0), Ordering::Relaxed);
        self.sessions.store(sessions, Ordering::Relaxed);
        self.threads.store(threads, Ordering::Relaxed);
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        if latest.len() == LATEST_TURNS {
            latest.pop_front();
        }
        latest.push_back(row.into());
    }

    pub(super) fn snapshot(&self) -> CaptureStats {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let side = |class: SideClass| read(&self.side[class as usize]);
        CaptureStats {
            requests: read(&self.requests),
            active: read(&self.active),
            turns: read(&self.turns),
            side_requests: self.side.iter().map(read).sum(),
            side_models: side(SideClass::Models),
            side_count_tokens: side(SideClass::CountTokens),
            sessions: read(&self.sessions),
            threads: read(&self.threads),
            prompts_incomplete: read(&self.prompts_incomplete),
            turns_dropped: read(&self.turns_dropped),
            bytes_up: read(&self.bytes_up),
            bytes_down: read(&self.bytes_down),
            upstream_errors: read(&self.upstream_errors),
            client_cancelled: read(&self.client_cancelled),
            requests_moved: read(&self.requests_moved),
            redacted: Kind::ALL.map(|kind| (kind.as_str(), read(&self.redacted[kind as usize]))),
            engines: self
                .engines
                .iter()
                .map(|engine| EngineTraffic {
                    engine: engine.label.to_string(),
                    requests: read(&engine.requests),
                    errors: read(&engine.errors),
                })
                .collect(),
            changed: Change::ALL
                .into_iter()
                .map(|change| (change.as_str(), read(&self.changed[change as usize])))
                .filter(|(_, count)| *count > 0)
                .collect(),
            isl: read(&self.isl),
            isl_cached: read(&self.isl_cached),
            isl_with_cached: read(&self.isl_with_cached),
            tool_exec_ms: read(&self.tool_exec_us) as f64 / 1e3,
            osl: read(&self.osl),
            latest: self
                .latest
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .iter()
                .cloned()
                .collect(),
        }
    }
}

/// One request that is going on.
#[derive(Debug)]
pub(super) struct Active(Arc<Counters>);

impl Drop for Active {
    fn drop(&mut self) {
        self.0.active.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn side_requests_are_told_apart_by_path() {
        for (path, class) in [
            ("/v1/models", SideClass::Models),
            ("/v1/models/tiny", SideClass::Models),
            ("/v1/messages/count_tokens", SideClass::CountTokens),
            ("/tokenize", SideClass::CountTokens),
            ("/v1/responses/input_tokens", SideClass::CountTokens),
            ("/v1/responses/compact", SideClass::Other),
            ("/health", SideClass::Other),
            ("/", SideClass::Other),
        ] {
            assert_eq!(SideClass::of(path), class, "{path}");
        }
    }

    #[test]
    fn the_latest_turns_are_bounded() {
        let counters = Counters::default();
        for turn in 0..20 {
            let (tool_exec_ms, isl_cached) = (Some(0.5), (turn > 9).then_some(2));
            let row =
                TurnRow { turn, isl: Some(3), isl_cached, tool_exec_ms, ..TurnRow::default() };
            counters.turn(&row, 1, 2);
        }
        let stats = counters.snapshot();
        assert_eq!((stats.turns, stats.isl, stats.osl), (20, 60, 0));
        assert_eq!((stats.isl_cached, stats.isl_with_cached, stats.tool_exec_ms), (20, 30, 10.0));
        assert_eq!(
            stats.latest.iter().map(|l| l.turn).collect::<Vec<_>>(),
            (4..20).collect::<Vec<_>>()
        );
    }
}
