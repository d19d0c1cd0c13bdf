//! How fast others' recordings become a run directory: a data set of `TraceLab`'s size in its row format, gzip,
//! and a folder of raw Claude Code logs.
//!
//! `cargo bench --bench import`. Each import is a process of its own with two threads that parse, so that its peak
//! memory is its own; the median of the rounds is told.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use agentbench::clock::Clock;
use agentbench::import::{ImportConfig, ImportProgress, import};
use agentbench::shutdown::Shutdown;
use agentbench::synthesize::round_rows::{RoundConfig, write_round_rows};
use agentbench::trace::HostInfo;

/// `TraceLab`'s own figure.
const ROUNDS: u64 = 357_161;
const LOG_SESSIONS: usize = 60;
const LOG_TURNS: usize = 120;
const TIMES: usize = 3;
const SEED: u64 = 1;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).map(String::as_str) == Some("import") {
        return one(arguments[2].as_ref(), arguments[3].as_ref());
    }
    let dir = tempfile::tempdir().unwrap();
    let rows = dir.path().join("round_trace.jsonl.gz");
    let config = RoundConfig { out: &rows, profile: "tracelab", seed: SEED, rounds: ROUNDS };
    let counts = write_round_rows(&config, &going()).unwrap();
    let megabytes = rows.metadata().unwrap().len() as f64 / 1e6;
    println!(
        "made {} rounds, {} tool calls, {} sessions: {megabytes:.0} MB of gzip",
        counts.rounds, counts.tool_calls, counts.sessions
    );
    let (seconds, peak_mb) = measure(&rows, dir.path());
    println!("rows: {seconds:.2} s, peak {peak_mb:.0} MB (goal: 15 s, 1000 MB)");

    let logs = dir.path().join("projects/p");
    let bytes = write_logs(&logs);
    let (seconds, peak_mb) = measure(&logs, dir.path());
    println!(
        "raw logs: {:.0} MB in {seconds:.2} s, {:.0} MB/s, peak {peak_mb:.0} MB (goal: 100 MB/s)",
        bytes as f64 / 1e6,
        bytes as f64 / 1e6 / seconds
    );
}

/// The median of some imports: seconds, and the most megabytes that one held.
fn measure(source: &Path, dir: &Path) -> (f64, f64) {
    let mut rounds: Vec<(f64, f64)> = (0..TIMES)
        .map(|round| {
            let out = dir.join(format!("run-{round}"));
            let told = Command::new(std::env::current_exe().unwrap())
                .arg("import")
                .arg(source)
                .arg(&out)
                .output()
                .unwrap();
            assert!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
            std::fs::remove_dir_all(&out).unwrap();
            let told = String::from_utf8(told.stdout).unwrap();
            let mut figures = told.split_whitespace().map(|figure| figure.parse().unwrap());
            (figures.next().unwrap(), figures.next().unwrap())
        })
        .collect();
    rounds.sort_by(|a, b| a.0.total_cmp(&b.0));
    (rounds[rounds.len() / 2].0, rounds.iter().map(|round| round.1).fold(0.0, f64::max))
}

/// One import: prints seconds and peak megabytes.
fn one(source: &Path, out: &Path) {
    let config = ImportConfig {
        sources: vec![PathBuf::from(source)],
        out: out.to_owned(),
        format: None,
        update: false,
        run_id: "bench".to_owned(),
        threads: 2,
        argv: Vec::new(),
        host: HostInfo::default(),
    };
    let clock = Clock::start();
    let start_ns = clock.now_ns();
    import(&config, &ImportProgress::default(), &going()).unwrap();
    println!("{} {}", (clock.now_ns() - start_ns) as f64 / 1e9, peak_mb());
}

fn going() -> Shutdown {
    Shutdown::new(std::time::Duration::from_secs(1))
}

fn peak_mb() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<f64>().unwrap() / 1024.0
}

/// Logs with replies of some blocks and results of some kilobytes, as agents have them. Returns their bytes.
fn write_logs(folder: &Path) -> u64 {
    std::fs::create_dir_all(folder).unwrap();
    let mut bytes = 0;
    for session in 0..LOG_SESSIONS {
        let path = folder.join(format!("{session:08x}.jsonl"));
        let mut file = BufWriter::new(File::create(&path).unwrap());
        for turn in 0..LOG_TURNS {
            write_turn(&mut file, session, turn);
        }
        file.flush().unwrap();
        bytes += path.metadata().unwrap().len();
    }
    bytes
}

fn write_turn(out: &mut impl Write, session: usize, turn: usize) {
    let line = |kind: &str, part: usize, message: &serde_json::Value| {
        serde_json::json!({
            "parentUuid": format!("{session}-{turn}-{part}"), "isSidechain": false, "userType": "external",
            "cwd": "/home/somebody/project", "sessionId": format!("session-{session}"), "version": "2.1.0",
            "gitBranch": "main", "type": kind, "message": message,
            "uuid": format!("{session}-{turn}-{}", part + 1),
            "timestamp": format!("2026-01-{:02}T{:02}:{:02}:{part:02}.000Z", session % 28 + 1, turn / 60, turn % 60),
        })
    };
    let words = |n: usize| {
        let word = |k: usize| format!("word{} ", (session * 31 + turn * 17 + k * 7) % 5000);
        (0..n).map(word).collect::<String>()
    };
    let call = format!("toolu_{session}_{turn}");
    let asked = if turn == 0 {
        serde_json::json!({"role": "user", "content": words(200)})
    } else {
        let before = format!("toolu_{session}_{}", turn - 1);
        let result = serde_json::json!({"type": "tool_result", "tool_use_id": before, "content": words(4000)});
        serde_json::json!({"role": "user", "content": [result]})
    };
    writeln!(out, "{}", line("user", 0, &asked)).unwrap();
    let usage = serde_json::json!({"input_tokens": 4, "cache_creation_input_tokens": 900,
        "cache_read_input_tokens": 100_000, "output_tokens": 300});
    for (part, block) in [
        serde_json::json!({"type": "text", "text": words(150)}),
        serde_json::json!({"type": "tool_use", "id": call, "name": "Edit",
            "input": {"file_path": "/home/somebody/project/a.py", "old_string": words(300), "new_string": words(300)}}),
    ]
    .into_iter()
    .enumerate()
    {
        let message = serde_json::json!({"id": format!("msg_{session}_{turn}"), "type": "message", "role": "assistant",
            "model": "some-model", "content": [block], "stop_reason": "tool_use", "usage": usage});
        writeln!(out, "{}", line("assistant", part + 1, &message)).unwrap();
    }
}
