//! How long a run is expected to go on, where there is a basis to say so.
//!
//! Pure. The time to the moment after which nothing more is started is known; the pace of the work that is
//! planned says something once enough of it is done. Anything else would be made up, and is none.

use super::doing::AgentsByState;

/// Share of the planned work that must be done before it says how long the rest takes.
const BASIS: f64 = 0.05;

/// What is to be done, as far as it is known beforehand.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Ahead {
    /// Trajectories of the run.
    pub(super) trajectories: Option<u64>,
    /// Requests of those that are played here.
    pub(super) requests: Option<u64>,
    /// Time after which nothing more is started.
    pub(super) duration_s: Option<f64>,
    /// The engine is a simulation.
    pub(super) simulated: bool,
}

impl Ahead {
    /// How long it goes on; none where nothing says that.
    pub(super) fn left_s(&self, elapsed_s: f64, done: Done, agents: AgentsByState) -> Option<f64> {
        if self.duration_s.is_some_and(|duration_s| elapsed_s >= duration_s) {
            // The last answers are awaited, for as long as they take.
            return None;
        }
        let by_time = self.duration_s.map(|duration_s| duration_s - elapsed_s);
        let by_work = match (self.requests, self.trajectories) {
            (Some(planned), _) => {
                done.at_this_pace(done.requests, planned, planned as f64 * BASIS, elapsed_s)
            }
            // Without a plan each trajectory is one piece, and until every agent could have ended one, those
            // that ended say nothing of the others.
            (None, Some(planned)) => {
                let basis = f64::from(agents.total());
                done.at_this_pace(done.trajectories, planned, basis, elapsed_s)
            }
            (None, None) => None,
        };
        by_time.into_iter().chain(by_work).reduce(f64::min)
    }
}

/// What has been done.
#[derive(Debug, Clone, Copy)]
pub(super) struct Done {
    /// Requests that have ended, and those that will not be sent.
    pub(super) requests: u64,
    /// Trajectories that have ended.
    pub(super) trajectories: u64,
    /// When the last of these pieces ended, since the start.
    pub(super) at_s: f64,
}

impl Done {
    /// The time that the rest takes, once so many pieces are done that their pace says something. None for
    /// a rest that takes longer than it should have.
    fn at_this_pace(&self, done: u64, planned: u64, basis: f64, elapsed_s: f64) -> Option<f64> {
        if done == 0 || (done as f64) < basis {
            return None;
        }
        let left_s = self.at_s * planned as f64 / done as f64 - elapsed_s;
        if done >= planned { Some(0.0) } else { (left_s > 0.0).then_some(left_s) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_has_a_basis_or_is_not_told() {
        let four = AgentsByState { decode: 4, ..AgentsByState::default() };
        // Duration, requests, trajectories planned; seconds, requests, trajectories done; left.
        for (ahead, done, expected) in [
            ((None, None, None), (9.0, 50, 5), None),
            ((Some(60.0), None, None), (9.0, 50, 5), Some(51.0)),
            // The time is up: what is on its way takes as long as it takes.
            ((Some(60.0), Some(100), Some(9)), (60.0, 50, 5), None),
            ((None, Some(100), Some(9)), (9.0, 4, 3), None),
            ((None, Some(100), Some(9)), (9.0, 5, 0), Some(171.0)),
            ((None, Some(100), Some(9)), (9.0, 100, 9), Some(0.0)),
            // Whatever comes first.
            ((Some(60.0), Some(100), Some(9)), (9.0, 90, 8), Some(1.0)),
            ((Some(60.0), Some(100), Some(9)), (9.0, 5, 0), Some(51.0)),
            ((Some(60.0), Some(100), Some(9)), (9.0, 0, 0), Some(51.0)),
            // Four agents, and fewer than four tasks have ended.
            ((None, None, Some(12)), (9.0, 50, 3), None),
            ((None, None, Some(12)), (9.0, 50, 4), Some(18.0)),
            // The last piece ended at 9 s in each case: since then time has passed, and then too much.
            ((None, None, Some(12)), (20.0, 50, 4), Some(7.0)),
            ((None, None, Some(12)), (28.0, 50, 4), None),
        ] {
            let (duration_s, requests, trajectories) = ahead;
            let ahead = Ahead { trajectories, requests, duration_s, simulated: false };
            let (elapsed_s, requests, trajectories) = done;
            let done = Done { requests, trajectories, at_s: 9.0 };
            let left = ahead.left_s(elapsed_s, done, four);
            assert_eq!(left, expected, "{ahead:?} {elapsed_s} s, {done:?}");
        }
    }
}
