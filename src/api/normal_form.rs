//! Units in normal form: the blocks by which prompts are compared from turn to turn.
//!
//! Agents move `cache_control` marks, send the same text now as a string and now as a list of blocks,
//! and write members in any order; a block's hash is over what stays the same: its role and its
//! content with sorted keys. Empty text and null members say nothing and give no block.

use serde_json::{Map, Value};

use super::{Block, ContentHash};

/// First words of Claude Code's billing line, which may differ from request to request.
pub(super) const BILLING_LINE: &str = "x-anthropic-billing-header:";

/// The role under which tool definitions are hashed; no message has it.
const TOOL_DEFINITION: &str = "tool definition";

/// Blocks of a system string or of one system block.
pub(super) fn system_blocks(value: &Value) -> Vec<Block> {
    text_blocks("system", value)
}

/// Blocks of a content without more around it.
pub(super) fn text_blocks(role: &str, content: &Value) -> Vec<Block> {
    let mut blocks = Vec::new();
    push_content(&mut blocks, role, content);
    blocks
}

/// The role of an input item of Responses: its own, else that of who makes such items.
pub(super) fn item_role(item: &Map<String, Value>) -> &str {
    let field = |name: &str| item.get(name).and_then(Value::as_str);
    match (field("role"), field("type")) {
        (Some(role), _) => role,
        (None, Some(kind)) if kind.ends_with("_output") => "tool",
        (None, Some(kind)) if kind == "reasoning" || kind.ends_with("_call") => "assistant",
        _ => "",
    }
}

/// Blocks of an input item of Responses. Servers and agents tell the same item with more or fewer
/// members around it: ids and states of items, annotations of texts and empty members say nothing.
pub(super) fn item_blocks(role: &str, item: &Map<String, Value>) -> Vec<Block> {
    let mut blocks = Vec::new();
    let kind = item.get("type").and_then(Value::as_str).unwrap_or("message");
    if kind == "message" {
        match item.get("content") {
            Some(Value::Array(parts)) => {
                for part in parts {
                    match part.get("text").and_then(Value::as_str) {
                        Some(text) => push_text(&mut blocks, role, text),
                        None => push_content(&mut blocks, role, part),
                    }
                }
            }
            Some(content) => push_content(&mut blocks, role, content),
            None => {}
        }
        return blocks;
    }
    let says_something = |(key, value): &(&String, &Value)| {
        let is_empty = value.is_null() || value.as_array().is_some_and(Vec::is_empty);
        !is_empty && !matches!(key.as_str(), "id" | "status")
    };
    let members: Vec<(&String, &Value)> = item.iter().filter(says_something).collect();
    blocks.push(block(role, false, |bytes| write_members(bytes, members)));
    blocks
}

/// The block of a tool definition.
pub(super) fn tool_blocks(value: &Value) -> Vec<Block> {
    vec![block(TOOL_DEFINITION, false, |bytes| write_value(bytes, value))]
}

/// Blocks of a message: its content, then each of its tool calls, then its other members as one.
pub(super) fn message_blocks(role: &str, message: &Map<String, Value>) -> Vec<Block> {
    let mut blocks = Vec::new();
    if let Some(content) = message.get("content") {
        push_content(&mut blocks, role, content);
    }
    let calls = message.get("tool_calls").and_then(Value::as_array);
    for call in calls.into_iter().flatten() {
        blocks.push(block(role, false, |bytes| write_value(bytes, call)));
    }
    let is_other = |(key, value): &(&String, &Value)| {
        let is_known = matches!(key.as_str(), "role" | "content")
            || (key.as_str() == "tool_calls" && value.is_array());
        !is_known && !value.is_null()
    };
    let others: Vec<(&String, &Value)> = message.iter().filter(is_other).collect();
    if !others.is_empty() {
        blocks.push(block(role, false, |bytes| write_members(bytes, others)));
    }
    blocks
}

/// The block of a unit that cannot be read deeper (nested beyond what a parser follows).
pub(super) fn opaque_block(text: &str) -> Block {
    block("", false, |bytes| write_text(bytes, text))
}

fn push_content(blocks: &mut Vec<Block>, role: &str, content: &Value) {
    match content {
        Value::Null => {}
        Value::String(text) => push_text(blocks, role, text),
        Value::Array(parts) => parts.iter().for_each(|part| push_content(blocks, role, part)),
        Value::Object(part) => match plain_text(part) {
            Some(text) => push_text(blocks, role, text),
            None => blocks.push(block(role, false, |bytes| write_block(bytes, part))),
        },
        other => blocks.push(block(role, false, |bytes| write_value(bytes, other))),
    }
}

/// The text of a block that is text and nothing more.
fn plain_text(part: &Map<String, Value>) -> Option<&str> {
    (part.len() == 2 && part.get("type")?.as_str()? == "text").then_some(())?;
    part.get("text")?.as_str()
}

fn push_text(blocks: &mut Vec<Block>, role: &str, text: &str) {
    let is_billed = role == "system" && text.starts_with(BILLING_LINE);
    let text = if is_billed { text.split_once('\n').map_or("", |(_, rest)| rest) } else { text };
    if text.is_empty() {
        return;
    }
    let is_reminder = is_reminder(text);
    blocks.push(block(role, is_reminder, |bytes| write_text_block(bytes, text)));
}

/// What an agent puts in by itself: Claude Code's reminders, and what Codex says of the place where it
/// works, alike in every session there.
fn is_reminder(text: &str) -> bool {
    let trimmed = text.trim();
    ["system-reminder", "environment_context", "user_instructions"].iter().any(|tag| {
        let inner = trimmed.strip_prefix('<').and_then(|rest| rest.strip_prefix(tag));
        let closing = trimmed.strip_suffix('>').and_then(|rest| rest.strip_suffix(tag));
        inner.is_some_and(|rest| rest.starts_with('>'))
            && closing.is_some_and(|rest| rest.ends_with("</"))
    }) || trimmed.starts_with("# AGENTS.md instructions")
}

fn block(role: &str, ephemeral: bool, write: impl FnOnce(&mut Vec<u8>)) -> Block {
    let mut bytes = Vec::with_capacity(256);
    write_text(&mut bytes, role);
    write(&mut bytes);
    Block { hash: ContentHash::of(&bytes), ephemeral }
}

fn write_text_block(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(b'{');
    write_text(bytes, "text");
    write_text(bytes, text);
    write_text(bytes, "type");
    write_text(bytes, "text");
    bytes.push(b'}');
}

/// As `write_value`, but a tool result's string reads as one text block.
fn write_block(bytes: &mut Vec<u8>, part: &Map<String, Value>) {
    let result = match (part.get("type").and_then(Value::as_str), part.get("content")) {
        (Some("tool_result"), Some(Value::String(text))) => {
            Value::from(vec![serde_json::json!({"type": "text", "text": text})])
        }
        _ => return write_members(bytes, part.iter().collect()),
    };
    let members =
        part.iter().map(|(key, value)| (key, if key == "content" { &result } else { value }));
    write_members(bytes, members.collect());
}

/// Depth is bounded by the parser that made the value.
fn write_value(bytes: &mut Vec<u8>, value: &Value) {
    match value {
        Value::Null => bytes.push(b'n'),
        Value::Bool(flag) => bytes.push(if *flag { b't' } else { b'f' }),
        Value::Number(number) => {
            bytes.push(b'#');
            write_text(bytes, &number.to_string());
        }
        Value::String(text) => write_text(bytes, text),
        Value::Array(values) => {
            bytes.push(b'[');
            for value in values {
                write_value(bytes, value);
            }
            bytes.push(b']');
        }
        Value::Object(members) => write_members(bytes, members.iter().collect()),
    }
}

fn write_members(bytes: &mut Vec<u8>, mut members: Vec<(&String, &Value)>) {
    members.sort_unstable_by_key(|(key, _)| *key);
    bytes.push(b'{');
    for (key, value) in members {
        write_text(bytes, key);
        write_value(bytes, value);
    }
    bytes.push(b'}');
}

/// Texts carry their length, so that no two values are written alike.
fn write_text(bytes: &mut Vec<u8>, text: &str) {
    bytes.push(b'"');
    bytes.extend_from_slice(&(text.len() as u64).to_le_bytes());
    bytes.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn blocks(message: &Value) -> Vec<Block> {
        let message = message.as_object().expect("object");
        message_blocks(message["role"].as_str().expect("role"), message)
    }

    #[test]
    fn equal_in_normal_form() {
        let cases = [
            (
                json!({"role":"user","content":"hi"}),
                json!({"content":[{"text":"hi","type":"text"}],"role":"user"}),
                1,
            ),
            (json!({"role":"user","content":"hi"}), json!({"role":"user","content":["hi"]}), 1),
            (
                json!({"role":"user","content":""}),
                json!({"role":"user","content":[{"type":"text","text":""}]}),
                0,
            ),
            (
                json!({"role":"assistant","content":null,"refusal":null,"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}}]}),
                json!({"role":"assistant","tool_calls":[{"function":{"arguments":"{}","name":"f"},"id":"a"}]}),
                1,
            ),
            (
                json!({"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":"ok"}]}),
                json!({"role":"user","content":[{"tool_use_id":"t","type":"tool_result","content":[{"type":"text","text":"ok"}]}]}),
                1,
            ),
            (
                json!({"role":"system","content":"x-anthropic-billing-header: cc_version=1; cch=2;\nYou are"}),
                json!({"role":"system","content":[{"type":"text","text":"x-anthropic-billing-header: cch=9;"},{"type":"text","text":"You are"}]}),
                1,
            ),
        ];
        for (left, right, count) in cases {
            assert_eq!(blocks(&left), blocks(&right), "{left} {right}");
            assert_eq!(blocks(&left).len(), count, "{left}");
        }
    }

    #[test]
    fn different_in_normal_form() {
        let cases = [
            (json!({"role":"user","content":"hi"}), json!({"role":"assistant","content":"hi"})),
            (json!({"role":"user","content":"hi"}), json!({"role":"user","content":"hi "})),
            (json!({"role":"user","content":["a","b"]}), json!({"role":"user","content":["ab"]})),
            (
                json!({"role":"tool","tool_call_id":"a","content":"ok"}),
                json!({"role":"tool","tool_call_id":"b","content":"ok"}),
            ),
            (
                json!({"role":"user","content":[{"type":"x","n":1}]}),
                json!({"role":"user","content":[{"type":"x","n":"1"}]}),
            ),
            (
                json!({"role":"user","content":"x-anthropic-billing-header: a"}),
                json!({"role":"user","content":"x-anthropic-billing-header: b"}),
            ),
        ];
        for (left, right) in cases {
            assert_ne!(blocks(&left), blocks(&right), "{left} {right}");
        }
    }

    #[test]
    fn reminders_are_ephemeral() {
        let message = json!({"role":"user","content":[
            {"type":"text","text":"<system-reminder>\nUse the list.\n</system-reminder>\n"},
            {"type":"text","text":"fix it <system-reminder>x</system-reminder>"},
        ]});
        let ephemeral: Vec<bool> = blocks(&message).iter().map(|block| block.ephemeral).collect();
        assert_eq!(ephemeral, [true, false]);
    }
}
