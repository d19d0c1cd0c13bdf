//! Which metric names each engine uses for which quantity, declared as data.
//!
//! Names change between versions, so each quantity lists its sources in order of trust; `snapshot`
//! reads a page through this table and takes the first source that the page has.

use crate::http::scrape::Labels;

/// A quantity that engines tell under names of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Quantity {
    /// Requests running now.
    Running,
    /// Requests waiting now.
    Waiting,
    /// Share of the KV cache in use, 0 to 1.
    KvUsage,
    /// Prompt tokens so far, cancelled requests included.
    PromptTokens,
    /// The same, told apart by where they came from and added up: a check on `PromptTokens`.
    PromptTokensBySource,
    /// Output tokens so far, cancelled requests included.
    OutputTokens,
    /// Prompt tokens served from the local prefix cache.
    CachedTokens,
    /// Prompt tokens served from an external cache.
    ExternalCachedTokens,
    /// Prompt tokens looked up in the prefix cache.
    CacheQueries,
    /// Preemptions.
    Preemptions,
    /// Requests behind the per-request sums.
    Requests,
    /// Prompt tokens of completed requests.
    RequestPromptTokens,
    /// Output tokens of completed requests.
    RequestOutputTokens,
    /// Prompt tokens computed for completed requests.
    RequestComputedTokens,
    /// Seconds in the queue.
    QueueSeconds,
    /// Seconds of prefill.
    PrefillSeconds,
    /// Seconds of decode.
    DecodeSeconds,
    /// Seconds from arrival to the last token.
    E2eSeconds,
    /// Seconds to the first token.
    TtftSeconds,
    /// Observations behind `TtftSeconds`.
    TtftCount,
    /// Seconds per output token after the first.
    TokenGapSeconds,
    /// Observations behind `TokenGapSeconds`: requests, or on older engines single gaps.
    TokenGapCount,
}

impl Quantity {
    /// All quantities.
    pub const ALL: [Self; 22] = [
        Self::Running,
        Self::Waiting,
        Self::KvUsage,
        Self::PromptTokens,
        Self::PromptTokensBySource,
        Self::OutputTokens,
        Self::CachedTokens,
        Self::ExternalCachedTokens,
        Self::CacheQueries,
        Self::Preemptions,
        Self::Requests,
        Self::RequestPromptTokens,
        Self::RequestOutputTokens,
        Self::RequestComputedTokens,
        Self::QueueSeconds,
        Self::PrefillSeconds,
        Self::DecodeSeconds,
        Self::E2eSeconds,
        Self::TtftSeconds,
        Self::TtftCount,
        Self::TokenGapSeconds,
        Self::TokenGapCount,
    ];

    /// The name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Waiting => "waiting",
            Self::KvUsage => "kv_usage",
            Self::PromptTokens => "prompt_tokens",
            Self::PromptTokensBySource => "prompt_tokens_by_source",
            Self::OutputTokens => "output_tokens",
            Self::CachedTokens => "cached_tokens",
            Self::ExternalCachedTokens => "external_cached_tokens",
            Self::CacheQueries => "cache_queries",
            Self::Preemptions => "preemptions",
            Self::Requests => "requests",
            Self::RequestPromptTokens => "request_prompt_tokens",
            Self::RequestOutputTokens => "request_output_tokens",
            Self::RequestComputedTokens => "request_computed_tokens",
            Self::QueueSeconds => "queue_seconds",
            Self::PrefillSeconds => "prefill_seconds",
            Self::DecodeSeconds => "decode_seconds",
            Self::E2eSeconds => "e2e_seconds",
            Self::TtftSeconds => "ttft_seconds",
            Self::TtftCount => "ttft_count",
            Self::TokenGapSeconds => "token_gap_seconds",
            Self::TokenGapCount => "token_gap_count",
        }
    }

    /// Whether the value only ever grows while the engine lives.
    pub fn is_counter(self) -> bool {
        !matches!(self, Self::Running | Self::Waiting | Self::KvUsage)
    }
}

/// Which series of a sample name count.
#[derive(Debug, Clone, Copy)]
pub(super) enum Pick {
    All,
    /// The label has one of these values.
    Only(&'static str, &'static [&'static str]),
    /// The same, or the series lacks the label, as it did in older versions.
    OnlyOrUnlabelled(&'static str, &'static [&'static str]),
}

impl Pick {
    pub(super) fn takes(self, labels: Labels<'_>) -> bool {
        let (label, values, unlabelled) = match self {
            Self::All => return true,
            Self::Only(label, values) => (label, values, false),
            Self::OnlyOrUnlabelled(label, values) => (label, values, true),
        };
        labels.get(label).map_or(unlabelled, |value| values.contains(&&*value))
    }
}

/// One way in which an engine tells a quantity.
#[derive(Debug, Clone, Copy)]
pub(super) struct Source {
    /// The sample's name without the engine's prefix.
    pub(super) sample: &'static str,
    pub(super) pick: Pick,
    /// What this source holds as well and has to be taken off; it serves only where the page has the
    /// first of them.
    pub(super) less: &'static [Quantity],
}

const fn all(sample: &'static str) -> Source {
    Source { sample, pick: Pick::All, less: &[] }
}

/// Completed requests, and why they ended.
#[derive(Debug, Clone, Copy)]
pub(super) struct Finished {
    pub(super) sample: &'static str,
    /// The label that says why; none where the name itself does.
    pub(super) label: Option<&'static str>,
    /// The reason where no label says it.
    pub(super) reason: &'static str,
}

/// The names of one engine.
#[derive(Debug)]
pub(super) struct Names {
    pub(super) prefix: &'static str,
    pub(super) quantities: &'static [(Quantity, &'static [Source])],
    pub(super) finished: &'static [Finished],
    /// The counter of prompt tokens by where they came from, and the label that says it.
    pub(super) by_source: Option<(&'static str, &'static str)>,
    /// Older versions write all names without the prefix.
    pub(super) bare_before: bool,
}

/// An engine whose names are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EngineKind {
    /// vLLM (V1) 0.8 to 0.32, and the embedded engine, which uses its names.
    Vllm,
    /// `SGLang`, started with `--enable-metrics`.
    Sglang,
    /// `TensorRT-LLM`, its page `/prometheus/metrics`.
    TensorRtLlm,
    /// llama.cpp, started with `--metrics`.
    LlamaCpp,
}

impl EngineKind {
    /// All engines.
    pub const ALL: [Self; 4] = [Self::Vllm, Self::Sglang, Self::TensorRtLlm, Self::LlamaCpp];

    /// The name in tables and messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::TensorRtLlm => "tensorrt-llm",
            Self::LlamaCpp => "llama.cpp",
        }
    }

    pub(super) fn names(self) -> &'static Names {
        match self {
            Self::Vllm => &VLLM,
            Self::Sglang => &SGLANG,
            Self::TensorRtLlm => &TENSORRT_LLM,
            Self::LlamaCpp => &LLAMA_CPP,
        }
    }
}

use Quantity as Q;

const VLLM: Names = Names {
    prefix: "vllm:",
    by_source: Some(("prompt_tokens_by_source_total", "source")),
    bare_before: false,
    quantities: &[
        (Q::Running, &[all("num_requests_running")]),
        (Q::Waiting, &[all("num_requests_waiting")]),
        // Renamed in 0.9, the old name gone about 0.12.
        (Q::KvUsage, &[all("kv_cache_usage_perc"), all("gpu_cache_usage_perc")]),
        (Q::PromptTokens, &[all("prompt_tokens_total")]),
        (Q::PromptTokensBySource, &[all("prompt_tokens_by_source_total")]),
        (Q::OutputTokens, &[all("generation_tokens_total")]),
        // Before mid-2026 the prefix-cache counters also counted each retry of a waiting request.
        (
            Q::CachedTokens,
            &[
                Source {
                    sample: "prompt_tokens_by_source_total",
                    pick: Pick::Only("source", &["local_cache_hit"]),
                    less: &[],
                },
                // Local and external together.
                Source {
                    sample: "prompt_tokens_cached_total",
                    pick: Pick::All,
                    less: &[Q::ExternalCachedTokens],
                },
                all("prefix_cache_hits_total"),
                all("gpu_prefix_cache_hits_total"),
            ],
        ),
        (
            Q::ExternalCachedTokens,
            &[
                Source {
                    sample: "prompt_tokens_by_source_total",
                    pick: Pick::Only("source", &["external_kv_transfer"]),
                    less: &[],
                },
                all("external_prefix_cache_hits_total"),
            ],
        ),
        (
            Q::CacheQueries,
            &[all("prefix_cache_queries_total"), all("gpu_prefix_cache_queries_total")],
        ),
        (Q::Preemptions, &[all("num_preemptions_total")]),
        (
            Q::Requests,
            &[all("request_prompt_tokens_count"), all("e2e_request_latency_seconds_count")],
        ),
        (Q::RequestPromptTokens, &[all("request_prompt_tokens_sum")]),
        (Q::RequestOutputTokens, &[all("request_generation_tokens_sum")]),
        (Q::RequestComputedTokens, &[all("request_prefill_kv_computed_tokens_sum")]),
        (Q::QueueSeconds, &[all("request_queue_time_seconds_sum")]),
        (Q::PrefillSeconds, &[all("request_prefill_time_seconds_sum")]),
        (Q::DecodeSeconds, &[all("request_decode_time_seconds_sum")]),
        (Q::E2eSeconds, &[all("e2e_request_latency_seconds_sum")]),
        (Q::TtftSeconds, &[all("time_to_first_token_seconds_sum")]),
        (Q::TtftCount, &[all("time_to_first_token_seconds_count")]),
        // A mean per request where there is one, else single gaps; those renamed in 0.11.
        (
            Q::TokenGapSeconds,
            &[
                all("request_time_per_output_token_seconds_sum"),
                all("inter_token_latency_seconds_sum"),
                all("time_per_output_token_seconds_sum"),
            ],
        ),
        (
            Q::TokenGapCount,
            &[
                all("request_time_per_output_token_seconds_count"),
                all("inter_token_latency_seconds_count"),
                all("time_per_output_token_seconds_count"),
            ],
        ),
    ],
    finished: &[Finished {
        sample: "request_success_total",
        label: Some("finished_reason"),
        reason: "unknown",
    }],
};

const SGLANG: Names = Names {
    prefix: "sglang:",
    by_source: Some(("cached_tokens_total", "cache_source")),
    bare_before: false,
    quantities: &[
        (Q::Running, &[all("num_running_reqs")]),
        (Q::Waiting, &[all("num_queue_reqs")]),
        (Q::KvUsage, &[all("token_usage")]),
        (Q::PromptTokens, &[all("prompt_tokens_total")]),
        (Q::OutputTokens, &[all("generation_tokens_total")]),
        (
            Q::CachedTokens,
            &[Source {
                sample: "cached_tokens_total",
                pick: Pick::OnlyOrUnlabelled("cache_source", &["device"]),
                less: &[],
            }],
        ),
        (
            Q::ExternalCachedTokens,
            &[Source {
                sample: "cached_tokens_total",
                pick: Pick::Only("cache_source", &["host", "storage"]),
                less: &[],
            }],
        ),
        (Q::Preemptions, &[all("num_retracted_requests_total")]),
        (Q::Requests, &[all("num_requests_total"), all("e2e_request_latency_seconds_count")]),
        // The token counters move when a request ends, so they serve as sums over requests.
        (Q::RequestPromptTokens, &[all("prompt_tokens_total")]),
        (Q::RequestOutputTokens, &[all("generation_tokens_total")]),
        (
            Q::RequestComputedTokens,
            &[Source {
                sample: "prompt_tokens_total",
                pick: Pick::All,
                less: &[Q::CachedTokens, Q::ExternalCachedTokens],
            }],
        ),
        (Q::QueueSeconds, &[all("queue_time_seconds_sum")]),
        (Q::E2eSeconds, &[all("e2e_request_latency_seconds_sum")]),
        (Q::TtftSeconds, &[all("time_to_first_token_seconds_sum")]),
        (Q::TtftCount, &[all("time_to_first_token_seconds_count")]),
        (Q::TokenGapSeconds, &[all("inter_token_latency_seconds_sum")]),
        (Q::TokenGapCount, &[all("inter_token_latency_seconds_count")]),
    ],
    finished: &[
        Finished { sample: "num_requests_total", label: None, reason: "unknown" },
        Finished { sample: "num_aborted_requests_total", label: None, reason: "abort" },
    ],
};

const TENSORRT_LLM: Names = Names {
    prefix: "trtllm_",
    by_source: None,
    bare_before: true,
    quantities: &[
        (Q::Running, &[all("num_requests_running")]),
        (Q::Waiting, &[all("num_requests_waiting")]),
        (Q::KvUsage, &[all("kv_cache_utilization")]),
        (Q::PromptTokens, &[all("prompt_tokens_total")]),
        (Q::OutputTokens, &[all("generation_tokens_total")]),
        (Q::CachedTokens, &[all("prompt_cached_tokens_total")]),
        (
            Q::Requests,
            &[all("e2e_request_latency_seconds_count"), all("num_requests_completed_total")],
        ),
        (Q::RequestPromptTokens, &[all("prompt_tokens_total")]),
        (Q::RequestOutputTokens, &[all("generation_tokens_total")]),
        (
            Q::RequestComputedTokens,
            &[Source { sample: "prompt_tokens_total", pick: Pick::All, less: &[Q::CachedTokens] }],
        ),
        (Q::QueueSeconds, &[all("request_queue_time_seconds_sum")]),
        (Q::PrefillSeconds, &[all("request_prefill_time_seconds_sum")]),
        (Q::DecodeSeconds, &[all("request_decode_time_seconds_sum")]),
        (Q::E2eSeconds, &[all("e2e_request_latency_seconds_sum")]),
        (Q::TtftSeconds, &[all("time_to_first_token_seconds_sum")]),
        (Q::TtftCount, &[all("time_to_first_token_seconds_count")]),
        (Q::TokenGapSeconds, &[all("time_per_output_token_seconds_sum")]),
        (Q::TokenGapCount, &[all("time_per_output_token_seconds_count")]),
    ],
    finished: &[Finished {
        sample: "request_success_total",
        label: Some("finished_reason"),
        reason: "unknown",
    }],
};

// No count of requests and no histograms: the samples hold its totals, completions cannot be told.
const LLAMA_CPP: Names = Names {
    prefix: "llamacpp:",
    by_source: None,
    bare_before: false,
    quantities: &[
        (Q::Running, &[all("requests_processing")]),
        (Q::Waiting, &[all("requests_deferred")]),
        (Q::KvUsage, &[all("kv_cache_usage_ratio")]),
        (Q::PromptTokens, &[all("prompt_tokens_total")]),
        (Q::OutputTokens, &[all("tokens_predicted_total")]),
        (Q::PrefillSeconds, &[all("prompt_seconds_total")]),
        (Q::DecodeSeconds, &[all("tokens_predicted_seconds_total")]),
    ],
    finished: &[],
};
