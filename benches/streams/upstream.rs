//! The scripted engine: answers every prompt with the same number of chunks, each written by itself
//! when the script says so, and keeps what was true of its streams (`/truth`).

use std::sync::{Arc, Mutex};

use agentbench::clock::{Clock, elapsed_ms};
use agentbench::replay::statistics::Statistic;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::Script;

/// Shorter bodies are questions about the engine, not prompts.
const LONGEST_PROBE_BYTES: usize = 400;

/// What the engine knows of its streams.
#[derive(Debug, Default)]
struct Truth {
    first_ns: Option<i64>,
    last_ns: i64,
    chunks: usize,
    streams: usize,
    /// Whole request read to first chunk written.
    ttft_ms: Vec<f64>,
}

type Shared = Arc<Mutex<Truth>>;

pub(crate) async fn serve(script: Script) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    // Room for all clients at once: a connection that is refused comes again a second later.
    let listener = socket.listen(4096).unwrap();
    println!("{}", listener.local_addr().unwrap());
    let (truth, clock) = (Shared::default(), Clock::start());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let truth = Arc::clone(&truth);
        tokio::spawn(async move {
            let _ = serve_connection(stream, script, &truth, clock).await;
        });
    }
}

async fn serve_connection(
    mut stream: TcpStream,
    script: Script,
    truth: &Shared,
    clock: Clock,
) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = Vec::new();
    while let Some((head, body)) = read_request(&mut stream, &mut buffer).await? {
        let path = head.split(' ').nth(1).unwrap_or_default();
        let prompt = path.ends_with("/completions") && body.len() > LONGEST_PROBE_BYTES;
        if prompt {
            let chat = path.ends_with("/chat/completions");
            answer(&mut stream, script, chat, truth, clock).await?;
        } else if path == "/truth" {
            let told = tell(&std::mem::take(&mut *truth.lock().unwrap()));
            stream.write_all(whole("application/json", &told.to_string()).as_bytes()).await?;
        } else {
            stream.write_all(description(path, &body).as_bytes()).await?;
        }
    }
    Ok(())
}

/// The truth of the streams since it was last asked for.
fn tell(truth: &Truth) -> Value {
    let span_ms = truth.first_ns.map_or(f64::NAN, |first_ns| elapsed_ms(first_ns, truth.last_ns));
    let ttft = Statistic::of(truth.ttft_ms.clone());
    json!({
        "streams": truth.streams,
        "chunks_per_s": truth.chunks as f64 / span_ms * 1e3,
        "ttft_p50_ms": ttft.as_ref().map(|ttft| ttft.p50),
        "ttft_p99_ms": ttft.as_ref().map(|ttft| ttft.p99),
    })
}

async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let end = loop {
        if let Some(end) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break end;
        }
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8_lossy(&buffer[..end]).into_owned();
    let header = |wanted: &str| {
        let lines = head.lines().filter_map(|line| line.split_once(':'));
        let mut values = lines.filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        values.next().map(|(_, value)| value.trim().to_owned())
    };
    let length: usize = header("content-length").map_or(0, |value| value.parse().unwrap());
    buffer.reserve(length);
    while buffer.len() < end + 4 + length {
        if stream.read_buf(buffer).await? == 0 {
            return Ok(None);
        }
    }
    let body = buffer[end + 4..end + 4 + length].to_vec();
    buffer.drain(..end + 4 + length);
    Ok(Some((head, body)))
}

async fn answer(
    stream: &mut TcpStream,
    script: Script,
    chat: bool,
    truth: &Shared,
    clock: Clock,
) -> std::io::Result<()> {
    let start_ns = clock.now_ns();
    let after = |index: usize| {
        let offset = script.prefill + script.gap * index as u32;
        clock.instant_at(start_ns + offset.as_nanos() as i64)
    };
    truth.lock().unwrap().first_ns.get_or_insert(start_ns);
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    for index in 0..script.chunks {
        if index == 0 || !script.gap.is_zero() {
            tokio::time::sleep_until(after(index)).await;
        }
        if index == 0 {
            let first_ms = elapsed_ms(start_ns, clock.now_ns());
            truth.lock().unwrap().ttft_ms.push(first_ms);
        }
        let event = event(chat, index + 1, index + 1 == script.chunks);
        stream.write_all(format!("{:x}\r\n{event}\r\n", event.len()).as_bytes()).await?;
    }
    stream.write_all(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n").await?;
    let mut truth = truth.lock().unwrap();
    truth.last_ns = clock.now_ns();
    truth.chunks += script.chunks;
    truth.streams += 1;
    Ok(())
}

/// One token, as Chat Completions or Completions stream it.
fn event(chat: bool, tokens: usize, last: bool) -> String {
    let reason = if last { "\"length\"" } else { "null" };
    let (object, text) = if chat {
        ("chat.completion.chunk", "\"delta\":{\"content\":\"x\"}")
    } else {
        ("text_completion", "\"text\":\"x\"")
    };
    format!(
        "data: {{\"id\":\"cmpl-8f1d0c55a9\",\"object\":\"{object}\",\
         \"created\":1790000000,\"model\":\"scripted\",\"choices\":[{{\"index\":0,\
         {text},\"logprobs\":null,\"finish_reason\":{reason}}}],\
         \"usage\":{{\"prompt_tokens\":5000,\"total_tokens\":{},\"completion_tokens\":{tokens}}}}}\n\n",
        5000 + tokens
    )
}

/// What is asked of an engine before a run.
fn description(path: &str, body: &[u8]) -> String {
    let stream = body.windows(13).any(|window| window == b"\"stream\":true");
    match path {
        "/health" => whole("text/plain", ""),
        "/openapi.json" => {
            whole("application/json", &json!({"paths": {"/v1/chat/completions": {}}}).to_string())
        }
        "/v1/models" => whole(
            "application/json",
            &json!({"object": "list", "data": [{"id": "scripted", "object": "model"}]}).to_string(),
        ),
        "/v1/chat/completions" if stream => {
            whole("text/event-stream", &(event(true, 1, true) + "data: [DONE]\n\n"))
        }
        "/v1/chat/completions" => {
            whole("application/json", &json!({"usage": {"completion_tokens": 24}}).to_string())
        }
        _ => "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
    }
}

fn whole(kind: &str, answer: &str) -> String {
    let length = answer.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{answer}")
}
