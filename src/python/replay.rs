//! `Replay`: a recording that is sent again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt;
use pyo3::prelude::*;

use super::handle::PyHandle;
use super::lifecycle::{Lifecycle, Started};
use super::run::PyRun;
use super::runtime::off_thread;
use super::settings::{RecordingArguments, choice, duration};
use super::json;
use crate::error::Result;
use crate::recording::{RecordingConfig, ReplayRecording, ReplayRecordingConfig};
use crate::replay::ReplayConfig;
use crate::trace::Run;

/// The recording to send: open already, or a directory.
#[derive(FromPyObject)]
enum Trace<'py> {
    Open(PyRef<'py, PyRun>),
    Directory(PathBuf),
}

/// The same, independent of Python.
#[derive(Clone)]
enum Source {
    Open(Arc<Run>),
    Directory(PathBuf),
}

impl From<Trace<'_>> for Source {
    fn from(trace: Trace<'_>) -> Self {
        match trace {
            Trace::Open(run) => Self::Open(Arc::clone(&run.run)),
            Trace::Directory(path) => Self::Directory(path),
        }
    }
}

impl Source {
    async fn open(self) -> Result<Arc<Run>> {
        match self {
            Self::Open(run) => Ok(run),
            Self::Directory(path) => off_thread(move || Run::open(&path)).await.map(Arc::new),
        }
    }
}

/// A recording, sent again by agents in a closed loop.
#[pyclass(frozen, extends = PyHandle, name = "Replay", module = "agentbench")]
pub(super) struct PyReplay {
    out: PathBuf,
    lifecycle: Arc<Lifecycle<ReplayView>>,
}

#[pymethods]
impl PyReplay {
    #[new]
    #[pyo3(signature = (
        trace, *, url, out, agents = 1, duration_s = None, trajectories = None, api = "auto",
        model = None, api_key = None, ramp_s = None, on_error = "stop-trajectory",
        include_utility = false, metrics_url = Some("auto".to_owned()), poll_interval_s = 0.1,
        argv = None, settings = None
    ))]
    #[allow(clippy::too_many_arguments)] // keyword-only on the Python side
    fn new(
        trace: Trace<'_>,
        url: String,
        out: PathBuf,
        agents: u32,
        duration_s: Option<f64>,
        trajectories: Option<u64>,
        api: &str,
        model: Option<String>,
        api_key: Option<String>,
        ramp_s: Option<f64>,
        on_error: &str,
        include_utility: bool,
        metrics_url: Option<String>,
        poll_interval_s: f64,
        argv: Option<Vec<String>>,
        settings: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let replay = ReplayConfig {
            url,
            api_key,
            model,
            agents,
            duration: duration_s.map(|seconds| duration("duration_s", seconds)).transpose()?,
            trajectories,
            ramp: ramp_s.map(|seconds| duration("ramp_s", seconds)).transpose()?,
            on_error: choice("on_error", on_error)?,
            include_utility,
            api: choice("api", api)?,
        };
        let recording = RecordingArguments { out, metrics_url, poll_interval_s, argv, settings };
        let (recording, trace) = (recording.config()?, Source::from(trace));
        let out = recording.out.clone();
        let make =
            move || start(recording.clone(), trace.clone(), replay.clone()).boxed();
        let lifecycle = Lifecycle::new("replay", make);
        Ok(PyClassInitializer::from(PyHandle::new(lifecycle.clone()))
            .add_subclass(Self { out, lifecycle }))
    }
}
