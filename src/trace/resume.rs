//! Going on with a run that ended or was killed: its tables become journals again, to be appended to.
//!
//! At any moment a table is whole in its Parquet file or in its journal, so a kill in between loses nothing:
//! the next attempt begins anew.

use std::collections::{BTreeMap, HashSet};
use std::fs::OpenOptions;
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use super::files;
use super::journal::{journal_path, write_json};
use super::manifest::Manifest;
use super::parquet_file::parquet_path;
use super::record::{
    ClientSampleRow, EngineMetricsRow, EngineSampleRow, LevelRow, PowerRow, Record, RequestRow,
    Row, Table, ToolCallRow, TrajectoryRow, TurnRow, UnitRow,
};
use super::tables::Tables;
use super::writer::unit_key;
use crate::clock::unix_seconds;
use crate::error::{Error, Result};

/// Read at once when the end of a journal is looked for.
const BLOCK_BYTES: u64 = 1 << 16;

/// What a run holds already when it is gone on with.
#[derive(Debug)]
pub struct Earlier {
    /// Its manifest; `partial` when it was ever killed.
    pub manifest: Manifest,
    /// Whether it was killed, and not closed.
    pub killed: bool,
    /// Above every number in a `request_id`.
    pub next_request: u64,
    /// Units written.
    pub(super) units: HashSet<u128>,
}

impl Earlier {
    /// The manifest of the next part: what is the run's stays, what is the part's own is new. Another kind is
    /// refused with its name.
    pub(super) fn continued(&self, next: Manifest) -> std::result::Result<Manifest, String> {
        let earlier = &self.manifest;
        if earlier.kind != next.kind {
            return Err(format!("{:?}", earlier.kind).to_lowercase());
        }
        let ended = if self.killed {
            "was killed; counts but turns and requests leave out what was before"
        } else {
            "had ended"
        };
        let note = format!(
            "carried on at {:.0} (Unix time) after it {ended}",
            unix_seconds(next.clock_anchor_ns)
        );
        let mut notes = earlier.notes.clone();
        notes.push(note);
        notes.extend(next.notes);
        Ok(Manifest {
            run_id: earlier.run_id.clone(),
            argv: if earlier.argv.is_empty() { next.argv } else { earlier.argv.clone() },
            clock_anchor_ns: earlier.clock_anchor_ns,
            partial: earlier.partial,
            notes,
            ..next
        })
    }

    /// Adds what was counted before to the counts of the part that goes on; what both say is said once.
    pub(super) fn add_counts(&self, manifest: &mut Manifest) {
        let mut said = HashSet::new();
        manifest.notes.retain(|note| said.insert(note.clone()));
        for (name, count) in &self.manifest.counts {
            *manifest.counts.entry(name.clone()).or_default() += count;
        }
        for (table, rows) in &self.manifest.dropped {
            *manifest.dropped.entry(table.clone()).or_default() += rows;
        }
    }
}

/// Opens a run for appending.
pub(super) fn reopen(dir: &Path) -> Result<Earlier> {
    let mut manifest = Manifest::load(dir)?;
    let tables = Tables::open(dir, true, manifest.poll_interval_ms())?;
    let killed = !manifest.complete;
    let (next_request, units) = (next_request(&tables)?, units(&tables)?);
    if killed {
        // What a part that was killed had counted is not known but from its rows.
        manifest.partial = true;
        let turns = tables.rows().get(&Table::Turns).copied().unwrap_or(0);
        for (name, count) in [("turns", turns), ("requests", next_request)] {
            manifest.counts.insert(name.to_owned(), count);
        }
    }
    let closed: Vec<Table> =
        Table::ALL.into_iter().filter(|table| parquet_path(dir, *table).exists()).collect();
    for table in &closed {
        write_journal(dir, *table, &tables)?;
    }
    files::sync_directory(dir);
    manifest.complete = false;
    manifest.rows = BTreeMap::new();
    manifest.store(dir)?;
    for table in closed {
        let path = parquet_path(dir, table);
        std::fs::remove_file(&path).map_err(|error| files::write_error(&path, &error))?;
    }
    for table in Table::ALL {
        if cut_last_line(&journal_path(dir, table))? {
            *manifest.dropped.entry(table.stem().to_owned()).or_default() += 1;
        }
    }
    Ok(Earlier { manifest, killed, next_request, units })
}

fn next_request(tables: &Tables) -> Result<u64> {
    let mut next = 0;
    for turn in tables.rows_as::<TurnRow>(Some(&["request_id"]))? {
        let number = turn?.request_id.rsplit('-').next().and_then(|digits| digits.parse().ok());
        next = next.max(number.map_or(0, |number: u64| number + 1));
    }
    Ok(next)
}

fn units(tables: &Tables) -> Result<HashSet<u128>> {
    tables
        .rows_as::<UnitRow>(Some(&["hash"]))?
        .map(|unit| unit.map(|unit| unit_key(&unit)))
        .collect()
}

/// Writes a closed table as a journal, whole or not at all.
fn write_journal(dir: &Path, table: Table, tables: &Tables) -> Result<()> {
    let rows = match table {
        Table::Turns => lines::<TurnRow>,
        Table::Units => lines::<UnitRow>,
        Table::ToolCalls => lines::<ToolCallRow>,
        Table::EngineMetrics => lines::<EngineMetricsRow>,
        Table::EngineSamples => lines::<EngineSampleRow>,
        Table::Power => lines::<PowerRow>,
        Table::Requests => lines::<RequestRow>,
        Table::Trajectories => lines::<TrajectoryRow>,
        Table::Levels => lines::<LevelRow>,
        Table::ClientSamples => lines::<ClientSampleRow>,
    };
    let path = journal_path(dir, table);
    let temporary = files::temporary(&path);
    let refused = |error: std::io::Error| files::write_error(&path, &error);
    let written = files::create_private(&temporary).map_err(refused).and_then(|file| {
        let mut file = BufWriter::new(file);
        rows(tables, &mut file, &path)?;
        let file = file.into_inner().map_err(|error| refused(error.into_error()))?;
        file.sync_all().and_then(|()| std::fs::rename(&temporary, &path)).map_err(refused)
    });
    if written.is_err() {
        let _ = std::fs::remove_file(&temporary);
    }
    written
}

fn lines<T: Record + Into<Row>>(tables: &Tables, out: &mut dyn Write, path: &Path) -> Result<()> {
    let mut line = Vec::new();
    for row in tables.rows_as::<T>(None)? {
        line.clear();
        write_json(&row?.into(), &mut line)
            .map_err(|error| Error::Internal(format!("{}: {error}", path.display())))?;
        line.push(b'\n');
        out.write_all(&line).map_err(|error| files::write_error(path, &error))?;
    }
    Ok(())
}

/// Takes away a line that a kill cut off; true when there was one.
fn cut_last_line(path: &Path) -> Result<bool> {
    let cut = || -> std::io::Result<bool> {
        let mut file = match OpenOptions::new().read(true).write(true).open(path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            file => file?,
        };
        let bytes = file.metadata()?.len();
        let (mut end, mut block) = (bytes, Vec::new());
        // From the end backwards, to just behind the last newline.
        let whole = loop {
            if end == 0 {
                break 0;
            }
            let start = end.saturating_sub(BLOCK_BYTES);
            file.seek(SeekFrom::Start(start))?;
            block.clear();
            (&file).take(end - start).read_to_end(&mut block)?;
            if let Some(newline) = block.iter().rposition(|byte| *byte == b'\n') {
                break start + newline as u64 + 1;
            }
            end = start;
        };
        file.set_len(whole)?;
        Ok(whole < bytes)
    };
    cut().map_err(|error| files::write_error(path, &error))
}
