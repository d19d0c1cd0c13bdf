//! Requests that name those they waited for: which conversation started a conversation, whether a wait was one
//! for subagents, and which turn's calls the tools before a request were.

use std::collections::HashMap;

use super::draft::{CallDraft, TurnDraft};
use crate::trace::record::TurnKind;

/// What a request tells of others.
#[derive(Debug, Clone, Default)]
pub(super) struct Links {
    /// Its own name.
    pub(super) own: String,
    /// The requests that had to end before it.
    pub(super) waits_for: Vec<String>,
    /// Tools whose results it brought: calls of the turn before it.
    pub(super) calls_before: Vec<CallDraft>,
}

/// A conversation that is known.
#[derive(Debug, Clone)]
struct Known {
    session_id: String,
    parent_thread_id: Option<String>,
    kind: TurnKind,
}

/// The requests and conversations seen so far.
#[derive(Debug, Default)]
pub(super) struct Linked {
    /// Conversations of requests.
    threads: HashMap<String, String>,
    known: HashMap<String, Known>,
    /// The last request of each conversation, and how many calls of it are told.
    last: HashMap<String, (String, usize)>,
}

/// What a turn's links came to.
#[derive(Debug, Default)]
pub(super) struct Told {
    /// The wait is one from a subagent's end.
    pub(super) waited_for_others: bool,
    /// Calls of the turn before, the name of its request and the index of the first.
    pub(super) calls_before: Vec<CallDraft>,
    pub(super) request_before: String,
    pub(super) first_index: usize,
}

impl Linked {
    /// Puts a turn into the session of the conversation that started its own.
    pub(super) fn take(&mut self, draft: &mut TurnDraft) -> Told {
        let Some(links) = draft.links.take() else { return Told::default() };
        let of_thread = |name: &String| self.threads.get(name);
        let others = links
            .waits_for
            .iter()
            .filter_map(of_thread)
            .filter(|thread| **thread != draft.thread_id);
        let parent = others.clone().next().cloned();
        let is_first = !self.known.contains_key(&draft.thread_id);
        let waited_for_others = !is_first && parent.is_some();
        if is_first {
            let parent = parent
                .as_ref()
                .and_then(|parent| self.known.get(parent).map(|known| (parent, known)));
            let known = match parent {
                Some((parent, of_parent)) => Known {
                    session_id: of_parent.session_id.clone(),
                    parent_thread_id: Some(parent.clone()),
                    kind: TurnKind::Subagent,
                },
                None => Known {
                    session_id: draft.session_id.clone(),
                    parent_thread_id: None,
                    kind: draft.kind,
                },
            };
            self.known.insert(draft.thread_id.clone(), known);
        }
        if let Some(known) = self.known.get(&draft.thread_id) {
            draft.session_id.clone_from(&known.session_id);
            draft.parent_thread_id.clone_from(&known.parent_thread_id);
            draft.kind = known.kind;
        }
        self.threads.insert(links.own.clone(), draft.thread_id.clone());
        let before = self.last.insert(draft.thread_id.clone(), (links.own, draft.calls.len()));
        match before {
            Some((request_before, first_index)) => Told {
                waited_for_others,
                calls_before: links.calls_before,
                request_before,
                first_index,
            },
            None => Told { waited_for_others, ..Told::default() },
        }
    }
}
