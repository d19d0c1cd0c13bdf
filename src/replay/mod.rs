//! Replay.
pub mod engine_figures;
pub mod measure;
pub mod plan;
pub mod prefix_hits;
pub mod settings;
pub mod statistics;
pub mod summary;
pub mod window;
