//! There and back: a run written, exported, imported again, and what of two runs is compared.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentbench::clock::Clock;
use agentbench::export::{Exported, Format, export};
use agentbench::import::{ImportConfig, ImportProgress, import};
use agentbench::shutdown::Shutdown;
use agentbench::trace::record::{ToolCallRow, TurnRow, UnitRow};
use agentbench::trace::{HostInfo, Manifest, Run, RunKind, RunWriter};
use proptest::prelude::ProptestConfig;

use super::drawn::Rows;

pub(super) fn write(dir: &Path, rows: &Rows) -> Run {
    let path = dir.join("run");
    let manifest = Manifest::new(RunKind::Capture, "r", &Clock::start());
    let writer = RunWriter::create(&path, manifest).unwrap();
    let sender = writer.sender();
    for (hash, text) in &rows.units {
        let role: serde_json::Value = serde_json::from_str(text).unwrap();
        sender.send_blocking(UnitRow {
            hash: hash.clone(),
            kind: "message".into(),
            role: role["role"].as_str().unwrap().into(),
            text: text.clone(),
            n_bytes: text.len() as u64,
        });
    }
    for turn in &rows.turns {
        sender.send_blocking(turn.clone());
    }
    for call in &rows.calls {
        sender.send_blocking(call.clone());
    }
    writer.finish().unwrap();
    Run::open(&path).unwrap()
}

pub(super) fn going() -> Shutdown {
    Shutdown::new(Duration::from_secs(1))
}

pub(super) fn read_back(source: &Path, out: PathBuf) -> Run {
    let config = ImportConfig {
        sources: vec![source.to_owned()],
        out,
        format: None,
        run_id: "back".into(),
        threads: 1,
        argv: Vec::new(),
        host: HostInfo::default(),
        update: false,
    };
    let manifest = import(&config, &ImportProgress::default(), &going()).unwrap().manifest;
    assert_eq!(manifest.counts["records_left_out"], 0, "{:?}", manifest.settings["problems"]);
    assert!(manifest.complete);
    Run::open(&config.out).unwrap()
}

/// Exports and imports again.
pub(super) fn around(run: &Run, dir: &Path, format: Format, name: &str) -> (Exported, Run) {
    let out = dir.join(name);
    let exported = export(run, format, &out, &going()).unwrap();
    (exported, read_back(&out, dir.join(format!("{name} back"))))
}

/// What is compared of a turn, as text: the same in both runs or not.
pub(super) type View<'a> = dyn Fn(&TurnRow, &[ToolCallRow]) -> String + 'a;

/// The threads of a run, each as its session's name where `by_session`, its parent's view and its own turns.
pub(super) fn threads(run: &Run, view: &View<'_>) -> Vec<(Vec<String>, Vec<String>)> {
    let mut turns: Vec<TurnRow> = run.rows::<TurnRow>().unwrap().map(Result::unwrap).collect();
    turns.sort_by(|a, b| (&a.thread_id, a.turn).cmp(&(&b.thread_id, b.turn)));
    let mut calls: Vec<ToolCallRow> = run.rows().unwrap().map(Result::unwrap).collect();
    calls.sort_by_key(|call| (call.turn, call.index));
    let mut views: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut parents: BTreeMap<String, Option<String>> = BTreeMap::new();
    for turn in &turns {
        let of_turn: Vec<ToolCallRow> = calls
            .iter()
            .filter(|call| call.thread_id == turn.thread_id && call.turn == turn.turn)
            .cloned()
            .collect();
        views.entry(turn.thread_id.clone()).or_default().push(view(turn, &of_turn));
        parents.insert(turn.thread_id.clone(), turn.parent_thread_id.clone());
    }
    let of_parent = |thread: &String| {
        let parent = parents[thread].as_ref();
        parent.and_then(|parent| views.get(parent)).cloned().unwrap_or_default()
    };
    let mut threads: Vec<_> =
        views.iter().map(|(thread, turns)| (of_parent(thread), turns.clone())).collect();
    threads.sort();
    threads
}

pub(super) fn tenths(ms: Option<f64>) -> Option<i64> {
    ms.map(|ms| (ms * 10.0).round() as i64)
}

/// Tenths of a millisecond after the run's first request.
pub(super) fn since(begun: f64) -> impl Fn(f64) -> i64 {
    move |time| ((time - begun) * 1e4).round() as i64
}

pub(super) fn begun(run: &Run) -> f64 {
    let times = run.rows::<TurnRow>().unwrap().map(|turn| turn.unwrap().request_time);
    times.min_by(f64::total_cmp).unwrap()
}

/// Without links: those that the format has no place for.
pub(super) fn unlinked(threads: Vec<(Vec<String>, Vec<String>)>) -> Vec<Vec<String>> {
    let mut own: Vec<Vec<String>> = threads.into_iter().map(|(_, turns)| turns).collect();
    own.sort();
    own
}

pub(super) fn call_view(call: &ToolCallRow) -> String {
    format!(
        "{} {} {:?} {:?} {:?}",
        call.call_id,
        call.name,
        tenths(call.wire_ms),
        call.result_bytes,
        call.is_error
    )
}

pub(super) fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}
