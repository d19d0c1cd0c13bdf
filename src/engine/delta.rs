//! Snapshots into `engine_metrics` rows: what the counters say about the requests that completed.
//!
//! Pure. Counters of completed requests move at completion, but those of prefix hits move at prefill,
//! so the baseline stays until a completion is seen; the KV-cache gauge is near 0 by then, so its peak
//! is kept. A failed scrape changes nothing but a count. When the page is fetched is `poll`'s affair.

use super::catalog::{EngineKind, Quantity};
use super::snapshot::Snapshot;
use crate::clock::{elapsed_ms, unix_seconds};
use crate::trace::record::{EngineMetricsRow, EngineSampleRow};

/// When a scrape was due, sent and answered, in nanoseconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScrapeTimes {
    /// When it was due.
    pub due_ns: i64,
    /// Just before it was sent.
    pub sent_ns: i64,
    /// When the whole page was there, or the failure known.
    pub ended_ns: i64,
}

/// Turns the snapshots of one engine into rows, one per tick with completions.
#[derive(Debug)]
pub struct CompletionTracker {
    engine: String,
    /// Where the next row's deltas start.
    baseline: Snapshot,
    /// The last snapshot read, to see a counter go back.
    last: Snapshot,
    kv_peak: Option<f64>,
    missed: u64,
    /// The counters went back since the last row.
    reset: bool,
    resets: u64,
}

impl CompletionTracker {
    /// A tracker whose first row starts from `baseline`. `engine` is the label of its rows.
    pub fn new(engine: impl Into<String>, baseline: Snapshot) -> Self {
        Self {
            engine: engine.into(),
            last: baseline.clone(),
            baseline,
            kv_peak: None,
            missed: 0,
            reset: false,
            resets: 0,
        }
    }

    /// The engine whose names are read.
    pub fn kind(&self) -> EngineKind {
        self.last.kind()
    }

    /// How often the counters went back.
    pub fn resets(&self) -> u64 {
        self.resets
    }

    /// Counts a scrape that gave no snapshot.
    pub fn miss(&mut self) {
        self.missed += 1;
    }

    /// Takes a snapshot; gives a row when requests completed since the last one that did.
    pub fn observe(&mut self, now: Snapshot, times: ScrapeTimes) -> Option<EngineMetricsRow> {
        if now.kind() != self.last.kind() || now.went_back(&self.last) {
            self.baseline = Snapshot::zero(now.kind());
            self.kv_peak = None;
            self.reset = true;
            self.resets += 1;
        }
        if let Some(usage) = now.get(Quantity::KvUsage) {
            self.kv_peak = Some(self.kv_peak.map_or(usage, |peak| peak.max(usage)));
        }
        let row = self.row(&now, times);
        if row.is_some() {
            self.baseline = now.clone();
            self.kv_peak = None;
            self.missed = 0;
            self.reset = false;
        }
        self.last = now;
        row
    }

    fn row(&self, now: &Snapshot, times: ScrapeTimes) -> Option<EngineMetricsRow> {
        let growth = |quantity| now.growth(quantity, &self.baseline);
        let reasons = now.finished_growth(&self.baseline);
        let n = match growth(Quantity::Requests) {
            Some(requests) => requests.round() as u64,
            None => reasons.values().sum(),
        };
        if n == 0 {
            return None;
        }
        let mean = |quantity| growth(quantity).map(|sum| sum / n as f64);
        let mean_ms = |quantity| mean(quantity).map(|seconds| seconds * 1e3);
        let tokens = |quantity| growth(quantity).map(|sum| sum.round() as u64);
        Some(EngineMetricsRow {
            ts: unix_seconds(times.sent_ns),
            window_end: unix_seconds(times.ended_ns),
            engine: self.engine.clone(),
            n,
            isl: mean(Quantity::RequestPromptTokens),
            osl: mean(Quantity::RequestOutputTokens),
            isl_new: mean(Quantity::RequestComputedTokens),
            prefill_ms: mean_ms(Quantity::PrefillSeconds),
            decode_ms: mean_ms(Quantity::DecodeSeconds),
            queue_ms: mean_ms(Quantity::QueueSeconds),
            itl_ms: self.token_gap_ms(now),
            e2e_ms: mean_ms(Quantity::E2eSeconds),
            stop_reason: serde_json::json!(reasons).to_string(),
            kv_cache_usage_pct_peak: self.kv_peak.map(|share| share * 100.0),
            prefix_cache_hits: tokens(Quantity::CachedTokens),
            external_prefix_cache_hits: tokens(Quantity::ExternalCachedTokens),
            counter_reset: self.reset,
            scrapes_missed: self.missed,
        })
    }

    /// Divided by its own count: older engines observe each gap, not each request.
    fn token_gap_ms(&self, now: &Snapshot) -> Option<f64> {
        let count = now.growth(Quantity::TokenGapCount, &self.baseline)?;
        let seconds = now.growth(Quantity::TokenGapSeconds, &self.baseline)?;
        (count > 0.0).then(|| seconds / count * 1e3)
    }
}

/// The row of a poll: what the page said, or why it said nothing.
pub fn sample_row(
    engine: &str,
    times: ScrapeTimes,
    outcome: Result<&Snapshot, &str>,
) -> EngineSampleRow {
    let row = EngineSampleRow {
        ts: unix_seconds(times.sent_ns),
        due: unix_seconds(times.due_ns),
        engine: engine.to_owned(),
        ..EngineSampleRow::default()
    };
    let snapshot = match outcome {
        Ok(snapshot) => snapshot,
        Err(error) => return EngineSampleRow { error: Some(error.to_owned()), ..row },
    };
    let get = |quantity| snapshot.get(quantity);
    EngineSampleRow {
        scrape_ms: Some(elapsed_ms(times.sent_ns, times.ended_ns)),
        running: get(Quantity::Running),
        waiting: get(Quantity::Waiting),
        kv_cache_usage_pct: get(Quantity::KvUsage).map(|share| share * 100.0),
        requests_total: snapshot.finished_total(),
        prompt_tokens_total: get(Quantity::PromptTokens),
        generation_tokens_total: get(Quantity::OutputTokens),
        cached_tokens_total: get(Quantity::CachedTokens),
        external_cached_tokens_total: get(Quantity::ExternalCachedTokens),
        preemptions_total: get(Quantity::Preemptions),
        ttft_sum: get(Quantity::TtftSeconds),
        ttft_count: get(Quantity::TtftCount),
        queue_sum: get(Quantity::QueueSeconds),
        prefill_sum: get(Quantity::PrefillSeconds),
        decode_sum: get(Quantity::DecodeSeconds),
        e2e_sum: get(Quantity::E2eSeconds),
        request_count: get(Quantity::Requests),
        ..row
    }
}
