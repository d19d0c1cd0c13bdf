//! Reading a metrics page: the budget is 0.1 ms for a page of 960 lines.
//!
//! The page has vLLM's families and histograms for as many labels as fill the lines.

use std::fmt::Write as _;
use std::hint::black_box;

use agentbench::engine::{EngineKind, Snapshot, detect};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};

const LINES: usize = 960;

const HISTOGRAMS: [&str; 15] = [
    "time_to_first_token_seconds",
    "inter_token_latency_seconds",
    "request_time_per_output_token_seconds",
    "e2e_request_latency_seconds",
    "request_queue_time_seconds",
    "request_inference_time_seconds",
    "request_prefill_time_seconds",
    "request_decode_time_seconds",
    "request_prompt_tokens",
    "request_generation_tokens",
    "request_prefill_kv_computed_tokens",
    "request_max_num_generation_tokens",
    "request_params_max_tokens",
    "request_params_n",
    "iteration_tokens_total",
];

const COUNTERS: [&str; 10] = [
    "prompt_tokens",
    "generation_tokens",
    "prompt_tokens_cached",
    "prefix_cache_queries",
    "prefix_cache_hits",
    "external_prefix_cache_queries",
    "external_prefix_cache_hits",
    "mm_cache_queries",
    "mm_cache_hits",
    "num_preemptions",
];

/// A page of two data-parallel engines, cut or filled to `LINES` lines.
fn page() -> String {
    let mut page = String::new();
    let labels =
        |engine: u32| format!("engine=\"{engine}\",model_name=\"org/a-model-of-some-size\"");
    let mut write = |line: std::fmt::Arguments<'_>| {
        page.write_fmt(line).expect("a string takes all");
        page.push('\n');
    };
    for name in ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"] {
        write(format_args!("# HELP vllm:{name} A gauge of the engine.\n# TYPE vllm:{name} gauge"));
        for engine in 0..2 {
            write(format_args!("vllm:{name}{{{}}} 0.4375", labels(engine)));
        }
    }
    for name in COUNTERS {
        write(format_args!(
            "# HELP vllm:{name}_total A counter.\n# TYPE vllm:{name}_total counter"
        ));
        for engine in 0..2 {
            write(format_args!("vllm:{name}_total{{{}}} 1.234567e+06", labels(engine)));
            write(format_args!("vllm:{name}_created{{{}}} 1.7959741860874e+09", labels(engine)));
        }
    }
    for engine in 0..2 {
        for source in ["local_compute", "local_cache_hit", "external_kv_transfer"] {
            write(format_args!(
                "vllm:prompt_tokens_by_source_total{{{},source=\"{source}\"}} 51234.0",
                labels(engine)
            ));
        }
        for reason in ["stop", "length", "abort", "error", "repetition"] {
            write(format_args!(
                "vllm:request_success_total{{{},finished_reason=\"{reason}\"}} 321.0",
                labels(engine)
            ));
        }
    }
    for name in HISTOGRAMS {
        write(format_args!(
            "# HELP vllm:{name} Histogram of requests.\n# TYPE vllm:{name} histogram"
        ));
        for engine in 0..2 {
            for bucket in 0..24 {
                let edge = f64::from(bucket) * 0.25 + 0.01;
                write(format_args!(
                    "vllm:{name}_bucket{{{},le=\"{edge}\"}} {bucket}01.0",
                    labels(engine)
                ));
            }
            write(format_args!("vllm:{name}_bucket{{{},le=\"+Inf\"}} 2600.0", labels(engine)));
            write(format_args!("vllm:{name}_count{{{}}} 2600.0", labels(engine)));
            write(format_args!("vllm:{name}_sum{{{}}} 51.73426055908", labels(engine)));
        }
    }
    let filler = (0..).map(|index| {
        format!("http_requests_total{{handler=\"/v1/messages\",method=\"POST\",status=\"{index}xx\"}} 1.0")
    });
    let lines: Vec<String> = page.lines().map(str::to_owned).chain(filler).take(LINES).collect();
    assert!(lines.iter().any(|line| line.contains("iteration_tokens_total_sum")), "all fits in");
    lines.join("\n") + "\n"
}

fn read_page(criterion: &mut Criterion) {
    let page = page();
    let mut group = criterion.benchmark_group("metrics page of 960 lines");
    group.throughput(Throughput::Bytes(page.len() as u64));
    group.bench_function("read", |bencher| {
        bencher.iter(|| Snapshot::read(black_box(&page), EngineKind::Vllm));
    });
    group.bench_function("detect", |bencher| bencher.iter(|| detect(black_box(&page))));
    group.finish();
}

criterion_group!(benches, read_page);
criterion_main!(benches);
