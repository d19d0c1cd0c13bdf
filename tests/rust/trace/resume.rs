//! Runs that are gone on with: closed ones, killed ones, and ones whose going on was killed itself.

use std::io::Write;
use std::path::Path;

use agentbench::clock::Clock;
use agentbench::trace::record::{Table, TurnRow, UnitRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};

use super::{all, create, file_names, journal, manifest, turn, unit, wait_until};

fn resume(dir: &Path) -> RunWriter {
    RunWriter::resume(dir, manifest()).unwrap()
}

fn count(writer: &RunWriter, name: &str, count: u64) {
    let named = name.to_owned();
    writer
        .update_manifest(|manifest| {
            manifest.counts.insert(named, count);
        })
        .unwrap();
}

fn write(writer: &RunWriter, turns: std::ops::Range<u32>, text: &str) {
    let rows = writer.sender();
    assert!(rows.send_blocking(unit(text)));
    for index in turns {
        assert!(rows.send_blocking(turn(index)));
    }
}

fn turns(run: &Run) -> Vec<u32> {
    all::<TurnRow>(run).iter().map(|turn| turn.turn).collect()
}

#[test]
fn a_closed_run_goes_on_as_one_run() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let first = create(&dir);
    first.update_manifest(|manifest| manifest.argv = vec!["first".into()]).unwrap();
    count(&first, "polls", 5);
    write(&first, 0..3, "shared");
    first.finish().unwrap();
    let anchor = Manifest::load(&dir).unwrap().clock_anchor_ns;

    let second = resume(&dir);
    assert_eq!(second.next_request(), 3);
    let going = Manifest::load(&dir).unwrap();
    assert!(!going.complete && !going.partial);
    assert_eq!(going.counts["polls"], 5);
    count(&second, "polls", 7);
    write(&second, 3..5, "shared");
    write(&second, 5..6, "new");
    let finished = second.finish().unwrap();

    let run = Run::open(&dir).unwrap();
    assert_eq!(turns(&run), [0, 1, 2, 3, 4, 5]);
    let texts: Vec<String> = all::<UnitRow>(&run).into_iter().map(|unit| unit.text).collect();
    assert_eq!(texts, ["shared", "new"], "a unit that was there is not written again");
    assert_eq!(run.manifest(), &finished);
    assert!(finished.complete && !finished.partial);
    assert_eq!((finished.counts["polls"], finished.rows["turn_traces"]), (12, 6));
    assert_eq!((finished.argv, finished.clock_anchor_ns), (vec!["first".to_owned()], anchor));
    assert_eq!(finished.notes.len(), 1);
    assert!(finished.notes[0].contains("after it had ended"), "{:?}", finished.notes);
    assert_eq!(
        file_names(&dir),
        ["manifest.json", "messages.parquet", "turn_traces.parquet"],
        "no journal stays"
    );
}

#[test]
fn a_killed_run_goes_on_and_stays_partial() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let first = create(&dir);
    write(&first, 0..3, "shared");
    let path = journal(&dir, Table::Turns);
    wait_until("three turns are written", || {
        std::fs::read_to_string(&path).is_ok_and(|text| text.lines().count() == 3)
    });
    drop(first);
    let mut file = std::fs::OpenOptions::new().append(true).open(&path).unwrap();
    // Longer than what is read at once when the end is looked for.
    write!(file, "{{\"turn\": 3, \"osl_text\": \"{}", "x".repeat(200_000)).unwrap();

    // Twice: the second time nothing is cut off any more, and the row is counted once.
    drop(resume(&dir));
    let third = resume(&dir);
    write(&third, 4..6, "new");
    third.finish().unwrap();

    let run = Run::open(&dir).unwrap();
    assert_eq!(turns(&run), [0, 1, 2, 4, 5]);
    let manifest = run.manifest();
    assert!(manifest.complete && manifest.partial);
    assert_eq!(manifest.dropped["turn_traces"], 1);
    assert_eq!((manifest.counts["turns"], manifest.counts["requests"]), (3, 3));
    assert!(manifest.notes[0].contains("after it was killed"), "{:?}", manifest.notes);
}

#[test]
fn a_kill_while_tables_are_opened_again_loses_nothing() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let first = create(&dir);
    write(&first, 0..3, "shared");
    first.finish().unwrap();
    // As a kill leaves it: the manifest says that the run goes, one journal is written, one only half.
    let closed = std::fs::read(dir.join("turn_traces.parquet")).unwrap();
    drop(resume(&dir));
    std::fs::write(dir.join("turn_traces.parquet"), closed).unwrap();
    std::fs::write(journal(&dir, Table::Turns), "{\"turn\": 0").unwrap();

    let again = resume(&dir);
    write(&again, 3..4, "new");
    again.finish().unwrap();
    assert_eq!(turns(&Run::open(&dir).unwrap()), [0, 1, 2, 3]);
}

#[test]
fn what_cannot_go_on_is_refused_and_left_alone() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    assert!(RunWriter::resume(&dir, manifest()).is_err(), "there is no run");
    let first = create(&dir);
    write(&first, 0..1, "shared");
    first.finish().unwrap();
    let other = Manifest::new(RunKind::Replay, "test-run", &Clock::start());
    let error = RunWriter::resume(&dir, other).unwrap_err().to_string();
    assert!(error.contains("another kind, capture"), "{error}");
    assert_eq!(turns(&Run::open(&dir).unwrap()), [0]);
    // A part that did not start takes nothing away.
    resume(&dir).discard();
    assert_eq!(turns(&Run::open(&dir).unwrap()), [0]);
}
