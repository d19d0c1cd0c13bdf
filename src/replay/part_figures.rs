//! The figures of one part of a run (its steady state, or all of it): rates, and the statistics of every column.
//!
//! Which requests belong to a part is the caller's to say; the columns' own arithmetic is `measure`'s, percentiles
//! are `statistics`'.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::measure::{from_due_ms, itl_ms, new_prompt_tokens, output_tokens_per_s, token_gaps};
use super::slo::{self, Condition, Metric, Relation};
use super::statistics::Statistic;
use super::summary_counts::{StatusCounts, status_counts};
use crate::trace::record::{RequestRow, RequestStatus};

/// What a service level looks at, failed requests counted as the worst possible value: an engine gets no better
/// by refusing work. Of requests that were answered or failed.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct WithFailures {
    /// 95th percentile of the time to first token; null where none is known, or where failed requests put it
    /// beyond every bound.
    pub ttft_p95_ms: Option<f64>,
    /// 25th percentile of the output speed of a request, tokens/s; null where none is known.
    pub output_tokens_per_s_p25: Option<f64>,
}

/// The figures of a part of the run. Rates are totals over the part's length; null where a figure is
/// unknown for a request or the part has no length.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PartFigures {
    /// Length of the part.
    pub duration_s: Option<f64>,
    /// Requests sent in it.
    pub requests: StatusCounts,
    /// Requests answered whole.
    pub requests_per_s: Option<f64>,
    /// Prompt tokens.
    pub input_tokens_per_s: Option<f64>,
    /// Prompt tokens served from cache.
    pub cached_tokens_per_s: Option<f64>,
    /// Prompt tokens computed.
    pub new_input_tokens_per_s: Option<f64>,
    /// Output tokens.
    pub output_tokens_per_s: Option<f64>,
    /// Every numeric column of `requests`, and what follows from them, by name.
    pub fields: BTreeMap<String, Statistic>,
    /// The same with failed requests as the worst; not there in a summary made before there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub with_failures: Option<WithFailures>,
}

pub(super) type Field = fn(&RequestRow) -> Option<f64>;

fn count(tokens: Option<u64>) -> Option<f64> {
    tokens.map(|tokens| tokens as f64)
}

/// Planned - actual prompt tokens.
fn prompt_tokens_deviation(row: &RequestRow) -> Option<f64> {
    Some(row.planned_prompt_tokens? as f64 - row.prompt_tokens? as f64)
}

/// Columns with one value a request, and what follows from them.
pub(super) const FIELDS: [(&str, Field); 24] = [
    ("ttft_ms", |row| row.ttft_ms),
    ("last_token_ms", |row| row.last_token_ms),
    ("e2e_ms", |row| row.e2e_ms),
    ("ttft_from_due_ms", |row| from_due_ms(row, row.ttft_ms)),
    ("e2e_from_due_ms", |row| from_due_ms(row, row.e2e_ms)),
    ("tpot_ms", |row| row.tpot_ms),
    ("itl_ms", itl_ms),
    ("output_tokens_per_s", output_tokens_per_s),
    ("prompt_tokens", |row| count(row.prompt_tokens)),
    ("cached_tokens", |row| count(row.cached_tokens)),
    ("new_prompt_tokens", |row| count(new_prompt_tokens(row))),
    ("completion_tokens", |row| count(row.completion_tokens)),
    ("planned_prompt_tokens", |row| count(row.planned_prompt_tokens)),
    ("prompt_tokens_deviation", prompt_tokens_deviation),
    ("planned_cached_tokens", |row| count(row.planned_cached_tokens)),
    ("target_output_tokens", |row| count(row.target_output_tokens)),
    ("due_at_ms", |row| Some(row.due_at_ms)),
    ("sent_at_ms", |row| Some(row.sent_at_ms)),
    ("lag_ms", |row| Some(row.lag_ms)),
    ("tool_wait_ms", |row| row.tool_wait_ms),
    ("attempts", |row| Some(f64::from(row.attempts))),
    ("tool_time_ms", |row| row.tool_time_ms),
    ("ttft_reasoning_ms", |row| row.ttft_reasoning_ms),
    ("ttft_visible_ms", |row| row.ttft_visible_ms),
];

fn with_failures(rows: &[&RequestRow]) -> WithFailures {
    let value = |metric, percent, relation| {
        let statistic = slo::Statistic::Percentile(percent);
        let condition = Condition { metric, statistic, relation, bound: 0.0 };
        condition.value(rows).filter(|value| value.is_finite())
    };
    WithFailures {
        ttft_p95_ms: value(Metric::Ttft, 95.0, Relation::AtMost),
        output_tokens_per_s_p25: value(Metric::Speed, 25.0, Relation::AtLeast),
    }
}

pub(super) fn part_figures(rows: &[&RequestRow], duration_s: Option<f64>) -> PartFigures {
    let ok: Vec<&RequestRow> =
        rows.iter().filter(|row| row.status == RequestStatus::Ok).copied().collect();
    let mut fields = BTreeMap::new();
    let mut add = |name: &str, statistic: Option<Statistic>| {
        fields.extend(statistic.map(|statistic| (name.to_owned(), statistic)));
    };
    for (name, field) in FIELDS {
        add(name, Statistic::of(ok.iter().filter_map(|row| field(row))));
    }
    add("chunk_gap_ms", Statistic::of(ok.iter().flat_map(|row| row.chunk_gap_ms.iter().copied())));
    let chunk_tokens = ok.iter().flat_map(|row| row.chunk_tokens.iter().copied());
    add("chunk_tokens", Statistic::of(chunk_tokens.map(f64::from)));
    // Each token counts once, with its chunk's gap over the chunk's tokens.
    add("itl_per_token_ms", Statistic::of_repeated(ok.iter().flat_map(|row| token_gaps(row))));

    let duration_s = duration_s.filter(|duration_s| *duration_s > 0.0);
    let rate = |tokens: &dyn Fn(&RequestRow) -> Option<u64>| {
        let total: Option<u64> = ok.iter().map(|row| tokens(row)).sum();
        Some(total? as f64 / duration_s?)
    };
    PartFigures {
        duration_s,
        requests: status_counts(rows),
        requests_per_s: duration_s.map(|duration_s| ok.len() as f64 / duration_s),
        input_tokens_per_s: rate(&|row| row.prompt_tokens),
        cached_tokens_per_s: rate(&|row| row.cached_tokens),
        new_input_tokens_per_s: rate(&new_prompt_tokens),
        output_tokens_per_s: rate(&|row| row.completion_tokens),
        fields,
        with_failures: Some(with_failures(rows)),
    }
}
