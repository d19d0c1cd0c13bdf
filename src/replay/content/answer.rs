//! An answer of the engine in the place of a recorded one, and the recorded tool results after it tied
//! to its calls.
//!
//! Pure. The recorded results keep their order of calls: the first goes to the answer's first call, and
//! so on. Results beyond the answer's calls become user text; calls beyond the recording's results get
//! an error result, so that the body stays one that the API takes. Every such departure is counted.

use std::collections::HashSet;

use serde_json::{Value, json};

use crate::api::ReplyBlock;

/// What a call that the recording has no result for gets as its result.
pub(super) const NO_RESULT: &str =
    "Error: this call was not run; the recording has no result for it.";

/// Stands for a recorded result without text where it becomes user text, which may not be empty.
pub(super) const EMPTY_RESULT: &str = "(no output)";

/// Where a live answer departs from the recorded one.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Departures {
    /// Recorded tool results that the answer has no call for: sent as user text.
    pub(crate) results_as_text: u32,
    /// Calls of the answer that the recording has no result for: sent with an error result.
    pub(crate) calls_unanswered: u32,
    /// Recorded results that stand after a call of another tool.
    pub(crate) results_of_other_tools: u32,
    /// Calls whose arguments are no JSON object: sent as one that holds their text.
    pub(crate) arguments_malformed: u32,
}

/// Messages in the place of recorded ones.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Placed {
    /// The answer, then what follows it up to the next answer.
    pub(super) messages: Vec<String>,
    pub(super) departures: Departures,
}

/// A recorded message, as it stands in the body and as a value.
#[derive(Debug)]
pub(super) struct Recorded<'a> {
    pub(super) raw: &'a str,
    pub(super) value: Value,
}

impl<'a> Recorded<'a> {
    pub(super) fn read(raw: &'a str) -> Result<Self, String> {
        let value = serde_json::from_str(raw).map_err(|error| format!("message: {error}"))?;
        Ok(Self { raw, value })
    }

    fn role(&self) -> &str {
        text(&self.value, "role")
    }

    fn content(&self) -> &Value {
        self.value.get("content").unwrap_or(&Value::Null)
    }
}

/// A tool call, live or recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) id: String,
    pub(super) name: String,
}

/// Which recorded result goes to which live call.
pub(super) struct Pairing {
    /// For each result in body order: the live call, none where there is none left.
    pub(super) call_of_result: Vec<Option<usize>>,
    /// Live calls without a result.
    pub(super) unanswered: Vec<usize>,
    pub(super) departures: Departures,
}

impl Pairing {
    /// Results by their recorded call ids, in body order.
    pub(super) fn new(
        answer: &[ReplyBlock],
        live: &[Call],
        recorded: &[Call],
        results: &[String],
    ) -> Self {
        let position = |result: usize| {
            let id = &results[result];
            recorded.iter().position(|call| call.id == *id).unwrap_or(usize::MAX)
        };
        let mut in_call_order: Vec<usize> = (0..results.len()).collect();
        in_call_order.sort_by_key(|result| position(*result));
        let mut call_of_result = vec![None; results.len()];
        let mut departures = Departures::default();
        for (call, result) in in_call_order.iter().enumerate() {
            let Some(called) = live.get(call) else {
                departures.results_as_text += 1;
                continue;
            };
            call_of_result[*result] = Some(call);
            let recorded_name = recorded.get(position(*result)).map(|call| &call.name);
            departures.results_of_other_tools += u32::from(recorded_name != Some(&called.name));
        }
        let unanswered: Vec<usize> = (results.len().min(live.len())..live.len()).collect();
        departures.calls_unanswered = unanswered.len() as u32;
        departures.arguments_malformed = answer
            .iter()
            .filter(|block| match block {
                ReplyBlock::ToolCall { arguments, .. } => object(arguments).is_none(),
                _ => false,
            })
            .count() as u32;
        Self { call_of_result, unanswered, departures }
    }
}

/// Arguments as the object that the APIs want; none where they are none.
pub(super) fn object(arguments: &str) -> Option<Value> {
    if arguments.trim().is_empty() {
        return Some(json!({}));
    }
    serde_json::from_str(arguments).ok().filter(Value::is_object)
}

pub(super) fn object_or_text(arguments: &str) -> Value {
    object(arguments).unwrap_or_else(|| json!({"arguments": arguments}))
}

pub(super) fn text<'a>(value: &'a Value, name: &str) -> &'a str {
    value.get(name).and_then(Value::as_str).unwrap_or_default()
}

fn list<'a>(value: &'a Value, name: &str) -> &'a [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

pub(super) fn live_calls(answer: &[ReplyBlock]) -> Vec<Call> {
    let call = |block: &ReplyBlock| match block {
        ReplyBlock::ToolCall { id, name, .. } => Some(Call { id: id.clone(), name: name.clone() }),
        _ => None,
    };
    answer.iter().filter_map(call).collect()
}

fn text_part(text: &str) -> Value {
    json!({"type": "text", "text": if text.is_empty() { EMPTY_RESULT } else { text }})
}

/// A content as a list of parts.
fn parts(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) if !text.is_empty() => vec![text_part(text)],
        Value::Array(parts) => parts.clone(),
        _ => Vec::new(),
    }
}

/// A surplus result's content as parts of a user message.
fn result_parts(content: &Value) -> Vec<Value> {
    let parts = parts(content);
    if parts.is_empty() { vec![text_part("")] } else { parts }
}

/// Puts an answer into a Messages request: `recorded` are the assistant messages that it replaces,
/// `after` what follows them up to the next assistant message.
pub(super) fn place_in_messages(
    answer: &[ReplyBlock],
    recorded: &[Recorded<'_>],
    after: &[Recorded<'_>],
) -> Placed {
    let live = live_calls(answer);
    let recorded_calls: Vec<Call> = recorded
        .iter()
        .flat_map(|message| list(&message.value, "content"))
        .filter(|block| text(block, "type") == "tool_use")
        .map(|block| Call { id: text(block, "id").into(), name: text(block, "name").into() })
        .collect();
    let is_result = |block: &&Value| text(block, "type") == "tool_result";
    let results: Vec<String> = after
        .iter()
        .flat_map(|message| list(&message.value, "content"))
        .filter(is_result)
        .map(|block| text(block, "tool_use_id").to_owned())
        .collect();
    let pairing = Pairing::new(answer, &live, &recorded_calls, &results);
    let mut errors: Vec<Value> = pairing
        .unanswered
        .iter()
        .map(|call| {
            json!({"type": "tool_result", "tool_use_id": live[*call].id, "content": NO_RESULT,
                "is_error": true})
        })
        .collect();

    let mut messages = vec![messages_answer(answer).to_string()];
    // Results must be in the user message right after the calls.
    if !errors.is_empty() && after.first().is_none_or(|message| message.role() != "user") {
        let errors = std::mem::take(&mut errors);
        messages.push(json!({"role": "user", "content": errors}).to_string());
    }
    let mut calls = pairing.call_of_result.into_iter();
    for message in after {
        let has_results = list(&message.value, "content").iter().any(|block| is_result(&block));
        if !has_results && errors.is_empty() {
            messages.push(message.raw.to_owned());
            continue;
        }
        let (mut tied, mut surplus, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for mut block in parts(message.content()) {
            if !is_result(&&block) {
                rest.push(block);
            } else if let Some(call) = calls.next().flatten() {
                block["tool_use_id"] = live[call].id.as_str().into();
                tied.push(block);
            } else {
                surplus.extend(result_parts(block.get("content").unwrap_or(&Value::Null)));
            }
        }
        tied.append(&mut errors);
        tied.extend(surplus.into_iter().chain(rest));
        let mut message = message.value.clone();
        message["content"] = tied.into();
        messages.push(message.to_string());
    }
    Placed { messages, departures: pairing.departures }
}

fn messages_answer(answer: &[ReplyBlock]) -> Value {
    let blocks = answer.iter().filter_map(|block| match block {
        ReplyBlock::Text { text } if text.is_empty() => None,
        ReplyBlock::Text { text } => Some(json!({"type": "text", "text": text})),
        ReplyBlock::Reasoning { text, signature: Some(data) } if text.is_empty() => {
            Some(json!({"type": "redacted_thinking", "data": data}))
        }
        ReplyBlock::Reasoning { text, signature } => Some(json!({"type": "thinking",
            "thinking": text, "signature": signature.as_deref().unwrap_or_default()})),
        ReplyBlock::ToolCall { id, name, arguments } => Some(json!({"type": "tool_use", "id": id,
            "name": name, "input": object_or_text(arguments)})),
    });
    json!({"role": "assistant", "content": blocks.collect::<Vec<Value>>()})
}

/// Puts an answer into a Chat request; see [`place_in_messages`].
pub(super) fn place_in_chat(
    answer: &[ReplyBlock],
    recorded: &[Recorded<'_>],
    after: &[Recorded<'_>],
) -> Placed {
    let live = live_calls(answer);
    let recorded_calls: Vec<Call> = recorded
        .iter()
        .flat_map(|message| list(&message.value, "tool_calls"))
        .map(|call| Call {
            id: text(call, "id").into(),
            name: call.get("function").map_or("", |function| text(function, "name")).into(),
        })
        .collect();
    let (results, rest): (Vec<_>, Vec<_>) =
        after.iter().partition(|message| message.role() == "tool");
    let result_ids: Vec<String> =
        results.iter().map(|message| text(&message.value, "tool_call_id").to_owned()).collect();
    let pairing = Pairing::new(answer, &live, &recorded_calls, &result_ids);

    let mut messages = vec![chat_answer(answer).to_string()];
    let mut surplus = Vec::new();
    for (result, call) in results.into_iter().zip(&pairing.call_of_result) {
        if let Some(call) = call {
            let mut result = result.value.clone();
            result["tool_call_id"] = live[*call].id.as_str().into();
            messages.push(result.to_string());
        } else {
            surplus.extend(result_parts(result.content()));
        }
    }
    messages.extend(pairing.unanswered.iter().map(|call| {
        let id = live[*call].id.as_str();
        json!({"role": "tool", "tool_call_id": id, "content": NO_RESULT}).to_string()
    }));
    // One user message, not two in a row, which some templates refuse.
    let mut rest = rest.into_iter().peekable();
    if !surplus.is_empty() {
        if let Some(user) = rest.next_if(|message| message.role() == "user") {
            surplus.extend(parts(user.content()));
        }
        messages.push(json!({"role": "user", "content": surplus}).to_string());
    }
    messages.extend(rest.map(|message| message.raw.to_owned()));
    Placed { messages, departures: pairing.departures }
}

fn chat_answer(answer: &[ReplyBlock]) -> Value {
    let (mut content, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    for block in answer {
        match block {
            ReplyBlock::Text { text } => content.push_str(text),
            ReplyBlock::Reasoning { text, .. } => reasoning.push_str(text),
            ReplyBlock::ToolCall { id, name, arguments } => {
                let arguments = match object(arguments) {
                    Some(_) if !arguments.trim().is_empty() => arguments.clone(),
                    _ => object_or_text(arguments).to_string(),
                };
                calls.push(json!({"id": id, "type": "function",
                    "function": {"name": name, "arguments": arguments}}));
            }
        }
    }
    let no_text = content.is_empty() && !calls.is_empty();
    let content = if no_text { Value::Null } else { content.into() };
    let mut message = json!({"role": "assistant", "content": content});
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// Whether an answer says anything that a message can be made of.
pub(super) fn says_something(answer: &[ReplyBlock]) -> bool {
    answer.iter().any(|block| match block {
        ReplyBlock::Text { text } => !text.is_empty(),
        ReplyBlock::Reasoning { text, signature } => !text.is_empty() || signature.is_some(),
        ReplyBlock::ToolCall { .. } => true,
    })
}

/// Gives ids to calls that have none, or one that the thread has used before: a result is tied to its
/// call by the id alone.
pub(super) fn make_ids_unique(answer: &mut [ReplyBlock], used: &mut HashSet<String>) {
    for block in answer {
        let ReplyBlock::ToolCall { id, .. } = block else { continue };
        if id.is_empty() || used.contains(id) {
            let names = (used.len()..).map(|n| format!("call_live_{n}"));
            *id = names.into_iter().find(|name| !used.contains(name)).unwrap_or_default();
        }
        used.insert(id.clone());
    }
}

#[cfg(test)]
#[path = "answer_tests.rs"]
mod tests;
