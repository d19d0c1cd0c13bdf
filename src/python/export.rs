//! `export_run` and `export_jsonl`: a run in the formats of other tools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;

use super::run::PyRun;
use super::{json, runtime};
use crate::error::Result;
use crate::export::{Format, Prompts, export};
use crate::shutdown::Shutdown;
use crate::trace::Run;

type Counts = BTreeMap<&'static str, u64>;

/// Writes a run as JSON lines.
#[pyfunction]
#[pyo3(signature = (run, *, out, prompts = true))]
pub(super) fn export_jsonl(
    py: Python<'_>,
    run: &PyRun,
    out: PathBuf,
    prompts: bool,
) -> PyResult<Counts> {
    let run = Arc::clone(&run.run);
    runtime::wait_cancellable(py, move |shutdown| write(&run, &out, prompts, shutdown))
}

/// `export_jsonl` without blocking the event loop.
#[pyfunction]
#[pyo3(signature = (run, *, out, prompts = true))]
pub(super) fn export_jsonl_async<'py>(
    py: Python<'py>,
    run: &PyRun,
    out: PathBuf,
    prompts: bool,
) -> PyResult<Bound<'py, PyAny>> {
    let run = Arc::clone(&run.run);
    runtime::awaitable_cancellable(py, move |shutdown| write(&run, &out, prompts, shutdown))
}

/// Writes a run in one of the core's formats; the Python face adds those that libraries write.
#[pyfunction]
#[pyo3(signature = (run, *, format, out))]
pub(super) fn export_run<'py>(
    py: Python<'py>,
    run: &PyRun,
    format: &str,
    out: PathBuf,
) -> PyResult<Bound<'py, PyAny>> {
    let (run, format) = (Arc::clone(&run.run), Format::from_name(format)?);
    let exported =
        runtime::wait_cancellable(py, move |shutdown| export(&run, format, &out, shutdown))?;
    json::to_python(py, &exported)
}

fn write(run: &Run, out: &Path, prompts: bool, shutdown: &Shutdown) -> Result<Counts> {
    let prompts = if prompts { Prompts::Written } else { Prompts::LeftOut };
    let counts = crate::export::export_jsonl(run, out, prompts, shutdown)?;
    Ok(counts.named())
}
