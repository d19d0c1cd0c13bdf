//! An assistant's message in the chat form, as the blocks of a reply: one reader for all formats that hold it.

use serde::Deserialize;
use serde_json::Value;

use super::draft::arguments_text;
use crate::api::ReplyBlock;

/// What an assistant's message holds beside its role.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ChatAnswer {
    pub(super) content: Value,
    pub(super) reasoning_content: Option<String>,
    pub(super) tool_calls: Option<Vec<Value>>,
}

impl ChatAnswer {
    /// Its blocks in order: reasoning, text, calls.
    pub(super) fn blocks(&self) -> Vec<ReplyBlock> {
        let mut blocks = Vec::new();
        if let Some(text) = self.reasoning_content.as_ref().filter(|text| !text.is_empty()) {
            blocks.push(ReplyBlock::Reasoning { text: text.clone(), signature: None });
        }
        let text = text_of(&self.content);
        if !text.is_empty() {
            blocks.push(ReplyBlock::Text { text });
        }
        blocks.extend(self.tool_calls.iter().flatten().map(tool_call));
        blocks
    }
}

/// A call in the chat form, or one whose function stands in it directly.
fn tool_call(call: &Value) -> ReplyBlock {
    let function = call.get("function").unwrap_or(call);
    ReplyBlock::ToolCall {
        id: call["id"].as_str().unwrap_or_default().to_owned(),
        name: function["name"].as_str().unwrap_or_default().to_owned(),
        arguments: arguments_text(&function["arguments"]),
    }
}

/// The text of content: a string, or the texts of its parts.
pub(super) fn text_of(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let texts = parts.iter().filter_map(|part| part["text"].as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_become_blocks() {
        let text = |text: &str| ReplyBlock::Text { text: text.to_owned() };
        let call = |arguments: &str| ReplyBlock::ToolCall {
            id: "c".to_owned(),
            name: "ls".to_owned(),
            arguments: arguments.to_owned(),
        };
        for (message, blocks) in [
            (r#"{"content":"hi"}"#, vec![text("hi")]),
            (r#"{"content":[{"type":"text","text":"a"},{"text":"b"}]}"#, vec![text("a\nb")]),
            (r#"{"content":null}"#, vec![]),
            (
                r#"{"content":"","tool_calls":[{"id":"c","function":{"name":"ls","arguments":"{}"}}]}"#,
                vec![call("{}")],
            ),
            (
                r#"{"tool_calls":[{"id":"c","name":"ls","arguments":{"a":1}}]}"#,
                vec![call(r#"{"a":1}"#)],
            ),
            (
                r#"{"reasoning_content":"hm","content":"x"}"#,
                vec![ReplyBlock::Reasoning { text: "hm".to_owned(), signature: None }, text("x")],
            ),
        ] {
            let answer: ChatAnswer = serde_json::from_str(message).unwrap();
            assert_eq!(answer.blocks(), blocks, "{message}");
        }
    }
}
