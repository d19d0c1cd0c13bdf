//! Requests of the Responses API: what is read from them, what makes two items equal, and prompts that lie
//! with the server in part.

use super::tests::rebuilt;
use super::*;

const CODEX_BODY: &str = r#"{"model":"tiny","stream":true, "instructions":"You work on code.","input":[
  {"type":"message","id":"msg_1","role":"developer","content":[{"type":"input_text","text":"Be brief."}]},
  {"role":"user","content":[{"type":"input_text","text":"<environment_context>\n<cwd>/x</cwd>\n</environment_context>"}]},
  {"role":"user","content":"fix app.py"},
  {"type":"reasoning","id":"rs_1","summary":[],"content":null,"encrypted_content":"abc"},
  {"type":"function_call","id":"fc_1","status":"completed","call_id":"c1","name":"exec","arguments":"{}"},
  {"type":"function_call_output","call_id":"c1","output":"four"},
  {"type":"custom_tool_call","call_id":"c2","name":"apply_patch","input":"*** x"},
  {"type":"custom_tool_call_output","call_id":"c2","output":[{"type":"input_text","text":"grün"}]}],
  "tools":[{"type":"function","name":"exec","parameters":{}},{"type":"custom","name":"apply_patch"}],
  "store":false,"prompt_cache_key":"0b3c77a4-1111-2222-3333-444455556666"}"#;

#[test]
fn a_responses_request_is_read_whole() {
    let request = parse_request(Api::Responses, CODEX_BODY.as_bytes()).unwrap();
    assert_eq!(rebuilt(&request), CODEX_BODY.as_bytes());
    let kinds: Vec<(&str, &str, usize)> = request
        .units
        .iter()
        .map(|unit| (unit.kind.as_str(), &*unit.role, unit.blocks.len()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("system", "", 1),
            ("tool", "", 1),
            ("tool", "", 1),
            ("message", "developer", 1),
            ("message", "user", 1),
            ("message", "user", 1),
            ("message", "assistant", 1),
            ("message", "assistant", 1),
            ("message", "tool", 1),
            ("message", "assistant", 1),
            ("message", "tool", 1),
        ]
    );
    assert!(request.units[4].blocks[0].ephemeral && !request.units[5].blocks[0].ephemeral);
    assert_eq!((request.n_messages, request.n_tools), (8, 2));
    assert!(request.stream && request.kept == Kept::Nothing);
    assert_eq!(request.session_hint.as_deref(), Some("0b3c77a4-1111-2222-3333-444455556666"));
    let results: Vec<(&str, u64)> =
        request.tool_results.iter().map(|it| (it.call_id.as_str(), it.result_bytes)).collect();
    assert_eq!(results, [("c1", 4), ("c2", 5)]);
    let params: Value = serde_json::from_str(&request.params).unwrap();
    let names: Vec<&String> = params.as_object().unwrap().keys().collect();
    assert_eq!(names, ["model", "stream", "store", "prompt_cache_key"]);
}

#[test]
fn forms_and_hints_of_responses_requests() {
    let plain = parse_request(Api::Responses, br#"{"input":"hi","instructions":null}"#).unwrap();
    assert_eq!((plain.units.len(), &*plain.units[0].role), (1, "user"));
    assert_eq!(rebuilt(&plain), br#"{"input":"hi","instructions":null}"#);
    let item = parse_request(
        Api::Responses,
        br#"{"input":[{"role":"user","content":[{"type":"input_text","text":"hi"}]}]}"#,
    );
    assert_eq!(plain.units[0].blocks, item.unwrap().units[0].blocks);
    let response = |id: &str| Kept::Response(id.to_owned());
    for (body, kept, session) in [
        (r#"{"input":[],"previous_response_id":"resp_1"}"#, response("resp_1"), None),
        (r#"{"input":[],"previous_response_id":null}"#, Kept::Nothing, None),
        (r#"{"input":[],"conversation":"conv_1"}"#, Kept::Unnamed, None),
        (r#"{"input":[],"prompt":{"id":"p"}}"#, Kept::Unnamed, None),
        (r#"{"input":[{"type":"item_reference","id":"msg_1"}]}"#, Kept::Unnamed, None),
        (r#"{"input":"see item_reference"}"#, Kept::Nothing, None),
        (r#"{"input":"x","prompt_cache_key":"my-product"}"#, Kept::Nothing, None),
        (r#"{"input":"x","client_metadata":{"session_id":"s1"}}"#, Kept::Nothing, Some("s1")),
    ] {
        let request = parse_request(Api::Responses, body.as_bytes()).unwrap();
        assert_eq!(request.kept, kept, "{body}");
        assert_eq!(request.session_hint.as_deref(), session, "{body}");
    }
    for (body, expected) in [
        ("{}", "not a responses request: no member `input`"),
        (r#"{"input":{}}"#, "not a responses request: `input` is not a list"),
        (r#"{"input":[7]}"#, "not a responses request: message at byte 10 is not an object"),
    ] {
        let error = parse_request(Api::Responses, body.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, expected);
    }
}

#[test]
fn items_are_equal_whatever_a_server_puts_around_them() {
    let blocks = |item: &str| item_units(&[item.to_owned()]).remove(0).blocks;
    let cases = [
        (
            r#"{"type":"function_call","id":"fc_1","status":"completed","call_id":"c","name":"f","arguments":"{}"}"#,
            r#"{"arguments":"{}","call_id":"c","name":"f","type":"function_call","id":"fc_2","namespace":null,"status":"in_progress"}"#,
            true,
        ),
        (
            r#"{"type":"message","id":"m","role":"assistant","content":[{"type":"output_text","text":"x","annotations":[],"logprobs":[]}]}"#,
            r#"{"role":"assistant","content":"x"}"#,
            true,
        ),
        (
            r#"{"type":"reasoning","id":"r","summary":[],"content":null,"encrypted_content":"e"}"#,
            r#"{"type":"reasoning","encrypted_content":"e","summary":[]}"#,
            true,
        ),
        (
            r#"{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}"#,
            r#"{"type":"function_call","call_id":"d","name":"f","arguments":"{}"}"#,
            false,
        ),
        (r#"{"role":"assistant","content":"x"}"#, r#"{"role":"user","content":"x"}"#, false),
    ];
    for (left, right, is_equal) in cases {
        assert_eq!(blocks(left) == blocks(right), is_equal, "{left} {right}");
    }
}

#[test]
fn a_prompt_that_the_server_keeps_in_part_is_made_whole() {
    let reply = r#"{"type":"function_call","call_id":"c1","name":"exec","arguments":"{}"}"#;
    let first = parse_request(Api::Responses, br#"{"instructions":"i","input":"hi"}"#).unwrap();
    let body = r#"{"instructions":"i", "tools":[{"name":"exec"}],"previous_response_id":"resp_1",
        "input":[ {"type":"function_call_output","call_id":"c1","output":"ok","cache_control":1}, {"role":"user","content":"go"}],"x":1}"#;
    let mut request = parse_request(Api::Responses, body.as_bytes()).unwrap();
    let mut kept = vec![first.units[1].clone()];
    kept.extend(item_units(&[reply.to_owned()]).into_iter().map(Unit::into_owned));
    put_before_messages(&mut request, kept);
    // The body is what was sent; the prompt is whole.
    assert_eq!(String::from_utf8(rebuilt(&request)).unwrap(), body);
    assert_eq!(request.n_messages, 4);
    let texts: Vec<&str> = request.units.iter().map(|unit| &*unit.text).collect();
    assert_eq!(texts[2..4], ["\"hi\"", reply]);
    let whole = crate::api::whole_responses_body(&request.template, &texts).unwrap();
    let whole: Value = serde_json::from_slice(&whole).unwrap();
    let expected = serde_json::json!({
        "instructions": "i", "tools": [{"name": "exec"}], "x": 1,
        "input": [
            {"role": "user", "content": "hi"},
            {"type": "function_call", "call_id": "c1", "name": "exec", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "ok", "cache_control": 1},
            {"role": "user", "content": "go"},
        ],
    });
    assert_eq!(whole, expected);
    // One that told all by itself stays as it is.
    let texts: Vec<&str> = first.units.iter().map(|unit| &*unit.text).collect();
    let same = crate::api::whole_responses_body(&first.template, &texts).unwrap();
    assert_eq!(same, br#"{"instructions":"i","input":"hi"}"#);
}
