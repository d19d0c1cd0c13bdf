//! The Arrow schema of every table, declared as data, and how each column is stored in Parquet.
//!
//! A table's columns are its record's fields, in order and by name; a test holds the two together.
//! All columns may be null: a file written by an older version lacks the columns added since.

use std::sync::Arc;

use arrow_schema::{DataType, Field, Schema, SchemaRef};
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterPropertiesBuilder};
use parquet::schema::types::ColumnPath;

use super::record::Table;

/// What a column holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Names and short texts that repeat: dictionary.
    Label,
    /// Long or unique texts: no dictionary, no statistics.
    Text,
    Bool,
    F64,
    U16,
    U32,
    U64,
    LabelList,
    I64List,
    U32List,
    F64List,
    /// `record::Attempt`.
    AttemptList,
}

/// The fields of `record::Attempt`.
const ATTEMPT: Columns =
    &[("start_ms", F64), ("end_ms", F64), ("http_status", U16), ("error", Label)];

fn fields(columns: Columns) -> Vec<Field> {
    columns.iter().map(|(name, kind)| Field::new(*name, kind.data_type(), true)).collect()
}

impl Kind {
    fn data_type(self) -> DataType {
        let list = |item| DataType::List(Arc::new(Field::new_list_field(item, true)));
        match self {
            Self::Label | Self::Text => DataType::Utf8,
            Self::Bool => DataType::Boolean,
            Self::F64 => DataType::Float64,
            Self::U16 => DataType::UInt16,
            Self::U32 => DataType::UInt32,
            Self::U64 => DataType::UInt64,
            Self::LabelList => list(DataType::Utf8),
            Self::I64List => list(DataType::Int64),
            Self::U32List => list(DataType::UInt32),
            Self::F64List => list(DataType::Float64),
            Self::AttemptList => list(DataType::Struct(fields(ATTEMPT).into())),
        }
    }
}

use Kind::{
    AttemptList, Bool, F64, F64List, I64List, Label, LabelList, Text, U16, U32, U32List, U64,
};

type Columns = &'static [(&'static str, Kind)];

const TURNS: Columns = &[
    ("run_id", Label),
    ("session_id", Label),
    ("thread_id", Label),
    ("parent_thread_id", Label),
    ("turn", U32),
    ("request_id", Text),
    ("api", Label),
    ("agent", Label),
    ("engine", Label),
    ("kind", Label),
    ("model", Label),
    ("stream", Bool),
    ("path", Label),
    ("params", Label),
    ("n_messages", U32),
    ("n_tools", U32),
    ("unit_hashes", LabelList),
    ("body_template", Text),
    ("block_hashes", LabelList),
    ("block_size", U32),
    ("n_shared_units", U32),
    ("server_history", Label),
    ("changes", LabelList),
    ("request_time", F64),
    ("first_byte_time", F64),
    ("first_output_time", F64),
    ("last_output_time", F64),
    ("response_end_time", F64),
    ("output_offsets_us", I64List),
    ("ttft_ms", F64),
    ("itl_ms_mean", F64),
    ("e2e_ms", F64),
    ("tool_exec_ms", F64),
    ("residual_wait_ms", F64),
    ("http_status", U16),
    ("outcome", Label),
    ("error", Label),
    ("stop_reason", Label),
    ("isl", U64),
    ("isl_cached", U64),
    ("isl_cache_write", U64),
    ("isl_new", U64),
    ("osl", U64),
    ("reasoning_tokens", U64),
    ("isl_new_text", Text),
    ("osl_text", Text),
    ("reply_blocks", Text),
    ("engine_row", U64),
    ("engine_join", Label),
];

const UNITS: Columns =
    &[("hash", Text), ("kind", Label), ("role", Label), ("text", Text), ("n_bytes", U64)];

const TOOL_CALLS: Columns = &[
    ("run_id", Label),
    ("session_id", Label),
    ("thread_id", Label),
    ("turn", U32),
    ("request_id", Text),
    ("index", U32),
    ("call_id", Text),
    ("name", Label),
    ("arguments", Text),
    ("argument_bytes", U64),
    ("emitted_time", F64),
    ("result_time", F64),
    ("wire_ms", F64),
    ("own_ms", F64),
    ("result_bytes", U64),
    ("is_error", Bool),
];

const ENGINE_METRICS: Columns = &[
    ("ts", F64),
    ("window_end", F64),
    ("engine", Label),
    ("n", U64),
    ("isl", F64),
    ("osl", F64),
    ("isl_new", F64),
    ("prefill_ms", F64),
    ("decode_ms", F64),
    ("queue_ms", F64),
    ("itl_ms", F64),
    ("e2e_ms", F64),
    ("stop_reason", Label),
    ("kv_cache_usage_pct_peak", F64),
    ("prefix_cache_hits", U64),
    ("external_prefix_cache_hits", U64),
    ("prompt_tokens_by_source", Label),
    ("counter_reset", Bool),
    ("scrapes_missed", U64),
];

const ENGINE_SAMPLES: Columns = &[
    ("ts", F64),
    ("due", F64),
    ("scrape_ms", F64),
    ("engine", Label),
    ("error", Label),
    ("running", F64),
    ("waiting", F64),
    ("kv_cache_usage_pct", F64),
    ("requests_total", F64),
    ("prompt_tokens_total", F64),
    ("generation_tokens_total", F64),
    ("cached_tokens_total", F64),
    ("external_cached_tokens_total", F64),
    ("preemptions_total", F64),
    ("ttft_sum", F64),
    ("ttft_count", F64),
    ("queue_sum", F64),
    ("prefill_sum", F64),
    ("decode_sum", F64),
    ("e2e_sum", F64),
    ("request_count", F64),
];

const POWER: Columns = &[
    ("ts", F64),
    ("due", F64),
    ("device_ts", F64),
    ("source", Label),
    ("device", Label),
    ("power_w", F64),
    ("power_avg_w", F64),
    ("energy_j", F64),
    ("utilization_pct", F64),
    ("memory_used_bytes", U64),
    ("sm_clock_mhz", U32),
];

const REQUESTS: Columns = &[
    ("trajectory_id", Label),
    ("agent_id", U32),
    ("worker", U32),
    ("invocation", U32),
    ("session_id", Label),
    ("thread_id", Label),
    ("turn", U32),
    ("source_request_id", Label),
    ("api", Label),
    ("due_at_ms", F64),
    ("sent_at_ms", F64),
    ("lag_ms", F64),
    ("tool_wait_ms", F64),
    ("ttft_ms", F64),
    ("last_token_ms", F64),
    ("e2e_ms", F64),
    ("tpot_ms", F64),
    ("chunk_gap_ms", F64List),
    ("chunk_tokens", U32List),
    ("prompt_tokens", U64),
    ("completion_tokens", U64),
    ("cached_tokens", U64),
    ("planned_prompt_tokens", U64),
    ("planned_cached_tokens", U64),
    ("target_output_tokens", U64),
    ("output_length", Label),
    ("attempts", U32),
    ("attempt_log", AttemptList),
    ("status", Label),
    ("error", Label),
    ("http_status", U16),
    ("stop_reason", Label),
    ("phase", Label),
    ("level", U32),
    ("live_answers", U32),
    ("recorded_answers", U32),
    ("live_results_as_text", U32),
    ("live_calls_unanswered", U32),
    ("live_results_of_other_tools", U32),
    ("live_arguments_malformed", U32),
    ("tool_time_ms", F64),
    ("ttft_reasoning_ms", F64),
    ("ttft_visible_ms", F64),
    ("finish_reason", Label),
];

const TRAJECTORIES: Columns = &[
    ("trajectory_id", Label),
    ("agent_id", U32),
    ("worker", U32),
    ("invocation", U32),
    ("session_id", Label),
    ("due_at_ms", F64),
    ("admission_wait_ms", F64),
    ("start_ms", F64),
    ("end_ms", F64),
    ("n_planned", U32),
    ("n_sent", U32),
    ("n_failed", U32),
    ("completed", Bool),
    ("prompt_tokens", U64),
    ("completion_tokens", U64),
    ("tool_wait_ms", F64),
    ("level", U32),
    ("task_id", Label),
    ("outcome", Label),
    ("claimed", Bool),
    ("check_passed", Bool),
    ("check_note", Label),
    ("steps", U32),
    ("tool_calls", U32),
    ("tool_errors", U32),
    ("malformed_calls", U32),
];

const LEVELS: Columns = &[
    ("level", U32),
    ("agents", U32),
    ("start_ms", F64),
    ("end_ms", F64),
    ("n_requests", U64),
    ("n_failed", U64),
    ("n_trajectories", U64),
    ("n_steady_trajectories", U64),
    ("output_tokens_per_s", F64),
    ("mean_power_w", F64),
    ("energy_j", F64),
    ("power_reason", Label),
    ("agents_within_pct", F64),
    ("worst_agent", U32),
    ("worst_agent_values", Text),
    ("cache_reset", Bool),
    ("client_limited", Bool),
    ("unseen_output_pct", F64),
    ("speed_overstated", Bool),
    ("verdict", Label),
    ("reason", Label),
    ("values", Text),
];

const CLIENT_SAMPLES: Columns = &[
    ("ts", F64),
    ("due", F64),
    ("cpu_s", F64),
    ("cores", U64),
    ("timer_lag_ms", F64List),
    ("open_sockets", U64),
    ("open_files", U64),
    ("open_files_limit", U64),
    ("level", U32),
    ("worker", U32),
];

fn columns(table: Table) -> Columns {
    match table {
        Table::Turns => TURNS,
        Table::Units => UNITS,
        Table::ToolCalls => TOOL_CALLS,
        Table::EngineMetrics => ENGINE_METRICS,
        Table::EngineSamples => ENGINE_SAMPLES,
        Table::Power => POWER,
        Table::Requests => REQUESTS,
        Table::Trajectories => TRAJECTORIES,
        Table::Levels => LEVELS,
        Table::ClientSamples => CLIENT_SAMPLES,
    }
}

/// The full schema of a table.
pub fn schema(table: Table) -> SchemaRef {
    Arc::new(Schema::new(fields(columns(table))))
}

/// The schema of some of a table's columns, in the table's order; names that it lacks are left out.
pub fn schema_of_columns(table: Table, names: &[&str]) -> SchemaRef {
    let fields: Vec<Field> = columns(table)
        .iter()
        .filter(|(name, _)| names.contains(name))
        .map(|(name, kind)| Field::new(*name, kind.data_type(), true))
        .collect();
    Arc::new(Schema::new(fields))
}

/// How a table's Parquet file is written: zstd throughout; pages of 1 MiB, since a page is the unit
/// that readers hold whole; row groups are closed by `parquet_file` when their buffers are full.
pub(super) fn writer_properties(table: Table) -> WriterProperties {
    let mut builder = WriterProperties::builder()
        .set_compression(Compression::ZSTD(ZstdLevel::default()))
        .set_data_page_size_limit(1 << 20)
        .set_dictionary_page_size_limit(1 << 20)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_created_by(concat!("agentbench ", env!("CARGO_PKG_VERSION")).to_owned());
    for (name, kind) in columns(table) {
        match kind {
            Text => builder = plain_text(builder, name),
            // Times and amounts hardly repeat: a dictionary of them is as long as they are.
            F64 => builder = builder.set_column_dictionary_enabled(ColumnPath::from(*name), false),
            _ => {}
        }
    }
    builder.build()
}

/// Texts that hardly repeat gain nothing from a dictionary, and their extremes say nothing.
fn plain_text(builder: WriterPropertiesBuilder, name: &str) -> WriterPropertiesBuilder {
    let path = ColumnPath::from(name);
    builder
        .set_column_dictionary_enabled(path.clone(), false)
        .set_column_statistics_enabled(path, EnabledStatistics::None)
}
