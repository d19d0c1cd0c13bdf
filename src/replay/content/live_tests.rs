use serde_json::{Value, json};

use super::*;

fn said(text: &str) -> Vec<ReplyBlock> {
    vec![ReplyBlock::Text { text: text.into() }]
}

/// `u…` are user messages, others assistant messages.
fn body(messages: &[&str]) -> Vec<u8> {
    let messages: Vec<Value> = messages
        .iter()
        .map(|text| {
            let role = if text.starts_with('u') { "user" } else { "assistant" };
            json!({"role": role, "content": text})
        })
        .collect();
    json!({"model": "m", "messages": messages}).to_string().into_bytes()
}

/// Sends the request; what it says after the answers took their places, and how many are live and
/// recorded.
fn send(history: &mut History, messages: &[&str]) -> (Vec<String>, u32, u32) {
    let (sent, counts) = history.apply(Api::Chat, &body(messages)).unwrap();
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let contents = sent["messages"].as_array().unwrap().iter();
    let contents = contents.map(|message| message["content"].as_str().unwrap().to_owned());
    (contents.collect(), counts.live, counts.recorded)
}

#[track_caller]
fn check(history: &mut History, messages: &[&str], expected: &[&str], live: u32, recorded: u32) {
    let (sent, n_live, n_recorded) = send(history, messages);
    assert_eq!(sent, expected);
    assert_eq!((n_live, n_recorded), (live, recorded));
}

#[test]
fn answers_take_the_places_of_the_recorded_ones() {
    let mut history = History::default();
    check(&mut history, &["u0"], &["u0"], 0, 0);
    history.answered(Some(said("A0")));
    // Equal recorded answers are told apart by their order.
    check(&mut history, &["u0", "did", "u1"], &["u0", "A0", "u1"], 1, 0);
    history.answered(Some(said("A1")));
    check(&mut history, &["u0", "did", "u1", "did", "u2"], &["u0", "A0", "u1", "A1", "u2"], 2, 0);
    history.answered(Some(said("A2")));
    // A reply that the recording holds as two messages.
    check(
        &mut history,
        &["u0", "did", "u1", "did", "u2", "did", "too", "u3"],
        &["u0", "A0", "u1", "A1", "u2", "A2", "u3"],
        3,
        0,
    );
}

#[test]
fn what_came_before_the_thread_stays_as_recorded() {
    let mut history = History::default();
    check(&mut history, &["u0", "old", "u1"], &["u0", "old", "u1"], 0, 1);
    history.answered(Some(said("A1")));
    let messages = ["u0", "old", "u1", "a1", "u2"];
    check(&mut history, &messages, &["u0", "old", "u1", "A1", "u2"], 1, 1);
}

#[test]
fn a_failed_or_empty_answer_stays_as_recorded() {
    let mut history = History::default();
    send(&mut history, &["u0"]);
    history.answered(None);
    check(&mut history, &["u0", "a0", "u1"], &["u0", "a0", "u1"], 0, 1);
    history.answered(Some(Vec::new()));
    let messages = ["u0", "a0", "u1", "a1", "u2"];
    check(&mut history, &messages, &messages, 0, 2);
    history.answered(Some(said("A2")));
    check(
        &mut history,
        &["u0", "a0", "u1", "a1", "u2", "a2", "u3"],
        &["u0", "a0", "u1", "a1", "u2", "A2", "u3"],
        1,
        2,
    );
}

#[test]
fn a_turn_that_was_not_sent_stays_as_recorded() {
    let mut history = History::default();
    send(&mut history, &["u0"]);
    history.answered(Some(said("A0")));
    // The turn with u1 was left out of the plan.
    let messages = ["u0", "a0", "u1", "a1", "u2"];
    check(&mut history, &messages, &["u0", "A0", "u1", "a1", "u2"], 1, 1);
}

#[test]
fn a_context_reset_keeps_what_is_recognised() {
    let mut history = History::default();
    let mut messages = vec!["u0"];
    let answers = [("A0", "a0", "u1"), ("A1", "a1", "u2"), ("A2", "a2", "u3")];
    for (live, recorded, user) in answers {
        send(&mut history, &messages);
        history.answered(Some(said(live)));
        messages.extend([recorded, user]);
    }
    check(&mut history, &messages, &["u0", "A0", "u1", "A1", "u2", "A2", "u3"], 3, 0);
    history.answered(Some(said("A3")));
    // A summary in place of the first turns; the last ones were kept.
    let reset = ["u summary", "a1", "u2", "a2", "u3"];
    check(&mut history, &reset, &["u summary", "A1", "u2", "A2", "u3"], 2, 0);
    history.answered(Some(said("B")));
    let mut grown = reset.to_vec();
    grown.extend(["b", "u4"]);
    check(&mut history, &grown, &["u summary", "A1", "u2", "A2", "u3", "B", "u4"], 3, 0);
    // Everything gone.
    check(&mut history, &["u summary 2"], &["u summary 2"], 0, 0);
}

#[test]
fn a_history_in_another_form_is_the_same() {
    let mut history = History::default();
    send(&mut history, &["u0"]);
    history.answered(Some(said("A0")));
    send(&mut history, &["u0", "a0", "u1"]);
    history.answered(Some(said("A1")));
    // The first answer as a list of parts, the second with another text.
    let sent = history.apply(
        Api::Chat,
        json!({"messages": [{"role": "user", "content": "u0"},
            {"role": "assistant", "content": [{"type": "text", "text": "a0"}]},
            {"role": "user", "content": "u1"}, {"role": "assistant", "content": "a1"},
            {"role": "user", "content": "u2"}]})
        .to_string()
        .as_bytes(),
    );
    assert_eq!(sent.unwrap().1.live, 2);
    history.answered(Some(said("A2")));
    let messages = ["u0", "a0", "u1", "a1 edited", "u2", "a2", "u3"];
    check(&mut history, &messages, &["u0", "A0", "u1", "A1", "u2", "A2", "u3"], 3, 0);
}

#[test]
fn bytes_that_no_answer_touches_stay() {
    let mut history = History::default();
    let first = br#"{ "messages" : [ {"role":"user", "content":"\u0061"} ], "n":1.0 }"#;
    assert_eq!(history.apply(Api::Chat, first).unwrap().0, first);
    history.answered(Some(said("A")));
    let second = br#"{ "messages" : [ {"role":"user", "content":"\u0061"}, {"role":"assistant","content":"a"},{"role":"user", "content" : "b"} ], "n":1.0 }"#;
    let sent = history.apply(Api::Chat, second).unwrap().0;
    assert_eq!(
        String::from_utf8(sent).unwrap(),
        r#"{ "messages" : [{"role":"user", "content":"\u0061"},{"role":"assistant","content":"A"},{"role":"user", "content" : "b"}], "n":1.0 }"#
    );
}

#[test]
fn items_of_a_response_are_a_history_too() {
    let mut history = History::default();
    let mut send = |input: Value| {
        let body = json!({"model": "m", "tools": null, "input": input}).to_string();
        let (sent, counts) = history.apply(Api::Responses, body.as_bytes()).unwrap();
        let sent: Value = serde_json::from_slice(&sent).unwrap();
        let call =
            ReplyBlock::ToolCall { id: "live".into(), name: "exec".into(), arguments: "{}".into() };
        history.answered(Some(vec![call]));
        (sent["input"].clone(), counts.live, counts.recorded)
    };
    // A text alone has no history.
    assert_eq!(send(json!("fix it")), (json!("fix it"), 0, 0));
    let user = json!({"type": "message", "role": "user", "content": "fix it"});
    let asked =
        json!({"type": "function_call", "call_id": "r1", "name": "exec", "arguments": "{\"a\":1}"});
    let output = |id: &str| json!({"type": "function_call_output", "call_id": id, "output": "4"});
    let live =
        json!({"type": "function_call", "call_id": "live", "name": "exec", "arguments": "{}"});
    let history = json!([user, {"type": "reasoning", "summary": []}, asked, output("r1")]);
    assert_eq!(send(history), (json!([user, live, output("live")]), 1, 0));
}
