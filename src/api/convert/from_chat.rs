//! What an engine answers over Chat, as an agent that speaks Messages expects it: the events of a stream,
//! a whole message, an error, a count of tokens.
//!
//! The answer is read by the Chat decoder that also reads recordings; here its reply is told again, piece
//! by piece as it grows. What the engine did not tell is not made up: a count that is missing stays away.

use serde_json::{Value, json};

use super::super::{Api, Reply, ReplyBlock, ReplyDecoder, Usage, parse_reply};
use super::error_body;

/// Tells a reply as the events of a Messages stream.
#[derive(Debug)]
pub struct MessageEvents {
    id: String,
    /// The name that the message carries where the engine tells none.
    model: String,
    is_begun: bool,
    is_ended: bool,
    told: Vec<Told>,
}

/// What was told of one block.
#[derive(Debug)]
struct Told {
    bytes: usize,
    is_open: bool,
}

impl MessageEvents {
    /// The events of the message of this id.
    pub fn new(id: String, model: String) -> Self {
        Self { id, model, is_begun: false, is_ended: false, told: Vec::new() }
    }

    /// What is new in a reply since it was last told.
    pub fn tell(&mut self, reply: &Reply, out: &mut Vec<u8>) {
        if self.is_ended {
            return;
        }
        if let Some(error) = &reply.error {
            self.is_ended = true;
            let error = json!({"type": "api_error", "message": error});
            push_event(out, &json!({"type": "error", "error": error}));
            return;
        }
        let says_something = reply.model.is_some() || reply.stop_reason.is_some();
        if !self.is_begun && (says_something || !reply.blocks.is_empty() || reply.complete) {
            self.is_begun = true;
            // The counts come at the end; clients want numbers here.
            let mut message = message(&self.id, model_of(reply, &self.model), &[]);
            message["usage"] = json!({"input_tokens": 0, "output_tokens": 0});
            push_event(out, &json!({"type": "message_start", "message": message}));
        }
        for (index, block) in reply.blocks.iter().enumerate() {
            if index == self.told.len() && !self.begin_block(index, block, out) {
                break;
            }
            self.tell_more(index, block, out);
        }
        if reply.complete {
            self.end(reply, out);
        }
    }

    /// The engine has said all: a reply that told why it stopped is whole, even where the mark of the
    /// stream's end is missing.
    pub fn finish(&mut self, reply: &Reply, out: &mut Vec<u8>) {
        self.tell(reply, out);
        if !self.is_ended && reply.stop_reason.is_some() {
            self.end(reply, out);
        }
    }

    /// Begins a block, once what names it is known.
    fn begin_block(&mut self, index: usize, block: &ReplyBlock, out: &mut Vec<u8>) -> bool {
        let start = match block {
            ReplyBlock::Text { .. } => json!({"type": "text", "text": ""}),
            ReplyBlock::Reasoning { .. } => {
                json!({"type": "thinking", "thinking": "", "signature": ""})
            }
            ReplyBlock::ToolCall { name, .. } if name.is_empty() => return false,
            ReplyBlock::ToolCall { id, name, .. } => {
                let id = call_id(&self.id, index, id);
                json!({"type": "tool_use", "id": id, "name": name, "input": {}})
            }
        };
        self.close_last(out);
        let start = json!({"type": "content_block_start", "index": index, "content_block": start});
        push_event(out, &start);
        self.told.push(Told { bytes: 0, is_open: true });
        true
    }

    /// Calls that an engine tells side by side are told so too: a client finds a piece's block by its
    /// index.
    fn tell_more(&mut self, index: usize, block: &ReplyBlock, out: &mut Vec<u8>) {
        let (kind, member, whole) = match block {
            ReplyBlock::Text { text } => ("text_delta", "text", text),
            ReplyBlock::Reasoning { text, .. } => ("thinking_delta", "thinking", text),
            ReplyBlock::ToolCall { arguments, .. } => {
                ("input_json_delta", "partial_json", arguments)
            }
        };
        let told = &mut self.told[index];
        let more = whole.get(told.bytes..).unwrap_or_default();
        if !more.is_empty() {
            told.bytes = whole.len();
            let delta = json!({"type": kind, member: more});
            push_event(
                out,
                &json!({"type": "content_block_delta", "index": index, "delta": delta}),
            );
        }
    }

    fn close_last(&mut self, out: &mut Vec<u8>) {
        let index = self.told.len().wrapping_sub(1);
        if let Some(last) = self.told.last_mut().filter(|last| last.is_open) {
            last.is_open = false;
            push_event(out, &json!({"type": "content_block_stop", "index": index}));
        }
    }

    fn end(&mut self, reply: &Reply, out: &mut Vec<u8>) {
        self.is_ended = true;
        self.close_last(out);
        let delta = json!({"stop_reason": stop_reason(reply), "stop_sequence": null});
        let usage = usage(&reply.usage);
        push_event(out, &json!({"type": "message_delta", "delta": delta, "usage": usage}));
        push_event(out, &json!({"type": "message_stop"}));
    }
}

/// A Chat stream as a Messages stream, in pieces cut anywhere.
#[derive(Debug)]
pub struct ChatAsMessages {
    decoder: ReplyDecoder,
    events: MessageEvents,
}

impl ChatAsMessages {
    /// The converter of one response.
    pub fn new(id: String, model: String) -> Self {
        Self { decoder: ReplyDecoder::new(Api::Chat), events: MessageEvents::new(id, model) }
    }

    /// Takes the next piece and appends what it comes to.
    pub fn feed(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        self.decoder.feed(bytes);
        self.events.tell(self.decoder.reply(), out);
    }

    /// Appends what is left after the last piece.
    pub fn finish(mut self, out: &mut Vec<u8>) {
        self.events.finish(&self.decoder.finish(), out);
    }
}

/// A whole reply as a message, the whole stream of its events, or the error that it is.
pub fn message_of_reply(id: &str, model: &str, reply: &Reply) -> Value {
    let content = reply.blocks.iter().enumerate().map(|(index, block)| match block {
        ReplyBlock::Text { text } => json!({"type": "text", "text": text}),
        ReplyBlock::Reasoning { text, signature } => {
            let signature = signature.as_deref().unwrap_or_default();
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        ReplyBlock::ToolCall { id: call, name, arguments } => {
            let id = call_id(id, index, call);
            json!({"type": "tool_use", "id": id, "name": name, "input": input_of(arguments)})
        }
    });
    let mut message = message(id, model_of(reply, model), &content.collect::<Vec<_>>());
    message["stop_reason"] = stop_reason(reply).into();
    message["usage"] = usage(&reply.usage);
    message
}

/// A body that an engine answered over Chat, of any status, as a reply or as the status and body of an
/// error in the Messages API's form.
pub fn whole_chat_reply(status: u16, body: &[u8]) -> Result<Reply, (u16, String)> {
    let reply = parse_reply(Api::Chat, body);
    match &reply.error {
        None if status < 400 => Ok(reply),
        // An error in a body that says 200 is one all the same.
        error => {
            let status = if status < 400 { 502 } else { status };
            let message = error.clone().unwrap_or_else(|| {
                String::from_utf8_lossy(body).trim().chars().take(300).collect()
            });
            Err((status, error_body(Api::Messages, status, &message)))
        }
    }
}

/// A Messages request to count tokens, as a request to an engine's `/tokenize` that takes a Chat
/// conversation.
pub fn tokenize_request(body: &Value) -> Value {
    let chat = super::to_chat::request(body);
    let kept = ["model", "messages", "tools"].iter().filter_map(|name| {
        Some(((*name).to_owned(), chat.get(*name).filter(|value| !value.is_null())?.clone()))
    });
    let mut request: serde_json::Map<String, Value> = kept.collect();
    request.insert("add_generation_prompt".to_owned(), true.into());
    request.into()
}

/// The count in an answer of `/tokenize`; none where the engine gives none.
pub fn tokens_counted(body: &[u8]) -> Option<u64> {
    serde_json::from_slice::<Value>(body).ok()?.get("count")?.as_u64()
}

fn message(id: &str, model: &str, content: &[Value]) -> Value {
    json!({
        "id": id, "type": "message", "role": "assistant", "model": model, "content": content,
        "stop_reason": null, "stop_sequence": null,
    })
}

fn model_of<'a>(reply: &'a Reply, asked: &'a str) -> &'a str {
    reply.model.as_deref().unwrap_or(asked)
}

/// The Messages API's word for why generation stopped. A reply with calls waits for their results,
/// whatever the engine calls that.
fn stop_reason(reply: &Reply) -> Option<&str> {
    let calls = |block: &ReplyBlock| matches!(block, ReplyBlock::ToolCall { .. });
    Some(match reply.stop_reason.as_deref()? {
        "tool_calls" | "function_call" => "tool_use",
        "stop" if reply.blocks.iter().any(calls) => "tool_use",
        "stop" => "end_turn",
        "length" => "max_tokens",
        "content_filter" => "refusal",
        other => other,
    })
}

/// The Messages API's prompt count leaves out what came from cache.
fn usage(usage: &Usage) -> Value {
    let counts = [
        (
            "input_tokens",
            usage.prompt_tokens.map(|all| all - usage.cached_tokens.unwrap_or(0).min(all)),
        ),
        ("cache_read_input_tokens", usage.cached_tokens),
        ("output_tokens", usage.completion_tokens),
    ];
    let known =
        counts.into_iter().filter_map(|(name, count)| Some((name.to_owned(), count?.into())));
    Value::Object(known.collect())
}

/// Some engines name no call; the agent needs a name to answer to.
fn call_id(message_id: &str, index: usize, id: &str) -> String {
    if id.is_empty() { format!("toolu_{message_id}_{index}") } else { id.to_owned() }
}

/// The arguments as the object that the API wants. What the model garbled is handed on as what it is, for
/// the agent to tell the model.
fn input_of(arguments: &str) -> Value {
    match serde_json::from_str::<Value>(arguments) {
        Ok(input @ Value::Object(_)) => input,
        _ if arguments.trim().is_empty() => json!({}),
        _ => json!({"invalid_json": arguments}),
    }
}

fn push_event(out: &mut Vec<u8>, data: &Value) {
    let kind = data["type"].as_str().unwrap_or_default();
    out.extend_from_slice(format!("event: {kind}\ndata: {data}\n\n").as_bytes());
}

#[cfg(test)]
#[path = "from_chat_tests.rs"]
mod tests;
