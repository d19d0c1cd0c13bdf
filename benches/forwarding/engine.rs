//! The engine that the proxies stand before: answers every request with as many events as its query says,
//! in the form of the API that the path names, each written by itself.

use std::time::Duration;

use agentbench::clock::Clock;
use agentbench::http::listen::listen;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::wire::{content_length, read_head};

/// Serves until the process ends. Its address is the first line that it prints.
pub(super) async fn serve() {
    let listener = listen("127.0.0.1:0".parse().unwrap()).unwrap();
    println!("{}", listener.local_addr().unwrap());
    let clock = Clock::start();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        stream.set_nodelay(true).unwrap();
        tokio::spawn(answer_all(stream, clock));
    }
}

async fn answer_all(mut stream: TcpStream, clock: Clock) {
    let mut unread = Vec::new();
    loop {
        let Some(head) = read_head(&mut stream, &mut unread).await else { return };
        let mut left = content_length(&head).saturating_sub(unread.len());
        unread.clear();
        let mut piece = vec![0; 64 * 1024];
        while left > 0 {
            match stream.read(&mut piece).await {
                Ok(read) if read > 0 => left = left.saturating_sub(read),
                _ => return,
            }
        }
        if answer(&mut stream, &head, clock).await.is_err() {
            return;
        }
    }
}

/// A number that the query names.
fn asked(head: &str, name: &str) -> Option<u64> {
    head.split_once(name)?.1.split([' ', '&']).next()?.parse().ok()
}

async fn answer(stream: &mut TcpStream, head: &str, clock: Clock) -> std::io::Result<()> {
    let events = asked(head, "events=").unwrap_or(1);
    let pace = Duration::from_millis(asked(head, "pace_ms=").unwrap_or(0));
    let response =
        "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(response.as_bytes()).await?;
    let started_ns = clock.now_ns();
    for index in 0..events {
        // The first event comes at once: a timer would add its own grain.
        if pace.is_zero() || index == 0 {
            tokio::task::yield_now().await;
        } else {
            let due_ns = started_ns + pace.as_nanos() as i64 * index as i64;
            tokio::time::sleep_until(clock.instant_at(due_ns)).await;
        }
        let event = event(head, index);
        // The stamp is a comment of the stream: no parser reads it.
        let stamped = format!(":{}\n{event}", clock.now_ns());
        stream.write_all(chunk(&stamped).as_bytes()).await?;
    }
    stream.write_all(format!("{}0\r\n\r\n", chunk(last_event(head))).as_bytes()).await
}

fn event(head: &str, index: u64) -> String {
    if head.contains("/chat/completions") {
        format!(
            "data: {{\"object\":\"chat.completion.chunk\",\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\
             \"word{index} \"}}}}]}}\n\n"
        )
    } else if head.contains("/completions") {
        format!(
            "data: {{\"object\":\"text_completion\",\"choices\":[{{\"index\":0,\"text\":\"word{index} \"}}]}}\n\n"
        )
    } else if head.contains("/responses") {
        format!(
            "event: response.output_text.delta\ndata: {{\"type\":\"response.output_text.delta\",\"item_id\":\"m\",\
             \"output_index\":0,\"content_index\":0,\"delta\":\"word{index} \"}}\n\n"
        )
    } else {
        format!(
            "event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":0,\"delta\":\
             {{\"type\":\"text_delta\",\"text\":\"word{index} \"}}}}\n\n"
        )
    }
}

fn last_event(head: &str) -> &'static str {
    if head.contains("/completions") {
        "data: [DONE]\n\n"
    } else if head.contains("/responses") {
        "event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\
         \"status\":\"completed\",\"output\":[]}}\n\n"
    } else {
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
    }
}

fn chunk(text: &str) -> String {
    format!("{:x}\r\n{text}\r\n", text.len())
}
