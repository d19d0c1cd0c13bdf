//! A DCGM exporter's page: power of GPUs, also of another machine.
//!
//! The page shows a MIG instance as a row of its own, with the power of its whole GPU: rows of one GPU
//! count once. The exporter collects at its own pace, so that readings repeat between two collections.

use std::collections::BTreeMap;
use std::time::Duration;

use reqwest::{Client, Url};
use tokio::runtime::Runtime;

use super::gpus::{GpuChoice, choose};
use super::source::{Boundary, DeviceReading, PowerSource};
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::http::{client, scrape};

/// How long a page may take.
const TIMEOUT: Duration = Duration::from_secs(2);
const MIB: f64 = 1_048_576.0;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Power,
    Energy,
    Utilization,
    Memory,
    Clock,
}

fn field(name: &str) -> Option<Field> {
    match name {
        "DCGM_FI_DEV_POWER_USAGE" => Some(Field::Power),
        "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION" => Some(Field::Energy),
        "DCGM_FI_DEV_GPU_UTIL" => Some(Field::Utilization),
        "DCGM_FI_DEV_FB_USED" => Some(Field::Memory),
        "DCGM_FI_DEV_SM_CLOCK" => Some(Field::Clock),
        _ => None,
    }
}

/// One GPU of a page.
#[derive(Debug, Clone, PartialEq, Default)]
struct Gpu {
    index: Option<u32>,
    power_w: Option<f64>,
    energy_j: Option<f64>,
    utilization_pct: Option<f64>,
    sm_clock_mhz: Option<u32>,
    /// Of the GPU as a whole, where the page has such a row.
    memory_bytes: Option<u64>,
    /// Summed over its MIG instances.
    instance_memory_bytes: Option<u64>,
}

/// The GPUs of a page by UUID.
fn read_page(page: &str) -> Result<BTreeMap<String, Gpu>, String> {
    let mut gpus: BTreeMap<String, Gpu> = BTreeMap::new();
    scrape::scan(page, field, |field, sample| {
        let label = |name: &str| sample.labels.get(name).filter(|value| !value.is_empty());
        let index = label("gpu").and_then(|index| index.parse().ok());
        let Some(uuid) = label("UUID").or_else(|| label("uuid")).or_else(|| label("gpu")) else {
            return;
        };
        // DCGM gives huge values for "blank".
        let value = sample.value;
        if !value.is_finite() || !(0.0..1e18).contains(&value) {
            return;
        }
        let gpu = gpus.entry(uuid.into_owned()).or_default();
        gpu.index = gpu.index.or(index);
        match field {
            Field::Power => gpu.power_w = gpu.power_w.or(Some(value)),
            Field::Energy => gpu.energy_j = gpu.energy_j.or(Some(value / 1e3)),
            Field::Utilization => gpu.utilization_pct = gpu.utilization_pct.or(Some(value)),
            Field::Clock => gpu.sm_clock_mhz = gpu.sm_clock_mhz.or(Some(value as u32)),
            Field::Memory => {
                let bytes = (value * MIB) as u64;
                if label("GPU_I_ID").is_some() {
                    *gpu.instance_memory_bytes.get_or_insert(0) += bytes;
                } else {
                    gpu.memory_bytes = Some(bytes);
                }
            }
        }
    })
    .map_err(|error| error.to_string())?;
    Ok(gpus)
}

/// A page that is read again and again.
pub(super) struct Dcgm {
    runtime: Runtime,
    client: Client,
    url: Url,
    devices: Vec<String>,
    rule: String,
}

impl Dcgm {
    /// Reads the page once and chooses the GPUs; inside, why there are none.
    pub(super) fn open(url: &str, gpus: &GpuChoice) -> Result<Result<Self, String>> {
        let url = client::parse_url(url)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| Error::Internal(format!("no runtime: {error}")))?;
        let client = client::build(TIMEOUT)?;
        let mut dcgm = Self { runtime, client, url, devices: Vec::new(), rule: String::new() };
        let place = client::mask(&dcgm.url);
        let page = match dcgm.read() {
            Ok(page) if page.is_empty() => {
                return Ok(Err(format!("{place}: no GPU on the page; is it a DCGM exporter's?")));
            }
            Ok(page) => page,
            Err(error) => {
                return Ok(Err(format!("{place}: {error}; start the DCGM exporter there")));
            }
        };
        let wanted = gpus.wanted();
        let uuids: Vec<&String> = page.keys().collect();
        // An index serves for choosing alone; a page of several hosts may show one twice.
        let present: Vec<_> = uuids
            .iter()
            .enumerate()
            .map(|(position, uuid)| {
                (page[*uuid].index.unwrap_or(position as u32), Some((*uuid).clone()))
            })
            .collect();
        let chosen = choose(&wanted, &present, |_| None)?;
        let serves = |index: &u32| chosen.contains(index);
        dcgm.devices = present
            .iter()
            .filter(|(index, _)| serves(index))
            .filter_map(|(_, uuid)| uuid.clone())
            .collect();
        dcgm.rule = wanted.rule;
        Ok(if dcgm.devices.is_empty() {
            Err(format!("no GPU is chosen ({})", dcgm.rule))
        } else {
            Ok(dcgm)
        })
    }

    fn read(&self) -> Result<BTreeMap<String, Gpu>, String> {
        let text = self.runtime.block_on(async {
            let response =
                self.client.get(self.url.clone()).send().await.map_err(client::describe)?;
            if !response.status().is_success() {
                return Err(format!("the page answered {}", response.status()));
            }
            client::text(response).await
        })?;
        read_page(&text)
    }
}

impl PowerSource for Dcgm {
    fn name(&self) -> &'static str {
        "dcgm"
    }

    fn boundary(&self) -> Boundary {
        Boundary::Device
    }

    fn devices(&self) -> Vec<String> {
        self.devices.clone()
    }

    fn rule(&self) -> String {
        self.rule.clone()
    }

    fn sample(&mut self, clock: &Clock) -> Vec<DeviceReading> {
        let page = self.read();
        let read_ns = clock.now_ns();
        let read = |device: &String| {
            let gpu = match &page {
                Ok(page) => page.get(device),
                Err(error) => return DeviceReading::failed(device, read_ns, error.clone()),
            };
            let Some(gpu) = gpu else {
                return DeviceReading::failed(device, read_ns, "the page shows it no more");
            };
            let silent = gpu.power_w.is_none() && gpu.energy_j.is_none();
            DeviceReading {
                read_ns,
                device_ts: None,
                device: device.clone(),
                power_w: gpu.power_w,
                power_avg_w: None,
                energy_j: gpu.energy_j,
                utilization_pct: gpu.utilization_pct,
                memory_used_bytes: gpu.memory_bytes.or(gpu.instance_memory_bytes),
                sm_clock_mhz: gpu.sm_clock_mhz,
                error: silent.then(|| "the page tells neither its power nor its energy".to_owned()),
            }
        };
        self.devices.iter().map(read).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mig_rows_of_one_gpu_count_once() {
        let page = r#"
# HELP DCGM_FI_DEV_POWER_USAGE Power draw (in W).
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"} 300.5
DCGM_FI_DEV_POWER_USAGE{gpu="0",UUID="GPU-a",GPU_I_PROFILE="1g.10gb",GPU_I_ID="8"} 300.5
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a",GPU_I_ID="7"} 5000000
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{gpu="0",UUID="GPU-a",GPU_I_ID="8"} 5000000
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",GPU_I_ID="7"} 100
DCGM_FI_DEV_FB_USED{gpu="0",UUID="GPU-a",GPU_I_ID="8"} 50
DCGM_FI_DEV_POWER_USAGE{gpu="1",UUID="GPU-b"} 9223372036854775794
DCGM_FI_DEV_GPU_UTIL{gpu="1",UUID="GPU-b"} 97
DCGM_FI_DEV_SM_CLOCK{gpu="1",UUID="GPU-b"} 1980
"#;
        let gpus = read_page(page).expect("a page");
        let expected = BTreeMap::from([
            (
                "GPU-a".to_owned(),
                Gpu {
                    index: Some(0),
                    power_w: Some(300.5),
                    energy_j: Some(5000.0),
                    instance_memory_bytes: Some(150 << 20),
                    ..Gpu::default()
                },
            ),
            (
                "GPU-b".to_owned(),
                Gpu {
                    index: Some(1),
                    utilization_pct: Some(97.0),
                    sm_clock_mhz: Some(1980),
                    ..Gpu::default()
                },
            ),
        ]);
        assert_eq!(gpus, expected);
    }
}
