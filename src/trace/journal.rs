//! Append-only journals: a JSON line per row, `<stem>.journal.jsonl`, while a run goes.
//!
//! A line is in the file as soon as it is written, so a killed process loses nothing that was; about
//! once a second the files are synced, so a machine that stops loses little. A write that the disk
//! refuses is cut back to the last whole line. The other half reads journals back, of a killed run or
//! of one that still goes, and tolerates lines that are not whole.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use arrow_array::{RecordBatch, RecordBatchReader};
use arrow_json::ReaderBuilder;
use arrow_json::reader::Decoder;
use arrow_schema::{ArrowError, SchemaRef};

use super::files;
use super::record::{Row, Table};
use crate::background;

/// A batch read from a journal holds at most this many rows …
const BATCH_ROWS: usize = 1024;
/// … and about this many bytes of JSON.
const BATCH_BYTES: usize = 1 << 20;
/// Time between syncs.
const SYNC_INTERVAL: Duration = Duration::from_secs(1);

/// The journal of a table in a run directory.
pub(super) fn journal_path(dir: &Path, table: Table) -> PathBuf {
    dir.join(format!("{}.journal.jsonl", table.stem()))
}

/// A file that a sync is due for after a write.
#[derive(Debug)]
struct SyncedFile {
    file: File,
    dirty: AtomicBool,
}

/// The journal of one table, being written.
#[derive(Debug)]
pub(super) struct Journal {
    handle: Arc<SyncedFile>,
    /// Bytes of whole lines in the file.
    written_bytes: u64,
    pending: Vec<u8>,
    /// Where each pending row ends.
    ends: Vec<usize>,
    /// The file ends in the middle of a line that could not be cut off.
    torn: bool,
}

/// Rows that a flush lost, the last of those pending, and why.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) rows: usize,
    pub(super) error: std::io::Error,
}

impl Journal {
    /// Opens a journal, a new one or that of a run that is gone on with.
    pub(super) fn create(path: &Path, syncer: &Syncer) -> std::io::Result<Self> {
        let file = files::append_private(path)?;
        let written_bytes = file.metadata()?.len();
        let handle = Arc::new(SyncedFile { file, dirty: AtomicBool::new(false) });
        syncer.add(Arc::clone(&handle));
        Ok(Self { handle, written_bytes, pending: Vec::new(), ends: Vec::new(), torn: false })
    }

    /// Adds a row to what the next flush writes.
    pub(super) fn append(&mut self, row: &Row) -> std::io::Result<()> {
        let start = self.pending.len();
        if let Err(error) = write_json(row, &mut self.pending) {
            self.pending.truncate(start);
            return Err(error.into());
        }
        self.pending.push(b'\n');
        self.ends.push(self.pending.len());
        Ok(())
    }

    /// Writes what is pending; returns the rows written. Rows that the disk refuses are lost.
    pub(super) fn flush(&mut self) -> Result<usize, Lost> {
        let rows = self.ends.len();
        if rows == 0 {
            return Ok(0);
        }
        let (done, outcome) = self.write_pending();
        let whole = self.ends.partition_point(|end| *end <= done);
        let whole_bytes = if whole == 0 { 0 } else { self.ends[whole - 1] };
        self.written_bytes += whole_bytes as u64;
        if outcome.is_err() && self.handle.file.set_len(self.written_bytes).is_err() {
            self.torn = true;
        }
        self.handle.dirty.store(true, Ordering::Release);
        self.pending.clear();
        // A single huge row must not keep its memory for the rest of the run.
        self.pending.shrink_to(BATCH_BYTES);
        self.ends.clear();
        match outcome {
            Ok(()) => Ok(rows),
            Err(error) => Err(Lost { rows: rows - whole, error }),
        }
    }

    /// Writes as much of the pending bytes as the disk takes.
    fn write_pending(&mut self) -> (usize, std::io::Result<()>) {
        if self.torn {
            // The broken line becomes one of its own, which readers skip.
            match (&self.handle.file).write_all(b"\n") {
                Ok(()) => self.torn = false,
                Err(error) => return (0, Err(error)),
            }
            match self.handle.file.metadata() {
                Ok(metadata) => self.written_bytes = metadata.len(),
                Err(error) => return (0, Err(error)),
            }
        }
        let mut done = 0;
        while done < self.pending.len() {
            match (&self.handle.file).write(&self.pending[done..]) {
                Ok(0) => return (done, Err(std::io::ErrorKind::WriteZero.into())),
                Ok(bytes) => done += bytes,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return (done, Err(error)),
            }
        }
        (done, Ok(()))
    }
}

pub(super) fn write_json(row: &Row, out: &mut Vec<u8>) -> serde_json::Result<()> {
    match row {
        Row::Turns(row) => serde_json::to_writer(out, row),
        Row::Units(row) => serde_json::to_writer(out, row),
        Row::ToolCalls(row) => serde_json::to_writer(out, row),
        Row::EngineMetrics(row) => serde_json::to_writer(out, row),
        Row::EngineSamples(row) => serde_json::to_writer(out, row),
        Row::Power(row) => serde_json::to_writer(out, row),
        Row::Requests(row) => serde_json::to_writer(out, row),
        Row::Trajectories(row) => serde_json::to_writer(out, row),
        Row::Levels(row) => serde_json::to_writer(out, row),
        Row::ClientSamples(row) => serde_json::to_writer(out, row),
    }
}

#[derive(Debug, Default)]
struct SyncState {
    files: Vec<Arc<SyncedFile>>,
    stopped: bool,
}

/// A thread that syncs the journals, so that a slow disk never holds up the writing of rows.
#[derive(Debug)]
pub(super) struct Syncer {
    state: Arc<(Mutex<SyncState>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Syncer {
    /// Starts the thread; `on_error` is told what the disk refused.
    pub(super) fn start(
        on_error: impl Fn(std::io::Error) + Send + 'static,
    ) -> std::io::Result<Self> {
        let state = Arc::new((Mutex::new(SyncState::default()), Condvar::new()));
        let shared = Arc::clone(&state);
        let thread =
            std::thread::Builder::new().name("agentbench-sync".to_owned()).spawn(move || {
                background::yield_to_others();
                sync_until_stopped(&shared, on_error);
            })?;
        Ok(Self { state, thread: Some(thread) })
    }

    fn add(&self, file: Arc<SyncedFile>) {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).files.push(file);
    }
}

impl Drop for Syncer {
    fn drop(&mut self) {
        self.state.0.lock().unwrap_or_else(PoisonError::into_inner).stopped = true;
        self.state.1.notify_all();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn sync_until_stopped(shared: &(Mutex<SyncState>, Condvar), on_error: impl Fn(std::io::Error)) {
    let (mutex, wake) = shared;
    loop {
        let state = mutex.lock().unwrap_or_else(PoisonError::into_inner);
        let (state, _) = wake
            .wait_timeout_while(state, SYNC_INTERVAL, |state| !state.stopped)
            .unwrap_or_else(PoisonError::into_inner);
        let (files, stopped) = (state.files.clone(), state.stopped);
        drop(state);
        for synced in files {
            if synced.dirty.swap(false, Ordering::AcqRel)
                && let Err(error) = synced.file.sync_data()
            {
                on_error(error);
            }
        }
        if stopped {
            return;
        }
    }
}

/// What a journal holds, up to its length at the time of the scan.
#[derive(Debug, Clone)]
pub(super) struct JournalScan {
    pub(super) path: PathBuf,
    /// Bytes looked at.
    pub(super) bytes: u64,
    /// Rows.
    pub(super) rows: u64,
    /// Lines, counted from 0, that are no rows: cut off by a kill or garbled by a power cut.
    pub(super) broken_lines: Vec<u64>,
}

impl JournalScan {
    /// Reads a journal through once.
    pub(super) fn new(path: PathBuf) -> std::io::Result<Self> {
        let file = File::open(&path)?;
        let bytes = file.metadata()?.len();
        let mut reader = BufReader::with_capacity(1 << 16, file.take(bytes));
        let mut scan = Self { path, bytes, rows: 0, broken_lines: Vec::new() };
        let mut line = Vec::new();
        for number in 0.. {
            line.clear();
            if reader.read_until(b'\n', &mut line)? == 0 {
                break;
            }
            if is_row(&line) {
                scan.rows += 1;
            } else {
                scan.broken_lines.push(number);
            }
        }
        Ok(scan)
    }

    /// The rows as record batches of (some of) the table's columns.
    pub(super) fn batches(&self, schema: &SchemaRef) -> Result<JournalBatches, ArrowError> {
        let file = File::open(&self.path)?;
        Ok(JournalBatches {
            reader: BufReader::with_capacity(1 << 16, file.take(self.bytes)),
            decoder: ReaderBuilder::new(Arc::clone(schema))
                .with_batch_size(BATCH_ROWS)
                .build_decoder()?,
            schema: Arc::clone(schema),
            broken_lines: self.broken_lines.clone().into_iter().peekable(),
            next_line: 0,
            line: Vec::new(),
        })
    }
}

fn is_row(line: &[u8]) -> bool {
    line.starts_with(b"{")
        && line.ends_with(b"\n")
        && std::str::from_utf8(line)
            .is_ok_and(|text| serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok())
}

/// The rows of a journal as record batches.
pub(super) struct JournalBatches {
    reader: BufReader<std::io::Take<File>>,
    decoder: Decoder,
    schema: SchemaRef,
    broken_lines: std::iter::Peekable<std::vec::IntoIter<u64>>,
    next_line: u64,
    line: Vec<u8>,
}

impl JournalBatches {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>, ArrowError> {
        let mut bytes = 0;
        while bytes < BATCH_BYTES && self.decoder.len() < BATCH_ROWS {
            self.line.clear();
            if self.reader.read_until(b'\n', &mut self.line)? == 0 {
                break;
            }
            let number = self.next_line;
            self.next_line += 1;
            if self.broken_lines.next_if_eq(&number).is_some() {
                continue;
            }
            bytes += self.line.len();
            self.decode_line()?;
        }
        self.line.shrink_to(BATCH_BYTES);
        self.decoder.flush()
    }

    fn decode_line(&mut self) -> Result<(), ArrowError> {
        // The last line of a batch is taken up to its final brace: the newline may be left over.
        let text = self.line.trim_ascii_end();
        let taken = self.decoder.decode(text)?;
        if taken == text.len() && !self.decoder.has_partial_record() {
            Ok(())
        } else {
            Err(ArrowError::JsonError(format!("line {} is not one row", self.next_line)))
        }
    }
}

impl Iterator for JournalBatches {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_batch().transpose()
    }
}

impl RecordBatchReader for JournalBatches {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }
}
