//! Writing a run directory: one thread that takes rows from a bounded queue and journals them.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::manifest::Manifest;
use super::record::Row;
use crate::error::Result;

/// Takes rows for one run; cloned freely; never blocks unless asked to.
#[derive(Debug, Clone)]
pub struct RowSender {
    dropped: Arc<AtomicU64>,
}

impl RowSender {
    /// Queues a row, or drops it when the queue is full: then the loss is counted and false returned.
    pub fn send(&self, row: impl Into<Row>) -> bool {
        let _ = row.into();
        self.dropped.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Queues a row and waits for room. For threads that no byte waits for. False when the writer has
    /// ended.
    pub fn send_blocking(&self, row: impl Into<Row>) -> bool {
        self.send(row)
    }

    /// Rows dropped so far.
    pub fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }
}

/// The writer of one run directory.
#[derive(Debug)]
pub struct RunWriter {
    sender: RowSender,
}

impl RunWriter {
    /// Creates the directory (it must not exist, or be empty), writes the manifest and starts the
    /// writer thread.
    pub fn create(dir: &Path, manifest: Manifest) -> Result<Self> {
        let _ = (dir, manifest);
        Err(crate::Error::Internal("being built".into()))
    }

    /// A sender of rows.
    pub fn sender(&self) -> RowSender {
        self.sender.clone()
    }

    /// Changes the manifest on disk now (engine found, settings known, counts).
    pub fn update_manifest(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let _ = change;
        Ok(())
    }

    /// Drains the queue, turns the journals into Parquet, completes the manifest.
    pub fn finish(self) -> Result<Manifest> {
        Err(crate::Error::Internal("being built".into()))
    }
}
