//! Replies in the form of the Responses API, event for event as vLLM 0.32 sends them, and the
//! conversations that the server keeps for requests that go on from one.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use serde_json::{Value, json};

use super::plan::{Finish, Piece, Plan, PlannedCall};
use super::reply::{ReplyHead, ReplyWriter, created_cache_tokens};
use super::scheduler::Emitted;

/// Conversations that are kept.
const MAX_KEPT: usize = 1_000;

/// Writes one response.
#[derive(Debug)]
pub struct ResponsesWriter {
    head: ReplyHead,
    /// The tool that is called takes plain text.
    is_custom: bool,
    sequence: u64,
    output_index: usize,
    is_text_open: bool,
}

impl ResponsesWriter {
    /// A writer for one response.
    pub fn new(head: ReplyHead, is_custom: bool) -> Self {
        Self { head, is_custom, sequence: 0, output_index: 0, is_text_open: false }
    }

    /// The items that a whole reply consists of.
    pub fn items(&self, plan: &Plan) -> Vec<Value> {
        let mut items = Vec::new();
        if !plan.text.is_empty() || plan.call.is_none() {
            items.push(self.message(&plan.text, "completed"));
        }
        items.extend(plan.call.as_ref().map(|call| self.call(call, "completed")));
        items
    }

    fn message(&self, text: &str, status: &str) -> Value {
        let content = if text.is_empty() && status != "completed" { json!([]) } else { part(text) };
        json!({
            "id": format!("msg_{}", self.unique()), "type": "message", "role": "assistant",
            "status": status, "content": content,
        })
    }

    fn call(&self, call: &PlannedCall, status: &str) -> Value {
        let is_whole = status == "completed";
        let mut item = json!({
            "id": format!("fc_{}", self.unique()), "type": "function_call",
            "call_id": self.head.call_id, "name": call.name, "status": status,
        });
        let arguments = if is_whole { call.arguments.as_str() } else { "" };
        if self.is_custom {
            item["type"] = "custom_tool_call".into();
            item["input"] = if is_whole { custom_input(&call.arguments) } else { "".into() };
        } else {
            item["arguments"] = arguments.into();
        }
        item
    }

    fn unique(&self) -> &str {
        self.head.id.trim_start_matches("resp_")
    }

    fn event(&mut self, out: &mut String, kind: &str, mut data: Value) {
        data["type"] = kind.into();
        data["sequence_number"] = self.sequence.into();
        self.sequence += 1;
        for part in ["event: ", kind, "\ndata: ", &data.to_string(), "\n\n"] {
            out.push_str(part);
        }
    }

    /// An event about the item in work.
    fn item_event(&mut self, out: &mut String, kind: &str, mut data: Value) {
        data["output_index"] = self.output_index.into();
        self.event(out, kind, data);
    }

    fn text(&mut self, out: &mut String, text: &str) {
        let item_id = format!("msg_{}", self.unique());
        if !std::mem::replace(&mut self.is_text_open, true) {
            let item = self.message("", "in_progress");
            self.item_event(out, "response.output_item.added", json!({"item": item}));
            let added = json!({"item_id": item_id, "content_index": 0, "part": part("")[0]});
            self.item_event(out, "response.content_part.added", added);
        }
        let delta = json!({"item_id": item_id, "content_index": 0, "delta": text, "logprobs": []});
        self.item_event(out, "response.output_text.delta", delta);
    }

    fn close_text(&mut self, out: &mut String, text: &str) {
        if !std::mem::take(&mut self.is_text_open) {
            return;
        }
        let item_id = format!("msg_{}", self.unique());
        let done = json!({"item_id": item_id, "content_index": 0, "text": text, "logprobs": []});
        self.item_event(out, "response.output_text.done", done);
        let done = json!({"item_id": item_id, "content_index": 0, "part": part(text)[0]});
        self.item_event(out, "response.content_part.done", done);
        let item = self.message(text, "completed");
        self.item_event(out, "response.output_item.done", json!({"item": item}));
        self.output_index += 1;
    }

    fn call_arguments(&mut self, out: &mut String, call: &PlannedCall) {
        let item = self.call(call, "completed");
        let item_id = item["id"].clone();
        let (kind, field) = if self.is_custom {
            ("response.custom_tool_call_input", "input")
        } else {
            ("response.function_call_arguments", "arguments")
        };
        let delta = json!({"item_id": item_id, "delta": item[field]});
        self.item_event(out, &format!("{kind}.delta"), delta);
        let mut done = json!({"item_id": item_id, "name": call.name});
        done[field] = item[field].clone();
        self.item_event(out, &format!("{kind}.done"), done);
        self.item_event(out, "response.output_item.done", json!({"item": item}));
        self.output_index += 1;
    }

    fn response(&self, status: &str) -> Value {
        json!({
            "id": self.head.id, "object": "response", "created_at": self.head.created,
            "model": self.head.model, "status": status, "output": [], "usage": null,
            "incomplete_details": null, "error": null,
        })
    }

    fn finished(&self, plan: &Plan, output_tokens: usize, cached_tokens: usize) -> Value {
        let is_cut = plan.finish == Finish::Length;
        let mut response = self.response(if is_cut { "incomplete" } else { "completed" });
        if is_cut {
            response["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        let prompt_tokens = self.head.prompt_tokens;
        response["output"] = self.items(plan).into();
        response["usage"] = json!({
            "input_tokens": prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": cached_tokens,
                "cache_write_tokens": created_cache_tokens(prompt_tokens, cached_tokens),
            },
            "output_tokens": output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": prompt_tokens + output_tokens,
        });
        response
    }
}

impl ReplyWriter for ResponsesWriter {
    fn token(&mut self, plan: &Plan, emitted: Emitted) -> String {
        let mut out = String::new();
        if emitted.index == 0 {
            for kind in ["response.created", "response.in_progress"] {
                let response = self.response("in_progress");
                self.event(&mut out, kind, json!({"response": response}));
            }
        }
        for piece in plan.pieces(emitted.index) {
            match (piece, &plan.call) {
                (Piece::Text(text), _) => self.text(&mut out, text),
                (Piece::CallName(_), Some(call)) => {
                    self.close_text(&mut out, &plan.text);
                    let item = self.call(call, "in_progress");
                    self.item_event(&mut out, "response.output_item.added", json!({"item": item}));
                }
                (Piece::CallArguments(_), Some(call)) => self.call_arguments(&mut out, call),
                (Piece::CallName(_) | Piece::CallArguments(_), None) => {}
            }
        }
        if emitted.last {
            self.close_text(&mut out, &plan.text);
            let response = self.finished(plan, emitted.index + 1, emitted.cached_tokens);
            // vLLM gives the event this name whatever the status is.
            self.event(&mut out, "response.completed", json!({"response": response}));
        }
        out
    }

    fn whole(&self, plan: &Plan, cached_tokens: usize) -> Value {
        self.finished(plan, plan.ids.len(), cached_tokens)
    }
}

fn part(text: &str) -> Value {
    json!([{"type": "output_text", "text": text, "annotations": [], "logprobs": []}])
}

/// The text for a custom tool: a script tells it as the argument `input`.
fn custom_input(arguments: &str) -> Value {
    let arguments: Value = serde_json::from_str(arguments).unwrap_or_default();
    arguments["input"].as_str().unwrap_or_default().into()
}

/// Conversations by the response with which they end so far.
#[derive(Debug, Default)]
pub struct KeptConversations(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    items: HashMap<String, Vec<Value>>,
    order: VecDeque<String>,
}

impl KeptConversations {
    /// The items up to the end of a response.
    pub fn get(&self, response_id: &str) -> Option<Vec<Value>> {
        let kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.items.get(response_id).cloned()
    }

    /// Keeps a conversation; the oldest of many are forgotten.
    pub fn keep(&self, response_id: String, items: Vec<Value>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.items.insert(response_id.clone(), items);
        kept.order.push_back(response_id);
        if kept.order.len() > MAX_KEPT
            && let Some(oldest) = kept.order.pop_front()
        {
            kept.items.remove(&oldest);
        }
    }
}
