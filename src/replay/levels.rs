//! Judging one level of a capacity search: what its requests say about the service level.
//!
//! Pure: from the level's rows and its steady window to a row of `levels`. Judged are the requests sent
//! in the window, whenever they ended. A pass takes the whole minimum of samples; a violation that the
//! least number of requests of every agent shows counts even where trajectories or time fall short, for
//! it can only lower the answer.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::capacity::Verdict;
use super::measure::{UNSEEN_OUTPUT_LIMIT_PCT, unseen_output_pct};
use super::slo::{Condition, Metric};
use super::window::Window;
use crate::trace::record::{LevelRow, Phase, RequestRow, RequestStatus, TrajectoryRow};

/// What a level must have to count.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct LevelMinimum {
    /// Trajectories that ended, over all agents.
    pub trajectories: u64,
    /// Trajectories that ended, of every agent.
    pub trajectories_per_agent: u32,
    /// Requests sent in steady state, of every agent.
    pub requests_per_agent: u32,
    /// Length of the steady state.
    pub steady_s: f64,
}

/// A level that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Level<'rows> {
    /// Its index in the order tried.
    pub level: u32,
    /// Concurrent agents.
    pub agents: u32,
    /// The bounds of its phases.
    pub window: Window,
    /// Its requests; those outside steady state are passed over.
    pub requests: &'rows [RequestRow],
    /// Its trajectories.
    pub trajectories: &'rows [TrajectoryRow],
}

/// A request that is judged: sent in steady state, and answered or failed.
pub fn judged(row: &RequestRow) -> bool {
    row.phase == Phase::Steady && row.status != RequestStatus::Cancelled
}

/// A trajectory that counts as a sample: worked through, or ended by a failure.
pub fn ended(row: &TrajectoryRow) -> bool {
    row.completed || row.n_failed > 0
}

impl Verdict {
    /// The name in `levels`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Fail => "fail",
            Self::Invalid => "invalid",
        }
    }

    /// The verdict of a name; an unknown one says nothing.
    pub fn named(name: &str) -> Self {
        match name {
            "pass" => Self::Pass,
            "fail" => Self::Fail,
            _ => Self::Invalid,
        }
    }
}

/// Judges a level.
pub fn judge(level: &Level<'_>, conditions: &[Condition], minimum: &LevelMinimum) -> LevelRow {
    let requests: Vec<&RequestRow> = level.requests.iter().filter(|row| judged(row)).collect();
    let values = values(conditions, &requests);
    let (verdict, reason) = verdict(level, &requests, conditions, &values, minimum);
    let steady_s = level.window.steady_s();
    let output_tokens: Option<u64> = requests
        .iter()
        .filter(|row| row.status == RequestStatus::Ok)
        .map(|row| row.completion_tokens)
        .sum();
    let alone = agents_alone(&requests, conditions);
    let within = alone.iter().filter(|agent| agent.within).count();
    let worst = alone.iter().max_by(|a, b| a.strain.total_cmp(&b.strain));
    let unseen_output_pct = unseen_output_pct(requests.iter().copied());
    let looks_at_speed =
        conditions.iter().any(|condition| matches!(condition.metric, Metric::Tpot | Metric::Speed));
    LevelRow {
        level: level.level,
        agents: level.agents,
        start_ms: level.window.steady_start_ms,
        end_ms: level.window.steady_end_ms,
        n_requests: requests.len() as u64,
        n_failed: requests.iter().filter(|row| row.status == RequestStatus::Failed).count() as u64,
        n_trajectories: level.trajectories.iter().filter(|row| ended(row)).count() as u64,
        n_steady_trajectories: completed_within(level.trajectories, &level.window),
        output_tokens_per_s: output_tokens.zip(steady_s).map(|(tokens, s)| tokens as f64 / s),
        // An agent without a judged request has not met the service level.
        // Of a level's power its requests say nothing: `power_window::fill_level` does.
        mean_power_w: None,
        energy_j: None,
        power_reason: None,
        agents_within_pct: (!alone.is_empty())
            .then(|| within as f64 * 100.0 / f64::from(level.agents)),
        worst_agent: worst.map(|agent| agent.id),
        worst_agent_values: worst.map(|agent| as_object(conditions, &agent.values)),
        cache_reset: false,
        // Of the client they say only half: `client_figures::with_client` fills it.
        client_limited: None,
        unseen_output_pct,
        speed_overstated: unseen_output_pct
            .filter(|_| looks_at_speed)
            .map(|pct| pct > UNSEEN_OUTPUT_LIMIT_PCT),
        verdict: verdict.as_str().to_owned(),
        reason,
        values: as_object(conditions, &values),
    }
}

/// Trajectories that were completed within the steady state.
pub fn completed_within(trajectories: &[TrajectoryRow], window: &Window) -> u64 {
    let Some((start, end)) = window.steady_start_ms.zip(window.steady_end_ms) else {
        return 0;
    };
    let within = |row: &&TrajectoryRow| {
        row.completed && row.end_ms.is_some_and(|end_ms| (start..=end).contains(&end_ms))
    };
    trajectories.iter().filter(within).count() as u64
}

fn values(conditions: &[Condition], requests: &[&RequestRow]) -> Vec<Option<f64>> {
    conditions.iter().map(|condition| condition.value(requests)).collect()
}

/// Values by their condition's text.
fn as_object(conditions: &[Condition], values: &[Option<f64>]) -> String {
    let object: Map<String, Value> = conditions
        .iter()
        .zip(values)
        .map(|(condition, value)| (condition.to_string(), Value::from(*value)))
        .collect();
    Value::Object(object).to_string()
}

fn verdict(
    level: &Level<'_>,
    requests: &[&RequestRow],
    conditions: &[Condition],
    values: &[Option<f64>],
    minimum: &LevelMinimum,
) -> (Verdict, Option<String>) {
    let too_few_requests = too_few_requests(level, requests, minimum);
    let violated: Vec<String> = conditions
        .iter()
        .zip(values)
        .filter_map(|(condition, value)| violation(condition, *value))
        .collect();
    if let Some(short) = too_few_requests {
        return (Verdict::Invalid, Some(short));
    }
    if !violated.is_empty() {
        return (Verdict::Fail, Some(violated.join("; ")));
    }
    if let Some((condition, _)) = conditions.iter().zip(values).find(|(_, value)| value.is_none()) {
        return (Verdict::Invalid, Some(format!("no request has a value for {condition}")));
    }
    match too_few_trajectories(level, minimum) {
        Some(short) => (Verdict::Invalid, Some(short)),
        None => (Verdict::Pass, None),
    }
}

fn violation(condition: &Condition, value: Option<f64>) -> Option<String> {
    let value = value.filter(|value| !condition.holds(*value))?;
    Some(if value.is_finite() {
        format!("{condition} is missed: {value:.4}")
    } else {
        format!("{condition} is missed: too many requests failed")
    })
}

fn too_few_requests(
    level: &Level<'_>,
    requests: &[&RequestRow],
    minimum: &LevelMinimum,
) -> Option<String> {
    if level.window.steady_s().is_none() {
        return Some("no steady state: not every agent was through its first request".to_owned());
    }
    let mut of_agent: BTreeMap<u32, u32> = (0..level.agents).map(|agent| (agent, 0)).collect();
    for row in requests {
        *of_agent.entry(row.agent_id).or_default() += 1;
    }
    let (agent, n) = of_agent.into_iter().min_by_key(|(_, n)| *n)?;
    (n < minimum.requests_per_agent.max(1)).then(|| {
        format!(
            "too few samples: agent {agent} sent {n} requests in steady state, {} are needed",
            minimum.requests_per_agent.max(1)
        )
    })
}

fn too_few_trajectories(level: &Level<'_>, minimum: &LevelMinimum) -> Option<String> {
    let mut of_agent: BTreeMap<u32, u32> = (0..level.agents).map(|agent| (agent, 0)).collect();
    for row in level.trajectories.iter().filter(|row| ended(row)) {
        *of_agent.entry(row.agent_id).or_default() += 1;
    }
    let all: u64 = of_agent.values().map(|n| u64::from(*n)).sum();
    let least = of_agent.values().copied().min().unwrap_or_default();
    let steady_s = level.window.steady_s().unwrap_or_default();
    if all < minimum.trajectories {
        Some(format!("too few samples: {all} trajectories, {} are needed", minimum.trajectories))
    } else if least < minimum.trajectories_per_agent {
        Some(format!(
            "too few samples: an agent ended {least} trajectories, {} are needed",
            minimum.trajectories_per_agent
        ))
    } else if steady_s < minimum.steady_s {
        Some(format!(
            "too short: {steady_s:.1} s of steady state, {:.1} s are needed",
            minimum.steady_s
        ))
    } else {
        None
    }
}

/// One agent held to the service level by its own requests alone.
struct Alone {
    id: u32,
    values: Vec<Option<f64>>,
    within: bool,
    strain: f64,
}

fn agents_alone(requests: &[&RequestRow], conditions: &[Condition]) -> Vec<Alone> {
    let mut of_agent: BTreeMap<u32, Vec<&RequestRow>> = BTreeMap::new();
    for row in requests {
        of_agent.entry(row.agent_id).or_default().push(row);
    }
    of_agent
        .into_iter()
        .map(|(id, rows)| {
            let values = values(conditions, &rows);
            let pairs = || conditions.iter().zip(&values);
            let within =
                pairs().all(|(condition, value)| value.is_some_and(|value| condition.holds(value)));
            let strain = pairs()
                .filter_map(|(condition, value)| condition.strain(*value))
                .fold(0.0, f64::max);
            Alone { id, values, within, strain }
        })
        .collect()
}

#[cfg(test)]
#[path = "levels_tests.rs"]
mod tests;
