//! Answers over Chat told as Messages, read back by the decoder of Messages.

use super::*;

fn chunk(delta: &Value, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
    let chunk = json!({"object": "chat.completion.chunk", "model": "tiny", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

fn usage_chunk() -> String {
    let usage = json!({"prompt_tokens": 30, "completion_tokens": 7,
        "prompt_tokens_details": {"cached_tokens": 16}});
    format!("data: {}\n\ndata: [DONE]\n\n", json!({"model": "tiny", "choices": [], "usage": usage}))
}

fn call(index: u64, id: &str, name: &str, arguments: &str) -> Value {
    let mut function = json!({"arguments": arguments});
    let mut call = json!({"index": index});
    if !name.is_empty() {
        function["name"] = name.into();
        call["id"] = id.into();
    }
    call["function"] = function;
    json!({"tool_calls": [call]})
}

/// The events that a Chat stream becomes, fed in pieces of a size.
fn converted(stream: &str, size: usize) -> String {
    let mut converter = ChatAsMessages::new("msg_1".into(), "asked".into());
    let mut out = Vec::new();
    for piece in stream.as_bytes().chunks(size) {
        converter.feed(piece, &mut out);
    }
    converter.finish(&mut out);
    String::from_utf8(out).unwrap()
}

fn read(events: &str) -> Reply {
    let mut decoder = ReplyDecoder::new(Api::Messages);
    decoder.feed(events.as_bytes());
    decoder.finish()
}

/// The types of the events, in order, each with its block's index.
fn kinds(events: &str) -> Vec<String> {
    let data = events.lines().filter_map(|line| line.strip_prefix("data: "));
    let kind = |data: &str| {
        let data: Value = serde_json::from_str(data).unwrap();
        let index = data["index"].as_u64().map_or(String::new(), |index| format!(" {index}"));
        format!("{}{index}", data["type"].as_str().unwrap())
    };
    data.map(kind).collect()
}

#[test]
fn a_stream_of_reasoning_text_and_calls_keeps_all_of_it() {
    let stream = [
        chunk(&json!({"role": "assistant", "content": ""}), None),
        chunk(&json!({"reasoning_content": "hm "}), None),
        chunk(&json!({"reasoning_content": "so"}), None),
        chunk(&json!({"content": "I lo"}), None),
        chunk(&json!({"content": "ok."}), None),
        chunk(&call(0, "call_a", "Bash", ""), None),
        chunk(&call(0, "", "", "{\"command\":"), None),
        chunk(&call(0, "", "", "\"ls\"}"), None),
        chunk(&call(1, "", "Read", "{}"), None),
        chunk(&json!({}), Some("tool_calls")),
        usage_chunk(),
    ]
    .concat();
    for size in [1, 7, 64, stream.len()] {
        let events = converted(&stream, size);
        let reply = read(&events);
        assert_eq!(
            reply.blocks,
            [
                ReplyBlock::Reasoning { text: "hm so".into(), signature: None },
                ReplyBlock::Text { text: "I look.".into() },
                ReplyBlock::ToolCall {
                    id: "call_a".into(),
                    name: "Bash".into(),
                    arguments: "{\"command\":\"ls\"}".into()
                },
                ReplyBlock::ToolCall {
                    id: "toolu_msg_1_3".into(),
                    name: "Read".into(),
                    arguments: "{}".into()
                },
            ],
            "pieces of {size}"
        );
        assert!(reply.complete && reply.error.is_none());
        assert_eq!(reply.stop_reason.as_deref(), Some("tool_use"));
        assert_eq!(reply.model.as_deref(), Some("tiny"));
        let usage = reply.usage;
        assert_eq!(
            (usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens),
            (Some(30), Some(16), Some(7))
        );
    }
    let whole = kinds(&converted(&stream, 1));
    assert_eq!(whole.first().map(String::as_str), Some("message_start"));
    let marks: Vec<&str> =
        whole.iter().map(String::as_str).filter(|kind| !kind.contains("delta")).collect();
    assert_eq!(
        marks,
        [
            "message_start",
            "content_block_start 0",
            "content_block_stop 0",
            "content_block_start 1",
            "content_block_stop 1",
            "content_block_start 2",
            "content_block_stop 2",
            "content_block_start 3",
            "content_block_stop 3",
            "message_stop"
        ]
    );
}

#[test]
fn each_piece_comes_out_at_once() {
    let mut converter = ChatAsMessages::new("m".into(), "asked".into());
    let mut out = Vec::new();
    converter.feed(chunk(&json!({"role": "assistant"}), None).as_bytes(), &mut out);
    assert_eq!(kinds(&String::from_utf8(std::mem::take(&mut out)).unwrap()), ["message_start"]);
    converter.feed(chunk(&json!({"content": "a"}), None).as_bytes(), &mut out);
    let text = String::from_utf8(std::mem::take(&mut out)).unwrap();
    assert_eq!(kinds(&text), ["content_block_start 0", "content_block_delta 0"]);
    converter.feed(chunk(&json!({"content": "é"}), None).as_bytes(), &mut out);
    let text = String::from_utf8(std::mem::take(&mut out)).unwrap();
    assert_eq!(kinds(&text), ["content_block_delta 0"]);
    assert!(text.contains("\"text\":\"é\""), "{text}");
}

#[test]
fn calls_told_side_by_side_keep_their_arguments_apart() {
    let stream = [
        chunk(&call(0, "a", "One", "{\"x\""), None),
        chunk(&call(1, "b", "Two", "{\"y\""), None),
        chunk(&call(0, "", "", ":1}"), None),
        chunk(&call(1, "", "", ":2}"), Some("stop")),
        usage_chunk(),
    ]
    .concat();
    let reply = read(&converted(&stream, 9));
    let arguments: Vec<&str> = reply
        .blocks
        .iter()
        .filter_map(|block| match block {
            ReplyBlock::ToolCall { arguments, .. } => Some(arguments.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(arguments, ["{\"x\":1}", "{\"y\":2}"]);
    assert_eq!(reply.stop_reason.as_deref(), Some("tool_use"), "`stop` with calls");
}

#[test]
fn endings_are_told_as_they_are() {
    let text = chunk(&json!({"content": "hi"}), None);
    // Cut: nothing says that it is whole.
    let cut = read(&converted(&text, 5));
    assert!(!cut.complete && cut.error.is_none() && cut.stop_reason.is_none());
    assert_eq!(cut.usage, Usage::default(), "a placeholder is no count");
    // Without the mark of its end, and without counts.
    let unmarked = read(&converted(&[text.clone(), chunk(&json!({}), Some("length"))].concat(), 5));
    assert!(unmarked.complete);
    assert_eq!(unmarked.stop_reason.as_deref(), Some("max_tokens"));
    assert_eq!(unmarked.usage, Usage::default());
    // An error within: told once, and nothing after it.
    let error = "data: {\"error\":{\"message\":\"out of memory\",\"type\":\"server\"}}\n\n";
    let events = converted(&[text.as_str(), error, &text, "data: [DONE]\n\n"].concat(), 11);
    assert_eq!(kinds(&events).iter().filter(|kind| *kind == "error").count(), 1);
    let broken = read(&events);
    assert_eq!(broken.error.as_deref(), Some("api_error: server: out of memory"));
    assert!(!broken.complete);
    assert_eq!(converted("", 1), "");
}

#[test]
fn a_whole_answer_becomes_a_message() {
    let body = json!({"model": "tiny", "choices": [{"index": 0, "finish_reason": "tool_calls",
        "message": {"role": "assistant", "content": "I look.", "reasoning_content": "hm",
            "tool_calls": [{"id": "c1", "type": "function",
                "function": {"name": "Bash", "arguments": "{\"command\":\"ls\"}"}},
                {"id": "c2", "type": "function",
                "function": {"name": "Bash", "arguments": "{oops"}}]}}],
        "usage": {"prompt_tokens": 30, "completion_tokens": 7}});
    let reply = whole_chat_reply(200, body.to_string().as_bytes()).unwrap();
    let message = message_of_reply("msg_1", "asked", &reply);
    assert_eq!(
        message,
        json!({"id": "msg_1", "type": "message", "role": "assistant", "model": "tiny",
            "content": [{"type": "thinking", "thinking": "hm", "signature": ""},
                {"type": "text", "text": "I look."},
                {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}},
                {"type": "tool_use", "id": "c2", "name": "Bash", "input": {"invalid_json": "{oops"}}],
            "stop_reason": "tool_use", "stop_sequence": null,
            "usage": {"input_tokens": 30, "output_tokens": 7}})
    );
    // The same reply as a stream, for an agent that asked for one.
    let mut out = Vec::new();
    MessageEvents::new("msg_1".into(), "asked".into()).finish(&reply, &mut out);
    let streamed = read(&String::from_utf8(out).unwrap());
    assert_eq!((streamed.blocks, streamed.complete), (reply.blocks, true));
}

#[test]
fn errors_are_told_in_the_form_of_messages() {
    for (status, body, expected_status, kind, text) in [
        (
            400,
            r#"{"error":{"message":"too long","type":"BadRequestError"}}"#,
            400,
            "invalid_request_error",
            "BadRequestError: too long",
        ),
        (429, r#"{"object":"error","message":"slow down"}"#, 429, "rate_limit_error", "slow down"),
        (404, r#"{"detail":"Not Found"}"#, 404, "not_found_error", "Not Found"),
        (500, "<html>", 500, "api_error", "not JSON: <html>"),
        (503, "{}", 503, "overloaded_error", "{}"),
        (200, r#"{"error":{"message":"late"}}"#, 502, "api_error", "late"),
    ] {
        let (found, told) = whole_chat_reply(status, body.as_bytes()).unwrap_err();
        let told: Value = serde_json::from_str(&told).unwrap();
        assert_eq!(found, expected_status);
        assert_eq!(told, json!({"type": "error", "error": {"type": kind, "message": text}}));
    }
}

#[test]
fn a_count_is_asked_for_and_read() {
    let body = json!({"model": "tiny", "max_tokens": 5, "system": "Be brief.",
        "messages": [{"role": "user", "content": "hi"}],
        "tools": [{"name": "Bash", "input_schema": {}}]});
    assert_eq!(
        tokenize_request(&body),
        json!({"model": "tiny", "messages": [{"role": "system", "content": "Be brief."},
            {"role": "user", "content": "hi"}],
            "tools": [{"type": "function", "function": {"name": "Bash", "parameters": {}}}],
            "add_generation_prompt": true})
    );
    assert_eq!(tokens_counted(br#"{"count":12,"tokens":[1]}"#), Some(12));
    assert_eq!(tokens_counted(br#"{"tokens":[1]}"#), None);
    assert_eq!(tokens_counted(b"no"), None);
}
