//! Closing a run directory: journals into Parquet, the manifest completed, the journals removed.
//!
//! Nothing is lost when any step fails or the process is killed in it: files are written under other
//! names and synced before they take their places, and journals go last.

use std::path::{Path, PathBuf};

use super::files;
use super::journal::journal_path;
use super::manifest::Manifest;
use super::parquet_file::{self, parquet_path};
use super::record::Table;
use super::tables::Tables;
use crate::error::{Error, Result};

/// Closes the tables of a directory and completes its manifest with the rows that they hold.
pub(super) fn close_tables(dir: &Path, manifest: &mut Manifest) -> Result<()> {
    let tables = Tables::open(dir, true, manifest.poll_interval_ms())?;
    let mut temporaries = Vec::new();
    let written = write_all(dir, &tables, &mut temporaries);
    if let Err(error) = written {
        for (temporary, _) in &temporaries {
            let _ = std::fs::remove_file(temporary);
        }
        return Err(error);
    }
    for (temporary, path) in &temporaries {
        std::fs::rename(temporary, path).map_err(|error| files::write_error(path, &error))?;
    }
    files::sync_directory(dir);
    manifest.rows =
        tables.rows().into_iter().map(|(table, rows)| (table.stem().to_owned(), rows)).collect();
    manifest.complete = true;
    manifest.store(dir)?;
    remove_journals(dir);
    Ok(())
}

/// Removes journals whose tables are closed.
pub(super) fn remove_journals(dir: &Path) {
    for table in Table::ALL {
        let _ = std::fs::remove_file(journal_path(dir, table));
    }
}

fn write_all(dir: &Path, tables: &Tables, temporaries: &mut Vec<(PathBuf, PathBuf)>) -> Result<()> {
    for (table, scan) in tables.journals() {
        let path = parquet_path(dir, table);
        let temporary = files::temporary(&path);
        temporaries.push((temporary.clone(), path));
        parquet_file::write(&temporary, table, tables.batches(table)?, &scan.path)?;
    }
    for (_, scan) in tables.journals() {
        let bytes = std::fs::metadata(&scan.path).map_or(0, |metadata| metadata.len());
        if bytes != scan.bytes {
            return Err(Error::trace(
                dir,
                "the run is still being written; end the program that writes it first",
            ));
        }
    }
    Ok(())
}
