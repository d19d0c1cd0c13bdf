//! What a reader of somebody's format found out, before it becomes rows: one request, its reply, its calls.
//!
//! Pure data. A field that the format does not tell is `None`; nothing here is guessed.

use super::links::Links;
use crate::api::{Api, ReplyBlock, Unit};
use crate::trace::Row;
use crate::trace::record::{Outcome, TurnKind};

/// One request with its reply.
#[derive(Debug, Clone, Default)]
pub(super) struct TurnDraft {
    /// The session, as the source names it.
    pub(super) session_id: String,
    /// The conversation within the session; unique in the source.
    pub(super) thread_id: String,
    /// The conversation that started this one.
    pub(super) parent_thread_id: Option<String>,
    /// The source's own name for the request; made of thread and turn where it has none.
    pub(super) request_id: Option<String>,
    /// What tells this turn from others over all files: a turn seen before under this key is history that
    /// another file tells again.
    pub(super) identity: Option<String>,
    /// The API in whose form the prompt's units are.
    pub(super) api: Option<Api>,
    /// The coding agent.
    pub(super) agent: Option<String>,
    /// What it is for.
    pub(super) kind: TurnKind,
    /// The model.
    pub(super) model: Option<String>,
    /// Whether it streamed, where known.
    pub(super) stream: bool,
    /// What the prompt is known by.
    pub(super) prompt: PromptDraft,
    /// When things happened.
    pub(super) times: Times,
    /// End of the thread's previous response to this request, where the source tells it itself.
    pub(super) wait_ms: Option<f64>,
    /// The same for the turn after this one.
    pub(super) wait_after_ms: Option<f64>,
    /// Time to the first token, where the source tells it itself.
    pub(super) ttft_ms: Option<f64>,
    /// Time to the end of the response, where the source tells it itself.
    pub(super) e2e_ms: Option<f64>,
    /// The turn that this one goes on from, where that tells its thread.
    pub(super) chain: Option<Chain>,
    /// The requests that it waited for, where the source names them.
    pub(super) links: Option<Links>,
    /// Token counts.
    pub(super) tokens: Tokens,
    /// Members of the request beside its prompt, an object.
    pub(super) params: Option<serde_json::Value>,
    /// What the request added and what came back, where there are texts but no units.
    pub(super) texts: Option<(String, String)>,
    /// The reply, where its text is known.
    pub(super) reply: Vec<ReplyBlock>,
    /// Why generation stopped.
    pub(super) stop_reason: Option<String>,
    /// How it ended.
    pub(super) outcome: Outcome,
    /// What went wrong.
    pub(super) error: Option<String>,
    /// Status of the response.
    pub(super) http_status: Option<u16>,
    /// The reply's tool calls.
    pub(super) calls: Vec<CallDraft>,
    /// The source says that it is made up.
    pub(super) is_synthetic: bool,
}

/// What is known of a prompt.
#[derive(Debug, Clone, Default)]
pub(super) enum PromptDraft {
    /// Its length at most.
    #[default]
    Counts,
    /// Hashes of its blocks of tokens.
    Blocks {
        /// In order.
        hashes: Vec<String>,
        /// Tokens in a block.
        size: u32,
    },
    /// Its units, or those of them that the source has: the first ones of a conversation.
    Units {
        /// Which of the drafts' conversations.
        conversation: usize,
        /// So many of its units.
        n: usize,
    },
}

/// The turns that a file, or files that belong together, came to.
#[derive(Debug, Default)]
pub(super) struct Drafts {
    /// Conversations that only grow: a turn's prompt is the beginning of one.
    pub(super) conversations: Vec<Vec<Unit<'static>>>,
    /// In the order of their requests within each thread.
    pub(super) turns: Vec<TurnDraft>,
    /// Rows of other tables, as the source has them.
    pub(super) rows: Vec<Row>,
}

/// A turn's name, and that of the one before it.
#[derive(Debug, Clone)]
pub(super) struct Chain {
    /// Its own.
    pub(super) own: String,
    /// The turn before it, which may be of another file.
    pub(super) goes_on_from: Option<String>,
}

/// Seconds since the Unix epoch, or since the source's own start.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Times {
    /// When the request was made, as near as the source tells.
    pub(super) request: Option<f64>,
    /// That is only the earliest sign of it, for the source has no input: durations from it are unknown.
    pub(super) request_unseen: bool,
    /// First output chunk.
    pub(super) first_output: Option<f64>,
    /// Last output chunk.
    pub(super) last_output: Option<f64>,
    /// End of the response.
    pub(super) end: Option<f64>,
}

/// Token counts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tokens {
    /// Prompt tokens, the cached ones included.
    pub(super) isl: Option<u64>,
    /// Served from cache.
    pub(super) cached: Option<u64>,
    /// Written to cache.
    pub(super) cache_write: Option<u64>,
    /// Output tokens.
    pub(super) osl: Option<u64>,
    /// Reasoning tokens within these.
    pub(super) reasoning: Option<u64>,
}

/// One tool call.
#[derive(Debug, Clone, Default)]
pub(super) struct CallDraft {
    /// Its id.
    pub(super) id: String,
    /// The tool.
    pub(super) name: String,
    /// Arguments as JSON text; empty where only their length is known.
    pub(super) arguments: String,
    /// Length of the arguments, where it is known.
    pub(super) argument_bytes: Option<u64>,
    /// When the model made the call.
    pub(super) emitted: Option<f64>,
    /// When its result was there.
    pub(super) result: Option<f64>,
    /// From call to result, where the source tells the span and not its ends.
    pub(super) wall_ms: Option<f64>,
    /// The tool's own time.
    pub(super) own_ms: Option<f64>,
    /// Length of the result.
    pub(super) result_bytes: Option<u64>,
    /// The agent's mark.
    pub(super) is_error: Option<bool>,
}

/// The calls among a reply's blocks.
pub(super) fn calls_of(blocks: &[ReplyBlock]) -> Vec<CallDraft> {
    let call = |block: &ReplyBlock| match block {
        ReplyBlock::ToolCall { id, name, arguments } => Some(CallDraft {
            id: id.clone(),
            name: name.clone(),
            arguments: arguments.clone(),
            ..CallDraft::default()
        }),
        ReplyBlock::Text { .. } | ReplyBlock::Reasoning { .. } => None,
    };
    blocks.iter().filter_map(call).collect()
}

/// Arguments as text, which some sources keep as JSON.
pub(super) fn arguments_text(arguments: &serde_json::Value) -> String {
    match arguments {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Null => String::new(),
        other => other.to_string(),
    }
}
