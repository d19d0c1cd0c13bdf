use super::*;

fn said(text: &str) -> ReplyBlock {
    ReplyBlock::Text { text: text.into() }
}

fn call(id: &str, name: &str, arguments: &str) -> ReplyBlock {
    ReplyBlock::ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() }
}

type Place = fn(&[ReplyBlock], &[Recorded<'_>], &[Recorded<'_>]) -> Placed;

/// Answer, recorded assistant messages, what follows -> what is sent, departures in the order of
/// `Departures`.
#[track_caller]
fn check(
    place: Place,
    answer: &[ReplyBlock],
    recorded: &[Value],
    after: &[Value],
    expected: &[Value],
    departures: [u32; 4],
) {
    let texts = |values: &[Value]| values.iter().map(Value::to_string).collect::<Vec<_>>();
    let (recorded, after) = (texts(recorded), texts(after));
    let recorded: Vec<Recorded<'_>> = recorded.iter().map(|t| Recorded::read(t).unwrap()).collect();
    let after: Vec<Recorded<'_>> = after.iter().map(|t| Recorded::read(t).unwrap()).collect();
    let placed = place(answer, &recorded, &after);
    let sent: Vec<Value> =
        placed.messages.iter().map(|text| serde_json::from_str(text).unwrap()).collect();
    assert_eq!(sent, expected);
    let found = placed.departures;
    assert_eq!(
        [
            found.results_as_text,
            found.calls_unanswered,
            found.results_of_other_tools,
            found.arguments_malformed
        ],
        departures
    );
}

fn tool_use(id: &str, name: &str, input: &Value) -> Value {
    json!({"type": "tool_use", "id": id, "name": name, "input": input})
}

fn result(id: &str, content: &str) -> Value {
    json!({"type": "tool_result", "tool_use_id": id, "content": content})
}

fn user(content: &Value) -> Value {
    json!({"role": "user", "content": content})
}

fn assistant(content: &Value) -> Value {
    json!({"role": "assistant", "content": content})
}

#[test]
fn messages_results_follow_the_live_ids() {
    // Parallel calls whose results came in the other order.
    let recorded = assistant(&json!([
        {"type": "text", "text": "old"},
        tool_use("r1", "Bash", &json!({"command": "ls"})), tool_use("r2", "Read", &json!({}))
    ]));
    let after = user(&json!([result("r2", "two"), result("r1", "one"),
        {"type": "text", "text": "go on"}]));
    check(
        place_in_messages,
        &[said("new"), call("l1", "Bash", r#"{"command":"pwd"}"#), call("l2", "Read", "")],
        std::slice::from_ref(&recorded),
        std::slice::from_ref(&after),
        &[
            assistant(&json!([{"type": "text", "text": "new"},
                tool_use("l1", "Bash", &json!({"command": "pwd"})),
                tool_use("l2", "Read", &json!({}))])),
            user(&json!([result("l2", "two"), result("l1", "one"),
                {"type": "text", "text": "go on"}])),
        ],
        [0; 4],
    );
    // Other tools in the same places, arguments cut off.
    check(
        place_in_messages,
        &[call("l1", "Grep", "{\"pat"), call("l2", "Read", "{}")],
        &[recorded],
        &[after],
        &[
            assistant(&json!([
                tool_use("l1", "Grep", &json!({"arguments": "{\"pat"})),
                tool_use("l2", "Read", &json!({}))
            ])),
            user(&json!([result("l2", "two"), result("l1", "one"),
                {"type": "text", "text": "go on"}])),
        ],
        [0, 0, 1, 1],
    );
}

#[test]
fn messages_results_without_a_call_become_text_after_the_others() {
    let recorded = assistant(&json!([
        tool_use("r1", "Bash", &json!({})),
        tool_use("r2", "Bash", &json!({})),
        tool_use("r3", "Bash", &json!({}))
    ]));
    let picture = json!({"type": "image", "source": {"type": "url", "url": "x"}});
    let shown = json!({"type": "tool_result", "tool_use_id": "r2", "content": [picture]});
    let after = user(&json!([shown, result("r3", ""), result("r1", "one")]));
    check(
        place_in_messages,
        &[call("l1", "Bash", "{}")],
        std::slice::from_ref(&recorded),
        std::slice::from_ref(&after),
        &[
            assistant(&json!([tool_use("l1", "Bash", &json!({}))])),
            user(&json!([result("l1", "one"), picture, {"type": "text", "text": "(no output)"}])),
        ],
        [2, 0, 0, 0],
    );
    check(
        place_in_messages,
        &[said("no call at all")],
        &[recorded],
        &[after],
        &[
            assistant(&json!([{"type": "text", "text": "no call at all"}])),
            user(&json!([picture, {"type": "text", "text": "(no output)"},
                {"type": "text", "text": "one"}])),
        ],
        [3, 0, 0, 0],
    );
}

#[test]
fn messages_calls_without_a_result_get_an_error() {
    let error = json!({"type": "tool_result", "tool_use_id": "l1", "content": NO_RESULT,
        "is_error": true});
    let answer = [call("l1", "Bash", "{}")];
    let sent = assistant(&json!([tool_use("l1", "Bash", &json!({}))]));
    let recorded = [assistant(&json!("done"))];
    check(
        place_in_messages,
        &answer,
        &recorded,
        &[user(&json!("next task"))],
        &[sent.clone(), user(&json!([error, {"type": "text", "text": "next task"}]))],
        [0, 1, 0, 0],
    );
    // No user message right after: one of its own.
    let system = json!({"role": "system", "content": "note"});
    check(
        place_in_messages,
        &answer,
        &recorded,
        &[system.clone(), user(&json!("x"))],
        &[sent.clone(), user(&json!([error])), system, user(&json!("x"))],
        [0, 1, 0, 0],
    );
    check(place_in_messages, &answer, &recorded, &[], &[sent, user(&json!([error]))], [0, 1, 0, 0]);
}

#[test]
fn messages_keep_reasoning_and_messages_without_results() {
    let answer = [
        ReplyBlock::Reasoning { text: "hm".into(), signature: Some("sig".into()) },
        ReplyBlock::Reasoning { text: String::new(), signature: Some("opaque".into()) },
        said(""),
        said("so"),
    ];
    let after = [user(&json!("plain")), json!({"role": "system", "content": "s"})];
    check(
        place_in_messages,
        &answer,
        &[assistant(&json!("a")), assistant(&json!("b"))],
        &after,
        &[
            assistant(&json!([{"type": "thinking", "thinking": "hm", "signature": "sig"},
                {"type": "redacted_thinking", "data": "opaque"},
                {"type": "text", "text": "so"}])),
            after[0].clone(),
            after[1].clone(),
        ],
        [0; 4],
    );
}

fn chat_call(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn tool(id: &str, content: &str) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content})
}

#[test]
fn chat_results_follow_the_live_ids() {
    let recorded = json!({"role": "assistant", "content": null,
        "tool_calls": [chat_call("r1", "bash", "{}"), chat_call("r2", "bash", "{}")]});
    check(
        place_in_chat,
        &[
            ReplyBlock::Reasoning { text: "hm".into(), signature: None },
            call("l1", "bash", r#"{ "cmd": 1 }"#),
            call("l2", "grep", ""),
            call("l3", "bash", "[1]"),
        ],
        &[recorded],
        &[tool("r2", "two"), tool("r1", "one"), user(&json!("go on"))],
        &[
            json!({"role": "assistant", "content": null, "reasoning_content": "hm",
                "tool_calls": [chat_call("l1", "bash", r#"{ "cmd": 1 }"#),
                    chat_call("l2", "grep", "{}"),
                    chat_call("l3", "bash", r#"{"arguments":"[1]"}"#)]}),
            tool("l2", "two"),
            tool("l1", "one"),
            tool("l3", NO_RESULT),
            user(&json!("go on")),
        ],
        [0, 1, 1, 1],
    );
}

#[test]
fn chat_results_without_a_call_become_one_user_message() {
    let recorded = json!({"role": "assistant", "content": "x",
        "tool_calls": [chat_call("r1", "bash", "{}"), chat_call("r2", "bash", "{}")]});
    let text = |text: &str| json!({"type": "text", "text": text});
    let after = [tool("r1", "one"), tool("r2", "two"), user(&json!("go on"))];
    let recorded = [recorded];
    check(
        place_in_chat,
        &[said("no call")],
        &recorded,
        &after,
        &[assistant(&json!("no call")), user(&json!([text("one"), text("two"), text("go on")]))],
        [2, 0, 0, 0],
    );
    check(
        place_in_chat,
        &[said("one "), call("l1", "bash", "{}"), said("call")],
        &recorded,
        &after[..2],
        &[
            json!({"role": "assistant", "content": "one call",
                "tool_calls": [chat_call("l1", "bash", "{}")]}),
            tool("l1", "one"),
            user(&json!([text("two")])),
        ],
        [1, 0, 0, 0],
    );
}

#[test]
fn ids_are_made_unique_within_a_thread() {
    let mut used = HashSet::new();
    let ids = |answer: &[ReplyBlock]| -> Vec<String> {
        live_calls(answer).into_iter().map(|call| call.id).collect()
    };
    let mut first = [call("a", "f", ""), call("", "f", ""), call("a", "f", "")];
    make_ids_unique(&mut first, &mut used);
    assert_eq!(ids(&first), ["a", "call_live_1", "call_live_2"]);
    let mut second = [call("call_live_3", "f", ""), call("a", "f", "")];
    make_ids_unique(&mut second, &mut used);
    assert_eq!(ids(&second), ["call_live_3", "call_live_4"]);
}

#[test]
fn an_answer_of_nothing_is_none() {
    let silent = ReplyBlock::Reasoning { text: String::new(), signature: None };
    assert!(!says_something(&[]));
    assert!(!says_something(&[said(""), silent]));
    assert!(says_something(&[call("", "", "")]));
    assert!(says_something(&[said("x")]));
}
