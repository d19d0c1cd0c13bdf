//! What a request finds in the engine's cache by plan, beyond its own thread's earlier turns: leading
//! units that other threads, sessions or passes have sent before, as far as cache sharing lets them.
//!
//! Pure. The plan's prompts are laid into a tree of units, each as deep as others may share it: system
//! text and tools alone where a salt follows them, whole prompts where none does. While requests are
//! sent, the tree's places are marked, for each group of trajectories that share; the deepest marked
//! place on a request's way is what it shares. The cache is taken to be as large as that needs.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use super::plan::{PlannedRequest, UnitFacts};
use super::salts::{CacheSharing, Salts};

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
    /// Bytes of all units of the prompt.
    n_bytes: u64,
}

/// The tree of a plan.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PrefixTree {
    nodes: Vec<Node>,
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
        SharedPrefix { leaf, n_bytes }
    }

    fn child(&mut self, parent: u32, unit: u32, n_bytes: u64) -> u32 {
        *self.children.entry((parent, unit)).or_insert_with(|| {
            self.nodes.push(Node { parent, n_bytes });
            self.nodes.len() as u32 - 1
        })
    }

    pub(super) fn finish(self) -> PrefixTree {
        PrefixTree { nodes: self.nodes }
    }
}

/// What has been sent so far, for each group of trajectories that share.
#[derive(Debug, Default)]
pub(super) struct SentPrefixes {
    sent: Mutex<HashMap<u64, HashSet<u32>>>,
}

impl SentPrefixes {
    /// Marks a prompt as sent in a group; the recorded tokens of what had been sent there before, by
    /// its share of the prompt's bytes.
    pub(super) fn send(
        &self,
        tree: &PrefixTree,
        group: u64,
        prefix: SharedPrefix,
        prompt_tokens: u64,
    ) -> u64 {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = sent.entry(group).or_default();
        let mut at = prefix.leaf;
        while at != ROOT && sent.insert(at) {
            at = tree.nodes[at as usize].parent;
        }
        let shared = tree.nodes.get(at as usize).map_or(0, |node| node.n_bytes);
        if prefix.n_bytes == 0 {
            return 0;
        }
        (prompt_tokens as f64 * shared as f64 / prefix.n_bytes as f64).round() as u64
    }

    /// Forgets a group that sends no more.
    pub(super) fn forget(&self, group: u64) {
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
        let group = match self.salts.sharing() {
            CacheSharing::None => return Some(0),
            CacheSharing::System => self.salts.pass(trajectory),
            CacheSharing::Trajectory => trajectory,
            CacheSharing::Recorded => 0,
        };
        let prompt_tokens = request.planned_prompt_tokens.unwrap_or_default();
        let others = self.sent.send(tree, group, request.shared_prefix, prompt_tokens);
        request.planned_cached_tokens.map(|own| own.max(others))
    }

    /// A trajectory sends no more.
    pub(super) fn trajectory_ended(&self, trajectory: u64) {
        if self.salts.sharing() == CacheSharing::Trajectory {
            self.sent.forget(trajectory);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Units are letters: capitals are system text and tools, 100 bytes each.
    fn prefixes(
        sharing: CacheSharing,
        prompts: &[(&str, usize)],
    ) -> (PrefixTree, Vec<SharedPrefix>) {
        let facts: Vec<UnitFacts> = (0..128_u8)
            .map(|unit| UnitFacts {
                n_bytes: 100,
                is_head: unit.is_ascii_uppercase(),
                ..UnitFacts::default()
            })
            .collect();
        let mut planner = PrefixPlanner::new(sharing, &facts);
        let prefixes = prompts
            .iter()
            .map(|(units, n_known)| {
                let units: Vec<u32> = units.bytes().map(u32::from).collect();
                planner.add(&units, *n_known, true)
            })
            .collect();
        (planner.finish(), prefixes)
    }

    /// Prompts as `(group, units, units shared with the prompt before)`, 10 tokens a unit, and the
    /// tokens that each shares with what was sent before it.
    #[track_caller]
    fn check(sharing: CacheSharing, prompts: &[(u64, &str, usize)], expected: &[u64]) {
        let texts: Vec<(&str, usize)> = prompts.iter().map(|it| (it.1, it.2)).collect();
        let (tree, prefixes) = prefixes(sharing, &texts);
        let sent = SentPrefixes::default();
        let shared: Vec<u64> = prompts
            .iter()
            .zip(prefixes)
            .map(|((group, units, _), prefix)| {
                sent.send(&tree, *group, prefix, units.len() as u64 * 10)
            })
            .collect();
        assert_eq!(shared, expected);
    }

    #[test]
    fn heads_are_shared_in_a_group_and_no_further() {
        let prompts = [
            (0, "STUabc", 0),
            // The next turn of that thread, whose head is known.
            (0, "STUabcde", 6),
            // The same session once more, another one, another head, a subagent's head.
            (0, "STUabc", 0),
            (0, "STUxyz", 0),
            (0, "STVabc", 0),
            (0, "Tabc", 0),
            (0, "abc", 0),
            // Another group has sent nothing.
            (1, "STUabc", 0),
            (1, "STUabc", 6),
        ];
        for sharing in [CacheSharing::System, CacheSharing::Trajectory] {
            check(sharing, &prompts, &[0, 30, 30, 30, 20, 0, 0, 0, 30]);
        }
        // The last unit is none of the head, whatever it looks like.
        check(CacheSharing::System, &[(0, "ST", 0), (0, "ST", 0)], &[0, 10]);
        // A reset that keeps a part of the head.
        check(CacheSharing::System, &[(0, "STUab", 0), (0, "STVab", 2)], &[0, 20]);
        check(CacheSharing::System, &[(0, "ab", 0), (0, "abU", 2), (0, "U", 0)], &[0, 0, 0]);
    }

    #[test]
    fn without_salts_all_that_is_equal_is_shared() {
        let prompts = [
            (0, "STabc", 0),
            (0, "STabcde", 5),
            (0, "STabx", 4),
            (0, "STabcd", 4),
            (0, "STabcde", 0),
            (0, "", 0),
        ];
        check(CacheSharing::Recorded, &prompts, &[0, 50, 40, 60, 70, 0]);
    }

    #[test]
    fn a_raw_prompt_has_no_head() {
        let facts = [UnitFacts { n_bytes: 100, is_head: true, ..UnitFacts::default() }; 3];
        for (sharing, shared) in [(CacheSharing::System, 0), (CacheSharing::Recorded, 30)] {
            let mut planner = PrefixPlanner::new(sharing, &facts);
            let prefixes = [(); 2].map(|()| planner.add(&[0, 1, 2], 0, false));
            let (tree, sent) = (planner.finish(), SentPrefixes::default());
            assert_eq!(prefixes.map(|prefix| sent.send(&tree, 0, prefix, 30)), [0, shared]);
        }
    }

    #[test]
    fn a_group_is_forgotten() {
        let (tree, prefixes) = prefixes(CacheSharing::Trajectory, &[("STa", 0)]);
        let sent = SentPrefixes::default();
        let again = || sent.send(&tree, 5, prefixes[0], 30);
        assert_eq!((again(), again()), (0, 20));
        sent.forget(5);
        assert_eq!(again(), 0);
        // A tree of no prompts shares nothing.
        assert_eq!(sent.send(&PrefixTree::default(), 9, SharedPrefix::default(), 30), 0);
    }
}
