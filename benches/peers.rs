//! The replay's client beside other load generators before the same scripted engine, in one run:
//! `aiperf` 0.13 and `inference-perf` 0.7 from `PyPI`, a bare tokio client, and a whole replay.
//!
//! `cargo bench --bench peers`. Two questions. How many chunks a second does each client take when the
//! engine sends as fast as it is read? The engine counts; each stream asks again when it has read its
//! answer, so that what waits in a socket is not taken for read. And what TTFT p99 does each report for 500
//! streams started at once with 20 ms between chunks, where the engine knows the truth? Engine and
//! clients are processes of their own and take turns. The peers live in environments of their own,
//! made by `peers/run.py` below `target/peers`; a peer that cannot be installed is left out, with the
//! reason.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "streams/mod.rs"]
mod streams;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde::Deserialize;
use streams::{Engine, Script, load_average, measure, median, ours};

const CLIENTS: [&str; 4] = ["bare", "ours", "aiperf", "inference-perf"];
const ROUNDS: usize = 3;
/// The engine sends as fast as it is read.
const FULL_SPEED: Script = Script {
    streams: 50,
    requests: 20,
    chunks: 500,
    gap: Duration::ZERO,
    prefill: Duration::ZERO,
    ramp: Duration::from_millis(1),
    prompt_bytes: 2_000,
};
/// 25,000 chunks/s over all streams.
const PACED: Script = Script {
    streams: 500,
    requests: 1,
    chunks: 300,
    gap: Duration::from_millis(20),
    prefill: Duration::from_millis(50),
    ramp: Duration::from_millis(1),
    prompt_bytes: 2_000,
};

/// What the engine knows of the streams of one client.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Truth {
    streams: u32,
    chunks_per_s: f64,
    ttft_p99_ms: f64,
}

/// One round of one client: what it reports of TTFT, and the truth.
#[derive(Debug, Clone, Copy)]
struct Round {
    reported_p99_ms: f64,
    truth: Truth,
}

fn main() {
    if streams::play_role() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let scratch = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/peers");
    let clients: Vec<&str> =
        CLIENTS.into_iter().filter(|client| is_ready(client, &scratch)).collect();
    println!("load before {}\n", load_average());
    let full = rounds(&clients, &FULL_SPEED, &dir.path().join("full"), &scratch);
    let paced = rounds(&clients, &PACED, &dir.path().join("paced"), &scratch);
    println!(
        "\nmedian of {ROUNDS} rounds (range); load after {}\n\n{:<18}{:>30}{:>30}{:>30}{:>14}",
        load_average(),
        "client",
        "chunks/s at full speed",
        "TTFT p99 reported ms, paced",
        "TTFT p99 true ms, paced",
        "error ms"
    );
    for (index, client) in clients.iter().enumerate() {
        let rate = median(full[index].iter().map(|round| round.truth.chunks_per_s)).1;
        let reported = median(paced[index].iter().map(|round| round.reported_p99_ms)).1;
        let truth = median(paced[index].iter().map(|round| round.truth.ttft_p99_ms)).1;
        let error =
            paced[index].iter().map(|round| round.reported_p99_ms - round.truth.ttft_p99_ms);
        println!("{client:<18}{rate:>30}{reported:>30}{truth:>30}{:>14.1}", median(error).0);
    }
    let rate = |wanted: &str| {
        let index = clients.iter().position(|client| *client == wanted)?;
        Some(median(full[index].iter().map(|round| round.truth.chunks_per_s)).0)
    };
    if let Some((ours, aiperf)) = rate("ours").zip(rate("aiperf")) {
        println!("\nours over aiperf: {:.1} times its chunks/s", ours / aiperf);
    }
}

/// Sets a peer's environment up; ours need none.
fn is_ready(client: &str, scratch: &Path) -> bool {
    if matches!(client, "bare" | "ours") {
        return true;
    }
    let status = python().args(["setup", client]).arg(scratch).status();
    let ready = status.is_ok_and(|status| status.success());
    if !ready {
        println!("{client}: left out, see above");
    }
    ready
}

fn python() -> Command {
    let mut command = Command::new("python3");
    command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/benches/peers/run.py"));
    command
}

/// All rounds of all clients in turns, by client.
fn rounds(clients: &[&str], script: &Script, dir: &Path, scratch: &Path) -> Vec<Vec<Round>> {
    ours::write_recording(script, &dir.join("recorded"));
    let engine = Engine::start(script);
    let mut seen = vec![Vec::new(); clients.len()];
    for _ in 0..ROUNDS {
        for (index, client) in clients.iter().enumerate() {
            let _ = truth(&engine.address);
            let reported_p99_ms = match *client {
                "bare" => measure("bare", script, &[&engine.address]).ttft_p99_ms,
                "ours" => {
                    let dir = dir.to_str().unwrap();
                    measure("ours", script, &[&engine.address, dir]).ttft_p99_ms
                }
                peer => peer_p99_ms(peer, script, &engine.address, scratch),
            };
            let truth = truth(&engine.address);
            assert_eq!(truth.map(|truth| truth.streams), Some(script.total()), "{client}");
            seen[index].extend(truth.map(|truth| Round { reported_p99_ms, truth }));
        }
    }
    seen
}

/// Runs a peer; the TTFT p99 that it reports.
fn peer_p99_ms(peer: &str, script: &Script, address: &str, scratch: &Path) -> f64 {
    let output = python()
        .args(["run", peer])
        .arg(scratch)
        .arg(format!("http://{address}"))
        .args([script.streams, script.total()].map(|count| count.to_string()))
        .arg(script.chunks.to_string())
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{peer} failed");
    String::from_utf8(output.stdout).unwrap().trim().parse().unwrap()
}

/// The truth of the streams since this was last asked; none where there were none.
fn truth(address: &str) -> Option<Truth> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /truth HTTP/1.1\r\nhost: engine\r\n\r\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, page) = answer.split_once("\r\n\r\n").unwrap();
    serde_json::from_str(page).ok()
}
