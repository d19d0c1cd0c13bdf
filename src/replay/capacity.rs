//! Which number of agents to try next, and what the answer is: the decision of a capacity search.
//!
//! Pure. Doubles from 2 to the first failing level or the bound, bisects, then tries the answer and its
//! successor once more. One failed try makes a level failing, so chance can only lower the answer.
//! Running a level and judging it belongs to others.

use std::collections::BTreeMap;

/// What a level's requests said.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Every condition held.
    Pass,
    /// A condition did not hold.
    Fail,
    /// Too few samples, or the client was the bottleneck: says nothing about the engine.
    Invalid,
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct Search {
    max_agents: u32,
    resolution: u32,
    tries: BTreeMap<u32, Vec<Verdict>>,
}

/// What a search found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    /// Most agents that held the service level; 0 when not even one did.
    pub max_agents: u32,
    /// A failing level was seen above it: the answer is the engine's limit and not the search's bound.
    pub saturated: bool,
    /// A level could not be judged, so the answer is only the most that was proved.
    pub invalid: bool,
    /// A confirmed level was judged both ways.
    pub unstable: bool,
}

/// Tries of the answer and of its successor.
const CONFIRMATIONS: usize = 2;
const FIRST_LEVEL: u32 = 2;

impl Search {
    /// A search up to `max_agents` that stops when the limit is known to `resolution` agents.
    pub fn new(max_agents: u32, resolution: u32) -> Self {
        Self { max_agents, resolution: resolution.max(1), tries: BTreeMap::new() }
    }

    /// Notes what a level said.
    pub fn record(&mut self, agents: u32, verdict: Verdict) {
        self.tries.entry(agents).or_default().push(verdict);
    }

    /// The next level to try; none when the search is over.
    pub fn next_level(&self) -> Option<u32> {
        if self.max_agents == 0 || self.has_invalid() {
            return None;
        }
        let low = self.largest_pass();
        let Some(high) = self.smallest_fail() else {
            if low == self.max_agents {
                return self.unconfirmed(low);
            }
            return Some((low * 2).max(FIRST_LEVEL).min(self.max_agents));
        };
        if high - low > self.resolution {
            return Some(low + (high - low) / 2);
        }
        self.unconfirmed(low).or_else(|| self.unconfirmed(high))
    }

    /// The answer so far; final once `next_level` gives none.
    pub fn answer(&self) -> Answer {
        let max_agents = self.largest_pass();
        Answer {
            max_agents,
            saturated: self.smallest_fail().is_some(),
            invalid: self.has_invalid(),
            unstable: self
                .tries
                .values()
                .any(|tries| tries.contains(&Verdict::Pass) && tries.contains(&Verdict::Fail)),
        }
    }

    fn unconfirmed(&self, agents: u32) -> Option<u32> {
        let tries = self.tries.get(&agents)?;
        // A level that failed once cannot be talked out of it.
        let settled = tries.len() >= CONFIRMATIONS;
        (!settled).then_some(agents)
    }

    fn has_invalid(&self) -> bool {
        self.tries.values().any(|tries| tries.contains(&Verdict::Invalid))
    }

    fn smallest_fail(&self) -> Option<u32> {
        self.tries
            .iter()
            .find(|(_, tries)| tries.contains(&Verdict::Fail))
            .map(|(agents, _)| *agents)
    }

    /// Largest level below every failing one that passed each time; 0 when there is none.
    fn largest_pass(&self) -> u32 {
        let bound = self.smallest_fail().unwrap_or(u32::MAX);
        self.tries
            .range(..bound)
            .rev()
            .find(|(_, tries)| tries.iter().all(|verdict| *verdict == Verdict::Pass))
            .map_or(0, |(agents, _)| *agents)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a search against an engine that holds up to `limit` agents; gives the answer and levels tried.
    fn run(
        max_agents: u32,
        resolution: u32,
        mut judge: impl FnMut(u32, usize) -> Verdict,
    ) -> (Answer, Vec<u32>) {
        let mut search = Search::new(max_agents, resolution);
        let mut tried = Vec::new();
        while let Some(agents) = search.next_level() {
            assert!(tried.len() < 100, "the search does not end: {tried:?}");
            tried.push(agents);
            search.record(agents, judge(agents, tried.len()));
        }
        (search.answer(), tried)
    }

    fn limit(limit: u32) -> impl FnMut(u32, usize) -> Verdict {
        move |agents, _| if agents <= limit { Verdict::Pass } else { Verdict::Fail }
    }

    #[test]
    fn the_true_limit_is_found() {
        for true_limit in 0..200 {
            let (answer, tried) = run(1000, 1, limit(true_limit));
            assert_eq!(
                answer,
                Answer { max_agents: true_limit, saturated: true, invalid: false, unstable: false }
            );
            for confirmed in [true_limit, true_limit + 1].into_iter().filter(|agents| *agents > 0) {
                assert_eq!(
                    tried.iter().filter(|agents| **agents == confirmed).count(),
                    2,
                    "{tried:?}"
                );
            }
        }
        assert_eq!(run(1000, 1, limit(37)).1, [2, 4, 8, 16, 32, 64, 48, 40, 36, 38, 37, 37, 38]);
    }

    #[test]
    fn a_bound_is_no_limit() {
        let (answer, tried) = run(50, 1, limit(u32::MAX));
        assert_eq!((answer.max_agents, answer.saturated), (50, false));
        assert_eq!(tried, [2, 4, 8, 16, 32, 50, 50]);
        assert_eq!(run(1, 1, limit(9)).1, [1, 1]);
        assert_eq!(run(0, 1, limit(9)).1, [0_u32; 0]);
    }

    #[test]
    fn resolution_ends_the_bisection_early() {
        let (answer, tried) = run(1000, 10, limit(37));
        assert_eq!(answer.max_agents, 32);
        assert!(answer.saturated);
        assert_eq!(tried, [2, 4, 8, 16, 32, 64, 48, 40, 32, 40]);
    }

    #[test]
    fn chance_can_only_lower_the_answer() {
        // 37 passes first and fails when it is tried again.
        let mut seen = 0;
        let (answer, _) = run(1000, 1, |agents, _| {
            seen += usize::from(agents == 37);
            if agents < 37 || (agents == 37 && seen < 2) { Verdict::Pass } else { Verdict::Fail }
        });
        assert_eq!((answer.max_agents, answer.unstable), (36, true));
        // 38 fails first and passes when it is tried again: it stays failing.
        let mut seen = 0;
        let (answer, _) = run(1000, 1, |agents, _| {
            seen += usize::from(agents == 38);
            if agents < 38 || (agents == 38 && seen > 1) { Verdict::Pass } else { Verdict::Fail }
        });
        assert_eq!((answer.max_agents, answer.unstable), (37, true));
    }

    #[test]
    fn a_level_that_cannot_be_judged_ends_the_search() {
        let (answer, tried) =
            run(1000, 1, |agents, _| if agents < 16 { Verdict::Pass } else { Verdict::Invalid });
        assert_eq!(
            answer,
            Answer { max_agents: 8, saturated: false, invalid: true, unstable: false }
        );
        assert_eq!(tried, [2, 4, 8, 16]);
    }
}
