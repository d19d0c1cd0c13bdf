//! The formats that are read, and which of them a file has.

use std::path::Path;

use serde_json::Value;

use super::lines::Lines;
use super::problems::Problems;
use crate::error::{Error, Result};

/// A format of somebody's recordings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Claude Code's logs (`~/.claude/projects`).
    ClaudeCode,
    /// Codex's logs (`~/.codex/sessions`).
    Codex,
    /// `TraceLab`'s rows (`round_trace.jsonl`).
    TraceLab,
}

/// So many lines are looked at.
const LOOKED_AT: usize = 50;

impl Format {
    /// All of them, in the order in which people are told of them.
    pub const ALL: [Self; 3] = [Self::ClaudeCode, Self::Codex, Self::TraceLab];

    /// The name on the command line and in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::TraceLab => "tracelab",
        }
    }

    /// The format of that name.
    pub fn from_name(name: &str) -> Result<Self> {
        Self::ALL.into_iter().find(|format| format.as_str() == name).ok_or_else(|| {
            Error::config(format!("no format is called {name:?}; there are {}", Self::names()))
        })
    }

    /// All names, for people.
    pub fn names() -> String {
        Self::ALL.map(Self::as_str).join(", ")
    }

    /// The format of a file, told by its first records; none where nothing fits.
    pub(super) fn of(path: &Path) -> Result<Option<Self>> {
        let mut lines = Lines::open(path)?;
        // What is wrong with them is told when they are read.
        let mut unheard = Problems::default();
        for _ in 0..LOOKED_AT {
            let Some((_, line)) = lines.next(&mut unheard) else { break };
            let Ok(record) = serde_json::from_str::<Value>(line) else { continue };
            if let Some(format) = Self::of_record(&record) {
                return Ok(Some(format));
            }
        }
        Ok(None)
    }

    fn of_record(record: &Value) -> Option<Self> {
        let has = |names: &[&str]| names.iter().all(|name| record.get(name).is_some());
        if has(&["provider", "round_index", "timing_events"]) {
            Some(Self::TraceLab)
        } else if has(&["timestamp", "type", "payload"]) {
            Some(Self::Codex)
        } else if has(&["type", "sessionId"]) {
            Some(Self::ClaudeCode)
        } else {
            None
        }
    }

    /// What a reader of figures from it must know.
    pub(super) fn notes(self) -> &'static [&'static str] {
        match self {
            Self::ClaudeCode => &[
                "Claude Code logs hold messages only: system prompt and tool definitions are parts of isl \
                 but not of the units, so a replay of the text sends shorter prompts.",
                "request_time is that of the last input record, response_end_time that of the last \
                 record of the reply; a log is written block by block, so there is no TTFT.",
            ],
            Self::Codex => &[
                "Codex logs hold instructions and items: tool definitions are parts of isl but not of the \
                 units.",
                "request_time is that of the last input record, response_end_time that of the token \
                 report; a log is written item by item, so there is no TTFT.",
            ],
            Self::TraceLab => &[
                "Lengths of arguments and results are in characters, for the rows tell no bytes.",
                "request_time is that of the last input event, response_end_time that of the last \
                 output event.",
            ],
        }
    }

    /// Whether each line stands by itself, so that parts of a file can be read side by side.
    pub(super) fn is_rows(self) -> bool {
        matches!(self, Self::TraceLab)
    }
}
