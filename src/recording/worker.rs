//! One worker of a run that several make together: plays its share of the agents and tells what came
//! of it, piece by piece. The run directory, the engine's page and power are `fleet`'s affair, how the
//! two reach each other their caller's.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::task::JoinHandle;

use super::in_background;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::replay::share::Share;
use crate::replay::window::Window;
use crate::replay::{
    PreparedReplay, Replay, ReplayConfig, ReplayHandle, ReplayOutcome, ReplayProgress,
    ReplaySettings,
};
use crate::shutdown::Shutdown;
use crate::trace::record::{ClientSampleRow, RequestRow, TrajectoryRow};
use crate::trace::{EngineInfo, Row, RowReceiver, Run, row_channel};

/// How long what is on its way may go on once a worker is asked to stop: it is cut at once.
const DRAIN: Duration = Duration::from_secs(2);

/// What a worker found out before it plays.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct WorkerPlan {
    /// The engine as it told.
    pub engine: EngineInfo,
    /// How the run is made, all its agents counted.
    pub settings: ReplaySettings,
    /// The recording's path and name.
    pub dataset: String,
}

/// What a worker tells of its play since it was last asked.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct WorkerReport {
    /// The moment, on the run clock, up to which the window is told for good.
    pub until_ms: f64,
    /// Its own agents' window so far.
    pub window: Window,
    /// How far it is.
    pub progress: ReplayProgress,
    /// Requests that have ended since.
    pub requests: Vec<RequestRow>,
    /// Trajectories that have ended since.
    pub trajectories: Vec<TrajectoryRow>,
    /// What it saw of its own process since.
    pub client_samples: Vec<ClientSampleRow>,
    /// Its settings as they ended; there once nothing more follows.
    pub ended: Option<ReplaySettings>,
    /// Rows that went missing on the way.
    pub rows_lost: u64,
}

/// A worker that has planned its play.
#[derive(Debug)]
pub struct Worker {
    prepared: PreparedReplay,
    dataset: String,
    playing: Option<Playing>,
}

#[derive(Debug)]
struct Playing {
    replay: Option<ReplayHandle>,
    ending: Option<JoinHandle<Result<ReplayOutcome>>>,
    rows: RowReceiver,
    shutdown: Shutdown,
    last: WorkerReport,
}

impl Worker {
    /// Reads the trace and asks the engine. `clock` is the run's.
    pub async fn prepare(trace: PathBuf, config: ReplayConfig, clock: Clock) -> Result<Self> {
        let path = trace.clone();
        let run = Arc::new(in_background(move || Run::open(&path)).await?);
        let dataset = format!("{} ({})", trace.display(), run.manifest().run_id);
        let prepared = Replay::prepare(run, config, clock).await?;
        Ok(Self { prepared, dataset, playing: None })
    }

    /// What it found out.
    pub fn plan(&self) -> WorkerPlan {
        WorkerPlan {
            engine: self.prepared.engine().clone(),
            settings: self.prepared.settings().clone(),
            dataset: self.dataset.clone(),
        }
    }

    /// Sets its share of the agents to work, of the run or of a level with so many agents.
    ///
    /// # Cancel safety
    ///
    /// Does not wait; needs a runtime.
    pub fn start(
        &mut self,
        share: Share,
        level: Option<(u32, u32)>,
        start_at_ns: i64,
    ) -> Result<()> {
        if self.playing.is_some() {
            return Err(Error::Internal("a worker plays one level at a time".to_owned()));
        }
        let (sender, rows) = row_channel();
        let shutdown = Shutdown::new(DRAIN);
        let replay = self.prepared.start_share(share, level, start_at_ns, sender, &shutdown)?;
        let last = WorkerReport::default();
        self.playing = Some(Playing { replay: Some(replay), ending: None, rows, shutdown, last });
        Ok(())
    }

    /// Starts nothing more; what is on its way is answered to its end.
    pub fn start_nothing_more(&self) {
        if let Some(replay) = self.playing.as_ref().and_then(|playing| playing.replay.as_ref()) {
            replay.start_nothing_more();
        }
    }

    /// Cuts off what is on its way.
    pub fn abort(&self) {
        if let Some(playing) = &self.playing {
            playing.shutdown.cancel();
        }
    }

    /// What there is to tell since the last report; the one with `ended` is the last of its play.
    pub async fn report(&mut self) -> Result<WorkerReport> {
        let Some(playing) = &mut self.playing else {
            return Err(Error::Internal("a worker that does not play has no report".to_owned()));
        };
        // Read first: what happens from here on is in the next report.
        let until_ms = self.prepared.clock().run_ms();
        playing.look();
        let outcome = match playing.ending.take_if(|ending| ending.is_finished()) {
            Some(ending) => {
                Some(ending.await.map_err(|error| Error::Internal(error.to_string()))??)
            }
            None => None,
        };
        let mut report = WorkerReport {
            until_ms,
            window: playing.last.window,
            progress: playing.last.progress.clone(),
            ..WorkerReport::default()
        };
        // After the end was seen, so that no row comes after the last report.
        for row in playing.rows.take() {
            match row {
                Row::Requests(row) => report.requests.push(*row),
                Row::Trajectories(row) => report.trajectories.push(*row),
                Row::ClientSamples(row) => report.client_samples.push(*row),
                _ => {}
            }
        }
        if let Some(outcome) = outcome {
            report.window = outcome.settings.window;
            report.progress = outcome.progress;
            report.rows_lost = outcome.rows_lost;
            report.ended = Some(outcome.settings);
            self.playing = None;
        }
        Ok(report)
    }
}

impl Playing {
    /// Reads window and progress; a play that has ended is brought to its close beside the reports,
    /// which make room for its last rows.
    fn look(&mut self) {
        let Some(replay) = &self.replay else { return };
        self.last.progress = replay.progress();
        self.last.window = replay.window();
        if self.last.progress.done
            && let Some(replay) = self.replay.take()
        {
            self.ending = Some(tokio::spawn(replay.wait()));
        }
    }
}
