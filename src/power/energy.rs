//! Energy of a window from power samples, and whether the figure may be believed.
//!
//! Pure. The device's own energy counter is the honest integral where there is one; else the trapezoid
//! over the samples, with the window's edges interpolated. A figure that fails a check is no figure:
//! the result then holds the reason. Where samples come from is the other files' affair.

use std::fmt;

/// One reading of one device.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reading {
    /// When it was taken, seconds.
    pub ts: f64,
    /// Power at that moment.
    pub power_w: Option<f64>,
    /// The device's energy counter.
    pub energy_j: Option<f64>,
}

/// How an energy figure was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// Difference of the device's energy counter.
    Counter,
    /// Trapezoid over power samples.
    Trapezoid,
}

/// Energy of one device over one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Energy {
    /// Energy used in the window.
    pub energy_j: f64,
    /// `energy_j` over the window's length.
    pub mean_power_w: f64,
    /// How it was made.
    pub method: Method,
}

/// Why a window has no energy figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Invalid {
    /// No reading in or around the window.
    NoReadings,
    /// The window is empty or runs backwards.
    NoWindow,
    /// The readings cover too little of the window.
    Coverage {
        /// Share of the window between the first and the last reading.
        share: f64,
    },
    /// Two readings are too far apart.
    Gap {
        /// Their distance.
        seconds: f64,
    },
    /// The energy counter went back.
    CounterWentBack,
    /// Counter and integral differ too much.
    Disagreement {
        /// Integral over counter.
        ratio: f64,
    },
    /// Every reading is 0.
    AllZero,
}

impl fmt::Display for Invalid {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoReadings => write!(formatter, "no power readings in the window"),
            Self::NoWindow => write!(formatter, "the window is empty"),
            Self::Coverage { share } => {
                write!(
                    formatter,
                    "readings cover {:.1} % of the window, 95 % are needed",
                    share * 100.0
                )
            }
            Self::Gap { seconds } => {
                write!(
                    formatter,
                    "a gap of {seconds:.2} s between readings, over 3 sampling intervals"
                )
            }
            Self::CounterWentBack => write!(formatter, "the device's energy counter went back"),
            Self::Disagreement { ratio } => write!(
                formatter,
                "integral and energy counter differ by {:.1} %, 5 % are allowed",
                (ratio - 1.0).abs() * 100.0
            ),
            Self::AllZero => write!(formatter, "every power reading is 0"),
        }
    }
}

/// Least share of the window that readings must cover.
const MIN_COVERAGE: f64 = 0.95;
/// Largest gap between readings, in sampling intervals.
const MAX_GAP_INTERVALS: f64 = 3.0;
/// Largest relative difference between counter and integral.
const MAX_DISAGREEMENT: f64 = 0.05;

/// Energy of one device in `[start, end]` (seconds), from readings in order of time that were due
/// every `interval` seconds.
pub fn energy(
    readings: &[Reading],
    start: f64,
    end: f64,
    interval: f64,
) -> Result<Energy, Invalid> {
    let length = end - start;
    if length.is_nan() || length <= 0.0 {
        return Err(Invalid::NoWindow);
    }
    let near = around(readings, start, end);
    check_sampling(near, start, end, interval)?;
    let integral =
        curve(near, |reading| reading.power_w).map(|points| trapezoid(&points, start, end));
    let counted = match curve(near, |reading| reading.energy_j) {
        Some(points) if points.len() >= 2 => Some(counter(&points, start, end)?),
        _ => None,
    };
    if near.iter().all(|reading| reading.power_w.unwrap_or(0.0) == 0.0)
        && counted.unwrap_or(0.0) == 0.0
    {
        return Err(Invalid::AllZero);
    }
    let (energy_j, method) = match (counted, integral) {
        (Some(counted), Some(integral)) => {
            let ratio = integral / counted;
            // A counter that stands still while power is drawn gives an infinite ratio: refused too.
            if ratio.is_nan() || (ratio - 1.0).abs() > MAX_DISAGREEMENT {
                return Err(Invalid::Disagreement { ratio });
            }
            (counted, Method::Counter)
        }
        (Some(counted), None) => (counted, Method::Counter),
        (None, Some(integral)) => (integral, Method::Trapezoid),
        (None, None) => return Err(Invalid::NoReadings),
    };
    Ok(Energy { energy_j, mean_power_w: energy_j / length, method })
}

/// The readings inside the window and one on either side, for the edges.
fn around(readings: &[Reading], start: f64, end: f64) -> &[Reading] {
    let first = readings.partition_point(|reading| reading.ts <= start).saturating_sub(1);
    let last = (readings.partition_point(|reading| reading.ts < end) + 1).min(readings.len());
    readings.get(first..last).unwrap_or_default()
}

fn check_sampling(near: &[Reading], start: f64, end: f64, interval: f64) -> Result<(), Invalid> {
    let (Some(first), Some(last)) = (near.first(), near.last()) else {
        return Err(Invalid::NoReadings);
    };
    let covered = last.ts.min(end) - first.ts.max(start);
    let share = (covered / (end - start)).max(0.0);
    if share < MIN_COVERAGE {
        return Err(Invalid::Coverage { share });
    }
    let widest = near.windows(2).map(|pair| pair[1].ts - pair[0].ts).fold(0.0, f64::max);
    if widest > MAX_GAP_INTERVALS * interval {
        return Err(Invalid::Gap { seconds: widest });
    }
    Ok(())
}

/// (time, value) where every reading that has the value; none when no reading has it.
fn curve(near: &[Reading], value: impl Fn(&Reading) -> Option<f64>) -> Option<Vec<(f64, f64)>> {
    let points: Vec<_> =
        near.iter().filter_map(|reading| Some((reading.ts, value(reading)?))).collect();
    (!points.is_empty()).then_some(points)
}

/// The value of a curve at `ts`, interpolated; outside the curve its nearest end.
fn at(points: &[(f64, f64)], ts: f64) -> f64 {
    let after = points.partition_point(|point| point.0 < ts);
    match (after.checked_sub(1).and_then(|before| points.get(before)), points.get(after)) {
        (Some(&(t0, v0)), Some(&(t1, v1))) if t1 > t0 => v0 + (v1 - v0) * (ts - t0) / (t1 - t0),
        (_, Some(&(_, value))) | (Some(&(_, value)), None) => value,
        (None, None) => 0.0,
    }
}

fn trapezoid(points: &[(f64, f64)], start: f64, end: f64) -> f64 {
    let inside = points.iter().copied().filter(|point| point.0 > start && point.0 < end);
    let whole: Vec<_> = std::iter::once((start, at(points, start)))
        .chain(inside)
        .chain(std::iter::once((end, at(points, end))))
        .collect();
    whole.windows(2).map(|pair| f64::midpoint(pair[0].1, pair[1].1) * (pair[1].0 - pair[0].0)).sum()
}

fn counter(points: &[(f64, f64)], start: f64, end: f64) -> Result<f64, Invalid> {
    if points.windows(2).any(|pair| pair[1].1 < pair[0].1) {
        return Err(Invalid::CounterWentBack);
    }
    // Readings need not reach the window's edges (95 % are enough): the part that they cover is
    // scaled to the whole, as the integral's flat ends do.
    let from = points[0].0.max(start);
    let to = points[points.len() - 1].0.min(end);
    Ok((at(points, to) - at(points, from)) * (end - start) / (to - from))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(
        seconds: f64,
        power: impl Fn(f64) -> f64,
        counter: impl Fn(f64) -> Option<f64>,
    ) -> Vec<Reading> {
        let n = (seconds * 10.0).round() as usize;
        (0..=n)
            .map(|k| {
                let ts = k as f64 / 10.0;
                Reading { ts, power_w: Some(power(ts)), energy_j: counter(ts) }
            })
            .collect()
    }

    fn check(readings: &[Reading], window: (f64, f64), expect: (f64, Method)) {
        let energy = energy(readings, window.0, window.1, 0.1).expect("a valid figure");
        assert_eq!(energy.method, expect.1);
        assert!((energy.energy_j / expect.0 - 1.0).abs() < 0.005, "{energy:?} against {expect:?}");
        assert!((energy.mean_power_w * (window.1 - window.0) - energy.energy_j).abs() < 1e-9);
    }

    #[test]
    fn known_integrals() {
        let steady = |_: f64| 300.0;
        check(&readings(20.0, steady, |_| None), (2.0, 12.0), (3000.0, Method::Trapezoid));
        check(
            &readings(20.0, steady, |ts| Some(ts * 300.0)),
            (2.0, 12.0),
            (3000.0, Method::Counter),
        );
        // Edges between samples are interpolated.
        check(&readings(20.0, steady, |_| None), (2.03, 12.07), (3012.0, Method::Trapezoid));
        let ramp = |ts: f64| 100.0 + 20.0 * ts;
        check(&readings(20.0, ramp, |_| None), (0.0, 20.0), (6000.0, Method::Trapezoid));
        let step = |ts: f64| if ts < 10.0 { 100.0 } else { 400.0 };
        check(&readings(20.0, step, |_| None), (0.0, 20.0), (5000.0, Method::Trapezoid));
    }

    fn refused(readings: &[Reading], window: (f64, f64)) -> Invalid {
        energy(readings, window.0, window.1, 0.1).expect_err("no figure")
    }

    #[test]
    fn doubtful_figures_are_refused_with_the_reason() {
        let steady = readings(20.0, |_| 300.0, |_| None);
        assert_eq!(refused(&[], (0.0, 1.0)), Invalid::NoReadings);
        assert_eq!(refused(&steady, (5.0, 5.0)), Invalid::NoWindow);
        assert!(matches!(refused(&steady, (10.0, 40.0)), Invalid::Coverage { .. }));
        let mut holed = steady.clone();
        holed.retain(|reading| !(8.05..8.45).contains(&reading.ts));
        assert!(matches!(refused(&holed, (0.0, 20.0)), Invalid::Gap { .. }));
        let back = readings(20.0, |_| 300.0, |ts| Some(if ts < 10.0 { ts * 300.0 } else { 0.0 }));
        assert_eq!(refused(&back, (0.0, 20.0)), Invalid::CounterWentBack);
        let slow = readings(20.0, |_| 300.0, |ts| Some(ts * 270.0));
        assert!(matches!(refused(&slow, (0.0, 20.0)), Invalid::Disagreement { .. }));
        let stuck = readings(20.0, |_| 300.0, |_| Some(5.0));
        assert!(matches!(refused(&stuck, (0.0, 20.0)), Invalid::Disagreement { .. }));
        assert_eq!(refused(&readings(20.0, |_| 0.0, |_| None), (0.0, 20.0)), Invalid::AllZero);
    }
}
