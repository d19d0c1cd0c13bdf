//! Live content: the engine's own answers in the requests that follow.

use agentbench::api::{Api, parse_request};
use agentbench::clock::Clock;
use agentbench::replay::{ApiChoice, ContentMode, OnError};
use agentbench::trace::record::{RequestStatus, TurnRow, UnitRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};
use serde_json::{Value, json};

use super::recording::{Replayed, Running, config};
use super::upstream::{Manners, Step, Upstream, chat_delta, chat_end};

/// One thread whose requests have these bodies, a second apart.
fn recording(api: Api, bodies: &[Value]) -> (Run, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recorded");
    let manifest = Manifest::new(RunKind::Capture, "recorded", &Clock::start());
    let writer = RunWriter::create(&path, manifest).unwrap();
    let rows = writer.sender();
    for (turn, body) in bodies.iter().enumerate() {
        let body = body.to_string();
        let parsed = parse_request(api, body.as_bytes()).unwrap();
        let row = TurnRow {
            session_id: "s".into(),
            thread_id: "t".into(),
            request_id: format!("t{turn}"),
            turn: turn as u32,
            api: api.as_str().into(),
            request_time: 1e9 + turn as f64,
            response_end_time: Some(1e9 + turn as f64 + 0.99),
            isl: Some(100),
            osl: Some(3),
            unit_hashes: parsed.units.iter().map(|unit| unit.hash.hex()).collect(),
            body_template: parsed.template,
            ..TurnRow::default()
        };
        for unit in &parsed.units {
            assert!(rows.send_blocking(UnitRow::from(unit)));
        }
        assert!(rows.send_blocking(row));
    }
    writer.finish().unwrap();
    (Run::open(&path).unwrap(), dir)
}

async fn replay_live(api: Api, bodies: &[Value], upstream: &Upstream, sent: ApiChoice) -> Replayed {
    let (run, dir) = recording(api, bodies);
    let mut config = config(upstream.url());
    config.content = ContentMode::Live;
    config.api = sent;
    config.on_error = OnError::Continue;
    Running::start_run(run, dir, config).await.unwrap().wait().await
}

fn chat_call(index: u32, id: &str, name: &str, arguments: &str) -> Step {
    let call = json!({"index": index, "id": id, "type": "function",
        "function": {"name": name, "arguments": arguments}});
    Step::Send(chat_delta(&json!({"tool_calls": [call]}), Some(u64::from(index) + 1)))
}

fn recorded_messages() -> [Value; 3] {
    let user = json!({"role": "user", "content": "fix it"});
    let asked = json!({"role": "assistant", "content": [{"type": "text", "text": "Looking."},
        {"type": "tool_use", "id": "rec1", "name": "Bash", "input": {"command": "ls"}},
        {"type": "tool_use", "id": "rec2", "name": "Bash", "input": {"command": "pwd"}}]});
    let results = json!({"role": "user", "content": [
        {"type": "tool_result", "tool_use_id": "rec1", "content": "app.py"},
        {"type": "tool_result", "tool_use_id": "rec2", "content": "/repo"}]});
    let done = json!({"role": "assistant", "content": "Done."});
    let next = json!({"role": "user", "content": "thanks"});
    let body = |messages: &[&Value]| {
        json!({"model": "m", "max_tokens": 99, "stream": true, "system": "Be brief.",
            "tools": [{"name": "Bash", "input_schema": {"type": "object"}}], "messages": messages})
    };
    [
        body(&[&user]),
        body(&[&user, &asked, &results]),
        body(&[&user, &asked, &results, &done, &next]),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_engines_answers_are_the_history_of_the_next_request() {
    // Recorded in Messages, sent to Chat: first one call instead of two, then a call instead of text.
    let upstream = Upstream::start(Manners::default(), |body| {
        let n = body["messages"].as_array().unwrap().len();
        let mut steps = vec![Step::Send(chat_delta(&json!({"reasoning_content": "hm"}), Some(1)))];
        if n == 2 {
            steps.push(Step::Send(chat_delta(&json!({"content": "I look."}), Some(2))));
        }
        steps.push(chat_call(0, &format!("live{n}"), "Bash", r#"{"command":"cat x"}"#));
        steps.push(Step::Send(chat_end(3)));
        steps
    })
    .await;
    let replayed =
        replay_live(Api::Messages, &recorded_messages(), &upstream, ApiChoice::Chat).await;

    let asked = upstream.asked();
    assert!(asked.iter().all(|asked| asked.path == "/v1/chat/completions"));
    let live = |id: &str, content: Value| {
        json!({"role": "assistant", "content": content, "reasoning_content": "hm",
            "tool_calls": [{"id": id, "type": "function",
                "function": {"name": "Bash", "arguments": "{\"command\":\"cat x\"}"}}]})
    };
    let start = [
        json!({"role": "system", "content": "Be brief."}),
        json!({"role": "user", "content": "fix it"}),
        live("live2", "I look.".into()),
        json!({"role": "tool", "tool_call_id": "live2", "content": "app.py"}),
        json!({"role": "user", "content": [{"type": "text", "text": "/repo"}]}),
    ];
    assert_eq!(asked[1].body["messages"], json!(start));
    let mut third = start.to_vec();
    third.push(live("live5", Value::Null));
    let error = "Error: this call was not run; the recording has no result for it.";
    third.push(json!({"role": "tool", "tool_call_id": "live5", "content": error}));
    third.push(json!({"role": "user", "content": "thanks"}));
    assert_eq!(asked[2].body["messages"], json!(third));

    let columns = |id: &str| {
        let row = replayed.row(id);
        [
            row.live_answers,
            row.recorded_answers,
            row.live_results_as_text,
            row.live_calls_unanswered,
            row.live_results_of_other_tools,
            row.live_arguments_malformed,
        ]
        .map(Option::unwrap)
    };
    assert_eq!(columns("t0"), [0; 6]);
    assert_eq!(columns("t1"), [1, 0, 1, 0, 0, 0]);
    assert_eq!(columns("t2"), [2, 0, 0, 1, 0, 0]);
    let figures = replayed.summary.live.as_ref().unwrap();
    assert_eq!((figures.live_answers, figures.live_pct), (3, Some(100.0)));
    assert_eq!((figures.results_as_text, figures.calls_unanswered), (1, 1));
    assert_eq!(replayed.summary.settings.content, ContentMode::Live);
    let notes = replayed.summary.notes.join("\n");
    assert!(notes.contains("what was sent is not the recording (content live)"), "{notes}");
    assert!(notes.contains("1 calls had no recorded result"), "{notes}");
}

fn messages_call(id: &str) -> Vec<Step> {
    let event = |data: &Value| {
        Step::Send(format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap()))
    };
    vec![
        event(&json!({"type": "message_start", "message": {"model": "scripted",
            "usage": {"input_tokens": 100, "output_tokens": 0}}})),
        event(&json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "tool_use", "id": id, "name": "Bash", "input": {}}})),
        event(&json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": "{\"command\":\"id\"}"}})),
        event(&json!({"type": "message_delta", "delta": {"stop_reason": "tool_use"},
            "usage": {"output_tokens": 3}})),
        event(&json!({"type": "message_stop"})),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failed_request_its_recorded_answer_stands() {
    let upstream = Upstream::start(Manners::default(), |body| {
        match body["messages"].as_array().unwrap().len() {
            1 => vec![Step::Status(500, "{}")],
            n => messages_call(&format!("live{n}")),
        }
    })
    .await;
    let bodies = recorded_messages();
    let replayed = replay_live(Api::Messages, &bodies, &upstream, ApiChoice::Messages).await;

    assert_eq!(replayed.row("t0").status, RequestStatus::Failed);
    let asked = upstream.asked();
    assert_eq!(asked[1].body["messages"], bodies[1]["messages"]);
    let third = asked[2].body["messages"].as_array().unwrap();
    assert_eq!(third[..3], bodies[2]["messages"].as_array().unwrap()[..3]);
    assert_eq!(
        third[3..],
        [
            json!({"role": "assistant", "content": [
                {"type": "tool_use", "id": "live3", "name": "Bash", "input": {"command": "id"}}]}),
            json!({"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "live3", "is_error": true,
                    "content": "Error: this call was not run; the recording has no result for it."},
                {"type": "text", "text": "thanks"}]}),
        ]
    );
    let row = replayed.row("t2");
    assert_eq!((row.live_answers, row.recorded_answers), (Some(1), Some(1)));
    let notes = replayed.summary.notes.join("\n");
    assert!(notes.contains("2 answers of the histories stayed as recorded"), "{notes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_play_has_its_own_history() {
    let upstream = Upstream::start(Manners::default(), |body| {
        let who = body["messages"].as_array().unwrap().len();
        vec![
            Step::Send(chat_delta(&json!({"content": format!("from {who}")}), Some(1))),
            Step::Send(chat_end(3)),
        ]
    })
    .await;
    let user = json!({"role": "user", "content": "go"});
    let old = json!({"role": "assistant", "content": "old"});
    let bodies = [
        json!({"model": "m", "messages": [user]}),
        json!({"model": "m", "messages": [user, old, user]}),
    ];
    let (run, dir) = recording(Api::Chat, &bodies);
    let mut config = config(upstream.url());
    config.content = ContentMode::Live;
    config.trajectories = Some(3);
    let replayed = Running::start_run(run, dir, config).await.unwrap().wait().await;
    assert_eq!(replayed.requests.len(), 6);
    for asked in upstream.asked().iter().filter(|it| it.body["messages"][1].is_object()) {
        assert_eq!(asked.body["messages"][1]["content"], "from 1");
    }
    let live: u32 = replayed.requests.iter().map(|row| row.live_answers.unwrap()).sum();
    assert_eq!(live, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_content_has_no_live_columns() {
    let upstream =
        Upstream::start(Manners::default(), |_| super::upstream::messages_stream(3, 0)).await;
    let replayed =
        super::recording::replay(Api::Messages, &["a 0 0..1"], config(upstream.url())).await;
    assert_eq!(replayed.row("a0").live_answers, None);
    assert_eq!(replayed.summary.live, None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_api_without_a_history_is_refused() {
    let manners = Manners { completions: true, ..Manners::default() };
    let upstream = Upstream::start(manners, |_| vec![Step::Send(chat_end(3))]).await;
    let bodies = [json!({"model": "m", "prompt": "to be"})];
    let (run, dir) = recording(Api::Completions, &bodies);
    let mut config = config(upstream.url());
    config.content = ContentMode::Live;
    let Err(error) = Running::start_run(run, dir, config).await else { panic!("not refused") };
    assert!(error.to_string().contains("content live: requests to completions hold no"), "{error}");
}
