//! `difference_intervals`: whether two runs differ by more than chance.

use std::sync::Arc;

use pyo3::prelude::*;

use super::run::PyRun;
use super::{json, runtime};
use crate::error::Result;
use crate::replay::headline_requests;
use crate::replay::noise::difference_intervals as intervals;
use crate::trace::Run;

/// 95 % intervals of the second run's latencies less the first one's, by column and statistic.
#[pyfunction]
#[pyo3(signature = (first, other, *, steady, first_level = None, other_level = None))]
pub(super) fn difference_intervals<'py>(
    py: Python<'py>,
    first: &PyRun,
    other: &PyRun,
    steady: bool,
    first_level: Option<u32>,
    other_level: Option<u32>,
) -> PyResult<Bound<'py, PyAny>> {
    let (first, other) = (Arc::clone(&first.run), Arc::clone(&other.run));
    let rows = move |run: &Run, level| headline_requests(run, level, steady);
    let found = runtime::wait_blocking(py, move || -> Result<_> {
        let (first, other) = (rows(&first, first_level)?, rows(&other, other_level)?);
        let (first, other): (Vec<_>, Vec<_>) = (first.iter().collect(), other.iter().collect());
        Ok(intervals(&first, &other))
    })?;
    json::to_python(py, &found)
}
