//! One binary for all integration tests, a module per topic.

mod export;
mod synthesize;
mod trace;
mod transparency;
mod wire;
