//! What the replay's client adds: streams with 20 ms between chunks, read by a whole replay (plan,
//! bodies, agents, rows on disk) and by a bare tokio client that does nothing but read.
//!
//! `cargo bench --bench replay`. Two loads: 500 streams of short prompts, and 1,000 streams of prompts
//! of 131k tokens (0.5 MB bodies). The scripted engine and both clients are processes of their own;
//! the clients take turns on the same streams, each stream on a connection of its own. One load alone:
//! `cargo bench --bench replay -- long`.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "streams/mod.rs"]
mod streams;

use std::time::Duration;

use streams::{Engine, Script, Seen, load_average, measure, median, ours};

const SHORT: Script = Script {
    streams: 500,
    requests: 1,
    chunks: 300,
    gap: Duration::from_millis(20),
    prefill: Duration::from_millis(200),
    ramp: Duration::from_secs(2),
    prompt_bytes: 20_000,
};
const LONG: Script = Script {
    streams: 1_000,
    requests: 1,
    chunks: 1_000,
    gap: Duration::from_millis(20),
    prefill: Duration::from_millis(200),
    ramp: Duration::from_secs(10),
    prompt_bytes: 500_000,
};

fn main() {
    if streams::play_role() {
        return;
    }
    let arguments: Vec<String> = std::env::args().collect();
    let wanted = |load: &str| arguments.iter().any(|argument| argument == load);
    if !wanted("long") {
        compare("short prompts", &SHORT, 5);
    }
    if !wanted("short") {
        compare("prompts of 131k tokens (0.5 MB)", &LONG, 3);
    }
}

fn compare(name: &str, script: &Script, rounds: usize) {
    let dir = tempfile::tempdir().unwrap();
    ours::write_recording(script, &dir.path().join("recorded"));
    let engine = Engine::start(script);
    let (mut bare, mut ours) = (Vec::new(), Vec::new());
    let load = load_average();
    for _ in 0..rounds {
        bare.push(measure("bare", script, &[&engine.address]));
        ours.push(measure("ours", script, &[&engine.address, dir.path().to_str().unwrap()]));
    }
    println!(
        "\n{} streams, {name}, {} chunks each, {} ms apart; median of {rounds} rounds (range); \
         load before {load}, after {}\n",
        script.streams,
        script.chunks,
        script.gap.as_millis(),
        load_average()
    );
    print(&bare, &ours);
}

fn print(bare: &[Seen], ours: &[Seen]) {
    println!("{:<14}{:>30}{:>30}{:>12}", "", "bare tokio client", "replay", "");
    let row = |name: &str, field: fn(&Seen) -> f64, compare: &dyn Fn(f64, f64) -> String| {
        let (bare, bare_text) = median(bare.iter().map(field));
        let (ours, ours_text) = median(ours.iter().map(field));
        println!("{name:<14}{bare_text:>30}{ours_text:>30}{:>12}", compare(bare, ours));
    };
    let share = |bare: f64, ours: f64| format!("{:.1} %", ours / bare * 100.0);
    let more = |bare: f64, ours: f64| format!("{:+.2} ms", ours - bare);
    row("chunks/s", |seen| seen.chunks_per_s, &share);
    row("TTFT p50 ms", |seen| seen.ttft_p50_ms, &more);
    row("TTFT p99 ms", |seen| seen.ttft_p99_ms, &more);
    row("gap p99 ms", |seen| seen.gap_p99_ms, &more);
    row("CPU us/chunk", |seen| seen.cpu_us_per_chunk, &|bare, ours| {
        format!("{:.2} x", ours / bare)
    });
    row("peak RSS MB", |seen| seen.peak_rss_mb, &|bare, ours| format!("{:+.0} MB", ours - bare));
}
