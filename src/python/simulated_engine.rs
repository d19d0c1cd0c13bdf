//! `SimulatedEngine`: the embedded engine.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use tokio_util::sync::CancellationToken;

use super::handle::PyHandle;
use super::lifecycle::{Lifecycle, Started};
use super::{errors, stats};
use crate::error::Result;
use crate::simulator::{Profile, Simulator, SimulatorConfig, SimulatorStats};

/// The engine while it runs, its last figures afterwards.
enum Serving {
    Running(Simulator),
    Ended(SimulatorStats),
}

/// A running engine as its handle sees it.
#[derive(Clone)]
struct View {
    url: String,
    serving: Arc<Mutex<Serving>>,
}

impl View {
    fn lock(&self) -> MutexGuard<'_, Serving> {
        self.serving.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stats(&self) -> SimulatorStats {
        match &*self.lock() {
            Serving::Running(simulator) => simulator.stats(),
            Serving::Ended(stats) => *stats,
        }
    }

    /// Keeps the figures and gives out the engine, the first time.
    fn take(&self) -> Option<Simulator> {
        let last = Serving::Ended(self.stats());
        match std::mem::replace(&mut *self.lock(), last) {
            Serving::Running(simulator) => Some(simulator),
            Serving::Ended(_) => None,
        }
    }
}

/// The embedded engine: a simulation by a cost model, not a measurement of any hardware.
#[pyclass(frozen, extends = PyHandle, name = "SimulatedEngine", module = "agentbench")]
pub(super) struct PySimulatedEngine {
    lifecycle: Arc<Lifecycle<View>>,
}

#[pymethods]
impl PySimulatedEngine {
    #[new]
    #[pyo3(signature = (
        *, host = "127.0.0.1", port = 0, speed = "gpu-8b", model = None, script = None,
        tokenizer = None, seed = 0, kv_blocks = None, max_model_len = None, max_num_seqs = None,
        max_num_batched_tokens = None
    ))]
    // Keyword-only on the Python side, where the names are what they are.
    #[allow(clippy::too_many_arguments, clippy::similar_names)]
    fn new(
        host: &str,
        port: u16,
        speed: &str,
        model: Option<String>,
        script: Option<PathBuf>,
        tokenizer: Option<PathBuf>,
        seed: u64,
        kv_blocks: Option<u32>,
        max_model_len: Option<u32>,
        max_num_seqs: Option<u32>,
        max_num_batched_tokens: Option<u32>,
    ) -> PyResult<PyClassInitializer<Self>> {
        let host: IpAddr = host.parse().map_err(|_| {
            errors::config(format!("host: {host:?} is no address; write it like 127.0.0.1"))
        })?;
        let config = SimulatorConfig::new(SocketAddr::new(host, port), Profile::named(speed)?);
        let config = SimulatorConfig {
            model: model.unwrap_or_else(|| config.model.clone()),
            script,
            tokenizer,
            seed,
            kv_blocks,
            max_model_len,
            max_num_seqs,
            max_num_batched_tokens,
            ..config
        };
        let lifecycle = Lifecycle::new("engine", move || start(config.clone()).boxed());
        Ok(PyClassInitializer::from(PyHandle::new(lifecycle.clone()))
            .add_subclass(Self { lifecycle }))
    }

    /// The base URL.
    #[getter]
    fn url(&self) -> PyResult<String> {
        Ok(self.lifecycle.handle()?.url)
    }

    /// Its figures so far.
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        stats::simulating(py, &self.lifecycle.handle()?.stats())
    }

    fn __repr__(&self) -> String {
        match self.lifecycle.handle() {
            Ok(view) => format!("<agentbench.SimulatedEngine at {}>", view.url),
            Err(_) => "<agentbench.SimulatedEngine, not started>".to_owned(),
        }
    }
}

async fn start(config: SimulatorConfig) -> Result<Started<View>> {
    let simulator = Simulator::start(config).await?;
    let url = simulator.url();
    let handle = View { url, serving: Arc::new(Mutex::new(Serving::Running(simulator))) };
    let (view, stop) = (handle.clone(), CancellationToken::new());
    let stopped = stop.clone();
    let ending = async move {
        stopped.cancelled().await;
        if let Some(simulator) = view.take() {
            simulator.stop().await;
        }
        Ok(None)
    };
    Ok(Started { handle, stop, ending: ending.boxed() })
}
