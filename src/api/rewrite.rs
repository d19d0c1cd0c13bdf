//! Single changes of a request for engines that do not take it as the agent sends it, each in place:
//! all bytes that a change does not mean stay as they are.
//!
//! Whether a change is wanted is the caller's to say. A body that has nothing to change, or is no
//! request, gives none: it is the engine's to refuse.

use serde_json::Value;

use super::normal_form::BILLING_LINE;
use super::scan::{self, Span};
use super::{Api, edit_top_level, hints, list_elements, replace_elements};

/// What the Completions API allows where a request names no limit.
const COMPLETIONS_DEFAULT_TOKENS: u64 = 16;
/// The least budget of thinking that the Messages API takes.
const LEAST_THINKING_TOKENS: u64 = 1024;

/// A request without its billing line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unbilled {
    /// The body.
    pub body: Vec<u8>,
    /// The line said that a subagent sends it: with the line this would be lost.
    pub says_subagent: bool,
}

/// Messages of the role `system` as messages of the role `user`: all of a Messages request, whose system
/// prompt lies elsewhere, and of a Chat request those that do not stand at the front.
pub fn reroled_system(api: Api, body: &[u8]) -> Option<Vec<u8>> {
    let mut is_front = match api {
        Api::Messages => false,
        Api::Chat => true,
        Api::Completions | Api::Responses => return None,
    };
    let text = std::str::from_utf8(body).ok()?;
    let (members, _) = scan::members(text, 0)?;
    let messages = members.iter().find(|member| member.is_named(text, "messages"))?;
    let mut roles: Vec<Span> = Vec::new();
    for message in messages.elements(text)? {
        let Some((fields, _)) = scan::members(text, message.start) else { continue };
        let role = fields.into_iter().find(|field| field.is_named(text, "role"));
        let name = role.as_ref().and_then(|role| string_at(text, &role.value));
        is_front &= matches!(name.as_deref(), Some("system" | "developer"));
        if !is_front && name.as_deref() == Some("system") {
            roles.extend(role.map(|role| role.value));
        }
    }
    if roles.is_empty() {
        return None;
    }
    let mut changed = String::with_capacity(text.len());
    let mut from = 0;
    for role in roles {
        changed.push_str(&text[from..role.start]);
        changed.push_str("\"user\"");
        from = role.end;
    }
    changed.push_str(&text[from..]);
    Some(changed.into_bytes())
}

/// A Messages request without Claude Code's billing line, the first of its system prompt.
pub fn without_billing_line(api: Api, body: &[u8]) -> Option<Unbilled> {
    if api != Api::Messages {
        return None;
    }
    let text = std::str::from_utf8(body).ok()?;
    let (members, _) = scan::members(text, 0)?;
    let system = members.iter().find(|member| member.is_named(text, "system"))?;
    if let Some(prompt) = string_at(text, &system.value) {
        let rest = after_billing_line(&prompt)?;
        let edits = [("system", Some(Value::from(rest)))];
        let body = edit_top_level(body, &edits).ok()?;
        return Some(Unbilled { body, says_subagent: hints::is_subagent_line(&prompt) });
    }
    let mut says_subagent = false;
    let mut is_changed = false;
    let mut kept: Vec<String> = Vec::new();
    for block in list_elements(body, "system").ok()? {
        let said = serde_json::from_str::<Value>(block).ok();
        let said = said.as_ref().and_then(|block| block.get("text")?.as_str());
        match said.and_then(after_billing_line) {
            None => kept.push(block.to_owned()),
            Some(rest) => {
                is_changed = true;
                says_subagent |= said.is_some_and(hints::is_subagent_line);
                if !rest.is_empty() {
                    let edits = [("text", Some(Value::from(rest)))];
                    let block = edit_top_level(block.as_bytes(), &edits).ok()?;
                    kept.push(String::from_utf8(block).ok()?);
                }
            }
        }
    }
    let body = is_changed.then(|| replace_elements(body, "system", &kept).ok()).flatten()?;
    Some(Unbilled { body, says_subagent })
}

/// The request with at most so many output tokens. One that names no limit gets this one; of Completions,
/// whose limit is 16 then, no more than that. A budget of thinking that no longer fits is lowered with it, and
/// where no budget fits there is no thinking: engines refuse the request else.
pub fn capped(api: Api, body: &[u8], max_tokens: u64) -> Option<Vec<u8>> {
    let names: &[&str] = match api {
        Api::Messages | Api::Completions => &["max_tokens"],
        Api::Chat => &["max_completion_tokens", "max_tokens"],
        Api::Responses => &["max_output_tokens"],
    };
    let limits = names.iter().map(|name| top_level(body, name)).collect::<Option<Vec<_>>>()?;
    let mut edits = Vec::new();
    for (name, limit) in names.iter().zip(&limits) {
        if limit.as_f64().is_some_and(|limit| limit > max_tokens as f64) {
            edits.push((*name, Some(Value::from(max_tokens))));
        }
    }
    if limits.iter().all(Value::is_null) {
        let limit = match api {
            Api::Completions => max_tokens.min(COMPLETIONS_DEFAULT_TOKENS),
            _ => max_tokens,
        };
        edits.push((names[0], Some(Value::from(limit))));
    }
    if api == Api::Messages {
        let thinking = top_level(body, "thinking")?;
        let fitting = fitting_thinking(thinking, max_tokens);
        edits.extend(fitting.map(|thinking| ("thinking", Some(thinking))));
    }
    (!edits.is_empty()).then(|| edit_top_level(body, &edits).ok()).flatten()
}

/// The request for another model.
pub fn with_model(body: &[u8], model: &str) -> Option<Vec<u8>> {
    let asked = top_level(body, "model")?;
    if asked.as_str() == Some(model) {
        return None;
    }
    edit_top_level(body, &[("model", Some(model.into()))]).ok()
}

/// Thinking with a budget below the limit; none where it fits as it is.
fn fitting_thinking(mut thinking: Value, max_tokens: u64) -> Option<Value> {
    let budget =
        thinking.get("budget_tokens")?.as_u64().filter(|_| thinking["type"] == "enabled")?;
    if budget < max_tokens {
        return None;
    }
    if max_tokens <= LEAST_THINKING_TOKENS {
        return Some(serde_json::json!({"type": "disabled"}));
    }
    thinking["budget_tokens"] = (max_tokens / 2).max(LEAST_THINKING_TOKENS).into();
    Some(thinking)
}

/// A member of a body, null where there is none; none where the body is no object.
fn top_level(body: &[u8], name: &str) -> Option<Value> {
    let text = std::str::from_utf8(body).ok()?;
    let (members, _) = scan::members(text, 0)?;
    let member = members.into_iter().find(|member| member.is_named(text, name));
    let value = member.and_then(|member| serde_json::from_str(&text[member.value]).ok());
    Some(value.unwrap_or_default())
}

fn string_at(text: &str, span: &Span) -> Option<String> {
    serde_json::from_str(&text[span.clone()]).ok()
}

/// What follows the billing line; none where there is no such line.
fn after_billing_line(text: &str) -> Option<&str> {
    text.starts_with(BILLING_LINE).then(|| text.split_once('\n').map_or("", |(_, rest)| rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(body: Option<Vec<u8>>) -> Option<String> {
        body.map(|body| String::from_utf8(body).unwrap())
    }

    #[test]
    fn system_messages_become_the_users() {
        let messages = r#"{ "messages" : [ {"role": "system","content":"a"}, {"content":"\"role\":\"system\"","role":"user"},{"role":"system","content":"b"} ],"system":"s" }"#;
        for (api, body, expected) in [
            (
                Api::Messages,
                messages,
                Some(
                    r#"{ "messages" : [ {"role": "user","content":"a"}, {"content":"\"role\":\"system\"","role":"user"},{"role":"user","content":"b"} ],"system":"s" }"#,
                ),
            ),
            (
                Api::Chat,
                messages,
                Some(
                    r#"{ "messages" : [ {"role": "system","content":"a"}, {"content":"\"role\":\"system\"","role":"user"},{"role":"user","content":"b"} ],"system":"s" }"#,
                ),
            ),
            (Api::Responses, messages, None),
            (Api::Messages, r#"{"messages":[{"role":"user","content":"x"}]}"#, None),
            (Api::Messages, r#"{"messages":[3,{}]}"#, None),
            (Api::Messages, "no JSON", None),
        ] {
            assert_eq!(text(reroled_system(api, body.as_bytes())).as_deref(), expected, "{api:?}");
        }
    }

    #[test]
    fn the_billing_line_goes_and_its_word_of_a_subagent_is_kept() {
        let line = "x-anthropic-billing-header: cc_version=2; cch=1;";
        let sub = "x-anthropic-billing-header: cc_is_subagent=true;";
        for (system, expected, subagent) in [
            (
                format!(r#"[{{"type":"text","text":"{line}"}}, {{"type":"text","text":"You."}}]"#),
                Some(r#"[{"type":"text","text":"You."}]"#),
                false,
            ),
            (
                format!(
                    r#"[{{"type":"text","text":"{sub}\nYou.","cache_control":{{"type":"ephemeral"}}}}]"#
                ),
                Some(r#"[{"type":"text","text":"You.","cache_control":{"type":"ephemeral"}}]"#),
                true,
            ),
            (format!(r#""{sub}\nYou.""#), Some(r#""You.""#), true),
            (format!(r#"[{{"type":"text","text":"You. {line}"}}]"#), None, false),
            (r#""You.""#.to_owned(), None, false),
            ("7".to_owned(), None, false),
        ] {
            let body = format!(r#"{{"model":"m", "system": {system} ,"messages":[]}}"#);
            let found = without_billing_line(Api::Messages, body.as_bytes());
            let wanted = expected.map(|system| Unbilled {
                body: format!(r#"{{"model":"m", "system": {system} ,"messages":[]}}"#).into(),
                says_subagent: subagent,
            });
            assert_eq!(found, wanted, "{system}");
            assert_eq!(without_billing_line(Api::Chat, body.as_bytes()), None);
        }
    }

    #[test]
    fn each_api_has_its_own_limit() {
        for (api, body, expected) in [
            (Api::Messages, r#"{"max_tokens": 32000,"x":1}"#, Some(r#"{"max_tokens": 64,"x":1}"#)),
            (Api::Messages, r#"{"max_tokens":64}"#, None),
            (Api::Messages, r#"{"max_tokens":"many"}"#, None),
            (
                Api::Chat,
                r#"{"max_tokens":100,"max_completion_tokens":200}"#,
                Some(r#"{"max_tokens":64,"max_completion_tokens":64}"#),
            ),
            (Api::Chat, r#"{"max_tokens":10}"#, None),
            (Api::Chat, r#"{"a":1}"#, Some(r#"{"a":1,"max_completion_tokens":64}"#)),
            (
                Api::Chat,
                r#"{"max_completion_tokens":null}"#,
                Some(r#"{"max_completion_tokens":64}"#),
            ),
            (Api::Completions, r#"{"max_tokens":65}"#, Some(r#"{"max_tokens":64}"#)),
            (Api::Completions, "{}", Some(r#"{"max_tokens":16}"#)),
            (Api::Responses, r#"{"max_output_tokens":65}"#, Some(r#"{"max_output_tokens":64}"#)),
            (
                Api::Responses,
                r#"{"max_tokens":65}"#,
                Some(r#"{"max_tokens":65,"max_output_tokens":64}"#),
            ),
            (Api::Chat, "[]", None),
        ] {
            assert_eq!(text(capped(api, body.as_bytes(), 64)).as_deref(), expected, "{body}");
        }
    }

    #[test]
    fn a_budget_of_thinking_stays_below_the_limit() {
        let body = r#"{"thinking":{"type":"enabled","budget_tokens":31999},"max_tokens":32000}"#;
        for (max_tokens, expected) in [
            (32_000, None),
            (
                4000,
                Some(r#"{"thinking":{"type":"enabled","budget_tokens":2000},"max_tokens":4000}"#),
            ),
            (
                1025,
                Some(r#"{"thinking":{"type":"enabled","budget_tokens":1024},"max_tokens":1025}"#),
            ),
            (64, Some(r#"{"thinking":{"type":"disabled"},"max_tokens":64}"#)),
        ] {
            let found = capped(Api::Messages, body.as_bytes(), max_tokens);
            assert_eq!(text(found).as_deref(), expected);
        }
        let adaptive = r#"{"thinking":{"type":"adaptive"},"max_tokens":10}"#;
        assert_eq!(capped(Api::Messages, adaptive.as_bytes(), 64), None);
    }

    #[test]
    fn the_model_is_named_anew() {
        for (body, expected) in [
            (r#"{ "model" : "claude", "a":1}"#, Some(r#"{ "model" : "tiny", "a":1}"#)),
            (r#"{"a":1}"#, Some(r#"{"a":1,"model":"tiny"}"#)),
            (r#"{"model":"tiny"}"#, None),
            ("nonsense", None),
        ] {
            assert_eq!(text(with_model(body.as_bytes(), "tiny")).as_deref(), expected);
        }
    }
}
