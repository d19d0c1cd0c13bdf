//! Weka's traces (kv-cache-tester): one record for each session, requests as block hashes, subagents inside.

use serde::Deserialize;

use super::draft::{Drafts, PromptDraft, Times, Tokens, TurnDraft};
use super::hashed::Name;
use crate::trace::record::TurnKind;

/// The size of blocks where a trace does not say.
const BLOCK_SIZE: u32 = 64;

#[derive(Debug, Deserialize)]
struct Trace {
    id: Name,
    #[serde(default)]
    block_size: Option<u32>,
    #[serde(default)]
    hash_id_scope: Option<String>,
    #[serde(default)]
    totals: Option<Totals>,
    requests: Vec<Entry>,
}

/// What an export of ours says that the format has no field for.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Totals {
    hash_ids_equal_across_traces: bool,
}

/// A request, or a subagent with its own.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Entry {
    #[serde(rename = "type")]
    kind: String,
    t: Option<f64>,
    model: Option<String>,
    #[serde(rename = "in")]
    input: Option<u64>,
    out: Option<u64>,
    hash_ids: Option<Vec<u64>>,
    stop: Option<String>,
    api_time: Option<f64>,
    ttft: Option<f64>,
    think_time: Option<f64>,
    agent_id: Option<Name>,
    subagent_type: Option<String>,
    requests: Vec<Entry>,
}

/// Reads one session.
pub(super) fn trace(
    json: &str,
    (file, folder): (&str, &str),
    drafts: &mut Drafts,
) -> Result<(), String> {
    let trace: Trace = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let session_id = trace.id.to_string();
    // Hashes are the session's own, unless the trace says that sessions share them.
    let scope = match trace.hash_id_scope.as_deref() {
        Some("global") => file.to_owned(),
        _ if trace.totals.unwrap_or_default().hash_ids_equal_across_traces => folder.to_owned(),
        _ => session_id.clone(),
    };
    let mut reader = Reader {
        session_id: session_id.clone(),
        scope,
        block_size: trace.block_size.unwrap_or(BLOCK_SIZE),
        subagents: 0,
        drafts,
    };
    reader.thread(trace.requests, (&session_id, TurnKind::Main), None);
    Ok(())
}

struct Reader<'a> {
    session_id: String,
    scope: String,
    block_size: u32,
    subagents: usize,
    drafts: &'a mut Drafts,
}

impl Reader<'_> {
    fn thread(
        &mut self,
        entries: Vec<Entry>,
        (thread_id, kind): (&str, TurnKind),
        parent: Option<&str>,
    ) {
        for entry in entries {
            if entry.kind == "subagent" {
                let name = entry.agent_id.as_ref().map(ToString::to_string);
                let name = name.unwrap_or_else(|| format!("subagent-{}", self.subagents));
                self.subagents += 1;
                let child = format!("{}/{name}", self.session_id);
                // Utility calls are started by nobody's tool.
                let (kind, parent) = match entry.subagent_type.as_deref() {
                    Some("utility") => (TurnKind::Utility, None),
                    _ => (TurnKind::Subagent, Some(thread_id)),
                };
                self.thread(entry.requests, (&child, kind), parent);
            } else {
                self.request(&entry, (thread_id, kind), parent);
            }
        }
    }

    fn request(
        &mut self,
        entry: &Entry,
        (thread_id, kind): (&str, TurnKind),
        parent: Option<&str>,
    ) {
        let after = |seconds: Option<f64>| Some(entry.t? + seconds?);
        let prompt = match &entry.hash_ids {
            Some(ids) => PromptDraft::Blocks {
                hashes: ids.iter().map(|id| format!("{}:{id}", self.scope)).collect(),
                size: self.block_size,
            },
            None => PromptDraft::Counts,
        };
        self.drafts.turns.push(TurnDraft {
            session_id: self.session_id.clone(),
            thread_id: thread_id.to_owned(),
            parent_thread_id: parent.map(str::to_owned),
            kind,
            model: entry.model.clone(),
            stream: entry.kind == "s",
            prompt,
            times: Times {
                request: entry.t,
                first_output: after(entry.ttft),
                end: after(entry.api_time),
                ..Times::default()
            },
            wait_ms: entry.think_time.map(|seconds| seconds * 1e3),
            tokens: Tokens { isl: entry.input, osl: entry.out, ..Tokens::default() },
            stop_reason: entry.stop.clone(),
            ..TurnDraft::default()
        });
    }
}
