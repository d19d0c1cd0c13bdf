//! What the replay's client adds: 500 streams with 20 ms between chunks, read by a whole replay (plan,
//! agents, rows on disk) and by a bare tokio client that does nothing but read.
//!
//! The scripted engine is a process of its own: `cargo bench --bench replay`. Both clients send the
//! same bytes to it in turns, each stream on a connection of its own, started 4 ms apart.
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use agentbench::api::{Api, parse_request};
use agentbench::clock::{Clock, elapsed_ms};
use agentbench::replay::statistics::Statistic;
use agentbench::replay::{
    ApiChoice, CacheSharing, ContentMode, HumanTime, OnError, OutputLengthRule, Replay,
    ReplayConfig, Retries, Timeouts, ToolTime,
};
use agentbench::shutdown::Shutdown;
use agentbench::trace::record::{RequestRow, RequestStatus, TurnRow, UnitRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;

const STREAMS: u32 = 500;
const CHUNKS: usize = 300;
const CHUNK_GAP: Duration = Duration::from_millis(20);
/// Request to first chunk.
const PREFILL: Duration = Duration::from_millis(200);
/// Time over which the streams are started.
const RAMP: Duration = Duration::from_secs(2);
const PROMPT_BYTES: usize = 20_000;
const ROUNDS: usize = 5;

/// What one client saw in one round.
#[derive(Debug, Clone, Copy)]
struct Seen {
    chunks_per_s: f64,
    ttft_p50_ms: f64,
    ttft_p99_ms: f64,
    gap_p99_ms: f64,
}

impl Seen {
    fn of(chunks: usize, span_ms: f64, ttft_ms: Vec<f64>, gap_ms: Vec<f64>) -> Self {
        let ttft = Statistic::of(ttft_ms).unwrap();
        let gap = Statistic::of(gap_ms).unwrap();
        Self {
            chunks_per_s: chunks as f64 / span_ms * 1e3,
            ttft_p50_ms: ttft.p50,
            ttft_p99_ms: ttft.p99,
            gap_p99_ms: gap.p99,
        }
    }
}

/// The engine's process; it ends when its standard input closes.
struct Engine(Child);

impl Drop for Engine {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    if std::env::args().nth(1).as_deref() == Some("upstream") {
        std::thread::spawn(|| {
            let _ = std::io::stdin().read_to_end(&mut Vec::new());
            std::process::exit(0);
        });
        return runtime.block_on(upstream());
    }
    let mut child = Command::new(std::env::current_exe().unwrap())
        .arg("upstream")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let engine = Engine(child);
    let addr: SocketAddr = line.trim().parse().unwrap();
    let dir = tempfile::tempdir().unwrap();
    write_recording(&dir.path().join("recorded"));

    let mut bare = Vec::new();
    let mut ours = Vec::new();
    for round in 0..ROUNDS {
        bare.push(runtime.block_on(bare_client(addr)));
        ours.push(runtime.block_on(replay(addr, dir.path(), round)));
    }
    drop(engine);
    print(&bare, &ours);
}

fn print(bare: &[Seen], ours: &[Seen]) {
    println!(
        "{STREAMS} streams, {CHUNKS} chunks each, {} ms apart; median of {ROUNDS} rounds (range)\n",
        CHUNK_GAP.as_millis()
    );
    println!("{:<12}{:>30}{:>30}{:>12}", "", "bare tokio client", "replay", "");
    let row = |name: &str, field: fn(&Seen) -> f64, compare: &dyn Fn(f64, f64) -> String| {
        let column = |seen: &[Seen]| {
            let mut values: Vec<f64> = seen.iter().map(field).collect();
            values.sort_by(f64::total_cmp);
            let (low, middle, high) =
                (values[0], values[values.len() / 2], values[values.len() - 1]);
            (middle, format!("{middle:.1} ({low:.1}-{high:.1})"))
        };
        let ((bare, bare_text), (ours, ours_text)) = (column(bare), column(ours));
        println!("{name:<12}{bare_text:>30}{ours_text:>30}{:>12}", compare(bare, ours));
    };
    let share = |bare: f64, ours: f64| format!("{:.1} %", ours / bare * 100.0);
    let more = |bare: f64, ours: f64| format!("{:+.2} ms", ours - bare);
    row("chunks/s", |seen| seen.chunks_per_s, &share);
    row("TTFT p50 ms", |seen| seen.ttft_p50_ms, &more);
    row("TTFT p99 ms", |seen| seen.ttft_p99_ms, &more);
    row("gap p99 ms", |seen| seen.gap_p99_ms, &more);
}

fn body() -> String {
    let text = "The quick brown fox reads a file. ".repeat(PROMPT_BYTES / 34);
    json!({"model": "scripted", "stream": true, "messages": [{"role": "user", "content": text}]})
        .to_string()
}

/// A session for each stream, of one request.
fn write_recording(dir: &Path) {
    let manifest = Manifest::new(RunKind::Capture, "recorded", &Clock::start());
    let writer = RunWriter::create(dir, manifest).unwrap();
    let rows = writer.sender();
    let parsed = parse_request(Api::Chat, body().as_bytes()).unwrap();
    for unit in &parsed.units {
        rows.send_blocking(UnitRow {
            hash: unit.hash.hex(),
            kind: unit.kind.as_str().into(),
            role: unit.role.clone(),
            text: unit.text.clone(),
            n_bytes: unit.text.len() as u64,
        });
    }
    for session in 0..STREAMS {
        rows.send_blocking(TurnRow {
            session_id: format!("session-{session:04}"),
            thread_id: "main".into(),
            request_id: format!("request-{session:04}"),
            api: "chat".into(),
            request_time: f64::from(session),
            response_end_time: Some(f64::from(session) + 1.0),
            unit_hashes: parsed.units.iter().map(|unit| unit.hash.hex()).collect(),
            body_template: parsed.template.clone(),
            osl: Some(CHUNKS as u64),
            ..TurnRow::default()
        });
    }
    writer.finish().unwrap();
}

async fn replay(addr: SocketAddr, dir: &Path, round: usize) -> Seen {
    let clock = Clock::start();
    let out = dir.join(format!("replay-{round}"));
    let writer = RunWriter::create(&out, Manifest::new(RunKind::Replay, "replay", &clock)).unwrap();
    let config = ReplayConfig {
        url: format!("http://{addr}"),
        api_key: None,
        model: None,
        agents: STREAMS,
        open_loop: None,
        seed: None,
        duration: None,
        trajectories: None,
        ramp: Some(RAMP),
        on_error: OnError::StopTrajectory,
        max_error_rate_pct: None,
        retries: Retries::default(),
        timeouts: Timeouts::default(),
        include_utility: true,
        api: ApiChoice::Recorded,
        content: ContentMode::Recorded,
        tool_time: ToolTime::Recorded,
        human_time: HumanTime::Recorded,
        output_length: OutputLengthRule::Recorded,
        // No body is scanned for a salt: what is measured is what the client costs at its least.
        cache_sharing: CacheSharing::Recorded,
        salt: None,
        strict: false,
    };
    let run = Arc::new(Run::open(&dir.join("recorded")).unwrap());
    let shutdown = Shutdown::new(Duration::from_secs(1));
    let handle = Replay::start(run, config, writer.sender(), clock, shutdown).await.unwrap();
    let outcome = handle.wait().await.unwrap();
    writer.finish().unwrap();
    assert_eq!((outcome.progress.requests_failed, outcome.rows_lost), (0, 0));

    let rows: Vec<RequestRow> =
        Run::open(&out).unwrap().rows().unwrap().map(Result::unwrap).collect();
    assert_eq!(rows.len(), STREAMS as usize);
    assert!(rows.iter().all(|row| row.status == RequestStatus::Ok));
    let chunks: usize = rows.iter().map(|row| row.chunk_gap_ms.len() + 1).sum();
    assert_eq!(chunks, STREAMS as usize * CHUNKS);
    let start_ms = rows.iter().map(|row| row.sent_at_ms).fold(f64::MAX, f64::min);
    let end_ms = rows.iter().map(|row| row.sent_at_ms + row.e2e_ms.unwrap()).fold(0.0, f64::max);
    let ttft_ms = rows.iter().filter_map(|row| row.ttft_ms).collect();
    let gap_ms = rows.iter().flat_map(|row| row.chunk_gap_ms.iter().copied()).collect();
    Seen::of(chunks, end_ms - start_ms, ttft_ms, gap_ms)
}

/// The same streams by a client that only reads and counts events.
async fn bare_client(addr: SocketAddr) -> Seen {
    let clock = Clock::start();
    let body = body();
    let request: Arc<str> = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {addr}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into();
    let start_ns = clock.now_ns();
    let mut streams = tokio::task::JoinSet::new();
    for index in 0..STREAMS {
        let request = Arc::clone(&request);
        let due_ns = start_ns + RAMP.as_nanos() as i64 * i64::from(index) / i64::from(STREAMS);
        streams.spawn(async move {
            tokio::time::sleep_until(clock.instant_at(due_ns)).await;
            let sent_ns = clock.now_ns();
            let stamps_ns = read_stream(addr, &request, clock).await.unwrap();
            (sent_ns, stamps_ns, clock.now_ns())
        });
    }
    let streams = streams.join_all().await;
    let chunks: usize = streams.iter().map(|(_, stamps, _)| stamps.len()).sum();
    assert_eq!(chunks, STREAMS as usize * CHUNKS);
    let first_ns = streams.iter().map(|(sent_ns, ..)| *sent_ns).min().unwrap();
    let last_ns = streams.iter().map(|(.., end_ns)| *end_ns).max().unwrap();
    let ttft_ms =
        streams.iter().map(|(sent_ns, stamps, _)| elapsed_ms(*sent_ns, stamps[0])).collect();
    let gap_ms = streams
        .iter()
        .flat_map(|(_, stamps, _)| stamps.windows(2).map(|pair| elapsed_ms(pair[0], pair[1])))
        .collect();
    Seen::of(chunks, elapsed_ms(first_ns, last_ns), ttft_ms, gap_ms)
}

/// Arrival of each event with text.
async fn read_stream(addr: SocketAddr, request: &str, clock: Clock) -> std::io::Result<Vec<i64>> {
    const TEXT: &[u8] = b"\"content\":\"x\"";
    const END: &[u8] = b"\r\n0\r\n\r\n";
    let mut stream = TcpStream::connect(addr).await?;
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes()).await?;
    let mut stamps_ns = Vec::with_capacity(CHUNKS);
    let mut buffer = vec![0; 16_384];
    loop {
        let n = stream.read(&mut buffer).await?;
        let now_ns = clock.now_ns();
        // Chunks are sent whole, so that none is cut on loopback; the counts are checked.
        let piece = &buffer[..n];
        let texts = piece.windows(TEXT.len()).filter(|window| *window == TEXT).count();
        stamps_ns.extend(std::iter::repeat_n(now_ns, texts));
        if n == 0 || piece.ends_with(END) {
            return Ok(stamps_ns);
        }
    }
}

/// The scripted engine.
async fn upstream() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        tokio::spawn(async move {
            let _ = serve(stream).await;
        });
    }
}

async fn serve(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Some((head, body)) = read_request(&mut stream, &mut buffer).await? {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let probe = body.len() < 2_000;
        if path != "/v1/chat/completions" || probe {
            stream.write_all(description(path, &body).as_bytes()).await?;
        } else {
            answer(&mut stream).await?;
        }
    }
    Ok(())
}

async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<(String, Vec<u8>)>> {
    loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
            let length = head
                .lines()
                .filter_map(|line| line.split_once(": "))
                .find(|(name, _)| name.eq_ignore_ascii_case("content-length"))
                .map_or(0, |(_, value)| value.parse().unwrap());
            if buffer.len() >= end + 4 + length {
                let body = buffer[end + 4..end + 4 + length].to_vec();
                buffer.drain(..end + 4 + length);
                return Ok(Some((head, body)));
            }
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
}

fn event(tokens: usize) -> String {
    let event = json!({"id": "chatcmpl-8f1d0c55a9", "object": "chat.completion.chunk",
        "created": 1_790_000_000, "model": "scripted",
        "choices": [{"index": 0, "delta": {"content": "x"}, "logprobs": null,
            "finish_reason": null}],
        "usage": {"prompt_tokens": 5_000, "total_tokens": 5_000 + tokens,
            "completion_tokens": tokens}});
    format!("data: {event}\n\n")
}

async fn answer(stream: &mut TcpStream) -> std::io::Result<()> {
    let start = Instant::from_std(std_now());
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    for index in 0..CHUNKS {
        tokio::time::sleep_until(start + PREFILL + CHUNK_GAP * index as u32).await;
        let event = event(index + 1);
        stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await?;
    }
    stream.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n").await
}

/// The engine keeps its own time: it stands for a program that is not ours.
#[allow(clippy::disallowed_methods)]
fn std_now() -> std::time::Instant {
    std::time::Instant::now()
}

/// What is asked of an engine before a run.
fn description(path: &str, body: &[u8]) -> String {
    let stream = body.windows(13).any(|window| window == b"\"stream\":true");
    let (kind, answer) = match path {
        "/health" => ("text/plain", String::new()),
        "/openapi.json" => {
            ("application/json", json!({"paths": {"/v1/chat/completions": {}}}).to_string())
        }
        "/v1/models" => ("application/json", json!({"data": [{"id": "scripted"}]}).to_string()),
        "/v1/chat/completions" if stream => ("text/event-stream", event(1) + "data: [DONE]\n\n"),
        "/v1/chat/completions" => {
            ("application/json", json!({"usage": {"completion_tokens": 24}}).to_string())
        }
        _ => return "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
    };
    let length = answer.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{answer}")
}
