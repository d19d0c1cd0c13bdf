//! Live agents as one recording: requests sent and stamped by the replay's client, recorded as a capture
//! records them, poller, power, run directory, summary.
//!
//! So a run has the tables of both: `requests` and `trajectories` say what was measured, `turn_traces`,
//! `messages` and `tool_calls` what was said, and a replay takes it like any recording. No proxy stands
//! between agent and engine. What agents say and do is their caller's affair.

use std::sync::Arc;
use std::time::Duration;

use super::capture::note_capture;
use super::replay::{keep_settings, write_summary};
use super::{Ground, RecordingConfig, in_background};
use crate::capture::{DirectCapture, DirectEnd, DirectExchange};
use crate::clock::Clock;
use crate::engine::control::Control;
use crate::engine::poll::PollStats;
use crate::error::{Error, Result};
use crate::replay::{
    AgentAnswer, AgentLoad, AgentLoadConfig, AgentRequest, PreparedAgents, ReplayProgress, Summary,
    TaskEnd,
};
use crate::shutdown::Shutdown;
use crate::trace::record::RequestStatus;
use crate::trace::{Manifest, RunKind};

/// How long what is on its way may go on once the run is asked to stop: it is cut at once.
const DRAIN: Duration = Duration::from_secs(2);

/// The client's name in the rows of turns.
const AGENT: &str = "agentbench";

/// What live agents need beside a recording.
#[derive(Debug, Clone)]
pub struct AgentRecordingConfig {
    /// The recording.
    pub recording: RecordingConfig,
    /// The engine, and how it is reached.
    pub load: AgentLoadConfig,
    /// What was worked on: a name or a path.
    pub dataset: String,
}

/// Sends the requests of live agents and records them; cloned freely.
#[derive(Debug, Clone)]
pub struct AgentSender {
    load: Arc<AgentLoad>,
    capture: Arc<DirectCapture>,
    shutdown: Shutdown,
}

/// Live agents and a poller that fill one run directory.
#[derive(Debug)]
pub struct AgentRecording {
    ground: Ground,
    sender: AgentSender,
}

impl AgentSender {
    /// What the requests are made by.
    pub fn load(&self) -> &AgentLoad {
        &self.load
    }

    /// Sends a request. When the caller stops waiting, it is cut off, and its rows say so.
    pub async fn send(&self, request: AgentRequest) -> Result<AgentAnswer> {
        let abort = self.shutdown.token().child_token();
        let given_up = abort.clone().drop_guard();
        let this = self.clone();
        let sending = self.shutdown.tracker().spawn(async move {
            let number = this.capture.next_number();
            let request = AgentRequest { request_id: DirectCapture::request_id(number), ..request };
            let body = request.body.clone();
            let mut answer = this.load.send(request, &abort).await;
            this.capture.record(DirectExchange {
                number,
                api: this.load.api(),
                session: answer.row.session_id.clone(),
                body,
                sent_ns: answer.sent_ns,
                head: answer.wire.head.take(),
                pieces: std::mem::take(&mut answer.wire.pieces),
                end: end_of(&answer),
                ended_ns: answer.ended_ns,
            });
            answer
        });
        let answer = sending.await.map_err(|error| Error::Internal(error.to_string()));
        given_up.disarm();
        answer
    }

    /// A task has ended: its row is written whether or not the caller waits for that.
    pub async fn task_ended(&self, end: TaskEnd) -> Result<()> {
        let load = Arc::clone(&self.load);
        let writing = self.shutdown.tracker().spawn(async move { load.task_ended(end).await });
        writing.await.map_err(|error| Error::Internal(error.to_string()))
    }
}

/// How the exchange ended as the wire tells it; what a whole body says is the observer's to read.
fn end_of(answer: &AgentAnswer) -> DirectEnd {
    let error = answer.row.error.clone().unwrap_or_default();
    let refused = answer.row.http_status.is_some_and(|status| status >= 400);
    match answer.row.status {
        RequestStatus::Cancelled => DirectEnd::GivenUp,
        // An error event and a stream without its end came whole.
        RequestStatus::Failed if refused || answer.reply.error.is_some() => DirectEnd::Whole,
        RequestStatus::Failed => DirectEnd::Broken(error),
        RequestStatus::Ok => DirectEnd::Whole,
    }
}

impl AgentRecording {
    /// Asks the engine, starts writer, poller and observer.
    ///
    /// # Errors
    ///
    /// An engine that is not there or knows no tools' API, a directory that is not empty: then nothing is
    /// left behind.
    pub async fn start(config: AgentRecordingConfig) -> Result<Self> {
        let clock = Clock::start();
        let control = Control::new(&config.load.url)?;
        // Asked before the first poll, so that the polls count the agents' requests and no others.
        let prepared = PreparedAgents::ask(config.load, clock).await?;
        let mut manifest =
            config.recording.manifest(RunKind::Agent, &clock, prepared.engine().clone());
        manifest.dataset = Some(config.dataset);
        keep_settings(&mut manifest, prepared.settings())?;
        let ground =
            Ground::lay(&config.recording, manifest, std::slice::from_ref(&control), clock).await?;
        let rows = ground.writer.sender();
        let run_id = config.recording.run_id.clone();
        let started = prepared.start(rows.clone()).and_then(|load| {
            let capture = DirectCapture::start(control.url(), AGENT, run_id, rows)?;
            Ok((Arc::new(load), Arc::new(capture)))
        });
        match started {
            Ok((load, capture)) => {
                let sender = AgentSender { load, capture, shutdown: Shutdown::new(DRAIN) };
                Ok(Self { ground, sender })
            }
            Err(error) => {
                ground.clear();
                Err(error)
            }
        }
    }

    /// What sends the requests.
    pub fn sender(&self) -> &AgentSender {
        &self.sender
    }

    /// How far it is.
    pub fn progress(&self) -> ReplayProgress {
        self.ground.seen(self.sender.load.progress())
    }

    /// How polling goes; none when nothing is polled.
    pub fn poll_stats(&self) -> Option<PollStats> {
        self.ground.poll_stats().pop()
    }

    /// Cuts off what is on its way, stops the poller, closes the tables, writes `summary.json`.
    pub async fn finish(self) -> Result<(Manifest, Summary)> {
        let Self { ground, sender } = self;
        let AgentSender { load, capture, shutdown } = sender;
        let dir = ground.writer.dir().to_path_buf();
        shutdown.cancel();
        shutdown.tracker().close();
        shutdown.tracker().wait().await;
        let (settings, rows_lost) = load.finish().await?;
        let stats = capture.stop().await;
        let manifest = ground
            .finish(move |manifest| {
                // The settings were serialised once already, when the run started.
                let _ = keep_settings(manifest, &settings);
                note_capture(manifest, &stats);
                if rows_lost > 0 {
                    manifest.counts.insert("rows_lost".to_owned(), rows_lost);
                }
            })
            .await?;
        let summary = in_background(move || write_summary(&dir)).await?;
        Ok((manifest, summary))
    }
}
