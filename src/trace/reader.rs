//! Reading a run directory, complete, killed or still being written.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use arrow_array::RecordBatchReader;

use super::close;
use super::manifest::{Manifest, RunKind};
use super::parquet_file::parquet_path;
use super::record::{Record, Table, TurnRow, UnitRow};
use super::tables::Tables;
use crate::api;
use crate::clock::Clock;
use crate::error::{Error, Result};

/// An open run directory. Nothing is written to it: a run that was killed is read straight from its
/// journals, a run that still goes up to what it had written when it was opened.
#[derive(Debug)]
pub struct Run {
    dir: PathBuf,
    manifest: Manifest,
    tables: Tables,
    units: OnceLock<HashMap<u128, Unit>>,
}

/// What is kept of a row of `messages`.
#[derive(Debug)]
struct Unit {
    text: Box<str>,
    n_bytes: u64,
}

impl Run {
    /// Opens a directory. Of a run that was not closed, `manifest().partial` is true, and its rows and
    /// dropped rows are counted from what the journals hold.
    pub fn open(dir: &Path) -> Result<Self> {
        let mut manifest = Manifest::load(dir)?;
        let tables = Tables::open(dir, !manifest.complete, manifest.poll_interval_ms())?;
        if manifest.complete {
            check_files(dir, &manifest)?;
        } else {
            count_partial(&mut manifest, &tables);
        }
        Ok(Self { dir: dir.to_path_buf(), manifest, tables, units: OnceLock::new() })
    }

    /// Opens a folder that holds closed tables alone, without a manifest.
    pub fn of_tables(dir: &Path) -> Result<Self> {
        let tables = Tables::open(dir, false, None)?;
        let manifest = Manifest::new(RunKind::Import, "", &Clock::start());
        Ok(Self { dir: dir.to_path_buf(), manifest, tables, units: OnceLock::new() })
    }

    /// Closes a run that was killed, for good: its journals become Parquet, its manifest complete and
    /// partial. The program that wrote it must have ended. A complete run is opened as it is.
    pub fn recover(dir: &Path) -> Result<Self> {
        let mut manifest = Manifest::load(dir)?;
        if manifest.complete {
            close::remove_journals(dir);
        } else {
            let tables = Tables::open(dir, true, manifest.poll_interval_ms())?;
            count_partial(&mut manifest, &tables);
            close::close_tables(dir, &mut manifest)?;
        }
        Self::open(dir)
    }

    /// The directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Rows in a table.
    pub fn row_count(&self, table: Table) -> u64 {
        self.tables.rows().get(&table).copied().unwrap_or(0)
    }

    /// Whether the run has this table with at least one row.
    pub fn has(&self, table: Table) -> bool {
        self.row_count(table) > 0
    }

    /// The table as a stream of record batches (empty, with its schema, where the run lacks it).
    pub fn batches(&self, table: Table) -> Result<Box<dyn RecordBatchReader + Send>> {
        self.tables.batches(table)
    }

    /// The table's rows as structs, streamed.
    pub fn rows<T: Record>(&self) -> Result<Box<dyn Iterator<Item = Result<T>> + Send>> {
        self.tables.rows_as(None)
    }

    /// The same with only some columns read: the other fields have their defaults.
    pub fn rows_of_columns<T: Record>(
        &self,
        columns: &[&str],
    ) -> Result<Box<dyn Iterator<Item = Result<T>> + Send>> {
        self.tables.rows_as(Some(columns))
    }

    /// The text of a unit; units are loaded once, on the first call.
    pub fn unit_text(&self, hash: &str) -> Result<&str> {
        self.unit(hash).map(|unit| unit.text.as_ref())
    }

    /// The length of a unit's text as it was recorded, also where a published run holds less of it.
    pub fn unit_bytes(&self, hash: &str) -> Result<u64> {
        self.unit(hash).map(|unit| unit.n_bytes)
    }

    fn unit(&self, hash: &str) -> Result<&Unit> {
        let missing = || {
            Error::trace(
                &self.dir,
                format!("unit {hash} is not in the run: its row was dropped; see the manifest"),
            )
        };
        let key = u128::from_str_radix(hash, 16).map_err(|_| missing())?;
        self.units()?.get(&key).ok_or_else(missing)
    }

    /// Loads the texts of all units, so that the first `unit_text` need not.
    pub fn load_units(&self) -> Result<()> {
        self.units().map(drop)
    }

    fn units(&self) -> Result<&HashMap<u128, Unit>> {
        if let Some(units) = self.units.get() {
            return Ok(units);
        }
        let mut units = HashMap::new();
        for row in self.rows_of_columns::<UnitRow>(&["hash", "text", "n_bytes"])? {
            let row = row?;
            if let Ok(key) = u128::from_str_radix(&row.hash, 16) {
                let text = row.text.into_boxed_str();
                units.insert(key, Unit { text, n_bytes: row.n_bytes });
            }
        }
        Ok(self.units.get_or_init(|| units))
    }

    /// The exact bytes of the request body that a turn was made of.
    pub fn request_body(&self, turn: &TurnRow) -> Result<Vec<u8>> {
        let units = self.texts_of(turn)?;
        api::rebuild_body(&turn.body_template, &units).map_err(|message| {
            Error::trace(&self.dir, format!("request {}: {message}", turn.request_id))
        })
    }

    /// The whole prompt of a turn as text, units in prompt order, a line each; a raw prompt as the JSON
    /// value that was sent.
    pub fn isl_text(&self, turn: &TurnRow) -> Result<String> {
        let separator = api::Api::from_name(&turn.api).map_or("\n", api::Api::unit_separator);
        Ok(self.texts_of(turn)?.join(separator))
    }

    fn texts_of(&self, turn: &TurnRow) -> Result<Vec<&str>> {
        if let Some(level) = self.manifest.level_without_texts() {
            return Err(Error::trace(
                &self.dir,
                format!("the run was published at level {level}, which holds no texts"),
            ));
        }
        turn.unit_hashes.iter().map(|hash| self.unit_text(hash)).collect()
    }
}

/// A complete run whose manifest speaks of rows that no file holds has lost the file.
fn check_files(dir: &Path, manifest: &Manifest) -> Result<()> {
    for table in Table::ALL {
        let path = parquet_path(dir, table);
        if manifest.rows.get(table.stem()).is_some_and(|rows| *rows > 0) && !path.exists() {
            return Err(Error::trace(path, "missing; copy the whole run directory again"));
        }
    }
    Ok(())
}

/// What a run that was not closed holds.
fn count_partial(manifest: &mut Manifest, tables: &Tables) {
    manifest.partial = true;
    manifest.rows =
        tables.rows().into_iter().map(|(table, rows)| (table.stem().to_owned(), rows)).collect();
    for (table, scan) in tables.journals() {
        if !scan.broken_lines.is_empty() {
            *manifest.dropped.entry(table.stem().to_owned()).or_default() +=
                scan.broken_lines.len() as u64;
        }
    }
}
