//! `engine_info` and `metrics_page`: what an engine tells about itself.

use pyo3::prelude::*;
use serde::Serialize;

use super::{json, runtime};
use crate::engine::control::Control;
use crate::engine::{Quantity, Snapshot, detect};
use crate::error::{Error, Result};
use crate::trace::EngineInfo;

/// A metrics page in neutral names.
#[derive(Serialize)]
struct MetricsPage {
    engine: &'static str,
    fields: Vec<&'static str>,
    missing: Vec<&'static str>,
    warning: Option<String>,
}

/// Asks an engine what it is.
#[pyfunction]
pub(super) fn engine_info(py: Python<'_>, url: String) -> PyResult<Bound<'_, PyAny>> {
    json::to_python(py, &runtime::wait(py, ask(url))?)
}

/// `engine_info` without blocking the event loop.
#[pyfunction]
pub(super) fn engine_info_async(py: Python<'_>, url: String) -> PyResult<Bound<'_, PyAny>> {
    json::awaitable(py, ask(url))
}

/// Reads a metrics page once.
#[pyfunction]
pub(super) fn metrics_page(py: Python<'_>, metrics_url: String) -> PyResult<Bound<'_, PyAny>> {
    json::to_python(py, &runtime::wait(py, read(metrics_url))?)
}

/// `metrics_page` without blocking the event loop.
#[pyfunction]
pub(super) fn metrics_page_async(
    py: Python<'_>,
    metrics_url: String,
) -> PyResult<Bound<'_, PyAny>> {
    json::awaitable(py, read(metrics_url))
}

async fn ask(url: String) -> Result<EngineInfo> {
    Control::new(&url)?.info().await
}

async fn read(metrics_url: String) -> Result<MetricsPage> {
    let base = metrics_url.strip_suffix("/metrics").ok_or_else(|| {
        Error::config(format!("{metrics_url}: a metrics page's address ends in /metrics"))
    })?;
    let refused = |message| Error::upstream(&metrics_url, message);
    let page = Control::new(base)?.metrics_page().await?;
    let page = page.ok_or_else(|| refused("there is no such page".to_owned()))?;
    let unknown = |error: crate::engine::PageError| refused(error.to_string());
    let snapshot = Snapshot::read(&page, detect(&page).map_err(unknown)?).map_err(unknown)?;
    let missing = snapshot.lacks();
    let fields = Quantity::ALL.iter().filter(|quantity| !missing.contains(quantity));
    Ok(MetricsPage {
        engine: snapshot.kind().as_str(),
        fields: fields.map(|quantity| quantity.as_str()).collect(),
        missing: missing.iter().map(|quantity| quantity.as_str()).collect(),
        warning: snapshot.cache_warning(),
    })
}
