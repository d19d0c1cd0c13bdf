//! A synthetic recording, its waits made short, replayed on the embedded engine.

use agentbench::api::Api;
use agentbench::clock::Clock;
use agentbench::replay::{LengthForcing, OnError};
use agentbench::shutdown::Shutdown;
use agentbench::simulator::{Profile, Simulator, SimulatorConfig};
use agentbench::synthesize::{DEFAULT_START_NS, SynthesizeConfig, synthesize};
use agentbench::trace::record::{OutputLength, RequestStatus, TurnRow, UnitRow};
use agentbench::trace::{HostInfo, Manifest, Run, RunKind, RunWriter};

use super::recording::{Running, config, replay};

/// Times of the recording over times of the replay.
const FASTER: f64 = 1000.0;

/// Synthetic sessions with all waits shortened.
pub(super) fn synthetic(dir: &std::path::Path, sessions: u32) -> Run {
    let config = SynthesizeConfig {
        out: dir.join("synthetic"),
        run_id: String::new(),
        profile: "sample".into(),
        sessions,
        seed: 7,
        max_turns: Some(4),
        start_ns: DEFAULT_START_NS,
        argv: Vec::new(),
        host: HostInfo::default(),
    };
    synthesize(&config, &Shutdown::new(std::time::Duration::ZERO)).unwrap();
    let slow = Run::open(&config.out).unwrap();
    let fast = dir.join("fast");
    let mut manifest = Manifest::new(RunKind::Synthetic, "fast", &Clock::start());
    manifest.synthetic = true;
    let writer = RunWriter::create(&fast, manifest).unwrap();
    let rows = writer.sender();
    for unit in slow.rows::<UnitRow>().unwrap() {
        rows.send_blocking(unit.unwrap());
    }
    for turn in slow.rows::<TurnRow>().unwrap() {
        rows.send_blocking(faster(turn.unwrap()));
    }
    writer.finish().unwrap();
    Run::open(&fast).unwrap()
}

fn faster(turn: TurnRow) -> TurnRow {
    let scale = |time: f64| 1e9 + (time - DEFAULT_START_NS as f64 / 1e9) / FASTER;
    TurnRow {
        request_time: scale(turn.request_time),
        response_end_time: turn.response_end_time.map(scale),
        tool_exec_ms: turn.tool_exec_ms.map(|ms| ms / FASTER),
        residual_wait_ms: turn.residual_wait_ms.map(|ms| ms / FASTER),
        ..turn
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_synthetic_recording_gives_the_planned_tokens_on_the_embedded_engine() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = synthetic(dir.path(), 3);
    let turns: Vec<TurnRow> = recorded.rows().unwrap().map(Result::unwrap).collect();
    let profile = Profile::named("instant").unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let engine = Simulator::start(SimulatorConfig::new(listen, profile)).await.unwrap();

    let mut config = config(engine.url());
    config.agents = 2;
    config.on_error = OnError::Continue;
    let replayed = Running::start_run(recorded, dir, config).await.unwrap().wait().await;
    engine.stop().await;

    assert_eq!(replayed.requests.len(), turns.len());
    for row in &replayed.requests {
        assert_eq!(row.status, RequestStatus::Ok, "{:?}", row.error);
        assert_eq!(row.completion_tokens, row.target_output_tokens);
        assert_eq!(row.output_length, OutputLength::Ok);
    }
    // The engine's cache holds whole blocks of 16 tokens of what the thread sent before.
    for row in replayed.requests.iter().filter(|row| row.turn > 0) {
        let before = replayed
            .requests
            .iter()
            .find(|other| other.thread_id == row.thread_id && other.turn + 1 == row.turn)
            .and_then(|before| before.prompt_tokens)
            .unwrap();
        assert_eq!(row.cached_tokens, Some(before / 16 * 16), "{} {}", row.thread_id, row.turn);
    }
    let sum = |turns: &[TurnRow]| turns.iter().filter_map(|turn| turn.osl).sum::<u64>();
    assert_eq!(replayed.outcome.progress.completion_tokens, Some(sum(&turns)));
    assert!(replayed.trajectories.iter().all(|row| row.completed));
    let labels = &replayed.summary.labels;
    assert!(labels.simulated && labels.synthetic_trace);
    // This engine pins lengths on chat alone, as vLLM does.
    assert_eq!(labels.output_length, LengthForcing::Honoured);
    assert!(replayed.summary.settings.routes.iter().all(|route| route.sent == "chat"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn raw_prompts_go_to_completions_with_their_lengths_and_tokens_per_chunk() {
    let profile = Profile::named("instant").unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let engine = Simulator::start(SimulatorConfig::new(listen, profile)).await.unwrap();
    let turns = ["a 0 0..0.01 osl=9", "a 1 0.02..0.03 osl=40"];
    let replayed = replay(Api::Completions, &turns, config(engine.url())).await;
    engine.stop().await;
    let routes = &replayed.summary.settings.routes;
    assert_eq!(
        (routes[0].recorded.as_str(), routes[0].sent.as_str()),
        ("completions", "completions")
    );
    assert_eq!(routes[0].output_length, LengthForcing::Honoured);
    for (request, prompt, tokens) in
        [("a0", "Be brief.\ns a0", 9), ("a1", "Be brief.\ns a0\ndid\ns a1", 40)]
    {
        let row = replayed.row(request);
        assert_eq!(row.status, RequestStatus::Ok, "{:?}", row.error);
        // Four bytes are a token.
        assert_eq!(row.prompt_tokens, Some(prompt.len().div_ceil(4) as u64));
        assert_eq!(row.completion_tokens, Some(tokens));
        assert_eq!(row.output_length, OutputLength::Ok);
        assert_eq!(row.chunk_tokens.iter().map(|n| u64::from(*n)).sum::<u64>(), tokens);
    }
}
