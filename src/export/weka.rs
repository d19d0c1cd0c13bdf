//! Weka's traces (kv-cache-tester): a file for each session, subagents inside.
//!
//! Numbers of blocks are equal in all files where prompts are, which `totals` says: the format itself knows a
//! session's own numbers alone. Subagents lie in the session's own list, for tools that read these traces
//! know no subagents of subagents.

use std::collections::BTreeSet;
use std::path::Path;

use serde::Serialize;
use serde_json::{Value, json};

use super::blocks::BlockNumbers;
use super::files::{Folder, folder_name};
use super::number::Plain;
use super::sessions::{Columns, Session, Thread, Turn};
use super::tally::{Part, Tally};
use super::units::Role;
use super::{Source, TURNS, Writer};
use crate::api::ReplyBlock;
use crate::error::{Error, Result};
use crate::trace::record::TurnKind;

/// Tokens in a block of kv-cache-tester's.
const BLOCK_SIZE: u32 = 64;
const LOST: [Part; 5] = [Part::Text, Part::Agents, Part::Calls, Part::Cached, Part::Reasoning];

#[derive(Debug, Serialize)]
struct Trace<'a> {
    id: &'a str,
    models: BTreeSet<String>,
    block_size: u32,
    hash_id_scope: &'static str,
    tool_tokens: u64,
    system_tokens: u64,
    requests: Vec<Entry>,
    totals: Value,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Entry {
    Request(Request),
    Subagent(Subagent),
}

#[derive(Debug, Serialize)]
struct Request {
    t: Plain,
    #[serde(rename = "type")]
    kind: &'static str,
    model: String,
    #[serde(rename = "in")]
    input: u64,
    out: u64,
    hash_ids: Vec<u64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    output_types: Vec<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stop: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    api_time: Option<Plain>,
    #[serde(skip_serializing_if = "Option::is_none")]
    think_time: Option<Plain>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttft: Option<Plain>,
}

#[derive(Debug, Serialize)]
struct Subagent {
    t: Plain,
    #[serde(rename = "type")]
    kind: &'static str,
    agent_id: String,
    subagent_type: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    duration_ms: Option<u64>,
    total_tokens: u64,
    tool_use_count: usize,
    status: &'static str,
    requests: Vec<Request>,
    models: BTreeSet<String>,
    tool_tokens: u64,
    system_tokens: u64,
}

impl Entry {
    fn t(&self) -> f64 {
        match self {
            Self::Request(request) => request.t.0,
            Self::Subagent(subagent) => subagent.t.0,
        }
    }
}

pub(super) struct Weka {
    folder: Folder,
    blocks: BlockNumbers,
    bytes: u64,
}

impl Weka {
    pub(super) fn new(source: &Source<'_>, out: &Path, tally: &mut Tally) -> Result<Self> {
        let blocks = source.blocks(BLOCK_SIZE, tally)?;
        Ok(Self { folder: Folder::create(out)?, blocks, bytes: 0 })
    }

    fn requests(&mut self, thread: &Thread, begun: f64, tally: &mut Tally) -> Vec<Request> {
        let turns = thread.turns.iter();
        turns.filter_map(|turn| self.request(turn, begun, tally)).collect()
    }

    fn request(&mut self, turn: &Turn, begun: f64, tally: &mut Tally) -> Option<Request> {
        let row = &turn.row;
        let Some(time) = turn.request else {
            tally.left_out("turns whose time is not known");
            return None;
        };
        let (Some(input), Some(out)) = (row.isl, row.osl) else {
            tally.left_out("turns whose prompt or output tokens are not known");
            return None;
        };
        let seconds = |ms: Option<f64>| ms.map(|ms| Plain(micros(ms / 1e3)));
        let after = |time: Option<f64>| Some((time? - turn.request?) * 1e3);
        let hash_ids = self.blocks.of_full(row);
        tally.wrote(1, TURNS);
        tally.wrote(usize::from(hash_ids.is_some()), "with_block_hashes");
        Some(Request {
            t: Plain(micros(time - begun)),
            kind: if row.stream { "s" } else { "n" },
            model: row.model.clone().unwrap_or_default(),
            input,
            out,
            hash_ids: hash_ids.unwrap_or_default(),
            output_types: output_types(&row.reply_blocks),
            stop: row.stop_reason.clone(),
            api_time: seconds(row.e2e_ms.or(after(turn.end()))),
            think_time: seconds(row.tool_exec_ms),
            ttft: seconds(row.ttft_ms.or(after(turn.first_output())).filter(|_| row.stream)),
        })
    }

    /// Tokens of tools and of system text that a thread begins with.
    fn head(&mut self, thread: &Thread) -> (u64, u64) {
        let (mut tools, mut system) = (0, 0);
        let first = thread.turns.first().and_then(|turn| self.blocks.pieces(&turn.row));
        for piece in first.map(|(pieces, _)| pieces).unwrap_or_default() {
            match self.blocks.role(piece.of) {
                Role::Tool => tools += piece.tokens,
                Role::System => system += piece.tokens,
                Role::User | Role::Assistant | Role::ToolResult => break,
            }
        }
        (tools, system)
    }

    fn subagent(
        &mut self,
        session: &Session,
        thread: &Thread,
        begun: f64,
        tally: &mut Tally,
    ) -> Option<Subagent> {
        let (tool_tokens, system_tokens) = self.head(thread);
        let requests = self.requests(thread, begun, tally);
        let first = requests.first()?;
        let last = thread.turns.last()?;
        let of_session = format!("{}/", session.id);
        let ended = last.end().map(|end| end - begun);
        tally.wrote(1, "subagents");
        Some(Subagent {
            t: first.t,
            kind: "subagent",
            agent_id: thread.id.strip_prefix(&of_session).unwrap_or(&thread.id).to_owned(),
            subagent_type: if thread.kind == TurnKind::Utility { "utility" } else { "subagent" },
            duration_ms: ended.map(|end| ((end - first.t.0) * 1e3).max(0.0).round() as u64),
            total_tokens: requests.iter().map(|request| request.input + request.out).sum(),
            tool_use_count: thread.turns.iter().map(|turn| turn.calls.len()).sum(),
            status: "completed",
            models: models(&requests),
            requests,
            tool_tokens,
            system_tokens,
        })
    }
}

impl Writer for Weka {
    fn columns(&self) -> Columns {
        Columns { turns: &["reply_blocks"], calls: &[] }
    }

    fn session(&mut self, session: &Session, tally: &mut Tally) -> Result<()> {
        tally.without(session, &LOST);
        let begun = session.begun().unwrap_or_default();
        let (mut entries, mut head) = (Vec::new(), None);
        for thread in &session.threads {
            if loses_link(thread, session) {
                tally.left_out("links of subagents to what started them");
            }
            if is_root(thread, session) {
                if head.is_some() {
                    tally.left_out(
                        "conversations that stand in one list with the first of their session",
                    );
                }
                let of_thread = self.head(thread);
                head.get_or_insert(of_thread);
                let requests = self.requests(thread, begun, tally);
                entries.extend(requests.into_iter().map(Entry::Request));
            } else {
                entries.extend(self.subagent(session, thread, begun, tally).map(Entry::Subagent));
            }
        }
        if entries.is_empty() {
            return Ok(());
        }
        // A stable sort: what began at one moment stays in its order.
        entries.sort_by(|a, b| a.t().total_cmp(&b.t()));
        let (tool_tokens, system_tokens) = head.unwrap_or_default();
        let trace = Trace {
            id: &session.id,
            models: entries.iter().flat_map(of_entry).collect(),
            block_size: self.blocks.size(),
            hash_id_scope: "local",
            tool_tokens,
            system_tokens,
            requests: entries,
            totals: json!({"hash_ids_equal_across_traces": true}),
        };
        tally.wrote(1, "sessions");
        self.write(&session.id, &trace)
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.folder.publish()?;
        Ok(self.bytes)
    }
}

impl Weka {
    fn write(&mut self, session: &str, trace: &Trace<'_>) -> Result<()> {
        let text = crate::out_file::json(trace)?;
        let path = self.folder.path().join(format!("{}.json", folder_name(session)));
        std::fs::write(&path, &text).map_err(|error| Error::io(&path, error))?;
        self.bytes += text.len() as u64;
        Ok(())
    }
}

/// The conversation of the session that started this one.
fn parent<'a>(thread: &Thread, session: &'a Session) -> Option<&'a Thread> {
    let id = thread.parent.as_ref()?;
    session.threads.iter().find(|other| other.id == *id)
}

/// A conversation that nothing else of the session started.
fn is_root(thread: &Thread, session: &Session) -> bool {
    thread.kind != TurnKind::Utility && parent(thread, session).is_none()
}

/// Whether a link is lost: that of a subagent to a subagent, that to another session, that of a utility call.
fn loses_link(thread: &Thread, session: &Session) -> bool {
    let of_root = parent(thread, session).is_some_and(|parent| is_root(parent, session));
    thread.parent.is_some() && (thread.kind == TurnKind::Utility || !of_root)
}

fn of_entry(entry: &Entry) -> BTreeSet<String> {
    match entry {
        Entry::Request(request) => models(std::slice::from_ref(request)),
        Entry::Subagent(subagent) => subagent.models.clone(),
    }
}

fn models(requests: &[Request]) -> BTreeSet<String> {
    let models = requests.iter().map(|request| request.model.clone());
    models.filter(|model| !model.is_empty()).collect()
}

/// What kinds of content a reply has, as the Messages API calls them.
fn output_types(reply: &str) -> Vec<&'static str> {
    let blocks: Vec<ReplyBlock> = serde_json::from_str(reply).unwrap_or_default();
    let mut types: Vec<&'static str> = blocks
        .iter()
        .map(|block| match block {
            ReplyBlock::Text { .. } => "text",
            ReplyBlock::Reasoning { .. } => "thinking",
            ReplyBlock::ToolCall { .. } => "tool_use",
        })
        .collect();
    types.dedup();
    types
}

/// Seconds to the microsecond.
fn micros(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}
