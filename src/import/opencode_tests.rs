use super::*;

fn read(session: &Value) -> Drafts {
    let mut drafts = Drafts::default();
    super::session(&session.to_string(), &mut drafts).unwrap();
    drafts
}

fn tool(id: &str, status: &str, start: f64, end: f64) -> Value {
    json!({"type": "tool", "callID": id, "tool": "bash", "state": {"status": status,
        "input": {"command": "ls"}, "output": "abc", "error": "no", "time": {"start": start, "end": end}}})
}

fn assistant(id: &str, created: f64, parts: &Value) -> Value {
    json!({"info": {"id": id, "role": "assistant", "modelID": "m", "finish": "stop",
        "time": {"created": created, "completed": created + 900.0},
        "tokens": {"input": 5, "output": 7, "reasoning": 2, "cache": {"read": 30, "write": 0}}},
        "parts": parts})
}

#[test]
fn messages_of_the_assistant_are_turns() {
    let session = json!({"info": {"id": "ses_1", "parentID": "ses_0"}, "rootID": "ses_r", "messages": [
        {"info": {"id": "msg_1", "role": "user"}, "parts": [{"type": "text", "text": "do it"},
            {"type": "text", "text": "hidden", "ignored": true}]},
        assistant("msg_2", 1000.0, &json!([{"type": "step-start"}, {"type": "text", "text": "well"},
            tool("c1", "completed", 1500.0, 1700.0), tool("c2", "error", 1600.0, 1650.0),
            {"type": "step-finish", "reason": "tool-calls", "tokens": {"input": 1, "output": 1}}])),
        assistant("msg_3", 2000.0, &json!([{"type": "reasoning", "text": "hm"}, {"type": "text", "text": "done"}])),
    ]});
    let drafts = read(&session);
    let [first, second] = &drafts.turns[..] else { panic!("{} turns", drafts.turns.len()) };
    assert_eq!(first.request_id.as_deref(), Some("msg_2"));
    assert_eq!(
        (first.session_id.as_str(), first.thread_id.as_str(), first.parent_thread_id.as_deref()),
        ("ses_r", "ses_r/agent-ses_1", Some("ses_r/agent-ses_0"))
    );
    assert_eq!(first.kind, TurnKind::Subagent);
    let tokens = Tokens {
        isl: Some(35),
        cached: Some(30),
        cache_write: Some(0),
        osl: Some(7),
        reasoning: Some(2),
    };
    assert_eq!((first.tokens, second.tokens), (tokens, tokens));
    assert_eq!((first.times.request, first.times.end), (Some(1.0), Some(1.6)));
    assert_eq!((second.times.request, second.times.end), (Some(2.0), Some(2.9)));
    assert_eq!(first.stop_reason.as_deref(), Some("tool-calls"));
    let calls: Vec<_> = first
        .calls
        .iter()
        .map(|call| (call.id.as_str(), call.own_ms, call.result_bytes, call.is_error))
        .collect();
    assert_eq!(
        calls,
        [("c1", Some(200.0), Some(3), Some(false)), ("c2", Some(50.0), Some(2), Some(true))]
    );
    let PromptDraft::Units { n, .. } = second.prompt else { panic!("no units") };
    let units: Vec<&str> = drafts.conversations[0][..n].iter().map(|unit| &*unit.role).collect();
    assert_eq!(units, ["user", "assistant", "tool", "tool"]);
    assert!(!drafts.conversations[0][0].text.contains("hidden"));
}

#[test]
fn a_message_of_several_steps_is_several_turns_and_a_summary_begins_anew() {
    let finish = |n: u64| json!({"type": "step-finish", "tokens": {"input": n, "output": n}});
    let mut summary = assistant("msg_3", 5000.0, &json!([{"type": "text", "text": "in short"}]));
    summary["info"]["summary"] = Value::Bool(true);
    let session = json!({"info": {"id": "ses_1"}, "messages": [
        {"info": {"id": "msg_1", "role": "user"}, "parts": [{"type": "text", "text": "do it"}]},
        assistant("msg_2", 1000.0, &json!([tool("c1", "completed", 1500.0, 1700.0), finish(11),
            {"type": "patch"}, {"type": "text", "text": "done"}, finish(13)])),
        summary,
        {"info": {"id": "msg_4", "role": "user"}, "parts": [{"type": "text", "text": "more"}]},
        assistant("msg_5", 7000.0, &json!([{"type": "text", "text": "ok"}])),
    ]});
    let drafts = read(&session);
    let told: Vec<_> = drafts
        .turns
        .iter()
        .map(|turn| {
            let PromptDraft::Units { conversation, n } = turn.prompt else { panic!("no units") };
            (
                turn.request_id.as_deref().unwrap(),
                turn.tokens.isl,
                turn.times.request,
                conversation,
                n,
            )
        })
        .collect();
    assert_eq!(
        told,
        [
            ("msg_2:0", Some(11), Some(1.0), 0, 1),
            ("msg_2:1", Some(13), Some(1.7), 0, 3),
            ("msg_3", Some(35), Some(5.0), 0, 4),
            ("msg_5", Some(35), Some(7.0), 1, 2),
        ]
    );
}
