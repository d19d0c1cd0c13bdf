//! How fast the pure parsers of streams and requests are.
//!
//! `cargo bench --bench parsing`. Inputs are made here, in the shape that servers and agents send.

use std::fmt::Write as _;
use std::hint::black_box;

use agentbench::api::{Api, ReplyDecoder, edit_top_level, parse_request, rebuild_body};
use agentbench::http::sse::SseDecoder;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use serde_json::json;

const N_CHUNKS: usize = 1000;
/// What one read from a socket brings of a fast stream.
const PIECE_BYTES: usize = 1400;

fn chat_stream() -> Vec<u8> {
    let chunks = (0..N_CHUNKS).map(|index| {
        let chunk = json!({
            "id": "chatcmpl-8f1d0c55a9", "object": "chat.completion.chunk", "created": 1_790_000_000,
            "model": "tiny",
            "choices": [{
                "index": 0,
                "delta": {"content": format!(" word{index}")},
                "logprobs": null,
                "finish_reason": null,
            }],
            "usage": {"prompt_tokens": 20_000, "total_tokens": 20_000 + index, "completion_tokens": index},
        });
        format!("data: {chunk}\n\n")
    });
    (chunks.collect::<String>() + "data: [DONE]\n\n").into_bytes()
}

fn messages_stream() -> Vec<u8> {
    let start = json!({"type": "message_start", "message": {"model": "tiny", "usage": {"input_tokens": 9}}});
    let block = json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}});
    let mut stream = format!("event: message_start\ndata: {start}\n\n");
    let _ = write!(stream, "event: content_block_start\ndata: {block}\n\n");
    for index in 0..N_CHUNKS {
        let text = format!(" word{index}");
        let delta = json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}});
        let _ = write!(stream, "event: content_block_delta\ndata: {delta}\n\n");
    }
    stream.push_str("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n");
    stream.into_bytes()
}

/// A Messages request of 0.5 MB with 300 messages and 20 tools.
fn request_body() -> Vec<u8> {
    let paragraph = "    let total = values.iter().map(|value| value.len()).sum::<usize>();\n";
    let tools: Vec<_> = (0..20)
        .map(|index| {
            json!({
                "name": format!("Tool{index}"),
                "description": paragraph.repeat(20),
                "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
            })
        })
        .collect();
    let messages: Vec<_> = (0..300)
        .map(|index| {
            let text = format!("{index}\n{}", paragraph.repeat(20));
            if index % 2 == 1 {
                json!({"role": "assistant", "content": [
                    {"type": "text", "text": text},
                    {"type": "tool_use", "id": format!("toolu_{index}"), "name": "Tool1", "input": {"path": "a.rs"}},
                ]})
            } else {
                json!({"role": "user", "content": [{
                    "type": "tool_result", "tool_use_id": format!("toolu_{index}"), "content": text,
                    "cache_control": {"type": "ephemeral"},
                }]})
            }
        })
        .collect();
    let body = json!({
        "model": "tiny", "max_tokens": 4096, "stream": true,
        "system": [{"type": "text", "text": paragraph.repeat(100), "cache_control": {"type": "ephemeral"}}],
        "messages": messages, "tools": tools,
    });
    body.to_string().into_bytes()
}

fn streams(criterion: &mut Criterion) {
    let chat = chat_stream();
    let messages = messages_stream();
    let mut group = criterion.benchmark_group("sse");
    group.throughput(Throughput::ElementsAndBytes {
        elements: N_CHUNKS as u64,
        bytes: chat.len() as u64,
    });
    group.bench_function("chat stream into events", |bencher| {
        bencher.iter(|| {
            let mut data_bytes = 0;
            let mut decoder = SseDecoder::new();
            for piece in chat.chunks(PIECE_BYTES) {
                decoder.feed(piece, |event| data_bytes += event.data.len());
            }
            black_box(data_bytes)
        });
    });
    group.finish();
    let mut group = criterion.benchmark_group("reply");
    group.throughput(Throughput::Elements(N_CHUNKS as u64));
    for (name, api, stream) in [("chat", Api::Chat, &chat), ("messages", Api::Messages, &messages)]
    {
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                let mut decoder = ReplyDecoder::new(api);
                let mut output_chunks = 0;
                for piece in stream.chunks(PIECE_BYTES) {
                    output_chunks += decoder.feed(piece).output_chunks;
                }
                assert_eq!(output_chunks as usize, N_CHUNKS);
                decoder.finish()
            });
        });
    }
    group.finish();
}

fn requests(criterion: &mut Criterion) {
    let body = request_body();
    let request = parse_request(Api::Messages, &body).expect("a request");
    let units: Vec<&str> = request.units.iter().map(|unit| &*unit.text).collect();
    let edits =
        [("model", Some(json!("other"))), ("metadata", None), ("max_tokens", Some(json!(7)))];
    let mut group = criterion.benchmark_group("request");
    group.throughput(Throughput::Bytes(body.len() as u64));
    group.bench_function("parse", |bencher| {
        bencher.iter(|| parse_request(Api::Messages, black_box(&body)));
    });
    group.bench_function("rebuild", |bencher| {
        bencher.iter(|| rebuild_body(black_box(&request.template), &units));
    });
    group.bench_function("edit top level", |bencher| {
        bencher.iter(|| edit_top_level(black_box(&body), &edits));
    });
    group.finish();
}

criterion_group!(benches, streams, requests);
criterion_main!(benches);
