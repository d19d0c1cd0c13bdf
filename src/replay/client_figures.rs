//! Whether the client was the bottleneck: its CPU, the lateness of its timers and sends, its sockets, held
//! against what was measured.
//!
//! Pure: from the rows of `client_samples`, `requests` and `trajectories`, so that it can be recomputed.
//! Lateness is judged by its 90th percentile: what makes a tenth of all moments late bends every
//! published percentile of latency, while a few stalls of a busy machine bend only the last ones; these are
//! noted, not judged. How the samples come about is `watch`'s affair.

use std::collections::{BTreeSet, HashMap};

use serde::{Deserialize, Serialize};

use super::statistics::{Sorted, Statistic};
use super::window::Window;
use crate::clock::unix_seconds;
use crate::trace::record::{
    ClientSampleRow, LevelRow, Phase, RequestRow, RequestStatus, TrajectoryRow,
};

/// Share of the cores that the process may use from which on its work waits for a core: run queues grow
/// without bound as it nears 1.
pub const CPU_LIMIT: f64 = 0.9;

/// Lateness below it is never the client's fault: on two cores, threads that wake beside two busy ones are
/// 16 to 28 ms late in 1 of 100 cases, whoever they belong to.
pub const LAG_FLOOR_MS: f64 = 20.0;

/// The same where the engine runs in the client's own process: its work delays the timers as much as the
/// client's does, and on a machine that others load a short test of both is late by tens of milliseconds.
pub const LAG_FLOOR_IN_PROCESS_MS: f64 = 100.0;

/// Lateness as a share of the median TTFT that bends it by more than runs differ anyway.
pub const LAG_OF_TTFT: f64 = 0.1;

/// Lateness as a multiple of the median TPOT: stamps that are late by a whole token mix up tokens.
pub const LAG_OF_TPOT: f64 = 1.0;

/// Share of the files that the process may open from which on the next burst of connections fails.
pub const OPEN_FILES_LIMIT: f64 = 0.9;

/// Ticks of 10 ms below which nothing is said of the client: two seconds, so that one stall of less than
/// 200 ms, which any shared machine knows, never makes a tenth of them.
pub const LEAST_TICKS: usize = 200;

/// Sends below which nothing is said of their lag: at 20, the 90th percentile has two values above it.
pub const LEAST_SENDS: u64 = 20;

/// What to do about a limited client.
const REMEDY: &str = "give agentbench more cores or a machine of its own, or fewer agents";

/// `client` in `summary.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClientFigures {
    /// The client was the bottleneck. Null: it was not watched for long enough to tell.
    pub limited: Option<bool>,
    /// Why, a part of a sentence each.
    pub reasons: Vec<String>,
    /// Where several workers played: the one whose figures these are, a limited one or else that with the
    /// latest timers.
    pub worker: Option<u32>,
    /// The part of the run whose samples are judged: `steady`, or `whole` where that is too short.
    pub part: String,
    /// Cores that the process may use, by affinity and control group.
    pub cores: Option<u64>,
    /// Cores that it used, mean over time.
    pub cpu_cores: Option<f64>,
    /// The same as a share of those that it may use.
    pub cpu_pct: Option<f64>,
    /// The engine ran in the client's own process: its CPU is in the figure, which so is not judged.
    pub engine_in_process: Option<bool>,
    /// By how much ticks of 10 ms on the runtime that sends were late; the largest is its longest stall.
    pub timer_lag_ms: Option<Statistic>,
    /// By how much requests were sent late, waits for a place in the open loop apart.
    pub send_lag_ms: Option<Statistic>,
    /// The lateness from which on the client counts as limited.
    pub lag_limit_ms: Option<f64>,
    /// Most sockets open at once.
    pub open_sockets: Option<u64>,
    /// Most files open at once, as a share of those that the process may open.
    pub open_files_pct: Option<f64>,
}

/// What is judged.
#[derive(Debug, Clone, Copy)]
pub struct Watched<'rows> {
    /// The client's samples of the run, or of one level.
    pub samples: &'rows [ClientSampleRow],
    /// Its requests.
    pub requests: &'rows [RequestRow],
    /// Its trajectories.
    pub trajectories: &'rows [TrajectoryRow],
    /// The bounds of its phases.
    pub window: Window,
    /// Wall anchor of the run clock.
    pub anchor_ns: i64,
    /// The engine ran in the client's own process.
    pub engine_in_process: Option<bool>,
}

/// The client's figures; where several workers played, each is judged alone and the worst one's are given.
pub fn client_figures(watched: &Watched<'_>) -> ClientFigures {
    let workers: BTreeSet<u32> = watched.samples.iter().filter_map(|row| row.worker).collect();
    let each = workers.into_iter().map(|worker| {
        let samples: Vec<ClientSampleRow> =
            watched.samples.iter().filter(|row| row.worker == Some(worker)).cloned().collect();
        let requests: Vec<RequestRow> =
            watched.requests.iter().filter(|row| row.worker == Some(worker)).cloned().collect();
        let own = Watched { samples: &samples, requests: &requests, ..*watched };
        let mut figures = figures_of_one(&own);
        figures.worker = Some(worker);
        for reason in &mut figures.reasons {
            reason.insert_str(0, &format!("worker {worker}: "));
        }
        figures
    });
    let p90 = |figures: &ClientFigures| figures.timer_lag_ms.map_or(0.0, |lag| lag.p90);
    each.max_by(|a, b| a.limited.cmp(&b.limited).then(p90(a).total_cmp(&p90(b))))
        .unwrap_or_else(|| figures_of_one(watched))
}

/// The figures of one process.
fn figures_of_one(watched: &Watched<'_>) -> ClientFigures {
    let (part, samples) = watched.judged_samples();
    let requests = watched.judged_requests();
    // The first sample is the base of differences; what it holds lies before.
    let lags = || samples.iter().skip(1).flat_map(|row| row.timer_lag_ms.iter().copied());
    let cores = samples.iter().filter_map(|row| row.cores).max();
    let cpu_cores = cpu_cores(samples);
    let mut figures = ClientFigures {
        limited: None,
        reasons: Vec::new(),
        worker: None,
        part: part.to_owned(),
        cores,
        cpu_cores,
        cpu_pct: cpu_cores.zip(cores).map(|(used, cores)| used * 100.0 / cores as f64),
        engine_in_process: watched.engine_in_process,
        timer_lag_ms: Statistic::of(lags()).filter(|lag| lag.n >= LEAST_TICKS as u64),
        send_lag_ms: watched.send_lag_ms(&requests),
        lag_limit_ms: Some(lag_limit_ms(
            if watched.engine_in_process == Some(true) {
                LAG_FLOOR_IN_PROCESS_MS
            } else {
                LAG_FLOOR_MS
            },
            median(requests.iter().filter_map(|row| row.ttft_ms)),
            median(requests.iter().filter_map(|row| row.tpot_ms)),
        )),
        open_sockets: samples.iter().filter_map(|row| row.open_sockets).max(),
        open_files_pct: samples
            .iter()
            .filter_map(|row| row.open_files.zip(row.open_files_limit))
            .map(|(open, limit)| open as f64 * 100.0 / limit.max(1) as f64)
            .reduce(f64::max),
    };
    figures.reasons = reasons(&figures);
    figures.limited = figures.timer_lag_ms.map(|_| !figures.reasons.is_empty());
    figures
}

/// The lateness from which on what is measured is bent by it.
fn lag_limit_ms(floor_ms: f64, ttft_ms: Option<f64>, tpot_ms: Option<f64>) -> f64 {
    let of_ttft = ttft_ms.map_or(f64::INFINITY, |ttft_ms| ttft_ms * LAG_OF_TTFT);
    let of_tpot = tpot_ms.map_or(f64::INFINITY, |tpot_ms| tpot_ms * LAG_OF_TPOT);
    let least = of_ttft.min(of_tpot);
    if least.is_finite() { least.max(floor_ms) } else { floor_ms }
}

fn median(values: impl Iterator<Item = f64>) -> Option<f64> {
    Some(Sorted::of_repeated(values.map(|value| (value, 1)))?.percentile(50.0))
}

/// Why the client was the bottleneck; nothing where it was not.
fn reasons(figures: &ClientFigures) -> Vec<String> {
    let mut reasons = Vec::new();
    let limit_ms = figures.lag_limit_ms.unwrap_or(LAG_FLOOR_MS);
    let mut late = |what: &str, lag: Option<Statistic>| {
        if let Some(lag) = lag.filter(|lag| lag.p90 > limit_ms) {
            reasons.push(format!("{what} late by p90 {:.0} ms (limit {limit_ms:.0} ms)", lag.p90));
        }
    };
    late("timers", figures.timer_lag_ms);
    late("sends", figures.send_lag_ms.filter(|lag| lag.n >= LEAST_SENDS));
    let own = figures.engine_in_process == Some(false);
    if let Some(pct) = figures.cpu_pct.filter(|pct| own && *pct >= CPU_LIMIT * 100.0) {
        reasons.push(format!(
            "its CPU at {pct:.0} % of {} core(s) (limit {:.0} %)",
            figures.cores.unwrap_or_default(),
            CPU_LIMIT * 100.0
        ));
    }
    if let Some(pct) = figures.open_files_pct.filter(|pct| *pct >= OPEN_FILES_LIMIT * 100.0) {
        reasons.push(format!(
            "{pct:.0} % of the files that it may open (limit {:.0} %; raise it with ulimit -n)",
            OPEN_FILES_LIMIT * 100.0
        ));
    }
    reasons
}

/// Cores used between the first and the last sample.
fn cpu_cores(samples: &[ClientSampleRow]) -> Option<f64> {
    let (first, last) = (samples.first()?, samples.last()?);
    let passed_s = last.ts - first.ts;
    (passed_s > 0.0).then_some((last.cpu_s? - first.cpu_s?) / passed_s)
}

impl<'rows> Watched<'rows> {
    /// The samples of the steady state, with the one before it as the base of differences; all where the
    /// steady state is too short.
    fn judged_samples(&self) -> (&'static str, &'rows [ClientSampleRow]) {
        let wall = |run_ms: f64| unix_seconds(self.anchor_ns) + run_ms / 1e3;
        let bounds = self.window.steady_start_ms.zip(self.window.steady_end_ms);
        let steady = bounds.map(|(start_ms, end_ms)| {
            let from = self.samples.partition_point(|row| row.ts <= wall(start_ms));
            let to = self.samples.partition_point(|row| row.ts <= wall(end_ms));
            &self.samples[from.saturating_sub(1)..to.max(from)]
        });
        let ticks = |rows: &[ClientSampleRow]| -> usize {
            rows.iter().skip(1).map(|row| row.timer_lag_ms.len()).sum()
        };
        match steady.filter(|rows| ticks(rows) >= LEAST_TICKS) {
            Some(rows) => ("steady", rows),
            None => ("whole", self.samples),
        }
    }

    /// The requests of the steady state that were answered whole; of the whole run where it has none.
    fn judged_requests(&self) -> Vec<&'rows RequestRow> {
        let ok = || self.requests.iter().filter(|row| row.status == RequestStatus::Ok);
        let steady: Vec<&RequestRow> = ok().filter(|row| row.phase == Phase::Steady).collect();
        if steady.is_empty() { ok().collect() } else { steady }
    }

    /// Lags of sends, from due, or from the moment at which a trajectory that waited for a place got one.
    fn send_lag_ms(&self, requests: &[&RequestRow]) -> Option<Statistic> {
        let taken_up_ms: HashMap<&str, f64> = self
            .trajectories
            .iter()
            .filter(|row| row.admission_wait_ms.is_some_and(|wait_ms| wait_ms > 0.0))
            .map(|row| (row.trajectory_id.as_str(), row.start_ms))
            .collect();
        Statistic::of(requests.iter().map(|row| {
            let taken_up_ms = taken_up_ms.get(row.trajectory_id.as_str());
            row.lag_ms.min(taken_up_ms.map_or(f64::INFINITY, |start| row.sent_at_ms - start))
        }))
    }
}

impl ClientFigures {
    /// What a reader must know first, where the client was the bottleneck.
    pub fn headline(&self) -> Option<String> {
        let reasons = self.reasons.join("; ");
        (self.limited == Some(true)).then(|| {
            format!(
                "client-limited: {reasons}; the figures are the client's as much as the engine's: {REMEDY}"
            )
        })
    }

    /// What a reader of the last percentiles must know.
    pub fn note(&self) -> Option<String> {
        let (lag, limit_ms) = (self.timer_lag_ms?, self.lag_limit_ms?);
        (self.limited == Some(false) && lag.p99 > limit_ms).then(|| {
            format!(
                "the client's timers were late by {:.0} ms in 1 of 100 moments (longest stall {:.0} ms): \
                 the last percentiles of latencies may hold that",
                lag.p99, lag.max
            )
        })
    }
}

/// A level's row once its client was looked at: what a limited client measured says nothing about the
/// engine.
pub fn with_client(row: LevelRow, client: &ClientFigures) -> LevelRow {
    let row = LevelRow { client_limited: client.limited, ..row };
    if client.limited != Some(true) {
        return row;
    }
    LevelRow {
        verdict: super::capacity::Verdict::Invalid.as_str().to_owned(),
        reason: Some(format!("client-limited: {}", client.reasons.join("; "))),
        ..row
    }
}

/// The result in words of a search whose client was the bottleneck.
pub fn limited_search(level: &LevelRow) -> String {
    let reason = level.reason.as_deref().unwrap_or("client-limited");
    format!(
        "no result: at {} agents the client, not the engine, was the bottleneck ({reason}); {REMEDY}",
        level.agents
    )
}

#[cfg(test)]
#[path = "client_figures_tests.rs"]
mod tests;
