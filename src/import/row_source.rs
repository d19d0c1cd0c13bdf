//! A file whose records stand by themselves: what is the same for all of them, its batches, their parsing.

use std::path::{Path, PathBuf};

use csv::StringRecord;

use super::document::document;
use super::draft::Drafts;
use super::format::Format;
use super::head::{Container, Head};
use super::lines::{Lines, Tally};
use super::opencode_store::Sessions;
use super::parquet_rows::ParquetRows;
use super::problems::Problems;
use super::{batchbench, conversations, exchanges, hashed, mini, opencode, tables, tracelab, weka};
use crate::error::Result;

/// Records that are parsed as one.
const BATCH_RECORDS: usize = 512;
/// The same in bytes.
const BATCH_BYTES: usize = 1 << 20;
/// What Mooncake's own traces have.
const USUAL_BLOCK_SIZE: u32 = 512;

/// A file of records.
#[derive(Debug, Clone)]
pub(super) struct RowSource {
    pub(super) path: PathBuf,
    pub(super) format: Format,
    pub(super) container: Container,
    /// What tells a document from others that take its place.
    pub(super) identity: Option<String>,
    /// Tells this file's names and hashes from those of others.
    name: String,
    /// The folder that the file lies in.
    folder: String,
    header: Option<StringRecord>,
    block_size: u32,
    pub(super) needs_block_size: bool,
}

/// Records one after another, with the number of each and where it ends.
pub(super) struct Batch {
    text: String,
    records: Vec<(u64, usize)>,
}

/// Where records come from.
enum Records {
    Lines(Box<Lines>),
    Document(std::iter::Zip<std::vec::IntoIter<String>, std::ops::RangeFrom<u64>>),
    Parquet(Box<ParquetRows>, u64),
    Sessions(Box<Sessions>, u64),
}

impl RowSource {
    pub(super) fn new(path: PathBuf, format: Format, head: Head) -> Self {
        let name_of = |path: Option<&Path>| {
            let name = path.and_then(Path::file_name);
            name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let name = name_of(Some(&path));
        let needs_block_size = head.block_size.is_none() && format.has_blocks();
        Self {
            folder: name_of(path.parent()),
            path,
            format,
            container: head.container,
            identity: head.identity,
            name: name.split('.').next().unwrap_or_default().to_owned(),
            header: head.header,
            block_size: head.block_size.unwrap_or(USUAL_BLOCK_SIZE),
            needs_block_size,
        }
    }

    /// The file's records in batches, and what is read of it meanwhile.
    pub(super) fn batches<'a>(
        &'a self,
        problems: &'a mut Problems,
        tally: &Tally,
    ) -> Result<impl Iterator<Item = Batch> + Send + 'a> {
        let mut records = self.records(problems, tally)?;
        Ok(std::iter::from_fn(move || {
            let mut batch = Batch::new();
            while batch.has_room() && records.next_into(&mut batch, &self.path, problems) {}
            batch.filled()
        }))
    }

    fn records(&self, problems: &mut Problems, tally: &Tally) -> Result<Records> {
        Ok(match self.container {
            Container::Parquet => {
                tally.whole_file(&self.path)?;
                Records::Parquet(Box::new(ParquetRows::open(&self.path)?), 0)
            }
            Container::Sqlite | Container::Storage => {
                let sessions = Sessions::open(&self.path, self.container)?;
                Records::Sessions(Box::new(sessions), 0)
            }
            Container::Document => {
                let records = document(&self.path, tally)?.unwrap_or_else(|| {
                    let what = "no whole JSON document, or one of more than 256 MB";
                    problems.add("not a document", &self.path, 0, what);
                    Vec::new()
                });
                Records::Document(records.into_iter().zip(1..))
            }
            Container::Lines => {
                let mut lines = Lines::open(&self.path, tally)?;
                if self.header.is_some() {
                    lines.next(problems);
                }
                Records::Lines(Box::new(lines))
            }
        })
    }

    /// The turns of a batch.
    pub(super) fn parse(&self, batch: &Batch) -> (Drafts, Problems) {
        let (mut drafts, mut problems) = (Drafts::default(), Problems::default());
        drafts.turns.reserve(batch.records.len());
        let mut start = 0;
        for (number, end) in &batch.records {
            let record = &batch.text[start..*end];
            start = *end;
            if let Err(what) = self.record(record, *number, &mut drafts) {
                problems.add("not a record", &self.path, *number, what);
            }
        }
        (drafts, problems)
    }

    fn record(
        &self,
        record: &str,
        number: u64,
        drafts: &mut Drafts,
    ) -> std::result::Result<(), String> {
        let by_place = || format!("{}:{number}", self.name);
        let header = || self.header.as_ref().ok_or("no header");
        match self.format {
            Format::TraceLab => tracelab::row(record, drafts),
            Format::TraceLabWorkload if self.container == Container::Parquet => {
                tables::workload_row(record, drafts)
            }
            Format::TraceLabWorkload => tables::workload(record, header()?, drafts),
            Format::BurstGpt => tables::burst(record, header()?, &by_place(), drafts),
            Format::Batchbench => batchbench::trajectory(record, drafts),
            Format::Mooncake | Format::MooncakeAgentic | Format::Bailian => {
                let place = (self.name.as_str(), number);
                hashed::row(record, place, self.format, self.block_size, drafts)
            }
            Format::Weka => weka::trace(record, (&self.name, &self.folder), drafts),
            Format::Agentperf => conversations::agentperf(record, drafts),
            Format::Messages => conversations::record(record, &by_place(), drafts),
            Format::Clawperf => exchanges::clawperf(record, &self.name, drafts),
            Format::Netpreme => exchanges::netpreme(record, &self.folder, drafts),
            Format::OpenCode => opencode::session(record, drafts),
            Format::MiniSweAgent => mini::trajectory(record, &by_place(), drafts),
            Format::ClaudeCode | Format::Codex | Format::Mlperf | Format::Run => {
                Err("no rows".to_owned())
            }
        }
    }
}

impl Records {
    /// Adds the next record; false at the end.
    fn next_into(&mut self, batch: &mut Batch, path: &Path, problems: &mut Problems) -> bool {
        let (record, number) = match self {
            Self::Lines(lines) => {
                let line = lines.next(problems);
                return line.map(|(number, line)| batch.push(number, line)).is_some();
            }
            Self::Document(records) => match records.next() {
                Some((record, number)) => (Ok(record), number),
                None => return false,
            },
            Self::Parquet(rows, number) => match rows.next() {
                Some(row) => {
                    *number += 1;
                    (row, *number)
                }
                None => return false,
            },
            Self::Sessions(sessions, number) => match sessions.next() {
                Some(told) => {
                    *number += 1;
                    for what in told.left_out {
                        problems.add("record left out", path, *number, what);
                    }
                    (told.session, *number)
                }
                None => return false,
            },
        };
        match record {
            Ok(record) => batch.push(number, &record),
            Err(what) => problems.add("file breaks off", path, number, what),
        }
        true
    }
}

impl Batch {
    fn new() -> Self {
        Self { text: String::new(), records: Vec::new() }
    }

    fn has_room(&self) -> bool {
        self.records.len() < BATCH_RECORDS && self.text.len() < BATCH_BYTES
    }

    fn push(&mut self, number: u64, record: &str) {
        self.text.push_str(record);
        self.records.push((number, self.text.len()));
    }

    fn filled(self) -> Option<Self> {
        (!self.records.is_empty()).then_some(self)
    }
}
