//! `probe_gpus`: what NVML sees, for `doctor`. Opened at run time; a machine without it is no defect.

use std::path::PathBuf;

use pyo3::prelude::*;
use serde::Serialize;

use super::{json, runtime};
use crate::error::{Error, Result};
use crate::power::nvml::{NvmlReport, probe};

/// One GPU; null is what it does not tell.
#[derive(Serialize)]
struct Gpu {
    index: u32,
    name: Option<String>,
    uuid: Option<String>,
    driver: Option<String>,
    memory_total_bytes: Option<u64>,
    power_w: Option<f64>,
    power_reason: Option<String>,
    has_energy_counter: bool,
}

/// Lists the GPUs that NVML sees.
#[pyfunction]
#[pyo3(signature = (library = None))]
pub(super) fn probe_gpus(py: Python<'_>, library: Option<PathBuf>) -> PyResult<Bound<'_, PyAny>> {
    json::to_python(py, &runtime::wait_blocking(py, move || list(library))?)
}

fn list(library: Option<PathBuf>) -> Result<Vec<Gpu>> {
    match probe(library.as_deref()) {
        NvmlReport::Missing { reason } => Err(Error::Gpu(reason)),
        NvmlReport::Found { driver_version, devices } => Ok(devices
            .into_iter()
            .map(|device| Gpu {
                index: device.index,
                name: device.name,
                uuid: device.uuid,
                driver: driver_version.clone(),
                memory_total_bytes: device.memory_bytes,
                power_w: device.power_mw.as_ref().ok().map(|power_mw| f64::from(*power_mw) / 1e3),
                power_reason: device.power_mw.err(),
                has_energy_counter: device.energy_mj.is_ok(),
            })
            .collect()),
    }
}
