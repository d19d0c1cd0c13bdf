//! How a replay was run, as its manifest and summary keep it: what was asked for, what was chosen and
//! why, what was left out.

use std::collections::BTreeMap;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::arrivals::Arrivals;
use super::plan::Plan;
use super::salts::CacheSharing;
use super::waits::{HumanTime, ToolTime, WaitTotal};
use super::window::Window;
use crate::trace::Run;

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
    /// All to `/v1/completions`.
    Completions,
    /// All to `/v1/responses`.
    Responses,
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
    /// The whole run ends: what is on its way becomes cancelled rows.
    Abort,
}

/// What the requests say.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ContentMode {
    /// The recorded history, byte for byte.
    #[default]
    Recorded,
    /// The engine's own answers take the place of the recorded ones in a thread's later requests.
    Live,
    /// Token ids or text of our own, as many tokens as recorded, in place of every prompt.
    Synthetic,
}

impl ContentMode {
    /// What a reader of the figures must know; nothing of the recorded content.
    pub(super) fn note(self, text: Option<&SyntheticText>) -> Option<String> {
        const NOT_THE_RECORDING: &str = "what was sent is not the recording";
        match (self, text) {
            (Self::Recorded, _) => None,
            (Self::Live, _) => Some(format!(
                "{NOT_THE_RECORDING} (content live): in each thread the engine's own answers take the \
                 place of the recorded ones"
            )),
            (Self::Synthetic, None) => Some(format!(
                "{NOT_THE_RECORDING} (content synthetic): token ids of our own, as many as recorded, to \
                 /v1/completions"
            )),
            (Self::Synthetic, Some(text)) => Some(format!(
                "{NOT_THE_RECORDING} (content synthetic): text of our own, as many tokens as recorded, \
                 of {} words that are a token each by {}; the {} tokens that the engine counts around a \
                 text are among them",
                text.words, text.told_by, text.tokens_around
            )),
        }
    }
}

/// What text of our own was made of.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SyntheticText {
    /// Who told which words are a token each.
    pub told_by: String,
    /// How many words.
    pub words: u64,
    /// Tokens that the engine counts around a text: its chat template, marks of begin and end.
    pub tokens_around: u64,
}

/// Which length the outputs are asked to have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum OutputLengthRule {
    /// That of each recorded output.
    #[default]
    Recorded,
    /// None: the model ends where it ends, within the recorded limit.
    Natural,
    /// The same for every output.
    Tokens(u64),
}

impl OutputLengthRule {
    /// The tokens to ask for; none where the model is to end by itself.
    pub fn target(self, recorded: Option<u64>) -> Option<u64> {
        match self {
            Self::Recorded => recorded,
            Self::Natural => None,
            Self::Tokens(tokens) => Some(tokens),
        }
    }
}

impl FromStr for OutputLengthRule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match (text, text.parse::<u64>()) {
            ("recorded", _) => Ok(Self::Recorded),
            ("natural", _) => Ok(Self::Natural),
            (_, Ok(tokens)) if tokens > 0 => Ok(Self::Tokens(tokens)),
            _ => {
                Err(format!("{text:?} is none of recorded, natural and a number of tokens from 1"))
            }
        }
    }
}

impl TryFrom<String> for OutputLengthRule {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<OutputLengthRule> for String {
    fn from(rule: OutputLengthRule) -> Self {
        match rule {
            OutputLengthRule::Recorded => "recorded".to_owned(),
            OutputLengthRule::Natural => "natural".to_owned(),
            OutputLengthRule::Tokens(tokens) => tokens.to_string(),
        }
    }
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
    /// A request failed, and that was to end it.
    FailedRequest,
    /// More requests failed than were allowed.
    ErrorRate,
}

impl EndedBy {
    /// What a reader must know of a run that its own failures ended.
    pub fn note(self, max_error_rate_pct: Option<f64>) -> Option<String> {
        let why = match self {
            Self::FailedRequest => "a request failed, and that was to end the run".to_owned(),
            Self::ErrorRate => format!(
                "more than {} % of the requests failed",
                max_error_rate_pct.unwrap_or_default()
            ),
            Self::Trajectories | Self::Duration | Self::Enough | Self::Shutdown => return None,
        };
        Some(format!("ended early: {why}; what was on its way was cut off"))
    }
}

/// Where the requests recorded in one API were sent.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ApiRoute {
    /// The API of the recording; `synthetic` where prompts are of our own.
    pub recorded: String,
    /// The API they were sent to.
    pub sent: String,
    /// Whether output lengths are honoured there.
    pub output_length: LengthForcing,
    /// Why that API.
    pub reason: String,
}

/// Which recording was sent again.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TraceIdentity {
    /// Its own run id.
    pub run_id: String,
    /// The name of its directory.
    pub name: String,
    /// Hash of its turns: equal for equal recordings, wherever they lie.
    pub content_hash: String,
}

impl TraceIdentity {
    /// Of a run and the plan made of it.
    pub(super) fn of(run: &Run, plan: &Plan) -> Self {
        let name = run.dir().file_name().map(|name| name.to_string_lossy().into_owned());
        Self {
            run_id: run.manifest().run_id.clone(),
            name: name.unwrap_or_default(),
            content_hash: plan.content_hash.clone(),
        }
    }
}

/// A worker of a run that several made together.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerSetting {
    /// Its number in the tables.
    pub worker: u32,
    /// The machine it ran on.
    pub host: String,
    /// How far its clock was ahead of the run's; taken off its stamps.
    pub clock_offset_ms: f64,
    /// How far that may be off.
    pub clock_error_ms: f64,
    /// Why it was lost, where it was.
    pub lost: Option<String>,
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
    /// Nothing was sent again: agents made each request from what the engine had said.
    pub live_agents: bool,
    /// The recording's text and times are made up.
    pub synthetic_trace: bool,
    /// Which recording was sent.
    pub trace: TraceIdentity,
    /// Agents at work at once; in the open loop the most that there were.
    pub agents: u32,
    /// Open loop: when trajectories arrive. Null: closed loop.
    pub arrivals: Option<Arrivals>,
    /// Open loop: what the arrivals' times were multiplied by.
    pub time_scale: Option<f64>,
    /// Open loop: the cap on agents at work at once.
    pub max_active: Option<u32>,
    /// Open loop: arrivals that were due and found no place before nothing more was started.
    pub not_admitted: Option<u64>,
    /// What the order of sessions and the draws of arrivals were made from; null: recorded order, and
    /// draws from 0.
    pub seed: Option<u64>,
    /// Time after which nothing more is started.
    pub duration_s: Option<f64>,
    /// Trajectories after which nothing more is started.
    pub trajectories: Option<u64>,
    /// Closed loop: time over which the agents are started.
    pub ramp_s: f64,
    /// What a failed request does to its trajectory, or to the run.
    pub on_error: OnError,
    /// Share of failed requests among those that have ended above which the run ends, once enough have.
    pub max_error_rate_pct: Option<f64>,
    /// Attempts at a request beside the first.
    pub max_retries: u32,
    /// The wait before the second attempt, doubled for each further one; half of it or more is waited.
    pub retry_backoff_s: f64,
    /// The longest wait before another attempt, also where the engine asks for a longer one.
    pub retry_backoff_max_s: f64,
    /// Time until there is a connection.
    pub connect_timeout_s: f64,
    /// Time until the first byte of a response's body; none is as long as it takes.
    pub first_byte_timeout_s: Option<f64>,
    /// Time between two pieces of a response.
    pub idle_timeout_s: Option<f64>,
    /// Time from the first attempt's start to the end of a request.
    pub request_timeout_s: Option<f64>,
    /// Turns that are not the agent's work were sent too.
    pub include_utility: bool,
    /// What the requests say.
    pub content: ContentMode,
    /// Synthetic content sent as text: what it was made of. Null: token ids, or other content.
    pub synthetic_text: Option<SyntheticText>,
    /// What became of the waits for tools.
    pub tool_time: ToolTime,
    /// What became of the waits for humans.
    pub human_time: HumanTime,
    /// The waits for tools in one pass over the plan.
    pub tool_waits: WaitTotal,
    /// The waits for humans in one pass over the plan.
    pub human_waits: WaitTotal,
    /// The length that outputs are asked to have.
    pub output_length: OutputLengthRule,
    /// What prompts of different trajectories could share in the engine's cache.
    pub cache_sharing: CacheSharing,
    /// What the run's salts were made of; none where it had none. A run with the same one finds in the
    /// engine's cache what this one left there.
    pub salt: Option<String>,
    /// Trajectories in a pass: they share system prompt and tools where cache sharing is `system`.
    pub trajectories_per_pass: u64,
    /// The run was to be refused where output lengths cannot be pinned.
    pub strict: bool,
    /// The API asked for.
    pub api: ApiChoice,
    /// The API chosen, for each API in the recording.
    pub routes: Vec<ApiRoute>,
    /// The engine ran in the client's own process, whose CPU so holds the engine's; null: not known.
    pub engine_in_process: Option<bool>,
    /// Sessions in the plan.
    pub sessions: u64,
    /// Requests in one pass over the plan.
    pub requests_per_pass: u64,
    /// Recorded turns left out, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// The workers, where several played the agents together.
    pub workers: Vec<WorkerSetting>,
    /// What ended the run.
    pub ended_by: EndedBy,
    /// Where the phases begin and end.
    pub window: Window,
    /// Wall anchor of the run clock, nanoseconds since the Unix epoch.
    pub clock_anchor_ns: i64,
    /// What a reader of the figures must know, a sentence each.
    pub notes: Vec<String>,
}
