//! A run directory written in one go, without journals: for programs that begin anew when they are killed.
//!
//! Rows go straight into Parquet, each table encoded on a thread of its own, under temporary names; finishing puts
//! the files in their places and writes the manifest last. An existing run is rewritten the same way, from
//! those of its rows that stay and new ones. Nothing is queued beyond a few batches for each table.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use arrow_array::RecordBatch;
use arrow_schema::SchemaRef;
use parquet::arrow::arrow_writer::ArrowWriter;
use serde::{Serialize, Serializer};
use serde_arrow::ArrayBuilder;

use super::files;
use super::manifest::{Manifest, manifest_path};
use super::parquet_file::{self, ParquetFile, ROW_GROUP_BYTES, parquet_path, write_refused};
use super::queue::weight;
use super::record::{Row, Table};
use super::schema;
use super::tables::Tables;
use super::writer::unit_key;
use crate::error::{Error, Result};

/// Rows that go to a table's thread as one …
const BATCH_ROWS: usize = 1024;
/// … or as many as weigh about this much.
const BATCH_BYTES: usize = 1 << 22;
/// Batches that may wait for a table's thread.
const WAITING: usize = 2;

/// Writes one run directory.
#[derive(Debug)]
pub struct BulkWriter {
    dir: PathBuf,
    /// Directories that were made for it, outermost first.
    made: Vec<PathBuf>,
    tables: BTreeMap<Table, Feeder>,
    /// Units written.
    units: HashSet<u128>,
}

/// The way to a table's thread. Rows become columns on this side of it and at once, while they are in the processor's
/// cache, and what they hold is freed by the thread that made it: the other way round, threads wait for each other's
/// memory.
#[derive(Debug)]
struct Feeder {
    table: Table,
    schema: SchemaRef,
    builder: ArrayBuilder,
    pending_rows: usize,
    pending_bytes: usize,
    rows: u64,
    sender: SyncSender<Work>,
    thread: JoinHandle<Result<u64>>,
}

enum Work {
    New(RecordBatch),
    /// These rows of the table as it is.
    Old(ParquetFile, Vec<Range<u64>>),
}

impl BulkWriter {
    /// Claims a directory: it must not exist, or be empty but for what a killed writer of this kind left.
    pub fn create(dir: &Path) -> Result<Self> {
        if !manifest_path(dir).exists() {
            remove_temporaries(dir);
        }
        let made = files::claim_directory(dir)?;
        Ok(Self { dir: dir.to_path_buf(), made, tables: BTreeMap::new(), units: HashSet::new() })
    }

    /// Rewrites a closed run: of each table the rows `kept` stay, before all new ones. Nothing is changed
    /// before `finish`.
    pub fn rewrite(dir: &Path, kept: &BTreeMap<Table, Vec<Range<u64>>>) -> Result<Self> {
        remove_temporaries(dir);
        let mut writer = Self {
            dir: dir.to_path_buf(),
            made: Vec::new(),
            tables: BTreeMap::new(),
            units: HashSet::new(),
        };
        for (table, ranges) in kept {
            let path = parquet_path(dir, *table);
            if path.exists() {
                writer.keep(*table, ParquetFile::open(path)?, ranges)?;
            }
        }
        Ok(writer)
    }

    fn keep(&mut self, table: Table, file: ParquetFile, ranges: &[Range<u64>]) -> Result<()> {
        if table == Table::Units {
            let tables = Tables::open(&self.dir, false, None)?;
            for unit in tables.rows_as(Some(&["hash"]))? {
                self.units.insert(unit_key(&unit?));
            }
        }
        let feeder = self.feeder(table)?;
        feeder.rows += ranges.iter().map(|range| range.end - range.start).sum::<u64>();
        let _ = feeder.sender.send(Work::Old(file, ranges.to_vec()));
        Ok(())
    }

    /// Adds a row; a unit that is there already is not written again.
    pub fn push(&mut self, row: impl Into<Row>) -> Result<()> {
        let row = row.into();
        if let Row::Units(unit) = &row
            && !self.units.insert(unit_key(unit))
        {
            return Ok(());
        }
        let table = row.table();
        let feeder = self.feeder(table)?;
        if !feeder.push(&row)? {
            return Err(self.failed(table));
        }
        Ok(())
    }

    /// Rows of each table so far, old ones included.
    pub fn rows(&self) -> BTreeMap<Table, u64> {
        self.tables.iter().map(|(table, feeder)| (*table, feeder.rows)).collect()
    }

    fn feeder(&mut self, table: Table) -> Result<&mut Feeder> {
        use std::collections::btree_map::Entry;
        match self.tables.entry(table) {
            Entry::Occupied(entry) => Ok(entry.into_mut()),
            Entry::Vacant(entry) => Ok(entry.insert(Feeder::start(&self.dir, table)?)),
        }
    }

    /// Why a table's thread has ended.
    fn failed(&mut self, table: Table) -> Error {
        let ended = self.tables.remove(&table).map(|feeder| feeder.thread.join());
        match ended {
            Some(Ok(Err(error))) => error,
            _ => Error::Internal(format!("the writer of {} ended", table.stem())),
        }
    }

    /// Closes the tables, puts them in their places, lets `beside` write what lies beside them, and completes
    /// the manifest. Where a table cannot be closed, the directory is as it was.
    pub fn finish(
        mut self,
        manifest: &mut Manifest,
        beside: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let mut written = BTreeMap::new();
        for (table, mut feeder) in std::mem::take(&mut self.tables) {
            let flushed = feeder.flush();
            drop(feeder.sender);
            let rows = feeder.thread.join();
            let rows = rows.unwrap_or_else(|_| Err(Error::Internal("a writer panicked".into())));
            let rows = flushed.and(rows);
            match rows {
                Ok(rows) => written.insert(table, rows),
                Err(error) => {
                    self.discard();
                    return Err(error);
                }
            };
        }
        if let Err(error) = self.link(&written, manifest) {
            self.discard();
            return Err(error);
        }
        self.put_in_place(&written, manifest, beside)
    }

    /// Turns are linked to the engine's ticks once both are there.
    fn link(&self, written: &BTreeMap<Table, u64>, manifest: &Manifest) -> Result<()> {
        let has = |table| written.get(&table).is_some_and(|rows| *rows > 0);
        if !has(Table::Turns) || !has(Table::EngineMetrics) {
            return Ok(());
        }
        let temporary = |table| files::temporary(&parquet_path(&self.dir, table));
        let paths = [Table::Turns, Table::EngineMetrics].map(|table| (table, temporary(table)));
        let tables = Tables::of_files(paths.into(), manifest.poll_interval_ms())?;
        let turns = temporary(Table::Turns);
        let linked = files::temporary(&turns);
        parquet_file::write(&linked, Table::Turns, tables.linked_turns()?, &turns)?;
        std::fs::rename(&linked, &turns).map_err(|error| files::write_error(&turns, &error))
    }

    fn put_in_place(
        &self,
        written: &BTreeMap<Table, u64>,
        manifest: &mut Manifest,
        beside: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<()> {
        let was_complete = manifest_path(&self.dir).exists();
        if was_complete {
            // Between two tables' renames the run is neither the old one nor the new one.
            manifest.complete = false;
            manifest.store(&self.dir)?;
        }
        for table in written.keys() {
            let path = parquet_path(&self.dir, *table);
            std::fs::rename(files::temporary(&path), &path)
                .map_err(|error| files::write_error(&path, &error))?;
        }
        beside(&self.dir)?;
        files::sync_directory(&self.dir);
        manifest.rows =
            written.iter().map(|(table, rows)| (table.stem().to_owned(), *rows)).collect();
        manifest.complete = true;
        manifest.store(&self.dir)
    }

    /// Takes away all that was written.
    pub fn discard(mut self) {
        for (_, feeder) in std::mem::take(&mut self.tables) {
            drop(feeder.sender);
            let _ = feeder.thread.join();
        }
        remove_temporaries(&self.dir);
        files::unclaim(&self.made);
    }
}

fn remove_temporaries(dir: &Path) {
    for table in Table::ALL {
        let temporary = files::temporary(&parquet_path(dir, table));
        let _ = std::fs::remove_file(files::temporary(&temporary));
        let _ = std::fs::remove_file(temporary);
    }
}

impl Feeder {
    fn start(dir: &Path, table: Table) -> Result<Self> {
        let (sender, work) = sync_channel(WAITING);
        let path = files::temporary(&parquet_path(dir, table));
        let schema = schema::schema(table);
        let builder = ArrayBuilder::from_arrow(schema.fields())
            .map_err(|error| Error::Internal(error.to_string()))?;
        let thread = std::thread::Builder::new()
            .name(format!("agentbench-{}", table.stem()))
            .spawn(move || TableFile::create(path, table)?.write_all(&work))
            .map_err(|error| Error::Internal(format!("cannot start a thread: {error}")))?;
        let (pending_rows, pending_bytes) = (0, 0);
        Ok(Self { table, schema, builder, pending_rows, pending_bytes, rows: 0, sender, thread })
    }

    /// Adds a row; false where the thread has ended.
    fn push(&mut self, row: &Row) -> Result<bool> {
        if self.pending_rows == 0 {
            self.builder.reserve(BATCH_ROWS);
        }
        self.builder.push(Columns(row)).map_err(|error| self.refused(&error))?;
        self.pending_rows += 1;
        self.pending_bytes += weight(row);
        self.rows += 1;
        if self.pending_rows < BATCH_ROWS && self.pending_bytes < BATCH_BYTES {
            return Ok(true);
        }
        self.flush()
    }

    /// Hands over what is pending; false where the thread has ended.
    fn flush(&mut self) -> Result<bool> {
        if self.pending_rows == 0 {
            return Ok(true);
        }
        let columns = self.builder.to_arrow().map_err(|error| self.refused(&error))?;
        let batch = RecordBatch::try_new(SchemaRef::clone(&self.schema), columns)
            .map_err(|error| self.refused(&error))?;
        (self.pending_rows, self.pending_bytes) = (0, 0);
        Ok(self.sender.send(Work::New(batch)).is_ok())
    }

    fn refused(&self, error: &dyn std::error::Error) -> Error {
        Error::Internal(format!("{}: {error}", self.table.stem()))
    }
}

/// A table's file, on its thread.
struct TableFile {
    path: PathBuf,
    table: Table,
    writer: ArrowWriter<File>,
    rows: u64,
}

impl TableFile {
    fn create(path: PathBuf, table: Table) -> Result<Self> {
        let file =
            files::create_private(&path).map_err(|error| files::write_error(&path, &error))?;
        let schema = schema::schema(table);
        let properties = schema::writer_properties(table);
        let writer = ArrowWriter::try_new(file, schema, Some(properties))
            .map_err(|error| write_refused(&path, error))?;
        Ok(Self { path, table, writer, rows: 0 })
    }

    /// Writes what comes until nothing more can come.
    fn write_all(mut self, work: &Receiver<Work>) -> Result<u64> {
        while let Ok(work) = work.recv() {
            match work {
                Work::New(batch) => self.write(&batch)?,
                Work::Old(file, ranges) => self.copy(&file, &ranges)?,
            }
        }
        let path = self.path;
        let file = self.writer.into_inner().map_err(|error| write_refused(&path, error))?;
        file.sync_all().map_err(|error| files::write_error(&path, &error))?;
        Ok(self.rows)
    }

    fn write(&mut self, batch: &RecordBatch) -> Result<()> {
        let refused = |error| write_refused(&self.path, error);
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(refused)?;
        if self.writer.memory_size() >= ROW_GROUP_BYTES {
            self.writer.flush().map_err(refused)?;
        }
        Ok(())
    }

    fn copy(&mut self, file: &ParquetFile, ranges: &[Range<u64>]) -> Result<()> {
        let mut start = 0;
        for batch in file.batches(&schema::schema(self.table))? {
            let batch = batch.map_err(|error| parquet_file::unreadable(file.path(), &error))?;
            let end = start + batch.num_rows() as u64;
            for range in ranges {
                let (from, to) = (range.start.max(start), range.end.min(end));
                if from < to {
                    self.write(&batch.slice((from - start) as usize, (to - from) as usize))?;
                }
            }
            start = end;
        }
        Ok(())
    }
}

/// A row as its columns.
struct Columns<'a>(&'a Row);

impl Serialize for Columns<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        match self.0 {
            Row::Turns(row) => row.serialize(serializer),
            Row::Units(row) => row.serialize(serializer),
            Row::ToolCalls(row) => row.serialize(serializer),
            Row::EngineMetrics(row) => row.serialize(serializer),
            Row::EngineSamples(row) => row.serialize(serializer),
            Row::Power(row) => row.serialize(serializer),
            Row::Requests(row) => row.serialize(serializer),
            Row::Trajectories(row) => row.serialize(serializer),
            Row::Levels(row) => row.serialize(serializer),
            Row::ClientSamples(row) => row.serialize(serializer),
        }
    }
}

#[cfg(test)]
#[path = "bulk_tests.rs"]
mod tests;
