//! Formats of counts and times: `TraceLab`'s rows and workloads, batchbench.

use std::path::Path;

use agentbench::export::{Format, export};
use agentbench::trace::record::{ToolCallRow, TurnRow};
use proptest::prelude::*;

use super::around::{around, call_view, config, going, since, tenths, threads, unlinked, write};
use super::drawn::{BEGUN, rows_of, run_spec};

#[test]
fn tracelabs_rows_come_back() {
    proptest!(config(16), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let run = write(dir.path(), &rows_of(&spec));
        let (_, back) = around(&run, dir.path(), Format::TraceLab, "rounds.jsonl");
        let view = |turn: &TurnRow, calls: &[ToolCallRow]| {
            let time = since(BEGUN);
            let times = (time(turn.request_time), turn.response_end_time.map(&time), tenths(turn.e2e_ms), tenths(turn.tool_exec_ms));
            let tokens = (turn.isl, turn.isl_cached, turn.isl_new, turn.osl, turn.reasoning_tokens);
            let calls: Vec<String> = calls.iter().map(|call| {
                let spans = (time(call.emitted_time), call.result_time.map(&time), tenths(call.own_ms));
                format!("{} {spans:?}", call_view(call))
            }).collect();
            format!("{:?} {:?} {times:?} {tokens:?} {calls:?}", turn.agent, turn.model)
        };
        prop_assert_eq!(unlinked(threads(&back, &view)), unlinked(threads(&run, &view)));
    });
}

#[test]
fn workloads_come_back() {
    proptest!(config(16), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let mut rows = rows_of(&spec);
        for turn in &mut rows.turns {
            turn.isl_cached = turn.isl.map(|isl| isl / 3);
        }
        let run = write(dir.path(), &rows);
        let (_, back) = around(&run, dir.path(), Format::TraceLabWorkload, "load.csv");
        let view = |turn: &TurnRow, _: &[ToolCallRow]| {
            format!("{:?} {:?} {:?} {:?}", turn.isl, turn.isl_cached, turn.osl, tenths(turn.tool_exec_ms))
        };
        prop_assert_eq!(unlinked(threads(&back, &view)), unlinked(threads(&run, &view)));
    });
}

#[test]
fn manifests_of_batchbench_come_back() {
    proptest!(config(16), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let run = write(dir.path(), &rows_of(&spec));
        let (_, back) = around(&run, dir.path(), Format::Batchbench, "manifest.jsonl");
        let view = |turn: &TurnRow, _: &[ToolCallRow]| {
            let who = (&turn.session_id, turn.kind, &turn.model, &turn.agent, turn.stream);
            format!("{who:?} {:?} {:?} {:?}", turn.isl, turn.osl, tenths(turn.tool_exec_ms))
        };
        prop_assert_eq!(threads(&back, &view), threads(&run, &view));
        // Exported once more, it is the same file.
        let again = dir.path().join("again.jsonl");
        export(&back, Format::Batchbench, &again, &going()).unwrap();
        let lines = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        prop_assert_eq!(lines(&again), lines(&dir.path().join("manifest.jsonl")));
    });
}
