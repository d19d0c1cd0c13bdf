//! What a level of a capacity search has gathered so far: its rows, counted as they come.
//!
//! Rows go to the run directory all the same; these copies are judged when the level ends. Chunk gaps,
//! most of a row, are kept only where a condition looks at them.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::levels::{LevelMinimum, ended, judged};
use crate::trace::Row;
use crate::trace::record::{RequestRow, TrajectoryRow};

/// The rows of one level.
#[derive(Debug)]
pub struct Samples {
    keep_gaps: bool,
    kept: Mutex<Kept>,
}

#[derive(Debug, Default)]
struct Kept {
    requests: Vec<RequestRow>,
    trajectories: Vec<TrajectoryRow>,
    agent_requests: Vec<u32>,
    agent_trajectories: Vec<u32>,
}

impl Samples {
    /// Nothing yet, of so many agents.
    pub fn new(agents: u32, keep_gaps: bool) -> Self {
        let none = vec![0; agents as usize];
        let kept =
            Kept { agent_requests: none.clone(), agent_trajectories: none, ..Kept::default() };
        Self { keep_gaps, kept: Mutex::new(kept) }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts a row of the level.
    pub fn see(&self, row: &Row) {
        let raise = |counts: &mut Vec<u32>, agent: u32| {
            if let Some(count) = counts.get_mut(agent as usize) {
                *count += 1;
            }
        };
        match row {
            Row::Requests(row) if judged(row) => {
                let mut row = (**row).clone();
                row.attempt_log = Vec::new();
                if !self.keep_gaps {
                    row.chunk_gap_ms = Vec::new();
                    row.chunk_tokens = Vec::new();
                }
                let mut kept = self.lock();
                raise(&mut kept.agent_requests, row.agent_id);
                kept.requests.push(row);
            }
            Row::Trajectories(row) => {
                let mut kept = self.lock();
                if ended(row) {
                    raise(&mut kept.agent_trajectories, row.agent_id);
                }
                kept.trajectories.push((**row).clone());
            }
            _ => {}
        }
    }

    /// Whether there are as many as a pass takes, the steady time being so long.
    pub fn suffice(&self, minimum: &LevelMinimum, steady_s: f64) -> bool {
        let kept = self.lock();
        let least = |counts: &[u32]| counts.iter().copied().min().unwrap_or_default();
        let trajectories: u64 = kept.agent_trajectories.iter().map(|n| u64::from(*n)).sum();
        steady_s >= minimum.steady_s
            && trajectories >= minimum.trajectories
            && least(&kept.agent_trajectories) >= minimum.trajectories_per_agent
            && least(&kept.agent_requests) >= minimum.requests_per_agent
    }

    /// The rows.
    pub fn take(&self) -> (Vec<RequestRow>, Vec<TrajectoryRow>) {
        let mut kept = self.lock();
        (std::mem::take(&mut kept.requests), std::mem::take(&mut kept.trajectories))
    }
}
