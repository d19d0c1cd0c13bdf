//! Turns, units, threads and tool calls of exchanges, each with its right values.

use std::collections::HashSet;

use agentbench::trace::record::{Outcome, TurnKind, UnitRow};
use serde_json::{Value, json};

use super::{Rows, TASK, body_of, message_events, messages_body, play};
use crate::wire::{Peer, Setup};

#[tokio::test]
async fn a_streamed_turn_becomes_a_row() {
    let setup = Setup::start().await;
    let body = messages_body(&[TASK]);
    let path = "/v1/messages?beta=true&api_key=s3cret";
    let headers = "User-Agent: claude-cli/2.1.332 (external)\r\nX-Api-Key: s3cret\r\n\
                   Authorization: Bearer s3cret\r\nCookie: s3cret\r\n";
    let events = message_events("hello", Some(("toolu_1", "Bash")));
    play(&setup, path, headers, &body, &events).await;
    setup.recorded(1).await;
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert_eq!((row.run_id.as_str(), row.api.as_str(), row.turn), ("test-run", "messages", 0));
    assert_eq!((row.agent.as_deref(), row.kind), (Some("claude-code"), TurnKind::Main));
    assert_eq!((row.model.as_deref(), row.stream), (Some("tiny"), true));
    assert_eq!(row.path, "/v1/messages?beta=true&api_key=***");
    assert_eq!((row.n_messages, row.n_tools, row.n_shared_units), (1, 1, 0));
    assert_eq!(row.unit_hashes.len(), 3);
    assert_eq!((row.outcome, row.http_status, &row.error), (Outcome::Ok, Some(200), &None));
    assert_eq!(row.stop_reason.as_deref(), Some("tool_use"));
    assert_eq!(
        (row.isl, row.isl_cached, row.isl_new, row.osl),
        (Some(30), Some(20), Some(10), Some(7))
    );
    assert_eq!((row.isl_cache_write, row.reasoning_tokens), (Some(0), None));
    assert_eq!(row.osl_text, "hello\n{\"name\":\"Bash\",\"arguments\":{\"command\":\"ls\"}}");
    assert_eq!((row.tool_exec_ms, row.residual_wait_ms), (None, None));
    assert_eq!(body_of(&recorded, row), body);

    let offsets = &row.output_offsets_us;
    assert!(offsets.len() >= 2 && offsets.is_sorted(), "{offsets:?}");
    let [first_byte, first, last, end] = [
        row.first_byte_time.unwrap(),
        row.first_output_time.unwrap(),
        row.last_output_time.unwrap(),
        row.response_end_time.unwrap(),
    ];
    assert!(row.request_time < first_byte && first_byte < first && first < last && last < end);
    let near = |ms: f64, from: f64, to: f64| (ms - (to - from) * 1e3).abs() < 0.01;
    assert!(near(row.ttft_ms.unwrap(), row.request_time, first));
    assert!(near(row.e2e_ms.unwrap(), row.request_time, end));
    assert!(near(row.itl_ms_mean.unwrap() * 6.0, first, last));
    assert!(near(offsets[0] as f64 / 1e3, row.request_time, first));

    assert_eq!((recorded.stats.turns, recorded.stats.isl, recorded.stats.osl), (1, 30, 7));
    assert_eq!((recorded.stats.sessions, recorded.stats.threads), (1, 1));
    assert_eq!(recorded.stats.latest[0].ttft_ms, row.ttft_ms);
}

#[tokio::test]
async fn a_tool_loop_is_one_thread_with_its_calls() {
    let setup = Setup::start().await;
    let session = "X-Claude-Code-Session-Id: abc\r\n";
    let first = messages_body(&[TASK]);
    play(&setup, "/v1/messages", session, &first, &message_events("a", Some(("toolu_1", "Bash"))))
        .await;
    let call = r#"{"role":"assistant","content":[{"type":"text","text":"a"},{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"ls"}}]}"#;
    let result = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"app.py","is_error":false}]}"#;
    // The agent sends its task anew as a plain string: the same text in another form.
    let task = r#"{"role":"user","content":"fix app.py"}"#;
    let second = messages_body(&[task, call, result]);
    let with_times = format!("{session}X-Claude-Code-Prev-Tool-Durations: Bash=510\r\n");
    let events = message_events("b", Some(("toolu_2", "Bash")));
    play(&setup, "/v1/messages", &with_times, &second, &events).await;
    setup.recorded(2).await;
    let recorded = setup.finish().await;
    let [one, two] = &recorded.turns[..] else { panic!("{} turns", recorded.turns.len()) };
    assert_eq!((one.session_id.as_str(), two.session_id.as_str()), ("abc", "abc"));
    assert_eq!(one.thread_id, two.thread_id);
    assert_eq!((one.turn, two.turn), (0, 1));
    assert_eq!(two.n_shared_units, 3);
    assert_eq!(two.isl_new_text, format!("{call}\n{result}"));
    let wait_ms = (two.request_time - one.response_end_time.unwrap()) * 1e3;
    assert!((two.tool_exec_ms.unwrap() - wait_ms).abs() < 0.01);
    assert_eq!((body_of(&recorded, one), body_of(&recorded, two)), (first, second));

    let units: Vec<UnitRow> = recorded.rows();
    let distinct: HashSet<&str> = units.iter().map(|unit| unit.hash.as_str()).collect();
    assert_eq!((units.len(), distinct.len()), (6, 6), "each text once");

    let [answered, open] = &recorded.calls[..] else { panic!("{} calls", recorded.calls.len()) };
    assert_eq!((answered.call_id.as_str(), answered.name.as_str()), ("toolu_1", "Bash"));
    assert_eq!(
        (answered.turn, answered.index, answered.request_id.as_str()),
        (0, 0, one.request_id.as_str())
    );
    assert_eq!(answered.arguments, "{\"command\":\"ls\"}");
    assert_eq!((answered.result_bytes, answered.is_error), (Some(6), Some(false)));
    assert_eq!(answered.own_ms, Some(510.0));
    assert!((answered.wire_ms.unwrap() - wait_ms).abs() < 0.01);
    assert_eq!((open.call_id.as_str(), open.result_time, open.wire_ms), ("toolu_2", None, None));
}

#[tokio::test]
async fn a_response_that_does_not_stream_has_no_ttft() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    let body = r#"{"model":"tiny","messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}]}"#;
    client.post("/s/run-7/v1/chat/completions", "X-Session-Id: other\r\n", body.as_bytes()).await;
    let mut engine = setup.engine().await;
    assert!(engine.read_message().await.0.starts_with("POST /v1/chat/completions "));
    let answer = json!({"id": "c", "object": "chat.completion", "model": "tiny", "choices": [{"index": 0,
        "message": {"role": "assistant", "content": "done"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}});
    engine
        .answer("200 OK", "Content-Type: application/json\r\n", answer.to_string().as_bytes())
        .await;
    client.read_message().await;
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert_eq!((row.api.as_str(), row.session_id.as_str()), ("chat", "run-7"));
    assert_eq!((row.outcome, row.osl_text.as_str()), (Outcome::Ok, "done"));
    assert_eq!((row.isl, row.isl_cached, row.isl_new, row.osl), (Some(12), None, None, Some(3)));
    assert_eq!((row.ttft_ms, row.first_output_time, row.output_offsets_us.len()), (None, None, 0));
    assert!(row.first_byte_time.is_some() && row.e2e_ms.is_some());
    assert_eq!(body_of(&recorded, row), body);
}

#[tokio::test]
async fn a_retry_is_another_attempt_at_its_turn() {
    let setup = Setup::start().await;
    let body = messages_body(&[TASK]);
    let mut client = setup.client().await;
    client.post("/v1/messages", "", body.as_bytes()).await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    engine.answer("429 Too Many Requests", "Retry-After: 1\r\n", b"{}").await;
    client.read_message().await;
    setup.recorded(1).await;
    drop((client, engine));
    play(&setup, "/v1/messages", "", &body, &message_events("x", None)).await;
    setup.recorded(2).await;
    play(&setup, "/v1/messages", "", &body, &message_events("y", None)).await;
    let recorded = setup.finish().await;
    let found: Vec<_> =
        recorded.turns.iter().map(|row| (row.thread_id.as_str(), row.turn, row.outcome)).collect();
    assert_eq!(
        found,
        [
            ("auto-1/1", 0, Outcome::HttpError),
            ("auto-1/1", 0, Outcome::Ok),
            ("auto-2/2", 0, Outcome::Ok),
        ]
    );
}

#[tokio::test]
async fn subagents_and_utility_calls_are_told_apart() {
    let setup = Setup::start().await;
    let headers = "X-Claude-Code-Session-Id: abc\r\n";
    let stream = message_events("x", None);
    play(&setup, "/v1/messages", headers, &messages_body(&[TASK]), &stream).await;
    let child = r#"{"role":"user","content":"look into it"}"#;
    let agent = format!("{headers}X-Claude-Code-Agent-Id: a7\r\n");
    play(&setup, "/v1/messages", &agent, &messages_body(&[child]), &stream).await;
    let title = r#"{"role":"user","content":"name this"}"#;
    let auxiliary = format!("{headers}X-Claude-Code-Request-Class: auxiliary\r\n");
    play(&setup, "/v1/messages", &auxiliary, &messages_body(&[title]), &stream).await;
    let recorded = setup.finish().await;
    let found: Vec<_> = recorded
        .turns
        .iter()
        .map(|row| (row.thread_id.as_str(), row.kind, row.parent_thread_id.as_deref()))
        .collect();
    assert_eq!(
        found,
        [
            ("abc/1", TurnKind::Main, None),
            ("abc/agent-a7", TurnKind::Subagent, Some("abc/1")),
            ("abc/3", TurnKind::Utility, Some("abc/1")),
        ]
    );
    assert!(recorded.turns.iter().all(|row| row.session_id == "abc"));
}

#[tokio::test]
async fn side_calls_are_passed_on_and_counted() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    let mut engine: Option<Peer> = None;
    for request in [
        "GET /v1/models HTTP/1.1\r\nHost: p\r\n\r\n",
        "HEAD /v1/messages HTTP/1.1\r\nHost: p\r\n\r\n",
        "POST /v1/messages/count_tokens?beta=true HTTP/1.1\r\nHost: p\r\nContent-Length: 2\r\n\r\n{}",
        "POST /v1/embeddings HTTP/1.1\r\nHost: p\r\nContent-Length: 2\r\n\r\n{}",
    ] {
        client.send(request).await;
        let engine = match &mut engine {
            Some(engine) => engine,
            none => none.insert(setup.engine().await),
        };
        engine.read_message().await;
        engine.answer("200 OK", "", b"").await;
        client.read_head().await;
    }
    let recorded = setup.finish().await;
    let stats = &recorded.stats;
    assert!(recorded.turns.is_empty());
    assert_eq!((stats.requests, stats.turns, stats.side_requests), (4, 0, 4));
    assert_eq!((stats.side_models, stats.side_count_tokens), (1, 1));
}

#[tokio::test]
async fn two_agents_without_names_at_the_same_task() {
    let setup = Setup::start().await;
    let chat = |messages: Value| json!({"model": "tiny", "messages": messages}).to_string();
    let reply = |id: &str| {
        json!({"choices": [{"index": 0, "finish_reason": "tool_calls", "message": {"role": "assistant",
            "content": null, "tool_calls": [{"id": id, "type": "function",
            "function": {"name": "bash", "arguments": "{}"}}]}}]})
        .to_string()
    };
    let start = json!([{"role": "system", "content": "s"}, {"role": "user", "content": "task"}]);
    let grown = |id: &str| {
        let mut messages = start.as_array().cloned().unwrap_or_default();
        messages.push(json!({"role": "assistant", "content": null, "tool_calls": [{"id": id,
            "type": "function", "function": {"name": "bash", "arguments": "{}"}}]}));
        messages.push(json!({"role": "tool", "tool_call_id": id, "content": "ok"}));
        Value::Array(messages)
    };
    let mut ends = Vec::new();
    for _ in 0..2 {
        let mut client = setup.client().await;
        client.post("/v1/chat/completions", "", chat(start.clone()).as_bytes()).await;
        let mut engine = setup.engine().await;
        engine.read_message().await;
        ends.push((client, engine));
    }
    for (index, (client, engine)) in ends.iter_mut().enumerate() {
        let id = format!("call-{index}");
        engine.answer("200 OK", "Content-Type: application/json\r\n", reply(&id).as_bytes()).await;
        client.read_message().await;
        setup.recorded(index as u64 + 1).await;
    }
    drop(ends);
    for id in ["call-1", "call-0"] {
        let mut client = setup.client().await;
        client.post("/v1/chat/completions", "", chat(grown(id)).as_bytes()).await;
        let mut engine = setup.engine().await;
        engine.read_message().await;
        engine.answer("200 OK", "Content-Type: application/json\r\n", reply("x").as_bytes()).await;
        client.read_message().await;
    }
    let recorded = setup.finish().await;
    let found: Vec<_> =
        recorded.turns.iter().map(|row| format!("{}#{}", row.thread_id, row.turn)).collect();
    assert_eq!(found, ["auto-1/1#0", "auto-2/2#0", "auto-2/2#1", "auto-1/1#1"]);
    let answered: Vec<_> = recorded
        .calls
        .iter()
        .filter(|call| call.result_time.is_some())
        .map(|call| (call.thread_id.as_str(), call.call_id.as_str()))
        .collect();
    assert_eq!(answered, [("auto-2/2", "call-1"), ("auto-1/1", "call-0")]);
}
