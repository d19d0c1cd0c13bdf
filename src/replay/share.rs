//! One worker's share of a run that several make together.
//!
//! Pure. Agents and trajectories go round: with W workers, every W-th of each is a worker's own, so
//! numbers are unique over the run and the ramp is spread over all workers as over one.

use serde::{Deserialize, Serialize};

/// The agents and trajectories `index`, `index + of`, `index + 2 of`, …
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// The worker, from 0.
    pub index: u32,
    /// Workers of the run.
    pub of: u32,
}

impl Share {
    /// All of it: one worker.
    pub const WHOLE: Self = Self { index: 0, of: 1 };

    /// Numbers of the worker's own agents, of `all`.
    pub fn agents(self, all: u32) -> impl Iterator<Item = u32> {
        (self.index..all).step_by(self.of.max(1) as usize)
    }

    /// How many agents, of `all`, are the worker's own.
    pub fn count(self, all: u32) -> u32 {
        all.saturating_sub(self.index).div_ceil(self.of.max(1))
    }

    /// The run's number of the worker's own `nth` trajectory.
    pub fn trajectory(self, nth: u64) -> u64 {
        u64::from(self.index) + nth * u64::from(self.of.max(1))
    }

    /// Which worker an agent belongs to.
    pub fn worker_of(agent: u32, workers: u32) -> u32 {
        agent % workers.max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_disjoint_and_whole() {
        for (agents, workers) in [(1, 1), (5, 2), (7, 3), (3, 3), (64, 5)] {
            let mut owned: Vec<u32> = Vec::new();
            for index in 0..workers {
                let share = Share { index, of: workers };
                let own: Vec<u32> = share.agents(agents).collect();
                assert!(own.iter().all(|agent| Share::worker_of(*agent, workers) == index));
                assert_eq!(share.count(agents), own.len() as u32);
                owned.extend(own);
            }
            owned.sort_unstable();
            assert_eq!(owned, (0..agents).collect::<Vec<_>>());
        }
        let second = Share { index: 1, of: 3 };
        assert_eq!((0..3).map(|nth| second.trajectory(nth)).collect::<Vec<_>>(), [1, 4, 7]);
        assert_eq!(Share::WHOLE.trajectory(5), 5);
        assert_eq!((second.count(1), second.count(u32::MAX)), (0, u32::MAX / 3));
        assert_eq!(Share::WHOLE.agents(3).collect::<Vec<_>>(), [0, 1, 2]);
    }
}
