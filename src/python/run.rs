//! `Run`: an open run directory.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use super::arrow::PyTable;
use super::{json, runtime};
use crate::error::{Error, Result};
use crate::recording::summarize_capture;
use crate::replay::summarize_run;
use crate::trace::record::TurnRow;
use crate::trace::{Run, RunKind, Table, turn_totals};

type TurnTokens = (String, Option<u64>, Option<u64>);
type Turns = HashMap<String, TurnRow>;

/// An open run directory.
#[pyclass(frozen, name = "Run", module = "agentbench")]
pub(super) struct PyRun {
    pub(super) path: PathBuf,
    pub(super) run: Arc<Run>,
    turns: Arc<OnceLock<Turns>>,
}

impl PyRun {
    /// Opens a directory; blocks.
    pub(super) fn read(path: PathBuf) -> Result<Self> {
        let run = Arc::new(Run::open(&path)?);
        Ok(Self { path, run, turns: Arc::new(OnceLock::new()) })
    }

    /// Runs `work` on the turn of that id, on a thread that may block.
    fn with_turn<T: Send + 'static>(
        &self,
        py: Python<'_>,
        request_id: String,
        work: impl FnOnce(&Run, &TurnRow) -> Result<T> + Send + 'static,
    ) -> PyResult<T> {
        let (run, turns, id) = (Arc::clone(&self.run), Arc::clone(&self.turns), request_id.clone());
        let found = runtime::wait_blocking(py, move || {
            let turns = index(&run, &turns)?;
            turns.get(&id).map(|turn| work(&run, turn)).transpose()
        })?;
        found.ok_or_else(|| {
            let place = self.path.display();
            PyKeyError::new_err(format!("{place}: no turn has the request_id {request_id:?}"))
        })
    }
}

/// The run directory that a path stands for. What is published lies elsewhere (`hf://`, `https://`) or has no
/// manifest (a folder of Parquet files, a file): Python fetches it and lays it out as a run directory.
pub(super) fn directory_of(py: Python<'_>, path: PathBuf) -> PyResult<PathBuf> {
    let is_address = ["hf:", "http:", "https:"]
        .iter()
        .any(|scheme| path.to_str().is_some_and(|path| path.starts_with(scheme)) && !path.exists());
    let is_bare = path.is_file() || path.is_dir() && !path.join("manifest.json").exists();
    if !is_address && !is_bare {
        return Ok(path);
    }
    let opening = py.import("agentbench._hub.opening")?;
    opening.call_method1("run_directory", (path.as_os_str(),))?.extract()
}

/// What rebuilding a prompt needs of a turn.
const REBUILDING: [&str; 3] = ["request_id", "unit_hashes", "body_template"];

/// Turns by request id; made once.
fn index<'a>(run: &Run, turns: &'a OnceLock<Turns>) -> Result<&'a Turns> {
    if let Some(turns) = turns.get() {
        return Ok(turns);
    }
    let rows = run.rows_of_columns::<TurnRow>(&REBUILDING)?;
    let rows = rows.map(|row| row.map(|row| (row.request_id.clone(), row)));
    let rows = rows.collect::<Result<Turns>>()?;
    Ok(turns.get_or_init(|| rows))
}

#[pymethods]
impl PyRun {
    /// Opens a run directory; a run that was killed is recovered from its journals.
    #[classmethod]
    fn open(_class: &Bound<'_, PyType>, py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let path = directory_of(py, path)?;
        runtime::wait_blocking(py, || Self::read(path))
    }

    /// Opens a run directory without blocking the event loop.
    #[classmethod]
    fn open_async<'py>(
        _class: &Bound<'py, PyType>,
        py: Python<'py>,
        path: PathBuf,
    ) -> PyResult<Bound<'py, PyAny>> {
        runtime::awaitable_blocking(py, || -> PyResult<Self> {
            let path = Python::attach(|py| directory_of(py, path))?;
            Ok(Self::read(path)?)
        })
    }

    /// The directory.
    #[getter]
    fn path(&self) -> PathBuf {
        self.path.clone()
    }

    /// The manifest as a dict.
    #[getter]
    fn manifest<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        json::to_python(py, self.run.manifest())
    }

    /// The content of `summary.json`; None for a run that has none.
    fn summary<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let path = self.path.join("summary.json");
        let text = runtime::wait_blocking(py, move || match std::fs::read_to_string(&path) {
            Ok(text) => Ok(Some(text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(Error::io(&path, error)),
        })?;
        text.map(|text| py.import("json")?.call_method1("loads", (text,))).transpose()
    }

    /// The summary recomputed from the tables, also of a run that was killed.
    fn summarize<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let run = Arc::clone(&self.run);
        match run.manifest().kind {
            RunKind::Replay | RunKind::Capacity | RunKind::Agent => {
                json::to_python(py, &runtime::wait_blocking(py, move || summarize_run(&run))?)
            }
            _ => json::to_python(py, &runtime::wait_blocking(py, move || summarize_capture(&run))?),
        }
    }

    /// Counts and sums over the captured requests.
    fn totals<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let run = Arc::clone(&self.run);
        json::to_python(py, &runtime::wait_blocking(py, move || turn_totals(&run))?)
    }

    /// One row per captured request.
    fn turns(&self) -> PyTable {
        PyTable::new(&self.run, Table::Turns)
    }

    /// Every distinct unit of a prompt once.
    fn messages(&self) -> PyTable {
        PyTable::new(&self.run, Table::Units)
    }

    /// One row per tool call.
    fn tool_calls(&self) -> PyTable {
        PyTable::new(&self.run, Table::ToolCalls)
    }

    /// One row per polling tick with completions.
    fn engine(&self) -> PyTable {
        PyTable::new(&self.run, Table::EngineMetrics)
    }

    /// Every poll.
    fn engine_samples(&self) -> PyTable {
        PyTable::new(&self.run, Table::EngineSamples)
    }

    /// One row per device and power sample.
    fn power(&self) -> PyTable {
        PyTable::new(&self.run, Table::Power)
    }

    /// One row per request that a replay sent.
    fn requests(&self) -> PyTable {
        PyTable::new(&self.run, Table::Requests)
    }

    /// One row per trajectory that an agent worked through.
    fn trajectories(&self) -> PyTable {
        PyTable::new(&self.run, Table::Trajectories)
    }

    /// One row per number of agents tried.
    fn levels(&self) -> PyTable {
        PyTable::new(&self.run, Table::Levels)
    }

    /// What a replay saw of its own process.
    fn client_samples(&self) -> PyTable {
        PyTable::new(&self.run, Table::ClientSamples)
    }

    /// The whole prompt of a turn as text.
    fn isl_text(&self, py: Python<'_>, request_id: String) -> PyResult<String> {
        self.with_turn(py, request_id, Run::isl_text)
    }

    /// The exact bytes of the request body that the agent sent.
    fn request_body<'py>(
        &self,
        py: Python<'py>,
        request_id: String,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let body = self.with_turn(py, request_id, Run::request_body)?;
        Ok(PyBytes::new(py, &body))
    }

    /// Session and tokens (prompt, output) of each turn, in the order of the requests.
    fn _turn_tokens(&self, py: Python<'_>) -> PyResult<Vec<TurnTokens>> {
        let run = Arc::clone(&self.run);
        runtime::wait_blocking(py, move || {
            let columns = ["session_id", "request_time", "isl", "osl"];
            let mut rows =
                run.rows_of_columns::<TurnRow>(&columns)?.collect::<Result<Vec<TurnRow>>>()?;
            rows.sort_by(|a, b| a.request_time.total_cmp(&b.request_time));
            let tokens = rows.into_iter().map(|row| (row.session_id, row.isl, row.osl));
            Ok::<Vec<TurnTokens>, Error>(tokens.collect())
        })
    }

    fn __repr__(&self) -> String {
        format!("<agentbench.Run {}>", self.path.display())
    }
}
