//! Record a coding agent once; replay it on any inference engine, at any concurrency; learn how many
//! agents one GPU and one megawatt serve, in a number that survives an audit.
//!
//! In reading order: [`clock`], [`error`] and [`shutdown`] stand below everything. [`redact`] masks what
//! must not be written down. [`http`] moves and watches bytes, [`api`] reads what agents and engines say. [`trace`] is the run directory.
//! [`capture`] fills it from live agents, [`engine`] from the engine's metrics page, [`power`] from
//! the devices. [`simulator`] is an engine for machines without one. [`replay`] sends a recording
//! again; [`synthesize`] makes one up after published statistics; [`import`] reads others' recordings,
//! [`export`] writes ours for others.
//! [`recording`] composes capture or replay with polling into one run directory. `python` is the only
//! module that knows Python.

mod background;
pub mod clock;
pub mod error;
mod hex;
mod out_file;
mod schedule;
pub mod shutdown;

pub mod redact;

pub mod api;
pub mod http;

pub mod trace;

pub mod capture;
pub mod engine;
pub mod export;
pub mod import;
pub mod power;
pub mod simulator;
pub mod synthesize;

pub mod replay;

pub mod recording;

#[cfg(feature = "python")]
mod python;

pub use error::{Error, Result};
