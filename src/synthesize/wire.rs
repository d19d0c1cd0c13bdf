//! A growing conversation as the request bodies that an agent would send, in either API.
//!
//! Bodies are real JSON of the API's own form, with what makes recordings hard: in Messages the cache
//! mark moves to the last block of every request.

use serde_json::{Value, json};

use crate::synthesize::plan::Form;
use crate::synthesize::tools::ToolDefinition;

const CACHE_MARK: &str = r#","cache_control":{"type":"ephemeral"}"#;
/// The model that bodies ask for; a replay puts the engine's in its place.
pub(crate) const MODEL: &str = "synthetic";

/// A tool call of a reply.
#[derive(Debug, Clone)]
pub(crate) struct WireCall {
    pub(crate) id: String,
    pub(crate) name: &'static str,
    pub(crate) arguments: Value,
}

/// What a tool call brought back.
#[derive(Debug, Clone)]
pub(crate) struct WireResult {
    pub(crate) call_id: String,
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

/// A conversation so far.
#[derive(Debug)]
pub(crate) struct WireConversation {
    form: Form,
    system: String,
    tools: String,
    tail: String,
    messages: Vec<String>,
}

impl WireConversation {
    /// A conversation that has not begun.
    pub(crate) fn new(
        form: Form,
        system: &str,
        tools: &[ToolDefinition],
        session_id: &str,
        max_tokens: u32,
    ) -> Self {
        let tools: Vec<String> = tools.iter().map(|tool| tool_json(form, tool)).collect();
        let mut messages = Vec::new();
        let (system, tail) = match form {
            Form::Messages => {
                let user = json!({"session_id": session_id}).to_string();
                let metadata = json!({"user_id": user});
                let block = json!({"type": "text", "text": system}).to_string();
                (block, format!(r#""metadata":{metadata},"max_tokens":{max_tokens},"stream":true"#))
            }
            Form::Chat => {
                messages.push(json!({"role": "system", "content": system}).to_string());
                let options = json!({"include_usage": true});
                (
                    String::new(),
                    format!(
                        r#""max_tokens":{max_tokens},"stream":true,"stream_options":{options}"#
                    ),
                )
            }
        };
        Self { form, system, tools: tools.join(","), tail, messages }
    }

    /// Adds a user's message of one or more texts.
    pub(crate) fn user(&mut self, texts: &[&str]) {
        let content = match self.form {
            Form::Messages => texts.iter().map(|text| text_block(text)).collect(),
            Form::Chat => Value::String(texts.join("\n\n")),
        };
        self.messages.push(json!({"role": "user", "content": content}).to_string());
    }

    /// Adds tool results, and a text of the user's after them.
    pub(crate) fn results(&mut self, results: &[WireResult], text: Option<&str>) {
        match self.form {
            Form::Messages => {
                let mut blocks: Vec<Value> = results.iter().map(result_block).collect();
                blocks.extend(text.map(text_block));
                self.messages.push(json!({"role": "user", "content": blocks}).to_string());
            }
            Form::Chat => {
                for result in results {
                    let message = json!({
                        "role": "tool",
                        "tool_call_id": result.call_id,
                        "content": result.text,
                    });
                    self.messages.push(message.to_string());
                }
                if let Some(text) = text {
                    self.user(&[text]);
                }
            }
        }
    }

    /// Adds the reply as the agent sends it back.
    pub(crate) fn reply(&mut self, text: Option<&str>, calls: &[WireCall]) {
        let message = match self.form {
            Form::Messages => {
                let mut blocks: Vec<Value> = text.map(text_block).into_iter().collect();
                blocks.extend(calls.iter().map(|call| {
                    json!({
                        "type": "tool_use",
                        "id": call.id,
                        "name": call.name,
                        "input": call.arguments,
                    })
                }));
                json!({"role": "assistant", "content": blocks})
            }
            Form::Chat if calls.is_empty() => json!({"role": "assistant", "content": text}),
            Form::Chat => {
                let calls: Vec<Value> = calls
                    .iter()
                    .map(|call| {
                        let function =
                            json!({"name": call.name, "arguments": call.arguments.to_string()});
                        json!({"id": call.id, "type": "function", "function": function})
                    })
                    .collect();
                json!({"role": "assistant", "content": text, "tool_calls": calls})
            }
        };
        self.messages.push(message.to_string());
    }

    /// The body of the next request.
    pub(crate) fn body(&self) -> Vec<u8> {
        let size: usize = self.messages.iter().map(|message| message.len() + 1).sum();
        let mut body = String::with_capacity(size + self.system.len() + self.tools.len() + 300);
        body.push_str(r#"{"model":""#);
        body.push_str(MODEL);
        body.push_str(r#"","messages":["#);
        body.push_str(&self.messages.join(","));
        if self.form == Form::Messages && body.ends_with("}]}") {
            body.truncate(body.len() - 3);
            body.push_str(CACHE_MARK);
            body.push_str("}]}");
        }
        body.push(']');
        if self.form == Form::Messages {
            body.push_str(r#","system":["#);
            body.push_str(self.system.strip_suffix('}').unwrap_or(&self.system));
            body.push_str(CACHE_MARK);
            body.push_str("}]");
        }
        body.push_str(r#","tools":["#);
        body.push_str(&self.tools);
        body.push_str("],");
        body.push_str(&self.tail);
        body.push('}');
        body.into_bytes()
    }
}

fn text_block(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn result_block(result: &WireResult) -> Value {
    let mut block = json!({
        "type": "tool_result",
        "tool_use_id": result.call_id,
        "content": result.text,
    });
    if result.is_error {
        block["is_error"] = Value::Bool(true);
    }
    block
}

fn tool_json(form: Form, tool: &ToolDefinition) -> String {
    let ToolDefinition { name, description, schema } = tool;
    match form {
        Form::Messages => {
            json!({"name": name, "description": description, "input_schema": schema}).to_string()
        }
        Form::Chat => {
            let function = json!({"name": name, "description": description, "parameters": schema});
            json!({"type": "function", "function": function}).to_string()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conversation(form: Form) -> WireConversation {
        let tool = ToolDefinition {
            name: "Bash",
            description: "Runs it.".into(),
            schema: json!({"type": "object"}),
        };
        let mut conversation = WireConversation::new(form, "Be brief {}}", &[tool], "s1", 64);
        conversation.user(&["notes", "do it"]);
        let call = WireCall { id: "c1".into(), name: "Bash", arguments: json!({"command": "ls"}) };
        conversation.reply(None, &[call]);
        let result = WireResult { call_id: "c1".into(), text: "a\nb".into(), is_error: true };
        conversation.results(&[result], Some("go on"));
        conversation
    }

    #[test]
    fn messages_bodies_have_the_form_of_the_api() {
        let body: Value = serde_json::from_slice(&conversation(Form::Messages).body()).unwrap();
        let mark = json!({"type": "ephemeral"});
        assert_eq!(
            body,
            json!({
                "model": "synthetic",
                "messages": [
                    {"role": "user", "content": [
                        {"type": "text", "text": "notes"}, {"type": "text", "text": "do it"}]},
                    {"role": "assistant", "content": [
                        {"type": "tool_use", "id": "c1", "name": "Bash", "input": {"command": "ls"}}]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "c1", "content": "a\nb", "is_error": true},
                        {"type": "text", "text": "go on", "cache_control": mark}]},
                ],
                "system": [{"type": "text", "text": "Be brief {}}", "cache_control": mark}],
                "tools": [{"name": "Bash", "description": "Runs it.", "input_schema": {"type": "object"}}],
                "metadata": {"user_id": "{\"session_id\":\"s1\"}"},
                "max_tokens": 64,
                "stream": true,
            })
        );
    }

    #[test]
    fn chat_bodies_have_the_form_of_the_api() {
        let body: Value = serde_json::from_slice(&conversation(Form::Chat).body()).unwrap();
        let function = json!({"name": "Bash", "arguments": "{\"command\":\"ls\"}"});
        assert_eq!(
            body,
            json!({
                "model": "synthetic",
                "messages": [
                    {"role": "system", "content": "Be brief {}}"},
                    {"role": "user", "content": "notes\n\ndo it"},
                    {"role": "assistant", "content": null, "tool_calls": [
                        {"id": "c1", "type": "function", "function": function}]},
                    {"role": "tool", "tool_call_id": "c1", "content": "a\nb"},
                    {"role": "user", "content": "go on"},
                ],
                "tools": [{"type": "function", "function":
                    {"name": "Bash", "description": "Runs it.", "parameters": {"type": "object"}}}],
                "max_tokens": 64,
                "stream": true,
                "stream_options": {"include_usage": true},
            })
        );
    }
}
