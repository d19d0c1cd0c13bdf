//! JSON as text, where its bytes are wanted as they stand: content in list form, joined without parsing it.

use serde_json::value::RawValue;

/// The elements of message content as they would stand in a list: those of a list, or a string as a text
/// block. `kind` is the block's type (`text`, `input_text`, …).
pub(super) fn content_elements(content: &RawValue, kind: &str) -> String {
    let text = content.get();
    match text.as_bytes().first() {
        Some(b'[') => text[1..text.len() - 1].trim().to_owned(),
        Some(b'"') => format!(r#"{{"type":"{kind}","text":{text}}}"#),
        _ => String::new(),
    }
}

/// A message of such elements.
pub(super) fn message(role: &str, elements: &[String]) -> String {
    let filled: Vec<&str> =
        elements.iter().map(String::as_str).filter(|text| !text.is_empty()).collect();
    format!(r#"{{"role":"{role}","content":[{}]}}"#, filled.join(","))
}
