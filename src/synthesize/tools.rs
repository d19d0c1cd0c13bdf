//! The tools that synthetic sessions use: their definitions, and what calls and results say.
//!
//! Names are those that coding agents commonly use; descriptions are our own. The order is that of the
//! definitions in a request.

use serde_json::{Value, json};

use crate::synthesize::text::Author;

/// All tools; the last one starts subagents and is kept from them.
pub(crate) const TOOL_NAMES: [&str; 9] =
    ["Bash", "Read", "Edit", "Grep", "Write", "Glob", "TodoWrite", "WebFetch", "Task"];

/// A tool's definition.
#[derive(Debug, Clone)]
pub(crate) struct ToolDefinition {
    pub(crate) name: &'static str,
    pub(crate) description: String,
    pub(crate) schema: Value,
}

/// The definitions, `tokens` in all.
pub(crate) fn definitions(author: &mut Author, tokens: u32) -> Vec<ToolDefinition> {
    TOOL_NAMES
        .iter()
        .map(|name| {
            let schema = schema(name);
            let json = schema.to_string().len() as u32 / 4 + 18;
            let room = (tokens / TOOL_NAMES.len() as u32).saturating_sub(json).max(12);
            ToolDefinition { name, description: author.rules(purpose(name), room), schema }
        })
        .collect()
}

fn purpose(name: &str) -> &'static str {
    match name {
        "Bash" => "Runs a shell command and returns what it prints.",
        "Read" => "Reads a file and returns it with line numbers.",
        "Edit" => "Replaces a text in a file by another.",
        "Grep" => "Searches the contents of files.",
        "Write" => "Writes a whole file.",
        "Glob" => "Finds files by their names.",
        "TodoWrite" => "Keeps the list of what is still to be done.",
        "WebFetch" => "Fetches a page and answers a question about it.",
        _ => "Hands a task to a subagent and returns its report.",
    }
}

fn schema(name: &str) -> Value {
    let object = |properties: Value, required: Value| json!({"type": "object", "properties": properties, "required": required});
    let text = json!({"type": "string"});
    let number = json!({"type": "integer"});
    match name {
        "Bash" => object(
            json!({"command": text, "description": text, "timeout": number}),
            json!(["command"]),
        ),
        "Read" => object(
            json!({"file_path": text, "offset": number, "limit": number}),
            json!(["file_path"]),
        ),
        "Edit" => object(
            json!({"file_path": text, "old_string": text, "new_string": text}),
            json!(["file_path", "old_string", "new_string"]),
        ),
        "Grep" => object(json!({"pattern": text, "path": text}), json!(["pattern"])),
        "Write" => {
            object(json!({"file_path": text, "content": text}), json!(["file_path", "content"]))
        }
        "Glob" => object(json!({"pattern": text}), json!(["pattern"])),
        "TodoWrite" => {
            let item =
                object(json!({"content": text, "status": text}), json!(["content", "status"]));
            object(json!({"todos": {"type": "array", "items": item}}), json!(["todos"]))
        }
        "WebFetch" => object(json!({"url": text, "prompt": text}), json!(["url", "prompt"])),
        _ => object(
            json!({"description": text, "prompt": text, "subagent_type": text}),
            json!(["description", "prompt", "subagent_type"]),
        ),
    }
}

/// The arguments of a call, about `tokens` long where the tool takes text of any length.
pub(crate) fn arguments(author: &mut Author, name: &str, tokens: u32) -> Value {
    let room = tokens.saturating_sub(24);
    match name {
        "Bash" if room > 160 => {
            let script = author.code(room);
            json!({"command": format!("python3 - <<'END'\n{script}\nEND"), "description": "Try it out"})
        }
        "Bash" => {
            let (noun, path) = (author.noun(), author.path());
            let command = match author.number(5) {
                0 => format!("python3 -m pytest -x {path}"),
                1 => format!("git diff -- {path}"),
                2 => format!("ls -la $(dirname {path})"),
                3 => format!("tail -n 80 logs/{noun}.log"),
                _ => format!("python3 {path} --{noun}"),
            };
            json!({"command": command, "description": format!("Check the {noun}")})
        }
        "Read" => {
            let offset = author.number(400) + 1;
            json!({"file_path": author.path(), "offset": offset, "limit": 200})
        }
        "Edit" => {
            let old = author.code((room / 3).max(6));
            let new = author.code((room * 2 / 3).max(8));
            json!({"file_path": author.path(), "old_string": old, "new_string": new})
        }
        "Grep" => {
            let pattern = author.function();
            json!({"pattern": pattern, "path": format!("/repo/{}", author.project())})
        }
        "Write" => json!({"file_path": author.path(), "content": author.code(room.max(12))}),
        "Glob" => json!({"pattern": format!("**/*{}*.py", author.noun())}),
        "TodoWrite" => {
            let items = (room / 24).clamp(1, 8);
            let todos: Vec<Value> = (0..items)
                .map(|_| {
                    let status = author.pick(&["completed", "in_progress", "pending"]);
                    json!({"content": author.request(14), "status": status})
                })
                .collect();
            json!({"todos": todos})
        }
        "WebFetch" => {
            let (noun, function) = (author.noun(), author.function());
            json!({"url": format!("https://docs.example.com/{noun}"), "prompt": format!("How does {function} work?")})
        }
        _ => task(author, room),
    }
}

/// The arguments of a call that starts a subagent with a task of `tokens`.
pub(crate) fn task(author: &mut Author, tokens: u32) -> Value {
    let description = format!("Look into {}", author.noun());
    let prompt = author.request(tokens.max(16));
    json!({"description": description, "prompt": prompt, "subagent_type": "general"})
}

/// What a call brought back.
pub(crate) fn result(author: &mut Author, name: &str, tokens: u32, is_error: bool) -> String {
    match name {
        _ if is_error => author.failure(tokens),
        "Read" => author.numbered_code(tokens),
        "Edit" => author.diff(tokens),
        "Grep" => author.matches(tokens),
        "Glob" | "Write" => author.paths(tokens),
        "TodoWrite" | "WebFetch" | "Task" => author.prose(tokens),
        _ => author.command_output(tokens),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn definitions_fill_their_share_and_calls_fit_their_schema() {
        let mut author = Author::shared(1);
        let tools = definitions(&mut author, 10_500);
        let bytes: usize = tools
            .iter()
            .map(|tool| json!({"name": tool.name, "description": tool.description, "input_schema": tool.schema}).to_string().len())
            .sum();
        assert!((bytes as f64 / 42_000.0 - 1.0).abs() < 0.02, "{bytes} bytes");
        for tool in &tools {
            for tokens in [5, 40, 900] {
                let arguments = arguments(&mut author, tool.name, tokens);
                let properties = tool.schema["properties"].as_object().unwrap();
                let given = arguments.as_object().unwrap();
                assert!(given.keys().all(|key| properties.contains_key(key)), "{}", tool.name);
                for required in tool.schema["required"].as_array().unwrap() {
                    assert!(given.contains_key(required.as_str().unwrap()), "{}", tool.name);
                }
            }
        }
    }
}
