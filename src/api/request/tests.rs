//! Requests of every API: what is read from them, and that every byte comes back.

use proptest::prelude::*;

use super::*;
use crate::api::{ToolResult, edit_top_level, rebuild_body};

const AGENT_BODY: &str = r#"{"model":"tiny","max_tokens":128,"stream":true,
  "system":[
    {"type":"text","text":"x-anthropic-billing-header: cc_version=2.1; cc_is_subagent=true; cch=1;"},
    {"type":"text","text":"You work on code.","cache_control":{"type":"ephemeral"}}],
  "messages":[
    {"role":"user","content":[{"type":"text","text":"<system-reminder>x</system-reminder>"},{"type":"text","text":"fix app.py"}]},
    {"role":"assistant","content":[{"type":"tool_use","id":"toolu_1","name":"Bash","input":{"command":"ls"}}]},
    {"role":"user","content":[{"type":"tool_result","tool_use_id":"toolu_1","content":"old"}]},
    {"role":"assistant","content":[{"type":"tool_use","id":"toolu_2","name":"Bash","input":{"command":"cat"}},
                                   {"type":"tool_use","id":"toolu_3","name":"Bash","input":{"command":"x"}}]},
    {"role":"user","content":[
      {"type":"tool_result","tool_use_id":"toolu_2","content":[{"type":"text","text":"grün"},{"type":"text","text":"!"}]},
      {"type":"tool_result","tool_use_id":"toolu_3","is_error":true,"content":"no x","cache_control":{"type":"ephemeral"}}]},
    {"role":"system","content":"be brief"}],
  "tools":[{"name":"Bash","input_schema":{"type":"object"}}],
  "metadata":{"user_id":"{\"device_id\":\"d\",\"session_id\":\"5e55\"}"}}"#;

pub(super) fn rebuilt(request: &ParsedRequest) -> Vec<u8> {
    let texts: Vec<&str> = request.units.iter().map(|unit| &*unit.text).collect();
    rebuild_body(&request.template, &texts).expect("template fits")
}

#[test]
fn an_agents_request_is_read_whole() {
    let request = parse_request(Api::Messages, AGENT_BODY.as_bytes()).unwrap();
    assert_eq!(rebuilt(&request), AGENT_BODY.as_bytes());
    assert_eq!(request.model.as_deref(), Some("tiny"));
    assert!(request.stream && request.subagent_hint && !request.utility_hint);
    assert_eq!((request.n_messages, request.n_tools), (6, 1));
    assert_eq!(request.session_hint.as_deref(), Some("5e55"));
    let kinds: Vec<(&str, &str, usize)> = request
        .units
        .iter()
        .map(|unit| (unit.kind.as_str(), &*unit.role, unit.blocks.len()))
        .collect();
    assert_eq!(
        kinds,
        [
            ("system", "", 0),
            ("system", "", 1),
            ("tool", "", 1),
            ("message", "user", 2),
            ("message", "assistant", 1),
            ("message", "user", 1),
            ("message", "assistant", 2),
            ("message", "user", 2),
            ("message", "system", 1),
        ]
    );
    assert_eq!(request.units[1].text, r#"{"type":"text","text":"You work on code."}"#);
    assert_eq!(request.units[1].hash, ContentHash::of(request.units[1].text.as_bytes()));
    let result = |call_id: &str, result_bytes, is_error| ToolResult {
        call_id: call_id.into(),
        result_bytes,
        is_error,
    };
    assert_eq!(
        request.tool_results,
        [result("toolu_2", 6, Some(false)), result("toolu_3", 4, Some(true))]
    );
    let params: Value = serde_json::from_str(&request.params).unwrap();
    let names: Vec<&String> = params.as_object().unwrap().keys().collect();
    assert_eq!(names, ["model", "max_tokens", "stream", "metadata"]);
}

#[test]
fn a_chat_request_keeps_its_system_messages_as_messages() {
    let body = r#"{"model":"m","tools":[],"messages":[{"role":"developer","content":"d"}, {"role":"user","content":"u"}, {"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"bash","arguments":"{}"}}]}, {"role":"tool","tool_call_id":"c1","content":"four"}]}"#;
    let request = parse_request(Api::Chat, body.as_bytes()).unwrap();
    assert_eq!(rebuilt(&request), body.as_bytes());
    let roles: Vec<&str> = request.units.iter().map(|unit| &*unit.role).collect();
    assert_eq!(roles, ["developer", "user", "assistant", "tool"]);
    assert!(request.units.iter().all(|unit| unit.kind == UnitKind::Message));
    assert_eq!(
        request.tool_results,
        [ToolResult { call_id: "c1".into(), result_bytes: 4, is_error: None }]
    );
    assert!(!request.stream);
}

#[test]
fn a_raw_prompt_is_cut_into_pieces_that_a_longer_one_shares() {
    let long = Value::from("é \"x\"\\n ".repeat(300)).to_string();
    let ids: Vec<u32> = (0..700).collect();
    let cases = [
        (r#""fix app.py""#.to_owned(), 1),
        (r#"["one", "two"]"#.to_owned(), 1),
        ("[11, 12,13]".to_owned(), 1),
        ("[[1,2],[3]]".to_owned(), 1),
        ("\"\"".to_owned(), 1),
        (long.clone(), long.len().div_ceil(PIECE_BYTES)),
        (serde_json::to_string(&ids).unwrap(), 3),
    ];
    for (prompt, pieces) in cases {
        let body = format!(r#"{{"model":"m", "prompt" : {prompt} ,"max_tokens":5,"stream":true}}"#);
        let request = parse_request(Api::Completions, body.as_bytes()).unwrap();
        assert_eq!(rebuilt(&request), body.as_bytes());
        assert_eq!(request.units.len(), pieces, "{prompt}");
        assert!(request.units.iter().all(|unit| unit.kind == UnitKind::Prompt));
        let texts: String = request.units.iter().map(|unit| &*unit.text).collect();
        assert_eq!(texts, prompt);
        assert_eq!((request.n_messages, request.n_tools), (0, 0));
        assert!(request.stream && request.tool_results.is_empty() && !request.utility_hint);
        assert_eq!(request.params, r#"{"model":"m","max_tokens":5,"stream":true}"#);
        assert_eq!(request.model.as_deref(), Some("m"));
        // The template does not grow with the prompt.
        assert!(request.template.len() < 80, "{}", request.template);
    }
    let hashes = |prompt: &str| -> Vec<ContentHash> {
        let body = format!(r#"{{"prompt":{prompt}}}"#);
        let request = parse_request(Api::Completions, body.as_bytes()).unwrap();
        request.units.iter().map(|unit| unit.hash).collect()
    };
    let (short, grown) = (hashes(&long), hashes(&format!("{}more\"", &long[..long.len() - 1])));
    assert_eq!(short[..short.len() - 1], grown[..short.len() - 1]);
}

#[test]
fn raw_prompts_of_other_forms_are_refused() {
    for (body, expected) in [
        ("{}", "not a completions request: no member `prompt`"),
        (r#"{"prompt":null}"#, "not a completions request: `prompt` is neither a text nor a list"),
        (r#"{"prompt":7}"#, "not a completions request: `prompt` is neither a text nor a list"),
        (r#"{"prompt":"a","prompt":"b"}"#, "not a completions request: two members `prompt`"),
    ] {
        let error = parse_request(Api::Completions, body.as_bytes()).unwrap_err().to_string();
        assert_eq!(error, expected);
    }
}

#[test]
fn hints_of_bodies() {
    let uuid = "0b3c77a4";
    let cases = [
        (
            r#"{"metadata":{"user_id":"user_ab12_account__session_0b3c77a4"},"messages":[]}"#,
            Some(uuid),
            false,
        ),
        (
            r#"{"metadata":{"user_id":"user_ab12_account_9_session_0b3c77a4"},"messages":[]}"#,
            Some(uuid),
            false,
        ),
        (r#"{"metadata":{"user_id":"somebody"},"messages":[]}"#, None, false),
        (r#"{"metadata":{"user_id":7},"messages":[]}"#, None, false),
        (r#"{"max_tokens":1,"messages":[{"role":"user","content":"quota"}]}"#, None, true),
        (r#"{"max_tokens":1,"tools":[{}],"messages":[]}"#, None, false),
        (r#"{"max_tokens":2,"messages":[]}"#, None, false),
        (
            r#"{"output_config":{"format":{"type":"json_schema","schema":{"properties":{"title":{}}}}},"messages":[]}"#,
            None,
            true,
        ),
        (
            r#"{"output_config":{"format":{"type":"json_schema","schema":{"properties":{"plan":{}}}}},"messages":[]}"#,
            None,
            false,
        ),
        (
            r#"{"system":"You are a title generator. Output only a title.","messages":[]}"#,
            None,
            true,
        ),
        (r#"{"messages":[{"role":"system","content":"You are a title generator."}]}"#, None, true),
        (r#"{"messages":[{"role":"user","content":"You are a title generator."}]}"#, None, false),
        (
            r#"{"system":"You are a context summarization agent. You are given a","messages":[]}"#,
            None,
            true,
        ),
    ];
    for (body, session, utility) in cases {
        let request = parse_request(Api::Messages, body.as_bytes()).unwrap();
        assert_eq!(request.session_hint.as_deref(), session, "{body}");
        assert_eq!(request.utility_hint, utility, "{body}");
        assert!(!request.subagent_hint);
    }
}

#[test]
fn other_forms_are_refused_and_kept_whole() {
    let cases: [(&[u8], &str); 9] = [
        (b"\xff{}", "not a messages request: not UTF-8"),
        (b"", "not a messages request: not JSON"),
        (b"{\"messages\":[]} x", "not a messages request: not JSON"),
        (b"[1]", "not a messages request: not a JSON object"),
        (b"{}", "not a messages request: no member `messages`"),
        (b"{\"messages\":null}", "not a messages request: `messages` is not a list"),
        (b"{\"messages\":[],\"system\":{}}", "not a messages request: `system` is not a list"),
        (b"{\"messages\":[1]}", "not a messages request: message at byte 13 is not an object"),
        (b"{\"messages\":[],\"messages\":[]}", "not a messages request: two members `messages`"),
    ];
    for (body, expected) in cases {
        let error = parse_request(Api::Messages, body).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
        let (unit, template) = raw_request(body);
        assert_eq!(unit.kind, UnitKind::Raw);
        assert_eq!(rebuild_body(&template, &[&unit.text]).unwrap(), body);
    }
}

#[test]
fn deep_nesting_is_kept_without_a_deeper_look() {
    let deep = "[".repeat(50_000) + "{\"cache_control\":1}" + &"]".repeat(50_000);
    let body = format!(r#"{{"messages":[{{"role":"user","content":{deep}}}]}}"#);
    let request = parse_request(Api::Messages, body.as_bytes()).unwrap();
    assert_eq!(rebuilt(&request), body.as_bytes());
    assert_eq!(request.units[0].blocks.len(), 1);
}

/// JSON text with white space, escapes, unknown keys and marks wherever they may stand.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        Just("-1.5E+3".to_owned()),
        Just(r#""cache_control""#.to_owned()),
        Just(r#""\"\\cache_control\" é\ud83e\udd80\n""#.to_owned()),
        any::<String>().prop_map(|text| Value::from(text).to_string()),
    ];
    leaf.prop_recursive(4, 24, 4, |inner| {
        prop_oneof![
            list(inner.clone(), 0..4),
            object(proptest::collection::vec((key(), inner), 0..4).boxed()),
        ]
    })
}

fn key() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        2 => Just("cache_control"),
        1 => Just("role"),
        1 => Just("content"),
        1 => Just("type"),
        1 => Just("a\\u0062"),
    ]
}

fn space() -> impl Strategy<Value = &'static str> {
    prop_oneof![4 => Just(""), 1 => Just(" "), 1 => Just("\r\n\t ")]
}

fn list(
    items: impl Strategy<Value = String>,
    size: std::ops::Range<usize>,
) -> impl Strategy<Value = String> {
    (proptest::collection::vec((space(), items, space()), size), space()).prop_map(
        |(items, space)| {
            let items: Vec<String> = items
                .into_iter()
                .map(|(left, item, right)| left.to_owned() + &item + right)
                .collect();
            format!("[{space}{}]", items.join(","))
        },
    )
}

fn object(members: BoxedStrategy<Vec<(&'static str, String)>>) -> impl Strategy<Value = String> {
    (members, space(), space()).prop_map(|(members, left, right)| {
        let members: Vec<String> = members
            .into_iter()
            .map(|(key, value)| format!("{left}\"{key}\"{right}:{left}{value}{right}"))
            .collect();
        format!("{{{right}{}}}", members.join(","))
    })
}

fn message() -> impl Strategy<Value = String> {
    let members = (
        prop_oneof![Just("\"user\""), Just("\"assistant\""), Just("\"tool\""), Just("7")],
        json(),
        proptest::collection::vec((key(), json()), 0..2),
    );
    let members = members.prop_map(|(role, content, mut rest)| {
        rest.insert(rest.len() / 2, ("role", role.to_owned()));
        rest.push(("content", content));
        rest
    });
    object(members.boxed())
}

fn request() -> impl Strategy<Value = String> {
    let text = any::<String>().prop_map(|text| Value::from(text).to_string());
    let system = prop_oneof![
        text.prop_map(Some),
        Just(None),
        Just(Some("null".to_owned())),
        list(json(), 0..4).prop_map(Some),
    ];
    let members = (
        system,
        proptest::option::of(list(json(), 0..4)),
        list(message(), 0..6),
        proptest::collection::vec((key(), json()), 0..3),
        any::<prop::sample::Index>(),
    );
    let members = members.prop_map(|(system, tools, messages, mut rest, turn)| {
        rest.extend(system.map(|system| ("system", system)));
        rest.push(("messages", messages));
        rest.extend(tools.map(|tools| ("tools", tools)));
        let middle = turn.index(rest.len());
        rest.rotate_left(middle);
        rest
    });
    (space(), object(members.boxed()), space())
        .prop_map(|(left, body, right)| format!("{left}{body}{right}"))
}

proptest! {
    #[test]
    fn bodies_come_back_byte_for_byte(body in request(), api in 0..3_usize) {
        let api = [Api::Messages, Api::Chat, Api::Responses][api];
        let body = match api {
            Api::Responses => {
                body.replacen("\"messages\"", "\"input\"", 1).replacen("\"system\"", "\"instructions\"", 1)
            }
            _ => body,
        };
        let request = parse_request(api, body.as_bytes()).expect("of the API's form");
        prop_assert_eq!(String::from_utf8(rebuilt(&request)).unwrap(), &*body);
        for unit in &request.units {
            serde_json::from_str::<Value>(&unit.text).expect("valid");
        }
        serde_json::from_str::<Value>(&request.params).expect("valid");
    }

    #[test]
    fn raw_prompts_come_back_byte_for_byte(prompt in prop_oneof![
        any::<String>().prop_map(|text| Value::from(text.repeat(9)).to_string()),
        list(any::<u32>().prop_map(|id| id.to_string()), 0..400),
    ], rest in json(), left in space()) {
        let body = format!(r#"{{{left}"a":{rest},"prompt":{left}{prompt}{left},"b":{rest}}}"#);
        let request = parse_request(Api::Completions, body.as_bytes()).expect("of the API's form");
        prop_assert_eq!(String::from_utf8(rebuilt(&request)).unwrap(), &*body);
        serde_json::from_str::<Value>(&request.params).expect("valid");
    }

    #[test]
    fn edits_touch_nothing_else(body in request()) {
        let unchanged = edit_top_level(body.as_bytes(), &[]).unwrap();
        prop_assert_eq!(&unchanged, body.as_bytes());
        let edits = [
            ("model", Some(Value::from("m"))),
            ("role", Some(Value::from(7))),
            ("tools", None),
            ("ab", None),
        ];
        let edited = edit_top_level(body.as_bytes(), &edits).unwrap();
        let edited: Map<String, Value> = serde_json::from_slice(&edited).expect("valid");
        let mut expected: Map<String, Value> = serde_json::from_str(&body).expect("valid");
        for (name, value) in edits {
            match value {
                Some(value) => expected.insert(name.to_owned(), value),
                None => expected.remove(name),
            };
        }
        prop_assert_eq!(edited, expected);
    }

    #[test]
    fn any_bytes_are_kept(body: Vec<u8>) {
        let (unit, template) = raw_request(&body);
        prop_assert_eq!(rebuild_body(&template, &[&unit.text]).unwrap(), body);
    }
}

/// The bodies of a conversation that grows by two messages a turn; the mark of the cache moves along.
fn growing(api: Api, turns: usize) -> Vec<String> {
    let mut messages = vec![r#"{"role":"user","content":"fix app.py"}"#.to_owned()];
    let mut bodies = Vec::new();
    for turn in 0..turns {
        let last = messages.len() - 1;
        let marked: Vec<String> = messages
            .iter()
            .enumerate()
            .map(|(index, message)| {
                if index == last {
                    message.replacen('{', r#"{"cache_control":{"type":"ephemeral"},"#, 1)
                } else {
                    message.clone()
                }
            })
            .collect();
        let (system, messages_name) = match api {
            Api::Messages => (r#""system":[{"type":"text","text":"Work."}],"#, "messages"),
            Api::Responses => (r#""instructions":"Work.","#, "input"),
            _ => ("", "messages"),
        };
        bodies.push(format!(
            r#"{{"model":"m",{system}"tools":[{{"name":"Bash","input_schema":{{}}}}],"{messages_name}":[{}],"stream":true}}"#,
            marked.join(", ")
        ));
        messages.push(format!(
            r#"{{"role":"assistant","content":[{{"type":"tool_use","id":"t{turn}","name":"Bash","input":{{}}}}]}}"#
        ));
        messages.push(format!(
            r#"{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{turn}","content":"{}"}}]}}"#,
            "line ".repeat(turn + 1)
        ));
    }
    bodies
}

#[test]
fn a_reader_that_remembers_reads_the_same() {
    for api in [Api::Messages, Api::Chat, Api::Responses] {
        let mut reader = RequestReader::new(1 << 20);
        for body in growing(api, 20).iter().chain([&AGENT_BODY.to_owned()]).cycle().take(50) {
            let read = |result: Result<ParsedRequest, ParseError>| match result {
                Ok(request) => {
                    assert_eq!(rebuilt(&request), body.as_bytes());
                    format!("{request:?}")
                }
                Err(error) => error.to_string(),
            };
            assert_eq!(
                read(reader.read(api, body.as_bytes())),
                read(parse_request(api, body.as_bytes())),
                "{api:?}"
            );
        }
    }
    // The same bytes are not the same thing everywhere.
    let mut reader = RequestReader::new(1 << 20);
    let body = r#"{"system":["x"],"tools":["x"],"messages":[{"role":"user","content":"x"}]}"#;
    let first = reader.read(Api::Messages, body.as_bytes()).unwrap();
    let again = reader.read(Api::Messages, body.as_bytes()).unwrap();
    assert_eq!(first.units, again.units);
    assert_ne!(first.units[0].blocks, first.units[1].blocks);
}

#[test]
fn units_that_were_read_before_are_not_parsed_again() {
    let turns = 100;
    let bodies = growing(Api::Messages, turns);
    let mut reader = RequestReader::new(1 << 20);
    for body in &bodies {
        reader.read(Api::Messages, body.as_bytes()).unwrap();
    }
    let work = reader.work();
    let turns = turns as u64;
    assert_eq!(work.units, (0..turns).map(|turn| 3 + 2 * turn).sum::<u64>());
    // System and tool once; of each turn the two new messages, and the one whose mark has moved on.
    assert_eq!(work.units_parsed, 2 + 1 + 3 * (turns - 1));
    assert!(work.bytes_parsed * 10 < work.bytes, "{work:?}");
    let before = reader.work();
    let last = bodies.last().unwrap();
    reader.read(Api::Messages, last.as_bytes()).unwrap();
    assert_eq!(reader.work().units_parsed, before.units_parsed);
    assert_eq!(reader.work().units, before.units + 2 * turns + 1);
}

#[test]
fn a_reader_that_remembers_refuses_the_same() {
    let whole = r#"{"messages":[{"role":"user","content":"x"}, {"role":"user","content":"y"}]}"#;
    let mut reader = RequestReader::new(1 << 20);
    reader.read(Api::Chat, whole.as_bytes()).unwrap();
    for (broken, part) in [
        (whole.replace("}, {", "} {"), "not JSON"),
        (whole.replace("]}", "]} x"), "not JSON"),
        (whole.replace("\"y\"", "y"), "not JSON"),
        (whole.replace("\"y\"}", "\"y\"}.5"), "not JSON"),
        (whole.replace("]}", "],\"stream\":tru}"), "not JSON"),
        (whole.replace("{\"role\":\"user\",\"content\":\"y\"}", "7"), "message at byte"),
        (whole.replace("messages", "prompt"), "no member `messages`"),
    ] {
        let error = reader.read(Api::Chat, broken.as_bytes()).unwrap_err();
        assert!(error.message.contains(part), "{broken}: {error}");
        assert_eq!(error, parse_request(Api::Chat, broken.as_bytes()).unwrap_err());
    }
}

#[test]
fn the_identity_of_a_body_is_that_of_its_bytes() {
    let identity = |body: &str| parse_request(Api::Messages, body.as_bytes()).unwrap().identity();
    let bodies = growing(Api::Messages, 3);
    assert_eq!(identity(&bodies[1]), identity(&bodies[1].clone()));
    for other in [
        bodies[1].replace("app.py", "app.pi"),
        bodies[1].replace("true", "false"),
        bodies[1].replace("ephemeral", "persistent"),
        bodies[1].replace(", ", ","),
        bodies[2].clone(),
    ] {
        assert_ne!(identity(&bodies[1]), identity(&other), "{other}");
    }
}
