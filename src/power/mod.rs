//! Power and energy of the devices that serve.
//!
//! `energy` is pure: what samples of a window come to, and whether that may be believed. `nvml` tells
//! whether power can be measured here; nothing samples yet.

pub mod energy;
pub mod nvml;
