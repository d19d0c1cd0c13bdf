//! The machine that a recording runs on, for its manifest.

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
