//! What the client of the bench says and reads: requests of every API, heads, and stamped events.

use std::net::SocketAddr;

use agentbench::api::Api;
use agentbench::clock::Clock;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// As long as a real agent's first request.
#[allow(dead_code)] // not every bench asks so
const REQUEST_BYTES: usize = 49 * 1024;

/// When the parts of one response came.
#[derive(Default)]
pub(super) struct Times {
    /// From the request's last byte written to the first of the response's body.
    pub(super) first_byte_ns: i64,
    /// From the engine's writing of each event to the read that brought it.
    pub(super) event_ns: Vec<i64>,
}

pub(super) async fn connect(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).await.unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

#[allow(dead_code)] // not every bench asks so
/// A request of the API whose turn it is; no two clients or turns send the same prompt.
pub(super) fn request(client: usize, turn: usize, query: &str) -> Vec<u8> {
    let api = Api::ALL[client % Api::ALL.len()];
    let text = format!("client {client} turn {turn} {}", "x".repeat(REQUEST_BYTES));
    let prompt = match api {
        Api::Messages | Api::Chat => {
            format!(r#""messages":[{{"role":"user","content":"{text}"}}]"#)
        }
        Api::Completions => format!(r#""prompt":"{text}""#),
        Api::Responses => format!(r#""input":"{text}""#),
    };
    let body = format!(r#"{{"model":"tiny","stream":true,"max_tokens":64,{prompt}}}"#);
    posted(api, query, &body)
}

/// A body as a request.
pub(super) fn posted(api: Api, query: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {}?{query} HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\nUser-Agent: bench/1\r\n\
         Content-Length: {}\r\n\r\n{body}",
        api.path(),
        body.len()
    )
    .into_bytes()
}

/// Sends one request and reads its response to the end.
pub(super) async fn ask(
    stream: &mut TcpStream,
    request: &[u8],
    events: usize,
    clock: Clock,
) -> Times {
    let mut times = Times::default();
    let mut unread = Vec::new();
    stream.write_all(request).await.unwrap();
    let sent_ns = clock.now_ns();
    read_head(stream, &mut unread).await.unwrap();
    if unread.is_empty() {
        stream.read_buf(&mut unread).await.unwrap();
    }
    let mut read_ns = clock.now_ns();
    times.first_byte_ns = read_ns - sent_ns;
    let (mut body, mut left, mut seen) = (Vec::new(), 0, 0);
    loop {
        let has_ended = dechunk(&mut unread, &mut left, &mut body);
        while let Some(end) = body[seen..].windows(2).position(|pair| pair == b"\n\n") {
            let event = &body[seen..seen + end];
            let stamp = event.split(|byte| *byte == b'\n').find_map(stamp_of);
            times.event_ns.extend(stamp.map(|stamp_ns| read_ns - stamp_ns));
            seen += end + 2;
        }
        if has_ended {
            break;
        }
        body.drain(..seen);
        seen = 0;
        assert!(stream.read_buf(&mut unread).await.unwrap() > 0, "cut");
        read_ns = clock.now_ns();
    }
    assert_eq!(times.event_ns.len(), events, "events");
    times
}

/// Moves the data of chunks to `body`: whoever forwards may cut them anew, also within an event. `left` is what the
/// current chunk still has, its line's end included. True once the last chunk is there whole.
fn dechunk(unread: &mut Vec<u8>, left: &mut usize, body: &mut Vec<u8>) -> bool {
    let mut at = 0;
    let has_ended = loop {
        let taken = (*left).min(unread.len() - at);
        let data = left.saturating_sub(2).min(taken);
        body.extend_from_slice(&unread[at..at + data]);
        (at, *left) = (at + taken, *left - taken);
        let line = unread[at..].windows(2).position(|pair| pair == b"\r\n");
        let (0, Some(line)) = (*left, line) else { break false };
        let digits = std::str::from_utf8(&unread[at..at + line]).unwrap();
        match usize::from_str_radix(digits, 16).unwrap() {
            0 => break unread.len() >= at + line + 4,
            size => (at, *left) = (at + line + 2, size + 2),
        }
    };
    unread.drain(..at);
    has_ended
}

fn stamp_of(line: &[u8]) -> Option<i64> {
    std::str::from_utf8(line.strip_prefix(b":")?).ok()?.trim().parse().ok()
}

/// A head up to its empty line; what came after it stays in `unread`.
pub(super) async fn read_head(stream: &mut TcpStream, unread: &mut Vec<u8>) -> Option<String> {
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

pub(super) fn content_length(head: &str) -> usize {
    head.lines()
        .find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
        })
        .unwrap_or(0)
}
