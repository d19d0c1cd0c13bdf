//! (being built)

pub mod energy;
