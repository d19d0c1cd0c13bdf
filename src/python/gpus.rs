//! `probe_gpus`: what NVML sees, for `doctor`. Opened at run time; a machine without it is no defect.

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use pyo3::prelude::*;
use serde::Serialize;

use super::{json, runtime};
use crate::error::{Error, Result};

/// One GPU.
#[derive(Serialize)]
struct Gpu {
    index: u32,
    name: String,
    uuid: String,
    driver: String,
    memory_total_bytes: u64,
}

/// Lists the GPUs that NVML sees.
#[pyfunction]
pub(super) fn probe_gpus(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
    json::to_python(py, &runtime::wait_blocking(py, probe)?)
}

fn probe() -> Result<Vec<Gpu>> {
    let nvml = Nvml::init().map_err(|error| Error::Gpu(format!("no NVML: {error}")))?;
    list(&nvml).map_err(|error| Error::Gpu(format!("NVML refused: {error}")))
}

fn list(nvml: &Nvml) -> std::result::Result<Vec<Gpu>, NvmlError> {
    let driver = nvml.sys_driver_version()?;
    let read = |index| {
        let device = nvml.device_by_index(index)?;
        Ok(Gpu {
            index,
            name: device.name()?,
            uuid: device.uuid()?,
            driver: driver.clone(),
            memory_total_bytes: device.memory_info()?.total,
        })
    };
    (0..nvml.device_count()?).map(read).collect()
}
