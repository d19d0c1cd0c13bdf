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
            prompt_tokens_by_source: now
                .by_source_growth(&self.baseline)
                .map(|sources| serde_json::json!(sources).to_string()),
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Counters of a small engine, written as a page.
    #[derive(Debug, Clone, Copy, Default)]
    struct Engine {
        stop: u64,
        length: u64,
        prompt: u64,
        output: u64,
        computed: u64,
        hits: u64,
        external: u64,
        prefill_s: f64,
        kv: f64,
    }

    impl Engine {
        fn page(&self, label: &str) -> String {
            let n = self.stop + self.length;
            let sample = |name: &str, labels: &str, value: &dyn std::fmt::Display| {
                format!("vllm:{name}{{engine=\"{label}\"{labels}}} {value}\n")
            };
            [
                sample("request_success_total", ",finished_reason=\"stop\"", &self.stop),
                sample("request_success_total", ",finished_reason=\"length\"", &self.length),
                sample("request_prompt_tokens_count", "", &n),
                sample("request_prompt_tokens_sum", "", &self.prompt),
                sample("request_generation_tokens_sum", "", &self.output),
                sample("request_prefill_kv_computed_tokens_sum", "", &self.computed),
                sample("request_prefill_time_seconds_sum", "", &self.prefill_s),
                sample("prefix_cache_hits_total", "", &self.hits),
                sample("external_prefix_cache_hits_total", "", &self.external),
                sample("kv_cache_usage_perc", "", &self.kv),
            ]
            .concat()
        }
    }

    /// What one poll finds.
    enum Poll {
        Page(Vec<Engine>),
        Failed,
    }

    /// The figures of a row that the cases are about.
    #[derive(Debug, Default, PartialEq)]
    struct Expected {
        tick: i64,
        n: u64,
        isl: f64,
        osl: f64,
        isl_new: f64,
        prefill_ms: f64,
        reasons: &'static str,
        kv_peak_pct: f64,
        hits: u64,
        external: u64,
        reset: bool,
        missed: u64,
    }

    fn snapshot(engines: &[Engine]) -> Snapshot {
        let pages =
            engines.iter().enumerate().map(|(label, engine)| engine.page(&label.to_string()));
        Snapshot::read(&pages.collect::<String>(), EngineKind::Vllm).expect("a page")
    }

    /// Ticks are numbered from 1 and lie 100 ms apart; a scrape takes 2 ms.
    fn check(baseline: &[Engine], polls: Vec<Poll>, expected: &[Expected]) {
        let mut tracker = CompletionTracker::new("e", snapshot(baseline));
        let mut rows = Vec::new();
        for (tick, poll) in (1..).zip(polls) {
            let sent_ns = tick * 100_000_000;
            let times = ScrapeTimes { due_ns: sent_ns, sent_ns, ended_ns: sent_ns + 2_000_000 };
            let row = match poll {
                Poll::Failed => {
                    tracker.miss();
                    None
                }
                Poll::Page(engines) => tracker.observe(snapshot(&engines), times),
            };
            rows.extend(row.map(|row| (tick, row)));
        }
        let seen: Vec<Expected> = rows
            .iter()
            .map(|(tick, row)| {
                assert_eq!(row.engine, "e");
                assert!((row.ts - *tick as f64 / 10.0).abs() < 1e-6);
                assert!((row.window_end - row.ts - 0.002).abs() < 1e-6);
                // Not on these pages.
                assert_eq!(
                    (row.decode_ms, row.queue_ms, row.itl_ms, row.e2e_ms),
                    (None, None, None, None)
                );
                let round = |value: Option<f64>| (value.expect("a figure") * 1e6).round() / 1e6;
                Expected {
                    tick: *tick,
                    n: row.n,
                    isl: round(row.isl),
                    osl: round(row.osl),
                    isl_new: round(row.isl_new),
                    prefill_ms: round(row.prefill_ms),
                    reasons: expected
                        .iter()
                        .map(|expected| expected.reasons)
                        .find(|reasons| *reasons == row.stop_reason)
                        .unwrap_or_else(|| panic!("unexpected reasons {}", row.stop_reason)),
                    kv_peak_pct: round(row.kv_cache_usage_pct_peak),
                    hits: row.prefix_cache_hits.expect("a figure"),
                    external: row.external_prefix_cache_hits.expect("a figure"),
                    reset: row.counter_reset,
                    missed: row.scrapes_missed,
                }
            })
            .collect();
        assert_eq!(seen, expected);
    }

    const BUSY: Engine = Engine {
        stop: 10,
        length: 5,
        prompt: 9000,
        output: 700,
        computed: 4000,
        hits: 5000,
        external: 100,
        prefill_s: 30.0,
        kv: 0.1,
    };

    #[test]
    fn an_idle_engine_gives_no_row() {
        check(&[BUSY], vec![Poll::Page(vec![BUSY]), Poll::Failed, Poll::Page(vec![BUSY])], &[]);
    }

    #[test]
    fn hits_before_the_completion_belong_to_its_row() {
        // 80 tokens hit at prefill in tick 1; the request ends in tick 3, when the cache is empty again.
        let prefill = Engine { hits: 5080, external: 116, kv: 0.6, ..BUSY };
        let decode = Engine { kv: 0.4, ..prefill };
        let done = Engine {
            stop: 11,
            prompt: 9100,
            output: 710,
            computed: 4004,
            prefill_s: 30.25,
            kv: 0.0,
            ..prefill
        };
        let row = Expected {
            tick: 3,
            n: 1,
            isl: 100.0,
            osl: 10.0,
            isl_new: 4.0,
            prefill_ms: 250.0,
            reasons: "{\"stop\":1}",
            kv_peak_pct: 60.0,
            hits: 80,
            external: 16,
            ..Expected::default()
        };
        let polls =
            vec![Poll::Page(vec![prefill]), Poll::Page(vec![decode]), Poll::Page(vec![done])];
        check(&[BUSY], polls, &[row]);
    }

    #[test]
    fn two_completions_in_a_tick_are_averaged() {
        let first = Engine { stop: 11, length: 6, prompt: 9300, output: 730, ..BUSY };
        let second = Engine { length: 9, prompt: 9600, kv: 0.2, prefill_s: 30.3, ..first };
        check(
            &[BUSY],
            vec![Poll::Page(vec![first]), Poll::Page(vec![second])],
            &[
                Expected {
                    tick: 1,
                    n: 2,
                    isl: 150.0,
                    osl: 15.0,
                    reasons: "{\"length\":1,\"stop\":1}",
                    kv_peak_pct: 10.0,
                    ..Expected::default()
                },
                Expected {
                    tick: 2,
                    n: 3,
                    isl: 100.0,
                    prefill_ms: 100.0,
                    reasons: "{\"length\":3}",
                    kv_peak_pct: 20.0,
                    ..Expected::default()
                },
            ],
        );
    }

    #[test]
    fn missed_scrapes_lose_no_completion() {
        let one = Engine { stop: 11, prompt: 9100, hits: 5064, ..BUSY };
        let later = Engine { stop: 13, prompt: 9500, hits: 5164, ..one };
        let polls = vec![
            Poll::Failed,
            Poll::Failed,
            Poll::Page(vec![one]),
            Poll::Failed,
            Poll::Page(vec![one]),
            Poll::Failed,
            Poll::Page(vec![later]),
        ];
        check(
            &[BUSY],
            polls,
            &[
                Expected {
                    tick: 3,
                    n: 1,
                    isl: 100.0,
                    reasons: "{\"stop\":1}",
                    kv_peak_pct: 10.0,
                    hits: 64,
                    missed: 2,
                    ..Expected::default()
                },
                Expected {
                    tick: 7,
                    n: 2,
                    isl: 200.0,
                    reasons: "{\"stop\":2}",
                    kv_peak_pct: 10.0,
                    hits: 100,
                    missed: 2,
                    ..Expected::default()
                },
            ],
        );
    }

    #[test]
    fn a_restarted_engine_counts_from_zero() {
        let fresh = Engine::default();
        let one =
            Engine { stop: 1, prompt: 50, output: 5, computed: 34, hits: 16, kv: 0.3, ..fresh };
        let two = Engine { stop: 2, prompt: 110, ..one };
        let first = Expected {
            n: 1,
            isl: 50.0,
            osl: 5.0,
            isl_new: 34.0,
            reasons: "{\"stop\":1}",
            kv_peak_pct: 30.0,
            hits: 16,
            reset: true,
            ..Expected::default()
        };
        let second = Expected {
            tick: 4,
            n: 1,
            isl: 60.0,
            reasons: "{\"stop\":1}",
            kv_peak_pct: 30.0,
            ..Expected::default()
        };
        // The peak of the engine before is not the new one's.
        let full = Engine { kv: 0.9, ..BUSY };
        let polls = [full, fresh, one, two].map(|engine| Poll::Page(vec![engine])).into();
        check(&[BUSY], polls, &[Expected { tick: 3, ..first }, second]);
        // The restart and the first completion lie within one outage.
        let polls = vec![Poll::Failed, Poll::Page(vec![one])];
        check(&[BUSY], polls, &[Expected { tick: 2, missed: 1, ..first }]);
    }

    #[test]
    fn engines_of_one_server_are_summed() {
        let other = Engine { stop: 3, prompt: 300, hits: 32, kv: 0.5, ..Engine::default() };
        let first = Engine { stop: 11, prompt: 9100, ..BUSY };
        let second = Engine { length: 1, prompt: 340, hits: 48, kv: 0.2, ..other };
        check(
            &[BUSY, other],
            vec![Poll::Page(vec![first, other]), Poll::Page(vec![first, second])],
            &[
                Expected {
                    tick: 1,
                    n: 1,
                    isl: 100.0,
                    reasons: "{\"stop\":1}",
                    kv_peak_pct: 50.0,
                    ..Expected::default()
                },
                Expected {
                    tick: 2,
                    n: 1,
                    isl: 40.0,
                    reasons: "{\"length\":1}",
                    kv_peak_pct: 20.0,
                    hits: 16,
                    ..Expected::default()
                },
            ],
        );
    }

    /// One step of an engine that lacks much of what vLLM tells.
    fn single(kind: EngineKind, before: &str, after: &str) -> Option<EngineMetricsRow> {
        let read = |page| Snapshot::read(page, kind).expect("a page");
        let times = ScrapeTimes { due_ns: 0, sent_ns: 0, ended_ns: 0 };
        CompletionTracker::new("e", read(before)).observe(read(after), times)
    }

    #[test]
    fn what_an_engine_lacks_is_null() {
        let before = "sglang:num_requests_total 5\nsglang:prompt_tokens_total 500\n\
            sglang:generation_tokens_total 50\n";
        // The cache's counter appears with the first hit: it was 0 before.
        let after = "sglang:num_requests_total 7\nsglang:prompt_tokens_total 800\n\
            sglang:generation_tokens_total 70\n\
            sglang:cached_tokens_total{cache_source=\"device\"} 40\n\
            sglang:inter_token_latency_seconds_sum 0.3\n\
            sglang:inter_token_latency_seconds_count 15\n";
        let row = single(EngineKind::Sglang, before, after).expect("a row");
        let expected = EngineMetricsRow {
            engine: "e".to_owned(),
            n: 2,
            isl: Some(150.0),
            osl: Some(10.0),
            isl_new: Some(130.0),
            itl_ms: Some(20.0),
            stop_reason: "{\"unknown\":2}".to_owned(),
            prefix_cache_hits: Some(40),
            prompt_tokens_by_source: Some("{\"device\":40}".to_owned()),
            ..EngineMetricsRow::default()
        };
        assert_eq!(row, expected);
        let before = "llamacpp:prompt_tokens_total 10\n";
        let after = "llamacpp:prompt_tokens_total 20\n";
        assert_eq!(single(EngineKind::LlamaCpp, before, after), None);
    }

    #[test]
    fn samples_hold_the_page_or_the_error() {
        let times =
            ScrapeTimes { due_ns: 1_000_000_000, sent_ns: 1_500_000_000, ended_ns: 1_504_000_000 };
        let row = sample_row("e", times, Ok(&snapshot(&[BUSY, BUSY])));
        let expected = EngineSampleRow {
            ts: 1.5,
            due: 1.0,
            scrape_ms: Some(4.0),
            engine: "e".to_owned(),
            kv_cache_usage_pct: Some(10.0),
            requests_total: Some(30.0),
            cached_tokens_total: Some(10000.0),
            external_cached_tokens_total: Some(200.0),
            prefill_sum: Some(60.0),
            request_count: Some(30.0),
            ..EngineSampleRow::default()
        };
        assert_eq!(row, expected);
        let failed = sample_row("e", times, Err("no answer in time"));
        let expected = EngineSampleRow {
            ts: 1.5,
            due: 1.0,
            engine: "e".to_owned(),
            error: Some("no answer in time".to_owned()),
            ..EngineSampleRow::default()
        };
        assert_eq!(failed, expected);
    }
}
