//! Replies in `OpenAI`'s forms, Chat Completions and Completions, chunk for chunk as vLLM 0.32 sends
//! them with `--enable-prompt-tokens-details`.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::plan::{Finish, Piece, Plan};
use super::reply::{ReplyHead, ReplyWriter, created_cache_tokens, quoted, whole_text};
use super::scheduler::Emitted;

/// What `stream_options` asks for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UsageOptions {
    /// A last chunk with the usage.
    pub at_end: bool,
    /// The running usage in every chunk.
    pub continuous: bool,
}

/// Writes one chat completion.
#[derive(Debug)]
pub struct ChatWriter {
    head: ReplyHead,
    options: UsageOptions,
}

/// Writes one completion.
#[derive(Debug)]
pub struct CompletionsWriter {
    head: ReplyHead,
    options: UsageOptions,
    /// The prompt's token ids, where they are asked back.
    prompt_ids: Option<Vec<u32>>,
}

impl ChatWriter {
    /// A writer for one reply.
    pub fn new(head: ReplyHead, options: UsageOptions) -> Self {
        Self { head, options }
    }

    fn chunk(&self, out: &mut String, delta: &str, finish: Option<(&str, &Plan)>, tokens: usize) {
        let finish = match finish {
            None => "null".to_owned(),
            Some((reason, plan)) => {
                format!("\"{reason}\",\"stop_reason\":{}", json!(plan.stop_text))
            }
        };
        let choices = format!(
            "[{{\"index\":0,\"delta\":{delta},\"logprobs\":null,\"finish_reason\":{finish}}}]"
        );
        push_chunk(out, &self.head, "chat.completion.chunk", &choices, self.options, tokens);
    }
}

impl ReplyWriter for ChatWriter {
    fn token(&mut self, plan: &Plan, emitted: Emitted) -> String {
        let mut out = String::new();
        if emitted.index == 0 {
            self.chunk(&mut out, "{\"role\":\"assistant\",\"content\":\"\"}", None, 0);
        }
        let tokens = emitted.index + 1;
        let mut deltas: Vec<String> = plan
            .pieces(emitted.index)
            .into_iter()
            .map(|piece| match piece {
                Piece::Text(text) => format!("{{\"content\":{}}}", quoted(text)),
                Piece::CallName(name) => {
                    let function = json!({"name": name});
                    call_delta(&json!({
                        "id": self.head.call_id, "type": "function", "index": 0,
                        "function": function,
                    }))
                }
                Piece::CallArguments(arguments) => {
                    call_delta(&json!({"index": 0, "function": {"arguments": arguments}}))
                }
            })
            .collect();
        let last = if emitted.last { deltas.pop().or(Some("{}".into())) } else { None };
        for delta in deltas {
            self.chunk(&mut out, &delta, None, tokens);
        }
        if let Some(delta) = last {
            self.chunk(&mut out, &delta, Some((finish_reason(plan), plan)), tokens);
            push_end(&mut out, &self.head, "chat.completion.chunk", self.options, emitted);
        }
        out
    }

    fn whole(&self, plan: &Plan, cached_tokens: usize) -> Value {
        let mut message = json!({"role": "assistant", "content": whole_text(plan)});
        if let Some(call) = &plan.call {
            let function = json!({"name": call.name, "arguments": call.arguments});
            message["tool_calls"] =
                json!([{"id": self.head.call_id, "type": "function", "function": function}]);
        }
        let choice = json!({
            "index": 0, "message": message, "logprobs": null,
            "finish_reason": finish_reason(plan), "stop_reason": plan.stop_text,
        });
        whole(&self.head, "chat.completion", &choice, plan, cached_tokens)
    }
}

impl CompletionsWriter {
    /// A writer for one reply; with the prompt's token ids where the client wants ids as well.
    pub fn new(head: ReplyHead, options: UsageOptions, prompt_ids: Option<Vec<u32>>) -> Self {
        Self { head, options, prompt_ids }
    }
}

impl ReplyWriter for CompletionsWriter {
    fn token(&mut self, plan: &Plan, emitted: Emitted) -> String {
        let mut out = String::new();
        let text: String = plan
            .pieces(emitted.index)
            .into_iter()
            .filter_map(|piece| if let Piece::Text(text) = piece { Some(text) } else { None })
            .collect();
        if text.is_empty() && !emitted.last && self.prompt_ids.is_none() {
            return out;
        }
        let ids = match &self.prompt_ids {
            None => String::new(),
            Some(prompt) => {
                let prompt = if emitted.index == 0 { json!(prompt) } else { Value::Null };
                format!(
                    ",\"prompt_token_ids\":{prompt},\"token_ids\":[{}]",
                    plan.ids[emitted.index]
                )
            }
        };
        let (finish, stop) = if emitted.last {
            (json!(finish_reason(plan)), json!(plan.stop_text))
        } else {
            (Value::Null, Value::Null)
        };
        let choices = format!(
            "[{{\"index\":0,\"text\":{},\"logprobs\":null,\"finish_reason\":{finish},\
             \"stop_reason\":{stop}{ids}}}]",
            quoted(&text)
        );
        let object = "text_completion";
        push_chunk(&mut out, &self.head, object, &choices, self.options, emitted.index + 1);
        if emitted.last {
            push_end(&mut out, &self.head, object, self.options, emitted);
        }
        out
    }

    fn whole(&self, plan: &Plan, cached_tokens: usize) -> Value {
        let mut choice = json!({
            "index": 0, "text": plan.text, "logprobs": null,
            "finish_reason": finish_reason(plan), "stop_reason": plan.stop_text,
        });
        if let Some(prompt) = &self.prompt_ids {
            choice["prompt_token_ids"] = json!(prompt);
            choice["token_ids"] = json!(plan.ids);
        }
        whole(&self.head, "text_completion", &choice, plan, cached_tokens)
    }
}

fn call_delta(call: &Value) -> String {
    json!({"content": null, "tool_calls": [call]}).to_string()
}

fn finish_reason(plan: &Plan) -> &'static str {
    match plan.finish {
        Finish::Length => "length",
        Finish::Stop if plan.call.is_some() => "tool_calls",
        Finish::Stop => "stop",
    }
}

fn push_chunk(
    out: &mut String,
    head: &ReplyHead,
    object: &str,
    choices: &str,
    options: UsageOptions,
    tokens: usize,
) {
    let ReplyHead { id, created, model, prompt_tokens, .. } = head;
    let usage = if options.continuous {
        let total = prompt_tokens + tokens;
        format!(
            ",\"usage\":{{\"prompt_tokens\":{prompt_tokens},\"total_tokens\":{total},\
             \"completion_tokens\":{tokens}}}"
        )
    } else {
        String::new()
    };
    let model = quoted(model);
    // Writing to a String cannot fail.
    let _ = write!(
        out,
        "data: {{\"id\":\"{id}\",\"object\":\"{object}\",\"created\":{created},\
         \"model\":{model},\"choices\":{choices}{usage}}}\n\n"
    );
}

fn push_end(
    out: &mut String,
    head: &ReplyHead,
    object: &str,
    options: UsageOptions,
    last: Emitted,
) {
    if options.at_end {
        let chunk = json!({
            "id": head.id, "object": object, "created": head.created, "model": head.model,
            "choices": [], "usage": usage(head, last.index + 1, last.cached_tokens),
        });
        let _ = write!(out, "data: {chunk}\n\n");
    }
    out.push_str("data: [DONE]\n\n");
}

fn usage(head: &ReplyHead, completion_tokens: usize, cached_tokens: usize) -> Value {
    let prompt_tokens = head.prompt_tokens;
    json!({
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": cached_tokens,
            "created_cache_tokens": created_cache_tokens(prompt_tokens, cached_tokens),
        },
    })
}

fn whole(
    head: &ReplyHead,
    object: &str,
    choice: &Value,
    plan: &Plan,
    cached_tokens: usize,
) -> Value {
    json!({
        "id": head.id, "object": object, "created": head.created, "model": head.model,
        "choices": [choice], "usage": usage(head, plan.ids.len(), cached_tokens),
    })
}
