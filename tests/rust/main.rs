//! One binary for all integration tests, a module per topic.

mod trace;
mod transparency;
mod wire;
