//! The JSON-lines export: its folders, lines and refusals.

use std::path::Path;
use std::time::Duration;

use agentbench::Error;
use agentbench::api::ContentHash;
use agentbench::clock::Clock;
use agentbench::export::{ExportCounts, Prompts, export_jsonl};
use agentbench::shutdown::Shutdown;
use agentbench::trace::record::{EngineMetricsRow, TurnRow, UnitRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};
use serde_json::{Value, json};

fn going() -> Shutdown {
    Shutdown::new(Duration::from_secs(1))
}

fn unit(text: &str) -> UnitRow {
    UnitRow {
        hash: ContentHash::of(text.as_bytes()).hex(),
        kind: "message".into(),
        role: "user".into(),
        text: text.into(),
        n_bytes: text.len() as u64,
    }
}

/// A turn of which the engine saw `isl` and `osl` tokens and that ended at `end`.
fn turn(session: &str, units: &[&str], isl: u64, osl: u64, end: f64) -> TurnRow {
    TurnRow {
        run_id: "r".into(),
        session_id: session.into(),
        thread_id: format!("{session}-t0"),
        request_id: format!("q{end}"),
        api: "chat".into(),
        unit_hashes: units.iter().map(|text| unit(text).hash).collect(),
        request_time: end - 0.5,
        response_end_time: Some(end),
        tool_exec_ms: (units.len() > 1).then_some(250.5),
        model: Some("m".into()),
        isl: Some(isl),
        osl: Some(osl),
        isl_new_text: units.last().map(ToString::to_string).unwrap_or_default(),
        osl_text: "answer".into(),
        ..TurnRow::default()
    }
}

fn tick(ts: f64, n: u64, isl: f64, osl: f64) -> EngineMetricsRow {
    EngineMetricsRow {
        ts,
        window_end: ts + 0.002,
        engine: "http://127.0.0.1:1".into(),
        n,
        isl: Some(isl),
        osl: Some(osl),
        stop_reason: r#"{"stop":1}"#.into(),
        kv_cache_usage_pct_peak: Some(12.5),
        prefix_cache_hits: Some(16),
        ..EngineMetricsRow::default()
    }
}

/// Two sessions, one with a hostile name; a tick of its own, a shared one and a stranger.
fn run(dir: &Path) -> Run {
    let path = dir.join("run");
    let writer =
        RunWriter::create(&path, Manifest::new(RunKind::Capture, "r", &Clock::start())).unwrap();
    let rows = writer.sender();
    for text in ["one", "two"] {
        rows.send_blocking(unit(text));
    }
    rows.send_blocking(turn("a", &["one"], 100, 10, 1000.0));
    rows.send_blocking(turn("a", &["one", "two"], 200, 20, 1002.0));
    rows.send_blocking(turn("../b", &["one"], 300, 30, 1002.01));
    rows.send_blocking(tick(1000.05, 1, 100.0, 10.0));
    rows.send_blocking(tick(1002.05, 2, 250.0, 25.0));
    rows.send_blocking(tick(1009.0, 1, 7.0, 7.0));
    writer.finish().unwrap();
    Run::open(&path).unwrap()
}

fn lines(path: impl AsRef<Path>) -> Vec<Value> {
    let path = path.as_ref();
    let text =
        std::fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn the_layout_and_its_lines() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path());
    let out = dir.path().join("out");
    let counts = export_jsonl(&run, &out, Prompts::Written, &going()).unwrap();
    let expected = ExportCounts {
        sessions: 2,
        turns: 3,
        engine_rows: 2,
        engine_rows_shared: 1,
        engine_rows_unassigned: 1,
        bytes: counts.bytes,
    };
    assert_eq!(counts, expected);
    assert_eq!(names(&out), ["run_config.json", "runs"]);
    let folders = names(&out.join("runs"));
    assert_eq!(folders.len(), 3);
    assert_eq!((folders[0].as_str(), folders[1].as_str()), ("_unassigned", "a"));
    let hostile = &folders[2];
    assert!(hostile.starts_with("b~"), "{hostile}");

    let turns = lines(out.join("runs/a/turn_traces.jsonl"));
    assert_eq!(turns.len(), 2);
    let keys: Vec<&str> = turns[0].as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(keys[..5], ["request_time", "tool_exec_ms", "isl_new_text", "isl_text", "osl_text"]);
    let seed_fields =
        |turn: &Value| json!(keys[..5].iter().map(|key| &turn[*key]).collect::<Vec<_>>());
    assert_eq!(seed_fields(&turns[0]), json!([999.5, null, "one", "one", "answer"]));
    assert_eq!(seed_fields(&turns[1]), json!([1001.5, 250.5, "two", "one\ntwo", "answer"]));
    assert_eq!(turns[1]["outcome"], "ok");

    let ticks = lines(out.join("runs/a/engine_metrics.jsonl"));
    assert_eq!(ticks.len(), 2);
    assert_eq!(
        ticks[0],
        json!({
            "ts": 1000.05, "n": 1, "isl": 100.0, "osl": 10.0, "isl_new": null, "prefill_ms": null,
            "decode_ms": null, "queue_ms": null, "itl_ms": null, "e2e_ms": null,
            "stop_reason": {"stop": 1}, "kv_cache_usage_pct_peak": 12.5, "prefix_cache_hits": 16,
            "external_prefix_cache_hits": null,
        })
    );
    assert_eq!(lines(out.join("runs").join(hostile).join("engine_metrics.jsonl")), ticks[1..]);
    let strangers = lines(out.join("runs/_unassigned/engine_metrics.jsonl"));
    assert_eq!(strangers.iter().map(|tick| &tick["ts"]).collect::<Vec<_>>(), [&json!(1009.0)]);

    let session = lines(out.join("runs").join(hostile).join("session.json"));
    assert_eq!(session[0]["session_id"], "../b");
    assert_eq!(session[0]["turns"], 1);
    let session = &lines(out.join("runs/a/session.json"))[0];
    assert_eq!(session["models"], json!({"m": 2}));
    assert_eq!(
        session["threads"],
        json!([{"thread_id": "a-t0", "parent_thread_id": null, "turns": 2}])
    );
    let config: Value =
        serde_json::from_slice(&std::fs::read(out.join("run_config.json")).unwrap()).unwrap();
    assert_eq!((&config["run"]["run_id"], &config["turns"]), (&json!("r"), &json!(3)));
}

#[test]
fn prompts_can_be_left_out() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("out");
    export_jsonl(&run(dir.path()), &out, Prompts::LeftOut, &going()).unwrap();
    let turns = lines(out.join("runs/a/turn_traces.jsonl"));
    assert_eq!((&turns[1]["isl_text"], &turns[1]["isl_new_text"]), (&Value::Null, &json!("two")));
}

#[test]
fn what_fails_leaves_nothing_behind() {
    let dir = tempfile::tempdir().unwrap();
    let run = run(dir.path());
    let out = dir.path().join("out");
    let stopped = going();
    stopped.cancel();
    let error = export_jsonl(&run, &out, Prompts::Written, &stopped).unwrap_err();
    assert!(matches!(error, Error::Cancelled));
    assert_eq!(names(dir.path()), ["run"]);

    std::fs::create_dir(&out).unwrap();
    std::fs::write(out.join("mine"), "1").unwrap();
    let error = export_jsonl(&run, &out, Prompts::Written, &going()).unwrap_err();
    assert!(matches!(error, Error::Config(_)), "{error}");
    assert_eq!(names(&out), ["mine"]);

    let empty = dir.path().join("empty");
    let manifest = Manifest::new(RunKind::Replay, "none", &Clock::start());
    RunWriter::create(&empty, manifest).unwrap().finish().unwrap();
    let empty = Run::open(&empty).unwrap();
    let error =
        export_jsonl(&empty, &dir.path().join("new"), Prompts::Written, &going()).unwrap_err();
    assert_eq!(
        error.to_string(),
        "run none has no turns: export a recording, an import or a synthetic run"
    );
    assert_eq!(names(dir.path()), ["empty", "out", "run"]);
}
