//! One reply, laid out before its first token: ids for the scheduler, pieces of text and tool call for
//! the wire.
//!
//! Pure. What a reply will be is settled when its request arrives; the scheduler only says when each
//! token is done.

use super::script::Scripted;
use super::text::{Speaker, Spoken};
use super::tokens::{Mark, Tokenizer};

/// What a request asks of its reply's length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LengthRules {
    /// Most tokens.
    pub max_tokens: u32,
    /// Fewest tokens before the reply may end by itself.
    pub min_tokens: u32,
    /// The reply does not end by itself.
    pub ignore_eos: bool,
    /// Texts at which the reply ends.
    pub stop: Vec<String>,
}

/// Why a reply ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finish {
    /// By itself or at a stop text.
    Stop,
    /// At `max_tokens`.
    Length,
}

/// A tool call within a reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedCall {
    /// The tool.
    pub name: String,
    /// Arguments as JSON text.
    pub arguments: String,
    // Tokens after which the name is known and the call is whole.
    named_at: usize,
    whole_at: usize,
}

/// A reply.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// Token ids, the ending one included.
    pub ids: Vec<u32>,
    /// Visible text.
    pub text: String,
    /// Where in `text` each token ends.
    ends: Vec<usize>,
    /// The tool call, if it is whole.
    pub call: Option<PlannedCall>,
    /// Why it ends.
    pub finish: Finish,
    /// The stop text at which it ended.
    pub stop_text: Option<String>,
}

/// What a finished token brings to the wire.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece<'plan> {
    /// More text; never empty.
    Text(&'plan str),
    /// A tool call begins.
    CallName(&'plan str),
    /// All its arguments.
    CallArguments(&'plan str),
}

impl Plan {
    /// A reply in words of the engine's own.
    pub fn spoken(tokenizer: &Tokenizer, seed: u64, rules: &LengthRules) -> Self {
        let mut speaker = Speaker::new(seed);
        let natural = speaker.natural_length().max(rules.min_tokens.saturating_add(1));
        let ends_itself = !rules.ignore_eos && natural <= rules.max_tokens;
        let words = if ends_itself { natural - 1 } else { rules.max_tokens };
        let Spoken { ids, text, ends } = speaker.text(tokenizer, words);
        let mut plan =
            Self { ids, text, ends, call: None, finish: Finish::Length, stop_text: None };
        if ends_itself {
            plan.end_itself(tokenizer);
        }
        plan.stop_at(rules);
        plan
    }

    /// A reply that a script gives.
    pub fn scripted(tokenizer: &Tokenizer, scripted: &Scripted, rules: &LengthRules) -> Self {
        let mut plan = Self {
            ids: Vec::new(),
            text: scripted.text.clone(),
            ends: Vec::new(),
            call: None,
            finish: Finish::Stop,
            stop_text: None,
        };
        for (id, range) in tokenizer.pieces(&scripted.text) {
            plan.ids.push(id);
            plan.ends.push(range.end);
        }
        if let Some((name, arguments)) = &scripted.call {
            plan.add_call(tokenizer, name, arguments);
        }
        plan.end_itself(tokenizer);
        plan.cut(rules.max_tokens as usize);
        plan.stop_at(rules);
        plan
    }

    fn add_call(&mut self, tokenizer: &Tokenizer, name: &str, arguments: &str) {
        self.add_silent(tokenizer.mark(Mark::CallStart));
        let before = self.ids.len();
        let text = call_text(name, arguments);
        let name_end = text.len() - arguments.len();
        let pieces = tokenizer.pieces(&text);
        let named = pieces.iter().position(|piece| piece.1.end >= name_end).unwrap_or(0);
        self.add_silent(pieces.into_iter().map(|piece| piece.0).collect());
        self.add_silent(tokenizer.mark(Mark::CallEnd));
        self.call = Some(PlannedCall {
            name: name.into(),
            arguments: arguments.into(),
            named_at: before + named,
            whole_at: self.ids.len() - 1,
        });
    }

    fn add_silent(&mut self, ids: Vec<u32>) {
        self.ends.resize(self.ends.len() + ids.len(), self.text.len());
        self.ids.extend(ids);
    }

    fn end_itself(&mut self, tokenizer: &Tokenizer) {
        let end = tokenizer.mark(Mark::End).first().copied().unwrap_or_default();
        self.add_silent(vec![end]);
        self.finish = Finish::Stop;
    }

    fn cut(&mut self, max_tokens: usize) {
        if self.ids.len() <= max_tokens {
            return;
        }
        self.ids.truncate(max_tokens);
        self.ends.truncate(max_tokens);
        self.text.truncate(self.ends.last().copied().unwrap_or_default());
        self.call = self.call.take().filter(|call| call.whole_at < max_tokens);
        self.finish = Finish::Length;
    }

    /// Ends the reply at the first stop text that is complete after `min_tokens` tokens.
    fn stop_at(&mut self, rules: &LengthRules) {
        let mut first: Option<(usize, usize, &str)> = None;
        for stop in rules.stop.iter().filter(|stop| !stop.is_empty()) {
            for (start, _) in self.text.match_indices(stop.as_str()) {
                let whole = start + stop.len();
                let token = self.ends.partition_point(|end| *end < whole);
                if token + 1 > rules.min_tokens as usize {
                    if first.is_none_or(|it| (token, start) < (it.0, it.1)) {
                        first = Some((token, start, stop));
                    }
                    break;
                }
            }
        }
        let Some((token, start, stop)) = first else { return };
        self.ids.truncate(token + 1);
        self.ends.truncate(token + 1);
        self.text.truncate(start);
        for end in &mut self.ends {
            *end = (*end).min(start);
        }
        self.call = None;
        self.finish = Finish::Stop;
        self.stop_text = Some(stop.to_owned());
    }

    /// What the token at `index` brings.
    pub fn pieces(&self, index: usize) -> Vec<Piece<'_>> {
        let mut pieces = Vec::new();
        let from = if index == 0 { 0 } else { self.ends[index - 1] };
        let text = &self.text[from..self.ends[index]];
        if !text.is_empty() {
            pieces.push(Piece::Text(text));
        }
        if let Some(call) = &self.call {
            if call.named_at == index {
                pieces.push(Piece::CallName(&call.name));
            }
            if call.whole_at == index {
                pieces.push(Piece::CallArguments(&call.arguments));
            }
        }
        pieces
    }
}

/// A tool call as the model spells it between its two marks; rendered the same way when it comes back
/// as part of a prompt.
pub fn call_text(name: &str, arguments: &str) -> String {
    format!("{{\"name\": {}, \"arguments\": {arguments}}}", serde_json::Value::from(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(max_tokens: u32, min_tokens: u32, ignore_eos: bool) -> LengthRules {
        LengthRules { max_tokens, min_tokens, ignore_eos, stop: Vec::new() }
    }

    fn said(plan: &Plan) -> Vec<Piece<'_>> {
        (0..plan.ids.len()).flat_map(|index| plan.pieces(index)).collect()
    }

    #[test]
    fn lengths_are_forced_exactly() {
        let natural = Speaker::new(1).natural_length();
        let check = |rules: LengthRules, tokens: u32, finish: Finish, text_tokens: u32| {
            let plan = Plan::spoken(&Tokenizer::FourBytes, 1, &rules);
            assert_eq!((plan.ids.len() as u32, plan.finish), (tokens, finish), "{rules:?}");
            assert_eq!(plan.text.len() as u32, text_tokens * 4, "{rules:?}");
        };
        check(rules(50_000, 0, false), natural, Finish::Stop, natural - 1);
        check(rules(natural, 0, false), natural, Finish::Stop, natural - 1);
        check(rules(natural - 1, 0, false), natural - 1, Finish::Length, natural - 1);
        check(rules(1, 0, false), 1, Finish::Length, 1);
        check(rules(5_000, 0, true), 5_000, Finish::Length, 5_000);
        check(rules(5_000, 5_000, false), 5_000, Finish::Length, 5_000);
        check(rules(5_001, 5_000, false), 5_001, Finish::Stop, 5_000);
        check(rules(3, 3, true), 3, Finish::Length, 3);
    }

    #[test]
    fn a_call_comes_whole_or_not_at_all() {
        let scripted = Scripted {
            text: "Looking.".into(),
            call: Some(("Bash".into(), r#"{"command":"ls"}"#.into())),
        };
        let plan = Plan::scripted(&Tokenizer::FourBytes, &scripted, &rules(100, 0, false));
        // 2 of text, 1 mark, ceil(49 / 4) of call, 1 mark, 1 end.
        let call = call_text("Bash", r#"{"command":"ls"}"#);
        assert_eq!(call, r#"{"name": "Bash", "arguments": {"command":"ls"}}"#);
        assert_eq!(plan.ids.len(), 2 + 1 + call.len().div_ceil(4) + 1 + 1);
        assert_eq!(plan.finish, Finish::Stop);
        let pieces = [
            Piece::Text("Look"),
            Piece::Text("ing."),
            Piece::CallName("Bash"),
            Piece::CallArguments(r#"{"command":"ls"}"#),
        ];
        assert_eq!(said(&plan), pieces);
        // The last token ends the turn, the one before it the call.
        assert_eq!(plan.pieces(plan.ids.len() - 2), pieces[3..]);
        let cut = Plan::scripted(&Tokenizer::FourBytes, &scripted, &rules(10, 0, false));
        assert_eq!((cut.ids.len(), cut.finish, cut.call.is_none()), (10, Finish::Length, true));
        assert_eq!(said(&cut), pieces[..2]);
    }

    #[test]
    fn stop_texts_end_a_reply() {
        let scripted = |text: &str| Scripted { text: text.into(), call: None };
        let check = |text: &str, stop: &[&str], min: u32, kept: &str, tokens: usize| {
            let stop = stop.iter().map(|it| (*it).to_owned()).collect();
            let rules = LengthRules { max_tokens: 99, min_tokens: min, ignore_eos: false, stop };
            let plan = Plan::scripted(&Tokenizer::FourBytes, &scripted(text), &rules);
            assert_eq!((plan.text.as_str(), plan.ids.len()), (kept, tokens), "{text} {rules:?}");
            let text: String = said(&plan)
                .iter()
                .map(|piece| match piece {
                    Piece::Text(text) => *text,
                    _ => "",
                })
                .collect();
            assert_eq!(text, kept);
            assert_eq!(plan.finish, Finish::Stop);
        };
        check("aaaabbbbcccc", &[], 0, "aaaabbbbcccc", 4);
        check("aaaabbbbcccc", &["bb"], 0, "aaaa", 2);
        check("aaaabbbbcccc", &["abbbbc"], 0, "aaa", 3);
        check("aaaabbbbcccc", &["cc", "ab"], 0, "aaa", 2);
        check("aaaabbbbaabb", &["aab"], 0, "aa", 2);
        check("aaaabbbbaabb", &["aab"], 2, "aaaabbbb", 3);
        check("aaaabbbb", &["zz"], 0, "aaaabbbb", 3);
    }
}
