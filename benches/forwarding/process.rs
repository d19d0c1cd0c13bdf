//! The processes of a bench: the recording proxy, and whatever stands beside it, with what they cost.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agentbench::capture::{Capture, CaptureConfig};
use agentbench::clock::Clock;
use agentbench::shutdown::Shutdown;
use agentbench::trace::{Manifest, RunKind, RunWriter};

/// Plays the part of another process that the arguments name, to its end. False where they name none.
pub(super) async fn play(arguments: &[String]) -> bool {
    match arguments {
        [role, ..] if role == "engine" => super::engine::serve().await,
        [role, upstream, ..] if role == "proxy" => proxy(upstream).await,
        _ => return false,
    }
    true
}

/// Serves until its standard input closes; then says what it wrote.
async fn proxy(upstream: &str) {
    let dir = tempfile::tempdir().unwrap();
    let clock = Clock::start();
    let manifest = Manifest::new(RunKind::Capture, "bench", &clock);
    let writer = RunWriter::create(&dir.path().join("run"), manifest).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let config = CaptureConfig::new(listen, format!("http://{upstream}"), "bench".to_owned());
    let shutdown = Shutdown::new(Duration::from_secs(5));
    let capture = Capture::start(config, writer.sender(), clock, shutdown).await.unwrap();
    println!("{}", capture.local_addr());
    tokio::task::spawn_blocking(|| std::io::stdin().read_to_end(&mut Vec::new()))
        .await
        .unwrap()
        .unwrap();
    let stats = capture.stop().await;
    let manifest = writer.finish().unwrap();
    println!(
        "{} turns recorded, {} dropped, {:?} rows dropped",
        stats.turns, stats.turns_dropped, manifest.dropped
    );
}

/// A process and the address on which it listens.
pub(super) struct Target {
    pub(super) name: &'static str,
    pub(super) addr: SocketAddr,
    pub(super) process: Child,
}

impl Target {
    /// This program again in another role, which prints its address first.
    pub(super) fn role(name: &'static str, arguments: &[&str]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        // Unbuffered beyond the line: what follows is read at the end.
        let mut byte = [0];
        let stdout = process.stdout.as_mut().unwrap();
        while stdout.read(&mut byte).unwrap() == 1 && byte[0] != b'\n' {
            line.push(char::from(byte[0]));
        }
        Self { name, addr: line.parse().unwrap(), process }
    }

    /// Ends a proxy, which says what it wrote.
    pub(super) fn end_proxy(&mut self) {
        drop(self.process.stdin.take());
        let said = BufReader::new(self.process.stdout.take().unwrap()).lines();
        said.for_each(|line| println!("{}: {}", self.name, line.unwrap()));
        self.process.wait().unwrap();
    }

    /// Processor time used so far by the process and those it started, in seconds.
    pub(super) fn cpu_seconds(&self) -> f64 {
        let own = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        let children = children.unwrap_or_default();
        let all = children.split_whitespace().map(str::to_owned).chain([own.to_string()]);
        all.map(|pid| seconds(Path::new(&format!("/proc/{pid}/stat")))).sum()
    }

    /// Processor time of its threads of that name, in seconds.
    #[allow(dead_code)] // not every bench asks
    pub(super) fn thread_seconds(&self, name: &str) -> f64 {
        let tasks = format!("/proc/{}/task", self.process.id());
        let tasks = std::fs::read_dir(tasks).unwrap().flatten().map(|task| task.path());
        let named = tasks.filter(|task| {
            std::fs::read_to_string(task.join("comm")).is_ok_and(|comm| comm.trim() == name)
        });
        named.map(|task| seconds(&task.join("stat"))).sum()
    }

    /// A figure of its memory as the kernel tells it.
    #[allow(dead_code)] // not every bench asks
    pub(super) fn memory_bytes(&self, field: &str) -> u64 {
        let status =
            std::fs::read_to_string(format!("/proc/{}/status", self.process.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with(field)).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() * 1024
    }
}

/// User and system time in a `stat` file of the kernel.
fn seconds(stat: &Path) -> f64 {
    let Ok(stat) = std::fs::read_to_string(stat) else { return 0.0 };
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
    (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()) as f64 / 100.0
}
