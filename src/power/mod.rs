//! Power and energy of the devices that serve.
//!
//! `energy` turns samples into a figure with its validity, `nvml` tells whether devices can be measured
//! here; nothing samples yet.

pub mod energy;
pub mod nvml;
