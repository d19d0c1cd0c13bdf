//! Masks over what an exchange said, before anything of it becomes a row.
//!
//! The engine and the agent get their bytes as they are: only the copies are changed. A request is masked part by
//! part (each system block, tool and message), and what was found in a part is remembered by its hash, so that
//! of a conversation that grows only what is new is searched. What is masked, and how, is `redact`'s to say.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::agent::AgentHints;
use super::response::Response;
use super::stats::Counters;
use crate::api::{BodyPart, ContentHash, ReplyBlock, body_parts};
use crate::http::headers::masked;
use crate::redact::{Edit, Kind, Masker, apply};

/// Parts whose masks are remembered; then all are forgotten and searched again.
const MAX_PARTS: usize = 200_000;
/// Shorter parts are searched each time.
const MIN_PART_BYTES: usize = 256;
/// Masks that are told apart for the counts.
const MAX_COUNTED: usize = 1_000_000;

/// What was found in a part; most have nothing.
type Found = Option<Arc<[Edit]>>;

/// Masks the exchanges of one capture.
#[derive(Debug)]
pub(super) struct Redaction {
    masker: Arc<Masker>,
    known: HashMap<ContentHash, Found>,
    counted: HashSet<String>,
    counters: Arc<Counters>,
}

impl Redaction {
    pub(super) fn new(masker: Arc<Masker>, counters: Arc<Counters>) -> Self {
        Self { masker, known: HashMap::new(), counted: HashSet::new(), counters }
    }

    /// The names by which an exchange is known.
    pub(super) fn names(
        &mut self,
        session: &mut Option<String>,
        path: &mut String,
        hints: &mut AgentHints,
    ) {
        *path = self.text(&masked(path));
        let of_headers = [&mut hints.session, &mut hints.agent_id, &mut hints.parent];
        for name in std::iter::once(session).chain(of_headers) {
            *name = name.take().map(|name| self.text(&name));
        }
    }

    /// A request body. One that is no JSON object is masked as a text, and one that is no text not kept.
    pub(super) fn body(&mut self, body: Vec<u8>) -> Result<Vec<u8>, String> {
        let body = String::from_utf8(body).map_err(|_| {
            "request body was not recorded: it is no text, in which nothing can be masked"
                .to_owned()
        })?;
        let Some(parts) = body_parts(&body) else { return Ok(self.text(&body).into_bytes()) };
        let mut edits = Vec::new();
        for BodyPart { span, is_account } in parts {
            let part = &body[span.clone()];
            if is_account {
                edits.push(self.account(part, span.start));
                continue;
            }
            let found = self.part(part);
            edits.extend(found.iter().flat_map(|found| found.iter()).map(|edit| Edit {
                span: span.start + edit.span.start..span.start + edit.span.end,
                ..edit.clone()
            }));
        }
        Ok(apply(&body, &edits).into_bytes())
    }

    /// What the engine answered.
    pub(super) fn response(&mut self, response: &mut Response) {
        let reply = &mut response.reply;
        for block in &mut reply.blocks {
            let text = match block {
                ReplyBlock::Text { text } | ReplyBlock::Reasoning { text, .. } => text,
                ReplyBlock::ToolCall { arguments, .. } => arguments,
            };
            *text = self.text(text);
        }
        for item in &mut reply.items {
            let edits = self.counted(self.masker.find_in_json(item));
            *item = apply(item, &edits);
        }
        for text in [&mut reply.model, &mut reply.error, &mut response.error] {
            *text = text.take().map(|text| self.text(&text));
        }
    }

    fn text(&mut self, text: &str) -> String {
        let edits = self.counted(self.masker.find(text));
        apply(text, &edits)
    }

    /// A string that is an id of the person as a whole, with its quotes.
    fn account(&mut self, quoted: &str, start: usize) -> Edit {
        let span = start + 1..start + quoted.len() - 1;
        let mask = self.masker.mask(Kind::Account, &quoted[1..quoted.len() - 1]);
        let mut edits = self.counted(vec![Edit { kind: Kind::Account, span, mask }]);
        edits.remove(0)
    }

    fn part(&mut self, part: &str) -> Found {
        let find = |masker: &Masker| masker.find_in_json(part);
        if part.len() < MIN_PART_BYTES {
            return Some(self.counted(find(&self.masker)).into());
        }
        let hash = ContentHash::of(part.as_bytes());
        if let Some(found) = self.known.get(&hash) {
            return found.clone();
        }
        let edits = self.counted(find(&self.masker));
        let found: Found = (!edits.is_empty()).then(|| edits.into());
        if self.known.len() >= MAX_PARTS {
            self.known.clear();
        }
        self.known.insert(hash, found.clone());
        found
    }

    /// Counts the masks that were not seen before.
    fn counted(&mut self, edits: Vec<Edit>) -> Vec<Edit> {
        for edit in &edits {
            if self.counted.len() < MAX_COUNTED && !self.counted.contains(&edit.mask) {
                self.counted.insert(edit.mask.clone());
                self.counters.redacted(edit.kind);
            }
        }
        edits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Api, parse_request, rebuild_body};
    use crate::redact::Names;

    fn redaction() -> Redaction {
        let names = Names { users: vec!["alice".to_owned()], hosts: Vec::new() };
        Redaction::new(Arc::new(Masker::new(names)), Arc::new(Counters::default()))
    }

    fn masked_body(redaction: &mut Redaction, body: &str) -> String {
        String::from_utf8(redaction.body(body.as_bytes().to_vec()).unwrap()).unwrap()
    }

    #[test]
    fn a_prompt_that_grows_still_begins_with_the_one_before() {
        let mut redaction = redaction();
        let long = "x ".repeat(200);
        let head = format!(
            r#"{{"model":"/home/alice/m","user":"u-1","system":[{{"type":"text","text":"{long} alice at a@b.com\n","cache_control":{{"type":"ephemeral"}}}}],"messages":[{{"role":"user","content":"mail a@b.com, c@d.com {long}"}}"#
        );
        let more = r#",{"role":"assistant","content":"to a@b.com"}"#;
        let first = masked_body(&mut redaction, &format!("{head}]}}"));
        let second = masked_body(&mut redaction, &format!("{head}{more}]}}"));
        assert_eq!(second.strip_prefix(first.strip_suffix("]}").unwrap()).unwrap().len(), {
            let mask = redaction.masker.mask(Kind::Email, "a@b.com");
            more.len() + 2 + mask.len() - "a@b.com".len()
        });
        for body in [&first, &second] {
            assert!(
                !body.contains("alice") && !body.contains("@b.com") && !body.contains("u-1"),
                "{body}"
            );
            let parsed = parse_request(Api::Messages, body.as_bytes()).unwrap();
            let texts: Vec<&str> = parsed.units.iter().map(|unit| &*unit.text).collect();
            assert_eq!(rebuild_body(&parsed.template, &texts).unwrap(), body.as_bytes());
        }
        // Two addresses, a name and an account; what is known is found and not searched again.
        let counts = redaction.counters.snapshot().redacted;
        assert_eq!(counts, [("email", 2), ("key", 0), ("user", 1), ("host", 0), ("account", 1)]);
        assert_eq!(redaction.known.len(), 2);
    }

    #[test]
    fn a_reply_has_the_masks_that_it_has_in_the_next_prompt() {
        let mut redaction = redaction();
        let arguments = r#"{"command":"mail a@b.com\nalice"}"#;
        let mut response = Response::default();
        response.reply.blocks = vec![
            ReplyBlock::Text { text: "to a@b.com\nalice".to_owned() },
            ReplyBlock::ToolCall {
                id: "1".to_owned(),
                name: "Bash".to_owned(),
                arguments: arguments.to_owned(),
            },
        ];
        response.reply.items = vec![r#"{"text":"\nalice"}"#.to_owned()];
        response.error = Some("no route to alice".to_owned());
        redaction.response(&mut response);
        let body = serde_json::json!({"messages": [
            {"role": "assistant", "content": "to a@b.com\nalice"},
            {"role": "assistant", "tool_calls": [{"function": {"arguments": arguments}}]},
        ]});
        let body: serde_json::Value =
            serde_json::from_str(&masked_body(&mut redaction, &body.to_string())).unwrap();
        let [ReplyBlock::Text { text }, ReplyBlock::ToolCall { arguments, .. }] =
            &response.reply.blocks[..]
        else {
            panic!("{:?}", response.reply.blocks)
        };
        assert_eq!(body["messages"][0]["content"], *text);
        assert_eq!(body["messages"][1]["tool_calls"][0]["function"]["arguments"], *arguments);
        let name = redaction.masker.mask(Kind::User, "alice");
        assert!(text.ends_with(&format!("\n{name}")), "{text}");
        assert_eq!(response.reply.items[0], format!(r#"{{"text":"\n{name}"}}"#));
        assert_eq!(response.error.as_deref(), Some(format!("no route to {name}").as_str()));
    }

    #[test]
    fn a_name_has_its_mask_wherever_the_headers_give_it() {
        let mut redaction = redaction();
        let named = || Some("alice-1".to_owned());
        let mut hints = AgentHints::default();
        for name in [&mut hints.session, &mut hints.agent_id, &mut hints.parent] {
            *name = named();
        }
        let (mut session, mut path) = (named(), "/v1/x?key=k&of=alice".to_owned());
        redaction.names(&mut session, &mut path, &mut hints);
        let name = redaction.masker.mask(Kind::User, "alice");
        for told in [&session, &hints.session, &hints.agent_id, &hints.parent] {
            assert_eq!(*told, Some(format!("{name}-1")));
        }
        assert_eq!(path, format!("/v1/x?key=***&of={name}"));
    }

    #[test]
    fn what_is_no_request_is_masked_too() {
        let mut redaction = redaction();
        let name = redaction.masker.mask(Kind::User, "alice");
        assert_eq!(masked_body(&mut redaction, "{\"a\": alice"), format!("{{\"a\": {name}"));
        assert_eq!(masked_body(&mut redaction, "[\"alice\"]"), format!("[\"{name}\"]"));
        assert!(redaction.body(vec![0xff, b'a']).unwrap_err().contains("no text"));
    }
}
