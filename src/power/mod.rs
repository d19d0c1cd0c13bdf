//! Power and energy of the devices that serve.
//!
//! `source` is what a source is, `nvml_source`, `dcgm` and `rapl` are those there are, `gpus` says which
//! devices serve. `sampler` reads the chosen one every 100 ms into rows. `readings` and `energy` are
//! pure: rows in order of time, what a window of them comes to, and whether that may be believed. `nvml` tells what this machine offers.

mod dcgm;
pub mod energy;
mod gpus;
pub mod nvml;
mod nvml_source;
mod rapl;
pub mod readings;
mod sampler;
mod source;

pub use gpus::GpuChoice;
pub use sampler::{IdleBaseline, PowerConfig, PowerSampler, PowerSettings, PowerStats, PowerWatch};
pub use source::{Boundary, DeviceReading, PowerChoice, PowerSource};
