//! Replies on the wire: what the three forms of reply have in common, and the body that streams one.
//!
//! Every token leaves as an event of its own as soon as the engine has it. A body that is dropped, its
//! client gone, closes the stream that the engine writes to, and the engine cancels the request.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame};
use serde_json::Value;
use tokio::sync::mpsc;

use super::plan::Plan;
use super::scheduler::Emitted;

/// What every event of a reply repeats.
#[derive(Debug, Clone)]
pub struct ReplyHead {
    /// The reply's id.
    pub id: String,
    /// The id of its tool call, if it makes one.
    pub call_id: String,
    /// Unix seconds of its creation.
    pub created: i64,
    /// The model's name.
    pub model: String,
    /// Prompt tokens.
    pub prompt_tokens: usize,
}

/// Writes one reply in the form of an API.
pub trait ReplyWriter: Send {
    /// The events that a token brings, the closing ones with the last; may be none.
    fn token(&mut self, plan: &Plan, emitted: Emitted) -> String;
    /// The reply as one object.
    fn whole(&self, plan: &Plan, cached_tokens: usize) -> Value;
}

/// A reply on its way out.
pub struct ReplyStream {
    plan: Plan,
    writer: Box<dyn ReplyWriter>,
    tokens: mpsc::Receiver<Emitted>,
    done: bool,
}

impl ReplyStream {
    /// A reply of which nothing is sent yet.
    pub fn new(plan: Plan, writer: Box<dyn ReplyWriter>, tokens: mpsc::Receiver<Emitted>) -> Self {
        Self { plan, writer, tokens, done: false }
    }

    /// Waits for the last token and gives the reply as one object; none when the engine stopped.
    pub async fn whole(mut self) -> Option<Value> {
        while let Some(emitted) = self.tokens.recv().await {
            if emitted.last {
                return Some(self.writer.whole(&self.plan, emitted.cached_tokens));
            }
        }
        None
    }
}

impl Body for ReplyStream {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let this = &mut *self;
        while !this.done {
            let Some(emitted) = std::task::ready!(this.tokens.poll_recv(cx)) else {
                this.done = true;
                return Poll::Ready(Some(Err(io::Error::other("the engine stopped"))));
            };
            this.done = emitted.last;
            let events = this.writer.token(&this.plan, emitted);
            if !events.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(Bytes::from(events)))));
            }
        }
        Poll::Ready(None)
    }
}

/// A string as JSON, for events that are put together by hand because they are many.
pub fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// The visible text of a whole reply, null where it is only a tool call.
pub fn whole_text(plan: &Plan) -> Value {
    if plan.text.is_empty() && plan.call.is_some() {
        Value::Null
    } else {
        Value::from(plan.text.as_str())
    }
}

/// Prompt tokens that this reply wrote to the cache: the full blocks that it did not find there.
pub fn created_cache_tokens(prompt_tokens: usize, cached_tokens: usize) -> usize {
    let full = prompt_tokens - prompt_tokens % super::kv_cache::BLOCK_TOKENS;
    full.saturating_sub(cached_tokens)
}
