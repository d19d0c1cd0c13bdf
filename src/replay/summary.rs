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
use super::measure::{from_due_ms, itl_ms, new_prompt_tokens, output_tokens_per_s, token_gaps};
use super::open_loop_figures::{OpenLoopFigures, open_loop_figures};
use super::power_figures::{PowerFigures, replay_power};
use super::prefix_hits::{PrefixHits, prefix_hits};
use super::salts::CacheSharing;
use super::settings::{ContentMode, EndedBy, LengthForcing, ReplaySettings};
use super::slo::{self, Condition, Metric, Relation};
use super::statistics::Statistic;
use crate::clock::unix_seconds;
use crate::error::Result;
use crate::power::readings::Readings;
use crate::trace::Run;
use crate::trace::record::{
    ClientSampleRow, EngineSampleRow, LevelRow, OutputLength, Phase, PowerRow, RequestRow,
    RequestStatus, TrajectoryRow,
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

fn search_notes(capacity: &CapacityFigures, cache_sharing: CacheSharing) -> Vec<String> {
    let mut notes = vec![capacity.result.clone()];
    if let Some(level) = capacity.level {
        notes.push(format!("the figures beside the level table are of level {level} alone"));
    }
    notes.extend(preset_note(&capacity.settings));
    if capacity.unstable {
        notes.push("a level passed once and failed once: the lower answer is given".into());
    }
    notes.extend(overstated_note(&capacity.speed_overstated_levels));
    if capacity.curve.iter().any(|row| !row.cache_reset) {
        let apart = if cache_sharing.has_salts() {
            "salts of its own kept each level from the prompts of those before it"
        } else {
            "levels may profit from those before them"
        };
        notes.push(format!("the engine's cache was not emptied before every level: {apart}"));
    }
    notes
}

/// What a reader must know of levels that were judged by speeds that are too good.
fn overstated_note(levels: &[u32]) -> Option<String> {
    let listed: Vec<String> = levels.iter().map(u32::to_string).collect();
    (!levels.is_empty()).then(|| {
        format!(
            "the speed of level {} is overstated: responses go on for more than {} % of their time after \
             their last chunk with output, so conditions on tpot and speed count tokens whose time they do \
             not see",
            listed.join(", "),
            super::measure::UNSEEN_OUTPUT_LIMIT_PCT
        )
    })
}

/// What a reader must know of a preset that is no measurement to publish, or is not itself any more.
fn preset_note(settings: &CapacitySettings) -> Option<String> {
    let preset = &settings.preset;
    if preset.starts_with("quick") {
        Some(format!(
            "preset {preset}: levels of seconds, far below the published 30 trajectories, 3 an agent \
             and 10 minutes; a first look, not a result to publish"
        ))
    } else if settings.preset_changes.is_empty() {
        None
    } else {
        Some(format!("preset {preset}: not comparable with results of the preset as it is"))
    }
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

fn status_counts(rows: &[&RequestRow]) -> StatusCounts {
    let count = |status| rows.iter().filter(|row| row.status == status).count() as u64;
    StatusCounts {
        sent: rows.len() as u64,
        ok: count(RequestStatus::Ok),
        failed: count(RequestStatus::Failed),
        cancelled: count(RequestStatus::Cancelled),
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

fn trajectory_counts(rows: &[TrajectoryRow]) -> TrajectoryCounts {
    let completed = rows.iter().filter(|row| row.completed).count() as u64;
    let started = rows.len() as u64;
    TrajectoryCounts { started, completed, incomplete: started - completed }
}

fn phases(rows: &[RequestRow]) -> BTreeMap<String, u64> {
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
fn length_counts(rows: &[RequestRow]) -> LengthCounts {
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

fn errors(rows: &[RequestRow]) -> Vec<ErrorCount> {
    let mut by_kind: BTreeMap<&str, ErrorCount> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.status == RequestStatus::Failed) {
        let error = row.error.as_deref().unwrap_or("unknown");
        let kind = error.split(':').next().unwrap_or(error);
        let count = by_kind.entry(kind).or_insert_with(|| ErrorCount {
            kind: kind.to_owned(),
            n: 0,
            example: error.to_owned(),
        });
        count.n += 1;
    }
    let mut errors: Vec<ErrorCount> = by_kind.into_values().collect();
    errors.sort_by_key(|error| std::cmp::Reverse(error.n));
    errors
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

fn part_figures(rows: &[&RequestRow], duration_s: Option<f64>) -> PartFigures {
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

/// What a reader must know of prompts of our own that had not the length planned.
fn synthetic_note(summary: &Summary) -> Option<String> {
    (summary.settings.content == ContentMode::Synthetic).then_some(())?;
    let deviation = summary.whole.fields.get("prompt_tokens_deviation")?;
    (deviation.min != 0.0 || deviation.max != 0.0).then(|| {
        format!(
            "prompts have not the tokens planned: planned - actual is {} to {} tokens, {:.1} in \
             the mean",
            deviation.min, deviation.max, deviation.mean
        )
    })
}

fn add_notes(summary: &mut Summary, requests: &[RequestRow]) {
    let mut notes = Vec::new();
    if summary.labels.simulated {
        notes.push("the engine is simulated: no figure says anything about any hardware".into());
    }
    if summary.labels.synthetic_trace {
        notes.push("the recording is synthetic: made up after published statistics".into());
    }
    notes.extend(retries_note(requests));
    let off_length = summary.output_length.short + summary.output_length.long;
    if off_length > 0 {
        let forcing = summary.labels.output_length.as_str();
        notes.push(format!(
            "{off_length} outputs are shorter or longer than recorded (length forcing {forcing}): \
             rates and latencies are not those of the recorded lengths"
        ));
    }
    // Of live agents the whole run is told: how long a task takes is theirs to say.
    let tells_steady = summary.agent.is_none();
    if tells_steady && summary.requests.sent > 0 && summary.steady.requests.sent == 0 {
        notes.push(
            if summary.open_loop.is_some() {
                "no steady state: the last arrival was admitted, or the run's time was up, before the \
                 first trajectory had ended; only the whole run has figures"
            } else {
                "no steady state: the run ended before every agent was through its first request, or \
                 an agent had nothing left to start by then; only the whole run has figures"
            }
            .into(),
        );
    }
    notes.extend(summary.open_loop.iter().flat_map(OpenLoopFigures::notes));
    notes.extend(summary.prefix_hits.notes());
    notes.extend(synthetic_note(summary));
    notes.extend(summary.live.iter().filter_map(LiveFigures::note));
    if let Some(engine) = &summary.engine {
        if engine.counter_reset {
            notes
                .push("an engine was restarted during the run: its counters give no figure".into());
        } else if !engine.covers_end {
            notes.push(
                "no poll came after the last response: the engine's figures may lack the last \
                 requests"
                    .into(),
            );
        }
    }
    summary.notes.extend(notes);
}

/// What a reader of latencies must know of requests that were sent more than once.
fn retries_note(requests: &[RequestRow]) -> Option<String> {
    let again = requests.iter().filter(|row| row.attempts > 1);
    let (n, attempts) = again.fold((0_u32, 0_u32), |(n, sum), row| (n + 1, sum + row.attempts));
    (n > 0).then(|| {
        format!(
            "{n} requests were sent more than once ({attempts} attempts): their latencies count \
             from the first one, waits included"
        )
    })
}

#[cfg(test)]
#[path = "summary_tests.rs"]
mod tests;
