//! What happens in a session, in counts and times, before a word of text exists.
//!
//! A plan of a session whose prompts hold millions of tokens is a few kilobytes, so the statistics of
//! thousands of sessions can be checked at full scale. `planner` draws plans; `session` turns them into
//! rows with text.

use crate::api::Api;

/// The form in which a session speaks: those of the APIs whose every request tells a whole conversation
/// and which synthetic agents speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// Anthropic Messages.
    Messages,
    /// `OpenAI` Chat Completions.
    Chat,
}

impl Form {
    /// The API.
    pub fn api(self) -> Api {
        match self {
            Self::Messages => Api::Messages,
            Self::Chat => Api::Chat,
        }
    }
}

/// One session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPlan {
    /// Index in the run, from 0.
    pub index: u32,
    /// The form in which it speaks.
    pub form: Form,
    /// Requests of the user.
    pub user_requests: u32,
    /// Its conversations; the first one is the main thread.
    pub threads: Vec<ThreadPlan>,
}

/// Why a conversation exists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ThreadRole {
    /// The session's first conversation.
    Main,
    /// What goes on after a compaction.
    Continued,
    /// Started by a tool call of another conversation.
    Subagent {
        /// Index of that conversation.
        parent: usize,
    },
}

/// One growing conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct ThreadPlan {
    /// Why it exists.
    pub role: ThreadRole,
    /// Its requests in order.
    pub turns: Vec<TurnPlan>,
}

/// What a request brings beside the reply before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// A user's request, in tokens.
    User {
        /// Its tokens.
        tokens: u32,
    },
    /// Tool results.
    Results,
    /// Tool results or a user's request, and the request for a summary of the conversation.
    Compaction {
        /// Tokens of the user's request, where one came.
        user_tokens: Option<u32>,
    },
    /// The summary that a compacted conversation goes on from.
    Summary {
        /// Its tokens, with the notes on the project.
        tokens: u32,
    },
    /// A subagent's task.
    Task {
        /// Its tokens.
        tokens: u32,
    },
}

/// One request and its answer. Times are microseconds from the session's start.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnPlan {
    /// What the request brings.
    pub cause: Cause,
    /// Arrival of the request.
    pub start_us: i64,
    /// From there to the first output.
    pub ttft_us: i64,
    /// End of the response.
    pub end_us: i64,
    /// From the end of the thread's previous response to this request; none on a first turn.
    pub wait_us: Option<i64>,
    /// From the end of the last child's response to this request, where children ran.
    pub residual_wait_us: Option<i64>,
    /// Prompt tokens shared with the thread's previous request; system and tools on a first turn.
    pub prefix_tokens: u32,
    /// Prompt tokens after them.
    pub append_tokens: u32,
    /// Whether the engine still held the prefix.
    pub prefix_held: bool,
    /// Output tokens.
    pub output_tokens: u32,
    /// Tool calls in the reply.
    pub calls: Vec<CallPlan>,
}

impl TurnPlan {
    /// Prompt tokens.
    pub fn prompt_tokens(&self) -> u32 {
        self.prefix_tokens + self.append_tokens
    }
}

/// One tool call.
#[derive(Debug, Clone, PartialEq)]
pub struct CallPlan {
    /// The tool's name.
    pub tool: &'static str,
    /// How long it ran.
    pub own_us: i64,
    /// Tokens of its result.
    pub result_tokens: u32,
    /// Whether the result is an error.
    pub is_error: bool,
    /// Index of the thread it started.
    pub child: Option<usize>,
}
