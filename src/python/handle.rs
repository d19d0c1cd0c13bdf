//! `Handle`: the methods that every running thing has. Its subclasses add what they can tell.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::lifecycle::{Life, Outcome};
use super::run::PyRun;
use super::runtime;
use crate::error::Error;

/// A thing that runs in the background: started once, ended once.
#[pyclass(frozen, subclass, name = "Handle", module = "agentbench")]
pub(super) struct PyHandle {
    life: Arc<dyn Life>,
}

impl PyHandle {
    /// The common part of a running thing.
    pub(super) fn new(life: Arc<dyn Life>) -> Self {
        Self { life }
    }
}

/// The run that an end left behind.
async fn opened(end: impl Future<Output = Outcome>) -> Result<Option<PyRun>, Arc<Error>> {
    match end.await? {
        Some(path) => runtime::off_thread(|| PyRun::read(path)).await.map(Some).map_err(Arc::new),
        None => Ok(None),
    }
}

#[pymethods]
impl PyHandle {
    /// Whether it has ended.
    #[getter]
    fn done(&self) -> bool {
        self.life.is_done()
    }

    /// Starts it and returns it.
    fn start(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        runtime::wait(slf.py(), Arc::clone(&slf.get().life).start())?;
        Ok(slf)
    }

    /// Starts it without blocking the event loop and returns it.
    fn start_async<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let (start, this) = (Arc::clone(&slf.get().life).start(), slf.clone().unbind());
        runtime::awaitable(slf.py(), async move { start.await.map(|()| this) })
    }

    /// Asks it to end, waits for that and returns the run it wrote, if it writes one.
    fn stop(&self, py: Python<'_>) -> PyResult<Option<PyRun>> {
        runtime::wait(py, opened(Arc::clone(&self.life).stop()))
    }

    /// `stop` without blocking the event loop.
    fn stop_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        runtime::awaitable(py, opened(Arc::clone(&self.life).stop()))
    }

    /// Waits until it has ended and returns the run it wrote, if it writes one.
    fn wait(&self, py: Python<'_>) -> PyResult<Option<PyRun>> {
        runtime::wait(py, opened(Arc::clone(&self.life).wait()))
    }

    /// `wait` without blocking the event loop.
    fn wait_async<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        runtime::awaitable(py, opened(Arc::clone(&self.life).wait()))
    }

    fn __enter__(slf: Bound<'_, Self>) -> PyResult<Bound<'_, Self>> {
        if slf.get().life.is_started() { Ok(slf) } else { Self::start(slf) }
    }

    #[pyo3(signature = (*error))]
    fn __exit__(&self, py: Python<'_>, error: &Bound<'_, PyTuple>) -> PyResult<()> {
        let _ = error;
        self.stop(py).map(drop)
    }

    fn __aenter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        if !slf.get().life.is_started() {
            return Self::start_async(slf);
        }
        let this = slf.clone().unbind();
        runtime::awaitable(slf.py(), async move { Ok::<_, Error>(this) })
    }

    #[pyo3(signature = (*error))]
    fn __aexit__<'py>(
        &self,
        py: Python<'py>,
        error: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = error;
        let end = Arc::clone(&self.life).stop();
        runtime::awaitable(py, async move { end.await.map(|_| ()) })
    }
}
