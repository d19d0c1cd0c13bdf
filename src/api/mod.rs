//! The APIs that coding agents speak, read into one model: a request into units, a response into a
//! reply.
//!
//! Pure: bytes and values in, values out; no clock, no I/O. Which conversation a request continues is
//! `capture::lineage`'s to say; how bytes move is `http`'s.

mod chat;
mod completions;
mod compose;
pub mod convert;
mod edit;
mod hints;
mod kept;
mod known_units;
mod list;
mod messages;
mod normal_form;
mod parts;
mod prompt_front;
pub mod request;
mod responses;
mod rewrite;
mod scan;
pub mod stream;
mod template;
mod titles;
mod unit_reader;
pub mod usage;
mod wire_text;

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

pub use compose::composed_template;
pub use convert::{
    ChatAsMessages, MessageEvents, convert_request, error_body, message_of_reply,
    portable_responses, tokenize_request, tokens_counted, whole_chat_reply,
};
pub use edit::edit_top_level;
pub use kept::whole_responses_body;
pub use list::{list_elements, replace_elements};
pub use parts::{BodyPart, body_parts};
pub use prompt_front::PromptFront;
pub use request::{
    RequestReader, item_units, parse_request, put_before_messages, raw_request, unit_of,
};
pub use rewrite::{Unbilled, capped, reroled_system, with_model, without_billing_line};
pub use stream::{ReplyDecoder, parse_reply};
pub use template::rebuild_body;
pub use titles::{TitleCall, title_call};
pub use unit_reader::ReadWork;
pub use usage::Usage;

/// An API that agents speak and that is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Api {
    /// Anthropic Messages, `/v1/messages`.
    Messages,
    /// `OpenAI` Chat Completions, `/v1/chat/completions`.
    Chat,
    /// `OpenAI` Completions, `/v1/completions`.
    Completions,
    /// `OpenAI` Responses, `/v1/responses`.
    Responses,
}

impl Api {
    /// All of them, in the order in which people are told of them.
    pub const ALL: [Self; 4] = [Self::Messages, Self::Chat, Self::Completions, Self::Responses];

    /// The name in tables and settings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Messages => "messages",
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Responses => "responses",
        }
    }

    /// The path below the engine's base URL.
    pub fn path(self) -> &'static str {
        match self {
            Self::Messages => "/v1/messages",
            Self::Chat => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Responses => "/v1/responses",
        }
    }

    /// The API that a name in a table stands for.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.as_str() == name)
    }

    /// What stands between the units of a prompt in its text: a line break, or nothing between the pieces
    /// of a raw prompt.
    pub fn unit_separator(self) -> &'static str {
        match self {
            Self::Messages | Self::Chat | Self::Responses => "\n",
            Self::Completions => "",
        }
    }

    /// The API that a POST to `path` (no query, session prefix removed) speaks; none for side calls
    /// such as `count_tokens` and for paths that are only passed on. A base URL may put anything
    /// before `/v1`, and agents set to a base without `/v1` leave it out.
    pub fn from_path(path: &str) -> Option<Self> {
        let path = path.trim_end_matches('/');
        if path.ends_with("/messages") {
            Some(Self::Messages)
        } else if path.ends_with("/chat/completions") {
            Some(Self::Chat)
        } else if path.ends_with("/completions") {
            Some(Self::Completions)
        } else if path.ends_with("/responses") {
            Some(Self::Responses)
        } else {
            None
        }
    }
}

/// What a unit is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UnitKind {
    /// One system block, or the system string.
    System,
    /// One tool definition.
    Tool,
    /// One message.
    Message,
    /// A piece of a prompt that is no conversation: the pieces, one after another, are the JSON value.
    Prompt,
    /// A whole body that could not be parsed.
    Raw,
}

impl UnitKind {
    /// The name in `messages.parquet`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Tool => "tool",
            Self::Message => "message",
            Self::Prompt => "prompt",
            Self::Raw => "raw",
        }
    }
}

/// 128 bits of SHA-256: the identity of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ContentHash(pub u128);

impl ContentHash {
    /// The hash of a text.
    pub fn of(bytes: &[u8]) -> Self {
        use sha2::{Digest, Sha256};
        let digest = Sha256::digest(bytes);
        let mut first = [0_u8; 16];
        first.copy_from_slice(&digest[..16]);
        Self(u128::from_be_bytes(first))
    }

    /// 32 lower-case hex digits.
    pub fn hex(self) -> String {
        crate::hex::hex(&self.0.to_be_bytes())
    }
}

/// One block of a unit in normal form, for comparing prompts across turns: `cache_control` dropped, a
/// content string read as one text block, the role included. Per-request nonces (Claude Code's billing
/// line) give no block at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Block {
    /// Identity in normal form.
    pub hash: ContentHash,
    /// A reminder whose position may change from turn to turn without breaking a run.
    pub ephemeral: bool,
}

/// One part of a prompt: a system block, a tool definition, a message, or a piece of a raw prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit<'a> {
    /// What it is.
    pub kind: UnitKind,
    /// A message's role, `tool` and `system` included; empty for the other kinds.
    pub role: Cow<'static, str>,
    /// The JSON as sent, less `cache_control` members; where nothing was cut, the body's own bytes.
    pub text: Cow<'a, str>,
    /// Identity of `text`.
    pub hash: ContentHash,
    /// Normal form, in order.
    pub blocks: Arc<[Block]>,
}

impl Unit<'_> {
    /// The unit by itself, for who keeps it longer than the body.
    pub fn into_owned(self) -> Unit<'static> {
        Unit { text: Cow::Owned(self.text.into_owned()), ..self }
    }
}

/// A tool result that a request brings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The call it answers.
    pub call_id: String,
    /// Length of the result's text.
    pub result_bytes: u64,
    /// The agent's mark, where the API has one.
    pub is_error: Option<bool>,
}

/// A request read into units.
#[derive(Debug, Clone)]
pub struct ParsedRequest<'a> {
    /// The API.
    pub api: Api,
    /// The model asked for.
    pub model: Option<String>,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// Top-level fields that are no part of the prompt, as a JSON object.
    pub params: String,
    /// Prompt order: system, tools, messages; of a raw prompt its pieces.
    pub units: Vec<Unit<'a>>,
    /// The body with its units cut out.
    pub template: String,
    /// Messages, system roles included; of Responses the input items.
    pub n_messages: u32,
    /// Tools offered.
    pub n_tools: u32,
    /// Results in the messages after the last assistant message; of Responses all, for there the order
    /// of calls and results is the agent's.
    pub tool_results: Vec<ToolResult>,
    /// What the server keeps of the conversation and the body does not say again.
    pub kept: Kept,
    /// The agent's own session id, where the body carries one (`metadata.user_id`, …).
    pub session_hint: Option<String>,
    /// The body says that a subagent sends it (Claude Code's billing line).
    pub subagent_hint: bool,
    /// The request asks for something beside the work: a title, a summary, a quota check.
    pub utility_hint: bool,
}

impl ParsedRequest<'_> {
    /// Identity of the whole body: equal where every byte is. The texts, which have hashes, are not hashed
    /// again.
    pub fn identity(&self) -> ContentHash {
        let mut bytes = Vec::with_capacity(self.template.len() + 16 * self.units.len());
        bytes.extend_from_slice(self.template.as_bytes());
        for unit in &self.units {
            bytes.extend_from_slice(&unit.hash.0.to_be_bytes());
        }
        ContentHash::of(&bytes)
    }
}

/// What of a prompt lies with the server.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Kept {
    /// Nothing: the body tells the whole prompt.
    #[default]
    Nothing,
    /// All up to the end of this response (`previous_response_id`).
    Response(String),
    /// Something that no response names (`conversation`, an `item_reference`, a stored `prompt`).
    Unnamed,
}

/// One block of a reply.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReplyBlock {
    /// Visible text.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning.
    Reasoning {
        /// The text.
        text: String,
        /// The signature that some servers ask back.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<String>,
    },
    /// A tool call.
    ToolCall {
        /// The call's id on the wire.
        id: String,
        /// The tool.
        name: String,
        /// Arguments as JSON text, exactly as generated.
        arguments: String,
    },
}

/// A response read whole.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reply {
    /// What was generated, in order.
    pub blocks: Vec<ReplyBlock>,
    /// Token counts as the response tells them.
    pub usage: Usage,
    /// Why generation stopped, as the API says it.
    pub stop_reason: Option<String>,
    /// The model that answered.
    pub model: Option<String>,
    /// The response's name by which a later request may go on from it (Responses).
    pub response_id: Option<String>,
    /// The output items as sent (Responses), JSON each.
    pub items: Vec<String>,
    /// An error object, in a body or as an event inside the stream.
    pub error: Option<String>,
    /// The stream said that it was done (`message_stop`, `[DONE]`), or the body was whole.
    pub complete: bool,
}

impl Reply {
    /// Reasoning, text and tool calls (a JSON line each) as one text, in order.
    pub fn text(&self) -> String {
        let parts: Vec<String> = self
            .blocks
            .iter()
            .map(|block| match block {
                ReplyBlock::Text { text } | ReplyBlock::Reasoning { text, .. } => text.clone(),
                ReplyBlock::ToolCall { name, arguments, .. } => {
                    let arguments = serde_json::from_str(arguments)
                        .unwrap_or_else(|_| serde_json::Value::String(arguments.clone()));
                    serde_json::json!({"name": name, "arguments": arguments}).to_string()
                }
            })
            .collect();
        parts.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_their_api() {
        for (path, api) in [
            ("/v1/messages", Some(Api::Messages)),
            ("/messages/", Some(Api::Messages)),
            ("/v1/messages/count_tokens", None),
            ("/base/v1/chat/completions", Some(Api::Chat)),
            ("/v1/completions", Some(Api::Completions)),
            ("/completions", Some(Api::Completions)),
            ("/v1/responses", Some(Api::Responses)),
            ("/v1/responses/resp_1/cancel", None),
            ("/v1/responses/compact", None),
            ("/v1/embeddings", None),
            ("/", None),
        ] {
            assert_eq!(Api::from_path(path), api, "{path}");
        }
        for api in Api::ALL {
            assert_eq!(Api::from_path(api.path()), Some(api));
            assert_eq!(Api::from_name(api.as_str()), Some(api));
        }
        assert_eq!(Api::from_name("Chat"), None);
    }
}
