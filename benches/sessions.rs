//! What long prompts cost: processor time of a recorded turn, and memory while many sessions go on.
//!
//! `cargo bench --bench sessions`: 1,000 sessions at once, each with prompts of 0.5 MB that grow by a call and its
//! result a turn, 10,000 requests in all; `-- SESSIONS TURNS` asks for other numbers. Responses take 4 s and the
//! agents as long between two. Engine and proxy are processes of their own; the figures are the proxy's, as the
//! kernel counts them, everything recorded.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentbench::api::Api;
use agentbench::clock::Clock;

#[path = "forwarding/engine.rs"]
mod engine;
#[path = "forwarding/process.rs"]
mod process;
#[path = "forwarding/wire.rs"]
mod wire;

use process::Target;
use wire::{ask, connect, posted};

const SESSIONS: usize = 1000;
const TURNS: usize = 10;
const PROMPT_BYTES: usize = 500_000;
const MESSAGE_BYTES: usize = 2000;
const EVENTS: usize = 20;
const PACE_MS: usize = 200;
/// A session's share of the time between two requests of one session.
const PERIOD_MS: usize = 8000;
const GOAL_MS: f64 = 5.0;
/// Least growth that counts as none.
const GOAL_GROWTH: f64 = 1.1;
const SOURCE: &str = include_str!("../src/trace/record.rs");

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if !runtime.block_on(process::play(&arguments)) {
        let mut numbers = arguments.iter().filter_map(|argument| argument.parse().ok());
        let sessions = numbers.next().unwrap_or(SESSIONS);
        runtime.block_on(measure(sessions, numbers.next().unwrap_or(TURNS)));
    }
}

async fn measure(sessions: usize, turns: usize) {
    let mut engine = Target::role("engine", &["engine"]);
    let mut proxy = Target::role("agentbench", &["proxy", &engine.addr.to_string()]);
    let (addr, clock) = (proxy.addr, Clock::start());
    let done = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..sessions)
        .map(|session| tokio::spawn(talk(session, sessions, turns, addr, clock, Arc::clone(&done))))
        .collect();
    let total = sessions * turns;
    println!("{:>10} {:>10} {:>12} {:>14}", "requests", "RSS MB", "CPU ms each", "observer ms");
    let mut samples = Vec::new();
    for tenth in 1..=10 {
        while done.load(Ordering::Relaxed) * 10 < total * tenth {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let requests = done.load(Ordering::Relaxed);
        let sample = (proxy.memory_bytes("VmRSS:") as f64 / 1e6, proxy.cpu_seconds() * 1e3);
        let observer_ms = proxy.thread_seconds("observe") * 1e3;
        let each = requests as f64;
        let (rss, cpu_ms) = (sample.0, sample.1 / each);
        println!("{requests:>10} {rss:>10.0} {cpu_ms:>12.2} {:>14.2}", observer_ms / each);
        samples.push(sample);
    }
    for task in tasks {
        task.await.unwrap();
    }
    let peak = proxy.memory_bytes("VmHWM:") as f64 / 1e6;
    proxy.end_proxy();
    engine.process.kill().unwrap();
    engine.process.wait().unwrap();
    // The first requests open the sessions: what is known of them is built up, and every unit is new.
    let (half, last) = (samples[4], samples[9]);
    let each = (last.1 - half.1) / (total as f64 * 0.5);
    println!(
        "a recorded turn of {PROMPT_BYTES} bytes: {each:.2} ms of processor time, goal {GOAL_MS}"
    );
    let growth = last.0 / half.0;
    println!(
        "memory: {growth:.2} of what it was after half of the requests, goal {GOAL_GROWTH}; peak {peak:.0} MB"
    );
}

/// One session from its first request to its last.
async fn talk(
    session: usize,
    sessions: usize,
    turns: usize,
    addr: std::net::SocketAddr,
    clock: Clock,
    done: Arc<AtomicUsize>,
) {
    let query = format!("events={EVENTS}&pace_ms={PACE_MS}");
    // Spread evenly, so that as much is asked for at any time.
    let offset_ms = PERIOD_MS * session / sessions;
    let mut stream = connect(addr).await;
    for turn in 0..turns {
        let due_ns = clock.anchor_ns() + ((PERIOD_MS * turn + offset_ms) as i64) * 1_000_000;
        tokio::time::sleep_until(clock.instant_at(due_ns)).await;
        let request = posted(Api::Messages, &query, &body(session, turn));
        ask(&mut stream, &request, EVENTS, clock).await;
        done.fetch_add(1, Ordering::Relaxed);
    }
}

/// The prompt of a turn: system and tools that all sessions share, and messages of this session alone.
fn body(session: usize, turn: usize) -> String {
    let mut body = String::with_capacity(PROMPT_BYTES + 50_000);
    let text = |from: usize, bytes: usize| {
        let start = from * 977 % (SOURCE.len() - bytes);
        serde_json::Value::from(SOURCE.get(start..start + bytes).unwrap_or(&SOURCE[..bytes]))
            .to_string()
    };
    let _ = write!(
        body,
        r#"{{"model":"bench","max_tokens":64,"stream":true,"system":[{{"type":"text","text":{}}}],"tools":["#,
        text(0, 15_000)
    );
    for tool in 0..15 {
        let comma = if tool > 0 { "," } else { "" };
        let _ = write!(
            body,
            r#"{comma}{{"name":"tool_{tool}","description":{},"input_schema":{{"type":"object"}}}}"#,
            text(tool, 1000)
        );
    }
    let _ = write!(
        body,
        r#"],"metadata":{{"user_id":"user_x_account_y_session_{session}"}},"messages":[{{"role":"user","content":"task of session {session}"}}"#
    );
    let mut pair = 0;
    let grown = MESSAGE_BYTES * turn;
    while body.len() < PROMPT_BYTES - MESSAGE_BYTES * TURNS + grown {
        let _ = write!(
            body,
            r#",{{"role":"assistant","content":[{{"type":"tool_use","id":"t{session}-{pair}","name":"tool_1","input":{{"path":"a{pair}"}}}}]}},{{"role":"user","content":[{{"type":"tool_result","tool_use_id":"t{session}-{pair}","content":{}}}]}}"#,
            text(session * 31 + pair * 7, MESSAGE_BYTES - 200)
        );
        pair += 1;
    }
    body.push_str("]}");
    body
}
