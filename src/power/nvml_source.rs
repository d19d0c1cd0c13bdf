//! NVML as a source of power: instant power, average power, energy counter, use, memory and clock.
//!
//! Instant power is a field of its own; the plain query is a one-second average on newer devices. What a
//! device does not tell is null. A device that is gone gives readings without values until it is back.

use nvml_wrapper::enum_wrappers::device::Clock as ClockKind;
use nvml_wrapper::enums::device::SampleValue;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, Nvml};

use super::gpus::{GpuChoice, Present, choose};
use super::nvml::{explain, open};
use super::source::{Boundary, DeviceReading, PowerSource};
use crate::clock::Clock;
use crate::error::Result;

/// `NVML_FI_DEV_POWER_INSTANT`, in milliwatts.
const POWER_INSTANT: u32 = 186;

/// The chosen devices of this machine.
pub(super) struct NvmlSource {
    nvml: Nvml,
    devices: Vec<(u32, String)>,
    rule: String,
}

impl NvmlSource {
    /// Opens the library and chooses the devices; inside, why there are none.
    pub(super) fn open(library: Option<&str>, gpus: &GpuChoice) -> Result<Result<Self, String>> {
        let opened = open(library.map(AsRef::as_ref));
        let counted = opened.and_then(|nvml| nvml.device_count().map(|count| (nvml, count)));
        let (nvml, count) = match counted {
            Ok(found) => found,
            Err(error) => return Ok(Err(explain(&error))),
        };
        let uuid = |index| nvml.device_by_index(index).and_then(|device| device.uuid()).ok();
        let present: Vec<Present> = (0..count).map(|index| (index, uuid(index))).collect();
        let wanted = gpus.wanted();
        let chosen = choose(&wanted, &present, |name| mig_parent(&nvml, name))?;
        let name = |index: u32| {
            let uuid = present.get(index as usize).and_then(|(_, uuid)| uuid.clone());
            (index, uuid.unwrap_or_else(|| format!("gpu-{index}")))
        };
        let devices: Vec<(u32, String)> = chosen.into_iter().map(name).collect();
        if devices.is_empty() {
            return Ok(Err(match count {
                0 => "the NVIDIA driver shows no GPU".to_owned(),
                _ => format!("no GPU is chosen ({})", wanted.rule),
            }));
        }
        Ok(Ok(Self { nvml, devices, rule: wanted.rule }))
    }

    fn read(&self, index: u32, name: &str, clock: &Clock) -> DeviceReading {
        let device = match self.nvml.device_by_index(index) {
            Ok(device) => device,
            Err(error) => return DeviceReading::failed(name, clock.now_ns(), explain(&error)),
        };
        let instant = instant_power(&device);
        let read_ns = clock.now_ns();
        let average = device.power_usage();
        let energy = device.total_energy_consumption();
        let error = match (&instant, &average, &energy) {
            (Err(_), Err(error), Err(_)) => Some(explain(error)),
            _ => None,
        };
        let instant = instant.ok();
        DeviceReading {
            read_ns,
            device_ts: instant.and_then(|(_, device_ts)| device_ts),
            device: name.to_owned(),
            // A device without the field tells its power in the plain query alone.
            power_w: instant.map(|(watts, _)| watts).or_else(|| milli(average.as_ref().ok())),
            power_avg_w: milli(average.as_ref().ok()),
            energy_j: energy.ok().map(|energy_mj| energy_mj as f64 / 1e3),
            utilization_pct: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu)),
            memory_used_bytes: device.memory_info().ok().map(|memory| memory.used),
            sm_clock_mhz: device.clock_info(ClockKind::SM).ok(),
            error,
        }
    }
}

/// The device whose MIG instance a name is.
fn mig_parent(nvml: &Nvml, name: &str) -> Option<u32> {
    nvml.device_by_uuid(name).ok()?.mig_parent_device().ok()?.index().ok()
}

fn milli(value: Option<&u32>) -> Option<f64> {
    value.map(|value| f64::from(*value) / 1e3)
}

/// Watts and the device's own time of the sample.
fn instant_power(device: &Device<'_>) -> std::result::Result<(f64, Option<f64>), NvmlError> {
    let mut values = device.field_values_for(&[FieldId(POWER_INSTANT)])?;
    let sample = values.pop().ok_or(NvmlError::NotSupported)??;
    let milliwatts = match sample.value? {
        SampleValue::F64(value) => value,
        SampleValue::U32(value) => f64::from(value),
        SampleValue::U64(value) => value as f64,
        SampleValue::I64(value) => value as f64,
    };
    Ok((milliwatts / 1e3, (sample.timestamp > 0).then(|| sample.timestamp as f64 / 1e6)))
}

impl PowerSource for NvmlSource {
    fn name(&self) -> &'static str {
        "nvml"
    }

    fn boundary(&self) -> Boundary {
        Boundary::Device
    }

    fn devices(&self) -> Vec<String> {
        self.devices.iter().map(|(_, name)| name.clone()).collect()
    }

    fn rule(&self) -> String {
        self.rule.clone()
    }

    fn sample(&mut self, clock: &Clock) -> Vec<DeviceReading> {
        self.devices.iter().map(|(index, name)| self.read(*index, name, clock)).collect()
    }
}
