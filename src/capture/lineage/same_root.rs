//! The threads that begin alike, and which of them a request may continue.
//!
//! Many agents may be sent the same first prompt. One that was answered is not continued by the same
//! prompt again, so such threads are kept by what they began with and passed over together. A raw prompt is continued
//! by what begins with all of it, so its thread is found by its whole pieces and filed anew with every turn: however
//! many agents share a beginning, few threads are looked at.

use std::collections::HashMap;
use std::sync::Arc;

use super::ThreadKey;
use super::thread::Thread;
use crate::capture::prompt::Prompt;

/// A named session (none: a session known by lineage alone), and a root in it.
pub(super) type Root = (Option<Arc<str>>, u128);

/// All threads that no agent's name tells apart, by root.
#[derive(Debug, Default)]
pub(super) struct ByRoot(HashMap<Root, SameRoot>);

impl ByRoot {
    /// Threads that a prompt may continue, as far as their beginnings say.
    pub(super) fn candidates(&self, session: Option<&str>, prompt: &Prompt) -> Vec<ThreadKey> {
        let session: Option<Arc<str>> = session.map(Arc::from);
        let roots = prompt.root_keys().into_iter();
        let found = roots.filter_map(|root| self.0.get(&(session.clone(), root)));
        found.flat_map(|same_root| same_root.candidates(prompt)).collect()
    }

    /// A thread that has no answer yet.
    pub(super) fn add(&mut self, key: ThreadKey, root: Root) {
        self.0.entry(root).or_default().unanswered.push(key);
    }

    /// A thread has gone on: what it is found by may be another, and its first prompt may be answered now.
    pub(super) fn follow(&mut self, key: ThreadKey, thread: &mut Thread) {
        let prompt = &thread.last.prompt;
        if prompt.is_raw() && prompt.root_key() != thread.root.1 {
            self.remove(key, thread);
            thread.root.1 = thread.last.prompt.root_key();
            self.add(key, thread.root.clone());
        }
        if thread.first_answered
            && let Some(same_root) = self.0.get_mut(&thread.root)
        {
            same_root.answered(key, thread.first);
        }
    }

    pub(super) fn remove(&mut self, key: ThreadKey, thread: &Thread) {
        let Some(same_root) = self.0.get_mut(&thread.root) else { return };
        same_root.remove(key, thread.first);
        if same_root.unanswered.is_empty() && same_root.answered.is_empty() {
            self.0.remove(&thread.root);
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// Threads of one root.
#[derive(Debug, Default)]
struct SameRoot {
    /// Those whose first prompt has no answer yet.
    unanswered: Vec<ThreadKey>,
    /// The others, by the fingerprint of their first prompt.
    answered: HashMap<u128, Vec<ThreadKey>>,
}

impl SameRoot {
    /// The first prompt of a thread was answered; it may be told more than once.
    fn answered(&mut self, key: ThreadKey, first: u128) {
        if let Some(at) = self.unanswered.iter().rposition(|other| *other == key) {
            self.unanswered.swap_remove(at);
            self.answered.entry(first).or_default().push(key);
        }
    }

    fn remove(&mut self, key: ThreadKey, first: u128) {
        self.unanswered.retain(|other| *other != key);
        if let Some(keys) = self.answered.get_mut(&first) {
            keys.retain(|other| *other != key);
            if keys.is_empty() {
                self.answered.remove(&first);
            }
        }
    }

    /// Threads that a prompt may continue: all but those that began with just this prompt and were
    /// answered. A prompt that says nothing begins nothing.
    fn candidates(&self, prompt: &Prompt) -> Vec<ThreadKey> {
        let begins = (prompt.conversation_len() > 0).then(|| prompt.fingerprint());
        let others = self.answered.iter().filter(|(first, _)| Some(**first) != begins);
        let others = others.flat_map(|(_, keys)| keys);
        self.unanswered.iter().chain(others).copied().collect()
    }
}
