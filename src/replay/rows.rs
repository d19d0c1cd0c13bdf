//! The way of a replay's rows to the run directory: never lost, never blocking a thread that moves
//! bytes.
//!
//! Tasks queue rows here; a thread of its own hands them to the writer and waits for room where there
//! is none. When even this queue is full, the task waits, which its next request's lag shows.

use std::sync::Arc;
use std::thread::JoinHandle;

use tokio::sync::mpsc;

use super::samples::Samples;
use crate::error::{Error, Result};
use crate::trace::{Row, RowSender};

/// Rows that wait for the writer at most.
const QUEUE_ROWS: usize = 1 << 16;

/// Takes rows from tasks; cloned freely.
#[derive(Debug, Clone)]
pub(super) struct RowQueue {
    sender: mpsc::Sender<Row>,
    samples: Option<Arc<Samples>>,
}

impl RowQueue {
    /// Starts the thread; it ends when every clone of the queue is gone. `samples` sees each row too.
    pub(super) fn start(
        rows: RowSender,
        samples: Option<Arc<Samples>>,
    ) -> Result<(Self, RowThread)> {
        let (sender, mut receiver) = mpsc::channel::<Row>(QUEUE_ROWS);
        let thread = std::thread::Builder::new()
            .name("replay-rows".into())
            .spawn(move || {
                let mut lost = 0;
                while let Some(row) = receiver.blocking_recv() {
                    lost += u64::from(!rows.send_blocking(row));
                }
                lost
            })
            .map_err(|error| Error::Internal(format!("no thread for rows: {error}")))?;
        Ok((Self { sender, samples }, RowThread(thread)))
    }

    /// Queues a row.
    pub(super) async fn send(&self, row: impl Into<Row>) {
        let row = row.into();
        if let Some(samples) = &self.samples {
            samples.see(&row);
        }
        // The thread ends after the last sender; that it is gone means that it panicked, which
        // `finish` reports.
        let _ = self.sender.send(row).await;
    }
}

/// The thread behind a queue.
#[derive(Debug)]
pub(super) struct RowThread(JoinHandle<u64>);

impl RowThread {
    /// Waits until every row is handed over; the number of rows that the writer did not take.
    pub(super) async fn finish(self) -> Result<u64> {
        tokio::task::spawn_blocking(move || self.0.join())
            .await
            .map_err(|error| Error::Internal(error.to_string()))?
            .map_err(|_| Error::Internal("the thread for rows panicked".into()))
    }
}
