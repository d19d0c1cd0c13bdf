//! Energy of a replay's steady state, and what a joule and a megawatt served.
//!
//! Pure: from the rows of `power` and `requests` and the manifest's settings, so that it can be
//! recomputed. A total is valid when every device's figure is; an invalid figure is null with a reason.

use serde::{Deserialize, Serialize};

use super::settings::ReplaySettings;
use crate::clock::unix_seconds;
use crate::power::energy::{Energy, Method, Reading, energy};
use crate::power::{Boundary, PowerSettings};
use crate::trace::record::{Phase, PowerRow, RequestRow, RequestStatus};

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
    /// Why not.
    pub reason: Option<String>,
    /// Output tokens of the steady state's requests.
    pub output_tokens_per_joule: Option<f64>,
    /// The reverse.
    pub joules_per_output_token: Option<f64>,
    /// Agents over mean power in megawatts.
    pub agents_per_mw: Option<f64>,
    /// What `agents_per_mw` was held against.
    pub load: String,
}

/// One device.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DeviceFigures {
    /// Its UUID or name.
    pub device: String,
    /// Energy used.
    pub energy_j: Option<f64>,
    /// Mean power.
    pub mean_power_w: Option<f64>,
    /// Mean power before the run; null without a baseline.
    pub idle_power_w: Option<f64>,
    /// `counter` or `trapezoid`.
    pub method: Option<String>,
    /// Whether the figures may be believed.
    pub valid: bool,
    /// Why not.
    pub reason: Option<String>,
}

/// The figures of a replay; without sampling they say why there are none.
pub fn power_figures(
    rows: &[PowerRow],
    requests: &[RequestRow],
    replay: &ReplaySettings,
    power: &PowerSettings,
) -> PowerFigures {
    let mut figures = PowerFigures {
        source: power.source.clone(),
        boundary: power
            .boundary
            .map(|own| if power.pue.is_some() { Boundary::Facility } else { own }),
        rule: power.rule.clone(),
        pue: power.pue,
        load: "at fixed load, no service level".to_owned(),
        ..PowerFigures::default()
    };
    if power.source.is_none() {
        let reason = power.reason.as_deref().unwrap_or("power was not sampled");
        figures.reason = Some(reason.to_owned());
        return figures;
    }
    let (Some(start_ms), Some(end_ms), Some(length_s)) =
        (replay.window.steady_start_ms, replay.window.steady_end_ms, replay.window.steady_s())
    else {
        figures.reason = Some("no steady state".to_owned());
        return figures;
    };
    let wall = |run_ms: f64| unix_seconds(replay.clock_anchor_ns) + run_ms / 1e3;
    let window = (wall(start_ms), wall(end_ms));
    figures.devices =
        power.devices.iter().map(|device| of_device(device, rows, window, power)).collect();
    figures.reason = figures.devices.iter().find_map(|device| {
        device.reason.as_ref().map(|reason| format!("{}: {reason}", device.device))
    });
    figures.energy_j = figures.devices.iter().map(|device| device.energy_j).sum();
    figures.energy_j = figures.energy_j.map(|energy_j| energy_j * power.pue.unwrap_or(1.0));
    figures.valid = figures.energy_j.is_some();
    figures.method = total_method(&figures.devices);
    let Some(energy_j) = figures.energy_j else { return figures };
    let mean_power_w = energy_j / length_s;
    figures.mean_power_w = Some(mean_power_w);
    if let Some(reason) = not_the_engines_own(replay, power) {
        figures.reason = Some(reason.to_owned());
        return figures;
    }
    if replay.arrivals.is_some() {
        let reason = "no agents per MW: in the open loop the number of agents is not fixed";
        figures.reason = Some(reason.to_owned());
    } else {
        figures.agents_per_mw = Some(f64::from(replay.agents) / (mean_power_w / 1e6));
    }
    if let Some(tokens) = output_tokens(requests).filter(|tokens| *tokens > 0) {
        figures.output_tokens_per_joule = Some(tokens as f64 / energy_j);
        figures.joules_per_output_token = Some(energy_j / tokens as f64);
    }
    figures
}

/// Why the power that was measured cannot be held against what the engine did.
fn not_the_engines_own(replay: &ReplaySettings, power: &PowerSettings) -> Option<&'static str> {
    match power.source.as_deref() {
        // A figure that the user gave is taken for what it was given for.
        Some("constant") => None,
        _ if replay.simulated => {
            Some("no agents per MW: the engine is simulated, the measured power is not its own")
        }
        Some("rapl") => Some("no agents per MW: RAPL measures CPU packages, not what serves"),
        _ => None,
    }
}

fn of_device(
    device: &str,
    rows: &[PowerRow],
    (start, end): (f64, f64),
    power: &PowerSettings,
) -> DeviceFigures {
    let mut readings: Vec<Reading> = rows
        .iter()
        .filter(|row| row.device == device)
        .filter(|row| row.power_w.is_some() || row.energy_j.is_some())
        .map(|row| Reading { ts: row.ts, power_w: row.power_w, energy_j: row.energy_j })
        .collect();
    readings.sort_by(|a, b| a.ts.total_cmp(&b.ts));
    let idle = power.idle.as_ref().and_then(|idle| idle.mean_power_w.get(device).copied());
    let figures = DeviceFigures {
        device: device.to_owned(),
        idle_power_w: idle.flatten(),
        ..DeviceFigures::default()
    };
    match energy(&readings, start, end, power.interval_ms / 1e3) {
        Ok(Energy { energy_j, mean_power_w, method }) => DeviceFigures {
            energy_j: Some(energy_j),
            mean_power_w: Some(mean_power_w),
            method: Some(
                match method {
                    Method::Counter => "counter",
                    Method::Trapezoid => "trapezoid",
                }
                .to_owned(),
            ),
            valid: true,
            ..figures
        },
        Err(invalid) => DeviceFigures { reason: Some(invalid.to_string()), ..figures },
    }
}

fn total_method(devices: &[DeviceFigures]) -> Option<String> {
    let mut methods = devices.iter().map(|device| device.method.as_deref());
    let first = methods.next()??;
    let same = methods.try_fold(true, |same, method| Some(same && method? == first))?;
    Some(if same { first } else { "mixed" }.to_owned())
}

/// As in the summary's rates: of requests sent in the steady state and answered whole; none where one
/// of them does not tell.
fn output_tokens(requests: &[RequestRow]) -> Option<u64> {
    let counted =
        requests.iter().filter(|row| row.phase == Phase::Steady && row.status == RequestStatus::Ok);
    counted.map(|row| row.completion_tokens).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agents_per_megawatt_need_the_engines_own_power() {
        // (source, simulated, whether agents per MW may be given)
        let cases = [
            ("nvml", false, true),
            ("dcgm", false, true),
            ("rapl", false, false),
            ("nvml", true, false),
            ("constant", true, true),
        ];
        for (source, simulated, allowed) in cases {
            let replay = ReplaySettings { simulated, ..ReplaySettings::default() };
            let power =
                PowerSettings { source: Some(source.to_owned()), ..PowerSettings::default() };
            let refused = not_the_engines_own(&replay, &power);
            assert_eq!(refused.is_none(), allowed, "{source}, simulated {simulated}: {refused:?}");
        }
    }
}
