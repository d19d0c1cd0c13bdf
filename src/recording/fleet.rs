//! A run that several workers make together, as one recording: one run directory, one poller, one
//! power sampler, one search.
//!
//! Workers play and report; here their rows get worker and phase and go to the writer as they come, so
//! a worker or a driver that dies loses little. What the common phases are is `replay::common_window`'s
//! decision, what a level says `replay::levels`'s, which comes next `replay::capacity`'s. How reports
//! get here is the caller's affair.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;

use super::capacity::{
    CapacityProgress, SearchConfig, empty_cache, fill_power, keep_search, level_left_s,
};
use super::replay::{keep_settings, write_summary};
use super::worker::{WorkerPlan, WorkerReport};
use super::{Ground, RecordingConfig, in_background};
use crate::clock::{Clock, unix_seconds};
use crate::engine::control::Control;
use crate::error::{Error, Result};
use crate::power::PowerConfig;
use crate::replay::attempts::too_many_failed;
use crate::replay::capacity::{Search, Verdict};
use crate::replay::capacity_gpus::contradiction;
use crate::replay::capacity_summary::CapacitySettings;
use crate::replay::client_figures::{Watched, client_figures, with_client};
use crate::replay::common_window::{CommonWindow, phase_at};
use crate::replay::levels::{Level, judge};
use crate::replay::open_loop_figures::most_at_once;
use crate::replay::recent::Recent;
use crate::replay::samples::Samples;
use crate::replay::settings::EndedBy;
use crate::replay::slo::Condition;
use crate::replay::{
    CacheSharing, ReplayConfig, ReplayProgress, ReplaySettings, Summary, WorkerSetting,
};
use crate::trace::record::{ClientSampleRow, LevelRow, RequestRow};
use crate::trace::{Manifest, Row, RunKind};

/// From the decision to the agreed instant: long enough for the word to reach every worker.
const LEAD: Duration = Duration::from_millis(500);
/// Clocks that agree this well need no word in the report.
const CLOCK_ERROR_NOTED_MS: f64 = 5.0;

/// What a run of several workers is told.
#[derive(Debug, Clone)]
pub struct FleetConfig {
    /// The recording to make.
    pub recording: RecordingConfig,
    /// The recording that is played, as the user named it.
    pub trace: PathBuf,
    /// How the workers replay it.
    pub replay: ReplayConfig,
    /// What to look for; none: a replay.
    pub search: Option<SearchConfig>,
}

/// What the workers are to play next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Step {
    /// The level of a search.
    pub level: Option<u32>,
    /// Agents over all workers.
    pub agents: u32,
    /// The first so many workers take part: an agent is not divided.
    pub workers: u32,
    /// The agreed instant of the first agent's start, on the driver's clock.
    pub start_at_ns: i64,
}

/// How a step goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct FleetState {
    /// Workers are to start nothing more.
    pub enough: bool,
    /// Failures ended one worker's part, or are too many over all of them: what is on its way is to be
    /// cut off.
    pub cut: bool,
    /// No worker has anything more to tell.
    pub ended: bool,
}

/// A step under way.
#[derive(Debug)]
struct Playing {
    step: Step,
    common: CommonWindow,
    progress: Vec<ReplayProgress>,
    /// The latest answers of all workers.
    recent: Recent,
    outcomes: Vec<ReplaySettings>,
    samples: Option<Arc<Samples>>,
    /// Requests whose phase is not known yet, with their workers.
    unsettled: Vec<(u32, RequestRow)>,
    /// What the workers saw of their processes, of a level.
    client_samples: Vec<ClientSampleRow>,
    /// When trajectories began and ended, in an open loop.
    spans_ms: Vec<(f64, f64)>,
    cache_reset: bool,
    /// More of all workers' requests failed than may.
    too_many_failed: bool,
    lost: Vec<String>,
}

#[derive(Debug)]
struct Searching {
    search: Search,
    conditions: Vec<Condition>,
    settings: CapacitySettings,
    level_time: Duration,
    levels: Vec<LevelRow>,
}

/// Workers, a poller and one run directory.
#[derive(Debug)]
pub struct Fleet {
    clock: Clock,
    ground: Ground,
    control: Control,
    settings: ReplaySettings,
    searching: Option<Searching>,
    playing: Option<Playing>,
    last: CapacityProgress,
    /// Steps begun.
    steps: u32,
    rows_lost: u64,
    interrupted: bool,
    /// A request failed, and that was to end the run.
    aborted: bool,
}

impl Fleet {
    /// Makes the run directory, once the workers have planned; starts polling and power sampling.
    ///
    /// # Errors
    ///
    /// A service level that cannot be read, a directory that is not empty: nothing is left behind.
    pub async fn start(
        config: FleetConfig,
        plan: WorkerPlan,
        workers: Vec<WorkerSetting>,
        clock: Clock,
    ) -> Result<Self> {
        let mut control = Control::new(&config.replay.url)?;
        if let Some(key) = &config.replay.api_key {
            control = control.with_key(key.clone());
        }
        can_be_shared(&plan.settings, workers.len())?;
        let searching = config.search.as_ref().map(|search| Searching::new(search, &config));
        let searching = searching.transpose()?;
        let mut settings = ReplaySettings { clock_anchor_ns: clock.anchor_ns(), ..plan.settings };
        settings.notes.extend(workers.iter().filter_map(clock_note));
        if workers.len() > 1
            && matches!(settings.cache_sharing, CacheSharing::System | CacheSharing::Recorded)
        {
            settings.notes.push(
                "planned cache hits leave out what the trajectories of different workers share"
                    .to_owned(),
            );
        }
        if let Some(most) = settings.max_active.filter(|_| workers.len() > 1) {
            settings.notes.push(format!(
                "the {most} places for agents at work are shared out over {} workers: an arrival may wait for \
                 one of its worker's while another worker has one free",
                workers.len()
            ));
        }
        settings.workers = workers;
        if searching.is_some() {
            settings.trajectories = None;
        }
        let kind = if searching.is_some() { RunKind::Capacity } else { RunKind::Replay };
        let mut manifest = config.recording.manifest(kind, &clock, plan.engine);
        manifest.dataset = Some(plan.dataset);
        keep_settings(&mut manifest, &settings)?;
        if let Some(searching) = &searching {
            keep_search(&mut manifest, &searching.settings)?;
        }
        // Each level's power is judged with the level, from what the sampler keeps.
        let power =
            PowerConfig { keep_readings: searching.is_some(), ..config.recording.power.clone() };
        let recording = RecordingConfig { power, ..config.recording };
        let ground =
            Ground::lay(&recording, manifest, std::slice::from_ref(&control), clock).await?;
        let watch = ground.power.watch();
        let contradiction = searching
            .as_ref()
            .filter(|_| !settings.simulated)
            .and_then(|searching| contradiction(&searching.settings, watch.settings()));
        if let Some(problem) = contradiction {
            ground.clear();
            return Err(Error::config(problem));
        }
        Ok(Self {
            clock,
            ground,
            control,
            settings,
            searching,
            playing: None,
            last: CapacityProgress::default(),
            steps: 0,
            rows_lost: 0,
            interrupted: false,
            aborted: false,
        })
    }

    /// What to play next; none when the run is over. Empties the engine's cache before a level.
    pub async fn next_step(&mut self) -> Result<Option<Step>> {
        let wanted = match &self.searching {
            None => (self.steps == 0).then_some(self.settings.agents),
            Some(searching) => searching.search.next_level(),
        };
        let over = self.interrupted || self.aborted;
        let Some(agents) = wanted.filter(|_| !over) else { return Ok(None) };
        let (mut cache_reset, mut samples) = (false, None);
        if let Some(searching) = &self.searching {
            self.ground.power.watch().forget_before(unix_seconds(self.clock.now_ns()));
            cache_reset = empty_cache(&self.control, &mut self.settings.notes).await;
            let keep_gaps = searching.conditions.iter().any(Condition::needs_gaps);
            samples = Some(Arc::new(Samples::new(agents, keep_gaps)));
        }
        let all = self.settings.workers.len() as u32;
        // In an open loop all take part: each has arrivals of its own.
        let workers = if self.settings.arrivals.is_some() { all } else { all.min(agents) };
        let step = Step {
            level: self.searching.is_some().then_some(self.steps),
            agents,
            workers,
            start_at_ns: self.clock.now_ns() + LEAD.as_nanos() as i64,
        };
        self.playing = Some(Playing {
            step,
            common: CommonWindow::new(workers as usize),
            progress: vec![ReplayProgress::default(); workers as usize],
            recent: Recent::default(),
            outcomes: Vec::new(),
            samples,
            unsettled: Vec::new(),
            client_samples: Vec::new(),
            spans_ms: Vec::new(),
            cache_reset,
            too_many_failed: false,
            lost: Vec::new(),
        });
        self.steps += 1;
        Ok(Some(step))
    }

    /// Takes a worker's report. Blocks while the writer has no room.
    pub fn take(&mut self, worker: u32, report: WorkerReport) -> Result<()> {
        let playing = self.playing.as_mut().ok_or_else(no_step)?;
        let index = worker as usize;
        playing.common.hear(index, report.window, report.until_ms, report.ended.is_some());
        if let Some(progress) = playing.progress.get_mut(index) {
            *progress = report.progress;
        }
        playing.judge_failures(self.settings.max_error_rate_pct);
        playing.outcomes.extend(report.ended);
        for row in &report.requests {
            playing.recent.see(row);
        }
        playing.unsettled.extend(report.requests.into_iter().map(|row| (worker, row)));
        self.rows_lost += report.rows_lost;
        for mut row in report.trajectories {
            row.worker = Some(worker);
            if self.settings.arrivals.is_some() {
                playing.spans_ms.push((row.start_ms, row.end_ms.unwrap_or(row.start_ms)));
            }
            let row = Row::from(row);
            if let Some(samples) = &playing.samples {
                samples.see(&row);
            }
            self.rows_lost += u64::from(!self.ground.writer.sender().send_blocking(row));
        }
        for mut row in report.client_samples {
            row.worker = Some(worker);
            if playing.step.level.is_some() {
                playing.client_samples.push(row.clone());
            }
            self.rows_lost += u64::from(!self.ground.writer.sender().send_blocking(row));
        }
        self.settle();
        Ok(())
    }

    /// A worker is gone: what it told is kept, its part of the run ends where it was last heard of.
    pub fn lose(&mut self, worker: u32, reason: &str) -> Result<()> {
        let playing = self.playing.as_mut().ok_or_else(no_step)?;
        playing.common.lose(worker as usize);
        if let Some(progress) = playing.progress.get_mut(worker as usize) {
            *progress = std::mem::take(progress).of_lost();
        }
        playing.lost.push(format!("worker {worker} was lost: {reason}"));
        self.settings.notes.push(format!(
            "worker {worker} was lost during the run ({reason}): its agents sent nothing after, its \
             requests on their way have no rows, and the steady state ends there"
        ));
        if let Some(setting) = self.settings.workers.get_mut(worker as usize) {
            setting.lost = Some(reason.to_owned());
        }
        self.settle();
        Ok(())
    }

    /// Writes the requests whose phase is known for good.
    fn settle(&mut self) {
        let Some(playing) = &mut self.playing else { return };
        let (settled_ms, window) = (playing.common.settled_ms(), playing.common.window());
        let (rows, unsettled) = std::mem::take(&mut playing.unsettled)
            .into_iter()
            .partition(|(_, row)| row.sent_at_ms <= settled_ms);
        playing.unsettled = unsettled;
        let sender = self.ground.writer.sender();
        for (worker, mut row) in rows {
            row.worker = Some(worker);
            row.phase = phase_at(&window, row.sent_at_ms);
            let row = Row::from(row);
            if let Some(samples) = &playing.samples {
                samples.see(&row);
            }
            self.rows_lost += u64::from(!sender.send_blocking(row));
        }
    }

    /// How the step goes.
    pub fn state(&self) -> FleetState {
        let Some(playing) = &self.playing else { return FleetState::default() };
        let ended = playing.common.ended();
        let enough = match (&self.searching, &playing.samples) {
            (Some(searching), Some(samples)) => {
                // Steady state goes on until it is ended here, so that its length so far is up to what
                // every worker has told of.
                let so_far_ms = playing.common.settled_ms().min(self.clock.run_ms());
                let steady_s = playing
                    .common
                    .window()
                    .steady_start_ms
                    .map(|start_ms| (so_far_ms - start_ms) / 1e3);
                let suffices = steady_s
                    .is_some_and(|steady_s| samples.suffice(&searching.settings.minimum, steady_s));
                let elapsed_ns = self.clock.now_ns() - playing.step.start_at_ns;
                let over = elapsed_ns >= searching.level_time.as_nanos() as i64;
                // A level that cannot be judged any more is not worth its time.
                suffices || over || !playing.lost.is_empty()
            }
            _ => false,
        };
        let cut = playing.failures().is_some();
        FleetState { enough, cut, ended }
    }

    /// Nothing more is begun after this step; what was cut off says nothing about the engine.
    pub fn interrupt(&mut self) {
        self.interrupted = true;
    }

    /// Closes the step that has ended: judges a level, keeps a replay's window.
    pub async fn end_step(&mut self) -> Result<()> {
        self.settle();
        let playing = self.playing.take().ok_or_else(no_step)?;
        let window = playing.common.window();
        self.last = progress_of(&playing, self.searching.as_ref());
        let lost = playing.lost.join("; ");
        let Some(searching) = &mut self.searching else {
            self.settings.window = window;
            self.settings.ended_by = ended_by(&playing, self.interrupted);
            if self.settings.arrivals.is_some() {
                let not_admitted = |outcome: &ReplaySettings| outcome.not_admitted;
                self.settings.agents = most_at_once(&playing.spans_ms);
                self.settings.not_admitted =
                    Some(playing.outcomes.iter().filter_map(not_admitted).sum());
            }
            return Ok(());
        };
        let (Some(samples), Some(level)) = (&playing.samples, playing.step.level) else {
            return Err(no_step());
        };
        let failures = playing.failures();
        self.aborted = failures == Some(EndedBy::FailedRequest);
        if self.interrupted || self.aborted {
            return Ok(());
        }
        let (requests, trajectories) = samples.take();
        let judged = Level {
            level,
            agents: playing.step.agents,
            window,
            requests: &requests,
            trajectories: &trajectories,
        };
        let mut row = judge(&judged, &searching.conditions, &searching.settings.minimum);
        row.cache_reset = playing.cache_reset;
        if let Some(why) = failures {
            Verdict::Fail.as_str().clone_into(&mut row.verdict);
            row.reason = why.note(self.settings.max_error_rate_pct);
        }
        let client = client_figures(&Watched {
            samples: &playing.client_samples,
            requests: &requests,
            trajectories: &trajectories,
            window,
            anchor_ns: self.settings.clock_anchor_ns,
            engine_in_process: self.settings.engine_in_process,
        });
        let mut row = with_client(row, &client);
        if !lost.is_empty() {
            Verdict::Invalid.as_str().clone_into(&mut row.verdict);
            row.reason = Some(lost);
        }
        fill_power(&mut row, &self.ground.power.watch(), self.settings.clock_anchor_ns).await;
        tracing::info!(level, agents = row.agents, verdict = row.verdict, "level ended");
        searching.search.record(row.agents, Verdict::named(&row.verdict));
        searching.levels.push(row.clone());
        self.last.levels.push(row.clone());
        self.rows_lost += u64::from(!self.ground.writer.sender().send_blocking(row));
        Ok(())
    }

    /// How far the run is; for a replay, its part `replay`.
    pub fn progress(&self) -> CapacityProgress {
        let progress = match &self.playing {
            Some(playing) => progress_of(playing, self.searching.as_ref()),
            None => self.last.clone(),
        };
        let simulated = self.settings.simulated;
        let replay = self.ground.seen(ReplayProgress { simulated, ..progress.replay });
        CapacityProgress { replay, ..progress }
    }

    /// Stops the poller, closes the tables, writes `summary.json`.
    pub async fn finish(self) -> Result<(Manifest, Summary)> {
        let dir = self.ground.writer.dir().to_path_buf();
        let (mut settings, rows_lost) = (self.settings, self.rows_lost);
        if self.searching.is_some() {
            settings.ended_by = match (self.interrupted, self.aborted) {
                (true, _) => EndedBy::Shutdown,
                (false, true) => EndedBy::FailedRequest,
                (false, false) => EndedBy::Enough,
            };
        }
        settings.notes.extend(settings.ended_by.note(settings.max_error_rate_pct));
        let search = self.searching.map(|searching| CapacitySettings {
            interrupted: self.interrupted || self.aborted,
            ..searching.settings
        });
        let manifest = self
            .ground
            .finish(move |manifest| {
                // Both were serialised once already, when the run started.
                let _ = keep_settings(manifest, &settings);
                if let Some(search) = &search {
                    let _ = keep_search(manifest, search);
                }
                if rows_lost > 0 {
                    manifest.counts.insert("rows_lost".to_owned(), rows_lost);
                }
            })
            .await?;
        let summary = in_background(move || write_summary(&dir)).await?;
        Ok((manifest, summary))
    }
}

impl Searching {
    fn new(config: &SearchConfig, fleet: &FleetConfig) -> Result<Self> {
        let conditions = config.conditions()?;
        let settings = config.settings(&conditions, &fleet.replay, &fleet.recording.power);
        Ok(Self {
            search: Search::new(config.max_agents, config.resolution),
            settings,
            conditions,
            level_time: config.level_time,
            levels: Vec::new(),
        })
    }
}

impl Playing {
    /// Counts the failures of all workers, as far as they have told.
    fn judge_failures(&mut self, max_error_rate_pct: Option<f64>) {
        let Some(pct) = max_error_rate_pct else { return };
        let ok = self.progress.iter().map(|progress| progress.requests_ok).sum();
        let failed = self.progress.iter().map(|progress| progress.requests_failed).sum();
        self.too_many_failed |= too_many_failed(ok, failed, pct);
    }

    /// The failures that end it: of one worker's part, or of all together.
    fn failures(&self) -> Option<EndedBy> {
        let mut reasons = self.outcomes.iter().map(|outcome| outcome.ended_by);
        let of_one = reasons.find(|reason| *reason == EndedBy::FailedRequest);
        of_one.or(self.too_many_failed.then_some(EndedBy::ErrorRate))
    }
}

fn progress_of(playing: &Playing, searching: Option<&Searching>) -> CapacityProgress {
    let window = playing.common.window();
    let phase = phase_at(&window, playing.common.settled_ms());
    let sum = ReplayProgress::sum(&playing.progress, phase, playing.recent.figures());
    let time_left_s = sum.time_left_s.filter(|_| searching.is_none());
    let replay = ReplayProgress { done: playing.common.ended(), time_left_s, ..sum };
    let level_time_s = searching.map(|searching| searching.level_time.as_secs_f64());
    CapacityProgress {
        level: playing.step.level.unwrap_or_default(),
        agents: playing.step.agents,
        level_left_s: level_time_s.and_then(|level_time_s| level_left_s(&replay, level_time_s)),
        replay,
        levels: searching.map(|searching| searching.levels.clone()).unwrap_or_default(),
        done: false,
    }
}

/// What ended a replay, where its workers differ: the one that is not the end of all work.
fn ended_by(playing: &Playing, interrupted: bool) -> EndedBy {
    if interrupted {
        return EndedBy::Shutdown;
    }
    let reasons = playing.outcomes.iter().map(|outcome| outcome.ended_by);
    playing.failures().unwrap_or_else(|| {
        reasons.fold(EndedBy::Trajectories, |kept, reason| match kept {
            EndedBy::Trajectories => reason,
            kept => kept,
        })
    })
}

/// Refuses arrivals, or places for them, of which a worker would have none.
fn can_be_shared(settings: &ReplaySettings, workers: usize) -> Result<()> {
    if settings.arrivals.is_none() {
        return Ok(());
    }
    let fewer = |number: u64| number < workers as u64;
    let refuse = |number: u64, what: &str| {
        Err(Error::config(format!(
            "{number} {what} cannot be shared by {workers} workers; ask for as many, or fewer workers"
        )))
    };
    match (settings.trajectories, settings.max_active) {
        (Some(number), _) if fewer(number) => refuse(number, "arrivals"),
        (_, Some(most)) if fewer(u64::from(most)) => refuse(most.into(), "places (max active)"),
        _ => Ok(()),
    }
}

fn clock_note(worker: &WorkerSetting) -> Option<String> {
    (worker.clock_error_ms > CLOCK_ERROR_NOTED_MS).then(|| {
        format!(
            "worker {}'s clock is known to {:.1} ms only: its times may be off by that against the \
             other workers'",
            worker.worker, worker.clock_error_ms
        )
    })
}

fn no_step() -> Error {
    Error::Internal("no step is being played".to_owned())
}
