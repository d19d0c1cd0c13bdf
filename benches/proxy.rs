//! What the recording proxy costs, side by side with nginx before the same scripted engine: added time
//! to the first byte and added delay of chunks at 200 streams of a decoder's pace, the same for a few clients
//! that ask as fast as they can, and chunks per second. Everything is recorded, of all four APIs in turn.
//!
//! Engine, proxy and nginx are processes of their own; this one is the client. Run it with
//! `cargo bench --bench proxy`, or with `-- streams` for the figures at 200 streams alone. Without nginx
//! (Debian: `apt-get install nginx-light`) its column is left out.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use agentbench::clock::Clock;

#[path = "forwarding/engine.rs"]
mod engine;
#[path = "forwarding/process.rs"]
mod process;
#[path = "forwarding/wire.rs"]
mod wire;

use process::Target;
use wire::{Times, ask, connect, request};

const NGINX: &str = "/usr/sbin/nginx";
/// Streams, and events of each, in the throughput part.
const STREAMS: usize = 200;
const EVENTS: usize = 500;
/// Requests of each target in one round of the latency parts, and rounds.
const REQUESTS: usize = 300;
const ROUNDS: usize = 11;
/// Clients at once in the second latency part.
const CLIENTS: usize = 16;
/// Of each of the streams at a decoder's pace: requests one after another, events, and time between two.
const PACED_TURNS: usize = 3;
const PACED_EVENTS: usize = 25;
const PACE_MS: u64 = 20;
/// Rounds of them: the slowest hundredth of 600 first bytes is six, which a few rounds tell no ratio of.
const PACED_ROUNDS: usize = 31;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if !runtime.block_on(process::play(&arguments)) {
        runtime.block_on(compare(arguments.iter().any(|argument| argument == "streams")));
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

async fn compare(only_streams: bool) {
    let dir = tempfile::tempdir().unwrap();
    let engine = Target::role("direct", &["engine"]);
    let upstream = engine.addr;
    let proxy = Target::role("agentbench", &["proxy", &upstream.to_string()]);
    let nginx = start_nginx(upstream, dir.path());
    let mut targets: Vec<Target> = vec![engine, proxy];
    targets.extend(nginx);

    println!("\n{:<52} {:>10} {:>12} {:>10} {:>8}", "", "direct", "agentbench", "nginx", "ratio");
    let paced = paced(&targets).await;
    let name = format!("{STREAMS} streams, {PACE_MS} ms between chunks");
    print_times(&format!("first byte, {name}"), &paced, |(first, _)| first);
    print_times(&format!("chunk delay, {name}"), &paced, |(_, events)| events);
    if !only_streams {
        print_times("first byte, one client", &first_bytes(&targets, 1).await, |times| times);
        let times = first_bytes(&targets, CLIENTS).await;
        print_times(&format!("first byte, {CLIENTS} clients"), &times, |times| times);
        let throughput = throughput(&targets).await;
        let rates = medians(&throughput, |(rate, _)| *rate);
        let ratio = rates.get(2).map(|nginx| nginx / rates[1]);
        print_line(&format!("chunks/s at {STREAMS} streams"), &rates, ratio);
        let cpu = medians(&throughput, |(_, cpu)| *cpu);
        let ratio = cpu.get(2).map(|nginx| cpu[1] / nginx);
        print_line("  processor time per chunk, recording included (us)", &cpu, ratio);
    }
    println!(
        "medians of {ROUNDS} rounds ({PACED_ROUNDS} at a pace) in which the targets take turns"
    );
    println!(
        "ratio: agentbench to nginx, above 1 is slower; the goal is at most 1.5 for what is added"
    );

    for mut target in targets {
        if target.name == "agentbench" {
            target.end_proxy();
            continue;
        }
        if target.name == "nginx" {
            // Ends its workers as well; killing the master would leave them.
            let pid = target.process.id().to_string();
            Command::new("kill").args(["-QUIT", &pid]).status().unwrap();
        } else {
            target.process.kill().unwrap();
        }
        target.process.wait().unwrap();
    }
}

fn print_times<T>(what: &str, rounds: &[Vec<T>], times: impl Fn(&T) -> &Vec<i64>) {
    for percent in [50, 99] {
        let micros = medians(rounds, |round| percentile(times(round), percent) as f64 / 1e3);
        print_line(&format!("{what}, p{percent} (us)"), &micros, None);
        let added: Vec<f64> = micros.iter().map(|us| us - micros[0]).collect();
        let ratio = added.get(2).map(|nginx| added[1] / nginx);
        print_line("  added", &added, ratio);
    }
}

fn print_line(what: &str, values: &[f64], ratio: Option<f64>) {
    let shown = |index: usize| values.get(index).map_or("-".to_owned(), |v| format!("{v:.1}"));
    let ratio = ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
    println!("{what:<52} {:>10} {:>12} {:>10} {ratio:>8}", shown(0), shown(1), shown(2));
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
            let turns = REQUESTS / clients;
            let times = ask_all(target.addr, clients, turns, 3, "events=3").await;
            let mut times: Vec<i64> = times.iter().map(|times| times.first_byte_ns).collect();
            times.sort_unstable();
            // The first round warms connections and caches up.
            if round > 0 {
                rounds.push(times);
            }
        }
    }
    rounds
}

/// The streams of many agents at once, at the pace of decoding: first bytes and delays of events, sorted, by
/// target and round.
async fn paced(targets: &[Target]) -> Vec<Vec<(Vec<i64>, Vec<i64>)>> {
    let query = format!("events={PACED_EVENTS}&pace_ms={PACE_MS}");
    let mut rounds = vec![Vec::new(); targets.len()];
    for round in 0..=PACED_ROUNDS {
        for (target, rounds) in targets.iter().zip(&mut rounds) {
            let times = ask_all(target.addr, STREAMS, PACED_TURNS, PACED_EVENTS, &query).await;
            let mut first: Vec<i64> = times.iter().map(|times| times.first_byte_ns).collect();
            let mut events: Vec<i64> = times.into_iter().flat_map(|it| it.event_ns).collect();
            first.sort_unstable();
            events.sort_unstable();
            if round > 0 {
                rounds.push((first, events));
            }
        }
    }
    rounds
}

/// As many clients at once, each with a connection of its own on which it asks one thing after another.
async fn ask_all(
    addr: SocketAddr,
    clients: usize,
    turns: usize,
    events: usize,
    query: &str,
) -> Vec<Times> {
    let clock = Clock::start();
    let tasks: Vec<_> = (0..clients)
        .map(|client| {
            let query = query.to_owned();
            tokio::spawn(async move {
                // Agents do not start within one millisecond.
                if clients == STREAMS {
                    tokio::time::sleep(Duration::from_millis(2 * client as u64)).await;
                }
                let mut stream = connect(addr).await;
                let mut times = Vec::with_capacity(turns);
                for turn in 0..turns {
                    let request = request(client, turn, &query);
                    times.push(ask(&mut stream, &request, events, clock).await);
                }
                times
            })
        })
        .collect();
    let mut times = Vec::with_capacity(clients * turns);
    for task in tasks {
        times.extend(task.await.unwrap());
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
            let query = format!("events={EVENTS}");
            let tasks: Vec<_> = (0..STREAMS)
                .map(|client| {
                    let (addr, request) = (target.addr, request(client, 0, &query));
                    tokio::spawn(async move {
                        ask(&mut connect(addr).await, &request, EVENTS, clock).await
                    })
                })
                .collect();
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
