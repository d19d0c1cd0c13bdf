//! Token ids of our own: a seed gives a sequence, and the same seed gives the same one everywhere.
//!
//! Pure. A longer run of a seed begins with the shorter one, so that a part of a block is the beginning
//! of the block. Which ids an engine takes is found out before (`IdRange`); what the seeds stand for is
//! `synthetic_plan`'s affair.

use crate::api::ContentHash;

/// Token ids that an engine is sure to take: from the first up to, but without, the second.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    first: u32,
    end: u32,
}

impl IdRange {
    /// Ends of ranges to try, highest first: no special tokens of common vocabularies lie in any.
    pub const ENDS: [u32; 8] = [30_000, 16_000, 8_000, 4_000, 2_000, 1_000, 500, 250];

    /// The range that ends before `end`. The lowest eighth is left out: vocabularies begin with special
    /// tokens and single bytes.
    pub fn below(end: u32) -> Self {
        Self { first: end / 8, end }
    }

    /// The highest id.
    pub fn last(self) -> u32 {
        self.end - 1
    }

    /// The first `n` ids of a seed.
    pub fn ids(self, seed: u64, n: u64) -> impl Iterator<Item = u32> {
        let width = u64::from(self.end - self.first);
        // Width is below 2^32, so the quotient is an id.
        (0..n).map(move |index| self.first + (mixed(seed, index) % width) as u32)
    }
}

/// A run of token ids: the first `tokens` of a seed's sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Piece {
    /// The seed.
    pub seed: u64,
    /// Its length.
    pub tokens: u32,
}

/// The seed of a name.
pub fn seed_of(name: &str) -> u64 {
    (ContentHash::of(name.as_bytes()).0 >> 64) as u64
}

/// `SplitMix64` at a place of its sequence.
pub(super) fn mixed(seed: u64, index: u64) -> u64 {
    const STEP: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut state = seed.wrapping_add(STEP.wrapping_mul(index.wrapping_add(1)));
    state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_splitmix64() {
        // The published first outputs for seed 1234567.
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
            4_593_380_528_125_082_431,
            16_408_922_859_458_223_821,
        ];
        let found: Vec<u64> = (0..5).map(|index| mixed(1_234_567, index)).collect();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_seed_gives_exactly_as_many_ids_and_begins_alike_at_any_length() {
        let range = IdRange::below(4000);
        for n in [0, 1, 15, 16, 1000] {
            let ids: Vec<u32> = range.ids(seed_of("a"), n).collect();
            assert_eq!(ids.len() as u64, n);
            assert!(ids.iter().all(|id| (500..4000).contains(id)));
            let longer: Vec<u32> = range.ids(seed_of("a"), n + 7).collect();
            assert_eq!(ids, longer[..n as usize]);
        }
        let other: Vec<u32> = range.ids(seed_of("b"), 16).collect();
        assert_ne!(other, range.ids(seed_of("a"), 16).collect::<Vec<_>>());
        assert_eq!(range.last(), 3999);
    }
}
