//! Power and energy of the devices that serve.
//!
//! Only what tells whether they can be measured here; nothing samples yet.

pub mod nvml;
