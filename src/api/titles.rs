//! Title calls: requests by which an agent asks for a name of its session, and an answer made on the spot.
//!
//! Only what is surely one counts: no tools are offered, and the system prompt opens as known title calls
//! do or a JSON object with nothing but a `title` is asked for. The title is the beginning of what the user
//! said; nothing is generated, so the counts of such an answer are 0.

use serde_json::{Map, Value, json};

use super::convert::{MessageEvents, message_of_reply};
use super::{Api, Reply, ReplyBlock, Usage, hints, scan};

const MAX_WORDS: usize = 7;
const MAX_CHARS: usize = 50;

/// A request for a title, as far as its answer needs that.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TitleCall {
    api: Api,
    model: String,
    /// Whether the answer is a stream of events.
    pub stream: bool,
    /// A Chat stream asked for counts.
    tells_usage: bool,
    text: String,
}

/// The title call that a body is; none where it is anything else.
pub fn title_call(api: Api, body: &[u8]) -> Option<TitleCall> {
    if api == Api::Completions || offers_tools(body)? {
        return None;
    }
    let body: Map<String, Value> = serde_json::from_slice(body).ok()?;
    let messages = match api {
        Api::Responses => body.get("input"),
        _ => body.get("messages"),
    };
    let system = system_texts(api, &body, messages);
    if !hints::asks_title(&body, &system) || asks_for_more(&body) {
        return None;
    }
    let title = title_of(&last_user_text(messages?)?);
    let wants_json =
        hints::title_schema(&body).is_some() || system.iter().any(|text| text.contains("JSON"));
    Some(TitleCall {
        api,
        model: body.get("model").and_then(Value::as_str).unwrap_or_default().to_owned(),
        stream: body.get("stream") == Some(&Value::Bool(true)),
        tells_usage: body
            .get("stream_options")
            .is_some_and(|options| options["include_usage"] == true),
        text: if wants_json { json!({"title": title}).to_string() } else { title },
    })
}

impl TitleCall {
    /// The body of the answer, in the API in which the call came: events where a stream was asked for,
    /// else JSON.
    pub fn answer(&self, id: &str, unix_seconds: u64) -> Vec<u8> {
        match self.api {
            Api::Messages => self.message(&format!("msg_{id}")),
            Api::Responses => self.response(id, unix_seconds),
            Api::Chat | Api::Completions => {
                self.completion(&format!("chatcmpl-{id}"), unix_seconds)
            }
        }
    }

    fn message(&self, id: &str) -> Vec<u8> {
        let reply = Reply {
            blocks: vec![ReplyBlock::Text { text: self.text.clone() }],
            usage: Usage { prompt_tokens: Some(0), completion_tokens: Some(0), ..Usage::default() },
            stop_reason: Some("stop".to_owned()),
            complete: true,
            ..Reply::default()
        };
        if !self.stream {
            return message_of_reply(id, &self.model, &reply).to_string().into_bytes();
        }
        let mut events = Vec::new();
        MessageEvents::new(id.to_owned(), self.model.clone()).finish(&reply, &mut events);
        events
    }

    fn completion(&self, id: &str, created: u64) -> Vec<u8> {
        let usage = json!({"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0});
        let head = |object: &str, choices: Value| {
            json!({"id": id, "object": object, "created": created, "model": self.model,
                "choices": choices})
        };
        if !self.stream {
            let message = json!({"role": "assistant", "content": self.text});
            let choices = json!([{"index": 0, "message": message, "finish_reason": "stop"}]);
            let mut whole = head("chat.completion", choices);
            whole["usage"] = usage;
            return whole.to_string().into_bytes();
        }
        let chunk = |delta: Value, finish: Option<&str>| {
            let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
            head("chat.completion.chunk", json!([choice]))
        };
        let mut chunks = vec![
            chunk(json!({"role": "assistant", "content": self.text}), None),
            chunk(json!({}), Some("stop")),
        ];
        if self.tells_usage {
            let mut last = head("chat.completion.chunk", json!([]));
            last["usage"] = usage;
            chunks.push(last);
        }
        let mut events: Vec<String> =
            chunks.iter().map(|chunk| format!("data: {chunk}\n\n")).collect();
        events.push("data: [DONE]\n\n".to_owned());
        events.concat().into_bytes()
    }

    fn response(&self, id: &str, created: u64) -> Vec<u8> {
        let item_id = format!("msg_{id}");
        let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": []});
        let item = |status: &str, content: Value| {
            json!({"id": item_id, "type": "message", "role": "assistant", "status": status,
                "content": content})
        };
        let response = |status: &str, output: Value, usage: Value| {
            json!({"id": format!("resp_{id}"), "object": "response", "created_at": created,
                "status": status, "model": self.model, "output": output, "usage": usage})
        };
        let done = item("completed", json!([part(&self.text)]));
        let usage = json!({"input_tokens": 0, "output_tokens": 0, "total_tokens": 0});
        let whole = response("completed", json!([done]), usage);
        if !self.stream {
            return whole.to_string().into_bytes();
        }
        let place = json!({"item_id": item_id, "output_index": 0, "content_index": 0});
        let begun = response("in_progress", json!([]), Value::Null);
        let events = [
            ("response.created", json!({"response": begun})),
            (
                "response.output_item.added",
                json!({"output_index": 0, "item": item("in_progress", json!([]))}),
            ),
            ("response.content_part.added", with(&place, "part", part(""))),
            ("response.output_text.delta", with(&place, "delta", self.text.clone().into())),
            ("response.output_text.done", with(&place, "text", self.text.clone().into())),
            ("response.content_part.done", with(&place, "part", part(&self.text))),
            ("response.output_item.done", json!({"output_index": 0, "item": done})),
            ("response.completed", json!({"response": whole})),
        ];
        let mut told = Vec::new();
        for (number, (kind, mut data)) in events.into_iter().enumerate() {
            data["type"] = kind.into();
            data["sequence_number"] = number.into();
            told.push(format!("event: {kind}\ndata: {data}\n\n"));
        }
        told.concat().into_bytes()
    }
}

fn with(place: &Value, name: &str, value: Value) -> Value {
    let mut data = place.clone();
    data[name] = value;
    data
}

/// Found without reading the messages, for most requests end here.
fn offers_tools(body: &[u8]) -> Option<bool> {
    let text = std::str::from_utf8(body).ok()?;
    let (members, _) = scan::members(text, 0)?;
    let tools = members.iter().find(|member| member.is_named(text, "tools"));
    let elements = tools.and_then(|tools| tools.elements(text));
    Some(elements.is_some_and(|tools| !tools.is_empty()))
}

/// A schema that demands more than a title would not be met by one.
fn asks_for_more(body: &Map<String, Value>) -> bool {
    let required = hints::title_schema(body).and_then(|schema| schema.get("required")?.as_array());
    required.is_some_and(|names| names.iter().any(|name| name != "title"))
}

fn system_texts(api: Api, body: &Map<String, Value>, messages: Option<&Value>) -> Vec<String> {
    let own = match api {
        Api::Messages => body.get("system"),
        Api::Responses => body.get("instructions"),
        Api::Chat | Api::Completions => None,
    };
    let is_system =
        |message: &&Value| matches!(message["role"].as_str(), Some("system" | "developer"));
    let told = messages.and_then(Value::as_array).into_iter().flatten().filter(is_system);
    let contents = own.into_iter().chain(told.filter_map(|message| message.get("content")));
    contents.flat_map(texts_of).collect()
}

fn last_user_text(messages: &Value) -> Option<String> {
    if let Some(text) = messages.as_str() {
        return Some(text.to_owned());
    }
    let of_user = messages.as_array()?.iter().rev().filter(|message| message["role"] == "user");
    let said = of_user.filter_map(|message| message.get("content"));
    said.map(|content| texts_of(content).join(" ")).find(|text| !text.trim().is_empty())
}

/// The texts of a content: a string, or the parts that are text.
fn texts_of(content: &Value) -> Vec<String> {
    match content {
        Value::String(text) => vec![text.clone()],
        Value::Array(parts) => {
            let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
            parts.iter().filter_map(text).collect()
        }
        _ => Vec::new(),
    }
}

/// The first words of what was said, without tags. Claude Code puts the session between tags of its own, and what it
/// says of the title's language after it.
fn title_of(said: &str) -> String {
    let session = said.split_once("<session>").and_then(|(_, from)| from.rsplit_once("</session>"));
    let mut bare = String::new();
    let mut rest = session.map_or(said, |(session, _)| session);
    while let Some((before, tagged)) = rest.split_once('<') {
        bare.push_str(before);
        match tagged.split_once('>') {
            Some((tag, after)) if !tag.contains(char::is_whitespace) => rest = after,
            _ => {
                bare.push('<');
                rest = tagged;
            }
        }
    }
    bare.push_str(rest);
    let mut title = String::new();
    for word in bare.split_whitespace().take(MAX_WORDS) {
        if !title.is_empty() && title.chars().count() + word.chars().count() >= MAX_CHARS {
            break;
        }
        if !title.is_empty() {
            title.push(' ');
        }
        title.extend(word.chars().take(MAX_CHARS));
    }
    let title = title.trim_matches(|c: char| !c.is_alphanumeric());
    let mut letters = title.chars();
    match letters.next() {
        Some(first) => first.to_uppercase().chain(letters).collect(),
        None => "New session".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{ReplyDecoder, parse_reply};
    use super::*;

    const SCHEMA: &str = r#"{"type":"json_schema","schema":{"type":"object","properties":{"title":{"type":"string"}},"required":["title"],"additionalProperties":false}}"#;

    fn call(api: Api, body: &str) -> Option<TitleCall> {
        title_call(api, body.as_bytes())
    }

    /// A title call in the form of each API, as agents make them.
    fn calls(stream: bool) -> [(Api, String, &'static str); 4] {
        let opening = "You are a title generator. You output ONLY a thread title.";
        [
            (
                Api::Chat,
                format!(
                    r#"{{"model":"tiny","stream":{stream},"stream_options":{{"include_usage":true}},"messages":[{{"role":"system","content":"{opening}"}},{{"role":"user","content":"Generate a title for this conversation:\n"}},{{"role":"user","content":[{{"type":"text","text":"\"fix the failing test in app.py, please now\""}}]}}]}}"#
                ),
                "Fix the failing test in app.py, please",
            ),
            (
                Api::Messages,
                format!(
                    r#"{{"model":"tiny","stream":{stream},"tools":[],"output_config":{{"format":{SCHEMA}}},"system":[{{"type":"text","text":"Name it."}}],"messages":[{{"role":"user","content":[{{"type":"text","text":"<session>\nfix app.py\n</session>\n\nWrite the title in the language of the session."}}]}}]}}"#
                ),
                r#"{"title":"Fix app.py"}"#,
            ),
            (
                Api::Messages,
                format!(
                    r#"{{"model":"tiny","stream":{stream},"system":"Generate a concise, sentence-case title of 3 words. Answer in JSON.","messages":[{{"role":"user","content":"why?"}}]}}"#
                ),
                r#"{"title":"Why"}"#,
            ),
            (
                Api::Responses,
                format!(
                    r#"{{"model":"tiny","stream":{stream},"instructions":"{opening}","input":[{{"role":"user","content":[{{"type":"input_text","text":"fix it"}}]}}]}}"#
                ),
                "Fix it",
            ),
        ]
    }

    #[test]
    fn every_api_is_answered_in_its_own_form() {
        for stream in [false, true] {
            for (api, body, text) in calls(stream) {
                let call = call(api, &body).expect("a title call");
                assert_eq!((call.stream, call.model.as_str()), (stream, "tiny"), "{api:?}");
                let answer = call.answer("x1", 1_700_000_000);
                let reply = if stream {
                    let mut decoder = ReplyDecoder::new(api);
                    decoder.feed(&answer);
                    decoder.finish()
                } else {
                    parse_reply(api, &answer)
                };
                assert_eq!(
                    reply.blocks,
                    [ReplyBlock::Text { text: text.into() }],
                    "{api:?} {stream}"
                );
                assert!(reply.complete && reply.error.is_none());
                assert_eq!(reply.model.as_deref(), Some("tiny"));
                assert_eq!(reply.usage.completion_tokens, Some(0));
            }
        }
    }

    #[test]
    fn what_is_no_title_call_goes_to_the_engine() {
        let schema = SCHEMA.replace(r#"["title"]"#, r#"["title","branch"]"#);
        let user = r#""messages":[{"role":"user","content":"You are a title generator"}]"#;
        let system = r#""system":"You are a title generator""#;
        for (api, body) in [
            (Api::Messages, format!("{{{user}}}")),
            (Api::Messages, format!(r#"{{{system},{user},"tools":[{{"name":"Bash"}}]}}"#)),
            (Api::Messages, format!(r#"{{"output_format":{schema},{user}}}"#)),
            (Api::Messages, format!(r#"{{"max_tokens":1,"system":"quota",{user}}}"#)),
            (Api::Messages, format!(r#"{{{system},"messages":[]}}"#)),
            (Api::Completions, format!(r#"{{{system},{user},"prompt":"x"}}"#)),
            (Api::Chat, "no JSON".to_owned()),
        ] {
            assert_eq!(call(api, &body), None, "{body}");
        }
    }

    #[test]
    fn titles_are_short_and_never_empty() {
        for (said, title) in [
            ("fix the failing test", "Fix the failing test"),
            ("  <b>one</b> two\nthree 4 five six seven eight", "One two three 4 five six seven"),
            ("if a < b then c > d", "If a < b then c"),
            ("<session>\nfix it\n</session>\n\nWrite the title", "Fix it"),
            ("name <session> it", "Name it"),
            ("!?", "New session"),
            ("", "New session"),
            ("éa", "Éa"),
        ] {
            assert_eq!(title_of(said), title, "{said:?}");
        }
        assert_eq!(title_of(&"x".repeat(99)).chars().count(), MAX_CHARS);
    }
}
