//! A request put together from units, for recordings that tell a conversation and not its bodies.
//!
//! The other way round from `request`: units first, then the template that makes a body of them. Such a
//! body is one that an agent could have sent, never one that was sent.

use serde_json::Value;

use super::template::run_of;
use super::{Api, UnitKind};

/// The template of a body with these units, in prompt order (system, tools, messages), and with the
/// members of `params`, an object.
pub fn composed_template(api: Api, kinds: &[UnitKind], params: &Value) -> String {
    let mut template = String::from("{");
    let mut member = |name: &str, value: &str| {
        if template.len() > 1 {
            template.push(',');
        }
        template.push_str(&Value::from(name).to_string());
        template.push(':');
        template.push_str(value);
    };
    for (name, value) in params.as_object().into_iter().flatten() {
        member(name, &value.to_string());
    }
    let mut start = 0;
    for kind in [UnitKind::System, UnitKind::Tool, UnitKind::Message, UnitKind::Prompt] {
        let n = kinds[start..].iter().take_while(|found| **found == kind).count();
        let (name, is_list) = place(api, kind);
        let run =
            if n == 0 { String::new() } else { run_of(start, start + n - 1, separator(kind)) };
        if is_list && (n > 0 || kind == UnitKind::Message) {
            member(name, &format!("[{run}]"));
        } else if n > 0 {
            member(name, &run);
        }
        start += n;
    }
    template.push('}');
    template
}

/// The member that holds units of a kind, and whether it is a list.
fn place(api: Api, kind: UnitKind) -> (&'static str, bool) {
    match (api, kind) {
        (Api::Responses, UnitKind::System) => ("instructions", false),
        (_, UnitKind::System) => ("system", true),
        (_, UnitKind::Tool) => ("tools", true),
        (Api::Responses, UnitKind::Message) => ("input", true),
        (_, UnitKind::Message) => ("messages", true),
        (_, UnitKind::Prompt | UnitKind::Raw) => ("prompt", false),
    }
}

fn separator(kind: UnitKind) -> &'static str {
    if kind == UnitKind::Prompt { "" } else { "," }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{parse_request, rebuild_body};

    type Units<'a> = &'a [(UnitKind, &'a str)];

    #[test]
    fn a_composed_body_reads_as_the_units_it_was_made_of() {
        let message = r#"{"role":"user","content":"Hi"}"#;
        let answer = r#"{"role":"assistant","content":"Yes"}"#;
        let cases: [(Api, Units<'_>, &str); 4] = [
            (
                Api::Messages,
                &[
                    (UnitKind::System, r#"{"type":"text","text":"Be brief"}"#),
                    (UnitKind::Message, message),
                    (UnitKind::Message, answer),
                ],
                r#"{"model":"m","system":[{"type":"text","text":"Be brief"}],"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"}]}"#,
            ),
            (
                Api::Chat,
                &[(UnitKind::Tool, r#"{"type":"function"}"#), (UnitKind::Message, message)],
                r#"{"model":"m","tools":[{"type":"function"}],"messages":[{"role":"user","content":"Hi"}]}"#,
            ),
            (
                Api::Responses,
                &[(UnitKind::System, r#""Be brief""#), (UnitKind::Message, message)],
                r#"{"model":"m","instructions":"Be brief","input":[{"role":"user","content":"Hi"}]}"#,
            ),
            (Api::Chat, &[], r#"{"model":"m","messages":[]}"#),
        ];
        for (api, units, body) in cases {
            let kinds: Vec<UnitKind> = units.iter().map(|(kind, _)| *kind).collect();
            let texts: Vec<&str> = units.iter().map(|(_, text)| *text).collect();
            let template = composed_template(api, &kinds, &serde_json::json!({"model": "m"}));
            let built = rebuild_body(&template, &texts).unwrap();
            assert_eq!(String::from_utf8(built.clone()).unwrap(), body);
            let parsed = parse_request(api, &built).unwrap();
            let read: Vec<(UnitKind, &str)> =
                parsed.units.iter().map(|unit| (unit.kind, &*unit.text)).collect();
            assert_eq!(read, units, "{api:?}");
            if units.len() > 1 {
                assert_eq!(parsed.template, template, "{api:?}");
            }
        }
    }
}
