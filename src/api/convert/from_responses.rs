//! A Responses request as a Chat request, and as one that any engine takes.
//!
//! Items in a row that the model made (text, calls, reasoning) are one assistant message. Custom tools,
//! which take plain text, become functions with one argument; tools within a namespace get its name
//! before their own. Reasoning is told where its text is there; what is encrypted only its maker can
//! read, and it is left out.

use serde_json::{Map, Value, json};

use super::{list, shortest, text, text_part, with_shared_members};

/// The argument of a function that stands for a custom tool.
const CUSTOM_ARGUMENT: &str = "input";

pub(super) fn request(body: &Value) -> Value {
    let mut chat = with_shared_members(body);
    let renamed = [
        ("max_output_tokens", "max_completion_tokens"),
        ("parallel_tool_calls", "parallel_tool_calls"),
    ];
    for (name, chat_name) in renamed {
        if let Some(value) = body.get(name).filter(|value| !value.is_null()) {
            chat.insert(chat_name.to_owned(), value.clone());
        }
    }
    if let Some(effort) = body.get("reasoning").and_then(|reasoning| text(reasoning, "effort")) {
        chat.insert("reasoning_effort".to_owned(), effort.into());
    }
    chat.insert("messages".to_owned(), messages(body).into());
    let tools: Vec<Value> = list(body, "tools").iter().flat_map(|it| functions(it, "")).collect();
    if !tools.is_empty() {
        if let Some(choice) = body.get("tool_choice").and_then(choice) {
            chat.insert("tool_choice".to_owned(), choice);
        }
        chat.insert("tools".to_owned(), tools.into());
    }
    let format = body.get("text").and_then(|text| text.get("format"));
    if let Some(format) = format.filter(|format| text(format, "type") == Some("json_schema")) {
        let schema = json!({
            "name": text(format, "name").unwrap_or("output"),
            "schema": format.get("schema"),
        });
        let format = json!({"type": "json_schema", "json_schema": schema});
        chat.insert("response_format".to_owned(), format);
    }
    chat.into()
}

/// The same request without what only its first server can read: encrypted reasoning, which others
/// refuse, and references to what that server keeps. None where there is nothing of the kind.
pub(super) fn portable(body: &Value) -> Option<Value> {
    let is_foreign = |item: &Value| item.get("encrypted_content").is_some_and(|it| !it.is_null());
    let server_kept = ["previous_response_id", "conversation"];
    let has = |name: &&str| body.get(*name).is_some_and(|value| !value.is_null());
    if !list(body, "input").iter().any(is_foreign) && !server_kept.iter().any(has) {
        return None;
    }
    let mut portable = body.as_object()?.clone();
    for name in server_kept {
        portable.remove(name);
    }
    if let Some(Value::Array(items)) = portable.get_mut("input") {
        items.retain_mut(|item| {
            if !is_foreign(item) {
                return true;
            }
            item["encrypted_content"] = Value::Null;
            !reasoning_text(item).is_empty()
        });
    }
    Some(portable.into())
}

/// A function of the Chat API for each tool that the client runs.
fn functions(tool: &Value, prefix: &str) -> Vec<Value> {
    let name = || Some(format!("{prefix}{}", text(tool, "name")?));
    let mut function = Map::new();
    let parameters = match text(tool, "type") {
        Some("function") => tool.get("parameters").filter(|it| it.is_object()).cloned(),
        Some("custom") => Some(json!({
            "type": "object",
            "properties": {CUSTOM_ARGUMENT: {"type": "string"}},
            "required": [CUSTOM_ARGUMENT],
        })),
        Some("namespace") => {
            let prefix = name().map(|name| name + "__").unwrap_or_default();
            let tools = list(tool, "tools").iter();
            return tools.flat_map(|tool| functions(tool, &prefix)).collect();
        }
        // Tools that run on a server.
        _ => return Vec::new(),
    };
    let Some(name) = name() else { return Vec::new() };
    function.insert("name".to_owned(), name.into());
    for member in ["description", "strict"] {
        if let Some(value) = tool.get(member).filter(|value| !value.is_null()) {
            function.insert(member.to_owned(), value.clone());
        }
    }
    let any = || json!({"type": "object", "properties": {}});
    function.insert("parameters".to_owned(), parameters.unwrap_or_else(any));
    vec![json!({"type": "function", "function": function})]
}

fn choice(choice: &Value) -> Option<Value> {
    match choice {
        Value::String(choice) => Some(choice.as_str().into()),
        choice if matches!(text(choice, "type"), Some("function" | "custom")) => {
            Some(json!({"type": "function", "function": {"name": choice.get("name")?}}))
        }
        _ => None,
    }
}

/// The conversation. Instructions and the system messages at its beginning are one: many templates take
/// no more.
fn messages(body: &Value) -> Vec<Value> {
    let mut system: Vec<String> =
        text(body, "instructions").map(str::to_owned).into_iter().collect();
    let mut messages = Conversation::default();
    match body.get("input") {
        Some(Value::String(said)) => messages.say("user", &said.as_str().into()),
        Some(Value::Array(items)) => {
            let n_leading = items.iter().take_while(|item| is_system(item)).count();
            let (leading, rest) = items.split_at(n_leading);
            system.extend(leading.iter().map(plain_text).filter(|text| !text.is_empty()));
            for item in rest {
                messages.add(item);
            }
        }
        _ => {}
    }
    let mut all = messages.finish();
    if !system.is_empty() {
        all.insert(0, json!({"role": "system", "content": system.join("\n\n")}));
    }
    all
}

fn is_system(item: &Value) -> bool {
    matches!(text(item, "role"), Some("system" | "developer"))
}

/// Messages so far, and the assistant's that is being put together.
#[derive(Default)]
struct Conversation {
    messages: Vec<Value>,
    reasoning: String,
    said: Vec<Value>,
    calls: Vec<Value>,
}

impl Conversation {
    fn add(&mut self, item: &Value) {
        let kind = text(item, "type").unwrap_or("message");
        match (kind, text(item, "role")) {
            ("message", Some("assistant")) => {
                // Text after a call is another turn of the model.
                if !self.calls.is_empty() {
                    self.close();
                }
                self.said.extend(parts_of(item.get("content")));
            }
            ("message", role) => {
                let role = if is_system(item) { "system" } else { role.unwrap_or("user") };
                let content = match item.get("content") {
                    Some(Value::String(said)) => said.as_str().into(),
                    content => shortest(parts_of(content)),
                };
                self.say(role, &content);
            }
            ("reasoning", _) => self.reasoning.push_str(&reasoning_text(item)),
            (kind, _) if kind.ends_with("_output") => {
                let Some(call_id) = text(item, "call_id") else { return };
                self.close();
                let output = output_text(item.get("output"));
                let message = json!({"role": "tool", "tool_call_id": call_id, "content": output});
                self.messages.push(message);
            }
            (kind, _) if kind.ends_with("_call") => self.calls.extend(call(item, kind)),
            _ => {}
        }
    }

    fn say(&mut self, role: &str, content: &Value) {
        self.close();
        self.messages.push(json!({"role": role, "content": content}));
    }

    /// Ends the assistant's message.
    fn close(&mut self) {
        let reasoning = std::mem::take(&mut self.reasoning);
        let (said, calls) = (std::mem::take(&mut self.said), std::mem::take(&mut self.calls));
        if said.is_empty() && calls.is_empty() && reasoning.is_empty() {
            return;
        }
        let content = if said.is_empty() { Value::Null } else { shortest(said) };
        let mut message = json!({"role": "assistant", "content": content});
        if !reasoning.is_empty() {
            message["reasoning_content"] = reasoning.into();
        }
        if !calls.is_empty() {
            message["tool_calls"] = calls.into();
        }
        self.messages.push(message);
    }

    fn finish(mut self) -> Vec<Value> {
        self.close();
        self.messages
    }
}

/// A call that the client answers; others ran on the server.
fn call(item: &Value, kind: &str) -> Option<Value> {
    let id = text(item, "call_id")?;
    let name = text(item, "name").unwrap_or(kind.trim_end_matches("_call"));
    let name = match text(item, "namespace") {
        Some(namespace) => format!("{namespace}__{name}"),
        None => name.to_owned(),
    };
    let arguments = match (text(item, "arguments"), text(item, "input"), item.get("action")) {
        (Some(arguments), ..) => arguments.to_owned(),
        (_, Some(input), _) => json!({CUSTOM_ARGUMENT: input}).to_string(),
        (_, _, Some(action)) => action.to_string(),
        _ => "{}".to_owned(),
    };
    let function = json!({"name": name, "arguments": arguments});
    Some(json!({"id": id, "type": "function", "function": function}))
}

fn reasoning_text(item: &Value) -> String {
    let texts = |name: &str| -> Vec<String> {
        list(item, name).iter().filter_map(|part| text(part, "text")).map(str::to_owned).collect()
    };
    let content = texts("content");
    if content.is_empty() { texts("summary").join("\n") } else { content.join("\n") }
}

/// What a tool gave, as text: images have no place in a tool's message.
fn output_text(output: Option<&Value>) -> String {
    match output {
        Some(Value::String(output)) => output.clone(),
        Some(Value::Array(parts)) => {
            parts.iter().filter_map(|part| text(part, "text")).collect::<Vec<_>>().join("\n")
        }
        Some(Value::Null) | None => String::new(),
        Some(other) => other.to_string(),
    }
}

fn plain_text(item: &Value) -> String {
    match item.get("content") {
        Some(Value::String(said)) => said.clone(),
        content => {
            let parts = parts_of(content);
            parts.iter().filter_map(|part| text(part, "text")).collect::<Vec<_>>().join("\n")
        }
    }
}

/// Text and images of a content, as the Chat API's parts.
fn parts_of(content: Option<&Value>) -> Vec<Value> {
    match content {
        Some(Value::String(said)) if !said.is_empty() => vec![text_part(said)],
        Some(Value::Array(parts)) => parts.iter().filter_map(part).collect(),
        _ => Vec::new(),
    }
}

fn part(part: &Value) -> Option<Value> {
    match text(part, "type")? {
        "input_text" | "output_text" | "text" => {
            text(part, "text").filter(|text| !text.is_empty()).map(text_part)
        }
        "refusal" => text(part, "refusal").map(text_part),
        "input_image" => {
            let url = text(part, "image_url")?;
            Some(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        _ => None,
    }
}
