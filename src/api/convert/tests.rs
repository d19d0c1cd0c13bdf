//! Requests in both forms, side by side, and what the way there and back keeps.

use super::*;

fn converted(body: &Value, from: Api, to: Api) -> Value {
    convert_request(body, from, to).expect("there is such a conversion")
}

#[test]
fn what_cannot_be_converted_says_so() {
    for (from, to) in [
        (Api::Completions, Api::Chat),
        (Api::Completions, Api::Messages),
        (Api::Chat, Api::Completions),
        (Api::Messages, Api::Completions),
        (Api::Responses, Api::Completions),
        (Api::Chat, Api::Responses),
        (Api::Messages, Api::Responses),
    ] {
        assert_eq!(convert_request(&json!({"prompt": "x", "messages": []}), from, to), None);
    }
    for api in Api::ALL {
        assert_eq!(sendable_as(api)[0], api);
        for to in Api::ALL {
            let is_listed = sendable_as(api).contains(&to);
            assert_eq!(convert_request(&json!({}), api, to).is_some(), is_listed, "{api:?} {to:?}");
        }
    }
    let raw = json!({"prompt": [1, 2]});
    assert_eq!(converted(&raw, Api::Completions, Api::Completions), raw);
}

/// A request in both forms, each of which must become the other.
fn both_ways(messages: &Value, chat: &Value) {
    assert_eq!(converted(messages, Api::Messages, Api::Chat), *chat);
    assert_eq!(converted(chat, Api::Chat, Api::Messages), *messages);
}

#[test]
fn a_conversation_with_tools_in_both_forms() {
    both_ways(
        &json!({
            "model": "m", "stream": true, "temperature": 0.5, "top_p": 0.9, "top_k": 20, "max_tokens": 128,
            "stop_sequences": ["END"],
            "system": "You work on code.",
            "messages": [
                {"role": "user", "content": "fix app.py"},
                {"role": "assistant", "content": [
                    {"type": "thinking", "thinking": "Look first.", "signature": ""},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls", "a": 1}},
                    {"type": "tool_use", "id": "t2", "name": "Read", "input": {}},
                ]},
                {"role": "user", "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "app.py"},
                    {"type": "tool_result", "tool_use_id": "t2", "content": ""},
                    {"type": "text", "text": "go on"},
                ]},
                {"role": "system", "content": "Be brief."},
                {"role": "assistant", "content": "Done."},
                {"role": "user", "content": [
                    {"type": "text", "text": "and this?"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                    {"type": "image", "source": {"type": "url", "url": "http://127.0.0.1/a.png"}},
                ]},
            ],
            "tools": [{"name": "Bash", "description": "Runs", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "tool", "name": "Bash", "disable_parallel_tool_use": true},
            "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
        }),
        &json!({
            "model": "m", "stream": true, "temperature": 0.5, "top_p": 0.9, "top_k": 20,
            "max_completion_tokens": 128, "stop": ["END"],
            "messages": [
                {"role": "system", "content": "You work on code."},
                {"role": "user", "content": "fix app.py"},
                {"role": "assistant", "content": "I look.", "reasoning_content": "Look first.", "tool_calls": [
                    {"id": "t1", "type": "function", "function": {"name": "Bash", "arguments": "{\"command\":\"ls\",\"a\":1}"}},
                    {"id": "t2", "type": "function", "function": {"name": "Read", "arguments": "{}"}},
                ]},
                {"role": "tool", "tool_call_id": "t1", "content": "app.py"},
                {"role": "tool", "tool_call_id": "t2", "content": ""},
                {"role": "user", "content": "go on"},
                {"role": "system", "content": "Be brief."},
                {"role": "assistant", "content": "Done."},
                {"role": "user", "content": [
                    {"type": "text", "text": "and this?"},
                    {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
                    {"type": "image_url", "image_url": {"url": "http://127.0.0.1/a.png"}},
                ]},
            ],
            "tools": [{"type": "function", "function": {
                "name": "Bash", "description": "Runs", "parameters": {"type": "object"}}}],
            "tool_choice": {"type": "function", "function": {"name": "Bash"}},
            "parallel_tool_calls": false,
            "response_format": {"type": "json_schema", "json_schema": {"name": "output", "schema": {"type": "object"}}},
        }),
    );
}

#[test]
fn choices_of_tools_in_both_forms() {
    let cases = [
        (json!({"type": "auto"}), json!("auto")),
        (json!({"type": "any"}), json!("required")),
        (json!({"type": "none"}), json!("none")),
        (
            json!({"type": "tool", "name": "f"}),
            json!({"type": "function", "function": {"name": "f"}}),
        ),
    ];
    for (choice, chat_choice) in cases {
        both_ways(
            &json!({"max_tokens": 1, "messages": [], "tool_choice": choice}),
            &json!({"max_completion_tokens": 1, "messages": [], "tool_choice": chat_choice}),
        );
    }
}

fn check(from: Api, message: &Value, expected: &Value) {
    let to = if from == Api::Chat { Api::Messages } else { Api::Chat };
    let body = json!({"messages": [message]});
    let converted = converted(&body, from, to);
    assert_eq!(converted["messages"], *expected, "{message}");
}

#[test]
fn messages_that_only_the_messages_api_can_say() {
    let cases = [
        // Text in a list is the same text; marks are left out.
        (
            json!({"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}]}),
            json!([{"role": "user", "content": "a"}]),
        ),
        (
            json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
            json!([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]),
        ),
        // Results come first; an image in one is shown by the user.
        (
            json!({"role": "user", "content": [
                {"type": "text", "text": "see"},
                {"type": "tool_result", "tool_use_id": "t", "is_error": true, "content": [
                    {"type": "text", "text": "1"}, {"type": "text", "text": "2"},
                    {"type": "image", "source": {"type": "url", "url": "u"}}]},
                {"type": "tool_result", "tool_use_id": "v"},
            ]}),
            json!([
                {"role": "tool", "tool_call_id": "t", "content": "1\n2"},
                {"role": "tool", "tool_call_id": "v", "content": ""},
                {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}, {"type": "text", "text": "see"}]},
            ]),
        ),
        (
            json!({"role": "assistant", "content": [
                {"type": "redacted_thinking", "data": "x"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {}},
            ]}),
            json!([{"role": "assistant", "content": null, "tool_calls": [
                {"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}]}]),
        ),
        (
            json!({"role": "user", "content": [{"type": "document", "source": {"type": "text", "data": "doc"}}]}),
            json!([{"role": "user", "content": "doc"}]),
        ),
    ];
    for (message, expected) in cases {
        check(Api::Messages, &message, &expected);
    }
}

#[test]
fn messages_that_only_the_chat_api_can_say() {
    let call = |arguments: &str| {
        json!({"role": "assistant", "content": "", "reasoning": "r", "tool_calls": [
            {"id": "t", "type": "function", "function": {"name": "f", "arguments": arguments}}]})
    };
    let used = |input: Value| {
        json!([{"role": "assistant", "content": [
            {"type": "thinking", "thinking": "r", "signature": ""},
            {"type": "tool_use", "id": "t", "name": "f", "input": input}]}])
    };
    let cases = [
        (call(""), used(json!({}))),
        (call("{\"cut\": "), used(json!({"arguments": "{\"cut\": "}))),
        (call("[1]"), used(json!({"arguments": "[1]"}))),
        (
            json!({"role": "user", "name": "bo", "content": [{"type": "text", "text": "hi"}]}),
            json!([{"role": "user", "content": "hi"}]),
        ),
        (
            json!({"role": "tool", "tool_call_id": "t", "content": [{"type": "text", "text": "r"}]}),
            json!([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}]),
        ),
    ];
    for (message, expected) in cases {
        check(Api::Chat, &message, &expected);
    }
}

#[test]
fn members_that_change_or_go() {
    let messages = json!({
        "model": "m", "max_tokens": 5, "metadata": {"user_id": "u"}, "thinking": {"type": "enabled"},
        "stop_sequences": null,
        "system": [
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2; cch=1;"},
            {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
            {"type": "text", "text": "b"}],
        "tools": [
            {"name": "f", "input_schema": {}, "cache_control": {"type": "ephemeral"}},
            {"type": "web_search_20250305", "name": "web_search"}],
        "messages": [],
    });
    let chat = json!({
        "model": "m", "max_completion_tokens": 5,
        "messages": [{"role": "system", "content": "ab"}],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}],
    });
    assert_eq!(converted(&messages, Api::Messages, Api::Chat), chat);
    let chat = json!({
        "model": "m", "max_tokens": 7, "stop": "END", "seed": 1, "stream_options": {"include_usage": true},
        "user": "u", "parallel_tool_calls": false,
        "messages": [{"role": "developer", "content": "a"}, {"role": "system", "content": "b"}],
        "tools": [{"type": "function", "function": {"name": "f"}}],
    });
    let messages = json!({
        "model": "m", "max_tokens": 7, "stop_sequences": ["END"],
        "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "messages": [],
        "tools": [{"name": "f", "input_schema": {"type": "object", "properties": {}}}],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": true},
    });
    assert_eq!(converted(&chat, Api::Chat, Api::Messages), messages);
    let bare = converted(&json!({}), Api::Chat, Api::Messages);
    assert_eq!(bare, json!({"max_tokens": 4096, "messages": []}));
    assert_eq!(converted(&chat, Api::Chat, Api::Chat), chat);
}

#[test]
fn errors_in_the_apis_own_form() {
    let cases = [
        (400, "invalid_request_error"),
        (404, "not_found_error"),
        (429, "rate_limit_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
    ];
    for (status, kind) in cases {
        for api in [Api::Messages, Api::Chat] {
            let body = error_body(api, status, "upstream \"x\" refused");
            let error = crate::api::parse_reply(api, body.as_bytes()).error;
            assert_eq!(error, Some(format!("{kind}: upstream \"x\" refused")));
        }
    }
    assert_eq!(
        error_body(Api::Chat, 502, "m"),
        r#"{"error":{"message":"m","type":"api_error","param":null,"code":502}}"#
    );
    assert_eq!(
        error_body(Api::Messages, 502, "m"),
        r#"{"type":"error","error":{"type":"api_error","message":"m"}}"#
    );
}

#[test]
fn a_responses_request_as_a_chat_request() {
    let responses = json!({
        "model": "m", "stream": true, "temperature": 0.5, "max_output_tokens": 128, "store": false,
        "parallel_tool_calls": true, "prompt_cache_key": "k", "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "text": {"format": {"type": "json_schema", "name": "plan", "schema": {"type": "object"}}},
        "instructions": "You work on code.",
        "input": [
            {"type": "message", "id": "m1", "role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"role": "user", "content": [
                {"type": "input_text", "text": "see"},
                {"type": "input_image", "image_url": "data:image/png;base64,aGk="}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Look first."}], "encrypted_content": "e"},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look.", "annotations": []}]},
            {"type": "function_call", "call_id": "c1", "name": "exec", "arguments": "{\"cmd\": \"ls\"}"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "apply_patch", "input": "*** x"},
            {"type": "function_call_output", "call_id": "c1", "output": "app.py"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "a"}, {"type": "input_text", "text": "b"}]},
            {"type": "reasoning", "summary": [], "encrypted_content": "only its maker reads it"},
            {"type": "function_call", "call_id": "c3", "name": "spawn", "namespace": "agents", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c3", "output": ""},
            {"type": "local_shell_call", "call_id": "c4", "action": {"command": ["ls"]}},
            {"type": "local_shell_call_output", "call_id": "c4", "output": "x"},
            {"type": "web_search_call", "id": "ws", "status": "completed"},
            {"role": "developer", "content": "Go on."},
            {"type": "message", "role": "assistant", "content": "Done."},
            {"role": "user", "content": "thanks"},
        ],
        "tools": [
            {"type": "function", "name": "exec", "description": "Runs", "strict": false, "parameters": {"type": "object"}},
            {"type": "custom", "name": "apply_patch", "format": {"type": "grammar"}},
            {"type": "namespace", "name": "agents", "tools": [{"type": "function", "name": "spawn", "parameters": {"type": "object"}}]},
            {"type": "web_search"},
        ],
        "tool_choice": {"type": "function", "name": "exec"},
    });
    let chat = json!({
        "model": "m", "stream": true, "temperature": 0.5, "max_completion_tokens": 128,
        "parallel_tool_calls": true, "reasoning_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "plan", "schema": {"type": "object"}}},
        "messages": [
            {"role": "system", "content": "You work on code.\n\nBe brief."},
            {"role": "user", "content": [
                {"type": "text", "text": "see"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]},
            {"role": "assistant", "content": "I look.", "reasoning_content": "Look first.", "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "exec", "arguments": "{\"cmd\": \"ls\"}"}},
                {"id": "c2", "type": "function", "function": {"name": "apply_patch", "arguments": "{\"input\":\"*** x\"}"}}]},
            {"role": "tool", "tool_call_id": "c1", "content": "app.py"},
            {"role": "tool", "tool_call_id": "c2", "content": "a\nb"},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c3", "type": "function", "function": {"name": "agents__spawn", "arguments": "{}"}}]},
            {"role": "tool", "tool_call_id": "c3", "content": ""},
            {"role": "assistant", "content": null, "tool_calls": [
                {"id": "c4", "type": "function", "function": {"name": "local_shell", "arguments": "{\"command\":[\"ls\"]}"}}]},
            {"role": "tool", "tool_call_id": "c4", "content": "x"},
            {"role": "system", "content": "Go on."},
            {"role": "assistant", "content": "Done."},
            {"role": "user", "content": "thanks"},
        ],
        "tools": [
            {"type": "function", "function": {"name": "exec", "description": "Runs", "strict": false, "parameters": {"type": "object"}}},
            {"type": "function", "function": {"name": "apply_patch", "parameters": {
                "type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}}},
            {"type": "function", "function": {"name": "agents__spawn", "parameters": {"type": "object"}}},
        ],
        "tool_choice": {"type": "function", "function": {"name": "exec"}},
    });
    assert_eq!(converted(&responses, Api::Responses, Api::Chat), chat);
    // To Messages it goes by way of Chat.
    let messages = converted(&responses, Api::Responses, Api::Messages);
    assert_eq!(messages, converted(&chat, Api::Chat, Api::Messages));
    assert_eq!(messages["system"], "You work on code.\n\nBe brief.");
    let plain = json!({"input": "hi", "tool_choice": "auto"});
    assert_eq!(
        converted(&plain, Api::Responses, Api::Chat),
        json!({"messages": [{"role": "user", "content": "hi"}]})
    );
}

#[test]
fn what_only_the_first_server_reads_is_taken_out() {
    let body = json!({
        "previous_response_id": "resp_1", "conversation": null, "store": true,
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "summary": [], "encrypted_content": "e"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "e"},
        ],
    });
    let portable = portable_responses(&body).unwrap();
    assert_eq!(
        portable,
        json!({"store": true, "input": [
            {"role": "user", "content": "hi"},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": null},
        ]})
    );
    assert_eq!(portable_responses(&portable), None);
    assert_eq!(portable_responses(&json!({"input": "hi"})), None);
}
