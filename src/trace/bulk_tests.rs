// A list of ranges may have one.
#![allow(clippy::single_range_in_vec_init)]

use super::*;
use crate::clock::Clock;
use crate::trace::record::{EngineMetricsRow, ToolCallRow, TurnRow, UnitRow};
use crate::trace::{Run, RunKind};

fn manifest() -> Manifest {
    Manifest::new(RunKind::Import, "r", &Clock::start())
}

fn turn(n: u32) -> TurnRow {
    TurnRow {
        request_id: format!("r{n}"),
        turn: n,
        isl: n.is_multiple_of(2).then_some(u64::MAX - u64::from(n)),
        unit_hashes: vec!["a".to_owned(), "b".to_owned()],
        request_time: 1.25,
        ..TurnRow::default()
    }
}

fn unit(hash: &str) -> UnitRow {
    UnitRow { hash: hash.repeat(32), text: "x".to_owned(), ..UnitRow::default() }
}

fn turns(run: &Run) -> Vec<TurnRow> {
    run.rows::<TurnRow>().unwrap().collect::<Result<_>>().unwrap()
}

#[test]
fn rows_come_back_as_they_were_and_a_rewrite_keeps_what_it_is_told_to() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let mut writer = BulkWriter::create(&dir).unwrap();
    for n in 0..5000 {
        writer.push(turn(n)).unwrap();
        writer.push(unit("c")).unwrap();
    }
    writer.finish(&mut manifest(), |_| Ok(())).unwrap();
    let run = Run::open(&dir).unwrap();
    assert_eq!(run.manifest().rows["turn_traces"], 5000);
    assert_eq!(run.row_count(Table::Units), 1);
    assert_eq!(turns(&run), (0..5000).map(turn).collect::<Vec<_>>());

    let kept = [(Table::Turns, vec![0..2, 4000..4001]), (Table::Units, vec![0..1])].into();
    let mut writer = BulkWriter::rewrite(&dir, &kept).unwrap();
    writer.push(turn(7)).unwrap();
    writer.push(unit("c")).unwrap();
    writer.push(unit("d")).unwrap();
    writer.push(ToolCallRow::default()).unwrap();
    assert_eq!(turns(&Run::open(&dir).unwrap()).len(), 5000, "nothing is changed before the end");
    writer.finish(&mut manifest(), |_| Ok(())).unwrap();
    let run = Run::open(&dir).unwrap();
    assert_eq!(turns(&run), [0, 1, 4000, 7].map(turn));
    assert_eq!((run.row_count(Table::Units), run.row_count(Table::ToolCalls)), (2, 1));
}

#[test]
fn turns_are_linked_to_the_engines_ticks() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("run");
    let mut writer = BulkWriter::create(&dir).unwrap();
    let end = TurnRow { response_end_time: Some(10.0), isl: Some(5), osl: Some(2), ..turn(0) };
    writer.push(end).unwrap();
    let tick =
        EngineMetricsRow { ts: 10.05, n: 1, isl: Some(5.0), osl: Some(2.0), ..Default::default() };
    writer.push(tick).unwrap();
    writer.finish(&mut manifest(), |_| Ok(())).unwrap();
    assert_eq!(turns(&Run::open(&dir).unwrap())[0].engine_row, Some(0));
}

#[test]
fn what_is_discarded_leaves_nothing_and_what_was_killed_is_no_hindrance() {
    let folder = tempfile::tempdir().unwrap();
    let dir = folder.path().join("a/run");
    let mut writer = BulkWriter::create(&dir).unwrap();
    writer.push(turn(0)).unwrap();
    writer.discard();
    assert!(!folder.path().join("a").exists());

    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("turn_traces.parquet.tmp"), b"PAR1").unwrap();
    BulkWriter::create(&dir).unwrap().discard();
    std::fs::write(dir.join("notes.txt"), b"mine").unwrap();
    assert!(BulkWriter::create(&dir).is_err());
}
