//! Compatibility switches: what the engine gets, what the agent gets, what is written down.

use std::time::Duration;

use agentbench::capture::{CaptureConfig, ConvertTo, Switches};
use agentbench::trace::record::{Outcome, TurnKind, UnitRow};
use serde_json::{Value, json};

use crate::wire::{Peer, Setup, must};

/// A proxy with switches, and one exchange on it at a time.
async fn start(switches: Switches) -> Setup {
    Setup::start_with(|config: &mut CaptureConfig| config.switches = switches).await
}

fn convert() -> Switches {
    Switches { convert: Some(ConvertTo::Chat), ..Switches::default() }
}

const LINE: &str = "x-anthropic-billing-header: cc_version=2; cc_is_subagent=true;";

fn asked() -> String {
    format!(
        r#"{{"model":"claude",  "max_tokens":32000,"stream":true,"system":[{{"type":"text","text":"{LINE}"}},{{"type":"text","text":"You fix."}}],"messages":[{{"role":"user","content":"fix"}},{{"role":"system","content":"Mind."}}] }}"#
    )
}

/// Sends a body and gives what the engine got.
async fn to_engine(
    setup: &Setup,
    client: &mut Peer,
    path: &str,
    headers: &str,
    body: &[u8],
) -> (Peer, String, Vec<u8>) {
    client.post(path, headers, body).await;
    let mut engine = setup.engine().await;
    let (head, body) = engine.read_message().await;
    (engine, head, body)
}

#[tokio::test]
async fn what_the_engine_was_given_is_what_is_recorded() {
    let setup = start(Switches {
        rerole_system: true,
        strip_billing_header: true,
        cap_max_tokens: Some(64),
        model: Some("tiny".into()),
        answer_titles: false,
        convert: None,
    })
    .await;
    let mut client = setup.client().await;
    let headers = "X-Odd: kept\r\nExpect: 100-continue\r\n";
    let path = "/v1/messages?beta=true";
    let (mut engine, head, body) =
        to_engine(&setup, &mut client, path, headers, asked().as_bytes()).await;
    let given = r#"{"model":"tiny",  "max_tokens":64,"stream":true,"system":[{"type":"text","text":"You fix."}],"messages":[{"role":"user","content":"fix"},{"role":"user","content":"Mind."}] }"#;
    assert_eq!(String::from_utf8(body).unwrap(), given);
    assert!(head.starts_with("POST /v1/messages?beta=true HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("X-Odd: kept\r\n") && !head.to_lowercase().contains("expect"), "{head}");
    // The reply passes byte for byte, model name and all.
    let reply = r#"{"type":"message", "model":"tiny","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{"input_tokens":9,"output_tokens":1}}"#;
    engine.answer("200 OK", "Content-Type: application/json\r\n", reply.as_bytes()).await;
    let continues = client.read_head().await;
    assert!(continues.starts_with("HTTP/1.1 100"), "{continues}");
    assert_eq!(client.read_message().await.1, reply.as_bytes());
    // A request that has nothing to change passes unmarked.
    let plain = r#"{"model":"tiny","max_tokens":5,"messages":[{"role":"user","content":"x"}]}"#;
    client.post("/v1/messages", "", plain.as_bytes()).await;
    assert_eq!(engine.read_message().await.1, plain.as_bytes());
    engine.answer("200 OK", "Content-Type: application/json\r\n", reply.as_bytes()).await;
    client.read_message().await;
    setup.recorded(2).await;
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert_eq!(recorded.run.request_body(row).unwrap(), given.as_bytes());
    let names = ["rerole_system", "strip_billing_header", "cap_max_tokens", "model"];
    assert_eq!(row.changes.as_deref().unwrap(), names);
    assert_eq!((row.model.as_deref(), row.outcome), (Some("tiny"), Outcome::Ok));
    assert_eq!(row.kind, TurnKind::Subagent, "the line that said so is gone, its word is not");
    assert_eq!(recorded.turns[1].changes, None);
    let counted: Vec<(&str, u64)> = recorded.stats.changed.into_iter().collect();
    let one_each =
        names.map(|name| (name, 1)).into_iter().collect::<std::collections::BTreeMap<_, _>>();
    assert_eq!(counted, one_each.into_iter().collect::<Vec<_>>());
}

#[tokio::test]
async fn counting_and_other_apis_get_their_share() {
    let model =
        Switches { model: Some("tiny".into()), cap_max_tokens: Some(8), ..Switches::default() };
    let setup = start(model).await;
    let mut client = setup.client().await;
    let count = r#"{"model":"claude","messages":[]}"#;
    let path = "/v1/messages/count_tokens";
    let (mut engine, _, body) = to_engine(&setup, &mut client, path, "", count.as_bytes()).await;
    assert_eq!(body, br#"{"model":"tiny","messages":[]}"#);
    engine.answer("200 OK", "", b"{}").await;
    client.read_message().await;
    for (path, body, given) in [
        (
            "/v1/chat/completions",
            r#"{"model":"x","messages":[]}"#,
            r#"{"model":"tiny","messages":[],"max_completion_tokens":8}"#,
        ),
        (
            "/v1/responses",
            r#"{"model":"x","input":[]}"#,
            r#"{"model":"tiny","input":[],"max_output_tokens":8}"#,
        ),
        (
            "/v1/completions",
            r#"{"model":"x","max_tokens":9,"prompt":""}"#,
            r#"{"model":"tiny","max_tokens":8,"prompt":""}"#,
        ),
        // Not a turn's: passes as it came.
        ("/tokenize", r#"{"model":"x"}"#, r#"{"model":"x"}"#),
    ] {
        client.post(path, "", body.as_bytes()).await;
        assert_eq!(String::from_utf8(engine.read_message().await.1).unwrap(), given);
        engine.answer("200 OK", "Content-Type: application/json\r\n", b"{}").await;
        client.read_message().await;
    }
}

/// Sends a Messages request through `--convert chat` and gives the engine's side and its Chat request.
async fn converted(setup: &Setup, client: &mut Peer, stream: bool) -> (Peer, String, Value) {
    let body = json!({"model": "tiny", "max_tokens": 20, "stream": stream, "system": "Be brief.",
        "messages": [{"role": "user", "content": "list"}],
        "tools": [{"name": "Bash", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "any"}});
    let headers = "X-Api-Key: k\r\nAnthropic-Version: 2023\r\nUser-Agent: claude-cli/2\r\n";
    let (engine, head, body) =
        to_engine(setup, client, "/v1/messages?beta=true", headers, body.to_string().as_bytes())
            .await;
    (engine, head, serde_json::from_slice(&body).unwrap())
}

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    format!("data: {}\n\n", json!({"model": "tiny", "choices": [choice]}))
}

#[tokio::test]
async fn a_converted_stream_is_a_turn_as_the_agent_saw_it() {
    let setup = start(convert()).await;
    let mut client = setup.client().await;
    let (mut engine, head, chat) = converted(&setup, &mut client, true).await;
    assert!(head.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"), "{head}");
    let lower = head.to_lowercase();
    assert!(
        lower.contains("authorization: bearer k\r\n") && !lower.contains("anthropic"),
        "{head}"
    );
    assert_eq!(
        chat,
        json!({"model": "tiny", "stream": true, "max_completion_tokens": 20,
            "messages": [{"role": "system", "content": "Be brief."},
                {"role": "user", "content": "list"}],
            "tools": [{"type": "function",
                "function": {"name": "Bash", "parameters": {"type": "object"}}}],
            "tool_choice": "required", "stream_options": {"include_usage": true}})
    );
    engine.begin_stream().await;
    let head = client.read_head().await;
    assert!(head.to_lowercase().contains("content-type: text/event-stream"), "{head}");
    engine.send_chunk(chunk(&json!({"role": "assistant", "content": ""}), None)).await;
    let begun = String::from_utf8(client.read_chunk().await).unwrap();
    assert!(begun.starts_with("event: message_start\n"), "{begun}");
    engine.send_chunk(chunk(&json!({"content": "I look."}), None)).await;
    let text = String::from_utf8(client.read_chunk().await).unwrap();
    assert!(text.contains("text_delta"), "{text}");
    let call = json!({"tool_calls": [{"index": 0, "id": "call_1",
        "function": {"name": "Bash", "arguments": "{\"command\":\"ls\"}"}}]});
    engine.send_chunk(chunk(&call, None)).await;
    client.read_chunk().await;
    let usage = json!({"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 16}}});
    let end = format!("{}data: {usage}\n\ndata: [DONE]\n\n", chunk(&json!({}), Some("tool_calls")));
    engine.send_chunk(end).await;
    let last = String::from_utf8(client.read_chunk().await).unwrap();
    assert!(last.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"), "{last}");
    engine.end_stream().await;
    assert!(client.read_chunk().await.is_empty());
    setup.recorded(1).await;
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert_eq!((row.api.as_str(), row.path.as_str()), ("messages", "/v1/messages?beta=true"));
    assert_eq!(row.changes.as_deref().unwrap(), ["convert_chat"]);
    assert_eq!((row.outcome, row.stop_reason.as_deref()), (Outcome::Ok, Some("tool_use")));
    assert_eq!(
        (row.isl, row.isl_cached, row.isl_new, row.osl),
        (Some(30), Some(16), Some(14), Some(7))
    );
    assert_eq!(row.osl_text, "I look.\n{\"name\":\"Bash\",\"arguments\":{\"command\":\"ls\"}}");
    assert_eq!(row.output_offsets_us.len(), 3, "text, the call's name, its arguments");
    assert!(row.ttft_ms.unwrap() > 0.0 && row.ttft_ms.unwrap() < row.e2e_ms.unwrap());
    assert_eq!(recorded.calls.len(), 1);
    assert_eq!(
        (recorded.calls[0].name.as_str(), recorded.calls[0].call_id.as_str()),
        ("Bash", "call_1")
    );
    let body: Value = serde_json::from_slice(&recorded.run.request_body(row).unwrap()).unwrap();
    assert_eq!(body["system"], "Be brief.", "the agent's own request, not the converted one");
    let kinds: Vec<UnitRow> = recorded.run.rows().unwrap().map(Result::unwrap).collect();
    assert_eq!(kinds.len(), 3);
}

#[tokio::test]
async fn whole_answers_and_errors_are_converted() {
    let setup = start(convert()).await;
    let mut client = setup.client().await;
    let (mut engine, _, chat) = converted(&setup, &mut client, false).await;
    assert_eq!(chat.get("stream_options"), None);
    let json_type = "Content-Type: application/json\r\nX-Engine: own\r\n";
    let answer = json!({"model": "tiny", "choices": [{"index": 0, "finish_reason": "length",
        "message": {"role": "assistant", "content": "hi"}}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 2}});
    engine.answer("200 OK", json_type, answer.to_string().as_bytes()).await;
    let (head, body) = client.read_message().await;
    assert!(
        head.starts_with("HTTP/1.1 200 OK\r\n") && head.contains("X-Engine: own\r\n"),
        "{head}"
    );
    let message: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(message["content"], json!([{"type": "text", "text": "hi"}]));
    assert_eq!(
        (&message["stop_reason"], &message["usage"]["input_tokens"]),
        (&json!("max_tokens"), &json!(5))
    );

    // Errors keep their status and headers, and are told in the agent's API.
    let mut post = async |stream: bool, status: &str, headers: &str, answer: &str| {
        let body = json!({"model": "tiny", "max_tokens": 2, "stream": stream, "messages": []});
        client.post("/v1/messages", "", body.to_string().as_bytes()).await;
        engine.read_message().await;
        engine.answer(status, headers, answer.as_bytes()).await;
        client.read_message().await
    };
    let slow = r#"{"error":{"message":"slow down","type":"x"}}"#;
    let (head, body) = post(true, "429 Too Many Requests", "Retry-After: 3\r\n", slow).await;
    assert!(head.starts_with("HTTP/1.1 429 ") && head.contains("Retry-After: 3\r\n"), "{head}");
    let error: Value = serde_json::from_slice(&body).unwrap();
    assert_eq!(
        error,
        json!({"type": "error", "error": {"type": "rate_limit_error", "message": "x: slow down"}})
    );
    // An engine that does not stream when asked to.
    let (_, body) = post(true, "200 OK", json_type, &answer.to_string()).await;
    assert!(String::from_utf8(body).unwrap().contains("event: message_stop"));

    client.post("/v1/messages", "", b"no JSON").await;
    let (head, body) = client.read_message().await;
    assert!(head.starts_with("HTTP/1.1 400 "), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("no Messages request"));
    setup.recorded(4).await;
    let recorded = setup.finish().await;
    let ends: Vec<_> = recorded.turns.iter().map(|row| (row.outcome, row.http_status)).collect();
    let [ok, refused] = [(Outcome::Ok, Some(200)), (Outcome::HttpError, Some(429))];
    assert_eq!(ends, [ok, refused, ok, (Outcome::HttpError, Some(400))]);
    assert_eq!(recorded.turns[2].osl, Some(2));
}

#[tokio::test]
async fn broken_and_abandoned_streams_are_told_as_they_are() {
    let setup = start(convert()).await;
    // The engine breaks.
    let mut client = setup.client().await;
    let (mut engine, _, _) = converted(&setup, &mut client, true).await;
    engine.begin_stream().await;
    engine.send_chunk(chunk(&json!({"content": "half"}), None)).await;
    client.read_head().await;
    client.read_chunk().await;
    engine.reset();
    let rest = client.read_to_end().await;
    assert!(!String::from_utf8_lossy(&rest).contains("message_stop"));
    // The engine says that it failed, within the stream.
    let mut client = setup.client().await;
    let (mut engine, _, _) = converted(&setup, &mut client, true).await;
    engine.begin_stream().await;
    engine.send_chunk("data: {\"error\":{\"message\":\"lost\"}}\n\n").await;
    client.read_head().await;
    let event = String::from_utf8(client.read_chunk().await).unwrap();
    assert!(event.starts_with("event: error\n"), "{event}");
    engine.end_stream().await;
    client.read_to_end_of_chunks().await;
    // The agent goes, and so does its request at the engine.
    let mut client = setup.client().await;
    let body = json!({"model": "tiny", "max_tokens": 2, "stream": true, "messages": []});
    client.post("/v1/messages", "", body.to_string().as_bytes()).await;
    engine.read_message().await;
    engine.begin_stream().await;
    engine.send_chunk(chunk(&json!({"content": "a"}), None)).await;
    client.read_head().await;
    client.read_chunk().await;
    drop(client);
    assert!(engine.read_to_end().await.is_empty());
    setup.recorded(3).await;
    let recorded = setup.finish().await;
    let outcomes: Vec<Outcome> = recorded.turns.iter().map(|row| row.outcome).collect();
    assert_eq!(outcomes, [Outcome::Truncated, Outcome::UpstreamError, Outcome::ClientCancelled]);
    assert_eq!(recorded.turns[0].isl, None, "a placeholder is no count");
    assert_eq!(recorded.stats.client_cancelled, 1);
}

#[tokio::test]
async fn tokens_are_counted_by_an_engine_that_counts_them() {
    let setup = start(convert()).await;
    let mut client = setup.client().await;
    let body = r#"{"model":"tiny","system":"s","messages":[{"role":"user","content":"hi"}]}"#;
    let path = "/v1/messages/count_tokens?beta=true";
    let (mut engine, head, given) = to_engine(&setup, &mut client, path, "", body.as_bytes()).await;
    assert!(head.starts_with("POST /tokenize HTTP/1.1\r\n"), "{head}");
    let given: Value = serde_json::from_slice(&given).unwrap();
    assert_eq!(given["messages"][0], json!({"role": "system", "content": "s"}));
    engine.answer("200 OK", "", br#"{"count":12,"max_model_len":99,"tokens":[1]}"#).await;
    assert_eq!(client.read_message().await.1, br#"{"input_tokens":12}"#);
    client.post(path, "", body.as_bytes()).await;
    engine.read_message().await;
    engine.answer("404 Not Found", "", br#"{"detail":"Not Found"}"#).await;
    let (head, body) = client.read_message().await;
    assert!(head.starts_with("HTTP/1.1 404 "), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("counts no tokens"));
    let recorded = setup.finish().await;
    assert_eq!((recorded.stats.side_count_tokens, recorded.turns.len()), (2, 0));
}

#[tokio::test]
async fn what_cannot_be_changed_is_refused_in_words() {
    let setup = Setup::start_with(|config| {
        config.switches = Switches { rerole_system: true, ..Switches::default() };
        config.max_recorded_body_bytes = 100;
    })
    .await;
    let mut client = setup.client().await;
    client.post("/v1/messages", "", &[b'x'; 101]).await;
    let (head, body) = client.read_message().await;
    assert!(head.starts_with("HTTP/1.1 413 "), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("more than 100 bytes"));
    let mut client = setup.client().await;
    client.post("/v1/messages", "Content-Encoding: br\r\n", b"x").await;
    let (head, body) = client.read_message().await;
    assert!(head.starts_with("HTTP/1.1 415 "), "{head}");
    assert!(String::from_utf8(body).unwrap().contains("`br`"));
    // An upload that breaks reaches no engine.
    let mut client = setup.client().await;
    client.send("POST /v1/messages HTTP/1.1\r\nHost: p\r\nContent-Length: 50\r\n\r\n{\"a").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    drop(client);
    setup.recorded(3).await;
    assert!(
        tokio::time::timeout(Duration::from_millis(50), setup.listener.accept()).await.is_err(),
        "nothing was sent on"
    );
    let recorded = must(setup.finish()).await;
    let ends: Vec<_> = recorded.turns.iter().map(|row| (row.outcome, row.http_status)).collect();
    assert_eq!(
        ends,
        [
            (Outcome::HttpError, Some(413)),
            (Outcome::HttpError, Some(415)),
            (Outcome::ClientCancelled, None)
        ]
    );
}

#[tokio::test]
async fn without_the_token_nobody_reaches_the_engine() {
    let setup = Setup::start_with(|config| config.token = Some("s3cret".into())).await;
    let mut client = setup.client().await;
    for headers in ["", "X-Api-Key: wrong\r\n"] {
        client.post("/v1/messages", headers, b"{}").await;
        let (head, body) = client.read_message().await;
        assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
        assert!(String::from_utf8(body).unwrap().contains("authentication_error"));
    }
    let body = r#"{"model":"m","messages":[]}"#;
    let headers = "X-Api-Key: s3cret\r\nX-Odd: kept\r\n";
    let (mut engine, head, given) =
        to_engine(&setup, &mut client, "/v1/messages", headers, body.as_bytes()).await;
    assert!(head.contains("X-Odd: kept") && !head.contains("s3cret"), "{head}");
    assert_eq!(given, body.as_bytes());
    engine.answer("200 OK", "Content-Type: application/json\r\n", b"{}").await;
    client.read_message().await;
    setup.recorded(1).await;
    let recorded = setup.finish().await;
    assert_eq!(recorded.turns.len(), 1, "who was refused leaves no row");
    for (path, bytes) in recorded.files() {
        assert!(!bytes.windows(6).any(|part| part == b"s3cret"), "{}", path.display());
    }
}

#[tokio::test]
async fn titles_are_answered_without_the_engine_and_count_as_no_turn_of_it() {
    let setup = start(Switches { answer_titles: true, ..Switches::default() }).await;
    let mut client = setup.client().await;
    // In the shape of OpenCode's, streamed.
    let chat = json!({"model": "tiny", "stream": true, "stream_options": {"include_usage": true},
        "messages": [{"role": "system", "content": "You are a title generator. You output ONLY a title."},
            {"role": "user", "content": "Generate a title for this conversation:\n"},
            {"role": "user", "content": "fix the failing test"}]});
    client.post("/s/one/v1/chat/completions", "", chat.to_string().as_bytes()).await;
    let (head, body) = client.read_message().await;
    assert!(head.to_lowercase().contains("content-type: text/event-stream"), "{head}");
    let body = String::from_utf8(body).unwrap();
    assert!(body.contains("Fix the failing test") && body.ends_with("data: [DONE]\n\n"), "{body}");
    // In the shape of Claude Code's, whole.
    let schema = json!({"type": "object", "properties": {"title": {"type": "string"}},
        "required": ["title"]});
    let messages = json!({"model": "tiny", "max_tokens": 100, "system": "Name the session.",
        "output_config": {"format": {"type": "json_schema", "schema": schema}},
        "messages": [{"role": "user", "content": "mend app.py"}]});
    client.post("/s/one/v1/messages", "", messages.to_string().as_bytes()).await;
    let answer: Value = serde_json::from_slice(&client.read_message().await.1).unwrap();
    assert_eq!(answer["content"][0]["text"], r#"{"title":"Mend app.py"}"#);
    // What is no title goes to the engine.
    let turn = json!({"model": "tiny", "messages": [{"role": "user", "content": "fix it"}]});
    let (mut engine, _, _) = to_engine(
        &setup,
        &mut client,
        "/s/one/v1/chat/completions",
        "",
        turn.to_string().as_bytes(),
    )
    .await;
    let answer = json!({"choices": [{"index": 0, "message": {"content": "ok"}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 5, "completion_tokens": 1}});
    let json_type = "Content-Type: application/json\r\n";
    engine.answer("200 OK", json_type, answer.to_string().as_bytes()).await;
    client.read_message().await;
    setup.recorded(3).await;
    let recorded = setup.finish().await;
    for row in &recorded.turns[..2] {
        assert_eq!((row.kind, row.outcome), (TurnKind::Utility, Outcome::Ok));
        assert!(row.is_answered_locally() && row.http_status == Some(200));
        assert_eq!((row.isl, row.osl, row.ttft_ms, row.e2e_ms), (None, None, None, None));
        assert!(row.output_offsets_us.is_empty() && row.engine.is_none());
        assert!(row.osl_text.contains("title") || row.osl_text == "Fix the failing test");
    }
    assert!(!recorded.turns[2].is_answered_locally());
    assert_eq!(recorded.stats.changed["answered_locally"], 2);
    let totals = agentbench::trace::turn_totals(&recorded.run).unwrap();
    assert_eq!((totals.turns, totals.answered_locally, totals.isl), (1, 2, Some(5)));
    let summary = agentbench::recording::summarize_capture(&recorded.run).unwrap();
    assert_eq!((summary.kinds.get("utility"), summary.apis["chat"]), (None, 1));
}
