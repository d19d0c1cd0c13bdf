//! Runs that were never closed: killed with the real signal, cut off in a line, on a read-only disk.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use agentbench::trace::record::{Table, TurnRow};
use agentbench::trace::{Run, RunWriter};

use super::{all, create, file_names, journal, manifest, turn, wait_until};

const CHILD: &str = "AGENTBENCH_TEST_KILLED_RUN";

/// Runs one test of this binary as another process.
pub(super) fn child(test: &str, variable: &str, value: &std::path::Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([test, "--exact", "--nocapture"]).env(variable, value);
    command
}

/// The directory that a child of this binary shall work in; none in the test run proper.
#[allow(clippy::disallowed_methods)]
pub(super) fn told_by(variable: &str) -> Option<std::path::PathBuf> {
    std::env::var(variable).ok().map(Into::into)
}

#[test]
fn sigkill_loses_no_row_older_than_a_second() {
    if let Some(dir) = told_by(CHILD) {
        write_until_killed(&dir);
    }
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let mut child = child("trace::kill::sigkill_loses_no_row_older_than_a_second", CHILD, &dir)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let told = lines
        .map(|line| line.unwrap())
        .find_map(|line| line.strip_prefix("sent before a second: ").map(str::to_owned))
        .expect("the child tells how many rows it sent");
    child.kill().unwrap();
    child.wait().unwrap();
    let sent: u32 = told.parse().unwrap();
    assert!(sent >= 100);

    let run = Run::open(&dir).unwrap();
    let turns = all::<TurnRow>(&run);
    assert!(turns.len() >= sent as usize, "{} of {sent}", turns.len());
    assert_eq!(turns, (0..turns.len() as u32).map(turn).collect::<Vec<_>>());
    assert!(run.manifest().partial && !run.manifest().complete);

    let recovered = Run::recover(&dir).unwrap();
    assert!(recovered.manifest().partial && recovered.manifest().complete);
    assert_eq!(all::<TurnRow>(&recovered), turns);
    assert_eq!(file_names(&dir), ["manifest.json", "turn_traces.parquet"]);
}

/// Sends rows, tells how many there were a second ago, and goes on sending until it is killed.
fn write_until_killed(dir: &std::path::Path) -> ! {
    let writer = RunWriter::create(dir, manifest()).unwrap();
    let rows = writer.sender();
    for index in 0..100 {
        assert!(rows.send(turn(index)));
    }
    for step in 0..2000 {
        std::thread::sleep(Duration::from_millis(10));
        assert!(rows.send(turn(100 + step)));
        if step == 100 {
            let mut stdout = std::io::stdout();
            writeln!(stdout, "sent before a second: 100").unwrap();
            stdout.flush().unwrap();
        }
    }
    panic!("nobody killed this process");
}

#[test]
fn a_line_that_is_cut_off_is_counted() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let writer = create(&dir);
    for index in 0..10 {
        writer.sender().send(turn(index));
    }
    drop(writer);
    let path = journal(&dir, Table::Turns);
    let whole = std::fs::read(&path).unwrap();
    let last_line = whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap() + 1;
    for cut in [last_line + 1, whole.len() - 2, whole.len() - 1] {
        std::fs::write(&path, &whole[..cut]).unwrap();
        let run = Run::open(&dir).unwrap();
        assert_eq!(run.manifest().dropped["turn_traces"], 1, "cut at {cut}");
        assert_eq!(run.manifest().rows["turn_traces"], 9);
        assert_eq!(all::<TurnRow>(&run), (0..9).map(turn).collect::<Vec<_>>());
    }
    // What a power cut may leave: blocks of zeros between lines.
    let mut garbled = whole[..last_line].to_vec();
    garbled.extend([0; 100]);
    garbled.push(b'\n');
    garbled.extend(&whole[last_line..]);
    std::fs::write(&path, garbled).unwrap();
    let run = Run::recover(&dir).unwrap();
    assert_eq!(run.manifest().dropped["turn_traces"], 1);
    assert_eq!(all::<TurnRow>(&run), (0..10).map(turn).collect::<Vec<_>>());
}

#[test]
fn a_run_that_still_goes_opens_and_nothing_is_written_to_it() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let writer = create(&dir);
    writer.sender().send(turn(0));
    wait_until("the row is in the journal", || Run::open(&dir).unwrap().has(Table::Turns));
    let before = file_names(&dir);
    let run = Run::open(&dir).unwrap();
    assert!(run.manifest().partial);
    writer.sender().send(turn(1));
    wait_until("the second row too", || Run::open(&dir).unwrap().row_count(Table::Turns) == 2);
    assert_eq!(all::<TurnRow>(&run), [turn(0)], "as it was when opened");
    assert_eq!(file_names(&dir), before);
    writer.finish().unwrap();
    let error = run.rows::<TurnRow>().err().unwrap().to_string();
    assert!(error.contains("open it again"), "{error}");
}

#[test]
fn a_close_that_was_killed_is_taken_up_again() {
    let parent = tempfile::tempdir().unwrap();
    let dir = parent.path().join("run");
    let writer = create(&dir);
    writer.sender().send(turn(0));
    drop(writer);
    let kept = std::fs::read(journal(&dir, Table::Turns)).unwrap();
    std::fs::write(dir.join("turn_traces.parquet.tmp"), b"half a file").unwrap();
    assert_eq!(all::<TurnRow>(&Run::recover(&dir).unwrap()), [turn(0)]);
    // Killed between the manifest and the removal of the journals.
    std::fs::write(journal(&dir, Table::Turns), kept).unwrap();
    assert_eq!(all::<TurnRow>(&Run::open(&dir).unwrap()), [turn(0)]);
    Run::recover(&dir).unwrap();
    assert_eq!(file_names(&dir), ["manifest.json", "turn_traces.parquet"]);
}
