//! What the benches of the replay's client share: a scripted engine in a process of its own, a bare
//! tokio client, and a whole replay, each measured on the same streams.
//!
//! Every role is a process of its own, started by the bench with its own executable, so that memory
//! and processor time of one are not another's. They speak in lines of JSON on standard output.

// Each bench uses a part of it.
#![allow(dead_code)]

pub(crate) mod bare;
pub(crate) mod ours;
pub(crate) mod upstream;

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agentbench::replay::statistics::Statistic;
use serde::{Deserialize, Serialize};

/// What the engine sends and who reads it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct Script {
    /// Streams at once, each on a connection of its own.
    pub(crate) streams: u32,
    /// Requests of each stream, one after another.
    pub(crate) requests: u32,
    /// Chunks of each stream.
    pub(crate) chunks: usize,
    /// Between two chunks of a stream; zero: as fast as the client reads.
    pub(crate) gap: Duration,
    /// Request to first chunk.
    pub(crate) prefill: Duration,
    /// Time over which the streams are started.
    pub(crate) ramp: Duration,
    /// Size of a request body, about.
    pub(crate) prompt_bytes: usize,
}

impl Script {
    /// Requests of all streams.
    pub(crate) fn total(&self) -> u32 {
        self.streams * self.requests
    }
}

/// What one client saw in one round.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Seen {
    pub(crate) chunks_per_s: f64,
    pub(crate) ttft_p50_ms: f64,
    pub(crate) ttft_p99_ms: f64,
    pub(crate) gap_p99_ms: f64,
    pub(crate) peak_rss_mb: f64,
    /// Processor time of the whole process over its chunks: what other work on the machine does not
    /// change.
    pub(crate) cpu_us_per_chunk: f64,
}

impl Seen {
    pub(crate) fn of(chunks: usize, span_ms: f64, ttft_ms: Vec<f64>, gap_ms: Vec<f64>) -> Self {
        let ttft = Statistic::of(ttft_ms).expect("streams");
        let gap = Statistic::of(gap_ms).expect("gaps");
        Self {
            chunks_per_s: chunks as f64 / span_ms * 1e3,
            ttft_p50_ms: ttft.p50,
            ttft_p99_ms: ttft.p99,
            gap_p99_ms: gap.p99,
            peak_rss_mb: peak_rss_bytes() as f64 / 1e6,
            cpu_us_per_chunk: cpu_s() * 1e6 / chunks as f64,
        }
    }
}

/// Peak of this process's resident memory.
fn peak_rss_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap_or_default();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap_or_default() * 1024
}

/// User and system time of this process, which Linux counts in hundredths of a second.
pub(crate) fn cpu_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or_default().split(' ').collect();
    [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<f64>().ok()).sum::<f64>() / 100.0
}

/// The engine's process; it ends when its standard input closes.
pub(crate) struct Engine {
    child: Child,
    /// Where it listens.
    pub(crate) address: String,
}

impl Engine {
    /// Starts an engine that plays `script`.
    pub(crate) fn start(script: &Script) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("own path"))
            .args(["upstream", &to_json(script)])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the engine's process");
        let mut address = String::new();
        BufReader::new(child.stdout.take().expect("a pipe"))
            .read_line(&mut address)
            .expect("its address");
        Self { child, address: address.trim().to_owned() }
    }
}

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs the roles that a bench starts; false when this process is the bench itself.
pub(crate) fn play_role() -> bool {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(role) =
        arguments.get(1).filter(|role| ["upstream", "bare", "ours"].contains(&&***role))
    else {
        return false;
    };
    let script: Script = serde_json::from_str(&arguments[2]).expect("a script");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let seen = match role.as_str() {
        "upstream" => {
            std::thread::spawn(|| {
                let _ = std::io::stdin().read_to_end(&mut Vec::new());
                std::process::exit(0);
            });
            runtime.block_on(upstream::serve(script));
            return true;
        }
        "bare" => runtime.block_on(bare::read_all(&script, arguments[3].parse().expect("address"))),
        _ => runtime.block_on(ours::replay(&script, &arguments[3], arguments[4].as_ref())),
    };
    println!("{}", to_json(&seen));
    true
}

/// A role as a process of its own, and what it saw.
pub(crate) fn measure(role: &str, script: &Script, arguments: &[&str]) -> Seen {
    let output = Command::new(std::env::current_exe().expect("own path"))
        .args([role, &to_json(script)])
        .args(arguments)
        .stderr(Stdio::inherit())
        .output()
        .expect("a process of its own");
    assert!(output.status.success(), "{role} failed");
    serde_json::from_slice(&output.stdout).expect("what it saw")
}

/// Middle value with its range, for a table.
pub(crate) fn median(values: impl Iterator<Item = f64>) -> (f64, String) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let (low, middle, high) = (values[0], values[values.len() / 2], values[values.len() - 1]);
    (middle, format!("{middle:.1} ({low:.1}-{high:.1})"))
}

/// The one-minute load of the machine: a busy one makes every figure worse.
pub(crate) fn load_average() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("JSON")
}
