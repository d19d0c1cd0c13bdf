//! Energy and mean power of the devices that serve, over one steady window.
//!
//! Pure: from readings, how they were taken, and the window's bounds. The total is valid when every
//! device's figure is; an invalid figure is null with a reason. What the energy served is
//! `power_figures`' affair.

use serde::{Deserialize, Serialize};

use super::window::Window;
use crate::clock::unix_seconds;
use crate::power::PowerSettings;
use crate::power::energy::{Energy, Method, energy};
use crate::power::readings::Readings;
use crate::trace::record::LevelRow;

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

/// All devices over one window.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WindowPower {
    /// Each device as measured.
    pub devices: Vec<DeviceFigures>,
    /// Energy of all of them, times the power usage effectiveness.
    pub energy_j: Option<f64>,
    /// `energy_j` over the window's length.
    pub mean_power_w: Option<f64>,
    /// `counter` or `trapezoid`; `mixed` where the devices differ.
    pub method: Option<String>,
    /// Why there is no energy.
    pub reason: Option<String>,
}

impl WindowPower {
    fn none(reason: impl Into<String>) -> Self {
        Self { reason: Some(reason.into()), ..Self::default() }
    }
}

/// The figures of a window; `anchor_ns` is the run clock's.
pub fn window_power(
    readings: &Readings,
    power: &PowerSettings,
    window: &Window,
    anchor_ns: i64,
) -> WindowPower {
    if power.source.is_none() {
        return WindowPower::none(power.reason.as_deref().unwrap_or("power was not sampled"));
    }
    let (Some(start_ms), Some(end_ms), Some(length_s)) =
        (window.steady_start_ms, window.steady_end_ms, window.steady_s())
    else {
        return WindowPower::none("no steady state");
    };
    let wall = |run_ms: f64| unix_seconds(anchor_ns) + run_ms / 1e3;
    let bounds = (wall(start_ms), wall(end_ms));
    let devices: Vec<DeviceFigures> =
        power.devices.iter().map(|device| of_device(device, readings, bounds, power)).collect();
    let reason = devices.iter().find_map(|device| {
        device.reason.as_ref().map(|reason| format!("{}: {reason}", device.device))
    });
    let energy_j: Option<f64> = devices.iter().map(|device| device.energy_j).sum();
    let energy_j = energy_j.map(|energy_j| energy_j * power.pue.unwrap_or(1.0));
    WindowPower {
        method: total_method(&devices),
        devices,
        energy_j,
        mean_power_w: energy_j.map(|energy_j| energy_j / length_s),
        reason,
    }
}

/// Puts the power of a level's steady window into its row.
pub fn fill_level(row: &mut LevelRow, readings: &Readings, power: &PowerSettings, anchor_ns: i64) {
    let figures = window_power(readings, power, &level_window(row), anchor_ns);
    row.mean_power_w = figures.mean_power_w;
    row.energy_j = figures.energy_j;
    row.power_reason = figures.reason;
}

/// The steady window that a level's row tells.
pub fn level_window(row: &LevelRow) -> Window {
    Window { ramp_end_ms: None, steady_start_ms: row.start_ms, steady_end_ms: row.end_ms }
}

fn of_device(
    device: &str,
    readings: &Readings,
    (start, end): (f64, f64),
    power: &PowerSettings,
) -> DeviceFigures {
    let idle = power.idle.as_ref().and_then(|idle| idle.mean_power_w.get(device).copied());
    let figures = DeviceFigures {
        device: device.to_owned(),
        idle_power_w: idle.flatten(),
        ..DeviceFigures::default()
    };
    match energy(readings.of(device), start, end, power.interval_ms / 1e3) {
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
