//! Formats of block hashes: Mooncake, its form for agents, Weka. How much two prompts share is compared with an
//! oracle of its own.

use std::collections::BTreeMap;

use agentbench::export::Format;
use agentbench::trace::Run;
use agentbench::trace::record::{ToolCallRow, TurnKind, TurnRow};
use proptest::prelude::*;

use super::around::{around, begun, call_view, config, since, tenths, threads, write};
use super::drawn::{Rows, rows_of, run_spec};

/// Units of every turn with their tokens, by what the turn is known by on both sides.
fn prompts(rows: &Rows, key: &dyn Fn(&TurnRow) -> String) -> BTreeMap<String, Vec<(String, u64)>> {
    let tokens = |hash: &String| rows.units[hash].len() as u64 / 4;
    let units =
        |turn: &TurnRow| turn.unit_hashes.iter().map(|hash| (hash.clone(), tokens(hash))).collect();
    rows.turns.iter().map(|turn| (key(turn), units(turn))).collect()
}

/// Every two prompts share as many leading blocks as lie whole in their common tokens.
fn assert_sharing(
    rows: &Rows,
    back: &Run,
    size: u64,
    partial: bool,
    key: &dyn Fn(&TurnRow) -> String,
) {
    let prompts = prompts(rows, key);
    let turns: Vec<TurnRow> = back.rows::<TurnRow>().unwrap().map(Result::unwrap).collect();
    assert_eq!(turns.len(), rows.turns.len());
    for a in &turns {
        assert_eq!(a.block_size, Some(size as u32));
        for b in &turns {
            let (of_a, of_b) = (&prompts[&key(a)], &prompts[&key(b)]);
            let common: u64 =
                of_a.iter().zip(of_b).take_while(|(a, b)| a == b).map(|(a, _)| a.1).sum();
            let whole: u64 = of_a.iter().map(|(_, tokens)| tokens).sum();
            let same = of_a == of_b;
            let n_a = if partial { whole.div_ceil(size) } else { whole / size };
            let hashes = |turn: &TurnRow| turn.block_hashes.clone().unwrap();
            assert_eq!(hashes(a).len() as u64, n_a);
            let shared =
                hashes(a).iter().zip(&hashes(b)).take_while(|(a, b)| a == b).count() as u64;
            assert_eq!(shared, if same { n_a } else { common / size }, "{} {}", key(a), key(b));
        }
    }
}

/// What a row of Mooncake's tells.
fn from_start(begun: f64, turn: &TurnRow) -> String {
    format!("{} {:?} {:?}", since(begun)(turn.request_time), turn.isl, turn.osl)
}

#[test]
fn mooncakes_rows_come_back_and_share_what_prompts_share() {
    proptest!(config(12), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let rows = rows_of(&spec);
        let run = write(dir.path(), &rows);
        let (_, back) = around(&run, dir.path(), Format::Mooncake, "trace.jsonl");
        let views = |run: &Run, begun: f64| {
            let turns = run.rows::<TurnRow>().unwrap().map(Result::unwrap);
            let mut views: Vec<String> = turns.map(|turn| from_start(begun, &turn)).collect();
            views.sort();
            views
        };
        prop_assert_eq!(views(&back, 0.0), views(&run, begun(&run)));
        let distinct: std::collections::BTreeSet<String> = views(&back, 0.0).into_iter().collect();
        // Requests of one moment and one length cannot be told apart afterwards.
        if distinct.len() == rows.turns.len() {
            let first = begun(&run);
            let key = move |turn: &TurnRow| from_start(if turn.run_id == "r" { first } else { 0.0 }, turn);
            assert_sharing(&rows, &back, 512, true, &key);
        }
    });
}

#[test]
fn agentic_mooncake_comes_back_with_links_waits_and_tools() {
    proptest!(config(16), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let rows = rows_of(&spec);
        let run = write(dir.path(), &rows);
        let (_, back) = around(&run, dir.path(), Format::MooncakeAgentic, "agents.jsonl");
        assert_sharing(&rows, &back, 512, true, &|turn| turn.request_id.clone());
        let last_turns: BTreeMap<String, u32> = rows.turns.iter().fold(BTreeMap::new(), |mut last, turn| {
            let at = last.entry(turn.thread_id.clone()).or_insert(turn.turn);
            *at = (*at).max(turn.turn);
            last
        });
        let is_last = |id: &str, turn: u32| {
            let thread = id.split(' ').next().unwrap();
            last_turns[thread] == turn
        };
        // A wait for subagents counts from their end; calls of a last turn have no row to stand in.
        let residual: std::collections::BTreeSet<String> = back.rows::<TurnRow>().unwrap()
            .map(Result::unwrap).filter(|turn| turn.residual_wait_ms.is_some()).map(|turn| turn.request_id).collect();
        let view = |turn: &TurnRow, calls: &[ToolCallRow]| {
            let wait = if residual.contains(&turn.request_id) { None } else { tenths(turn.tool_exec_ms) };
            let calls: Vec<String> = calls.iter().filter(|call| !is_last(&call.request_id, call.turn)).map(call_view).collect();
            let kind = if turn.kind == TurnKind::Subagent { "sub" } else { "" };
            format!("{} {kind} {:?} {:?} {wait:?} {calls:?}", turn.request_id, turn.isl, turn.osl)
        };
        prop_assert_eq!(threads(&back, &view), threads(&run, &view));
        for turn in back.rows::<TurnRow>().unwrap().map(Result::unwrap) {
            if turn.kind == TurnKind::Subagent {
                prop_assert_eq!(turn.session_id, turn.request_id.split('-').next().unwrap());
            }
        }
    });
}

#[test]
fn wekas_traces_come_back_and_share_across_files() {
    proptest!(config(12), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let rows = rows_of(&spec);
        let run = write(dir.path(), &rows);
        let (_, back) = around(&run, dir.path(), Format::Weka, "weka");
        let mut begun: BTreeMap<String, f64> = BTreeMap::new();
        for turn in &rows.turns {
            let first = begun.entry(turn.session_id.clone()).or_insert(f64::MAX);
            *first = first.min(turn.request_time);
        }
        let of_session = |turn: &TurnRow| if turn.run_id == "r" { begun[&turn.session_id] } else { 0.0 };
        let key = |turn: &TurnRow| {
            format!("{} {} {:?}", turn.session_id, since(of_session(turn))(turn.request_time), turn.isl)
        };
        let view = |turn: &TurnRow, _: &[ToolCallRow]| {
            let what = (&turn.session_id, turn.kind, &turn.model, turn.stream, &turn.stop_reason);
            let times = (tenths(turn.ttft_ms), tenths(turn.e2e_ms), tenths(turn.tool_exec_ms));
            format!("{} {what:?} {times:?} {:?}", key(turn), turn.osl)
        };
        prop_assert_eq!(threads(&back, &view), threads(&run, &view));
        let distinct: std::collections::BTreeSet<String> = rows.turns.iter().map(&key).collect();
        if distinct.len() == rows.turns.len() {
            assert_sharing(&rows, &back, 64, false, &key);
        }
    });
}
