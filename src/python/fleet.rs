//! `Worker` and `Fleet`: the two ends of a run that several processes make together. Both take their
//! settings from a `Replay` or `Capacity` that is not started; reports pass between them as bytes.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Mutex;

use super::capacity::PyCapacity;
use super::replay::PyReplay;
use super::run::PyRun;
use super::{json, runtime};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::recording::{CapacityProgress, Fleet, FleetConfig, Worker, WorkerPlan, WorkerReport};
use crate::replay::share::Share;
use crate::replay::{ReplayConfig, WorkerSetting};

/// A handle that was not started, as the bearer of its settings.
#[derive(FromPyObject)]
enum Wanted<'py> {
    Replay(PyRef<'py, PyReplay>),
    Capacity(PyRef<'py, PyCapacity>),
}

impl Wanted<'_> {
    fn replay(&self) -> (PathBuf, ReplayConfig) {
        match self {
            Self::Replay(handle) => (handle.config.trace.clone(), handle.config.replay.clone()),
            Self::Capacity(handle) => (handle.config.trace.clone(), handle.config.replay.clone()),
        }
    }

    fn fleet(&self) -> FleetConfig {
        let (trace, replay) = self.replay();
        let (recording, search) = match self {
            Self::Replay(handle) => (handle.config.recording.clone(), None),
            Self::Capacity(handle) => {
                (handle.config.recording.clone(), Some(handle.config.search.clone()))
            }
        };
        FleetConfig { recording, trace, replay, search }
    }
}

/// One worker's end.
#[pyclass(frozen, name = "Worker", module = "agentbench._core")]
pub(super) struct PyWorker {
    trace: PathBuf,
    replay: ReplayConfig,
    clock: Clock,
    worker: Arc<Mutex<Option<Worker>>>,
}

#[pymethods]
impl PyWorker {
    #[new]
    fn new(handle: Wanted<'_>) -> Self {
        let (trace, replay) = handle.replay();
        Self { trace, replay, clock: Clock::start(), worker: Arc::default() }
    }

    /// This process's clock.
    fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// Reads the trace and asks the engine; the plan, as bytes.
    fn prepare<'py>(
        &self,
        py: Python<'py>,
        anchor_ns: i64,
        ahead_ns: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let (trace, replay, own) = (self.trace.clone(), self.replay.clone(), self.clock);
        let worker = Arc::clone(&self.worker);
        let plan = runtime::wait(py, async move {
            let clock = Clock::aligned(anchor_ns, own.now_ns() - ahead_ns);
            let prepared = Worker::prepare(trace, replay, clock).await?;
            let plan = pack(&prepared.plan())?;
            *worker.lock().await = Some(prepared);
            Ok::<_, Error>(plan)
        })?;
        Ok(PyBytes::new(py, &plan))
    }

    /// Sets its share of the agents to work at an instant of the driver's clock.
    #[pyo3(signature = (index, of, *, agents, level, start_at_ns))]
    fn start(
        &self,
        py: Python<'_>,
        index: u32,
        of: u32,
        agents: u32,
        level: Option<u32>,
        start_at_ns: i64,
    ) -> PyResult<()> {
        let level = level.map(|level| (level, agents));
        with(py, &self.worker, move |worker| worker.start(Share { index, of }, level, start_at_ns))
    }

    /// What there is to tell since the last report, as bytes.
    fn report<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let worker = Arc::clone(&self.worker);
        let report = runtime::wait(py, async move {
            let mut worker = worker.lock().await;
            let worker = worker.as_mut().ok_or_else(not_there)?;
            pack(&worker.report().await?)
        })?;
        Ok(PyBytes::new(py, &report))
    }

    /// Starts nothing more.
    fn start_nothing_more(&self, py: Python<'_>) -> PyResult<()> {
        with(py, &self.worker, |worker| {
            worker.start_nothing_more();
            Ok(())
        })
    }

    /// Cuts off what is on its way.
    fn abort(&self, py: Python<'_>) -> PyResult<()> {
        with(py, &self.worker, |worker| {
            worker.abort();
            Ok(())
        })
    }
}

/// The driver's end.
#[pyclass(frozen, name = "Fleet", module = "agentbench._core")]
pub(super) struct PyFleet {
    config: FleetConfig,
    clock: Clock,
    fleet: Arc<Mutex<Option<Fleet>>>,
    /// How far it came, once it is over.
    last: Arc<OnceLock<CapacityProgress>>,
}

#[pymethods]
impl PyFleet {
    #[new]
    fn new(handle: Wanted<'_>) -> Self {
        Self {
            config: handle.fleet(),
            clock: Clock::start(),
            fleet: Arc::default(),
            last: Arc::default(),
        }
    }

    /// The run clock's anchor.
    #[getter]
    fn anchor_ns(&self) -> i64 {
        self.clock.anchor_ns()
    }

    /// The run's time.
    fn now_ns(&self) -> i64 {
        self.clock.now_ns()
    }

    /// Makes the run directory from a worker's plan; starts polling and power sampling.
    fn open(&self, py: Python<'_>, plan: &[u8], workers: &Bound<'_, PyAny>) -> PyResult<()> {
        let plan: WorkerPlan = unpack(plan)?;
        let workers: Vec<WorkerSetting> = json::from_python(workers)?;
        let (config, clock, fleet) = (self.config.clone(), self.clock, Arc::clone(&self.fleet));
        runtime::wait(py, async move {
            *fleet.lock().await = Some(Fleet::start(config, plan, workers, clock).await?);
            Ok::<_, Error>(())
        })
    }

    /// What the workers are to play next; None when the run is over.
    fn next_step<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let fleet = Arc::clone(&self.fleet);
        let step = runtime::wait(py, async move {
            let mut fleet = fleet.lock().await;
            fleet.as_mut().ok_or_else(not_there)?.next_step().await
        })?;
        json::to_python(py, &step)
    }

    /// Takes a worker's report; True when it was the last of the step.
    fn take(&self, py: Python<'_>, worker: u32, report: &[u8]) -> PyResult<bool> {
        let report: Vec<u8> = report.to_vec();
        with(py, &self.fleet, move |fleet| {
            let report: WorkerReport = unpack(&report)?;
            let last = report.ended.is_some();
            fleet.take(worker, report)?;
            Ok(last)
        })
    }

    /// A worker is gone.
    fn lose(&self, py: Python<'_>, worker: u32, reason: String) -> PyResult<()> {
        with(py, &self.fleet, move |fleet| fleet.lose(worker, &reason))
    }

    /// How the step goes.
    fn state<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let state = with(py, &self.fleet, |fleet| Ok(fleet.state()))?;
        json::to_python(py, &state)
    }

    /// Nothing more is begun after this step.
    fn interrupt(&self, py: Python<'_>) -> PyResult<()> {
        with(py, &self.fleet, |fleet| {
            fleet.interrupt();
            Ok(())
        })
    }

    /// Closes the step that has ended.
    fn end_step(&self, py: Python<'_>) -> PyResult<()> {
        let fleet = Arc::clone(&self.fleet);
        runtime::wait(py, async move {
            let mut fleet = fleet.lock().await;
            fleet.as_mut().ok_or_else(not_there)?.end_step().await
        })
    }

    /// How far the run is.
    fn progress<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let (fleet, last) = (Arc::clone(&self.fleet), Arc::clone(&self.last));
        let progress = runtime::wait(py, async move {
            let running = fleet.lock().await.as_ref().map(Fleet::progress);
            running.or_else(|| last.get().cloned()).ok_or_else(not_there)
        })?;
        json::to_python(py, &progress)
    }

    /// Closes the run directory and opens it.
    fn finish(&self, py: Python<'_>) -> PyResult<PyRun> {
        let (fleet, out) = (Arc::clone(&self.fleet), self.config.recording.out.clone());
        let last = Arc::clone(&self.last);
        runtime::wait(py, async move {
            let fleet = {
                let mut fleet = fleet.lock().await;
                let fleet = fleet.take().ok_or_else(not_there)?;
                let _ = last.set(CapacityProgress { done: true, ..fleet.progress() });
                fleet
            };
            fleet.finish().await?;
            runtime::off_thread(move || PyRun::read(out)).await
        })
    }
}

/// Work on one of the ends, outside the interpreter, on a thread that may block.
fn with<E: Send + 'static, T: Send + 'static>(
    py: Python<'_>,
    end: &Arc<Mutex<Option<E>>>,
    work: impl FnOnce(&mut E) -> Result<T> + Send + 'static,
) -> PyResult<T> {
    let end = Arc::clone(end);
    runtime::wait_blocking(py, move || {
        let mut end = end.blocking_lock();
        work(end.as_mut().ok_or_else(not_there)?)
    })
}

fn pack(value: &impl Serialize) -> Result<Vec<u8>> {
    serde_json::to_vec(value).map_err(|error| Error::Internal(error.to_string()))
}

fn unpack<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    serde_json::from_slice(bytes).map_err(|error| Error::Internal(error.to_string()))
}

fn not_there() -> Error {
    Error::Internal("prepare or open comes first".to_owned())
}
