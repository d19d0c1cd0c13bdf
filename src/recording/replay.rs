//! A replay as one recording: agents, poller, run directory, summary.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use super::{Ground, RecordingConfig, in_background};
use crate::clock::Clock;
use crate::engine::control::Control;
use crate::engine::poll::PollStats;
use crate::error::{Error, Result};
use crate::replay::{
    Replay, ReplayConfig, ReplayHandle, ReplayProgress, ReplaySettings, Summary, summarize_run,
};
use crate::shutdown::Shutdown;
use crate::trace::{EngineInfo, Manifest, Run, RunKind, write_whole};

/// How long what is on its way may go on once a replay is asked to stop: it is cut at once.
const DRAIN: Duration = Duration::from_secs(2);

/// What a replay needs beside a recording.
#[derive(Debug, Clone)]
pub struct ReplayRecordingConfig {
    /// The recording to make.
    pub recording: RecordingConfig,
    /// The run directory to replay.
    pub trace: PathBuf,
    /// How to replay it.
    pub replay: ReplayConfig,
}

/// Agents and a poller that fill one run directory.
#[derive(Debug)]
pub struct ReplayRecording {
    ground: Ground,
    replay: ReplayHandle,
    shutdown: Shutdown,
}

impl ReplayRecording {
    /// Reads the trace, asks the engine, starts writer, poller and agents.
    ///
    /// # Errors
    ///
    /// A trace without anything to send, an engine that is not there, a directory that is not empty:
    /// then nothing is left behind.
    pub async fn start(config: ReplayRecordingConfig) -> Result<Self> {
        let clock = Clock::start();
        let trace = config.trace.clone();
        let run = Arc::new(in_background(move || Run::open(&trace)).await?);
        let control = Control::new(&config.replay.url)?;
        let dataset = format!("{} ({})", config.trace.display(), run.manifest().run_id);
        // The engine is asked and probed before the first poll, so that the polls count the replay's
        // own requests and no others.
        let prepared = Replay::prepare(run, config.replay, clock).await?;
        let mut manifest =
            config.recording.manifest(RunKind::Replay, &clock, prepared.engine().clone());
        manifest.dataset = Some(dataset);
        keep_settings(&mut manifest, prepared.settings())?;
        let ground =
            Ground::lay(&config.recording, manifest, std::slice::from_ref(&control), clock).await?;
        let shutdown = Shutdown::new(DRAIN);
        match prepared.start(ground.writer.sender(), &shutdown) {
            Ok(replay) => Ok(Self { ground, replay, shutdown }),
            Err(error) => {
                ground.clear();
                Err(error)
            }
        }
    }

    /// How far it is.
    pub fn progress(&self) -> ReplayProgress {
        self.ground.seen(self.replay.progress())
    }

    /// How it is run.
    pub fn settings(&self) -> &ReplaySettings {
        self.replay.settings()
    }

    /// The engine as it told before the run.
    pub fn engine(&self) -> &EngineInfo {
        self.replay.engine()
    }

    /// How polling goes; none when nothing is polled.
    pub fn poll_stats(&self) -> Option<PollStats> {
        self.ground.poll_stats().pop()
    }

    /// Cancelling it ends the replay early: what is on its way becomes cancelled rows.
    pub fn shutdown(&self) -> &Shutdown {
        &self.shutdown
    }

    /// Waits for the agents, stops the poller, closes the tables, writes `summary.json`.
    pub async fn finish(self) -> Result<(Manifest, Summary)> {
        let dir = self.ground.writer.dir().to_path_buf();
        let outcome = self.replay.wait().await?;
        let manifest = self
            .ground
            .finish(move |manifest| {
                // The settings were serialised once already, when the run started.
                let _ = keep_settings(manifest, &outcome.settings);
                if outcome.rows_lost > 0 {
                    manifest.counts.insert("rows_lost".to_owned(), outcome.rows_lost);
                }
            })
            .await?;
        let summary = in_background(move || write_summary(&dir)).await?;
        Ok((manifest, summary))
    }
}

pub(super) fn keep_settings(manifest: &mut Manifest, settings: &ReplaySettings) -> Result<()> {
    let value = serde_json::to_value(settings)
        .map_err(|error| Error::Internal(format!("replay settings: {error}")))?;
    manifest.settings.insert("replay".to_owned(), value);
    for note in &settings.notes {
        if !manifest.notes.contains(note) {
            manifest.notes.push(note.clone());
        }
    }
    Ok(())
}

pub(super) fn write_summary(dir: &Path) -> Result<Summary> {
    let summary = summarize_run(&Run::open(dir)?)?;
    let mut text = serde_json::to_string_pretty(&summary)
        .map_err(|error| Error::Internal(format!("summary: {error}")))?;
    text.push('\n');
    write_whole(&dir.join("summary.json"), text.as_bytes())?;
    Ok(summary)
}
