//! Capacity searches against the embedded engine, whose limit follows from its cost model: so many
//! sequences in a step, and whoever comes beyond waits for a place.

use std::path::Path;
use std::time::Duration;

use agentbench::api::Api;
use agentbench::power::{PowerChoice, PowerConfig};
use agentbench::recording::{
    CapacityRecording, CapacityRecordingConfig, MetricsPage, PRESETS, RecordingConfig, SearchConfig,
};
use agentbench::replay::client_figures::{Watched, client_figures, with_client};
use agentbench::replay::levels::{Level, LevelMinimum, judge};
use agentbench::replay::slo::Condition;
use agentbench::replay::window::Window;
use agentbench::replay::{Summary, summarize_run};
use agentbench::simulator::{Profile, Simulator, SimulatorConfig, Timing};
use agentbench::trace::record::{ClientSampleRow, LevelRow, Phase, RequestRow, TrajectoryRow};
use agentbench::trace::{HostInfo, Run, RunKind};

use crate::replay::recording::{config, write_recording};

/// Places in a step of the engine below.
const PLACES: u32 = 4;

/// Steps of 10 ms whatever is in them, and four places: at 40 tokens a request, one agent more than
/// there are places makes requests wait 100 ms in the mean.
async fn engine() -> Simulator {
    let profile = Profile {
        timing: Timing {
            step_us: 10_000.0,
            prefill_token_us: 0.0,
            decode_sequence_us: 0.0,
            kv_token_us: 0.0,
        },
        max_num_seqs: PLACES,
        ..Profile::named("instant").unwrap()
    };
    let listen = "127.0.0.1:0".parse().unwrap();
    Simulator::start(SimulatorConfig::new(listen, profile)).await.unwrap()
}

fn search_config(
    dir: &Path,
    url: String,
    slo: &[&str],
    max_agents: u32,
) -> CapacityRecordingConfig {
    let recorded = dir.join("recorded");
    write_recording(
        &recorded,
        Api::Chat,
        &[
            "a 0 0..1 osl=40",
            "a 1 1..2 wait=0 osl=40",
            "b 0 0..1 osl=40 session=t",
            "b 1 1..2 wait=0 osl=40 session=t",
        ],
    );
    CapacityRecordingConfig {
        recording: RecordingConfig {
            resume: false,
            out: dir.join("searched"),
            run_id: "searched".into(),
            argv: Vec::new(),
            host: HostInfo::default(),
            metrics: MetricsPage::Beside,
            poll_interval: Duration::from_millis(100),
            power: PowerConfig::new(PowerChoice::Off),
            settings: serde_json::Map::new(),
        },
        trace: recorded,
        replay: config(url),
        search: SearchConfig {
            slo: slo.iter().map(|text| (*text).to_owned()).collect(),
            tier: None,
            max_agents,
            resolution: 1,
            preset: PRESETS[0],
            minimum: LevelMinimum {
                trajectories: 2,
                trajectories_per_agent: 1,
                requests_per_agent: 3,
                steady_s: 0.5,
            },
            level_time: Duration::from_secs(60),
            gpu_count: Some(2),
        },
    }
}

struct Searched {
    levels: Vec<LevelRow>,
    requests: Vec<RequestRow>,
    trajectories: Vec<TrajectoryRow>,
    client: Vec<ClientSampleRow>,
    summary: Summary,
    run: Run,
}

async fn search(dir: &Path, slo: &[&str], max_agents: u32) -> Searched {
    search_for(dir, slo, max_agents, 0.5).await
}

/// A search whose levels are steady for so long at least.
async fn search_for(dir: &Path, slo: &[&str], max_agents: u32, steady_s: f64) -> Searched {
    let engine = engine().await;
    let mut config = search_config(dir, engine.url(), slo, max_agents);
    config.search.minimum.steady_s = steady_s;
    let recording = CapacityRecording::start(config).await.unwrap();
    let (_, written) = recording.finish().await.unwrap();
    engine.stop().await;
    let run = Run::open(&dir.join("searched")).unwrap();
    let summary = summarize_run(&run).unwrap();
    assert!(dir.join("searched/summary.json").exists());
    assert_eq!(written, summary);
    let searched = Searched {
        levels: run.rows().unwrap().map(Result::unwrap).collect(),
        requests: run.rows().unwrap().map(Result::unwrap).collect(),
        trajectories: run.rows().unwrap().map(Result::unwrap).collect(),
        client: run.rows().unwrap().map(Result::unwrap).collect(),
        summary,
        run,
    };
    check_levels(&searched, slo);
    searched
}

/// Every number of `levels` follows from `requests` and `trajectories`.
fn check_levels(searched: &Searched, slo: &[&str]) {
    let conditions: Vec<Condition> = slo.iter().map(|text| text.parse().unwrap()).collect();
    let capacity = searched.summary.capacity.as_ref().unwrap();
    assert_eq!(capacity.curve, searched.levels);
    for row in &searched.levels {
        let of_level = |level: Option<u32>| level == Some(row.level);
        let requests: Vec<RequestRow> =
            searched.requests.iter().filter(|request| of_level(request.level)).cloned().collect();
        let trajectories: Vec<TrajectoryRow> = searched
            .trajectories
            .iter()
            .filter(|trajectory| of_level(trajectory.level))
            .cloned()
            .collect();
        let window =
            Window { ramp_end_ms: None, steady_start_ms: row.start_ms, steady_end_ms: row.end_ms };
        let level = Level {
            level: row.level,
            agents: row.agents,
            window,
            requests: &requests,
            trajectories: &trajectories,
        };
        let again = judge(&level, &conditions, &capacity.settings.minimum);
        let samples: Vec<ClientSampleRow> =
            searched.client.iter().filter(|sample| of_level(sample.level)).cloned().collect();
        let settings = &searched.summary.settings;
        let client = client_figures(&Watched {
            samples: &samples,
            requests: &requests,
            trajectories: &trajectories,
            window,
            anchor_ns: settings.clock_anchor_ns,
            engine_in_process: settings.engine_in_process,
        });
        let again = with_client(again, &client);
        let again = LevelRow {
            cache_reset: row.cache_reset,
            mean_power_w: row.mean_power_w,
            energy_j: row.energy_j,
            power_reason: row.power_reason.clone(),
            ..again
        };
        assert_eq!(again, *row);

        let agents: std::collections::BTreeSet<u32> =
            requests.iter().map(|request| request.agent_id).collect();
        assert_eq!(agents.len(), row.agents as usize);
        let steady: Vec<&RequestRow> =
            requests.iter().filter(|request| request.phase == Phase::Steady).collect();
        assert_eq!(steady.len() as u64, row.n_requests);
        let (start, end) = (row.start_ms.unwrap(), row.end_ms.unwrap());
        let tokens: u64 = steady.iter().map(|request| request.completion_tokens.unwrap()).sum();
        let rate = tokens as f64 / ((end - start) / 1e3);
        assert!((row.output_tokens_per_s.unwrap() - rate).abs() < 1e-6);
        let ttfts = steady.iter().map(|request| request.ttft_ms.unwrap());
        let mean = ttfts.sum::<f64>() / steady.len() as f64;
        let values: serde_json::Value = serde_json::from_str(&row.values).unwrap();
        assert!((values[slo[0]].as_f64().unwrap() - mean).abs() < 1e-6);
    }
}

fn tried(searched: &Searched) -> Vec<(u32, &str)> {
    searched.levels.iter().map(|row| (row.agents, row.verdict.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_limit_of_the_engines_places_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let searched = search(dir.path(), &["ttft.mean<=70ms", "errors<=0"], 16).await;
    let expected =
        [(2, "pass"), (4, "pass"), (8, "fail"), (6, "fail"), (5, "fail"), (4, "pass"), (5, "fail")];
    assert_eq!(tried(&searched), expected);
    let capacity = searched.summary.capacity.as_ref().unwrap();
    assert_eq!((capacity.max_agents, capacity.saturated), (Some(PLACES), true));
    assert_eq!(capacity.binding_condition.as_deref(), Some("ttft.mean<=70ms"));
    assert_eq!(capacity.agents_per_gpu.value, Some(2.0));
    assert_eq!(capacity.agents_per_mw.value, None);
    // Null where levels are too short to judge, as on a machine that is fast.
    assert_ne!(capacity.client_limited, Some(true));
    assert_eq!(searched.summary.settings.engine_in_process, Some(true));
    // The figures beside the table are those of the answer's last try.
    let level = &searched.levels[5];
    assert_eq!(capacity.level, Some(5));
    assert_eq!(searched.summary.agents, PLACES);
    assert_eq!(searched.summary.steady.requests.sent, level.n_requests);
    assert_eq!(searched.summary.steady.output_tokens_per_s, level.output_tokens_per_s);
    assert_eq!(searched.run.manifest().kind, RunKind::Capacity);
    assert!(searched.summary.labels.simulated);
    assert!(searched.levels.iter().all(|row| row.cache_reset));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_never_fails_has_no_limit() {
    let dir = tempfile::tempdir().unwrap();
    let searched = search(dir.path(), &["ttft.mean<=100s"], 3).await;
    assert_eq!(tried(&searched), [(2, "pass"), (3, "pass"), (3, "pass")]);
    let capacity = searched.summary.capacity.as_ref().unwrap();
    assert_eq!((capacity.max_agents, capacity.saturated), (Some(3), false));
    assert!(capacity.result.starts_with("not saturated"), "{}", capacity.result);
    assert_eq!(capacity.binding_condition, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_that_fails_one_agent_serves_none() {
    let dir = tempfile::tempdir().unwrap();
    // A step takes 10 ms.
    let searched = search(dir.path(), &["ttft.mean<=9ms"], 16).await;
    assert_eq!(tried(&searched), [(2, "fail"), (1, "fail"), (1, "fail")]);
    let capacity = searched.summary.capacity.as_ref().unwrap();
    assert_eq!((capacity.max_agents, capacity.saturated), (Some(0), true));
    assert_eq!(capacity.agents_per_gpu.value, Some(0.0));
    assert_eq!(capacity.output_tokens_per_s_per_gpu.value, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_search_by_a_limited_client_has_no_result() {
    let dir = tempfile::tempdir().unwrap();
    let stalls = crate::replay::watching::stall_the_runtime();
    let searched = search_for(dir.path(), &["ttft.mean<=100s"], 16, 3.0).await;
    stalls.abort();
    assert_eq!(tried(&searched), [(2, "invalid")]);
    let reason = searched.levels[0].reason.as_deref().unwrap();
    assert!(reason.starts_with("client-limited: timers late by p90"), "{reason}");
    let capacity = searched.summary.capacity.as_ref().unwrap();
    assert_eq!((capacity.max_agents, capacity.client_limited), (None, Some(true)));
    assert_eq!(capacity.agents_per_gpu.value, None);
    assert!(capacity.result.starts_with("no result: at 2 agents"), "{}", capacity.result);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_search_that_is_told_to_stop_keeps_the_levels_it_judged() {
    let dir = tempfile::tempdir().unwrap();
    let engine = engine().await;
    let config = search_config(dir.path(), engine.url(), &["ttft.mean<=100s"], 64);
    let recording = CapacityRecording::start(config).await.unwrap();
    while recording.progress().levels.is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    recording.shutdown().cancel();
    let (manifest, summary) = recording.finish().await.unwrap();
    engine.stop().await;
    assert_eq!(manifest.settings["capacity"]["interrupted"], true);
    let capacity = summary.capacity.unwrap();
    assert!(!capacity.curve.is_empty() && !capacity.saturated);
    assert!(capacity.result.contains("interrupted"), "{}", capacity.result);
}

#[tokio::test]
async fn what_cannot_be_searched_is_refused_before_anything_is_made() {
    let dir = tempfile::tempdir().unwrap();
    let base = search_config(dir.path(), "http://127.0.0.1:1".into(), &[], 4);
    let check = async |change: &dyn Fn(&mut SearchConfig), text: &str| {
        let mut config = base.clone();
        change(&mut config.search);
        let error = CapacityRecording::start(config).await.unwrap_err().to_string();
        assert!(error.contains(text), "{error}");
        assert!(!dir.path().join("searched").exists());
    };
    check(&|_| {}, "needs a service level").await;
    check(&|search| search.slo = vec!["ttft<=1s".into()], "statistic is missing").await;
    check(&|search| search.slo = vec!["queue.p95<=1s".into()], "engine's mean").await;
    check(&|search| search.tier = Some("gold".into()), "no tier").await;
    check(
        &|search| {
            search.slo = vec!["errors<=0".into()];
            search.gpu_count = Some(0);
        },
        "0 GPUs",
    )
    .await;
}
