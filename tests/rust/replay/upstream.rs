//! An engine made of a script: it answers each streamed request with the steps that a function gives,
//! and keeps what it was asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// One step of an answer.
#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Waits.
    Wait(u64),
    /// Sends bytes in one piece.
    Send(String),
    /// Drops the connection in the middle of the body.
    Reset,
    /// An answer that is no stream, instead of all other steps.
    Status(u16, &'static str),
    /// The same with header lines of its own, each with its line end.
    StatusWith(u16, &'static str),
    /// Drops the connection instead of an answer.
    Drop,
    /// Gives no answer, not even its head, until the client goes away.
    Silence,
    /// Never ends: waits until the client goes away.
    Hang,
}

/// One streamed request as it arrived.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    pub(super) path: String,
    pub(super) head: String,
    pub(super) body: Value,
}

type Answers = dyn Fn(&Value) -> Vec<Step> + Send + Sync;

pub(super) struct Upstream {
    pub(super) addr: SocketAddr,
    asked: Arc<Mutex<Vec<Asked>>>,
    task: tokio::task::JoinHandle<()>,
}

/// What the engine is like, beside its answers.
#[derive(Clone, Copy)]
pub(super) struct Manners {
    pub(super) messages: bool,
    pub(super) chat: bool,
    pub(super) completions: bool,
    /// Output lengths are pinned on this path.
    pub(super) pins: fn(&str) -> bool,
}

impl Default for Manners {
    fn default() -> Self {
        Self { messages: true, chat: true, completions: false, pins: |_| true }
    }
}

impl Upstream {
    pub(super) async fn start(
        manners: Manners,
        answers: impl Fn(&Value) -> Vec<Step> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let asked = Arc::new(Mutex::new(Vec::new()));
        let answers: Arc<Answers> = Arc::new(answers);
        let task = tokio::spawn({
            let asked = Arc::clone(&asked);
            async move {
                while let Ok((stream, _)) = listener.accept().await {
                    let (asked, answers) = (Arc::clone(&asked), Arc::clone(&answers));
                    tokio::spawn(async move {
                        let _ = serve(stream, manners, &asked, &*answers).await;
                    });
                }
            }
        });
        Self { addr, asked, task }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// The recorded requests as they arrived, without what is asked of the engine before a run.
    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(
    mut stream: TcpStream,
    manners: Manners,
    asked: &Mutex<Vec<Asked>>,
    answers: &Answers,
) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    while let Some((head, body)) = read_request(&mut stream, &mut buffer).await? {
        let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        let text = body["messages"].to_string();
        // What a replay asks before it runs is told by its words, which no recording of ours uses.
        let before_run = text.contains("one word") || text.contains(r#""Hi""#);
        if body["stream"] != json!(true) || before_run {
            stream.write_all(plain(&path, &body, manners).as_bytes()).await?;
            continue;
        }
        let steps = answers(&body);
        asked.lock().unwrap().push(Asked { path, head, body });
        if !answer(&mut stream, &steps).await? {
            return Ok(());
        }
    }
    Ok(())
}

async fn read_request(
    stream: &mut TcpStream,
    buffer: &mut Vec<u8>,
) -> std::io::Result<Option<(String, Vec<u8>)>> {
    let mut piece = [0; 8192];
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
        match stream.read(&mut piece).await? {
            0 => return Ok(None),
            n => buffer.extend_from_slice(&piece[..n]),
        }
    }
}

async fn answer(stream: &mut TcpStream, steps: &[Step]) -> std::io::Result<bool> {
    if let Some(Step::Status(status, body)) = steps.first() {
        let length = body.len();
        let head = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n{body}");
        stream.write_all(head.as_bytes()).await?;
        return Ok(true);
    }
    match steps.first() {
        Some(Step::StatusWith(status, headers)) => {
            let head = format!("HTTP/1.1 {status} X\r\n{headers}content-length: 0\r\n\r\n");
            stream.write_all(head.as_bytes()).await?;
            return Ok(true);
        }
        Some(Step::Drop) => return Ok(false),
        Some(Step::Silence) => return gone(stream).await,
        _ => {}
    }
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\
                transfer-encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).await?;
    for step in steps {
        match step {
            Step::Wait(ms) => tokio::time::sleep(Duration::from_millis(*ms)).await,
            Step::Send(text) => {
                let chunk = format!("{:x}\r\n{text}\r\n", text.len());
                stream.write_all(chunk.as_bytes()).await?;
            }
            Step::Reset => return Ok(false),
            Step::Hang => return gone(stream).await,
            Step::Status(..) | Step::StatusWith(..) | Step::Drop | Step::Silence => {
                unreachable!("what is no stream comes first and alone")
            }
        }
    }
    stream.write_all(b"0\r\n\r\n").await?;
    Ok(true)
}

/// Waits until the client goes away.
async fn gone(stream: &mut TcpStream) -> std::io::Result<bool> {
    let mut byte = [0];
    let _ = stream.read(&mut byte).await?;
    Ok(false)
}

/// What an engine answers without a stream: its description, and the probes before a run.
fn plain(path: &str, body: &Value, manners: Manners) -> String {
    let pinned = body["ignore_eos"] == json!(true) && (manners.pins)(path);
    let tokens = if pinned { body["min_tokens"].as_u64().unwrap() } else { 3 };
    let mut paths = serde_json::Map::new();
    for (offered, path) in [
        (manners.messages, "/v1/messages"),
        (manners.chat, "/v1/chat/completions"),
        (manners.completions, "/v1/completions"),
    ] {
        if offered {
            paths.insert(path.to_owned(), json!({}));
        }
    }
    let stream = body["stream"] == json!(true);
    let answer = match path {
        "/health" => String::new(),
        "/openapi.json" => json!({"paths": paths}).to_string(),
        "/v1/models" => json!({"data": [{"id": "scripted", "owned_by": "tests"}]}).to_string(),
        "/v1/messages" => {
            json!({"content": [], "usage": {"input_tokens": 5, "output_tokens": tokens}})
                .to_string()
        }
        "/v1/chat/completions" | "/v1/completions" if !stream => json!({"choices": [],
            "usage": {"prompt_tokens": 5, "completion_tokens": tokens}})
        .to_string(),
        "/v1/chat/completions" => chat_text("a", Some(1)) + "data: [DONE]\n\n",
        _ => return "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_owned(),
    };
    let kind = if stream { "text/event-stream" } else { "application/json" };
    let length = answer.len();
    format!("HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {length}\r\n\r\n{answer}")
}

/// A chat event with text, and the running usage where it is given.
pub(super) fn chat_text(text: &str, tokens: Option<u64>) -> String {
    chat_delta(&json!({"content": text}), tokens)
}

/// A chat event.
pub(super) fn chat_delta(delta: &Value, tokens: Option<u64>) -> String {
    let mut event = json!({"object": "chat.completion.chunk",
        "choices": [{"index": 0, "delta": delta, "finish_reason": null}]});
    if let Some(tokens) = tokens {
        event["usage"] = usage(tokens);
    }
    format!("data: {event}\n\n")
}

/// The last events of a chat stream: the reason, usage alone, the mark.
pub(super) fn chat_end(tokens: u64) -> String {
    let reason = json!({"choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]});
    let usage = json!({"choices": [], "usage": usage(tokens)});
    format!("data: {reason}\n\ndata: {usage}\n\ndata: [DONE]\n\n")
}

fn usage(tokens: u64) -> Value {
    json!({"prompt_tokens": 100, "completion_tokens": tokens,
        "total_tokens": 100 + tokens, "prompt_tokens_details": {"cached_tokens": 64}})
}

/// A whole Messages stream of as many chunks of one token each, with a wait before each.
pub(super) fn messages_stream(chunks: u64, wait_ms: u64) -> Vec<Step> {
    let event = |name: &str, data: &Value| Step::Send(format!("event: {name}\ndata: {data}\n\n"));
    let mut steps = vec![
        event(
            "message_start",
            &json!({"type": "message_start", "message": {"id": "m", "type": "message",
                "role": "assistant", "content": [], "model": "scripted",
                "usage": {"input_tokens": 100, "output_tokens": 0}}}),
        ),
        event(
            "content_block_start",
            &json!({"type": "content_block_start", "index": 0,
                "content_block": {"type": "text", "text": ""}}),
        ),
    ];
    for _ in 0..chunks {
        steps.push(Step::Wait(wait_ms));
        steps.push(event(
            "content_block_delta",
            &json!({"type": "content_block_delta", "index": 0,
                "delta": {"type": "text_delta", "text": "x"}}),
        ));
    }
    steps.push(event(
        "message_delta",
        &json!({"type": "message_delta", "delta": {"stop_reason": "max_tokens"},
            "usage": {"input_tokens": 100, "output_tokens": chunks}}),
    ));
    steps.push(event("message_stop", &json!({"type": "message_stop"})));
    steps
}
