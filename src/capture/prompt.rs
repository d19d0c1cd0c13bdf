//! A prompt as lineage compares it: hashes of its blocks in order, and where each unit ends.
//!
//! Pure. Keeps no text but the last piece of a raw prompt, which ends anywhere: only by its text can be
//! told whether a later prompt goes on from there. Ephemeral blocks are left out, so that a reminder
//! which moves breaks no run.

use std::ops::Range;

use foldhash::HashSet;

use crate::api::{ContentHash, Unit, UnitKind};

/// One prompt in normal form.
#[derive(Debug, Clone, Default)]
pub(super) struct Prompt {
    units: Vec<UnitMark>,
    /// Blocks in prompt order: system, tools, messages.
    blocks: Vec<u128>,
    /// Where the tools' blocks lie among them.
    tools: Range<usize>,
    /// Blocks of the conversation up to the end of the first user unit.
    root_len: usize,
    /// The same for every prompt of one thread: system and the first block of the user.
    root_key: u128,
    /// Of a raw prompt: its last piece, less the marks that close the JSON value.
    tail: Option<Box<str>>,
}

#[derive(Debug, Clone, Copy)]
struct UnitMark {
    text: ContentHash,
    /// Where its blocks end; they begin where those of the unit before end.
    end: usize,
}

impl Prompt {
    pub(super) fn of(units: &[Unit<'_>]) -> Self {
        let says_something = |unit: &Unit<'_>| unit.blocks.iter().any(|block| !block.ephemeral);
        let first_user = units.iter().position(|unit| is_user(unit) && says_something(unit));
        let first_user = first_user.or_else(|| units.iter().position(is_user));
        let mut prompt = Self::default();
        let mut tools: Option<Range<usize>> = None;
        for (index, unit) in units.iter().enumerate() {
            let start = prompt.blocks.len();
            let solid = unit.blocks.iter().filter(|block| !block.ephemeral);
            prompt.blocks.extend(solid.map(|block| block.hash.0));
            let end = prompt.blocks.len();
            prompt.units.push(UnitMark { text: unit.hash, end });
            if unit.kind == UnitKind::Tool {
                tools = Some(tools.map_or(start, |tools| tools.start)..end);
            }
            if first_user.is_none_or(|first| index <= first) {
                let tool_blocks = tools.as_ref().map_or(0, ExactSizeIterator::len);
                prompt.root_len = end - tool_blocks;
                if first_user == Some(index) {
                    let first_block = (start + 1).min(end) - tool_blocks;
                    prompt.tools = tools.clone().unwrap_or_default();
                    prompt.root_key = fold(prompt.conversation().take(first_block));
                }
            }
        }
        prompt.tools = tools.unwrap_or_default();
        if first_user.is_none() {
            prompt.root_key = fold(prompt.conversation());
        }
        if let Some(last) = units.last().filter(|unit| unit.kind == UnitKind::Prompt) {
            let ends_value = |c: char| matches!(c, '"' | ']') || c.is_ascii_whitespace();
            prompt.tail = Some(last.text.trim_end_matches(ends_value).into());
            // A raw prompt has no system and no user to be known by: all of it must come again.
            prompt.root_len = 0;
            prompt.root_key = prompt.beginnings().last().unwrap_or(RAW_ROOT);
        }
        prompt
    }

    /// Whether a raw prompt goes on from an earlier one, all of which it then begins with. Of other
    /// prompts this says nothing.
    pub(super) fn goes_on_from(&self, units: &[Unit<'_>], earlier: &Self) -> bool {
        let Some(tail) = &earlier.tail else { return self.tail.is_none() };
        let whole = earlier.units.len() - 1;
        if whole == 0 && tail.len() <= 1 {
            return false; // an empty prompt is no beginning
        }
        let Some(more) = units.get(whole).and_then(|unit| unit.text.strip_prefix(&**tail)) else {
            return false;
        };
        // In a list of token ids, 12 does not go on from 1.
        let is_list = units.first().is_some_and(|unit| unit.text.starts_with('['));
        let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
        let cuts_number =
            is_list && is_digit(tail.chars().next_back()) && is_digit(more.chars().next());
        !cuts_number && self.shared_run(earlier) >= whole
    }

    /// Whether it is a raw prompt, without roles.
    pub(super) fn is_raw(&self) -> bool {
        self.tail.is_some()
    }

    /// Blocks of system and messages: what a thread is told by.
    fn conversation(&self) -> impl Iterator<Item = u128> + '_ {
        self.blocks[..self.tools.start].iter().chain(&self.blocks[self.tools.end..]).copied()
    }

    pub(super) fn conversation_len(&self) -> usize {
        self.blocks.len() - self.tools.len()
    }

    pub(super) fn root_len(&self) -> usize {
        self.root_len
    }

    /// What a thread with this last prompt is found by. Of a raw prompt: its pieces but the last.
    pub(super) fn root_key(&self) -> u128 {
        self.root_key
    }

    /// What the threads are found by that this prompt may continue.
    pub(super) fn root_keys(&self) -> Vec<u128> {
        if self.is_raw() { self.beginnings().collect() } else { vec![self.root_key] }
    }

    /// Keys of a raw prompt's beginnings, whole pieces each, from none to all but the last.
    fn beginnings(&self) -> impl Iterator<Item = u128> + '_ {
        let mut key = RAW_ROOT;
        let whole = self.blocks.len().saturating_sub(1);
        let longer = self.blocks[..whole].iter().map(move |block| {
            key = folded(key, *block);
            key
        });
        std::iter::once(RAW_ROOT).chain(longer)
    }

    /// Identity of the whole conversation.
    pub(super) fn fingerprint(&self) -> u128 {
        fold(self.conversation())
    }

    /// Leading blocks of the conversation that both have.
    pub(super) fn shared_run(&self, other: &Self) -> usize {
        self.conversation().zip(other.conversation()).take_while(|(a, b)| a == b).count()
    }

    /// Leading units, tools included, that `earlier` has as well. A unit without blocks to compare
    /// (a reminder, a billing line) counts when one after it does, or when its text is the same.
    pub(super) fn shared_units(&self, earlier: &Self) -> usize {
        let run = self.blocks.iter().zip(&earlier.blocks).take_while(|(a, b)| a == b).count();
        let mut shared = 0;
        let mut start = 0;
        for (index, unit) in self.units.iter().enumerate() {
            if unit.end > run {
                break;
            }
            if unit.end > start {
                shared = index + 1;
            }
            start = unit.end;
        }
        let texts = earlier.texts();
        let is_bare = |index: usize| {
            let start = if index == 0 { 0 } else { self.units[index - 1].end };
            self.units[index].end == start
        };
        while shared < self.units.len()
            && is_bare(shared)
            && texts.contains(&self.units[shared].text)
        {
            shared += 1;
        }
        shared
    }

    /// Indexes of the units whose text `earlier` does not have.
    pub(super) fn units_unknown_to(&self, earlier: &Self) -> Vec<usize> {
        let mut known = earlier.texts();
        let new = self.units.iter().enumerate().filter(|(_, unit)| known.insert(unit.text));
        new.map(|(index, _)| index).collect()
    }

    fn texts(&self) -> HashSet<ContentHash> {
        self.units.iter().map(|unit| unit.text).collect()
    }
}

/// The root of every raw prompt that is not longer than a piece.
const RAW_ROOT: u128 = 2;

fn is_user(unit: &Unit<'_>) -> bool {
    unit.kind == UnitKind::Message && unit.role == "user"
}

/// Order matters; collisions do no harm, because runs are compared block by block.
fn fold(hashes: impl Iterator<Item = u128>) -> u128 {
    hashes.fold(1, folded)
}

fn folded(key: u128, hash: u128) -> u128 {
    const ODD: u128 = 0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835;
    (key.rotate_left(29) ^ hash).wrapping_mul(ODD)
}
