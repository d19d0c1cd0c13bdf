//! One proxy before two engines: who gets which request, and what is written down of it.

use agentbench::capture::{Capture, CaptureConfig, Routing};
use agentbench::clock::Clock;
use agentbench::shutdown::Shutdown;
use agentbench::trace::record::Outcome;
use tokio::net::TcpListener;

use crate::wire::{Peer, Recorded, Setup, accept};

/// A proxy before the setup's engine and another one.
async fn two(routing: Routing) -> (Setup, TcpListener, [String; 2]) {
    let other = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", other.local_addr().unwrap());
    let second = url.clone();
    let mut first = String::new();
    let setup = Setup::start_with(|config| {
        first.clone_from(&config.upstreams[0]);
        // A base path of its own, and an end that does not count.
        config.upstreams.push(format!("{second}/base/v1/"));
        config.routing = routing;
    })
    .await;
    (setup, other, [first, format!("{url}/base")])
}

fn chat_body(task: &str, more: &str) -> String {
    format!(
        r#"{{"model":"m","messages":[{{"role":"system","content":"s"}},{{"role":"user","content":"{task}"}}{more}]}}"#
    )
}

const ANSWER: &str = r#"{"choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}],"usage":{"prompt_tokens":3,"completion_tokens":1}}"#;

/// The engine's side of one request: its request line and `Host`, and the body as it came.
async fn serve(engine: &mut Peer) -> (String, String) {
    let (head, body) = engine.read_message().await;
    engine.answer("200 OK", "Content-Type: application/json\r\n", ANSWER.as_bytes()).await;
    let host = head.lines().find(|line| line.to_lowercase().starts_with("host:")).unwrap();
    let line = head.lines().next().unwrap();
    (format!("{line} {host}"), String::from_utf8(body).unwrap())
}

async fn post(setup: &Setup, path: &str, headers: &str, body: &str) -> Peer {
    let mut client = setup.client().await;
    client.post(path, headers, body.as_bytes()).await;
    client
}

/// The whole answer is read: a client that goes before its end takes the engine's connection with it.
async fn ok(mut client: Peer) {
    assert!(client.read_message().await.0.starts_with("HTTP/1.1 200 "));
}

fn engines_of(recorded: &Recorded) -> Vec<Option<&str>> {
    recorded.turns.iter().map(|turn| turn.engine.as_deref()).collect()
}

#[tokio::test]
async fn a_session_stays_with_its_engine() {
    let (setup, other, [first, second]) = two(Routing::Session).await;
    let (one, two) = (chat_body("one", ""), chat_body("two", ""));
    let client = post(&setup, "/s/x/v1/chat/completions", "", &one).await;
    let mut engine = setup.engine().await;
    let (line, body) = serve(&mut engine).await;
    assert!(line.starts_with("POST /v1/chat/completions HTTP/1.1 "), "{line}");
    assert!(line.ends_with(first.trim_start_matches("http://")), "{line}");
    assert_eq!(body, one);
    ok(client).await;
    // A header names the next session: the other engine, below its base path and by its own host.
    let client = post(&setup, "/v1/chat/completions", "X-Session-Id: y\r\n", &two).await;
    let mut engine_two = accept(&other).await;
    let (line, _) = serve(&mut engine_two).await;
    assert!(line.starts_with("POST /base/v1/chat/completions HTTP/1.1 "), "{line}");
    assert!(line.ends_with(&other.local_addr().unwrap().to_string()), "{line}");
    ok(client).await;
    // Both go on where they were, side requests too; what belongs to no session goes to the first.
    for (path, headers, engine) in [
        ("/s/x/v1/chat/completions", "", &mut engine),
        ("/v1/chat/completions", "X-Session-Id: y\r\n", &mut engine_two),
    ] {
        let client = post(&setup, path, headers, &one).await;
        serve(engine).await;
        ok(client).await;
    }
    let client = post(&setup, "/v1/messages/count_tokens", "X-Session-Id: y\r\n", "{}").await;
    assert!(serve(&mut engine_two).await.0.contains("count_tokens"));
    ok(client).await;
    let client = post(&setup, "/tokenize", "", "{}").await;
    assert!(serve(&mut engine).await.0.contains("/tokenize"));
    ok(client).await;
    let recorded = setup.finish().await;
    let (first, second) = (first.as_str(), second.as_str());
    assert_eq!(engines_of(&recorded), [Some(first), Some(second), Some(first), Some(second)]);
    let traffic: Vec<_> = recorded.stats.engines.iter().map(|e| (e.requests, e.errors)).collect();
    assert_eq!((traffic, recorded.stats.requests_moved), (vec![(3, 0), (3, 0)], 0));
}

#[tokio::test]
async fn a_conversation_without_a_name_is_known_by_its_beginning() {
    let (setup, other, [first, second]) = two(Routing::Session).await;
    let more = r#",{"role":"assistant","content":"a"},{"role":"user","content":"go on"}"#;
    let mut engines = [None, None];
    let turns = [("one", "", 0), ("two", "", 1), ("two", more, 1), ("one", more, 0)];
    for (task, more, engine) in turns {
        let body = chat_body(task, more);
        let client = post(&setup, "/v1/chat/completions", "", &body).await;
        if engines[engine].is_none() {
            let peer = if engine == 0 { setup.engine().await } else { accept(&other).await };
            engines[engine] = Some(peer);
        }
        let peer = engines[engine].as_mut().unwrap();
        assert_eq!(serve(peer).await.1, body, "the bytes stay as they are");
        ok(client).await;
    }
    // What is no request of its API is passed on all the same.
    let client = post(&setup, "/v1/chat/completions", "", "{").await;
    assert_eq!(serve(engines[0].as_mut().unwrap()).await.1, "{");
    ok(client).await;
    let recorded = setup.finish().await;
    let expected = [&first, &second, &second, &first, &first];
    assert_eq!(engines_of(&recorded), expected.map(|engine| Some(engine.as_str())));
}

#[tokio::test]
async fn round_robin_takes_each_turn_in_turn() {
    let (setup, other, [first, second]) = two(Routing::RoundRobin).await;
    let mut engines = [None, None];
    for turn in 0..4 {
        let client = post(&setup, "/s/x/v1/chat/completions", "", &chat_body("one", "")).await;
        if turn < 2 {
            let peer = if turn == 0 { setup.engine().await } else { accept(&other).await };
            engines[turn] = Some(peer);
        }
        serve(engines[turn % 2].as_mut().unwrap()).await;
        ok(client).await;
        // A model list in between changes nothing.
        let client = post(&setup, "/v1/models", "", "").await;
        serve(engines[0].as_mut().unwrap()).await;
        ok(client).await;
    }
    let recorded = setup.finish().await;
    let expected = [&first, &second, &first, &second].map(|engine| Some(engine.as_str()));
    assert_eq!(engines_of(&recorded), expected);
}

#[tokio::test]
async fn only_what_could_not_be_sent_goes_to_another_engine() {
    let (setup, other, [first, second]) = two(Routing::Session).await;
    let body = chat_body("one", "");
    let turn = async |setup: &Setup| post(setup, "/s/x/v1/chat/completions", "", &body).await;
    let client = turn(&setup).await;
    let mut engine = setup.engine().await;
    serve(&mut engine).await;
    ok(client).await;
    // The engine breaks off within a request: the agent is told, as it would be without the proxy.
    let mut client = turn(&setup).await;
    engine.read_message().await;
    engine.reset();
    assert!(client.read_head().await.starts_with("HTTP/1.1 502 "));
    // It is gone: nothing can be sent there, so the session goes to the other one and stays.
    let setup = setup.without_engine();
    let client = turn(&setup).await;
    let mut engine_two = accept(&other).await;
    let (line, sent) = serve(&mut engine_two).await;
    assert!(line.starts_with("POST /base/v1/chat/completions HTTP/1.1 Host: "), "{line}");
    assert!(line.ends_with(&other.local_addr().unwrap().to_string()), "{line}");
    assert_eq!(sent, body);
    ok(client).await;
    let client = turn(&setup).await;
    serve(&mut engine_two).await;
    ok(client).await;
    // Neither is there: the error is the session's own engine's.
    drop((engine_two, other));
    let mut client = turn(&setup).await;
    let (head, told) = client.read_message().await;
    assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
    assert!(String::from_utf8(told).unwrap().contains(second.trim_end_matches("/base")));
    let recorded = setup.finish().await;
    let (first, second) = (Some(first.as_str()), Some(second.as_str()));
    assert_eq!(engines_of(&recorded), [first, first, second, second, second]);
    let outcomes: Vec<Outcome> = recorded.turns.iter().map(|turn| turn.outcome).collect();
    let (ok, failed) = (Outcome::Ok, Outcome::UpstreamError);
    assert_eq!(outcomes, [ok, failed, ok, ok, failed]);
    assert_eq!(recorded.stats.requests_moved, 1);
    let traffic: Vec<_> = recorded.stats.engines.iter().map(|e| (e.requests, e.errors)).collect();
    assert_eq!(traffic, [(2, 1), (2, 1)]);
}

#[tokio::test]
async fn an_engine_is_named_once_and_there_is_one() {
    for (upstreams, part) in [
        (vec![], "no upstream"),
        (vec!["http://127.0.0.1:1", "http://127.0.0.1:1/v1"], "given twice"),
    ] {
        let setup = Setup::start().await;
        let config = CaptureConfig {
            upstreams: upstreams.into_iter().map(str::to_owned).collect(),
            ..CaptureConfig::new("127.0.0.1:0".parse().unwrap(), String::new(), "r".to_owned())
        };
        let shutdown = Shutdown::new(std::time::Duration::from_secs(1));
        let started = Capture::start(config, setup.rows(), Clock::start(), shutdown).await;
        let error = started.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    }
}
