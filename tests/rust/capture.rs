//! What the proxy writes down: rows, units and tool calls of exchanges played over raw TCP.

use std::collections::HashSet;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use agentbench::redact::{Masker, Names};
use agentbench::trace::record::{Outcome, Record, TurnKind, TurnRow, UnitRow};
use flate2::Compression;
use flate2::write::GzEncoder;
use serde_json::{Value, json};

use crate::wire::{Peer, Recorded, Setup, must};

/// One `data:` event of a Messages stream.
fn event(data: &Value) -> String {
    format!("event: {}\ndata: {data}\n\n", data["type"].as_str().unwrap_or_default())
}

/// A Messages stream of a text and, where named, a tool call; usage says 30 in (20 cached), 7 out.
fn message_events(text: &str, call: Option<(&str, &str)>) -> Vec<String> {
    let mut events = vec![
        event(&json!({"type": "message_start", "message": {"id": "m", "role": "assistant",
            "model": "tiny", "content": [], "usage": {"input_tokens": 10,
            "cache_read_input_tokens": 20, "cache_creation_input_tokens": 0, "output_tokens": 1}}})),
        event(&json!({"type": "content_block_start", "index": 0,
            "content_block": {"type": "text", "text": ""}})),
        event(&json!({"type": "content_block_delta", "index": 0,
            "delta": {"type": "text_delta", "text": text}})),
        event(&json!({"type": "content_block_stop", "index": 0})),
    ];
    if let Some((id, name)) = call {
        events.extend([
            event(&json!({"type": "content_block_start", "index": 1, "content_block":
                {"type": "tool_use", "id": id, "name": name, "input": {}}})),
            event(&json!({"type": "content_block_delta", "index": 1,
                "delta": {"type": "input_json_delta", "partial_json": "{\"command\":\"ls\"}"}})),
            event(&json!({"type": "content_block_stop", "index": 1})),
        ]);
    }
    let stop = if call.is_some() { "tool_use" } else { "end_turn" };
    events.push(event(&json!({"type": "message_delta", "delta": {"stop_reason": stop},
        "usage": {"output_tokens": 7}})));
    events.push(event(&json!({"type": "message_stop"})));
    events
}

const SYSTEM: &str =
    r#""system":[{"type":"text","text":"You fix code.","cache_control":{"type":"ephemeral"}}]"#;
const TOOLS: &str = r#""tools":[{"name":"Bash","input_schema":{"type":"object"}}]"#;
const TASK: &str = r#"{"role":"user","content":[{"type":"text","text":"fix app.py"}]}"#;

/// A Messages body as an agent sends it, with odd spacing that must come back.
fn messages_body(messages: &[&str]) -> String {
    let messages = messages.join(", ");
    format!(
        r#"{{"model":"tiny",  {SYSTEM}, {TOOLS},"max_tokens":64,"stream":true,"messages":[{messages}] }}"#
    )
}

/// Plays one exchange: the client posts, the engine streams the events, both ends see all of it.
async fn play(setup: &Setup, path: &str, headers: &str, body: &str, events: &[String]) {
    let mut client = setup.client().await;
    client.post(path, headers, body.as_bytes()).await;
    let mut engine = setup.engine().await;
    assert_eq!(engine.read_message().await.1, body.as_bytes());
    engine.begin_stream().await;
    client.read_head().await;
    for event in events {
        engine.send_chunk(event).await;
        assert_eq!(client.read_chunk().await, event.as_bytes());
    }
    engine.end_stream().await;
    assert!(client.read_chunk().await.is_empty());
}

fn body_of(recorded: &Recorded, turn: &TurnRow) -> String {
    String::from_utf8(recorded.run.request_body(turn).unwrap()).unwrap()
}

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
async fn no_secret_reaches_the_disk() {
    let setup = Setup::start().await;
    let headers = "X-Api-Key: s3cret\r\nAuthorization: Bearer s3cret\r\nCookie: c=s3cret\r\n\
                   Proxy-Authorization: Basic s3cret\r\nApi-Key: s3cret\r\n";
    let path = "/v1/messages?key=s3cret&access_token=s3cret&sig=s3cret";
    play(&setup, path, headers, &messages_body(&[TASK]), &message_events("x", None)).await;
    let mut client = setup.client().await;
    client.post(path, headers, b"{}").await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    engine.reset();
    client.read_message().await;
    setup.recorded(2).await;
    let recorded = setup.finish().await;
    assert_eq!(recorded.turns.len(), 2);
    for row in &recorded.turns {
        let text = serde_json::to_string(row).unwrap();
        assert!(text.contains("key=***") && !text.contains("s3cret"), "{text}");
    }
    for file in recorded.files() {
        let found = file.1.windows(6).any(|window| window == b"s3cret");
        assert!(!found, "{} holds a secret", file.0.display());
    }
}

/// What a redacted run must not hold, each in its place, and what the places are.
const TOKEN: &str = "ghp_A1b2C3d4E5f6G7h8I9j0A1b2C3d4E5f6G7h8";

#[tokio::test]
async fn a_redacted_run_holds_masks_and_the_engine_gets_the_text() {
    let names = Names { users: vec!["alice".to_owned()], hosts: vec!["gpu-node-7".to_owned()] };
    let masker = Arc::new(Masker::new(names));
    let setup = Setup::start_with(|config| config.redact = Some(Arc::clone(&masker))).await;
    let told = format!("alice@x.com on gpu-node-7 in /home/alice/p with {TOKEN}");
    let system = r#""system":"of alice""#;
    let tools =
        r#""tools":[{"name":"Bash","description":"for alice","input_schema":{"type":"object"}}]"#;
    let metadata = r#""metadata":{"user_id":"user_0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef_account__session_s1"}"#;
    let body = |messages: &str| {
        format!(
            r#"{{"model":"/home/alice/m",{metadata},{system},{tools},"stream":true,"messages":[{messages}]}}"#
        )
    };
    let user = format!(r#"{{"role":"user","content":"fix it: {told}"}}"#);
    let headers =
        "User-Agent: claude-cli/2.1.332 (external)\r\nX-Claude-Code-Session-Id: alice-1\r\n";
    let mut events = message_events(&told, Some(("toolu_1", "Bash")));
    for event in &mut events {
        *event = event.replace("\\\"ls\\\"", "\\\"mail alice@x.com\\\"");
    }
    // `play` checks that the engine gets the bytes as they are.
    play(&setup, "/v1/messages?owner=alice", headers, &body(&user), &events).await;
    let call = format!(
        r#"{{"role":"assistant","content":[{{"type":"text","text":"{told}"}},{{"type":"tool_use","id":"toolu_1","name":"Bash","input":{{"command":"mail alice@x.com"}}}}]}}"#
    );
    let result = r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"sent as alice\n"}]}"#;
    let second = body(&format!("{user},{call},{result}"));
    play(&setup, "/v1/messages?owner=alice", headers, &second, &message_events("done", None)).await;
    let mut client = setup.client().await;
    client
        .post("/s/alice/v1/messages", headers, format!("no JSON of alice {TOKEN}").as_bytes())
        .await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    engine
        .answer("400 Bad Request", "", b"{\"error\":{\"message\":\"alice has no /home/alice/m\"}}")
        .await;
    client.read_message().await;
    setup.recorded(3).await;
    let recorded = setup.finish().await;
    for (path, bytes) in recorded.files() {
        for secret in ["alice", "gpu-node-7", TOKEN, "@x.com", "user_0123456789abcdef"] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            assert!(!found, "{} holds {secret}", path.display());
        }
    }
    let [one, two, three] = &recorded.turns[..] else { panic!("{} turns", recorded.turns.len()) };
    // Parquet compresses, so the rows are looked at as well.
    let units: Vec<UnitRow> = recorded.rows();
    let rows = serde_json::to_string(&(&recorded.turns, &recorded.calls, &units)).unwrap();
    for secret in ["alice", "gpu-node-7", TOKEN, "@x.com", "user_0123456789abcdef"] {
        assert!(!rows.contains(secret), "{secret} in {rows}");
    }
    // The conversation is one, its prompts extend each other, and its body can be rebuilt.
    assert_eq!((one.thread_id.as_str(), one.turn, two.turn), (two.thread_id.as_str(), 0, 1));
    assert_eq!(two.n_shared_units, one.unit_hashes.len() as u32);
    assert_eq!(two.unit_hashes[..one.unit_hashes.len()], one.unit_hashes);
    let (first, second) = (body_of(&recorded, one), body_of(&recorded, two));
    assert!(second.starts_with(first.strip_suffix("]}").unwrap()), "{first} {second}");
    let told = masker.text(&told);
    assert!(told.starts_with("redacted-email-") && first.contains(&format!("fix it: {told}")));
    assert!(one.osl_text.starts_with(&told) && second.contains(&format!(r#""text":"{told}""#)));
    assert_eq!(recorded.calls[0].arguments, masker.text(r#"{"command":"mail alice@x.com"}"#));
    let name = masker.text("alice");
    assert_eq!(
        (one.session_id.as_str(), three.session_id.as_str()),
        (format!("{name}-1").as_str(), name.as_str())
    );
    assert_eq!(one.model.as_deref(), Some(format!("/home/{name}/m").as_str()));
    assert_eq!(one.path, format!("/v1/messages?owner={name}"));
    assert_eq!(three.error.as_deref().unwrap().matches(&name).count(), 2, "{:?}", three.error);
    assert!(body_of(&recorded, three).starts_with(&format!("no JSON of {name} redacted-key-")));
    // Sizes are those of what is written.
    assert_eq!(recorded.calls[0].result_bytes, Some(format!("sent as {name}\n").len() as u64));
    let counts = recorded.stats.redacted;
    assert_eq!(counts, [("email", 1), ("key", 1), ("user", 1), ("host", 1), ("account", 1)]);
}

#[tokio::test]
async fn a_run_is_its_users_alone() {
    use std::os::unix::fs::PermissionsExt;
    let setup = Setup::start().await;
    play(&setup, "/v1/messages", "", &messages_body(&[TASK]), &message_events("x", None)).await;
    setup.recorded(1).await;
    let mode =
        |path: &std::path::Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let is_journal = |path: &std::path::PathBuf| path.to_string_lossy().ends_with(".journal.jsonl");
    // The writer takes rows within some milliseconds.
    must(async {
        while !setup.files().iter().any(is_journal) {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    for path in &setup.files() {
        assert_eq!(mode(path), 0o600, "{}", path.display());
    }
    let recorded = setup.finish().await;
    for (path, _) in recorded.files() {
        assert_eq!(mode(&path), 0o600, "{}", path.display());
        assert_eq!(mode(path.parent().unwrap()), 0o700);
    }
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

/// How an exchange goes wrong.
enum Fault {
    Status(u16, &'static str),
    ErrorEvent,
    CutInStream,
    EndsWithoutLastEvent,
    ClientLeavesStream,
    ClientLeavesAfterLastEvent,
    ClientLeavesBeforeResponse,
    ResetBeforeResponse,
}

/// Plays a fault and gives its row's outcome, status and words.
async fn check_fault(fault: Fault, outcome: Outcome, status: Option<u16>, words: Option<&str>) {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    let body = messages_body(&[TASK]);
    client.post("/v1/messages", "", body.as_bytes()).await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    let events = message_events("partial", None);
    let streams = !matches!(
        fault,
        Fault::Status(..) | Fault::ResetBeforeResponse | Fault::ClientLeavesBeforeResponse
    );
    if streams {
        engine.begin_stream().await;
        client.read_head().await;
        let whole = matches!(fault, Fault::ClientLeavesAfterLastEvent);
        for event in if whole { &events[..] } else { &events[..3] } {
            engine.send_chunk(event).await;
            client.read_chunk().await;
        }
    }
    match fault {
        Fault::Status(status, body) => {
            engine.answer(&format!("{status} Odd"), "", body.as_bytes()).await;
            client.read_message().await;
        }
        Fault::ErrorEvent => {
            let error =
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
            engine.send_chunk(event(&error)).await;
            engine.end_stream().await;
            client.read_to_end_of_chunks().await;
        }
        Fault::EndsWithoutLastEvent => {
            engine.end_stream().await;
            client.read_to_end_of_chunks().await;
        }
        Fault::CutInStream => {
            engine.reset();
            client.read_to_end().await;
        }
        Fault::ResetBeforeResponse => {
            engine.reset();
            assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
        }
        Fault::ClientLeavesStream
        | Fault::ClientLeavesAfterLastEvent
        | Fault::ClientLeavesBeforeResponse => {
            drop(client);
            engine.read_to_end().await;
        }
    }
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert_eq!((row.outcome, row.http_status), (outcome, status), "{:?}", row.error);
    match words {
        Some(words) => assert!(row.error.as_deref().unwrap().contains(words), "{:?}", row.error),
        None => assert_eq!(row.error, None),
    }
    assert_eq!(row.osl_text, if streams { "partial" } else { "" });
    assert!(row.response_end_time.unwrap() > row.request_time);
    assert_eq!(body_of(&recorded, row), body);
}

#[tokio::test]
async fn every_ending_has_its_outcome() {
    let api_error =
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"too long"}}"#;
    check_fault(Fault::Status(400, api_error), Outcome::HttpError, Some(400), Some("too long"))
        .await;
    check_fault(Fault::Status(503, "no room"), Outcome::HttpError, Some(503), Some("no room"))
        .await;
    check_fault(Fault::ErrorEvent, Outcome::UpstreamError, Some(200), Some("busy")).await;
    check_fault(Fault::CutInStream, Outcome::Truncated, Some(200), Some("broke")).await;
    let no_last = Some("without its last event");
    check_fault(Fault::EndsWithoutLastEvent, Outcome::Truncated, Some(200), no_last).await;
    let left = Some("client went away");
    check_fault(Fault::ClientLeavesStream, Outcome::ClientCancelled, Some(200), left).await;
    check_fault(Fault::ClientLeavesBeforeResponse, Outcome::ClientCancelled, None, left).await;
    check_fault(Fault::ClientLeavesAfterLastEvent, Outcome::Ok, Some(200), None).await;
    check_fault(Fault::ResetBeforeResponse, Outcome::UpstreamError, None, Some("upstream http://"))
        .await;
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
async fn gzip_passes_as_it_is_and_is_decoded_for_the_rows() {
    let setup = Setup::start().await;
    let body = messages_body(&[TASK]);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(body.as_bytes()).unwrap();
    let wire = gzip.finish().unwrap();
    let mut client = setup.client().await;
    client.post("/v1/messages", "Content-Encoding: gzip\r\n", &wire).await;
    let mut engine = setup.engine().await;
    let (head, received) = engine.read_message().await;
    assert!(head.contains("Content-Encoding: gzip\r\n"));
    assert_eq!(received, wire);
    engine
        .send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n\
             Transfer-Encoding: chunked\r\n\r\n",
        )
        .await;
    assert!(client.read_head().await.contains("Content-Encoding: gzip\r\n"));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    for event in message_events("packed", None) {
        gzip.write_all(event.as_bytes()).unwrap();
        gzip.flush().unwrap();
        let wire = std::mem::take(gzip.get_mut());
        engine.send_chunk(&wire).await;
        assert_eq!(client.read_chunk().await, wire);
    }
    engine.send_chunk(gzip.finish().unwrap()).await;
    engine.end_stream().await;
    client.read_to_end_of_chunks().await;
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert_eq!((row.outcome, row.osl_text.as_str(), row.osl), (Outcome::Ok, "packed", Some(7)));
    assert_eq!(row.output_offsets_us.len(), 1);
    assert_eq!(body_of(&recorded, row), body);
}

#[tokio::test]
async fn what_cannot_be_read_is_a_row_that_says_so() {
    let setup = Setup::start_with(|config| config.max_recorded_body_bytes = 2000).await;
    let long = messages_body(&[&format!(r#"{{"role":"user","content":"{}"}}"#, "x".repeat(3000))]);
    let answer = br#"{"type":"message","role":"assistant","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;
    let too_long = [b"{".as_slice(), &[b' '; 3000], b"}"].concat();
    let cases: [(&str, &[u8], &str, &[u8]); 5] = [
        ("", long.as_bytes(), "", answer),
        ("", b"this is no JSON \xff", "", answer),
        ("Content-Encoding: compress\r\n", b"\x28\xb5\x2f\xfd", "", answer),
        ("", messages_body(&[TASK]).as_bytes().to_vec().leak(), "", &too_long),
        (
            "",
            messages_body(&[TASK]).as_bytes().to_vec().leak(),
            "Content-Encoding: br\r\n",
            b"\x8b\x00",
        ),
    ];
    for (index, (headers, body, answer_headers, answer)) in cases.into_iter().enumerate() {
        let mut client = setup.client().await;
        client.post(&format!("/s/case-{index}/v1/messages"), headers, body).await;
        let mut engine = setup.engine().await;
        assert_eq!(engine.read_message().await.1, body);
        engine.answer("200 OK", answer_headers, answer).await;
        assert_eq!(client.read_message().await.1, answer);
        setup.recorded(index as u64 + 1).await;
    }
    let recorded = setup.finish().await;
    let found: Vec<_> = recorded
        .turns
        .iter()
        .map(|row| {
            (row.outcome, row.unit_hashes.len(), row.osl_text.as_str(), row.error.as_deref())
        })
        .collect();
    let parts = [
        (0, "fine", "request body is longer than 2000 bytes"),
        (1, "fine", "not a messages request"),
        (0, "fine", "content encoding `compress` is not read"),
        (3, "", "response body is longer than 2000 bytes"),
        (3, "", "content encoding `br` is not read"),
    ];
    assert_eq!(found.len(), parts.len());
    for ((outcome, units, text, error), (units_expected, text_expected, part)) in
        found.into_iter().zip(parts)
    {
        assert_eq!((outcome, units, text), (Outcome::Ok, units_expected, text_expected));
        assert!(error.unwrap().contains(part), "{error:?}");
    }
    assert_eq!(recorded.run.request_body(&recorded.turns[1]).unwrap(), b"this is no JSON \xff");
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
async fn what_is_open_at_the_stop_is_cut_and_written() {
    let setup = Setup::start_draining(Duration::from_millis(50)).await;
    let mut client = setup.client().await;
    client.post("/v1/messages", "", messages_body(&[TASK]).as_bytes()).await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    engine.begin_stream().await;
    client.read_head().await;
    for event in &message_events("partial", None)[..3] {
        engine.send_chunk(event).await;
        client.read_chunk().await;
    }
    let recorded = setup.finish().await;
    assert_eq!(client.read_to_end().await, b"", "cut, not ended");
    assert_eq!(must(engine.read_to_end()).await, b"");
    let row = &recorded.turns[0];
    assert_eq!((row.outcome, row.osl_text.as_str()), (Outcome::Truncated, "partial"));
    assert_eq!(row.error.as_deref(), Some("the capture was stopped before the end"));
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

/// A row type's rows.
trait Rows {
    fn rows<T: Record>(&self) -> Vec<T>;
}

impl Rows for Recorded {
    fn rows<T: Record>(&self) -> Vec<T> {
        self.run.rows::<T>().unwrap().map(Result::unwrap).collect()
    }
}

#[tokio::test]
async fn a_client_that_hangs_up_on_the_last_event_has_cancelled_nothing() {
    let setup = Setup::start().await;
    for hangs_up_early in [false, true] {
        let mut client = setup.client().await;
        client.post("/v1/messages", "", messages_body(&[TASK]).as_bytes()).await;
        let mut engine = setup.engine().await;
        engine.read_message().await;
        engine.begin_stream().await;
        client.read_head().await;
        let events = message_events("hello", None);
        let sent = if hangs_up_early { events.len() - 1 } else { events.len() };
        for event in &events[..sent] {
            engine.send_chunk(event).await;
            client.read_chunk().await;
        }
        drop(client);
        // Until the proxy notices, and drops its side.
        engine.read_to_end().await;
    }
    setup.recorded(2).await;
    let recorded = setup.finish().await;
    let outcomes: Vec<Outcome> = recorded.turns.iter().map(|row| row.outcome).collect();
    assert_eq!(outcomes, [Outcome::Ok, Outcome::ClientCancelled]);
    assert_eq!(recorded.stats.client_cancelled, 1);
}

#[tokio::test]
async fn zstd_passes_as_it_is_and_is_decoded_for_the_rows() {
    let setup = Setup::start().await;
    let body = messages_body(&[TASK]);
    let wire = zstd::encode_all(body.as_bytes(), 3).unwrap();
    let mut client = setup.client().await;
    client.post("/v1/messages", "Content-Encoding: zstd\r\n", &wire).await;
    let mut engine = setup.engine().await;
    assert_eq!(engine.read_message().await.1, wire);
    engine.answer("200 OK", "Content-Type: application/json\r\n", b"{}").await;
    client.read_message().await;
    setup.recorded(1).await;
    let recorded = setup.finish().await;
    assert_eq!(body_of(&recorded, &recorded.turns[0]), body);
}
