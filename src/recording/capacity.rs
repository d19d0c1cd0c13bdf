//! A capacity search as one recording: levels of agents one after another, one poller over all, one run
//! directory, summary.
//!
//! Which level is tried next is `replay::capacity`'s decision, what a level says `replay::levels`'s.
//! Here a level is run until it has its minimum of samples or its time is up; then nothing more is
//! started, and what is on its way is answered to its end, so that slow requests count.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::task::JoinHandle;

use super::presets::Preset;
use super::replay::{keep_settings, write_summary};
use super::{Ground, RecordingConfig, in_background};
use crate::clock::{Clock, unix_seconds};
use crate::engine::control::{Answer, Control};
use crate::error::{Error, Result};
use crate::power::{PowerConfig, PowerWatch};
use crate::replay::capacity::{Search, Verdict};
use crate::replay::capacity_gpus::contradiction;
use crate::replay::capacity_summary::CapacitySettings;
use crate::replay::client_figures::{Watched, client_figures, with_client};
use crate::replay::levels::{Level, LevelMinimum, judge};
use crate::replay::power_window::fill_level;
use crate::replay::samples::Samples;
use crate::replay::settings::EndedBy;
use crate::replay::slo::Condition;
use crate::replay::{
    PreparedReplay, Replay, ReplayConfig, ReplayHandle, ReplayProgress, ReplaySettings, Summary,
    tiers,
};
use crate::shutdown::Shutdown;
use crate::trace::record::LevelRow;
use crate::trace::{Manifest, RowSender, Run, RunKind};

/// How long what is on its way may go on once a search is asked to stop: it is cut at once.
const DRAIN: Duration = Duration::from_secs(2);
/// Time between two looks at whether a level has enough.
const LOOK: Duration = Duration::from_millis(100);
/// Time between two looks at whether power was sampled behind a level's end, and the longest wait.
const SAMPLE_LOOK: Duration = Duration::from_millis(20);
const SAMPLE_WAIT: Duration = Duration::from_secs(5);

/// What a search looks for, as asked.
#[derive(Debug, Clone)]
pub struct SearchConfig {
    /// Conditions of the service level.
    pub slo: Vec<String>,
    /// A tier by name, whose conditions are added.
    pub tier: Option<String>,
    /// Most agents tried.
    pub max_agents: u32,
    /// The search ends when the limit is known to so many agents.
    pub resolution: u32,
    /// Where the minimum comes from.
    pub preset: Preset,
    /// What a level must have to count.
    pub minimum: LevelMinimum,
    /// A level is ended after this time, whatever it has.
    pub level_time: Duration,
    /// The number of GPUs that serve, where it is known without looking.
    pub gpu_count: Option<u32>,
}

impl SearchConfig {
    pub(super) fn conditions(&self) -> Result<Vec<Condition>> {
        let mut conditions = Vec::new();
        if let Some(name) = &self.tier {
            conditions.extend(tiers::conditions(name).ok_or_else(|| {
                let known: Vec<&str> = tiers::all().map(|(name, _)| name).collect();
                Error::config(format!("no tier {name:?}; one of {}", known.join(", ")))
            })?);
        }
        for text in &self.slo {
            conditions.push(
                text.parse().map_err(|error| Error::config(format!("service level: {error}")))?,
            );
        }
        if conditions.is_empty() {
            return Err(Error::config(
                "a capacity search needs a service level; give conditions or a tier",
            ));
        }
        if self.max_agents == 0 || self.resolution == 0 {
            return Err(Error::config("max_agents and resolution must be 1 or more"));
        }
        if self.gpu_count == Some(0) {
            return Err(Error::config("0 GPUs serve nobody; give 1 or more, or leave it out"));
        }
        Ok(conditions)
    }

    /// What was changed in the preset.
    pub fn preset_changes(&self, replay: &ReplayConfig) -> Vec<String> {
        self.preset.changes(&self.minimum, self.level_time, replay)
    }

    pub(super) fn settings(
        &self,
        conditions: &[Condition],
        replay: &ReplayConfig,
        power: &PowerConfig,
    ) -> CapacitySettings {
        let preset_changes = self.preset_changes(replay);
        CapacitySettings {
            slo: conditions.iter().map(ToString::to_string).collect(),
            tier: self.tier.clone(),
            max_agents: self.max_agents,
            resolution: self.resolution,
            preset: self.preset.label(&preset_changes),
            preset_changes,
            minimum: self.minimum,
            level_time_s: self.level_time.as_secs_f64(),
            gpu_count: self.gpu_count,
            gpu_names: power.gpus.list.clone(),
            interrupted: false,
        }
    }
}

/// What a capacity search needs beside a recording.
#[derive(Debug, Clone)]
pub struct CapacityRecordingConfig {
    /// The recording to make.
    pub recording: RecordingConfig,
    /// The run directory to replay.
    pub trace: PathBuf,
    /// How to replay it; its agents, duration and trajectories are the search's affair.
    pub replay: ReplayConfig,
    /// What to look for.
    pub search: SearchConfig,
}

/// A search at one moment.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct CapacityProgress {
    /// The level that runs, or ran last.
    pub level: u32,
    /// Its agents.
    pub agents: u32,
    /// How far it is.
    pub replay: ReplayProgress,
    /// After so long nothing more is started at this level, whatever it has; null between levels.
    pub level_left_s: Option<f64>,
    /// The levels judged so far.
    pub levels: Vec<LevelRow>,
    /// The search has ended.
    pub done: bool,
}

#[derive(Debug, Default)]
struct Seen {
    level: u32,
    agents: u32,
    replay: Option<ReplayHandle>,
    last: ReplayProgress,
    levels: Vec<LevelRow>,
    done: bool,
}

/// What the search shows of itself.
#[derive(Debug, Clone, Default)]
struct Shown(Arc<Mutex<Seen>>);

impl Shown {
    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Levels and a poller that fill one run directory.
#[derive(Debug)]
pub struct CapacityRecording {
    ground: Ground,
    search: JoinHandle<Result<Searched>>,
    shown: Shown,
    shutdown: Shutdown,
    settings: CapacitySettings,
    replay_settings: ReplaySettings,
}

#[derive(Debug, Default)]
struct Searched {
    interrupted: bool,
    /// A request failed, and that was to end the run.
    aborted: bool,
    rows_lost: u64,
    notes: Vec<String>,
}

impl CapacityRecording {
    /// Reads the trace, asks the engine, starts writer, poller and the first level.
    ///
    /// # Errors
    ///
    /// A service level that cannot be read, and all that keeps a replay from starting: then nothing is
    /// left behind.
    pub async fn start(config: CapacityRecordingConfig) -> Result<Self> {
        let conditions = config.search.conditions()?;
        let settings = config.search.settings(&conditions, &config.replay, &config.recording.power);
        let clock = Clock::start();
        let trace = config.trace.clone();
        let run = Arc::new(in_background(move || Run::open(&trace)).await?);
        let mut control = Control::new(&config.replay.url)?;
        let dataset = format!("{} ({})", config.trace.display(), run.manifest().run_id);
        if let Some(key) = &config.replay.api_key {
            control = control.with_key(key.clone());
        }
        let replay =
            ReplayConfig { agents: 1, duration: None, trajectories: None, ..config.replay };
        let prepared = Replay::prepare(run, replay, clock).await?;
        let replay_settings = ReplaySettings { trajectories: None, ..prepared.settings().clone() };
        let mut manifest =
            config.recording.manifest(RunKind::Capacity, &clock, prepared.engine().clone());
        manifest.dataset = Some(dataset);
        keep_settings(&mut manifest, &replay_settings)?;
        keep_search(&mut manifest, &settings)?;
        // Each level's power is judged with the level, from what the sampler keeps.
        let power = PowerConfig { keep_readings: true, ..config.recording.power };
        let recording = RecordingConfig { power, ..config.recording };
        let ground =
            Ground::lay(&recording, manifest, std::slice::from_ref(&control), clock).await?;
        let watch = ground.power.watch();
        let contradiction = contradiction(&settings, watch.settings());
        if let (false, Some(problem)) = (replay_settings.simulated, contradiction) {
            ground.clear();
            return Err(Error::config(problem));
        }
        let (shutdown, shown) = (Shutdown::new(DRAIN), Shown::default());
        let driver = Driver {
            keep_gaps: conditions.iter().any(Condition::needs_gaps),
            conditions,
            settings: settings.clone(),
            level_time: config.search.level_time,
            prepared,
            control,
            power: watch,
            rows: ground.writer.sender(),
            shown: shown.clone(),
            shutdown: shutdown.clone(),
        };
        let search = shutdown.tracker().spawn(driver.run());
        Ok(Self { ground, search, shown, shutdown, settings, replay_settings })
    }

    /// How far it is.
    pub fn progress(&self) -> CapacityProgress {
        let seen = self.shown.lock();
        let replay = seen.replay.as_ref().map_or_else(|| seen.last.clone(), ReplayHandle::progress);
        let replay = self.ground.seen(ReplayProgress { time_left_s: None, ..replay });
        CapacityProgress {
            level: seen.level,
            agents: seen.agents,
            level_left_s: level_left_s(&replay, self.settings.level_time_s),
            replay,
            levels: seen.levels.clone(),
            done: seen.done,
        }
    }

    /// Cancelling it ends the search early: what is on its way becomes cancelled rows.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Waits for the search, stops the poller, closes the tables, writes `summary.json`.
    pub async fn finish(self) -> Result<(Manifest, Summary)> {
        let dir = self.ground.writer.dir().to_path_buf();
        let searched = self.search.await.map_err(|error| Error::Internal(error.to_string()))??;
        let interrupted = searched.interrupted || searched.aborted;
        let search = CapacitySettings { interrupted, ..self.settings };
        let mut replay = self.replay_settings;
        replay.ended_by = match (searched.interrupted, searched.aborted) {
            (true, _) => EndedBy::Shutdown,
            (false, true) => EndedBy::FailedRequest,
            (false, false) => EndedBy::Enough,
        };
        replay.notes.extend(replay.ended_by.note(None));
        replay.notes.extend(searched.notes);
        let manifest = self
            .ground
            .finish(move |manifest| {
                // Both were serialised once already, when the run started.
                let _ = keep_settings(manifest, &replay);
                let _ = keep_search(manifest, &search);
                if searched.rows_lost > 0 {
                    manifest.counts.insert("rows_lost".to_owned(), searched.rows_lost);
                }
            })
            .await?;
        let summary = in_background(move || write_summary(&dir)).await?;
        Ok((manifest, summary))
    }
}

/// The time for which a level may still start something.
pub(super) fn level_left_s(level: &ReplayProgress, level_time_s: f64) -> Option<f64> {
    let left_s = level_time_s - level.elapsed_s;
    (left_s > 0.0 && !level.done).then_some(left_s)
}

pub(super) fn keep_search(manifest: &mut Manifest, settings: &CapacitySettings) -> Result<()> {
    let value = serde_json::to_value(settings)
        .map_err(|error| Error::Internal(format!("capacity settings: {error}")))?;
    manifest.settings.insert("capacity".to_owned(), value);
    Ok(())
}

/// Empties the engine's cache, where it offers that; what kept it from doing so is noted once.
pub(super) async fn empty_cache(control: &Control, notes: &mut Vec<String>) -> bool {
    let why = match control.reset_prefix_cache().await {
        Ok(Answer::Given(())) => return true,
        Ok(Answer::Refused(refusal)) => format!("it answers {}", refusal.status),
        Err(error) => error.to_string(),
    };
    let note = format!("the engine's cache could not be emptied between levels: {why}");
    if !notes.contains(&note) {
        notes.push(note);
    }
    false
}

/// The power of a level's steady window, once a sample lies behind its end.
pub(super) async fn fill_power(row: &mut LevelRow, watch: &PowerWatch, anchor_ns: i64) {
    let power = watch.settings();
    if let (Some(_), Some(end_ms)) = (&power.source, row.end_ms) {
        let end = unix_seconds(anchor_ns) + end_ms / 1e3;
        // A source that hangs must not hold up the search: its gap makes the figure invalid.
        let looks = (SAMPLE_WAIT.as_millis() / SAMPLE_LOOK.as_millis()) as u32;
        for _ in 0..looks {
            if watch.covers(end) {
                break;
            }
            tokio::time::sleep(SAMPLE_LOOK).await;
        }
    }
    fill_level(row, &watch.readings(), power, anchor_ns);
}

/// The search while it runs.
struct Driver {
    prepared: PreparedReplay,
    control: Control,
    conditions: Vec<Condition>,
    keep_gaps: bool,
    settings: CapacitySettings,
    level_time: Duration,
    power: PowerWatch,
    rows: RowSender,
    shown: Shown,
    shutdown: Shutdown,
}

impl Driver {
    async fn run(self) -> Result<Searched> {
        let searched = self.search().await;
        self.shown.lock().done = true;
        searched
    }

    async fn search(&self) -> Result<Searched> {
        let mut search = Search::new(self.settings.max_agents, self.settings.resolution);
        let mut searched = Searched::default();
        let mut level = 0;
        while let Some(agents) = search.next_level() {
            let cache_reset = empty_cache(&self.control, &mut searched.notes).await;
            if self.shutdown.token().is_cancelled() {
                searched.interrupted = true;
                break;
            }
            let (mut row, lost, ended_by) = self.level(level, agents).await?;
            searched.rows_lost += lost;
            if self.shutdown.token().is_cancelled() {
                // What was cut off says nothing about the engine.
                searched.interrupted = true;
                break;
            }
            if ended_by == EndedBy::FailedRequest {
                searched.aborted = true;
                break;
            }
            row.cache_reset = cache_reset;
            tracing::info!(level, agents, verdict = row.verdict, "level ended");
            search.record(agents, Verdict::named(&row.verdict));
            self.shown.lock().levels.push(row.clone());
            searched.rows_lost += self.keep(row).await?;
            level += 1;
        }
        Ok(searched)
    }

    /// Hands a level's row to the writer; 1 when it did not take it.
    async fn keep(&self, row: LevelRow) -> Result<u64> {
        let rows = self.rows.clone();
        in_background(move || Ok(u64::from(!rows.send_blocking(row)))).await
    }

    /// Runs one level and judges it; also the number of rows that were lost, and what ended it.
    async fn level(&self, level: u32, agents: u32) -> Result<(LevelRow, u64, EndedBy)> {
        self.power.forget_before(unix_seconds(self.prepared.clock().now_ns()));
        let samples = Arc::new(Samples::new(agents, self.keep_gaps));
        let replay = self.prepared.start_level(
            level,
            agents,
            Arc::clone(&samples),
            self.rows.clone(),
            &self.shutdown,
        )?;
        {
            let mut seen = self.shown.lock();
            (seen.level, seen.agents, seen.replay) = (level, agents, Some(replay));
        }
        self.watch(&samples).await;
        let replay = self
            .shown
            .lock()
            .replay
            .take()
            .ok_or_else(|| Error::Internal("a level is gone before its end".to_owned()))?;
        let outcome = replay.wait().await?;
        self.shown.lock().last = outcome.progress;
        let (requests, trajectories) = samples.take();
        let judged = Level {
            level,
            agents,
            window: outcome.settings.window,
            requests: &requests,
            trajectories: &trajectories,
        };
        let mut row = judge(&judged, &self.conditions, &self.settings.minimum);
        let ReplaySettings { ended_by, max_error_rate_pct, .. } = outcome.settings;
        if ended_by == EndedBy::ErrorRate {
            Verdict::Fail.as_str().clone_into(&mut row.verdict);
            row.reason = ended_by.note(max_error_rate_pct);
        }
        let client = client_figures(&Watched {
            samples: &outcome.client_samples,
            requests: &requests,
            trajectories: &trajectories,
            window: outcome.settings.window,
            anchor_ns: outcome.settings.clock_anchor_ns,
            engine_in_process: outcome.settings.engine_in_process,
        });
        let mut row = with_client(row, &client);
        fill_power(&mut row, &self.power, self.prepared.settings().clock_anchor_ns).await;
        Ok((row, outcome.rows_lost, ended_by))
    }

    /// Waits until the level has enough or its time is up, then until all of it is answered.
    async fn watch(&self, samples: &Samples) {
        loop {
            tokio::time::sleep(LOOK).await;
            let seen = self.shown.lock();
            let Some(replay) = &seen.replay else { return };
            let progress = replay.progress();
            if progress.done {
                return;
            }
            // Steady state goes on until it is ended here, so that its length so far is up to now.
            let started_ms = replay.window().steady_start_ms;
            let steady_s = started_ms.map(|start_ms| (self.run_ms() - start_ms) / 1e3);
            let enough =
                steady_s.is_some_and(|steady_s| samples.suffice(&self.settings.minimum, steady_s));
            if enough || progress.elapsed_s >= self.level_time.as_secs_f64() {
                replay.start_nothing_more();
            }
        }
    }

    fn run_ms(&self) -> f64 {
        self.prepared.clock().run_ms()
    }
}
