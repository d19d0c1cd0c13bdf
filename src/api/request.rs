//! A request body into units and a template.
//!
//! Every JSON body of the API's form is read so that `rebuild_body` gives its exact bytes back; what
//! has another form is refused here and kept whole by [`raw_request`]. The template's own form is
//! `template`'s, the comparison of units across turns is `normal_form`'s.
//!
//! A raw prompt (Completions) is cut into pieces of even length, so that a prompt that grows from turn
//! to turn shares all its whole pieces with the one before and is not stored again and again.

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::scan::{self, Member, Span};
use super::template::{self, Place};
use super::{
    Api, Block, ContentHash, Kept, ParsedRequest, ToolResult, Unit, UnitKind, hints, normal_form,
};

/// Length of a piece of a raw prompt, up to the end of the character at that place.
const PIECE_BYTES: usize = 1024;

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

/// The units of a reply's output items, as they stand in the prompt of a request that names the response
/// instead of sending them back.
pub fn item_units(items: &[String]) -> Vec<Unit> {
    let mut units = Vec::new();
    for item in items {
        let mut reader = UnitReader::new(Api::Responses, item);
        // What is no object is no item.
        if reader.add_message(0..item.len()).is_ok() {
            units.append(&mut reader.units);
        }
    }
    units
}

/// A unit by itself, from its JSON; none where that is not what the kind asks for.
pub fn unit_of(api: Api, kind: UnitKind, json: &str) -> Option<Unit> {
    let mut reader = UnitReader::new(api, json);
    match kind {
        UnitKind::System => reader.add_system(0..json.len()),
        UnitKind::Tool => reader.add_tool(0..json.len()),
        UnitKind::Message => reader.add_message(0..json.len()).ok()?,
        UnitKind::Prompt | UnitKind::Raw => return None,
    }
    reader.units.pop()
}

/// Puts units that the server keeps before the messages of a request, so that its prompt is whole. The
/// body that is rebuilt stays the one that was sent.
pub fn put_before_messages(request: &mut ParsedRequest, kept: Vec<Unit>) {
    let is_message = |unit: &Unit| unit.kind == UnitKind::Message;
    let at = request.units.iter().position(is_message).unwrap_or(request.units.len());
    request.n_messages += kept.len() as u32;
    request.template = template::shifted(&request.template, at, kept.len());
    request.units.splice(at..at, kept);
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
    for span in pieces(text, &parts.prompt) {
        reader.add_piece(span);
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
        session_hint: hints::session_hint(api, &params),
        subagent_hint: reader.system_texts.iter().any(|text| hints::is_subagent_line(text)),
        utility_hint: hints::utility_hint(n_tools, &params, &reader.system_texts),
        kept: kept(api, &params, &reader.units),
        units: reader.units,
        tool_results: reader.tool_results,
        params: parts.params,
    })
}

/// What the server keeps of the conversation.
fn kept(api: Api, params: &Map<String, Value>, units: &[Unit]) -> Kept {
    if api != Api::Responses {
        return Kept::Nothing;
    }
    let has = |name: &str| params.get(name).is_some_and(|value| !value.is_null());
    // The text is looked at first: few requests have any, and few units name one.
    let is_reference = |unit: &Unit| {
        unit.text.contains("item_reference")
            && serde_json::from_str::<Value>(&unit.text)
                .is_ok_and(|item| item["type"] == "item_reference")
    };
    if has("conversation") || has("prompt") || units.iter().any(is_reference) {
        return Kept::Unnamed;
    }
    match params.get("previous_response_id").and_then(Value::as_str) {
        Some(response) if !response.is_empty() => Kept::Response(response.to_owned()),
        _ => Kept::Nothing,
    }
}

/// Where the parts of a prompt lie in the body.
#[derive(Debug, Default)]
struct Parts {
    system: Vec<Span>,
    tools: Vec<Span>,
    messages: Vec<Span>,
    /// The value of a raw prompt; empty where there is none.
    prompt: Span,
    /// The other members, as sent, as one object.
    params: String,
}

impl Parts {
    fn find(api: Api, text: &str, members: &[Member]) -> Result<Self, String> {
        let mut parts = Self::default();
        let mut seen: Vec<String> = Vec::new();
        for member in members {
            let name = member.name(text).unwrap_or_default();
            let Some(part) = Part::of(api, &name) else {
                parts.params.push(if parts.params.is_empty() { '{' } else { ',' });
                parts.params.push_str(&text[member.key.clone()]);
                parts.params.push(':');
                parts.params.push_str(&text[member.value.clone()]);
                continue;
            };
            if seen.iter().any(|earlier| *earlier == name) {
                return Err(format!("two members `{name}`"));
            }
            match part {
                Part::System => parts.system = system_spans(text, member, &name)?,
                Part::Tools => parts.tools = list_spans(text, member, &name)?,
                Part::Messages if api == Api::Responses => {
                    parts.messages = system_spans(text, member, &name)?;
                }
                Part::Messages => parts.messages = list_spans(text, member, &name)?,
                Part::Prompt => parts.prompt = prompt_span(text, member)?,
            }
            seen.push(name.into_owned());
        }
        parts.params.push_str(if parts.params.is_empty() { "{}" } else { "}" });
        let needed = match api {
            Api::Messages | Api::Chat => "messages",
            Api::Completions => "prompt",
            Api::Responses => "input",
        };
        let has_it = seen.iter().any(|name| name == needed);
        has_it.then_some(parts).ok_or_else(|| format!("no member `{needed}`"))
    }
}

/// A top-level member that is part of the prompt.
#[derive(Debug, Clone, Copy)]
enum Part {
    System,
    Tools,
    Messages,
    Prompt,
}

impl Part {
    fn of(api: Api, name: &str) -> Option<Self> {
        match (api, name) {
            (Api::Messages, "system") | (Api::Responses, "instructions") => Some(Self::System),
            (Api::Messages | Api::Chat | Api::Responses, "tools") => Some(Self::Tools),
            (Api::Messages | Api::Chat, "messages") | (Api::Responses, "input") => {
                Some(Self::Messages)
            }
            (Api::Completions, "prompt") => Some(Self::Prompt),
            _ => None,
        }
    }
}

/// A text, token ids, or a list of either.
fn prompt_span(text: &str, member: &Member) -> Result<Span, String> {
    match text[member.value.clone()].as_bytes().first() {
        Some(b'"' | b'[') => Ok(member.value.clone()),
        _ => Err("`prompt` is neither a text nor a list".to_owned()),
    }
}

/// Cuts a span into pieces. Where the cuts fall depends on the bytes before them alone.
fn pieces(text: &str, span: &Span) -> Vec<Span> {
    let mut pieces = Vec::new();
    let mut start = span.start;
    while start < span.end {
        let mut end = (start + PIECE_BYTES).min(span.end);
        while !text.is_char_boundary(end) {
            end += 1;
        }
        pieces.push(start..end);
        start = end;
    }
    pieces
}

/// A string, or a list.
fn system_spans(text: &str, member: &Member, name: &str) -> Result<Vec<Span>, String> {
    if text[member.value.clone()].starts_with('"') {
        return Ok(vec![member.value.clone()]);
    }
    list_spans(text, member, name)
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
        let is_responses = self.api == Api::Responses;
        match self.body.as_bytes().get(span.start) {
            Some(b'{') => {}
            Some(b'"') if is_responses => {
                self.add_plain_input(span);
                return Ok(());
            }
            _ => return Err(format!("message at byte {} is not an object", span.start)),
        }
        let (text, value) = self.cut(span);
        let message = value.as_ref().and_then(Value::as_object);
        let role = match message {
            Some(item) if is_responses => normal_form::item_role(item),
            Some(message) => message.get("role").and_then(Value::as_str).unwrap_or_default(),
            None => "",
        };
        let blocks = message.map(|message| {
            if is_responses {
                normal_form::item_blocks(role, message)
            } else {
                normal_form::message_blocks(role, message)
            }
        });
        if role == "assistant" && !is_responses {
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

    /// An input that is one string: what the user says.
    fn add_plain_input(&mut self, span: Span) {
        let (text, value) = self.cut(span);
        let blocks = value.as_ref().map(|value| normal_form::text_blocks("user", value));
        self.push(UnitKind::Message, "user".to_owned(), text, blocks);
    }

    /// A piece is no JSON by itself; its bytes stay as they are.
    fn add_piece(&mut self, span: Span) {
        let text = self.body[span.clone()].to_owned();
        self.places.push(Place { span, cuts: Vec::new() });
        self.push(UnitKind::Prompt, String::new(), text, None);
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
mod responses_tests;
#[cfg(test)]
mod tests;
