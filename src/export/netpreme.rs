//! A run written as JSON lines, in the layout and with the field names of the tools that this one grew
//! out of.
//!
//! ```text
//! OUT/run_config.json                    what the run was: its manifest, and how it was exported
//! OUT/runs/SESSION/session.json          the session: threads, counts, times
//! OUT/runs/SESSION/turn_traces.jsonl     one line per request
//! OUT/runs/SESSION/engine_metrics.jsonl  the polling ticks that the session's requests completed in
//! OUT/runs/_unassigned/engine_metrics.jsonl   ticks that no recorded request was joined to
//! ```
//!
//! A tick belongs to the engine, not to a session: one with several completions is written to every
//! session that has one of them, and its figures are means over all of them. With prompts, a file grows
//! with the square of the turns, because every line repeats all that went before; the run directory
//! itself does not. Rows are streamed; the folder appears whole or not at all.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Serialize;

use super::files::{Folder, SessionFiles};
use super::netpreme_lines::{EngineLine, SessionSummary, TurnLine};
use super::sessions::check_has_turns;
use crate::error::{Error, Result};
use crate::shutdown::Shutdown;
use crate::trace::Run;
use crate::trace::record::{EngineMetricsRow, TurnRow};

/// The folder of ticks that belong to no session.
pub(super) const UNASSIGNED: &str = "_unassigned";

/// Whether every line of `turn_traces.jsonl` carries the whole prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Prompts {
    /// `isl_text` is written: the layout as it has always been.
    #[default]
    Written,
    /// `isl_text` is null; `isl_new_text` says what each request added.
    LeftOut,
}

/// What was written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ExportCounts {
    /// Session folders.
    pub sessions: u64,
    /// Lines of `turn_traces.jsonl`, all sessions together.
    pub turns: u64,
    /// Ticks written to at least one session.
    pub engine_rows: u64,
    /// Of these, ticks written to several sessions.
    pub engine_rows_shared: u64,
    /// Ticks without a session.
    pub engine_rows_unassigned: u64,
    /// Bytes of all files.
    pub bytes: u64,
}

impl ExportCounts {
    /// The counts by name.
    pub fn named(&self) -> BTreeMap<&'static str, u64> {
        BTreeMap::from([
            ("sessions", self.sessions),
            ("turns", self.turns),
            ("engine_rows", self.engine_rows),
            ("engine_rows_shared", self.engine_rows_shared),
            ("engine_rows_unassigned", self.engine_rows_unassigned),
            ("bytes", self.bytes),
        ])
    }
}

/// Writes the run's turns and engine ticks below `out`, which must not exist, or be empty.
///
/// # Errors
/// `Error::Config` for a run without turns or an `out` that is not empty; `Error::Cancelled` after a
/// shutdown; what the run directory and the file system say. In all cases `out` stays as it was.
pub fn export_jsonl(
    run: &Run,
    out: &Path,
    prompts: Prompts,
    shutdown: &Shutdown,
) -> Result<ExportCounts> {
    check_has_turns(run)?;
    let folder = Folder::create(out)?;
    let mut export = Export {
        prompts,
        shutdown,
        files: SessionFiles::new(folder.path()),
        sessions: BTreeMap::new(),
        ticks: BTreeMap::new(),
        counts: ExportCounts::default(),
    };
    export.turns(run)?;
    export.engine(run)?;
    export.summaries()?;
    export.run_config(run)?;
    let counts = export.finish()?;
    folder.publish()?;
    Ok(counts)
}

struct Export<'a> {
    prompts: Prompts,
    shutdown: &'a Shutdown,
    files: SessionFiles,
    sessions: BTreeMap<String, SessionSummary>,
    /// Sessions by the index of the tick that their turns completed in.
    ticks: BTreeMap<u64, Vec<String>>,
    counts: ExportCounts,
}

impl Export<'_> {
    fn turns(&mut self, run: &Run) -> Result<()> {
        for turn in run.rows::<TurnRow>()? {
            if self.shutdown.is_cancelled() {
                return Err(Error::Cancelled);
            }
            let turn = turn?;
            let isl_text = match self.prompts {
                Prompts::Written => Some(run.isl_text(&turn)?),
                Prompts::LeftOut => None,
            };
            if let Some(tick) = turn.engine_row {
                let sessions = self.ticks.entry(tick).or_default();
                if !sessions.contains(&turn.session_id) {
                    sessions.push(turn.session_id.clone());
                }
            }
            let line = TurnLine::new(&turn, isl_text.as_deref());
            self.files.append(&turn.session_id, "turn_traces.jsonl", &line)?;
            self.counts.turns += 1;
            self.sessions.entry(turn.session_id.clone()).or_default().add(&turn);
        }
        Ok(())
    }

    fn engine(&mut self, run: &Run) -> Result<()> {
        for (index, tick) in run.rows::<EngineMetricsRow>()?.enumerate() {
            let tick = tick?;
            let line = EngineLine::new(&tick);
            let sessions = self.ticks.get(&(index as u64)).map_or(&[][..], Vec::as_slice);
            for session in sessions {
                self.files.append(session, "engine_metrics.jsonl", &line)?;
            }
            match sessions.len() {
                0 => {
                    self.files.append_unassigned("engine_metrics.jsonl", &line)?;
                    self.counts.engine_rows_unassigned += 1;
                }
                1 => self.counts.engine_rows += 1,
                _ => {
                    self.counts.engine_rows += 1;
                    self.counts.engine_rows_shared += 1;
                }
            }
        }
        Ok(())
    }

    fn summaries(&mut self) -> Result<()> {
        for (session_id, summary) in &self.sessions {
            // An empty file says that there was no tick, where a missing one would say nothing.
            self.files.touch(session_id, "engine_metrics.jsonl")?;
            self.files.append(session_id, "session.json", &summary.json(session_id))?;
        }
        self.counts.sessions = self.sessions.len() as u64;
        Ok(())
    }

    fn run_config(&mut self, run: &Run) -> Result<()> {
        let config = serde_json::json!({
            "format": "jsonl",
            "with_prompts": self.prompts == Prompts::Written,
            "exported_by": format!("agentbench {}", env!("CARGO_PKG_VERSION")),
            "sessions": self.counts.sessions,
            "turns": self.counts.turns,
            "run": run.manifest(),
        });
        self.files.write_root("run_config.json", &config)
    }

    fn finish(mut self) -> Result<ExportCounts> {
        self.counts.bytes = self.files.finish()?;
        Ok(self.counts)
    }
}
