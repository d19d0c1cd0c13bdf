//! The tables of a run directory, each from its Parquet file or, where there is none, its journal.
//!
//! A journal has no links from turns to the engine's ticks, since ticks come after the turns: they are
//! worked out here when the turns are read.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use arrow_array::{
    ArrayRef, RecordBatch, RecordBatchIterator, RecordBatchReader, StringArray, UInt64Array,
};
use arrow_schema::{ArrowError, SchemaRef};

use super::files;
use super::join::{Link, Tick, TurnEnd, link_turns};
use super::journal::{JournalScan, journal_path};
use super::parquet_file::{ParquetFile, parquet_path, unreadable};
use super::record::{EngineJoin, EngineMetricsRow, Record, Table, TurnRow};
use super::row_decode::RowDecoder;
use super::schema::{schema, schema_of_columns};
use crate::error::{Error, Result};

/// Record batches on their way to a reader.
pub(super) type Batches = Box<dyn RecordBatchReader + Send>;

/// Rows on their way to a reader.
pub(super) type Rows<T> = Box<dyn Iterator<Item = Result<T>> + Send>;

/// Time between polls where the manifest does not tell.
const DEFAULT_POLL_INTERVAL_S: f64 = 0.1;

#[derive(Debug)]
enum Source {
    Parquet(ParquetFile),
    Journal(JournalScan),
}

/// The tables that a run directory has.
#[derive(Debug)]
pub(super) struct Tables {
    sources: BTreeMap<Table, Source>,
    interval_s: f64,
    links: OnceLock<Arc<[Link]>>,
}

impl Tables {
    /// Finds the tables; `journals`: also those that are not closed.
    pub(super) fn open(dir: &Path, journals: bool, poll_interval_ms: Option<f64>) -> Result<Self> {
        let mut sources = BTreeMap::new();
        for table in Table::ALL {
            let parquet = parquet_path(dir, table);
            let journal = journal_path(dir, table);
            if parquet.exists() {
                sources.insert(table, Source::Parquet(ParquetFile::open(parquet)?));
            } else if journals && journal.exists() {
                let scan = JournalScan::new(journal.clone())
                    .map_err(|error| files::read_error(&journal, &error))?;
                sources.insert(table, Source::Journal(scan));
            }
        }
        let interval_s = poll_interval_ms.map_or(DEFAULT_POLL_INTERVAL_S, |ms| ms / 1e3);
        Ok(Self { sources, interval_s, links: OnceLock::new() })
    }

    /// Tables of files that are not in their places yet.
    pub(super) fn of_files(
        paths: BTreeMap<Table, PathBuf>,
        poll_interval_ms: Option<f64>,
    ) -> Result<Self> {
        let interval_s = poll_interval_ms.map_or(DEFAULT_POLL_INTERVAL_S, |ms| ms / 1e3);
        let open = |(table, path)| Ok((table, Source::Parquet(ParquetFile::open(path)?)));
        let sources = paths.into_iter().map(open).collect::<Result<_>>()?;
        Ok(Self { sources, interval_s, links: OnceLock::new() })
    }

    /// The turns with their links to the engine's ticks worked out, whatever the file says.
    pub(super) fn linked_turns(&self) -> Result<Batches> {
        let batches = self.batches(Table::Turns)?;
        Ok(Box::new(JoinedBatches { batches, links: self.links()?, done: 0 }))
    }

    /// Rows of each table that is there.
    pub(super) fn rows(&self) -> BTreeMap<Table, u64> {
        self.sources
            .iter()
            .map(|(table, source)| match source {
                Source::Parquet(file) => (*table, file.rows()),
                Source::Journal(scan) => (*table, scan.rows),
            })
            .collect()
    }

    /// The journals that tables are read from.
    pub(super) fn journals(&self) -> impl Iterator<Item = (Table, &JournalScan)> {
        self.sources.iter().filter_map(|(table, source)| match source {
            Source::Journal(scan) => Some((*table, scan)),
            Source::Parquet(_) => None,
        })
    }

    /// The file that a table is read from.
    pub(super) fn path(&self, table: Table) -> Option<PathBuf> {
        self.sources.get(&table).map(|source| match source {
            Source::Parquet(file) => file.path().to_path_buf(),
            Source::Journal(scan) => scan.path.clone(),
        })
    }

    /// A table as batches of all its columns.
    pub(super) fn batches(&self, table: Table) -> Result<Batches> {
        self.batches_of(table, &schema(table))
    }

    /// A table as batches of some of its columns.
    pub(super) fn batches_of(&self, table: Table, schema: &SchemaRef) -> Result<Batches> {
        match self.sources.get(&table) {
            None => Ok(Box::new(RecordBatchIterator::new(std::iter::empty(), Arc::clone(schema)))),
            Some(Source::Parquet(file)) => Ok(Box::new(file.batches(schema)?)),
            Some(Source::Journal(scan)) => {
                let batches = scan.batches(schema).map_err(|error| match error {
                    // A run that still went when it was opened has been closed since.
                    ArrowError::IoError(_, source) if source.kind() == ErrorKind::NotFound => {
                        Error::trace(&scan.path, "the run was closed meanwhile; open it again")
                    }
                    error => unreadable(&scan.path, &error),
                })?;
                let joined = ["engine_row", "engine_join"]
                    .iter()
                    .any(|column| schema.field_with_name(column).is_ok());
                if table == Table::Turns && joined {
                    let links = self.links()?;
                    return Ok(Box::new(JoinedBatches { batches, links, done: 0 }));
                }
                Ok(Box::new(batches))
            }
        }
    }

    /// A table's rows as structs, of all columns or of some.
    pub(super) fn rows_as<T: Record>(&self, columns: Option<&[&str]>) -> Result<Rows<T>> {
        let schema = match columns {
            None => schema(T::TABLE),
            Some(names) => schema_of_columns(T::TABLE, names),
        };
        let path = self.path(T::TABLE).unwrap_or_default();
        let batches = self.batches_of(T::TABLE, &schema)?;
        Ok(Box::new(batches.flat_map(move |batch| {
            let decoder = batch
                .map_err(|error| unreadable(&path, &error))
                .and_then(|batch| RowDecoder::new(&batch).map_err(Error::Internal));
            let path = path.clone();
            let (decoder, failed) = match decoder {
                Ok(decoder) => (Some(decoder), None),
                Err(error) => (None, Some(Err(error))),
            };
            failed.into_iter().chain(decoder.into_iter().flat_map(move |decoder| {
                let path = path.clone();
                (0..decoder.len())
                    .map(move |row| decoder.row(row).map_err(|error| unreadable(&path, &error)))
            }))
        })))
    }

    /// The turns' links to the engine's ticks.
    fn links(&self) -> Result<Arc<[Link]>> {
        if let Some(links) = self.links.get() {
            return Ok(Arc::clone(links));
        }
        let columns = ["engine", "changes", "response_end_time", "outcome", "isl", "osl"];
        let turns = self
            .rows_as::<TurnRow>(Some(&columns))?
            .map(|turn| {
                turn.map(|turn| TurnEnd {
                    // What no engine answered ended at none.
                    end_time: turn.response_end_time.filter(|_| !turn.is_answered_locally()),
                    engine: turn.engine.map(Into::into),
                    outcome: turn.outcome,
                    isl: turn.isl,
                    osl: turn.osl,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let columns = ["engine", "ts", "window_end", "n", "isl", "osl", "scrapes_missed"];
        let ticks = self
            .rows_as::<EngineMetricsRow>(Some(&columns))?
            .map(|row| {
                row.map(|row| Tick {
                    engine: row.engine.into(),
                    ts: row.ts,
                    window_end: row.window_end,
                    n: row.n,
                    isl: row.isl,
                    osl: row.osl,
                    scrapes_missed: row.scrapes_missed,
                })
            })
            .collect::<Result<Vec<_>>>()?;
        let links = link_turns(&turns, &ticks, self.interval_s).into();
        Ok(Arc::clone(self.links.get_or_init(|| links)))
    }
}

/// Turns from a journal with their links filled in.
struct JoinedBatches<I> {
    batches: I,
    links: Arc<[Link]>,
    done: usize,
}

impl<I: RecordBatchReader> JoinedBatches<I> {
    fn join(&mut self, batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
        let links = &self.links[self.done..self.done + batch.num_rows()];
        self.done += batch.num_rows();
        let schema = batch.schema();
        let columns = batch
            .columns()
            .iter()
            .zip(schema.fields())
            .map(|(column, field)| match field.name().as_str() {
                "engine_row" => {
                    Arc::new(links.iter().map(|link| link.row).collect::<UInt64Array>())
                }
                "engine_join" => Arc::new(StringArray::from_iter_values(
                    links.iter().map(|link| join_name(link.join)),
                )) as ArrayRef,
                _ => Arc::clone(column),
            })
            .collect();
        RecordBatch::try_new(schema, columns)
    }
}

fn join_name(join: EngineJoin) -> &'static str {
    match join {
        EngineJoin::Exact => "exact",
        EngineJoin::Shared => "shared",
        EngineJoin::None => "none",
    }
}

impl<I: RecordBatchReader> Iterator for JoinedBatches<I> {
    type Item = Result<RecordBatch, ArrowError>;

    fn next(&mut self) -> Option<Self::Item> {
        let batch = self.batches.next()?;
        Some(batch.and_then(|batch| self.join(&batch)))
    }
}

impl<I: RecordBatchReader> RecordBatchReader for JoinedBatches<I> {
    fn schema(&self) -> SchemaRef {
        self.batches.schema()
    }
}
