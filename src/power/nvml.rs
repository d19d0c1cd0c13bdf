//! NVIDIA's management library: whether it is here, which devices it shows, what they tell.
//!
//! The library is opened at run time, so a machine without a driver gets a reason, not an error.

use std::path::Path;

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// What NVML says about this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NvmlReport {
    /// The driver answers.
    Found {
        /// Its version; none when it does not tell.
        driver_version: Option<String>,
        /// Its devices, by index. None on a machine with a driver but no GPU.
        devices: Vec<NvmlDevice>,
    },
    /// Nothing can be measured; one line that says why and what to do.
    Missing {
        /// The reason.
        reason: String,
    },
}

/// One device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NvmlDevice {
    /// NVML's index.
    pub index: u32,
    /// Its UUID, which unlike the index survives a reboot.
    pub uuid: Option<String>,
    /// Its name.
    pub name: Option<String>,
    /// Its memory.
    pub memory_bytes: Option<u64>,
    /// Power now, in milliwatts, or why it cannot be read.
    pub power_mw: Result<u32, String>,
    /// The energy counter, in millijoules, or why it cannot be read.
    pub energy_mj: Result<u64, String>,
}

/// Looks for NVML and its devices. `lib_path` names the library where it is not on the loader's path.
pub fn probe(lib_path: Option<&Path>) -> NvmlReport {
    let opened = open(lib_path);
    let missing = |error: &NvmlError| NvmlReport::Missing { reason: explain(error) };
    let nvml = match opened {
        Ok(nvml) => nvml,
        Err(error) => return missing(&error),
    };
    let count = match nvml.device_count() {
        Ok(count) => count,
        Err(error) => return missing(&error),
    };
    NvmlReport::Found {
        driver_version: nvml.sys_driver_version().ok(),
        devices: (0..count).map(|index| describe(index, nvml.device_by_index(index))).collect(),
    }
}

fn describe(index: u32, device: Result<Device<'_>, NvmlError>) -> NvmlDevice {
    match device {
        Ok(device) => NvmlDevice {
            index,
            uuid: device.uuid().ok(),
            name: device.name().ok(),
            memory_bytes: device.memory_info().ok().map(|memory| memory.total),
            power_mw: device.power_usage().map_err(|error| explain(&error)),
            energy_mj: device.total_energy_consumption().map_err(|error| explain(&error)),
        },
        Err(error) => NvmlDevice {
            index,
            uuid: None,
            name: None,
            memory_bytes: None,
            power_mw: Err(explain(&error)),
            energy_mj: Err(explain(&error)),
        },
    }
}

/// Opens the library, `path` where it is not on the loader's path.
pub(super) fn open(path: Option<&Path>) -> Result<Nvml, NvmlError> {
    // The versioned name is the one that drivers and container runtimes install; the bare one comes with
    // development packages only.
    let path = path.unwrap_or(Path::new("libnvidia-ml.so.1"));
    Nvml::builder().lib_path(path.as_os_str()).init()
}

pub(super) fn explain(error: &NvmlError) -> String {
    match error {
        NvmlError::LibloadingError(error) => format!(
            "no NVIDIA driver library ({error}); install the driver, in a container pass the GPUs in"
        ),
        NvmlError::DriverNotLoaded => "the NVIDIA driver is installed but not loaded".to_owned(),
        NvmlError::NoPermission => {
            "no permission to talk to the NVIDIA driver; run as a user who may".to_owned()
        }
        NvmlError::NotSupported => "the device does not support it".to_owned(),
        NvmlError::FailedToLoadSymbol(_) => "the driver is too old to tell it".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::process::Command;

    use super::*;

    /// Two devices: the first tells all; the second has no energy counter and hides its memory.
    const STUB: &str = r#"
        #include <string.h>
        typedef struct { unsigned version; unsigned long long total, reserved, free, used; } memory;
        int nvmlInit_v2(void) { return INIT; }
        int nvmlShutdown(void) { return 0; }
        int nvmlSystemGetDriverVersion(char *text, unsigned size) { strncpy(text, "580.1", size); return 0; }
        int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
        int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
            if (index == 2) return 15;
            *device = (void *)(unsigned long)(index + 1);
            return 0;
        }
        int nvmlDeviceGetName(void *device, char *text, unsigned size) { strncpy(text, "Stub GPU", size); return 0; }
        int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
            strncpy(text, device == (void *)1 ? "GPU-a" : "GPU-b", size);
            return 0;
        }
        int nvmlDeviceGetMemoryInfo_v2(void *device, memory *info) {
            if (device != (void *)1) return 3;
            info->total = 85899345920ULL;
            return 0;
        }
        int nvmlDeviceGetPowerUsage(void *device, unsigned *power) { *power = 123456; return 0; }
        #ifndef OLD
        int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *energy) {
            if (device != (void *)1) return 3;
            *energy = 9876543210ULL;
            return 0;
        }
        #endif
    "#;

    fn build_stub(dir: &Path, defines: &[&str]) -> PathBuf {
        let source = dir.join("nvml.c");
        let library = dir.join("libnvidia-ml.so.1");
        std::fs::write(&source, STUB).expect("the stub's source");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).args(defines).arg(&source);
        assert!(compiler.status().expect("cc runs").success());
        library
    }

    #[test]
    fn devices_and_what_they_tell() {
        let dir = tempfile::tempdir().expect("a folder");
        let report = probe(Some(&build_stub(dir.path(), &["-DINIT=0"])));
        let unsupported = "the device does not support it".to_owned();
        let lost = NvmlError::GpuLost.to_string();
        let device = |index, uuid: &str| NvmlDevice {
            index,
            uuid: Some(uuid.to_owned()),
            name: Some("Stub GPU".to_owned()),
            memory_bytes: None,
            power_mw: Ok(123_456),
            energy_mj: Err(unsupported.clone()),
        };
        let expected = NvmlReport::Found {
            driver_version: Some("580.1".to_owned()),
            devices: vec![
                NvmlDevice {
                    memory_bytes: Some(85_899_345_920),
                    energy_mj: Ok(9_876_543_210),
                    ..device(0, "GPU-a")
                },
                device(1, "GPU-b"),
                NvmlDevice {
                    index: 2,
                    uuid: None,
                    name: None,
                    memory_bytes: None,
                    power_mw: Err(lost.clone()),
                    energy_mj: Err(lost),
                },
            ],
        };
        assert_eq!(report, expected);
    }

    #[test]
    fn an_old_driver_lacks_the_energy_counter() {
        let dir = tempfile::tempdir().expect("a folder");
        let report = probe(Some(&build_stub(dir.path(), &["-DINIT=0", "-DOLD"])));
        let NvmlReport::Found { devices, .. } = report else { panic!("not found: {report:?}") };
        assert_eq!(devices[0].energy_mj, Err("the driver is too old to tell it".to_owned()));
        assert_eq!(devices[0].power_mw, Ok(123_456));
    }

    #[test]
    fn reasons_why_nothing_can_be_measured() {
        let dir = tempfile::tempdir().expect("a folder");
        let not_loaded = build_stub(dir.path(), &["-DINIT=9"]);
        for (library, part) in [
            (not_loaded, "installed but not loaded"),
            (dir.path().join("absent.so"), "no NVIDIA driver library"),
        ] {
            let report = probe(Some(&library));
            let NvmlReport::Missing { reason } = report else { panic!("found: {report:?}") };
            assert!(reason.contains(part), "{reason}");
        }
    }
}
