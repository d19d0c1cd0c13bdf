//! `import_traces`: others' recordings as a run directory, and its progress.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::types::PyDict;

use super::run::PyRun;
use super::{host, runtime};
use crate::clock::Clock;
use crate::error::Result;
use crate::import::format::Format;
use crate::import::{ImportConfig, ImportProgress, import};
use crate::shutdown::Shutdown;

/// How far an import is.
#[pyclass(frozen, name = "ImportProgress", module = "agentbench")]
#[derive(Debug, Default)]
pub(super) struct PyImportProgress {
    counts: Arc<ImportProgress>,
    told: Arc<Mutex<Told>>,
}

/// What an update came to.
#[derive(Debug, Default)]
struct Told {
    refused: Vec<String>,
    nothing_new: bool,
}

#[pymethods]
impl PyImportProgress {
    /// Nothing is done yet.
    #[new]
    fn new() -> Self {
        Self::default()
    }

    /// The counts by name.
    fn read<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counts = PyDict::new(py);
        let ImportProgress { pieces, pieces_done, turns, calls, problems, bytes, bytes_read } =
            &*self.counts;
        let named: [(&str, &AtomicU64); 7] = [
            ("pieces", pieces),
            ("pieces_done", pieces_done),
            ("turns", turns),
            ("tool_calls", calls),
            ("problems", problems),
            ("bytes", bytes),
            ("bytes_read", bytes_read),
        ];
        for (name, count) in named {
            counts.set_item(name, count.load(Ordering::Relaxed))?;
        }
        Ok(counts)
    }

    /// Of an update: sources that cannot be taken in as they are now, a sentence each.
    #[getter]
    fn refused(&self) -> Vec<String> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).refused.clone()
    }

    /// Of an update: there was nothing to take in.
    #[getter]
    fn nothing_new(&self) -> bool {
        self.told.lock().unwrap_or_else(PoisonError::into_inner).nothing_new
    }
}

impl PyImportProgress {
    fn share(&self) -> Self {
        Self { counts: Arc::clone(&self.counts), told: Arc::clone(&self.told) }
    }
}

/// Writes a run directory of others' recordings.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // keywords in Python
#[pyo3(signature = (sources, *, out, format = None, update = false, threads = None, progress = None, argv = None))]
pub(super) fn import_traces(
    py: Python<'_>,
    sources: Vec<PathBuf>,
    out: PathBuf,
    format: Option<&str>,
    update: bool,
    threads: Option<usize>,
    progress: Option<&PyImportProgress>,
    argv: Option<Vec<String>>,
) -> PyResult<PyRun> {
    let config = config(sources, out, format, update, threads, argv)?;
    let progress = progress.map(PyImportProgress::share).unwrap_or_default();
    runtime::wait_cancellable(py, move |shutdown| make(&config, &progress, shutdown))
}

/// `import_traces` without blocking the event loop.
#[pyfunction]
#[allow(clippy::too_many_arguments)] // keywords in Python
#[pyo3(signature = (sources, *, out, format = None, update = false, threads = None, progress = None, argv = None))]
pub(super) fn import_traces_async<'py>(
    py: Python<'py>,
    sources: Vec<PathBuf>,
    out: PathBuf,
    format: Option<&str>,
    update: bool,
    threads: Option<usize>,
    progress: Option<&PyImportProgress>,
    argv: Option<Vec<String>>,
) -> PyResult<Bound<'py, PyAny>> {
    let config = config(sources, out, format, update, threads, argv)?;
    let progress = progress.map(PyImportProgress::share).unwrap_or_default();
    runtime::awaitable_cancellable(py, move |shutdown| make(&config, &progress, shutdown))
}

fn config(
    sources: Vec<PathBuf>,
    out: PathBuf,
    format: Option<&str>,
    update: bool,
    threads: Option<usize>,
    argv: Option<Vec<String>>,
) -> Result<ImportConfig> {
    let host = host::describe();
    Ok(ImportConfig {
        sources,
        out,
        format: format.map(Format::from_name).transpose()?,
        update,
        run_id: format!("import-{}", Clock::start().anchor_ns() / 1_000_000_000),
        threads: threads.unwrap_or(host.cpus as usize).max(1),
        argv: argv.unwrap_or_default(),
        host,
    })
}

fn make(config: &ImportConfig, progress: &PyImportProgress, shutdown: &Shutdown) -> Result<PyRun> {
    let imported = import(config, &progress.counts, shutdown)?;
    *progress.told.lock().unwrap_or_else(PoisonError::into_inner) =
        Told { refused: imported.refused, nothing_new: !imported.is_new };
    PyRun::read(config.out.clone())
}
