//! Reading a run directory, complete or killed.

use std::path::Path;

use arrow_array::RecordBatchReader;

use super::manifest::Manifest;
use super::record::{Record, Table, TurnRow};
use crate::error::{Error, Result};

/// An open run directory.
#[derive(Debug)]
pub struct Run {
    manifest: Manifest,
}

impl Run {
    /// Opens a directory; a killed run is recovered from its journals first.
    pub fn open(dir: &Path) -> Result<Self> {
        Err(Error::trace(dir, "being built"))
    }

    /// The manifest.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether the run has this table with at least one row.
    pub fn has(&self, table: Table) -> bool {
        let _ = table;
        false
    }

    /// The table as a stream of record batches (empty, with its schema, where the run lacks it).
    pub fn batches(&self, table: Table) -> Result<Box<dyn RecordBatchReader + Send>> {
        let _ = table;
        Err(Error::Internal("being built".into()))
    }

    /// The table's rows as structs, streamed.
    pub fn rows<T: Record>(&self) -> Result<Box<dyn Iterator<Item = Result<T>> + Send>> {
        Ok(Box::new(std::iter::empty()))
    }

    /// The text of a unit; units are loaded once, on the first call.
    pub fn unit_text(&self, hash: &str) -> Result<&str> {
        let _ = hash;
        Err(Error::Internal("being built".into()))
    }

    /// The exact bytes of the request body that a turn was made of.
    pub fn request_body(&self, turn: &TurnRow) -> Result<Vec<u8>> {
        let _ = turn;
        Err(Error::Internal("being built".into()))
    }

    /// The whole prompt of a turn as text, units in prompt order, a line each.
    pub fn isl_text(&self, turn: &TurnRow) -> Result<String> {
        let _ = turn;
        Err(Error::Internal("being built".into()))
    }
}
