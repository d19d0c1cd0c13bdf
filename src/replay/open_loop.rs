//! The open loop: trajectories begin at their arrivals, whatever the engine does.
//!
//! A trajectory's start is due at its arrival and never moves: where a cap on active agents makes it
//! wait for a place, the wait shows as the lag of its first request. A place has a number, the smallest
//! that is free, which is the `agent_id` of whoever holds it; so there are as many ids as there were
//! agents at once. Of a run that several processes make, each plays every W-th arrival of the one list that
//! all of them draw. When arrivals are due is `arrivals`' decision.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

use super::arrivals::OpenLoop;
use super::doing::Agents;
use super::load::{Agent, Load};
use super::share::Share;
use super::trajectory::{Start, Trajectory};
use crate::error::{Error, Result};

/// What an open loop has come to so far.
#[derive(Debug, Default)]
pub(super) struct OpenLoopCounts {
    /// Most agents at work at once.
    pub(super) peak_active: AtomicU32,
    /// Arrivals that were due before nothing more was started, and found no place by then.
    pub(super) not_admitted: AtomicU64,
}

impl Load {
    /// Begins a trajectory at each arrival until there are no more, or nothing more is started; the
    /// trajectories that still run.
    pub(super) async fn arrive(
        self: &Arc<Self>,
        start_ns: i64,
        open: &OpenLoop,
        seed: Option<u64>,
        counts: &Arc<OpenLoopCounts>,
    ) -> Result<JoinSet<()>> {
        let starts_ms = self.plan.sessions.iter().map(|session| session.start_ms).collect();
        let times_ms = open.times_ms(starts_ms, seed);
        let limit = self.trajectories.map_or(usize::MAX, |trajectories| trajectories as usize);
        let due = times_ms.map(|at_ms| start_ns + (at_ms * 1e6) as i64);
        // Every worker draws all arrivals, so that together they play the list of one process.
        let (of, own) = (self.share.of.max(1) as usize, self.share.index as usize);
        let mut due = due.take(limit).skip(own).step_by(of).peekable();
        let places = Places::new(&self.progress.agents, open, self.share, counts);
        let mut working = JoinSet::new();
        // Until then arrivals had to stand in line.
        let mut line_until_ns = i64::MIN;
        while let Some(due_ns) = due.peek().copied()
            && self.reached(due_ns, &self.halt).await
        {
            let free = places.any_free();
            let Some(place) = self.halt.run_until_cancelled(places.take()).await else { break };
            let Some((index, session)) = self.take_trajectory() else { break };
            due.next();
            let taken_up_ns = self.clock.now_ns();
            if !free {
                line_until_ns = taken_up_ns;
            }
            let waited_ns = if due_ns < line_until_ns { taken_up_ns - due_ns } else { 0 };
            let waited_ns = open.max_active.map(|_| waited_ns);
            let last = index + of as u64 >= limit as u64;
            if last && !open.is_burst() {
                self.phases().nothing_left(self.clock.run_ms());
            }
            let start = Start { due_ns, taken_up_ns, waited_ns };
            working.spawn(Arc::clone(self).hold(place, index, session, start, open.is_burst()));
            while let Some(ended) = working.try_join_next() {
                ended.map_err(|error| Error::Internal(format!("an agent ended early: {error}")))?;
            }
        }
        let now_ns = self.clock.now_ns();
        let not_admitted = due.take_while(|due_ns| *due_ns <= now_ns).count();
        counts.not_admitted.store(not_admitted as u64, Ordering::Relaxed);
        Ok(working)
    }

    /// Works through one trajectory at a place.
    async fn hold(
        self: Arc<Self>,
        place: Place,
        index: u64,
        session: usize,
        start: Start,
        burst: bool,
    ) {
        let agent = &place.agent;
        Trajectory::new(&self, agent, place.invocation, index, session, start).play().await;
        let run_ms = self.clock.run_ms();
        let mut phases = self.phases();
        phases.trajectory_ended(run_ms);
        // In a burst, whoever has a place is an agent of a closed loop.
        if burst && self.trajectories.is_some_and(|all| self.share.trajectory(self.taken()) >= all)
        {
            phases.nothing_left(run_ms);
        }
    }
}

/// Places of agents that are at work at once.
struct Places<'run> {
    agents: &'run Agents,
    room: Option<Arc<Semaphore>>,
    /// In a burst, a place's agent is the same for all trajectories that it holds one after another;
    /// else each trajectory is an agent of its own.
    burst: bool,
    share: Share,
    state: Arc<Mutex<PlacesState>>,
    counts: Arc<OpenLoopCounts>,
}

#[derive(Default)]
struct PlacesState {
    free: BinaryHeap<Reverse<u32>>,
    /// Of every place there ever was, the trajectories that it has held.
    invocations: Vec<u32>,
    agents: Vec<Arc<Agent>>,
}

/// A place that an agent holds until it is dropped.
struct Place {
    agent: Arc<Agent>,
    /// Its number here; the agent's is the run's.
    number: u32,
    /// Trajectories that this place has held before.
    invocation: u32,
    state: Arc<Mutex<PlacesState>>,
    _room: Option<OwnedSemaphorePermit>,
}

impl<'run> Places<'run> {
    fn new(
        agents: &'run Agents,
        open: &OpenLoop,
        share: Share,
        counts: &Arc<OpenLoopCounts>,
    ) -> Self {
        let own = |most| Arc::new(Semaphore::new(share.count(most) as usize));
        Self {
            agents,
            room: open.max_active.map(own),
            burst: open.is_burst(),
            share,
            state: Arc::default(),
            counts: Arc::clone(counts),
        }
    }

    fn any_free(&self) -> bool {
        self.room.as_ref().is_none_or(|room| room.available_permits() > 0)
    }

    /// Waits for a place, where there is a cap.
    async fn take(&self) -> Place {
        let room = match &self.room {
            // The semaphore is never closed.
            Some(room) => Arc::clone(room).acquire_owned().await.ok(),
            None => None,
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let number = match state.free.pop() {
            Some(Reverse(number)) => number,
            None => state.invocations.len() as u32,
        };
        let at = number as usize;
        let id = self.share.trajectory(u64::from(number)) as u32;
        let new_agent = |activity| Arc::new(Agent { id, activity, ..Agent::default() });
        if at == state.invocations.len() {
            state.invocations.push(0);
            state.agents.push(new_agent(self.agents.add()));
        } else {
            state.invocations[at] += 1;
            if !self.burst {
                // Whoever watches sees places, which are as many as there were agents at once.
                let activity = Arc::clone(&state.agents[at].activity);
                state.agents[at] = new_agent(activity);
            }
        }
        let active = (state.invocations.len() - state.free.len()) as u32;
        self.counts.peak_active.fetch_max(active, Ordering::Relaxed);
        Place {
            agent: Arc::clone(&state.agents[at]),
            number,
            invocation: state.invocations[at],
            state: Arc::clone(&self.state),
            _room: room,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.free.push(Reverse(self.number));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replay::arrivals::Arrivals;
    use crate::replay::doing::Does;

    fn places<'run>(agents: &'run Agents, arrivals: &str, max_active: Option<u32>) -> Places<'run> {
        let open = OpenLoop { arrivals: arrivals.parse().unwrap(), time_scale: 1.0, max_active };
        Places::new(agents, &open, Share::WHOLE, &Arc::default())
    }

    #[tokio::test]
    async fn the_smallest_free_place_is_taken_and_its_trajectories_are_counted() {
        let agents = Agents::default();
        let places = places(&agents, "constant:1", None);
        let (first, second, third) =
            (places.take().await, places.take().await, places.take().await);
        assert_eq!([first.agent.id, second.agent.id, third.agent.id], [0, 1, 2]);
        // Three places are seen at work, and still three when two are free.
        let at_work =
            [&first, &second, &third].map(|place| place.agent.activity.begin(Does::Decode));
        assert_eq!((agents.by_state().decode, agents.by_state().total()), (3, 3));
        drop(at_work);
        drop((third, first));
        let again = places.take().await;
        let waiting = again.agent.activity.begin(Does::ToolWait);
        assert_eq!((agents.by_state().tool, agents.by_state().idle), (1, 2));
        drop(waiting);
        assert_eq!((again.agent.id, again.invocation), (0, 1));
        assert_eq!(places.take().await.agent.id, 2);
        drop(second);
        assert_eq!(places.take().await.invocation, 1);
        assert_eq!(places.counts.peak_active.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn places_and_room_of_a_share_are_every_third() {
        let open =
            OpenLoop { arrivals: Arrivals::Constant(1.0), time_scale: 1.0, max_active: Some(5) };
        let agents = Agents::default();
        let of = |index| Places::new(&agents, &open, Share { index, of: 3 }, &Arc::default());
        let (first, last) = (of(0), of(2));
        let held = (first.take().await, first.take().await);
        assert_eq!([held.0.agent.id, held.1.agent.id], [0, 3]);
        assert!(!first.any_free(), "places 0 and 3 of five");
        let held = last.take().await;
        assert_eq!(held.agent.id, 2);
        assert!(!last.any_free(), "place 2 of five");
        drop(held);
        let again = last.take().await;
        assert_eq!((again.agent.id, again.invocation), (2, 1));
    }

    #[tokio::test]
    async fn a_full_house_lets_nobody_in_until_one_has_left() {
        let agents = Agents::default();
        let places = places(&agents, "burst", Some(1));
        let held = places.take().await;
        assert!(!places.any_free());
        let waiting = async {
            let next = places.take().await;
            assert!(Arc::ptr_eq(&next.agent, &places.state.lock().unwrap().agents[0]));
            (next.agent.id, next.invocation)
        };
        let leaving = async { drop(held) };
        let (next, ()) = futures_util::future::join(waiting, leaving).await;
        assert_eq!(next, (0, 1));
        assert!(places.any_free());
    }
}
