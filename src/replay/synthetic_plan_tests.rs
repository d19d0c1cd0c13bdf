use super::*;
use crate::api::Api;
use crate::replay::plan::ThreadPlan;
use crate::replay::shared_prefix::SharedPrefix;
use crate::replay::waits::WaitFor;
use crate::trace::record::TurnKind;

/// Bytes of a unit: the number in its name.
fn bytes(unit: &str) -> u64 {
    unit.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap_or(0)
}

/// Sessions of one thread each; a turn is `isl [cached=N] [block=N] [unit…]`, `-` an unknown count.
fn plan(sessions: &[(&str, &[&str])]) -> Plan {
    let mut plan = Plan::default();
    for (name, turns) in sessions {
        let requests: Vec<PlannedRequest> =
            turns.iter().enumerate().map(|(turn, line)| request(&mut plan, turn, line)).collect();
        plan.sessions.push(SessionPlan {
            session_id: (*name).to_owned(),
            start_ms: 0.0,
            threads: vec![ThreadPlan {
                thread_id: "t".into(),
                parent_thread_id: None,
                requests: 0..requests.len(),
            }],
            requests,
        });
    }
    plan
}

fn request(plan: &mut Plan, turn: usize, line: &str) -> PlannedRequest {
    let mut words = line.split_whitespace();
    let mut request = PlannedRequest {
        turn: turn as u32,
        request_id: format!("r{turn}"),
        api: Api::Completions,
        kind: TurnKind::Main,
        body_template: String::new(),
        units: Vec::new(),
        after: Vec::new(),
        wait_ms: 0.0,
        waits_for: WaitFor::Nothing,
        target_output_tokens: None,
        planned_prompt_tokens: words.next().unwrap().parse().ok(),
        planned_cached_tokens: None,
        shared_prefix: SharedPrefix::default(),
        recorded_cached_tokens: None,
        block_size: None,
    };
    for word in words {
        match word.split_once('=') {
            Some(("cached", n)) => request.recorded_cached_tokens = n.parse().ok(),
            Some(("block", n)) => request.block_size = n.parse().ok(),
            _ => {
                let known = plan.unit_hashes.iter().position(|hash| hash == word);
                let unit = known.unwrap_or_else(|| {
                    plan.unit_hashes.push(word.to_owned());
                    plan.unit_hashes.len() - 1
                });
                request.units.push(unit as u32);
            }
        }
    }
    request
}

/// The pieces' lengths of each prompt, and planned cached tokens.
#[track_caller]
fn check(sessions: &[(&str, &[&str])], expected: &[(&[u32], u64)]) -> SyntheticPrompts {
    let mut plan = plan(sessions);
    let prompts = SyntheticPrompts::of(&mut plan, CacheSharing::Recorded, &bytes);
    let mut found: Vec<(Vec<u32>, u64)> = Vec::new();
    for (at, session) in plan.sessions.iter().enumerate() {
        for (request, planned) in session.requests.iter().enumerate() {
            let pieces: Vec<u32> = prompts.prompt(at, request).map(|piece| piece.tokens).collect();
            let sum: u64 = pieces.iter().map(|tokens| u64::from(*tokens)).sum();
            assert_eq!(planned.planned_prompt_tokens, Some(sum));
            found.push((pieces, planned.planned_cached_tokens.unwrap()));
        }
    }
    let expected: Vec<(Vec<u32>, u64)> =
        expected.iter().map(|(pieces, cached)| (pieces.to_vec(), *cached)).collect();
    assert_eq!(found, expected);
    prompts
}

fn seeds(prompts: &SyntheticPrompts, session: usize, request: usize) -> Vec<u64> {
    prompts.prompt(session, request).map(|piece| piece.seed).collect()
}

#[test]
fn counts_alone_make_a_growing_thread() {
    let prompts = check(
        &[("a", &["100 cached=0", "150", "151 cached=64"]), ("b", &["100"])],
        &[(&[100], 0), (&[100, 50], 100), (&[100, 50, 1], 150), (&[100], 0)],
    );
    assert_eq!(seeds(&prompts, 0, 2)[..2], seeds(&prompts, 0, 1));
    assert_ne!(seeds(&prompts, 0, 0), seeds(&prompts, 1, 0));
}

#[test]
fn cached_tokens_of_a_first_turn_are_common_to_all_threads() {
    let prompts = check(
        &[("a", &["100 cached=64", "120"]), ("b", &["90 cached=64"]), ("c", &["32 cached=32"])],
        &[(&[64, 36], 0), (&[64, 36, 20], 100), (&[64, 26], 0), (&[32], 0)],
    );
    assert_eq!(seeds(&prompts, 0, 0)[0], seeds(&prompts, 1, 0)[0]);
    assert_eq!(seeds(&prompts, 0, 0)[0], seeds(&prompts, 2, 0)[0]);
    assert_ne!(seeds(&prompts, 0, 0)[1], seeds(&prompts, 1, 0)[1]);
    let shared: Vec<bool> =
        seeds(&prompts, 0, 0).into_iter().map(|seed| prompts.is_shared(seed)).collect();
    assert_eq!(shared, [true, false]);
}

#[test]
fn a_prompt_that_got_shorter_keeps_what_was_cached() {
    check(
        &[("a", &["100", "150", "90 cached=30", "95", "40"])],
        &[(&[100], 0), (&[100, 50], 100), (&[30, 60], 30), (&[30, 60, 5], 90), (&[40], 0)],
    );
}

#[test]
fn equal_blocks_are_equal_pieces_in_every_session() {
    let prompts = check(
        &[("a", &["40 block=16 x y z", "60 block=16 x y z w"]), ("b", &["- block=16 x y"])],
        &[(&[16, 16, 8], 0), (&[16, 16, 16, 12], 40), (&[16, 16], 0)],
    );
    assert_eq!(seeds(&prompts, 0, 0)[..2], seeds(&prompts, 1, 0));
    // More tokens than the blocks hold: the rest is the request's own.
    let prompts = check(
        &[("a", &["40 block=16 x"]), ("b", &["40 block=16 x"])],
        &[(&[16, 24], 0), (&[16, 24], 0)],
    );
    assert_ne!(seeds(&prompts, 0, 0)[1], seeds(&prompts, 1, 0)[1]);
}

#[test]
fn units_share_out_the_tokens_that_a_turn_brings() {
    let prompts = check(
        &[
            ("a", &["100 s300 u100", "160 s300 u100 a20 v100"]),
            // The same system prompt; the recording counts a token less for its other unit.
            ("b", &["84 s300 w10"]),
        ],
        &[(&[75, 25], 0), (&[75, 25, 10, 50], 100), (&[75, 9], 0)],
    );
    assert_eq!(seeds(&prompts, 0, 0)[0], seeds(&prompts, 1, 0)[0]);
    // A unit that stands twice in a prompt.
    check(&[("a", &["100 d10 u80 d10"])], &[(&[10, 80, 10], 0)]);
    // Known units that come to more than the turn has are cut; to less, filled.
    check(
        &[("a", &["100 s300 u100"]), ("b", &["90 s300 u100"]), ("c", &["103 s300 u100"])],
        &[(&[75, 25], 0), (&[75, 15], 0), (&[75, 25, 3], 0)],
    );
    // No count: four bytes a token.
    check(&[("a", &["- s300 u100"])], &[(&[75, 25], 0)]);
}
