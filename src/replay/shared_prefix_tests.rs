use super::*;
use crate::replay::tokens::seed_of;

/// Units are letters: capitals are system text and tools, 100 bytes each.
fn prefixes(sharing: CacheSharing, prompts: &[(&str, usize)]) -> (PrefixTree, Vec<SharedPrefix>) {
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
            let leaf = (prefix.leaf, prefix.n_bytes);
            sent.send(&tree, Group::Pass(*group), leaf, units.len() as u64 * 10)
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
        let shared_by =
            |prefix: SharedPrefix| sent.send(&tree, Group::All, (prefix.leaf, prefix.n_bytes), 30);
        assert_eq!(prefixes.map(shared_by), [0, shared]);
    }
}

#[test]
fn a_group_is_forgotten() {
    let (tree, prefixes) = prefixes(CacheSharing::Trajectory, &[("STa", 0)]);
    let sent = SentPrefixes::default();
    let group = Group::Trajectory(5);
    let again = || sent.send(&tree, group, (prefixes[0].leaf, prefixes[0].n_bytes), 30);
    assert_eq!((again(), again()), (0, 20));
    sent.forget(group);
    assert_eq!(again(), 0);
    // A tree of no prompts shares nothing.
    assert_eq!(sent.send(&PrefixTree::default(), group, (ROOT, 0), 30), 0);
}

/// Pieces are `seed*tokens`; the head is what stands before `|`.
#[track_caller]
fn check_pieces(sharing: CacheSharing, prompts: &[(u64, u64, &str)], expected: &[u64]) {
    let mut planner = PiecePlanner::new(sharing);
    let piece = |word: &str| {
        let (seed, tokens) = word.split_once('*').unwrap();
        Piece { seed: seed_of(seed), tokens: tokens.parse().unwrap() }
    };
    let prefixes: Vec<SharedPrefix> = prompts
        .iter()
        .map(|(_, _, prompt)| {
            let (head, rest) = prompt.split_once('|').unwrap();
            let head: Vec<Piece> = head.split_whitespace().map(piece).collect();
            let pieces = [head.clone(), rest.split_whitespace().map(piece).collect()].concat();
            planner.add(&pieces, head.len())
        })
        .collect();
    let (tree, sharing) = (planner.finish(), Sharing::new(Salts::new(sharing, "s", None, 2)));
    let shared: Vec<u64> = prompts
        .iter()
        .zip(prefixes)
        .map(|((trajectory, own, _), prefix)| {
            let found = sharing.found(&tree, *trajectory, prefix, prefix.n_bytes);
            found.map_or(0, |found| found.max(*own))
        })
        .collect();
    assert_eq!(shared, expected);
}

#[test]
fn pieces_are_shared_as_the_salts_let_them() {
    // Passes of two trajectories.
    let prompts = [
        (0, 0, "x*16 y*16|p*9"),
        // The thread goes on: its own figure is the longer one.
        (0, 41, "x*16 y*16|p*16 q*16"),
        (1, 0, "x*16 y*16|p*9"),
        // Another thread of that trajectory, which begins like the first.
        (1, 0, "x*16 y*16|p*9 r*3"),
        // A piece that was cut is shared as far as it goes, in either order.
        (1, 0, "x*5|"),
        (1, 0, "x*16 z*16|"),
        // The next pass.
        (2, 0, "x*16 y*16|p*9"),
    ];
    check_pieces(CacheSharing::System, &prompts, &[0, 41, 32, 41, 5, 16, 0]);
    check_pieces(CacheSharing::Trajectory, &prompts, &[0, 41, 0, 41, 5, 16, 0]);
    check_pieces(CacheSharing::Recorded, &prompts, &[0, 41, 41, 41, 5, 16, 41]);
    check_pieces(CacheSharing::None, &prompts, &[0; 7]);
}
