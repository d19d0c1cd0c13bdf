//! One conversation of a Codex log, put together item by item.

use std::borrow::Cow;
use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::draft::{CallDraft, Drafts, PromptDraft, Times, Tokens, TurnDraft};
use crate::api::{Api, ReplyBlock, Unit, UnitKind, unit_of};
use crate::trace::record::TurnKind;

/// An item of a conversation.
#[derive(Debug, Deserialize)]
pub(super) struct Item<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Cow<'a, str>,
    #[serde(borrow, default)]
    role: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    summary: Option<&'a RawValue>,
    #[serde(default)]
    call_id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    arguments: Option<String>,
    #[serde(default)]
    input: Option<String>,
    #[serde(borrow, default)]
    action: Option<&'a RawValue>,
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
}

/// A report of a response's tokens.
pub(super) struct Reported {
    pub(super) tokens: Tokens,
    pub(super) time: Option<f64>,
}

/// A conversation as far as it was read.
#[derive(Debug)]
pub(super) struct Thread {
    /// Prompts are beginnings of these; a compaction opens another one.
    conversations: Vec<Vec<Unit<'static>>>,
    turns: Vec<TurnDraft>,
    calls: HashMap<String, (usize, usize)>,
    /// The turn whose output is coming.
    open: Option<usize>,
    /// Some input came since the last output.
    input_since: bool,
    asked: Option<f64>,
    turn_id: Option<String>,
    /// Turns so far under this id.
    under_id: u32,
    model: Option<String>,
}

impl Default for Thread {
    fn default() -> Self {
        Self {
            conversations: vec![Vec::new()],
            turns: Vec::new(),
            calls: HashMap::new(),
            open: None,
            input_since: false,
            asked: None,
            turn_id: None,
            under_id: 0,
            model: None,
        }
    }
}

impl Thread {
    pub(super) fn instructions(&mut self, text: &str) {
        if !text.is_empty() {
            self.push(UnitKind::System, &serde_json::Value::from(text).to_string());
        }
    }

    pub(super) fn turn_is(&mut self, id: Option<&str>) {
        if id.is_some() && self.turn_id.as_deref() != id {
            self.turn_id = id.map(str::to_owned);
            self.under_id = 0;
        }
    }

    pub(super) fn model_is(&mut self, model: Option<String>) {
        self.model = model.or(self.model.take());
    }

    /// Something came in that the next request brings.
    pub(super) fn asked(&mut self, time: Option<f64>) {
        self.input_since = true;
        self.asked = match (self.asked, time) {
            (Some(known), Some(new)) => Some(known.max(new)),
            (known, new) => known.or(new),
        };
    }

    pub(super) fn item(&mut self, item: &Item<'_>, raw: &RawValue, time: Option<f64>) {
        let is_output = match item.kind.as_ref() {
            "message" => item.role.as_deref() == Some("assistant"),
            kind => !kind.ends_with("_output"),
        };
        if is_output {
            self.given(item, time);
        } else {
            if item.kind.ends_with("_output") {
                self.result(item, time);
            }
            self.asked(time);
        }
        self.push(UnitKind::Message, raw.get());
    }

    /// The model's own: belongs to the turn at hand, or opens one.
    fn given(&mut self, item: &Item<'_>, time: Option<f64>) {
        if self.open.is_none() || self.input_since {
            self.open(time);
        }
        let Some(at) = self.open else { return };
        let turn = &mut self.turns[at];
        turn.times.end = time.or(turn.times.end);
        match item.kind.as_ref() {
            "message" => turn.reply.push(ReplyBlock::Text { text: texts(item.content) }),
            "reasoning" => {
                let text = texts(item.summary);
                turn.reply.push(ReplyBlock::Reasoning { text, signature: None });
            }
            _ => {
                let Some(id) = &item.call_id else { return };
                let call = call(item, id, time);
                self.calls.insert(id.clone(), (at, turn.calls.len()));
                turn.reply.push(ReplyBlock::ToolCall {
                    id: id.clone(),
                    name: call.name.clone(),
                    arguments: call.arguments.clone(),
                });
                turn.calls.push(call);
            }
        }
    }

    fn open(&mut self, time: Option<f64>) {
        let conversation = self.conversations.len() - 1;
        let asked = self.asked.take();
        let identity = self.turn_id.as_ref().map(|id| format!("codex {id}:{}", self.under_id));
        let request_id = self.turn_id.as_ref().map(|id| format!("{id}:{}", self.under_id));
        self.under_id += 1;
        self.input_since = false;
        self.open = Some(self.turns.len());
        self.turns.push(TurnDraft {
            identity,
            request_id,
            api: Some(Api::Responses),
            agent: Some("codex".to_owned()),
            model: self.model.clone(),
            stream: true,
            prompt: PromptDraft::Units { conversation, n: self.conversations[conversation].len() },
            times: Times {
                request: asked.or(time),
                request_unseen: asked.is_none(),
                ..Times::default()
            },
            ..TurnDraft::default()
        });
    }

    /// The turn at hand is over; one of which no item is there opens here.
    pub(super) fn reported(&mut self, report: &Reported) {
        if self.open.is_none() {
            self.open(report.time);
        }
        let Some(at) = self.open.take() else { return };
        let turn = &mut self.turns[at];
        turn.tokens = report.tokens;
        turn.times.end = report.time.or(turn.times.end);
    }

    pub(super) fn tool_ended(
        &mut self,
        call_id: &str,
        own_ms: Option<f64>,
        is_error: Option<bool>,
    ) {
        let Some(place) = self.calls.get(call_id) else { return };
        let call = &mut self.turns[place.0].calls[place.1];
        call.own_ms = own_ms.or(call.own_ms);
        call.is_error = is_error.or(call.is_error);
    }

    fn result(&mut self, item: &Item<'_>, time: Option<f64>) {
        let Some(place) = item.call_id.as_ref().and_then(|id| self.calls.get(id)) else { return };
        let call = &mut self.turns[place.0].calls[place.1];
        let output = item.output.map(output_text).unwrap_or_default();
        call.result = time;
        call.result_bytes = Some(output.len() as u64);
        call.own_ms = call.own_ms.or_else(|| wall_time_ms(&output));
        call.is_error = call.is_error.or_else(|| exit_code(&output).map(|code| code != 0));
    }

    /// The prompt begins anew with what is left of the history.
    pub(super) fn compacted(&mut self, summary: &str, history: Option<&[Box<RawValue>]>) {
        let system = self.conversation().iter().take_while(|unit| unit.kind == UnitKind::System);
        let system: Vec<Unit<'static>> = system.cloned().collect();
        self.conversations.push(system);
        self.open = None;
        if let Some(items) = history {
            for item in items {
                self.push(UnitKind::Message, item.get());
            }
            return;
        }
        let message = serde_json::json!({
            "type": "message", "role": "user",
            "content": [{"type": "input_text", "text": summary}],
        });
        self.push(UnitKind::Message, &message.to_string());
    }

    fn conversation(&self) -> &Vec<Unit<'static>> {
        &self.conversations[self.conversations.len() - 1]
    }

    fn push(&mut self, kind: UnitKind, json: &str) {
        let last = self.conversations.len() - 1;
        self.conversations[last].extend(unit_of(Api::Responses, kind, json));
    }

    pub(super) fn finish(
        self,
        session_id: &str,
        thread_id: &str,
        parent: Option<&str>,
        is_subagent: bool,
    ) -> Drafts {
        let mut turns = self.turns;
        for turn in &mut turns {
            session_id.clone_into(&mut turn.session_id);
            thread_id.clone_into(&mut turn.thread_id);
            turn.parent_thread_id = parent.map(str::to_owned);
            if is_subagent {
                turn.kind = TurnKind::Subagent;
            }
        }
        Drafts { conversations: self.conversations, turns, rows: Vec::new() }
    }
}

fn call(item: &Item<'_>, id: &str, time: Option<f64>) -> CallDraft {
    let arguments = item.arguments.clone().or_else(|| item.input.clone());
    CallDraft {
        id: id.to_owned(),
        // A call without a name is of a tool that has none but its kind.
        name: item.name.clone().unwrap_or_else(|| item.kind.trim_end_matches("_call").to_owned()),
        arguments: arguments
            .or_else(|| item.action.map(|action| action.get().to_owned()))
            .unwrap_or_default(),
        emitted: time,
        ..CallDraft::default()
    }
}

/// The texts of content in list form.
fn texts(content: Option<&RawValue>) -> String {
    #[derive(Deserialize)]
    struct Part {
        #[serde(default)]
        text: String,
    }
    let parts = content.and_then(|content| serde_json::from_str::<Vec<Part>>(content.get()).ok());
    let parts: Vec<String> = parts.into_iter().flatten().map(|part| part.text).collect();
    parts.join("\n")
}

/// An output is a text, a list of texts, or an object with its content.
fn output_text(output: &RawValue) -> String {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Wrapped {
        content: String,
    }
    let json = output.get();
    match json.as_bytes().first() {
        Some(b'"') => serde_json::from_str(json).unwrap_or_default(),
        Some(b'[') => texts(Some(output)),
        _ => serde_json::from_str::<Wrapped>(json).unwrap_or_default().content,
    }
}

/// `Wall time: 1.0016 seconds`, as the tools of this agent head their output.
fn wall_time_ms(output: &str) -> Option<f64> {
    let rest = output.split_once("Wall time: ")?.1;
    let seconds: f64 = rest.split_once(" second")?.0.trim().parse().ok()?;
    Some(seconds * 1e3)
}

/// `Process exited with code 0`.
fn exit_code(output: &str) -> Option<i64> {
    let rest = output.split_once("exited with code ")?.1;
    let digits: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '-').collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::{exit_code, wall_time_ms};

    #[test]
    fn what_a_tool_says_of_itself_is_read_from_its_output() {
        for (output, own_ms, code) in [
            (
                "Chunk ID: b7\nWall time: 1.0016 seconds\nProcess exited with code 1\n",
                Some(1001.6),
                Some(1),
            ),
            ("Wall time: 0 seconds\nProcess running with session ID 7", Some(0.0), None),
            ("write_stdin failed: stdin is closed", None, None),
        ] {
            assert_eq!((wall_time_ms(output), exit_code(output)), (own_ms, code), "{output}");
        }
    }
}
