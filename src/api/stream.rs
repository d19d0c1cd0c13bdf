//! A response body into a reply: streamed or whole, of every API.
//!
//! What an event means is for each API's module to say; here events become what every reader of a
//! stream wants to know: did output come, is it done, what is the reply so far.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::wire_text::WireText;
use super::{Api, Reply, ReplyBlock, chat, completions, messages, responses};
use crate::http::sse::{SseDecoder, SseEvent};

/// Longest text of an error object that is kept, in characters.
const MAX_ERROR_CHARS: usize = 2000;

/// What one piece of a stream brought.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fed {
    /// Number of events whose delta carries non-empty text, reasoning or tool call.
    pub output_chunks: u32,
    /// The engine's own running count of output tokens, where it tells one (`continuous_usage_stats`).
    pub completion_tokens_so_far: Option<u64>,
    /// The stream said that it is done.
    pub done: bool,
}

/// Reads a streamed response as it comes, in pieces cut anywhere. Never fails: what is odd ends up in
/// `Reply::error` or is passed over.
#[derive(Debug)]
pub struct ReplyDecoder {
    sse: SseDecoder,
    api: ApiStream,
    reply: Reply,
}

#[derive(Debug)]
enum ApiStream {
    Messages(messages::MessagesStream),
    Chat(chat::ChatStream),
    Completions,
    Responses(responses::ResponsesStream),
}

impl ApiStream {
    fn take_event(&mut self, event: SseEvent<'_>, reply: &mut Reply, fed: &mut Fed) {
        if event.data.trim() == "[DONE]" {
            reply.complete = true;
            fed.done = true;
            return;
        }
        match self {
            Self::Messages(stream) => stream.take_event(event.data, reply, fed),
            Self::Chat(stream) => stream.take_event(event.data, reply, fed),
            Self::Completions => completions::take_event(event.data, reply, fed),
            Self::Responses(stream) => stream.take_event(event.data, reply, fed),
        }
        if event.event == "error" && reply.error.is_none() {
            reply.error = Some(error_text(event.data));
        }
    }
}

impl ReplyDecoder {
    /// A decoder for one response.
    pub fn new(api: Api) -> Self {
        let api = match api {
            Api::Messages => ApiStream::Messages(messages::MessagesStream::default()),
            Api::Chat => ApiStream::Chat(chat::ChatStream::default()),
            Api::Completions => ApiStream::Completions,
            Api::Responses => ApiStream::Responses(responses::ResponsesStream::default()),
        };
        Self { sse: SseDecoder::new(), api, reply: Reply::default() }
    }

    /// Takes the next piece.
    pub fn feed(&mut self, bytes: &[u8]) -> Fed {
        let mut fed = Fed::default();
        let Self { sse, api, reply } = self;
        sse.feed(bytes, |event| api.take_event(event, reply, &mut fed));
        fed
    }

    /// The reply so far, for looking at while the stream goes.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// The reply after the last piece; an unfinished last event counts.
    pub fn finish(self) -> Reply {
        let Self { sse, mut api, mut reply } = self;
        sse.finish(|event| api.take_event(event, &mut reply, &mut Fed::default()));
        reply
    }
}

/// Reads a response that did not stream (also an error body of any status).
pub fn parse_reply(api: Api, body: &[u8]) -> Reply {
    let text = String::from_utf8_lossy(body);
    if serde_json::from_str::<&RawValue>(&text).is_err() {
        let shown: String = text.trim().chars().take(MAX_ERROR_CHARS).collect();
        return Reply { error: Some(format!("not JSON: {shown}")), ..Reply::default() };
    }
    let mut reply = match api {
        Api::Messages => messages::read_body(&text),
        Api::Chat => chat::read_body(&text),
        Api::Completions => completions::read_body(&text),
        Api::Responses => responses::read_body(&text),
    };
    reply.complete = true;
    if reply.error.is_none() {
        reply.error = error_of_body(&text);
    }
    reply
}

/// The error that a body or an event tells, in any of the forms that servers use: `{"error": …}`,
/// `{"object":"error","message":…}`, `{"detail": …}`, `{"message": …}`.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    detail: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    object: WireText<'a>,
}

fn error_of_body(text: &str) -> Option<String> {
    let body: ErrorBody<'_> = serde_json::from_str(text).ok()?;
    if body.object.as_str() == "error" {
        return Some(error_text(text));
    }
    body.error.or(body.detail).or(body.message).map(|error| error_text(error.get()))
}

/// `type: message` of an error object, a string as it is, else the JSON.
pub(super) fn error_text(json: &str) -> String {
    #[derive(Deserialize)]
    struct ErrorObject {
        #[serde(rename = "type")]
        kind: Option<String>,
        message: String,
    }
    let text = match serde_json::from_str::<ErrorObject>(json) {
        Ok(ErrorObject { kind: Some(kind), message }) if !kind.is_empty() => {
            format!("{kind}: {message}")
        }
        Ok(ErrorObject { message, .. }) => message,
        Err(_) => serde_json::from_str::<String>(json).unwrap_or_else(|_| json.to_owned()),
    };
    text.chars().take(MAX_ERROR_CHARS).collect()
}

/// Adds generated text to the last block where that is text, else to a new one.
pub(super) fn push_text(blocks: &mut Vec<ReplyBlock>, more: &str) {
    match blocks.last_mut() {
        Some(ReplyBlock::Text { text }) => text.push_str(more),
        _ => blocks.push(ReplyBlock::Text { text: more.to_owned() }),
    }
}

/// Adds reasoning to the last block where that is reasoning, else to a new one.
pub(super) fn push_reasoning(blocks: &mut Vec<ReplyBlock>, more: &str) {
    match blocks.last_mut() {
        Some(ReplyBlock::Reasoning { text, .. }) => text.push_str(more),
        _ => blocks.push(ReplyBlock::Reasoning { text: more.to_owned(), signature: None }),
    }
}

#[cfg(test)]
mod responses_tests;
#[cfg(test)]
mod tests;
