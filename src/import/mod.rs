//! Other people's recordings as a run directory.
//!
//! Reading order: `format`, `head` and `sources` (what there is), `draft` (what a reader finds), one file for
//! each format, `rows` (drafts as rows), `lacks` (what is missing for what), `work` (all of it, in order),
//! `state`, `update` and `existing` (what is new since the last time). A reader never makes up
//! what its format does not tell, and one bad record never ends an import: it is counted and listed.

// Fields are named as their formats name them.
#![allow(clippy::struct_field_names)]

mod batchbench;
mod chat_answer;
mod claude_code;
mod claude_thread;
mod codex;
mod codex_thread;
mod conversations;
mod document;
mod draft;
mod exchanges;
mod existing;
pub mod format;
mod hashed;
mod head;
mod json_text;
mod lacks;
mod lines;
mod links;
mod mini;
mod mlperf;
mod opencode;
mod opencode_store;
mod parallel;
mod parquet_rows;
pub mod problems;
mod row_source;
mod rows;
mod run_folder;
mod sources;
mod state;
mod tables;
mod times;
mod tracelab;
mod update;
mod weka;
mod work;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::clock::Clock;
use crate::error::Result;
use crate::shutdown::Shutdown;
use crate::trace::{HostInfo, Manifest};
use format::Format;
use problems::Problems;
use sources::Piece;

/// What to import.
#[derive(Debug, Clone)]
pub struct ImportConfig {
    /// Files and folders.
    pub sources: Vec<PathBuf>,
    /// The run directory to make; must not exist, or be empty.
    pub out: PathBuf,
    /// The format of all of them; none: told by each file's first records.
    pub format: Option<Format>,
    /// Name of the run; empty: one made of the time.
    pub run_id: String,
    /// Whether what an existing run at `out` lacks is added to it.
    pub update: bool,
    /// Threads that parse.
    pub threads: usize,
    /// The command line, for the manifest.
    pub argv: Vec<String>,
    /// The machine, for the manifest.
    pub host: HostInfo,
}

/// How far an import is; read while it goes.
#[derive(Debug, Default)]
pub struct ImportProgress {
    /// Pieces of work: sessions of logs, files of rows.
    pub pieces: AtomicU64,
    /// Of these, done.
    pub pieces_done: AtomicU64,
    /// Turns written.
    pub turns: AtomicU64,
    /// Tool calls written.
    pub calls: AtomicU64,
    /// Records that could not be read.
    pub problems: AtomicU64,
    /// Bytes of the files.
    pub bytes: AtomicU64,
    /// Of these, read.
    pub bytes_read: AtomicU64,
}

/// What an import came to.
#[derive(Debug)]
pub struct Imported {
    /// The run's.
    pub manifest: Manifest,
    /// Sources that were imported before and cannot be taken in again as they are now: what, and what to do.
    pub refused: Vec<String>,
    /// Whether there was anything new.
    pub is_new: bool,
}

/// Writes a run directory of what the sources hold.
///
/// # Errors
/// `Error::Config` where a source is missing or none has a turn; `Error::Cancelled` after a shutdown; what
/// the file system says. In all cases nothing is left at `out`, and an existing run there is as it was.
pub fn import(
    config: &ImportConfig,
    progress: &ImportProgress,
    shutdown: &Shutdown,
) -> Result<Imported> {
    let clock = Clock::start();
    let mut problems = Problems::default();
    let mut pieces = sources::pieces(&config.sources, config.format, &mut problems)?;
    let mut existing = None;
    if config.update && config.out.join("manifest.json").exists() {
        let mut earlier = existing::Existing::open(&config.out)?;
        let refused = earlier.reduce(&mut pieces, config.threads)?;
        if pieces.is_empty() {
            return Ok(Imported { manifest: earlier.manifest, refused, is_new: false });
        }
        existing = Some((earlier, refused));
    }
    progress.pieces.store(pieces.len() as u64, Ordering::Relaxed);
    let bytes = pieces.iter().flat_map(Piece::files).filter_map(|path| path.metadata().ok());
    progress.bytes.store(bytes.map(|meta| meta.len()).sum(), Ordering::Relaxed);
    work::Work::start(config, progress, shutdown, existing)?.run(&pieces, problems, &clock)
}

fn nothing_found(config: &ImportConfig, problems: &Problems) -> String {
    let first = problems.listed().first().map(|problem| format!("; {}", problem.told()));
    let sources: Vec<String> =
        config.sources.iter().map(|source| source.display().to_string()).collect();
    format!(
        "nothing to import in {}{}; formats are {}",
        sources.join(", "),
        first.unwrap_or_default(),
        Format::names()
    )
}
