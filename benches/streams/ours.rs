//! A whole replay of a recording made for it: plan, bodies built just in time, agents, rows on disk.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use agentbench::api::{Api, parse_request};
use agentbench::clock::Clock;
use agentbench::replay::{
    ApiChoice, CacheSharing, ContentMode, HumanTime, OnError, OutputLengthRule, Replay,
    ReplayConfig, Retries, Timeouts, ToolTime,
};
use agentbench::shutdown::Shutdown;
use agentbench::trace::record::{RequestRow, RequestStatus, TurnRow, UnitRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};
use serde_json::{Value, json};

use super::{Script, Seen};

/// Messages of long prompts; those of different sessions are drawn from so many.
const MESSAGE_BYTES: usize = 20_000;
const MESSAGES: usize = 1_000;

/// The request of one session.
pub(crate) fn prompt(script: &Script, session: usize) -> Value {
    let n = script.prompt_bytes.div_ceil(MESSAGE_BYTES);
    let bytes = script.prompt_bytes / n;
    let messages: Vec<Value> = (0..n)
        .map(|index| {
            let message = (session * 7 + index * 13) % MESSAGES;
            let sentence = format!("The quick brown fox reads file {message:03}. ");
            let text = sentence.repeat(bytes / sentence.len());
            json!({"role": if index % 2 == 0 { "user" } else { "assistant" }, "content": text})
        })
        .collect();
    json!({"model": "scripted", "stream": true, "messages": messages})
}

/// Records a session of one request for each request of the script.
pub(crate) fn write_recording(script: &Script, dir: &Path) {
    let manifest = Manifest::new(RunKind::Capture, "recorded", &Clock::start());
    let writer = RunWriter::create(dir, manifest).unwrap();
    let rows = writer.sender();
    let mut known = HashSet::new();
    for session in 0..script.total() as usize {
        let body = prompt(script, session).to_string();
        let parsed = parse_request(Api::Chat, body.as_bytes()).unwrap();
        let unit_hashes: Vec<String> = parsed.units.iter().map(|unit| unit.hash.hex()).collect();
        for unit in &parsed.units {
            if known.insert(unit.hash) {
                rows.send_blocking(UnitRow::from(unit));
            }
        }
        rows.send_blocking(TurnRow {
            session_id: format!("session-{session:05}"),
            thread_id: "main".into(),
            request_id: format!("request-{session:05}"),
            api: "chat".into(),
            request_time: session as f64,
            response_end_time: Some(session as f64 + 1.0),
            unit_hashes,
            body_template: parsed.template.clone(),
            osl: Some(script.chunks as u64),
            ..TurnRow::default()
        });
    }
    writer.finish().unwrap();
}

/// How the benches replay.
pub(crate) fn config(url: &str, agents: u32, ramp: Duration) -> ReplayConfig {
    ReplayConfig {
        url: url.to_owned(),
        api_key: None,
        model: None,
        agents,
        open_loop: None,
        seed: None,
        duration: None,
        trajectories: None,
        ramp: Some(ramp),
        on_error: OnError::StopTrajectory,
        max_error_rate_pct: None,
        retries: Retries::default(),
        timeouts: Timeouts::default(),
        include_utility: true,
        api: ApiChoice::Recorded,
        tool_time: ToolTime::Recorded,
        human_time: HumanTime::Recorded,
        content: ContentMode::Recorded,
        tokenizer: None,
        output_length: OutputLengthRule::Recorded,
        cache_sharing: CacheSharing::default(),
        salt: None,
        strict: false,
    }
}

/// Replays the recording below `dir` and reads what it saw from the rows on disk.
pub(crate) async fn replay(script: &Script, address: &str, dir: &Path) -> Seen {
    let clock = Clock::start();
    let out = dir.join("replay");
    let writer = RunWriter::create(&out, Manifest::new(RunKind::Replay, "replay", &clock)).unwrap();
    let config = config(&format!("http://{address}"), script.streams, script.ramp);
    let run = Arc::new(Run::open(&dir.join("recorded")).unwrap());
    let shutdown = Shutdown::new(Duration::from_secs(1));
    let handle = Replay::start(run, config, writer.sender(), clock, shutdown).await.unwrap();
    let outcome = handle.wait().await.unwrap();
    writer.finish().unwrap();
    assert_eq!((outcome.progress.requests_failed, outcome.rows_lost), (0, 0));

    let rows: Vec<RequestRow> =
        Run::open(&out).unwrap().rows().unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), script.total() as usize);
    assert!(rows.iter().all(|row| row.status == RequestStatus::Ok));
    let chunks: usize = rows.iter().map(|row| row.chunk_gap_ms.len() + 1).sum();
    assert_eq!(chunks, script.total() as usize * script.chunks);
    let start_ms = rows.iter().map(|row| row.sent_at_ms).fold(f64::MAX, f64::min);
    let end_ms = rows.iter().map(|row| row.sent_at_ms + row.e2e_ms.unwrap()).fold(0.0, f64::max);
    let ttft_ms = rows.iter().filter_map(|row| row.ttft_ms).collect();
    let gap_ms = rows.iter().flat_map(|row| row.chunk_gap_ms.iter().copied()).collect();
    let seen = Seen::of(chunks, end_ms - start_ms, ttft_ms, gap_ms);
    std::fs::remove_dir_all(&out).unwrap();
    seen
}
