//! Formats of prompts and replies: agentperf, `MLPerf`, `ClawPerf`, the netpreme layout.

use agentbench::export::Format;
use agentbench::trace::record::{ToolCallRow, TurnRow};
use proptest::prelude::*;

use super::around::{around, config, since, tenths, threads, unlinked, write};
use super::drawn::{BEGUN, rows_of, run_spec};

fn made(calls: &[ToolCallRow]) -> Vec<String> {
    calls.iter().map(|call| format!("{} {} {}", call.call_id, call.name, call.arguments)).collect()
}

#[test]
fn prompts_and_replies_come_back_as_agentperf_and_mlperf_have_them() {
    proptest!(config(12), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let run = write(dir.path(), &rows_of(&spec));
        let (_, back) = around(&run, dir.path(), Format::Agentperf, "turns.jsonl");
        let view = |turn: &TurnRow, of_turn: &[ToolCallRow]| {
            format!("{:?} {:?} {:?} {:?} {:?}", turn.unit_hashes, turn.isl, turn.osl, tenths(turn.tool_exec_ms), made(of_turn))
        };
        prop_assert_eq!(unlinked(threads(&back, &view)), unlinked(threads(&run, &view)));
        let (_, back) = around(&run, dir.path(), Format::Mlperf, "messages.jsonl");
        let view = |turn: &TurnRow, _: &[ToolCallRow]| {
            format!("{:?} {:?}", turn.unit_hashes, tenths(turn.tool_exec_ms))
        };
        prop_assert_eq!(unlinked(threads(&back, &view)), unlinked(threads(&run, &view)));
    });
}

#[test]
fn exchanges_come_back_as_clawperf_has_them() {
    proptest!(config(12), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let run = write(dir.path(), &rows_of(&spec));
        let (_, back) = around(&run, dir.path(), Format::Clawperf, "exchanges");
        let view = |turn: &TurnRow, of_turn: &[ToolCallRow]| {
            let tokens = (turn.isl, turn.isl_cached, turn.isl_new, turn.osl);
            let times = (tenths(turn.ttft_ms), tenths(turn.e2e_ms));
            let what = (&turn.model, turn.stream, &turn.stop_reason, &turn.reply_blocks, &turn.params);
            format!("{:?} {tokens:?} {times:?} {what:?} {:?}", turn.unit_hashes, made(of_turn))
        };
        prop_assert_eq!(unlinked(threads(&back, &view)), unlinked(threads(&run, &view)));
    });
}

#[test]
fn turns_and_ticks_come_back_as_the_netpreme_layout_has_them() {
    proptest!(config(12), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let rows = rows_of(&spec);
        let run = write(dir.path(), &rows);
        let (_, back) = around(&run, dir.path(), Format::Netpreme, "netpreme");
        let view = |turn: &TurnRow, _: &[ToolCallRow]| {
            let who = (&turn.session_id, &turn.thread_id, &turn.request_id, turn.kind, &turn.model);
            let tokens = (turn.isl, turn.isl_new, turn.osl);
            let time = since(BEGUN);
            let times = (time(turn.request_time), tenths(turn.ttft_ms), tenths(turn.e2e_ms), tenths(turn.tool_exec_ms));
            format!("{who:?} {tokens:?} {times:?} {:?} {:?} {:?}", turn.isl_new_text, turn.osl_text, turn.outcome)
        };
        prop_assert_eq!(threads(&back, &view), threads(&run, &view));
    });
}
