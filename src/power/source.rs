//! What a source of power readings is, and which one was chosen.
//!
//! A source is asked on the sampler's thread and may block there. A device that gives nothing gives a
//! reading without values: that it was asked stands in the table.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::dcgm::Dcgm;
use super::gpus::GpuChoice;
use super::nvml_source::NvmlSource;
use super::rapl::{POWERCAP, Rapl};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// One device, read once.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeviceReading {
    /// When it was read, nanoseconds since the Unix epoch.
    pub read_ns: i64,
    /// When the device took the sample by its own account, seconds since the Unix epoch.
    pub device_ts: Option<f64>,
    /// The device's UUID or name.
    pub device: String,
    /// Instant power.
    pub power_w: Option<f64>,
    /// Power averaged by the device.
    pub power_avg_w: Option<f64>,
    /// The device's energy counter.
    pub energy_j: Option<f64>,
    /// Use of the compute units.
    pub utilization_pct: Option<f64>,
    /// Device memory in use.
    pub memory_used_bytes: Option<u64>,
    /// Compute clock.
    pub sm_clock_mhz: Option<u32>,
    /// Why there is neither power nor energy.
    pub error: Option<String>,
}

impl DeviceReading {
    /// A device that gave nothing.
    pub(super) fn failed(device: &str, read_ns: i64, error: impl Into<String>) -> Self {
        Self { read_ns, device: device.to_owned(), error: Some(error.into()), ..Self::default() }
    }
}

/// Something that knows the power of devices.
pub trait PowerSource: Send {
    /// `nvml`, `dcgm`, `rapl` or `constant`.
    fn name(&self) -> &'static str;

    /// What its figures include.
    fn boundary(&self) -> Boundary;

    /// The devices that every sample reads.
    fn devices(&self) -> Vec<String>;

    /// Which rule chose these devices.
    fn rule(&self) -> String;

    /// One reading of each device.
    fn sample(&mut self, clock: &Clock) -> Vec<DeviceReading>;
}

/// What a power figure includes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Boundary {
    /// The named devices alone.
    Device,
    /// The machine, as far as the source sees it.
    Host,
    /// With the building's share: a power usage effectiveness was applied.
    Facility,
}

/// Where power readings are to come from.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum PowerChoice {
    /// Nowhere.
    Off,
    /// Nowhere: what is here is not known to be the engine's.
    Unknown {
        /// Why not, and what to do.
        reason: String,
    },
    /// NVML where it is, else nowhere.
    #[default]
    Auto,
    /// NVIDIA's management library.
    Nvml {
        /// The library, where it is not on the loader's path.
        library: Option<String>,
    },
    /// A DCGM exporter.
    Dcgm {
        /// Its metrics page.
        url: String,
    },
    /// The energy counters of the CPU packages.
    Rapl {
        /// The powercap directory.
        root: String,
    },
    /// A number that is assumed.
    Constant {
        /// Watts of everything that serves.
        watts: f64,
    },
}

impl FromStr for PowerChoice {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let (word, rest) =
            text.split_once(':').map_or((text, None), |(word, rest)| (word, Some(rest)));
        match (word, rest.filter(|rest| !rest.is_empty())) {
            ("none", None) => Ok(Self::Off),
            ("auto", None) => Ok(Self::Auto),
            ("nvml", library) => Ok(Self::Nvml { library: library.map(str::to_owned) }),
            ("dcgm", Some(url)) => Ok(Self::Dcgm { url: url.to_owned() }),
            ("rapl", root) => Ok(Self::Rapl { root: root.unwrap_or(POWERCAP).to_owned() }),
            ("constant", Some(watts)) => match watts.parse::<f64>() {
                Ok(watts) if watts.is_finite() && watts > 0.0 => Ok(Self::Constant { watts }),
                _ => Err(Error::config(format!("power: {watts:?} is no number of watts above 0"))),
            },
            _ => Err(Error::config(format!(
                "power: {text:?} is no source; give auto, none, nvml, dcgm:URL, rapl or constant:WATTS"
            ))),
        }
    }
}

/// A source that is there, or why there is none.
pub(super) enum Opened {
    Source(Box<dyn PowerSource>),
    /// The reason.
    None(String),
}

/// Opens what was chosen. A source that is not there is no error; a GPU that is not there is.
pub(super) fn open(choice: &PowerChoice, gpus: &GpuChoice) -> Result<Opened> {
    let absent = |reason: String| Ok(Opened::None(reason));
    match choice {
        PowerChoice::Off => absent("switched off".to_owned()),
        PowerChoice::Unknown { reason } => absent(reason.clone()),
        PowerChoice::Nvml { library } => match NvmlSource::open(library.as_deref(), gpus)? {
            Ok(nvml) => Ok(Opened::Source(Box::new(nvml))),
            Err(reason) => absent(reason),
        },
        PowerChoice::Dcgm { url } => match Dcgm::open(url, gpus)? {
            Ok(dcgm) => Ok(Opened::Source(Box::new(dcgm))),
            Err(reason) => absent(reason),
        },
        PowerChoice::Rapl { root } => match Rapl::open(root.as_ref()) {
            Ok(rapl) => Ok(Opened::Source(Box::new(rapl))),
            Err(reason) => absent(reason),
        },
        PowerChoice::Constant { watts } => Ok(Opened::Source(Box::new(Constant { watts: *watts }))),
        PowerChoice::Auto => {
            // CPU packages are no stand-in: an engine may run anywhere, and agents per megawatt of
            // the wrong device would mislead. RAPL is for those who ask for it.
            match NvmlSource::open(None, gpus)? {
                Ok(nvml) => Ok(Opened::Source(Box::new(nvml))),
                Err(reason) => absent(reason),
            }
        }
    }
}

/// A number that somebody gave: figures from it are as good as the number.
struct Constant {
    watts: f64,
}

impl PowerSource for Constant {
    fn name(&self) -> &'static str {
        "constant"
    }

    fn boundary(&self) -> Boundary {
        Boundary::Host
    }

    fn devices(&self) -> Vec<String> {
        vec!["constant".to_owned()]
    }

    fn rule(&self) -> String {
        "a power that was given, not measured".to_owned()
    }

    fn sample(&mut self, clock: &Clock) -> Vec<DeviceReading> {
        vec![DeviceReading {
            read_ns: clock.now_ns(),
            device: "constant".to_owned(),
            power_w: Some(self.watts),
            ..DeviceReading::default()
        }]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_for_sources() {
        let nvml =
            |library: Option<&str>| PowerChoice::Nvml { library: library.map(str::to_owned) };
        let rapl = |root: &str| PowerChoice::Rapl { root: root.to_owned() };
        for (text, choice) in [
            ("none", PowerChoice::Off),
            ("auto", PowerChoice::Auto),
            ("nvml", nvml(None)),
            ("nvml:/opt/libnvidia-ml.so.1", nvml(Some("/opt/libnvidia-ml.so.1"))),
            (
                "dcgm:http://h:9400/metrics",
                PowerChoice::Dcgm { url: "http://h:9400/metrics".into() },
            ),
            ("rapl", rapl("/sys/class/powercap")),
            ("rapl:/tmp/root", rapl("/tmp/root")),
            ("constant:700.5", PowerChoice::Constant { watts: 700.5 }),
        ] {
            assert_eq!(text.parse::<PowerChoice>().expect(text), choice);
        }
        for text in
            ["", "gpu", "dcgm", "constant", "constant:x", "constant:0", "constant:inf", "none:1"]
        {
            assert!(matches!(text.parse::<PowerChoice>(), Err(Error::Config(_))), "{text}");
        }
    }
}
