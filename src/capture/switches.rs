//! Compatibility switches: what the proxy changes of a request for an engine that does not take it as the
//! agent sends it. All are off by default.
//!
//! Pure: bodies in, bodies out. How a changed request travels is `rewriting`'s affair.

use serde_json::{Map, Value, json};

use crate::api::{Api, capped, reroled_system, with_model, without_billing_line};
use crate::error::{Error, Result};
use crate::trace::record::TurnRow;

/// An API that an engine is asked in instead of the agent's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConvertTo {
    /// Messages requests go to the engine as Chat requests.
    Chat,
}

/// Which changes are wanted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Switches {
    /// Messages of the role `system` become the user's.
    pub rerole_system: bool,
    /// Claude Code's billing line is taken out of the system prompt.
    pub strip_billing_header: bool,
    /// No request may ask for more output tokens.
    pub cap_max_tokens: Option<u64>,
    /// Every request goes to this model.
    pub model: Option<String>,
    /// Calls for a session's title are answered by the proxy.
    pub answer_titles: bool,
    /// Messages are converted for an engine without that API.
    pub convert: Option<ConvertTo>,
}

/// One thing that was done to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Change {
    /// `--rerole-system`.
    RerolesSystem,
    /// `--strip-billing-header`.
    StripsBillingHeader,
    /// `--cap-max-tokens`.
    CapsMaxTokens,
    /// `--model`.
    NamesModel,
    /// `--convert chat`.
    ConvertsToChat,
    /// `--answer-titles`: it reached no engine.
    AnswersLocally,
}

impl Change {
    /// All of them, in the order in which they are made.
    pub const ALL: [Self; 6] = [
        Self::RerolesSystem,
        Self::StripsBillingHeader,
        Self::CapsMaxTokens,
        Self::NamesModel,
        Self::ConvertsToChat,
        Self::AnswersLocally,
    ];

    /// The name in tables and manifest.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RerolesSystem => "rerole_system",
            Self::StripsBillingHeader => "strip_billing_header",
            Self::CapsMaxTokens => "cap_max_tokens",
            Self::NamesModel => "model",
            Self::ConvertsToChat => "convert_chat",
            Self::AnswersLocally => TurnRow::ANSWERED_LOCALLY,
        }
    }
}

/// A request as the engine is to get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Changed {
    pub(super) body: Vec<u8>,
    pub(super) changes: Vec<Change>,
    /// The agent's word that a subagent sends it, where a change took that away.
    pub(super) says_subagent: bool,
}

impl Switches {
    /// Nothing is to be changed: bytes pass as they are.
    pub fn are_off(&self) -> bool {
        *self == Self::default()
    }

    /// Refuses what no engine can be asked for.
    pub fn validate(&self) -> Result<()> {
        if self.cap_max_tokens == Some(0) {
            return Err(Error::config(
                "cap_max_tokens: 0 output tokens are no answer; give at least 1",
            ));
        }
        if self.model.as_deref().is_some_and(|model| model.trim().is_empty()) {
            return Err(Error::config("model: the name is empty; give one that the engine serves"));
        }
        Ok(())
    }

    /// What a request becomes. What cannot be read stays as it is, for the engine to refuse.
    pub(super) fn apply(&self, api: Api, body: Vec<u8>) -> Changed {
        let mut changed = Changed { body, changes: Vec::new(), says_subagent: false };
        if self.rerole_system {
            changed.take(Change::RerolesSystem, |body| reroled_system(api, body));
        }
        if self.strip_billing_header
            && let Some(unbilled) = without_billing_line(api, &changed.body)
        {
            changed.says_subagent = unbilled.says_subagent;
            changed.take(Change::StripsBillingHeader, |_| Some(unbilled.body));
        }
        if let Some(max_tokens) = self.cap_max_tokens {
            changed.take(Change::CapsMaxTokens, |body| capped(api, body, max_tokens));
        }
        if let Some(model) = &self.model {
            changed.take(Change::NamesModel, |body| with_model(body, model));
        }
        changed
    }

    /// What of a request to count tokens is changed: its limit is not its own.
    pub(super) fn for_counting(&self) -> Self {
        Self { cap_max_tokens: None, ..self.clone() }
    }

    /// Whether a request of this API is converted.
    pub(super) fn converts(&self, api: Api) -> bool {
        self.convert == Some(ConvertTo::Chat) && api == Api::Messages
    }

    /// The switches that are on, by name, for the manifest.
    pub fn settings(&self) -> Map<String, Value> {
        let named = [
            ("rerole_system", self.rerole_system.then(|| json!(true))),
            ("strip_billing_header", self.strip_billing_header.then(|| json!(true))),
            ("cap_max_tokens", self.cap_max_tokens.map(Value::from)),
            ("model", self.model.clone().map(Value::from)),
            ("answer_titles", self.answer_titles.then(|| json!(true))),
            ("convert", self.convert.map(|ConvertTo::Chat| json!("chat"))),
        ];
        named.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// What a reader of the recording must know, in a sentence; none where nothing is changed.
    pub fn note(&self) -> Option<String> {
        let mut parts = Vec::new();
        if self.rerole_system {
            parts.push("system messages are sent as the user's".to_owned());
        }
        if self.strip_billing_header {
            parts.push("Claude Code's billing line is taken out".to_owned());
        }
        if let Some(max_tokens) = self.cap_max_tokens {
            parts.push(format!("at most {max_tokens} output tokens are asked for"));
        }
        if let Some(model) = &self.model {
            parts.push(format!("every request goes to the model {model}"));
        }
        if self.answer_titles {
            parts.push("calls for a title are answered by the proxy".to_owned());
        }
        if self.convert.is_some() {
            parts.push("Messages are converted to Chat and back".to_owned());
        }
        (!parts.is_empty()).then(|| {
            format!(
                "requests are changed on their way to the engine: {}; the rows tell what the engine was given",
                parts.join(", ")
            )
        })
    }
}

impl Changed {
    fn take(&mut self, change: Change, make: impl FnOnce(&[u8]) -> Option<Vec<u8>>) {
        if let Some(body) = make(&self.body) {
            self.body = body;
            self.changes.push(change);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &str = r#"{"model":"claude", "max_tokens":32000,"system":[{"type":"text","text":"x-anthropic-billing-header: cc_is_subagent=true;"},{"type":"text","text":"You."}],"messages":[{"role":"system","content":"a"}]}"#;

    #[test]
    fn without_a_switch_nothing_changes() {
        let off = Switches::default();
        assert!(off.are_off() && off.settings().is_empty() && off.note().is_none());
        let changed = off.apply(Api::Messages, BODY.into());
        assert_eq!((changed.body.as_slice(), changed.changes.len()), (BODY.as_bytes(), 0));
    }

    #[test]
    fn each_switch_changes_its_own_and_says_so() {
        let all = Switches {
            rerole_system: true,
            strip_billing_header: true,
            cap_max_tokens: Some(64),
            model: Some("tiny".into()),
            answer_titles: true,
            convert: Some(ConvertTo::Chat),
        };
        let changed = all.apply(Api::Messages, BODY.into());
        assert_eq!(
            String::from_utf8(changed.body).unwrap(),
            r#"{"model":"tiny", "max_tokens":64,"system":[{"type":"text","text":"You."}],"messages":[{"role":"user","content":"a"}]}"#
        );
        // The conversion itself is made when the request is sent.
        assert_eq!(changed.changes, Change::ALL[..4]);
        assert!(changed.says_subagent);
        assert_eq!(
            Value::Object(all.settings()),
            json!({"rerole_system": true, "strip_billing_header": true, "cap_max_tokens": 64,
                "model": "tiny", "answer_titles": true, "convert": "chat"})
        );
        let note = all.note().unwrap();
        for part in
            ["as the user's", "billing line", "64 output tokens", "model tiny", "Chat and back"]
        {
            assert!(note.contains(part), "{note}");
        }
        let counting = all.for_counting().apply(Api::Messages, BODY.into());
        assert!(!counting.changes.contains(&Change::CapsMaxTokens));
        assert!(all.converts(Api::Messages) && !all.converts(Api::Responses));
        let broken = all.apply(Api::Messages, b"no JSON".to_vec());
        assert_eq!((broken.body.as_slice(), broken.changes.len()), (&b"no JSON"[..], 0));
    }
}
