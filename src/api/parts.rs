//! The parts of a request body that stay the same from turn to turn, each as a place in it.

use serde_json::value::RawValue;

use super::scan::{self, Span};

/// A part of a body: a system block, a tool, a message, or another member's value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BodyPart {
    /// Its JSON.
    pub span: Span,
    /// It is a string that names the person who sends the request (`user`, `safety_identifier`).
    pub is_account: bool,
}

/// The parts of a JSON object, in order; none of anything else. The elements of a list are parts of their own,
/// unless they are numbers.
pub fn body_parts(body: &str) -> Option<Vec<BodyPart>> {
    // The scan below only looks at the structure: what is no JSON could hold anything between its parts.
    serde_json::from_str::<&RawValue>(body).ok()?;
    let (members, _) = scan::members(body, 0)?;
    let mut parts = Vec::new();
    for member in members {
        let value = &body[member.value.clone()];
        let is_id = || ["user", "safety_identifier"].iter().any(|name| member.is_named(body, name));
        let is_account = value.starts_with('"') && value.len() > 2 && is_id();
        let first = value.strip_prefix('[').unwrap_or_default().trim_start();
        let elements =
            if first.starts_with(['{', '"']) { member.elements(body)? } else { vec![member.value] };
        parts.extend(elements.into_iter().map(|span| BodyPart { span, is_account }));
    }
    Some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_parts_element_by_element() {
        let body = r#"{"model":"m", "user":"u","system":[ {"a":1}, "b"],"prompt":[1,2], "n":{"user":"x"},"messages":[]}"#;
        let parts = body_parts(body).unwrap();
        let texts: Vec<&str> = parts.iter().map(|part| &body[part.span.clone()]).collect();
        assert_eq!(
            texts,
            [r#""m""#, r#""u""#, r#"{"a":1}"#, r#""b""#, "[1,2]", r#"{"user":"x"}"#, "[]"]
        );
        let accounts: Vec<bool> = parts.iter().map(|part| part.is_account).collect();
        assert_eq!(accounts, [false, true, false, false, false, false, false]);
        for body in ["", "[1]", "{\"a\":", "x", "{\"a\":alice}", "{\"a\":1} alice"] {
            assert_eq!(body_parts(body), None, "{body}");
        }
    }
}
