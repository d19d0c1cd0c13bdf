//! How an exchange may end, and the outcome that its row has.

use std::time::Duration;

use agentbench::trace::record::Outcome;
use serde_json::json;

use super::{TASK, body_of, event, message_events, messages_body};
use crate::wire::{Setup, must};

/// How an exchange goes wrong.
enum Fault {
    Status(u16, &'static str),
    ErrorEvent,
    CutInStream,
    EndsWithoutLastEvent,
    ClientLeavesStream,
    ClientLeavesAfterLastEvent,
    ClientLeavesBeforeResponse,
    ResetBeforeResponse,
}

/// Plays a fault and gives its row's outcome, status and words.
async fn check_fault(fault: Fault, outcome: Outcome, status: Option<u16>, words: Option<&str>) {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    let body = messages_body(&[TASK]);
    client.post("/v1/messages", "", body.as_bytes()).await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    let events = message_events("partial", None);
    let streams = !matches!(
        fault,
        Fault::Status(..) | Fault::ResetBeforeResponse | Fault::ClientLeavesBeforeResponse
    );
    if streams {
        engine.begin_stream().await;
        client.read_head().await;
        let whole = matches!(fault, Fault::ClientLeavesAfterLastEvent);
        for event in if whole { &events[..] } else { &events[..3] } {
            engine.send_chunk(event).await;
            client.read_chunk().await;
        }
    }
    match fault {
        Fault::Status(status, body) => {
            engine.answer(&format!("{status} Odd"), "", body.as_bytes()).await;
            client.read_message().await;
        }
        Fault::ErrorEvent => {
            let error =
                json!({"type": "error", "error": {"type": "overloaded_error", "message": "busy"}});
            engine.send_chunk(event(&error)).await;
            engine.end_stream().await;
            client.read_to_end_of_chunks().await;
        }
        Fault::EndsWithoutLastEvent => {
            engine.end_stream().await;
            client.read_to_end_of_chunks().await;
        }
        Fault::CutInStream => {
            engine.reset();
            client.read_to_end().await;
        }
        Fault::ResetBeforeResponse => {
            engine.reset();
            assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
        }
        Fault::ClientLeavesStream
        | Fault::ClientLeavesAfterLastEvent
        | Fault::ClientLeavesBeforeResponse => {
            drop(client);
            engine.read_to_end().await;
        }
    }
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert_eq!((row.outcome, row.http_status), (outcome, status), "{:?}", row.error);
    match words {
        Some(words) => assert!(row.error.as_deref().unwrap().contains(words), "{:?}", row.error),
        None => assert_eq!(row.error, None),
    }
    assert_eq!(row.osl_text, if streams { "partial" } else { "" });
    assert!(row.response_end_time.unwrap() > row.request_time);
    assert_eq!(body_of(&recorded, row), body);
}

#[tokio::test]
async fn every_ending_has_its_outcome() {
    let api_error =
        r#"{"type":"error","error":{"type":"invalid_request_error","message":"too long"}}"#;
    check_fault(Fault::Status(400, api_error), Outcome::HttpError, Some(400), Some("too long"))
        .await;
    check_fault(Fault::Status(503, "no room"), Outcome::HttpError, Some(503), Some("no room"))
        .await;
    check_fault(Fault::ErrorEvent, Outcome::UpstreamError, Some(200), Some("busy")).await;
    check_fault(Fault::CutInStream, Outcome::Truncated, Some(200), Some("broke")).await;
    let no_last = Some("without its last event");
    check_fault(Fault::EndsWithoutLastEvent, Outcome::Truncated, Some(200), no_last).await;
    let left = Some("client went away");
    check_fault(Fault::ClientLeavesStream, Outcome::ClientCancelled, Some(200), left).await;
    check_fault(Fault::ClientLeavesBeforeResponse, Outcome::ClientCancelled, None, left).await;
    check_fault(Fault::ClientLeavesAfterLastEvent, Outcome::Ok, Some(200), None).await;
    check_fault(Fault::ResetBeforeResponse, Outcome::UpstreamError, None, Some("upstream http://"))
        .await;
}

#[tokio::test]
async fn a_long_prompt_that_no_engine_takes_is_answered_and_recorded() {
    let setup = Setup::start().await.without_engine();
    // More than sockets hold: it must be read for the agent to see the answer.
    let task = json!({"role": "user", "content": "x".repeat(8_000_000)}).to_string();
    let body = messages_body(&[&task]);
    let mut client = setup.client().await;
    client.post("/v1/messages", "", body.as_bytes()).await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert_eq!((row.outcome, row.http_status), (Outcome::UpstreamError, None));
    assert!(row.error.as_deref().unwrap().contains("refused"), "{:?}", row.error);
    assert_eq!(body_of(&recorded, row), body);
}

#[tokio::test]
async fn what_is_open_at_the_stop_is_cut_and_written() {
    let setup = Setup::start_draining(Duration::from_millis(50)).await;
    let mut client = setup.client().await;
    client.post("/v1/messages", "", messages_body(&[TASK]).as_bytes()).await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    engine.begin_stream().await;
    client.read_head().await;
    for event in &message_events("partial", None)[..3] {
        engine.send_chunk(event).await;
        client.read_chunk().await;
    }
    let recorded = setup.finish().await;
    assert_eq!(client.read_to_end().await, b"", "cut, not ended");
    assert_eq!(must(engine.read_to_end()).await, b"");
    let row = &recorded.turns[0];
    assert_eq!((row.outcome, row.osl_text.as_str()), (Outcome::Truncated, "partial"));
    assert_eq!(row.error.as_deref(), Some("the capture was stopped before the end"));
}

#[tokio::test]
async fn a_client_that_hangs_up_on_the_last_event_has_cancelled_nothing() {
    let setup = Setup::start().await;
    for hangs_up_early in [false, true] {
        let mut client = setup.client().await;
        client.post("/v1/messages", "", messages_body(&[TASK]).as_bytes()).await;
        let mut engine = setup.engine().await;
        engine.read_message().await;
        engine.begin_stream().await;
        client.read_head().await;
        let events = message_events("hello", None);
        let sent = if hangs_up_early { events.len() - 1 } else { events.len() };
        for event in &events[..sent] {
            engine.send_chunk(event).await;
            client.read_chunk().await;
        }
        drop(client);
        // Until the proxy notices, and drops its side.
        engine.read_to_end().await;
    }
    setup.recorded(2).await;
    let recorded = setup.finish().await;
    let outcomes: Vec<Outcome> = recorded.turns.iter().map(|row| row.outcome).collect();
    assert_eq!(outcomes, [Outcome::Ok, Outcome::ClientCancelled]);
    assert_eq!(recorded.stats.client_cancelled, 1);
}
