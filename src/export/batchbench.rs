//! batchbench's manifest, version 2: a trajectory a line, which is a thread here.
//!
//! Its rules: the next prompt is at least this prompt and this output, or says `reset_before`; blocks and
//! overhead add up to the prompt; fields that are not its own are refused, so what it has no field for
//! stands in `metadata`.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::blocks::BlockNumbers;
use super::number::{self, Plain};
use super::sessions::{Session, Survey, Thread, Turn};
use super::tally::{Part, Tally};
use super::units::{Role, Units};
use super::{Source, TURNS, Writer};
use crate::error::Result;
use crate::hex::hex;
use crate::out_file::OutFile;

const LOST: [Part; 7] = [
    Part::Text,
    Part::Latencies,
    Part::Calls,
    Part::Cached,
    Part::Reasoning,
    Part::Blocks,
    Part::StopReasons,
];

#[derive(Debug, Serialize)]
struct Trajectory {
    schema_version: u32,
    trajectory_id: String,
    metadata: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    start_after_ms: Option<Plain>,
    requests: Vec<Request>,
}

/// A request; one that a manifest was read from keeps its own.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Request {
    #[serde(skip_serializing_if = "Option::is_none")]
    prompt_tokens: Option<u64>,
    output_tokens: u64,
    #[serde(serialize_with = "number::plain")]
    delay_after_ms: f64,
    reset_before: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    blocks: Vec<Block>,
    #[serde(skip_serializing_if = "Option::is_none")]
    overhead_tokens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    stream: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u64>,
}

#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct Block {
    seed: Value,
    tokens: u64,
    role: String,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    live: bool,
}

#[derive(Debug, Deserialize)]
struct Params {
    batchbench: Request,
}

pub(super) struct Batchbench<'a> {
    file: OutFile,
    blocks: BlockNumbers,
    survey: &'a Survey,
}

impl<'a> Batchbench<'a> {
    pub(super) fn new(source: &'a Source<'_>, out: &Path, tally: &mut Tally) -> Result<Self> {
        // Blocks are of any length here; the size is of no account.
        let blocks = BlockNumbers::new(1, Units::of(source.run)?);
        if source.survey.begun.is_none() {
            tally.note("start_after_ms is left out: the run has no times".to_owned());
        }
        Ok(Self { file: OutFile::create(out)?, blocks, survey: &source.survey })
    }

    fn requests(&mut self, thread: &Thread, tally: &mut Tally) -> Vec<Request> {
        let mut requests: Vec<Request> = Vec::with_capacity(thread.turns.len());
        for (at, turn) in thread.turns.iter().enumerate() {
            let (Some(isl), Some(osl)) = (turn.row.isl, turn.row.osl) else {
                tally.left_out("turns whose prompt or output tokens are not known");
                continue;
            };
            let before = requests
                .last()
                .map(|last| last.prompt_tokens.unwrap_or_default() + last.output_tokens);
            let mut request = self.request(turn, isl, osl);
            request.delay_after_ms = thread.wait_after_ms(at).unwrap_or_default();
            request.reset_before |= before.is_some_and(|before| isl < before);
            tally.wrote(usize::from(!request.blocks.is_empty()), "with_blocks");
            tally.wrote(1, TURNS);
            requests.push(request);
        }
        requests
    }

    fn request(&mut self, turn: &Turn, isl: u64, osl: u64) -> Request {
        // What a manifest said is said again.
        if let Ok(Params { batchbench: own }) = serde_json::from_str::<Params>(&turn.row.params) {
            return Request { prompt_tokens: Some(isl), output_tokens: osl, ..own };
        }
        let mut request = Request {
            prompt_tokens: Some(isl),
            output_tokens: osl,
            stream: Some(turn.row.stream),
            ..Request::default()
        };
        if let Some((pieces, rest)) = self.blocks.pieces(&turn.row) {
            let block = |piece: super::blocks::Piece| Block {
                seed: Value::String(hex(&piece.of.to_be_bytes())),
                tokens: piece.tokens,
                role: role(self.blocks.role(piece.of)).to_owned(),
                live: false,
            };
            request.blocks = pieces.into_iter().map(block).collect();
            request.overhead_tokens = Some(rest);
        }
        request
    }
}

impl Writer for Batchbench<'_> {
    fn session(&mut self, session: &Session, tally: &mut Tally) -> Result<()> {
        tally.without(session, &LOST);
        for (place, thread) in session.threads.iter().enumerate() {
            let requests = self.requests(thread, tally);
            if requests.is_empty() {
                continue;
            }
            let start = thread.begun().map(|time| Plain(self.survey.ms_after_start(time)));
            tally.wrote(1, "trajectories");
            self.file.line(&Trajectory {
                schema_version: 2,
                trajectory_id: session.thread_name(place),
                metadata: metadata(session, place),
                start_after_ms: start,
                requests,
            })?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.file.publish()
    }
}

/// What the format has no field for.
fn metadata(session: &Session, place: usize) -> Value {
    let thread = &session.threads[place];
    let parent = session.threads.iter().position(|other| Some(&other.id) == thread.parent.as_ref());
    let first = thread.turns.first().map(|turn| &turn.row);
    let mut known = Map::new();
    known.insert("session_id".to_owned(), json!(session.id));
    known.insert("kind".to_owned(), json!(thread.kind));
    let more = [
        ("parent_trajectory_id", parent.map(|parent| session.thread_name(parent))),
        ("model", first.and_then(|row| row.model.clone())),
        ("agent", first.and_then(|row| row.agent.clone())),
    ];
    for (name, value) in more {
        if let Some(value) = value {
            known.insert(name.to_owned(), Value::String(value));
        }
    }
    Value::Object(known)
}

fn role(role: Role) -> &'static str {
    match role {
        Role::Tool => "tool_definition",
        Role::System => "system",
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::ToolResult => "tool",
    }
}
