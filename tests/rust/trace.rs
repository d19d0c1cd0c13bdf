//! Run directories through the public API: what was sent is what is read, closed, killed or faulty.

mod close;
mod faults;
mod kill;
mod resume;
mod round_trip;

use std::path::Path;

use agentbench::clock::Clock;
use agentbench::trace::record::{Table, TurnRow, UnitRow};
use agentbench::trace::{Manifest, Record, Run, RunKind, RunWriter};

fn manifest() -> Manifest {
    Manifest::new(RunKind::Capture, "test-run", &Clock::start())
}

fn create(dir: &Path) -> RunWriter {
    RunWriter::create(dir, manifest()).unwrap()
}

fn all<T: Record>(run: &Run) -> Vec<T> {
    run.rows::<T>().unwrap().map(|row| row.unwrap()).collect()
}

fn turn(index: u32) -> TurnRow {
    TurnRow {
        run_id: "test-run".into(),
        session_id: "s".into(),
        thread_id: "t".into(),
        turn: index,
        request_id: format!("request-{index}"),
        api: "messages".into(),
        params: "{}".into(),
        request_time: 1.7e9 + f64::from(index),
        osl_text: format!("answer {index}"),
        reply_blocks: "[]".into(),
        ..TurnRow::default()
    }
}

fn unit(text: &str) -> UnitRow {
    UnitRow {
        hash: agentbench::api::ContentHash::of(text.as_bytes()).hex(),
        kind: "message".into(),
        role: "user".into(),
        text: text.into(),
        n_bytes: text.len() as u64,
    }
}

fn file_names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn wait_until(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..2000 {
        if condition() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("never came true: {what}");
}

fn journal(dir: &Path, table: Table) -> std::path::PathBuf {
    dir.join(format!("{}.journal.jsonl", table.stem()))
}
