//! Polling the metrics page on a fixed schedule, from a thread of its own.
//!
//! The thread has its own single-threaded runtime, so that a busy proxy or replay does not delay it,
//! and real-time priority where the system allows it, so that busy cores do not: it needs the CPU for
//! half a millisecond ten times a second.
//! Ticks are due at start + k · interval, whatever scrapes take; a tick that has passed before its turn
//! came is skipped and counted, never made up for. Every scrape is a row, also a failed one. What the
//! pages mean is `delta`'s to say.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use reqwest::{Client, Url};
use thread_priority::ThreadPriority;
use thread_priority::unix::{
    RealtimeThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use tokio_util::sync::CancellationToken;

use super::catalog::{EngineKind, Quantity};
use super::delta::{CompletionTracker, ScrapeTimes, sample_row};
use super::snapshot::{PageError, Snapshot, detect};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::http::client;
use crate::schedule::{LagHistogram, Schedule};
use crate::trace::{Row, RowSender};

const REMEDY: &str = "start the engine, or name its own metrics page (SGLang has one with \
    --enable-metrics, llama.cpp with --metrics, TensorRT-LLM at /prometheus/metrics)";

/// What to poll, and how often.
#[derive(Debug, Clone)]
pub struct PollConfig {
    /// The metrics page.
    pub metrics_url: String,
    /// The engine's name in the rows; usually its address, masked.
    pub engine: String,
    /// Time between two polls.
    pub interval: Duration,
    /// How long a scrape may take.
    pub timeout: Duration,
}

impl PollConfig {
    /// Every 100 ms, an answer within 2 s; rows bear the page's address without credentials.
    pub fn new(metrics_url: impl Into<String>) -> Result<Self> {
        let metrics_url = metrics_url.into();
        let engine = client::mask(&client::parse_url(&metrics_url)?);
        Ok(Self {
            metrics_url,
            engine,
            interval: Duration::from_millis(100),
            timeout: Duration::from_secs(2),
        })
    }
}

/// The engine's gauges as last read.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EngineGauges {
    /// When they were read, nanoseconds since the Unix epoch.
    pub read_ns: i64,
    /// Requests running.
    pub running: Option<f64>,
    /// Requests waiting.
    pub waiting: Option<f64>,
    /// KV-cache use in percent.
    pub kv_cache_usage_pct: Option<f64>,
}

/// How polling goes.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PollStats {
    /// The engine's name in the rows.
    pub engine: String,
    /// Scrapes made.
    pub ticks: u64,
    /// Ticks skipped because they had passed before their turn came.
    pub missed: u64,
    /// Scrapes that gave no snapshot.
    pub failed: u64,
    /// Requests that completed since the start.
    pub completions: u64,
    /// Times that the engine's counters went back.
    pub resets: u64,
    /// The thread has real-time priority; without it, busy cores delay polls by some milliseconds.
    pub real_time: bool,
    /// Rows that found the recording's queue full.
    pub rows_dropped: u64,
    /// Median of the time from due to sent.
    pub lag_p50_ms: Option<f64>,
    /// Its 99th percentile.
    pub lag_p99_ms: Option<f64>,
    /// Its maximum.
    pub lag_max_ms: Option<f64>,
    /// The engine whose names the page holds.
    pub kind: Option<EngineKind>,
    /// What the page does not tell.
    pub lacks: Vec<Quantity>,
    /// Why the page's cache figures contradict each other.
    pub cache_warning: Option<String>,
    /// Gauges as last read.
    pub last: Option<EngineGauges>,
    /// Why the last scrape failed; none after one that did not.
    pub last_error: Option<String>,
}

impl PollStats {
    /// Several engines as one: counts and gauges added up, of KV-cache use and lag the highest. A sum that
    /// one engine does not tell a part of is not known.
    pub fn of_several(engines: &[Self]) -> Option<Self> {
        let (first, others) = engines.split_first()?;
        Some(others.iter().fold(first.clone(), Self::and))
    }

    fn and(self, other: &Self) -> Self {
        let max = |a: Option<f64>, b: Option<f64>| a.into_iter().chain(b).reduce(f64::max);
        let both = |a: Option<f64>, b: Option<f64>| a.zip(b).map(|(a, b)| a + b);
        let told = |a: Option<String>, b: &Option<String>| match (a, b) {
            (Some(a), Some(b)) => Some(format!("{a}; {b}")),
            (a, b) => a.or_else(|| b.clone()),
        };
        let mut lacks = self.lacks;
        lacks.extend(&other.lacks);
        lacks.sort_unstable();
        lacks.dedup();
        Self {
            engine: format!("{} + {}", self.engine, other.engine),
            ticks: self.ticks + other.ticks,
            missed: self.missed + other.missed,
            failed: self.failed + other.failed,
            completions: self.completions + other.completions,
            resets: self.resets + other.resets,
            real_time: self.real_time && other.real_time,
            rows_dropped: self.rows_dropped + other.rows_dropped,
            lag_p50_ms: max(self.lag_p50_ms, other.lag_p50_ms),
            lag_p99_ms: max(self.lag_p99_ms, other.lag_p99_ms),
            lag_max_ms: max(self.lag_max_ms, other.lag_max_ms),
            kind: self.kind.filter(|kind| Some(*kind) == other.kind),
            lacks,
            cache_warning: told(self.cache_warning, &other.cache_warning),
            last: self.last.zip(other.last).map(|(a, b)| EngineGauges {
                read_ns: a.read_ns.min(b.read_ns),
                running: both(a.running, b.running),
                waiting: both(a.waiting, b.waiting),
                kv_cache_usage_pct: max(a.kv_cache_usage_pct, b.kv_cache_usage_pct),
            }),
            last_error: told(self.last_error, &other.last_error),
        }
    }
}

/// A running poller; ends when stopped or dropped.
#[derive(Debug)]
pub struct Poller {
    stats: Arc<Mutex<Shared>>,
    stop: CancellationToken,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    stats: PollStats,
    lag: LagHistogram,
}

impl Poller {
    /// Starts polling. Returns once the first scrape is there, so that the baseline is older than any
    /// request sent afterwards; blocks up to the timeout until then.
    ///
    /// # Errors
    /// `Error::Upstream` when that scrape gives no metrics page of a known engine.
    pub fn start(config: PollConfig, rows: RowSender, clock: Clock) -> Result<Self> {
        let url = client::parse_url(&config.metrics_url)?;
        if config.interval < Duration::from_millis(1) {
            return Err(Error::config("the time between polls must be at least 1 ms"));
        }
        let started = PollStats { engine: config.engine.clone(), ..PollStats::default() };
        let stats = Arc::new(Mutex::new(Shared { stats: started, lag: LagHistogram::default() }));
        let stop = CancellationToken::new();
        let (ready, first) = mpsc::sync_channel(1);
        let worker = Worker {
            client: client::build(config.timeout)?,
            url,
            config,
            rows,
            clock,
            tracker: None,
            was_empty: false,
            shared: stats.clone(),
        };
        let stopping = stop.clone();
        let thread = std::thread::Builder::new()
            .name("engine-poller".to_owned())
            .spawn(move || worker.run(&stopping, &ready))
            .map_err(|error| Error::Internal(format!("no thread for polling: {error}")))?;
        let poller = Self { stats, stop, thread: Some(thread) };
        match first.recv() {
            Ok(Ok(())) => Ok(poller),
            Ok(Err(error)) => Err(error),
            Err(_) => Err(Error::Internal("the polling thread ended early".to_owned())),
        }
    }

    /// The engine's gauges now; none when the last scrape failed.
    pub fn gauges(&self) -> Option<EngineGauges> {
        let shared = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        shared.stats.last.filter(|_| shared.stats.last_error.is_none())
    }

    /// How polling goes.
    pub fn stats(&self) -> PollStats {
        let shared = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        PollStats {
            lag_p50_ms: shared.lag.quantile_ms(0.5),
            lag_p99_ms: shared.lag.quantile_ms(0.99),
            lag_max_ms: shared.lag.max_ms(),
            ..shared.stats.clone()
        }
    }

    /// Scrapes once more, so that requests that completed just now are counted, and ends the thread.
    /// Blocks up to twice the timeout.
    pub fn stop(mut self) -> PollStats {
        self.join();
        self.stats()
    }

    fn join(&mut self) {
        self.stop.cancel();
        if self.thread.take().is_some_and(|thread| thread.join().is_err()) {
            tracing::error!("the polling thread panicked");
        }
    }
}

impl Drop for Poller {
    fn drop(&mut self) {
        self.join();
    }
}

/// What the polling thread owns.
struct Worker {
    client: Client,
    url: Url,
    config: PollConfig,
    rows: RowSender,
    clock: Clock,
    tracker: Option<CompletionTracker>,
    /// Pages came that had no sample at all: whatever the next one counts happened since.
    was_empty: bool,
    shared: Arc<Mutex<Shared>>,
}

impl Worker {
    fn run(mut self, stop: &CancellationToken, ready: &mpsc::SyncSender<Result<()>>) {
        let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
            Ok(runtime) => runtime,
            Err(error) => {
                let _ = ready.send(Err(Error::Internal(format!("no runtime: {error}"))));
                return;
            }
        };
        let real_time = raise_priority();
        self.change(|shared| shared.stats.real_time = real_time);
        runtime.block_on(async {
            let start_ns = self.clock.now_ns();
            let first = self.scrape(start_ns).await;
            let started = first.is_ok();
            let _ = ready.send(first.map_err(|message| {
                Error::upstream(client::mask(&self.url), format!("{message}; {REMEDY}"))
            }));
            if started {
                self.poll(Schedule::new(start_ns, self.config.interval), stop).await;
            }
        });
    }

    async fn poll(&mut self, mut schedule: Schedule, stop: &CancellationToken) {
        loop {
            let tick = schedule.next(self.clock.now_ns());
            self.change(|shared| shared.stats.missed += tick.skipped);
            let due = tokio::time::sleep_until(self.clock.instant_at(tick.due_ns));
            if stop.run_until_cancelled(due).await.is_none() {
                break;
            }
            // Its outcome is in the rows; the timeout bounds it.
            let _ = self.scrape(tick.due_ns).await;
        }
        let _ = self.scrape(self.clock.now_ns()).await;
    }

    /// One scrape and its rows. The error is what stands in the row.
    async fn scrape(&mut self, due_ns: i64) -> Result<(), String> {
        let sent_ns = self.clock.now_ns();
        let page = self.fetch().await;
        let times = ScrapeTimes { due_ns, sent_ns, ended_ns: self.clock.now_ns() };
        let snapshot = page.and_then(|page| self.read(&page));
        let outcome = snapshot.as_ref().map_err(String::as_str);
        let outcome = outcome.and_then(|found| found.as_ref().ok_or("the page is empty so far"));
        self.send(sample_row(&self.config.engine, times, outcome));
        self.note(times, outcome);
        match snapshot {
            Ok(Some(snapshot)) => {
                self.complete(snapshot, times);
                Ok(())
            }
            Ok(None) => {
                self.was_empty = true;
                Ok(())
            }
            Err(error) => {
                if let Some(tracker) = &mut self.tracker {
                    tracker.miss();
                }
                Err(error)
            }
        }
    }

    async fn fetch(&self) -> Result<String, String> {
        let response = self.client.get(self.url.clone()).send().await.map_err(client::describe)?;
        if !response.status().is_success() {
            return Err(format!("the metrics page answered {}", response.status()));
        }
        client::text(response).await
    }

    /// None for a page without any sample: an engine may show its counters only after its first request.
    fn read(&self, page: &str) -> Result<Option<Snapshot>, String> {
        let known = self.tracker.as_ref().map(CompletionTracker::kind);
        let kind = known.map_or_else(|| detect(page), Ok);
        match kind.and_then(|kind| Snapshot::read(page, kind)) {
            Ok(snapshot) => Ok(Some(snapshot)),
            Err(PageError::NoEngine { samples: 0 }) if known.is_none() => Ok(None),
            Err(error) => Err(error.to_string()),
        }
    }

    fn complete(&mut self, snapshot: Snapshot, times: ScrapeTimes) {
        let tracker = self.tracker.get_or_insert_with(|| {
            let kind = snapshot.kind();
            let baseline = if self.was_empty { Snapshot::zero(kind) } else { snapshot.clone() };
            CompletionTracker::new(self.config.engine.clone(), baseline)
        });
        let row = tracker.observe(snapshot, times);
        let resets = tracker.resets();
        self.change(|shared| {
            shared.stats.resets = resets;
            shared.stats.completions += row.as_ref().map_or(0, |row| row.n);
        });
        if let Some(row) = row {
            self.send(row);
        }
    }

    fn send(&self, row: impl Into<Row>) {
        if !self.rows.send(row) {
            self.change(|shared| shared.stats.rows_dropped += 1);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Shared)) {
        change(&mut self.shared.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn note(&self, times: ScrapeTimes, outcome: Result<&Snapshot, &str>) {
        let mut went_down = false;
        self.change(|shared| {
            shared.lag.record_ns(times.sent_ns - times.due_ns);
            let stats = &mut shared.stats;
            stats.ticks += 1;
            match outcome {
                Ok(snapshot) => {
                    stats.last_error = None;
                    stats.kind = Some(snapshot.kind());
                    stats.lacks = snapshot.lacks();
                    stats.cache_warning = snapshot.cache_warning();
                    stats.last = Some(EngineGauges {
                        read_ns: times.sent_ns,
                        running: snapshot.get(Quantity::Running),
                        waiting: snapshot.get(Quantity::Waiting),
                        kv_cache_usage_pct: snapshot
                            .get(Quantity::KvUsage)
                            .map(|share| share * 100.0),
                    });
                }
                Err(error) => {
                    stats.failed += 1;
                    // The first scrape's failure is an error of the start and told there.
                    went_down = stats.last_error.is_none() && stats.ticks > 1;
                    stats.last_error = Some(error.to_owned());
                }
            }
        });
        if let (true, Err(error)) = (went_down, outcome) {
            tracing::warn!("{}: no metrics: {error}", client::mask(&self.url));
        }
    }
}

/// Asks for round-robin scheduling at the lowest real-time priority; needs root or a limit that the
/// administrator has raised, so a refusal is no fault.
fn raise_priority() -> bool {
    let policy = ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::RoundRobin);
    set_thread_priority_and_policy(thread_native_id(), ThreadPriority::Min, policy).is_ok()
}
