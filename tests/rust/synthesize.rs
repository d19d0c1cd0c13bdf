//! Synthetic run directories, and the bundled sample among them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentbench::Error;
use agentbench::api::{Api, parse_request};
use agentbench::replay::plan::UnitFacts;
use agentbench::replay::waits::Waits;
use agentbench::shutdown::Shutdown;
use agentbench::synthesize::{DEFAULT_START_NS, SynthesizeConfig, synthesize};
use agentbench::trace::record::{ToolCallRow, TurnKind, TurnRow, UnitRow};
use agentbench::trace::{HostInfo, Record, Run, RunKind};

/// What the bundled sample is made with.
const SAMPLE_SEED: u64 = 227;
const SAMPLE_SESSIONS: u32 = 8;

fn config(out: &Path, profile: &str, sessions: u32, seed: u64) -> SynthesizeConfig {
    SynthesizeConfig {
        out: out.to_path_buf(),
        run_id: String::new(),
        profile: profile.to_owned(),
        sessions,
        seed,
        max_turns: None,
        start_ns: DEFAULT_START_NS,
        argv: Vec::new(),
        host: HostInfo::default(),
    }
}

fn going() -> Shutdown {
    Shutdown::new(Duration::from_secs(1))
}

fn bundled() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("python/agentbench/data/sample")
}

fn rows<T: Record>(run: &Run) -> Vec<T> {
    run.rows::<T>().unwrap().collect::<Result<_, _>>().unwrap()
}

/// Not `assert_eq`: a difference would print megabytes.
fn assert_same_rows<T: Record + PartialEq>(left: &Run, right: &Run) {
    let (left, right) = (rows::<T>(left), rows::<T>(right));
    assert_eq!(left.len(), right.len(), "{:?}", T::TABLE);
    let differs = left.iter().zip(&right).position(|(left, right)| left != right);
    assert_eq!(
        differs,
        None,
        "row of {:?}: make the sample again with `agentbench synthesize --profile sample --sessions \
         {SAMPLE_SESSIONS} --seed {SAMPLE_SEED}`",
        T::TABLE
    );
}

#[test]
fn the_bundled_sample_comes_out_of_its_seed() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("sample");
    synthesize(&config(&out, "sample", SAMPLE_SESSIONS, SAMPLE_SEED), &going()).unwrap();
    let (made, kept) = (Run::open(&out).unwrap(), Run::open(&bundled()).unwrap());
    assert_same_rows::<TurnRow>(&made, &kept);
    assert_same_rows::<UnitRow>(&made, &kept);
    assert_same_rows::<ToolCallRow>(&made, &kept);
    assert_eq!(made.manifest().settings, kept.manifest().settings);
    assert_eq!(made.manifest().notes, kept.manifest().notes);
    assert_eq!(made.manifest().rows, kept.manifest().rows);
}

#[test]
fn the_bundled_sample_is_small_quick_and_varied() {
    let bytes: u64 = std::fs::read_dir(bundled())
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    assert!(bytes < 400_000, "{bytes} bytes");
    let run = Run::open(&bundled()).unwrap();
    let manifest = run.manifest();
    assert_eq!(
        (manifest.kind, manifest.synthetic, manifest.complete),
        (RunKind::Synthetic, true, true)
    );
    assert!(manifest.notes[0].starts_with("Synthetic: no agent, model, tool or engine ran"));
    let turns = rows::<TurnRow>(&run);
    let mut waits_ms: BTreeMap<&str, f64> = BTreeMap::new();
    let mut main_threads: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for turn in &turns {
        // A parent's wait holds its children's.
        if turn.kind == TurnKind::Main {
            *waits_ms.entry(&turn.session_id).or_default() += turn.tool_exec_ms.unwrap_or(0.0);
            main_threads.entry(&turn.session_id).or_default().insert(&turn.thread_id);
        }
        let isl = turn.isl.unwrap();
        assert!((1_000..13_000).contains(&isl), "{isl} tokens");
    }
    assert_eq!(waits_ms.len(), SAMPLE_SESSIONS as usize);
    assert!(waits_ms.values().all(|wait_ms| *wait_ms < 5_000.0), "{waits_ms:?}");
    let longest = turns.iter().filter_map(|turn| turn.isl).max().unwrap();
    assert!(longest > 10_000, "{longest} tokens");
    let apis: BTreeSet<&str> = turns.iter().map(|turn| turn.api.as_str()).collect();
    assert_eq!(apis, BTreeSet::from(["chat", "messages"]));
    for api in apis {
        let of_subagent = |turn: &&TurnRow| turn.api == api && turn.kind == TurnKind::Subagent;
        assert!(turns.iter().any(|turn| of_subagent(&turn)), "a subagent in {api}");
    }
    assert_eq!(
        main_threads.values().filter(|threads| threads.len() > 1).count(),
        1,
        "a compaction"
    );
    let calls = rows::<ToolCallRow>(&run);
    assert!(calls.iter().any(|call| call.index > 0), "parallel calls");
    assert!(calls.iter().any(|call| call.is_error == Some(true)), "a failed call");
    assert!(calls.iter().all(|call| call.result_time.is_some()));
}

#[test]
fn bodies_of_a_synthetic_run_can_be_rebuilt_from_disk() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let config = SynthesizeConfig { max_turns: Some(4), ..config(&out, "small", 3, 5) };
    let manifest = synthesize(&config, &going()).unwrap();
    assert_eq!(manifest.run_id, "synthetic-small-5");
    assert_eq!(manifest.counts["sessions"], 3);
    assert_eq!(manifest.settings["statistics"]["append_tokens_p50"]["published"], 875.0);
    assert!(manifest.dropped.is_empty());
    let run = Run::open(&out).unwrap();
    let turns = rows::<TurnRow>(&run);
    assert_eq!(manifest.rows["turn_traces"], turns.len() as u64);
    for turn in &turns {
        let body = run.request_body(turn).unwrap();
        let parsed = parse_request(Api::from_name(&turn.api).unwrap(), &body).unwrap();
        let hashes: Vec<String> = parsed.units.iter().map(|unit| unit.hash.hex()).collect();
        assert_eq!(hashes, turn.unit_hashes);
        assert!(serde_json::from_slice::<serde_json::Value>(&body).unwrap()["messages"].is_array());
    }
    let first = turns.iter().map(|turn| turn.request_time).fold(f64::INFINITY, f64::min);
    assert!(
        (first - DEFAULT_START_NS as f64 / 1e9).abs() < 1e-6,
        "the first request opens the run"
    );
}

#[test]
fn wrong_settings_are_refused_before_anything_is_written() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("run");
    let good = config(&out, "sample", 1, 1);
    for (wrong, text) in [
        (
            SynthesizeConfig { profile: "huge".into(), ..good.clone() },
            "no profile \"huge\": choose one of tracelab, small, sample",
        ),
        (
            SynthesizeConfig { sessions: 0, ..good.clone() },
            "0 sessions: choose a number from 1 to 100000",
        ),
        (
            SynthesizeConfig { max_turns: Some(0), ..good.clone() },
            "max_turns is 0: give at least 1, or leave it out",
        ),
        (
            SynthesizeConfig { start_ns: -1, ..good.clone() },
            "the start lies outside the years 1970 to 2116",
        ),
    ] {
        let error = synthesize(&wrong, &going()).unwrap_err();
        assert!(matches!(error, Error::Config(_)));
        assert_eq!(error.to_string(), text);
        assert!(!out.exists());
    }
    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("mine"), "1").unwrap();
    synthesize(&good, &going()).unwrap_err();
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 1);
}

#[test]
fn a_shutdown_keeps_the_sessions_that_are_there() {
    let dir = tempfile::tempdir().unwrap();
    let shutdown = going();
    shutdown.cancel();
    let manifest = synthesize(&config(&dir.path().join("run"), "sample", 5, 1), &shutdown).unwrap();
    assert_eq!(manifest.counts["sessions"], 0);
    assert_eq!(manifest.notes.last().unwrap(), "Ended early: fewer sessions than asked for.");
}

#[test]
fn the_bundled_sample_replays_whole_and_without_long_waits() {
    let run = Run::open(&bundled()).unwrap();
    let mut planner = agentbench::replay::plan::Planner::new(false);
    for turn in rows::<TurnRow>(&run) {
        planner.add(turn);
    }
    let bytes: BTreeMap<String, u64> =
        rows::<UnitRow>(&run).into_iter().map(|unit| (unit.hash, unit.n_bytes)).collect();
    let plan = planner.finish(
        &|hash| Some(UnitFacts { n_bytes: *bytes.get(hash)?, ..UnitFacts::default() }),
        Waits::default(),
    );
    assert!(plan.skipped.is_empty(), "{:?}", plan.skipped);
    assert_eq!(plan.n_requests() as u64, run.manifest().rows["turn_traces"]);
    assert_eq!(plan.sessions.len(), SAMPLE_SESSIONS as usize);
    for session in &plan.sessions {
        let first = session.requests.iter().filter(|request| request.after.is_empty()).count();
        assert_eq!(first, 1, "{}: one request opens the session", session.session_id);
        // All waits in a row: no replay can wait longer than that.
        let wait_ms: f64 = session.requests.iter().map(|request| request.wait_ms).sum();
        assert!(wait_ms < 5_000.0, "{} waits {wait_ms} ms", session.session_id);
    }
}
