//! What an open loop's arrivals came to: how many there were, how many had to wait for a place, how many
//! agents were at work.
//!
//! Pure: from the rows of `trajectories` and the settings, so that it can be recomputed.

use serde::{Deserialize, Serialize};

use super::settings::ReplaySettings;
use super::statistics::Statistic;
use crate::trace::record::TrajectoryRow;

/// The second half of the steady state has so many times the agents of the first, and one more, where
/// arrivals outrun the engine; less than that chance alone gives.
const GROWTH: f64 = 1.25;

/// `open_loop` in `summary.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct OpenLoopFigures {
    /// Arrivals that were due before nothing more was started.
    pub arrivals: u64,
    /// Those that were taken up.
    pub admitted: u64,
    /// Those that had to wait for a place under the cap.
    pub admitted_late: u64,
    /// Those that found no place before nothing more was started.
    pub not_admitted: u64,
    /// Waits for a place of all admitted; null without a cap.
    pub admission_wait_ms: Option<Statistic>,
    /// Agents at work in the steady state, mean over time.
    pub active_agents_mean: Option<f64>,
    /// The same of its first half.
    pub active_agents_first_half: Option<f64>,
    /// The same of its second half.
    pub active_agents_second_half: Option<f64>,
}

/// The figures of an open loop; none of a closed one.
pub fn open_loop_figures(
    rows: &[TrajectoryRow],
    settings: &ReplaySettings,
) -> Option<OpenLoopFigures> {
    settings.arrivals?;
    let waits = || rows.iter().filter_map(|row| row.admission_wait_ms);
    let admitted = rows.len() as u64;
    let not_admitted = settings.not_admitted.unwrap_or_default();
    let window = settings.window;
    let steady = window.steady_start_ms.zip(window.steady_end_ms).filter(|(from, to)| to > from);
    let active = |part: fn(f64, f64) -> (f64, f64)| {
        steady.map(|(from, to)| mean_active(rows, part(from, to)))
    };
    Some(OpenLoopFigures {
        arrivals: admitted + not_admitted,
        admitted,
        admitted_late: waits().filter(|wait_ms| *wait_ms > 0.0).count() as u64,
        not_admitted,
        admission_wait_ms: Statistic::of(waits()),
        active_agents_mean: active(|from, to| (from, to)),
        active_agents_first_half: active(|from, to| (from, f64::midpoint(from, to))),
        active_agents_second_half: active(|from, to| (f64::midpoint(from, to), to)),
    })
}

/// Most agents at work at once, of the spans of time that trajectories took; one that begins in the
/// moment in which another ends takes its place.
pub fn most_at_once(spans_ms: &[(f64, f64)]) -> u32 {
    let begins = spans_ms.iter().map(|(start_ms, _)| (*start_ms, 1));
    let mut changes: Vec<(f64, i64)> =
        begins.chain(spans_ms.iter().map(|(_, end_ms)| (*end_ms, -1))).collect();
    changes.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    let (mut active, mut most) = (0, 0);
    for (_, change) in changes {
        active += change;
        most = most.max(active);
    }
    most.max(0) as u32
}

/// Agents at work between two moments of the run clock, mean over time.
fn mean_active(rows: &[TrajectoryRow], (from_ms, to_ms): (f64, f64)) -> f64 {
    let within: f64 = rows
        .iter()
        .map(|row| {
            let end_ms = row.end_ms.unwrap_or(row.start_ms);
            (end_ms.min(to_ms) - row.start_ms.max(from_ms)).max(0.0)
        })
        .sum();
    within / (to_ms - from_ms)
}

impl OpenLoopFigures {
    /// What a reader must know of them, a sentence each.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.admitted_late > 0 {
            let p99_ms = self.admission_wait_ms.map_or(0.0, |wait| wait.p99);
            notes.push(format!(
                "{} of {} arrivals waited for a place under the cap on active agents (p99 {p99_ms:.0} \
                 ms): latencies from due hold that wait, those from send do not",
                self.admitted_late, self.arrivals
            ));
        }
        if self.not_admitted > 0 {
            notes.push(format!(
                "{} of {} arrivals found no place before the run ended: what they would have waited is \
                 in no figure",
                self.not_admitted, self.arrivals
            ));
        }
        let halves = self.active_agents_first_half.zip(self.active_agents_second_half);
        if let Some((first, second)) = halves
            && second > first * GROWTH
            && second > first + 1.0
        {
            notes.push(format!(
                "agents at work rose from {first:.1} to {second:.1} between the halves of the steady \
                 state: arrivals outran the engine, and the figures hang on the length of the run"
            ));
        }
        notes
    }
}

#[cfg(test)]
#[allow(clippy::float_cmp)] // exact by construction
mod tests {
    use super::*;
    use crate::replay::window::Window;

    fn row(start_ms: f64, end_ms: f64, admission_wait_ms: Option<f64>) -> TrajectoryRow {
        TrajectoryRow {
            start_ms,
            end_ms: Some(end_ms),
            admission_wait_ms,
            ..TrajectoryRow::default()
        }
    }

    fn settings() -> ReplaySettings {
        ReplaySettings {
            arrivals: Some("burst".parse().unwrap()),
            not_admitted: Some(3),
            window: Window {
                ramp_end_ms: Some(0.0),
                steady_start_ms: Some(1000.0),
                steady_end_ms: Some(3000.0),
            },
            ..ReplaySettings::default()
        }
    }

    #[test]
    fn late_admissions_and_agents_at_work_are_counted() {
        let rows = [
            row(0.0, 2000.0, Some(0.0)),
            row(1500.0, 9000.0, Some(400.0)),
            row(2500.0, 2750.0, Some(600.0)),
        ];
        let figures = open_loop_figures(&rows, &settings()).unwrap();
        let counts = (figures.arrivals, figures.admitted, figures.admitted_late);
        assert_eq!((counts, figures.not_admitted), ((6, 3, 2), 3));
        assert_eq!(figures.admission_wait_ms.unwrap().p50, 400.0);
        // 1000 + 1500 + 250 ms of work in 2000 ms.
        assert_eq!(figures.active_agents_mean, Some(1.375));
        assert_eq!(figures.active_agents_first_half, Some(1.5));
        assert_eq!(figures.active_agents_second_half, Some(1.25));
        let notes = figures.notes();
        assert_eq!(notes.len(), 2, "{notes:?}");
        assert!(notes[0].starts_with("2 of 6 arrivals waited for a place"), "{}", notes[0]);
        assert!(notes[1].starts_with("3 of 6 arrivals found no place"), "{}", notes[1]);
    }

    #[test]
    fn arrivals_that_outrun_the_engine_are_noted() {
        let rows: Vec<TrajectoryRow> =
            (0..8).map(|index| row(f64::from(index) * 400.0, 9000.0, None)).collect();
        let settings = ReplaySettings { not_admitted: Some(0), ..settings() };
        let figures = open_loop_figures(&rows, &settings).unwrap();
        assert_eq!((figures.admitted_late, figures.admission_wait_ms), (0, None));
        assert_eq!(figures.notes().len(), 1);
        assert!(figures.notes()[0].contains("outran"), "{:?}", figures.notes());
        let steady: Vec<TrajectoryRow> = (0..4).map(|_| row(0.0, 9000.0, None)).collect();
        assert_eq!(open_loop_figures(&steady, &settings).unwrap().notes(), [""; 0]);
    }

    #[test]
    fn the_most_agents_at_once_are_counted_from_their_spans() {
        let cases: [(&[(f64, f64)], u32); 4] = [
            (&[], 0),
            (&[(0.0, 10.0), (10.0, 20.0)], 1),
            (&[(0.0, 30.0), (10.0, 20.0), (15.0, 40.0), (20.0, 50.0)], 3),
            (&[(5.0, 5.0), (5.0, 9.0)], 1),
        ];
        for (spans_ms, most) in cases {
            assert_eq!(most_at_once(spans_ms), most, "{spans_ms:?}");
        }
    }

    #[test]
    fn a_closed_loop_has_none() {
        let closed = ReplaySettings { arrivals: None, ..settings() };
        assert_eq!(open_loop_figures(&[row(0.0, 1.0, None)], &closed), None);
    }
}
