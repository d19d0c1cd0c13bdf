//! Reads the units of one body, in prompt order: text, normal form, and what they say about the request.
//!
//! A unit whose bytes were read before is known by their hash and not parsed again. Where the units lie
//! in the body is `request`'s to find.

use std::borrow::Cow;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;

use super::known_units::{Key, KnownUnits, UnitReading};
use super::scan::Span;
use super::template::{self, Place};
use super::{Api, Block, ContentHash, ToolResult, Unit, UnitKind, hints, normal_form};
use crate::background;

/// What reading took, in numbers that no clock tells.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReadWork {
    /// Units in the bodies.
    pub units: u64,
    /// Those of them that were parsed.
    pub units_parsed: u64,
    /// Bytes of the units as sent: each is hashed once, and no more of those that were known.
    pub bytes: u64,
    /// Bytes of the units that were parsed.
    pub bytes_parsed: u64,
}

impl ReadWork {
    pub(super) fn add(&mut self, other: Self) {
        self.units += other.units;
        self.units_parsed += other.units_parsed;
        self.bytes += other.bytes;
        self.bytes_parsed += other.bytes_parsed;
    }
}

/// Reads units one after another, in prompt order.
pub(super) struct UnitReader<'a, 'k> {
    api: Api,
    body: &'a str,
    known: &'k mut KnownUnits,
    pub(super) units: Vec<Unit<'a>>,
    pub(super) places: Vec<Place<'a>>,
    /// Text of the system prompt, by block or by message.
    pub(super) system_texts: Vec<Arc<str>>,
    /// Results since the last assistant message.
    pub(super) tool_results: Vec<ToolResult>,
    /// A unit names something that the server keeps.
    pub(super) has_reference: bool,
    /// All units are JSON values by themselves.
    are_json: bool,
    pub(super) work: ReadWork,
}

impl<'a, 'k> UnitReader<'a, 'k> {
    pub(super) fn new(api: Api, body: &'a str, known: &'k mut KnownUnits) -> Self {
        Self {
            api,
            body,
            known,
            units: Vec::new(),
            places: Vec::new(),
            system_texts: Vec::new(),
            tool_results: Vec::new(),
            has_reference: false,
            are_json: true,
            work: ReadWork::default(),
        }
    }

    /// Reads the unit that lies at `span`. A piece of a raw prompt is no JSON by itself; its bytes stay as
    /// they are. Fails for a message that is no object; of Responses it may be a string.
    pub(super) fn add(&mut self, kind: UnitKind, span: Span) -> Result<(), String> {
        let is_responses = self.api == Api::Responses;
        let sent = &self.body[span.clone()];
        if kind == UnitKind::Message
            && !(sent.starts_with('{') || is_responses && sent.starts_with('"'))
        {
            return Err(format!("message at byte {} is not an object", span.start));
        }
        let key = Key { api: self.api, kind, sent: ContentHash::of(sent.as_bytes()) };
        background::rest();
        self.work.units += 1;
        self.work.bytes += sent.len() as u64;
        let reading = match self.known.get(&key) {
            Some(known) => known,
            None => self.parse(key, sent),
        };
        let (text, cuts) = reading.text_and_cuts(sent);
        self.places.push(Place { span, cuts });
        if reading.role == "assistant" && !is_responses {
            self.tool_results.clear();
        }
        self.tool_results.extend(reading.tool_results.iter().cloned());
        self.system_texts.extend(reading.system_texts.iter().cloned());
        self.has_reference |= reading.is_reference;
        self.are_json &= reading.is_json;
        self.units.push(Unit {
            kind,
            role: reading.role.clone(),
            hash: reading.hash.unwrap_or(key.sent),
            blocks: Arc::clone(&reading.blocks),
            text,
        });
        background::rest();
        Ok(())
    }

    fn parse(&mut self, key: Key, sent: &str) -> Arc<UnitReading> {
        self.work.units_parsed += 1;
        self.work.bytes_parsed += sent.len() as u64;
        let reading = Arc::new(read_unit(self.api, key.kind, sent));
        self.known.keep(key, &reading);
        reading
    }

    /// Whether the body is JSON: each unit is, and so is what is left with a value in place of each. That
    /// spares those that are known. Of a raw prompt, whose pieces are no values, this says nothing.
    pub(super) fn is_json_with_units(&self) -> bool {
        if !self.are_json {
            return false;
        }
        let mut spans: Vec<&Span> = self.places.iter().map(|place| &place.span).collect();
        spans.sort_unstable_by_key(|span| span.start);
        let mut rest = String::new();
        let mut position = 0;
        for span in spans {
            rest.push_str(&self.body[position..span.start]);
            rest.push_str("{}");
            position = span.end;
        }
        rest.push_str(&self.body[position..]);
        serde_json::from_str::<&RawValue>(&rest).is_ok()
    }
}

fn read_unit(api: Api, kind: UnitKind, sent: &str) -> UnitReading {
    if matches!(kind, UnitKind::Prompt | UnitKind::Raw) {
        return UnitReading {
            blocks: [normal_form::opaque_block(sent)].into(),
            ..UnitReading::default()
        };
    }
    let is_json = serde_json::from_str::<&RawValue>(sent).is_ok();
    let (text, cuts) = template::cut_cache_control(sent);
    // None where it is nested too deep.
    let value: Option<Value> = serde_json::from_str(&text).ok();
    let blocks = value.as_ref().and_then(|value| blocks_of(api, kind, value));
    let role = role_name(value.as_ref().map_or("", |value| role_of(api, kind, value)));
    let is_item = |value: &Value| api == Api::Responses && value["type"] == "item_reference";
    UnitReading {
        hash: (!cuts.is_empty()).then(|| ContentHash::of(text.as_bytes())),
        blocks: blocks.unwrap_or_else(|| vec![normal_form::opaque_block(&text)]).into(),
        cuts: cuts.iter().map(|cut| (cut.offset, cut.removed.len())).collect(),
        tool_results: value.as_ref().map_or_else(Vec::new, |it| results_of(api, kind, &role, it)),
        system_texts: value.as_ref().map_or_else(Vec::new, |it| system_texts_of(kind, &role, it)),
        is_reference: value.as_ref().is_some_and(is_item),
        is_json,
        role,
    }
}

/// The few roles that there are need no memory of their own.
fn role_name(role: &str) -> Cow<'static, str> {
    const USUAL: [&str; 6] = ["", "assistant", "developer", "system", "tool", "user"];
    let usual = USUAL.into_iter().find(|usual| *usual == role);
    usual.map_or_else(|| Cow::Owned(role.to_owned()), Cow::Borrowed)
}

fn blocks_of(api: Api, kind: UnitKind, value: &Value) -> Option<Vec<Block>> {
    Some(match (kind, value.as_object()) {
        (UnitKind::System, _) => normal_form::system_blocks(value),
        (UnitKind::Tool, _) => normal_form::tool_blocks(value),
        (UnitKind::Message, Some(item)) if api == Api::Responses => {
            normal_form::item_blocks(normal_form::item_role(item), item)
        }
        (UnitKind::Message, Some(message)) => {
            normal_form::message_blocks(role_of(api, kind, value), message)
        }
        // An input that is one string: what the user says.
        (UnitKind::Message, None) => normal_form::text_blocks("user", value),
        (UnitKind::Prompt | UnitKind::Raw, _) => return None,
    })
}

fn role_of(api: Api, kind: UnitKind, value: &Value) -> &str {
    match (kind, value.as_object()) {
        (UnitKind::Message, Some(item)) if api == Api::Responses => normal_form::item_role(item),
        (UnitKind::Message, Some(message)) => {
            message.get("role").and_then(Value::as_str).unwrap_or_default()
        }
        (UnitKind::Message, None) => "user",
        _ => "",
    }
}

fn results_of(api: Api, kind: UnitKind, role: &str, value: &Value) -> Vec<ToolResult> {
    match value.as_object() {
        Some(message)
            if kind == UnitKind::Message && (role != "assistant" || api == Api::Responses) =>
        {
            hints::tool_results(api, role, message)
        }
        _ => Vec::new(),
    }
}

fn system_texts_of(kind: UnitKind, role: &str, value: &Value) -> Vec<Arc<str>> {
    let content = match kind {
        UnitKind::System => return text_of(value).into_iter().map(Arc::from).collect(),
        UnitKind::Message if matches!(role, "system" | "developer") => value.get("content"),
        _ => None,
    };
    let parts = content.and_then(Value::as_array).into_iter().flatten().chain(content);
    parts.filter_map(text_of).map(Arc::from).collect()
}

/// The text of a string or of a text block.
fn text_of(value: &Value) -> Option<&str> {
    value.as_str().or_else(|| value.get("text")?.as_str())
}
