//! Requests of the APIs as one conversation, and the conversation as the prompt that an engine sees.
//!
//! Pure. The rendering is this engine's chat template: deterministic, the same for a conversation told
//! in Messages or in Chat form where the two can say the same, and so laid out that the next request of
//! a growing conversation renders to a strict extension of this one and its reply.

use serde_json::Value;

use super::plan::call_text;
use super::tokens::{Mark, Segment};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// The agent or the human behind it.
    User,
    /// The model.
    Assistant,
    /// A tool's result.
    Tool,
}

/// One turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Turn {
    role: Role,
    // A human said it; not so for tool results and reminders that an agent puts in by itself.
    human: bool,
    text: String,
    // Name and arguments of each call.
    calls: Vec<(String, String)>,
}

/// A conversation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Conversation {
    system: String,
    // Name and definition of each tool.
    tools: Vec<(String, String)>,
    turns: Vec<Turn>,
}

impl Conversation {
    /// Reads a body of `/v1/messages`.
    pub fn from_messages(body: &Value) -> Result<Self, String> {
        let mut conversation = Self {
            system: text_of(body.get("system").unwrap_or(&Value::Null), true),
            tools: tools(body, Some, "input_schema"),
            turns: Vec::new(),
        };
        for message in messages(body)? {
            conversation.add_messages_turn(message)?;
        }
        Ok(conversation)
    }

    fn add_messages_turn(&mut self, message: &Value) -> Result<(), String> {
        let content = message.get("content").ok_or("a message has no content")?;
        let role = match message.get("role").and_then(Value::as_str) {
            Some("user") => Role::User,
            Some("assistant") => Role::Assistant,
            Some("system") => Role::System,
            _ => return Err("a message's role must be user, assistant or system".into()),
        };
        let mut turn = Turn { role, human: false, text: String::new(), calls: Vec::new() };
        let mut results = false;
        for block in content.as_array().into_iter().flatten() {
            match block.get("type").and_then(Value::as_str) {
                Some("tool_use") => turn.calls.push(call(block.get("name"), block.get("input"))),
                Some("tool_result") => {
                    results = true;
                    let text = text_of(block.get("content").unwrap_or(&Value::Null), false);
                    self.turns.push(Turn { role: Role::Tool, human: false, text, calls: vec![] });
                }
                _ => {}
            }
        }
        turn.human = role == Role::User && !results && is_human(content);
        turn.text = text_of(content, role == Role::System);
        // A message of nothing but tool results is no turn of its own.
        if !(turn.text.is_empty() && turn.calls.is_empty() && (results || role == Role::System)) {
            self.turns.push(turn);
        }
        Ok(())
    }

    /// Reads a body of `/v1/chat/completions`.
    pub fn from_chat(body: &Value) -> Result<Self, String> {
        let mut conversation = Self {
            tools: tools(body, |tool| tool.get("function"), "parameters"),
            ..Self::default()
        };
        for (index, message) in messages(body)?.iter().enumerate() {
            let content = message.get("content").unwrap_or(&Value::Null);
            let role = match message.get("role").and_then(Value::as_str) {
                Some("user") => Role::User,
                Some("assistant") => Role::Assistant,
                Some("system" | "developer") => Role::System,
                Some("tool" | "function") => Role::Tool,
                _ => {
                    return Err("a message's role must be system, user, assistant or tool".into());
                }
            };
            if index == 0 && role == Role::System {
                conversation.system = text_of(content, true);
                continue;
            }
            conversation.turns.push(chat_turn(role, message, content));
        }
        Ok(conversation)
    }

    /// Names of the tools offered.
    pub fn tool_names(&self) -> Vec<&str> {
        self.tools.iter().map(|tool| tool.0.as_str()).collect()
    }

    /// How far the agent is in its loop: assistant turns since the last human message.
    pub fn position(&self) -> usize {
        let human = self.turns.iter().rposition(|turn| turn.human).map_or(0, |index| index + 1);
        self.turns[human..].iter().filter(|turn| turn.role == Role::Assistant).count()
    }

    /// The prompt, with the mark at which the model begins to speak unless it is not wanted.
    pub fn render(&self, generation_prompt: bool) -> Vec<Segment> {
        let mut segments = Vec::new();
        if !self.system.is_empty() || !self.tools.is_empty() {
            let mut text = format!("system\n{}", self.system);
            for tool in &self.tools {
                text.push('\n');
                text.push_str(&tool.1);
            }
            segments.extend([Segment::Mark(Mark::Start), Segment::Text(text)]);
            segments.push(Segment::Mark(Mark::End));
        }
        for turn in &self.turns {
            turn.render(&mut segments);
        }
        if generation_prompt {
            segments.push(Segment::Mark(Mark::Start));
            segments.push(Segment::Text("assistant\n".into()));
        }
        segments
    }
}

impl Turn {
    fn render(&self, segments: &mut Vec<Segment>) {
        let role = match self.role {
            Role::System => "system\n",
            Role::User => "user\n",
            Role::Assistant => "assistant\n",
            Role::Tool => "tool\n",
        };
        segments.extend([Segment::Mark(Mark::Start), Segment::Text(role.into())]);
        if !self.text.is_empty() {
            segments.push(Segment::Text(self.text.clone()));
        }
        for (name, arguments) in &self.calls {
            segments.push(Segment::Mark(Mark::CallStart));
            segments.push(Segment::Text(call_text(name, arguments)));
            segments.push(Segment::Mark(Mark::CallEnd));
        }
        segments.push(Segment::Mark(Mark::End));
    }
}

fn messages(body: &Value) -> Result<&Vec<Value>, String> {
    let messages = body.get("messages").ok_or("messages: field required")?;
    let messages = messages.as_array().ok_or("messages: must be a list")?;
    if messages.is_empty() {
        return Err("messages: must not be empty".into());
    }
    Ok(messages)
}

fn chat_turn(role: Role, message: &Value, content: &Value) -> Turn {
    let mut text = text_of(content, false);
    let reasoning = ["reasoning", "reasoning_content"]
        .iter()
        .find_map(|name| message.get(*name).and_then(Value::as_str));
    if let Some(reasoning) = reasoning.filter(|it| !it.is_empty()) {
        text = join(format!("<think>{reasoning}</think>"), &text);
    }
    let calls = message.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let calls = calls.map(|it| {
        let function = it.get("function").unwrap_or(&Value::Null);
        call(function.get("name"), function.get("arguments"))
    });
    Turn { role, human: role == Role::User && is_human(content), text, calls: calls.collect() }
}

/// A call's name and arguments, the arguments as compact JSON whichever way they were told.
fn call(name: Option<&Value>, arguments: Option<&Value>) -> (String, String) {
    let name = name.and_then(Value::as_str).unwrap_or_default().to_owned();
    let arguments = match arguments {
        Some(Value::String(text)) => serde_json::from_str::<Value>(text)
            .map_or_else(|_| Value::from(text.as_str()).to_string(), |value| value.to_string()),
        Some(value) => value.to_string(),
        None => "{}".into(),
    };
    (name, arguments)
}

fn tools<'body>(
    body: &'body Value,
    definition: impl Fn(&'body Value) -> Option<&'body Value>,
    schema: &str,
) -> Vec<(String, String)> {
    let tools = body.get("tools").and_then(Value::as_array).into_iter().flatten();
    // A tool without a schema runs on a server that is not this one.
    let tools = tools.filter_map(definition).filter(|tool| tool.get(schema).is_some());
    let tools = tools.map(|tool| {
        let name = tool.get("name").and_then(Value::as_str).unwrap_or_default();
        let text = serde_json::json!({
            "name": name,
            "description": tool.get("description").unwrap_or(&Value::Null),
            "parameters": tool.get(schema).unwrap_or(&Value::Null),
        });
        (name.to_owned(), text.to_string())
    });
    tools.collect()
}

/// The text of a content, its blocks on lines of their own. Tool calls and results are no text; what is neither
/// stands in as its JSON, so that it costs tokens.
fn text_of(content: &Value, system: bool) -> String {
    let blocks = match content {
        Value::String(text) => return text.clone(),
        Value::Array(blocks) => blocks,
        _ => return String::new(),
    };
    let mut all = String::new();
    for block in blocks {
        let field = |name: &str| block.get(name).and_then(Value::as_str);
        let text = match field("type") {
            Some("tool_use" | "tool_result" | "redacted_thinking") => continue,
            // A nonce that changes from request to request; vLLM drops it as well.
            Some("text") if system && field("text").is_some_and(is_billing_line) => continue,
            Some("text") => field("text").unwrap_or_default().to_owned(),
            Some("thinking") => {
                format!("<think>{}</think>", field("thinking").unwrap_or_default())
            }
            _ => block.to_string(),
        };
        if system {
            // As engines read a Messages request's system blocks: one text, without a seam.
            all.push_str(&text);
        } else {
            all = join(all, &text);
        }
    }
    all
}

fn join(mut text: String, more: &str) -> String {
    if !text.is_empty() && !more.is_empty() {
        text.push('\n');
    }
    text.push_str(more);
    text
}

fn is_billing_line(text: &str) -> bool {
    text.starts_with("x-anthropic-billing-header")
}

/// Whether somebody said something: any text that is not a reminder put in by the agent.
fn is_human(content: &Value) -> bool {
    let reminder = |text: &str| {
        let text = text.trim_start();
        text.starts_with("<system-reminder>") || text.starts_with("<environment_context>")
    };
    match content {
        Value::String(text) => !reminder(text),
        Value::Array(blocks) => blocks.iter().any(|block| {
            block.get("text").and_then(Value::as_str).is_none_or(|text| !reminder(text))
        }),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::{Api, convert::convert_request};
    use crate::simulator::tokens::Tokenizer;

    fn ids(conversation: &Conversation, open: bool) -> Vec<u32> {
        Tokenizer::FourBytes.encode(&conversation.render(open))
    }

    /// A loop of three requests, as Claude Code sends them.
    fn turns() -> Vec<Value> {
        let all = json!([
            {"role": "user", "content": [
                {"type": "text", "text": "<system-reminder>be brief</system-reminder>"},
                {"type": "text", "text": "fix app.py", "cache_control": {"type": "ephemeral"}}]},
            {"role": "assistant", "content": [
                {"type": "text", "text": "I will look."},
                {"type": "tool_use", "id": "t1", "name": "Bash", "input": {"command": "ls", "a": 1}}]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t1", "content": "app.py"},
                {"type": "text", "text": "<system-reminder>go on</system-reminder>"}]},
            {"role": "system", "content": "still here"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t2", "name": "Bash", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t2", "content": [
                {"type": "text", "text": "one"}, {"type": "text", "text": "two"}]}]},
        ]);
        let all = all.as_array().unwrap();
        let request = |until: usize| {
            json!({
                "system": [
                    {"type": "text", "text": "x-anthropic-billing-header: cch=1;"},
                    {"type": "text", "text": "You are an agent."},
                    {"type": "text", "text": "Work."}],
                "tools": [{"name": "Bash", "description": "Runs.", "input_schema": {"type": "object"}}],
                "messages": all[..until],
            })
        };
        [1, 4, 6].map(request).to_vec()
    }

    #[test]
    fn a_growing_conversation_extends_its_prompt() {
        let requests = turns();
        let read = |body| Conversation::from_messages(body).unwrap();
        let replies =
            [("I will look.", "{\"command\":\"ls\",\"a\":1}"), ("<think>hm</think>", "{}")];
        for (pair, (text, arguments)) in requests.windows(2).zip(replies) {
            let mut segments = read(&pair[0]).render(true);
            segments.push(Segment::Text(text.into()));
            segments.push(Segment::Mark(Mark::CallStart));
            segments.push(Segment::Text(call_text("Bash", arguments)));
            segments.extend([Segment::Mark(Mark::CallEnd), Segment::Mark(Mark::End)]);
            let before = Tokenizer::FourBytes.encode(&segments);
            let after = ids(&read(&pair[1]), true);
            assert!(after.len() > before.len());
            assert_eq!(after[..before.len()], before, "prompt and reply come back as they were");
        }
    }

    #[test]
    fn both_apis_render_a_conversation_equally() {
        for body in turns() {
            let chat = convert_request(&body, Api::Messages, Api::Chat).unwrap();
            let from_messages = Conversation::from_messages(&body).unwrap();
            let from_chat = Conversation::from_chat(&chat).unwrap();
            assert_eq!(from_messages.render(true), from_chat.render(true));
            assert_eq!(from_messages.position(), from_chat.position());
            assert_eq!(from_chat.tool_names(), ["Bash"]);
        }
    }

    #[test]
    fn the_position_counts_from_the_last_human_message() {
        let check = |body: &Value, position: usize| {
            let read = Conversation::from_messages(body).unwrap();
            assert_eq!(read.position(), position, "{body}");
        };
        for (body, position) in turns().iter().zip([0, 1, 2]) {
            check(body, position);
        }
        let mut body = turns().pop().unwrap();
        body["messages"]
            .as_array_mut()
            .unwrap()
            .push(json!({"role": "user", "content": "and now?"}));
        check(&body, 0);
    }

    #[test]
    fn what_is_no_conversation_is_refused() {
        let check = |body: Value, message: &str| {
            assert_eq!(Conversation::from_messages(&body).unwrap_err(), message);
        };
        check(json!({}), "messages: field required");
        check(json!({"messages": 1}), "messages: must be a list");
        check(json!({"messages": []}), "messages: must not be empty");
        check(json!({"messages": [{"role": "user"}]}), "a message has no content");
        check(
            json!({"messages": [{"role": "x", "content": "a"}]}),
            "a message's role must be user, assistant or system",
        );
        let images =
            json!({"messages": [{"role": "user", "content": [{"type": "image", "n": 1}]}]});
        let prompt = ids(&Conversation::from_messages(&images).unwrap(), false);
        let text = "{\"type\":\"image\",\"n\":1}";
        assert_eq!(prompt.len(), 1 + 2 + text.len().div_ceil(4) + 1);
    }
}
