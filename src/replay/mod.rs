//! Sending a recording again: N agents work through its sessions against an engine, and every request
//! becomes a row.
//!
//! `plan` says what is sent and what it waits for, `load` who works on it, `trajectory` when, `content`
//! with what bytes, `client` sends and stamps, `summary` says what the rows come to. Run directories
//! and polls of the engine are the recording's affair.

pub mod agent_figures;
pub mod agents;
pub mod agents_asked;
pub mod arrivals;
mod asked;
mod asked_words;
pub mod attempts;
pub mod beside;
pub mod capacity;
pub mod capacity_gpus;
pub mod capacity_summary;
pub mod client;
pub mod client_figures;
pub mod common_window;
mod content;
pub mod doing;
pub mod engine_figures;
pub mod levels;
pub mod live_figures;
mod load;
pub mod measure;
pub mod noise;
mod open_loop;
pub mod open_loop_figures;
pub mod part_figures;
pub mod plan;
mod planning;
pub mod power_figures;
pub mod power_window;
pub mod prefix_hits;
pub mod progress;
pub mod recent;
mod request_row;
mod resolve;
pub mod response;
mod routes;
mod rows;
pub mod salts;
pub mod samples;
pub mod settings;
pub mod share;
pub mod shared_prefix;
mod silence;
pub mod slo;
mod start;
pub mod statistics;
pub mod summary;
pub mod summary_counts;
mod summary_notes;
pub mod synthetic_plan;
pub mod tiers;
mod time_left;
pub mod tokens;
mod trajectory;
pub mod waits;
mod watch;
pub mod window;
pub mod words;

pub use agents::{AgentAnswer, AgentLoad, AgentRequest, TaskEnd};
pub use agents_asked::{AgentLoadConfig, PreparedAgents};
pub use arrivals::{Arrivals, OpenLoop, PacingWords};
pub use attempts::{Retries, Timeouts};
pub use doing::AgentsByState;
pub use progress::ReplayProgress;
pub use salts::CacheSharing;
pub use settings::{
    ApiChoice, ContentMode, LengthForcing, OnError, OutputLengthRule, ReplaySettings, WorkerSetting,
};
pub use start::{PreparedReplay, Replay, ReplayConfig, ReplayHandle, ReplayOutcome};
pub use summary::{Summary, headline_requests, summarize, summarize_run};
pub use waits::{HumanTime, ToolTime};
