//! Mean and percentiles of a set of values.
//!
//! Percentiles are those of numpy's default: linear interpolation between the closest ranks, at
//! position q·(n-1) of the sorted values. So whoever has the table can recompute them.

use serde::{Deserialize, Serialize};

/// What a set of values comes to.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Statistic {
    /// Number of values.
    pub n: u64,
    /// Arithmetic mean.
    pub mean: f64,
    /// Smallest value.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90th percentile.
    pub p90: f64,
    /// 95th percentile.
    pub p95: f64,
    /// 99th percentile.
    pub p99: f64,
    /// Largest value.
    pub max: f64,
}

/// Values in order, each with the number of times that it counts.
#[derive(Debug, Clone)]
pub struct Sorted {
    values: Vec<f64>,
    /// The rank after each value's last copy, for finding a rank by bisection.
    ends: Vec<u64>,
    sum: f64,
}

impl Sorted {
    /// Puts values in order; none of no value.
    pub fn of_repeated(values: impl IntoIterator<Item = (f64, u64)>) -> Option<Self> {
        let mut pairs: Vec<(f64, u64)> = values.into_iter().filter(|(_, n)| *n > 0).collect();
        pairs.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut n = 0;
        let ends: Vec<u64> = pairs
            .iter()
            .map(|(_, copies)| {
                n += copies;
                n
            })
            .collect();
        let sum = pairs.iter().map(|(value, copies)| value * *copies as f64).sum();
        let values: Vec<f64> = pairs.into_iter().map(|(value, _)| value).collect();
        (!values.is_empty()).then_some(Self { values, ends, sum })
    }

    /// Number of values, repeated ones counted.
    pub fn n(&self) -> u64 {
        self.ends.last().copied().unwrap_or_default()
    }

    /// Arithmetic mean.
    pub fn mean(&self) -> f64 {
        self.sum / self.n() as f64
    }

    /// Smallest value.
    pub fn min(&self) -> f64 {
        self.values[0]
    }

    /// Largest value.
    pub fn max(&self) -> f64 {
        self.values[self.values.len() - 1]
    }

    /// Percentile, 0 to 100.
    pub fn percentile(&self, percent: f64) -> f64 {
        let position = percent / 100.0 * (self.n() - 1) as f64;
        let below = position.floor();
        let low = self.at_rank(below as u64);
        // An infinite neighbour without weight must not make the result NaN.
        if position <= below {
            return low;
        }
        let high = self.at_rank((below as u64 + 1).min(self.n() - 1));
        low + (high - low) * (position - below)
    }

    fn at_rank(&self, rank: u64) -> f64 {
        self.values[self.ends.partition_point(|end| *end <= rank)]
    }
}

impl Statistic {
    /// The statistic of some values; none of no value.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        Self::of_repeated(values.into_iter().map(|value| (value, 1)))
    }

    /// The statistic of values each of which counts so many times.
    pub fn of_repeated(values: impl IntoIterator<Item = (f64, u64)>) -> Option<Self> {
        let sorted = Sorted::of_repeated(values)?;
        Some(Self {
            n: sorted.n(),
            mean: sorted.mean(),
            min: sorted.min(),
            p50: sorted.percentile(50.0),
            p90: sorted.percentile(90.0),
            p95: sorted.percentile(95.0),
            p99: sorted.percentile(99.0),
            max: sorted.max(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(values: &[(f64, u64)], n: u64, mean: f64, percentiles: [f64; 4]) {
        let statistic = Statistic::of_repeated(values.iter().copied()).unwrap();
        assert_eq!(statistic.n, n);
        assert!((statistic.mean - mean).abs() < 1e-9, "mean {}", statistic.mean);
        let seen = [statistic.p50, statistic.p90, statistic.p95, statistic.p99];
        for (seen, expected) in seen.iter().zip(percentiles) {
            assert!((seen - expected).abs() < 1e-9, "{seen} is not {expected}");
        }
    }

    #[test]
    fn percentiles_are_numpys() {
        // numpy.percentile([…], [50, 90, 95, 99])
        check(&[(3.0, 1), (1.0, 1), (2.0, 1), (4.0, 1)], 4, 2.5, [2.5, 3.7, 3.85, 3.97]);
        check(&[(7.0, 1)], 1, 7.0, [7.0; 4]);
        let hundred: Vec<(f64, u64)> = (1..=100).map(|value| (f64::from(value), 1)).collect();
        check(&hundred, 100, 50.5, [50.5, 90.1, 95.05, 99.01]);
    }

    #[test]
    fn a_value_counts_as_often_as_it_is_told() {
        // As of [10, 10, 10, 10, 50]; what counts 0 times is not there.
        check(&[(10.0, 4), (50.0, 1), (99.0, 0)], 5, 18.0, [10.0, 34.0, 42.0, 48.4]);
    }

    #[test]
    fn no_value_has_no_statistic() {
        assert_eq!(Statistic::of([]), None);
        assert_eq!(Statistic::of_repeated([(1.0, 0)]), None);
    }
}
