//! `AgentRun`: a run of live agents, whose requests Python makes and this sends, measures and records.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use pyo3::prelude::*;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::handle::PyHandle;
use super::lifecycle::{Lifecycle, Started};
use super::settings::{AUTO, PowerArguments, RecordingArguments, choice, duration};
use super::{errors, json, runtime};
use crate::api::ReplyBlock;
use crate::error::Result;
use crate::recording::{AgentRecording, AgentRecordingConfig, AgentSender};
use crate::replay::{AgentAnswer, AgentLoadConfig, AgentRequest, ReplayProgress, Timeouts};
use crate::trace::record::RequestStatus;

/// A run that goes on; what it sends with is kept beside it for those who ask after its end.
#[derive(Clone)]
struct View {
    sender: AgentSender,
    recording: Arc<Mutex<Option<Box<AgentRecording>>>>,
}

impl View {
    fn lock(&self) -> MutexGuard<'_, Option<Box<AgentRecording>>> {
        self.recording.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How far it is; once it has ended, without what was seen of engine and power.
    fn progress(&self) -> ReplayProgress {
        let running = self.lock().as_ref().map(|recording| recording.progress());
        running.unwrap_or_else(|| self.sender.load().progress())
    }

    /// Closes the recording, the first time.
    async fn finish(&self) -> Result<()> {
        let recording = self.lock().take();
        match recording {
            Some(recording) => recording.finish().await.map(drop),
            None => Ok(()),
        }
    }
}

/// What Python gets of an answer.
#[derive(Serialize)]
struct Answer {
    status: RequestStatus,
    error: Option<String>,
    http_status: Option<u16>,
    stop_reason: Option<String>,
    finish_reason: Option<String>,
    blocks: Vec<ReplyBlock>,
    items: Vec<String>,
    ttft_ms: Option<f64>,
    e2e_ms: Option<f64>,
    prompt_tokens: Option<u64>,
    cached_tokens: Option<u64>,
    completion_tokens: Option<u64>,
}

impl From<AgentAnswer> for Answer {
    fn from(AgentAnswer { row, reply, .. }: AgentAnswer) -> Self {
        Self {
            status: row.status,
            error: row.error,
            http_status: row.http_status,
            stop_reason: row.stop_reason,
            finish_reason: row.finish_reason,
            blocks: reply.blocks,
            items: reply.items,
            ttft_ms: row.ttft_ms,
            e2e_ms: row.e2e_ms,
            prompt_tokens: row.prompt_tokens,
            cached_tokens: row.cached_tokens,
            completion_tokens: row.completion_tokens,
        }
    }
}

/// Live agents and a poller that fill one run directory.
#[pyclass(frozen, extends = PyHandle, name = "AgentRun", module = "agentbench._core")]
pub(super) struct PyAgentRun {
    out: PathBuf,
    lifecycle: Arc<Lifecycle<View>>,
}

#[pymethods]
impl PyAgentRun {
    #[new]
    #[pyo3(signature = (
        *, url, out, agents, tasks, dataset, api = "auto", model = None, api_key = None,
        connect_timeout_s = 10.0, first_byte_timeout_s = Some(600.0), idle_timeout_s = Some(300.0),
        request_timeout_s = None, metrics_url = Some(AUTO.to_owned()), poll_interval_s = 0.1,
        power = AUTO.to_owned(), gpus = None, engine_pid = None, idle_baseline_s = None, pue = None,
        argv = None, settings = None
    ))]
    #[allow(clippy::too_many_arguments)] // keyword-only on the Python side
    fn new(
        url: String,
        out: PathBuf,
        agents: u32,
        tasks: u64,
        dataset: String,
        api: &str,
        model: Option<String>,
        api_key: Option<String>,
        connect_timeout_s: f64,
        first_byte_timeout_s: Option<f64>,
        idle_timeout_s: Option<f64>,
        request_timeout_s: Option<f64>,
        metrics_url: Option<String>,
        poll_interval_s: f64,
        power: String,
        gpus: Option<Vec<String>>,
        engine_pid: Option<u32>,
        idle_baseline_s: Option<f64>,
        pue: Option<f64>,
        argv: Option<Vec<String>>,
        settings: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        if agents == 0 || tasks == 0 {
            return Err(errors::config("live agents: give at least one agent and one task"));
        }
        let maybe =
            |name, seconds: Option<f64>| seconds.map(|seconds| duration(name, seconds)).transpose();
        let timeouts = Timeouts {
            connect: duration("connect_timeout_s", connect_timeout_s)?,
            first_byte: maybe("first_byte_timeout_s", first_byte_timeout_s)?,
            idle: maybe("idle_timeout_s", idle_timeout_s)?,
            request: maybe("request_timeout_s", request_timeout_s)?,
        };
        let load = AgentLoadConfig {
            url,
            api_key,
            model,
            api: choice("api", api)?,
            timeouts,
            agents,
            tasks,
        };
        let power = PowerArguments { power, gpus, engine_pid, idle_baseline_s, pue };
        let recording =
            RecordingArguments { out, metrics_url, poll_interval_s, power, argv, settings };
        let config = AgentRecordingConfig { recording: recording.config()?, load, dataset };
        let out = config.recording.out.clone();
        let lifecycle = Lifecycle::new("run", move || start(config.clone()).boxed());
        Ok(PyClassInitializer::from(PyHandle::new(lifecycle.clone()))
            .add_subclass(Self { out, lifecycle }))
    }

    /// The run directory.
    #[getter]
    fn out(&self) -> PathBuf {
        self.out.clone()
    }

    /// The API that requests are to speak.
    #[getter]
    fn api(&self) -> PyResult<&'static str> {
        Ok(self.lifecycle.handle()?.sender.load().api().as_str())
    }

    /// The model that they are to name.
    #[getter]
    fn model(&self) -> PyResult<String> {
        Ok(self.lifecycle.handle()?.sender.load().model().to_owned())
    }

    /// Whether chunks tell the tokens so far where a Chat request asks for it.
    #[getter]
    fn continuous_usage(&self) -> PyResult<bool> {
        Ok(self.lifecycle.handle()?.sender.load().continuous_usage())
    }

    /// How far it is.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.lifecycle.handle()?.progress())
    }

    /// Sends a request, waits for its answer and records both.
    #[pyo3(signature = (
        body, *, trajectory_id, agent_id, invocation, turn, ready_for_s = 0.0, tool_time_ms = None
    ))]
    #[allow(clippy::too_many_arguments)] // keyword-only on the Python side
    fn send_async<'py>(
        &self,
        py: Python<'py>,
        body: &[u8],
        trajectory_id: String,
        agent_id: u32,
        invocation: u32,
        turn: u32,
        ready_for_s: f64,
        tool_time_ms: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let sender = self.lifecycle.handle()?.sender;
        let request = AgentRequest {
            trajectory_id,
            agent_id,
            invocation,
            turn,
            request_id: String::new(),
            body: Bytes::copy_from_slice(body),
            ready_for: Duration::try_from_secs_f64(ready_for_s).unwrap_or_default(),
            tool_time_ms,
        };
        json::awaitable(py, async move { sender.send(request).await.map(Answer::from) })
    }

    /// An agent has taken up a task.
    fn task_started(&self, trajectory_id: &str, agent_id: u32) -> PyResult<()> {
        self.lifecycle.handle()?.sender.load().task_started(trajectory_id, agent_id);
        Ok(())
    }

    /// A task has ended, its check included: writes its row.
    fn task_ended_async<'py>(
        &self,
        py: Python<'py>,
        end: Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (sender, end) = (self.lifecycle.handle()?.sender, json::from_python(&end)?);
        runtime::awaitable(py, async move { sender.task_ended(end).await })
    }

    /// An agent finds no task that is left.
    fn nothing_left(&self, agent_id: u32) -> PyResult<()> {
        self.lifecycle.handle()?.sender.load().nothing_left(agent_id);
        Ok(())
    }

    /// Every task was worked through: what ends the run is not somebody who told it to stop.
    fn all_done(&self) -> PyResult<()> {
        self.lifecycle.handle()?.sender.load().all_done();
        Ok(())
    }

    fn __repr__(&self) -> String {
        format!("<agentbench AgentRun to {}>", self.out.display())
    }
}

async fn start(config: AgentRecordingConfig) -> Result<Started<View>> {
    let out = config.recording.out.clone();
    let recording = AgentRecording::start(config).await?;
    let sender = recording.sender().clone();
    let handle = View { sender, recording: Arc::new(Mutex::new(Some(Box::new(recording)))) };
    let (view, stop) = (handle.clone(), CancellationToken::new());
    let stopped = stop.clone();
    let ending = async move {
        stopped.cancelled().await;
        view.finish().await?;
        Ok(Some(out))
    };
    Ok(Started { handle, stop, ending: ending.boxed() })
}
