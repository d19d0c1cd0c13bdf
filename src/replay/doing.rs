//! What each agent does at this moment, for whoever watches a run.
//!
//! An agent's threads each wait for something, are answered, or do nothing. Their numbers lie in one word, so
//! that a change is one atomic step on the way of a request, and whoever reads sees no thread twice and none
//! missing. An agent counts once, by whatever of its threads is furthest on. When an agent begins and ends
//! what is `load`'s, `trajectory`'s and `agents`' affair.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::waits::WaitFor;

/// Agents by what they do; each agent is in one of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentsByState {
    /// A request is on its way, and nothing of an answer has come: it is queued or in prefill.
    pub first_token: u32,
    /// Output comes.
    pub decode: u32,
    /// Waits for tools; of a live agent also for its workspace and its check.
    pub tool: u32,
    /// Waits for a human.
    pub human: u32,
    /// Has nothing to do: is not to start yet, or waits for an arrival or the end of a pause.
    pub idle: u32,
    /// Has ended.
    pub ended: u32,
}

impl AgentsByState {
    /// All agents.
    pub fn total(&self) -> u32 {
        let Self { first_token, decode, tool, human, idle, ended } = self;
        first_token + decode + tool + human + idle + ended
    }

    /// Both together.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            first_token: self.first_token + other.first_token,
            decode: self.decode + other.decode,
            tool: self.tool + other.tool,
            human: self.human + other.human,
            idle: self.idle + other.idle,
            ended: self.ended + other.ended,
        }
    }
}

/// What a thread of an agent can do, each with its 16 bits of the word; what is further on stands higher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Does {
    HumanWait = 0,
    ToolWait = 16,
    FirstToken = 32,
    Decode = 48,
}

impl Does {
    fn one_thread(self) -> u64 {
        1 << self as u32
    }

    /// What a thread does while it waits before a request; none for a start that follows nothing.
    pub(super) fn waiting(waits_for: WaitFor) -> Option<Self> {
        match waits_for {
            WaitFor::Nothing => None,
            WaitFor::Tools => Some(Self::ToolWait),
            WaitFor::Human => Some(Self::HumanWait),
        }
    }
}

/// What the threads of one agent do.
#[derive(Debug, Default)]
pub(super) struct Activity {
    threads: AtomicU64,
    ended: AtomicBool,
}

impl Activity {
    /// A thread does something, until what is returned is dropped.
    pub(super) fn begin(&self, does: Does) -> Doing<'_> {
        self.add(does);
        Doing { activity: self, now: AtomicU64::new(does.one_thread()) }
    }

    /// One thread more does this.
    pub(super) fn add(&self, does: Does) {
        self.threads.fetch_add(does.one_thread(), Ordering::Relaxed);
    }

    /// One thread fewer does this.
    pub(super) fn remove(&self, does: Does) {
        self.threads.fetch_sub(does.one_thread(), Ordering::Relaxed);
    }

    /// The agent has ended.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Relaxed);
    }

    fn count(&self, by_state: &mut AgentsByState) {
        let threads = self.threads.load(Ordering::Relaxed);
        let state = if threads >= Does::Decode.one_thread() {
            &mut by_state.decode
        } else if threads >= Does::FirstToken.one_thread() {
            &mut by_state.first_token
        } else if threads >= Does::ToolWait.one_thread() {
            &mut by_state.tool
        } else if threads >= Does::HumanWait.one_thread() {
            &mut by_state.human
        } else if self.ended.load(Ordering::Relaxed) {
            &mut by_state.ended
        } else {
            &mut by_state.idle
        };
        *state += 1;
    }
}

/// What one thread does now.
#[derive(Debug)]
pub(super) struct Doing<'a> {
    activity: &'a Activity,
    /// One thread of what it does.
    now: AtomicU64,
}

impl Doing<'_> {
    /// From now on the thread does something else.
    pub(super) fn becomes(&self, does: Does) {
        let next = does.one_thread();
        let last = self.now.swap(next, Ordering::Relaxed);
        self.activity.threads.fetch_add(next.wrapping_sub(last), Ordering::Relaxed);
    }
}

impl Drop for Doing<'_> {
    fn drop(&mut self) {
        self.activity.threads.fetch_sub(*self.now.get_mut(), Ordering::Relaxed);
    }
}

/// The agents of a run. Only who adds an agent or reads takes the lock.
#[derive(Debug, Default)]
pub(super) struct Agents(Mutex<Vec<Arc<Activity>>>);

impl Agents {
    /// One agent more.
    pub(super) fn add(&self) -> Arc<Activity> {
        let agent = Arc::<Activity>::default();
        self.lock().push(Arc::clone(&agent));
        agent
    }

    /// The agent of this number; all below it are there then, too.
    pub(super) fn of(&self, number: u32) -> Arc<Activity> {
        let mut agents = self.lock();
        let wanted = number as usize + 1;
        let there = agents.len().max(wanted);
        agents.resize_with(there, Arc::default);
        Arc::clone(&agents[number as usize])
    }

    /// How many do what.
    pub(super) fn by_state(&self) -> AgentsByState {
        let mut by_state = AgentsByState::default();
        for agent in self.lock().iter() {
            agent.count(&mut by_state);
        }
        by_state
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Activity>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// First token, decode, tool, human, idle, ended.
    fn states(agents: &Agents) -> [u32; 6] {
        let AgentsByState { first_token, decode, tool, human, idle, ended } = agents.by_state();
        [first_token, decode, tool, human, idle, ended]
    }

    #[test]
    fn an_agent_counts_once_by_the_thread_that_is_furthest_on() {
        use Does::{Decode, FirstToken, HumanWait, ToolWait};
        for (threads, expected) in [
            (&[][..], [0, 0, 0, 0, 1, 0]),
            (&[HumanWait], [0, 0, 0, 1, 0, 0]),
            (&[HumanWait, ToolWait], [0, 0, 1, 0, 0, 0]),
            (&[FirstToken, ToolWait, ToolWait], [1, 0, 0, 0, 0, 0]),
            (&[FirstToken, Decode, HumanWait], [0, 1, 0, 0, 0, 0]),
        ] {
            let agents = Agents::default();
            let agent = agents.add();
            let doing: Vec<Doing<'_>> = threads.iter().map(|does| agent.begin(*does)).collect();
            assert_eq!(states(&agents), expected, "{threads:?}");
            drop(doing);
            assert_eq!(states(&agents), [0, 0, 0, 0, 1, 0], "{threads:?}");
        }
    }

    #[test]
    fn a_request_goes_through_its_states_and_the_agent_ends() {
        let agents = Agents::default();
        let (one, two) = (agents.add(), agents.of(1));
        let waiting = one.begin(Does::ToolWait);
        let answer = one.begin(Does::FirstToken);
        assert_eq!(states(&agents), [1, 0, 0, 0, 1, 0]);
        answer.becomes(Does::Decode);
        answer.becomes(Does::Decode);
        assert_eq!(states(&agents), [0, 1, 0, 0, 1, 0]);
        drop(answer);
        assert_eq!(states(&agents), [0, 0, 1, 0, 1, 0]);
        // Who has ended and is still answered is answered.
        one.end();
        two.end();
        assert_eq!(states(&agents), [0, 0, 1, 0, 0, 1]);
        drop(waiting);
        assert_eq!(states(&agents), [0, 0, 0, 0, 0, 2]);
        assert_eq!(agents.by_state().total(), 2);
    }

    #[test]
    fn whoever_reads_while_threads_change_finds_every_agent_once() {
        let agents = Agents::default();
        let busy = agents.add();
        let doing = busy.begin(Does::FirstToken);
        std::thread::scope(|scope| {
            let reader = scope.spawn(|| {
                (0..20_000).all(|_| {
                    let seen = agents.by_state();
                    seen.first_token + seen.decode == 1 && seen.total() == 1
                })
            });
            while !reader.is_finished() {
                doing.becomes(Does::Decode);
                doing.becomes(Does::FirstToken);
            }
            assert!(reader.join().unwrap());
        });
        drop(doing);
        assert_eq!(states(&agents), [0, 0, 0, 0, 1, 0]);
    }
}
