//! The engine's counters and histograms, and the Prometheus page that shows them under vLLM's names.
//!
//! Pure: the scheduler counts, the server asks for the page. Families, labels and buckets are those of
//! vLLM's V1 engine; what this engine never does (external caches, several engines) stays at 0.

mod page;

use page::Page;

/// Bounds of the request latency histograms (s).
const REQUEST_SECONDS: &[f64] = &[
    0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0,
    480.0, 960.0, 1920.0, 7680.0,
];
const TTFT_SECONDS: &[f64] = &[
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
    20.0, 40.0, 80.0, 160.0, 640.0, 2560.0,
];
const ITL_SECONDS: &[f64] = &[
    0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0,
    40.0, 80.0,
];
const ITERATION_TOKENS: &[f64] =
    &[1.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];
const PARAMS_N: &[f64] = &[1.0, 2.0, 5.0, 10.0, 20.0];
const PREEMPTIONS: &[f64] = &[1.0, 2.0, 3.0, 4.0, 5.0, 10.0, 20.0];

/// 1, 2, 5, 10, … up to the longest sequence.
fn token_bounds(max_model_len: u32) -> Vec<f64> {
    let series = (0..10).flat_map(|power| [1.0, 2.0, 5.0].map(|it| it * 10_f64.powi(power)));
    series.take_while(|bound| *bound <= f64::from(max_model_len)).collect()
}

/// A histogram.
#[derive(Debug, Clone)]
pub struct Histogram {
    bounds: Vec<f64>,
    counts: Vec<u64>,
    sum: f64,
    count: u64,
}

impl Histogram {
    fn new(bounds: &[f64]) -> Self {
        Self { bounds: bounds.to_vec(), counts: vec![0; bounds.len()], sum: 0.0, count: 0 }
    }

    /// Takes a value in.
    pub fn observe(&mut self, value: f64) {
        // Cumulated when the page is written: here only the first bucket that holds the value.
        let first = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(first) {
            *count += 1;
        }
        self.sum += value;
        self.count += 1;
    }

    /// Sum of all values.
    pub fn sum(&self) -> f64 {
        self.sum
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }
}

/// One finished request, as its histograms see it. Times are in seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct FinishedRequest {
    /// `stop` or `length`.
    pub stopped: bool,
    /// Prompt tokens.
    pub prompt_tokens: u64,
    /// Of them served from cache.
    pub cached_tokens: u64,
    /// Output tokens.
    pub generation_tokens: u64,
    /// The `max_tokens` in force.
    pub max_tokens: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Arrival to first schedule.
    pub queue_s: f64,
    /// First schedule to first token.
    pub prefill_s: f64,
    /// First to last token.
    pub decode_s: f64,
    /// Arrival to last token.
    pub e2e_s: f64,
}

/// All figures of an engine since its start.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Requests in execution.
    pub running: u64,
    /// Requests that wait.
    pub waiting: u64,
    /// Used share of the KV cache.
    pub kv_usage: f64,
    /// Tokens looked up in the prefix cache, counted at a request's first schedule.
    pub prefix_queries: u64,
    /// Tokens found there.
    pub prefix_hits: u64,
    /// Preemptions.
    pub preemptions: u64,
    /// Prompt tokens, counted at a request's first token.
    pub prompt_tokens: u64,
    /// Of them served from cache.
    pub prompt_tokens_cached: u64,
    /// Output tokens.
    pub generation_tokens: u64,
    /// Requests that ended by themselves.
    pub finished_stop: u64,
    /// Requests that ended at their `max_tokens`.
    pub finished_length: u64,
    /// Requests whose client went away.
    pub finished_abort: u64,
    /// Time to first token (s).
    pub ttft: Histogram,
    /// Time between tokens (s).
    pub itl: Histogram,
    /// Tokens in a step.
    pub iteration_tokens: Histogram,
    request_prompt_tokens: Histogram,
    request_generation_tokens: Histogram,
    request_max_generation_tokens: Histogram,
    request_params_n: Histogram,
    request_params_max_tokens: Histogram,
    request_tpot: Histogram,
    request_e2e: Histogram,
    request_queue: Histogram,
    request_inference: Histogram,
    request_prefill: Histogram,
    request_decode: Histogram,
    request_preemptions: Histogram,
    request_prefill_kv_computed: Histogram,
}

impl Metrics {
    /// Figures of an engine that has done nothing yet.
    pub fn new(max_model_len: u32) -> Self {
        let tokens = Histogram::new(&token_bounds(max_model_len));
        let seconds = Histogram::new(REQUEST_SECONDS);
        Self {
            running: 0,
            waiting: 0,
            kv_usage: 0.0,
            prefix_queries: 0,
            prefix_hits: 0,
            preemptions: 0,
            prompt_tokens: 0,
            prompt_tokens_cached: 0,
            generation_tokens: 0,
            finished_stop: 0,
            finished_length: 0,
            finished_abort: 0,
            ttft: Histogram::new(TTFT_SECONDS),
            itl: Histogram::new(ITL_SECONDS),
            iteration_tokens: Histogram::new(ITERATION_TOKENS),
            request_prompt_tokens: tokens.clone(),
            request_generation_tokens: tokens.clone(),
            request_max_generation_tokens: tokens.clone(),
            request_params_n: Histogram::new(PARAMS_N),
            request_params_max_tokens: tokens.clone(),
            request_tpot: Histogram::new(ITL_SECONDS),
            request_e2e: seconds.clone(),
            request_queue: seconds.clone(),
            request_inference: seconds.clone(),
            request_prefill: seconds.clone(),
            request_decode: seconds,
            request_preemptions: Histogram::new(PREEMPTIONS),
            request_prefill_kv_computed: tokens,
        }
    }

    /// Takes a finished request into counters and histograms.
    pub fn finish(&mut self, request: &FinishedRequest) {
        *(if request.stopped { &mut self.finished_stop } else { &mut self.finished_length }) += 1;
        let generated = request.generation_tokens as f64;
        self.request_prompt_tokens.observe(request.prompt_tokens as f64);
        self.request_generation_tokens.observe(generated);
        self.request_max_generation_tokens.observe(generated);
        self.request_params_n.observe(1.0);
        self.request_params_max_tokens.observe(request.max_tokens as f64);
        let gaps = request.generation_tokens.saturating_sub(1);
        let tpot = if gaps > 0 { request.decode_s / gaps as f64 } else { 0.0 };
        self.request_tpot.observe(tpot);
        self.request_e2e.observe(request.e2e_s);
        self.request_queue.observe(request.queue_s);
        self.request_inference.observe(request.prefill_s + request.decode_s);
        self.request_prefill.observe(request.prefill_s);
        self.request_decode.observe(request.decode_s);
        self.request_preemptions.observe(request.preemptions as f64);
        let computed = request.prompt_tokens.saturating_sub(request.cached_tokens);
        self.request_prefill_kv_computed.observe(computed as f64);
    }

    /// The page.
    pub fn page(&self, model: &str, kv_blocks: u32) -> String {
        let mut page = Page::new(model);
        self.write_gauges(&mut page);
        self.write_counters(&mut page);
        self.write_histograms(&mut page);
        page.cache_config(kv_blocks);
        page.finish()
    }

    fn write_gauges(&self, page: &mut Page) {
        page.gauge(
            "num_requests_running",
            "Number of requests in model execution batches.",
            self.running as f64,
        );
        page.gauge(
            "num_requests_waiting",
            "Number of requests waiting to be processed.",
            self.waiting as f64,
        );
        page.head(
            "num_requests_waiting_by_reason",
            "Number of waiting requests by reason.",
            "gauge",
        );
        page.labelled("num_requests_waiting_by_reason", "reason", "capacity", self.waiting);
        page.labelled("num_requests_waiting_by_reason", "reason", "deferred", 0);
        page.gauge(
            "kv_cache_usage_perc",
            "KV-cache usage. 1 means 100 percent usage.",
            self.kv_usage,
        );
    }

    fn write_counters(&self, page: &mut Page) {
        let counters = [
            ("prefix_cache_queries", "Prefix cache queries, in tokens.", self.prefix_queries),
            ("prefix_cache_hits", "Prefix cache hits, in tokens.", self.prefix_hits),
            ("external_prefix_cache_queries", "External prefix cache queries, in tokens.", 0),
            ("external_prefix_cache_hits", "External prefix cache hits, in tokens.", 0),
            (
                "num_preemptions",
                "Cumulative number of preemption from the engine.",
                self.preemptions,
            ),
            ("prompt_tokens", "Number of prefill tokens processed.", self.prompt_tokens),
            (
                "prompt_tokens_cached",
                "Number of cached prompt tokens (local + external).",
                self.prompt_tokens_cached,
            ),
            ("generation_tokens", "Number of generation tokens processed.", self.generation_tokens),
        ];
        for (name, help, value) in counters {
            page.counter(name, help, value);
        }
        let name = "prompt_tokens_by_source_total";
        page.head(name, "Number of prompt tokens by source.", "counter");
        let computed = self.prompt_tokens - self.prompt_tokens_cached;
        page.labelled(name, "source", "local_compute", computed);
        page.labelled(name, "source", "local_cache_hit", self.prompt_tokens_cached);
        page.labelled(name, "source", "external_kv_transfer", 0);
        let name = "request_success_total";
        page.head(name, "Count of successfully processed requests.", "counter");
        page.labelled(name, "finished_reason", "stop", self.finished_stop);
        page.labelled(name, "finished_reason", "length", self.finished_length);
        page.labelled(name, "finished_reason", "abort", self.finished_abort);
        page.labelled(name, "finished_reason", "error", 0);
    }

    fn write_histograms(&self, page: &mut Page) {
        let histograms: [(&str, &str, &Histogram); 16] = [
            (
                "request_prompt_tokens",
                "Number of prefill tokens processed.",
                &self.request_prompt_tokens,
            ),
            (
                "request_generation_tokens",
                "Number of generation tokens processed.",
                &self.request_generation_tokens,
            ),
            (
                "iteration_tokens_total",
                "Histogram of number of tokens per engine_step.",
                &self.iteration_tokens,
            ),
            (
                "request_max_num_generation_tokens",
                "Histogram of maximum number of requested generation tokens.",
                &self.request_max_generation_tokens,
            ),
            ("request_params_n", "Histogram of the n request parameter.", &self.request_params_n),
            (
                "request_params_max_tokens",
                "Histogram of the max_tokens request parameter.",
                &self.request_params_max_tokens,
            ),
            (
                "time_to_first_token_seconds",
                "Histogram of time to first token in seconds.",
                &self.ttft,
            ),
            (
                "inter_token_latency_seconds",
                "Histogram of inter-token latency in seconds.",
                &self.itl,
            ),
            (
                "request_time_per_output_token_seconds",
                "Histogram of time_per_output_token_seconds per request.",
                &self.request_tpot,
            ),
            (
                "e2e_request_latency_seconds",
                "Histogram of e2e request latency in seconds.",
                &self.request_e2e,
            ),
            (
                "request_queue_time_seconds",
                "Histogram of time spent in WAITING phase for request.",
                &self.request_queue,
            ),
            (
                "request_inference_time_seconds",
                "Histogram of time spent in RUNNING phase for request.",
                &self.request_inference,
            ),
            (
                "request_prefill_time_seconds",
                "Histogram of time spent in PREFILL phase for request.",
                &self.request_prefill,
            ),
            (
                "request_decode_time_seconds",
                "Histogram of time spent in DECODE phase for request.",
                &self.request_decode,
            ),
            (
                "request_num_preemptions",
                "Histogram of the number of times a request was preempted.",
                &self.request_preemptions,
            ),
            (
                "request_prefill_kv_computed_tokens",
                "Histogram of new KV tokens computed during prefill (excluding cached tokens).",
                &self.request_prefill_kv_computed,
            ),
        ];
        for (name, help, histogram) in histograms {
            page.histogram(name, help, histogram);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished() -> FinishedRequest {
        FinishedRequest {
            stopped: true,
            prompt_tokens: 100,
            cached_tokens: 64,
            generation_tokens: 11,
            max_tokens: 50,
            preemptions: 0,
            queue_s: 0.25,
            prefill_s: 0.5,
            decode_s: 2.0,
            e2e_s: 2.75,
        }
    }

    #[test]
    fn the_page_shows_a_finished_request_under_vllms_names() {
        let mut metrics = Metrics::new(1_000);
        metrics.finish(&finished());
        metrics.finish(&FinishedRequest { stopped: false, generation_tokens: 1, ..finished() });
        metrics.prompt_tokens = 200;
        metrics.prompt_tokens_cached = 128;
        let page = metrics.page("a \"model\"", 40);
        let check = |line: &str| assert!(page.lines().any(|it| it == line), "{line}\n{page}");
        let model = r#"model_name="a \"model\"""#;
        check(&format!("vllm:num_requests_running{{engine=\"0\",{model}}} 0.0"));
        check(&format!("vllm:prompt_tokens_total{{engine=\"0\",{model}}} 200.0"));
        let source = "source=\"local_compute\"";
        check(&format!("vllm:prompt_tokens_by_source_total{{engine=\"0\",{model},{source}}} 72.0"));
        let reason = "finished_reason=\"length\"";
        check(&format!("vllm:request_success_total{{engine=\"0\",{model},{reason}}} 1.0"));
        check(&format!("vllm:request_prefill_kv_computed_tokens_sum{{engine=\"0\",{model}}} 72.0"));
        // 2 s over 10 gaps, and 0 for a single token.
        let tpot = "vllm:request_time_per_output_token_seconds";
        check(&format!("{tpot}_sum{{engine=\"0\",{model}}} 0.2"));
        check(&format!("{tpot}_bucket{{engine=\"0\",le=\"0.15\",{model}}} 1.0"));
        check(&format!("{tpot}_bucket{{engine=\"0\",le=\"0.2\",{model}}} 2.0"));
        let e2e = "vllm:e2e_request_latency_seconds";
        check(&format!("{e2e}_bucket{{engine=\"0\",le=\"2.5\",{model}}} 0.0"));
        check(&format!("{e2e}_bucket{{engine=\"0\",le=\"5.0\",{model}}} 2.0"));
        check(&format!("{e2e}_bucket{{engine=\"0\",le=\"+Inf\",{model}}} 2.0"));
        check("# TYPE vllm:iteration_tokens_total histogram");
        assert!(page.contains("num_gpu_blocks=\"40\""));
        // The largest bound of token counts does not pass the longest sequence.
        let tokens = "vllm:request_prompt_tokens_bucket{engine=\"0\",le=";
        assert!(page.contains(&format!("{tokens}\"1000.0\"")) && !page.contains("le=\"2000.0\""));
    }
}
