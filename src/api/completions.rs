//! Responses of the Completions API: chunks of a stream, and whole bodies.
//!
//! Of several choices the first (`index` 0) is read. Its text is all there is: no reasoning, no calls.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::Reply;
use super::chat::{OpenAiUsage, Timings};
use super::stream::{Fed, error_text, push_text};
use super::wire_text::WireText;

/// A chunk, or a whole completion, as far as it is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Completion<'a> {
    #[serde(borrow)]
    model: WireText<'a>,
    #[serde(borrow)]
    choices: Option<Vec<Choice<'a>>>,
    usage: Option<OpenAiUsage>,
    timings: Option<Timings>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    object: WireText<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Choice<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    text: WireText<'a>,
    #[serde(borrow)]
    finish_reason: WireText<'a>,
}

/// Takes one chunk of a stream. Nothing is remembered between chunks.
pub(super) fn take_event(data: &str, reply: &mut Reply, fed: &mut Fed) {
    let Ok(chunk) = serde_json::from_str::<Completion<'_>>(data) else { return };
    if let Some(error) = chunk.error {
        reply.error = Some(error_text(error.get()));
    } else if chunk.object.as_str() == "error" {
        reply.error = Some(error_text(data));
    }
    let choices = chunk.choices.unwrap_or_default();
    if let Some(usage) = chunk.usage.filter(OpenAiUsage::tells_anything) {
        reply.usage = usage.neutral();
        // The last chunk of a stream has no choices: its count is no chunk's running count.
        if !choices.is_empty() && reply.usage.completion_tokens.is_some() {
            fed.completion_tokens_so_far = reply.usage.completion_tokens;
        }
    }
    if let Some(timings) = chunk.timings {
        timings.complete(&mut reply.usage);
    }
    if reply.model.is_none() {
        reply.model = chunk.model.into_filled();
    }
    let mut has_output = false;
    for choice in choices.into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
        if let Some(more) = choice.text.filled() {
            push_text(&mut reply.blocks, more);
            has_output = true;
        }
        if let Some(reason) = choice.finish_reason.into_filled() {
            reply.stop_reason = Some(reason);
        }
    }
    fed.output_chunks += u32::from(has_output);
}

/// Reads a whole completion.
pub(super) fn read_body(text: &str) -> Reply {
    let mut reply = Reply::default();
    take_event(text, &mut reply, &mut Fed::default());
    reply
}
