//! A request of one API as a request of another, errors in an API's own form, and what is answered over
//! Chat told as Messages.
//!
//! Messages and Chat tell the same conversation and are told in each other's form; one told in Responses
//! is told in theirs. A raw prompt of
//! Completions has no roles to tell, and what a chat template makes of a conversation only the engine
//! knows: there is no conversion from or to it here.
//!
//! What both APIs can say is carried over: system prompt, messages, tools, calls and results, images,
//! reasoning, sampling and length limits. What only one can say is left out: `cache_control`,
//! `metadata`, `is_error`, Claude Code's billing line, signatures of reasoning, tools that run on a server, documents that are not
//! text, log probabilities, penalties, seeds. Streaming options are the sender's to set.

mod from_chat;
mod from_responses;
mod to_chat;
mod to_messages;

use serde_json::{Map, Value, json};

pub use from_chat::{
    ChatAsMessages, MessageEvents, message_of_reply, tokenize_request, tokens_counted,
    whole_chat_reply,
};

use super::Api;

/// Sampling members that both APIs spell alike.
const SHARED_MEMBERS: [&str; 5] = ["model", "stream", "temperature", "top_p", "top_k"];

/// A request of API `from` as a request of API `to`: the same request where these are one, none where
/// there is no such conversion.
///
/// Equal parts of two requests become equal parts of the results, so that prefixes shared by the turns
/// of a conversation stay shared.
pub fn convert_request(body: &Value, from: Api, to: Api) -> Option<Value> {
    match (from, to) {
        (Api::Messages, Api::Chat) => Some(to_chat::request(body)),
        (Api::Chat, Api::Messages) => Some(to_messages::request(body)),
        (Api::Responses, Api::Chat) => Some(from_responses::request(body)),
        (Api::Responses, Api::Messages) => {
            Some(to_messages::request(&from_responses::request(body)))
        }
        (Api::Messages, Api::Messages)
        | (Api::Chat, Api::Chat)
        | (Api::Completions, Api::Completions)
        | (Api::Responses, Api::Responses) => Some(body.clone()),
        (Api::Completions, _) | (_, Api::Completions | Api::Responses) => None,
    }
}

/// The APIs in which a request recorded in `api` can be sent, itself first, then by likeness.
pub fn sendable_as(api: Api) -> &'static [Api] {
    match api {
        Api::Messages => &[Api::Messages, Api::Chat],
        Api::Chat => &[Api::Chat, Api::Messages],
        Api::Completions => &[Api::Completions],
        Api::Responses => &[Api::Responses, Api::Chat, Api::Messages],
    }
}

/// A Responses request without what only its first server can read (encrypted reasoning, names of what
/// it keeps); none where there is nothing of the kind.
pub fn portable_responses(body: &Value) -> Option<Value> {
    from_responses::portable(body)
}

/// The body of an error answer in the API's own form.
pub fn error_body(api: Api, status: u16, message: &str) -> String {
    let kind = match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        400..=499 => "invalid_request_error",
        503 | 529 => "overloaded_error",
        504 => "timeout_error",
        _ => "api_error",
    };
    let body = match api {
        Api::Messages => json!({"type": "error", "error": {"type": kind, "message": message}}),
        Api::Chat | Api::Completions | Api::Responses => {
            json!({"error": {"message": message, "type": kind, "param": null, "code": status}})
        }
    };
    body.to_string()
}

/// A new request with the members that both APIs spell alike.
fn with_shared_members(body: &Value) -> Map<String, Value> {
    let shared = SHARED_MEMBERS.iter().filter_map(|name| {
        let value = body.get(*name).filter(|value| !value.is_null())?;
        Some(((*name).to_owned(), value.clone()))
    });
    shared.collect()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn text<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

/// Content parts in their shortest form: one text is a string.
fn shortest(mut parts: Vec<Value>) -> Value {
    match &mut parts[..] {
        [part] if text(part, "type") == Some("text") => part["text"].take(),
        _ => Value::Array(parts),
    }
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

#[cfg(test)]
mod tests;
