//! (being built)

pub mod capacity;
pub mod slo;
