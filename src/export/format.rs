//! The formats that are written: their names, and what each holds and loses.

use crate::error::{Error, Result};

/// A format of somebody's tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Format {
    /// The netpreme layout: a folder of JSON lines for each session.
    Netpreme,
    /// `TraceLab`'s rows.
    TraceLab,
    /// `TraceLab`'s replayer workloads (CSV).
    TraceLabWorkload,
    /// batchbench's manifest, version 2.
    Batchbench,
    /// Mooncake's trace.
    Mooncake,
    /// Mooncake's form for agents.
    MooncakeAgentic,
    /// Weka's traces (kv-cache-tester).
    Weka,
    /// agentperf-local's rows.
    Agentperf,
    /// `MLPerf` Endpoints' agentic rows.
    Mlperf,
    /// `ClawPerf`'s recordings.
    Clawperf,
    /// A timeline for Perfetto and Chrome.
    Timeline,
}

impl Format {
    /// All of them, in the order in which people are told of them.
    pub const ALL: [Self; 11] = [
        Self::Netpreme,
        Self::TraceLab,
        Self::TraceLabWorkload,
        Self::Batchbench,
        Self::Mooncake,
        Self::MooncakeAgentic,
        Self::Weka,
        Self::Agentperf,
        Self::Mlperf,
        Self::Clawperf,
        Self::Timeline,
    ];

    /// The name on the command line; the importer's, where there is one.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Netpreme => "netpreme",
            Self::TraceLab => "tracelab",
            Self::TraceLabWorkload => "tracelab-csv",
            Self::Batchbench => "batchbench",
            Self::Mooncake => "mooncake",
            Self::MooncakeAgentic => "mooncake-agentic",
            Self::Weka => "weka",
            Self::Agentperf => "agentperf",
            Self::Mlperf => "mlperf",
            Self::Clawperf => "clawperf",
            Self::Timeline => "timeline",
        }
    }

    /// What it is and holds, in a line.
    pub fn about(self) -> &'static str {
        match self {
            Self::Netpreme => {
                "a folder: turns with their text, and engine ticks, as JSON lines for each session"
            }
            Self::TraceLab => {
                "a file of rows: token counts, times and tool calls of each turn; no text, no TTFT"
            }
            Self::TraceLabWorkload => {
                "a CSV file: arrivals, cached, new and output tokens, tool waits; nothing else"
            }
            Self::Batchbench => {
                "a manifest (version 2): token counts, waits, prompts as seeded blocks; no times, no text"
            }
            Self::Mooncake => {
                "a file of rows: arrival, lengths and block hashes of each request; no sessions, no tools"
            }
            Self::MooncakeAgentic => {
                "the same with sessions, subagents, waits and tools; no text, no latencies"
            }
            Self::Weka => {
                "a folder, a file for each session: times, lengths, block hashes, subagents; no text, no tools"
            }
            Self::Agentperf => {
                "a file of rows: every turn's whole prompt as Chat messages, its tools and waits; no times"
            }
            Self::Mlperf => {
                "a file of messages: conversations as Chat, with waits; no token counts, no times"
            }
            Self::Clawperf => {
                "a folder, a file for each conversation: request bodies, replies, latencies; no waits"
            }
            Self::Timeline => {
                "a file for ui.perfetto.dev: agents as tracks, turns and tools as slices, engine and power as \
                 counters"
            }
        }
    }

    /// The format of that name.
    pub fn from_name(name: &str) -> Result<Self> {
        // What the netpreme layout was called before there were others.
        if name == "jsonl" {
            return Ok(Self::Netpreme);
        }
        Self::ALL.into_iter().find(|format| format.as_str() == name).ok_or_else(|| {
            let names = Self::ALL.map(Self::as_str).join(", ");
            Error::config(format!("no format to export is called {name:?}; there are {names}"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Format;

    #[test]
    fn every_format_is_found_by_its_name() {
        for format in Format::ALL {
            assert_eq!(Format::from_name(format.as_str()).unwrap(), format);
            assert!(format.about().len() > 20);
        }
        assert_eq!(Format::from_name("jsonl").unwrap(), Format::Netpreme);
        let error = Format::from_name("parquet").unwrap_err().to_string();
        assert!(
            error.starts_with("no format to export is called \"parquet\"; there are netpreme, ")
        );
    }
}
