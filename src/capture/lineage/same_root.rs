//! The threads that begin alike, and which of them a request may continue.
//!
//! Many agents may be sent the same first prompt. One that was answered is not continued by the same
//! prompt again, so such threads are kept by what they began with and passed over together.

use std::collections::HashMap;

use super::ThreadKey;
use crate::capture::prompt::Prompt;

/// Threads of one root.
#[derive(Debug, Default)]
pub(super) struct SameRoot {
    /// Those whose first prompt has no answer yet.
    unanswered: Vec<ThreadKey>,
    /// The others, by the fingerprint of their first prompt.
    answered: HashMap<u128, Vec<ThreadKey>>,
}

impl SameRoot {
    /// A thread that has no answer yet.
    pub(super) fn add(&mut self, key: ThreadKey) {
        self.unanswered.push(key);
    }

    /// The first prompt of a thread was answered; it may be told more than once.
    pub(super) fn answered(&mut self, key: ThreadKey, first: u128) {
        if let Some(at) = self.unanswered.iter().rposition(|other| *other == key) {
            self.unanswered.swap_remove(at);
            self.answered.entry(first).or_default().push(key);
        }
    }

    pub(super) fn remove(&mut self, key: ThreadKey, first: u128) {
        self.unanswered.retain(|other| *other != key);
        if let Some(keys) = self.answered.get_mut(&first) {
            keys.retain(|other| *other != key);
            if keys.is_empty() {
                self.answered.remove(&first);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.unanswered.is_empty() && self.answered.is_empty()
    }

    /// Threads that a prompt may continue: all but those that began with just this prompt and were
    /// answered. A prompt that says nothing begins nothing.
    pub(super) fn candidates(&self, prompt: &Prompt) -> Vec<ThreadKey> {
        let begins = (prompt.conversation_len() > 0).then(|| prompt.fingerprint());
        let others = self.answered.iter().filter(|(first, _)| Some(**first) != begins);
        let others = others.flat_map(|(_, keys)| keys);
        self.unanswered.iter().chain(others).copied().collect()
    }
}
