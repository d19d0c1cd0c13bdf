use super::*;
use crate::replay::waits::HumanTime;

const UNIT: UnitFacts = UnitFacts { n_bytes: 100, brings: Brings::Other, is_head: false };

fn as_recorded() -> Waits {
    Waits { human_time: HumanTime::Recorded, ..Waits::default() }
}

/// A turn from a line `thread turn start..end [parent=P] [wait=MS] [residual=MS] [shared=N] …`, times
/// in seconds.
fn turn(line: &str) -> TurnRow {
    let mut words = line.split_whitespace();
    let (thread, number) = (words.next().unwrap(), words.next().unwrap());
    let (start, end) = words.next().unwrap().split_once("..").unwrap();
    let mut row = TurnRow {
        session_id: "s".into(),
        thread_id: thread.into(),
        turn: number.parse().unwrap(),
        request_id: format!("{thread}{number}@{start}"),
        api: "messages".into(),
        body_template: "{}".into(),
        request_time: 1e9 + start.parse::<f64>().unwrap(),
        response_end_time: Some(1e9 + end.parse::<f64>().unwrap()),
        ..TurnRow::default()
    };
    for word in words {
        let (key, value) = word.split_once('=').unwrap_or((word, ""));
        match key {
            "parent" => {
                row.parent_thread_id = Some(value.into());
                row.kind = TurnKind::Subagent;
            }
            "session" => row.session_id = value.into(),
            "wait" => row.tool_exec_ms = value.parse().ok(),
            "residual" => row.residual_wait_ms = value.parse().ok(),
            "units" => row.unit_hashes = value.chars().map(String::from).collect(),
            "shared" => row.n_shared_units = value.parse().unwrap(),
            "isl" => row.isl = value.parse().ok(),
            "osl" => row.osl = value.parse().ok(),
            "failed" => row.outcome = Outcome::HttpError,
            "unseen" => row.server_history = Some(ServerHistory::Unknown),
            "followed" => row.server_history = Some(ServerHistory::Followed),
            "bodyless" => row.body_template = String::new(),
            "api" => row.api = value.into(),
            "utility" => row.kind = TurnKind::Utility,
            _ => panic!("unknown word {word}"),
        }
    }
    row
}

fn plan_of(lines: &[&str], include_utility: bool) -> Plan {
    let mut planner = Planner::new(include_utility);
    for line in lines {
        planner.add(turn(line));
    }
    planner.finish(&|_| Some(UNIT), as_recorded())
}

/// The plan's only session as lines `request <- what it follows + wait`.
#[track_caller]
fn check(lines: &[&str], expected: &[&str]) {
    let plan = plan_of(lines, true);
    let session = &plan.sessions[0];
    let name = |at: usize| session.requests[at].request_id.split('@').next().unwrap();
    let seen: Vec<String> = (0..session.requests.len())
        .map(|at| {
            let request = &session.requests[at];
            let after: Vec<&str> = request.after.iter().map(|other| name(*other)).collect();
            format!("{} <- {} + {}", name(at), after.join(","), request.wait_ms.round())
        })
        .collect();
    assert_eq!(seen, expected);
}

#[test]
fn turns_of_a_thread_follow_one_another_after_the_recorded_wait() {
    check(
        &["a 1 3..4 wait=1000", "a 0 1..2 wait=5", "a 2 9..9.5 wait=4900"],
        &["a0 <-  + 0", "a1 <- a0 + 1000", "a2 <- a1 + 4900"],
    );
    // Without a recorded wait the times tell it; a turn sent early waits for nothing.
    check(
        &["a 0 1..2", "a 1 2.25..4", "a 2 3.5..5"],
        &["a0 <-  + 0", "a1 <- a0 + 250", "a2 <- a1 + 0"],
    );
}

#[test]
fn subagents_start_when_the_recording_did_and_run_beside_the_parent() {
    check(
        &[
            "a 0 0..2",
            "b 0 2.1..3 parent=a",
            "c 0 2.2..2.5 parent=a",
            "b 1 3.5..6 parent=a wait=500",
            // Goes on while b works, after c has ended: waits for c alone.
            "a 1 4..5 wait=2000 residual=1500",
            "a 2 6.25..7 wait=1250 residual=250",
        ],
        &[
            "a0 <-  + 0",
            "a1 <- a0,c0 + 1500",
            "a2 <- a1,b1 + 250",
            "b0 <- a0 + 100",
            "b1 <- b0 + 500",
            "c0 <- a0 + 200",
        ],
    );
}

#[test]
fn a_subagent_of_a_subagent_follows_its_own_parent() {
    check(
        &[
            "a 0 0..1",
            "b 0 1.5..2 parent=a",
            "c 0 2.5..3 parent=b",
            "b 1 3.25..4 parent=a",
            "a 1 4.5..5",
        ],
        &[
            "a0 <-  + 0",
            "a1 <- a0,b1 + 500",
            "b0 <- a0 + 500",
            "b1 <- b0,c0 + 250",
            "c0 <- b0 + 500",
        ],
    );
}

#[test]
fn a_child_that_outlives_its_parent_is_not_waited_for() {
    check(
        &["a 0 0..1", "b 0 1.5..9 parent=a", "a 1 2..3 wait=1000"],
        &["a0 <-  + 0", "a1 <- a0 + 1000", "b0 <- a0 + 500"],
    );
}

#[test]
fn threads_without_a_parent_keep_their_place() {
    check(
        &[
            // A title call beside the first request; a new conversation after the first.
            "u 0 0.5..0.75 utility",
            "a 0 0..2",
            "a 1 3..4",
            "b 0 10..11",
        ],
        &["a0 <-  + 0", "a1 <- a0 + 1000", "u0 <-  + 500", "b0 <- a1 + 6000"],
    );
    // A parent that is not in the recording counts as none.
    check(&["a 0 0..2", "b 0 3..4 parent=zz"], &["a0 <-  + 0", "b0 <- a0 + 1000"]);
}

#[test]
fn rows_with_equal_times_make_no_circle() {
    check(
        &["a 0 0..0", "a 1 0..0", "b 0 0..0 parent=a"],
        &["a0 <-  + 0", "a1 <- a0 + 0", "b0 <-  + 0"],
    );
}

#[test]
fn attempts_at_one_turn_count_once_with_the_wait_before_the_first() {
    let lines = [
        "a 0 0..1",
        "a 1 3..3.1 wait=2000 failed",
        "a 1 5..6 wait=1900",
        "a 1 7..8 wait=900 failed",
        "a 2 9..9.5 failed",
        "a 3 10..11 wait=400",
        "a 4 12..13 bodyless",
        "a 5 12..13 api=telepathy",
        "a 6 12..13 unseen",
        "a 7 15..16 wait=300 followed",
    ];
    check(&lines, &["a0 <-  + 0", "a1 <- a0 + 2000", "a3 <- a1 + 400", "a7 <- a3 + 300"]);
    let skipped = plan_of(&lines, true).skipped;
    let expected = [
        ("no request body", 1),
        ("not answered whole", 1),
        ("parts of the prompt lie with the server and were not recorded", 1),
        ("repeated attempt", 2),
        ("unknown api", 1),
    ];
    assert_eq!(skipped, expected.map(|(reason, n)| (reason.to_owned(), n)).into());
}

#[test]
fn sessions_come_in_recorded_order_and_utility_turns_can_be_left_out() {
    let lines = ["z 0 1..2 session=z", "a 0 5..6 session=a", "u 0 1..2 session=z utility"];
    let plan = plan_of(&lines, false);
    let sessions: Vec<&str> =
        plan.sessions.iter().map(|session| session.session_id.as_str()).collect();
    assert_eq!(sessions, ["z", "a"]);
    assert_eq!(plan.n_requests(), 2);
    assert_eq!(plan.skipped["utility"], 1);
    assert_eq!(plan_of(&lines, true).n_requests(), 3);
    assert_eq!(plan_of(&["a 0 0..1 failed"], true).sessions.len(), 0);
}

#[test]
fn units_are_kept_once_and_by_index() {
    let plan = plan_of(&["a 0 0..1 units=xy", "a 1 2..3 units=xyz shared=2"], true);
    assert_eq!(plan.unit_hashes, ["x", "y", "z"]);
    assert_eq!(plan.sessions[0].requests[1].units, [0, 1, 2]);
}

#[test]
fn planned_cached_tokens_are_what_the_thread_had_sent() {
    let plan = plan_of(
        &[
            "a 0 0..1 units=wxyz isl=400 osl=7",
            "a 1 2..3 units=wxyzv shared=4 isl=520",
            // A reset keeps two of five units: two fifths of the bytes, two fifths of the tokens.
            "a 2 4..5 units=wxu shared=2 isl=300",
            "a 3 6..7 units=wxut shared=3 failed",
            // The row counts from the failed turn; the plan counts from the last one sent.
            "a 4 8..9 units=wxuts shared=4 isl=600",
            "a 5 10..11 units=wxuts shared=5",
            "a 6 12..13 units=wxuts shared=5",
        ],
        true,
    );
    let cached: Vec<Option<u64>> =
        plan.sessions[0].requests.iter().map(|request| request.planned_cached_tokens).collect();
    assert_eq!(cached, [Some(0), Some(400), Some(208), Some(300), Some(600), None]);
    assert_eq!(plan.sessions[0].requests[0].target_output_tokens, Some(7));
    assert_eq!(plan.sessions[0].requests[0].planned_prompt_tokens, Some(400));
}

#[test]
fn a_turn_whose_units_were_lost_is_left_out() {
    let mut planner = Planner::new(true);
    planner.add(turn("a 0 0..1 units=xy"));
    planner.add(turn("a 1 2..3 units=xyz shared=2"));
    let plan = planner.finish(&|hash| (hash != "z").then_some(UNIT), Waits::default());
    assert_eq!(plan.n_requests(), 1);
    assert_eq!(plan.skipped["parts of the request body were not recorded"], 1);
}

#[test]
fn human_waits_are_told_from_tool_waits() {
    let lines = [
        "a 0 0..1 units=sh",
        "a 1 3..4 wait=2000 units=shat shared=2",
        "a 2 9..10 wait=5000 units=shatah shared=4",
        "b 0 70..71 units=sh",
        "b 1 72..73 wait=1000 units=shat shared=2",
        // To compact, text is put beside results that the turn before had brought.
        "b 2 93..94 wait=20000 units=shax shared=3",
        "c 0 12..13 parent=a units=sh",
    ];
    let mut planner = Planner::new(true);
    for line in lines {
        planner.add(turn(line));
    }
    let facts = |hash: &str| {
        let brings = match hash {
            "h" => Brings::HumanText,
            "t" => Brings::ToolResult,
            "x" => Brings::ResultAndText,
            _ => Brings::Other,
        };
        Some(UnitFacts { brings, ..UNIT })
    };
    let plan = planner.finish(&facts, Waits::default());
    let waits: Vec<(&str, f64, WaitFor)> = plan.sessions[0]
        .requests
        .iter()
        .map(|request| (&request.request_id[..2], request.wait_ms.round(), request.waits_for))
        .collect();
    // A new conversation begins with a human; a subagent is started by its parent.
    let expected = [
        ("a0", 0.0, WaitFor::Nothing),
        ("a1", 2000.0, WaitFor::Tools),
        ("a2", 0.0, WaitFor::Human),
        ("c0", 2000.0, WaitFor::Tools),
        ("b0", 0.0, WaitFor::Human),
        ("b1", 1000.0, WaitFor::Tools),
        ("b2", 0.0, WaitFor::Human),
    ];
    assert_eq!(waits, expected);
    assert_eq!((plan.waits.tools.n, plan.waits.humans.n), (3, 3));
}

#[test]
fn system_text_and_tools_are_told_from_messages() {
    let is_head = |unit: &str| UnitFacts::of(unit).is_head;
    for unit in [
        r#""be brief""#,
        r#"{"type":"text","text":"be brief"}"#,
        r#"{"name":"Bash","input_schema":{}}"#,
        r#"{"role":"system","content":"be brief"}"#,
        r#"{"role":"developer","content":"be brief"}"#,
    ] {
        assert!(is_head(unit), "{unit}");
    }
    for role in ["user", "assistant", "tool"] {
        assert!(!is_head(&format!(r#"{{"role":"{role}","content":"x"}}"#)));
    }
}

#[test]
fn parallel_tools_are_waited_for_once_by_the_recorded_gap() {
    // Three results of tools that ran at once: 2 s went by, whatever each of them took.
    let mut planner = Planner::new(true);
    planner.add(turn("a 0 0..1 units=sh"));
    planner.add(turn("a 1 3..4 wait=2000 units=shaxyz shared=2"));
    // A row without the time has it from the turns' own times.
    planner.add(turn("a 2 9..9.5 units=shaxyzbxyz shared=6"));
    let facts = |hash: &str| {
        let brings = if "xyz".contains(hash) { Brings::ToolResult } else { Brings::Other };
        Some(UnitFacts { brings, ..UNIT })
    };
    let plan = planner.finish(&facts, Waits::default());
    let waits_ms: Vec<f64> =
        plan.sessions[0].requests.iter().map(|request| request.wait_ms.round()).collect();
    assert_eq!(waits_ms, [0.0, 2000.0, 5000.0]);
    assert_eq!((plan.waits.tools.n, plan.waits.tools.recorded_s.round()), (2, 7.0));
}
