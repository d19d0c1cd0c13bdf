//! What a joule and a megawatt served in a steady window.
//!
//! Pure: from the window's energy and what was served in it, so that it can be recomputed from the
//! tables. Every null figure has its reason in `why`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::levels::completed_within;
use super::power_window::{DeviceFigures, WindowPower, window_power};
use super::settings::ReplaySettings;
use crate::power::readings::Readings;
use crate::power::{Boundary, PowerSettings};
use crate::trace::record::{Phase, RequestRow, RequestStatus, TrajectoryRow};

/// Power and energy in the steady state.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PowerFigures {
    /// `nvml`, `dcgm`, `rapl` or `constant`; null without a source.
    pub source: Option<String>,
    /// What the totals include.
    pub boundary: Option<Boundary>,
    /// Which rule chose the devices.
    pub rule: Option<String>,
    /// Factor on the totals for the building's share; null where none was given.
    pub pue: Option<f64>,
    /// Each device as measured.
    pub devices: Vec<DeviceFigures>,
    /// Energy of all devices, times `pue`.
    pub energy_j: Option<f64>,
    /// Mean power of all devices, times `pue`.
    pub mean_power_w: Option<f64>,
    /// `counter` or `trapezoid`; `mixed` where the devices differ.
    pub method: Option<String>,
    /// Whether the totals may be believed.
    pub valid: bool,
    /// Why not, or why nothing is made of them.
    pub reason: Option<String>,
    /// Output tokens of the steady state's requests, over `energy_j`.
    pub output_tokens_per_joule: Option<f64>,
    /// The reverse.
    pub joules_per_output_token: Option<f64>,
    /// `energy_j` over the requests that were sent in the steady state and answered whole.
    pub joules_per_turn: Option<f64>,
    /// `energy_j` over the trajectories that were completed within the steady state.
    pub joules_per_trajectory: Option<f64>,
    /// Agents over mean power in megawatts.
    pub agents_per_mw: Option<f64>,
    /// Why a figure is null, by its name.
    pub why: BTreeMap<String, String>,
    /// What `agents_per_mw` was held against.
    pub load: String,
}

/// What was served in a steady window; a count that is not known has a reason instead.
#[derive(Debug, Clone, PartialEq)]
pub struct Served {
    /// Agents at work at once.
    pub agents: Result<u32, String>,
    /// Output tokens of the turns.
    pub output_tokens: Result<f64, String>,
    /// Requests sent in the window and answered whole.
    pub turns: Result<u64, String>,
    /// Trajectories completed within the window.
    pub trajectories: Result<u64, String>,
    /// The embedded engine answered.
    pub simulated: bool,
    /// What the agents were held against.
    pub load: String,
}

impl Served {
    /// Nothing that figures could be made of, for one reason.
    pub fn nothing(reason: &str, simulated: bool, load: String) -> Self {
        let none = || reason.to_owned();
        Self {
            agents: Err(none()),
            output_tokens: Err(none()),
            turns: Err(none()),
            trajectories: Err(none()),
            simulated,
            load,
        }
    }
}

/// The figures of a replay; without sampling they say why there are none.
pub fn replay_power(
    readings: &Readings,
    requests: &[RequestRow],
    trajectories: &[TrajectoryRow],
    replay: &ReplaySettings,
    power: &PowerSettings,
) -> PowerFigures {
    let answered: Vec<&RequestRow> = requests
        .iter()
        .filter(|row| row.phase == Phase::Steady && row.status == RequestStatus::Ok)
        .collect();
    let tokens: Option<u64> = answered.iter().map(|row| row.completion_tokens).sum();
    let served = Served {
        agents: match replay.arrivals {
            Some(_) => Err("in the open loop the number of agents is not fixed".to_owned()),
            None => Ok(replay.agents),
        },
        output_tokens: tokens
            .map(|tokens| tokens as f64)
            .ok_or_else(|| "a response told no number of output tokens".to_owned()),
        turns: Ok(answered.len() as u64),
        trajectories: Ok(completed_within(trajectories, &replay.window)),
        simulated: replay.simulated,
        load: "at fixed load, no service level".to_owned(),
    };
    let energy = window_power(readings, power, &replay.window, replay.clock_anchor_ns);
    power_figures(energy, power, &served)
}

/// The figures of a window.
pub fn power_figures(energy: WindowPower, power: &PowerSettings, served: &Served) -> PowerFigures {
    let WindowPower { devices, energy_j, mean_power_w, method, reason } = energy;
    let reason = reason.or_else(|| not_the_engines_own(served.simulated, power).map(str::to_owned));
    let mut figures = PowerFigures {
        source: power.source.clone(),
        boundary: power
            .boundary
            .map(|own| if power.pue.is_some() { Boundary::Facility } else { own }),
        rule: power.rule.clone(),
        pue: power.pue,
        devices,
        energy_j,
        mean_power_w,
        method,
        valid: energy_j.is_some(),
        reason: reason.clone(),
        load: served.load.clone(),
        ..PowerFigures::default()
    };
    let mut why = BTreeMap::new();
    let mut null = |name: &str, reason: String| {
        why.insert(name.to_owned(), reason);
        None
    };
    let unusable = || reason.clone().unwrap_or_default();
    if energy_j.is_none() {
        let _: Option<f64> = null("energy_j", unusable());
        let _: Option<f64> = null("mean_power_w", unusable());
    }
    let usable = energy_j.zip(mean_power_w).filter(|_| reason.is_none());
    let mut joules_per = |name: &str, n: Result<f64, String>| match (usable, n) {
        (None, _) => null(name, unusable()),
        (_, Err(reason)) => null(name, reason),
        (_, Ok(n)) if n <= 0.0 => null(name, "none was served in the steady window".to_owned()),
        (Some((energy_j, _)), Ok(n)) => Some(energy_j / n),
    };
    let count = |n: &Result<u64, String>| n.clone().map(|n| n as f64);
    figures.joules_per_output_token =
        joules_per("joules_per_output_token", served.output_tokens.clone());
    figures.output_tokens_per_joule = figures.joules_per_output_token.map(|joules| 1.0 / joules);
    figures.joules_per_turn = joules_per("joules_per_turn", count(&served.turns));
    figures.joules_per_trajectory =
        joules_per("joules_per_trajectory", count(&served.trajectories));
    figures.agents_per_mw = match (usable, &served.agents) {
        (None, _) => null("agents_per_mw", unusable()),
        (_, Err(reason)) => null("agents_per_mw", reason.clone()),
        (Some((_, watts)), Ok(agents)) => Some(f64::from(*agents) / (watts / 1e6)),
    };
    figures.why = why;
    figures
}

/// Why the power that was measured cannot be held against what the engine did.
fn not_the_engines_own(simulated: bool, power: &PowerSettings) -> Option<&'static str> {
    match power.source.as_deref() {
        // A figure that the user gave is taken for what it was given for.
        Some("constant") | None => None,
        _ if simulated => {
            Some("no agents per MW: the engine is simulated, the measured power is not its own")
        }
        Some("rapl") => Some("no agents per MW: RAPL measures CPU packages, not what serves"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(simulated: bool) -> Served {
        Served {
            agents: Ok(8),
            output_tokens: Ok(500.0),
            turns: Ok(10),
            trajectories: Ok(0),
            simulated,
            load: "at fixed load, no service level".to_owned(),
        }
    }

    fn energy() -> WindowPower {
        WindowPower { energy_j: Some(4000.0), mean_power_w: Some(400.0), ..WindowPower::default() }
    }

    #[test]
    fn agents_per_megawatt_need_the_engines_own_power() {
        // (source, simulated, whether figures may be given)
        let cases = [
            ("nvml", false, true),
            ("dcgm", false, true),
            ("rapl", false, false),
            ("nvml", true, false),
            ("constant", true, true),
        ];
        for (source, simulated, allowed) in cases {
            let power =
                PowerSettings { source: Some(source.to_owned()), ..PowerSettings::default() };
            let figures = power_figures(energy(), &power, &served(simulated));
            assert_eq!(figures.agents_per_mw, allowed.then_some(20_000.0), "{source}: {figures:?}");
            assert_eq!(figures.joules_per_turn, allowed.then_some(400.0), "{source}: {figures:?}");
            assert_eq!(figures.why.contains_key("agents_per_mw"), !allowed);
            // What was measured was measured all the same.
            assert_eq!((figures.energy_j, figures.valid), (Some(4000.0), true));
        }
    }

    #[test]
    fn every_null_figure_has_its_reason() {
        let power = PowerSettings { source: Some("nvml".to_owned()), ..PowerSettings::default() };
        let figures = power_figures(energy(), &power, &served(false));
        assert_eq!(figures.joules_per_output_token, Some(8.0));
        assert_eq!(figures.output_tokens_per_joule, Some(0.125));
        assert_eq!(figures.joules_per_trajectory, None);
        let why: Vec<_> = figures.why.iter().map(|(name, why)| (name.as_str(), &**why)).collect();
        assert_eq!(why, [("joules_per_trajectory", "none was served in the steady window")]);

        let broken =
            WindowPower { reason: Some("GPU-0: a gap".to_owned()), ..WindowPower::default() };
        let figures = power_figures(broken, &power, &served(false));
        assert!(!figures.valid);
        let named: Vec<&str> = figures.why.keys().map(String::as_str).collect();
        let all = [
            "agents_per_mw",
            "energy_j",
            "joules_per_output_token",
            "joules_per_trajectory",
            "joules_per_turn",
            "mean_power_w",
        ];
        assert_eq!(named, all);
        assert!(figures.why.values().all(|why| why == "GPU-0: a gap"), "{figures:?}");
    }
}
