//! Streams and bodies of every API, as servers really send them, and what must come out.

use proptest::prelude::*;

use super::*;
use crate::api::Usage;

pub(super) fn text(text: &str) -> ReplyBlock {
    ReplyBlock::Text { text: text.into() }
}

pub(super) fn reasoning(text: &str, signature: Option<&str>) -> ReplyBlock {
    ReplyBlock::Reasoning { text: text.into(), signature: signature.map(Into::into) }
}

pub(super) fn call(id: &str, name: &str, arguments: &str) -> ReplyBlock {
    ReplyBlock::ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
}

/// Feeds event by event: how many output chunks each brought, and the reply. Byte by byte must
/// come to the same.
pub(super) fn decode(api: Api, events: &[&str]) -> (Vec<u32>, Reply) {
    let mut decoder = ReplyDecoder::new(api);
    let frames: Vec<String> = events.iter().map(|data| format!("data: {data}\n\n")).collect();
    let chunks: Vec<u32> =
        frames.iter().map(|frame| decoder.feed(frame.as_bytes()).output_chunks).collect();
    let reply = decoder.finish();
    let mut decoder = ReplyDecoder::new(api);
    let bytes = frames.concat();
    let sum: u32 = bytes.bytes().map(|byte| decoder.feed(&[byte]).output_chunks).sum();
    assert_eq!(sum, chunks.iter().sum::<u32>());
    assert_eq!(decoder.finish(), reply);
    (chunks, reply)
}

#[test]
fn a_messages_stream_with_everything() {
    let (chunks, reply) = decode(
        Api::Messages,
        &[
            r#"{"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"big","content":[],"stop_reason":null,"usage":{"input_tokens":12,"cache_creation_input_tokens":100,"cache_read_input_tokens":3000,"output_tokens":1}}}"#,
            r#"{"type":"ping"}"#,
            r#"{"type":"content_block_start","index":0,"content_block":{"type":"thinking","thinking":"","signature":""}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"Let me "}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"look.\n"}}"#,
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":"c2ln"}}"#,
            r#"{"type":"content_block_stop","index":0}"#,
            r#"{"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"I \"read\" "}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":""}}"#,
            r#"{"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"it."}}"#,
            r#"{"type":"content_block_stop","index":1}"#,
            r#"{"type":"content_block_start","index":2,"content_block":{"type":"tool_use","id":"toolu_1","name":"Bash","input":{}}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":""}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"command\":"}}"#,
            r#"{"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"\"ls\"}"}}"#,
            r#"{"type":"content_block_stop","index":2}"#,
            r#"{"type":"content_block_start","index":3,"content_block":{"type":"tool_use","id":"toolu_2","name":"Stop","input":{}}}"#,
            r#"{"type":"content_block_stop","index":3}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},"usage":{"output_tokens":57}}"#,
            r#"{"type":"message_stop"}"#,
        ],
    );
    assert_eq!(chunks, [0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 1, 0, 1, 0, 1, 1, 0, 1, 0, 0, 0]);
    let expected = Reply {
        blocks: vec![
            reasoning("Let me look.\n", Some("c2ln")),
            text("I \"read\" it."),
            call("toolu_1", "Bash", "{\"command\":\"ls\"}"),
            call("toolu_2", "Stop", "{}"),
        ],
        usage: Usage {
            prompt_tokens: Some(3112),
            completion_tokens: Some(57),
            cached_tokens: Some(3000),
            cache_write_tokens: Some(100),
            reasoning_tokens: None,
        },
        stop_reason: Some("tool_use".into()),
        model: Some("big".into()),
        error: None,
        complete: true,
        ..Reply::default()
    };
    assert_eq!(reply, expected);
}

#[test]
fn messages_usage_of_engines() {
    let usage = |prompt_tokens, completion_tokens, cached_tokens| Usage {
        prompt_tokens,
        completion_tokens,
        cached_tokens,
        ..Usage::default()
    };
    let start =
        r#"{"type":"message_start","message":{"usage":{"input_tokens":611,"output_tokens":0}}}"#;
    let cases: [(&[&str], Usage); 5] = [
        // A broken stream: the placeholder of the start is no count.
        (&[start], usage(Some(611), None, None)),
        (
            &[
                start,
                r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":611,"output_tokens":9}}"#,
            ],
            usage(Some(611), Some(9), None),
        ),
        // The cache figures come only at the end, and then the input leaves them out.
        (
            &[
                start,
                r#"{"type":"message_delta","delta":{},"usage":{"input_tokens":99,"cache_read_input_tokens":512,"output_tokens":9}}"#,
            ],
            usage(Some(611), Some(9), Some(512)),
        ),
        (
            &[
                start,
                r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":4}}"#,
                r#"{"type":"message_delta","delta":{},"usage":{"output_tokens":8}}"#,
            ],
            usage(Some(611), Some(8), None),
        ),
        (&[r#"{"type":"message_stop"}"#], Usage::default()),
    ];
    for (events, expected) in cases {
        assert_eq!(decode(Api::Messages, events).1.usage, expected, "{events:?}");
    }
}

#[test]
fn a_chat_stream_with_everything() {
    let (chunks, reply) = decode(
        Api::Chat,
        &[
            r#"{"id":"c","object":"chat.completion.chunk","model":"tiny","choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}],"usage":null}"#,
            r#"{"choices":[{"index":0,"delta":{"reasoning_content":"Hm","reasoning":"Hm"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"reasoning":", yes."}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"One "}}]}"#,
            r#"{"choices":[{"index":1,"delta":{"content":"another choice"}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"content":"two.","reasoning":null}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"a","type":"function","function":{"name":"bash","arguments":""}},{"index":1,"id":"b","type":"function","function":{"name":"read","arguments":"{"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":"{\"x\""}},{"index":1,"function":{"arguments":"}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]}}]}"#,
            r#"{"choices":[{"index":0,"delta":{},"finish_reason":"tool_calls"}]}"#,
            r#"{"choices":[],"usage":{"prompt_tokens":611,"total_tokens":640,"completion_tokens":29,"prompt_tokens_details":{"cached_tokens":512},"completion_tokens_details":{"reasoning_tokens":7}}}"#,
            "[DONE]",
        ],
    );
    assert_eq!(chunks, [0, 1, 1, 1, 0, 1, 1, 1, 1, 0, 0, 0]);
    let expected = Reply {
        blocks: vec![
            reasoning("Hm, yes.", None),
            text("One two."),
            call("a", "bash", "{\"x\":1}"),
            call("b", "read", "{}"),
        ],
        usage: Usage {
            prompt_tokens: Some(611),
            completion_tokens: Some(29),
            cached_tokens: Some(512),
            cache_write_tokens: None,
            reasoning_tokens: Some(7),
        },
        stop_reason: Some("tool_calls".into()),
        model: Some("tiny".into()),
        error: None,
        complete: true,
        ..Reply::default()
    };
    assert_eq!(reply, expected);
}

#[test]
fn running_counts_come_with_their_chunks() {
    let mut decoder = ReplyDecoder::new(Api::Chat);
    let cases: [(&str, u32, Option<u64>); 4] = [
        (
            r#"{"choices":[{"index":0,"delta":{"role":"assistant"}}],"usage":{"prompt_tokens":5,"completion_tokens":0}}"#,
            0,
            Some(0),
        ),
        (
            r#"{"choices":[{"index":0,"delta":{"content":"ab"}}],"usage":{"prompt_tokens":5,"completion_tokens":4}}"#,
            1,
            Some(4),
        ),
        (r#"{"choices":[{"index":0,"delta":{"content":"c"}}]}"#, 1, None),
        (r#"{"choices":[],"usage":{"prompt_tokens":5,"completion_tokens":6}}"#, 0, None),
    ];
    for (data, output_chunks, completion_tokens_so_far) in cases {
        let fed = decoder.feed(format!("data: {data}\n\n").as_bytes());
        let expected = Fed { output_chunks, completion_tokens_so_far, done: false };
        assert_eq!(fed, expected, "{data}");
    }
    assert!(decoder.feed(b"data: [DONE]\n\n").done);
    assert_eq!(decoder.reply().usage.completion_tokens, Some(6));
    let mut decoder = ReplyDecoder::new(Api::Messages);
    assert!(decoder.feed(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n").done);
}

#[test]
fn a_completions_stream_as_vllm_sends_it() {
    let events = [
        r#"{"id":"c","object":"text_completion","model":"tiny","choices":[{"index":0,"text":"mi","logprobs":null,"finish_reason":null,"stop_reason":null,"prompt_token_ids":[11,12,13],"token_ids":[3559]}],"usage":{"prompt_tokens":3,"total_tokens":4,"completion_tokens":1}}"#,
        r#"{"choices":[{"index":1,"text":"another choice"}]}"#,
        r#"{"choices":[{"index":0,"text":"","token_ids":[7]}],"usage":{"prompt_tokens":3,"completion_tokens":2}}"#,
        r#"{"choices":[{"index":0,"text":" your","finish_reason":"length"}],"usage":{"prompt_tokens":3,"completion_tokens":3}}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":3,"total_tokens":6,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}"#,
        "[DONE]",
    ];
    let (chunks, reply) = decode(Api::Completions, &events);
    assert_eq!(chunks, [1, 0, 0, 1, 0, 0]);
    let expected = Reply {
        blocks: vec![text("mi your")],
        usage: Usage {
            prompt_tokens: Some(3),
            completion_tokens: Some(3),
            cached_tokens: Some(0),
            ..Usage::default()
        },
        stop_reason: Some("length".into()),
        model: Some("tiny".into()),
        error: None,
        complete: true,
        ..Reply::default()
    };
    assert_eq!(reply, expected);
    let mut decoder = ReplyDecoder::new(Api::Completions);
    let counts = events
        .map(|data| decoder.feed(format!("data: {data}\n\n").as_bytes()).completion_tokens_so_far);
    assert_eq!(counts, [Some(1), None, Some(2), Some(3), None, None]);
    let whole = parse_reply(
        Api::Completions,
        br#"{"object":"text_completion","model":"tiny","choices":[{"index":0,"text":"mi your","finish_reason":"length"},{"index":1,"text":"x","finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":0}}}"#,
    );
    assert_eq!(whole, reply);
    for odd in ["{not json", r#"{"choices":null}"#, r#"{"choices":[{"text":null}]}"#, "7"] {
        assert_eq!(decode(Api::Completions, &[odd]).1, Reply::default(), "{odd}");
    }
}

#[test]
fn odd_chat_streams() {
    let cases: [(&[&str], &[ReplyBlock]); 6] = [
        // The older form of a call.
        (
            &[
                r#"{"choices":[{"delta":{"function_call":{"name":"f"}}}]}"#,
                r#"{"choices":[{"delta":{"function_call":{"arguments":"{}"}}}]}"#,
            ],
            &[call("", "f", "{}")],
        ),
        // Every call with the same index.
        (
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"1"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"b","function":{"name":"g","arguments":"2"}}]}}]}"#,
            ],
            &[call("a", "f", "1"), call("b", "g", "2")],
        ),
        // Id and name again in every piece.
        (
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"1"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"index":0,"id":"a","function":{"name":"f","arguments":"2"}}]}}]}"#,
            ],
            &[call("a", "f", "12")],
        ),
        // No index at all.
        (
            &[
                r#"{"choices":[{"delta":{"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}}]}"#,
                r#"{"choices":[{"delta":{"tool_calls":[{"id":"b","function":{"name":"f","arguments":"[]"}}]}}]}"#,
            ],
            &[call("a", "f", "{}"), call("b", "f", "[]")],
        ),
        (
            &[r#"{"choices":[{"delta":{"content":[{"type":"text","text":"parts"}]}}]}"#],
            &[text("parts")],
        ),
        (
            &[
                "{not json",
                r#"{"choices":null}"#,
                r#"{"choices":[{"delta":null,"index":null}]}"#,
                "7",
                r#"{"choices":[{"delta":{"content":"x"}}]}"#,
            ],
            &[text("x")],
        ),
    ];
    for (events, expected) in cases {
        let reply = decode(Api::Chat, events).1;
        assert_eq!(reply.blocks, expected, "{events:?}");
        assert!(!reply.complete);
    }
}

#[test]
fn odd_messages_streams() {
    let delta =
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"x"}}"#;
    let cases: [(&[&str], &[ReplyBlock]); 4] = [
        (&[delta, delta], &[text("xx")]),
        (
            &[
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"t","name":"n","input":{"a":1}}}"#,
                delta,
            ],
            &[call("t", "n", "{\"a\":1}"), text("x")],
        ),
        (
            &[
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"redacted_thinking","data":"enc"}}"#,
            ],
            &[reasoning("", Some("enc"))],
        ),
        (
            &[
                r#"{"type":"content_block_start","index":0,"content_block":{"type":"web_search_tool_result","content":[]}}"#,
                r#"{"type":"new_kind"}"#,
            ],
            &[],
        ),
    ];
    for (events, expected) in cases {
        assert_eq!(decode(Api::Messages, events).1.blocks, expected, "{events:?}");
    }
}

#[test]
fn errors_inside_streams_and_in_bodies() {
    let cases = [
        (
            Api::Messages,
            r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#,
            "overloaded_error: Overloaded",
        ),
        (
            Api::Chat,
            r#"{"error":{"message":"max_tokens too large","type":"BadRequestError","param":null,"code":400}}"#,
            "BadRequestError: max_tokens too large",
        ),
        (
            Api::Chat,
            r#"{"object":"error","message":"no such model","type":"NotFoundError","code":404}"#,
            "NotFoundError: no such model",
        ),
        (Api::Chat, r#"{"error":"plain words"}"#, "plain words"),
        (
            Api::Completions,
            r#"{"error":{"message":"no such model","type":"NotFoundError","param":"model","code":404}}"#,
            "NotFoundError: no such model",
        ),
        (Api::Chat, r#"{"error":{"code":7}}"#, r#"{"code":7}"#),
    ];
    for (api, data, expected) in cases {
        let body = parse_reply(api, data.as_bytes());
        assert_eq!(body.error.as_deref(), Some(expected), "{data}");
        let (chunks, reply) = decode(api, &[data]);
        assert_eq!((chunks, reply.error.as_deref()), (vec![0], Some(expected)), "{data}");
        assert!(!reply.complete && body.complete);
    }
    let bodies = [
        (r#"{"detail":"Not Found"}"#, "Not Found"),
        (r#"{"message":"no route"}"#, "no route"),
        ("<html>502</html>\n", "not JSON: <html>502</html>"),
    ];
    for (body, expected) in bodies {
        for api in Api::ALL {
            assert_eq!(parse_reply(api, body.as_bytes()).error.as_deref(), Some(expected));
        }
    }
}

#[test]
fn whole_bodies() {
    let message = parse_reply(
        Api::Messages,
        br#"{"type":"message","model":"tiny","role":"assistant","content":[{"type":"thinking","thinking":"t","signature":"s"},{"type":"text","text":"hi"},{"type":"tool_use","id":"t1","name":"Bash","input":{"command": "ls"}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":3}}"#,
    );
    let chat = parse_reply(
        Api::Chat,
        br#"{"object":"chat.completion","model":"tiny","choices":[{"index":0,"message":{"role":"assistant","reasoning":"t","content":"hi","tool_calls":[{"id":"t1","type":"function","function":{"name":"Bash","arguments":"{\"command\": \"ls\"}"}}]},"finish_reason":"tool_calls"}],"usage":{"prompt_tokens":5,"completion_tokens":3,"prompt_tokens_details":null}}"#,
    );
    let usage = Usage { prompt_tokens: Some(5), completion_tokens: Some(3), ..Usage::default() };
    for (reply, signature, reason) in [(message, Some("s"), "tool_use"), (chat, None, "tool_calls")]
    {
        let expected = Reply {
            blocks: vec![
                reasoning("t", signature),
                text("hi"),
                call("t1", "Bash", "{\"command\": \"ls\"}"),
            ],
            usage,
            stop_reason: Some(reason.into()),
            model: Some("tiny".into()),
            error: None,
            complete: true,
            ..Reply::default()
        };
        assert_eq!(reply, expected);
    }
}

#[test]
fn an_error_event_in_plain_words() {
    for api in Api::ALL {
        let mut decoder = ReplyDecoder::new(api);
        decoder.feed(b"event: error\ndata: engine is gone\n\n");
        assert_eq!(decoder.finish().error.as_deref(), Some("engine is gone"));
    }
}

fn events() -> impl Strategy<Value = Vec<String>> {
    let count = prop_oneof![Just("null".to_owned()), any::<u64>().prop_map(|n| n.to_string())];
    let event = ("[a-z_]{0,4}", 0..3_u8, count, 0..12_u8).prop_map(|(text, index, count, kind)| {
        match kind {
            0 => format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"text_delta","text":"{text}"}}}}"#),
            1 => format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"input_json_delta","partial_json":"{text}"}}}}"#),
            2 => format!(r#"{{"type":"content_block_delta","index":{index},"delta":{{"type":"signature_delta","signature":"{text}"}}}}"#),
            3 => format!(r#"{{"type":"content_block_start","index":{index},"content_block":{{"type":"tool_use","name":"{text}","input":{count}}}}}"#),
            4 => format!(r#"{{"type":"message_delta","delta":{{}},"usage":{{"input_tokens":{count},"cache_read_input_tokens":{count}}}}}"#),
            5 => format!(r#"{{"choices":[{{"index":{index},"delta":{{"content":"{text}","reasoning":"{text}"}}}}],"usage":{{"completion_tokens":{count}}}}}"#),
            6 => format!(r#"{{"choices":[{{"delta":{{"tool_calls":[{{"index":{index},"id":"{text}","function":{{"arguments":"{text}"}}}}]}}}}]}}"#),
            7 => format!(r#"{{"error":{count}}}"#),
            8 => format!(r#"{{"type":"response.output_text.delta","output_index":{index},"delta":"{text}"}}"#),
            9 => format!(r#"{{"type":"response.output_item.done","output_index":{index},"item":{{"type":"function_call","name":"{text}","arguments":{count}}}}}"#),
            10 => format!(r#"{{"choices":[{{"index":{index},"text":"{text}","finish_reason":{count}}}]}}"#),
            _ => text,
        }
    });
    proptest::collection::vec(event, 0..12)
}

proptest! {
    #[test]
    fn any_stream_is_read_without_a_panic_and_whatever_the_cuts(events in events()) {
        let events: Vec<&str> = events.iter().map(String::as_str).collect();
        for api in Api::ALL {
            decode(api, &events);
        }
    }
}

#[test]
fn llama_cpp_tells_cached_tokens_beside_the_usage() {
    let cached = |api, timings: &str| {
        let body = format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":30,"completion_tokens":3}},"timings":{timings}}}"#
        );
        decode(api, &[&body]).1.usage.cached_tokens
    };
    for api in [Api::Chat, Api::Completions] {
        assert_eq!(cached(api, r#"{"cache_n":24,"prompt_n":6,"prompt_ms":8.5}"#), Some(24));
        assert_eq!(cached(api, r#"{"prompt_n":6}"#), None);
        assert_eq!(cached(api, "null"), None);
    }
    // What the usage itself says counts first.
    let both = r#"{"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":3,"prompt_tokens_details":{"cached_tokens":16}},"timings":{"cache_n":24}}"#;
    assert_eq!(decode(Api::Chat, &[both]).1.usage.cached_tokens, Some(16));
}
