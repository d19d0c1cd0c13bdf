//! Token counts as responses tell them, in one shape for all APIs.
//!
//! What a response does not tell stays `None`; nothing here is counted or guessed.

use serde::{Deserialize, Serialize};

/// Token counts of one response.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// All prompt tokens, cached ones included.
    pub prompt_tokens: Option<u64>,
    /// Output tokens, reasoning included.
    pub completion_tokens: Option<u64>,
    /// Prompt tokens served from cache.
    pub cached_tokens: Option<u64>,
    /// Prompt tokens written to cache.
    pub cache_write_tokens: Option<u64>,
    /// Reasoning tokens within the output.
    pub reasoning_tokens: Option<u64>,
}

impl Usage {
    /// Prompt tokens computed, where both figures are known.
    pub fn new_tokens(&self) -> Option<u64> {
        Some(self.prompt_tokens?.saturating_sub(self.cached_tokens?))
    }
}
