//! Bodies that are packed or cannot be read: passed on as they are, decoded for the rows where that goes.

use std::io::Write;

use agentbench::trace::record::Outcome;
use flate2::Compression;
use flate2::write::GzEncoder;

use super::{TASK, body_of, message_events, messages_body};
use crate::wire::Setup;

#[tokio::test]
async fn gzip_passes_as_it_is_and_is_decoded_for_the_rows() {
    let setup = Setup::start().await;
    let body = messages_body(&[TASK]);
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(body.as_bytes()).unwrap();
    let wire = gzip.finish().unwrap();
    let mut client = setup.client().await;
    client.post("/v1/messages", "Content-Encoding: gzip\r\n", &wire).await;
    let mut engine = setup.engine().await;
    let (head, received) = engine.read_message().await;
    assert!(head.contains("Content-Encoding: gzip\r\n"));
    assert_eq!(received, wire);
    engine
        .send(
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Encoding: gzip\r\n\
             Transfer-Encoding: chunked\r\n\r\n",
        )
        .await;
    assert!(client.read_head().await.contains("Content-Encoding: gzip\r\n"));
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    for event in message_events("packed", None) {
        gzip.write_all(event.as_bytes()).unwrap();
        gzip.flush().unwrap();
        let wire = std::mem::take(gzip.get_mut());
        engine.send_chunk(&wire).await;
        assert_eq!(client.read_chunk().await, wire);
    }
    engine.send_chunk(gzip.finish().unwrap()).await;
    engine.end_stream().await;
    client.read_to_end_of_chunks().await;
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert_eq!((row.outcome, row.osl_text.as_str(), row.osl), (Outcome::Ok, "packed", Some(7)));
    assert_eq!(row.output_offsets_us.len(), 1);
    assert_eq!(body_of(&recorded, row), body);
}

#[tokio::test]
async fn what_cannot_be_read_is_a_row_that_says_so() {
    let setup = Setup::start_with(|config| config.max_recorded_body_bytes = 2000).await;
    let long = messages_body(&[&format!(r#"{{"role":"user","content":"{}"}}"#, "x".repeat(3000))]);
    let answer = br#"{"type":"message","role":"assistant","content":[{"type":"text","text":"fine"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;
    let too_long = [b"{".as_slice(), &[b' '; 3000], b"}"].concat();
    let cases: [(&str, &[u8], &str, &[u8]); 5] = [
        ("", long.as_bytes(), "", answer),
        ("", b"this is no JSON \xff", "", answer),
        ("Content-Encoding: compress\r\n", b"\x28\xb5\x2f\xfd", "", answer),
        ("", messages_body(&[TASK]).as_bytes().to_vec().leak(), "", &too_long),
        (
            "",
            messages_body(&[TASK]).as_bytes().to_vec().leak(),
            "Content-Encoding: br\r\n",
            b"\x8b\x00",
        ),
    ];
    for (index, (headers, body, answer_headers, answer)) in cases.into_iter().enumerate() {
        let mut client = setup.client().await;
        client.post(&format!("/s/case-{index}/v1/messages"), headers, body).await;
        let mut engine = setup.engine().await;
        assert_eq!(engine.read_message().await.1, body);
        engine.answer("200 OK", answer_headers, answer).await;
        assert_eq!(client.read_message().await.1, answer);
        setup.recorded(index as u64 + 1).await;
    }
    let recorded = setup.finish().await;
    let found: Vec<_> = recorded
        .turns
        .iter()
        .map(|row| {
            (row.outcome, row.unit_hashes.len(), row.osl_text.as_str(), row.error.as_deref())
        })
        .collect();
    let parts = [
        (0, "fine", "request body is longer than 2000 bytes"),
        (1, "fine", "not a messages request"),
        (0, "fine", "content encoding `compress` is not read"),
        (3, "", "response body is longer than 2000 bytes"),
        (3, "", "content encoding `br` is not read"),
    ];
    assert_eq!(found.len(), parts.len());
    for ((outcome, units, text, error), (units_expected, text_expected, part)) in
        found.into_iter().zip(parts)
    {
        assert_eq!((outcome, units, text), (Outcome::Ok, units_expected, text_expected));
        assert!(error.unwrap().contains(part), "{error:?}");
    }
    assert_eq!(recorded.run.request_body(&recorded.turns[1]).unwrap(), b"this is no JSON \xff");
}

#[tokio::test]
async fn zstd_passes_as_it_is_and_is_decoded_for_the_rows() {
    let setup = Setup::start().await;
    let body = messages_body(&[TASK]);
    let wire = zstd::encode_all(body.as_bytes(), 3).unwrap();
    let mut client = setup.client().await;
    client.post("/v1/messages", "Content-Encoding: zstd\r\n", &wire).await;
    let mut engine = setup.engine().await;
    assert_eq!(engine.read_message().await.1, wire);
    engine.answer("200 OK", "Content-Type: application/json\r\n", b"{}").await;
    client.read_message().await;
    setup.recorded(1).await;
    let recorded = setup.finish().await;
    assert_eq!(body_of(&recorded, &recorded.turns[0]), body);
}
