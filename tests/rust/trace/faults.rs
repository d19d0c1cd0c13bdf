//! Bad input and faults: one clear line with the place and the remedy, nothing half-written.

use std::path::Path;

use agentbench::Error;
use agentbench::trace::record::{PowerRow, Table, TurnRow, UnitRow};
use agentbench::trace::{Run, RunWriter};

use super::kill::{child, told_by};
use super::{all, create, file_names, journal, manifest, turn, unit, wait_until};

fn check_open(dir: &Path, place: &Path, words: &str) {
    let Err(error) = Run::open(dir) else { panic!("{words}: opened") };
    assert!(matches!(error, Error::Trace { .. }), "{error:?}");
    let text = error.to_string();
    assert!(text.starts_with(&place.display().to_string()), "{text}");
    assert!(text.contains(words) && !text.contains('\n'), "{text}");
}

#[test]
fn directories_that_are_no_run() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    check_open(&dir, &dir, "no such run; give the path of a run directory");
    std::fs::create_dir(&dir).unwrap();
    check_open(&dir, &dir, "no manifest.json in it; give");
    let path = dir.join("manifest.json");
    std::fs::write(&path, "<html>").unwrap();
    check_open(&dir, &path, "not a run's manifest (expected value at line 1 column 1)");
    std::fs::write(&path, "{}").unwrap();
    check_open(&dir, &path, "not a run's manifest (missing field");
    std::fs::write(&path, r#"{"format_version": 2, "kind": "telepathy"}"#).unwrap();
    check_open(
        &dir,
        &dir,
        "the run has format 2, this agentbench reads up to 1; update agentbench",
    );
    check_open(&path, &path, "not a run directory but a file");
}

#[test]
fn files_that_are_damaged() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let writer = create(&dir);
    for index in 0..500 {
        writer.sender().send(turn(index));
    }
    writer.finish().unwrap();
    let path = dir.join("turn_traces.parquet");
    let whole = std::fs::read(&path).unwrap();
    for length in [0, 3, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..length]).unwrap();
        check_open(&dir, &path, "cut off or damaged");
    }
    let mut garbled = whole.clone();
    garbled[4..2000].fill(0x55);
    std::fs::write(&path, garbled).unwrap();
    let run = Run::open(&dir).unwrap();
    let error = run.rows::<TurnRow>().unwrap().find_map(Result::err).expect("damage is found");
    assert!(error.to_string().starts_with(&path.display().to_string()), "{error}");
    std::fs::remove_file(&path).unwrap();
    check_open(&dir, &path, "missing; copy the whole run directory again");
}

#[test]
fn journals_of_another_program() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    drop(create(&dir));
    std::fs::write(journal(&dir, Table::Turns), "{\"turn\": \"seven\"}\n").unwrap();
    let error = Run::open(&dir).unwrap().rows::<TurnRow>().unwrap().find_map(Result::err);
    let text = error.expect("not a row").to_string();
    assert!(text.contains("turn_traces.journal.jsonl: cut off or damaged"), "{text}");
    assert!(Run::recover(&dir).is_err());
    assert_eq!(file_names(&dir), ["manifest.json", "turn_traces.journal.jsonl"]);
}

#[test]
fn output_directories_that_cannot_be_had() {
    let parent = tempfile::tempdir().unwrap();
    let check = |dir: &Path, words: &str| {
        let text = RunWriter::create(dir, manifest()).err().unwrap().to_string();
        assert!(text.starts_with(&dir.display().to_string()), "{text}");
        assert!(text.contains(words) && !text.contains('\n'), "{text}");
    };
    let full = parent.path().join("full");
    std::fs::create_dir(&full).unwrap();
    std::fs::write(full.join("x"), "x").unwrap();
    check(&full, "exists and is not empty; choose another");
    assert_eq!(file_names(&full), ["x"]);
    check(&full.join("x"), "not a directory");
    check(Path::new("/proc/agentbench-run"), "cannot write");
    let empty = parent.path().join("empty");
    std::fs::create_dir(&empty).unwrap();
    create(&empty).finish().unwrap();
    assert_eq!(file_names(&empty), ["manifest.json"]);
}

const NO_ROOM: &str = "AGENTBENCH_TEST_NO_ROOM";

#[test]
fn a_directory_without_room_is_left_as_it_was() {
    if let Some(dir) = told_by(NO_ROOM) {
        let text = RunWriter::create(&dir.join("a/b"), manifest()).err().unwrap().to_string();
        assert!(text.contains("cannot write: ") && text.contains("free some space"), "{text}");
        assert_eq!(file_names(&dir), Vec::<String>::new());
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let child =
        child("trace::faults::a_directory_without_room_is_left_as_it_was", NO_ROOM, parent.path());
    run_with_file_limit(&child, 0);
}

const FULL: &str = "AGENTBENCH_TEST_FULL_DISK";

/// The disk is full for the turns: their journal may not grow beyond the process's file-size limit.
#[test]
fn a_full_disk_loses_rows_and_counts_them() {
    if let Some(dir) = told_by(FULL) {
        write_to_full_disk(&dir);
        return;
    }
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let child = child("trace::faults::a_full_disk_loses_rows_and_counts_them", FULL, &dir);
    run_with_file_limit(&child, 128);
    let run = Run::open(&dir).unwrap();
    let lost = run.manifest().dropped["turn_traces"];
    let turns = all::<TurnRow>(&run);
    assert_eq!(turns.len() as u64 + lost, 1000);
    assert_eq!(turns, (0..turns.len() as u32).map(turn).collect::<Vec<_>>());
    let kept: Vec<_> = all::<UnitRow>(&run).into_iter().map(|unit| unit.n_bytes).collect();
    assert_eq!(kept, [1000]);
    assert_eq!(run.manifest().dropped["messages"], 2, "a unit that was lost is tried again");
    assert_eq!(all::<PowerRow>(&run).len(), 1, "other tables go on");
}

fn write_to_full_disk(dir: &Path) {
    let writer = create(dir);
    let rows = writer.sender();
    for index in 0..1000 {
        assert!(rows.send_blocking(turn(index)));
    }
    let lost_of = |table: Table| {
        writer.update_manifest(|_| ()).unwrap();
        let run = Run::open(dir).unwrap();
        (run.row_count(table), run.manifest().dropped.get(table.stem()).copied().unwrap_or(0))
    };
    wait_until("every turn is written or lost", || {
        let (kept, lost) = lost_of(Table::Turns);
        kept + lost == 1000
    });
    let told = rows.last_error().expect("the refusal is told");
    assert!(told.contains("turn_traces.journal.jsonl: cannot write: "), "{told}");
    assert!(told.contains("free some space"), "{told}");
    for attempt in 1..=2 {
        rows.send(unit(&"x".repeat(200_000)));
        wait_until("the unit is lost", || lost_of(Table::Units) == (0, attempt));
    }
    rows.send(unit(&"y".repeat(1000)));
    rows.send(PowerRow::default());
    assert!(writer.finish().unwrap().complete);
}

/// Runs a child whose files may not grow beyond a size: writes fail like those of a full disk.
fn run_with_file_limit(child: &std::process::Command, blocks_of_1024: u32) {
    // SIGXFSZ must be ignored for a write to fail instead of ending the process.
    let script = format!("trap '' XFSZ; ulimit -f {blocks_of_1024}; exec \"$0\" \"$@\"");
    let mut shell = std::process::Command::new("bash");
    shell.arg("-c").arg(script).arg(child.get_program()).args(child.get_args());
    for (name, value) in child.get_envs() {
        shell.env(name, value.unwrap_or_default());
    }
    let output = shell.stdout(std::process::Stdio::piped()).output().unwrap();
    assert!(
        output.status.success(),
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}
