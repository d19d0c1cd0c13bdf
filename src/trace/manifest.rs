//! `manifest.json`: what a run is, who made it and what is in it.
//!
//! Written first with `complete: false`, last with the counts; a run whose manifest was never
//! completed is one that was killed.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files;
use crate::error::{Error, Result};

/// The run-directory format that this crate writes; readers refuse higher ones.
pub const FORMAT_VERSION: u32 = 1;

/// What kind of run a directory holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    /// A proxy recorded agents.
    Capture,
    /// Agents worked through a set of tasks.
    Collect,
    /// A recording was sent again.
    Replay,
    /// A search for the most agents.
    Capacity,
    /// Live agents.
    Agent,
    /// Somebody else's recording.
    Import,
    /// Made by a program after published statistics.
    Synthetic,
}

/// The engine behind a run.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineInfo {
    /// Base URL, without credentials or query.
    pub url: String,
    /// `vllm`, `agentbench-simulated`, …; null when it does not tell.
    pub name: Option<String>,
    /// Its version.
    pub version: Option<String>,
    /// The model served.
    pub model: Option<String>,
    /// Longest context.
    pub max_model_len: Option<u64>,
    /// True for the embedded engine: its figures say nothing about any hardware.
    pub simulated: bool,
}

impl EngineInfo {
    /// Several engines as one: values that differ stand side by side, the shortest longest context counts,
    /// and one that is simulated makes the whole simulated.
    pub fn of_several(engines: &[Self]) -> Self {
        let all = |value: fn(&Self) -> Option<&str>| {
            let mut values: Vec<&str> = Vec::new();
            for value in engines.iter().filter_map(value) {
                if !values.contains(&value) {
                    values.push(value);
                }
            }
            (!values.is_empty()).then(|| values.join(" + "))
        };
        Self {
            url: all(|engine| Some(&engine.url)).unwrap_or_default(),
            name: all(|engine| engine.name.as_deref()),
            version: all(|engine| engine.version.as_deref()),
            model: all(|engine| engine.model.as_deref()),
            max_model_len: engines.iter().filter_map(|engine| engine.max_model_len).min(),
            simulated: engines.iter().any(|engine| engine.simulated),
        }
    }
}

/// The machine that ran agentbench.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct HostInfo {
    /// Operating system and architecture.
    pub platform: String,
    /// CPUs this process may use.
    pub cpus: u64,
    /// Physical memory.
    pub memory_bytes: Option<u64>,
}

/// The manifest.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// `FORMAT_VERSION` of the writer.
    pub format_version: u32,
    /// Kind of run.
    pub kind: RunKind,
    /// Name of the run, unique enough to tell runs of one folder apart.
    pub run_id: String,
    /// agentbench's version.
    pub tool_version: String,
    /// The command line, secrets masked; empty from a library call.
    #[serde(default)]
    pub argv: Vec<String>,
    /// The machine.
    #[serde(default)]
    pub host: HostInfo,
    /// The engine, where there is one; of several what they have in common, see [`EngineInfo::of_several`].
    #[serde(default)]
    pub engine: Option<EngineInfo>,
    /// Each of the engines, where there are several.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub engines: Vec<EngineInfo>,
    /// What was replayed or collected: path or name, and its own manifest's run id.
    #[serde(default)]
    pub dataset: Option<String>,
    /// Wall anchor of the run clock, nanoseconds since the Unix epoch.
    pub clock_anchor_ns: i64,
    /// End of the run, seconds since the Unix epoch.
    #[serde(default)]
    pub ended: Option<f64>,
    /// False until the tables are closed.
    pub complete: bool,
    /// True when the run was recovered from journals: rows of its last second may lack.
    #[serde(default)]
    pub partial: bool,
    /// True where texts were masked before they were written.
    #[serde(default)]
    pub redacted: bool,
    /// True for made-up text and times.
    #[serde(default)]
    pub synthetic: bool,
    /// Rows per table.
    #[serde(default)]
    pub rows: BTreeMap<String, u64>,
    /// Rows lost per table, because a queue was full or the disk refused.
    #[serde(default)]
    pub dropped: BTreeMap<String, u64>,
    /// Other counts: requests passed on without a row, bytes, scrapes missed, …
    #[serde(default)]
    pub counts: BTreeMap<String, u64>,
    /// The run's settings by name.
    #[serde(default)]
    pub settings: serde_json::Map<String, serde_json::Value>,
    /// What a reader of the figures must know, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Manifest {
    /// The manifest of a run that starts now.
    pub fn new(kind: RunKind, run_id: impl Into<String>, clock: &crate::clock::Clock) -> Self {
        Self {
            format_version: FORMAT_VERSION,
            kind,
            run_id: run_id.into(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
            argv: Vec::new(),
            host: HostInfo::default(),
            engine: None,
            engines: Vec::new(),
            dataset: None,
            clock_anchor_ns: clock.anchor_ns(),
            ended: None,
            complete: false,
            partial: false,
            redacted: false,
            synthetic: false,
            rows: BTreeMap::new(),
            dropped: BTreeMap::new(),
            counts: BTreeMap::new(),
            settings: serde_json::Map::new(),
            notes: Vec::new(),
        }
    }

    /// The manifest of a run directory.
    pub fn load(dir: &Path) -> Result<Self> {
        let path = manifest_path(dir);
        let bytes = std::fs::read(&path).map_err(|error| match (dir.metadata(), error.kind()) {
            (Err(_), _) => Error::trace(dir, "no such run; give the path of a run directory"),
            (Ok(metadata), _) if !metadata.is_dir() => Error::trace(
                dir,
                "not a run directory but a file; give the directory that holds manifest.json",
            ),
            (_, ErrorKind::NotFound) => {
                Error::trace(dir, "no manifest.json in it; give a directory that agentbench wrote")
            }
            _ => files::read_error(&path, &error),
        })?;
        let not_one = |error: serde_json::Error| {
            Error::trace(&path, format!("not a run's manifest ({error}); restore the file"))
        };
        let value: serde_json::Value = serde_json::from_slice(&bytes).map_err(not_one)?;
        let version = value.get("format_version").and_then(serde_json::Value::as_u64);
        if let Some(version) = version.filter(|version| *version > u64::from(FORMAT_VERSION)) {
            return Err(Error::trace(
                dir,
                format!(
                    "the run has format {version}, this agentbench reads up to {FORMAT_VERSION}; \
                     update agentbench"
                ),
            ));
        }
        serde_json::from_value(value).map_err(not_one)
    }

    /// Writes the manifest into a run directory, whole or not at all.
    pub(super) fn store(&self, dir: &Path) -> Result<()> {
        let path = manifest_path(dir);
        let mut bytes = serde_json::to_vec_pretty(self)
            .map_err(|error| Error::Internal(format!("manifest: {error}")))?;
        bytes.push(b'\n');
        files::write_whole(&path, &bytes)
    }

    /// The level at which a run without texts was published; none for a run that has its texts.
    pub(super) fn level_without_texts(&self) -> Option<&str> {
        let level = self.settings.get("published_level").and_then(serde_json::Value::as_str);
        level.filter(|level| matches!(*level, "counts" | "hashes"))
    }

    /// Time between polls, where the settings tell.
    pub(super) fn poll_interval_ms(&self) -> Option<f64> {
        self.settings.get("poll_interval_ms").and_then(serde_json::Value::as_f64)
    }
}

/// Where a run directory's manifest lies.
pub(super) fn manifest_path(dir: &Path) -> PathBuf {
    dir.join("manifest.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn several_engines_as_one() {
        let engine = |url: &str, name: &str, max: Option<u64>, simulated| EngineInfo {
            url: url.to_owned(),
            name: Some(name.to_owned()),
            version: None,
            model: Some("tiny".to_owned()),
            max_model_len: max,
            simulated,
        };
        let (a, b) = (
            engine("http://a", "vllm", Some(40), false),
            engine("http://b", "sim", Some(30), true),
        );
        assert_eq!(EngineInfo::of_several(std::slice::from_ref(&a)), a);
        let both = EngineInfo::of_several(&[a, b]);
        assert_eq!(
            both,
            EngineInfo {
                url: "http://a + http://b".to_owned(),
                name: Some("vllm + sim".to_owned()),
                version: None,
                model: Some("tiny".to_owned()),
                max_model_len: Some(30),
                simulated: true,
            }
        );
    }
}
