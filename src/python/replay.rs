//! `Replay`: a recording that is sent again.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use pyo3::prelude::*;
use tokio_util::sync::CancellationToken;

use super::errors;
use super::handle::PyHandle;
use super::json;
use super::lifecycle::{Lifecycle, Started, done_or_stopped};
use super::run::{PyRun, directory_of};
use super::sending::SendingArguments;
use super::settings::{AUTO, PowerArguments, RecordingArguments, duration};
use crate::error::Result;
use crate::recording::{ReplayRecording, ReplayRecordingConfig};
use crate::replay::{OpenLoop, PacingWords, ReplayConfig, ReplayProgress};

/// The recording to send: open already, or a directory.
#[derive(FromPyObject)]
pub(super) enum Trace<'py> {
    Open(PyRef<'py, PyRun>),
    Directory(PathBuf),
}

impl Trace<'_> {
    /// Its run directory; of what was published, once it is fetched.
    pub(super) fn path(self, py: Python<'_>) -> PyResult<PathBuf> {
        match self {
            Self::Open(run) => Ok(run.path.clone()),
            Self::Directory(path) => directory_of(py, path),
        }
    }
}

/// The recording while it runs, how far it came afterwards.
enum Recording {
    Running(Box<ReplayRecording>),
    Ended(Box<ReplayProgress>),
}

/// A running replay as its handle sees it.
#[derive(Clone)]
struct View(Arc<Mutex<Recording>>);

impl View {
    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> ReplayProgress {
        match &*self.lock() {
            Recording::Running(recording) => recording.progress(),
            Recording::Ended(progress) => (**progress).clone(),
        }
    }

    /// Keeps the progress and closes the recording, the first time.
    async fn finish(&self) -> Result<()> {
        let last = Recording::Ended(Box::new(self.progress()));
        let recording = std::mem::replace(&mut *self.lock(), last);
        match recording {
            Recording::Running(recording) => recording.finish().await.map(drop),
            Recording::Ended(_) => Ok(()),
        }
    }
}

/// A recording, sent again by agents in a closed loop.
#[pyclass(frozen, extends = PyHandle, name = "Replay", module = "agentbench")]
pub(super) struct PyReplay {
    out: PathBuf,
    pub(super) config: ReplayRecordingConfig,
    lifecycle: Arc<Lifecycle<View>>,
}

#[pymethods]
impl PyReplay {
    #[new]
    #[pyo3(signature = (
        trace, *, url, out, agents = None, arrivals = None, time_scale = None,
        max_active = None, seed = None, duration_s = None, trajectories = None, api = "auto",
        model = None, api_key = None, ramp_s = None, on_error = "stop-trajectory",
        max_error_rate_pct = None, max_retries = 0, retry_backoff_s = 0.5,
        retry_backoff_max_s = 60.0, connect_timeout_s = 10.0, first_byte_timeout_s = Some(600.0),
        idle_timeout_s = Some(300.0), request_timeout_s = None, include_utility = false,
        content = "recorded", tokenizer = None, tool_time = "recorded", human_time = "none",
        output_length = "recorded", cache_sharing = "system", salt = None, strict = false,
        metrics_url = Some(AUTO.to_owned()), poll_interval_s = 0.1,
        power = AUTO.to_owned(), gpus = None, engine_pid = None, idle_baseline_s = None, pue = None,
        argv = None, settings = None
    ))]
    #[allow(clippy::too_many_arguments)] // keyword-only on the Python side
    fn new(
        py: Python<'_>,
        trace: Trace<'_>,
        url: String,
        out: PathBuf,
        agents: Option<u32>,
        arrivals: Option<&str>,
        time_scale: Option<f64>,
        max_active: Option<u32>,
        seed: Option<u64>,
        duration_s: Option<f64>,
        trajectories: Option<u64>,
        api: &str,
        model: Option<String>,
        api_key: Option<String>,
        ramp_s: Option<f64>,
        on_error: &str,
        max_error_rate_pct: Option<f64>,
        max_retries: u32,
        retry_backoff_s: f64,
        retry_backoff_max_s: f64,
        connect_timeout_s: f64,
        first_byte_timeout_s: Option<f64>,
        idle_timeout_s: Option<f64>,
        request_timeout_s: Option<f64>,
        include_utility: bool,
        content: &str,
        tokenizer: Option<PathBuf>,
        tool_time: &str,
        human_time: &str,
        output_length: &str,
        cache_sharing: &str,
        salt: Option<String>,
        strict: bool,
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
        let open_loop = OpenLoop::of(PacingWords {
            arrivals,
            time_scale,
            max_active,
            agents,
            ramp: ramp_s.is_some(),
            seed: seed.is_some(),
        })
        .map_err(errors::config)?;
        let sending = SendingArguments {
            url,
            api,
            model,
            api_key,
            ramp_s,
            seed,
            on_error,
            max_error_rate_pct,
            max_retries,
            retry_backoff_s,
            retry_backoff_max_s,
            connect_timeout_s,
            first_byte_timeout_s,
            idle_timeout_s,
            request_timeout_s,
            include_utility,
            content,
            tokenizer,
            tool_time,
            human_time,
            output_length,
            cache_sharing,
            salt,
            strict,
        };
        let replay = ReplayConfig {
            agents: agents.unwrap_or(1),
            open_loop,
            duration: duration_s.map(|seconds| duration("duration_s", seconds)).transpose()?,
            trajectories,
            ..sending.config()?
        };
        let power = PowerArguments { power, gpus, engine_pid, idle_baseline_s, pue };
        let recording =
            RecordingArguments { out, metrics_url, poll_interval_s, power, argv, settings };
        let config = ReplayRecordingConfig {
            recording: recording.config()?,
            trace: trace.path(py)?,
            replay,
        };
        let out = config.recording.out.clone();
        let kept = config.clone();
        let lifecycle = Lifecycle::new("replay", move || start(config.clone()).boxed());
        Ok(PyClassInitializer::from(PyHandle::new(lifecycle.clone())).add_subclass(Self {
            out,
            config: kept,
            lifecycle,
        }))
    }

    /// The run directory.
    #[getter]
    fn out(&self) -> PathBuf {
        self.out.clone()
    }

    /// How far it is.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.lifecycle.handle()?.progress())
    }

    fn __repr__(&self) -> String {
        format!("<agentbench.Replay to {}>", self.out.display())
    }
}

async fn start(config: ReplayRecordingConfig) -> Result<Started<View>> {
    let out = config.recording.out.clone();
    let recording = ReplayRecording::start(config).await?;
    let shutdown = recording.shutdown().clone();
    let handle = View(Arc::new(Mutex::new(Recording::Running(Box::new(recording)))));
    let (view, stop) = (handle.clone(), CancellationToken::new());
    let stopped = stop.clone();
    let ending = async move {
        done_or_stopped(&shutdown, &stopped).await;
        view.finish().await?;
        Ok(Some(out))
    };
    Ok(Started { handle, stop, ending: ending.boxed() })
}
