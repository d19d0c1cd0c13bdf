//! A request body into units and a template.
//!
//! Every JSON body of the API's form is read so that `rebuild_body` gives its exact bytes back; what
//! has another form is refused here and kept whole by [`raw_request`]. The template's own form is
//! `template`'s, the comparison of units across turns is `normal_form`'s.
//!
//! A raw prompt (Completions) is cut into pieces of even length, so that a prompt that grows from turn
//! to turn shares all its whole pieces with the one before and is not stored again and again.

use std::borrow::Cow;

use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::known_units::KnownUnits;
use super::scan::{self, Member, Span};
use super::template;
use super::unit_reader::{ReadWork, UnitReader};
use super::{Api, ContentHash, Kept, ParsedRequest, Unit, UnitKind, hints, normal_form};

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

/// Reads a (decoded) body by itself.
pub fn parse_request(api: Api, body: &[u8]) -> Result<ParsedRequest<'_>, ParseError> {
    RequestReader::new(0).read(api, body)
}

/// Reads bodies one after another. Prompts repeat what went before: a unit that was read is known again by
/// the hash of its bytes and not parsed a second time. What is remembered holds no text but that of
/// system prompts, and is bounded.
#[derive(Debug)]
pub struct RequestReader {
    known: KnownUnits,
    work: ReadWork,
}

impl RequestReader {
    /// A reader that remembers units in about so many bytes; with 0 none.
    pub fn new(max_bytes: usize) -> Self {
        Self { known: KnownUnits::new(max_bytes), work: ReadWork::default() }
    }

    /// Reads a (decoded) body; the result is that of [`parse_request`].
    pub fn read<'a>(&mut self, api: Api, body: &'a [u8]) -> Result<ParsedRequest<'a>, ParseError> {
        let read = read_request(api, body, &mut self.known, &mut self.work);
        read.map_err(|message| ParseError { api: api.as_str(), message })
    }

    /// What all bodies so far took.
    pub fn work(&self) -> ReadWork {
        self.work
    }
}

/// Cuts nothing: the whole body as one raw unit with its template, for bodies that do not parse.
/// The text of a body that is not UTF-8 is base64, and its template says so.
pub fn raw_request(body: &[u8]) -> (Unit<'_>, String) {
    let (template, text) = template::whole_body(body);
    let unit = Unit {
        kind: UnitKind::Raw,
        role: Cow::Borrowed(""),
        hash: ContentHash::of(text.as_bytes()),
        blocks: [normal_form::opaque_block(&text)].into(),
        text,
    };
    (unit, template)
}

/// The units of a reply's output items, as they stand in the prompt of a request that names the response
/// instead of sending them back.
pub fn item_units(items: &[String]) -> Vec<Unit<'_>> {
    let mut units = Vec::new();
    for item in items {
        let mut known = KnownUnits::new(0);
        let mut reader = UnitReader::new(Api::Responses, item, &mut known);
        // What is no object is no item.
        if reader.add(UnitKind::Message, 0..item.len()).is_ok() {
            units.append(&mut reader.units);
        }
    }
    units
}

/// A unit by itself, from its JSON; none where that is not what the kind asks for.
pub fn unit_of(api: Api, kind: UnitKind, json: &str) -> Option<Unit<'static>> {
    if matches!(kind, UnitKind::Prompt | UnitKind::Raw) {
        return None;
    }
    let mut known = KnownUnits::new(0);
    let mut reader = UnitReader::new(api, json, &mut known);
    reader.add(kind, 0..json.len()).ok()?;
    reader.units.pop().map(Unit::into_owned)
}

/// Puts units that the server keeps before the messages of a request, so that its prompt is whole. The
/// body that is rebuilt stays the one that was sent.
pub fn put_before_messages(request: &mut ParsedRequest<'_>, kept: Vec<Unit<'static>>) {
    let is_message = |unit: &Unit<'_>| unit.kind == UnitKind::Message;
    let at = request.units.iter().position(is_message).unwrap_or(request.units.len());
    request.n_messages += kept.len() as u32;
    request.template = template::shifted(&request.template, at, kept.len());
    request.units.splice(at..at, kept);
}

fn read_request<'a>(
    api: Api,
    body: &'a [u8],
    known: &mut KnownUnits,
    work: &mut ReadWork,
) -> Result<ParsedRequest<'a>, String> {
    let text = std::str::from_utf8(body).map_err(|error| format!("not UTF-8: {error}"))?;
    let mut reader = UnitReader::new(api, text, known);
    let parts = read_units(api, text, &mut reader);
    work.add(reader.work);
    // A body that is no JSON is told as that, whatever else is wrong with it.
    if parts.is_err() || !reader.is_json_with_units() {
        serde_json::from_str::<&RawValue>(text).map_err(|error| format!("not JSON: {error}"))?;
    }
    let parts = parts?;
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
        kept: kept(api, &params, reader.has_reference),
        units: reader.units,
        tool_results: reader.tool_results,
        params: parts.params,
    })
}

fn read_units(api: Api, text: &str, reader: &mut UnitReader<'_, '_>) -> Result<Parts, String> {
    let (members, end) = scan::members(text, 0).ok_or("not a JSON object")?;
    if scan::skip_space(text.as_bytes(), end) != text.len() {
        return Err("more than a JSON object".to_owned());
    }
    let parts = Parts::find(api, text, &members)?;
    for (kind, spans) in [
        (UnitKind::System, &parts.system),
        (UnitKind::Tool, &parts.tools),
        (UnitKind::Message, &parts.messages),
        (UnitKind::Prompt, &pieces(text, &parts.prompt)),
    ] {
        for span in spans {
            reader.add(kind, span.clone())?;
        }
    }
    Ok(parts)
}

/// What the server keeps of the conversation.
fn kept(api: Api, params: &Map<String, Value>, has_reference: bool) -> Kept {
    if api != Api::Responses {
        return Kept::Nothing;
    }
    let has = |name: &str| params.get(name).is_some_and(|value| !value.is_null());
    if has("conversation") || has("prompt") || has_reference {
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
    member.elements(text).ok_or_else(|| format!("`{name}` is not a list"))
}

#[cfg(test)]
mod responses_tests;
#[cfg(test)]
mod tests;
