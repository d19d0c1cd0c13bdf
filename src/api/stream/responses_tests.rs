//! Streams and bodies of the Responses API, as servers really send them, and what must come out.

use super::tests::{call, decode, reasoning, text};
use super::*;
use crate::api::Usage;

#[test]
fn a_responses_stream_with_everything() {
    let (chunks, reply) = decode(
        Api::Responses,
        &[
            r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1","model":"big","status":"in_progress","output":[],"usage":null,"error":null}}"#,
            r#"{"type":"response.in_progress","response":{"id":"resp_1","model":"big"}}"#,
            r#"{"type":"response.output_item.added","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[]}}"#,
            r#"{"type":"response.reasoning_summary_part.added","output_index":0,"summary_index":0,"part":{"type":"summary_text","text":""}}"#,
            r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"Let me "}"#,
            r#"{"type":"response.reasoning_summary_text.delta","output_index":0,"summary_index":0,"delta":"look."}"#,
            r#"{"type":"response.reasoning_summary_text.done","output_index":0,"text":"Let me look."}"#,
            r#"{"type":"response.output_item.done","output_index":0,"item":{"id":"rs_1","type":"reasoning","summary":[{"type":"summary_text","text":"Let me look."}],"encrypted_content":"enc"}}"#,
            r#"{"type":"response.output_item.added","output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","status":"in_progress","content":[]}}"#,
            r#"{"type":"response.content_part.added","output_index":1,"content_index":0,"part":{"type":"output_text","text":"","annotations":[]}}"#,
            r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"I \"read\" "}"#,
            r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":""}"#,
            r#"{"type":"response.output_text.delta","output_index":1,"content_index":0,"delta":"it."}"#,
            r#"{"type":"response.output_text.done","output_index":1,"content_index":0,"text":"I \"read\" it."}"#,
            r#"{"type":"response.output_item.done","output_index":1,"item":{"id":"msg_1","type":"message","role":"assistant","content":[{"type":"output_text","text":"I \"read\" it."}]}}"#,
            r#"{"type":"response.output_item.added","output_index":2,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"exec","arguments":""}}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":2,"item_id":"fc_1","delta":"{\"cmd\":"}"#,
            r#"{"type":"response.function_call_arguments.delta","output_index":2,"item_id":"fc_1","delta":"\"ls\"}"}"#,
            r#"{"type":"response.function_call_arguments.done","output_index":2,"arguments":"{\"cmd\":\"ls\"}"}"#,
            r#"{"type":"response.output_item.done","output_index":2,"item":{"id":"fc_1","type":"function_call","call_id":"call_1","name":"exec","arguments":"{\"cmd\":\"ls\"}"}}"#,
            r#"{"type":"response.output_item.added","output_index":3,"item":{"id":"ct_1","type":"custom_tool_call","call_id":"call_2","name":"patch","input":""}}"#,
            r#"{"type":"response.custom_tool_call_input.delta","output_index":3,"delta":"*** x"}"#,
            r#"{"type":"response.custom_tool_call_input.done","output_index":3,"input":"*** x"}"#,
            r#"{"type":"response.output_item.done","output_index":3,"item":{"id":"ct_1","type":"custom_tool_call","call_id":"call_2","name":"patch","input":"*** x"}}"#,
            r#"{"type":"response.completed","response":{"id":"resp_1","model":"big-2","status":"completed","incomplete_details":null,"error":null,"output":[],"usage":{"input_tokens":3112,"input_tokens_details":{"cached_tokens":3000,"cache_write_tokens":100},"output_tokens":57,"output_tokens_details":{"reasoning_tokens":9},"total_tokens":3169}}}"#,
        ],
    );
    assert_eq!(chunks, [0, 0, 0, 0, 1, 1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 1, 1, 0, 0, 1, 1, 0, 0, 0]);
    assert_eq!(
        reply.blocks,
        [
            reasoning("Let me look.", Some("enc")),
            text("I \"read\" it."),
            call("call_1", "exec", "{\"cmd\":\"ls\"}"),
            call("call_2", "patch", "*** x"),
        ]
    );
    let usage = Usage {
        prompt_tokens: Some(3112),
        completion_tokens: Some(57),
        cached_tokens: Some(3000),
        cache_write_tokens: Some(100),
        reasoning_tokens: Some(9),
    };
    assert_eq!(reply.usage, usage);
    assert_eq!(reply.stop_reason.as_deref(), Some("completed"));
    assert_eq!(
        (reply.model.as_deref(), reply.response_id.as_deref()),
        (Some("big-2"), Some("resp_1"))
    );
    assert!(reply.complete && reply.error.is_none());
    assert_eq!(reply.items.len(), 4);
    assert!(reply.items[2].starts_with(r#"{"id":"fc_1""#));
}

#[test]
fn odd_responses_streams() {
    let cases: [(&[&str], &[u32], &[ReplyBlock]); 6] = [
        // Items that come whole, without deltas.
        (
            &[
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]}}"#,
                r#"{"type":"response.output_item.added","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f","arguments":""}}"#,
                r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}}"#,
                r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"message","content":[{"type":"output_text","text":"a"},{"type":"refusal","refusal":"no"}]}}"#,
            ],
            &[1, 1, 0, 1],
            &[reasoning("hm", None), call("c", "f", "{}"), text("ano")],
        ),
        // Only the finished response.
        (
            &[
                r#"{"type":"response.completed","response":{"status":"completed","output":[{"type":"message","content":[{"type":"output_text","text":"x"}]}]}}"#,
            ],
            &[1],
            &[text("x")],
        ),
        // Deltas of an item that never started, and a refusal.
        (
            &[
                r#"{"type":"response.output_text.delta","output_index":0,"delta":"x"}"#,
                r#"{"type":"response.reasoning_text.delta","output_index":1,"delta":"r"}"#,
                r#"{"type":"response.refusal.delta","output_index":0,"delta":"y"}"#,
                r#"{"type":"response.function_call_arguments.delta","output_index":2,"delta":"{}"}"#,
                r#"{"type":"response.output_item.done","output_index":2,"item":{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}}"#,
            ],
            &[1, 1, 1, 1, 0],
            &[text("xy"), reasoning("r", None), call("c", "f", "{}")],
        ),
        // A call of a tool that the API defines, and one that ran on the server.
        (
            &[
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"local_shell_call","call_id":"c","action":{"command":["ls"]}}}"#,
                r#"{"type":"response.output_item.done","output_index":1,"item":{"type":"web_search_call","id":"ws_1"}}"#,
            ],
            &[1, 1],
            &[call("c", "local_shell", r#"{"command":["ls"]}"#), call("ws_1", "web_search", "")],
        ),
        // Encrypted reasoning without a word.
        (
            &[
                r#"{"type":"response.output_item.added","output_index":0,"item":{"type":"reasoning","summary":[]}}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"reasoning","summary":[],"encrypted_content":"e"}}"#,
            ],
            &[0, 1],
            &[reasoning("", Some("e"))],
        ),
        (
            &[
                "{not json",
                r#"{"type":"response.new_kind","output_index":0}"#,
                r#"{"type":"response.output_item.added","output_index":null,"item":null}"#,
                r#"{"type":"response.output_item.done","output_index":0,"item":{"type":"mcp_list_tools"}}"#,
                "7",
            ],
            &[0, 0, 0, 0, 0],
            &[],
        ),
    ];
    for (events, chunks, expected) in cases {
        let (found, reply) = decode(Api::Responses, events);
        assert_eq!((found.as_slice(), reply.blocks.as_slice()), (chunks, expected), "{events:?}");
    }
}

#[test]
fn responses_end_in_three_ways_and_without_a_count_there_is_none() {
    let end = |event: &str| decode(Api::Responses, &[event]).1;
    let cut = end(
        r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":5,"output_tokens":6}}}"#,
    );
    assert_eq!(cut.stop_reason.as_deref(), Some("max_output_tokens"));
    assert_eq!((cut.usage.prompt_tokens, cut.usage.cached_tokens), (Some(5), None));
    assert!(cut.complete && cut.error.is_none());
    // vLLM names the event alike whatever the status is.
    let cut = end(
        r#"{"type":"response.completed","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"}}}"#,
    );
    assert_eq!(cut.stop_reason.as_deref(), Some("max_output_tokens"));
    assert_eq!(cut.usage, Usage::default());
    let failed = end(
        r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"gone"},"usage":null}}"#,
    );
    assert_eq!((failed.error.as_deref(), failed.usage), (Some("gone"), Usage::default()));
    let error = end(r#"{"type":"error","code":"rate_limit","message":"slow down","param":null}"#);
    assert_eq!((error.error.as_deref(), error.complete), (Some("rate_limit: slow down"), false));
    let whole = parse_reply(
        Api::Responses,
        br#"{"id":"resp_2","model":"tiny","status":"completed","error":null,"output":[{"type":"reasoning","summary":[{"type":"summary_text","text":"t"}]},{"type":"message","content":[{"type":"output_text","text":"hi"}]},{"type":"function_call","call_id":"c","name":"exec","arguments":"{}"}],"usage":{"input_tokens":5,"output_tokens":3}}"#,
    );
    assert_eq!(whole.blocks, [reasoning("t", None), text("hi"), call("c", "exec", "{}")]);
    assert_eq!((whole.items.len(), whole.response_id.as_deref()), (3, Some("resp_2")));
    assert!(whole.complete && whole.error.is_none());
}
