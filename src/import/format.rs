//! The formats that are read, and which of them a file has.

use csv::StringRecord;
use serde_json::Value;

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
    /// `OpenCode`'s database, exports and folders of sessions.
    OpenCode,
    /// mini-swe-agent's trajectories.
    MiniSweAgent,
    /// A run directory of ours whose manifest is gone: a plain folder of its tables.
    Run,
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

impl Format {
    /// All of them, in the order in which people are told of them.
    pub const ALL: [Self; 18] = [
        Self::ClaudeCode,
        Self::Codex,
        Self::OpenCode,
        Self::MiniSweAgent,
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
        Self::Run,
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
            Self::OpenCode => "opencode",
            Self::MiniSweAgent => "mini-swe-agent",
            Self::Run => "run",
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

    /// The format of a table with these columns.
    pub(super) fn of_header(header: &StringRecord) -> Option<Self> {
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

    /// The format of a record.
    pub(super) fn of_record(record: &Value) -> Option<Self> {
        let has = |names: &[&str]| names.iter().all(|name| record.get(name).is_some());
        let has_any = |names: &[&str]| names.iter().any(|name| record.get(name).is_some());
        let is_messages = |value: &Value| {
            value
                .as_array()
                .is_some_and(|list| list.first().is_some_and(|first| first.get("role").is_some()))
        };
        if has(&["unit_hashes", "body_template", "reply_blocks"]) {
            Some(Self::Run)
        } else if record["trajectory_format"]
            .as_str()
            .is_some_and(|name| name.starts_with("mini-swe-agent"))
        {
            Some(Self::MiniSweAgent)
        } else if has(&["info", "messages"]) && record["messages"][0].get("parts").is_some() {
            Some(Self::OpenCode)
        } else if has(&["provider", "round_index", "timing_events"]) {
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
            Self::ClaudeCode
            | Self::Codex
            | Self::TraceLab
            | Self::Netpreme
            | Self::OpenCode
            | Self::MiniSweAgent
            | Self::Run => TimeBase::Wall,
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
        !matches!(self, Self::ClaudeCode | Self::Codex | Self::Mlperf | Self::Run)
    }

    /// Whether prompts are hashes of blocks whose size the records do not say.
    pub(super) fn has_blocks(self) -> bool {
        matches!(self, Self::Mooncake | Self::MooncakeAgentic | Self::Bailian)
    }

    /// Whether its files are written anew where something is added, so that one whose beginning has changed
    /// is a later state of the same.
    pub(super) fn is_rewritten(self) -> bool {
        matches!(self, Self::OpenCode | Self::MiniSweAgent)
    }

    /// Whether the first line names columns.
    pub(super) fn is_csv(self) -> bool {
        matches!(self, Self::TraceLabWorkload | Self::BurstGpt)
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
            (
                r#"{"info":{},"messages":[{"role":"system"}],"trajectory_format":"mini-swe-agent-1.1"}"#,
                Some(Format::MiniSweAgent),
            ),
            (
                r#"{"info":{"id":"ses_1"},"messages":[{"info":{"role":"user"},"parts":[]}]}"#,
                Some(Format::OpenCode),
            ),
            (r#"{"unit_hashes":[],"body_template":"","reply_blocks":""}"#, Some(Format::Run)),
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
