//! What a capacity search comes to: the `capacity` part of `summary.json`, from the rows of `levels`,
//! the search's settings and the power samples.
//!
//! Pure, so whoever has the run directory can recompute every figure. A figure that cannot be known is
//! null, with its reason beside it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::capacity::{Search, Verdict};
use super::capacity_gpus::gpu_count;
use super::client_figures::limited_search;
use super::levels::LevelMinimum;
use super::power_figures::{PowerFigures, Served, power_figures};
use super::power_window::{level_window, window_power};
use super::settings::ReplaySettings;
use super::slo::Condition;
use crate::power::PowerSettings;
use crate::power::readings::Readings;
use crate::trace::record::LevelRow;

/// How a search was made; in the manifest under `capacity`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapacitySettings {
    /// The service level's conditions, all of which must hold.
    pub slo: Vec<String>,
    /// The tier they come from.
    pub tier: Option<String>,
    /// Most agents tried.
    pub max_agents: u32,
    /// The search ends when the limit is known to so many agents.
    pub resolution: u32,
    /// The name of the minimum; where something was changed in it, with the changes behind it.
    pub preset: String,
    /// What was changed in the preset, a phrase each.
    pub preset_changes: Vec<String>,
    /// What a level must have to count.
    pub minimum: LevelMinimum,
    /// A level is ended after this time, whatever it has.
    pub level_time_s: f64,
    /// The number of GPUs that serve, where it was given.
    #[serde(alias = "gpus")]
    pub gpu_count: Option<u32>,
    /// Their names, where they were given.
    pub gpu_names: Option<Vec<String>>,
    /// The search ended before it was over: it was told to stop, or a failed request was to end it.
    pub interrupted: bool,
}

impl CapacitySettings {
    /// The conditions, as far as they can be read.
    pub fn conditions(&self) -> Vec<Condition> {
        self.slo.iter().filter_map(|text| text.parse().ok()).collect()
    }
}

/// A figure, or why there is none.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Figure {
    /// The figure.
    pub value: Option<f64>,
    /// Why it is null.
    pub reason: Option<String>,
}

impl Figure {
    fn known(value: f64) -> Self {
        Self { value: Some(value), reason: None }
    }

    fn unknown(reason: impl Into<String>) -> Self {
        Self { value: None, reason: Some(reason.into()) }
    }

    fn of(result: Result<f64, String>) -> Self {
        result.map_or_else(Self::unknown, Self::known)
    }
}

/// `capacity` in `summary.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CapacityFigures {
    /// Most agents that held the service level; 0 when not even one did, null when no level could be
    /// judged.
    pub max_agents: Option<u32>,
    /// The result in words; says so where it is no limit.
    pub result: String,
    /// A failing level was seen above it.
    pub saturated: bool,
    /// A level could not be judged: the answer is only the most that was proved.
    pub invalid: bool,
    /// A level was judged both ways when it was tried again.
    pub unstable: bool,
    /// The condition that the smallest failing level missed by most.
    pub binding_condition: Option<String>,
    /// The client was the bottleneck at a level, so there is no result; null where it was not watched for
    /// long enough to tell.
    pub client_limited: Option<bool>,
    /// Levels whose conditions on `tpot` and `speed` count tokens whose time they do not see.
    pub speed_overstated_levels: Vec<u32>,
    /// The level whose figures stand below and in the rest of the summary.
    pub level: Option<u32>,
    /// GPUs that serve.
    pub gpus: Figure,
    /// Agents over GPUs.
    pub agents_per_gpu: Figure,
    /// Agents over the mean power of the GPUs in the level's steady window.
    pub agents_per_mw: Figure,
    /// Mean power of the GPUs in the level's steady window.
    pub mean_power_w: Figure,
    /// Their energy in it.
    pub energy_j: Figure,
    /// Output tokens over time and GPUs, in the level's steady window.
    pub output_tokens_per_s_per_gpu: Figure,
    /// Trajectories completed over time and GPUs, in the level's steady window.
    pub trajectories_per_h_per_gpu: Figure,
    /// `energy_j` over the output tokens of the level's turns.
    pub joules_per_output_token: Figure,
    /// `energy_j` over the requests that were sent in the steady window and answered whole.
    pub joules_per_turn: Figure,
    /// `energy_j` over the trajectories that were completed within the steady window.
    pub joules_per_trajectory: Figure,
    /// How power was measured, its boundary, and each device, in the level's steady window.
    pub power: PowerFigures,
    /// The levels in the order tried.
    pub curve: Vec<LevelRow>,
    /// How the search was made.
    pub settings: CapacitySettings,
}

/// The figures of a search.
pub fn capacity_figures(
    levels: &[LevelRow],
    readings: &Readings,
    settings: &CapacitySettings,
    power: &PowerSettings,
    replay: &ReplaySettings,
) -> CapacityFigures {
    let mut search = Search::new(settings.max_agents, settings.resolution);
    for row in levels {
        search.record(row.agents, Verdict::named(&row.verdict));
    }
    let answer = search.answer();
    let judged = levels.iter().any(|row| Verdict::named(&row.verdict) != Verdict::Invalid);
    let limited = levels.iter().find(|row| row.client_limited == Some(true));
    let max_agents = (judged && limited.is_none()).then_some(answer.max_agents);
    let level = shown_level(levels, answer.max_agents);
    let figures =
        LevelFigures { level, max_agents, gpus: gpu_count(settings, power, replay.simulated) };
    let window = level.map(level_window).unwrap_or_default();
    let energy = window_power(readings, power, &window, replay.clock_anchor_ns);
    let served = figures.served(replay.simulated, &settings.slo);
    let power = power_figures(energy, power, &served);
    let of_power = |name: &str, value: Option<f64>| {
        let reason = figures.window().err().or_else(|| power.why.get(name).cloned());
        match (reason, value) {
            (None, Some(value)) => Figure::known(value),
            (reason, _) => Figure::unknown(reason.unwrap_or_default()),
        }
    };
    let mut capacity = CapacityFigures {
        max_agents,
        result: String::new(),
        saturated: answer.saturated,
        invalid: answer.invalid,
        unstable: answer.unstable,
        binding_condition: binding_condition(levels, &settings.conditions()),
        client_limited: levels.iter().filter_map(|row| row.client_limited).reduce(|a, b| a || b),
        speed_overstated_levels: levels
            .iter()
            .filter(|row| row.speed_overstated == Some(true))
            .map(|row| row.level)
            .collect(),
        level: level.map(|row| row.level),
        gpus: Figure::of(figures.gpus()),
        agents_per_gpu: Figure::of(figures.agents_per_gpu()),
        agents_per_mw: of_power("agents_per_mw", power.agents_per_mw),
        mean_power_w: of_power("mean_power_w", power.mean_power_w),
        energy_j: of_power("energy_j", power.energy_j),
        output_tokens_per_s_per_gpu: Figure::of(figures.output_tokens_per_s_per_gpu()),
        trajectories_per_h_per_gpu: Figure::of(figures.trajectories_per_h_per_gpu()),
        joules_per_output_token: of_power("joules_per_output_token", power.joules_per_output_token),
        joules_per_turn: of_power("joules_per_turn", power.joules_per_turn),
        joules_per_trajectory: of_power("joules_per_trajectory", power.joules_per_trajectory),
        power,
        curve: levels.to_vec(),
        settings: settings.clone(),
    };
    capacity.result = limited.map_or_else(|| in_words(&capacity), limited_search);
    capacity
}

/// The last try of the answer; where not even one agent held, the last level tried.
pub fn shown_level(levels: &[LevelRow], max_agents: u32) -> Option<&LevelRow> {
    levels.iter().rev().find(|row| row.agents == max_agents).or(levels.last())
}

fn in_words(capacity: &CapacityFigures) -> String {
    let slo = capacity.settings.slo.join(" and ");
    let unfinished = if capacity.settings.interrupted {
        "; the search was interrupted"
    } else if capacity.invalid {
        "; a level could not be judged, so more may be possible"
    } else {
        ""
    };
    match capacity.max_agents {
        None => format!("no level could be judged at {slo}{unfinished}"),
        Some(0) if capacity.saturated && unfinished.is_empty() => {
            format!("0 agents: not even one holds {slo}")
        }
        Some(n) if capacity.saturated => format!("{n} agents hold {slo}{unfinished}"),
        Some(n) => format!(
            "not saturated: every level passed up to {n} agents at {slo}; the limit lies above{unfinished}"
        ),
    }
}

/// The condition that is missed by most at the smallest failing level; where all hold, what else made
/// it fail.
fn binding_condition(levels: &[LevelRow], conditions: &[Condition]) -> Option<String> {
    let failing = levels
        .iter()
        .filter(|row| Verdict::named(&row.verdict) == Verdict::Fail)
        .min_by_key(|row| row.agents)?;
    let values: BTreeMap<String, Option<f64>> =
        serde_json::from_str(&failing.values).unwrap_or_default();
    let strain = |condition: &Condition| {
        // A failing level's value that is not finite is beyond every bound.
        let value = values.get(&condition.to_string()).copied().flatten();
        value.map_or(f64::INFINITY, |value| {
            if condition.holds(value) {
                0.0
            } else {
                condition.strain(Some(value)).unwrap_or_default()
            }
        })
    };
    let worst = conditions.iter().max_by(|a, b| strain(a).total_cmp(&strain(b)))?;
    if strain(worst) > 0.0 { Some(worst.to_string()) } else { failing.reason.clone() }
}

struct LevelFigures<'rows> {
    level: Option<&'rows LevelRow>,
    max_agents: Option<u32>,
    gpus: Result<u32, String>,
}

impl LevelFigures<'_> {
    fn gpus(&self) -> Result<f64, String> {
        self.gpus.clone().map(f64::from)
    }

    /// The level's row and the length of its steady window in seconds; of a level that held.
    fn window(&self) -> Result<(&LevelRow, f64), String> {
        match self.max_agents {
            None => return Err("no level could be judged".to_owned()),
            Some(0) => return Err("no level held the service level".to_owned()),
            Some(_) => {}
        }
        let level = self.level.ok_or_else(|| "no level was tried".to_owned())?;
        let length_s = level_window(level).steady_s();
        Ok((level, length_s.ok_or_else(|| "the level has no steady window".to_owned())?))
    }

    fn agents_per_gpu(&self) -> Result<f64, String> {
        let agents = self.max_agents.ok_or_else(|| "no level could be judged".to_owned())?;
        Ok(f64::from(agents) / self.gpus()?)
    }

    fn output_tokens_per_s(&self) -> Result<f64, String> {
        let rate = self.window()?.0.output_tokens_per_s;
        rate.ok_or_else(|| "a response told no number of output tokens".to_owned())
    }

    fn output_tokens_per_s_per_gpu(&self) -> Result<f64, String> {
        Ok(self.output_tokens_per_s()? / self.gpus()?)
    }

    fn trajectories_per_h_per_gpu(&self) -> Result<f64, String> {
        let (level, length_s) = self.window()?;
        if level.n_steady_trajectories == 0 {
            return Err("no trajectory was completed within the steady window".to_owned());
        }
        Ok(level.n_steady_trajectories as f64 * 3600.0 / length_s / self.gpus()?)
    }

    /// What the level's energy served, from its row alone.
    fn served(&self, simulated: bool, slo: &[String]) -> Served {
        let load = format!("at the service level {}", slo.join(" and "));
        let (level, length_s) = match self.window() {
            Ok(found) => found,
            Err(reason) => return Served::nothing(&reason, simulated, load),
        };
        Served {
            agents: Ok(level.agents),
            output_tokens: self.output_tokens_per_s().map(|rate| rate * length_s),
            turns: Ok(level.n_requests - level.n_failed),
            trajectories: Ok(level.n_steady_trajectories),
            simulated,
            load,
        }
    }
}

#[cfg(test)]
#[path = "capacity_summary_tests.rs"]
mod tests;
