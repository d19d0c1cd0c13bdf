//! `export_jsonl`: a run in the layout of other tools.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pyo3::prelude::*;

use super::run::PyRun;
use super::runtime;
use crate::error::Result;
use crate::export::Prompts;
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

fn write(run: &Run, out: &Path, prompts: bool, shutdown: &Shutdown) -> Result<Counts> {
    let prompts = if prompts { Prompts::Written } else { Prompts::LeftOut };
    let counts = crate::export::export_jsonl(run, out, prompts, shutdown)?;
    Ok(BTreeMap::from([
        ("sessions", counts.sessions),
        ("turns", counts.turns),
        ("engine_rows", counts.engine_rows),
        ("engine_rows_shared", counts.engine_rows_shared),
        ("engine_rows_unassigned", counts.engine_rows_unassigned),
        ("bytes", counts.bytes),
    ]))
}
