//! Who works on what, and until when, over the sessions of a plan.
//!
//! In the closed loop, N agents take sessions one after another from one queue, so that the order is
//! kept whatever the agents' number; past its end the queue starts over. The open loop, where sessions
//! begin at their arrivals, is `open_loop`'s affair, how one session is worked through `trajectory`'s.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::arrivals::{OpenLoop, SessionOrder};
use super::attempts::too_many_failed;
use super::client::Client;
use super::content::Contents;
use super::doing::Activity;
use super::open_loop::OpenLoopCounts;
use super::plan::Plan;
use super::progress::Progress;
use super::rows::RowQueue;
use super::settings::{EndedBy, OnError};
use super::share::Share;
use super::shared_prefix::Sharing;
use super::trajectory::{Start, Trajectory};
use super::window::PhaseTracker;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::trace::record::RequestStatus;

/// Pause of an agent whose trajectory failed before anything was answered: an engine that is gone is
/// not asked again thousands of times a second.
const FAILURE_PAUSE: Duration = Duration::from_secs(1);

/// All that the agents of a replay share.
#[derive(Debug)]
pub(super) struct Load {
    pub(super) plan: Arc<Plan>,
    pub(super) contents: Arc<Contents>,
    /// What trajectories share in the engine's cache.
    pub(super) shared: Sharing,
    pub(super) client: Client,
    pub(super) clock: Clock,
    pub(super) rows: RowQueue,
    pub(super) progress: Arc<Progress>,
    pub(super) phases: Arc<Mutex<PhaseTracker>>,
    pub(super) on_error: OnError,
    pub(super) max_error_rate_pct: Option<f64>,
    pub(super) pacing: Pacing,
    /// Chooses the session of each trajectory.
    pub(super) order: Mutex<SessionOrder>,
    /// The agents and trajectories that are played here.
    pub(super) share: Share,
    /// When the first agent starts, on the run clock's axis; none: at once.
    pub(super) start_at_ns: Option<i64>,
    pub(super) duration: Option<Duration>,
    pub(super) trajectories: Option<u64>,
    /// The level of a capacity search that this is.
    pub(super) level: Option<u32>,
    /// Somebody who watches has seen enough: nothing more is started.
    pub(super) enough: CancellationToken,
    /// Nothing more is started.
    pub(super) halt: CancellationToken,
    /// What is on its way is cut off.
    pub(super) abort: CancellationToken,
    /// Why the run ended itself.
    pub(super) ended_early: OnceLock<EndedBy>,
    /// Bodies that are built at once.
    pub(super) builders: Semaphore,
    pub(super) next_trajectory: AtomicU64,
}

/// What makes a trajectory begin.
#[derive(Debug)]
pub(super) enum Pacing {
    /// An agent that has ended the one before; the agents' starts are spread over the ramp.
    Closed { agents: u32, ramp: Duration },
    /// Its arrival.
    Open { open: OpenLoop, seed: Option<u64>, counts: Arc<OpenLoopCounts> },
}

/// What an agent does, and what it has done so far as far as phases need it.
#[derive(Debug, Default)]
pub(super) struct Agent {
    pub(super) id: u32,
    pub(super) activity: Arc<Activity>,
    pub(super) started: AtomicBool,
    /// It sent its first request in the ramp.
    pub(super) began_in_ramp: AtomicBool,
    pub(super) warmed_up: AtomicBool,
}

impl Load {
    /// Runs all agents to their end.
    pub(super) async fn run(self: Arc<Self>) -> Result<EndedBy> {
        let start_ns = self.start_at_ns.unwrap_or_else(|| self.clock.now_ns());
        let working = async {
            match &self.pacing {
                Pacing::Closed { agents, ramp } => {
                    let mut working = JoinSet::new();
                    for id in self.share.agents(*agents) {
                        let offset = ramp.as_nanos() as i64 * i64::from(id) / i64::from(*agents);
                        let activity = self.progress.agents.add();
                        let agent = Agent { id, activity, ..Agent::default() };
                        working.spawn(Arc::clone(&self).work(agent, start_ns + offset));
                    }
                    all_ended(working).await
                }
                Pacing::Open { open, seed, counts } => {
                    let working = self.arrive(start_ns, open, *seed, counts).await?;
                    all_ended(working).await
                }
            }
        };
        tokio::pin!(working);
        let time_is_up = async {
            match self.duration {
                Some(duration) => {
                    let end_ns = start_ns + duration.as_nanos() as i64;
                    tokio::time::sleep_until(self.clock.instant_at(end_ns)).await;
                }
                None => std::future::pending().await,
            }
        };
        let ended_by = tokio::select! {
            // Told to stop, the agents may end in the same moment.
            result = &mut working => {
                return result.map(|()| self.cut_off_by().unwrap_or(EndedBy::Trajectories));
            }
            () = self.abort.cancelled() => EndedBy::Shutdown,
            () = time_is_up => EndedBy::Duration,
            () = self.enough.cancelled() => EndedBy::Enough,
        };
        self.phases().nothing_left(self.clock.run_ms());
        self.halt.cancel();
        working.await?;
        // Told to stop while the last answers came in after the time was up.
        Ok(self.cut_off_by().unwrap_or(ended_by))
    }

    /// Why what was on its way was cut off; none while it was not.
    fn cut_off_by(&self) -> Option<EndedBy> {
        let cut = self.abort.is_cancelled();
        cut.then(|| self.ended_early.get().copied().unwrap_or(EndedBy::Shutdown))
    }

    /// A request has ended: whether the run goes on. Cuts off what is on its way when it does not.
    pub(super) fn judge_failures(&self, status: RequestStatus) {
        if status != RequestStatus::Failed {
            return;
        }
        let (ok, failed) = self.progress.ended();
        let why = if self.on_error == OnError::Abort {
            EndedBy::FailedRequest
        } else if self.max_error_rate_pct.is_some_and(|pct| too_many_failed(ok, failed, pct)) {
            EndedBy::ErrorRate
        } else {
            return;
        };
        if !self.abort.is_cancelled() && self.ended_early.set(why).is_ok() {
            tracing::warn!(ok, failed, ?why, "the run ends early");
            // In this order nothing is started that would be cut off at once.
            self.halt.cancel();
            self.abort.cancel();
        }
    }

    /// One agent: a trajectory after another, until there is none.
    async fn work(self: Arc<Self>, agent: Agent, start_ns: i64) {
        let mut due_ns = start_ns;
        let mut invocation = 0;
        while self.reached(start_ns, &self.halt).await
            && let Some((index, session)) = self.take_trajectory()
            && self.reached(due_ns, &self.halt).await
        {
            let start = Start { due_ns, taken_up_ns: due_ns, waited_ns: None };
            let trajectory = Trajectory::new(&self, &agent, invocation, index, session, start);
            let answered = trajectory.play().await;
            due_ns = self.clock.now_ns();
            if !answered {
                due_ns += FAILURE_PAUSE.as_nanos() as i64;
            }
            invocation += 1;
        }
        agent.activity.end();
        self.phases().nothing_left(self.clock.run_ms());
    }

    /// The next trajectory's number and session; none when all are taken.
    pub(super) fn take_trajectory(&self) -> Option<(u64, usize)> {
        let nth = self.next_trajectory.fetch_add(1, Ordering::Relaxed);
        let index = self.share.trajectory(nth);
        let taken = self.trajectories.is_none_or(|trajectories| index < trajectories);
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        taken.then(|| (index, order.session(index)))
    }

    /// Trajectories taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.next_trajectory.load(Ordering::Relaxed)
    }

    pub(super) fn phases(&self) -> MutexGuard<'_, PhaseTracker> {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until a moment of the run; false when `halt` came first.
    pub(super) async fn reached(&self, at_ns: i64, halt: &CancellationToken) -> bool {
        if halt.is_cancelled() {
            return false;
        }
        let at = self.clock.instant_at(at_ns);
        if at_ns <= self.clock.now_ns() {
            return true;
        }
        halt.run_until_cancelled(tokio::time::sleep_until(at)).await.is_some()
    }
}

/// Waits for tasks to end; an error when one of them panicked.
async fn all_ended(mut tasks: JoinSet<()>) -> Result<()> {
    let mut panicked = None;
    while let Some(ended) = tasks.join_next().await {
        panicked = panicked.or(ended.err());
    }
    match panicked {
        Some(error) => Err(Error::Internal(format!("an agent ended early: {error}"))),
        None => Ok(()),
    }
}
