//! When polls are due, and how late they were sent.
//!
//! Pure: times come in as numbers. Due times are start + k · interval, so that lateness never adds up.

use std::time::Duration;

/// A poll to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tick {
    pub(crate) due_ns: i64,
    /// Ticks that passed before their turn came.
    pub(crate) skipped: u64,
}

/// An absolute schedule.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Schedule {
    start_ns: i64,
    interval_ns: i64,
    next: i64,
}

impl Schedule {
    /// The first tick is one interval after `start_ns`.
    pub(crate) fn new(start_ns: i64, interval: Duration) -> Self {
        Self { start_ns, interval_ns: interval.as_nanos() as i64, next: 1 }
    }

    /// The next tick that is not over at `now_ns`; the ones over are skipped, never made up for.
    pub(crate) fn next(&mut self, now_ns: i64) -> Tick {
        let elapsed = now_ns - self.start_ns;
        let reachable = elapsed.div_euclid(self.interval_ns)
            + i64::from(elapsed.rem_euclid(self.interval_ns) > 0);
        let chosen = reachable.max(self.next);
        let skipped = (chosen - self.next) as u64;
        self.next = chosen + 1;
        Tick { due_ns: self.start_ns + chosen * self.interval_ns, skipped }
    }
}

/// Counts of lags in steps of 0.1 ms up to 100 ms; longer ones in the last step.
#[derive(Debug)]
pub(crate) struct LagHistogram {
    steps: Vec<u64>,
    count: u64,
    max_ns: i64,
}

const STEP_NS: i64 = 100_000;
const STEPS: usize = 1000;

impl Default for LagHistogram {
    fn default() -> Self {
        Self { steps: vec![0; STEPS + 1], count: 0, max_ns: 0 }
    }
}

impl LagHistogram {
    pub(crate) fn record_ns(&mut self, lag_ns: i64) {
        let lag_ns = lag_ns.max(0);
        self.steps[((lag_ns / STEP_NS) as usize).min(STEPS)] += 1;
        self.count += 1;
        self.max_ns = self.max_ns.max(lag_ns);
    }

    /// Upper edge of the step that holds the quantile, at most the longest lag; none without any.
    pub(crate) fn quantile_ms(&self, quantile: f64) -> Option<f64> {
        let rank = (quantile * self.count as f64).ceil().max(1.0) as u64;
        let mut below = 0;
        let step = self.steps.iter().position(|count| {
            below += count;
            below >= rank
        })?;
        let edge_ns = if step == STEPS { self.max_ns } else { (step as i64 + 1) * STEP_NS };
        Some(edge_ns.min(self.max_ns) as f64 / 1e6)
    }

    pub(crate) fn max_ms(&self) -> Option<f64> {
        (self.count > 0).then_some(self.max_ns as f64 / 1e6)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn ticks_that_passed_are_skipped_and_counted() {
        // Interval 100, start 1000: each step is "now" and the tick that must follow.
        for steps in [
            vec![(1001, 1100, 0), (1130, 1200, 0), (1299, 1300, 0)],
            vec![(1001, 1100, 0), (1200, 1200, 0), (1201, 1300, 0)],
            vec![(1001, 1100, 0), (1201, 1300, 1), (1950, 2000, 6), (2001, 2100, 0)],
            vec![(900, 1100, 0), (900, 1200, 0)],
        ] {
            let mut schedule = Schedule::new(1000, Duration::from_nanos(100));
            for (now_ns, due_ns, skipped) in &steps {
                let tick = Tick { due_ns: *due_ns, skipped: *skipped };
                assert_eq!(schedule.next(*now_ns), tick, "{steps:?}");
            }
        }
    }

    proptest! {
        #[test]
        fn no_tick_is_lost_or_made_twice(pauses in prop::collection::vec(0_i64..500, 1..50)) {
            let mut schedule = Schedule::new(0, Duration::from_nanos(100));
            let (mut now, mut accounted) = (0, 0);
            for pause in pauses {
                let tick = schedule.next(now);
                accounted += 1 + tick.skipped as i64;
                prop_assert_eq!(tick.due_ns, accounted * 100);
                prop_assert!(tick.due_ns >= now);
                now = now.max(tick.due_ns) + pause;
            }
        }
    }

    #[test]
    fn quantiles_of_lag() {
        let mut lag = LagHistogram::default();
        assert_eq!((lag.quantile_ms(0.99), lag.max_ms()), (None, None));
        for _ in 0..98 {
            lag.record_ns(1_010_000);
        }
        lag.record_ns(-5);
        lag.record_ns(250_000_000);
        assert_eq!(lag.quantile_ms(0.01), Some(0.1));
        assert_eq!(lag.quantile_ms(0.5), Some(1.1));
        assert_eq!(lag.quantile_ms(0.99), Some(1.1));
        assert_eq!(lag.quantile_ms(1.0), Some(250.0));
        assert_eq!(lag.max_ms(), Some(250.0));
    }
}
