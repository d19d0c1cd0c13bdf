//! `Poller`: the poller of a metrics page alone, with a run directory of its own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio_util::sync::CancellationToken;

use super::handle::PyHandle;
use super::lifecycle::{Lifecycle, Started};
use super::runtime::off_thread;
use super::settings::{PowerArguments, RecordingArguments};
use super::stats;
use crate::clock::Clock;
use crate::engine::{PollConfig, PollStats, Poller};
use crate::error::Result;
use crate::recording::RecordingConfig;
use crate::trace::{Manifest, RunKind, RunWriter};

/// The poller while it runs, its last figures afterwards.
enum Polling {
    Running(Poller),
    Ended(Box<PollStats>),
}

type View = Arc<Mutex<Polling>>;

fn figures(view: &View) -> PollStats {
    match &*view.lock().unwrap_or_else(PoisonError::into_inner) {
        Polling::Running(poller) => poller.stats(),
        Polling::Ended(stats) => (**stats).clone(),
    }
}

/// A poller of an engine's metrics page alone.
#[pyclass(frozen, extends = PyHandle, name = "Poller", module = "agentbench")]
pub(super) struct PyPoller {
    out: PathBuf,
    lifecycle: Arc<Lifecycle<View>>,
}

#[pymethods]
impl PyPoller {
    #[new]
    #[pyo3(signature = (metrics_url, *, out, interval_s = 0.1, argv = None, settings = None))]
    fn new(
        metrics_url: String,
        out: PathBuf,
        interval_s: f64,
        argv: Option<Vec<String>>,
        settings: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let mut poll = PollConfig::new(metrics_url)?;
        let recording = RecordingArguments {
            out,
            metrics_url: Some(poll.metrics_url.clone()),
            poll_interval_s: interval_s,
            power: PowerArguments::off(),
            argv,
            settings,
        };
        let recording = recording.config()?;
        poll.interval = recording.poll_interval;
        let out = recording.out.clone();
        let make = move || start(recording.clone(), poll.clone()).boxed();
        let lifecycle = Lifecycle::new("poller", make);
        Ok(PyClassInitializer::from(PyHandle::new(lifecycle.clone()))
            .add_subclass(Self { out, lifecycle }))
    }

    /// The run directory.
    #[getter]
    fn out(&self) -> PathBuf {
        self.out.clone()
    }

    /// How polling goes; after the end, the final figures.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::polling(py, &figures(&self.lifecycle.handle()?))
    }

    fn __repr__(&self) -> String {
        format!("<agentbench.Poller to {}>", self.out.display())
    }
}

async fn start(recording: RecordingConfig, poll: PollConfig) -> Result<Started<View>> {
    let (writer, view) = off_thread(move || open(recording, poll)).await?;
    let (stop, handle) = (CancellationToken::new(), Arc::clone(&view));
    let stopped = stop.clone();
    let ending = async move {
        stopped.cancelled().await;
        off_thread(move || close(writer, &view)).await.map(Some)
    };
    Ok(Started { handle, stop, ending: ending.boxed() })
}

fn open(recording: RecordingConfig, poll: PollConfig) -> Result<(RunWriter, View)> {
    let clock = Clock::start();
    let manifest = Manifest {
        argv: recording.argv,
        host: recording.host,
        settings: recording.settings,
        ..Manifest::new(RunKind::Capture, recording.run_id, &clock)
    };
    let writer = RunWriter::create(&recording.out, manifest)?;
    match Poller::start(poll, writer.sender(), clock) {
        Ok(poller) => Ok((writer, Arc::new(Mutex::new(Polling::Running(poller))))),
        Err(error) => {
            writer.discard();
            Err(error)
        }
    }
}

fn close(writer: RunWriter, view: &View) -> Result<PathBuf> {
    let out = writer.dir().to_path_buf();
    let lock = || view.lock().unwrap_or_else(PoisonError::into_inner);
    let last = figures(view);
    let running = std::mem::replace(&mut *lock(), Polling::Ended(Box::new(last)));
    // Not under the lock: what is logged meanwhile needs the interpreter, whose thread may ask for stats.
    if let Polling::Running(poller) = running {
        let last = poller.stop();
        *lock() = Polling::Ended(Box::new(last));
    }
    writer.finish()?;
    Ok(out)
}
