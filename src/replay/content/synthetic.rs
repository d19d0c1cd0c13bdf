//! Completions requests whose prompts are token ids of our own.

use std::fmt::Write as _;

use crate::replay::salts::Salt;
use crate::replay::synthetic_plan::SyntheticPrompts;
use crate::replay::tokens::IdRange;

/// The prompts of a plan, and the ids that the engine takes.
#[derive(Debug)]
pub(crate) struct Synthetic {
    pub(crate) prompts: SyntheticPrompts,
    pub(crate) range: IdRange,
}

impl Synthetic {
    /// A request with its prompt alone. Salts change which ids a seed gives, and no length: leading
    /// pieces that several sessions have are the prompt's head, which sessions may share.
    pub(super) fn body(&self, session: usize, request: usize, salt: Option<&Salt>) -> Vec<u8> {
        let (head, rest) = salt.map_or((0, 0), Salt::seeds);
        let mut is_head = true;
        let ids = self.prompts.prompt(session, request).flat_map(|piece| {
            is_head &= self.prompts.is_shared(piece.seed);
            let salted = piece.seed ^ if is_head { head } else { rest };
            self.range.ids(salted, piece.tokens.into())
        });
        let mut body = String::from(r#"{"prompt":["#);
        for (index, id) in ids.enumerate() {
            let comma = if index > 0 { "," } else { "" };
            // A String takes all that is written to it.
            let _ = write!(body, "{comma}{id}");
        }
        body.push_str("]}");
        body.into_bytes()
    }
}
