//! mini-swe-agent's trajectories: one document with the messages as they were sent, each answer with the
//! engine's own response beside it.
//!
//! An answer that the agent could not read is no message of the conversation: its response stands beside the
//! complaint that was put in its place. Tool definitions are not in these files.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::chat_answer::{ChatAnswer, text_of};
use super::draft::{Drafts, PromptDraft, Times, Tokens, TurnDraft, calls_of};
use crate::api::{Api, Unit, UnitKind, unit_of};

const AGENT: &str = "mini-swe-agent";

#[derive(Debug, Deserialize)]
struct Trajectory {
    messages: Vec<Map<String, Value>>,
    #[serde(default)]
    instance_id: Option<String>,
}

/// What tells a trajectory from others: its task, and the first response that it got.
pub(super) fn identity(record: &Value) -> Option<String> {
    let messages = record["messages"].as_array()?;
    let first = messages.iter().find_map(|it| it["extra"]["response"]["id"].as_str())?;
    Some(first.to_owned())
}

/// Reads one trajectory. `name` is its session where nothing names it.
pub(super) fn trajectory(json: &str, name: &str, drafts: &mut Drafts) -> Result<(), String> {
    let record: Value = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let first = identity(&record);
    let read: Trajectory = serde_json::from_value(record).map_err(|error| error.to_string())?;
    let mut reader = Reader {
        session_id: read.instance_id.or(first).unwrap_or_else(|| name.to_owned()),
        conversation: drafts.conversations.len(),
        units: Vec::new(),
        asked: None,
        calls: HashMap::new(),
        turns: Vec::new(),
    };
    for message in read.messages {
        reader.message(message)?;
    }
    drafts.conversations.push(reader.units);
    drafts.turns.append(&mut reader.turns);
    Ok(())
}

struct Reader {
    session_id: String,
    conversation: usize,
    units: Vec<Unit<'static>>,
    /// When the last input was there.
    asked: Option<f64>,
    calls: HashMap<String, (usize, usize)>,
    turns: Vec<TurnDraft>,
}

impl Reader {
    fn message(&mut self, mut message: Map<String, Value>) -> Result<(), String> {
        let extra = message.remove("extra").unwrap_or_default();
        let role = message.get("role").and_then(Value::as_str).unwrap_or_default().to_owned();
        if role == "exit" {
            return Ok(());
        }
        let time = extra["timestamp"].as_f64();
        let message = Value::Object(message);
        if let Some(response) = extra.get("response").filter(|response| response.is_object()) {
            self.answer(response, time);
        } else if role == "assistant" {
            return Err("an answer without its response".to_owned());
        } else {
            self.result(&message, &extra, time);
            self.asked = time.or(self.asked);
        }
        let unit = unit_of(Api::Chat, UnitKind::Message, &message.to_string());
        self.units.push(unit.ok_or("a message is no object")?);
        Ok(())
    }

    fn answer(&mut self, response: &Value, end: Option<f64>) {
        let choice = &response["choices"][0];
        let answer = ChatAnswer::deserialize(&choice["message"]).unwrap_or_default();
        let usage = &response["usage"];
        let id = response["id"].as_str().map(str::to_owned);
        let asked = self.asked.take();
        let mut turn = TurnDraft {
            session_id: self.session_id.clone(),
            thread_id: self.session_id.clone(),
            identity: id.as_ref().map(|id| format!("{AGENT} {id}")),
            request_id: id,
            api: Some(Api::Chat),
            agent: Some(AGENT.to_owned()),
            model: response["model"].as_str().map(str::to_owned),
            prompt: PromptDraft::Units { conversation: self.conversation, n: self.units.len() },
            times: Times {
                request: asked.or(end),
                request_unseen: asked.is_none(),
                end,
                ..Times::default()
            },
            tokens: Tokens {
                isl: usage["prompt_tokens"].as_u64(),
                cached: usage["prompt_tokens_details"]["cached_tokens"].as_u64(),
                cache_write: None,
                osl: usage["completion_tokens"].as_u64(),
                reasoning: usage["completion_tokens_details"]["reasoning_tokens"].as_u64(),
            },
            stop_reason: choice["finish_reason"].as_str().map(str::to_owned),
            reply: answer.blocks(),
            ..TurnDraft::default()
        };
        turn.calls = calls_of(&turn.reply);
        for (index, call) in turn.calls.iter_mut().enumerate() {
            call.emitted = end;
            self.calls.insert(call.id.clone(), (self.turns.len(), index));
        }
        self.turns.push(turn);
    }

    fn result(&mut self, message: &Value, extra: &Value, time: Option<f64>) {
        let id = message["tool_call_id"].as_str();
        let Some((turn, index)) = id.and_then(|id| self.calls.get(id)) else { return };
        let call = &mut self.turns[*turn].calls[*index];
        call.result = time;
        call.result_bytes = Some(text_of(&message["content"]).len() as u64);
        call.is_error = extra["returncode"].as_i64().map(|code| code != 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_could_not_be_read_are_turns_too() {
        let response = |id: &str, osl: u64, call: &str| {
            serde_json::json!({"id": id, "model": "m", "choices": [{"finish_reason": "tool_calls",
                "message": {"role": "assistant", "content": "go", "tool_calls": [{"id": call,
                    "function": {"name": "bash", "arguments": "{}"}}]}}],
                "usage": {"prompt_tokens": 10 * osl, "completion_tokens": osl,
                    "prompt_tokens_details": {"cached_tokens": null}}})
        };
        let text = serde_json::json!({"trajectory_format": "mini-swe-agent-1.1", "messages": [
            {"role": "system", "content": "s"}, {"role": "user", "content": "task"},
            {"role": "user", "content": "no call", "extra": {"response": response("r0", 3, "c0")}},
            {"role": "assistant", "content": "go", "extra":
                {"response": response("r1", 5, "c1"), "timestamp": 10.0}},
            {"role": "tool", "tool_call_id": "c1", "content": "abc",
                "extra": {"timestamp": 12.5, "returncode": 1}},
            {"role": "assistant", "content": "go", "extra":
                {"response": response("r2", 7, "c2"), "timestamp": 14.0}},
            {"role": "exit", "content": "", "extra": {"exit_status": "Submitted"}},
        ]});
        let mut drafts = Drafts::default();
        trajectory(&text.to_string(), "n", &mut drafts).unwrap();
        let told: Vec<_> = drafts
            .turns
            .iter()
            .map(|turn| {
                let PromptDraft::Units { n, .. } = turn.prompt else { panic!("no units") };
                (turn.request_id.as_deref().unwrap(), turn.tokens.osl, turn.times.request, n)
            })
            .collect();
        assert_eq!(
            told,
            [
                ("r0", Some(3), None, 2),
                ("r1", Some(5), Some(10.0), 3),
                ("r2", Some(7), Some(12.5), 5)
            ]
        );
        assert_eq!(drafts.turns[0].session_id, "r0");
        let call = &drafts.turns[1].calls[0];
        assert_eq!(
            (call.name.as_str(), call.result, call.result_bytes, call.is_error),
            ("bash", Some(12.5), Some(3), Some(true))
        );
        assert!(!drafts.conversations[0][3].text.contains("extra"));
    }
}
