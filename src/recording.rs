//! Capture or replay, polling and the run directory composed into one recording.
//!
//! The parts know nothing of each other: this file starts them in the right order (writer, poller,
//! then traffic), stops them in the reverse one, and completes the manifest. What a row means is the
//! parts' own affair.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::trace::{HostInfo, Manifest};

/// What every recording is told by its caller; the core reads no environment itself.
#[derive(Debug, Clone)]
pub struct RecordingConfig {
    /// The run directory to make; must not exist, or be empty.
    pub out: PathBuf,
    /// Name of the run.
    pub run_id: String,
    /// The command line, secrets masked.
    pub argv: Vec<String>,
    /// The machine, as far as the caller knows it.
    pub host: HostInfo,
    /// The engine's metrics page; none: nothing is polled and the manifest says why.
    pub metrics_url: Option<String>,
    /// Time between polls.
    pub poll_interval: Duration,
    /// Settings of the caller to keep in the manifest.
    pub settings: serde_json::Map<String, serde_json::Value>,
}

/// What a capture needs beside a recording.
#[derive(Debug, Clone)]
pub struct CaptureRecordingConfig {
    /// The recording.
    pub recording: RecordingConfig,
    /// Where the proxy listens.
    pub listen: SocketAddr,
    /// The engine behind the proxy.
    pub upstream: String,
}

/// A proxy and a poller that fill one run directory.
#[derive(Debug)]
pub struct CaptureRecording {
    local_addr: SocketAddr,
}

impl CaptureRecording {
    /// Starts writer, poller and proxy.
    pub async fn start(config: CaptureRecordingConfig) -> Result<Self> {
        let _ = config;
        Err(Error::Internal("being built".into()))
    }

    /// Where the proxy listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Stops proxy and poller, closes the tables.
    pub async fn finish(self) -> Result<Manifest> {
        Err(Error::Internal("being built".into()))
    }
}
