//! A Messages request as a Chat request.

use serde_json::{Map, Value, json};

use super::super::normal_form::BILLING_LINE;
use super::{list, shortest, text, text_part, with_shared_members};

pub(super) fn request(body: &Value) -> Value {
    let mut chat = with_shared_members(body);
    let renamed = [("max_tokens", "max_completion_tokens"), ("stop_sequences", "stop")];
    for (name, chat_name) in renamed {
        if let Some(value) = body.get(name).filter(|value| !value.is_null()) {
            chat.insert(chat_name.to_owned(), value.clone());
        }
    }
    let mut messages = Vec::new();
    if let Some(system) = body.get("system") {
        push_message(&mut messages, "system", system_text(system));
    }
    for message in list(body, "messages") {
        convert_message(&mut messages, message);
    }
    chat.insert("messages".to_owned(), messages.into());
    let tools: Vec<Value> = list(body, "tools").iter().filter_map(tool).collect();
    if !tools.is_empty() {
        chat.insert("tools".to_owned(), tools.into());
    }
    if let Some(choice) = body.get("tool_choice") {
        convert_choice(&mut chat, choice);
    }
    let format = body.get("output_format").or_else(|| body.get("output_config")?.get("format"));
    if let Some(schema) = format.and_then(|format| format.get("schema")) {
        let format =
            json!({"type": "json_schema", "json_schema": {"name": "output", "schema": schema}});
        chat.insert("response_format".to_owned(), format);
    }
    chat.into()
}

/// A tool that the client runs; those that run on a server have no schema.
fn tool(tool: &Value) -> Option<Value> {
    let mut function = Map::new();
    for (name, chat_name) in [
        ("name", "name"),
        ("description", "description"),
        ("input_schema", "parameters"),
        ("strict", "strict"),
    ] {
        if let Some(value) = tool.get(name) {
            function.insert(chat_name.to_owned(), value.clone());
        }
    }
    function.contains_key("parameters").then(|| json!({"type": "function", "function": function}))
}

fn convert_choice(chat: &mut Map<String, Value>, choice: &Value) {
    let converted = match text(choice, "type") {
        Some("auto") => "auto".into(),
        Some("any") => "required".into(),
        Some("none") => "none".into(),
        Some("tool") => json!({"type": "function", "function": {"name": choice.get("name")}}),
        _ => return,
    };
    chat.insert("tool_choice".to_owned(), converted);
    if choice.get("disable_parallel_tool_use") == Some(&Value::Bool(true)) {
        chat.insert("parallel_tool_calls".to_owned(), false.into());
    }
}

fn convert_message(messages: &mut Vec<Value>, message: &Value) {
    let content = message.get("content").unwrap_or(&Value::Null);
    match text(message, "role") {
        Some("assistant") => messages.push(assistant_message(content)),
        Some("system") => push_message(messages, "system", system_text(content)),
        _ => convert_user(messages, content),
    }
}

fn push_message(messages: &mut Vec<Value>, role: &str, parts: Vec<Value>) {
    if !parts.is_empty() {
        messages.push(json!({"role": role, "content": shortest(parts)}));
    }
}

/// A system prompt is one text, as engines make it of a Messages request: many templates take no
/// other. The billing line is the agent's note to its provider and no part of the prompt.
fn system_text(content: &Value) -> Vec<Value> {
    let parts = parts_of(content);
    let texts = parts.iter().filter_map(|part| text(part, "text"));
    let joined: String = texts.filter(|text| !text.starts_with(BILLING_LINE)).collect();
    if joined.is_empty() { Vec::new() } else { vec![text_part(&joined)] }
}

/// Results come first, each as a message of its own, for they answer the calls just before; what else
/// the user says follows. Images in results go there too: a tool message holds text alone.
fn convert_user(messages: &mut Vec<Value>, content: &Value) {
    let is_result = |block: &&Value| text(block, "type") == Some("tool_result");
    let mut images = Vec::new();
    for result in content.as_array().into_iter().flatten().filter(is_result) {
        let parts = result.get("content").map(parts_of).unwrap_or_default();
        let (texts, others): (Vec<Value>, Vec<Value>) =
            parts.into_iter().partition(|part| text(part, "type") == Some("text"));
        images.extend(others);
        let texts: Vec<&str> = texts.iter().filter_map(|part| text(part, "text")).collect();
        let content = texts.join("\n");
        let call_id = text(result, "tool_use_id").unwrap_or_default();
        messages.push(json!({"role": "tool", "tool_call_id": call_id, "content": content}));
    }
    images.extend(parts_of(content));
    push_message(messages, "user", images);
}

fn assistant_message(content: &Value) -> Value {
    let blocks = content.as_array().map_or(&[][..], Vec::as_slice);
    let calls: Vec<Value> = blocks.iter().filter_map(call).collect();
    let reasoning: String = blocks.iter().filter_map(|block| text(block, "thinking")).collect();
    let parts = parts_of(content);
    let content = if parts.is_empty() { Value::Null } else { shortest(parts) };
    let mut message = json!({"role": "assistant", "content": content});
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

fn call(block: &Value) -> Option<Value> {
    (text(block, "type")? == "tool_use").then_some(())?;
    let arguments = block.get("input").map_or_else(|| "{}".to_owned(), Value::to_string);
    Some(json!({
        "id": text(block, "id").unwrap_or_default(),
        "type": "function",
        "function": {"name": text(block, "name").unwrap_or_default(), "arguments": arguments},
    }))
}

/// Text and images of a content, as the Chat API's parts.
fn parts_of(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![text_part(text)],
        Value::Array(blocks) => blocks.iter().filter_map(part).collect(),
        _ => Vec::new(),
    }
}

fn part(block: &Value) -> Option<Value> {
    let source = block.get("source");
    match text(block, "type")? {
        "text" => text(block, "text").filter(|text| !text.is_empty()).map(text_part),
        "image" => {
            let source = source?;
            let url = match text(source, "type")? {
                "base64" => {
                    format!("data:{};base64,{}", text(source, "media_type")?, text(source, "data")?)
                }
                "url" => text(source, "url")?.to_owned(),
                _ => return None,
            };
            Some(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        "document" => {
            let source = source.filter(|source| text(source, "type") == Some("text"))?;
            text(source, "data").map(text_part)
        }
        _ => None,
    }
}
