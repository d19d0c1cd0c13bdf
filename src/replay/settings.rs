//! How a replay was run, as its manifest and summary keep it: what was asked for, what was chosen and
//! why, what was left out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::window::Window;

/// Which API the requests are sent to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ApiChoice {
    /// As recorded where the engine takes it and honours output lengths there; else the other one,
    /// converted, where that does; else as recorded.
    #[default]
    Auto,
    /// As recorded, whatever becomes of the lengths.
    Recorded,
    /// All to `/v1/messages`.
    Messages,
    /// All to `/v1/chat/completions`.
    Chat,
}

/// What a failed request does to its trajectory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OnError {
    /// Nothing more of it is started.
    #[default]
    StopTrajectory,
    /// It goes on with its next request.
    Continue,
}

/// Whether the engine gives outputs of the length asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LengthForcing {
    /// `min_tokens`, `max_tokens` and `ignore_eos` pin the length.
    Honoured,
    /// The engine takes the parameters and does not heed them.
    Ignored,
    /// The engine refuses the parameters; only `max_tokens` is sent.
    Refused,
    /// The probe got no answer that tells.
    #[default]
    Unknown,
}

impl LengthForcing {
    /// The name in settings and notes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Honoured => "honoured",
            Self::Ignored => "ignored",
            Self::Refused => "refused",
            Self::Unknown => "unknown",
        }
    }
}

/// What ended a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// Every trajectory was worked through.
    #[default]
    Trajectories,
    /// Its time was up.
    Duration,
    /// A capacity search had seen enough of it.
    Enough,
    /// It was told to stop.
    Shutdown,
}

/// Where the requests recorded in one API were sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ApiRoute {
    /// The API of the recording.
    pub recorded: String,
    /// The API they were sent to.
    pub sent: String,
    /// Whether output lengths are honoured there.
    pub output_length: LengthForcing,
    /// Why that API.
    pub reason: String,
}

/// A replay's settings by name.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ReplaySettings {
    /// The engine's base URL, without credentials or query.
    pub url: String,
    /// The model asked for.
    pub model: String,
    /// The embedded engine answered: the figures say nothing about any hardware.
    pub simulated: bool,
    /// The recording's text and times are made up.
    pub synthetic_trace: bool,
    /// Agents at work at once.
    pub agents: u32,
    /// Time after which nothing more is started.
    pub duration_s: Option<f64>,
    /// Trajectories after which nothing more is started.
    pub trajectories: Option<u64>,
    /// Time over which the agents are started.
    pub ramp_s: f64,
    /// What a failed request does to its trajectory.
    pub on_error: OnError,
    /// Turns that are not the agent's work were sent too.
    pub include_utility: bool,
    /// The API asked for.
    pub api: ApiChoice,
    /// The API chosen, for each API in the recording.
    pub routes: Vec<ApiRoute>,
    /// Sessions in the plan.
    pub sessions: u64,
    /// Requests in one pass over the plan.
    pub requests_per_pass: u64,
    /// Recorded turns left out, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// What ended the run.
    pub ended_by: EndedBy,
    /// Where the phases begin and end.
    pub window: Window,
    /// Wall anchor of the run clock, nanoseconds since the Unix epoch.
    pub clock_anchor_ns: i64,
    /// What a reader of the figures must know, a sentence each.
    pub notes: Vec<String>,
}
