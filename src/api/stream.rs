//! A response body into a reply: streamed or whole, of either API.

use super::{Api, Reply};

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
    api: Api,
    reply: Reply,
}

impl ReplyDecoder {
    /// A decoder for one response.
    pub fn new(api: Api) -> Self {
        Self { api, reply: Reply::default() }
    }

    /// Takes the next piece.
    pub fn feed(&mut self, bytes: &[u8]) -> Fed {
        let _ = (self.api, bytes);
        Fed::default()
    }

    /// The reply so far, for looking at while the stream goes.
    pub fn reply(&self) -> &Reply {
        &self.reply
    }

    /// The reply after the last piece; an unfinished last event counts.
    pub fn finish(self) -> Reply {
        self.reply
    }
}

/// Reads a response that did not stream (also an error body of any status).
pub fn parse_reply(api: Api, body: &[u8]) -> Reply {
    let _ = (api, body);
    Reply::default()
}
