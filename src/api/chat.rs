//! Responses of the Chat Completions API: chunks of a stream, and whole bodies.
//!
//! Of several choices the first (`index` 0) is read. Reasoning comes as `reasoning_content` or, from
//! newer servers, as `reasoning`; some send both with the same text, so one is read.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::stream::{Fed, error_text, push_reasoning, push_text};
use super::wire_text::WireText;
use super::{Reply, ReplyBlock, Usage};

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
    delta: Option<Delta<'a>>,
    /// What a whole completion has in place of `delta`.
    #[serde(borrow)]
    message: Option<Delta<'a>>,
    #[serde(borrow)]
    finish_reason: WireText<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(borrow)]
    content: WireText<'a>,
    #[serde(borrow)]
    reasoning_content: WireText<'a>,
    #[serde(borrow)]
    reasoning: WireText<'a>,
    #[serde(borrow)]
    refusal: WireText<'a>,
    #[serde(borrow)]
    tool_calls: Option<Vec<CallDelta<'a>>>,
    #[serde(borrow)]
    function_call: Option<FunctionDelta<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CallDelta<'a> {
    index: Option<u64>,
    #[serde(borrow)]
    id: WireText<'a>,
    #[serde(borrow)]
    function: Option<FunctionDelta<'a>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FunctionDelta<'a> {
    #[serde(borrow)]
    name: WireText<'a>,
    #[serde(borrow)]
    arguments: WireText<'a>,
}

/// Counts as Chat Completions and Completions tell them.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct OpenAiUsage {
    prompt_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    prompt_tokens_details: Option<PromptDetails>,
    completion_tokens_details: Option<CompletionDetails>,
}

/// What llama.cpp tells beside the usage.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Timings {
    cache_n: Option<u64>,
}

impl Timings {
    /// Fills in what the usage does not tell.
    pub(super) fn complete(self, usage: &mut Usage) {
        usage.cached_tokens = usage.cached_tokens.or(self.cache_n);
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PromptDetails {
    cached_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct CompletionDetails {
    reasoning_tokens: Option<u64>,
}

impl OpenAiUsage {
    pub(super) fn tells_anything(&self) -> bool {
        self.prompt_tokens.is_some() || self.completion_tokens.is_some()
    }

    pub(super) fn neutral(&self) -> Usage {
        Usage {
            prompt_tokens: self.prompt_tokens,
            completion_tokens: self.completion_tokens,
            cached_tokens: self.prompt_tokens_details.as_ref().and_then(|d| d.cached_tokens),
            cache_write_tokens: None,
            reasoning_tokens: self
                .completion_tokens_details
                .as_ref()
                .and_then(|details| details.reasoning_tokens),
        }
    }
}

/// Reads the chunks of one stream.
#[derive(Debug, Default)]
pub(super) struct ChatStream {
    calls: Vec<StartedCall>,
}

/// Where a tool call of the wire lies in the reply.
#[derive(Debug)]
struct StartedCall {
    /// None for the one call of the older `function_call`, and for servers that send no index.
    index: Option<u64>,
    position: usize,
}

impl ChatStream {
    pub(super) fn take_event(&mut self, data: &str, reply: &mut Reply, fed: &mut Fed) {
        let Ok(chunk) = serde_json::from_str::<Completion<'_>>(data) else { return };
        if let Some(error) = chunk.error {
            reply.error = Some(error_text(error.get()));
        } else if chunk.object.as_str() == "error" {
            reply.error = Some(error_text(data));
        }
        let choices = chunk.choices.unwrap_or_default();
        if let Some(usage) = chunk.usage.as_ref().filter(|usage| usage.tells_anything()) {
            reply.usage = usage.neutral();
            // The last chunk of a stream has no choices: its count is no chunk's running count.
            if !choices.is_empty() && usage.completion_tokens.is_some() {
                fed.completion_tokens_so_far = usage.completion_tokens;
            }
        }
        if let Some(timings) = chunk.timings {
            timings.complete(&mut reply.usage);
        }
        if reply.model.is_none() {
            reply.model = chunk.model.into_filled();
        }
        let has_output = self.take_choices(choices, reply);
        fed.output_chunks += u32::from(has_output);
    }

    fn take_choices(&mut self, choices: Vec<Choice<'_>>, reply: &mut Reply) -> bool {
        let mut has_output = false;
        for choice in choices.into_iter().filter(|choice| choice.index.unwrap_or(0) == 0) {
            if let Some(delta) = choice.delta.or(choice.message) {
                has_output |= self.take_delta(delta, &mut reply.blocks);
            }
            if let Some(reason) = choice.finish_reason.into_filled() {
                reply.stop_reason = Some(reason);
            }
        }
        has_output
    }

    /// Says whether the delta carries output.
    fn take_delta(&mut self, delta: Delta<'_>, blocks: &mut Vec<ReplyBlock>) -> bool {
        let mut has_output = false;
        let reasoning = delta.reasoning_content.filled().or(delta.reasoning.filled());
        if let Some(more) = reasoning {
            push_reasoning(blocks, more);
            has_output = true;
        }
        for more in [&delta.content, &delta.refusal] {
            if let Some(more) = more.filled() {
                push_text(blocks, more);
                has_output = true;
            }
        }
        for call in delta.tool_calls.unwrap_or_default() {
            has_output |= self.take_call(&call, blocks);
        }
        if delta.function_call.is_some() {
            let call = CallDelta { function: delta.function_call, ..CallDelta::default() };
            has_output |= self.take_call(&call, blocks);
        }
        has_output
    }

    fn take_call(&mut self, call: &CallDelta<'_>, blocks: &mut Vec<ReplyBlock>) -> bool {
        let new_id = call.id.filled();
        let function = call.function.as_ref();
        let new_name = function.and_then(|function| function.name.filled());
        let more = function.and_then(|function| function.arguments.filled());
        let known = self.calls.iter().rfind(|started| started.index == call.index);
        let known = known.and_then(|started| match blocks.get_mut(started.position)? {
            ReplyBlock::ToolCall { id, name, arguments } => Some((id, name, arguments)),
            _ => None,
        });
        match known {
            // Some servers give every call the same index: another id is another call.
            Some((id, name, arguments))
                if id.is_empty() || new_id.is_none_or(|new_id| new_id == id) =>
            {
                set_if_empty(id, new_id);
                set_if_empty(name, new_name);
                arguments.push_str(more.unwrap_or_default());
            }
            _ => {
                self.calls.push(StartedCall { index: call.index, position: blocks.len() });
                blocks.push(ReplyBlock::ToolCall {
                    id: new_id.unwrap_or_default().to_owned(),
                    name: new_name.unwrap_or_default().to_owned(),
                    arguments: more.unwrap_or_default().to_owned(),
                });
            }
        }
        new_name.is_some() || more.is_some()
    }
}

fn set_if_empty(field: &mut String, value: Option<&str>) {
    if field.is_empty() {
        value.unwrap_or_default().clone_into(field);
    }
}

/// Reads a whole completion.
pub(super) fn read_body(text: &str) -> Reply {
    let mut reply = Reply::default();
    ChatStream::default().take_event(text, &mut reply, &mut Fed::default());
    reply
}
