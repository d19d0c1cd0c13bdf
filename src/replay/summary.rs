//! `summary.json` of a replay: what its tables come to.
//!
//! Pure: [`summarize`] takes rows and settings, so whoever has the run directory can recompute every
//! figure. Latencies, lengths and rates are of requests that were answered whole; failed and
//! cancelled ones are counted beside them. Percentiles are those of `statistics`. The headline is the
//! steady state; the whole run stands beside it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::agent_figures::{AgentFigures, agent_figures};
use super::attempts::above_error_rate;
use super::capacity_summary::{CapacityFigures, CapacitySettings, capacity_figures};
use super::client_figures::{ClientFigures, Watched, client_figures};
use super::engine_figures::{EngineFigures, Span, engine_figures};
use super::live_figures::{LiveFigures, live_figures};
use super::open_loop_figures::{OpenLoopFigures, open_loop_figures};
use super::part_figures::{PartFigures, part_figures};
use super::power_figures::{PowerFigures, replay_power};
use super::prefix_hits::{PrefixHits, prefix_hits};
use super::settings::{EndedBy, LengthForcing, ReplaySettings};
use super::summary_counts::{
    ErrorCount, LengthCounts, StatusCounts, TrajectoryCounts, errors, length_counts, phases,
    status_counts, trajectory_counts,
};
use super::summary_notes::{add_notes, search_notes};
use crate::clock::unix_seconds;
use crate::error::Result;
use crate::power::readings::Readings;
use crate::trace::Run;
use crate::trace::record::{
    ClientSampleRow, EngineSampleRow, LevelRow, Phase, PowerRow, RequestRow, RequestStatus,
    TrajectoryRow,
};

/// What a reader must know before any figure.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Labels {
    /// The embedded engine answered: the figures say nothing about any hardware.
    pub simulated: bool,
    /// The recording's text and times are made up.
    pub synthetic_trace: bool,
    /// Requests were sent in another API than the recorded one.
    pub converted: bool,
    /// Whether output lengths were pinned: `honoured`, `ignored`, `refused` or `unknown`; the worst
    /// of the APIs used.
    pub output_length: LengthForcing,
    /// No service level was held against the figures.
    pub load: String,
}

/// `summary.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Summary {
    /// What a reader must know first.
    pub labels: Labels,
    /// The same and more, a sentence each.
    pub notes: Vec<String>,
    /// Agents at work at once; in the open loop the most that there were.
    pub agents: u32,
    /// Arrivals of an open loop; not there for a closed one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_loop: Option<OpenLoopFigures>,
    /// Trajectories.
    pub trajectories: TrajectoryCounts,
    /// Requests.
    pub requests: StatusCounts,
    /// Requests sent in each phase.
    pub phases: BTreeMap<String, u64>,
    /// Output lengths.
    pub output_length: LengthCounts,
    /// Errors, most frequent first.
    pub errors: Vec<ErrorCount>,
    /// Why the run failed the condition set on its requests, in words; null where it did not.
    pub failed_because: Option<String>,
    /// Steady state: requests sent in it, whenever they ended.
    pub steady: PartFigures,
    /// All requests, from the first one's start to the last one's end.
    pub whole: PartFigures,
    /// The three prefix-hit figures, of the whole run.
    pub prefix_hits: PrefixHits,
    /// What became of the recorded answers; only there with live content.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub live: Option<LiveFigures>,
    /// Whether the client was the bottleneck.
    pub client: ClientFigures,
    /// The engine's own counters over the whole run; null where it was not polled.
    pub engine: Option<EngineFigures>,
    /// Power and energy of the steady state; not there for a capacity search, whose levels have their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub power: Option<PowerFigures>,
    /// How the run was made.
    pub settings: ReplaySettings,
    /// What live agents came to; only there for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub agent: Option<Box<AgentFigures>>,
    /// What a capacity search came to; only there for one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub capacity: Option<CapacityFigures>,
}

/// The requests that stand in a run's headline: those of the steady state, or of the whole run, that
/// were answered whole; of a capacity search, those of one level.
pub fn headline_requests(run: &Run, level: Option<u32>, steady: bool) -> Result<Vec<RequestRow>> {
    let rows = run.rows::<RequestRow>()?.filter(|row| {
        row.as_ref().map_or(true, |row| {
            row.status == RequestStatus::Ok
                && (level.is_none() || row.level == level)
                && (!steady || row.phase == Phase::Steady)
        })
    });
    rows.collect()
}

/// The summary of a run directory that a replay wrote.
pub fn summarize_run(run: &Run) -> Result<Summary> {
    let requests = run.rows::<RequestRow>()?.collect::<Result<Vec<_>>>()?;
    let trajectories = run.rows::<TrajectoryRow>()?.collect::<Result<Vec<_>>>()?;
    let samples = run.rows::<EngineSampleRow>()?.collect::<Result<Vec<_>>>()?;
    let settings = run.manifest().settings.get("replay").cloned().unwrap_or_default();
    let settings = serde_json::from_value(settings).unwrap_or_default();
    let power = run.manifest().settings.get("power").cloned().unwrap_or_default();
    let power = serde_json::from_value(power).unwrap_or_default();
    let readings = Readings::of_rows(&run.rows::<PowerRow>()?.collect::<Result<Vec<_>>>()?);
    let client_samples = run.rows::<ClientSampleRow>()?.collect::<Result<Vec<_>>>()?;
    let Some(search) = run.manifest().settings.get("capacity").cloned() else {
        let figures = replay_power(&readings, &requests, &trajectories, &settings, &power);
        let mut summary = Summary {
            power: Some(figures),
            ..summarize(&requests, &trajectories, &samples, &settings)
        };
        add_client(&mut summary, &client_samples, &requests, &trajectories);
        return Ok(summary);
    };
    let mut search: CapacitySettings = serde_json::from_value(search).unwrap_or_default();
    // A search that was killed never said so itself.
    search.interrupted |= !run.manifest().complete;
    let levels = run.rows::<LevelRow>()?.collect::<Result<Vec<_>>>()?;
    let capacity = capacity_figures(&levels, &readings, &search, &power, &settings);
    Ok(summarize_search(requests, trajectories, &samples, client_samples, settings, capacity))
}

/// The summary of a capacity search: its result, and the figures of the level that stands for it.
fn summarize_search(
    mut requests: Vec<RequestRow>,
    mut trajectories: Vec<TrajectoryRow>,
    engine_samples: &[EngineSampleRow],
    mut client_samples: Vec<ClientSampleRow>,
    mut settings: ReplaySettings,
    capacity: CapacityFigures,
) -> Summary {
    if let Some(row) = capacity.curve.iter().find(|row| Some(row.level) == capacity.level) {
        settings.agents = row.agents;
        settings.window.steady_start_ms = row.start_ms;
        settings.window.steady_end_ms = row.end_ms;
        requests.retain(|request| request.level == Some(row.level));
        trajectories.retain(|trajectory| trajectory.level == Some(row.level));
        client_samples.retain(|sample| sample.level == Some(row.level));
    }
    let ended_early = settings.ended_by.note(settings.max_error_rate_pct);
    let mut summary = summarize(&requests, &trajectories, engine_samples, &settings);
    // A search is held to its service level; levels may fail.
    summary.failed_because = ended_early;
    add_client(&mut summary, &client_samples, &requests, &trajectories);
    summary.labels.load = format!("service level {}", capacity.settings.slo.join(" and "));
    summary.notes.splice(0..0, search_notes(&capacity, settings.cache_sharing));
    summary.capacity = Some(capacity);
    summary
}

/// Adds what the client was, and says first that it was the bottleneck.
fn add_client(
    summary: &mut Summary,
    samples: &[ClientSampleRow],
    requests: &[RequestRow],
    trajectories: &[TrajectoryRow],
) {
    let settings = &summary.settings;
    summary.client = client_figures(&Watched {
        samples,
        requests,
        trajectories,
        window: settings.window,
        anchor_ns: settings.clock_anchor_ns,
        engine_in_process: settings.engine_in_process,
    });
    summary.notes.splice(0..0, summary.client.headline());
    summary.notes.extend(summary.client.note());
}

/// The summary of a replay's rows, but for power.
pub fn summarize(
    requests: &[RequestRow],
    trajectories: &[TrajectoryRow],
    engine_samples: &[EngineSampleRow],
    settings: &ReplaySettings,
) -> Summary {
    let all: Vec<&RequestRow> = requests.iter().collect();
    let steady: Vec<&RequestRow> =
        requests.iter().filter(|row| row.phase == Phase::Steady).collect();
    let span_ms = span_of(requests);
    let engine = span_ms.and_then(|(start_ms, end_ms)| {
        let wall = |run_ms: f64| unix_seconds(settings.clock_anchor_ns) + run_ms / 1e3;
        engine_figures(engine_samples, Span { start: wall(start_ms), end: wall(end_ms) })
    });
    let mut summary = Summary {
        labels: labels(settings),
        notes: settings.notes.clone(),
        agents: settings.agents,
        open_loop: open_loop_figures(trajectories, settings),
        trajectories: trajectory_counts(trajectories),
        requests: status_counts(&all),
        phases: phases(requests),
        output_length: length_counts(requests),
        errors: errors(requests),
        failed_because: failed_because(&status_counts(&all), settings),
        steady: part_figures(&steady, settings.window.steady_s()),
        whole: part_figures(&all, span_ms.map(|(start_ms, end_ms)| (end_ms - start_ms) / 1e3)),
        prefix_hits: prefix_hits(requests, engine.as_ref()),
        live: live_figures(requests),
        client: ClientFigures::default(),
        engine,
        power: None,
        settings: settings.clone(),
        agent: settings.live_agents.then(|| Box::new(agent_figures(trajectories, requests))),
        capacity: None,
    };
    if let Some(agent) = &summary.agent {
        summary.failed_because = summary.failed_because.take().or_else(|| agent.failed_because());
        summary.notes.extend(agent.notes());
    }
    add_notes(&mut summary, requests);
    summary
}

/// First start and last end, on the run clock.
fn span_of(requests: &[RequestRow]) -> Option<(f64, f64)> {
    let start = requests.iter().map(|row| row.sent_at_ms).reduce(f64::min)?;
    let end = requests
        .iter()
        .map(|row| row.sent_at_ms + row.e2e_ms.unwrap_or_default())
        .reduce(f64::max)?;
    Some((start, end))
}

fn labels(settings: &ReplaySettings) -> Labels {
    let worst =
        settings.routes.iter().map(|route| route.output_length).max_by_key(
            |forcing| match forcing {
                LengthForcing::Honoured => 0,
                LengthForcing::Unknown => 1,
                LengthForcing::Refused => 2,
                LengthForcing::Ignored => 3,
            },
        );
    Labels {
        simulated: settings.simulated,
        synthetic_trace: settings.synthetic_trace,
        converted: settings.routes.iter().any(|route| route.recorded != route.sent),
        output_length: worst.unwrap_or_default(),
        load: if settings.live_agents {
            "live agents, no service level".to_owned()
        } else {
            "at fixed load, no service level".to_owned()
        },
    }
}

/// Any failed request is one too many, unless a share of them was allowed.
fn failed_because(requests: &StatusCounts, settings: &ReplaySettings) -> Option<String> {
    let StatusCounts { ok, failed, .. } = *requests;
    let ended = ok + failed;
    match (settings.ended_by, settings.max_error_rate_pct) {
        (EndedBy::FailedRequest, _) => {
            Some(format!("the run ended early at its first failed request ({ended} had ended)"))
        }
        (EndedBy::ErrorRate, Some(pct)) => Some(format!(
            "the run ended early: {failed} of {ended} requests failed, more than {pct} %"
        )),
        (_, Some(pct)) => above_error_rate(ok, failed, pct)
            .then(|| format!("{failed} of {ended} requests failed, more than {pct} %")),
        (_, None) => (failed > 0).then(|| format!("{failed} requests failed")),
    }
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
