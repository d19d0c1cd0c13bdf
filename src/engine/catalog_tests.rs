//! The neutral map, row by row: what each engine calls a quantity, on pages of a line or two that are
//! written by hand after the engines' documented names and are no captures.

use super::catalog::{EngineKind, Quantity as Q};
use super::snapshot::{Snapshot, detect};

use EngineKind::{LlamaCpp, Sglang, TensorRtLlm, Vllm};

/// What a page says of a quantity: a value, or that it does not tell.
type Case = (EngineKind, &'static str, Option<f64>);

fn check(quantity: Q, cases: &[Case]) {
    for (kind, page, expected) in cases {
        let found = detect(page).map(|found| {
            assert_eq!(found, *kind, "{page}");
            Snapshot::read(page, *kind).expect("a page").get(quantity)
        });
        // A page without any name of the engine's tells nothing either.
        assert_eq!(found.unwrap_or_default(), *expected, "{} of {page}", quantity.as_str());
    }
}

#[test]
fn gauges() {
    check(
        Q::Running,
        &[
            (Vllm, "vllm:num_requests_running{model_name=\"m\",engine=\"0\"} 2", Some(2.0)),
            (Sglang, "sglang:num_running_reqs{tp_rank=\"0\"} 3", Some(3.0)),
            (TensorRtLlm, "trtllm_num_requests_running 4", Some(4.0)),
            (LlamaCpp, "llamacpp:requests_processing 1", Some(1.0)),
        ],
    );
    check(
        Q::Waiting,
        &[
            (Vllm, "vllm:num_requests_waiting 2", Some(2.0)),
            // A part of the waiting ones by its reason is not another quantity.
            (Vllm, "vllm:num_requests_waiting_by_reason{reason=\"capacity\"} 2", None),
            (Sglang, "sglang:num_queue_reqs 3", Some(3.0)),
            (TensorRtLlm, "trtllm_num_requests_waiting 4", Some(4.0)),
            (LlamaCpp, "llamacpp:requests_deferred 1", Some(1.0)),
        ],
    );
    check(
        Q::KvUsage,
        &[
            (Vllm, "vllm:kv_cache_usage_perc 0.25", Some(0.25)),
            (Vllm, "vllm:gpu_cache_usage_perc 0.5", Some(0.5)),
            (Vllm, "vllm:gpu_cache_usage_perc 0.5\nvllm:kv_cache_usage_perc 0.25", Some(0.25)),
            (Sglang, "sglang:token_usage 0.75", Some(0.75)),
            // Of two engines the fuller one; their sum would be no share of anything.
            (
                Sglang,
                "sglang:token_usage{dp_rank=\"0\"} 0.75\nsglang:token_usage{dp_rank=\"1\"} 0.5",
                Some(0.75),
            ),
            (TensorRtLlm, "trtllm_kv_cache_utilization 0.375", Some(0.375)),
            (
                TensorRtLlm,
                "trtllm_kv_cache_host_utilization 0.5\ntrtllm_num_requests_running 1",
                None,
            ),
            // Removed in newer builds.
            (LlamaCpp, "llamacpp:kv_cache_usage_ratio 0.125", Some(0.125)),
            (LlamaCpp, "llamacpp:requests_processing 1", None),
        ],
    );
}

#[test]
fn tokens() {
    check(
        Q::PromptTokens,
        &[
            (
                Vllm,
                "vllm:prompt_tokens_total{engine=\"0\"} 10\nvllm:prompt_tokens_total{engine=\"1\"} 5",
                Some(15.0),
            ),
            (Sglang, "sglang:prompt_tokens_total 20", Some(20.0)),
            (TensorRtLlm, "trtllm_prompt_tokens_total 30", Some(30.0)),
            (LlamaCpp, "llamacpp:prompt_tokens_total 40", Some(40.0)),
            // Rates are no counters.
            (LlamaCpp, "llamacpp:prompt_tokens_seconds 40\nllamacpp:requests_processing 1", None),
        ],
    );
    check(
        Q::OutputTokens,
        &[
            (Vllm, "vllm:generation_tokens_total 10", Some(10.0)),
            // A histogram whose name ends like a counter's.
            (Vllm, "vllm:iteration_tokens_total_sum 7\nvllm:num_requests_running 1", None),
            (Sglang, "sglang:generation_tokens_total 20", Some(20.0)),
            (TensorRtLlm, "trtllm_generation_tokens_total 30", Some(30.0)),
            (LlamaCpp, "llamacpp:tokens_predicted_total 40", Some(40.0)),
        ],
    );
    check(
        Q::CachedTokens,
        &[
            (
                Vllm,
                "vllm:prompt_tokens_by_source_total{source=\"local_cache_hit\"} 8\nvllm:prompt_tokens_cached_total 9\nvllm:prefix_cache_hits_total 99",
                Some(8.0),
            ),
            (
                Vllm,
                "vllm:prompt_tokens_cached_total 9\nvllm:external_prefix_cache_hits_total 2\nvllm:prefix_cache_hits_total 99",
                Some(7.0),
            ),
            (Vllm, "vllm:prefix_cache_hits_total 6", Some(6.0)),
            (Vllm, "vllm:gpu_prefix_cache_hits_total 5", Some(5.0)),
            (Vllm, "vllm:gpu_prefix_cache_hit_rate 0.5\nvllm:num_requests_running 1", None),
            (
                Sglang,
                "sglang:cached_tokens_total{cache_source=\"device\"} 6\nsglang:cached_tokens_total{cache_source=\"host\"} 3",
                Some(6.0),
            ),
            (Sglang, "sglang:cached_tokens_total 6", Some(6.0)),
            (Sglang, "sglang:cache_hit_rate 0.0\nsglang:num_queue_reqs 1", None),
            (TensorRtLlm, "trtllm_prompt_cached_tokens_total 4", Some(4.0)),
            (
                TensorRtLlm,
                "trtllm_kv_cache_reused_blocks_total 4\ntrtllm_num_requests_running 1",
                None,
            ),
            (LlamaCpp, "llamacpp:prompt_tokens_total 40", None),
        ],
    );
    check(
        Q::ExternalCachedTokens,
        &[
            (
                Vllm,
                "vllm:prompt_tokens_by_source_total{source=\"external_kv_transfer\"} 8\nvllm:external_prefix_cache_hits_total 9",
                Some(8.0),
            ),
            (Vllm, "vllm:external_prefix_cache_hits_total 9", Some(9.0)),
            (
                Sglang,
                "sglang:cached_tokens_total{cache_source=\"host\"} 3\nsglang:cached_tokens_total{cache_source=\"storage\"} 2",
                Some(5.0),
            ),
            (TensorRtLlm, "trtllm_prompt_cached_tokens_total 4", None),
            (LlamaCpp, "llamacpp:prompt_tokens_total 40", None),
        ],
    );
    check(
        Q::Preemptions,
        &[
            (Vllm, "vllm:num_preemptions_total 3", Some(3.0)),
            (Sglang, "sglang:num_retracted_requests_total 2", Some(2.0)),
            // The gauge of those retracted now.
            (Sglang, "sglang:num_retracted_reqs 2\nsglang:num_queue_reqs 1", None),
            (TensorRtLlm, "trtllm_num_requests_running 1", None),
            (LlamaCpp, "llamacpp:requests_processing 1", None),
        ],
    );
}

#[test]
fn histograms() {
    check(
        Q::TtftSeconds,
        &[
            (Vllm, "vllm:time_to_first_token_seconds_sum 1", Some(1.0)),
            (Sglang, "sglang:time_to_first_token_seconds_sum 2", Some(2.0)),
            (TensorRtLlm, "trtllm_time_to_first_token_seconds_sum 3", Some(3.0)),
            (LlamaCpp, "llamacpp:requests_processing 1", None),
        ],
    );
    check(
        Q::TokenGapSeconds,
        &[
            (
                Vllm,
                "vllm:request_time_per_output_token_seconds_sum 1\nvllm:inter_token_latency_seconds_sum 9",
                Some(1.0),
            ),
            (Vllm, "vllm:inter_token_latency_seconds_sum 2", Some(2.0)),
            (Vllm, "vllm:time_per_output_token_seconds_sum 3", Some(3.0)),
            (Sglang, "sglang:inter_token_latency_seconds_sum 4", Some(4.0)),
            (TensorRtLlm, "trtllm_time_per_output_token_seconds_sum 5", Some(5.0)),
            (LlamaCpp, "llamacpp:requests_processing 1", None),
        ],
    );
    check(
        Q::E2eSeconds,
        &[
            (Vllm, "vllm:e2e_request_latency_seconds_sum 1", Some(1.0)),
            (Sglang, "sglang:e2e_request_latency_seconds_sum 2", Some(2.0)),
            (TensorRtLlm, "trtllm_e2e_request_latency_seconds_sum 3", Some(3.0)),
            (LlamaCpp, "llamacpp:requests_processing 1", None),
        ],
    );
    check(
        Q::QueueSeconds,
        &[
            (Vllm, "vllm:request_queue_time_seconds_sum 1", Some(1.0)),
            (Sglang, "sglang:queue_time_seconds_sum 2", Some(2.0)),
            (TensorRtLlm, "trtllm_request_queue_time_seconds_sum 3", Some(3.0)),
            (LlamaCpp, "llamacpp:requests_deferred 1", None),
        ],
    );
    check(
        Q::PrefillSeconds,
        &[
            (Vllm, "vllm:request_prefill_time_seconds_sum 1", Some(1.0)),
            (Sglang, "sglang:num_queue_reqs 1", None),
            (TensorRtLlm, "trtllm_request_prefill_time_seconds_sum 3", Some(3.0)),
            (LlamaCpp, "llamacpp:prompt_seconds_total 4", Some(4.0)),
        ],
    );
    check(
        Q::DecodeSeconds,
        &[
            (Vllm, "vllm:request_decode_time_seconds_sum 1", Some(1.0)),
            (TensorRtLlm, "trtllm_request_decode_time_seconds_sum 3", Some(3.0)),
            (LlamaCpp, "llamacpp:tokens_predicted_seconds_total 4", Some(4.0)),
        ],
    );
}

#[test]
fn requests_that_ended() {
    for (kind, page, expected) in [
        (
            Vllm,
            "vllm:request_success_total{finished_reason=\"stop\"} 3\nvllm:request_success_total{finished_reason=\"abort\"} 1",
            4.0,
        ),
        (Sglang, "sglang:num_requests_total 3\nsglang:num_aborted_requests_total 1", 4.0),
        (TensorRtLlm, "trtllm_request_success_total{finished_reason=\"length\"} 2", 2.0),
    ] {
        let snapshot = Snapshot::read(page, kind).expect("a page");
        assert_eq!(snapshot.finished_total(), Some(expected), "{page}");
    }
    let page = "trtllm_num_requests_completed_total 5";
    let snapshot = Snapshot::read(page, TensorRtLlm).expect("a page");
    assert_eq!(snapshot.get(Q::Requests), Some(5.0));
    let snapshot =
        Snapshot::read("llamacpp:n_decode_total 5\nllamacpp:requests_processing 1", LlamaCpp);
    let snapshot = snapshot.expect("a page");
    assert_eq!((snapshot.finished_total(), snapshot.get(Q::Requests)), (None, None));
}

/// Where prompt tokens came from, by the engine's own words.
#[test]
fn tokens_by_source() {
    for (kind, page, expected) in [
        (
            Vllm,
            "vllm:prompt_tokens_by_source_total{engine=\"0\",source=\"local_compute\"} 5\n\
             vllm:prompt_tokens_by_source_total{engine=\"1\",source=\"local_compute\"} 6\n\
             vllm:prompt_tokens_by_source_total{engine=\"0\",source=\"local_cache_hit\"} 7\n",
            r#"{"local_cache_hit":7,"local_compute":11}"#,
        ),
        (
            Sglang,
            "sglang:cached_tokens_total{cache_source=\"device\"} 6\n\
             sglang:cached_tokens_total{cache_source=\"host\"} 3\n\
             sglang:cached_tokens_total{cache_source=\"storage\"} 0\n",
            r#"{"device":6,"host":3,"storage":0}"#,
        ),
    ] {
        let snapshot = Snapshot::read(page, kind).expect("a page");
        let told = snapshot.by_source_growth(&Snapshot::zero(kind)).expect("by source");
        assert_eq!(serde_json::json!(told).to_string(), expected);
    }
    let snapshot = Snapshot::read("trtllm_prompt_tokens_total 5", TensorRtLlm).expect("a page");
    assert_eq!(snapshot.by_source_growth(&Snapshot::zero(TensorRtLlm)), None);
}

/// TensorRT-LLM before it put its name in front.
#[test]
fn names_without_a_prefix() {
    let page = "request_success_total{engine_type=\"undefined\",model_name=\"undefined\",finished_reason=\"stop\"} 3\n\
        e2e_request_latency_seconds_sum{model_name=\"undefined\"} 6\n\
        e2e_request_latency_seconds_count{model_name=\"undefined\"} 3\n\
        time_to_first_token_seconds_sum{model_name=\"undefined\"} 1.5\n\
        time_to_first_token_seconds_count{model_name=\"undefined\"} 3\n\
        time_per_output_token_seconds_sum{model_name=\"undefined\"} 0.3\n\
        request_queue_time_seconds_sum{model_name=\"undefined\"} 0.9\n";
    assert_eq!(detect(page), Ok(TensorRtLlm));
    let snapshot = Snapshot::read(page, TensorRtLlm).expect("a page");
    let told = [
        Q::Requests,
        Q::E2eSeconds,
        Q::TtftSeconds,
        Q::TtftCount,
        Q::TokenGapSeconds,
        Q::QueueSeconds,
    ];
    let told = told.map(|quantity| snapshot.get(quantity));
    assert_eq!(told, [3.0, 6.0, 1.5, 3.0, 0.3, 0.9].map(Some));
    assert_eq!(snapshot.finished_total(), Some(3.0));
    assert_eq!(snapshot.get(Q::PromptTokens), None);
    // The names are common ones: where any engine's own are, they are not taken for another's.
    assert_eq!(detect(&format!("vllm:num_requests_running 1\n{page}")), Ok(Vllm));
}
