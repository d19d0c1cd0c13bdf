// Values are exact by construction.
#![allow(clippy::float_cmp)]

use super::*;
use crate::replay::part_figures::WithFailures;
use crate::replay::settings::ApiRoute;
use crate::replay::window::Window;
use crate::trace::record::OutputLength;

fn row(sent_at_ms: f64, phase: Phase) -> RequestRow {
    RequestRow {
        sent_at_ms,
        phase,
        ttft_ms: Some(100.0),
        last_token_ms: Some(180.0),
        e2e_ms: Some(190.0),
        tpot_ms: Some(10.0),
        chunk_gap_ms: vec![40.0, 40.0],
        chunk_tokens: vec![1, 4, 4],
        prompt_tokens: Some(1000),
        completion_tokens: Some(9),
        cached_tokens: Some(600),
        output_length: OutputLength::Ok,
        attempts: 1,
        ..RequestRow::default()
    }
}

fn failed(sent_at_ms: f64, phase: Phase, error: &str) -> RequestRow {
    RequestRow {
        status: RequestStatus::Failed,
        error: Some(error.into()),
        output_length: OutputLength::Unverified,
        ..row(sent_at_ms, phase)
    }
}

fn settings() -> ReplaySettings {
    let route = |sent: &str, output_length| ApiRoute {
        recorded: "messages".into(),
        sent: sent.into(),
        output_length,
        reason: String::new(),
    };
    ReplaySettings {
        agents: 2,
        routes: vec![
            route("messages", LengthForcing::Honoured),
            route("chat", LengthForcing::Ignored),
        ],
        window: Window {
            ramp_end_ms: Some(500.0),
            steady_start_ms: Some(1000.0),
            steady_end_ms: Some(3000.0),
        },
        clock_anchor_ns: 1_000_000_000_000,
        ..ReplaySettings::default()
    }
}

#[test]
fn the_steady_state_and_the_whole_run_have_their_own_figures() {
    let requests = [
        row(0.0, Phase::Ramp),
        row(600.0, Phase::Warmup),
        row(1500.0, Phase::Steady),
        RequestRow { ttft_ms: Some(300.0), ..row(2000.0, Phase::Steady) },
        failed(2500.0, Phase::Steady, "http 500: no"),
        row(3810.0, Phase::Tail),
    ];
    let summary = summarize(&requests, &[], &[], &settings());
    let steady = &summary.steady;
    assert_eq!(steady.duration_s, Some(2.0));
    assert_eq!((steady.requests.sent, steady.requests.ok, steady.requests.failed), (3, 2, 1));
    assert_eq!(steady.requests_per_s, Some(1.0));
    assert_eq!(steady.input_tokens_per_s, Some(1000.0));
    assert_eq!(steady.cached_tokens_per_s, Some(600.0));
    assert_eq!(steady.new_input_tokens_per_s, Some(400.0));
    assert_eq!(steady.output_tokens_per_s, Some(9.0));
    let ttft = steady.fields["ttft_ms"];
    assert_eq!((ttft.n, ttft.mean, ttft.p50, ttft.p99), (2, 200.0, 200.0, 298.0));
    assert_eq!(summary.whole.duration_s, Some(4.0));
    assert_eq!(summary.whole.requests.sent, 6);
    assert_eq!(summary.whole.output_tokens_per_s, Some(45.0 / 4.0));
    let phases = [("ramp", 1), ("steady", 3), ("tail", 1), ("warmup", 1)];
    assert_eq!(summary.phases, phases.map(|(name, n)| (name.to_owned(), n)).into());
}

#[test]
fn a_failed_request_is_the_worst_of_what_a_service_level_looks_at() {
    let held = |failures: usize| {
        let mut requests: Vec<RequestRow> =
            (0..20_u32).map(|at| row(f64::from(at), Phase::Steady)).collect();
        requests.extend((0..failures).map(|_| failed(0.0, Phase::Steady, "http 500: no")));
        let steady = summarize(&requests, &[], &[], &settings()).steady;
        let held = steady.with_failures.expect("computed");
        (held.ttft_p95_ms, held.output_tokens_per_s_p25, steady.fields["ttft_ms"].p95)
    };
    assert_eq!(held(0), (Some(100.0), Some(100.0), 100.0));
    // One of 21: the rank of the 95th percentile is the last that was answered.
    assert_eq!(held(1), (Some(100.0), Some(100.0), 100.0));
    assert_eq!(held(2), (None, Some(100.0), 100.0));
    assert_eq!(held(20), (None, Some(0.0), 100.0));
    let summary = summarize(&[row(0.0, Phase::Tail)], &[], &[], &settings());
    assert_eq!(summary.steady.with_failures, Some(WithFailures::default()));
}

#[test]
fn several_tokens_in_a_chunk_make_chunk_gap_and_itl_differ() {
    let summary = summarize(&[row(0.0, Phase::Steady)], &[], &[], &settings());
    let fields = &summary.steady.fields;
    assert_eq!((fields["chunk_gap_ms"].n, fields["chunk_gap_ms"].p50), (2, 40.0));
    assert_eq!((fields["itl_per_token_ms"].n, fields["itl_per_token_ms"].p50), (8, 10.0));
    assert_eq!(fields["itl_ms"].mean, 10.0);
    assert_eq!(fields["output_tokens_per_s"].mean, 100.0);
    assert_eq!(fields["chunk_tokens"].mean, 3.0);
}

#[test]
fn every_numeric_column_of_a_request_is_a_field() {
    let mut whole = row(0.0, Phase::Steady);
    whole.tool_wait_ms = Some(1.0);
    whole.planned_prompt_tokens = Some(1000);
    whole.planned_cached_tokens = Some(600);
    whole.target_output_tokens = Some(9);
    let fields = summarize(&[whole.clone()], &[], &[], &settings()).steady.fields;
    let identity = ["agent_id", "invocation", "turn", "attempt_log", "http_status", "level"];
    let columns = serde_json::to_value(&whole).unwrap();
    for (name, value) in columns.as_object().unwrap() {
        let numeric = value.is_number() || value.is_array();
        let expected = numeric && !identity.contains(&name.as_str());
        assert_eq!(fields.contains_key(name), expected, "{name}");
    }
}

#[test]
fn a_rate_is_null_where_a_request_does_not_tell() {
    let silent = RequestRow { cached_tokens: None, ..row(1600.0, Phase::Steady) };
    let summary = summarize(&[row(1500.0, Phase::Steady), silent], &[], &[], &settings());
    assert_eq!(summary.steady.cached_tokens_per_s, None);
    assert_eq!(summary.steady.new_input_tokens_per_s, None);
    assert_eq!(summary.steady.input_tokens_per_s, Some(1000.0));
    assert_eq!(summary.steady.fields["cached_tokens"].n, 1);
}

#[test]
fn failures_are_counted_by_kind_and_give_no_latency() {
    let requests = [
        failed(0.0, Phase::Steady, "http 500: first"),
        failed(1.0, Phase::Steady, "connect: refused"),
        failed(2.0, Phase::Steady, "http 500: second"),
        RequestRow { status: RequestStatus::Cancelled, ..row(3.0, Phase::Steady) },
    ];
    let summary = summarize(&requests, &[], &[], &settings());
    let errors: Vec<(&str, u64, &str)> = summary
        .errors
        .iter()
        .map(|error| (error.kind.as_str(), error.n, error.example.as_str()))
        .collect();
    assert_eq!(errors, [("http 500", 2, "http 500: first"), ("connect", 1, "connect: refused")]);
    assert_eq!((summary.requests.failed, summary.requests.cancelled), (3, 1));
    assert!(summary.steady.fields.is_empty());
    assert_eq!(summary.output_length, LengthCounts::default());
}

#[test]
fn labels_and_notes_say_what_a_reader_must_know() {
    let mut settings = settings();
    settings.simulated = true;
    settings.notes = vec!["kept".into()];
    let short = RequestRow { output_length: OutputLength::Short, ..row(0.0, Phase::Tail) };
    let summary = summarize(&[short], &[], &[], &settings);
    assert!(summary.labels.simulated && summary.labels.converted);
    assert_eq!(summary.labels.output_length, LengthForcing::Ignored);
    assert_eq!(summary.notes[0], "kept");
    for part in ["simulated", "1 outputs are shorter", "no steady state"] {
        assert!(summary.notes.iter().any(|note| note.contains(part)), "{part}");
    }
}

#[test]
fn trajectories_are_counted_and_an_empty_run_is_empty() {
    let completed = TrajectoryRow { completed: true, ..TrajectoryRow::default() };
    let summary =
        summarize(&[], &[completed.clone(), completed, TrajectoryRow::default()], &[], &settings());
    let expected = TrajectoryCounts { started: 3, completed: 2, incomplete: 1 };
    assert_eq!(summary.trajectories, expected);
    let nothing = Some(WithFailures::default());
    assert_eq!(summary.whole, PartFigures { with_failures: nothing, ..PartFigures::default() });
    assert_eq!(summary.engine, None);
}

#[test]
fn the_engines_counters_are_read_over_the_span_of_the_requests() {
    // The run clock's anchor is 1000 s; requests run from 1001.5 s to 1001.69 s.
    let sample = |ts: f64, prompt: f64, cached: f64| EngineSampleRow {
        ts,
        engine: "e".into(),
        prompt_tokens_total: Some(prompt),
        cached_tokens_total: Some(cached),
        ..EngineSampleRow::default()
    };
    let samples =
        [sample(1000.0, 7.0, 1.0), sample(1001.4, 17.0, 2.0), sample(1001.8, 1017.0, 602.0)];
    let summary = summarize(&[row(1500.0, Phase::Steady)], &[], &samples, &settings());
    assert_eq!(summary.engine.as_ref().unwrap().prompt_tokens, Some(1000.0));
    assert_eq!(summary.prefix_hits.engine_pct, Some(60.0));
    assert_eq!(summary.prefix_hits.usage_pct, Some(60.0));
}

#[test]
fn the_summary_survives_its_json() {
    let summary = summarize(&[row(1500.0, Phase::Steady)], &[], &[], &settings());
    let json = serde_json::to_string(&summary).unwrap();
    assert_eq!(serde_json::from_str::<Summary>(&json).unwrap(), summary);
}
