//! What the engine's own counters say about the span of a replay: differences between the last poll
//! before its first request and the last poll after its last response.
//!
//! Pure. Polls of several engines are added up.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::trace::record::EngineSampleRow;

/// Counter differences over a run, and the means they give. What the engine does not count is null.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineFigures {
    /// Requests completed.
    pub requests: Option<f64>,
    /// Prompt tokens.
    pub prompt_tokens: Option<f64>,
    /// Output tokens.
    pub output_tokens: Option<f64>,
    /// Prompt tokens served from the local cache.
    pub cached_tokens: Option<f64>,
    /// Prompt tokens served from an external cache.
    pub external_cached_tokens: Option<f64>,
    /// Preemptions.
    pub preemptions: Option<f64>,
    /// Mean time to first token.
    pub ttft_ms_mean: Option<f64>,
    /// Mean time in the queue.
    pub queue_ms_mean: Option<f64>,
    /// Mean prefill time.
    pub prefill_ms_mean: Option<f64>,
    /// Mean decode time.
    pub decode_ms_mean: Option<f64>,
    /// Mean end-to-end time.
    pub e2e_ms_mean: Option<f64>,
    /// Most requests seen running at once.
    pub running_max: Option<f64>,
    /// Most requests seen waiting at once.
    pub waiting_max: Option<f64>,
    /// Highest KV-cache use seen, in percent.
    pub kv_cache_usage_pct_max: Option<f64>,
    /// Polls with values, within the span.
    pub polls: u64,
    /// Polls without, within the span.
    pub polls_failed: u64,
    /// A counter went back during the run: an engine was restarted, no difference is given.
    pub counter_reset: bool,
    /// A poll with values came after the last response; else the last requests may lack here.
    pub covers_end: bool,
}

/// The span of a run, seconds since the Unix epoch.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Span {
    /// The first request was sent.
    pub start: f64,
    /// The last response ended.
    pub end: f64,
}

type Field = fn(&EngineSampleRow) -> Option<f64>;

/// The figures of a run from its polls; none where no poll brought values.
pub fn engine_figures(samples: &[EngineSampleRow], span: Span) -> Option<EngineFigures> {
    let mut by_engine: BTreeMap<&str, Vec<&EngineSampleRow>> = BTreeMap::new();
    for sample in samples {
        by_engine.entry(sample.engine.as_str()).or_default().push(sample);
    }
    let spans: Vec<EngineSpan> =
        by_engine.into_values().filter_map(|samples| EngineSpan::find(samples, span)).collect();
    if spans.is_empty() {
        return None;
    }
    let counter_reset = spans.iter().any(EngineSpan::went_back);
    let delta = |field: Field| {
        if counter_reset {
            return None;
        }
        spans.iter().map(|span| span.delta(field)).sum::<Option<f64>>()
    };
    let mean_ms = |sum: Field, count: Field| {
        let count = delta(count).filter(|count| *count > 0.0)?;
        Some(delta(sum)? / count * 1e3)
    };
    let max = |field: Field| {
        let values = spans.iter().flat_map(|span| &span.within);
        values.filter_map(|sample| field(sample)).reduce(f64::max)
    };
    let max_at_once = |field: Field| max_at_once(&spans, field);
    Some(EngineFigures {
        requests: delta(|sample| sample.requests_total),
        prompt_tokens: delta(|sample| sample.prompt_tokens_total),
        output_tokens: delta(|sample| sample.generation_tokens_total),
        cached_tokens: delta(|sample| sample.cached_tokens_total),
        external_cached_tokens: delta(|sample| sample.external_cached_tokens_total),
        preemptions: delta(|sample| sample.preemptions_total),
        ttft_ms_mean: mean_ms(|sample| sample.ttft_sum, |sample| sample.ttft_count),
        queue_ms_mean: mean_ms(|sample| sample.queue_sum, |sample| sample.request_count),
        prefill_ms_mean: mean_ms(|sample| sample.prefill_sum, |sample| sample.request_count),
        decode_ms_mean: mean_ms(|sample| sample.decode_sum, |sample| sample.request_count),
        e2e_ms_mean: mean_ms(|sample| sample.e2e_sum, |sample| sample.request_count),
        running_max: max_at_once(|sample| sample.running),
        waiting_max: max_at_once(|sample| sample.waiting),
        kv_cache_usage_pct_max: max(|sample| sample.kv_cache_usage_pct),
        polls: spans.iter().map(|span| span.within.len() as u64).sum(),
        polls_failed: spans.iter().map(|span| span.failed).sum(),
        counter_reset,
        covers_end: spans.iter().all(|span| span.covers_end),
    })
}

/// The highest sum over the engines, each as last polled; polls of several engines are not simultaneous.
fn max_at_once(spans: &[EngineSpan], field: Field) -> Option<f64> {
    let mut polls: Vec<(f64, usize, f64)> = Vec::new();
    for (engine, span) in spans.iter().enumerate() {
        let values = span.within.iter();
        polls.extend(values.filter_map(|sample| Some((sample.ts, engine, field(sample)?))));
    }
    polls.sort_by(|a, b| a.0.total_cmp(&b.0));
    let mut latest: Vec<Option<f64>> = vec![None; spans.len()];
    let sums = polls.into_iter().filter_map(|(_, engine, value)| {
        latest[engine] = Some(value);
        latest.iter().copied().sum::<Option<f64>>()
    });
    sums.reduce(f64::max)
}

/// The figures of each engine by its name, where there are several.
pub fn figures_by_engine(
    samples: &[EngineSampleRow],
    span: Span,
) -> BTreeMap<String, EngineFigures> {
    let mut by_engine: BTreeMap<&str, Vec<EngineSampleRow>> = BTreeMap::new();
    for sample in samples {
        by_engine.entry(sample.engine.as_str()).or_default().push(sample.clone());
    }
    if by_engine.len() < 2 {
        return BTreeMap::new();
    }
    let figures = by_engine
        .into_iter()
        .filter_map(|(engine, samples)| Some((engine.to_owned(), engine_figures(&samples, span)?)));
    figures.collect()
}

/// The polls of one engine that matter to a run: the one its counters start from, and all later ones.
struct EngineSpan<'a> {
    within: Vec<&'a EngineSampleRow>,
    failed: u64,
    covers_end: bool,
}

impl<'a> EngineSpan<'a> {
    fn find(mut samples: Vec<&'a EngineSampleRow>, span: Span) -> Option<Self> {
        samples.sort_by(|a, b| a.ts.total_cmp(&b.ts));
        // A poll's values are of some moment between its start and its end.
        let read_before = |sample: &EngineSampleRow, moment: f64| {
            sample.ts + sample.scrape_ms.unwrap_or_default() / 1e3 <= moment
        };
        let first = samples
            .iter()
            .rposition(|sample| sample.error.is_none() && read_before(sample, span.start))
            .unwrap_or(0);
        let last =
            samples.iter().rposition(|sample| sample.error.is_none() && sample.ts >= span.end);
        let samples = &samples[first..];
        let within: Vec<_> =
            samples.iter().filter(|sample| sample.error.is_none()).copied().collect();
        let failed = (samples.len() - within.len()) as u64;
        (!within.is_empty()).then_some(Self { within, failed, covers_end: last.is_some() })
    }

    fn delta(&self, field: Field) -> Option<f64> {
        // A counter that appears with its first use counts from 0.
        let last = field(self.within.last()?)?;
        Some(last - self.within.first().and_then(|sample| field(sample)).unwrap_or(0.0))
    }

    fn went_back(&self) -> bool {
        let counters: [Field; 4] = [
            |sample| sample.requests_total,
            |sample| sample.prompt_tokens_total,
            |sample| sample.generation_tokens_total,
            |sample| sample.request_count,
        ];
        counters.iter().any(|field| {
            let values: Vec<f64> = self.within.iter().filter_map(|sample| field(sample)).collect();
            values.windows(2).any(|pair| pair[1] < pair[0])
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(ts: f64, prompt: f64, cached: Option<f64>, n: f64) -> EngineSampleRow {
        EngineSampleRow {
            ts,
            scrape_ms: Some(10.0),
            engine: "http://e".into(),
            running: Some(n),
            requests_total: Some(n),
            prompt_tokens_total: Some(prompt),
            cached_tokens_total: cached,
            queue_sum: Some(n * 0.25),
            request_count: Some(n),
            ..EngineSampleRow::default()
        }
    }

    const SPAN: Span = Span { start: 10.0, end: 20.0 };

    #[test]
    fn differences_run_from_the_last_poll_before_to_the_last_after() {
        let samples = [
            sample(8.0, 50.0, None, 1.0),
            sample(9.9, 100.0, None, 2.0),
            // Started before the first request, may have been read after it.
            sample(9.995, 130.0, None, 2.0),
            EngineSampleRow { ts: 12.0, error: Some("late".into()), ..sample(0.0, 0.0, None, 0.0) },
            sample(15.0, 500.0, Some(80.0), 4.0),
            sample(20.1, 900.0, Some(200.0), 6.0),
        ];
        let figures = engine_figures(&samples, SPAN).unwrap();
        assert_eq!(figures.prompt_tokens, Some(800.0));
        assert_eq!(figures.cached_tokens, Some(200.0));
        assert_eq!(figures.requests, Some(4.0));
        assert_eq!(figures.queue_ms_mean, Some(250.0));
        assert_eq!(figures.decode_ms_mean, None);
        assert_eq!(figures.running_max, Some(6.0));
        assert_eq!((figures.polls, figures.polls_failed), (4, 1));
        assert!(figures.covers_end && !figures.counter_reset);
    }

    #[test]
    fn a_restarted_engine_gives_no_difference() {
        let samples = [sample(9.0, 100.0, None, 2.0), sample(15.0, 10.0, None, 1.0)];
        let figures = engine_figures(&samples, SPAN).unwrap();
        assert!(figures.counter_reset);
        assert!(!figures.covers_end);
        assert_eq!((figures.prompt_tokens, figures.queue_ms_mean), (None, None));
    }

    #[test]
    fn several_engines_add_up_and_none_gives_none() {
        let of = |engine: &str, sample: EngineSampleRow| EngineSampleRow {
            engine: engine.into(),
            ..sample
        };
        let samples = [
            of("a", sample(9.0, 100.0, None, 2.0)),
            of("b", sample(9.0, 1000.0, None, 20.0)),
            of("a", sample(21.0, 150.0, None, 3.0)),
            of("b", sample(21.0, 1070.0, None, 25.0)),
        ];
        let figures = engine_figures(&samples, SPAN).unwrap();
        assert_eq!((figures.prompt_tokens, figures.requests), (Some(120.0), Some(6.0)));
        // Running: 2 + 20 at first, then 3 + 20, then 3 + 25.
        assert_eq!(figures.running_max, Some(28.0));
        // A restart of one leaves the other's figures alone.
        let restarted = [&samples[..], &[of("b", sample(22.0, 5.0, None, 1.0))]].concat();
        let figures = engine_figures(&restarted, SPAN).unwrap();
        assert_eq!((figures.counter_reset, figures.prompt_tokens), (true, None));
        let each = figures_by_engine(&restarted, SPAN);
        assert_eq!((each["a"].counter_reset, each["a"].prompt_tokens), (false, Some(50.0)));
        assert_eq!((each["b"].counter_reset, each["b"].prompt_tokens), (true, None));
        assert!(figures_by_engine(&samples[..1], SPAN).is_empty());
        assert_eq!(engine_figures(&[], SPAN), None);
    }
}
