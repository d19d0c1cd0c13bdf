//! One planned session as rows: the plan's counts become text, the text becomes request bodies, and
//! the rows are read off those bodies as they would be off a real agent's.
//!
//! Token counts are the bytes of the units' text, in groups of 4, so they belong to the text that is
//! there; times are the plan's.

use crate::api::{Reply, ReplyBlock, parse_request};
use crate::error::{Error, Result};
use crate::synthesize::plan::{
    CallPlan, Cause, Form, SessionPlan, ThreadPlan, ThreadRole, TurnPlan,
};
use crate::synthesize::planner::generator;
use crate::synthesize::profile::Profile;
use crate::synthesize::rows::{SessionRows, TurnParts, UnitsKnown};
use crate::synthesize::text::Author;
use crate::synthesize::tools::{self, ToolDefinition};
use crate::synthesize::wire::{WireCall, WireConversation, WireResult};
use crate::trace::Row;

const COMPACTION: &str = "Write a summary of this conversation for somebody who goes on with the \
    work and sees nothing but your summary. Say what the user asked for, which files were read and \
    changed and why, which commands were run and what they showed, what failed, what is done and \
    what is still to be done. Keep names of files and functions exact. Do not call any tool.";
const CONTINUED: &str = "This conversation goes on from an earlier one that became too long. Its \
    summary follows.";

/// What all sessions of a profile share, so that their prompts begin alike.
#[derive(Debug)]
pub(crate) struct SharedPrompt {
    system: String,
    subagent_system: String,
    tools: Vec<ToolDefinition>,
}

impl SharedPrompt {
    pub(crate) fn new(profile: &Profile) -> Self {
        let mut author = Author::shared(0);
        let rules = "You are a coding agent. You work in the user's project with the tools below.";
        let system = author.rules(rules, profile.system_tokens - 9);
        let rules = "You are a subagent. Do the one task below and report what you found.";
        let subagent_system = author.rules(rules, profile.system_tokens / 2 - 9);
        Self {
            system,
            subagent_system,
            tools: tools::definitions(&mut author, profile.tools_tokens),
        }
    }
}

/// Turns plans into rows, session after session.
#[derive(Debug)]
pub(crate) struct SessionWriter<'a> {
    profile: &'a Profile,
    shared: SharedPrompt,
    run_id: &'a str,
    seed: u64,
    known: UnitsKnown,
}

impl<'a> SessionWriter<'a> {
    pub(crate) fn new(profile: &'a Profile, run_id: &'a str, seed: u64) -> Self {
        let shared = SharedPrompt::new(profile);
        Self { profile, shared, run_id, seed, known: UnitsKnown::default() }
    }

    /// The rows of a session that starts at `start_ns`: turns and tool calls by time, then the units
    /// that no session before had.
    pub(crate) fn rows(&mut self, plan: &SessionPlan, start_ns: i64) -> Result<Vec<Row>> {
        let mut author = Author::new(generator(self.seed, plan.index, 1));
        let title = format!("Notes on the project {}.", author.project());
        let notes = author.rules(&title, self.profile.notes_tokens);
        let session_id = format!("synthetic-{:05}", plan.index);
        let rows = SessionRows::new(self.run_id, &session_id, plan, start_ns, &mut self.known);
        let (profile, shared) = (self.profile, &self.shared);
        let mut script = Script { profile, shared, session_id, plan, author, notes, rows };
        let mut summary = String::new();
        for (index, thread) in plan.threads.iter().enumerate() {
            if !matches!(thread.role, ThreadRole::Subagent { .. }) {
                summary = script.thread(index, &summary)?;
            }
        }
        Ok(script.rows.finish())
    }
}

/// A session being written.
struct Script<'a> {
    profile: &'a Profile,
    shared: &'a SharedPrompt,
    session_id: String,
    plan: &'a SessionPlan,
    author: Author,
    notes: String,
    rows: SessionRows<'a>,
}

impl Script<'_> {
    /// Writes a conversation; `brief` is the summary or the task it starts from. Gives the text of its
    /// last reply.
    fn thread(&mut self, index: usize, brief: &str) -> Result<String> {
        let plan = self.plan;
        let thread = &plan.threads[index];
        let mut conversation = self.conversation(thread);
        let mut results: Vec<WireResult> = Vec::new();
        let mut last_text = String::new();
        for (turn_index, turn) in thread.turns.iter().enumerate() {
            self.ask(&mut conversation, turn, &results, brief);
            let body = conversation.body();
            let parsed = parse_request(plan.form.api(), &body)
                .map_err(|error| Error::Internal(format!("synthetic request: {error}")))?;
            let (text, calls) = self.reply(turn);
            conversation.reply(text.as_deref(), &calls);
            let reply = reply_of(text.as_deref(), &calls);
            self.rows.turn(&TurnParts { thread: index, turn: turn_index, parsed, reply });
            results = self.results(&calls, &turn.calls)?;
            last_text = text.unwrap_or_default();
        }
        Ok(last_text)
    }

    fn conversation(&self, thread: &ThreadPlan) -> WireConversation {
        let shared = self.shared;
        let subagent = matches!(thread.role, ThreadRole::Subagent { .. });
        let tools = &shared.tools[..shared.tools.len() - usize::from(subagent)];
        let system = if subagent { &shared.subagent_system } else { &shared.system };
        let max_tokens = self.profile.max_output_tokens;
        WireConversation::new(self.plan.form, system, tools, &self.session_id, max_tokens)
    }

    /// Adds what the turn's request brings.
    fn ask(
        &mut self,
        conversation: &mut WireConversation,
        turn: &TurnPlan,
        results: &[WireResult],
        brief: &str,
    ) {
        match turn.cause {
            Cause::User { tokens } if turn.wait_us.is_none() => {
                let asked = tokens.saturating_sub(self.profile.notes_tokens);
                let request = self.author.request(asked);
                conversation.user(&[&self.notes, &request]);
            }
            Cause::User { tokens } => {
                let request = self.author.request(tokens);
                conversation.user(&[&request]);
            }
            Cause::Summary { .. } => conversation.user(&[CONTINUED, brief, &self.notes]),
            Cause::Task { .. } => conversation.user(&[brief]),
            Cause::Results => conversation.results(results, None),
            Cause::Compaction { user_tokens: Some(tokens) } => {
                let request = self.author.request(tokens);
                conversation.user(&[&request, COMPACTION]);
            }
            Cause::Compaction { user_tokens: None } => {
                conversation.results(results, Some(COMPACTION));
            }
        }
    }

    /// Writes a reply of the planned size: arguments first, the rest is text.
    fn reply(&mut self, turn: &TurnPlan) -> (Option<String>, Vec<WireCall>) {
        let room = turn.output_tokens * 4 / 5 / (turn.calls.len() as u32).max(1);
        let calls: Vec<WireCall> = turn.calls.iter().map(|call| self.call(call, room)).collect();
        let used: usize = calls.iter().map(|call| call.arguments.to_string().len() / 4 + 2).sum();
        let left = turn.output_tokens.saturating_sub(used as u32);
        // A reply has something in it.
        let text = (left >= 8 || calls.is_empty()).then(|| self.author.prose(left.max(4)));
        (text, calls)
    }

    fn call(&mut self, call: &CallPlan, room: u32) -> WireCall {
        let prefix = match self.plan.form {
            Form::Messages => "toolu_",
            Form::Chat => "call_",
        };
        let id = format!("{prefix}{}", self.author.id(20));
        let arguments = match call.child.map(|child| self.plan.threads[child].turns[0].cause) {
            Some(Cause::Task { tokens }) => tools::task(&mut self.author, tokens),
            _ => tools::arguments(&mut self.author, call.tool, room),
        };
        WireCall { id, name: call.tool, arguments }
    }

    /// What the calls bring back; a subagent's whole conversation is written here.
    fn results(&mut self, calls: &[WireCall], plans: &[CallPlan]) -> Result<Vec<WireResult>> {
        let mut results = Vec::with_capacity(calls.len());
        for (call, plan) in calls.iter().zip(plans) {
            let text = match plan.child {
                Some(child) => {
                    let task = call.arguments["prompt"].as_str().unwrap_or_default().to_owned();
                    self.thread(child, &task)?
                }
                None => {
                    tools::result(&mut self.author, call.name, plan.result_tokens, plan.is_error)
                }
            };
            results.push(WireResult { call_id: call.id.clone(), text, is_error: plan.is_error });
        }
        Ok(results)
    }
}

/// A reply as a recorder reads it off the stream.
fn reply_of(text: Option<&str>, calls: &[WireCall]) -> Reply {
    let text = text.map(|text| ReplyBlock::Text { text: text.to_owned() });
    let calls = calls.iter().map(|call| ReplyBlock::ToolCall {
        id: call.id.clone(),
        name: call.name.to_owned(),
        arguments: call.arguments.to_string(),
    });
    Reply { blocks: text.into_iter().chain(calls).collect(), complete: true, ..Reply::default() }
}
