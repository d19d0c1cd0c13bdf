//! The phases of a run: ramp, warm-up, steady state, tail.
//!
//! Pure. Told what the agents do as it happens, it says in which phase a request is sent: ramp until
//! every agent has sent its first request, warm-up until each of these has ended, then steady state
//! until the first agent has nothing left to start, then the tail.

use serde::{Deserialize, Serialize};

use crate::trace::record::Phase;

/// Where the phases begin and end, on the run clock. A bound that was not reached is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Every agent has sent its first request.
    pub ramp_end_ms: Option<f64>,
    /// Every agent's first request has ended: steady state begins.
    pub steady_start_ms: Option<f64>,
    /// The first agent has nothing left to start: steady state ends.
    pub steady_end_ms: Option<f64>,
}

impl Window {
    /// Length of the steady state, where there was one.
    pub fn steady_s(&self) -> Option<f64> {
        let length_s = (self.steady_end_ms? - self.steady_start_ms?) / 1e3;
        (length_s > 0.0).then_some(length_s)
    }
}

/// Follows a run through its phases.
#[derive(Debug)]
pub struct PhaseTracker {
    agents: u32,
    started: u32,
    warmed_up: u32,
    window: Window,
}

impl PhaseTracker {
    /// A run of so many agents, none of which has started.
    pub fn new(agents: u32) -> Self {
        Self { agents, started: 0, warmed_up: 0, window: Window::default() }
    }

    /// An agent is about to send its first request.
    pub fn agent_started(&mut self, run_ms: f64) {
        self.started += 1;
        if self.started == self.agents {
            self.window.ramp_end_ms = Some(run_ms);
        }
    }

    /// An agent's first request has ended, well or not.
    pub fn first_request_ended(&mut self, run_ms: f64) {
        self.warmed_up += 1;
        if self.warmed_up == self.agents {
            self.window.steady_start_ms = Some(run_ms);
        }
    }

    /// An agent has nothing left to start, or the run's time is up.
    pub fn nothing_left(&mut self, run_ms: f64) {
        self.window.steady_end_ms.get_or_insert(run_ms);
    }

    /// The phase in which a request is sent now.
    pub fn phase(&self) -> Phase {
        if self.window.steady_end_ms.is_some() {
            Phase::Tail
        } else if self.window.steady_start_ms.is_some() {
            Phase::Steady
        } else if self.window.ramp_end_ms.is_some() {
            Phase::Warmup
        } else {
            Phase::Ramp
        }
    }

    /// The bounds so far.
    pub fn window(&self) -> Window {
        self.window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `s` an agent starts, `f` a first request ends, `n` an agent has nothing left.
    #[track_caller]
    fn check(agents: u32, events: &str, phases: &[Phase], window: (f64, f64, f64)) {
        let mut tracker = PhaseTracker::new(agents);
        let mut seen = vec![tracker.phase()];
        for (index, event) in events.chars().enumerate() {
            let run_ms = (index + 1) as f64;
            match event {
                's' => tracker.agent_started(run_ms),
                'f' => tracker.first_request_ended(run_ms),
                _ => tracker.nothing_left(run_ms),
            }
            seen.push(tracker.phase());
        }
        assert_eq!(seen, phases);
        let bound = |value: f64| (value > 0.0).then_some(value);
        let expected = Window {
            ramp_end_ms: bound(window.0),
            steady_start_ms: bound(window.1),
            steady_end_ms: bound(window.2),
        };
        assert_eq!(tracker.window(), expected);
    }

    #[test]
    fn phases_follow_the_agents() {
        use Phase::{Ramp, Steady, Tail, Warmup};
        check(1, "sfn", &[Ramp, Warmup, Steady, Tail], (1.0, 2.0, 3.0));
        // The first agent is through its first request before the second starts: still the ramp.
        check(2, "sfsfnn", &[Ramp, Ramp, Ramp, Warmup, Steady, Tail, Tail], (3.0, 4.0, 5.0));
        // Time is up before every agent warmed up: there was no steady state.
        check(2, "ssfn", &[Ramp, Ramp, Warmup, Warmup, Tail], (2.0, 0.0, 4.0));
    }

    #[test]
    fn a_steady_state_has_a_length_only_where_it_has_both_ends_in_order() {
        let window = |start, end| Window {
            ramp_end_ms: Some(0.0),
            steady_start_ms: start,
            steady_end_ms: end,
        };
        assert_eq!(window(Some(500.0), Some(2500.0)).steady_s(), Some(2.0));
        assert_eq!(window(None, Some(2500.0)).steady_s(), None);
        assert_eq!(window(Some(2500.0), Some(2000.0)).steady_s(), None);
    }
}
