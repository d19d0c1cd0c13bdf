//! A Chat request as a Messages request.

use serde_json::{Map, Value, json};

use super::{list, shortest, text, text_part, with_shared_members};

/// The Messages API demands a limit; this one is set where the Chat request has none.
const DEFAULT_MAX_TOKENS: u64 = 4096;

pub(super) fn request(body: &Value) -> Value {
    let mut request = with_shared_members(body);
    let limit = ["max_completion_tokens", "max_tokens"]
        .iter()
        .find_map(|name| body.get(*name).filter(|limit| !limit.is_null()));
    request.insert("max_tokens".to_owned(), limit.cloned().unwrap_or(DEFAULT_MAX_TOKENS.into()));
    let stops = match body.get("stop") {
        Some(Value::String(stop)) => Some(json!([stop])),
        Some(stops @ Value::Array(_)) => Some(stops.clone()),
        _ => None,
    };
    request.extend(stops.map(|stops| ("stop_sequences".to_owned(), stops)));
    let messages = list(body, "messages");
    let n_leading = messages.iter().take_while(|message| is_system(message)).count();
    let (leading, rest) = messages.split_at(n_leading);
    let system: Vec<Value> =
        leading.iter().filter_map(|message| message.get("content")).flat_map(blocks_of).collect();
    if !system.is_empty() {
        request.insert("system".to_owned(), shortest(system));
    }
    request.insert("messages".to_owned(), convert_messages(rest).into());
    let tools: Vec<Value> = list(body, "tools").iter().filter_map(tool).collect();
    if !tools.is_empty() {
        request.insert("tools".to_owned(), tools.into());
    }
    if let Some(choice) = choice(body) {
        request.insert("tool_choice".to_owned(), choice);
    }
    let schema = body.get("response_format").and_then(|f| f.get("json_schema")?.get("schema"));
    if let Some(schema) = schema {
        let format = json!({"format": {"type": "json_schema", "schema": schema}});
        request.insert("output_config".to_owned(), format);
    }
    request.into()
}

fn is_system(message: &Value) -> bool {
    matches!(text(message, "role"), Some("system" | "developer"))
}

fn tool(tool: &Value) -> Option<Value> {
    let function = tool.get("function")?;
    let mut converted = Map::new();
    converted.insert("name".to_owned(), function.get("name")?.clone());
    for name in ["description", "strict"] {
        if let Some(value) = function.get(name) {
            converted.insert(name.to_owned(), value.clone());
        }
    }
    let any = || json!({"type": "object", "properties": {}});
    let schema = function.get("parameters").cloned().unwrap_or_else(any);
    converted.insert("input_schema".to_owned(), schema);
    Some(converted.into())
}

fn choice(body: &Value) -> Option<Value> {
    let serial = body.get("parallel_tool_calls") == Some(&Value::Bool(false));
    let mut choice = match body.get("tool_choice") {
        Some(Value::String(choice)) => match choice.as_str() {
            "required" => json!({"type": "any"}),
            "none" => json!({"type": "none"}),
            _ => json!({"type": "auto"}),
        },
        Some(choice @ Value::Object(_)) => {
            json!({"type": "tool", "name": choice.get("function")?.get("name")?})
        }
        _ if serial => json!({"type": "auto"}),
        _ => return None,
    };
    if serial {
        choice["disable_parallel_tool_use"] = true.into();
    }
    Some(choice)
}

/// Results in a row, and the user message after them, are one user message, as the API wants it.
fn convert_messages(messages: &[Value]) -> Vec<Value> {
    let mut converted = Vec::new();
    let mut user_blocks: Vec<Value> = Vec::new();
    for message in messages {
        let content = message.get("content").unwrap_or(&Value::Null);
        let role = text(message, "role").unwrap_or_default();
        if role == "tool" {
            user_blocks.push(tool_result(message, content));
            continue;
        }
        if role == "user" && !user_blocks.is_empty() {
            user_blocks.extend(blocks_of(content));
        }
        if !user_blocks.is_empty() {
            converted.push(json!({"role": "user", "content": std::mem::take(&mut user_blocks)}));
            if role == "user" {
                continue;
            }
        }
        converted.push(match role {
            "assistant" => assistant_message(message, content),
            _ if is_system(message) => json!({"role": "system", "content": content_of(content)}),
            _ => json!({"role": "user", "content": content_of(content)}),
        });
    }
    if !user_blocks.is_empty() {
        converted.push(json!({"role": "user", "content": user_blocks}));
    }
    converted
}

fn tool_result(message: &Value, content: &Value) -> Value {
    let call_id = text(message, "tool_call_id").unwrap_or_default();
    json!({"type": "tool_result", "tool_use_id": call_id, "content": content_of(content)})
}

fn content_of(content: &Value) -> Value {
    if content.is_string() { content.clone() } else { shortest(blocks_of(content)) }
}

fn assistant_message(message: &Value, content: &Value) -> Value {
    let mut blocks = Vec::new();
    let reasoning = text(message, "reasoning_content").or_else(|| text(message, "reasoning"));
    if let Some(reasoning) = reasoning.filter(|reasoning| !reasoning.is_empty()) {
        blocks.push(json!({"type": "thinking", "thinking": reasoning, "signature": ""}));
    }
    blocks.extend(blocks_of(content));
    blocks.extend(list(message, "tool_calls").iter().filter_map(tool_use));
    json!({"role": "assistant", "content": shortest(blocks)})
}

/// A call's input must be an object; arguments that are none (cut off, malformed) are kept as text.
fn tool_use(call: &Value) -> Option<Value> {
    let function = call.get("function")?;
    let arguments = text(function, "arguments").unwrap_or_default();
    let input = match serde_json::from_str::<Value>(arguments) {
        Ok(input @ Value::Object(_)) => input,
        _ if arguments.trim().is_empty() => json!({}),
        _ => json!({"arguments": arguments}),
    };
    Some(json!({
        "type": "tool_use",
        "id": text(call, "id").unwrap_or_default(),
        "name": text(function, "name").unwrap_or_default(),
        "input": input,
    }))
}

/// Text and images of a content, as the Messages API's blocks.
fn blocks_of(content: &Value) -> Vec<Value> {
    match content {
        Value::String(text) if text.is_empty() => Vec::new(),
        Value::String(text) => vec![text_part(text)],
        Value::Array(parts) => parts.iter().filter_map(block).collect(),
        _ => Vec::new(),
    }
}

fn block(part: &Value) -> Option<Value> {
    match text(part, "type")? {
        "text" => text(part, "text").filter(|text| !text.is_empty()).map(text_part),
        "refusal" => text(part, "refusal").map(text_part),
        "image_url" => {
            let url = text(part.get("image_url")?, "url")?;
            let inline = url.strip_prefix("data:").and_then(|data| data.split_once(";base64,"));
            let source = match inline {
                Some((media_type, data)) => {
                    json!({"type": "base64", "media_type": media_type, "data": data})
                }
                None => json!({"type": "url", "url": url}),
            };
            Some(json!({"type": "image", "source": source}))
        }
        _ => None,
    }
}
