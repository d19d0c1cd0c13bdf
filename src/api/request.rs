//! A request body into units and a template.
//!
//! Every JSON body of the API's form is read so that `rebuild_body` gives its exact bytes back; what
//! has another form is refused here and kept whole by [`raw_request`]. The template's own form is
//! `template`'s, the comparison of units across turns is `normal_form`'s.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::scan::{self, Member, Span};
use super::template::{self, Place};
use super::{
    Api, Block, ContentHash, ParsedRequest, ToolResult, Unit, UnitKind, hints, normal_form,
};

/// Why a body could not be read as a request of its API.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not a {api} request: {message}")]
pub struct ParseError {
    /// The API that the path names.
    pub api: &'static str,
    /// What is wrong.
    pub message: String,
}

/// Reads a (decoded) body.
pub fn parse_request(api: Api, body: &[u8]) -> Result<ParsedRequest, ParseError> {
    read_request(api, body).map_err(|message| ParseError { api: api.as_str(), message })
}

/// Cuts nothing: the whole body as one raw unit with its template, for bodies that do not parse.
/// The text of a body that is not UTF-8 is base64, and its template says so.
pub fn raw_request(body: &[u8]) -> (Unit, String) {
    let (template, text) = template::whole_body(body);
    let unit = Unit {
        kind: UnitKind::Raw,
        role: String::new(),
        hash: ContentHash::of(text.as_bytes()),
        blocks: vec![normal_form::opaque_block(&text)],
        text,
    };
    (unit, template)
}

fn read_request(api: Api, body: &[u8]) -> Result<ParsedRequest, String> {
    let text = std::str::from_utf8(body).map_err(|error| format!("not UTF-8: {error}"))?;
    serde_json::from_str::<&RawValue>(text).map_err(|error| format!("not JSON: {error}"))?;
    let (members, _) = scan::members(text, 0).ok_or("not a JSON object")?;
    let parts = Parts::find(api, text, &members)?;
    let mut reader = UnitReader::new(api, text);
    for span in parts.system {
        reader.add_system(span);
    }
    for span in &parts.tools {
        reader.add_tool(span.clone());
    }
    for span in &parts.messages {
        reader.add_message(span.clone())?;
    }
    let params: Map<String, Value> = serde_json::from_str(&parts.params).unwrap_or_default();
    let n_tools = parts.tools.len() as u32;
    Ok(ParsedRequest {
        api,
        model: params.get("model").and_then(Value::as_str).map(str::to_owned),
        stream: params.get("stream").and_then(Value::as_bool).unwrap_or(false),
        n_messages: parts.messages.len() as u32,
        n_tools,
        template: template::make_template(text, &reader.places),
        session_hint: hints::session_hint(api, params.get("metadata")),
        subagent_hint: reader.system_texts.iter().any(|text| hints::is_subagent_line(text)),
        utility_hint: hints::utility_hint(n_tools, &params, &reader.system_texts),
        units: reader.units,
        tool_results: reader.tool_results,
        params: parts.params,
    })
}

/// Where the parts of a prompt lie in the body.
#[derive(Debug, Default)]
struct Parts {
    system: Vec<Span>,
    tools: Vec<Span>,
    messages: Vec<Span>,
    /// The other members, as sent, as one object.
    params: String,
}

impl Parts {
    fn find(api: Api, text: &str, members: &[Member]) -> Result<Self, String> {
        let mut parts = Self::default();
        let mut seen: Vec<String> = Vec::new();
        for member in members {
            let name = member.name(text).unwrap_or_default();
            let spans = match (name.as_ref(), api) {
                ("system", Api::Messages) => system_spans(text, member)?,
                ("tools" | "messages", _) => list_spans(text, member, &name)?,
                _ => {
                    parts.params.push(if parts.params.is_empty() { '{' } else { ',' });
                    parts.params.push_str(&text[member.key.clone()]);
                    parts.params.push(':');
                    parts.params.push_str(&text[member.value.clone()]);
                    continue;
                }
            };
            if seen.iter().any(|earlier| *earlier == name) {
                return Err(format!("two members `{name}`"));
            }
            match name.as_ref() {
                "system" => parts.system = spans,
                "tools" => parts.tools = spans,
                _ => parts.messages = spans,
            }
            seen.push(name.into_owned());
        }
        parts.params.push_str(if parts.params.is_empty() { "{}" } else { "}" });
        let has_messages = seen.iter().any(|name| name == "messages");
        has_messages.then_some(parts).ok_or_else(|| "no member `messages`".to_owned())
    }
}

fn system_spans(text: &str, member: &Member) -> Result<Vec<Span>, String> {
    if text[member.value.clone()].starts_with('"') {
        return Ok(vec![member.value.clone()]);
    }
    list_spans(text, member, "system")
}

fn list_spans(text: &str, member: &Member, name: &str) -> Result<Vec<Span>, String> {
    let value = &text[member.value.clone()];
    if value == "null" && name != "messages" {
        return Ok(Vec::new());
    }
    scan::elements(text, member.value.start).ok_or_else(|| format!("`{name}` is not a list"))
}

/// Reads units one after another, in prompt order.
struct UnitReader<'a> {
    api: Api,
    body: &'a str,
    units: Vec<Unit>,
    places: Vec<Place<'a>>,
    /// Text of the system prompt, by block or by message.
    system_texts: Vec<String>,
    /// Results since the last assistant message.
    tool_results: Vec<ToolResult>,
}

impl<'a> UnitReader<'a> {
    fn new(api: Api, body: &'a str) -> Self {
        Self {
            api,
            body,
            units: Vec::new(),
            places: Vec::new(),
            system_texts: Vec::new(),
            tool_results: Vec::new(),
        }
    }

    fn add_system(&mut self, span: Span) {
        let (text, value) = self.cut(span);
        let blocks = value.as_ref().map(normal_form::system_blocks);
        self.system_texts.extend(value.iter().filter_map(text_of).map(str::to_owned));
        self.push(UnitKind::System, String::new(), text, blocks);
    }

    fn add_tool(&mut self, span: Span) {
        let (text, value) = self.cut(span);
        let blocks = value.as_ref().map(normal_form::tool_blocks);
        self.push(UnitKind::Tool, String::new(), text, blocks);
    }

    fn add_message(&mut self, span: Span) -> Result<(), String> {
        if !self.body[span.clone()].starts_with('{') {
            return Err(format!("message at byte {} is not an object", span.start));
        }
        let (text, value) = self.cut(span);
        let message = value.as_ref().and_then(Value::as_object);
        let role = message.and_then(|message| message.get("role")?.as_str()).unwrap_or_default();
        let blocks = message.map(|message| normal_form::message_blocks(role, message));
        if role == "assistant" {
            self.tool_results.clear();
        } else if let Some(message) = message {
            self.tool_results.extend(hints::tool_results(self.api, role, message));
        }
        if matches!(role, "system" | "developer") {
            let content = message.and_then(|message| message.get("content"));
            let parts = content.and_then(Value::as_array).into_iter().flatten().chain(content);
            self.system_texts.extend(parts.filter_map(text_of).map(str::to_owned));
        }
        let role = role.to_owned();
        self.push(UnitKind::Message, role, text, blocks);
        Ok(())
    }

    /// Cuts a unit out of the body: its text and, where it is not nested too deep, its value.
    fn cut(&mut self, span: Span) -> (String, Option<Value>) {
        let (text, cuts) = template::cut_cache_control(&self.body[span.clone()]);
        self.places.push(Place { span, cuts });
        let value = serde_json::from_str(&text).ok();
        (text, value)
    }

    fn push(&mut self, kind: UnitKind, role: String, text: String, blocks: Option<Vec<Block>>) {
        let blocks = blocks.unwrap_or_else(|| vec![normal_form::opaque_block(&text)]);
        let hash = ContentHash::of(text.as_bytes());
        self.units.push(Unit { kind, role, text, hash, blocks });
    }
}

/// The text of a string or of a text block.
fn text_of(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("text")?.as_str())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::api::rebuild_body;

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

    fn rebuilt(request: &ParsedRequest) -> Vec<u8> {
        let texts: Vec<&str> = request.units.iter().map(|unit| unit.text.as_str()).collect();
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
            .map(|unit| (unit.kind.as_str(), unit.role.as_str(), unit.blocks.len()))
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
            [result("toolu_2", 6, None), result("toolu_3", 4, Some(true))]
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
        let roles: Vec<&str> = request.units.iter().map(|unit| unit.role.as_str()).collect();
        assert_eq!(roles, ["developer", "user", "assistant", "tool"]);
        assert!(request.units.iter().all(|unit| unit.kind == UnitKind::Message));
        assert_eq!(
            request.tool_results,
            [ToolResult { call_id: "c1".into(), result_bytes: 4, is_error: None }]
        );
        assert!(!request.stream);
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
            (
                r#"{"messages":[{"role":"system","content":"You are a title generator."}]}"#,
                None,
                true,
            ),
            (
                r#"{"messages":[{"role":"user","content":"You are a title generator."}]}"#,
                None,
                false,
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
            (
                b"{\"messages\":[],\"messages\":[]}",
                "not a messages request: two members `messages`",
            ),
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

    fn object(
        members: BoxedStrategy<Vec<(&'static str, String)>>,
    ) -> impl Strategy<Value = String> {
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
        fn bodies_come_back_byte_for_byte(body in request(), is_chat: bool) {
            let api = if is_chat { Api::Chat } else { Api::Messages };
            let request = parse_request(api, body.as_bytes()).expect("of the API's form");
            prop_assert_eq!(String::from_utf8(rebuilt(&request)).unwrap(), body);
            for unit in &request.units {
                serde_json::from_str::<Value>(&unit.text).expect("valid");
            }
            serde_json::from_str::<Value>(&request.params).expect("valid");
        }

        #[test]
        fn any_bytes_are_kept(body: Vec<u8>) {
            let (unit, template) = raw_request(&body);
            prop_assert_eq!(rebuild_body(&template, &[&unit.text]).unwrap(), body);
        }
    }
}
