//! What a capacity search comes to: the `capacity` part of `summary.json`, from the rows of `levels`,
//! the search's settings and the power samples.
//!
//! Pure, so whoever has the run directory can recompute every figure. A figure that cannot be known is
//! null, with its reason beside it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::capacity::{Search, Verdict};
use super::levels::LevelMinimum;
use super::slo::Condition;
use crate::clock::unix_seconds;
use crate::power::energy::{Reading, energy};
use crate::trace::record::{LevelRow, PowerRow};

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
    /// The name of the minimum.
    pub preset: String,
    /// What a level must have to count.
    pub minimum: LevelMinimum,
    /// A level is ended after this time, whatever it has.
    pub level_time_s: f64,
    /// GPUs that serve.
    pub gpus: Option<u32>,
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
    /// The client was the bottleneck; null until that is measured.
    pub client_limited: Option<bool>,
    /// The level whose figures stand below and in the rest of the summary.
    pub level: Option<u32>,
    /// Agents over GPUs.
    pub agents_per_gpu: Figure,
    /// Agents over the mean power of the GPUs in the level's steady window.
    pub agents_per_mw: Figure,
    /// Mean power of the GPUs in the level's steady window.
    pub mean_power_w: Figure,
    /// Output tokens over time and GPUs, in the level's steady window.
    pub output_tokens_per_s_per_gpu: Figure,
    /// Trajectories completed over time and GPUs, in the level's steady window.
    pub trajectories_per_h_per_gpu: Figure,
    /// The levels in the order tried.
    pub curve: Vec<LevelRow>,
    /// How the search was made.
    pub settings: CapacitySettings,
}

/// The figures of a search. `anchor_ns` is the run clock's.
pub fn capacity_figures(
    levels: &[LevelRow],
    power: &[PowerRow],
    settings: &CapacitySettings,
    anchor_ns: i64,
) -> CapacityFigures {
    let mut search = Search::new(settings.max_agents, settings.resolution);
    for row in levels {
        search.record(row.agents, Verdict::named(&row.verdict));
    }
    let answer = search.answer();
    let judged = levels.iter().any(|row| Verdict::named(&row.verdict) != Verdict::Invalid);
    let max_agents = judged.then_some(answer.max_agents);
    let level = shown_level(levels, answer.max_agents);
    let figures = LevelFigures { level, max_agents, gpus: settings.gpus, power, anchor_ns };
    let mut capacity = CapacityFigures {
        max_agents,
        result: String::new(),
        saturated: answer.saturated,
        invalid: answer.invalid,
        unstable: answer.unstable,
        binding_condition: binding_condition(levels, &settings.conditions()),
        client_limited: None,
        level: level.map(|row| row.level),
        agents_per_gpu: Figure::of(figures.agents_per_gpu()),
        agents_per_mw: Figure::of(figures.agents_per_mw()),
        mean_power_w: Figure::of(figures.mean_power_w()),
        output_tokens_per_s_per_gpu: Figure::of(figures.output_tokens_per_s_per_gpu()),
        trajectories_per_h_per_gpu: Figure::of(figures.trajectories_per_h_per_gpu()),
        curve: levels.to_vec(),
        settings: settings.clone(),
    };
    capacity.result = in_words(&capacity);
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
    gpus: Option<u32>,
    power: &'rows [PowerRow],
    anchor_ns: i64,
}

impl LevelFigures<'_> {
    fn gpus(&self) -> Result<f64, String> {
        let gpus = self.gpus.filter(|gpus| *gpus > 0);
        gpus.map(f64::from).ok_or_else(|| "the number of GPUs was not given (--gpus N)".to_owned())
    }

    fn agents(&self) -> Result<f64, String> {
        self.max_agents.map(f64::from).ok_or_else(|| "no level could be judged".to_owned())
    }

    /// The level's row and the start and end of its steady window; of a level that held.
    fn window(&self) -> Result<(&LevelRow, f64, f64), String> {
        if self.max_agents.is_none_or(|agents| agents == 0) {
            return Err("no level held the service level".to_owned());
        }
        let level = self.level.ok_or_else(|| "no level was tried".to_owned())?;
        match level.start_ms.zip(level.end_ms) {
            Some((start, end)) if end > start => Ok((level, start / 1e3, end / 1e3)),
            _ => Err("the level has no steady window".to_owned()),
        }
    }

    fn agents_per_gpu(&self) -> Result<f64, String> {
        Ok(self.agents()? / self.gpus()?)
    }

    fn output_tokens_per_s_per_gpu(&self) -> Result<f64, String> {
        let (level, ..) = self.window()?;
        let rate = level
            .output_tokens_per_s
            .ok_or_else(|| "a response told no number of output tokens".to_owned())?;
        Ok(rate / self.gpus()?)
    }

    fn trajectories_per_h_per_gpu(&self) -> Result<f64, String> {
        let (level, start, end) = self.window()?;
        Ok(level.n_steady_trajectories as f64 * 3600.0 / (end - start) / self.gpus()?)
    }

    fn agents_per_mw(&self) -> Result<f64, String> {
        Ok(self.agents()? / (self.mean_power_w()? / 1e6))
    }

    fn mean_power_w(&self) -> Result<f64, String> {
        // Host power is no GPU's; where two sources tell of the same GPUs, one of them counts.
        let source = ["nvml", "dcgm", "constant"]
            .into_iter()
            .find(|source| self.power.iter().any(|row| row.source == *source))
            .ok_or_else(|| "no GPU power was sampled".to_owned())?;
        let (_, start, end) = self.window()?;
        let wall = unix_seconds(self.anchor_ns);
        let mut of_device: BTreeMap<&str, Vec<&PowerRow>> = BTreeMap::new();
        for row in self.power.iter().filter(|row| row.source == source) {
            of_device.entry(&row.device).or_default().push(row);
        }
        let mut watts = 0.0;
        for (device, mut rows) in of_device {
            rows.sort_by(|a, b| a.ts.total_cmp(&b.ts));
            let readings: Vec<Reading> = rows
                .iter()
                .map(|row| Reading { ts: row.ts, power_w: row.power_w, energy_j: row.energy_j })
                .collect();
            let used = energy(&readings, wall + start, wall + end, interval_s(&rows))
                .map_err(|invalid| format!("{device}: {invalid}"))?;
            watts += used.mean_power_w;
        }
        if watts > 0.0 { Ok(watts) } else { Err("the mean power is 0".to_owned()) }
    }
}

/// The time between two samples of a device: the median of the differences of their due times.
fn interval_s(rows: &[&PowerRow]) -> f64 {
    let mut steps: Vec<f64> = rows.windows(2).map(|pair| pair[1].due - pair[0].due).collect();
    steps.sort_by(f64::total_cmp);
    steps.get(steps.len() / 2).copied().unwrap_or(f64::INFINITY)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SLO: &str = "ttft.p95<=1s";

    fn level(level: u32, agents: u32, verdict: &str, ttft: f64) -> LevelRow {
        LevelRow {
            level,
            agents,
            start_ms: Some(f64::from(level) * 1e4),
            end_ms: Some(f64::from(level) * 1e4 + 5e3),
            n_steady_trajectories: 10,
            output_tokens_per_s: Some(400.0),
            verdict: verdict.into(),
            values: serde_json::json!({ SLO: ttft, "errors<=0": 0 }).to_string(),
            ..LevelRow::default()
        }
    }

    fn settings(gpus: Option<u32>) -> CapacitySettings {
        CapacitySettings {
            slo: vec![SLO.into(), "errors<=0".into()],
            max_agents: 4,
            resolution: 1,
            gpus,
            ..CapacitySettings::default()
        }
    }

    #[test]
    fn the_answer_follows_from_the_verdicts() {
        let tried = |verdicts: &[(u32, &str)]| {
            let rows: Vec<LevelRow> = (0..)
                .zip(verdicts)
                .map(|(index, (agents, verdict))| level(index, *agents, verdict, 2000.0))
                .collect();
            let capacity = capacity_figures(&rows, &[], &settings(Some(2)), 0);
            (capacity.max_agents, capacity.saturated, capacity.result)
        };
        let (agents, saturated, words) = tried(&[(2, "pass"), (4, "pass"), (4, "pass")]);
        assert_eq!((agents, saturated), (Some(4), false));
        assert!(words.starts_with("not saturated"), "{words}");
        let (agents, saturated, words) = tried(&[(2, "pass"), (4, "fail"), (3, "fail")]);
        assert_eq!((agents, saturated), (Some(2), true));
        assert!(words.starts_with("2 agents hold"), "{words}");
        let (agents, saturated, words) = tried(&[(2, "fail"), (1, "fail")]);
        assert_eq!((agents, saturated), (Some(0), true));
        assert!(words.starts_with("0 agents"), "{words}");
        let (agents, saturated, words) = tried(&[(2, "invalid")]);
        assert_eq!((agents, saturated), (None, false));
        assert!(words.starts_with("no level could be judged"), "{words}");
    }

    fn power(source: &str, device: &str, watts: f64) -> Vec<PowerRow> {
        (0..600)
            .map(|tick| PowerRow {
                ts: f64::from(tick) * 0.1,
                due: f64::from(tick) * 0.1,
                source: source.into(),
                device: device.into(),
                power_w: Some(watts),
                ..PowerRow::default()
            })
            .collect()
    }

    #[test]
    fn figures_are_over_the_gpus_and_their_power() {
        let levels = [level(0, 2, "pass", 500.0), level(1, 4, "fail", 2000.0)];
        let rows = [power("nvml", "a", 300.0), power("nvml", "b", 100.0), power("rapl", "c", 9.0)];
        let capacity = capacity_figures(&levels, &rows.concat(), &settings(Some(4)), 0);
        assert_eq!(capacity.agents_per_gpu, Figure::known(0.5));
        assert_eq!(capacity.output_tokens_per_s_per_gpu, Figure::known(100.0));
        assert_eq!(capacity.trajectories_per_h_per_gpu, Figure::known(1800.0));
        let watts = capacity.mean_power_w.value.unwrap();
        assert!((watts - 400.0).abs() < 1e-6, "{watts}");
        assert!((capacity.agents_per_mw.value.unwrap() - 5000.0).abs() < 1e-3);
        assert_eq!(capacity.binding_condition.as_deref(), Some(SLO));
    }

    #[test]
    fn what_is_not_known_is_null_with_a_reason() {
        let levels = [level(0, 2, "pass", 500.0)];
        let capacity = capacity_figures(&levels, &[], &settings(None), 0);
        assert_eq!(capacity.client_limited, None);
        assert_eq!(capacity.binding_condition, None);
        for (figure, reason) in [
            (&capacity.agents_per_gpu, "--gpus"),
            (&capacity.output_tokens_per_s_per_gpu, "--gpus"),
            (&capacity.agents_per_mw, "no GPU power was sampled"),
        ] {
            assert_eq!(figure.value, None);
            assert!(figure.reason.as_deref().is_some_and(|text| text.contains(reason)));
        }
    }
}
