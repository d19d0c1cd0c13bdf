//! The machine that a recording runs on, for its manifest and for what a redacted one must not tell.

use pyo3::prelude::*;

use crate::redact::Names;
use crate::trace::HostInfo;

/// What can be told without asking anybody.
pub(super) fn describe() -> HostInfo {
    HostInfo {
        platform: format!("{}-{}", std::env::consts::OS, std::env::consts::ARCH),
        cpus: std::thread::available_parallelism().map_or(0, |cpus| cpus.get() as u64),
        memory_bytes: std::fs::read_to_string("/proc/meminfo").ok().as_deref().and_then(mem_total),
    }
}

/// `MemTotal` of `/proc/meminfo`, which counts in KiB.
fn mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

/// Names of the user and of this machine, as far as the system knows them.
pub(super) fn names(py: Python<'_>) -> PyResult<Names> {
    let names: (Vec<String>, Vec<String>) =
        py.import("agentbench._host")?.call_method0("names")?.extract()?;
    Ok(Names { users: names.0, hosts: names.1 })
}
