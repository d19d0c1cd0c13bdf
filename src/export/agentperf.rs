//! agentperf-local's rows: a turn each, with its whole prompt as Chat messages.

use std::path::Path;

use serde::Serialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::chat::{self, chat_prompt};
use super::number::Plain;
use super::sessions::{Columns, Session};
use super::tally::{Part, Tally};
use super::{Source, TURNS, Writer};
use crate::error::Result;
use crate::out_file::OutFile;
use crate::trace::Run;
use crate::trace::record::ToolCallRow;

const LOST: [Part; 10] = [
    Part::Models,
    Part::Agents,
    Part::Threads,
    Part::Parents,
    Part::Kinds,
    Part::Times,
    Part::Latencies,
    Part::Cached,
    Part::Reasoning,
    Part::StopReasons,
];

#[derive(Debug, Serialize)]
struct Row<'a> {
    turn_id: u32,
    task_id: &'a str,
    conversation_id: &'a str,
    conversation_idx: usize,
    messages: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tools: Vec<Box<RawValue>>,
    simulated_tool_delay_ms_after: Option<Plain>,
    recorded_tool_calls_after: Vec<Call<'a>>,
    target_output_tokens: Option<u64>,
    recorded_prompt_tokens: Option<u64>,
    recorded_completion_tokens: Option<u64>,
}

#[derive(Debug, Serialize)]
struct Call<'a> {
    id: &'a str,
    name: &'a str,
    arguments: Value,
    duration_ms: Option<Plain>,
}

pub(super) struct Agentperf<'a> {
    file: OutFile,
    run: &'a Run,
    conversations: usize,
}

impl<'a> Agentperf<'a> {
    pub(super) fn new(source: &'a Source<'_>, out: &Path) -> Result<Self> {
        Ok(Self { file: OutFile::create(out)?, run: source.run, conversations: 0 })
    }
}

impl Writer for Agentperf<'_> {
    fn columns(&self) -> Columns {
        Columns { turns: chat::COLUMNS, calls: &["arguments"] }
    }

    fn session(&mut self, session: &Session, tally: &mut Tally) -> Result<()> {
        tally.without(session, &LOST);
        for (place, thread) in session.threads.iter().enumerate() {
            let name = session.thread_name(place);
            let mut is_told = false;
            for (at, turn) in thread.turns.iter().enumerate() {
                let Some(prompt) = chat_prompt(self.run, &turn.row)? else {
                    tally.left_out("turns whose prompt is not known as messages");
                    continue;
                };
                is_told = true;
                self.file.line(&Row {
                    turn_id: turn.row.turn,
                    task_id: &session.id,
                    conversation_id: &name,
                    conversation_idx: self.conversations,
                    messages: prompt.messages,
                    tools: prompt.tools,
                    simulated_tool_delay_ms_after: thread.wait_after_ms(at).map(Plain),
                    recorded_tool_calls_after: turn.calls.iter().map(call).collect(),
                    target_output_tokens: turn.row.osl,
                    recorded_prompt_tokens: turn.row.isl,
                    recorded_completion_tokens: turn.row.osl,
                })?;
                tally.wrote(1, TURNS);
                tally.wrote(turn.calls.len(), "tool_calls");
            }
            self.conversations += usize::from(is_told);
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.file.publish()
    }
}

fn call(call: &ToolCallRow) -> Call<'_> {
    Call {
        id: &call.call_id,
        name: &call.name,
        // Arguments are text in Chat, whatever they hold.
        arguments: Value::String(call.arguments.clone()),
        duration_ms: call.wire_ms.or(call.own_ms).map(Plain),
    }
}
