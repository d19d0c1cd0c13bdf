//! Text put in front of what a prompt says, by byte spans: the body's other bytes stay as they are.
//!
//! Which of system text and tools an engine's chat template renders first is the template's affair, so
//! both get the text for the head of the prompt: the first system text, and the description of the
//! first tool. The first message after the system text gets the other. Claude Code's billing line,
//! which engines drop, is passed over: text before it would make them keep it, text in it would go
//! with it. A prompt of token ids gets ids that it has itself, picked by the text's hex digits: whatever
//! the vocabulary, they are in it.

use std::borrow::Cow;

use serde_json::Value;

use super::normal_form::BILLING_LINE;
use super::scan::{self, Member, Span};

/// What is put where.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PromptFront<'a> {
    /// In front of the system text and of the first tool's description.
    pub head: &'a str,
    /// In front of the first message's text.
    pub first_message: &'a str,
}

impl PromptFront<'_> {
    /// The body with the texts in place.
    ///
    /// A body without system text, or without tools, has them in the places that it has; one without
    /// a message that takes text is refused.
    pub fn insert(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        let text =
            std::str::from_utf8(body).map_err(|error| format!("body is not UTF-8: {error}"))?;
        let (members, _) = scan::members(text, 0).ok_or("body is not a JSON object")?;
        let find = |names: &[&str]| {
            members.iter().find(|member| names.iter().any(|name| member.is_named(text, name)))
        };
        let head = escaped(self.head);
        let mut insertions = Vec::new();
        let mut system = find(&["system", "instructions"])
            .and_then(|member| system_place(text, member.value.start));
        let list = find(&["messages", "input", "prompt"]).ok_or("body has no prompt")?;
        let block = if list.is_named(text, "input") { "input_text" } else { "text" };
        let (in_messages, first_message) = message_places(text, list.value.start, block);
        system = system.or(in_messages);
        insertions.extend(system.map(|at| (at, head.to_string())));
        if let Some(place) = find(&["tools"]).and_then(|tools| tool_place(text, tools)) {
            insertions.push((place.at(), place.with(&head)));
        }
        match first_message {
            Some(place) => {
                insertions.push((place.at(), place.with(&escaped(self.first_message))));
            }
            None => insertions.push(
                token_ids(text, list.value.start, self.first_message)
                    .ok_or("the prompt has no text to put a cache salt before")?,
            ),
        }
        Ok(inserted(text, insertions))
    }
}

/// A text as the inside of a JSON string.
fn escaped(text: &str) -> Cow<'_, str> {
    let quoted = Value::from(text).to_string();
    Cow::Owned(quoted[1..quoted.len() - 1].to_owned())
}

fn inserted(text: &str, mut insertions: Vec<(usize, String)>) -> Vec<u8> {
    insertions.sort_by_key(|(at, _)| *at);
    let more: usize = insertions.iter().map(|(_, inserted)| inserted.len()).sum();
    let mut body = Vec::with_capacity(text.len() + more);
    let mut position = 0;
    for (at, insertion) in insertions {
        body.extend_from_slice(&text.as_bytes()[position..at]);
        body.extend_from_slice(insertion.as_bytes());
        position = at;
    }
    body.extend_from_slice(&text.as_bytes()[position..]);
    body
}

/// Where a text goes, and what must be written around it there.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    /// Inside a string, at its start.
    InString(usize),
    /// A description of its own at the start of a tool, in front of other members.
    Description(usize),
    /// A text block of its own, of this type, at a list's start; whether others follow.
    Block(usize, &'static str, bool),
}

impl Place {
    fn at(&self) -> usize {
        match self {
            Self::InString(at) | Self::Description(at) | Self::Block(at, ..) => *at,
        }
    }

    fn with(&self, text: &str) -> String {
        match self {
            Self::InString(_) => text.to_owned(),
            Self::Description(_) => format!("\"description\":\"{text}\","),
            Self::Block(_, kind, others) => {
                let comma = if *others { "," } else { "" };
                format!("{{\"type\":\"{kind}\",\"text\":\"{text}\"}}{comma}")
            }
        }
    }
}

/// The inside of the first system text that is no billing line; of a string or a list of blocks.
fn system_place(text: &str, at: usize) -> Option<usize> {
    match text.as_bytes().get(at)? {
        b'"' => Some(at + 1).filter(|at| !text[*at..].starts_with(BILLING_LINE)),
        b'[' => scan::elements(text, at)?
            .iter()
            .filter_map(|block| text_of_block(text, block))
            .find(|at| !text[*at..].starts_with(BILLING_LINE)),
        _ => None,
    }
}

/// The inside of a text block's text; none for a block of another type.
fn text_of_block(text: &str, block: &Span) -> Option<usize> {
    let (members, _) = scan::members(text, block.start)?;
    let value = string_member(text, &members, "text")?;
    let kind = member(text, &members, "type").map_or("", |kind| &text[kind.value.clone()]);
    // "text", "input_text", "output_text"
    kind.ends_with("text\"").then_some(value)
}

fn member<'m>(text: &str, members: &'m [Member], name: &str) -> Option<&'m Member> {
    members.iter().find(|member| member.is_named(text, name))
}

/// The inside of a string member.
fn string_member(text: &str, members: &[Member], name: &str) -> Option<usize> {
    let start = member(text, members, name)?.value.start;
    (text.as_bytes()[start] == b'"').then_some(start + 1)
}

/// Where the first tool that the client runs is described; those that run on a server have no schema.
fn tool_place(text: &str, tools: &Member) -> Option<Place> {
    tools.elements(text)?.iter().find_map(|tool| {
        let (members, _) = scan::members(text, tool.start)?;
        let (start, members) = match member(text, &members, "function") {
            Some(function) => (function.value.start, scan::members(text, function.value.start)?.0),
            None => (tool.start, members),
        };
        let has = |name: &str| member(text, &members, name).is_some();
        if !(has("input_schema") || has("parameters")) {
            return None;
        }
        match string_member(text, &members, "description") {
            Some(at) => Some(Place::InString(at)),
            None if has("description") => None,
            None => Some(Place::Description(start + 1)),
        }
    })
}

/// Token ids for the front of a list of them, one for each hex digit of `salt`.
fn token_ids(text: &str, at: usize, salt: &str) -> Option<(usize, String)> {
    let mut known: Vec<u64> = Vec::new();
    let foreign = scan::find_element(text, at, |element| match text[element].parse::<u64>() {
        Ok(id) => {
            if !known.contains(&id) {
                known.push(id);
            }
            (known.len() == 16).then_some(false)
        }
        Err(_) => Some(true),
    });
    if foreign == Some(true) || known.is_empty() {
        return None;
    }
    let digits = salt.chars().filter_map(|c| c.to_digit(16));
    let ids = digits.map(|digit| format!("{},", known[digit as usize % known.len()]));
    Some((at + 1, ids.collect()))
}

/// The first system text among the leading system messages, and the front of the first message after
/// them that takes text, in a block of type `block` where it has none. A prompt that is one string has
/// only the latter.
fn message_places(text: &str, at: usize, block: &'static str) -> (Option<usize>, Option<Place>) {
    if text.as_bytes().get(at) == Some(&b'"') {
        return (None, Some(Place::InString(at + 1)));
    }
    let mut system = None;
    let mut leading = true;
    let place = scan::find_element(text, at, |message| {
        let (members, _) = scan::members(text, message.start)?;
        let role = member(text, &members, "role").map_or("", |role| &text[role.value.clone()]);
        leading &= matches!(role, "\"system\"" | "\"developer\"");
        let content = member(text, &members, "content")?.value.start;
        if leading {
            system = system.or_else(|| system_place(text, content));
            return None;
        }
        content_place(text, content, block)
    });
    (system, place)
}

fn content_place(text: &str, at: usize, block: &'static str) -> Option<Place> {
    match text.as_bytes().get(at)? {
        b'"' => Some(Place::InString(at + 1)),
        b'[' => {
            let blocks = scan::elements(text, at)?;
            let first = blocks.iter().find_map(|block| text_of_block(text, block));
            Some(first.map_or(Place::Block(at + 1, block, !blocks.is_empty()), Place::InString))
        }
        _ => None,
    }
}

#[cfg(test)]
#[path = "prompt_front_tests.rs"]
mod tests;
