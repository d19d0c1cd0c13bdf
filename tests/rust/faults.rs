//! What a proxy meets on bad days and must come through: very long bodies, very many sessions, readers that
//! do not read. Faults of the disk and kills are `trace`'s.

use std::time::Duration;

use agentbench::trace::record::Outcome;

use crate::wire::{Setup, must};

/// Twice as many files as a thousand sessions need on both sides of a proxy in one process.
const OPEN_FILES: u64 = 8192;

#[tokio::test]
async fn a_hundred_megabytes_pass_and_the_row_says_why_they_are_not_kept() {
    let setup = Setup::start().await;
    let (mut client, mut engine, _) = setup.upload(100_000_000).await;
    engine.answer("200 OK", "", b"{}").await;
    assert_eq!(client.read_message().await.1, b"{}");
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert_eq!((row.outcome, row.unit_hashes.len()), (Outcome::Ok, 0));
    assert!(row.error.as_ref().unwrap().contains("longer than"), "{:?}", row.error);
    assert_eq!(recorded.stats.bytes_up, 100_000_000);
}

#[tokio::test]
async fn a_thousand_sessions_at_once_are_a_thousand_sessions() {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    let wanted = rustix::process::Rlimit {
        current: Some(limit.maximum.map_or(OPEN_FILES, |most| most.min(OPEN_FILES))),
        maximum: limit.maximum,
    };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, wanted).unwrap();
    let setup = Setup::start().await;
    let mut pairs = Vec::new();
    for index in 0..1000 {
        let mut client = setup.client().await;
        let body = format!(r#"{{"messages":[{{"role":"user","content":"task {index}"}}]}}"#);
        client.post(&format!("/s/session-{index}/v1/messages"), "", body.as_bytes()).await;
        let mut engine = setup.engine().await;
        engine.read_message().await;
        pairs.push((client, engine));
    }
    assert_eq!(setup.capture.stats().active, 1000);
    for (client, engine) in &mut pairs {
        engine.answer("200 OK", "Content-Type: application/json\r\n", b"{}").await;
        assert_eq!(client.read_message().await.1, b"{}");
    }
    let recorded = setup.finish().await;
    let stats = &recorded.stats;
    assert_eq!((stats.sessions, stats.threads, stats.turns_dropped), (1000, 1000, 0));
    let mut sessions: Vec<&str> =
        recorded.turns.iter().map(|row| row.session_id.as_str()).collect();
    sessions.sort_unstable();
    sessions.dedup();
    assert_eq!((recorded.turns.len(), sessions.len()), (1000, 1000));
}

#[tokio::test]
async fn a_reader_that_does_not_read_holds_the_engine_and_fills_no_memory() {
    const LENGTH: usize = 50_000_000;
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    client.post("/v1/messages", "", b"{\"messages\":[]}").await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    let answer = vec![b'x'; LENGTH];
    let answering = tokio::spawn(async move { engine.answer("200 OK", "", &answer).await });
    // Until no more is taken in: what lies in the sockets' buffers, not the answer.
    let mut taken = 0;
    loop {
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = setup.capture.stats().bytes_down;
        if now == taken && now > 0 {
            break;
        }
        taken = now;
    }
    assert!(
        taken < LENGTH as u64 / 2,
        "{taken} bytes were taken in for a reader that does not read"
    );
    assert_eq!(client.read_message().await.1.len(), LENGTH);
    must(answering).await.unwrap();
    let recorded = setup.finish().await;
    assert_eq!((recorded.stats.bytes_down, recorded.turns.len()), (LENGTH as u64, 1));
}
