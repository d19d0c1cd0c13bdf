//! The phases of a run: ramp, warm-up, steady state, tail.
//!
//! Pure. Told what the agents do as it happens, it says in which phase a request is sent.
//!
//! With a fixed number of agents (the closed loop; a burst, which is one whose queue is full at once):
//! ramp until every agent has sent its first request, warm-up until each of these has ended, then
//! steady state until the first agent has nothing left to start, then the tail.
//!
//! With arrivals over time there is no such number. Agents accumulate until the first trajectory ends;
//! only from then on do they leave as well as arrive. So: ramp until the first trajectory has ended,
//! warm-up until every trajectory that began in the ramp is through its first request, then steady
//! state until the last arrival is admitted, then the tail. That the number of agents has really
//! settled is no phase's affair: the summary tells it at both ends of the steady state.

use serde::{Deserialize, Serialize};

use crate::trace::record::Phase;

/// Where the phases begin and end, on the run clock. A bound that was not reached is `None`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Every agent has sent its first request; with arrivals over time: the first trajectory has ended.
    pub ramp_end_ms: Option<f64>,
    /// The first request of every agent that began in the ramp has ended: steady state begins.
    pub steady_start_ms: Option<f64>,
    /// The first agent has nothing left to start, or the last arrival is admitted: steady state ends.
    pub steady_end_ms: Option<f64>,
}

impl Window {
    /// Length of the steady state, where there was one.
    pub fn steady_s(&self) -> Option<f64> {
        let length_s = (self.steady_end_ms? - self.steady_start_ms?) / 1e3;
        (length_s > 0.0).then_some(length_s)
    }
}

/// What ends the ramp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RampEnd {
    /// So many agents have started.
    Agents(u32),
    /// A trajectory has ended.
    FirstEnd,
}

/// Follows a run through its phases.
#[derive(Debug)]
pub struct PhaseTracker {
    ramp_end: RampEnd,
    started: u32,
    /// Agents that began in the ramp and are not through their first request.
    warming_up: u32,
    window: Window,
}

impl PhaseTracker {
    /// A run of so many agents, none of which has started.
    pub fn new(agents: u32) -> Self {
        Self::until(RampEnd::Agents(agents))
    }

    /// A run whose trajectories arrive over time.
    pub fn of_arrivals() -> Self {
        Self::until(RampEnd::FirstEnd)
    }

    fn until(ramp_end: RampEnd) -> Self {
        Self { ramp_end, started: 0, warming_up: 0, window: Window::default() }
    }

    /// An agent is about to send its first request; whether it begins in the ramp, which
    /// `first_request_ended` is to be told.
    pub fn agent_started(&mut self, run_ms: f64) -> bool {
        if self.window.ramp_end_ms.is_some() {
            return false;
        }
        self.started += 1;
        self.warming_up += 1;
        if self.ramp_end == RampEnd::Agents(self.started) {
            self.ramp_ended(run_ms);
        }
        true
    }

    /// An agent's first request has ended, well or not.
    pub fn first_request_ended(&mut self, run_ms: f64, began_in_ramp: bool) {
        if began_in_ramp {
            self.warming_up = self.warming_up.saturating_sub(1);
            self.warmed_up(run_ms);
        }
    }

    /// A trajectory has ended, well or not.
    pub fn trajectory_ended(&mut self, run_ms: f64) {
        if self.ramp_end == RampEnd::FirstEnd {
            self.ramp_ended(run_ms);
            self.warmed_up(run_ms);
        }
    }

    fn ramp_ended(&mut self, run_ms: f64) {
        if self.window.steady_end_ms.is_none() {
            self.window.ramp_end_ms.get_or_insert(run_ms);
        }
    }

    fn warmed_up(&mut self, run_ms: f64) {
        let warm = self.warming_up == 0 && self.window.ramp_end_ms.is_some();
        if warm && self.window.steady_end_ms.is_none() {
            self.window.steady_start_ms.get_or_insert(run_ms);
        }
    }

    /// An agent has nothing left to start, the last arrival is admitted, or the run's time is up.
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

    /// `s` an agent starts, `f` the first request of one that began in the ramp ends, `g` that of a later
    /// one, `e` a trajectory ends, `n` an agent has nothing left or the last arrival is admitted.
    #[track_caller]
    fn check(mut tracker: PhaseTracker, events: &str, phases: &[Phase], window: (f64, f64, f64)) {
        let mut seen = vec![tracker.phase()];
        for (index, event) in events.chars().enumerate() {
            let run_ms = (index + 1) as f64;
            match event {
                's' => {
                    let in_ramp = tracker.phase() == Phase::Ramp;
                    assert_eq!(tracker.agent_started(run_ms), in_ramp);
                }
                'f' => tracker.first_request_ended(run_ms, true),
                'g' => tracker.first_request_ended(run_ms, false),
                'e' => tracker.trajectory_ended(run_ms),
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
        let closed = PhaseTracker::new;
        check(closed(1), "sfn", &[Ramp, Warmup, Steady, Tail], (1.0, 2.0, 3.0));
        // The first agent is through its first request before the second starts: still the ramp.
        let phases = [Ramp, Ramp, Ramp, Warmup, Steady, Tail, Tail];
        check(closed(2), "sfsfnn", &phases, (3.0, 4.0, 5.0));
        // Time is up before every agent warmed up: there was no steady state.
        check(closed(2), "ssfn", &[Ramp, Ramp, Warmup, Warmup, Tail], (2.0, 0.0, 4.0));
        // A trajectory that ends before all agents have begun does not end a closed loop's ramp.
        check(closed(2), "sfesf", &[Ramp, Ramp, Ramp, Ramp, Warmup, Steady], (4.0, 5.0, 0.0));
    }

    #[test]
    fn phases_follow_the_arrivals() {
        use Phase::{Ramp, Steady, Tail, Warmup};
        let open = PhaseTracker::of_arrivals;
        // Agents leave before the last one arrives: all who began in the ramp are warm by then.
        let phases = [Ramp, Ramp, Ramp, Ramp, Ramp, Steady, Steady, Steady, Tail, Tail];
        check(open(), "sfsfesgne", &phases, (5.0, 5.0, 8.0));
        // One that began in the ramp is still at its first request; one that begins later does not count.
        let phases = [Ramp, Ramp, Ramp, Ramp, Warmup, Warmup, Warmup, Steady, Tail];
        check(open(), "ssfesgfn", &phases, (4.0, 7.0, 8.0));
        // The last arrival comes before anybody has ended: the number of agents never settled.
        check(open(), "ssfnfe", &[Ramp, Ramp, Ramp, Ramp, Tail, Tail, Tail], (0.0, 0.0, 4.0));
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
