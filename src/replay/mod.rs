//! Replay.
pub mod capacity;
pub mod engine_figures;
pub mod measure;
pub mod plan;
pub mod prefix_hits;
pub mod settings;
pub mod slo;
pub mod statistics;
pub mod summary;
pub mod window;

