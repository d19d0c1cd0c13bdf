//! What a request finds in the engine's cache by plan, beyond its own thread's earlier turns: leading
//! units that other threads, sessions or passes have sent before, as far as cache sharing lets them.
//!
//! Pure. The plan's prompts are laid into a tree of units (of pieces, where they are our own), each as deep as others may share it: system
//! text and tools alone where a salt follows them, whole prompts where none does. While requests are
//! sent, the tree's places are marked, for each group of trajectories that share; the deepest marked
//! place on a request's way is what it shares. The cache is taken to be as large as that needs.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use super::plan::{PlannedRequest, UnitFacts};
use super::salts::{CacheSharing, Salts};
use super::tokens::Piece;

/// The place of the empty prefix.
const ROOT: u32 = 0;

/// A place in the tree: a run of leading units.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Node {
    parent: u32,
    /// Bytes of the units from the root.
    n_bytes: u64,
}

/// How far a request's prompt can be shared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct SharedPrefix {
    /// The deepest place that others may share.
    leaf: u32,
    /// The deepest place that its own trajectory may share, where that is known to be deeper.
    own_leaf: u32,
    /// Bytes of all units of the prompt.
    n_bytes: u64,
}

/// The tree of a plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PrefixTree {
    nodes: Vec<Node>,
    /// For each place of a tree of pieces: which sequence it goes on with, and how long.
    stems: Vec<(u32, u64)>,
}

/// Lays prompts into a tree, thread by thread.
#[derive(Debug)]
pub(super) struct PrefixPlanner<'a> {
    sharing: CacheSharing,
    facts: &'a [UnitFacts],
    nodes: Vec<Node>,
    children: HashMap<(u32, u32), u32>,
    /// The last prompt's places, one for each unit as deep as it can be shared, and its units' bytes.
    path: Vec<u32>,
    n_bytes: Vec<u64>,
}

impl<'a> PrefixPlanner<'a> {
    pub(super) fn new(sharing: CacheSharing, facts: &'a [UnitFacts]) -> Self {
        let nodes = vec![Node { parent: ROOT, n_bytes: 0 }];
        let (path, n_bytes, children) = (Vec::new(), Vec::new(), HashMap::new());
        Self { sharing, facts, nodes, children, path, n_bytes }
    }

    /// Lays the next prompt, which shares `n_known` leading units with the one laid before it: only
    /// the others cost time. One without a head has no system text that is told from the rest.
    pub(super) fn add(&mut self, units: &[u32], n_known: usize, has_head: bool) -> SharedPrefix {
        let n_known = n_known.min(self.n_bytes.len()).min(units.len());
        self.n_bytes.truncate(n_known);
        let mut n_bytes = self.n_bytes.last().copied().unwrap_or_default();
        for unit in &units[n_known..] {
            n_bytes += self.facts[*unit as usize].n_bytes;
            self.n_bytes.push(n_bytes);
        }
        self.path.truncate(n_known);
        let whole = self.sharing == CacheSharing::Recorded;
        let mut leaf = self.path.last().copied().unwrap_or(ROOT);
        // A prompt whose known units go beyond its path has its whole head there already.
        if self.path.len() == n_known {
            // A prompt ends with what somebody says, be it told from system text or not.
            let n_shareable = if whole { units.len() } else { units.len().saturating_sub(1) };
            for (index, unit) in units.iter().enumerate().take(n_shareable).skip(n_known) {
                if !(whole || has_head && self.facts[*unit as usize].is_head) {
                    break;
                }
                leaf = self.child(leaf, *unit, self.n_bytes[index]);
                self.path.push(leaf);
            }
        }
        SharedPrefix { leaf, own_leaf: ROOT, n_bytes }
    }

    fn child(&mut self, parent: u32, unit: u32, n_bytes: u64) -> u32 {
        *self.children.entry((parent, unit)).or_insert_with(|| {
            self.nodes.push(Node { parent, n_bytes });
            self.nodes.len() as u32 - 1
        })
    }

    pub(super) fn finish(self) -> PrefixTree {
        PrefixTree { nodes: self.nodes, stems: Vec::new() }
    }
}

/// Lays prompts of our own into a tree, thread by thread; its bytes are tokens. Pieces of one seed begin
/// alike, so a piece that was cut is shared as far as it goes.
#[derive(Debug)]
pub(super) struct PiecePlanner {
    sharing: CacheSharing,
    tree: PrefixTree,
    children: HashMap<(u32, Piece), u32>,
    /// Sequences by the place that they follow and their seed.
    sequences: HashMap<(u32, u64), u32>,
    /// The last prompt's pieces and places.
    path: Vec<(Piece, u32)>,
}

impl PiecePlanner {
    pub(super) fn new(sharing: CacheSharing) -> Self {
        let root = Node { parent: ROOT, n_bytes: 0 };
        Self {
            sharing,
            tree: PrefixTree { nodes: vec![root], stems: vec![(ROOT, 0)] },
            children: HashMap::new(),
            sequences: HashMap::new(),
            path: Vec::new(),
        }
    }

    /// Lays the next prompt, of whose pieces the first `n_head` are what sessions may share.
    pub(super) fn add(&mut self, pieces: &[Piece], n_head: usize) -> SharedPrefix {
        let known = self.path.iter().zip(pieces).take_while(|((known, _), piece)| known == *piece);
        let n_known = known.count();
        self.path.truncate(n_known);
        for piece in &pieces[n_known..] {
            let place = self.child(self.at(self.path.len()), *piece);
            self.path.push((*piece, place));
        }
        let (head, whole) = (self.at(n_head), self.at(self.path.len()));
        let n_bytes = self.tree.nodes[whole as usize].n_bytes;
        match self.sharing {
            CacheSharing::System => SharedPrefix { leaf: head, own_leaf: whole, n_bytes },
            CacheSharing::Trajectory | CacheSharing::None | CacheSharing::Recorded => {
                SharedPrefix { leaf: whole, own_leaf: ROOT, n_bytes }
            }
        }
    }

    /// The place behind so many pieces of the last prompt.
    fn at(&self, n_pieces: usize) -> u32 {
        n_pieces.checked_sub(1).map_or(ROOT, |last| self.path[last].1)
    }

    fn child(&mut self, parent: u32, piece: Piece) -> u32 {
        let Self { tree, children, sequences, .. } = self;
        *children.entry((parent, piece)).or_insert_with(|| {
            let tokens = u64::from(piece.tokens);
            let n_sequences = sequences.len() as u32;
            let sequence = *sequences.entry((parent, piece.seed)).or_insert(n_sequences);
            let n_bytes = tree.nodes[parent as usize].n_bytes + tokens;
            tree.nodes.push(Node { parent, n_bytes });
            tree.stems.push((sequence, tokens));
            tree.nodes.len() as u32 - 1
        })
    }

    pub(super) fn finish(self) -> PrefixTree {
        self.tree
    }
}

/// Trajectories that share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Group {
    /// All of them.
    All,
    /// Those of one pass.
    Pass(u64),
    /// One alone.
    Trajectory(u64),
}

/// What a group has sent.
#[derive(Debug, Default)]
struct Sent {
    places: HashSet<u32>,
    /// The most of each sequence.
    sequences: HashMap<u32, u64>,
}

/// What has been sent so far, for each group of trajectories that share.
#[derive(Debug, Default)]
pub(super) struct SentPrefixes {
    sent: Mutex<HashMap<Group, Sent>>,
}

impl SentPrefixes {
    /// Marks a prompt as sent in a group, up to the place `leaf`; the recorded tokens of what had been
    /// sent there before, by its share of the prompt's bytes.
    pub(super) fn send(
        &self,
        tree: &PrefixTree,
        group: Group,
        (leaf, n_bytes): (u32, u64),
        prompt_tokens: u64,
    ) -> u64 {
        if leaf == ROOT || n_bytes == 0 {
            return 0;
        }
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = sent.entry(group).or_default();
        let (mut at, mut begun) = (leaf, 0);
        while at != ROOT && sent.places.insert(at) {
            // The last one looked at is the first that was not sent whole.
            if let Some((sequence, tokens)) = tree.stems.get(at as usize) {
                let longest = sent.sequences.entry(*sequence).or_default();
                begun = (*longest).min(*tokens);
                *longest = (*longest).max(*tokens);
            }
            at = tree.nodes[at as usize].parent;
        }
        let shared = tree.nodes.get(at as usize).map_or(0, |node| node.n_bytes);
        // Where even the leaf was sent, nothing is begun.
        (prompt_tokens as f64 * (shared + begun) as f64 / n_bytes as f64).round() as u64
    }

    /// Forgets a group that sends no more.
    pub(super) fn forget(&self, group: Group) {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner).remove(&group);
    }
}

/// What the trajectories of a run, or of one level of a search, share in the engine's cache.
#[derive(Debug)]
pub(super) struct Sharing {
    /// What keeps them from sharing more.
    pub(super) salts: Salts,
    sent: SentPrefixes,
}

impl Sharing {
    pub(super) fn new(salts: Salts) -> Self {
        Self { salts, sent: SentPrefixes::default() }
    }

    /// Recorded tokens that a request finds in the cache, by plan, now that it is sent: what its own
    /// thread had sent, or what others had, whichever is longer. None where its own is unknown.
    pub(super) fn planned_cached_tokens(
        &self,
        tree: &PrefixTree,
        trajectory: u64,
        request: &PlannedRequest,
    ) -> Option<u64> {
        let prompt_tokens = request.planned_prompt_tokens.unwrap_or_default();
        match self.found(tree, trajectory, request.shared_prefix, prompt_tokens) {
            None => Some(0),
            Some(found) => request.planned_cached_tokens.map(|own| own.max(found)),
        }
    }

    /// Tokens of a prompt that a trajectory's group has sent before; none where nothing is shared.
    fn found(
        &self,
        tree: &PrefixTree,
        trajectory: u64,
        prefix: SharedPrefix,
        prompt_tokens: u64,
    ) -> Option<u64> {
        let own = Group::Trajectory(trajectory);
        let group = match self.salts.sharing() {
            CacheSharing::None => return None,
            CacheSharing::System => Group::Pass(self.salts.pass(trajectory)),
            CacheSharing::Trajectory => own,
            CacheSharing::Recorded => Group::All,
        };
        let SharedPrefix { leaf, own_leaf, n_bytes } = prefix;
        let of_others = self.sent.send(tree, group, (leaf, n_bytes), prompt_tokens);
        let of_own = self.sent.send(tree, own, (own_leaf, n_bytes), prompt_tokens);
        Some(of_others.max(of_own))
    }

    /// A trajectory sends no more.
    pub(super) fn trajectory_ended(&self, trajectory: u64) {
        if matches!(self.salts.sharing(), CacheSharing::Trajectory | CacheSharing::System) {
            self.sent.forget(Group::Trajectory(trajectory));
        }
    }
}

#[cfg(test)]
#[path = "shared_prefix_tests.rs"]
mod tests;
