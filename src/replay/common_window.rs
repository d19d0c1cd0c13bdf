//! The phases of a run that several workers make together.
//!
//! Pure. Each worker follows its own agents; the run is in steady state from the latest worker's start
//! of it to the earliest worker's end, and a request's phase is told from when it was sent. A worker
//! that is lost has nothing left to start from the moment it was last heard of.

use super::window::Window;
use crate::trace::record::Phase;

/// What a worker last told.
#[derive(Debug, Clone, Copy, Default)]
struct Heard {
    window: Window,
    /// Up to when, on the run clock, it has told everything.
    until_ms: f64,
    /// It will tell nothing more.
    ended: bool,
}

/// The windows of all workers.
#[derive(Debug, Clone)]
pub struct CommonWindow {
    workers: Vec<Heard>,
}

impl CommonWindow {
    /// Nothing heard yet of so many workers.
    pub fn new(workers: usize) -> Self {
        Self { workers: vec![Heard::default(); workers] }
    }

    /// A worker's window as it was at `until_ms`.
    pub fn hear(&mut self, worker: usize, window: Window, until_ms: f64, ended: bool) {
        if let Some(heard) = self.workers.get_mut(worker) {
            *heard = Heard { window, until_ms, ended };
        }
    }

    /// A worker is gone.
    pub fn lose(&mut self, worker: usize) {
        if let Some(heard) = self.workers.get_mut(worker) {
            heard.window.steady_end_ms.get_or_insert(heard.until_ms);
            heard.ended = true;
        }
    }

    /// Whether no worker will tell anything more.
    pub fn ended(&self) -> bool {
        self.workers.iter().all(|heard| heard.ended)
    }

    /// Up to when the phases are known for good; infinite when all have ended.
    pub fn settled_ms(&self) -> f64 {
        let running = self.workers.iter().filter(|heard| !heard.ended);
        running.map(|heard| heard.until_ms).fold(f64::INFINITY, f64::min)
    }

    /// The run's window, as far as it is known.
    pub fn window(&self) -> Window {
        let latest = |bound: fn(&Window) -> Option<f64>| {
            self.workers
                .iter()
                .map(|heard| bound(&heard.window))
                .try_fold(f64::NEG_INFINITY, |latest, bound| Some(bound?.max(latest)))
                .filter(|latest| latest.is_finite())
        };
        let ends = self.workers.iter().filter_map(|heard| heard.window.steady_end_ms);
        Window {
            ramp_end_ms: latest(|window| window.ramp_end_ms),
            steady_start_ms: latest(|window| window.steady_start_ms),
            steady_end_ms: ends.reduce(f64::min),
        }
    }
}

/// The phase of a request sent at that moment of the run.
pub fn phase_at(window: &Window, sent_at_ms: f64) -> Phase {
    let past = |bound: Option<f64>| bound.is_some_and(|bound_ms| bound_ms <= sent_at_ms);
    if past(window.steady_end_ms) {
        Phase::Tail
    } else if past(window.steady_start_ms) {
        Phase::Steady
    } else if past(window.ramp_end_ms) {
        Phase::Warmup
    } else {
        Phase::Ramp
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(ramp_end: f64, start: f64, end: f64) -> Window {
        let bound = |value: f64| (value > 0.0).then_some(value);
        Window {
            ramp_end_ms: bound(ramp_end),
            steady_start_ms: bound(start),
            steady_end_ms: bound(end),
        }
    }

    #[test]
    fn the_common_window_is_from_the_latest_start_to_the_earliest_end() {
        let mut common = CommonWindow::new(2);
        common.hear(0, window(10.0, 50.0, 0.0), 60.0, false);
        assert_eq!(common.window(), Window::default(), "the second has not been heard of");
        common.hear(1, window(12.0, 40.0, 0.0), 70.0, false);
        assert_eq!(common.window(), window(12.0, 50.0, 0.0));
        common.hear(0, window(10.0, 50.0, 90.0), 100.0, false);
        common.hear(1, window(12.0, 40.0, 80.0), 110.0, false);
        assert_eq!(common.window(), window(12.0, 50.0, 80.0));
    }

    #[test]
    fn phases_settle_with_the_worker_that_was_heard_of_least_recently() {
        let mut common = CommonWindow::new(2);
        assert!(common.settled_ms().abs() < f64::EPSILON);
        common.hear(0, Window::default(), 60.0, false);
        common.hear(1, Window::default(), 70.0, false);
        assert!((common.settled_ms() - 60.0).abs() < f64::EPSILON);
        common.hear(0, Window::default(), 80.0, true);
        assert!((common.settled_ms() - 70.0).abs() < f64::EPSILON);
        common.hear(1, Window::default(), 80.0, true);
        assert!(common.settled_ms().is_infinite() && common.ended());
    }

    #[test]
    fn a_lost_worker_ends_the_steady_state_when_it_was_last_heard_of() {
        let mut common = CommonWindow::new(2);
        common.hear(0, window(1.0, 10.0, 0.0), 100.0, false);
        common.hear(1, window(1.0, 20.0, 0.0), 90.0, false);
        common.lose(1);
        assert_eq!(common.window(), window(1.0, 20.0, 90.0));
        assert!(!common.ended());
        // Lost before its agents had warmed up: no steady state at all.
        let mut common = CommonWindow::new(2);
        common.hear(0, window(1.0, 10.0, 0.0), 100.0, false);
        common.hear(1, window(1.0, 0.0, 0.0), 5.0, false);
        common.lose(1);
        assert_eq!(common.window().steady_s(), None);
    }

    #[test]
    fn a_requests_phase_is_told_from_when_it_was_sent() {
        let bounds = window(10.0, 20.0, 30.0);
        for (sent_at_ms, phase) in [
            (9.9, Phase::Ramp),
            (10.0, Phase::Warmup),
            (20.0, Phase::Steady),
            (29.9, Phase::Steady),
            (30.0, Phase::Tail),
        ] {
            assert_eq!(phase_at(&bounds, sent_at_ms), phase);
        }
        assert_eq!(phase_at(&window(10.0, 0.0, 30.0), 35.0), Phase::Tail);
    }
}
