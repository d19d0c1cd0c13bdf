//! `MLPerf` Endpoints' agentic JSONL: a row for each message of a conversation.
//!
//! A conversation only grows there. A thread whose next prompt does not begin with the one before (its agent
//! has edited or compacted the history) goes on as another conversation, which is told.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::chat::{self, ChatPrompt, chat_prompt};
use super::number::Plain;
use super::sessions::{Columns, Session, Thread, Turn, round_ms};
use super::tally::{Part, Tally};
use super::{Source, TURNS, Writer};
use crate::api::ReplyBlock;
use crate::error::Result;
use crate::out_file::OutFile;
use crate::trace::Run;

const LOST: [Part; 11] = [
    Part::Models,
    Part::Agents,
    Part::Threads,
    Part::Parents,
    Part::Kinds,
    Part::Times,
    Part::Latencies,
    Part::Tokens,
    Part::Cached,
    Part::Reasoning,
    Part::StopReasons,
];

#[derive(Debug, Default, Serialize)]
struct Row<'a> {
    conversation_id: &'a str,
    turn: usize,
    role: &'a str,
    content: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    system: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tools: Option<&'a [Box<RawValue>]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_calls: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_results: Vec<ToolResult<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_seconds: Option<Plain>,
}

#[derive(Debug, Serialize)]
struct ToolResult<'a> {
    tool_call_id: &'a str,
    content: Option<&'a RawValue>,
}

/// A Chat message, its parts as they stand.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Message<'a> {
    role: String,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<&'a RawValue>,
    tool_call_id: Option<String>,
}

pub(super) struct Mlperf<'a> {
    file: OutFile,
    run: &'a Run,
}

impl<'a> Mlperf<'a> {
    pub(super) fn new(source: &'a Source<'_>, out: &Path) -> Result<Self> {
        Ok(Self { file: OutFile::create(out)?, run: source.run })
    }

    fn thread(&mut self, name: &str, thread: &Thread, tally: &mut Tally) -> Result<()> {
        let mut conversation = Conversation::new(name);
        let mut prompts = Vec::new();
        for turn in &thread.turns {
            match chat_prompt(self.run, &turn.row)? {
                Some(prompt) => prompts.push((turn, prompt)),
                None => tally.left_out("turns whose prompt is not known as messages"),
            }
            // The answer to a turn is told as the next prompt has it, so two of them are held.
            if prompts.len() == 2 {
                let (turn, prompt) = prompts.remove(0);
                conversation.turn(turn, &prompt, Some(&prompts[0].1), &mut self.file, tally)?;
            }
        }
        match prompts.pop() {
            Some((turn, prompt)) => conversation.turn(turn, &prompt, None, &mut self.file, tally),
            None => Ok(()),
        }
    }
}

impl Writer for Mlperf<'_> {
    fn columns(&self) -> Columns {
        Columns { turns: chat::COLUMNS, calls: &[] }
    }

    fn session(&mut self, session: &Session, tally: &mut Tally) -> Result<()> {
        tally.without(session, &LOST);
        for (place, thread) in session.threads.iter().enumerate() {
            self.thread(&session.thread_name(place), thread, tally)?;
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.file.publish()
    }
}

/// A conversation being told.
struct Conversation<'a> {
    thread: &'a str,
    name: String,
    /// How many conversations the thread has come to.
    parts: usize,
    rows: usize,
    /// Messages told so far, the last answer included.
    told: usize,
    /// The last prompt's messages.
    before: Vec<String>,
}

impl<'a> Conversation<'a> {
    fn new(thread: &'a str) -> Self {
        let (before, name) = (Vec::new(), thread.to_owned());
        Self { thread, name, parts: 1, rows: 0, told: 0, before }
    }

    /// Tells what is new in a prompt, and the answer to it.
    fn turn(
        &mut self,
        turn: &Turn,
        prompt: &ChatPrompt,
        next: Option<&ChatPrompt>,
        file: &mut OutFile,
        tally: &mut Tally,
    ) -> Result<()> {
        if !begins_with(&prompt.messages, &self.before) || prompt.messages.len() < self.told {
            self.parts += 1;
            self.name = format!("{}#{}", self.thread, self.parts);
            (self.rows, self.told) = (0, 0);
            tally.left_out(
                "places where a history was edited: the thread goes on as another conversation",
            );
        }
        let wait = turn.row.tool_exec_ms.map(|ms| Plain(round_ms(ms) / 1e3));
        self.new_messages(prompt, wait, file, tally)?;
        self.before = prompt.messages.iter().map(|raw| raw.get().to_owned()).collect();
        let after = next.filter(|next| begins_with(&next.messages, &self.before));
        let recorded = after.and_then(|next| next.messages.get(self.before.len()));
        self.answer(turn, recorded.map(AsRef::as_ref), file)?;
        self.told = self.before.len() + 1;
        tally.wrote(1, TURNS);
        tally.wrote(turn.calls.len(), "tool_calls");
        Ok(())
    }

    fn new_messages(
        &mut self,
        prompt: &ChatPrompt,
        mut wait: Option<Plain>,
        file: &mut OutFile,
        tally: &mut Tally,
    ) -> Result<()> {
        let messages: Vec<Message<'_>> =
            prompt.messages[self.told..].iter().map(|raw| read(raw)).collect();
        let is_first = self.rows == 0;
        let mut rest = messages.as_slice();
        let mut system = None;
        if is_first
            && let [first, more @ ..] = rest
            && first.role == "system"
            && !more.is_empty()
            && first.content.is_some_and(|content| content.get().starts_with('"'))
        {
            (system, rest) = (first.content, more);
        }
        let mut tools = Some(prompt.tools.as_slice()).filter(|tools| is_first && !tools.is_empty());
        while let [message, more @ ..] = rest {
            let n_results = rest.iter().take_while(|message| message.role == "tool").count();
            if message.role == "assistant" {
                tally.left_out("answers that no recorded turn made: as rows they look like turns");
            }
            let results = rest[..n_results].iter().map(|result| ToolResult {
                tool_call_id: result.tool_call_id.as_deref().unwrap_or_default(),
                content: result.content,
            });
            self.rows += 1;
            file.line(&Row {
                conversation_id: &self.name,
                turn: self.rows,
                role: &message.role,
                content: message.content.filter(|_| n_results == 0),
                tool_calls: message.tool_calls,
                tool_results: results.collect(),
                system: system.take(),
                tools: tools.take(),
                delay_seconds: wait.take(),
                ..Row::default()
            })?;
            rest = if n_results > 1 { &rest[n_results..] } else { more };
        }
        Ok(())
    }

    /// The answer to a turn, as the next prompt has it or as it came.
    fn answer(
        &mut self,
        turn: &Turn,
        recorded: Option<&RawValue>,
        file: &mut OutFile,
    ) -> Result<()> {
        let blocks: Vec<ReplyBlock> =
            serde_json::from_str(&turn.row.reply_blocks).unwrap_or_default();
        let own = own_answer(&blocks);
        let own = RawValue::from_string(own.to_string()).unwrap_or_default();
        let message = recorded.map(read).filter(|message| message.role == "assistant");
        let message = message.unwrap_or_else(|| read(&own));
        let reasoning: Vec<&str> = blocks
            .iter()
            .filter_map(|block| match block {
                ReplyBlock::Reasoning { text, .. } => Some(text.as_str()),
                ReplyBlock::Text { .. } | ReplyBlock::ToolCall { .. } => None,
            })
            .collect();
        self.rows += 1;
        file.line(&Row {
            conversation_id: &self.name,
            turn: self.rows,
            role: "assistant",
            content: message.content,
            tool_calls: message.tool_calls,
            reasoning_content: (!reasoning.is_empty()).then(|| reasoning.join("\n")),
            ..Row::default()
        })
    }
}

fn read(raw: &RawValue) -> Message<'_> {
    serde_json::from_str(raw.get()).unwrap_or_default()
}

fn begins_with(messages: &[Box<RawValue>], beginning: &[String]) -> bool {
    messages.len() >= beginning.len()
        && messages.iter().zip(beginning).all(|(message, known)| message.get() == known)
}

/// What the model said, as a Chat message.
fn own_answer(blocks: &[ReplyBlock]) -> Value {
    let (mut texts, mut calls) = (Vec::new(), Vec::new());
    for block in blocks {
        match block {
            ReplyBlock::Text { text } => texts.push(text.as_str()),
            ReplyBlock::Reasoning { .. } => {}
            ReplyBlock::ToolCall { id, name, arguments } => calls.push(json!({
                "id": id, "type": "function", "function": {"name": name, "arguments": arguments},
            })),
        }
    }
    let mut message = json!({"role": "assistant", "content": texts.join("\n")});
    if !calls.is_empty() {
        message["tool_calls"] = Value::Array(calls);
    }
    message
}
