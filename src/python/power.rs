//! `PowerSampler`: power of this machine's devices alone, with a run directory of its own.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::FutureExt;
use pyo3::prelude::*;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use super::arrow::PyTable;
use super::handle::PyHandle;
use super::lifecycle::{Lifecycle, Started};
use super::runtime::{self, off_thread};
use super::settings::{AUTO, PowerArguments, RecordingArguments, duration};
use super::{errors, json};
use crate::error::{Error, Result};
use crate::power::{PowerSettings, PowerStats, PowerWatch};
use crate::recording::{PowerRecording, RecordingConfig, energy_between};
use crate::replay::power_window::WindowPower;
use crate::trace::{Run, Table};

/// The sampler while it runs, its last figures afterwards; what it kept in both cases.
struct Sampled {
    recording: Option<PowerRecording>,
    last: PowerStats,
    watch: PowerWatch,
}

type View = Arc<Mutex<Sampled>>;

/// How sampling goes, and of what.
#[derive(Serialize)]
struct Figures<'a> {
    #[serde(flatten)]
    stats: &'a PowerStats,
    #[serde(flatten)]
    settings: &'a PowerSettings,
}

/// Energy with the word whether it may be believed.
#[derive(Serialize)]
struct Energy {
    valid: bool,
    #[serde(flatten)]
    power: WindowPower,
}

/// A sampler of the power of this machine's devices alone.
#[pyclass(frozen, extends = PyHandle, name = "PowerSampler", module = "agentbench")]
pub(super) struct PyPowerSampler {
    out: PathBuf,
    lifecycle: Arc<Lifecycle<View>>,
}

#[pymethods]
impl PyPowerSampler {
    #[new]
    #[pyo3(signature = (
        *, out, power = AUTO.to_owned(), gpus = None, engine_pid = None, idle_baseline_s = None, pue = None,
        interval_s = 0.1, argv = None, settings = None
    ))]
    #[allow(clippy::too_many_arguments)] // keyword-only on the Python side
    fn new(
        out: PathBuf,
        power: String,
        gpus: Option<Vec<String>>,
        engine_pid: Option<u32>,
        idle_baseline_s: Option<f64>,
        pue: Option<f64>,
        interval_s: f64,
        argv: Option<Vec<String>>,
        settings: Option<Bound<'_, PyAny>>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let interval = duration("interval_s", interval_s)?;
        let power = PowerArguments { power, gpus, engine_pid, idle_baseline_s, pue };
        let recording = RecordingArguments {
            out,
            metrics_url: None,
            // Nothing is polled.
            poll_interval_s: interval_s,
            power,
            argv,
            settings,
        };
        let mut recording = recording.config()?;
        recording.power.interval = interval;
        recording.power.validate()?;
        let out = recording.out.clone();
        let make = move || start(recording.clone()).boxed();
        let lifecycle = Lifecycle::new("power sampler", make);
        Ok(PyClassInitializer::from(PyHandle::new(lifecycle.clone()))
            .add_subclass(Self { out, lifecycle }))
    }

    /// The run directory.
    #[getter]
    fn out(&self) -> PathBuf {
        self.out.clone()
    }

    /// How sampling goes; after the end, the final figures.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let view = self.lifecycle.handle()?;
        let sampled = view.lock().unwrap_or_else(PoisonError::into_inner);
        let stats =
            sampled.recording.as_ref().map_or_else(|| sampled.last.clone(), PowerRecording::stats);
        json::to_python(py, &Figures { stats: &stats, settings: sampled.watch.settings() })
    }

    /// The samples so far, one row a device and sample; while it runs, those that have reached the disk.
    fn samples(&self, py: Python<'_>) -> PyResult<PyTable> {
        drop(self.lifecycle.handle()?);
        let out = self.out.clone();
        let run = runtime::wait_blocking(py, move || Ok::<_, Error>(Arc::new(Run::open(&out)?)))?;
        Ok(PyTable::new(&run, Table::Power))
    }

    /// Energy and mean power between two times, seconds since the Unix epoch.
    fn energy<'py>(&self, py: Python<'py>, start: f64, end: f64) -> PyResult<Bound<'py, PyAny>> {
        if !(start.is_finite() && end.is_finite() && start < end) {
            return Err(errors::config(format!(
                "energy: {start} to {end} is no span of time; give start before end, in seconds since \
                 the Unix epoch"
            )));
        }
        let view = self.lifecycle.handle()?;
        let watch = view.lock().unwrap_or_else(PoisonError::into_inner).watch.clone();
        let power = py.detach(|| energy_between(&watch, start, end));
        json::to_python(py, &Energy { valid: power.energy_j.is_some(), power })
    }

    fn __repr__(&self) -> String {
        format!("<agentbench.PowerSampler to {}>", self.out.display())
    }
}

async fn start(recording: RecordingConfig) -> Result<Started<View>> {
    let view = off_thread(move || open(recording)).await?;
    let (stop, handle) = (CancellationToken::new(), Arc::clone(&view));
    let stopped = stop.clone();
    let ending = async move {
        stopped.cancelled().await;
        off_thread(move || close(&view)).await
    };
    Ok(Started { handle, stop, ending: ending.boxed() })
}

fn open(recording: RecordingConfig) -> Result<View> {
    let recording = PowerRecording::start(recording)?;
    let (watch, last) = (recording.watch(), recording.stats());
    Ok(Arc::new(Mutex::new(Sampled { recording: Some(recording), last, watch })))
}

fn close(view: &View) -> Result<Option<PathBuf>> {
    let lock = || view.lock().unwrap_or_else(PoisonError::into_inner);
    let mut sampled = lock();
    let Some(recording) = sampled.recording.take() else { return Ok(None) };
    sampled.last = recording.stats();
    drop(sampled);
    // Not under the lock: what is logged meanwhile needs the interpreter, whose thread may ask for stats.
    let (out, last) = recording.finish()?;
    lock().last = last;
    Ok(Some(out))
}
