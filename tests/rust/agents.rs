//! Live agents on the embedded engine: requests that a caller makes are measured and recorded as one.

use std::time::Duration;

use agentbench::power::{PowerChoice, PowerConfig};
use agentbench::recording::{
    AgentRecording, AgentRecordingConfig, MetricsPage, POLL_INTERVAL, RecordingConfig,
};
use agentbench::replay::{
    AgentLoadConfig, AgentRequest, ApiChoice, TaskEnd, Timeouts, summarize_run,
};
use agentbench::simulator::{Profile, Simulator, SimulatorConfig};
use agentbench::trace::record::{
    Outcome, Phase, RequestRow, RequestStatus, TrajectoryRow, TurnRow,
};
use agentbench::trace::{HostInfo, Run, RunKind};
use serde_json::json;

fn config(dir: &std::path::Path, url: String) -> AgentRecordingConfig {
    AgentRecordingConfig {
        recording: RecordingConfig {
            out: dir.join("run"),
            resume: false,
            run_id: "run".to_owned(),
            argv: Vec::new(),
            host: HostInfo::default(),
            metrics: MetricsPage::Beside,
            poll_interval: POLL_INTERVAL,
            power: PowerConfig::new(PowerChoice::Off),
            settings: serde_json::Map::new(),
        },
        load: AgentLoadConfig {
            url,
            api_key: None,
            model: None,
            api: ApiChoice::Auto,
            timeouts: Timeouts::default(),
            agents: 2,
            tasks: 2,
        },
        dataset: "two tasks".to_owned(),
    }
}

fn request(task: &str, agent: u32, turn: u32, max_tokens: u64) -> AgentRequest {
    let mut messages = vec![json!({"role": "user", "content": format!("do {task}")})];
    for _ in 0..turn {
        messages.push(json!({"role": "assistant", "content": "I look."}));
        messages.push(json!({"role": "user", "content": "Go on."}));
    }
    let body = json!({"model": "agentbench-sim", "messages": messages, "max_tokens": max_tokens,
        "min_tokens": max_tokens, "ignore_eos": true, "stream": true,
        "stream_options": {"include_usage": true, "continuous_usage_stats": true}});
    AgentRequest {
        trajectory_id: task.to_owned(),
        agent_id: agent,
        invocation: 0,
        turn,
        request_id: String::new(),
        body: body.to_string().into(),
        ready_for: Duration::from_millis(5),
        tool_time_ms: (turn > 0).then_some(40.0),
    }
}

fn end(task: &str, agent_id: u32, check_passed: bool) -> TaskEnd {
    TaskEnd {
        trajectory_id: task.to_owned(),
        agent_id,
        task_id: task.to_owned(),
        outcome: "done".to_owned(),
        claimed: true,
        check_passed: Some(check_passed),
        steps: 2,
        ..TaskEnd::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_measured_and_recorded_as_one() {
    let dir = tempfile::tempdir().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let profile = Profile::named("instant").unwrap();
    let engine = Simulator::start(SimulatorConfig::new(listen, profile)).await.unwrap();
    let recording = AgentRecording::start(config(dir.path(), engine.url())).await.unwrap();
    let sender = recording.sender().clone();
    assert_eq!(sender.load().api().as_str(), "chat");
    for (agent, task) in [(0, "a"), (1, "b")] {
        sender.load().task_started(task, agent);
        for turn in 0..2 {
            let answer = sender.send(request(task, agent, turn, 6)).await.unwrap();
            assert_eq!(answer.row.status, RequestStatus::Ok, "{:?}", answer.row.error);
            assert_eq!(answer.row.completion_tokens, Some(6));
        }
        sender.task_ended(end(task, agent, agent == 0)).await.unwrap();
        sender.load().nothing_left(agent);
    }
    sender.load().all_done();
    let (manifest, summary) = recording.finish().await.unwrap();
    engine.stop().await;

    assert_eq!(manifest.kind, RunKind::Agent);
    assert_eq!((manifest.counts["requests"], manifest.counts["turns"]), (4, 4));
    let run = Run::open(&dir.path().join("run")).unwrap();
    let requests: Vec<RequestRow> = run.rows().unwrap().map(Result::unwrap).collect();
    let turns: Vec<TurnRow> = run.rows().unwrap().map(Result::unwrap).collect();
    assert_eq!((requests.len(), turns.len()), (4, 4));
    for row in &requests {
        let turn = turns.iter().find(|turn| turn.request_id == row.source_request_id).unwrap();
        assert_eq!(turn.session_id, row.session_id);
        assert_eq!((turn.ttft_ms, turn.e2e_ms), (row.ttft_ms, row.e2e_ms));
        assert_eq!((turn.isl, turn.osl), (row.prompt_tokens, row.completion_tokens));
        assert_eq!(turn.engine.as_deref(), Some(engine_label(&manifest)));
        assert_eq!(row.ttft_visible_ms, row.ttft_ms);
        assert!(row.lag_ms >= 5.0 && row.finish_reason.as_deref() == Some("length"));
        assert_eq!(row.tool_time_ms, (row.turn > 0).then_some(40.0));
        assert_eq!(row.chunk_tokens.iter().sum::<u32>(), 6);
    }
    // The second turn continues the first one's thread.
    assert!(turns.iter().filter(|turn| turn.turn == 1).all(|turn| turn.n_shared_units > 0));
    let phases: Vec<Phase> = requests.iter().map(|row| row.phase).collect();
    assert_eq!(phases, [Phase::Ramp, Phase::Ramp, Phase::Tail, Phase::Tail]);
    let tasks: Vec<TrajectoryRow> = run.rows().unwrap().map(Result::unwrap).collect();
    assert_eq!(tasks.first().map(|task| task.tool_wait_ms), Some(40.0));
    assert!(tasks.iter().all(|task| task.n_sent == 2 && task.completed && task.end_ms.is_some()));
    let agent = summary.agent.clone().unwrap();
    assert_eq!((agent.tasks, agent.completed, agent.claimed), (2, 1, 2));
    assert_eq!(summary.failed_because, None);
    assert!(summary.notes.iter().all(|note| !note.contains("no steady state")));
    assert_eq!(summarize_run(&run).unwrap(), summary);
}

fn engine_label(manifest: &agentbench::trace::Manifest) -> &str {
    manifest.engine.as_ref().map_or("", |engine| engine.url.as_str())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_caller_that_stops_waiting_leaves_a_row_before_its_task_ends() {
    let dir = tempfile::tempdir().unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    // A token takes milliseconds: a thousand of them are cut off.
    let profile = Profile::named("laptop").unwrap();
    let engine = Simulator::start(SimulatorConfig::new(listen, profile)).await.unwrap();
    let recording = AgentRecording::start(config(dir.path(), engine.url())).await.unwrap();
    let sender = recording.sender().clone();
    sender.load().task_started("a", 0);
    let sending = sender.send(request("a", 0, 0, 4000));
    assert!(tokio::time::timeout(Duration::from_millis(400), sending).await.is_err());
    sender
        .task_ended(TaskEnd { outcome: "time_limit".to_owned(), ..end("a", 0, false) })
        .await
        .unwrap();
    let (manifest, summary) = recording.finish().await.unwrap();
    engine.stop().await;

    assert_eq!(manifest.counts["client_cancelled"], 1);
    let run = Run::open(&dir.path().join("run")).unwrap();
    let request: RequestRow = run.rows().unwrap().next().unwrap().unwrap();
    assert_eq!(request.status, RequestStatus::Cancelled);
    let turn: TurnRow = run.rows().unwrap().next().unwrap().unwrap();
    assert_eq!((turn.outcome, turn.e2e_ms), (Outcome::ClientCancelled, request.e2e_ms));
    let task: TrajectoryRow = run.rows().unwrap().next().unwrap().unwrap();
    assert_eq!((task.n_sent, task.completed), (1, false));
    assert_eq!(task.outcome.as_deref(), Some("time_limit"));
    assert_eq!(summary.requests.cancelled, 1);
    assert_eq!(summary.failed_because.as_deref(), Some("none of 1 checked tasks was completed"));
}
