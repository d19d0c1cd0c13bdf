//! Replies in Anthropic's Messages form, event for event as vLLM 0.32 sends them with
//! `--enable-prompt-tokens-details`: cache figures come with the last usage only, and a tool call's
//! input as one piece.

use serde_json::{Value, json};

use super::plan::{Finish, Piece, Plan};
use super::reply::{ReplyHead, ReplyWriter, created_cache_tokens, quoted};
use super::scheduler::Emitted;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Open {
    Nothing,
    Text,
    Call,
}

/// Writes one reply.
#[derive(Debug)]
pub struct MessagesWriter {
    head: ReplyHead,
    open: Open,
    block: usize,
}

impl MessagesWriter {
    /// A writer for one reply.
    pub fn new(head: ReplyHead) -> Self {
        Self { head, open: Open::Nothing, block: 0 }
    }

    fn start(&self, out: &mut String) {
        let ReplyHead { id, model, prompt_tokens, .. } = &self.head;
        let message = json!({
            "type": "message_start",
            "message": {
                "id": id, "type": "message", "role": "assistant", "content": [], "model": model,
                "stop_reason": null, "stop_sequence": null,
                "usage": {"input_tokens": prompt_tokens, "output_tokens": 0},
            },
        });
        event(out, "message_start", &message.to_string());
    }

    fn open_block(&mut self, out: &mut String, kind: Open, block: &Value) {
        self.close_block(out);
        let start =
            json!({"type": "content_block_start", "content_block": block, "index": self.block});
        event(out, "content_block_start", &start.to_string());
        self.open = kind;
    }

    fn close_block(&mut self, out: &mut String) {
        if self.open == Open::Nothing {
            return;
        }
        let stop = format!("{{\"type\":\"content_block_stop\",\"index\":{}}}", self.block);
        event(out, "content_block_stop", &stop);
        self.open = Open::Nothing;
        self.block += 1;
    }

    fn delta(&self, out: &mut String, kind: &str, field: &str, text: &str) {
        let delta = format!(
            "{{\"type\":\"content_block_delta\",\"delta\":{{\"type\":\"{kind}\",\"{field}\":{}}},\
             \"index\":{}}}",
            quoted(text),
            self.block
        );
        event(out, "content_block_delta", &delta);
    }

    fn end(&mut self, out: &mut String, plan: &Plan, emitted: Emitted) {
        self.close_block(out);
        let (reason, stop) = stop_reason(plan);
        let delta = json!({
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": stop},
            "usage": self.usage(emitted.index + 1, emitted.cached_tokens),
        });
        event(out, "message_delta", &delta.to_string());
        event(out, "message_stop", "{\"type\":\"message_stop\"}");
    }

    fn usage(&self, output_tokens: usize, cached_tokens: usize) -> Value {
        let created = created_cache_tokens(self.head.prompt_tokens, cached_tokens);
        json!({
            "input_tokens": self.head.prompt_tokens - cached_tokens - created,
            "output_tokens": output_tokens,
            "cache_creation_input_tokens": created,
            "cache_read_input_tokens": cached_tokens,
        })
    }
}

impl ReplyWriter for MessagesWriter {
    fn token(&mut self, plan: &Plan, emitted: Emitted) -> String {
        let mut out = String::new();
        if emitted.index == 0 {
            self.start(&mut out);
        }
        for piece in plan.pieces(emitted.index) {
            match piece {
                Piece::Text(text) => {
                    if self.open != Open::Text {
                        self.open_block(&mut out, Open::Text, &json!({"type": "text", "text": ""}));
                    }
                    self.delta(&mut out, "text_delta", "text", text);
                }
                Piece::CallName(name) => {
                    let id = &self.head.call_id;
                    let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                    self.open_block(&mut out, Open::Call, &block);
                }
                Piece::CallArguments(arguments) => {
                    self.delta(&mut out, "input_json_delta", "partial_json", arguments);
                }
            }
        }
        if emitted.last {
            self.end(&mut out, plan, emitted);
        }
        out
    }

    fn whole(&self, plan: &Plan, cached_tokens: usize) -> Value {
        let mut content = Vec::new();
        if !plan.text.is_empty() || plan.call.is_none() {
            content.push(json!({"type": "text", "text": plan.text}));
        }
        if let Some(call) = &plan.call {
            let input: Value = serde_json::from_str(&call.arguments).unwrap_or_default();
            let id = &self.head.call_id;
            content.push(json!({"type": "tool_use", "id": id, "name": call.name, "input": input}));
        }
        let (reason, stop) = stop_reason(plan);
        let mut message = json!({
            "id": self.head.id, "type": "message", "role": "assistant", "content": content,
            "model": self.head.model, "stop_reason": reason,
        });
        if let Some(stop) = stop {
            message["stop_sequence"] = Value::from(stop);
        }
        message["usage"] = self.usage(plan.ids.len(), cached_tokens);
        message
    }
}

fn stop_reason(plan: &Plan) -> (&'static str, Option<&str>) {
    match (&plan.finish, &plan.stop_text) {
        (Finish::Length, _) => ("max_tokens", None),
        (_, Some(stop)) => ("stop_sequence", Some(stop)),
        _ if plan.call.is_some() => ("tool_use", None),
        _ => ("end_turn", None),
    }
}

fn event(out: &mut String, name: &str, data: &str) {
    out.push_str("event: ");
    out.push_str(name);
    out.push_str("\ndata: ");
    out.push_str(data);
    out.push_str("\n\n");
}
