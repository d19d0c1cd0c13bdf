//! Changing top-level members of a body without touching its other bytes.

use std::borrow::Cow;

use serde_json::Value;

use super::scan::{self, Member};

/// A body with top-level members replaced (`Some`), added, or removed (`None`); all other bytes stay
/// as they are. A member that the body has twice is edited twice.
///
/// Only the top level is read, so that a large body costs one pass over its bytes; what is wrong
/// further inside stays as it is.
pub fn edit_top_level(body: &[u8], edits: &[(&str, Option<Value>)]) -> Result<Vec<u8>, String> {
    let text = std::str::from_utf8(body).map_err(|error| format!("body is not UTF-8: {error}"))?;
    let not_an_object = || "body is not a JSON object".to_owned();
    let (members, end) = scan::members(text, 0).ok_or_else(not_an_object)?;
    if scan::skip_space(body, end) != body.len() {
        return Err(not_an_object());
    }
    let edit_of: Vec<Option<usize>> = members
        .iter()
        .map(|member| edits.iter().position(|(name, _)| member.is_named(text, name)))
        .collect();
    let mut edited = String::with_capacity(text.len() + 64);
    let first_key = members.first().map_or(end - 1, |member| member.key.start);
    edited.push_str(&text[..first_key]);
    let mut is_first = true;
    for (index, member) in members.iter().enumerate() {
        let value = match edit_of[index].map(|edit| &edits[edit].1) {
            Some(None) => continue,
            Some(Some(value)) => Cow::Owned(value.to_string()),
            None => Cow::Borrowed(&text[member.value.clone()]),
        };
        if !std::mem::take(&mut is_first) {
            edited.push_str(&text[members[index - 1].value.end..member.key.start]);
        }
        edited.push_str(&text[member.key.start..member.value.start]);
        edited.push_str(&value);
    }
    for (index, (name, value)) in edits.iter().enumerate() {
        if let Some(value) = value
            && !edit_of.contains(&Some(index))
        {
            let comma = if std::mem::take(&mut is_first) { "" } else { "," };
            let name = Value::from(*name).to_string();
            for part in [comma, &name, ":", &value.to_string()] {
                edited.push_str(part);
            }
        }
    }
    edited.push_str(after_last(text, &members, first_key));
    Ok(edited.into_bytes())
}

fn after_last<'a>(text: &'a str, members: &[Member], first_key: usize) -> &'a str {
    &text[members.last().map_or(first_key, |member| member.value.end)..]
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(body: &str, edits: &[(&str, Option<Value>)], expected: Result<&str, &str>) {
        let edited = edit_top_level(body.as_bytes(), edits)
            .map(|bytes| String::from_utf8(bytes).expect("UTF-8"));
        assert_eq!(edited.as_deref().map_err(String::as_str), expected, "{body}");
    }

    #[test]
    fn members_are_replaced_added_and_removed() {
        let model = |name: &str| ("model", Some(json!(name)));
        let body =
            "{ \"model\" : \"a\",\n  \"messages\":[{\"model\":\"x\"}] , \"stream\": true }\n";
        check(body, &[], Ok(body));
        check(
            body,
            &[model("b"), ("stream", Some(json!(false)))],
            Ok("{ \"model\" : \"b\",\n  \"messages\":[{\"model\":\"x\"}] , \"stream\": false }\n"),
        );
        check(
            body,
            &[("model", None)],
            Ok("{ \"messages\":[{\"model\":\"x\"}] , \"stream\": true }\n"),
        );
        check(body, &[("messages", None)], Ok("{ \"model\" : \"a\" , \"stream\": true }\n"));
        check(
            body,
            &[("stream", None), ("min_tokens", Some(json!(5)))],
            Ok("{ \"model\" : \"a\",\n  \"messages\":[{\"model\":\"x\"}],\"min_tokens\":5 }\n"),
        );
        check(
            body,
            &[("model", None), ("messages", None), ("stream", None), ("absent", None)],
            Ok("{  }\n"),
        );
        check("{}", &[model("b"), ("n", Some(json!(1)))], Ok(r#"{"model":"b","n":1}"#));
        check(r#"{"n":1}"#, &[("n", None), model("b")], Ok(r#"{"model":"b"}"#));
        check(
            r#"{"mod\u0065l":"a","model":"c","x":"é\n"}"#,
            &[model("b")],
            Ok(r#"{"mod\u0065l":"b","model":"b","x":"é\n"}"#),
        );
        check(r#"{"a":1,"b":2,"c":3}"#, &[("a", None), ("b", None)], Ok(r#"{"c":3}"#));
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for body in ["", "[]", "{", "{\"a\":1}}", "{\"a\"}", "nonsense"] {
            check(body, &[], Err("body is not a JSON object"));
        }
        assert!(
            edit_top_level(b"{\"a\":\"\xff\"}", &[]).unwrap_err().starts_with("body is not UTF-8")
        );
    }
}
