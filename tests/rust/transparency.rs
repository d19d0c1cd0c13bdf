//! The proxy changes nothing: bytes, order, case, framing and endings, on both sides.

use agentbench::Error;
use agentbench::capture::{Capture, CaptureConfig};
use agentbench::clock::Clock;
use agentbench::shutdown::Shutdown;
use agentbench::trace::record::Outcome;
use std::time::Duration;

use crate::wire::{Peer, Setup, must};

/// Header lines of a head, without those about the connection itself.
fn lines(head: &str) -> Vec<&str> {
    head.lines().skip(1).filter(|line| !line.is_empty()).collect()
}

#[tokio::test]
async fn heads_keep_case_order_values_and_repeats() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    client
        .send(
            "GET /v1/anything?a=1&b=%20x HTTP/1.1\r\nX-Zulu: 1\r\nhost: proxy\r\nx-ALPHA:  spaced value \r\n\
             Set-It: one\r\nSet-It: two\r\nAccept-Encoding: br, gzip\r\nConnection: keep-alive, X-Hop\r\n\
             X-Hop: gone\r\nKeep-Alive: 5\r\nAuthorization: Bearer s3cret\r\nlast: \x22q\x22\r\n\r\n",
        )
        .await;
    let mut engine = setup.engine().await;
    let head = engine.read_head().await;
    assert!(head.starts_with("GET /v1/anything?a=1&b=%20x HTTP/1.1\r\n"), "{head}");
    let host = format!("host: {}", setup.listener.local_addr().unwrap());
    assert_eq!(
        lines(&head),
        [
            "X-Zulu: 1",
            host.as_str(),
            "x-ALPHA: spaced value",
            "Set-It: one",
            "Set-It: two",
            "Accept-Encoding: br, gzip",
            "Authorization: Bearer s3cret",
            "last: \"q\"",
        ]
    );
    engine
        .send(
            "HTTP/1.1 299 Quite Fine\r\nServer: Own/1\r\nX-One: a\r\nset-cookie: c=1\r\nX-TWO: b\r\nX-One: c\r\n\
             Set-Cookie: d=2\r\nConnection: keep-alive\r\ncontent-LENGTH: 2\r\n\r\nhi",
        )
        .await;
    let head = client.read_head().await;
    assert!(head.starts_with("HTTP/1.1 299 Quite Fine\r\n"), "{head}");
    assert_eq!(
        lines(&head),
        [
            "Server: Own/1",
            "X-One: a",
            "X-One: c",
            "set-cookie: c=1",
            "Set-Cookie: d=2",
            "X-TWO: b",
            "content-LENGTH: 2",
        ]
    );
    assert_eq!(client.read_exact(2).await, b"hi");
    let recorded = setup.finish().await;
    assert!(recorded.turns.is_empty());
    assert_eq!((recorded.stats.requests, recorded.stats.side_requests), (1, 1));
}

/// Sends a request of any method and path and expects engine and client to see the same.
async fn check_passes(method: &str, path: &str, request_body: &str, status: &str, body: &str) {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    let length = request_body.len();
    let framing = if length > 0 { format!("Content-Length: {length}\r\n") } else { String::new() };
    client
        .send(format!("{method} {path} HTTP/1.1\r\nHost: p\r\n{framing}\r\n{request_body}"))
        .await;
    let mut engine = setup.engine().await;
    let (head, received) = engine.read_message().await;
    assert_eq!(head.lines().next().unwrap(), format!("{method} {path} HTTP/1.1"));
    assert_eq!(received, request_body.as_bytes());
    let own_framing = lines(&head).iter().any(|line| line.starts_with("Content-Length"));
    assert_eq!(own_framing, length > 0, "{head}");
    let length = if method == "HEAD" { 1234 } else { body.len() };
    let has_length = !status.starts_with("204");
    let framing = if has_length { format!("Content-Length: {length}\r\n") } else { String::new() };
    engine.send(format!("HTTP/1.1 {status}\r\n{framing}\r\n{body}")).await;
    let head = client.read_head().await;
    assert_eq!(head, format!("HTTP/1.1 {status}\r\n{framing}\r\n"));
    assert_eq!(client.read_exact(body.len()).await, body.as_bytes());
    // The connection is in order for the next request.
    client.send("GET /next HTTP/1.1\r\nHost: p\r\n\r\n").await;
    assert!(engine.read_head().await.starts_with("GET /next "));
    engine.answer("200 OK", "", b"").await;
    assert_eq!(client.read_head().await, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
}

#[tokio::test]
async fn every_method_and_path_passes() {
    check_passes("GET", "/", "", "200 OK", "root").await;
    check_passes("HEAD", "/v1/models", "", "200 OK", "").await;
    check_passes("OPTIONS", "/v1/messages", "", "204 No Content", "").await;
    check_passes("DELETE", "/v1/files/f%2F1?x", "", "200 OK", "{}").await;
    check_passes("PATCH", "//odd/../path;p=1", "patch", "404 Not Found", "none").await;
    check_passes("PUT", "/put", "body", "201 Created", "made").await;
    check_passes("PROPFIND", "/dav", "<x/>", "207 Multi-Status", "<y/>").await;
    check_passes("GET", "/v1/models", "{\"a\":1}", "200 OK", "a body on GET").await;
}

#[tokio::test]
async fn bodies_of_the_recorded_apis_pass_as_they_are() {
    for path in ["/v1/responses", "/v1/completions?x=%20", "/responses", "/v1/responses/compact"] {
        // Odd spacing, a repeated member, what is no JSON at all: none of the proxy's business.
        let odd = "{ \"input\" :[ ],\"prompt\":\"\\u00e9\",\t\"input\":1}\n";
        check_passes("POST", path, odd, "200 OK", "{\"id\":\"r\" , \"output\":[]}").await;
        check_passes("POST", path, "\u{1}not json", "400 Bad Request", "no").await;
    }
}

#[tokio::test]
async fn each_event_arrives_before_the_next_is_sent() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    client.post("/v1/messages", "", b"{\"messages\":[]}").await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    engine.begin_stream().await;
    let head = client.read_head().await;
    assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
    for index in 0..200 {
        let event = format!("event: ping\ndata: {{\"index\":{index}}}\n\n");
        engine.send_chunk(&event).await;
        // Only what the client has in hand lets the engine go on: nothing can have waited for it.
        assert_eq!(client.read_chunk().await, event.as_bytes());
    }
    engine.end_stream().await;
    assert!(client.read_chunk().await.is_empty());
}

#[tokio::test]
async fn an_upload_reaches_the_engine_while_it_is_sent() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    client
        .send("POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nTransfer-encoding: chunked\r\n\r\n")
        .await;
    let mut engine = setup.engine().await;
    let head = engine.read_head().await;
    assert!(head.contains("Transfer-encoding: chunked\r\n"), "{head}");
    for piece in ["{\"messages\"", ":", "[]}"] {
        client.send_chunk(piece).await;
        assert_eq!(engine.read_chunk().await, piece.as_bytes());
    }
    // The engine may answer before the request has ended.
    engine.begin_stream().await;
    engine.send_chunk("data: early\n\n").await;
    client.read_head().await;
    assert_eq!(client.read_chunk().await, b"data: early\n\n");
    client.send_chunk(" ").await;
    assert_eq!(engine.read_chunk().await, b" ");
    client.end_stream().await;
    assert!(engine.read_chunk().await.is_empty());
    engine.end_stream().await;
    assert!(client.read_chunk().await.is_empty());
    let recorded = setup.finish().await;
    assert_eq!(recorded.run.request_body(&recorded.turns[0]).unwrap(), b"{\"messages\":[]} ");
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    client
        .send(
            "POST /upload HTTP/1.1\r\nHost: p\r\nTE: trailers\r\nTrailer: X-Sum\r\n\
             Transfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\nX-Sum: 7\r\n\r\n",
        )
        .await;
    let mut engine = setup.engine().await;
    engine.read_head().await;
    assert_eq!(engine.read_chunk().await, b"ab");
    assert!(engine.read_chunk().await.is_empty());
    assert_eq!(engine.read_head().await.to_ascii_lowercase(), "x-sum: 7\r\n\r\n");
    engine
        .send(
            "HTTP/1.1 200 OK\r\nTrailer: X-Took\r\nTransfer-Encoding: chunked\r\n\r\n\
             2\r\ncd\r\n0\r\nX-Took: 9\r\n\r\n",
        )
        .await;
    client.read_head().await;
    assert_eq!(client.read_chunk().await, b"cd");
    assert!(client.read_chunk().await.is_empty());
    assert_eq!(client.read_head().await.to_ascii_lowercase(), "x-took: 9\r\n\r\n");
}

#[tokio::test]
async fn connections_are_kept_on_both_sides() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    let mut engine = None;
    for index in 0..500 {
        client.post(&format!("/v1/call/{index}"), "", b"x").await;
        let engine = match &mut engine {
            Some(engine) => engine,
            none => none.insert(setup.engine().await),
        };
        let (head, _) = engine.read_message().await;
        assert!(head.starts_with(&format!("POST /v1/call/{index} ")));
        engine.answer("200 OK", "", b"y").await;
        assert_eq!(client.read_message().await.1, b"y");
    }
}

#[tokio::test]
async fn a_kept_connection_that_the_engine_closed_does_no_harm() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    for index in 0..3 {
        client.post(&format!("/v1/call/{index}"), "", b"x").await;
        let mut engine = setup.engine().await;
        engine.read_message().await;
        engine.answer("200 OK", "", b"y").await;
        assert_eq!(client.read_message().await.1, b"y");
        // Closed while it is idle: the next request must come over another one.
        drop(engine);
    }
    assert_eq!(setup.finish().await.stats.upstream_errors, 0);
}

#[tokio::test]
async fn a_client_that_uploads_before_it_reads_is_not_stuck() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    let megabytes = vec![b'z'; 16 << 20];
    let length = megabytes.len();
    client.send(format!("POST /both HTTP/1.1\r\nContent-Length: {length}\r\n\r\n")).await;
    let mut engine = setup.engine().await;
    engine.read_head().await;
    // More than all buffers on the way hold, while the client reads none of it.
    let down = megabytes.clone();
    let (mut up, mut answer) = engine.split();
    let answering = tokio::spawn(async move {
        answer.answer("200 OK", "", &down).await;
        answer
    });
    let received = tokio::spawn(async move { up.read_exact(length).await });
    client.send(&megabytes).await;
    assert!(must(received).await.unwrap() == megabytes, "the upload arrived changed");
    assert!(client.read_message().await.1 == megabytes, "the answer arrived changed");
    must(answering).await.unwrap();
}

#[tokio::test]
async fn an_expecting_client_is_told_to_continue() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    client
        .send(
            "POST /v1/chat/completions HTTP/1.1\r\nHost: p\r\nContent-Length: 15\r\n\
             Expect: 100-continue\r\n\r\n",
        )
        .await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 100 "));
    client.send("{\"messages\":[]}").await;
    let mut engine = setup.engine().await;
    let (head, body) = engine.read_message().await;
    assert!(head.contains("Expect: 100-continue\r\n"), "{head}");
    assert_eq!(body, b"{\"messages\":[]}");
    engine.send("HTTP/1.1 100 Continue\r\n\r\n").await;
    engine.answer("200 OK", "", b"{}").await;
    assert_eq!(client.read_message().await.1, b"{}");
}

#[tokio::test]
async fn an_http_1_0_client_gets_a_body_without_chunks() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    client.send("GET /stream HTTP/1.0\r\n\r\n").await;
    let mut engine = setup.engine().await;
    let head = engine.read_head().await;
    assert!(head.starts_with("GET /stream HTTP/1.1\r\n"), "{head}");
    engine.begin_stream().await;
    engine.send_chunk("one").await;
    engine.send_chunk("two").await;
    engine.end_stream().await;
    let answer = String::from_utf8(client.read_to_end().await).unwrap();
    assert!(answer.ends_with("\r\n\r\nonetwo"), "{answer}");
}

#[tokio::test]
async fn a_tunnel_is_refused_in_words() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    client.send("CONNECT other:443 HTTP/1.1\r\nHost: other:443\r\n\r\n").await;
    let (head, body) = client.read_message().await;
    assert!(head.starts_with("HTTP/1.1 501 "), "{head}");
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("use it as the base URL"), "{message}");
}

#[tokio::test]
async fn an_upgrade_is_passed_on_as_a_plain_request() {
    let setup = Setup::start().await;
    let mut client = setup.client().await;
    client
        .send("GET /ws HTTP/1.1\r\nHost: p\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
        .await;
    let mut engine = setup.engine().await;
    let head = engine.read_head().await;
    assert!(!head.to_ascii_lowercase().contains("upgrade"), "{head}");
    engine.answer("426 Upgrade Required", "", b"").await;
    assert!(client.read_head().await.starts_with("HTTP/1.1 426 "));
}

#[tokio::test]
async fn a_base_path_is_put_before_every_path() {
    let setup = Setup::start_with(|config| config.upstreams[0].push_str("/base/")).await;
    let mut client = setup.client().await;
    client.post("/s/mine/v1/x?y=1", "", b"").await;
    let mut engine = setup.engine().await;
    assert!(engine.read_head().await.starts_with("POST /base/v1/x?y=1 HTTP/1.1\r\n"));
    engine.answer("200 OK", "", b"").await;
    client.read_head().await;
}

#[tokio::test]
async fn a_client_that_goes_away_cancels_the_engine() {
    // Before the response, within it, and within the upload.
    for moment in 0..3 {
        let setup = Setup::start().await;
        let mut client = setup.client().await;
        let body = b"{\"messages\":[]}";
        if moment == 2 {
            client.send("POST /v1/messages HTTP/1.1\r\nContent-Length: 99\r\n\r\n{").await;
        } else {
            client.post("/v1/messages", "", body).await;
        }
        let mut engine = setup.engine().await;
        engine.read_head().await;
        if moment == 2 {
            engine.read_exact(1).await;
        } else {
            engine.read_exact(body.len()).await;
        }
        if moment == 1 {
            engine.begin_stream().await;
            engine.send_chunk("data: {}\n\n").await;
            client.read_head().await;
            client.read_chunk().await;
        }
        drop(client);
        assert_eq!(engine.read_to_end().await, b"", "the engine sees the end, moment {moment}");
        let recorded = setup.finish().await;
        assert_eq!(recorded.stats.client_cancelled, 1, "moment {moment}");
        let outcomes: Vec<Outcome> = recorded.turns.iter().map(|row| row.outcome).collect();
        assert_eq!(outcomes, [Outcome::ClientCancelled], "moment {moment}");
        assert_eq!(recorded.stats.active, 0);
    }
}

#[tokio::test]
async fn a_break_is_seen_as_a_break() {
    for framing in
        ["Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", "Content-Length: 99\r\n\r\nhello"]
    {
        for orderly in [true, false] {
            let setup = Setup::start().await;
            let mut client = setup.client().await;
            client.post("/v1/messages", "", b"{\"messages\":[]}").await;
            let mut engine = setup.engine().await;
            engine.read_message().await;
            engine.send(format!("HTTP/1.1 200 OK\r\n{framing}")).await;
            client.read_head().await;
            client.read_until(b"hello").await;
            if orderly {
                drop(engine);
            } else {
                engine.reset();
            }
            let rest = client.read_to_end().await;
            assert!(!rest.ends_with(b"0\r\n\r\n"), "no clean end: {rest:?}");
            let recorded = setup.finish().await;
            assert_eq!(recorded.stats.upstream_errors, 1);
        }
    }
}

#[tokio::test]
async fn twenty_megabytes_pass_byte_for_byte() {
    let setup = Setup::start().await;
    let (mut client, mut engine, sent) = setup.upload(20_000_000).await;
    let down = sent.clone();
    let answering = tokio::spawn(async move { engine.answer("200 OK", "", &down).await });
    let (_, answer) = client.read_message().await;
    assert!(answer == sent, "the answer arrived changed");
    must(answering).await.unwrap();
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert!(recorded.run.request_body(row).unwrap() == sent, "the recorded body differs");
    assert_eq!((recorded.stats.bytes_up, recorded.stats.bytes_down), (20_000_000, 20_000_000));
}

#[tokio::test]
async fn three_hundred_streams_at_once() {
    let setup = Setup::start().await;
    let mut pairs = Vec::new();
    for index in 0..300 {
        let mut client = setup.client().await;
        client.post(&format!("/v1/messages?n={index}"), "", b"{\"messages\":[]}").await;
        let mut engine = setup.engine().await;
        let (head, _) = engine.read_message().await;
        assert!(head.starts_with(&format!("POST /v1/messages?n={index} ")));
        engine.begin_stream().await;
        client.read_head().await;
        pairs.push((client, engine));
    }
    assert_eq!(setup.capture.stats().active, 300);
    for round in 0..5 {
        for (index, (_, engine)) in pairs.iter_mut().enumerate() {
            engine.send_chunk(format!("data: {round} {index}\n\n")).await;
        }
        for (index, (client, _)) in pairs.iter_mut().enumerate() {
            assert_eq!(
                client.read_chunk().await,
                format!("data: {round} {index}\n\n").into_bytes()
            );
        }
    }
    for (client, engine) in &mut pairs {
        engine.end_stream().await;
        assert!(client.read_chunk().await.is_empty());
    }
    let recorded = setup.finish().await;
    assert_eq!((recorded.turns.len(), recorded.stats.turns_dropped), (300, 0));
}

#[tokio::test]
async fn an_open_request_may_end_after_the_stop() {
    let setup = Setup::start().await;
    let addr = setup.capture.local_addr();
    let mut client = setup.client().await;
    client.post("/v1/messages", "", b"{\"messages\":[]}").await;
    let mut engine = setup.engine().await;
    engine.read_message().await;
    let stopping = tokio::spawn(setup.finish());
    // Once nobody is accepted any more, the stop has begun.
    must(async {
        while tokio::net::TcpStream::connect(addr).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    engine.answer("200 OK", "", b"{\"late\":1}").await;
    assert_eq!(client.read_message().await.1, b"{\"late\":1}");
    let recorded = must(stopping).await.unwrap();
    assert_eq!(recorded.turns.len(), 1);
}

#[tokio::test]
async fn what_cannot_start_says_why() {
    let setup = Setup::start().await;
    let taken = setup.capture.local_addr();
    let rows = setup.rows();
    for (listen, upstream, part) in [
        (taken, "http://127.0.0.1:1", "choose another address"),
        ("127.0.0.1:0".parse().unwrap(), "ftp://x", "only http and https"),
    ] {
        let config = CaptureConfig::new(listen, upstream.to_owned(), "r".to_owned());
        let shutdown = Shutdown::new(Duration::from_secs(1));
        let error =
            Capture::start(config, rows.clone(), Clock::start(), shutdown).await.unwrap_err();
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!(matches!(error, Error::Bind { .. }), listen == taken);
    }
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_named() {
    let setup =
        Setup::start_with(|config| config.upstreams = vec!["http://127.0.0.1:1/b".to_owned()])
            .await;
    for (path, kind) in [("/v1/messages", "api_error"), ("/v1/chat/completions", "api_error")] {
        let mut client: Peer = setup.client().await;
        client.post(path, "", b"{\"messages\":[]}").await;
        let (head, body) = client.read_message().await;
        assert!(head.starts_with("HTTP/1.1 502 "), "{head}");
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        assert_eq!(body["error"]["type"], kind);
        let message = body["error"]["message"].as_str().unwrap();
        assert!(
            message.contains("http://127.0.0.1:1/b") && message.contains("refused"),
            "{message}"
        );
    }
    let recorded = setup.finish().await;
    assert_eq!((recorded.turns.len(), recorded.stats.upstream_errors), (2, 2));
}

/// An https engine that does not get as far as TLS: what the agent gets and what the row says.
async fn check_no_tls(speaks: bool, status: &str, words: &str) {
    let setup = Setup::start_with(|config| {
        config.upstreams[0] = config.upstreams[0].replace("http://", "https://");
        if !speaks {
            config.connect_timeout = Duration::from_millis(50);
        }
    })
    .await;
    let mut client = setup.client().await;
    client.post("/v1/messages", "", b"{\"messages\":[]}").await;
    let mut engine = setup.engine().await;
    if speaks {
        engine.send("HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n").await;
    }
    let (head, body) = client.read_message().await;
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
    let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
    let message = body["error"]["message"].as_str().unwrap();
    assert!(message.contains("upstream https://127.0.0.1:"), "{message}");
    assert!(message.contains(words), "{message}");
    let recorded = setup.finish().await;
    let row = &recorded.turns[0];
    assert_eq!((row.outcome, row.http_status), (Outcome::UpstreamError, None));
    assert!(row.error.as_deref().unwrap().contains(words), "{:?}", row.error);
}

#[tokio::test]
async fn an_engine_that_speaks_no_tls_is_a_bad_gateway() {
    check_no_tls(true, "502", "corrupt message").await;
}

#[tokio::test]
async fn an_engine_that_never_answers_the_connection_is_a_timeout() {
    check_no_tls(false, "504", "no connection within 50ms").await;
}
