//! Figures of running things as dicts, in the shapes that `_types.py` declares.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};

use crate::capture::{CaptureStats, EngineTraffic, LatestTurn};
use crate::engine::{EngineKind, PollStats};
use crate::simulator::SimulatorStats;

/// Fields of a struct as a dict under their own names.
macro_rules! dict {
    ($py:expr, $from:expr, $($field:ident),+ $(,)?) => {{
        let dict = PyDict::new($py);
        $(dict.set_item(stringify!($field), &$from.$field)?;)+
        dict
    }};
}

/// `CaptureStats`.
pub(super) fn capturing<'py>(
    py: Python<'py>,
    stats: &CaptureStats,
    rows_dropped: u64,
    polling: &[PollStats],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(
        py,
        stats,
        requests,
        active,
        turns,
        side_requests,
        sessions,
        threads,
        bytes_up,
        bytes_down,
        upstream_errors,
        client_cancelled,
        requests_moved,
        isl,
        isl_cached,
        isl_with_cached,
        tool_exec_ms,
        osl,
    );
    // What the observer could not take never became a row for the writer to drop.
    dict.set_item("rows_dropped", rows_dropped + stats.turns_dropped)?;
    let latest: Vec<_> =
        stats.latest.iter().map(|turn| latest(py, turn)).collect::<PyResult<_>>()?;
    dict.set_item("latest", PyList::new(py, latest)?)?;
    let engine = PollStats::of_several(polling);
    let engine = engine.map(|stats| self::polling(py, &stats)).transpose()?;
    dict.set_item("engine", engine)?;
    let engines: Vec<_> =
        stats.engines.iter().map(|one| traffic(py, one, polling)).collect::<PyResult<_>>()?;
    dict.set_item("engines", PyList::new(py, engines)?)?;
    Ok(dict)
}

/// `EngineTraffic`.
fn traffic<'py>(
    py: Python<'py>,
    one: &EngineTraffic,
    polling: &[PollStats],
) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(py, one, engine, requests, errors);
    let polled = polling.iter().find(|polled| polled.engine == one.engine);
    dict.set_item("polled", polled.map(|polled| self::polling(py, polled)).transpose()?)?;
    Ok(dict)
}

fn latest<'py>(py: Python<'py>, turn: &LatestTurn) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(
        py,
        turn,
        session_id,
        thread_id,
        turn,
        agent,
        isl,
        isl_cached,
        osl,
        ttft_ms,
        e2e_ms,
        tool_exec_ms,
    );
    dict.set_item("kind", super::json::to_python(py, &turn.kind)?)?;
    dict.set_item("outcome", super::json::to_python(py, &turn.outcome)?)?;
    Ok(dict)
}

/// `PollerStats`.
pub(super) fn polling<'py>(py: Python<'py>, stats: &PollStats) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(
        py,
        stats,
        ticks,
        missed,
        failed,
        completions,
        rows_dropped,
        lag_p99_ms,
        lag_max_ms,
        cache_warning,
        last_error,
    );
    dict.set_item("counter_resets", stats.resets)?;
    dict.set_item("engine", stats.kind.map(EngineKind::as_str))?;
    let lacks: Vec<_> = stats.lacks.iter().map(|quantity| quantity.as_str()).collect();
    dict.set_item("lacks", lacks)?;
    dict.set_item("running", stats.last.and_then(|last| last.running))?;
    dict.set_item("waiting", stats.last.and_then(|last| last.waiting))?;
    dict.set_item("kv_cache_usage_pct", stats.last.and_then(|last| last.kv_cache_usage_pct))?;
    Ok(dict)
}

/// `SimulatorStats`.
pub(super) fn simulating<'py>(
    py: Python<'py>,
    stats: &SimulatorStats,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = dict!(
        py,
        stats,
        running,
        waiting,
        finished,
        aborted,
        prompt_tokens,
        cached_tokens,
        generation_tokens,
        preemptions,
    );
    dict.set_item("kv_cache_usage_pct", stats.kv_cache_usage * 100.0)?;
    Ok(dict)
}
