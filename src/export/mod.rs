//! A run in the formats of others' tools.
//!
//! Reading order: `format` (what there is), `sessions` (a run's sessions, one after another), `blocks` (prompts as
//! numbers of blocks), one file for each format, `tally` (what was written and what could not be said), `files`
//! and `sorted_lines` (what appears on disk). A writer never makes up what the run does not know: it leaves it out where the format lets it, else it leaves the turn out and says so. What `import`
//! reads back equals the run as far as the format can hold it.

// Fields are named as their formats name them.
#![allow(clippy::struct_field_names)]

mod agentperf;
mod batchbench;
mod blocks;
mod chat;
mod clawperf;
mod files;
pub mod format;
mod lanes;
mod mlperf;
mod mooncake;
mod mooncake_agentic;
mod netpreme;
mod netpreme_lines;
mod number;
mod sessions;
mod sorted_lines;
mod tally;
mod timeline;
mod tracelab;
mod units;
mod weka;
mod workload;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

pub use format::Format;
pub use netpreme::{ExportCounts, Prompts, export_jsonl};

use crate::error::{Error, Result};
use crate::shutdown::Shutdown;
use crate::trace::Run;
use blocks::BlockNumbers;
use sessions::{Columns, Session, Survey, check_has_turns, each_session};
use tally::Tally;
use units::Units;

/// What came of an export.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Exported {
    /// What was written, by its name; `bytes` are those of the text, before any compression.
    pub written: BTreeMap<&'static str, u64>,
    /// What the run has and the format cannot hold, or what lacks something that it needs.
    pub left_out: Vec<String>,
    /// What a reader of the export must know.
    pub notes: Vec<String>,
}

/// A writer of one format.
trait Writer {
    /// What else it reads.
    fn columns(&self) -> Columns {
        Columns::default()
    }

    /// Whether the format has a place for turns that no engine answered whole.
    fn tells_failures(&self) -> bool {
        false
    }

    /// Takes a session; its turns are answered ones unless the format tells failures.
    fn session(&mut self, session: &Session, tally: &mut Tally) -> Result<()>;

    /// Puts everything into its place; gives the bytes of the text.
    fn finish(self: Box<Self>) -> Result<u64>;
}

/// What writers are made of.
struct Source<'a> {
    run: &'a Run,
    survey: Survey,
}

impl Source<'_> {
    /// Numbers for blocks of the size that the recording has, or of `usual` tokens where it has none.
    fn blocks(&self, usual: u32, tally: &mut Tally) -> Result<BlockNumbers> {
        let mut sizes = self.survey.block_sizes.iter().copied();
        let size = sizes.next().unwrap_or(usual);
        if let Some(other) = sizes.next() {
            return Err(Error::config(format!(
                "run {} has hashes of blocks of {size} and of {other} tokens, and the format has one size; \
                 import the sources one by one",
                self.run.manifest().run_id
            )));
        }
        if size != usual {
            tally.note(format!("blocks are of {size} tokens, as recorded"));
        }
        Ok(BlockNumbers::new(size, Units::of(self.run)?))
    }
}

/// Writes a run in a format at `out`: a folder, or a file (gzip where its name ends in `.gz`).
///
/// # Errors
/// `Error::Config` where the run has nothing that the format can hold, or something lies at `out`;
/// `Error::Cancelled` after a shutdown; what the run directory and the file system say. In all cases
/// `out` stays as it was.
pub fn export(run: &Run, format: Format, out: &Path, shutdown: &Shutdown) -> Result<Exported> {
    if format == Format::Timeline {
        return timeline::export(run, out, shutdown);
    }
    check_has_turns(run)?;
    if format == Format::Netpreme {
        let counts = export_jsonl(run, out, Prompts::Written, shutdown)?;
        return Ok(Exported { written: counts.named(), ..Exported::default() });
    }
    let mut tally = Tally::default();
    let source = Source { run, survey: Survey::of(run, shutdown)? };
    let mut writer = writer(&source, format, out, &mut tally)?;
    let columns = writer.columns();
    each_session(run, &source.survey, columns, shutdown, |mut session| {
        if !writer.tells_failures() {
            session.keep_answered(&mut tally);
        }
        if session.threads.is_empty() {
            return Ok(());
        }
        writer.session(&session, &mut tally)
    })?;
    if tally.written().get(TURNS).copied().unwrap_or_default() == 0 {
        return Err(Error::config(format!(
            "run {} has nothing that {} can hold: {}",
            run.manifest().run_id,
            format.as_str(),
            tally.told().join(", ")
        )));
    }
    let mut written = tally.written();
    written.insert("bytes", writer.finish()?);
    Ok(Exported { written, left_out: tally.told(), notes: tally.notes() })
}

/// The name that every writer counts turns under.
const TURNS: &str = "turns";

fn writer<'a>(
    source: &'a Source<'a>,
    format: Format,
    out: &Path,
    tally: &mut Tally,
) -> Result<Box<dyn Writer + 'a>> {
    Ok(match format {
        Format::TraceLab => Box::new(tracelab::TraceLab::new(out)?),
        Format::TraceLabWorkload => Box::new(workload::Workload::new(source, out)?),
        Format::Batchbench => Box::new(batchbench::Batchbench::new(source, out, tally)?),
        Format::Mooncake => Box::new(mooncake::Mooncake::new(source, out, tally)?),
        Format::MooncakeAgentic => {
            Box::new(mooncake_agentic::MooncakeAgentic::new(source, out, tally)?)
        }
        Format::Agentperf => Box::new(agentperf::Agentperf::new(source, out)?),
        Format::Clawperf => Box::new(clawperf::Clawperf::new(source, out, tally)?),
        Format::Mlperf => Box::new(mlperf::Mlperf::new(source, out)?),
        Format::Weka => Box::new(weka::Weka::new(source, out, tally)?),
        other => return Err(Error::Internal(format!("no writer of {}", other.as_str()))),
    })
}
