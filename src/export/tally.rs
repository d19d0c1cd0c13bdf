//! What an export wrote and what it could not say: counted by what it is, told in the end.
//!
//! Pure.

use std::collections::BTreeMap;

use super::sessions::{Session, Thread, Turn};
use crate::trace::record::TurnKind;

/// Counts of what was written and what was not.
#[derive(Debug, Default)]
pub(super) struct Tally {
    written: BTreeMap<&'static str, u64>,
    left_out: BTreeMap<&'static str, u64>,
    notes: Vec<String>,
}

/// A part of a run that not every format can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// Prompts and replies.
    Text,
    /// Which model was asked.
    Models,
    /// Which agent asked.
    Agents,
    /// Turns of one session belong together.
    Sessions,
    /// Which thread a thread was started by.
    Parents,
    /// Several conversations of one session.
    Threads,
    /// Titles, summaries and checks are no work of the agent's.
    Kinds,
    /// When a request was made.
    Times,
    /// TTFT.
    FirstOutputs,
    /// TTFT and E2E.
    Latencies,
    /// The wait before a turn.
    Waits,
    /// Tool calls.
    Calls,
    /// Tokens served from cache.
    Cached,
    /// Reasoning tokens.
    Reasoning,
    /// Hashes of blocks, as recorded.
    Blocks,
    /// Token counts.
    Tokens,
    /// Why generation stopped.
    StopReasons,
}

impl Part {
    fn told(self) -> &'static str {
        match self {
            Self::Text => "prompts and replies as text",
            Self::Models => "names of models",
            Self::Agents => "names of agents",
            Self::Sessions => "links of later turns to their sessions",
            Self::Parents => "links of subagents to what started them",
            Self::Threads => "further conversations' links to their sessions",
            Self::Kinds => "marks of utility calls",
            Self::Times => "times of requests",
            Self::FirstOutputs => "times of first tokens",
            Self::Latencies => "latencies (TTFT, E2E)",
            Self::Waits => "waits before turns",
            Self::Calls => "tool calls",
            Self::Cached => "counts of cached tokens",
            Self::Reasoning => "counts of reasoning tokens",
            Self::Blocks => "lists of block hashes",
            Self::Tokens => "token counts of prompts and replies",
            Self::StopReasons => "reasons why generation stopped",
        }
    }

    /// How much of it a turn has. `is_first`: it opens a thread.
    fn of_turn(self, turn: &Turn, thread: &Thread, is_first: bool) -> usize {
        let row = &turn.row;
        let is_there = match self {
            Self::Text => !row.unit_hashes.is_empty(),
            Self::Models => row.model.is_some(),
            Self::Agents => row.agent.is_some(),
            Self::Sessions => !is_first,
            Self::Kinds => row.kind == TurnKind::Utility,
            Self::Times => turn.request.is_some(),
            Self::FirstOutputs => turn.first_output().is_some(),
            Self::Latencies => row.ttft_ms.is_some() || row.e2e_ms.is_some(),
            Self::Waits => row.tool_exec_ms.is_some(),
            Self::Calls => return turn.calls.len(),
            Self::Cached => row.isl_cached.is_some(),
            Self::Reasoning => row.reasoning_tokens.is_some(),
            Self::Blocks => row.block_hashes.is_some(),
            Self::Tokens => row.isl.is_some() || row.osl.is_some(),
            Self::StopReasons => row.stop_reason.is_some(),
            Self::Parents => is_first && thread.parent.is_some(),
            Self::Threads => false,
        };
        usize::from(is_there)
    }
}

impl Tally {
    /// So many more of `what`, a plural.
    pub(super) fn wrote(&mut self, n: usize, what: &'static str) {
        *self.written.entry(what).or_default() += n as u64;
    }

    /// One more left out of `what`, a plural that a number stands before.
    pub(super) fn left_out(&mut self, what: &'static str) {
        *self.left_out.entry(what).or_default() += 1;
    }

    /// What of a session the format has no place for, as far as the run has it.
    pub(super) fn without(&mut self, session: &Session, parts: &[Part]) {
        for part in parts {
            let mut n: usize = session
                .threads
                .iter()
                .flat_map(|thread| {
                    let turns = thread.turns.iter().enumerate();
                    turns.map(move |(at, turn)| part.of_turn(turn, thread, at == 0))
                })
                .sum();
            if *part == Part::Threads {
                n = session.threads.len().saturating_sub(1);
            }
            if n > 0 {
                *self.left_out.entry(part.told()).or_default() += n as u64;
            }
        }
    }

    /// Something that a reader must know.
    pub(super) fn note(&mut self, note: String) {
        self.notes.push(note);
    }

    /// What was written.
    pub(super) fn written(&self) -> BTreeMap<&'static str, u64> {
        self.written.clone()
    }

    /// What was left out, as people are told: a number and what it counts.
    pub(super) fn told(&self) -> Vec<String> {
        self.left_out.iter().map(|(what, n)| format!("{n} {what}")).collect()
    }

    /// What a reader must know.
    pub(super) fn notes(&self) -> Vec<String> {
        self.notes.clone()
    }
}
