//! `synthesize` and `synthesize_rounds`: made-up sessions, as a run and in another project's rows.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use pyo3::prelude::*;

use super::run::PyRun;
use super::{host, runtime};
use crate::error::Result;
use crate::shutdown::Shutdown;
use crate::synthesize::round_rows::{RoundConfig, write_round_rows};
use crate::synthesize::{DEFAULT_START_NS, SynthesizeConfig};

/// Makes up a run directory after published statistics.
#[pyfunction]
#[pyo3(signature = (
    out, *, sessions = 8, profile = "tracelab", seed = 0, max_turns = None, argv = None
))]
pub(super) fn synthesize(
    py: Python<'_>,
    out: PathBuf,
    sessions: u32,
    profile: &str,
    seed: u64,
    max_turns: Option<u32>,
    argv: Option<Vec<String>>,
) -> PyResult<PyRun> {
    let config = config(out, sessions, profile, seed, max_turns, argv);
    runtime::wait_cancellable(py, move |shutdown| make(&config, shutdown))
}

/// `synthesize` without blocking the event loop.
#[pyfunction]
#[pyo3(signature = (
    out, *, sessions = 8, profile = "tracelab", seed = 0, max_turns = None, argv = None
))]
pub(super) fn synthesize_async<'py>(
    py: Python<'py>,
    out: PathBuf,
    sessions: u32,
    profile: &str,
    seed: u64,
    max_turns: Option<u32>,
    argv: Option<Vec<String>>,
) -> PyResult<Bound<'py, PyAny>> {
    let config = config(out, sessions, profile, seed, max_turns, argv);
    runtime::awaitable_cancellable(py, move |shutdown| make(&config, shutdown))
}

/// Writes made-up rounds in `TraceLab`'s row format.
#[pyfunction]
#[pyo3(signature = (out, *, rounds, profile = "tracelab", seed = 0))]
pub(super) fn synthesize_rounds(
    py: Python<'_>,
    out: PathBuf,
    rounds: u64,
    profile: &str,
    seed: u64,
) -> PyResult<Counts> {
    let profile = profile.to_owned();
    runtime::wait_cancellable(py, move |shutdown| write(&out, rounds, &profile, seed, shutdown))
}

/// `synthesize_rounds` without blocking the event loop.
#[pyfunction]
#[pyo3(signature = (out, *, rounds, profile = "tracelab", seed = 0))]
pub(super) fn synthesize_rounds_async<'py>(
    py: Python<'py>,
    out: PathBuf,
    rounds: u64,
    profile: &str,
    seed: u64,
) -> PyResult<Bound<'py, PyAny>> {
    let profile = profile.to_owned();
    runtime::awaitable_cancellable(py, move |shutdown| {
        write(&out, rounds, &profile, seed, shutdown)
    })
}

type Counts = BTreeMap<&'static str, u64>;

fn write(out: &Path, rounds: u64, profile: &str, seed: u64, shutdown: &Shutdown) -> Result<Counts> {
    let config = RoundConfig { out, profile, seed, rounds };
    let counts = write_round_rows(&config, shutdown)?;
    Ok([
        ("sessions", counts.sessions),
        ("rounds", counts.rounds),
        ("tool_calls", counts.tool_calls),
    ]
    .into())
}

fn config(
    out: PathBuf,
    sessions: u32,
    profile: &str,
    seed: u64,
    max_turns: Option<u32>,
    argv: Option<Vec<String>>,
) -> SynthesizeConfig {
    SynthesizeConfig {
        out,
        // Made of profile and seed, so that the same seed gives the same rows.
        run_id: String::new(),
        profile: profile.to_owned(),
        sessions,
        seed,
        max_turns,
        start_ns: DEFAULT_START_NS,
        argv: argv.unwrap_or_default(),
        host: host::describe(),
    }
}

fn make(config: &SynthesizeConfig, shutdown: &Shutdown) -> Result<PyRun> {
    crate::synthesize::synthesize(config, shutdown)?;
    PyRun::read(config.out.clone())
}
