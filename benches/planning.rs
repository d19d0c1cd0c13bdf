//! How soon a replay of a large recording sends: 10,000 synthetic sessions on disk, from opening the
//! run directory to the first request, the engine's questions and the first body included.
//!
//! `cargo bench --bench planning`. The recording is made once; each round is a process of its own, so
//! that nothing is warm but the file system. The scripted engine is another process.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "streams/mod.rs"]
mod streams;

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use agentbench::clock::Clock;
use agentbench::replay::{ApiChoice, Replay, ReplayConfig};
use agentbench::shutdown::Shutdown;
use agentbench::synthesize::{DEFAULT_START_NS, SynthesizeConfig, synthesize};
use agentbench::trace::{HostInfo, Manifest, Run, RunKind, RunWriter, Table};
use streams::{Engine, Script, load_average, median, ours};

const SESSIONS: u32 = 10_000;
/// Requests of a session's main conversation, at most.
const TURNS: u32 = 4;
const AGENTS: u32 = 64;
const ROUNDS: usize = 5;
const SCRIPT: Script = Script {
    streams: AGENTS,
    requests: 1,
    chunks: 2,
    gap: Duration::from_millis(1),
    prefill: Duration::from_millis(1),
    ramp: Duration::from_millis(1),
    prompt_bytes: 0,
};

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if arguments.get(1).map(String::as_str) == Some("start") {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        return runtime.block_on(start(&arguments[2], arguments[3].as_ref()));
    }
    if streams::play_role() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let recorded = dir.path().join("recorded");
    record(&recorded);
    let run = Run::open(&recorded).unwrap();
    let (turns, units) = (run.row_count(Table::Turns), run.row_count(Table::Units));
    let bytes: u64 = std::fs::read_dir(&recorded)
        .unwrap()
        .map(|entry| entry.unwrap().metadata().unwrap().len())
        .sum();
    drop(run);
    let engine = Engine::start(&SCRIPT);
    let rounds: Vec<(f64, f64, f64)> = (0..ROUNDS)
        .map(|_| {
            let output = Command::new(std::env::current_exe().unwrap())
                .args(["start", &engine.address])
                .arg(dir.path())
                .stderr(std::process::Stdio::inherit())
                .output()
                .unwrap();
            assert!(output.status.success());
            serde_json::from_slice(&output.stdout).unwrap()
        })
        .collect();
    println!(
        "{SESSIONS} sessions, {turns} requests, {units} units, {:.0} MB on disk; median of \
         {ROUNDS} rounds (range); load {}\n",
        bytes as f64 / 1e6,
        load_average()
    );
    println!("opened to planned and engine asked, ms   {}", median(rounds.iter().map(|it| it.0)).1);
    println!("opened to first request sent, ms         {}", median(rounds.iter().map(|it| it.1)).1);
    println!("processor time of the whole process, ms  {}", median(rounds.iter().map(|it| it.2)).1);
}

fn record(dir: &Path) {
    let config = SynthesizeConfig {
        out: dir.to_path_buf(),
        run_id: String::new(),
        profile: "small".to_owned(),
        sessions: SESSIONS,
        seed: 1,
        max_turns: Some(TURNS),
        start_ns: DEFAULT_START_NS,
        argv: Vec::new(),
        host: HostInfo::default(),
    };
    synthesize(&config, &Shutdown::new(Duration::ZERO)).unwrap();
}

/// Opens, plans, asks, sends; prints both times in ms.
async fn start(address: &str, dir: &Path) {
    let clock = Clock::start();
    let run = Arc::new(Run::open(&dir.join("recorded")).unwrap());
    let config = ReplayConfig {
        trajectories: Some(u64::from(AGENTS)),
        api: ApiChoice::Chat,
        ..ours::config(&format!("http://{address}"), AGENTS, SCRIPT.ramp)
    };
    let prepared = Replay::prepare(run, config, clock).await.unwrap();
    let prepared_ms = clock.run_ms();
    let out = dir.join("replay");
    let writer = RunWriter::create(&out, Manifest::new(RunKind::Replay, "replay", &clock)).unwrap();
    let shutdown = Shutdown::new(Duration::from_secs(1));
    let handle = prepared.start(writer.sender(), &shutdown).unwrap();
    while handle.progress().requests_sent == 0 {
        tokio::time::sleep(Duration::from_micros(500)).await;
    }
    let sent_ms = clock.run_ms();
    shutdown.cancel();
    handle.wait().await.unwrap();
    writer.finish().unwrap();
    std::fs::remove_dir_all(&out).unwrap();
    println!("[{prepared_ms},{sent_ms},{}]", streams::cpu_s() * 1e3);
}
