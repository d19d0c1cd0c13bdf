//! What recording costs: disk against the distinct text, memory against the number of turns, and the
//! time to read a large table back.
//!
//! `cargo bench --bench recording`. Each line of the table is a process of its own, so that its peak
//! of resident memory is its own. A session is 200 turns whose request bodies grow to 0.5 MB: system
//! prompt and tools first, then with every turn the reply and a tool result, sent through the real
//! request reader as capture does. The text is a walk over the tokens of this crate's own sources (each
//! next token is one that followed the present one there), so it has the statistics of code but no
//! long repeats; the table says what gzip makes of it. "Distinct text" counts every unit once and
//! nothing else: not the replies, which a run keeps as well.

#![allow(clippy::print_stdout)]

use std::collections::HashMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use agentbench::api::{Api, ParsedRequest, parse_request};
use agentbench::clock::Clock;
use agentbench::trace::record::{Table, TurnRow, UnitRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};
use serde_json::{Value, json};

const SOURCES: &[&str] = &[
    include_str!("../src/trace/record.rs"),
    include_str!("../src/trace/tables.rs"),
    include_str!("../src/trace/journal.rs"),
    include_str!("../src/trace/parquet_file.rs"),
    include_str!("../src/api/mod.rs"),
    include_str!("../src/api/request.rs"),
    include_str!("../src/api/template.rs"),
    include_str!("../src/clock.rs"),
    include_str!("../src/error.rs"),
];
const TURNS_PER_SESSION: usize = 200;
const RESULT_BYTES: usize = 2000;
const READ_ROWS: u32 = 300_000;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    match arguments.get(1).map(String::as_str) {
        Some("record") => record(arguments[2].parse().expect("sessions"), arguments[3].as_ref()),
        Some("read") => read(arguments[2].as_ref()),
        _ => table(),
    }
}

/// Starts each measurement as its own process and prints what they tell.
fn table() {
    println!(
        "{:<28} {:>8} {:>8} {:>6} {:>9} {:>6} {:>6} {:>13} {:>13} {:>8}",
        "recording",
        "text MB",
        "disk MB",
        "ratio",
        "journals",
        "ratio",
        "gzip",
        "RSS+ running",
        "RSS+ closing",
        "close s"
    );
    for sessions in [1, 10] {
        measure(&["record", &sessions.to_string()]);
    }
    measure(&["read"]);
}

fn measure(arguments: &[&str]) {
    let parent = std::env::temp_dir().join(format!("agentbench-bench-{}", std::process::id()));
    let status = Command::new(std::env::current_exe().expect("own path"))
        .args(arguments)
        .arg(&parent)
        .status()
        .expect("a process of its own");
    std::fs::remove_dir_all(&parent).expect("the run is removed");
    assert!(status.success());
}

fn record(sessions: usize, dir: &Path) {
    let clock = Clock::start();
    let mut text = Text::new();
    let writer = RunWriter::create(dir, Manifest::new(RunKind::Capture, "bench", &clock))
        .expect("a run directory");
    // The first session's text, made and thrown away: what the bench itself holds is in the baseline.
    drop(Session::new(&mut text).body());
    let before = resident_bytes("VmRSS:");
    for _ in 0..sessions {
        let mut session = Session::new(&mut text);
        for turn in 0..TURNS_PER_SESSION {
            session.send_turn(&writer, turn);
            session.grow(&mut text);
        }
    }
    wait_for_journals(dir, sessions * TURNS_PER_SESSION);
    let running_bytes = resident_bytes("VmHWM:").saturating_sub(before);
    let journal_bytes = disk_bytes(dir);
    let close_from = clock.run_ms();
    writer.finish().expect("a closed run");
    let close_s = (clock.run_ms() - close_from) / 1e3;
    let closing_bytes = resident_bytes("VmHWM:").saturating_sub(before);
    let (distinct_bytes, gzip_bytes) = distinct_text(dir);
    let disk_bytes = disk_bytes(dir);
    let megabytes = |bytes: u64| bytes as f64 / 1e6;
    let ratio = |bytes: u64| bytes as f64 / distinct_bytes as f64;
    println!(
        "{:<28} {:>8.2} {:>8.2} {:>6.2} {:>9.2} {:>6.2} {:>6.2} {:>10.1} MB {:>10.1} MB {:>8.2}",
        format!("{} turns, {sessions} session(s)", sessions * TURNS_PER_SESSION),
        megabytes(distinct_bytes),
        megabytes(disk_bytes),
        ratio(disk_bytes),
        megabytes(journal_bytes),
        ratio(journal_bytes),
        ratio(gzip_bytes),
        megabytes(running_bytes),
        megabytes(closing_bytes),
        close_s,
    );
}

/// Reads a table of many small turns as structs, whole and projected.
fn read(dir: &Path) {
    let clock = Clock::start();
    let writer = RunWriter::create(dir, Manifest::new(RunKind::Capture, "bench", &clock))
        .expect("a run directory");
    let mut text = Text::new();
    let answer = text.take(1000);
    for index in 0..READ_ROWS {
        let mut row = turn_row(index as usize, vec![format!("{index:032x}"); 8], String::new());
        row.osl_text.clone_from(&answer);
        row.output_offsets_us = (0..50).map(|chunk| i64::from(index) + chunk * 20_000).collect();
        writer.sender().send_blocking(row);
    }
    writer.finish().expect("a closed run");
    let run = Run::open(dir).expect("the run opens");
    let timed = |columns: Option<&[&str]>| {
        let from = clock.run_ms();
        let rows = match columns {
            None => run.rows::<TurnRow>(),
            Some(columns) => run.rows_of_columns::<TurnRow>(columns),
        };
        let count = rows.expect("rows").flatten().count();
        assert_eq!(count, READ_ROWS as usize);
        (clock.run_ms() - from) / 1e3
    };
    let whole_s = timed(None);
    let some_s = timed(Some(&["session_id", "turn", "isl", "osl", "e2e_ms"]));
    println!(
        "{READ_ROWS} turns as structs: all columns {whole_s:.2} s, five columns {some_s:.2} s"
    );
}

/// Text with the statistics of this crate's sources.
struct Text {
    tokens: Vec<&'static str>,
    followers: HashMap<&'static str, Vec<usize>>,
    place: usize,
    random: StdRng,
}

impl Text {
    fn new() -> Self {
        let tokens: Vec<&str> =
            SOURCES.iter().flat_map(|source| source.split_inclusive(' ')).collect();
        let mut followers: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, pair) in tokens.windows(2).enumerate() {
            followers.entry(pair[0]).or_default().push(index + 1);
        }
        Self { tokens, followers, place: 0, random: StdRng::seed_from_u64(7) }
    }

    fn take(&mut self, bytes: usize) -> String {
        let mut text = String::with_capacity(bytes + 100);
        while text.len() < bytes {
            let token = self.tokens[self.place];
            text.push_str(token);
            self.place = match self.followers.get(token) {
                Some(places) => places[self.random.random_range(0..places.len())],
                None => 0,
            };
        }
        text
    }
}

/// One agent's conversation.
struct Session {
    system: String,
    tools: Vec<Value>,
    messages: Vec<Value>,
    shared_units: usize,
}

impl Session {
    fn new(text: &mut Text) -> Self {
        let tools = (0..15)
            .map(|tool| {
                json!({
                    "name": format!("tool_{tool}"),
                    "description": text.take(1000),
                    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
                })
            })
            .collect();
        let messages = vec![json!({"role": "user", "content": text.take(500)})];
        Self { system: text.take(15_000), tools, messages, shared_units: 0 }
    }

    fn body(&self) -> Vec<u8> {
        serde_json::to_vec(&json!({
            "model": "bench",
            "max_tokens": 4096,
            "stream": true,
            "system": [{"type": "text", "text": self.system}],
            "tools": self.tools,
            "messages": self.messages,
        }))
        .expect("a body")
    }

    fn grow(&mut self, text: &mut Text) {
        let id = format!("call_{}", self.messages.len());
        let call = json!({"type": "tool_use", "id": id, "name": "tool_0",
            "input": {"path": text.take(80)}});
        self.messages.push(json!({"role": "assistant", "content": [
            {"type": "text", "text": text.take(150)}, call]}));
        self.messages.push(json!({"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": id, "content": text.take(RESULT_BYTES)}]}));
    }

    fn send_turn(&mut self, writer: &RunWriter, turn: usize) {
        let body = self.body();
        let parsed = parse_request(Api::Messages, &body).expect("a request");
        for unit in &parsed.units[self.shared_units..] {
            writer.sender().send_blocking(UnitRow::from(unit));
        }
        writer.sender().send_blocking(self.turn_row(turn, parsed));
    }

    fn turn_row(&mut self, turn: usize, parsed: ParsedRequest<'_>) -> TurnRow {
        let new = &parsed.units[self.shared_units..];
        let new_text: Vec<&str> = new.iter().map(|unit| &*unit.text).collect();
        let hashes = parsed.units.iter().map(|unit| unit.hash.hex()).collect();
        let row = TurnRow {
            params: parsed.params,
            n_messages: parsed.n_messages,
            n_tools: parsed.n_tools,
            n_shared_units: self.shared_units as u32,
            isl_new_text: new_text.join("\n"),
            // The reply before this request stands for the one after it: the sizes are the same.
            osl_text: self.messages[self.messages.len().saturating_sub(2)].to_string(),
            reply_blocks: self.messages[self.messages.len().saturating_sub(2)].to_string(),
            ..turn_row(turn, hashes, parsed.template)
        };
        self.shared_units = parsed.units.len();
        row
    }
}

fn turn_row(turn: usize, unit_hashes: Vec<String>, body_template: String) -> TurnRow {
    let start = 1.7e9 + turn as f64 * 3.217;
    TurnRow {
        run_id: "bench".to_owned(),
        session_id: "session".to_owned(),
        thread_id: "thread".to_owned(),
        turn: turn as u32,
        request_id: format!("req-{turn}"),
        api: "messages".to_owned(),
        path: "/v1/messages?beta=true".to_owned(),
        unit_hashes,
        body_template,
        request_time: start,
        response_end_time: Some(start + 2.1),
        output_offsets_us: (0..60).map(|chunk| 400_000 + chunk * 20_137).collect(),
        isl: Some(turn as u64 * 600),
        osl: Some(80),
        ..TurnRow::default()
    }
}

fn wait_for_journals(dir: &Path, turns: usize) {
    while Run::open(dir).expect("an open run").row_count(Table::Turns) < turns as u64 {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn distinct_text(dir: &Path) -> (u64, u64) {
    let run = Run::open(dir).expect("the run opens");
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    let mut bytes = 0;
    for unit in run.rows::<UnitRow>().expect("units") {
        let unit = unit.expect("a unit");
        bytes += unit.n_bytes;
        std::io::Write::write_all(&mut gzip, unit.text.as_bytes()).expect("gzip");
    }
    (bytes, gzip.finish().expect("gzip").len() as u64)
}

fn disk_bytes(dir: &Path) -> u64 {
    std::fs::read_dir(dir)
        .expect("the run directory")
        .map(|entry| entry.and_then(|entry| entry.metadata()).expect("a file").len())
        .sum()
}

/// A figure of this process from the kernel.
fn resident_bytes(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with(field)).expect(field);
    let kilobytes: u64 = line.split_whitespace().nth(1).and_then(|n| n.parse().ok()).expect("kB");
    kilobytes * 1024
}
