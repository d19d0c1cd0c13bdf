//! The bounded queue between those who measure and the writer thread.
//!
//! Bounded in rows and in bytes, so that a writer that falls behind costs rows (counted) and never
//! memory. The writer looks at the queue at short intervals by itself: sending a row therefore makes
//! no system call.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::record::{Row, Table};

/// Most rows that wait.
const MAX_ROWS: usize = 65_536;
/// Most bytes that wait, by `weight`; one row may be larger when nothing else waits.
const MAX_BYTES: usize = 64 << 20;
/// The writer is woken at once when this much waits.
const WAKE_ROWS: usize = 4_096;
/// The same in bytes.
const WAKE_BYTES: usize = 4 << 20;

#[derive(Debug, Default)]
struct Waiting {
    rows: VecDeque<(Row, usize)>,
    /// Rows and bytes that wait or are being written.
    held_rows: usize,
    held_bytes: usize,
    closed: bool,
}

/// The queue, with what is counted beside it.
#[derive(Debug, Default)]
pub(super) struct Queue {
    waiting: Mutex<Waiting>,
    to_writer: Condvar,
    to_senders: Condvar,
    dropped: [AtomicU64; Table::ALL.len()],
    last_error: Mutex<Option<String>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Queue {
    /// Queues a row, or drops and counts it when there is no room.
    pub(super) fn push(&self, row: Row) -> bool {
        let weight = weight(&row);
        let mut waiting = lock(&self.waiting);
        if waiting.closed || !has_room(&waiting, weight) {
            drop(waiting);
            self.count_dropped(row.table(), 1);
            return false;
        }
        self.accept(&mut waiting, row, weight);
        true
    }

    /// Queues a row, waiting for room. False, and counted, when the writer has ended.
    pub(super) fn push_blocking(&self, row: Row) -> bool {
        let weight = weight(&row);
        let mut waiting = lock(&self.waiting);
        while !waiting.closed && !has_room(&waiting, weight) {
            waiting = self.to_senders.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        if waiting.closed {
            drop(waiting);
            self.count_dropped(row.table(), 1);
            return false;
        }
        self.accept(&mut waiting, row, weight);
        true
    }

    fn accept(&self, waiting: &mut Waiting, row: Row, weight: usize) {
        waiting.rows.push_back((row, weight));
        waiting.held_rows += 1;
        waiting.held_bytes += weight;
        if waiting.rows.len() == WAKE_ROWS || waiting.held_bytes >= WAKE_BYTES {
            self.to_writer.notify_one();
        }
    }

    /// Takes all rows that wait, after at most `patience`; none left and closed: `None`. The rows
    /// count against the bounds until `written` is told of them.
    pub(super) fn take(&self, patience: Duration) -> Option<VecDeque<(Row, usize)>> {
        let mut waiting = lock(&self.waiting);
        if waiting.rows.is_empty() && !waiting.closed {
            waiting = self
                .to_writer
                .wait_timeout(waiting, patience)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
        if waiting.rows.is_empty() && waiting.closed {
            return None;
        }
        Some(std::mem::take(&mut waiting.rows))
    }

    /// Frees the room of rows that were taken.
    pub(super) fn written(&self, rows: usize, bytes: usize) {
        let mut waiting = lock(&self.waiting);
        waiting.held_rows -= rows;
        waiting.held_bytes -= bytes;
        drop(waiting);
        self.to_senders.notify_all();
    }

    /// Refuses rows from now on; those that wait are still written.
    pub(super) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.to_writer.notify_all();
        self.to_senders.notify_all();
    }

    /// Counts rows that are lost.
    pub(super) fn count_dropped(&self, table: Table, rows: u64) {
        self.dropped[table as usize].fetch_add(rows, Ordering::Relaxed);
    }

    /// Rows lost of one table.
    pub(super) fn dropped(&self, table: Table) -> u64 {
        self.dropped[table as usize].load(Ordering::Relaxed)
    }

    /// What the disk last refused.
    pub(super) fn last_error(&self) -> Option<String> {
        lock(&self.last_error).clone()
    }

    /// Keeps what the disk refused.
    pub(super) fn set_last_error(&self, error: String) {
        *lock(&self.last_error) = Some(error);
    }
}

fn has_room(waiting: &Waiting, weight: usize) -> bool {
    waiting.held_rows == 0
        || (waiting.held_rows < MAX_ROWS && waiting.held_bytes + weight <= MAX_BYTES)
}

/// Approximate bytes that a row holds: its struct, and what its long texts and lists allocate.
pub(super) fn weight(row: &Row) -> usize {
    match row {
        Row::Turns(turn) => {
            2048 + turn.params.len()
                + turn.body_template.len()
                + turn.isl_new_text.len()
                + turn.osl_text.len()
                + turn.reply_blocks.len()
                + turn.error.as_ref().map_or(0, String::len)
                + turn.unit_hashes.len() * 64
                + turn.output_offsets_us.len() * 8
        }
        Row::Units(unit) => 256 + unit.text.len(),
        Row::ToolCalls(call) => 512 + call.arguments.len(),
        Row::Requests(request) => {
            1024 + request.chunk_gap_ms.len() * 8
                + request.chunk_tokens.len() * 4
                + request.error.as_ref().map_or(0, String::len)
        }
        Row::Levels(level) => 256 + level.values.len(),
        Row::ClientSamples(sample) => 256 + sample.timer_lag_ms.len() * 8,
        Row::EngineMetrics(_) | Row::EngineSamples(_) | Row::Power(_) | Row::Trajectories(_) => 512,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trace::record::{PowerRow, UnitRow};

    fn unit(bytes: usize) -> Row {
        UnitRow { text: "x".repeat(bytes), ..UnitRow::default() }.into()
    }

    #[test]
    fn full_in_bytes_drops_and_counts_by_table() {
        let queue = Queue::default();
        assert!(queue.push(unit(MAX_BYTES + 1)), "one row may be larger than the bound");
        assert!(!queue.push(unit(1)));
        assert!(!queue.push(PowerRow::default().into()));
        let taken = queue.take(Duration::ZERO).unwrap();
        assert!(!queue.push(unit(1)), "rows being written still count");
        queue.written(taken.len(), taken.iter().map(|(_, weight)| weight).sum());
        assert!(queue.push(unit(1)));
        assert_eq!((queue.dropped(Table::Units), queue.dropped(Table::Power)), (2, 1));
        assert_eq!(queue.dropped(Table::Turns), 0);
    }

    #[test]
    fn full_in_rows_drops() {
        let queue = Queue::default();
        for _ in 0..MAX_ROWS {
            assert!(queue.push(PowerRow::default().into()));
        }
        assert!(!queue.push(PowerRow::default().into()));
        assert_eq!(queue.dropped(Table::Power), 1);
    }

    #[test]
    fn a_blocked_sender_goes_on_when_there_is_room_and_gives_up_when_closed() {
        let queue = Queue::default();
        assert!(queue.push(unit(MAX_BYTES + 1)));
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| queue.push_blocking(unit(1)));
            let taken = queue.take(Duration::ZERO).unwrap();
            queue.written(taken.len(), taken.iter().map(|(_, weight)| weight).sum());
            assert!(sender.join().unwrap());
        });
        assert!(queue.push(PowerRow::default().into()));
        queue.close();
        assert!(!queue.push_blocking(unit(1)));
        assert_eq!(queue.take(Duration::ZERO).map(|rows| rows.len()), Some(2));
        assert!(queue.take(Duration::ZERO).is_none());
        assert_eq!(queue.dropped(Table::Units), 1);
    }
}
