//! `MLPerf` Endpoints' agentic JSONL: a row for each message of a conversation.

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};

use super::chat_answer::ChatAnswer;
use super::draft::{Drafts, PromptDraft, TurnDraft, calls_of};
use super::hashed::Name;
use super::lines::{Lines, Tally};
use super::problems::Problems;
use crate::api::{Api, Unit, UnitKind, unit_of};
use crate::error::Result;

#[derive(Debug, Deserialize)]
struct Message {
    conversation_id: Name,
    role: String,
    #[serde(default)]
    system: Option<String>,
    #[serde(default)]
    tools: Option<Vec<Value>>,
    #[serde(default)]
    tool_results: Option<Vec<Value>>,
    #[serde(default)]
    delay_seconds: Option<f64>,
    #[serde(flatten)]
    answer: ChatAnswer,
}

/// Reads a file: conversations may lie among each other.
pub(super) fn read(path: &Path, tally: &Tally, problems: &mut Problems) -> Result<Drafts> {
    let mut lines = Lines::open(path, tally)?;
    let mut conversations: BTreeMap<u64, Conversation> = BTreeMap::new();
    let mut order: BTreeMap<String, u64> = BTreeMap::new();
    while let Some((number, line)) = lines.next(problems) {
        let message: Message = match serde_json::from_str(line) {
            Ok(message) => message,
            Err(error) => {
                problems.add("not a record", path, number, error.to_string());
                continue;
            }
        };
        let name = message.conversation_id.to_string();
        let at = order.len() as u64;
        let at = *order.entry(name.clone()).or_insert(at);
        let conversation = conversations.entry(at).or_insert_with(|| Conversation::new(name));
        if let Err(what) = conversation.message(message) {
            problems.add("record left out", path, number, what);
        }
    }
    let mut drafts = Drafts::default();
    for (_, conversation) in conversations {
        conversation.finish(&mut drafts);
    }
    Ok(drafts)
}

struct Conversation {
    name: String,
    units: Vec<Unit<'static>>,
    turns: Vec<TurnDraft>,
    wait_s: Option<f64>,
}

impl Conversation {
    fn new(name: String) -> Self {
        Self { name, units: Vec::new(), turns: Vec::new(), wait_s: None }
    }

    fn message(&mut self, message: Message) -> std::result::Result<(), String> {
        if self.units.is_empty() {
            for tool in message.tools.iter().flatten() {
                self.push(UnitKind::Tool, tool)?;
            }
            if let Some(system) = &message.system {
                self.push(UnitKind::Message, &json!({"role": "system", "content": system}))?;
            }
        }
        if let Some(delay_s) = message.delay_seconds {
            self.wait_s = Some(self.wait_s.unwrap_or(0.0) + delay_s);
        }
        match message.role.as_str() {
            "assistant" => self.answer(message),
            "tool" => {
                let results = message.tool_results.unwrap_or_default();
                if results.is_empty() {
                    return self.push(
                        UnitKind::Message,
                        &json!({"role": "tool", "content": message.answer.content}),
                    );
                }
                for result in results {
                    let id = result.get("tool_call_id").or_else(|| result.get("id"));
                    let said = json!({
                        "role": "tool",
                        "tool_call_id": id,
                        "content": result.get("content").unwrap_or(&result),
                    });
                    self.result(id, &said["content"]);
                    self.push(UnitKind::Message, &said)?;
                }
                Ok(())
            }
            role => self
                .push(UnitKind::Message, &json!({"role": role, "content": message.answer.content})),
        }
    }

    fn push(&mut self, kind: UnitKind, value: &Value) -> std::result::Result<(), String> {
        let unit = unit_of(Api::Chat, kind, &value.to_string());
        self.units.push(unit.ok_or("a message is no object")?);
        Ok(())
    }

    fn result(&mut self, id: Option<&Value>, content: &Value) {
        let Some(id) = id.and_then(Value::as_str) else { return };
        let calls = self.turns.iter_mut().rev().flat_map(|turn| &mut turn.calls);
        if let Some(call) = calls.into_iter().find(|call| call.id == id) {
            let bytes = content.as_str().map_or_else(|| content.to_string().len(), str::len);
            call.result_bytes = Some(bytes as u64);
        }
    }

    fn answer(&mut self, message: Message) -> std::result::Result<(), String> {
        let mut turn = TurnDraft {
            session_id: self.name.clone(),
            thread_id: self.name.clone(),
            api: Some(Api::Chat),
            stream: true,
            prompt: PromptDraft::Units { conversation: 0, n: self.units.len() },
            wait_ms: self.wait_s.take().filter(|_| !self.turns.is_empty()).map(|s| s * 1e3),
            ..TurnDraft::default()
        };
        turn.reply = message.answer.blocks();
        turn.calls = calls_of(&turn.reply);
        self.turns.push(turn);
        let ChatAnswer { content, tool_calls, .. } = message.answer;
        let mut said = json!({"role": "assistant", "content": content});
        if let Some(calls) = tool_calls.filter(|calls| !calls.is_empty()) {
            said["tool_calls"] = Value::Array(calls);
        }
        self.push(UnitKind::Message, &said)
    }

    fn finish(self, drafts: &mut Drafts) {
        let conversation = drafts.conversations.len();
        drafts.conversations.push(self.units);
        for mut turn in self.turns {
            if let PromptDraft::Units { conversation: at, .. } = &mut turn.prompt {
                *at = conversation;
            }
            drafts.turns.push(turn);
        }
    }
}
