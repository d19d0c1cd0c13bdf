//! One conversation of a Claude Code log, put together record by record.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::draft::{CallDraft, Drafts, PromptDraft, Times, Tokens, TurnDraft};
use super::json_text::{content_elements, message};
use crate::api::{Api, ReplyBlock, Unit, UnitKind, unit_of};
use crate::trace::record::TurnKind;

/// One record of a reply.
#[derive(Clone, Copy)]
pub(super) struct Reply<'a> {
    pub(super) id: Option<&'a str>,
    pub(super) model: Option<&'a str>,
    pub(super) content: Option<&'a RawValue>,
    pub(super) stop_reason: Option<&'a str>,
    pub(super) tokens: Tokens,
    pub(super) time: Option<f64>,
}

/// What is known of a tool's work beside its result.
pub(super) struct ToolOutcome {
    /// The tool's own time.
    pub(super) own_ms: Option<f64>,
}

/// A conversation as far as it was read.
#[derive(Debug)]
pub(super) struct Thread {
    name: String,
    kind: TurnKind,
    /// Prompts are beginnings of these; a rewind or a compaction opens another one.
    conversations: Vec<Vec<Unit<'static>>>,
    /// Content of user records since the last reply.
    pending: Vec<String>,
    pending_time: Option<f64>,
    open: Option<OpenReply>,
    turns: Vec<TurnDraft>,
    /// Where each call stands: turn and index.
    calls: HashMap<String, (usize, usize)>,
    /// How long the conversation was after a record.
    lengths: HashMap<String, Mark>,
    has_input: bool,
}

/// A place in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    conversation: usize,
    units: usize,
    replies: usize,
    pending: usize,
}

/// A reply whose records are still coming.
#[derive(Debug)]
struct OpenReply {
    id: Option<String>,
    turn: usize,
    elements: Vec<String>,
}

#[derive(Debug, Deserialize)]
struct Content<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: std::borrow::Cow<'a, str>,
    #[serde(default)]
    text: Option<String>,
    #[serde(default)]
    thinking: Option<String>,
    #[serde(default)]
    signature: Option<String>,
    #[serde(default)]
    id: Option<String>,
    #[serde(default)]
    name: Option<String>,
    #[serde(borrow, default)]
    input: Option<&'a RawValue>,
    #[serde(default)]
    tool_use_id: Option<String>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(default)]
    is_error: Option<bool>,
}

impl Thread {
    pub(super) fn new(name: String, kind: TurnKind) -> Self {
        Self {
            name,
            kind,
            conversations: vec![Vec::new()],
            pending: Vec::new(),
            pending_time: None,
            open: None,
            turns: Vec::new(),
            calls: HashMap::new(),
            lengths: HashMap::new(),
            has_input: false,
        }
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn call_ids(&self) -> impl Iterator<Item = &str> {
        self.calls.keys().map(String::as_str)
    }

    /// The next input begins the prompt anew.
    pub(super) fn compacted(&mut self) {
        self.close();
        self.pending.clear();
        self.conversations.push(Vec::new());
    }

    /// A question: where it was asked from a record that is not the latest, all after that is left out.
    pub(super) fn goes_on_from(&mut self, parent: Option<&str>) {
        let Some(mark) = parent.and_then(|parent| self.lengths.get(parent)).copied() else {
            return;
        };
        let now = self.mark();
        if mark.conversation != now.conversation || mark == now || mark.replies == now.replies {
            return;
        }
        self.close();
        let kept = self.conversation()[..mark.units].to_vec();
        self.conversations.push(kept);
        self.pending.clear();
    }

    /// Remembers where the conversation stands after a record.
    pub(super) fn passed(&mut self, uuid: &str) {
        let mark = self.mark();
        self.lengths.insert(uuid.to_owned(), mark);
    }

    fn mark(&self) -> Mark {
        let open = usize::from(self.open.is_some());
        let pending = usize::from(!self.pending.is_empty());
        Mark {
            conversation: self.conversations.len() - 1,
            units: self.conversation().len() + open + pending,
            replies: self.turns.len(),
            pending: self.pending.len(),
        }
    }

    fn conversation(&self) -> &Vec<Unit<'static>> {
        &self.conversations[self.conversations.len() - 1]
    }

    /// A user record: a question, a note, results of tools.
    pub(super) fn input(&mut self, content: &RawValue, time: Option<f64>, outcome: &ToolOutcome) {
        self.has_input = true;
        if content.get().contains("\"tool_result\"")
            && let Ok(blocks) = serde_json::from_str::<Vec<Content<'_>>>(content.get())
        {
            for block in blocks.iter().filter(|block| block.kind == "tool_result") {
                self.result(block, time, outcome);
            }
        }
        self.pending.push(content_elements(content, "text"));
        self.pending_time = later(self.pending_time, time);
    }

    fn result(&mut self, block: &Content<'_>, time: Option<f64>, outcome: &ToolOutcome) {
        let Some(place) = block.tool_use_id.as_ref().and_then(|id| self.calls.get(id)) else {
            return;
        };
        let call = &mut self.turns[place.0].calls[place.1];
        call.result = time;
        call.own_ms = outcome.own_ms;
        call.result_bytes = block.content.map(result_bytes);
        // The agent marks errors; what has no mark is none.
        call.is_error = Some(block.is_error.unwrap_or(false));
    }

    /// A record of a reply.
    pub(super) fn reply(&mut self, reply: Reply<'_>) {
        let goes_on = self
            .open
            .as_ref()
            .is_some_and(|open| open.id.is_some() && open.id.as_deref() == reply.id);
        if !goes_on {
            self.close();
            self.open(&reply);
        }
        let Some(open) = &mut self.open else { return };
        let turn = &mut self.turns[open.turn];
        turn.times.end = later(turn.times.end, reply.time);
        if is_better(&reply.tokens, reply.stop_reason, turn) {
            turn.tokens = reply.tokens;
        }
        if let Some(stop_reason) = reply.stop_reason {
            turn.stop_reason = Some(stop_reason.to_owned());
        }
        let Some(content) = reply.content else { return };
        open.elements.push(content_elements(content, "text"));
        if let Ok(text) = serde_json::from_str::<String>(content.get()) {
            turn.reply.push(ReplyBlock::Text { text });
        }
        for block in serde_json::from_str::<Vec<Content<'_>>>(content.get()).unwrap_or_default() {
            if block.kind == "tool_use" {
                let place = (open.turn, turn.calls.len());
                self.calls.insert(block.id.clone().unwrap_or_default(), place);
                turn.calls.push(call(&block, reply.time));
            }
            turn.reply.extend(reply_block(block));
        }
    }

    /// A reply begins: what came in until now is the last part of its prompt.
    fn open(&mut self, reply: &Reply<'_>) {
        let conversation = self.conversations.len() - 1;
        if !self.pending.is_empty() {
            let text = message("user", &self.pending);
            self.conversations[conversation].extend(unit_of(
                Api::Messages,
                UnitKind::Message,
                &text,
            ));
            self.pending.clear();
        }
        let asked = self.pending_time.take();
        self.open = Some(OpenReply {
            id: reply.id.map(str::to_owned),
            turn: self.turns.len(),
            elements: Vec::new(),
        });
        self.turns.push(TurnDraft {
            request_id: reply.id.map(str::to_owned),
            identity: reply.id.map(|id| format!("claude-code {id}")),
            api: Some(Api::Messages),
            agent: Some("claude-code".to_owned()),
            kind: self.kind,
            model: reply.model.map(str::to_owned),
            stream: true,
            prompt: PromptDraft::Units { conversation, n: self.conversations[conversation].len() },
            times: Times {
                request: asked.or(reply.time),
                request_unseen: asked.is_none(),
                ..Times::default()
            },
            ..TurnDraft::default()
        });
    }

    /// The reply at hand is whole: it is a part of the prompts to come.
    fn close(&mut self) {
        let Some(open) = self.open.take() else { return };
        let text = message("assistant", &open.elements);
        let conversation = self.conversations.len() - 1;
        self.conversations[conversation].extend(unit_of(Api::Messages, UnitKind::Message, &text));
    }

    pub(super) fn finish(
        mut self,
        session_id: &str,
        thread_id: &str,
        parent: Option<&str>,
        drafts: &mut Drafts,
    ) {
        self.close();
        let before = drafts.conversations.len();
        for mut turn in self.turns {
            session_id.clone_into(&mut turn.session_id);
            thread_id.clone_into(&mut turn.thread_id);
            turn.parent_thread_id = parent.map(str::to_owned);
            if let PromptDraft::Units { conversation, .. } = &mut turn.prompt {
                *conversation += before;
            }
            drafts.turns.push(turn);
        }
        drafts.conversations.append(&mut self.conversations);
    }
}

/// Whether a copy of the usage is better than the one known: an early copy holds a placeholder.
fn is_better(new: &Tokens, stop_reason: Option<&str>, known: &TurnDraft) -> bool {
    let rank = |tokens: &Tokens, stopped: bool| {
        (tokens.osl.unwrap_or(0), tokens.isl.unwrap_or(0), stopped)
    };
    rank(new, stop_reason.is_some()) >= rank(&known.tokens, known.stop_reason.is_some())
}

fn later(known: Option<f64>, new: Option<f64>) -> Option<f64> {
    match (known, new) {
        (Some(known), Some(new)) => Some(known.max(new)),
        (known, new) => known.or(new),
    }
}

fn call(block: &Content<'_>, time: Option<f64>) -> CallDraft {
    CallDraft {
        id: block.id.clone().unwrap_or_default(),
        name: block.name.clone().unwrap_or_default(),
        arguments: block.input.map(|input| input.get().to_owned()).unwrap_or_default(),
        emitted: time,
        ..CallDraft::default()
    }
}

fn reply_block(block: Content<'_>) -> Option<ReplyBlock> {
    match block.kind.as_ref() {
        "text" => Some(ReplyBlock::Text { text: block.text? }),
        "thinking" => {
            Some(ReplyBlock::Reasoning { text: block.thinking?, signature: block.signature })
        }
        "tool_use" => Some(ReplyBlock::ToolCall {
            id: block.id?,
            name: block.name?,
            arguments: block.input.map(|input| input.get().to_owned()).unwrap_or_default(),
        }),
        _ => None,
    }
}

/// Length of a result's text: of a string, or of the texts in a list.
fn result_bytes(content: &RawValue) -> u64 {
    #[derive(Deserialize)]
    struct Part {
        #[serde(default)]
        text: String,
    }
    let text = content.get();
    if let Ok(text) = serde_json::from_str::<String>(text) {
        return text.len() as u64;
    }
    let parts: Vec<Part> = serde_json::from_str(text).unwrap_or_default();
    parts.iter().map(|part| part.text.len() as u64).sum()
}
