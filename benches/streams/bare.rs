//! The bare client: sends the same bytes on the same connections and does nothing but read, count
//! events and stamp them.

use std::net::SocketAddr;
use std::sync::Arc;

use agentbench::clock::{Clock, elapsed_ms};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::{Script, Seen, ours};

pub(crate) async fn read_all(script: &Script, address: SocketAddr) -> Seen {
    let clock = Clock::start();
    let body = ours::prompt(script, 0).to_string();
    let request: Arc<str> = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into();
    let start_ns = clock.now_ns();
    let mut streams = tokio::task::JoinSet::new();
    for index in 0..script.streams {
        let request = Arc::clone(&request);
        let ramp_ns = script.ramp.as_nanos() as i64;
        let due_ns = start_ns + ramp_ns * i64::from(index) / i64::from(script.streams);
        let (requests, chunks) = (script.requests, script.chunks);
        streams.spawn(async move {
            tokio::time::sleep_until(clock.instant_at(due_ns)).await;
            let mut seen = Vec::new();
            let mut stream = None;
            for _ in 0..requests {
                let sent_ns = clock.now_ns();
                let stamps_ns =
                    read_stream(address, &mut stream, &request, chunks, clock).await.unwrap();
                seen.push((sent_ns, stamps_ns, clock.now_ns()));
            }
            seen
        });
    }
    let streams: Vec<_> = streams.join_all().await.into_iter().flatten().collect();
    let chunks: usize = streams.iter().map(|(_, stamps, _)| stamps.len()).sum();
    assert_eq!(chunks, script.total() as usize * script.chunks);
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
async fn read_stream(
    address: SocketAddr,
    connection: &mut Option<TcpStream>,
    request: &str,
    chunks: usize,
    clock: Clock,
) -> std::io::Result<Vec<i64>> {
    const TEXT: &[u8] = b"\"content\":\"x\"";
    const END: &[u8] = b"\r\n0\r\n\r\n";
    let stream = match connection {
        Some(stream) => stream,
        None => connection.insert(TcpStream::connect(address).await?),
    };
    stream.set_nodelay(true)?;
    stream.write_all(request.as_bytes()).await?;
    let mut stamps_ns = Vec::with_capacity(chunks);
    let mut buffer = vec![0; 16_384];
    // Bytes of the last piece that may hold the beginning of a text cut in two.
    let mut kept = 0;
    loop {
        let n = stream.read(&mut buffer[kept..]).await?;
        let now_ns = clock.now_ns();
        let piece = &buffer[..kept + n];
        let texts = memchr_count(piece, TEXT);
        stamps_ns.extend(std::iter::repeat_n(now_ns, texts));
        if n == 0 || piece.ends_with(END) {
            return Ok(stamps_ns);
        }
        let keep = (TEXT.len() - 1).min(piece.len());
        let from = piece.len() - keep;
        buffer.copy_within(from..from + keep, 0);
        kept = keep;
    }
}

/// How often `wanted`, which cannot overlap itself, is in `text`.
fn memchr_count(text: &[u8], wanted: &[u8]) -> usize {
    text.windows(wanted.len()).filter(|window| *window == wanted).count()
}
