//! Writing a run directory: one thread that takes rows from a bounded queue and journals them.
//!
//! Memory does not grow with the rows written, but for 16 bytes per distinct unit: a unit that was
//! written once is not written again. What the disk refuses is lost, counted and told; the run goes on.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::close;
use super::files;
use super::journal::{Journal, Lost, Syncer, journal_path};
use super::manifest::{Manifest, manifest_path};
use super::queue::Queue;
use super::record::{Row, Table, UnitRow};
use super::resume::{self, Earlier};
use crate::api::ContentHash;
use crate::background;
use crate::error::{Error, Result};

/// Longest time that a row waits for the writer.
const PATIENCE: Duration = Duration::from_millis(50);
/// With more rows at once the writer works without a rest.
const FEW_ROWS: usize = 256;
/// A journal is written to its file when this much is pending, and whenever the queue is empty.
const FLUSH_BYTES: usize = 1 << 20;

/// Takes rows for one run; cloned freely; never blocks unless asked to.
#[derive(Debug, Clone)]
pub struct RowSender {
    queue: Arc<Queue>,
}

impl RowSender {
    /// Queues a row, or drops it when the queue is full: then the loss is counted and false returned.
    pub fn send(&self, row: impl Into<Row>) -> bool {
        self.queue.push(row.into())
    }

    /// Queues a row and waits for room. For threads that no byte waits for. False when the writer has
    /// ended.
    pub fn send_blocking(&self, row: impl Into<Row>) -> bool {
        self.queue.push_blocking(row.into())
    }

    /// Rows dropped so far, because the queue was full or the disk refused.
    pub fn dropped(&self) -> u64 {
        Table::ALL.iter().map(|table| self.queue.dropped(*table)).sum()
    }

    /// What the disk last refused, if it did.
    pub fn last_error(&self) -> Option<String> {
        self.queue.last_error()
    }
}

/// Takes rows in place of a writer, for a run whose directory another process writes.
#[derive(Debug)]
pub struct RowReceiver {
    queue: Arc<Queue>,
}

/// A queue of rows with both its ends.
pub fn row_channel() -> (RowSender, RowReceiver) {
    let queue = Arc::new(Queue::default());
    (RowSender { queue: Arc::clone(&queue) }, RowReceiver { queue })
}

impl RowReceiver {
    /// The rows that wait, without waiting for any.
    pub fn take(&self) -> Vec<Row> {
        let waiting = self.queue.take(Duration::ZERO).unwrap_or_default();
        let (rows, bytes) = (waiting.len(), waiting.iter().map(|(_, weight)| weight).sum());
        self.queue.written(rows, bytes);
        waiting.into_iter().map(|(row, _)| row).collect()
    }
}

impl Drop for RowReceiver {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The writer of one run directory. Dropped without `finish`, it leaves a run as a kill would: the
/// rows are in the journals.
#[derive(Debug)]
pub struct RunWriter {
    dir: PathBuf,
    queue: Arc<Queue>,
    manifest: Mutex<Manifest>,
    thread: Option<JoinHandle<()>>,
    /// Directories that were made for it, outermost first.
    made: Vec<PathBuf>,
    /// What the run held before, where it is gone on with.
    earlier: Option<Box<Earlier>>,
}

impl RunWriter {
    /// Creates the directory (it must not exist, or be empty), writes the manifest and starts the
    /// writer thread. What was made is removed when a step fails.
    pub fn create(dir: &Path, manifest: Manifest) -> Result<Self> {
        let made = files::claim_directory(dir)?;
        let queue = Arc::new(Queue::default());
        let started = manifest.store(dir).and_then(|()| start_thread(dir, &queue, HashSet::new()));
        match started {
            Ok(thread) => Ok(Self {
                dir: dir.to_path_buf(),
                queue,
                manifest: Mutex::new(manifest),
                thread: Some(thread),
                made,
                earlier: None,
            }),
            Err(error) => {
                let _ = std::fs::remove_file(manifest_path(dir));
                files::unclaim(&made);
                Err(error)
            }
        }
    }

    /// Goes on with a run of the same kind that ended or was killed: new rows follow the old ones, counts
    /// and lost rows add up, and a note says so. The program that wrote it must have ended.
    pub fn resume(dir: &Path, manifest: Manifest) -> Result<Self> {
        let mut earlier = resume::reopen(dir)?;
        let manifest = earlier.continued(manifest).map_err(|kind| {
            Error::config(format!("{}: holds a run of another kind, {kind}", dir.display()))
        })?;
        let queue = Arc::new(Queue::default());
        let thread = start_thread(dir, &queue, std::mem::take(&mut earlier.units))?;
        let writer = Self {
            dir: dir.to_path_buf(),
            queue,
            manifest: Mutex::new(manifest),
            thread: Some(thread),
            made: Vec::new(),
            earlier: Some(Box::new(earlier)),
        };
        writer.update_manifest(|_| ())?;
        Ok(writer)
    }

    /// A number for the first request: above those of the rows that are there.
    pub fn next_request(&self) -> u64 {
        self.earlier.as_ref().map_or(0, |earlier| earlier.next_request)
    }

    /// The run directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A sender of rows.
    pub fn sender(&self) -> RowSender {
        RowSender { queue: Arc::clone(&self.queue) }
    }

    /// Changes the manifest on disk now (engine found, settings known, counts).
    pub fn update_manifest(&self, change: impl FnOnce(&mut Manifest)) -> Result<()> {
        let mut manifest = self.manifest.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut manifest);
        self.whole(&manifest).store(&self.dir)
    }

    /// Drains the queue, turns the journals into Parquet, completes the manifest. When that fails, the
    /// journals stay and `Run::recover` can close the run later.
    pub fn finish(mut self) -> Result<Manifest> {
        self.stop_thread();
        let mut manifest =
            self.whole(&self.manifest.lock().unwrap_or_else(PoisonError::into_inner));
        close::close_tables(&self.dir, &mut manifest)?;
        Ok(manifest)
    }

    /// The manifest with what was lost, and with what an earlier part counted.
    fn whole(&self, manifest: &Manifest) -> Manifest {
        let mut manifest = Manifest { dropped: dropped(&self.queue), ..manifest.clone() };
        if let Some(earlier) = &self.earlier {
            earlier.add_counts(&mut manifest);
        }
        manifest
    }

    /// Takes away all that was written: the run did not start. One that is gone on with stays as it was.
    pub fn discard(mut self) {
        self.stop_thread();
        if self.earlier.is_some() {
            return;
        }
        for table in Table::ALL {
            let _ = std::fs::remove_file(journal_path(&self.dir, table));
        }
        let _ = std::fs::remove_file(manifest_path(&self.dir));
        files::unclaim(&self.made);
    }

    fn stop_thread(&mut self) {
        self.queue.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Drop for RunWriter {
    fn drop(&mut self) {
        self.stop_thread();
    }
}

fn dropped(queue: &Queue) -> BTreeMap<String, u64> {
    Table::ALL
        .iter()
        .map(|table| (table.stem().to_owned(), queue.dropped(*table)))
        .filter(|(_, rows)| *rows > 0)
        .collect()
}

fn start_thread(dir: &Path, queue: &Arc<Queue>, units: HashSet<u128>) -> Result<JoinHandle<()>> {
    let no_thread = |error| Error::Internal(format!("cannot start a thread: {error}"));
    let told = Arc::clone(queue);
    let journals_dir = dir.to_path_buf();
    let syncer =
        Syncer::start(move |error| told.set_last_error(error.to_string())).map_err(no_thread)?;
    let mut journals = Journals {
        dir: journals_dir,
        queue: Arc::clone(queue),
        syncer,
        open: BTreeMap::new(),
        units,
        pending_units: Vec::new(),
    };
    std::thread::Builder::new()
        .name("agentbench-writer".to_owned())
        .spawn(move || {
            background::yield_to_others();
            journals.write_until_closed();
        })
        .map_err(no_thread)
}

/// The writer thread's own state.
struct Journals {
    dir: PathBuf,
    queue: Arc<Queue>,
    syncer: Syncer,
    open: BTreeMap<Table, Journal>,
    /// Units written or about to be.
    units: HashSet<u128>,
    /// Units that the next flush writes, in order.
    pending_units: Vec<u128>,
}

impl Journals {
    fn write_until_closed(&mut self) {
        while let Some(rows) = self.queue.take(PATIENCE) {
            let (mut done_rows, mut done_bytes) = (0, 0);
            let keeps_up = rows.len() <= FEW_ROWS;
            for (row, weight) in rows {
                background::may_rest(keeps_up);
                let table = row.table();
                self.append(table, &row);
                drop(row);
                background::rest();
                (done_rows, done_bytes) = (done_rows + 1, done_bytes + weight);
                if done_bytes >= FLUSH_BYTES {
                    self.flush_all();
                    self.queue.written(done_rows, done_bytes);
                    (done_rows, done_bytes) = (0, 0);
                }
            }
            self.flush_all();
            self.queue.written(done_rows, done_bytes);
        }
    }

    fn append(&mut self, table: Table, row: &Row) {
        if let Row::Units(unit) = row {
            let hash = unit_key(unit);
            if !self.units.insert(hash) {
                return;
            }
            self.pending_units.push(hash);
        }
        if let Err(error) = self.append_new(table, row) {
            if table == Table::Units
                && let Some(hash) = self.pending_units.pop()
            {
                self.units.remove(&hash);
            }
            self.lose(table, 1, &error);
        }
    }

    fn append_new(&mut self, table: Table, row: &Row) -> std::io::Result<()> {
        if let Some(journal) = self.open.get_mut(&table) {
            return journal.append(row);
        }
        let mut journal = Journal::create(&journal_path(&self.dir, table), &self.syncer)?;
        journal.append(row)?;
        self.open.insert(table, journal);
        Ok(())
    }

    fn flush_all(&mut self) {
        let mut lost = Vec::new();
        for (table, journal) in &mut self.open {
            if let Err(loss) = journal.flush() {
                lost.push((*table, loss));
            }
        }
        for (table, Lost { rows, error }) in lost {
            if table == Table::Units {
                // A unit that was lost is written when a later turn brings it again.
                let written = self.pending_units.len() - rows;
                for hash in self.pending_units.drain(written..) {
                    self.units.remove(&hash);
                }
            }
            self.lose(table, rows as u64, &error);
        }
        self.pending_units.clear();
    }

    fn lose(&self, table: Table, rows: u64, error: &std::io::Error) {
        self.queue.count_dropped(table, rows);
        let path = journal_path(&self.dir, table);
        self.queue.set_last_error(files::write_error(&path, error).to_string());
    }
}

/// The identity of a unit: its hash, or that of its text where the row has no well-formed one.
pub(super) fn unit_key(unit: &UnitRow) -> u128 {
    u128::from_str_radix(&unit.hash, 16).unwrap_or_else(|_| ContentHash::of(unit.text.as_bytes()).0)
}
