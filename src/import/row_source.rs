//! A file whose records stand by themselves: what is the same for all of them, its batches, their parsing.

use std::path::{Path, PathBuf};

use csv::StringRecord;

use super::document::document;
use super::draft::Drafts;
use super::format::Format;
use super::lines::Lines;
use super::problems::Problems;
use super::{batchbench, conversations, exchanges, hashed, tables, tracelab, weka};
use crate::error::Result;

/// Records that are parsed as one.
const BATCH_RECORDS: usize = 512;
/// The same in bytes.
const BATCH_BYTES: usize = 1 << 20;
/// What Mooncake's own traces have.
const USUAL_BLOCK_SIZE: u32 = 512;

/// A file of records.
pub(super) struct RowSource {
    path: PathBuf,
    format: Format,
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

impl RowSource {
    pub(super) fn open(path: &Path, format: Format) -> Result<Self> {
        let name_of = |path: Option<&Path>| {
            let name = path.and_then(Path::file_name);
            name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
        };
        let name = name_of(Some(path));
        let block_size = format.block_size(path)?;
        let header = if format.is_csv() {
            let mut unheard = Problems::default();
            let mut lines = Lines::open(path)?;
            lines.next(&mut unheard).and_then(|(_, line)| tables::header(line))
        } else {
            None
        };
        Ok(Self {
            path: path.to_owned(),
            format,
            name: name.split('.').next().unwrap_or_default().to_owned(),
            folder: name_of(path.parent()),
            header,
            block_size: block_size.unwrap_or(USUAL_BLOCK_SIZE),
            needs_block_size: block_size.is_none()
                && matches!(format, Format::Mooncake | Format::MooncakeAgentic | Format::Bailian),
        })
    }

    /// The file's records in batches.
    pub(super) fn batches<'a>(
        &self,
        problems: &'a mut Problems,
    ) -> Result<Box<dyn Iterator<Item = Batch> + Send + 'a>> {
        let mut lines = Lines::open(&self.path)?;
        if self.header.is_some() {
            lines.next(problems);
        } else if self.is_document()?
            && let Some(records) = document(&self.path)?
        {
            let mut records = records.into_iter().zip(1_u64..);
            return Ok(Box::new(std::iter::from_fn(move || {
                let mut batch = Batch::new();
                while batch.has_room()
                    && let Some((record, number)) = records.next()
                {
                    batch.push(number, &record);
                }
                batch.filled()
            })));
        }
        Ok(Box::new(std::iter::from_fn(move || {
            let mut batch = Batch::new();
            while batch.has_room()
                && let Some((number, line)) = lines.next(problems)
            {
                batch.push(number, line);
            }
            batch.filled()
        })))
    }

    /// Whether the first line is no record by itself.
    fn is_document(&self) -> Result<bool> {
        let mut unheard = Problems::default();
        let mut lines = Lines::open(&self.path)?;
        let first = lines.next(&mut unheard);
        Ok(first.is_some_and(|(_, line)| {
            line.starts_with('[') || serde_json::from_str::<serde::de::IgnoredAny>(line).is_err()
        }))
    }

    /// The turns of a batch.
    pub(super) fn parse(&self, batch: &Batch) -> (Drafts, Problems) {
        let (mut drafts, mut problems) = (Drafts::default(), Problems::default());
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
            Format::ClaudeCode | Format::Codex | Format::Mlperf => Err("no rows".to_owned()),
        }
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
