//! The formats that are read, and which of them a file has.

use std::path::Path;

use serde_json::Value;

use super::document::document;
use super::hashed;
use super::lines::Lines;
use super::problems::Problems;
use super::tables;
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
    /// `TraceLab`'s replayer workloads (CSV).
    TraceLabWorkload,
    /// batchbench's manifests, versions 1 and 2.
    Batchbench,
    /// Mooncake's traces.
    Mooncake,
    /// Mooncake's form for agents, with sessions and tool waits.
    MooncakeAgentic,
    /// Bailian's traces.
    Bailian,
    /// Weka's traces (kv-cache-tester).
    Weka,
    /// agentperf-local's rows.
    Agentperf,
    /// `MLPerf` Endpoints' agentic rows.
    Mlperf,
    /// `ClawPerf`'s recordings.
    Clawperf,
    /// The netpreme layout's lines.
    Netpreme,
    /// `BurstGPT` (CSV).
    BurstGpt,
    /// Lists of messages: `OpenAI`'s form, SWE-agent's trajectories.
    Messages,
}

/// What a file's times count from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimeBase {
    /// The Unix epoch.
    Wall,
    /// The trace's own start.
    Start,
    /// There are none but waits.
    None,
}

impl TimeBase {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Wall => "wall",
            Self::Start => "from the start of the trace",
            Self::None => "none",
        }
    }
}

/// So many lines are looked at.
const LOOKED_AT: usize = 50;

impl Format {
    /// All of them, in the order in which people are told of them.
    pub const ALL: [Self; 15] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::TraceLab,
        Self::TraceLabWorkload,
        Self::Batchbench,
        Self::Mooncake,
        Self::MooncakeAgentic,
        Self::Bailian,
        Self::Weka,
        Self::Agentperf,
        Self::Mlperf,
        Self::Clawperf,
        Self::Netpreme,
        Self::BurstGpt,
        Self::Messages,
    ];

    /// The name on the command line and in manifests.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Codex => "codex",
            Self::TraceLab => "tracelab",
            Self::TraceLabWorkload => "tracelab-csv",
            Self::Batchbench => "batchbench",
            Self::Mooncake => "mooncake",
            Self::MooncakeAgentic => "mooncake-agentic",
            Self::Bailian => "bailian",
            Self::Weka => "weka",
            Self::Agentperf => "agentperf",
            Self::Mlperf => "mlperf",
            Self::Clawperf => "clawperf",
            Self::Netpreme => "netpreme",
            Self::BurstGpt => "burstgpt",
            Self::Messages => "messages",
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
        for index in 0..LOOKED_AT {
            let Some((_, line)) = lines.next(&mut unheard) else { break };
            if index == 0
                && let Some(format) = Self::of_header(line)
            {
                return Ok(Some(format));
            }
            let Ok(record) = serde_json::from_str::<Value>(line) else { continue };
            let is_list = record.is_array();
            if let Some(format) = Self::of_record(&record).filter(|_| !is_list) {
                return Ok(Some(format));
            }
        }
        // Not lines: perhaps one document over many of them.
        let records = document(path)?.unwrap_or_default();
        let first = records.first().and_then(|record| serde_json::from_str::<Value>(record).ok());
        Ok(first.as_ref().and_then(Self::of_record))
    }

    fn of_header(line: &str) -> Option<Self> {
        let header = tables::header(line)?;
        let has =
            |names: &[&str]| names.iter().all(|name| header.iter().any(|found| found == *name));
        if has(&["session_id", "prefix_len", "input_len", "output_len"]) {
            Some(Self::TraceLabWorkload)
        } else if has(&["Timestamp", "Request tokens", "Response tokens"]) {
            Some(Self::BurstGpt)
        } else {
            None
        }
    }

    fn of_record(record: &Value) -> Option<Self> {
        let has = |names: &[&str]| names.iter().all(|name| record.get(name).is_some());
        let has_any = |names: &[&str]| names.iter().any(|name| record.get(name).is_some());
        let is_messages = |value: &Value| {
            value
                .as_array()
                .is_some_and(|list| list.first().is_some_and(|first| first.get("role").is_some()))
        };
        if has(&["provider", "round_index", "timing_events"]) {
            Some(Self::TraceLab)
        } else if has(&["timestamp", "type", "payload"]) {
            Some(Self::Codex)
        } else if has(&["type", "sessionId"]) {
            Some(Self::ClaudeCode)
        } else if has(&["schema_version", "trajectory_id", "requests"]) {
            Some(Self::Batchbench)
        } else if has(&["requests"]) && has_any(&["hash_id_scope", "block_size"]) {
            Some(Self::Weka)
        } else if has(&["input_length", "chat_id"]) {
            Some(Self::Bailian)
        } else if has(&["input_length", "session_id"])
            || (has(&["input_length"]) && has_any(&["tool_wait_ms", "wait_for", "branches"]))
        {
            Some(Self::MooncakeAgentic)
        } else if has(&["input_length", "output_length"]) {
            Some(Self::Mooncake)
        } else if has(&["conversation_id", "messages"])
            && has_any(&[
                "simulated_tool_delay_ms_after",
                "recorded_prompt_tokens",
                "conversation_idx",
            ])
        {
            Some(Self::Agentperf)
        } else if has(&["conversation_id", "turn", "role"]) {
            Some(Self::Mlperf)
        } else if has(&["request_body", "response_chunks"]) {
            Some(Self::Clawperf)
        } else if has(&["request_time", "isl_new_text", "osl_text"])
            || has(&["ts", "n", "kv_cache_usage_pct_peak"])
        {
            Some(Self::Netpreme)
        } else if is_messages(record)
            || ["messages", "history", "conversation"]
                .iter()
                .any(|name| is_messages(&record[*name]))
        {
            Some(Self::Messages)
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
                "Claude Code logs: request_time is that of the last input record, response_end_time that \
                 of the last record of the reply; a log is written block by block, so there is no TTFT.",
            ],
            Self::Codex => &[
                "Codex logs hold instructions and items: tool definitions are parts of isl but not of the \
                 units.",
                "Codex logs: request_time is that of the last input record, response_end_time that of the \
                 token report; a log is written item by item, so there is no TTFT.",
            ],
            Self::TraceLab => &[
                "TraceLab rows: lengths of arguments and results are in characters, for the rows tell no \
                 bytes.",
                "TraceLab rows: request_time is that of the last input event, response_end_time that of \
                 the last output event.",
            ],
            Self::TraceLabWorkload => &[
                "TraceLab workloads: isl_cached is the prefix that the workload plans with, no figure of an \
                 engine; request_time is the session's arrival.",
            ],
            Self::Batchbench => &[
                "batchbench: blocks are of any length and are kept as they stand in params; a replay goes \
                 by token counts.",
            ],
            Self::Clawperf => &["ClawPerf: a file is one session and one thread."],
            Self::Agentperf => &["agentperf: osl is the target where no completion was recorded."],
            _ => &[],
        }
    }

    pub(super) fn time_base(self) -> TimeBase {
        match self {
            Self::ClaudeCode | Self::Codex | Self::TraceLab | Self::Netpreme => TimeBase::Wall,
            Self::TraceLabWorkload
            | Self::Batchbench
            | Self::Mooncake
            | Self::MooncakeAgentic
            | Self::Bailian
            | Self::Weka
            | Self::BurstGpt => TimeBase::Start,
            Self::Agentperf | Self::Mlperf | Self::Clawperf | Self::Messages => TimeBase::None,
        }
    }

    /// Whether each record stands by itself, so that parts of a file can be read side by side.
    pub(super) fn is_rows(self) -> bool {
        !matches!(self, Self::ClaudeCode | Self::Codex | Self::Mlperf)
    }

    /// Whether the first line names columns.
    pub(super) fn is_csv(self) -> bool {
        matches!(self, Self::TraceLabWorkload | Self::BurstGpt)
    }

    /// The size of blocks, where it follows from the first records.
    pub(super) fn block_size(self, path: &Path) -> Result<Option<u32>> {
        if !matches!(self, Self::Mooncake | Self::MooncakeAgentic | Self::Bailian) {
            return Ok(None);
        }
        let mut lines = Lines::open(path)?;
        let mut unheard = Problems::default();
        let mut rows = Vec::new();
        while rows.len() < LOOKED_AT
            && let Some((_, line)) = lines.next(&mut unheard)
        {
            rows.push(line.to_owned());
        }
        Ok(hashed::block_size(rows.iter().map(String::as_str)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_tell_their_format() {
        for (record, format) in [
            (r#"{"provider":"claude","round_index":0,"timing_events":[]}"#, Some(Format::TraceLab)),
            (r#"{"timestamp":"t","type":"event_msg","payload":{}}"#, Some(Format::Codex)),
            (r#"{"type":"mode","sessionId":"s"}"#, Some(Format::ClaudeCode)),
            (r#"{"schema_version":1,"trajectory_id":"a","requests":[]}"#, Some(Format::Batchbench)),
            (r#"{"id":"a","block_size":64,"requests":[]}"#, Some(Format::Weka)),
            (
                r#"{"chat_id":1,"parent_chat_id":-1,"timestamp":1,"input_length":1,"output_length":1}"#,
                Some(Format::Bailian),
            ),
            (
                r#"{"request_id":"r","session_id":"s","input_length":1,"output_length":1}"#,
                Some(Format::MooncakeAgentic),
            ),
            (
                r#"{"timestamp":0,"input_length":1,"output_length":1,"hash_ids":[0]}"#,
                Some(Format::Mooncake),
            ),
            (
                r#"{"conversation_id":"c","conversation_idx":0,"messages":[]}"#,
                Some(Format::Agentperf),
            ),
            (
                r#"{"conversation_id":"c","turn":0,"role":"user","content":"x"}"#,
                Some(Format::Mlperf),
            ),
            (r#"{"index":0,"request_body":{},"response_chunks":[]}"#, Some(Format::Clawperf)),
            (r#"{"request_time":1.0,"isl_new_text":"a","osl_text":"b"}"#, Some(Format::Netpreme)),
            (r#"{"messages":[{"role":"user","content":"x"}]}"#, Some(Format::Messages)),
            (r#"[{"role":"user","content":"x"}]"#, Some(Format::Messages)),
            (r#"{"history":[{"role":"user","content":"x"}],"info":{}}"#, Some(Format::Messages)),
            (r#"{"some":"thing"}"#, None),
        ] {
            let value: Value = serde_json::from_str(record).unwrap();
            assert_eq!(Format::of_record(&value), format, "{record}");
        }
        for format in Format::ALL {
            assert_eq!(Format::from_name(format.as_str()).unwrap(), format);
        }
    }
}
