//! A prompt as numbers that stand for its blocks of tokens: equal numbers are equal tokens after equal tokens.
//!
//! Pure. Where the recording has hashes of blocks, each gets a number. Where it has units, the prompt is
//! laid out by them: how many tokens a unit has follows from the prompts' counts and the units' bytes, so
//! the place of a block's edges within the text is an estimate, but two prompts share exactly the blocks
//! that lie whole in what they share. A block's identity is chained over all that stands before it. A last
//! block that is not full has a number too, which a longer prompt does not share.

use std::collections::HashMap;

use sha2::{Digest, Sha256};

use super::units::{Role, Units};
use crate::trace::UnitTokens;
use crate::trace::record::{ServerHistory, TurnRow};

/// Numbers given so far.
#[derive(Debug)]
pub(super) struct BlockNumbers {
    size: u32,
    numbers: HashMap<[u8; 16], u64>,
    units: Units,
    unit_tokens: UnitTokens<u128>,
}

/// A run of a prompt: part of a unit, or what belongs to one request alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// What it is of.
    pub(super) of: u128,
    /// Its first tokens.
    pub(super) tokens: u64,
}

impl BlockNumbers {
    /// For blocks of `size` tokens, in a run of these units.
    pub(super) fn new(size: u32, units: Units) -> Self {
        Self { size, numbers: HashMap::new(), units, unit_tokens: UnitTokens::new() }
    }

    /// Tokens in a block.
    pub(super) fn size(&self) -> u32 {
        self.size
    }

    /// What a unit is for.
    pub(super) fn role(&self, unit: u128) -> Role {
        self.units.role(unit)
    }

    /// The numbers of a prompt's blocks that are full; none where the run tells neither hashes nor units
    /// with a count.
    pub(super) fn of_full(&mut self, turn: &TurnRow) -> Option<Vec<u64>> {
        let n_full = turn.isl? / u64::from(self.size);
        let mut numbers = self.of(turn)?;
        numbers.truncate(usize::try_from(n_full).unwrap_or(usize::MAX));
        Some(numbers)
    }

    /// The same with the last block, which may be cut.
    pub(super) fn of(&mut self, turn: &TurnRow) -> Option<Vec<u64>> {
        if let Some(hashes) = &turn.block_hashes {
            let keys = hashes.iter().map(|hash| key(&[b"recorded", hash.as_bytes()]));
            let keys: Vec<[u8; 16]> = keys.collect();
            return Some(keys.into_iter().map(|key| self.number(key)).collect());
        }
        let (pieces, missing) = self.pieces(turn)?;
        let own = u128::from_be_bytes(key(&[
            b"own",
            turn.session_id.as_bytes(),
            turn.thread_id.as_bytes(),
            &turn.turn.to_be_bytes(),
        ]));
        let rest = (missing > 0).then_some(Piece { of: own, tokens: missing });
        let keys = chained(pieces.into_iter().chain(rest), u64::from(self.size));
        Some(keys.into_iter().map(|key| self.number(key)).collect())
    }

    /// A prompt's units with their tokens, as many as the prompt has, and how many tokens are left over.
    /// None where the units are not the whole prompt, or the prompt's tokens are not known.
    pub(super) fn pieces(&mut self, turn: &TurnRow) -> Option<(Vec<Piece>, u64)> {
        let mut left = turn.isl?;
        if turn.unit_hashes.is_empty() || turn.server_history == Some(ServerHistory::Unknown) {
            return None;
        }
        let parsed = turn.unit_hashes.iter().map(|hash| u128::from_str_radix(hash, 16).ok());
        let units: Vec<u128> = parsed.collect::<Option<_>>()?;
        let bytes = |unit| self.units.bytes(unit);
        let tokens = self.unit_tokens.of_prompt(&units, Some(left), bytes);
        let mut pieces = Vec::with_capacity(units.len());
        for (of, tokens) in units.into_iter().zip(tokens) {
            let tokens = u64::from(tokens).min(left);
            left -= tokens;
            if tokens > 0 {
                pieces.push(Piece { of, tokens });
            }
        }
        Some((pieces, left))
    }

    fn number(&mut self, key: [u8; 16]) -> u64 {
        let next = self.numbers.len() as u64;
        *self.numbers.entry(key).or_insert(next)
    }
}

/// The identities of the blocks that pieces make up, each over all that stands before it.
fn chained(pieces: impl Iterator<Item = Piece>, size: u64) -> Vec<[u8; 16]> {
    let mut keys: Vec<[u8; 16]> = Vec::new();
    let mut chain = Sha256::new_with_prefix(b"block");
    let mut filled = 0;
    let close = |chain: &mut Sha256, keys: &mut Vec<[u8; 16]>| {
        let closed = std::mem::replace(chain, Sha256::new_with_prefix(b"block"));
        let key = first_half(&closed.finalize());
        chain.update(key);
        keys.push(key);
    };
    for piece in pieces {
        let mut from = 0;
        while from < piece.tokens {
            let n = (piece.tokens - from).min(size - filled);
            for part in [piece.of.to_be_bytes().as_slice(), &from.to_be_bytes(), &n.to_be_bytes()] {
                chain.update(part);
            }
            from += n;
            filled += n;
            if filled == size {
                close(&mut chain, &mut keys);
                filled = 0;
            }
        }
    }
    if filled > 0 {
        close(&mut chain, &mut keys);
    }
    keys
}

fn key(parts: &[&[u8]]) -> [u8; 16] {
    let mut hash = Sha256::new();
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    first_half(&hash.finalize())
}

fn first_half(digest: &[u8]) -> [u8; 16] {
    let mut first = [0; 16];
    first.copy_from_slice(&digest[..16]);
    first
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turn(thread: &str, index: u32, units: &[u128], isl: Option<u64>) -> TurnRow {
        TurnRow {
            session_id: "s".into(),
            thread_id: thread.into(),
            turn: index,
            unit_hashes: units.iter().map(|unit| format!("{unit:032x}")).collect(),
            isl,
            ..TurnRow::default()
        }
    }

    fn numbers(size: u32) -> BlockNumbers {
        // A token for each byte, as the counts below have it.
        BlockNumbers::new(size, Units::from_lengths(&[(1, 20), (2, 15), (3, 5), (4, 30)]))
    }

    #[test]
    fn prompts_share_the_blocks_that_lie_whole_in_what_they_share() {
        let mut blocks = numbers(10);
        assert_eq!(blocks.of(&turn("a", 0, &[1, 2], Some(35))), Some(vec![0, 1, 2, 3]));
        // Grown by 5 tokens: the block that was begun is another one now.
        assert_eq!(blocks.of(&turn("a", 1, &[1, 2, 3], Some(40))), Some(vec![0, 1, 2, 4]));
        // Another session with the same beginning; what follows differs though its units do not.
        assert_eq!(blocks.of(&turn("b", 0, &[1, 4], Some(50))), Some(vec![0, 1, 5, 6, 7]));
        assert_eq!(blocks.of(&turn("c", 0, &[4, 1], Some(50))), Some(vec![8, 9, 10, 11, 12]));
        // Cut to 15 tokens of the first unit.
        assert_eq!(blocks.of(&turn("d", 0, &[1], Some(15))), Some(vec![0, 13]));
        // The same again is the same; tokens of no unit are the request's own.
        assert_eq!(blocks.of(&turn("e", 0, &[1, 2], Some(35))), Some(vec![0, 1, 2, 3]));
        assert_eq!(blocks.of(&turn("e", 1, &[1, 2], Some(45))), Some(vec![0, 1, 2, 14, 15]));
        assert_eq!(blocks.of(&turn("f", 1, &[1, 2], Some(45))), Some(vec![0, 1, 2, 16, 17]));
    }

    #[test]
    fn recorded_hashes_are_kept_and_what_is_unknown_stays_so() {
        let mut blocks = numbers(10);
        let recorded = |hashes: &[&str]| TurnRow {
            block_hashes: Some(hashes.iter().map(ToString::to_string).collect()),
            block_size: Some(10),
            ..turn("a", 0, &[1], Some(30))
        };
        assert_eq!(blocks.of(&recorded(&["x", "y", "x"])), Some(vec![0, 1, 0]));
        assert_eq!(blocks.of(&recorded(&["x", "z"])), Some(vec![0, 2]));
        assert_eq!(blocks.of(&turn("a", 0, &[1], None)), None);
        assert_eq!(blocks.of(&turn("a", 0, &[], Some(9))), None);
        let kept = ServerHistory::Unknown;
        let partly = TurnRow { server_history: Some(kept), ..turn("a", 0, &[1], Some(9)) };
        assert_eq!(blocks.of(&partly), None);
        assert_eq!(blocks.size(), 10);
        // A block that is not full is told apart from those that are.
        let cut = TurnRow { isl: Some(19), ..recorded(&["x", "w"]) };
        assert_eq!((blocks.of(&cut), blocks.of_full(&cut)), (Some(vec![0, 3]), Some(vec![0])));
    }
}
