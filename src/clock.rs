//! Time: one wall-clock anchor plus monotonic ticks. The only file that may call `now()`.
//!
//! A run takes its anchor once; every later stamp is the anchor plus monotonic time, so a clock that
//! is stepped during a run does no harm and differences between stamps are true durations. Ticks are
//! tokio's, so tests under paused time see virtual time.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// Wall anchor and monotonic anchor of one run; copied freely, passed explicitly.
#[derive(Debug, Clone, Copy)]
pub struct Clock {
    wall_ns: i64,
    tick: Instant,
}

impl Clock {
    /// Anchors a clock at this moment.
    #[allow(clippy::disallowed_methods)]
    pub fn start() -> Self {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self::anchored_at(wall.as_nanos() as i64)
    }

    /// A clock that takes this for the time of day. It is the only thing that the wall clock ever says.
    #[allow(clippy::disallowed_methods)]
    pub fn anchored_at(wall_ns: i64) -> Self {
        Self { wall_ns, tick: Instant::now() }
    }

    /// A clock of another's anchor, which reads `now_ns` at this moment: both then tell one run's time.
    #[allow(clippy::disallowed_methods)]
    pub fn aligned(anchor_ns: i64, now_ns: i64) -> Self {
        let now = Instant::now();
        // Where the monotonic clock does not reach back that far, it is anchored later on.
        let back = Duration::from_nanos((now_ns - anchor_ns).max(0) as u64);
        match now.checked_sub(back) {
            Some(tick) => Self { wall_ns: anchor_ns, tick },
            None => Self { wall_ns: now_ns, tick: now },
        }
    }

    /// Nanoseconds since the Unix epoch at which this clock was anchored.
    pub fn anchor_ns(&self) -> i64 {
        self.wall_ns
    }

    /// Nanoseconds since the Unix epoch, by the anchor and the monotonic clock.
    #[allow(clippy::disallowed_methods)]
    pub fn now_ns(&self) -> i64 {
        self.wall_ns + Instant::now().duration_since(self.tick).as_nanos() as i64
    }

    /// Milliseconds since this clock was anchored: the run clock.
    pub fn run_ms(&self) -> f64 {
        (self.now_ns() - self.wall_ns) as f64 / 1e6
    }

    /// The monotonic instant that belongs to a stamp of this clock.
    pub fn instant_at(&self, unix_ns: i64) -> Instant {
        let offset = unix_ns - self.wall_ns;
        if offset >= 0 {
            self.tick + Duration::from_nanos(offset as u64)
        } else {
            self.tick.checked_sub(Duration::from_nanos(offset.unsigned_abs())).unwrap_or(self.tick)
        }
    }
}

/// Seconds since the Unix epoch of a stamp in nanoseconds, as the tables keep wall times.
pub fn unix_seconds(unix_ns: i64) -> f64 {
    unix_ns as f64 / 1e9
}

/// Milliseconds between two stamps.
pub fn elapsed_ms(from_ns: i64, to_ns: i64) -> f64 {
    (to_ns - from_ns) as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    #[allow(clippy::disallowed_methods)]
    async fn stamps_follow_the_monotonic_clock() {
        let clock = Clock::start();
        let first = clock.now_ns();
        tokio::time::advance(Duration::from_millis(1500)).await;
        assert_eq!(clock.now_ns() - first, 1_500_000_000);
        assert!((clock.run_ms() - 1500.0).abs() < 1e-6);
        let due = clock.instant_at(first + 2_000_000_000);
        assert_eq!((due - Instant::now()).as_millis(), 500);
    }

    /// What two clocks stamp of the same events: one anchored before the wall clock was stepped, one that
    /// believes another time of day. All but the anchor is the same.
    #[tokio::test(start_paused = true)]
    async fn a_step_of_the_wall_clock_moves_no_stamp() {
        const HOUR_NS: i64 = 3_600_000_000_000;
        let clock = Clock::start();
        for step_ns in [-HOUR_NS, -1, 1, HOUR_NS, 24 * 365 * HOUR_NS] {
            // The wall clock as a step within the run leaves it; the run's own clock is copied, as it is
            // into everything that stamps.
            let (own, stepped) = (clock, Clock::anchored_at(clock.now_ns() + step_ns));
            let mut stamps = Vec::new();
            for wait_ms in [0, 1, 250, 3_600_000] {
                tokio::time::advance(Duration::from_millis(wait_ms)).await;
                stamps.push((own.now_ns(), stepped.now_ns()));
            }
            for pair in stamps.windows(2) {
                assert!(pair[0].0 <= pair[1].0, "order");
                assert_eq!(pair[1].0 - pair[0].0, pair[1].1 - pair[0].1, "durations, {step_ns}");
            }
            for (own, stepped) in stamps {
                assert_eq!(stepped - own, step_ns, "one anchor for all stamps");
            }
        }
        assert_eq!(clock.run_ms().round() as i64, 5 * 3_600_251);
    }

    #[tokio::test(start_paused = true)]
    async fn an_aligned_clock_tells_the_other_ones_time() {
        let clock = Clock::start();
        tokio::time::advance(Duration::from_millis(700)).await;
        let aligned = Clock::aligned(clock.anchor_ns(), clock.now_ns());
        tokio::time::advance(Duration::from_millis(300)).await;
        assert_eq!(aligned.now_ns(), clock.now_ns());
        assert_eq!(aligned.anchor_ns(), clock.anchor_ns());
        assert!((aligned.run_ms() - 1000.0).abs() < 1e-6);
    }
}
