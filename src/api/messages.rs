//! Responses of the Messages API: events of a stream, and whole bodies.
//!
//! In a stream, the counts of `message_start` are the prompt's; its `output_tokens` is a placeholder
//! and is not read. `message_delta` brings the final counts, and some servers tell only there how
//! much of the prompt came from cache.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::stream::{Fed, error_text};
use super::wire_text::WireText;
use super::{Reply, ReplyBlock, Usage};

/// An event's data, or a whole message, as far as it is read. Absent parts stay empty.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct EventData<'a> {
    #[serde(rename = "type", borrow)]
    kind: WireText<'a>,
    index: Option<u64>,
    #[serde(borrow)]
    delta: Option<Delta<'a>>,
    #[serde(borrow)]
    content_block: Option<ContentBlock<'a>>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    usage: Option<MessagesUsage>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Delta<'a> {
    #[serde(rename = "type", borrow)]
    kind: WireText<'a>,
    #[serde(borrow)]
    text: WireText<'a>,
    #[serde(borrow)]
    thinking: WireText<'a>,
    #[serde(borrow)]
    signature: WireText<'a>,
    #[serde(borrow)]
    partial_json: WireText<'a>,
    #[serde(borrow)]
    stop_reason: WireText<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ContentBlock<'a> {
    #[serde(rename = "type", borrow)]
    kind: WireText<'a>,
    #[serde(borrow)]
    text: WireText<'a>,
    #[serde(borrow)]
    thinking: WireText<'a>,
    #[serde(borrow)]
    signature: WireText<'a>,
    #[serde(borrow)]
    data: WireText<'a>,
    #[serde(borrow)]
    id: WireText<'a>,
    #[serde(borrow)]
    name: WireText<'a>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MessageBody<'a> {
    #[serde(borrow)]
    model: WireText<'a>,
    #[serde(borrow)]
    content: Option<Vec<ContentBlock<'a>>>,
    #[serde(borrow)]
    stop_reason: WireText<'a>,
    usage: Option<MessagesUsage>,
}

/// Counts as the wire tells them.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
#[allow(clippy::struct_field_names)] // the wire's names
struct MessagesUsage {
    input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    output_tokens: Option<u64>,
}

impl MessagesUsage {
    /// The later copy, completed by what only the earlier one tells.
    fn completed_by(self, earlier: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.or(earlier.input_tokens),
            cache_creation_input_tokens: self
                .cache_creation_input_tokens
                .or(earlier.cache_creation_input_tokens),
            cache_read_input_tokens: self
                .cache_read_input_tokens
                .or(earlier.cache_read_input_tokens),
            output_tokens: self.output_tokens.or(earlier.output_tokens),
        }
    }

    /// The wire's `input_tokens` leaves out what the cache figures count.
    fn neutral(self) -> Usage {
        let cached = self.cache_read_input_tokens;
        let written = self.cache_creation_input_tokens;
        let in_cache = cached.unwrap_or(0).saturating_add(written.unwrap_or(0));
        Usage {
            // No prompt is empty: a 0 is the placeholder of a `message_start`.
            prompt_tokens: self
                .input_tokens
                .map(|input| input.saturating_add(in_cache))
                .filter(|tokens| *tokens > 0),
            completion_tokens: self.output_tokens,
            cached_tokens: cached,
            cache_write_tokens: written,
            reasoning_tokens: None,
        }
    }
}

/// Reads the events of one stream.
#[derive(Debug, Default)]
pub(super) struct MessagesStream {
    usage: MessagesUsage,
    started: Vec<StartedBlock>,
}

/// Where a block of the wire lies in the reply.
#[derive(Debug)]
struct StartedBlock {
    index: u64,
    position: usize,
    /// The arguments are still those of the start event, which deltas replace.
    arguments_from_start: bool,
}

impl MessagesStream {
    pub(super) fn take_event(&mut self, data: &str, reply: &mut Reply, fed: &mut Fed) {
        let Ok(event) = serde_json::from_str::<EventData<'_>>(data) else { return };
        let mut has_output = false;
        match (event.kind.as_str(), event.delta, event.content_block) {
            ("content_block_delta", Some(delta), _) => {
                has_output = self.take_delta(event.index.unwrap_or(0), &delta, reply);
            }
            ("content_block_start", _, Some(block)) => {
                has_output = self.start_block(event.index.unwrap_or(0), block, reply);
            }
            ("message_start", _, _) => {
                let message = event.message.map_or("{}", RawValue::get);
                if let Ok(message) = serde_json::from_str::<MessageBody<'_>>(message) {
                    reply.model = message.model.into_filled();
                    self.usage = message.usage.unwrap_or_default();
                    self.usage.output_tokens = None;
                    reply.usage = self.usage.neutral();
                }
            }
            ("message_delta", delta, _) => {
                if let Some(usage) = event.usage {
                    self.usage = usage.completed_by(self.usage);
                    reply.usage = self.usage.neutral();
                }
                if let Some(reason) = delta.and_then(|delta| delta.stop_reason.into_filled()) {
                    reply.stop_reason = Some(reason);
                }
            }
            ("message_stop", _, _) => {
                reply.complete = true;
                fed.done = true;
            }
            _ => {}
        }
        if let Some(error) = event.error {
            reply.error = Some(error_text(error.get()));
        }
        fed.output_chunks += u32::from(has_output);
    }

    /// Adds a block to the reply; says whether it carries output already.
    fn start_block(&mut self, index: u64, block: ContentBlock<'_>, reply: &mut Reply) -> bool {
        let Some((block, has_output)) = read_block(block) else { return false };
        self.started.push(StartedBlock {
            index,
            position: reply.blocks.len(),
            arguments_from_start: true,
        });
        reply.blocks.push(block);
        has_output
    }

    fn take_delta(&mut self, index: u64, delta: &Delta<'_>, reply: &mut Reply) -> bool {
        let kind = delta.kind.as_str();
        let more = match kind {
            "text_delta" => &delta.text,
            "thinking_delta" => &delta.thinking,
            "input_json_delta" => &delta.partial_json,
            "signature_delta" => &delta.signature,
            _ => return false,
        };
        let Some(more) = more.filled() else { return false };
        let known = self.started.iter_mut().rfind(|started| started.index == index);
        if let Some(started) = known
            && let Some(block) = reply.blocks.get_mut(started.position)
        {
            let is_first = std::mem::take(&mut started.arguments_from_start);
            if append(block, kind, more, is_first) {
                return kind != "signature_delta";
            }
        }
        // A delta of a block that never started, or of another kind than it started with.
        let mut block = match kind {
            "text_delta" => ReplyBlock::Text { text: String::new() },
            "input_json_delta" => ReplyBlock::ToolCall {
                id: String::new(),
                name: String::new(),
                arguments: String::new(),
            },
            _ => ReplyBlock::Reasoning { text: String::new(), signature: None },
        };
        append(&mut block, kind, more, true);
        let position = reply.blocks.len();
        self.started.push(StartedBlock { index, position, arguments_from_start: false });
        reply.blocks.push(block);
        kind != "signature_delta"
    }
}

/// Adds a delta to a block of its kind; false where the kinds differ.
fn append(block: &mut ReplyBlock, kind: &str, more: &str, is_first: bool) -> bool {
    match (block, kind) {
        (ReplyBlock::Text { text }, "text_delta")
        | (ReplyBlock::Reasoning { text, .. }, "thinking_delta") => text.push_str(more),
        (ReplyBlock::ToolCall { arguments, .. }, "input_json_delta") => {
            if is_first {
                arguments.clear();
            }
            arguments.push_str(more);
        }
        (ReplyBlock::Reasoning { signature, .. }, "signature_delta") => {
            signature.get_or_insert_default().push_str(more);
        }
        _ => return false,
    }
    true
}

/// A content block as a reply's block, and whether it carries output; none for kinds that a model does
/// not generate (results of the server's own tools).
fn read_block(block: ContentBlock<'_>) -> Option<(ReplyBlock, bool)> {
    Some(match block.kind.as_str() {
        "text" => {
            let text = block.text.into_owned();
            let has_output = !text.is_empty();
            (ReplyBlock::Text { text }, has_output)
        }
        "thinking" => {
            let text = block.thinking.into_owned();
            let has_output = !text.is_empty();
            (ReplyBlock::Reasoning { text, signature: block.signature.into_filled() }, has_output)
        }
        "redacted_thinking" => {
            let signature = block.data.into_filled();
            let has_output = signature.is_some();
            (ReplyBlock::Reasoning { text: String::new(), signature }, has_output)
        }
        "tool_use" | "server_tool_use" | "mcp_tool_use" => {
            let arguments = block.input.map_or("{}", RawValue::get).to_owned();
            let (id, name) = (block.id.into_owned(), block.name.into_owned());
            (ReplyBlock::ToolCall { id, name, arguments }, true)
        }
        _ => return None,
    })
}

/// Reads a whole message.
pub(super) fn read_body(text: &str) -> Reply {
    let body: MessageBody<'_> = serde_json::from_str(text).unwrap_or_default();
    let blocks = body.content.unwrap_or_default().into_iter().filter_map(read_block);
    Reply {
        blocks: blocks.map(|(block, _)| block).collect(),
        usage: body.usage.unwrap_or_default().neutral(),
        stop_reason: body.stop_reason.into_filled(),
        model: body.model.into_filled(),
        ..Reply::default()
    }
}
