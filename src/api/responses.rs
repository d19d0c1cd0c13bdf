//! Responses of the Responses API: events of a stream, and whole bodies.
//!
//! An output item comes in pieces between `output_item.added` and `output_item.done`; servers differ in
//! which pieces they send, so what no delta brought is taken from the item when it is done, and what no
//! event brought from the response when that is. The items' own JSON is kept: a later request may name
//! this response instead of sending them back.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::stream::{Fed, error_text};
use super::wire_text::WireText;
use super::{Reply, ReplyBlock, Usage};

/// An event's data, as far as it is read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EventData<'a> {
    #[serde(rename = "type", borrow)]
    kind: WireText<'a>,
    output_index: Option<u64>,
    #[serde(borrow)]
    delta: WireText<'a>,
    #[serde(borrow)]
    item: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
}

/// An output item.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Item<'a> {
    #[serde(rename = "type", borrow)]
    kind: WireText<'a>,
    #[serde(borrow)]
    content: Option<Vec<Part<'a>>>,
    #[serde(borrow)]
    summary: Option<Vec<Part<'a>>>,
    #[serde(borrow)]
    encrypted_content: WireText<'a>,
    #[serde(borrow)]
    id: WireText<'a>,
    #[serde(borrow)]
    call_id: WireText<'a>,
    #[serde(borrow)]
    name: WireText<'a>,
    /// Of a function.
    #[serde(borrow)]
    arguments: WireText<'a>,
    /// Of a custom tool.
    #[serde(borrow)]
    input: WireText<'a>,
    /// Of a tool that the API itself defines (a local shell).
    #[serde(borrow)]
    action: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part<'a> {
    #[serde(borrow)]
    text: WireText<'a>,
    #[serde(borrow)]
    refusal: WireText<'a>,
}

/// A response, whole or so far.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ResponseBody<'a> {
    #[serde(borrow)]
    id: WireText<'a>,
    #[serde(borrow)]
    model: WireText<'a>,
    #[serde(borrow)]
    status: WireText<'a>,
    incomplete_details: Option<IncompleteDetails>,
    #[serde(borrow)]
    output: Option<Vec<&'a RawValue>>,
    usage: Option<ResponsesUsage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct IncompleteDetails {
    reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_field_names)] // the wire's names
struct ResponsesUsage {
    input_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    output_tokens: Option<u64>,
    output_tokens_details: Option<OutputDetails>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct InputDetails {
    cached_tokens: Option<u64>,
    cache_write_tokens: Option<u64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct OutputDetails {
    reasoning_tokens: Option<u64>,
}

impl ResponsesUsage {
    fn neutral(&self) -> Usage {
        let input = self.input_tokens_details.unwrap_or_default();
        Usage {
            prompt_tokens: self.input_tokens,
            completion_tokens: self.output_tokens,
            cached_tokens: input.cached_tokens,
            cache_write_tokens: input.cache_write_tokens,
            reasoning_tokens: self
                .output_tokens_details
                .and_then(|details| details.reasoning_tokens),
        }
    }
}

/// Reads the events of one stream.
#[derive(Debug, Default)]
pub(super) struct ResponsesStream {
    started: Vec<StartedItem>,
}

/// Where an output item lies in the reply.
#[derive(Debug)]
struct StartedItem {
    output_index: u64,
    position: usize,
    has_deltas: bool,
}

impl ResponsesStream {
    pub(super) fn take_event(&mut self, data: &str, reply: &mut Reply, fed: &mut Fed) {
        let Ok(event) = serde_json::from_str::<EventData<'_>>(data) else { return };
        let index = event.output_index.unwrap_or(0);
        let has_output = match event.kind.as_str() {
            "response.output_item.added" => self.start_item(index, event.item, reply),
            "response.output_item.done" => self.end_item(index, event.item, reply),
            "response.output_text.delta" | "response.refusal.delta" => {
                self.append(index, Growing::Text, &event.delta, reply)
            }
            "response.reasoning_text.delta" | "response.reasoning_summary_text.delta" => {
                self.append(index, Growing::Reasoning, &event.delta, reply)
            }
            "response.function_call_arguments.delta" | "response.custom_tool_call_input.delta" => {
                self.append(index, Growing::Arguments, &event.delta, reply)
            }
            "response.created" | "response.in_progress" => {
                take_head(event.response, reply);
                false
            }
            "response.completed" | "response.incomplete" | "response.failed" => {
                fed.done = true;
                take_whole(event.response.map_or("{}", RawValue::get), reply)
            }
            "error" => {
                reply.error = Some(error_event(data));
                false
            }
            _ => false,
        };
        fed.output_chunks += u32::from(has_output);
    }

    /// A call is output as soon as it has a name; other items are, once they say something.
    fn start_item(&mut self, index: u64, item: Option<&RawValue>, reply: &mut Reply) -> bool {
        let Some((block, _)) = item.and_then(read_item) else { return false };
        let has_output = matches!(&block, ReplyBlock::ToolCall { name, .. } if !name.is_empty());
        self.push(index, block, reply);
        has_output
    }

    fn push(&mut self, output_index: u64, block: ReplyBlock, reply: &mut Reply) {
        let position = reply.blocks.len();
        self.started.push(StartedItem { output_index, position, has_deltas: false });
        reply.blocks.push(block);
    }

    fn append(
        &mut self,
        index: u64,
        growing: Growing,
        more: &WireText<'_>,
        reply: &mut Reply,
    ) -> bool {
        let Some(more) = more.filled() else { return false };
        let fits = |blocks: &[ReplyBlock], started: &StartedItem| {
            started.output_index == index
                && blocks.get(started.position).is_some_and(|block| growing.is_of(block))
        };
        if !self.started.iter().any(|started| fits(&reply.blocks, started)) {
            self.push(index, growing.empty(), reply);
        }
        let known = self.started.iter_mut().rfind(|started| fits(&reply.blocks, started));
        let Some(started) = known else { return false };
        let is_first = !std::mem::replace(&mut started.has_deltas, true);
        match &mut reply.blocks[started.position] {
            ReplyBlock::Text { text } | ReplyBlock::Reasoning { text, .. } => text.push_str(more),
            ReplyBlock::ToolCall { arguments, .. } => {
                // What the item started with is what deltas will bring again.
                if is_first {
                    arguments.clear();
                }
                arguments.push_str(more);
            }
        }
        true
    }

    /// Completes an item by what no delta brought; says whether that was output.
    fn end_item(&mut self, index: u64, item: Option<&RawValue>, reply: &mut Reply) -> bool {
        let Some(item) = item else { return false };
        reply.items.push(item.get().to_owned());
        let Some((whole, is_filled)) = read_item(item) else { return false };
        let known = self.started.iter().rfind(|started| {
            let block = reply.blocks.get(started.position);
            started.output_index == index
                && block.is_some_and(|block| {
                    std::mem::discriminant(block) == std::mem::discriminant(&whole)
                })
        });
        let Some(started) = known else {
            self.push(index, whole, reply);
            return is_filled;
        };
        let (has_deltas, block) = (started.has_deltas, &mut reply.blocks[started.position]);
        if !has_deltas {
            let had_said = says_anything(block);
            *block = whole;
            return is_filled && !had_said;
        }
        match (block, whole) {
            (
                ReplyBlock::Reasoning { signature, .. },
                ReplyBlock::Reasoning { signature: told, .. },
            ) => {
                *signature = signature.take().or(told);
            }
            (
                ReplyBlock::ToolCall { id, name, .. },
                ReplyBlock::ToolCall { id: told_id, name: told_name, .. },
            ) => {
                if id.is_empty() {
                    *id = told_id;
                }
                if name.is_empty() {
                    *name = told_name;
                }
            }
            _ => {}
        }
        false
    }
}

/// What a delta adds to.
#[derive(Debug, Clone, Copy)]
enum Growing {
    Text,
    Reasoning,
    Arguments,
}

impl Growing {
    fn is_of(self, block: &ReplyBlock) -> bool {
        matches!(
            (self, block),
            (Self::Text, ReplyBlock::Text { .. })
                | (Self::Reasoning, ReplyBlock::Reasoning { .. })
                | (Self::Arguments, ReplyBlock::ToolCall { .. })
        )
    }

    fn empty(self) -> ReplyBlock {
        match self {
            Self::Text => ReplyBlock::Text { text: String::new() },
            Self::Reasoning => ReplyBlock::Reasoning { text: String::new(), signature: None },
            Self::Arguments => ReplyBlock::ToolCall {
                id: String::new(),
                name: String::new(),
                arguments: String::new(),
            },
        }
    }
}

fn says_anything(block: &ReplyBlock) -> bool {
    match block {
        ReplyBlock::Text { text } => !text.is_empty(),
        ReplyBlock::Reasoning { text, signature } => !text.is_empty() || signature.is_some(),
        ReplyBlock::ToolCall { name, .. } => !name.is_empty(),
    }
}

/// An item as a reply's block, and whether it says anything; none for what a model does not generate
/// (results of tools that run on the server).
fn read_item(item: &RawValue) -> Option<(ReplyBlock, bool)> {
    let item: Item<'_> = serde_json::from_str(item.get()).ok()?;
    let texts = |parts: Option<Vec<Part<'_>>>, separator: &str| {
        let parts = parts.unwrap_or_default().into_iter();
        let texts = parts.map(|part| part.text.into_owned() + part.refusal.as_str());
        texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join(separator)
    };
    let block = match item.kind.as_str() {
        "message" | "" => ReplyBlock::Text { text: texts(item.content, "") },
        "reasoning" => {
            let (summary, content) = (texts(item.summary, "\n"), texts(item.content, "\n"));
            let text = if content.is_empty() { summary } else { content };
            ReplyBlock::Reasoning { text, signature: item.encrypted_content.into_filled() }
        }
        kind if kind.ends_with("_call") => {
            let arguments = item.arguments.into_filled().or(item.input.into_filled());
            let action = || item.action.map(|action| action.get().to_owned());
            ReplyBlock::ToolCall {
                id: item.call_id.into_filled().unwrap_or_else(|| item.id.into_owned()),
                name: item
                    .name
                    .into_filled()
                    .unwrap_or_else(|| kind.trim_end_matches("_call").to_owned()),
                arguments: arguments.or_else(action).unwrap_or_default(),
            }
        }
        _ => return None,
    };
    let is_filled = says_anything(&block);
    Some((block, is_filled))
}

/// What the first events tell of the response.
fn take_head(response: Option<&RawValue>, reply: &mut Reply) {
    let head = response.map_or("{}", RawValue::get);
    let Ok(head) = serde_json::from_str::<ResponseBody<'_>>(head) else { return };
    reply.model = head.model.into_filled().or(reply.model.take());
    reply.response_id = head.id.into_filled().or(reply.response_id.take());
}

/// What the finished response tells; says whether it brought output that no event before it had.
fn take_whole(response: &str, reply: &mut Reply) -> bool {
    let Ok(body) = serde_json::from_str::<ResponseBody<'_>>(response) else { return false };
    reply.model = body.model.into_filled().or(reply.model.take());
    reply.response_id = body.id.into_filled().or(reply.response_id.take());
    if let Some(usage) = body.usage {
        reply.usage = usage.neutral();
    }
    let reason = body.incomplete_details.and_then(|details| details.reason);
    reply.stop_reason = reason.or(body.status.filled().map(str::to_owned));
    if let Some(error) = body.error {
        reply.error = Some(error_text(error.get()));
    } else if body.status.as_str() == "failed" {
        reply.error = Some("the response failed".to_owned());
    }
    reply.complete = true;
    let output = body.output.unwrap_or_default();
    if !output.is_empty() {
        reply.items = output.iter().map(|item| item.get().to_owned()).collect();
    }
    let is_new = reply.blocks.is_empty();
    if is_new {
        let blocks = output.into_iter().filter_map(read_item);
        reply.blocks = blocks.filter(|(_, is_filled)| *is_filled).map(|(block, _)| block).collect();
    }
    is_new && !reply.blocks.is_empty()
}

/// `code: message` of an error event, which names no type of error but itself.
fn error_event(data: &str) -> String {
    #[derive(Deserialize)]
    struct ErrorEvent<'a> {
        #[serde(borrow, default)]
        error: Option<&'a RawValue>,
        #[serde(borrow, default)]
        code: WireText<'a>,
        #[serde(borrow, default)]
        message: WireText<'a>,
    }
    match serde_json::from_str::<ErrorEvent<'_>>(data) {
        Ok(ErrorEvent { error: Some(error), .. }) => error_text(error.get()),
        Ok(ErrorEvent { code, message, .. }) if message.filled().is_some() => match code.filled() {
            Some(code) => format!("{code}: {}", message.as_str()),
            None => message.into_owned(),
        },
        _ => error_text(data),
    }
}

/// Reads a whole response.
pub(super) fn read_body(text: &str) -> Reply {
    let mut reply = Reply::default();
    take_whole(text, &mut reply);
    reply
}
