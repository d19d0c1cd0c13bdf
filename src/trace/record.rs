//! The rows of every table in a run directory, as plain serde structs.
//!
//! A row's fields are its table's columns, by name; `schema.rs` gives each column its Arrow type. No
//! row computes anything: whoever measured a value writes it, and what was not measured is `None`,
//! never 0. Every field has a default, so that a file of an older version and a projection to some
//! columns read as rows too; a column added later must therefore be an `Option`. Wall times (`*_time`, `ts`) are seconds since the Unix epoch; `*_ms` are durations, or
//! times on the run clock where the doc says so.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::api::Unit;

/// The tables of a run directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Table {
    /// One row per API request captured.
    Turns,
    /// Every distinct unit once.
    Units,
    /// One row per tool call.
    ToolCalls,
    /// One row per polling tick in which at least one request completed.
    EngineMetrics,
    /// Every poll.
    EngineSamples,
    /// One row per device per sample.
    Power,
    /// Replay: one row per request sent.
    Requests,
    /// Replay: one row per trajectory an agent worked through.
    Trajectories,
    /// Capacity: one row per number of agents tried.
    Levels,
    /// Replay: what the client saw of itself, each half second.
    ClientSamples,
}

impl Table {
    /// All tables, in the order in which a run directory lists them.
    pub const ALL: [Self; 10] = [
        Self::Turns,
        Self::Units,
        Self::ToolCalls,
        Self::EngineMetrics,
        Self::EngineSamples,
        Self::Power,
        Self::Requests,
        Self::Trajectories,
        Self::Levels,
        Self::ClientSamples,
    ];

    /// The file's stem: `<stem>.parquet`, and `<stem>.journal.jsonl` while the run goes.
    pub fn stem(self) -> &'static str {
        match self {
            Self::Turns => "turn_traces",
            Self::Units => "messages",
            Self::ToolCalls => "tool_calls",
            Self::EngineMetrics => "engine_metrics",
            Self::EngineSamples => "engine_samples",
            Self::Power => "power",
            Self::Requests => "requests",
            Self::Trajectories => "trajectories",
            Self::Levels => "levels",
            Self::ClientSamples => "client_samples",
        }
    }
}

/// A row that belongs to one table.
pub trait Record: Serialize + DeserializeOwned + Send + 'static {
    /// The table whose columns are this row's fields.
    const TABLE: Table;
}

macro_rules! records {
    ($($row:ident => $table:ident),* $(,)?) => {
        $(impl Record for $row { const TABLE: Table = Table::$table; })*

        /// A row of any table, on its way to the writer.
        #[derive(Debug, Clone)]
        #[allow(clippy::large_enum_variant)] // the large ones are boxed
        pub enum Row { $(#[doc = concat!("A row of `", stringify!($table), "`.")] $table(Box<$row>)),* }

        $(impl From<$row> for Row { fn from(row: $row) -> Self { Row::$table(Box::new(row)) } })*

        impl Row {
            /// The table this row belongs to.
            pub fn table(&self) -> Table {
                match self { $(Row::$table(_) => Table::$table),* }
            }
        }
    };
}

records! {
    TurnRow => Turns,
    UnitRow => Units,
    ToolCallRow => ToolCalls,
    EngineMetricsRow => EngineMetrics,
    EngineSampleRow => EngineSamples,
    PowerRow => Power,
    RequestRow => Requests,
    TrajectoryRow => Trajectories,
    LevelRow => Levels,
    ClientSampleRow => ClientSamples,
}

/// What a turn is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum TurnKind {
    /// The agent's own conversation.
    #[default]
    Main,
    /// A conversation that another one started.
    Subagent,
    /// Not the agent's work: titles, summaries, quota checks.
    Utility,
}

/// How a captured request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Answered whole.
    #[default]
    Ok,
    /// The engine answered with a status of 400 or above.
    HttpError,
    /// No answer, or an error event inside the stream.
    UpstreamError,
    /// The client went away first.
    ClientCancelled,
    /// The stream broke before its end.
    Truncated,
}

/// Whether what the server keeps of a prompt is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerHistory {
    /// The response that the request goes on from was recorded: the units are the whole prompt.
    Followed,
    /// It was not: the units are only what the request says itself.
    Unknown,
}

/// How sure the link from a turn to a row of `engine_metrics` is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum EngineJoin {
    /// The tick has one completion and its token counts are this turn's.
    Exact,
    /// The tick has several completions, this turn's among them by time.
    Shared,
    /// No tick fits.
    #[default]
    None,
}

/// One API request as it was captured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct TurnRow {
    /// The run.
    pub run_id: String,
    /// The agent's session.
    pub session_id: String,
    /// The growing conversation within the session.
    pub thread_id: String,
    /// The conversation that started this one.
    pub parent_thread_id: Option<String>,
    /// Index of this turn in its thread, from 0.
    pub turn: u32,
    /// Unique in the run.
    pub request_id: String,
    /// `messages`, `chat`, `completions` or `responses`: what the agent spoke.
    pub api: String,
    /// The coding agent, as far as the wire tells (`claude-code`, …).
    pub agent: Option<String>,
    /// The engine that it went to, by the name that its rows of `engine_metrics` bear.
    pub engine: Option<String>,
    /// What the turn is for.
    pub kind: TurnKind,
    /// The model asked for; under `--model` the one that the engine was asked for.
    pub model: Option<String>,
    /// Whether a stream was asked for.
    pub stream: bool,
    /// Path and query as sent, secrets masked.
    pub path: String,
    /// Every top-level request field that is not a unit, as a JSON object.
    pub params: String,
    /// Messages in the prompt; of `responses` the input items, of `completions` none.
    pub n_messages: u32,
    /// Tools offered in the request.
    pub n_tools: u32,
    /// Units in prompt order (system, tools, messages; the pieces of a raw prompt), by content hash.
    pub unit_hashes: Vec<String>,
    /// The body with its units cut out; `api::rebuild_body` puts them back byte for byte.
    pub body_template: String,
    /// Hashes of the prompt's blocks of tokens, in order, for recordings that hold these in place of
    /// text: equal hashes are equal tokens after equal tokens. The last block may be cut by `isl`.
    pub block_hashes: Option<Vec<String>>,
    /// Tokens in a block.
    pub block_size: Option<u32>,
    /// Leading units (prompt order) shared with the previous turn of the thread.
    pub n_shared_units: u32,
    /// Null where the request tells its whole prompt. Of one that goes on from what the server keeps
    /// (`previous_response_id`): `followed` where that was recorded too and the units are the whole
    /// prompt, `unknown` where not.
    pub server_history: Option<ServerHistory>,
    /// What the proxy's switches changed of this request, by name: `rerole_system`,
    /// `strip_billing_header`, `cap_max_tokens` (with a budget of thinking that no longer fits), `model`, `convert_chat` (sent to the engine over Chat; prompt
    /// and reply stand here as the agent's Messages), `answered_locally` (a title that no engine was asked for: its
    /// counts and latencies are null, and summaries and replays leave it out). Null where nothing was changed. Prompt and parameters of
    /// this row are those that the engine was given.
    pub changes: Option<Vec<String>>,
    /// Arrival of the request at the proxy.
    pub request_time: f64,
    /// First byte of the response's body.
    pub first_byte_time: Option<f64>,
    /// First chunk that carries output.
    pub first_output_time: Option<f64>,
    /// Last chunk that carries output.
    pub last_output_time: Option<f64>,
    /// Last byte of the response, or the moment it broke.
    pub response_end_time: Option<f64>,
    /// Output chunks, microseconds after `request_time`.
    pub output_offsets_us: Vec<i64>,
    /// `first_output_time` - `request_time`; null for a response that did not stream.
    pub ttft_ms: Option<f64>,
    /// (last output - first output) / (osl - 1).
    pub itl_ms_mean: Option<f64>,
    /// `response_end_time` - `request_time`.
    pub e2e_ms: Option<f64>,
    /// End of the previous response of the thread to the arrival of this request.
    pub tool_exec_ms: Option<f64>,
    /// End of the last child thread's response to the arrival of this request, where children ran.
    pub residual_wait_ms: Option<f64>,
    /// Status of the response; null when none came.
    pub http_status: Option<u16>,
    /// How it ended.
    pub outcome: Outcome,
    /// What went wrong, in words.
    pub error: Option<String>,
    /// Why generation stopped, as the API says it.
    pub stop_reason: Option<String>,
    /// Prompt tokens, from the response's usage.
    pub isl: Option<u64>,
    /// Prompt tokens served from cache, from usage.
    pub isl_cached: Option<u64>,
    /// Prompt tokens written to cache, from usage.
    pub isl_cache_write: Option<u64>,
    /// Prompt tokens computed: `isl` - `isl_cached`, null where usage does not tell.
    pub isl_new: Option<u64>,
    /// Output tokens, from usage.
    pub osl: Option<u64>,
    /// Reasoning tokens within `osl`, from usage.
    pub reasoning_tokens: Option<u64>,
    /// Text of the units after the shared run.
    pub isl_new_text: String,
    /// What the model generated, as text in order: reasoning, text, tool calls as JSON lines.
    pub osl_text: String,
    /// The reply's blocks as a JSON list of `api::ReplyBlock`.
    pub reply_blocks: String,
    /// Index of the row of `engine_metrics` that this turn belongs to.
    pub engine_row: Option<u64>,
    /// How sure that link is.
    pub engine_join: EngineJoin,
}

impl TurnRow {
    /// Among `changes`: the proxy answered by itself.
    pub const ANSWERED_LOCALLY: &'static str = "answered_locally";

    /// No engine was asked: nothing of the row is an engine's.
    pub fn is_answered_locally(&self) -> bool {
        self.changes.iter().flatten().any(|change| change == Self::ANSWERED_LOCALLY)
    }
}

/// One distinct unit of a prompt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct UnitRow {
    /// Hex of the first 128 bits of SHA-256 over `text`.
    pub hash: String,
    /// `system`, `tool`, `message`, `prompt` (a piece of a raw prompt: the pieces one after another are
    /// its JSON) or `raw` (a body that could not be parsed).
    pub kind: String,
    /// The message's role; empty for other kinds.
    pub role: String,
    /// The unit's JSON as sent, less `cache_control` marks. Bodies that are not UTF-8: base64.
    pub text: String,
    /// Length of `text`.
    pub n_bytes: u64,
}

impl From<&Unit<'_>> for UnitRow {
    fn from(unit: &Unit<'_>) -> Self {
        Self {
            hash: unit.hash.hex(),
            kind: unit.kind.as_str().to_owned(),
            role: unit.role.to_string(),
            n_bytes: unit.text.len() as u64,
            text: unit.text.to_string(),
        }
    }
}

/// One tool call that a model made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ToolCallRow {
    /// The run.
    pub run_id: String,
    /// The agent's session.
    pub session_id: String,
    /// The thread that asked.
    pub thread_id: String,
    /// The turn that asked.
    pub turn: u32,
    /// The request whose reply made the call.
    pub request_id: String,
    /// Position among the reply's calls.
    pub index: u32,
    /// The call's id on the wire.
    pub call_id: String,
    /// The tool.
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
    /// Length of `arguments`.
    pub argument_bytes: u64,
    /// End of the response that made the call.
    pub emitted_time: f64,
    /// Arrival of the request that brought the result.
    pub result_time: Option<f64>,
    /// `result_time` - `emitted_time`.
    pub wire_ms: Option<f64>,
    /// The tool's own time, where the agent tells it.
    pub own_ms: Option<f64>,
    /// Length of the result's text; in a redacted run with its masks.
    pub result_bytes: Option<u64>,
    /// Whether the agent marked the result as an error; null without a result, and in APIs that have no such mark.
    pub is_error: Option<bool>,
}

/// What the engine's counters said about the requests that completed in one tick.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct EngineMetricsRow {
    /// The scrape in which the completion was seen (stamped before it was sent).
    pub ts: f64,
    /// End of that scrape.
    pub window_end: f64,
    /// The engine's address: the name that its turns bear.
    pub engine: String,
    /// Requests that completed.
    pub n: u64,
    /// Mean prompt tokens.
    pub isl: Option<f64>,
    /// Mean output tokens.
    pub osl: Option<f64>,
    /// Mean prompt tokens computed.
    pub isl_new: Option<f64>,
    /// Mean prefill time.
    pub prefill_ms: Option<f64>,
    /// Mean decode time.
    pub decode_ms: Option<f64>,
    /// Mean time in the queue.
    pub queue_ms: Option<f64>,
    /// Mean time per output token after the first.
    pub itl_ms: Option<f64>,
    /// Mean end-to-end latency.
    pub e2e_ms: Option<f64>,
    /// Completions per reason, as a JSON object.
    pub stop_reason: String,
    /// Highest KV-cache use since the last completion, in percent.
    pub kv_cache_usage_pct_peak: Option<f64>,
    /// Prompt tokens served from the local prefix cache since the last completion.
    pub prefix_cache_hits: Option<u64>,
    /// The same from an external cache.
    pub external_prefix_cache_hits: Option<u64>,
    /// Prompt tokens by where they came from since the last completion, as a JSON object in the engine's own
    /// words (vLLM: computed, local and external cache; `SGLang`: of the cached ones device, host, storage); null
    /// where it does not tell them apart.
    pub prompt_tokens_by_source: Option<String>,
    /// A counter went back: the engine restarted and deltas start from 0.
    pub counter_reset: bool,
    /// Scrapes that failed since the last completion.
    pub scrapes_missed: u64,
}

/// One poll of the metrics page.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct EngineSampleRow {
    /// When the scrape started.
    pub ts: f64,
    /// When it was due.
    pub due: f64,
    /// How long it took.
    pub scrape_ms: Option<f64>,
    /// The engine's address: the name that its turns bear.
    pub engine: String,
    /// Why there are no values.
    pub error: Option<String>,
    /// Requests running.
    pub running: Option<f64>,
    /// Requests waiting.
    pub waiting: Option<f64>,
    /// KV-cache use in percent.
    pub kv_cache_usage_pct: Option<f64>,
    /// Completed requests so far, all reasons.
    pub requests_total: Option<f64>,
    /// Prompt tokens so far.
    pub prompt_tokens_total: Option<f64>,
    /// Output tokens so far.
    pub generation_tokens_total: Option<f64>,
    /// Prompt tokens served from the local cache so far.
    pub cached_tokens_total: Option<f64>,
    /// Prompt tokens served from an external cache so far.
    pub external_cached_tokens_total: Option<f64>,
    /// Preemptions so far.
    pub preemptions_total: Option<f64>,
    /// Sums of the engine's histograms so far, seconds.
    pub ttft_sum: Option<f64>,
    /// Number of observations behind `ttft_sum`.
    pub ttft_count: Option<f64>,
    /// Queue time so far, seconds.
    pub queue_sum: Option<f64>,
    /// Prefill time so far, seconds.
    pub prefill_sum: Option<f64>,
    /// Decode time so far, seconds.
    pub decode_sum: Option<f64>,
    /// End-to-end time so far, seconds.
    pub e2e_sum: Option<f64>,
    /// Number of observations behind the request histograms.
    pub request_count: Option<f64>,
}

/// One power sample of one device.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct PowerRow {
    /// When the sample was read.
    pub ts: f64,
    /// When it was due.
    pub due: f64,
    /// When the device took it by its own account, where it tells.
    pub device_ts: Option<f64>,
    /// `nvml`, `dcgm`, `rapl` or `constant`.
    pub source: String,
    /// The device's UUID or name.
    pub device: String,
    /// Instant power.
    pub power_w: Option<f64>,
    /// Power averaged by the device.
    pub power_avg_w: Option<f64>,
    /// The device's energy counter.
    pub energy_j: Option<f64>,
    /// Use of the device's compute units in percent.
    pub utilization_pct: Option<f64>,
    /// Device memory in use.
    pub memory_used_bytes: Option<u64>,
    /// Compute clock.
    pub sm_clock_mhz: Option<u32>,
}

/// How a replayed request ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum RequestStatus {
    /// Answered whole.
    #[default]
    Ok,
    /// Status of 400 or above, a broken stream, an error event, or no answer.
    Failed,
    /// The run, or a live agent's time for its task, ended before the answer did.
    Cancelled,
}

/// Whether the output has the length that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum OutputLength {
    /// Within min(5 %, 50 tokens) of the target.
    Ok,
    /// Shorter.
    Short,
    /// Longer.
    Long,
    /// No target or no usage to check it by.
    #[default]
    Unverified,
}

/// The part of a run in which a request was sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, Default)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Agents are still being started. Where nothing is told yet, nothing is more than that.
    #[default]
    Ramp,
    /// Until every agent has finished its first turn.
    Warmup,
    /// Every agent at work.
    Steady,
    /// An agent has nothing left to start.
    Tail,
}

/// One attempt at a request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct Attempt {
    /// Its start, from `sent_at_ms`.
    pub start_ms: f64,
    /// Its end, from `sent_at_ms`.
    pub end_ms: f64,
    /// Status of its response; null when none came.
    pub http_status: Option<u16>,
    /// What went wrong, in words; null in the one that was answered whole or cut off.
    pub error: Option<String>,
}

/// One request sent by a replay or a live agent. All `*_ms` times are on the run clock or from the first attempt's
/// start, as each field says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct RequestRow {
    /// The trajectory (one play of one session).
    pub trajectory_id: String,
    /// The agent that worked on it, from 0.
    pub agent_id: u32,
    /// The worker that the agent belonged to, from 0; null where one process played all of them.
    pub worker: Option<u32>,
    /// How many trajectories this agent had worked on before.
    pub invocation: u32,
    /// The recorded session.
    pub session_id: String,
    /// The recorded thread.
    pub thread_id: String,
    /// Index of the turn in its thread.
    pub turn: u32,
    /// The recorded request.
    pub source_request_id: String,
    /// The API it was sent to.
    pub api: String,
    /// When it was due, on the run clock.
    pub due_at_ms: f64,
    /// Start of the first attempt, on the run clock.
    pub sent_at_ms: f64,
    /// `sent_at_ms` - `due_at_ms`.
    pub lag_ms: f64,
    /// The wait before it, as replayed: for tools, or for a human.
    pub tool_wait_ms: Option<f64>,
    /// First chunk with output, from `sent_at_ms`.
    pub ttft_ms: Option<f64>,
    /// Last chunk with output, from `sent_at_ms`.
    pub last_token_ms: Option<f64>,
    /// End of the stream, from `sent_at_ms`.
    pub e2e_ms: Option<f64>,
    /// (`last_token_ms` - `ttft_ms`) / (`completion_tokens` - 1), from 2 tokens.
    pub tpot_ms: Option<f64>,
    /// Gaps between output chunks.
    pub chunk_gap_ms: Vec<f64>,
    /// Output tokens in each output chunk, where the engine tells them; else empty.
    pub chunk_tokens: Vec<u32>,
    /// Prompt tokens, from usage.
    pub prompt_tokens: Option<u64>,
    /// Output tokens, from usage.
    pub completion_tokens: Option<u64>,
    /// Prompt tokens served from cache, from usage; null where it has none.
    pub cached_tokens: Option<u64>,
    /// Prompt tokens of the recording.
    pub planned_prompt_tokens: Option<u64>,
    /// Recorded prompt tokens that were in the engine's cache by plan: shared with what its thread, and as far
    /// as cache sharing lets it others, had sent before.
    pub planned_cached_tokens: Option<u64>,
    /// Output tokens asked for.
    pub target_output_tokens: Option<u64>,
    /// Whether that many came.
    pub output_length: OutputLength,
    /// Attempts made; 0 where the request could not even be made.
    pub attempts: u32,
    /// Every attempt, in order: the first starts at 0, the last ends at `e2e_ms` unless the run ended
    /// during the wait for another.
    pub attempt_log: Vec<Attempt>,
    /// How it ended.
    pub status: RequestStatus,
    /// What went wrong, in words.
    pub error: Option<String>,
    /// Status of the last attempt; null when no response came.
    pub http_status: Option<u16>,
    /// Why generation stopped.
    pub stop_reason: Option<String>,
    /// The part of the run in which it was sent.
    pub phase: Phase,
    /// Capacity: the level in which it was sent.
    pub level: Option<u32>,
    /// Live content: answers in this request's history that are the engine's own; null otherwise.
    pub live_answers: Option<u32>,
    /// Live content: answers in this request's history that are the recorded ones, because the request
    /// before failed or the recording edited its history.
    pub recorded_answers: Option<u32>,
    /// Live content, here and below of the answer that is new in the history: recorded tool results
    /// that it has no call for, sent as user text.
    pub live_results_as_text: Option<u32>,
    /// Its calls that the recording has no result for, sent with an error result.
    pub live_calls_unanswered: Option<u32>,
    /// Recorded results that stand after a call of another tool.
    pub live_results_of_other_tools: Option<u32>,
    /// Its calls whose arguments are no JSON object, sent as an object that holds their text.
    pub live_arguments_malformed: Option<u32>,
    /// Live agents: how long the tools ran whose results this request brings, from the first one's start to
    /// the last one's end; null where it brings none.
    pub tool_time_ms: Option<f64>,
    /// First chunk with reasoning, from `sent_at_ms`; null where none came.
    pub ttft_reasoning_ms: Option<f64>,
    /// First chunk with text or a tool call, from `sent_at_ms`; null where none came.
    pub ttft_visible_ms: Option<f64>,
    /// `stop_reason` in one vocabulary whatever the API: `stop`, `length`, `tool_calls`, `content_filter`;
    /// what is none of these as the API says it.
    pub finish_reason: Option<String>,
}

/// One play of one recorded session by one agent.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct TrajectoryRow {
    /// Unique in the run.
    pub trajectory_id: String,
    /// The agent.
    pub agent_id: u32,
    /// The worker that the agent belonged to, from 0; null where one process played all of them.
    pub worker: Option<u32>,
    /// How many it had worked on before.
    pub invocation: u32,
    /// The recorded session.
    pub session_id: String,
    /// When it was due to begin, on the run clock: in the open loop its arrival.
    pub due_at_ms: Option<f64>,
    /// Open loop with a cap on active agents: how long it waited for a place, 0 where one was free.
    pub admission_wait_ms: Option<f64>,
    /// When an agent took it up, on the run clock.
    pub start_ms: f64,
    /// End of the last response, on the run clock.
    pub end_ms: Option<f64>,
    /// Requests planned; of a live agent, which plans none, those sent.
    pub n_planned: u32,
    /// Requests sent.
    pub n_sent: u32,
    /// Requests that failed.
    pub n_failed: u32,
    /// Whether every planned request was answered whole.
    pub completed: bool,
    /// Prompt tokens, summed.
    pub prompt_tokens: u64,
    /// Output tokens, summed.
    pub completion_tokens: u64,
    /// Tool waits, summed; of a live agent the time of its tools.
    pub tool_wait_ms: f64,
    /// Capacity: the level.
    pub level: Option<u32>,
    /// Live agents: the task.
    pub task_id: Option<String>,
    /// Live agents: what ended the work: `done` (the model said so), `max_steps`, `time_limit`,
    /// `failed_request`, `failed_tool` (the place of work broke) or `cancelled`.
    pub outcome: Option<String>,
    /// Live agents: the model ended its work by itself.
    pub claimed: Option<bool>,
    /// Live agents: what the task's check said; null where the task has none, or it could not run.
    pub check_passed: Option<bool>,
    /// Live agents: why the check did not pass, or did not run.
    pub check_note: Option<String>,
    /// Live agents: answers that the model gave.
    pub steps: Option<u32>,
    /// Live agents: tools that it called, malformed calls included.
    pub tool_calls: Option<u32>,
    /// Live agents: calls that came back as an error, malformed ones apart.
    pub tool_errors: Option<u32>,
    /// Live agents: calls of a tool that is not offered, or with arguments that do not fit it.
    pub malformed_calls: Option<u32>,
}

/// One number of agents tried by a capacity search.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct LevelRow {
    /// Index of the level in the order tried.
    pub level: u32,
    /// Concurrent agents.
    pub agents: u32,
    /// Start of its steady window, on the run clock.
    pub start_ms: Option<f64>,
    /// End of its steady window, on the run clock.
    pub end_ms: Option<f64>,
    /// Requests sent in the steady window that were answered or failed: what is judged.
    pub n_requests: u64,
    /// Those that failed.
    pub n_failed: u64,
    /// Trajectories of the level that were completed or ended with a failure.
    pub n_trajectories: u64,
    /// Trajectories completed within the steady window.
    pub n_steady_trajectories: u64,
    /// Output tokens of the judged requests over the steady window's length.
    pub output_tokens_per_s: Option<f64>,
    /// Mean power of the devices that serve in the steady window, times the power usage effectiveness.
    pub mean_power_w: Option<f64>,
    /// Their energy in it.
    pub energy_j: Option<f64>,
    /// Why there is no power figure.
    pub power_reason: Option<String>,
    /// Share of the agents whose own requests meet every condition.
    pub agents_within_pct: Option<f64>,
    /// The agent that is furthest from meeting a condition, or nearest to missing one.
    pub worst_agent: Option<u32>,
    /// Value of every condition's statistic over that agent's own requests, as a JSON object.
    pub worst_agent_values: Option<String>,
    /// The engine's cache was emptied before it.
    pub cache_reset: bool,
    /// The client was the bottleneck; null where it was not watched for long enough to tell.
    pub client_limited: Option<bool>,
    /// Share of the judged responses' time that comes after their last chunk with output.
    pub unseen_output_pct: Option<f64>,
    /// That share is above 10 %, so that conditions on `tpot` and `speed` count tokens whose time they do
    /// not see, and are judged too well. Null: no such condition, or the share is not known.
    pub speed_overstated: Option<bool>,
    /// `pass`, `fail` or `invalid`.
    pub verdict: String,
    /// Why, in words.
    pub reason: Option<String>,
    /// Value of every condition's statistic, by its text, as a JSON object. Null: no request has the
    /// value, or failed requests put it beyond every bound.
    pub values: String,
}

/// What a replay saw of its own process, each half second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, Default)]
#[serde(default)]
pub struct ClientSampleRow {
    /// When it was taken.
    pub ts: f64,
    /// When it was due.
    pub due: f64,
    /// CPU time of the process so far, all its threads.
    pub cpu_s: Option<f64>,
    /// Cores that it may use, by affinity and control group.
    pub cores: Option<u64>,
    /// By how much each tick of 10 ms since the sample before was late, on the runtime that sends; one that
    /// was missed counts with its own lateness.
    pub timer_lag_ms: Vec<f64>,
    /// Sockets open.
    pub open_sockets: Option<u64>,
    /// Files open, sockets included.
    pub open_files: Option<u64>,
    /// Files that it may open.
    pub open_files_limit: Option<u64>,
    /// Capacity: the level.
    pub level: Option<u32>,
    /// The worker whose process it is, from 0; null where one process played all agents.
    pub worker: Option<u32>,
}
