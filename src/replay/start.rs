//! Starting a replay: sets the agents to work on what was planned; the handle of a running one.
//!
//! Reading the recording is `planning`'s affair, asking the engine `asked`'s, what the settings come to
//! `resolve`'s.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::arrivals::{OpenLoop, SessionOrder};
use super::asked::Engine;
use super::attempts::{Retries, Timeouts};
use super::content::{Contents, Synthetic};
use super::load::{Load, Pacing};
use super::open_loop::OpenLoopCounts;
use super::plan::Plan;
use super::planning::plan_of;
use super::progress::{Progress, ReplayProgress};
use super::resolve::{default_ramp, settings, trajectories_per_pass};
use super::rows::{RowQueue, RowThread};
use super::salts::{CacheSharing, Salts};
use super::samples::Samples;
use super::settings::{ApiChoice, ContentMode, EndedBy, OnError, OutputLengthRule, ReplaySettings};
use super::share::Share;
use super::shared_prefix::Sharing;
use super::time_left::Ahead;
use super::waits::{HumanTime, ToolTime};
use super::watch::Watch;
use super::window::{PhaseTracker, Window};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::shutdown::Shutdown;
use crate::trace::record::ClientSampleRow;
use crate::trace::{EngineInfo, RowSender, Run};

/// How a recording is replayed.
#[derive(Debug, Clone)]
pub struct ReplayConfig {
    /// The engine's base URL, with or without `/v1`.
    pub url: String,
    /// Sent as bearer token and as `x-api-key`.
    pub api_key: Option<String>,
    /// The model to ask for; none: the first one that the engine serves.
    pub model: Option<String>,
    /// Closed loop: agents at work at once.
    pub agents: u32,
    /// Trajectories begin at arrivals instead: the open loop.
    pub open_loop: Option<OpenLoop>,
    /// Shuffles the order of sessions, and draws arrivals; none: recorded order.
    pub seed: Option<u64>,
    /// Time after which nothing more is started; what is on its way then is answered to its end.
    pub duration: Option<Duration>,
    /// Trajectories to work through. With neither this nor `duration`: each session once, and in the
    /// closed loop at least one for each agent.
    pub trajectories: Option<u64>,
    /// Closed loop: time over which the agents are started; none: 50 ms an agent, 10 s at most.
    pub ramp: Option<Duration>,
    /// What a failed request does to its trajectory, or to the run.
    pub on_error: OnError,
    /// Ends the run when more of the requests that have ended failed, in percent; see
    /// [`attempts::too_many_failed`](super::attempts::too_many_failed).
    pub max_error_rate_pct: Option<f64>,
    /// Which requests are sent again.
    pub retries: Retries,
    /// How long a request may take.
    pub timeouts: Timeouts,
    /// Sends turns that are not the agent's work (titles, quota checks) too, beside the others.
    pub include_utility: bool,
    /// The API that requests are sent to.
    pub api: ApiChoice,
    /// What the requests say.
    pub content: ContentMode,
    /// Synthetic content: a `tokenizer.json` by which text is made; none: token ids where the engine
    /// takes them, else text by its `/tokenize`.
    pub tokenizer: Option<PathBuf>,
    /// What becomes of the recorded waits for tools.
    pub tool_time: ToolTime,
    /// What becomes of the recorded waits for humans.
    pub human_time: HumanTime,
    /// The length that outputs are asked to have.
    pub output_length: OutputLengthRule,
    /// What prompts of different trajectories may share in the engine's cache.
    pub cache_sharing: CacheSharing,
    /// What the salts that see to it are made of; none: the run's own, so that it finds nothing in
    /// the cache that an earlier run left there.
    pub salt: Option<String>,
    /// Refuses to run where the engine is not known to pin output lengths.
    pub strict: bool,
}

impl ReplayConfig {
    fn check(&self) -> Result<()> {
        if self.agents == 0 {
            return Err(Error::config("0 agents send nothing; ask for 1 or more"));
        }
        if self.trajectories == Some(0) {
            return Err(Error::config("0 trajectories send nothing; ask for 1 or more"));
        }
        if self.content == ContentMode::Synthetic && self.output_length == OutputLengthRule::Natural
        {
            return Err(Error::config(
                "content synthetic: where an answer to random text ends says nothing of an agent's; \
                 choose recorded output lengths or a number",
            ));
        }
        if self.content != ContentMode::Synthetic && self.tokenizer.is_some() {
            return Err(Error::config(
                "tokenizer: only text of our own is made by it; ask for content synthetic, or leave \
                 it out",
            ));
        }
        if self.duration.is_some_and(|duration| duration.is_zero()) {
            return Err(Error::config("a duration of 0 sends nothing; ask for a longer one"));
        }
        if let Some(pct) = self.max_error_rate_pct
            && !(0.0..=100.0).contains(&pct)
        {
            return Err(Error::config(format!("max_error_rate_pct: {pct} is not from 0 to 100")));
        }
        self.retries.check()?;
        self.timeouts.check()
    }
}

/// A replay before it runs.
#[derive(Debug)]
pub struct Replay;

/// What a replay came to, beside its rows.
#[derive(Debug, Clone)]
pub struct ReplayOutcome {
    /// How it was made; goes into the manifest under `replay`, where `summarize_run` looks for it.
    pub settings: ReplaySettings,
    /// The engine as it told before the run.
    pub engine: EngineInfo,
    /// The last counts.
    pub progress: ReplayProgress,
    /// What a reader of the figures must know, a sentence each.
    pub notes: Vec<String>,
    /// Rows that the writer did not take.
    pub rows_lost: u64,
    /// What the client saw of itself; of a capacity search's level.
    pub client_samples: Vec<ClientSampleRow>,
}

impl Replay {
    /// Starts a replay of `run` on the current tokio runtime: [`Replay::prepare`] and
    /// [`PreparedReplay::start`] in one.
    pub async fn start(
        run: Arc<Run>,
        config: ReplayConfig,
        rows: RowSender,
        clock: Clock,
        shutdown: Shutdown,
    ) -> Result<ReplayHandle> {
        Self::prepare(run, config, clock).await?.start(rows, &shutdown)
    }

    /// Plans the replay and asks the engine all that must be known of it, probes included.
    ///
    /// # Errors
    ///
    /// A wrong setting, a recording without a request that can be sent again, an engine that is not
    /// there or offers no API to send to. After that every failure is a row.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future before it is ready leaves nothing running.
    pub async fn prepare(
        run: Arc<Run>,
        config: ReplayConfig,
        clock: Clock,
    ) -> Result<PreparedReplay> {
        config.check()?;
        let (plan, prompts) = in_background({
            let (run, config) = (Arc::clone(&run), config.clone());
            move || plan_of(&run, &config)
        })
        .await?;
        let plan = Arc::new(plan);
        let engine = Engine::ask(&config, &plan, clock).await?;
        let settings = settings(&run, &config, &plan, &engine, clock)?;
        let synthetic = prompts.zip(engine.vocabulary.clone());
        let synthetic =
            synthetic.map(|(prompts, vocabulary)| Arc::new(Synthetic { prompts, vocabulary }));
        Ok(PreparedReplay { run, config, plan, synthetic, engine, settings, clock })
    }
}

/// A replay that is planned, against an engine that was asked.
#[derive(Debug)]
pub struct PreparedReplay {
    run: Arc<Run>,
    config: ReplayConfig,
    plan: Arc<Plan>,
    synthetic: Option<Arc<Synthetic>>,
    engine: Engine,
    settings: ReplaySettings,
    clock: Clock,
}

impl PreparedReplay {
    /// The engine as it told.
    pub fn engine(&self) -> &EngineInfo {
        &self.engine.info
    }

    /// The run clock.
    pub fn clock(&self) -> Clock {
        self.clock
    }

    /// How it will be run.
    pub fn settings(&self) -> &ReplaySettings {
        &self.settings
    }

    /// Sets the agents to work on the current tokio runtime.
    pub fn start(&self, rows: RowSender, shutdown: &Shutdown) -> Result<ReplayHandle> {
        self.launch(self.settings.clone(), Part::whole(None), rows, shutdown)
    }

    /// Sets so many agents to work, over and over through the sessions, until the handle is told that
    /// there is enough: one level of a capacity search. `samples` sees its rows.
    pub fn start_level(
        &self,
        level: u32,
        agents: u32,
        samples: Arc<Samples>,
        rows: RowSender,
        shutdown: &Shutdown,
    ) -> Result<ReplayHandle> {
        let part = Part { samples: Some(samples), ..Part::whole(Some(level)) };
        self.launch(self.level_settings(agents), part, rows, shutdown)
    }

    /// Sets a worker's own agents to work, of a run or of a level of so many agents that several
    /// workers play together; the first agent of all starts at `start_at_ns`.
    pub fn start_share(
        &self,
        share: Share,
        level: Option<(u32, u32)>,
        start_at_ns: i64,
        rows: RowSender,
        shutdown: &Shutdown,
    ) -> Result<ReplayHandle> {
        let settings = match level {
            None => self.settings.clone(),
            Some((_, agents)) => self.level_settings(agents),
        };
        let part = Part {
            share,
            level: level.map(|(level, _)| level),
            samples: None,
            start_at_ns: Some(start_at_ns),
        };
        self.launch(settings, part, rows, shutdown)
    }

    fn level_settings(&self, agents: u32) -> ReplaySettings {
        let ramp = self.config.ramp.unwrap_or_else(|| default_ramp(agents));
        ReplaySettings {
            agents,
            trajectories_per_pass: trajectories_per_pass(&self.plan, agents),
            ramp_s: ramp.as_secs_f64(),
            trajectories: None,
            duration_s: None,
            ..self.settings.clone()
        }
    }

    fn launch(
        &self,
        settings: ReplaySettings,
        part: Part,
        rows: RowSender,
        shutdown: &Shutdown,
    ) -> Result<ReplayHandle> {
        let Self { run, config, plan, engine, clock, .. } = self;
        let (run, plan, engine, clock) =
            (Arc::clone(run), Arc::clone(plan), engine.clone(), *clock);
        let Part { share, level, samples, start_at_ns } = part;
        let enough = CancellationToken::new();
        tracing::info!(
            agents = settings.agents,
            sessions = settings.sessions,
            url = settings.url,
            "replay starts"
        );
        let ahead = Ahead {
            trajectories: settings.trajectories,
            requests: settings.trajectories.map(|all| n_requests(&plan, config.seed, all, share)),
            duration_s: settings.duration_s,
            simulated: settings.simulated,
        };
        let progress = Arc::new(Progress::new(clock, ahead));
        let (pacing, phases, open_loop) = pacing(config, &settings, share);
        let phases = Arc::new(Mutex::new(phases));
        let watch = Watch::start(clock, rows.clone(), level)?;
        let (queue, row_thread) = RowQueue::start(rows, samples)?;
        let order = Mutex::new(SessionOrder::new(plan.sessions.len(), config.seed));
        let contents = Contents::new(
            run,
            Arc::clone(&plan),
            settings.content,
            self.synthetic.clone(),
            settings.model.clone(),
            engine.routes,
            engine.continuous_usage,
        );
        let salts = Salts::new(
            settings.cache_sharing,
            settings.salt.as_deref().unwrap_or_default(),
            level,
            settings.trajectories_per_pass,
        );
        let workers = tokio::runtime::Handle::current().metrics().num_workers();
        let load = Arc::new(Load {
            plan,
            contents: Arc::new(contents),
            shared: Sharing::new(salts),
            client: engine.client,
            clock,
            rows: queue,
            progress: Arc::clone(&progress),
            phases: Arc::clone(&phases),
            on_error: config.on_error,
            // Of a share, the failures of all are counted by whoever shares it out.
            max_error_rate_pct: config.max_error_rate_pct.filter(|_| start_at_ns.is_none()),
            pacing,
            order,
            share,
            start_at_ns,
            duration: settings.duration_s.map(Duration::from_secs_f64),
            trajectories: settings.trajectories,
            level,
            enough: enough.clone(),
            halt: CancellationToken::new(),
            abort: shutdown.token().child_token(),
            ended_early: OnceLock::new(),
            builders: Semaphore::new(workers.max(1)),
            next_trajectory: AtomicU64::new(0),
        });
        let task = shutdown.tracker().spawn({
            let progress = Arc::clone(&progress);
            async move {
                let ended = load.run().await;
                progress.set_done();
                ended
            }
        });
        let engine = engine.info;
        Ok(ReplayHandle {
            task,
            row_thread,
            watch,
            progress,
            phases,
            open_loop,
            enough,
            settings,
            engine,
        })
    }
}

/// Requests of the trajectories of a share, of so many in the run.
fn n_requests(plan: &Plan, seed: Option<u64>, trajectories: u64, share: Share) -> u64 {
    let mut order = SessionOrder::new(plan.sessions.len(), seed);
    let own = (0..).map(|nth| share.trajectory(nth)).take_while(|index| *index < trajectories);
    own.map(|index| plan.sessions[order.session(index)].requests.len() as u64).sum()
}

/// What makes trajectories begin, and what ends the ramp of that; of an open loop also its counts.
fn pacing(
    config: &ReplayConfig,
    settings: &ReplaySettings,
    share: Share,
) -> (Pacing, PhaseTracker, Option<Arc<OpenLoopCounts>>) {
    let Some(open) = config.open_loop else {
        let ramp = Duration::from_secs_f64(settings.ramp_s);
        let pacing = Pacing::Closed { agents: settings.agents, ramp };
        return (pacing, PhaseTracker::new(share.count(settings.agents)), None);
    };
    let counts = Arc::new(OpenLoopCounts::default());
    let phases = if open.is_burst() {
        let room = u64::from(open.max_active.unwrap_or(u32::MAX));
        let agents = settings.trajectories.unwrap_or(u64::MAX).min(room).min(u64::from(u32::MAX));
        PhaseTracker::new(share.count(agents as u32))
    } else {
        PhaseTracker::of_arrivals()
    };
    (Pacing::Open { open, seed: config.seed, counts: Arc::clone(&counts) }, phases, Some(counts))
}

/// Which part of a run is played here.
struct Part {
    share: Share,
    level: Option<u32>,
    samples: Option<Arc<Samples>>,
    start_at_ns: Option<i64>,
}

impl Part {
    /// All of it, at once.
    fn whole(level: Option<u32>) -> Self {
        Self { share: Share::WHOLE, level, samples: None, start_at_ns: None }
    }
}

/// A running replay.
#[derive(Debug)]
pub struct ReplayHandle {
    task: JoinHandle<Result<EndedBy>>,
    row_thread: RowThread,
    watch: Watch,
    progress: Arc<Progress>,
    phases: Arc<Mutex<PhaseTracker>>,
    open_loop: Option<Arc<OpenLoopCounts>>,
    enough: CancellationToken,
    settings: ReplaySettings,
    engine: EngineInfo,
}

impl ReplayHandle {
    /// Starts nothing more; what is on its way is answered to its end.
    pub fn start_nothing_more(&self) {
        self.enough.cancel();
    }

    /// The bounds of its phases so far.
    pub fn window(&self) -> Window {
        self.phases.lock().unwrap_or_else(PoisonError::into_inner).window()
    }

    /// How far it is.
    pub fn progress(&self) -> ReplayProgress {
        let phase = self.phases.lock().unwrap_or_else(PoisonError::into_inner).phase();
        self.progress.read(phase)
    }

    /// The settings, as far as they are known while it runs.
    pub fn settings(&self) -> &ReplaySettings {
        &self.settings
    }

    /// The engine as it told before the run.
    pub fn engine(&self) -> &EngineInfo {
        &self.engine
    }

    /// Waits until every agent has ended and every row is handed to the writer. To end it sooner,
    /// cancel the shutdown that it was started with: what is on its way becomes a cancelled row.
    pub async fn wait(self) -> Result<ReplayOutcome> {
        let ended = self.task.await.map_err(|error| Error::Internal(error.to_string()))?;
        let client_samples = self.watch.stop().await?;
        let rows_lost = self.row_thread.finish().await?;
        let window = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        let (phase, window) = (window.phase(), window.window());
        let mut settings = ReplaySettings { ended_by: ended?, window, ..self.settings };
        settings.notes.extend(settings.ended_by.note(settings.max_error_rate_pct));
        if let Some(counts) = &self.open_loop {
            settings.agents = counts.peak_active.load(Ordering::Relaxed);
            settings.not_admitted = Some(counts.not_admitted.load(Ordering::Relaxed));
        }
        let progress = self.progress.read(phase);
        tracing::info!(
            sent = progress.requests_sent,
            failed = progress.requests_failed,
            "replay ended"
        );
        let notes = settings.notes.clone();
        let engine = self.engine;
        Ok(ReplayOutcome { settings, engine, progress, notes, rows_lost, client_samples })
    }
}

async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|error| Error::Internal(error.to_string()))?
}
