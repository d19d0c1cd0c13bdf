//! Chunked responses: plain chunks pass as they stand, and whatever else may follow them goes on from there.

use std::time::Duration;

use agentbench::trace::record::Outcome;

use crate::wire::{Peer, Setup, must};

const HEAD: &str =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
const EVENTS: [&str; 3] = [
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"one \"}}]}\n\n",
    "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"two\"}}]}\n\n",
    "data: [DONE]\n\n",
];

/// The three events, each framed by `frame`.
fn framed(frame: impl Fn(&str) -> String) -> String {
    EVENTS.map(frame).concat()
}

fn plain(data: &str) -> String {
    format!("{:x}\r\n{data}\r\n", data.len())
}

async fn ask(client: &mut Peer) {
    client.post("/v1/chat/completions", "", b"{\"messages\":[]}").await;
}

/// Sends a response in pieces of so many bytes; the client gets the events and `trailers`, the row has the text, and
/// both connections are in order for another request.
async fn check_whole(wire: &str, piece_bytes: usize, trailers: &str) {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    ask(&mut client).await;
    let mut engine = setup.engine().await;
    for turn in 0..2 {
        engine.read_message().await;
        for piece in format!("{HEAD}{wire}").as_bytes().chunks(piece_bytes) {
            engine.send(piece).await;
            // Else pieces may pile up to one.
            tokio::task::yield_now().await;
        }
        assert!(client.read_head().await.contains("Transfer-Encoding: chunked\r\n"), "{wire:?}");
        let mut data = Vec::new();
        loop {
            let chunk = client.read_chunk().await;
            if chunk.is_empty() {
                break;
            }
            data.extend(chunk);
        }
        assert_eq!(String::from_utf8(data).unwrap(), EVENTS.concat(), "{wire:?} by {piece_bytes}");
        assert_eq!(client.read_exact(trailers.len()).await, trailers.as_bytes(), "{wire:?}");
        if turn == 0 {
            ask(&mut client).await;
        }
    }
    let recorded = setup.finish().await;
    assert_eq!(recorded.stats.bytes_down, 2 * EVENTS.concat().len() as u64);
    for row in &recorded.turns {
        assert_eq!((row.outcome, row.osl_text.as_str()), (Outcome::Ok, "one two"), "{wire:?}");
    }
}

#[tokio::test]
async fn every_framing_arrives_whole() {
    let last = "0\r\n\r\n";
    let padded = |data: &str| format!("{:06X}\r\n{data}\r\n", data.len());
    let extended = |data: &str| format!("{:x};a=\"b\"\r\n{data}\r\n", data.len());
    let spaced = |data: &str| format!("{:x} \r\n{data}\r\n", data.len());
    let mixed = |data: &str| if data == EVENTS[1] { extended(data) } else { plain(data) };
    let by_three = |data: &str| {
        data.as_bytes().chunks(3).map(|it| plain(std::str::from_utf8(it).unwrap())).collect()
    };
    for piece_bytes in [1, 7, 64, 100_000] {
        check_whole(&(framed(plain) + last), piece_bytes, "\r\n").await;
        check_whole(&(framed(padded) + "000\r\n\r\n"), piece_bytes, "\r\n").await;
        check_whole(&(framed(extended) + last), piece_bytes, "\r\n").await;
        check_whole(&(framed(spaced) + last), piece_bytes, "\r\n").await;
        check_whole(&(framed(mixed) + last), piece_bytes, "\r\n").await;
        check_whole(&(framed(by_three) + last), piece_bytes, "\r\n").await;
        check_whole(&(framed(plain) + "0;x=y\r\n\r\n"), piece_bytes, "\r\n").await;
    }
}

/// A response that breaks off, or goes on with what is no chunk, after the first event has arrived.
async fn check_broken(rest: &str) {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    ask(&mut client).await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    engine.send(format!("{HEAD}{}", plain(EVENTS[0]))).await;
    client.read_head().await;
    assert_eq!(client.read_chunk().await, EVENTS[0].as_bytes());
    // This one passes as it stands.
    engine.send(plain(EVENTS[1])).await;
    assert_eq!(client.read_chunk().await, EVENTS[1].as_bytes());
    engine.send(rest).await;
    drop(engine);
    let seen = client.read_to_end().await;
    assert!(!seen.ends_with(b"0\r\n\r\n"), "no clean end after {rest:?}: {seen:?}");
    let recorded = setup.finish().await;
    assert_eq!(recorded.stats.upstream_errors, 1, "{rest:?}");
    let row = &recorded.turns[0];
    assert_eq!((row.outcome, row.osl_text.as_str()), (Outcome::Truncated, "one two"), "{rest:?}");
    assert!(row.error.as_deref().unwrap().contains("response broke"), "{:?}", row.error);
}

#[tokio::test]
async fn a_break_in_any_place_is_a_break() {
    for rest in [
        "",
        "1",
        "1f",
        "1f\r",
        "1f\r\n",
        "5\r\n: ab",
        "3\r\n: a",
        "3\r\n: a\r",
        "3\r\n: a\r\n",
        "0\r\n",
    ] {
        check_broken(rest).await;
    }
    for nonsense in
        ["x\r\n", "3\r\n: a!!3\r\n: b\r\n0\r\n\r\n", "3\n: a\r\n0\r\n\r\n", "\r\n0\r\n\r\n"]
    {
        check_broken(nonsense).await;
    }
}

#[tokio::test]
async fn what_is_no_response_yet_is_not_taken_for_one() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    ask(&mut client).await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    let early = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";
    engine.send(format!("{early}{HEAD}{}0\r\n\r\n", framed(plain))).await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 200 OK\r\n"));
    for event in EVENTS {
        assert_eq!(client.read_chunk().await, event.as_bytes());
    }
    assert!(client.read_chunk().await.is_empty());
}

#[tokio::test]
async fn trailers_follow_chunks_that_passed() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    client.post("/v1/chat/completions", "TE: trailers\r\n", b"{\"messages\":[]}").await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    engine.send(HEAD.replace("Transfer", "Trailer: X-Took\r\nTransfer")).await;
    client.read_head().await;
    for event in EVENTS {
        engine.send(plain(event)).await;
        assert_eq!(client.read_chunk().await, event.as_bytes());
    }
    engine.send("0\r\nX-Took: 9\r\n\r\n").await;
    assert!(client.read_chunk().await.is_empty());
    assert_eq!(client.read_head().await.to_ascii_lowercase(), "x-took: 9\r\n\r\n");
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_a_chunked_answer() {
    const CHUNKS: usize = 500;
    let chunk = "x".repeat(100_000);
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    ask(&mut client).await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    let framed = plain(&chunk);
    let answering = tokio::spawn(async move {
        engine.send(HEAD).await;
        for _ in 0..CHUNKS {
            engine.send(&framed).await;
        }
        engine.end_stream().await;
    });
    let mut taken = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = setup.capture.stats().bytes_down;
        if now == taken && now > 0 {
            break;
        }
        taken = now;
    }
    let length = CHUNKS * chunk.len();
    assert!(
        taken < length as u64 / 2,
        "{taken} bytes were taken in for a reader that does not read"
    );
    client.read_head().await;
    let mut read = 0;
    loop {
        let piece = client.read_chunk().await;
        if piece.is_empty() {
            break;
        }
        assert!(piece.iter().all(|byte| *byte == b'x'));
        read += piece.len();
    }
    assert_eq!(read, length);
    must(answering).await.unwrap();
    assert_eq!(setup.finish().await.stats.bytes_down, length as u64);
}

#[tokio::test]
async fn a_client_that_goes_while_chunks_pass_cancels_the_engine() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    ask(&mut client).await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    engine.begin_stream().await;
    client.read_head().await;
    for _ in 0..3 {
        engine.send_chunk(EVENTS[0]).await;
        client.read_chunk().await;
    }
    // With an event on its way.
    engine.send_chunk(EVENTS[1]).await;
    client.reset();
    assert_eq!(engine.read_to_end().await, b"");
    let recorded = setup.finish().await;
    assert_eq!(recorded.stats.client_cancelled, 1);
    assert_eq!(recorded.turns[0].outcome, Outcome::ClientCancelled);
    assert_eq!(recorded.stats.active, 0);
}
