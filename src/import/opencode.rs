//! `OpenCode`'s sessions: what its export holds, which its database and its earlier folders hold in pieces.
//!
//! A message of the assistant is one request, or one for each of its steps. The prompt is put together from
//! the messages before it in the chat form; system prompt, tool definitions and the requests for titles are
//! not kept. A summary that a compaction asked for begins the prompt anew.

use serde::Deserialize;
use serde_json::{Value, json};

use super::draft::{CallDraft, Drafts, PromptDraft, Times, Tokens, TurnDraft};
use crate::api::{Api, ReplyBlock, Unit, UnitKind, unit_of};
use crate::trace::record::TurnKind;

const AGENT: &str = "opencode";

#[derive(Debug, Deserialize)]
struct Session {
    info: Info,
    messages: Vec<Message>,
    /// The session that started this one, and the one that started that, up to the user's.
    #[serde(default, rename = "rootID")]
    root: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Info {
    id: String,
    #[serde(default, rename = "parentID")]
    parent: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Message {
    info: MessageInfo,
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Debug, Deserialize)]
struct MessageInfo {
    id: String,
    role: String,
    #[serde(default)]
    time: Span,
    #[serde(default, rename = "modelID")]
    model: Option<String>,
    #[serde(default)]
    tokens: Option<Usage>,
    #[serde(default)]
    finish: Option<String>,
    #[serde(default)]
    error: Option<Value>,
    #[serde(default)]
    summary: Value,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Span {
    created: Option<f64>,
    completed: Option<f64>,
    start: Option<f64>,
    end: Option<f64>,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct Usage {
    input: Option<u64>,
    output: Option<u64>,
    reasoning: Option<u64>,
    cache: CacheUsage,
}

#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
struct CacheUsage {
    read: Option<u64>,
    write: Option<u64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Part {
    #[serde(rename = "type")]
    kind: String,
    text: String,
    ignored: bool,
    time: Option<Span>,
    #[serde(rename = "callID")]
    call_id: String,
    tool: String,
    state: State,
    tokens: Option<Usage>,
    reason: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct State {
    status: String,
    input: Value,
    output: String,
    error: String,
    time: Span,
}

/// Reads one session in the form of an export.
pub(super) fn session(json: &str, drafts: &mut Drafts) -> Result<(), String> {
    let session: Session = serde_json::from_str(json).map_err(|error| error.to_string())?;
    let Info { id, parent } = session.info;
    let root = session.root.or_else(|| parent.clone()).unwrap_or_else(|| id.clone());
    // Conversations bear the names that they have in a recording.
    let thread = |id: &str| if id == root { root.clone() } else { format!("{root}/agent-{id}") };
    let mut reader = Reader {
        thread_id: thread(&id),
        parent: parent.map(|parent| thread(&parent)),
        session_id: root.clone(),
        conversation: drafts.conversations.len(),
        units: Vec::new(),
        asked: None,
        drafts,
    };
    for message in session.messages {
        match message.info.role.as_str() {
            "user" => reader.user(&message),
            "assistant" => reader.assistant(&message),
            _ => {}
        }
    }
    let units = std::mem::take(&mut reader.units);
    drafts.conversations.push(units);
    Ok(())
}

struct Reader<'a> {
    session_id: String,
    thread_id: String,
    parent: Option<String>,
    conversation: usize,
    units: Vec<Unit<'static>>,
    /// When the last result of the step before was there.
    asked: Option<f64>,
    drafts: &'a mut Drafts,
}

/// What a step of the model came to.
#[derive(Default)]
struct Step<'a> {
    parts: Vec<&'a Part>,
    tokens: Option<Usage>,
    reason: Option<String>,
}

impl Reader<'_> {
    fn user(&mut self, message: &Message) {
        let texts: Vec<&str> = message
            .parts
            .iter()
            .filter(|part| part.kind == "text" && !part.ignored)
            .map(|part| part.text.as_str())
            .collect();
        if !texts.is_empty() {
            self.push(&json!({"role": "user", "content": texts.join("\n")}));
        }
    }

    fn assistant(&mut self, message: &Message) {
        let is_summary = message.info.summary == Value::Bool(true);
        let steps = steps(&message.parts);
        let n = steps.len();
        self.asked = None;
        for (index, step) in steps.into_iter().enumerate() {
            self.step(&message.info, (index, n), &step);
        }
        if is_summary {
            // What went before is gone; its summary stays.
            let summary = self.units.pop();
            let units = std::mem::replace(&mut self.units, summary.into_iter().collect());
            self.drafts.conversations.push(units);
            self.conversation = self.drafts.conversations.len();
        }
    }

    fn step(&mut self, info: &MessageInfo, place: (usize, usize), step: &Step<'_>) {
        let (index, n) = place;
        let seconds = |ms: Option<f64>| ms.map(|ms| ms / 1e3);
        let id = if n > 1 { format!("{}:{index}", info.id) } else { info.id.clone() };
        let request = if index == 0 { info.time.created } else { self.asked };
        let usage = if n > 1 { step.tokens } else { info.tokens.or(step.tokens) };
        let reply: Vec<ReplyBlock> = step.parts.iter().filter_map(|part| block(part)).collect();
        let calls: Vec<CallDraft> =
            step.parts.iter().filter(|part| part.kind == "tool").map(|part| call(part)).collect();
        let last_result = step.parts.iter().filter_map(|part| part.state.time.end);
        self.asked = last_result.reduce(f64::max).or(info.time.completed);
        let (tokens, error) = (tokens(usage), info.error.as_ref().map(error_text));
        self.drafts.turns.push(TurnDraft {
            session_id: self.session_id.clone(),
            thread_id: self.thread_id.clone(),
            parent_thread_id: self.parent.clone(),
            identity: Some(format!("{AGENT} {id}")),
            request_id: Some(id),
            api: Some(Api::Chat),
            agent: Some(AGENT.to_owned()),
            kind: if self.parent.is_some() { TurnKind::Subagent } else { TurnKind::Main },
            model: info.model.clone(),
            stream: true,
            prompt: PromptDraft::Units { conversation: self.conversation, n: self.units.len() },
            times: Times {
                request: seconds(request),
                end: seconds(end_of(step, info.time.completed)),
                ..Times::default()
            },
            tokens,
            reply,
            stop_reason: step.reason.clone().or_else(|| info.finish.clone()),
            outcome: match (&error, info.time.completed) {
                (Some(_), _) => crate::trace::record::Outcome::UpstreamError,
                // It was broken off, or goes on still.
                (None, None) => crate::trace::record::Outcome::Truncated,
                (None, Some(_)) => crate::trace::record::Outcome::Ok,
            },
            error,
            calls,
            ..TurnDraft::default()
        });
        self.answered(step);
    }

    /// The step as the prompts to come hold it.
    fn answered(&mut self, step: &Step<'_>) {
        let texts = step.parts.iter().filter(|part| part.kind == "text");
        let text: Vec<&str> = texts.map(|part| part.text.as_str()).collect();
        let tools: Vec<&&Part> = step.parts.iter().filter(|part| part.kind == "tool").collect();
        let mut said = json!({"role": "assistant", "content": text.join("\n")});
        if !tools.is_empty() {
            let call = |part: &&&Part| {
                let function =
                    json!({"name": part.tool, "arguments": part.state.input.to_string()});
                json!({"id": part.call_id, "type": "function", "function": function})
            };
            said["tool_calls"] = tools.iter().map(call).collect();
        }
        self.push(&said);
        for part in tools {
            let content = result_text(part);
            self.push(&json!({"role": "tool", "tool_call_id": part.call_id, "content": content}));
        }
    }

    fn push(&mut self, message: &Value) {
        self.units.extend(unit_of(Api::Chat, UnitKind::Message, &message.to_string()));
    }
}

/// A message's steps: each ends with a report of its tokens; one that was broken off has none.
fn steps(parts: &[Part]) -> Vec<Step<'_>> {
    let mut steps = vec![Step::default()];
    let mut is_open = true;
    for part in parts {
        if !is_open && part.kind != "patch" {
            steps.push(Step::default());
            is_open = true;
        }
        let Some(step) = steps.last_mut() else { continue };
        if part.kind == "step-finish" {
            step.tokens = part.tokens;
            step.reason.clone_from(&part.reason);
            is_open = false;
        } else {
            step.parts.push(part);
        }
    }
    steps
}

fn block(part: &Part) -> Option<ReplyBlock> {
    match part.kind.as_str() {
        "text" => Some(ReplyBlock::Text { text: part.text.clone() }),
        "reasoning" => Some(ReplyBlock::Reasoning { text: part.text.clone(), signature: None }),
        "tool" => Some(ReplyBlock::ToolCall {
            id: part.call_id.clone(),
            name: part.tool.clone(),
            arguments: part.state.input.to_string(),
        }),
        _ => None,
    }
}

fn call(part: &Part) -> CallDraft {
    let Span { start, end, .. } = part.state.time;
    let is_done = matches!(part.state.status.as_str(), "completed" | "error");
    CallDraft {
        id: part.call_id.clone(),
        name: part.tool.clone(),
        arguments: part.state.input.to_string(),
        emitted: start.map(|ms| ms / 1e3),
        result: end.map(|ms| ms / 1e3),
        own_ms: start.zip(end).map(|(start, end)| end - start),
        result_bytes: is_done.then(|| result_text(part).len() as u64),
        is_error: is_done.then(|| part.state.status == "error"),
        ..CallDraft::default()
    }
}

fn result_text(part: &Part) -> &str {
    if part.state.status == "error" { &part.state.error } else { &part.state.output }
}

/// The response had ended when its last call began; without calls the message says it.
fn end_of(step: &Step<'_>, completed: Option<f64>) -> Option<f64> {
    let calls = step.parts.iter().filter_map(|part| part.state.time.start);
    let texts = step.parts.iter().filter_map(|part| part.time?.end);
    match calls.reduce(f64::max) {
        Some(call) => Some(texts.fold(call, f64::max)),
        None => completed,
    }
}

/// Its input is what was neither read from cache nor written to it.
fn tokens(usage: Option<Usage>) -> Tokens {
    let Some(usage) = usage else { return Tokens::default() };
    let CacheUsage { read, write } = usage.cache;
    Tokens {
        isl: usage.input.map(|input| {
            input.saturating_add(read.unwrap_or(0)).saturating_add(write.unwrap_or(0))
        }),
        cached: read,
        cache_write: write,
        osl: usage.output,
        reasoning: usage.reasoning,
    }
}

fn error_text(error: &Value) -> String {
    let told = error["data"]["message"].as_str().or_else(|| error["name"].as_str());
    told.map_or_else(|| error.to_string(), str::to_owned)
}

#[cfg(test)]
#[path = "opencode_tests.rs"]
mod tests;
