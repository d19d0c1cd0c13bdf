//! Whether two runs differ by more than chance: an interval for the difference of a statistic.
//!
//! Pure. A bootstrap by trajectory: requests of one trajectory are alike, so whole trajectories are
//! drawn with replacement, from each run apart, and the statistic's difference taken each time; given
//! are the 2.5th and 97.5th percentile of these differences. Where there are too few trajectories, or
//! too few values beyond a percentile, there is no interval: a bootstrap would make up certainty. What
//! differs between two runs as a whole (a warm engine, a neighbour on the machine) is not in it.

use std::collections::BTreeMap;

use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::part_figures::FIELDS;
use crate::trace::record::RequestRow;

/// Fewer trajectories than this tell nothing of how trajectories vary.
const LEAST_TRAJECTORIES: usize = 10;
/// Values that must lie beyond a percentile for it to be resampled.
const LEAST_BEYOND: f64 = 5.0;
const DRAWS: usize = 1000;
const SEED: u64 = 20_261_129;

/// The statistics that get an interval, with their percent; the mean has none.
const STATISTICS: [(&str, Option<f64>); 5] = [
    ("mean", None),
    ("p50", Some(50.0)),
    ("p90", Some(90.0)),
    ("p95", Some(95.0)),
    ("p99", Some(99.0)),
];

/// The columns that are compared.
pub const COMPARED: [&str; 5] = ["ttft_ms", "tpot_ms", "itl_ms", "e2e_ms", "output_tokens_per_s"];

/// By column and statistic: 95 % interval of the other run's figure less the first one's.
pub type Intervals = BTreeMap<&'static str, BTreeMap<&'static str, (f64, f64)>>;

/// Intervals for the requests of two runs that were answered whole.
pub fn difference_intervals(first: &[&RequestRow], other: &[&RequestRow]) -> Intervals {
    let mut intervals = Intervals::new();
    for (name, field) in FIELDS.into_iter().filter(|(name, _)| COMPARED.contains(name)) {
        let (first, other) = (Grouped::of(first, field), Grouped::of(other, field));
        for (statistic, percent) in STATISTICS {
            if let Some(interval) = interval(&first, &other, percent) {
                intervals.entry(name).or_default().insert(statistic, interval);
            }
        }
    }
    intervals
}

/// Values in order, each with the index of its trajectory.
struct Grouped {
    trajectories: usize,
    values: Vec<(f64, usize)>,
}

impl Grouped {
    fn of(rows: &[&RequestRow], field: fn(&RequestRow) -> Option<f64>) -> Self {
        let mut index: BTreeMap<&str, usize> = BTreeMap::new();
        let mut values = Vec::new();
        for row in rows {
            let Some(value) = field(row) else { continue };
            let next = index.len();
            values.push((value, *index.entry(&row.trajectory_id).or_insert(next)));
        }
        values.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        Self { trajectories: index.len(), values }
    }

    fn suffices(&self, percent: Option<f64>) -> bool {
        let beyond = percent.map_or(f64::INFINITY, |percent| {
            self.values.len() as f64 * percent.min(100.0 - percent) / 100.0
        });
        self.trajectories >= LEAST_TRAJECTORIES && beyond >= LEAST_BEYOND
    }

    /// The statistic of trajectories drawn with replacement.
    fn drawn(&self, percent: Option<f64>, rng: &mut StdRng) -> f64 {
        let mut times = vec![0_u32; self.trajectories];
        for _ in 0..self.trajectories {
            times[rng.random_range(0..self.trajectories)] += 1;
        }
        let weighted = || {
            let drawn = self.values.iter().map(|(value, of)| (*value, u64::from(times[*of])));
            drawn.filter(|(_, weight)| *weight > 0)
        };
        let n: u64 = weighted().map(|(_, weight)| weight).sum();
        let Some(percent) = percent else {
            return weighted().map(|(value, weight)| value * weight as f64).sum::<f64>() / n as f64;
        };
        let position = percent / 100.0 * (n - 1) as f64;
        let below = position.floor() as u64;
        let (mut seen, mut low) = (0, None);
        for (value, weight) in weighted() {
            seen += weight;
            if low.is_none() && seen > below {
                low = Some(value);
            }
            if let Some(low) = low.filter(|_| seen > (below + 1).min(n - 1)) {
                return low + (value - low) * (position - below as f64);
            }
        }
        low.unwrap_or(f64::NAN)
    }
}

fn interval(first: &Grouped, other: &Grouped, percent: Option<f64>) -> Option<(f64, f64)> {
    if !first.suffices(percent) || !other.suffices(percent) {
        return None;
    }
    let mut rng = StdRng::seed_from_u64(SEED);
    let mut differences: Vec<f64> = (0..DRAWS)
        .map(|_| other.drawn(percent, &mut rng) - first.drawn(percent, &mut rng))
        .collect();
    differences.sort_by(f64::total_cmp);
    let at = |share: f64| differences[(share * (DRAWS - 1) as f64).round() as usize];
    Some((at(0.025), at(0.975)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::statistics::Statistic;

    /// So many trajectories of three requests each; TTFT spreads evenly from `low` to `low + 90`.
    fn rows(trajectories: usize, low: f64) -> Vec<RequestRow> {
        (0..trajectories * 3)
            .map(|index| RequestRow {
                trajectory_id: format!("t{}", index / 3),
                ttft_ms: Some(low + (index % 10) as f64 * 10.0),
                ..RequestRow::default()
            })
            .collect()
    }

    fn ttft(first: &[RequestRow], other: &[RequestRow]) -> BTreeMap<&'static str, (f64, f64)> {
        let (first, other): (Vec<_>, Vec<_>) = (first.iter().collect(), other.iter().collect());
        difference_intervals(&first, &other).remove("ttft_ms").unwrap_or_default()
    }

    #[test]
    fn a_real_difference_lies_in_the_interval_and_zero_does_not() {
        let seen = ttft(&rows(40, 100.0), &rows(40, 150.0));
        for statistic in ["mean", "p50", "p90", "p95"] {
            let (low, high) = seen[statistic];
            assert!(low > 0.0 && low <= 50.0 && high >= 50.0, "{statistic}: {low} to {high}");
        }
        // 120 values leave one beyond the 99th percentile.
        assert!(!seen.contains_key("p99"));
    }

    #[test]
    fn no_difference_has_zero_in_its_interval() {
        for (low, high) in ttft(&rows(40, 100.0), &rows(40, 100.0)).values() {
            assert!(*low <= 0.0 && *high >= 0.0, "{low} to {high}");
        }
    }

    #[test]
    fn trajectories_are_drawn_and_not_requests() {
        // Each trajectory's requests are all alike: 12 trajectories know no more than 12 values do.
        let alike = |times: usize| {
            let of = move |index: usize| RequestRow {
                trajectory_id: format!("t{}", index / times),
                ttft_ms: Some((index / times) as f64),
                ..RequestRow::default()
            };
            (0..12 * times).map(of).collect::<Vec<_>>()
        };
        let width = |rows: &[RequestRow]| {
            let (low, high) = ttft(rows, rows)["mean"];
            high - low
        };
        let (once, often) = (width(&alike(1)), width(&alike(50)));
        assert!((once - often).abs() < 1e-9 && once > 1.0, "{once} and {often}");
    }

    #[test]
    fn few_trajectories_have_no_interval() {
        assert!(ttft(&rows(9, 100.0), &rows(40, 100.0)).is_empty());
        assert!(ttft(&rows(40, 100.0), &[]).is_empty());
    }

    #[test]
    fn a_draw_of_everything_once_is_the_statistic_itself() {
        let grouped = Grouped {
            trajectories: 1,
            values: [3.0, 10.0, 20.0, 50.0].map(|value| (value, 0)).to_vec(),
        };
        let own = Statistic::of([3.0, 10.0, 20.0, 50.0]).unwrap();
        let mut rng = StdRng::seed_from_u64(1);
        for (percent, expected) in
            [(None, own.mean), (Some(50.0), own.p50), (Some(90.0), own.p90), (Some(99.0), own.p99)]
        {
            let drawn = grouped.drawn(percent, &mut rng);
            assert!((drawn - expected).abs() < 1e-9, "{percent:?}: {drawn} and not {expected}");
        }
    }
}
