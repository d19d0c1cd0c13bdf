//! What little lineage reads of a prompt's text, to tell threads apart that its blocks cannot.

use crate::api::{ContentHash, Unit, UnitKind};

/// Identity of what the assistant says last in a prompt. Some APIs tell a reply's text and its calls as
/// several units: of those in a row the last one with text counts.
pub(super) fn last_assistant_text(units: &[Unit<'_>]) -> Option<ContentHash> {
    let is_assistant =
        |unit: &&Unit<'_>| unit.kind == UnitKind::Message && unit.role == "assistant";
    let last = units.iter().rposition(|unit| is_assistant(&unit))?;
    let row = units[..=last].iter().rev().take_while(is_assistant);
    let texts = row.map(|unit| content_text(&unit.text));
    let text = texts.into_iter().find(|text| !text.trim().is_empty()).unwrap_or_default();
    Some(ContentHash::of(text.trim().as_bytes()))
}

/// Visible text of a message: a content string, or its text blocks.
fn content_text(message: &str) -> String {
    let message: serde_json::Value = serde_json::from_str(message).unwrap_or_default();
    match &message["content"] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(blocks) => {
            blocks.iter().filter_map(|block| block["text"].as_str()).collect()
        }
        _ => String::new(),
    }
}

/// Every string in a JSON text, a line each.
pub(super) fn strings_of(json: &str) -> String {
    fn walk(value: &serde_json::Value, text: &mut String) {
        match value {
            serde_json::Value::String(string) => {
                text.push_str(string);
                text.push('\n');
            }
            serde_json::Value::Array(values) => values.iter().for_each(|value| walk(value, text)),
            serde_json::Value::Object(fields) => fields.values().for_each(|v| walk(v, text)),
            _ => {}
        }
    }
    let mut text = String::new();
    walk(&serde_json::from_str(json).unwrap_or_default(), &mut text);
    text
}
