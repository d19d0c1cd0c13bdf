//! Conversations as lists of messages: `OpenAI`'s form, SWE-agent's trajectories, agentperf's rows.
//!
//! Every answer of the assistant is a turn whose prompt is what stands before it.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::chat_answer::{ChatAnswer, text_of};
use super::draft::{CallDraft, Drafts, PromptDraft, Tokens, TurnDraft, arguments_text, calls_of};
use super::hashed::Name;
use crate::api::{Api, Unit, UnitKind, unit_of};

#[derive(Debug, Deserialize)]
struct Record {
    #[serde(default, alias = "history", alias = "conversation")]
    messages: Vec<Box<RawValue>>,
    #[serde(default)]
    tools: Option<Vec<Box<RawValue>>>,
    #[serde(default)]
    instance_id: Option<Name>,
    #[serde(default)]
    id: Option<Name>,
    #[serde(default)]
    conversation_id: Option<Name>,
    #[serde(default)]
    model: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Message {
    #[serde(default)]
    role: String,
    #[serde(default)]
    tool_call_id: Option<String>,
    #[serde(flatten)]
    answer: ChatAnswer,
}

/// Reads one conversation. `name` is its id where the record has none.
pub(super) fn record(json: &str, name: &str, drafts: &mut Drafts) -> Result<(), String> {
    let is_list = json.trim_start().starts_with('[');
    let wrapped = if is_list { format!(r#"{{"messages":{json}}}"#) } else { String::new() };
    let record: Record = serde_json::from_str(if is_list { &wrapped } else { json })
        .map_err(|error| error.to_string())?;
    if record.messages.is_empty() {
        return Err("no messages".to_owned());
    }
    let id = record.instance_id.or(record.conversation_id).or(record.id);
    let session_id = id.map_or_else(|| name.to_owned(), |id| id.to_string());
    let mut turns = Turns {
        session_id,
        model: record.model.as_ref().and_then(Value::as_str).map(str::to_owned),
        conversation: drafts.conversations.len(),
        n: 0,
        calls: HashMap::new(),
        turns: Vec::new(),
    };
    let mut units: Vec<Unit<'static>> = Vec::new();
    for tool in record.tools.iter().flatten() {
        units.extend(unit_of(Api::Chat, UnitKind::Tool, tool.get()));
    }
    for raw in &record.messages {
        let message: Message =
            serde_json::from_str(raw.get()).map_err(|error| error.to_string())?;
        turns.n = units.len();
        turns.message(&message);
        let unit = unit_of(Api::Chat, UnitKind::Message, raw.get());
        units.push(unit.ok_or("a message is no object")?);
    }
    drafts.conversations.push(units);
    drafts.turns.append(&mut turns.turns);
    Ok(())
}

struct Turns {
    session_id: String,
    model: Option<String>,
    conversation: usize,
    n: usize,
    calls: HashMap<String, (usize, usize)>,
    turns: Vec<TurnDraft>,
}

impl Turns {
    fn message(&mut self, message: &Message) {
        match message.role.as_str() {
            "assistant" => self.answer(message),
            "tool" => {
                let place = message.tool_call_id.as_ref().and_then(|id| self.calls.get(id));
                if let Some((turn, call)) = place {
                    let bytes = text_of(&message.answer.content).len() as u64;
                    self.turns[*turn].calls[*call].result_bytes = Some(bytes);
                }
            }
            _ => {}
        }
    }

    fn answer(&mut self, message: &Message) {
        let mut turn = TurnDraft {
            session_id: self.session_id.clone(),
            thread_id: self.session_id.clone(),
            api: Some(Api::Chat),
            model: self.model.clone(),
            stream: true,
            prompt: PromptDraft::Units { conversation: self.conversation, n: self.n },
            ..TurnDraft::default()
        };
        turn.reply = message.answer.blocks();
        turn.calls = calls_of(&turn.reply);
        for (index, call) in turn.calls.iter().enumerate() {
            self.calls.insert(call.id.clone(), (self.turns.len(), index));
        }
        self.turns.push(turn);
    }
}

#[derive(Debug, Deserialize)]
struct AgentperfRow {
    conversation_id: Name,
    #[serde(default)]
    task_id: Option<Name>,
    #[serde(default)]
    turn_id: Option<Name>,
    #[serde(default)]
    messages: Vec<Box<RawValue>>,
    #[serde(default)]
    tools: Option<Vec<Box<RawValue>>>,
    #[serde(default)]
    simulated_tool_delay_ms_after: Option<f64>,
    #[serde(default)]
    recorded_tool_calls_after: Option<Vec<AgentperfCall>>,
    #[serde(default)]
    target_output_tokens: Option<u64>,
    #[serde(default)]
    recorded_prompt_tokens: Option<u64>,
    #[serde(default)]
    recorded_completion_tokens: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AgentperfCall {
    #[serde(alias = "tool_call_id")]
    id: String,
    #[serde(alias = "tool_name")]
    name: String,
    arguments: Value,
    duration_ms: Option<f64>,
}

/// Reads a row of agentperf-local: one turn with its whole prompt.
pub(super) fn agentperf(json: &str, drafts: &mut Drafts) -> Result<(), String> {
    let row: AgentperfRow = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let thread_id = row.conversation_id.to_string();
    let tools = row.tools.iter().flatten().map(|tool| (UnitKind::Tool, tool));
    let messages = row.messages.iter().map(|message| (UnitKind::Message, message));
    let units: Option<Vec<Unit<'static>>> =
        tools.chain(messages).map(|(kind, raw)| unit_of(Api::Chat, kind, raw.get())).collect();
    let units = units.ok_or("a message is no object")?;
    let prompt = match units.len() {
        0 => PromptDraft::Counts,
        n => PromptDraft::Units { conversation: drafts.conversations.len(), n },
    };
    drafts.conversations.push(units);
    drafts.turns.push(TurnDraft {
        session_id: row
            .task_id
            .map_or_else(|| thread_id.clone(), |task| format!("{task}/{thread_id}")),
        request_id: row.turn_id.map(|turn| format!("{thread_id}#{turn}")),
        thread_id,
        api: Some(Api::Chat),
        stream: true,
        prompt,
        wait_after_ms: row.simulated_tool_delay_ms_after,
        tokens: Tokens {
            isl: row.recorded_prompt_tokens,
            osl: row.recorded_completion_tokens.or(row.target_output_tokens),
            ..Tokens::default()
        },
        params: row.target_output_tokens.map(|n| json!({"max_tokens": n})),
        calls: row.recorded_tool_calls_after.into_iter().flatten().map(agentperf_call).collect(),
        ..TurnDraft::default()
    });
    Ok(())
}

fn agentperf_call(call: AgentperfCall) -> CallDraft {
    let arguments = arguments_text(&call.arguments);
    CallDraft {
        id: call.id,
        name: call.name,
        arguments,
        wall_ms: call.duration_ms,
        ..CallDraft::default()
    }
}
