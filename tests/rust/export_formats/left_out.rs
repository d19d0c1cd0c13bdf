//! What an export cannot hold is told, and nothing is written over.

use agentbench::Error;
use agentbench::export::{Format, export};
use agentbench::trace::record::{Outcome, TurnKind};

use super::around::{going, write};
use super::drawn::{ThreadSpec, TurnSpec, rows_of};

#[test]
fn turns_that_nobody_answered_are_left_out_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let turn = |calls| TurnSpec {
        new_tokens: 100,
        osl: 5,
        wait_ms: 10,
        ttft_ms: 5,
        decode_ms: 5,
        calls,
        cached: true,
    };
    let main =
        ThreadSpec { kind: TurnKind::Main, after: 0, turns: vec![turn(1), turn(0), turn(0)] };
    let mut rows = rows_of(&[vec![main]]);
    rows.turns[1].outcome = Outcome::HttpError;
    rows.turns[2].isl = None;
    let run = write(dir.path(), &rows);
    let exported = export(&run, Format::Mooncake, &dir.path().join("a.jsonl"), &going()).unwrap();
    assert_eq!(exported.written["turns"], 1);
    for told in [
        "1 turns that no engine answered whole",
        "1 turns whose prompt tokens are not known",
        "1 tool calls",
    ] {
        assert!(
            exported.left_out.iter().any(|line| line == told),
            "{told}: {:?}",
            exported.left_out
        );
    }
    // Nothing left to write: an error that says why, and nothing lies there.
    rows.turns[0].isl = None;
    let none = tempfile::tempdir().unwrap();
    let run = write(none.path(), &rows);
    let out = none.path().join("b.jsonl");
    let Err(Error::Config(told)) = export(&run, Format::Mooncake, &out, &going()) else {
        panic!("an error")
    };
    assert!(told.starts_with("run r has nothing that mooncake can hold: "), "{told}");
    assert!(told.contains("2 turns whose prompt tokens are not known"), "{told}");
    assert!(!out.exists());
    // What lies there stays.
    std::fs::write(&out, "mine").unwrap();
    assert!(matches!(export(&run, Format::TraceLab, &out, &going()), Err(Error::Config(_))));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "mine");
}
