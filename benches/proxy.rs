//! What the recording proxy costs, side by side with nginx before the same scripted engine: added time
//! to the first byte, and chunks per second at 200 streams.
//!
//! Engine, proxy and nginx are processes of their own; this one is the client. Run it with
//! `cargo bench --bench proxy`. Without nginx (Debian: `apt-get install nginx-light`) its column is
//! left out.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use agentbench::capture::{Capture, CaptureConfig};
use agentbench::clock::Clock;
use agentbench::shutdown::Shutdown;
use agentbench::trace::{Manifest, RunKind, RunWriter};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

const NGINX: &str = "/usr/sbin/nginx";
/// As long as a real agent's first request.
const REQUEST_BYTES: usize = 49 * 1024;
/// Streams, and events of each, in the throughput part.
const STREAMS: usize = 200;
const EVENTS: usize = 500;
/// Requests of each target in one round of the latency parts, and rounds.
const REQUESTS: usize = 300;
const ROUNDS: usize = 11;
/// Clients at once in the second latency part.
const CLIENTS: usize = 16;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let role = arguments.get(1).map_or("", String::as_str);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    match role {
        "engine" => runtime.block_on(engine()),
        "proxy" => runtime.block_on(proxy(&arguments[2])),
        _ => runtime.block_on(compare()),
    }
}

// ---------------------------------------------------------------- the scripted engine

/// Answers every request with as many events as its query says, each written by itself.
async fn engine() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::spawn(serve(stream));
    }
}

async fn serve(mut stream: TcpStream) {
    let mut unread = Vec::new();
    loop {
        let Some(head) = read_head(&mut stream, &mut unread).await else { return };
        let mut left = content_length(&head).saturating_sub(unread.len());
        unread.clear();
        let mut piece = vec![0; 64 * 1024];
        while left > 0 {
            match stream.read(&mut piece).await {
                Ok(read) if read > 0 => left = left.saturating_sub(read),
                _ => return,
            }
        }
        let events: usize = head
            .split_once("events=")
            .and_then(|(_, rest)| rest.split([' ', '&']).next()?.parse().ok())
            .unwrap_or(1);
        if answer(&mut stream, events).await.is_err() {
            return;
        }
    }
}

async fn answer(stream: &mut TcpStream, events: usize) -> std::io::Result<()> {
    stream
        .write_all(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n",
        )
        .await?;
    for index in 0..events {
        let event = format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
             {{\"type\":\"text_delta\",\"text\":\"word{index} \"}}}}\n\n"
        );
        stream.write_all(chunk(&event).as_bytes()).await?;
        tokio::task::yield_now().await;
    }
    let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
    stream.write_all(format!("{}0\r\n\r\n", chunk(stop)).as_bytes()).await
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}

// ---------------------------------------------------------------- the proxy, recording

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

// ---------------------------------------------------------------- the client

/// A process and the address on which it listens.
struct Target {
    name: &'static str,
    addr: SocketAddr,
    process: Child,
}

impl Target {
    fn role(name: &'static str, arguments: &[&str]) -> Self {
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

    /// Processor time used so far by the process and those it started, in seconds.
    fn cpu_seconds(&self) -> f64 {
        let own = self.process.id();
        let children = std::fs::read_to_string(format!("/proc/{own}/task/{own}/children"));
        let children = children.unwrap_or_default();
        let all = children.split_whitespace().map(str::to_owned).chain([own.to_string()]);
        let ticks: u64 = all
            .filter_map(|pid| std::fs::read_to_string(format!("/proc/{pid}/stat")).ok())
            .map(|stat| {
                let fields: Vec<&str> = stat.rsplit(") ").next().unwrap_or("").split(' ').collect();
                fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
            })
            .sum();
        ticks as f64 / 100.0
    }
}

fn start_nginx(upstream: SocketAddr, dir: &Path) -> Option<Target> {
    if !Path::new(NGINX).exists() {
        println!("no {NGINX}: its column is left out; on Debian, `apt-get install nginx-light`");
        return None;
    }
    let addr = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let dir_text = dir.display();
    let config = format!(
        "daemon off;\nworker_processes auto;\npid {dir_text}/pid;\nerror_log {dir_text}/error.log;\n\
         events {{ worker_connections 2048; }}\n\
         http {{\n access_log off;\n client_body_temp_path {dir_text}/body;\n proxy_temp_path {dir_text}/proxy;\n\
         fastcgi_temp_path {dir_text}/f;\n uwsgi_temp_path {dir_text}/u;\n scgi_temp_path {dir_text}/s;\n\
         upstream engine {{ server {upstream}; keepalive 512; }}\n\
         server {{ listen {addr}; client_max_body_size 0; keepalive_requests 1000000;\n\
         location / {{ proxy_pass http://engine; proxy_buffering off; proxy_request_buffering off;\n\
         proxy_http_version 1.1; proxy_set_header Connection \"\"; }} }} }}\n"
    );
    let file = dir.join("nginx.conf");
    std::fs::File::create(&file).unwrap().write_all(config.as_bytes()).unwrap();
    let process =
        Command::new(NGINX).arg("-c").arg(&file).arg("-p").arg(dir).stderr(Stdio::null()).spawn();
    let mut nginx = Target { name: "nginx", addr, process: process.unwrap() };
    for _ in 0..500 {
        if std::net::TcpStream::connect(addr).is_ok() {
            return Some(nginx);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    nginx.process.kill().unwrap();
    nginx.process.wait().unwrap();
    panic!("nginx did not listen on {addr} within 5 s");
}

async fn compare() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Target::role("direct", &["engine"]);
    let upstream = engine.addr;
    let proxy = Target::role("agentbench", &["proxy", &upstream.to_string()]);
    let nginx = start_nginx(upstream, dir.path());
    let mut targets: Vec<Target> = vec![engine, proxy];
    targets.extend(nginx);

    let sequential = first_bytes(&targets, 1).await;
    let concurrent = first_bytes(&targets, CLIENTS).await;
    let throughput = throughput(&targets).await;

    println!("\n{:<44} {:>10} {:>12} {:>10} {:>8}", "", "direct", "agentbench", "nginx", "ratio");
    for (what, times) in [("one client", &sequential), ("16 clients", &concurrent)] {
        for percent in [50, 99] {
            let micros = medians(times, |round| percentile(round, percent) as f64 / 1e3);
            print_line(&format!("time to first byte p{percent}, {what} (us)"), &micros, None);
            let added: Vec<f64> = micros.iter().map(|us| us - micros[0]).collect();
            let ratio = added.get(2).map(|nginx| added[1] / nginx);
            print_line("  added", &added, ratio);
        }
    }
    let rates = medians(&throughput, |(rate, _)| *rate);
    let ratio = rates.get(2).map(|nginx| nginx / rates[1]);
    print_line(&format!("chunks/s at {STREAMS} streams"), &rates, ratio);
    let cpu = medians(&throughput, |(_, cpu)| *cpu);
    let ratio = cpu.get(2).map(|nginx| cpu[1] / nginx);
    print_line("  processor time per chunk (us)", &cpu, ratio);
    println!("medians of {ROUNDS} rounds in which the targets take turns");
    println!("ratio: agentbench to nginx, above 1 is slower; the goal is at most 1.5");

    for mut target in targets {
        if target.name == "agentbench" {
            drop(target.process.stdin.take());
            let said = BufReader::new(target.process.stdout.take().unwrap()).lines();
            said.for_each(|line| println!("{}: {}", target.name, line.unwrap()));
        } else if target.name == "nginx" {
            // Ends its workers as well; killing the master would leave them.
            let pid = target.process.id().to_string();
            Command::new("kill").args(["-QUIT", &pid]).status().unwrap();
        } else {
            target.process.kill().unwrap();
        }
        target.process.wait().unwrap();
    }
}

fn print_line(what: &str, values: &[f64], ratio: Option<f64>) {
    let shown = |index: usize| values.get(index).map_or("-".to_owned(), |v| format!("{v:.1}"));
    let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
    println!("{what:<44} {:>10} {:>12} {:>10} {ratio:>8}", shown(0), shown(1), shown(2));
}

fn percentile(sorted: &[i64], percent: usize) -> i64 {
    sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)]
}

/// Of each target, the median over its rounds of one figure of a round.
fn medians<T>(targets: &[Vec<T>], figure: impl Fn(&T) -> f64) -> Vec<f64> {
    let median = |rounds: &Vec<T>| {
        let mut values: Vec<f64> = rounds.iter().map(&figure).collect();
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    };
    targets.iter().map(median).collect()
}

/// Times to the first byte of the body, sorted, by target and round; targets take turns in every
/// round.
async fn first_bytes(targets: &[Target], clients: usize) -> Vec<Vec<Vec<i64>>> {
    let mut rounds = vec![Vec::new(); targets.len()];
    for round in 0..=ROUNDS {
        for (target, rounds) in targets.iter().zip(&mut rounds) {
            let tasks: Vec<_> =
                (0..clients).map(|_| tokio::spawn(ask(target.addr, REQUESTS / clients))).collect();
            let mut times = Vec::new();
            for task in tasks {
                times.extend(task.await.unwrap());
            }
            times.sort_unstable();
            // The first round warms connections and caches up.
            if round > 0 {
                rounds.push(times);
            }
        }
    }
    rounds
}

/// Sends requests one after another over one connection.
async fn ask(addr: SocketAddr, requests: usize) -> Vec<i64> {
    let clock = Clock::start();
    let mut stream = connect(addr).await;
    let mut unread = Vec::new();
    let mut times = Vec::with_capacity(requests);
    for _ in 0..requests {
        let request = request(3);
        let sent_ns = clock.now_ns();
        stream.write_all(&request).await.unwrap();
        read_head(&mut stream, &mut unread).await.unwrap();
        if unread.is_empty() {
            stream.read_buf(&mut unread).await.unwrap();
        }
        times.push(clock.now_ns() - sent_ns);
        while !unread.ends_with(b"0\r\n\r\n") {
            assert!(stream.read_buf(&mut unread).await.unwrap() > 0, "cut");
        }
        unread.clear();
    }
    times
}

/// Chunks per second and microseconds of the target's processor time per chunk, of each round.
async fn throughput(targets: &[Target]) -> Vec<Vec<(f64, f64)>> {
    let mut rounds = vec![Vec::new(); targets.len()];
    for _ in 0..ROUNDS {
        for (target, rounds) in targets.iter().zip(&mut rounds) {
            let clock = Clock::start();
            let cpu_before = target.cpu_seconds();
            let tasks: Vec<_> =
                (0..STREAMS).map(|_| tokio::spawn(stream_once(target.addr))).collect();
            for task in tasks {
                task.await.unwrap();
            }
            let chunks = (STREAMS * (EVENTS + 1)) as f64;
            let rate = chunks / (clock.run_ms() / 1e3);
            rounds.push((rate, (target.cpu_seconds() - cpu_before) * 1e6 / chunks));
        }
    }
    rounds
}

async fn stream_once(addr: SocketAddr) {
    let mut stream = connect(addr).await;
    let mut unread = Vec::new();
    stream.write_all(&request(EVENTS)).await.unwrap();
    read_head(&mut stream, &mut unread).await.unwrap();
    let mut events = 0;
    let mut last = [0_u8; 5];
    loop {
        for byte in unread.drain(..) {
            last.rotate_left(1);
            last[4] = byte;
            events += usize::from(last[3..] == *b"\n\n");
        }
        if last == *b"0\r\n\r\n" {
            break;
        }
        assert!(stream.read_buf(&mut unread).await.unwrap() > 0, "cut");
    }
    assert!(events >= EVENTS, "{events} events");
}

async fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn request(events: usize) -> Vec<u8> {
    let text = "x".repeat(REQUEST_BYTES);
    let body = format!(
        r#"{{"model":"tiny","stream":true,"max_tokens":64,"messages":[{{"role":"user","content":"{text}"}}]}}"#
    );
    format!(
        "POST /v1/messages?events={events} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n\
         User-Agent: bench/1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A head up to its empty line; what came after it stays in `unread`.
async fn read_head(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<String> {
    loop {
        if let Some(at) = unread.windows(4).position(|window| window == b"\r\n\r\n") {
            let head: Vec<u8> = unread.drain(..at + 4).collect();
            return String::from_utf8(head).ok();
        }
        match stream.read_buf(unread).await {
            Ok(read) if read > 0 => {}
            _ => return None,
        }
    }
}

fn content_length(head: &str) -> usize {
    head.lines()
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        })
        .unwrap_or(0)
}
