//! What the beginning of a file tells, read once: its container, its format, when its first record was made,
//! and what its format needs to know before the first record.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use csv::StringRecord;
use serde_json::Value;

use super::document::document;
use super::format::Format;
use super::lines::{Lines, Tally};
use super::problems::Problems;
use super::times::unix_of;
use super::{hashed, opencode_store, parquet_rows, tables};
use crate::error::{Error, Result};

/// So many lines are looked at.
const LOOKED_AT: usize = 50;
const SQLITE: &[u8] = b"SQLite format 3\0";
const PARQUET: &[u8] = b"PAR1";

/// How a file holds its records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Container {
    /// A record a line, plain or gzip.
    Lines,
    /// One JSON document over many lines.
    Document,
    /// A record a row.
    Parquet,
    /// `OpenCode`'s database.
    Sqlite,
    /// A session of `OpenCode`'s earlier folders of small files.
    Storage,
}

/// The beginning of a file.
#[derive(Debug, Clone)]
pub(super) struct Head {
    pub(super) format: Option<Format>,
    pub(super) container: Container,
    /// Of the first record that a clock stamped, of formats that are logs.
    pub(super) first_time: Option<f64>,
    /// A CSV's column names.
    pub(super) header: Option<StringRecord>,
    /// The size of blocks, where it follows from the first records.
    pub(super) block_size: Option<u32>,
    /// What tells a document from others that take its place under the same name.
    pub(super) identity: Option<String>,
    /// There is no record in it, whole or broken.
    pub(super) is_empty: bool,
}

impl Head {
    /// Of a file whose path tells it all.
    pub(super) fn of(container: Container, format: Option<Format>) -> Self {
        Self {
            format,
            container,
            first_time: None,
            header: None,
            block_size: None,
            identity: None,
            is_empty: false,
        }
    }

    /// Reads it. `forced` is the format where the user names it.
    pub(super) fn read(path: &Path, forced: Option<Format>) -> Result<Self> {
        let first = first_bytes(path)?;
        if first.starts_with(PARQUET) {
            let record = parquet_rows::first_record(path)?;
            let is_empty = record.is_none();
            let told = || Format::of_record(&serde_json::from_str(&record?).ok()?);
            return Ok(Self { is_empty, ..Self::of(Container::Parquet, forced.or_else(told)) });
        }
        if first.starts_with(SQLITE) {
            let told = opencode_store::is_opencode(path)?.then_some(Format::OpenCode);
            return Ok(Self::of(Container::Sqlite, forced.or(told)));
        }
        let mut looker = Looker::new(forced);
        let mut lines = Lines::peek(path)?;
        // What is wrong with them is told when they are read.
        let mut unheard = Problems::default();
        while looker.wants_more()
            && let Some((_, line)) = lines.next(&mut unheard)
        {
            looker.look(line);
        }
        looker.head.is_empty = looker.looked_at == 0 && unheard.total() == 0;
        looker.finish(path)
    }
}

fn first_bytes(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| Error::io(path, error))?;
    file.take(SQLITE.len() as u64)
        .read_to_end(&mut bytes)
        .map_err(|error| Error::io(path, error))?;
    Ok(bytes)
}

/// Looks at one line after another.
struct Looker {
    head: Head,
    forced: Option<Format>,
    looked_at: usize,
    rows: Vec<String>,
}

impl Looker {
    fn new(forced: Option<Format>) -> Self {
        let head = Head::of(Container::Lines, forced);
        Self { head, forced, looked_at: 0, rows: Vec::new() }
    }

    fn wants_more(&self) -> bool {
        if self.looked_at >= LOOKED_AT || self.head.container == Container::Document {
            return false;
        }
        match self.head.format {
            None => true,
            Some(format) if format.is_csv() => self.head.header.is_none() && self.looked_at == 0,
            Some(format) if format.has_blocks() => true,
            // Whether it is lines follows from the first one.
            Some(format) if format.is_rows() => self.looked_at == 0,
            Some(_) => self.head.first_time.is_none(),
        }
    }

    fn look(&mut self, line: &str) {
        let is_first = self.looked_at == 0;
        self.looked_at += 1;
        if is_first && self.is_header(line) {
            return;
        }
        let record = match serde_json::from_str::<Value>(line) {
            Ok(record) => record,
            Err(error) => {
                if is_first && error.is_eof() {
                    self.head.container = Container::Document;
                }
                return;
            }
        };
        if record.is_array() {
            if is_first {
                self.head.container = Container::Document;
            }
            return;
        }
        if self.head.format.is_none() {
            self.head.format = Format::of_record(&record);
        }
        if self.head.first_time.is_none() {
            self.head.first_time = record["timestamp"].as_str().and_then(unix_of);
        }
        if self.head.format.is_some_and(Format::has_blocks) {
            self.rows.push(line.to_owned());
        }
        if self.head.identity.is_none() {
            self.head.identity = identity(self.head.format, &record);
        }
    }

    fn is_header(&mut self, line: &str) -> bool {
        let format = self.forced.filter(|format| format.is_csv()).or_else(|| {
            (self.forced.is_none()).then(|| Format::of_header(&tables::header(line)?)).flatten()
        });
        if format.is_some() {
            self.head.format = format;
            self.head.header = tables::header(line);
        }
        format.is_some()
    }

    fn finish(mut self, path: &Path) -> Result<Head> {
        if self.head.container == Container::Document {
            let records = document(path, &Tally::default())?;
            if records.is_none() {
                // Lines all the same, the first of which is cut off.
                self.head.container = Container::Lines;
            }
            let first = records.unwrap_or_default().into_iter().next();
            if let Some(record) = first.and_then(|it| serde_json::from_str::<Value>(&it).ok()) {
                self.head.format = self.head.format.or_else(|| Format::of_record(&record));
                self.head.identity = identity(self.head.format, &record);
            }
        }
        self.head.block_size = hashed::block_size(self.rows.iter().map(String::as_str));
        Ok(self.head)
    }
}

/// A trajectory is written anew after each step, and one of another task takes its place under its name.
fn identity(format: Option<Format>, record: &Value) -> Option<String> {
    (format == Some(Format::MiniSweAgent)).then(|| super::mini::identity(record)).flatten()
}
