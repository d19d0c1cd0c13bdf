//! Requests whose prompts are of our own: token ids, or text of words that are a token each.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::api::Api;
use crate::replay::salts::Salt;
use crate::replay::settings::SyntheticText;
use crate::replay::synthetic_plan::SyntheticPrompts;
use crate::replay::tokens::IdRange;
use crate::replay::words::Words;

/// Messages takes no request without a limit; that of an output whose length was not recorded.
const MESSAGES_LIMIT: u32 = 4096;

/// What prompts are made of.
#[derive(Debug, Clone)]
pub(crate) enum Vocabulary {
    /// Token ids that the engine takes.
    Ids(IdRange),
    /// Words that are a token each.
    Words(TextVocabulary),
}

/// Words, and what is known of them.
#[derive(Debug, Clone)]
pub(crate) struct TextVocabulary {
    pub(crate) words: Words,
    pub(crate) told: SyntheticText,
}

/// The prompts of a plan, and what they are made of.
#[derive(Debug)]
pub(crate) struct Synthetic {
    pub(crate) prompts: SyntheticPrompts,
    pub(crate) vocabulary: Vocabulary,
}

impl Synthetic {
    /// A request with its prompt alone. Salts change which tokens a seed gives, and no length: leading
    /// pieces that several sessions have are the prompt's head, which sessions may share.
    pub(super) fn body(
        &self,
        api: Api,
        session: usize,
        request: usize,
        salt: Option<&Salt>,
    ) -> Vec<u8> {
        let (head, rest) = salt.map_or((0, 0), Salt::seeds);
        let mut is_head = true;
        let pieces = self.prompts.prompt(session, request).map(|piece| {
            is_head &= self.prompts.is_shared(piece.seed);
            (piece.seed ^ if is_head { head } else { rest }, u64::from(piece.tokens))
        });
        match &self.vocabulary {
            Vocabulary::Ids(range) => ids_body(pieces.flat_map(|(seed, n)| range.ids(seed, n))),
            Vocabulary::Words(TextVocabulary { words, told }) => {
                let pieces: Vec<(u64, u64)> = pieces.collect();
                let planned: u64 = pieces.iter().map(|(_, tokens)| tokens).sum();
                // What the engine puts around the text is part of the prompt; no API takes an empty one.
                let said = planned.saturating_sub(told.tokens_around).max(1);
                text_body(api, &words.text(pieces.into_iter(), said)).to_string().into_bytes()
            }
        }
    }
}

fn ids_body(ids: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut body = String::from(r#"{"prompt":["#);
    for (index, id) in ids.enumerate() {
        let comma = if index > 0 { "," } else { "" };
        // A String takes all that is written to it.
        let _ = write!(body, "{comma}{id}");
    }
    body.push_str("]}");
    body.into_bytes()
}

/// A request that says a text and nothing else.
pub(crate) fn text_body(api: Api, text: &str) -> Value {
    match api {
        Api::Completions => json!({"prompt": text}),
        Api::Chat => json!({"messages": [{"role": "user", "content": text}]}),
        Api::Messages => json!({"messages": [{"role": "user", "content": text}],
            "max_tokens": MESSAGES_LIMIT}),
        Api::Responses => json!({"input": text}),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_stands_where_each_api_has_it() {
        let text = "Note a b";
        assert_eq!(text_body(Api::Completions, text), json!({"prompt": text}));
        assert_eq!(text_body(Api::Responses, text), json!({"input": text}));
        for api in [Api::Chat, Api::Messages] {
            let body = text_body(api, text);
            assert_eq!(body["messages"], json!([{"role": "user", "content": text}]));
            assert_eq!(body.get("max_tokens").is_some(), api == Api::Messages);
        }
    }
}
