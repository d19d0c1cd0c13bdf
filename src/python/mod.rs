//! The compiled half of the Python package: `agentbench._core`. The only module that knows Python.
//!
//! Each method converts its arguments, calls the core and converts the result. Whatever blocks or
//! awaits goes through `runtime`, whatever fails through `errors`, whatever is a table through `arrow`.
//! Docstrings with shapes and units are in `_core.pyi`; the ones here are the short form for `help()`.

// Extracted arguments and `Py` handles are passed by value by the macros' contract.
#![allow(clippy::needless_pass_by_value)]

mod agent;
mod arrow;
mod capacity;
mod comparison;
mod engine;
mod errors;
mod export;
mod fleet;
mod gpus;
mod handle;
mod host;
mod imports;
mod json;
mod lifecycle;
mod masker;
mod poller;
mod power;
mod proxy;
mod replay;
mod run;
mod runtime;
mod sending;
mod settings;
mod simulated_engine;
mod stats;
mod synthesis;

use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// What `api` of a replay may be.
const APIS: [&str; 6] = ["auto", "recorded", "messages", "chat", "completions", "responses"];

#[pymodule]
#[pyo3(name = "_core")]
mod core {
    use pyo3::prelude::*;

    #[pymodule_export]
    use super::agent::PyAgentRun;
    #[pymodule_export]
    use super::arrow::PyTable;
    #[pymodule_export]
    use super::capacity::PyCapacity;
    #[pymodule_export]
    use super::comparison::difference_intervals;
    #[pymodule_export]
    use super::engine::{engine_info, engine_info_async, metrics_page, metrics_page_async};
    #[pymodule_export]
    use super::errors::{AgentbenchError, ConfigError, GpuError, TraceError, UpstreamError};
    #[pymodule_export]
    use super::export::{export_jsonl, export_jsonl_async, export_run};
    #[pymodule_export]
    use super::fleet::{PyFleet, PyWorker};
    #[pymodule_export]
    use super::gpus::probe_gpus;
    #[pymodule_export]
    use super::handle::PyHandle;
    #[pymodule_export]
    use super::imports::{PyImportProgress, import_traces, import_traces_async};
    #[pymodule_export]
    use super::masker::PyMasker;
    #[pymodule_export]
    use super::poller::PyPoller;
    #[pymodule_export]
    use super::power::PyPowerSampler;
    #[pymodule_export]
    use super::proxy::PyProxy;
    #[pymodule_export]
    use super::replay::PyReplay;
    #[pymodule_export]
    use super::run::PyRun;
    #[pymodule_export]
    use super::simulated_engine::PySimulatedEngine;
    #[pymodule_export]
    use super::synthesis::{
        synthesize, synthesize_async, synthesize_rounds, synthesize_rounds_async,
    };

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        super::at_import(module)
    }
}

/// Constants, the bridge to `logging`, and the warning of a build that must not be measured with.
fn at_import(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    let release = !cfg!(debug_assertions);
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("build_profile", if release { "release" } else { "debug" })?;
    module.add("APIS", PyTuple::new(py, APIS)?)?;
    module.add("PROFILES", PyTuple::new(py, crate::synthesize::profile::PROFILE_NAMES)?)?;
    let formats = crate::import::format::Format::ALL.map(crate::import::format::Format::as_str);
    module.add("IMPORT_FORMATS", PyTuple::new(py, formats)?)?;
    let exports = pyo3::types::PyDict::new(py);
    for format in crate::export::Format::ALL {
        exports.set_item(format.as_str(), format.about())?;
    }
    module.add("CORE_EXPORT_FORMATS", exports)?;
    let speeds: Vec<&str> = crate::simulator::Profile::names().collect();
    module.add("SPEEDS", PyTuple::new(py, speeds)?)?;
    let presets = crate::recording::PRESETS.map(|preset| preset.name);
    module.add("PRESETS", PyTuple::new(py, presets)?)?;
    let tiers = pyo3::types::PyDict::new(py);
    for (name, conditions) in crate::replay::tiers::all() {
        tiers.set_item(name, conditions)?;
    }
    module.add("TIERS", tiers)?;
    bridge_logging(py)?;
    if !release {
        PyErr::warn(
            py,
            &py.get_type::<pyo3::exceptions::PyRuntimeWarning>(),
            c"agentbench was built without optimisation: do not measure with it; \
              install it with ./install.sh, or build with `maturin develop --release`",
            1,
        )?;
    }
    Ok(())
}

/// Lifecycle events of the core go to Python's `logging` under `agentbench`; other crates only warn.
fn bridge_logging(py: Python<'_>) -> PyResult<()> {
    let logger = pyo3_log::Logger::new(py, pyo3_log::Caching::Loggers)?
        .filter(log::LevelFilter::Warn)
        .filter_target("agentbench".to_owned(), log::LevelFilter::Info)
        // What it says is in the error as well, which names the engine.
        .filter_target("rustls_platform_verifier".to_owned(), log::LevelFilter::Off);
    // A second import in one process (a sub-interpreter) finds the bridge in place.
    drop(logger.install());
    Ok(())
}
