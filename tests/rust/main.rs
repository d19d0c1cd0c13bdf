//! One binary for all integration tests, a module per topic.

// The lint spares test functions only; what they call is test code as well.
#![allow(clippy::unwrap_used)]

mod agents;
mod capacity;
mod capture;
mod chunks;
mod engine;
mod export;
mod export_formats;
mod faults;
mod four_apis;
mod power;
mod replay;
mod several_engines;
mod simulator;
mod switches;
mod synthesize;
mod trace;
mod transparency;
mod wire;
