//! The two distributions that coding agents' figures follow: log-normal spreads given by their median,
//! and the mixture of short and long tool runs.
//!
//! A spread is declared as data, so that a profile reads as a table of published figures.

use rand::{Rng, RngExt};
use rand_distr::StandardNormal;

/// A log-normal spread, cut at both ends.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Spread {
    /// Half of the values lie below.
    pub median: f64,
    /// Standard deviation of the logarithm: 0 is a constant, 1 spans a factor of 2.7.
    pub sigma: f64,
    /// No value below.
    pub low: f64,
    /// No value above.
    pub high: f64,
}

impl Spread {
    /// A spread by its four numbers.
    pub const fn new(median: f64, sigma: f64, low: f64, high: f64) -> Self {
        Self { median, sigma, low, high }
    }

    /// One value.
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> f64 {
        let normal: f64 = rng.sample(StandardNormal);
        (self.median * (self.sigma * normal).exp()).clamp(self.low, self.high)
    }

    /// One value, rounded.
    pub(crate) fn count(&self, rng: &mut impl Rng) -> u32 {
        self.draw(rng).round() as u32
    }

    /// The same shape with every value multiplied.
    #[must_use]
    pub const fn times(self, factor: f64) -> Self {
        Self {
            median: self.median * factor,
            sigma: self.sigma,
            low: self.low * factor,
            high: self.high * factor,
        }
    }
}

/// 1, and one more as often as `p` says, again and again up to `most`.
pub(crate) fn one_or_more(rng: &mut impl Rng, p: f64, most: u32) -> u32 {
    let mut count = 1;
    while count < most && rng.random_bool(p) {
        count += 1;
    }
    count
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand::rngs::StdRng;

    use super::*;

    #[test]
    fn a_spread_has_its_median_and_its_ninth_decile() {
        // The published human wait: p50 86 s, p90 21 min.
        let spread = Spread::new(86.0, 2.094, 0.0, 1e9);
        let mut rng = StdRng::seed_from_u64(1);
        let mut values: Vec<f64> = (0..20_000).map(|_| spread.draw(&mut rng)).collect();
        values.sort_by(f64::total_cmp);
        assert!((values[10_000] / 86.0 - 1.0).abs() < 0.05, "median {}", values[10_000]);
        assert!((values[18_000] / 1260.0 - 1.0).abs() < 0.08, "p90 {}", values[18_000]);
    }

    #[test]
    fn a_spread_is_cut_at_both_ends_and_scales() {
        let spread = Spread::new(100.0, 3.0, 50.0, 200.0).times(0.1);
        let mut rng = StdRng::seed_from_u64(2);
        let values: Vec<f64> = (0..2000).map(|_| spread.draw(&mut rng)).collect();
        let at = |bound: f64| values.iter().filter(|value| (**value - bound).abs() < 1e-9).count();
        assert!(values.iter().all(|value| (5.0..=20.0).contains(value)));
        assert!(at(5.0) > 500 && at(20.0) > 500);
    }

    #[test]
    fn one_or_more_has_the_mean_of_its_chance() {
        let mut rng = StdRng::seed_from_u64(3);
        let sum: u32 = (0..20_000).map(|_| one_or_more(&mut rng, 0.25, 100)).sum();
        // 1 / (1 - p)
        assert!((f64::from(sum) / 20_000.0 - 1.0 / 0.75).abs() < 0.02);
        assert_eq!(one_or_more(&mut rng, 1.0, 6), 6);
        assert_eq!(one_or_more(&mut rng, 0.0, 6), 1);
    }
}
