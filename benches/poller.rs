//! How punctual the poller is while all cores are busy: time from due to sent, and ticks missed.
//!
//! `cargo bench --bench poller -- [SECONDS]` (60 by default). Two threads spin, a metrics server answers
//! from a process of its own (this program again), the poller scrapes it every 100 ms into a run
//! directory that is thrown away.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use agentbench::clock::Clock;
use agentbench::engine::{PollConfig, Poller};
use agentbench::trace::{Manifest, RunKind, RunWriter};

const SERVE: &str = "--serve-metrics";

/// The page that is served, a real one.
const PAGE: &str = include_str!("../tests/data/vllm-0.32.0.metrics.txt");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if arguments.iter().any(|argument| argument == SERVE) {
        serve();
        return;
    }
    let seconds = arguments.iter().find_map(|argument| argument.parse().ok()).unwrap_or(60);
    measure(Duration::from_secs(seconds));
}

#[allow(clippy::print_stdout)]
fn measure(duration: Duration) {
    let (mut server, url) = start_server();
    let folder = tempfile::tempdir().expect("a folder");
    let clock = Clock::start();
    let manifest = Manifest::new(RunKind::Capture, "poller-bench", &clock);
    let writer = RunWriter::create(&folder.path().join("run"), manifest).expect("a run directory");
    let busy = Arc::new(AtomicBool::new(true));
    let spinners: Vec<_> = (0..2)
        .map(|_| {
            let busy = busy.clone();
            std::thread::spawn(move || {
                while busy.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            })
        })
        .collect();
    let config = PollConfig::new(url).expect("an address");
    let poller = Poller::start(config, writer.sender(), clock).expect("a poller");
    std::thread::sleep(duration);
    let stats = poller.stop();
    busy.store(false, Ordering::Relaxed);
    for spinner in spinners {
        spinner.join().expect("a spinning thread");
    }
    // The server is asked to end by the end of its input.
    drop(server.stdin.take());
    server.wait().expect("the server ends");
    writer.finish().expect("the run is closed");
    let ms = |value: Option<f64>| value.map_or("none".to_owned(), |value| format!("{value:.1} ms"));
    println!(
        "{} s, 2 spinning threads: {} scrapes, {} missed, {} failed; lag p50 {}, p99 {}, max {}{}",
        duration.as_secs(),
        stats.ticks,
        stats.missed,
        stats.failed,
        ms(stats.lag_p50_ms),
        ms(stats.lag_p99_ms),
        ms(stats.lag_max_ms),
        if stats.real_time { "" } else { " (real-time priority was refused)" },
    );
}

/// This program once more, as the server; its first line is its address.
fn start_server() -> (Child, String) {
    let program = std::env::current_exe().expect("this program");
    let mut server = Command::new(program)
        .arg(SERVE)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the server starts");
    let mut address = String::new();
    let output = server.stdout.take().expect("the server's output");
    BufReader::new(output).read_line(&mut address).expect("the server's address");
    (server, format!("http://{}/metrics", address.trim()))
}

#[allow(clippy::print_stdout)]
fn serve() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    println!("{}", listener.local_addr().expect("an address"));
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(&stream));
        }
    });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// Answers every request of a connection with the page.
fn answer(mut stream: &TcpStream) {
    let mut request = BufReader::new(stream);
    let mut line = String::new();
    while request.read_line(&mut line).is_ok_and(|read| read > 0) {
        if line.trim().is_empty() {
            let length = PAGE.len();
            let reply = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{PAGE}");
            if stream.write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
        line.clear();
    }
}
