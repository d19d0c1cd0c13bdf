//! `Capacity`: a search for the most agents that hold a service level.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use pyo3::prelude::*;
use tokio_util::sync::CancellationToken;

use super::handle::PyHandle;
use super::lifecycle::{Lifecycle, Started, done_or_stopped};
use super::replay::Trace;
use super::sending::SendingArguments;
use super::settings::{AUTO, PowerArguments, RecordingArguments, duration};
use super::{errors, json};
use crate::error::Result;
use crate::recording::{
    CapacityProgress, CapacityRecording, CapacityRecordingConfig, PRESETS, SearchConfig,
};

/// The recording while it runs, how far it came afterwards.
enum Recording {
    Running(Box<CapacityRecording>),
    Ended(Box<CapacityProgress>),
}

/// A running search as its handle sees it.
#[derive(Clone)]
struct View(Arc<Mutex<Recording>>);

impl View {
    fn lock(&self) -> MutexGuard<'_, Recording> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn progress(&self) -> CapacityProgress {
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

/// A search for the most agents that hold a service level.
#[pyclass(frozen, extends = PyHandle, name = "Capacity", module = "agentbench")]
pub(super) struct PyCapacity {
    out: PathBuf,
    preset: String,
    pub(super) config: CapacityRecordingConfig,
    lifecycle: Arc<Lifecycle<View>>,
}

#[pymethods]
impl PyCapacity {
    #[new]
    #[pyo3(signature = (
        trace, *, url, out, slo = Vec::new(), tier = None, max_agents = 256, resolution = 1,
        preset = "quick", min_trajectories = None, min_trajectories_per_agent = None,
        min_requests_per_agent = None, min_steady_s = None, level_time_s = None,
        api = "auto", model = None, api_key = None, ramp_s = None, seed = None, on_error = "stop-trajectory",
        max_error_rate_pct = None, max_retries = 0, retry_backoff_s = 0.5,
        retry_backoff_max_s = 60.0, connect_timeout_s = 10.0, first_byte_timeout_s = Some(600.0),
        idle_timeout_s = Some(300.0), request_timeout_s = None, include_utility = false,
        content = "recorded", tokenizer = None, tool_time = "recorded", human_time = "none",
        output_length = "recorded", cache_sharing = "system", salt = None, strict = false,
        metrics_url = Some(AUTO.to_owned()), poll_interval_s = 0.1,
        power = AUTO.to_owned(), gpus = None, gpu_count = None, engine_pid = None, idle_baseline_s = None,
        pue = None, argv = None, settings = None
    ))]
    #[allow(clippy::too_many_arguments)] // keyword-only on the Python side
    fn new(
        py: Python<'_>,
        trace: Trace<'_>,
        url: String,
        out: PathBuf,
        slo: Vec<String>,
        tier: Option<String>,
        max_agents: u32,
        resolution: u32,
        preset: &str,
        min_trajectories: Option<u64>,
        min_trajectories_per_agent: Option<u32>,
        min_requests_per_agent: Option<u32>,
        min_steady_s: Option<f64>,
        level_time_s: Option<f64>,
        api: &str,
        model: Option<String>,
        api_key: Option<String>,
        ramp_s: Option<f64>,
        seed: Option<u64>,
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
        gpu_count: Option<u32>,
        engine_pid: Option<u32>,
        idle_baseline_s: Option<f64>,
        pue: Option<f64>,
        argv: Option<Vec<String>>,
        settings: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
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
        let chosen = PRESETS.iter().find(|known| known.name == preset).ok_or_else(|| {
            let known: Vec<&str> = PRESETS.iter().map(|known| known.name).collect();
            errors::config(format!("no preset {preset:?}; one of {}", known.join(", ")))
        })?;
        let mut minimum = chosen.minimum;
        minimum.trajectories = min_trajectories.unwrap_or(minimum.trajectories);
        minimum.trajectories_per_agent =
            min_trajectories_per_agent.unwrap_or(minimum.trajectories_per_agent);
        minimum.requests_per_agent = min_requests_per_agent.unwrap_or(minimum.requests_per_agent);
        if let Some(seconds) = min_steady_s {
            minimum.steady_s = duration("min_steady_s", seconds)?.as_secs_f64();
        }
        let level_time =
            level_time_s.map(|seconds| duration("level_time_s", seconds)).transpose()?;
        let search = SearchConfig {
            slo,
            tier,
            max_agents,
            resolution,
            preset: *chosen,
            minimum,
            level_time: level_time.unwrap_or(chosen.level_time),
            gpu_count,
        };
        let power = PowerArguments { power, gpus, engine_pid, idle_baseline_s, pue };
        let recording =
            RecordingArguments { out, metrics_url, poll_interval_s, power, argv, settings };
        let config = CapacityRecordingConfig {
            recording: recording.config()?,
            trace: trace.path(py)?,
            replay: sending.config()?,
            search,
        };
        let out = config.recording.out.clone();
        let preset = chosen.label(&config.search.preset_changes(&config.replay));
        let kept = config.clone();
        let lifecycle = Lifecycle::new("capacity search", move || start(config.clone()).boxed());
        Ok(PyClassInitializer::from(PyHandle::new(lifecycle.clone())).add_subclass(Self {
            out,
            preset,
            config: kept,
            lifecycle,
        }))
    }

    /// The run directory.
    #[getter]
    fn out(&self) -> PathBuf {
        self.out.clone()
    }

    /// The preset's name, and behind it what was changed in it.
    #[getter]
    fn preset(&self) -> &str {
        &self.preset
    }

    /// How far it is.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, &self.lifecycle.handle()?.progress())
    }

    fn __repr__(&self) -> String {
        format!("<agentbench.Capacity to {}>", self.out.display())
    }
}

async fn start(config: CapacityRecordingConfig) -> Result<Started<View>> {
    let out = config.recording.out.clone();
    let recording = CapacityRecording::start(config).await?;
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
