//! One thread as lineage knows it: how well a request fits it, and how it goes on with one.

use std::sync::Arc;

use super::super::prompt::Prompt;
use super::same_root::Root;
use super::{AttemptEnd, Seen, ThreadKey};
use crate::api::ContentHash;
use crate::clock::elapsed_ms;
use crate::trace::record::TurnKind;

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) id: String,
    pub(super) session: Arc<str>,
    /// How the thread is found again.
    pub(super) root: Root,
    pub(super) agent: Option<(Arc<str>, String)>,
    pub(super) parent: Option<ThreadKey>,
    pub(super) parent_id: Option<String>,
    pub(super) kind: TurnKind,
    pub(super) first: u128,
    pub(super) first_answered: bool,
    pub(super) turn: u32,
    pub(super) last: Last,
    pub(super) child_ends_ns: Vec<i64>,
    pub(super) used: u64,
}

/// The last attempt of a thread.
#[derive(Debug, Default)]
pub(super) struct Last {
    pub(super) prompt: Prompt,
    pub(super) body: Option<ContentHash>,
    pub(super) end: Option<AttemptEnd>,
    pub(super) ended_ns: i64,
    pub(super) calls: Vec<String>,
    pub(super) reply: Option<ContentHash>,
    pub(super) n_shared_units: u32,
    pub(super) tool_exec_ms: Option<f64>,
    pub(super) residual_wait_ms: Option<f64>,
}

/// How well a request fits a thread; the greatest wins.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fitness {
    pub(super) is_retry: bool,
    pub(super) answers_its_calls: bool,
    pub(super) extends: bool,
    pub(super) repeats_its_reply: bool,
    pub(super) run: usize,
    pub(super) used: u64,
}

impl Thread {
    /// None where the request cannot continue this thread. That it begins as this one began and was
    /// answered is ruled out before.
    pub(super) fn fitness(
        &self,
        seen: &Seen<'_>,
        prompt: &Prompt,
        repeated_reply: Option<ContentHash>,
    ) -> Option<Fitness> {
        let last = &self.last;
        let goes_on = seen.arrived_ns < last.ended_ns && last.end != Some(AttemptEnd::ClientGone);
        if (self.kind == TurnKind::Utility) != seen.utility || goes_on {
            return None;
        }
        let run = prompt.shared_run(&last.prompt);
        if run < last.prompt.root_len()
            || !prompt.goes_on_from(seen.units, &last.prompt)
            || (run == 0 && seen.session.is_none() && !prompt.is_raw())
        {
            return None;
        }
        Some(Fitness {
            is_retry: self.is_retried_by(seen),
            answers_its_calls: seen
                .answered_calls
                .iter()
                .any(|call| last.calls.iter().any(|own| own == call)),
            extends: run == last.prompt.conversation_len() && run < prompt.conversation_len(),
            repeats_its_reply: last.reply.is_some() && last.reply == repeated_reply,
            run,
            used: self.used,
        })
    }

    fn is_retried_by(&self, seen: &Seen<'_>) -> bool {
        self.last.end.is_some_and(|end| end != AttemptEnd::Answered)
            && self.last.body == Some(seen.body)
    }

    /// Takes a request in: a new turn, or another attempt at the last one.
    pub(super) fn advance(&mut self, seen: &Seen<'_>, prompt: Prompt, is_new: bool) {
        let is_retry = self.is_retried_by(seen);
        if !is_retry {
            let since = |from_ns: i64| elapsed_ms(from_ns, seen.arrived_ns).max(0.0);
            self.last.n_shared_units = prompt.shared_units(&self.last.prompt) as u32;
            self.last.tool_exec_ms = (!is_new).then(|| since(self.last.ended_ns));
            let ran = |end: &&i64| (self.last.ended_ns..=seen.arrived_ns).contains(*end);
            let last_child = self.child_ends_ns.iter().filter(ran).max().copied();
            self.last.residual_wait_ms = last_child.filter(|_| !is_new).map(since);
            if !is_new {
                self.turn += 1;
            }
        }
        if self.turn == 0 {
            self.first_answered = seen.end == AttemptEnd::Answered;
        }
        self.child_ends_ns.retain(|end| *end > seen.ended_ns);
        self.last.prompt = prompt;
        self.last.body = Some(seen.body);
        self.last.end = Some(seen.end);
        self.last.ended_ns = seen.ended_ns;
        self.last.calls = seen.calls.iter().map(|call| (*call).to_owned()).collect();
        let text = seen.reply_text.trim();
        self.last.reply = (!text.is_empty()).then(|| ContentHash::of(text.as_bytes()));
    }
}
