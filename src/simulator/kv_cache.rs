//! The block prefix cache: which tokens of a prompt need no computing, and which blocks make room.
//!
//! Pure: no clock, no I/O. Blocks hold 16 tokens. A full block is known by a hash chained over all
//! that went before it, so equal hashes mean equal prefixes. Blocks that nobody uses stay cached until
//! their room is needed, the longest unused first. Who gets blocks when is the scheduler's affair.

use std::collections::HashMap;

/// Tokens in a block.
pub const BLOCK_TOKENS: usize = 16;

/// Index of a block.
pub type BlockId = u32;

/// Blocks needed for a number of tokens.
pub fn blocks_for(tokens: usize) -> usize {
    tokens.div_ceil(BLOCK_TOKENS)
}

/// A growing sequence of tokens, kept as the chained hashes of its full blocks and the tokens after
/// the last of them. Two sequences share a hash exactly where they share salt and whole prefix.
#[derive(Debug, Clone)]
pub struct TokenChain {
    parent: u64,
    hashes: Vec<u64>,
    tail: Vec<u32>,
}

impl TokenChain {
    /// A sequence of `tokens`; another `salt` shares no block.
    pub fn new(salt: Option<&str>, tokens: &[u32]) -> Self {
        let parent = salt.map_or(0, |salt| {
            salt.bytes().fold(SALT_SEED, |hash, byte| fold(hash, u64::from(byte)))
        });
        let mut chain = Self {
            parent,
            hashes: Vec::with_capacity(tokens.len() / BLOCK_TOKENS),
            tail: Vec::with_capacity(BLOCK_TOKENS),
        };
        for token in tokens {
            chain.push(*token);
        }
        chain
    }

    /// Appends a token.
    pub fn push(&mut self, token: u32) {
        self.tail.push(token);
        if self.tail.len() == BLOCK_TOKENS {
            self.parent = self
                .tail
                .iter()
                .fold(fold(self.parent, BLOCK_SEED), |hash, token| fold(hash, u64::from(*token)));
            self.hashes.push(self.parent);
            self.tail.clear();
        }
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.hashes.len() * BLOCK_TOKENS + self.tail.len()
    }

    /// Whether there is no token.
    pub fn is_empty(&self) -> bool {
        self.hashes.is_empty() && self.tail.is_empty()
    }

    /// The chained hash of every full block.
    pub fn hashes(&self) -> &[u64] {
        &self.hashes
    }

    /// A hash of the whole sequence.
    pub fn digest(&self) -> u64 {
        self.tail.iter().fold(self.parent, |hash, token| fold(hash, u64::from(*token)))
    }
}

const SALT_SEED: u64 = 0x9e37_79b9_7f4a_7c15;
const BLOCK_SEED: u64 = 0xd6e8_feb8_6659_fd93;

/// One step of the hash: the 128-bit product folded to 64 bits. Fixed here, so that a run under a seed
/// is the same on every platform and with every compiler.
pub(crate) fn fold(hash: u64, value: u64) -> u64 {
    let product =
        u128::from(hash ^ value.wrapping_mul(0xa076_1d64_78bd_642f) ^ 0xe703_7ed1_a0b4_28db)
            * u128::from(value.wrapping_add(0x8ebc_6af0_9c88_c6e3));
    ((product >> 64) as u64) ^ (product as u64) ^ hash.rotate_left(23)
}

const NONE: BlockId = BlockId::MAX;

#[derive(Debug, Clone, Copy)]
struct Block {
    hash: Option<u64>,
    users: u32,
    // Neighbours in the list of unused blocks.
    before: BlockId,
    after: BlockId,
}

/// The blocks of one engine.
#[derive(Debug)]
pub struct KvCache {
    blocks: Vec<Block>,
    by_hash: HashMap<u64, BlockId>,
    // Unused blocks, first to be taken at the head.
    head: BlockId,
    tail: BlockId,
    unused: usize,
}

impl KvCache {
    /// A cache of `count` blocks, all empty.
    pub fn new(count: u32) -> Self {
        let block = Block { hash: None, users: 0, before: NONE, after: NONE };
        let mut cache = Self {
            blocks: vec![block; count as usize],
            by_hash: HashMap::new(),
            head: NONE,
            tail: NONE,
            unused: 0,
        };
        for id in 0..count {
            cache.append(id);
        }
        cache
    }

    /// All blocks.
    pub fn total(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that nobody uses; cached ones among them.
    pub fn unused(&self) -> usize {
        self.unused
    }

    /// Used blocks as a share of all, 0 to 1.
    pub fn usage(&self) -> f64 {
        (self.total() - self.unused) as f64 / self.total() as f64
    }

    /// The longest run of leading blocks that are cached, at most `max_blocks`.
    pub fn lookup(&self, hashes: &[u64], max_blocks: usize) -> Vec<BlockId> {
        hashes.iter().take(max_blocks).map_while(|hash| self.by_hash.get(hash).copied()).collect()
    }

    /// How many of these blocks stand among the unused ones: room that taking them uses up.
    pub fn unused_among(&self, blocks: &[BlockId]) -> usize {
        blocks.iter().filter(|id| self.blocks[**id as usize].users == 0).count()
    }

    /// Takes cached blocks into use by one more sequence.
    pub fn share(&mut self, blocks: &[BlockId]) {
        for id in blocks {
            if self.blocks[*id as usize].users == 0 {
                self.unlink(*id);
            }
            self.blocks[*id as usize].users += 1;
        }
    }

    /// Takes `count` blocks for new tokens; what was cached in them longest ago is forgotten. None,
    /// and nothing taken, when there are too few.
    pub fn allocate(&mut self, count: usize) -> Option<Vec<BlockId>> {
        if count > self.unused {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        for _ in 0..count {
            let id = self.head;
            self.unlink(id);
            let block = &mut self.blocks[id as usize];
            block.users = 1;
            if let Some(hash) = block.hash.take() {
                self.by_hash.remove(&hash);
            }
            taken.push(id);
        }
        Some(taken)
    }

    /// Makes a full block findable. A prefix that is cached already stays where it is.
    pub fn remember(&mut self, id: BlockId, hash: u64) {
        let block = &mut self.blocks[id as usize];
        if block.hash.is_none() && !self.by_hash.contains_key(&hash) {
            block.hash = Some(hash);
            self.by_hash.insert(hash, id);
        }
    }

    /// Gives up a sequence's blocks, in their order. Of what stays cached, the end of a prefix goes
    /// before its beginning; blocks with nothing to remember are taken first of all.
    pub fn release(&mut self, blocks: &[BlockId]) {
        for id in blocks.iter().rev() {
            let block = &mut self.blocks[*id as usize];
            block.users -= 1;
            if block.users == 0 {
                if block.hash.is_some() {
                    self.append(*id);
                } else {
                    self.prepend(*id);
                }
            }
        }
    }

    /// Forgets all that is cached. Refused while any block is in use.
    pub fn reset(&mut self) -> bool {
        if self.unused != self.total() {
            return false;
        }
        for block in &mut self.blocks {
            block.hash = None;
        }
        self.by_hash.clear();
        true
    }

    fn append(&mut self, id: BlockId) {
        let tail = self.tail;
        let block = &mut self.blocks[id as usize];
        block.before = tail;
        block.after = NONE;
        match tail {
            NONE => self.head = id,
            _ => self.blocks[tail as usize].after = id,
        }
        self.tail = id;
        self.unused += 1;
    }

    fn prepend(&mut self, id: BlockId) {
        let head = self.head;
        let block = &mut self.blocks[id as usize];
        block.before = NONE;
        block.after = head;
        match head {
            NONE => self.tail = id,
            _ => self.blocks[head as usize].before = id,
        }
        self.head = id;
        self.unused += 1;
    }

    fn unlink(&mut self, id: BlockId) {
        let Block { before, after, .. } = self.blocks[id as usize];
        match before {
            NONE => self.head = after,
            _ => self.blocks[before as usize].after = after,
        }
        match after {
            NONE => self.tail = before,
            _ => self.blocks[after as usize].before = before,
        }
        self.unused -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(from: u32, count: u32) -> Vec<u32> {
        (from..from + count).collect()
    }

    /// Runs a sequence through the cache as a request would: look up, share, allocate, remember.
    fn fill(cache: &mut KvCache, chain: &TokenChain) -> (usize, Vec<BlockId>) {
        let mut blocks = cache.lookup(chain.hashes(), (chain.len() - 1) / BLOCK_TOKENS);
        let hits = blocks.len();
        cache.share(&blocks);
        blocks.extend(cache.allocate(blocks_for(chain.len()) - hits).unwrap());
        for (id, hash) in blocks.iter().zip(chain.hashes()) {
            cache.remember(*id, *hash);
        }
        (hits, blocks)
    }

    #[test]
    fn hits_follow_the_shared_prefix() {
        let check = |first: Vec<u32>, second: Vec<u32>, salts: [Option<&str>; 2], hits: usize| {
            let mut cache = KvCache::new(32);
            let (none, blocks) = fill(&mut cache, &TokenChain::new(salts[0], &first));
            assert_eq!(none, 0);
            cache.release(&blocks);
            let (got, _) = fill(&mut cache, &TokenChain::new(salts[1], &second));
            assert_eq!(got, hits, "{} then {} tokens", first.len(), second.len());
        };
        // A full block short of the end is never served whole: one token must be computed.
        check(numbers(0, 16), numbers(0, 16), [None, None], 0);
        check(numbers(0, 17), numbers(0, 17), [None, None], 1);
        check(numbers(0, 64), numbers(0, 64), [None, None], 3);
        check(numbers(0, 40), numbers(0, 100), [None, None], 2);
        check(numbers(0, 48), numbers(0, 100), [None, None], 3);
        // A difference in the first token changes every later block.
        check(numbers(0, 64), [&[9], &numbers(1, 63)[..]].concat(), [None, None], 0);
        // A difference in the third block leaves two.
        check(numbers(0, 64), [&numbers(0, 32)[..], &numbers(7, 32)[..]].concat(), [None, None], 2);
        check(numbers(0, 64), numbers(0, 64), [Some("a"), Some("a")], 3);
        check(numbers(0, 64), numbers(0, 64), [Some("a"), Some("b")], 0);
        check(numbers(0, 64), numbers(0, 64), [None, Some("b")], 0);
    }

    #[test]
    fn a_chain_grows_to_what_it_would_have_been() {
        let whole = TokenChain::new(None, &numbers(0, 50));
        let mut grown = TokenChain::new(None, &numbers(0, 21));
        assert_eq!((grown.len(), grown.hashes().len()), (21, 1));
        for token in 21..50 {
            grown.push(token);
        }
        assert_eq!(grown.hashes(), whole.hashes());
        assert_eq!(grown.len(), 50);
        assert_eq!(grown.digest(), whole.digest());
        assert!(TokenChain::new(None, &[]).is_empty());
        // Equal tokens at another place have another hash.
        let twice = TokenChain::new(None, &[numbers(0, 16), numbers(0, 16)].concat());
        assert_ne!(twice.hashes()[0], twice.hashes()[1]);
    }

    #[test]
    fn the_longest_unused_goes_first_and_ends_go_before_beginnings() {
        let mut cache = KvCache::new(6);
        let older = TokenChain::new(None, &numbers(0, 48));
        let newer = TokenChain::new(None, &numbers(1_000, 48));
        let (_, first) = fill(&mut cache, &older);
        let (_, second) = fill(&mut cache, &newer);
        assert_eq!(cache.unused(), 0);
        assert!(cache.allocate(1).is_none());
        cache.release(&first);
        cache.release(&second);
        assert_eq!(cache.unused(), 6);
        // One block is needed: the end of the older sequence makes room.
        assert_eq!(cache.allocate(1).unwrap(), [first[2]]);
        assert_eq!(cache.lookup(older.hashes(), 3).len(), 2);
        assert_eq!(cache.lookup(newer.hashes(), 3).len(), 3);
        // Use renews: the older one's beginning is touched, so the newer one's end goes next.
        let again = cache.lookup(older.hashes(), 3);
        cache.share(&again);
        cache.release(&again);
        assert_eq!(cache.allocate(1).unwrap(), [second[2]]);
        assert_eq!(cache.lookup(older.hashes(), 3).len(), 2);
        assert_eq!(cache.lookup(newer.hashes(), 3).len(), 2);
    }

    #[test]
    fn shared_blocks_stay_until_their_last_user_leaves() {
        let mut cache = KvCache::new(4);
        let chain = TokenChain::new(None, &numbers(0, 40));
        let (_, first) = fill(&mut cache, &chain);
        let (hits, second) = fill(&mut cache, &chain);
        assert_eq!((hits, cache.unused()), (2, 0));
        assert!((cache.usage() - 1.0).abs() < f64::EPSILON);
        cache.release(&first);
        // Only the first one's own unfinished block is free, and it is taken before cached ones.
        assert_eq!(cache.unused(), 1);
        assert!(!cache.reset());
        cache.release(&second);
        assert_eq!(cache.unused(), 4);
        assert_eq!(cache.unused_among(&second[..2]), 2);
        assert_eq!(cache.allocate(2).unwrap().len(), 2);
        assert_eq!(cache.lookup(chain.hashes(), 2).len(), 2);
    }

    #[test]
    fn a_reset_forgets() {
        let mut cache = KvCache::new(4);
        let chain = TokenChain::new(None, &numbers(0, 40));
        let (_, blocks) = fill(&mut cache, &chain);
        cache.release(&blocks);
        assert!(cache.reset());
        assert!(cache.lookup(chain.hashes(), 2).is_empty());
        assert_eq!(cache.unused(), 4);
    }
}
