//! Requests, output lengths, trajectories and errors of a run, counted by how they came out.
//!
//! What follows from the counts (whether a run failed, what a reader must know) is `summary`'s and `summary_notes`'.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::measure::failure_kind;
use crate::trace::record::{OutputLength, Phase, RequestRow, RequestStatus, TrajectoryRow};

/// Requests by how they ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatusCounts {
    /// All requests sent.
    pub sent: u64,
    /// Answered whole.
    pub ok: u64,
    /// Failed.
    pub failed: u64,
    /// Cut off by the end of the run.
    pub cancelled: u64,
}

/// Requests by whether their output had the length asked for.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LengthCounts {
    /// Within min(5 %, 50 tokens) of the target.
    pub ok: u64,
    /// Shorter.
    pub short: u64,
    /// Longer.
    pub long: u64,
    /// No target, or no usage to check it by.
    pub unverified: u64,
}

/// Trajectories by how they ended.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct TrajectoryCounts {
    /// Begun.
    pub started: u64,
    /// Every planned request answered whole.
    pub completed: u64,
    /// Stopped before or with a failure, or by the end of the run.
    pub incomplete: u64,
}

/// Errors of one kind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ErrorCount {
    /// The text before the first colon: `http 500`, `connect`, `broken stream`, …
    pub kind: String,
    /// Requests that failed so.
    pub n: u64,
    /// The first such error, whole.
    pub example: String,
}

pub(super) fn status_counts(rows: &[&RequestRow]) -> StatusCounts {
    let count = |status| rows.iter().filter(|row| row.status == status).count() as u64;
    StatusCounts {
        sent: rows.len() as u64,
        ok: count(RequestStatus::Ok),
        failed: count(RequestStatus::Failed),
        cancelled: count(RequestStatus::Cancelled),
    }
}

pub(super) fn trajectory_counts(rows: &[TrajectoryRow]) -> TrajectoryCounts {
    let completed = rows.iter().filter(|row| row.completed).count() as u64;
    let started = rows.len() as u64;
    TrajectoryCounts { started, completed, incomplete: started - completed }
}

pub(super) fn phases(rows: &[RequestRow]) -> BTreeMap<String, u64> {
    let mut phases = BTreeMap::new();
    for row in rows {
        let name = match row.phase {
            Phase::Ramp => "ramp",
            Phase::Warmup => "warmup",
            Phase::Steady => "steady",
            Phase::Tail => "tail",
        };
        *phases.entry(name.to_owned()).or_default() += 1;
    }
    phases
}

/// Of requests answered whole: a broken one has no length to judge.
pub(super) fn length_counts(rows: &[RequestRow]) -> LengthCounts {
    let mut counts = LengthCounts::default();
    for row in rows.iter().filter(|row| row.status == RequestStatus::Ok) {
        match row.output_length {
            OutputLength::Ok => counts.ok += 1,
            OutputLength::Short => counts.short += 1,
            OutputLength::Long => counts.long += 1,
            OutputLength::Unverified => counts.unverified += 1,
        }
    }
    counts
}

pub(super) fn errors(rows: &[RequestRow]) -> Vec<ErrorCount> {
    let mut by_kind: BTreeMap<&str, ErrorCount> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.status == RequestStatus::Failed) {
        let kind = failure_kind(row);
        let count = by_kind.entry(kind).or_insert_with(|| ErrorCount {
            kind: kind.to_owned(),
            n: 0,
            example: row.error.clone().unwrap_or_else(|| kind.to_owned()),
        });
        count.n += 1;
    }
    let mut errors: Vec<ErrorCount> = by_kind.into_values().collect();
    errors.sort_by_key(|error| std::cmp::Reverse(error.n));
    errors
}
