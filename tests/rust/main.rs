//! One binary for all integration tests, a module per topic.

mod transparency;
mod wire;
mod replay;
