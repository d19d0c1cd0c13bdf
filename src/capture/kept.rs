//! What servers keep of conversations, as far as it passed here: the prompt and output of responses that
//! later requests may name (`previous_response_id`) instead of sending them back.
//!
//! Nothing is made up: a response that was not seen, or whose own prompt was not whole, is unknown, and
//! so is one that was forgotten to keep memory bounded. Texts are shared between the responses of a
//! conversation, so that one costs its length and not the square of it.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use crate::api::{ContentHash, ParsedRequest, Reply, Unit, UnitKind, item_units};

/// Responses that are remembered.
const MAX_RESPONSES: usize = 20_000;
/// Text of all of them.
const MAX_BYTES: usize = 256 << 20;

/// Responses by their id.
#[derive(Debug)]
pub(super) struct KeptResponses {
    responses: HashMap<String, Vec<Arc<Unit<'static>>>>,
    /// Oldest first.
    order: VecDeque<String>,
    texts: HashMap<ContentHash, Arc<Unit<'static>>>,
    held_bytes: usize,
    max_responses: usize,
    max_bytes: usize,
}

impl Default for KeptResponses {
    fn default() -> Self {
        Self::new(MAX_RESPONSES, MAX_BYTES)
    }
}

impl KeptResponses {
    fn new(max_responses: usize, max_bytes: usize) -> Self {
        Self {
            responses: HashMap::new(),
            order: VecDeque::new(),
            texts: HashMap::new(),
            held_bytes: 0,
            max_responses,
            max_bytes,
        }
    }

    /// The conversation up to the end of a response; none where it is not known.
    pub(super) fn conversation(&self, response_id: &str) -> Option<Vec<Unit<'static>>> {
        let units = self.responses.get(response_id)?;
        Some(units.iter().map(|unit| Unit::clone(unit)).collect())
    }

    /// Remembers a response whose prompt was whole. One that its server was told not to keep can be
    /// named by no one.
    pub(super) fn remember(&mut self, request: &ParsedRequest<'_>, reply: &Reply) {
        let Some(id) = &reply.response_id else { return };
        if is_not_stored(&request.params) {
            return;
        }
        // An engine that was started again may give its ids again: the latest is meant.
        if self.responses.contains_key(id) {
            self.forget(id);
            self.order.retain(|other| other != id);
        }
        let messages = request.units.iter().filter(|unit| unit.kind == UnitKind::Message).cloned();
        let units: Vec<Arc<Unit<'static>>> =
            messages.chain(item_units(&reply.items)).map(|unit| self.shared(unit)).collect();
        self.responses.insert(id.clone(), units);
        self.order.push_back(id.clone());
        while self.order.len() > self.max_responses || self.held_bytes > self.max_bytes {
            let Some(oldest) = self.order.pop_front() else { break };
            self.forget(&oldest);
        }
    }

    fn shared(&mut self, unit: Unit<'_>) -> Arc<Unit<'static>> {
        if let Some(known) = self.texts.get(&unit.hash) {
            return Arc::clone(known);
        }
        self.held_bytes += unit.text.len();
        let (hash, unit) = (unit.hash, Arc::new(unit.into_owned()));
        self.texts.insert(hash, Arc::clone(&unit));
        unit
    }

    fn forget(&mut self, response_id: &str) {
        for unit in self.responses.remove(response_id).into_iter().flatten() {
            // Held by the table of texts and by this list, and by no other response.
            if Arc::strong_count(&unit) == 2 {
                self.texts.remove(&unit.hash);
                self.held_bytes -= unit.text.len();
            }
        }
    }
}

fn is_not_stored(params: &str) -> bool {
    let params: serde_json::Value = serde_json::from_str(params).unwrap_or_default();
    params["store"] == false
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{Api, parse_request};

    fn request(body: &str) -> ParsedRequest<'_> {
        parse_request(Api::Responses, body.as_bytes()).unwrap()
    }

    fn reply(id: &str, item: &str) -> Reply {
        Reply { response_id: Some(id.to_owned()), items: vec![item.to_owned()], ..Reply::default() }
    }

    fn texts(kept: &KeptResponses, id: &str) -> Option<Vec<String>> {
        let units = kept.conversation(id)?;
        Some(units.into_iter().map(|unit| unit.text.into_owned()).collect())
    }

    const HELLO: &str = r#"{"type":"message","role":"assistant","content":[]}"#;

    #[test]
    fn a_conversation_is_its_messages_and_the_output() {
        let mut kept = KeptResponses::default();
        kept.remember(
            &request(r#"{"instructions":"i","tools":[{}],"input":"hi"}"#),
            &reply("a", HELLO),
        );
        assert_eq!(texts(&kept, "a").unwrap(), ["\"hi\"", HELLO]);
        assert_eq!(kept.conversation("a").unwrap()[1].role, "assistant");
        assert_eq!(texts(&kept, "b"), None);
        kept.remember(&request(r#"{"input":"hi","store":false}"#), &reply("b", HELLO));
        assert_eq!(texts(&kept, "b"), None);
        kept.remember(&request(r#"{"input":"again"}"#), &reply("a", HELLO));
        assert_eq!(texts(&kept, "a").unwrap(), ["\"again\"", HELLO]);
        assert_eq!((kept.order.len(), kept.texts.len()), (1, 2));
    }

    #[test]
    fn the_oldest_are_forgotten_and_shared_texts_stay() {
        let mut kept = KeptResponses::new(2, 1000);
        for id in ["a", "b", "c"] {
            kept.remember(&request(&format!(r#"{{"input":"say {id}"}}"#)), &reply(id, HELLO));
        }
        assert_eq!(texts(&kept, "a"), None);
        assert_eq!(texts(&kept, "b").unwrap(), ["\"say b\"", HELLO]);
        assert_eq!(kept.held_bytes, "\"say b\"\"say c\"".len() + HELLO.len());
        let long = "x".repeat(2000);
        kept.remember(&request(&format!(r#"{{"input":"{long}"}}"#)), &reply("d", HELLO));
        assert_eq!((kept.responses.len(), kept.held_bytes, kept.texts.len()), (0, 0, 0));
    }
}
