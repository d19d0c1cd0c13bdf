//! Poller and control against a scripted engine: rows of every kind of page, errors of every kind of
//! answer.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use agentbench::Error;
use agentbench::api::Api;
use agentbench::clock::Clock;
use agentbench::engine::control::{
    Answer, Control, Health, LengthForcing, OfferedApis, Refusal, TokenizeInput,
};
use agentbench::engine::{EngineKind, PollConfig, Poller};
use agentbench::trace::record::{EngineMetricsRow, EngineSampleRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};
use serde_json::{Value, json};

/// A request as the scripted engine sees it.
struct Request {
    /// Method and path.
    line: String,
    headers: BTreeMap<String, String>,
    body: Value,
}

/// Status and body; none: the connection stays silent.
type Reply = Option<(u16, String)>;

/// An engine that answers by a script, one thread per connection.
struct Scripted {
    url: String,
    served: Arc<AtomicUsize>,
}

impl Scripted {
    fn start(script: impl Fn(usize, &Request) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = Arc::new(AtomicUsize::new(0));
        let (script, count) = (Arc::new(script), served.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (script, count) = (script.clone(), count.clone());
                std::thread::spawn(move || answer(&stream, &*script, &count));
            }
        });
        Self { url, served }
    }

    /// Waits until so many requests were answered; the bound only ends a failing test.
    fn wait_for(&self, requests: usize) {
        for _ in 0..30_000 {
            if self.served.load(Ordering::SeqCst) >= requests {
                return;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        panic!("fewer than {requests} requests came");
    }
}

fn answer(mut stream: &TcpStream, script: &dyn Fn(usize, &Request) -> Reply, served: &AtomicUsize) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = Vec::new();
        let mut line = String::new();
        while reader.read_line(&mut line).is_ok_and(|read| read > 2) {
            head.push(std::mem::take(&mut line).trim_end().to_owned());
        }
        let Some((first, headers)) = head.split_first() else { return };
        let headers: BTreeMap<String, String> = headers
            .iter()
            .filter_map(|header| header.split_once(':'))
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect();
        let length = headers.get("content-length").map_or(0, |length| length.parse().unwrap());
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let request = Request {
            line: first.trim_end_matches(" HTTP/1.1").to_owned(),
            headers,
            body: serde_json::from_slice(&body).unwrap_or_default(),
        };
        match script(served.load(Ordering::SeqCst), &request) {
            Some((status, body)) => {
                let length = body.len();
                let location = if status == 302 { "location: /elsewhere\r\n" } else { "" };
                let reply = format!(
                    "HTTP/1.1 {status} Scripted\r\n{location}content-length: {length}\r\n\r\n{body}"
                );
                if stream.write_all(reply.as_bytes()).is_err() {
                    return;
                }
                served.fetch_add(1, Ordering::SeqCst);
            }
            // Silent until the client gives up.
            None => drop(reader.read(&mut [0])),
        }
    }
}

/// A page after so many requests of 100 tokens, 20 of them cached, with 5 tokens out.
fn page(requests: u64) -> (u16, String) {
    let page = format!(
        "vllm:request_success_total{{finished_reason=\"stop\"}} {requests}\n\
         vllm:request_prompt_tokens_count {requests}\n\
         vllm:request_prompt_tokens_sum {}\n\
         vllm:request_generation_tokens_sum {}\n\
         vllm:prefix_cache_hits_total {}\n\
         vllm:num_requests_running 2\n",
        requests * 100,
        requests * 5,
        requests * 20
    );
    (200, page)
}

/// A run directory to poll into.
struct Recording {
    folder: tempfile::TempDir,
    writer: RunWriter,
    clock: Clock,
}

impl Recording {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = Clock::start();
        let manifest = Manifest::new(RunKind::Capture, "poll", &clock);
        let writer = RunWriter::create(&folder.path().join("run"), manifest).unwrap();
        Self { folder, writer, clock }
    }

    fn start(&self, url: &str, change: impl FnOnce(&mut PollConfig)) -> Result<Poller, Error> {
        let mut config = PollConfig::new(format!("{url}/metrics")).unwrap();
        config.timeout = Duration::from_secs(20);
        change(&mut config);
        Poller::start(config, self.writer.sender(), self.clock)
    }

    fn close(self) -> (Vec<EngineSampleRow>, Vec<EngineMetricsRow>) {
        self.writer.finish().unwrap();
        let run = Run::open(&self.folder.path().join("run")).unwrap();
        let samples = run.rows().unwrap().map(Result::unwrap).collect();
        (samples, run.rows().unwrap().map(Result::unwrap).collect())
    }
}

#[test]
fn completions_just_before_the_stop_are_counted() {
    let requests = Arc::new(Mutex::new(7));
    let shown = requests.clone();
    let engine = Scripted::start(move |_, _| Some(page(*shown.lock().unwrap())));
    let recording = Recording::new();
    let poller =
        recording.start(&engine.url, |config| config.interval = Duration::from_hours(1)).unwrap();
    *requests.lock().unwrap() = 9;
    let stats = poller.stop();
    assert_eq!((stats.ticks, stats.missed, stats.failed, stats.completions), (2, 0, 0, 2));
    assert_eq!(stats.kind, Some(EngineKind::Vllm));
    assert_eq!(stats.last.unwrap().running, Some(2.0));
    let (samples, rows) = recording.close();
    assert_eq!(samples.len(), 2);
    assert_eq!(samples[0].requests_total, Some(7.0));
    assert_eq!(rows.len(), 1);
    let row = &rows[0];
    assert_eq!((row.n, row.isl, row.osl), (2, Some(100.0), Some(5.0)));
    assert_eq!((row.prefix_cache_hits, row.stop_reason.as_str()), (Some(40), "{\"stop\":2}"));
    assert_eq!(row.engine, format!("{}/metrics", engine.url));
    assert!(row.ts <= row.window_end && (row.ts - samples[1].ts).abs() < 1e-9);
}

#[test]
fn every_poll_is_a_row_and_failures_lose_no_completion() {
    let engine = Scripted::start(|served, _| match served {
        0 => Some(page(3)),
        1 => Some(page(4)),
        2 => Some((500, "down".to_owned())),
        3 => Some((200, "<html>maintenance</html>".to_owned())),
        4 => Some(page(6)),
        5 => Some(page(0)),
        _ => Some(page(1)),
    });
    let recording = Recording::new();
    let poller =
        recording.start(&engine.url, |config| config.interval = Duration::from_millis(10)).unwrap();
    engine.wait_for(8);
    let stats = poller.stop();
    assert_eq!((stats.failed, stats.completions, stats.resets), (2, 4, 1));
    assert_eq!(stats.last_error, None);
    let (samples, rows) = recording.close();
    assert_eq!(samples.len() as u64, stats.ticks);
    let errors: Vec<Option<&str>> = samples.iter().map(|sample| sample.error.as_deref()).collect();
    assert_eq!(errors[..2], [None, None]);
    assert!(errors[2].unwrap().contains("500"), "{errors:?}");
    assert!(errors[3].unwrap().contains("line 1: the page is HTML"), "{errors:?}");
    assert!(errors[4..].iter().all(Option::is_none), "{errors:?}");
    let facts: Vec<_> =
        rows.iter().map(|row| (row.n, row.isl, row.scrapes_missed, row.counter_reset)).collect();
    assert_eq!(
        facts,
        [(1, Some(100.0), 0, false), (2, Some(100.0), 2, false), (1, Some(100.0), 0, true),]
    );
    for pair in samples[..samples.len() - 1].windows(2) {
        let ticks = (pair[1].due - pair[0].due) / 0.01;
        assert!(ticks > 0.9 && (ticks - ticks.round()).abs() < 0.01, "due times leave the grid");
    }
    assert!(samples.iter().all(|sample| sample.ts >= sample.due - 1e-6), "none is sent early");
}

#[test]
fn slow_scrapes_do_not_pile_up() {
    let busy = Arc::new(AtomicUsize::new(0));
    let most = Arc::new(AtomicUsize::new(0));
    let (now, peak) = (busy.clone(), most.clone());
    let engine = Scripted::start(move |_, _| {
        peak.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(50));
        now.fetch_sub(1, Ordering::SeqCst);
        Some(page(1))
    });
    let recording = Recording::new();
    let poller =
        recording.start(&engine.url, |config| config.interval = Duration::from_millis(10)).unwrap();
    engine.wait_for(5);
    let stats = poller.stop();
    assert_eq!(most.load(Ordering::SeqCst), 1);
    // Each scrape outlasts at least four ticks; the last one, after the stop, has none to skip.
    assert!(stats.missed >= (stats.ticks - 2) * 4, "{stats:?}");
    let (samples, rows) = recording.close();
    assert_eq!((samples.len() as u64, rows.len()), (stats.ticks, 0));
}

#[test]
fn an_engine_without_samples_yet_counts_from_zero() {
    let engine = Scripted::start(|served, _| match served {
        0 => Some((200, "# HELP vllm:prompt_tokens_total x\n".to_owned())),
        _ => Some(page(2)),
    });
    let recording = Recording::new();
    let poller =
        recording.start(&engine.url, |config| config.interval = Duration::from_hours(1)).unwrap();
    assert_eq!(poller.stats().last_error.as_deref(), Some("the page is empty so far"));
    assert_eq!(poller.stop().completions, 2);
    assert_eq!(recording.close().1.len(), 1);
}

#[test]
fn a_page_that_is_none_stops_the_start() {
    let html = || Some((200, "<!DOCTYPE html><title>Sign in</title>".to_owned()));
    let other = || Some((200, "node_load1 0.5\n".to_owned()));
    let missing = || Some((404, "{\"detail\":\"Not Found\"}".to_owned()));
    for (reply, part) in [
        (html(), "line 1: the page is HTML"),
        (Some((200, "{\"a\":1}".to_owned())), "line 1: the page is JSON"),
        (other(), "none of them by a name of vLLM"),
        (missing(), "answered 404"),
        // Not followed: the engine elsewhere is not the one that is measured.
        (Some((302, String::new())), "answered 302"),
        (None, "no answer in time"),
    ] {
        let patience = if reply.is_some() { 20_000 } else { 300 };
        let engine = Scripted::start(move |_, _| reply.clone());
        let recording = Recording::new();
        let error = recording
            .start(&engine.url.replace("://", "://user:secret@"), |config| {
                config.timeout = Duration::from_millis(patience);
            })
            .expect_err(part);
        check_upstream(&error, &engine.url, part);
        assert!(error.to_string().contains("--enable-metrics"), "{error}");
    }
    let recording = Recording::new();
    let closed = closed_port();
    check_upstream(&recording.start(&closed, |_| {}).unwrap_err(), &closed, "cannot connect");
}

/// An address at which nothing listens.
fn closed_port() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    format!("http://{}", listener.local_addr().unwrap())
}

fn check_upstream(error: &Error, url: &str, part: &str) {
    let message = error.to_string();
    assert!(matches!(error, Error::Upstream { .. }), "{message}");
    assert!(message.starts_with(url) && message.contains(part), "{message}");
    assert!(!message.contains("secret") && !message.contains('\n'), "{message}");
}

/// An engine of which each test changes a line.
fn vllm(request: &Request) -> Reply {
    let reply = |body: Value| Some((200, body.to_string()));
    match request.line.as_str() {
        "GET /health" => Some((200, String::new())),
        "GET /version" => reply(json!({"version": "0.32.0"})),
        "GET /v1/models" => reply(json!({"object": "list", "data": [
            {"id": "tiny", "max_model_len": 40960, "owned_by": "vllm", "root": "/models/tiny"},
            {"id": "adapter"},
        ]})),
        "GET /metrics" => Some(page(1)),
        "GET /openapi.json" => reply(json!({"paths": {
            "/v1/chat/completions": {}, "/v1/completions": {}, "/v1/messages/count_tokens": {}}})),
        "POST /tokenize" => reply(json!({"count": 3, "max_model_len": 40960, "tokens": [1, 2, 3]})),
        "POST /reset_prefix_cache" => Some((404, json!({"detail": "Not Found"}).to_string())),
        _ => Some((404, "{}".to_owned())),
    }
}

#[tokio::test]
async fn what_an_engine_is() {
    let engine = Scripted::start(|_, request| vllm(request));
    for suffix in ["", "/", "/v1", "/v1/"] {
        let control = Control::new(&format!("{}{suffix}", engine.url)).unwrap();
        assert_eq!(control.url(), engine.url);
        assert_eq!(control.metrics_url(), format!("{}/metrics", engine.url));
        assert_eq!(control.health().await.unwrap(), Health::Ready);
        let models = control.models().await.unwrap();
        assert_eq!(models[0].max_model_len, Some(40960));
        assert_eq!((models[1].id.as_str(), models[1].max_model_len), ("adapter", None));
        let info = control.info().await.unwrap();
        assert_eq!(info.url, engine.url);
        assert_eq!((info.name.as_deref(), info.version.as_deref()), (Some("vllm"), Some("0.32.0")));
        assert_eq!((info.model.as_deref(), info.max_model_len), (Some("tiny"), Some(40960)));
        assert!(!info.simulated);
        let apis = control.apis("tiny").await.unwrap();
        assert_eq!(
            apis,
            OfferedApis { messages: false, chat: true, completions: true, responses: false }
        );
        assert!(apis.offers(Api::Chat) && !apis.offers(Api::Messages));
    }
}

#[tokio::test]
async fn the_embedded_engine_is_known_by_either_mark() {
    for (version, owner) in [
        (json!({"version": "1", "engine": "agentbench-simulated"}), "vllm"),
        (json!({"version": "1"}), "agentbench-simulated"),
    ] {
        let engine = Scripted::start(move |_, request| match request.line.as_str() {
            "GET /version" => Some((200, version.to_string())),
            "GET /v1/models" => {
                Some((200, json!({"data": [{"id": "tiny", "owned_by": owner}]}).to_string()))
            }
            _ => vllm(request),
        });
        let info = Control::new(&engine.url).unwrap().info().await.unwrap();
        assert_eq!(info.name.as_deref(), Some("agentbench-simulated"));
        assert!(info.simulated);
    }
}

#[tokio::test]
async fn an_engine_that_tells_little() {
    // No version, no metrics, no description: the APIs are found by requests of one token.
    let engine = Scripted::start(|_, request| match request.line.as_str() {
        "GET /v1/models" => {
            Some((200, json!({"data": [{"id": "m", "owned_by": "me"}]}).to_string()))
        }
        "POST /v1/chat/completions" => {
            let asked = (request.body["max_tokens"].as_u64(), request.body["model"].as_str());
            assert_eq!(asked, (Some(1), Some("m")));
            Some((200, "{}".to_owned()))
        }
        "POST /v1/messages" => Some((400, "{}".to_owned())),
        "POST /v1/completions" => Some((405, "{}".to_owned())),
        _ => Some((404, "{}".to_owned())),
    });
    let control = Control::new(&engine.url).unwrap();
    let info = control.info().await.unwrap();
    assert_eq!((info.name.as_deref(), info.version, info.max_model_len), (Some("me"), None, None));
    assert_eq!(control.health().await.unwrap(), Health::Untold);
    let apis = control.apis("m").await.unwrap();
    assert_eq!(
        apis,
        OfferedApis { messages: true, chat: true, completions: false, responses: false }
    );
}

#[tokio::test]
async fn refusals_are_answers() {
    let engine = Scripted::start(|_, request| vllm(request));
    let control = Control::new(&engine.url).unwrap();
    let messages = json!([{"role": "user", "content": "hi"}]);
    let input = TokenizeInput::Chat { messages: &messages, tools: None };
    for input in [TokenizeInput::Text("hi"), input] {
        let Answer::Given(tokens) = control.tokenize("tiny", input).await.unwrap() else {
            panic!("refused")
        };
        assert_eq!((tokens.count, tokens.ids), (3, vec![1, 2, 3]));
    }
    let refused = Refusal { status: 404, message: "Not Found".to_owned() };
    assert_eq!(control.reset_prefix_cache().await.unwrap(), Answer::Refused(refused));

    let engine = Scripted::start(|_, request| match request.line.as_str() {
        "GET /health" => Some((503, String::new())),
        "POST /reset_prefix_cache" => Some((200, json!({"success": true}).to_string())),
        "POST /tokenize" => {
            Some((400, json!({"error": {"message": "no such\n model"}}).to_string()))
        }
        _ => vllm(request),
    });
    let control = Control::new(&engine.url).unwrap();
    assert_eq!(control.health().await.unwrap(), Health::NotReady { status: 503 });
    assert_eq!(control.reset_prefix_cache().await.unwrap(), Answer::Given(()));
    let refused = Refusal { status: 400, message: "no such model".to_owned() };
    let answer = control.tokenize("x", TokenizeInput::Text("hi")).await.unwrap();
    assert_eq!(answer, Answer::Refused(refused));
}

#[tokio::test]
async fn keys_go_along_and_stay_out_of_messages() {
    let engine = Scripted::start(|_, request| {
        let key = request.headers.get("authorization").map(String::as_str);
        if key == Some("Bearer secret") {
            vllm(request)
        } else {
            Some((401, json!({"error": "who are you?"}).to_string()))
        }
    });
    let control = Control::new(&format!("{}/v1?key=secret", engine.url)).unwrap();
    let error = control.models().await.unwrap_err();
    check_upstream(&error, &engine.url, "/v1/models answered 401");
    assert!(error.to_string().contains("API key"), "{error}");
    assert_eq!(control.with_key("secret").models().await.unwrap().len(), 2);
}

#[tokio::test]
async fn an_engine_that_is_not_there_is_an_error() {
    let closed = closed_port();
    let control = Control::new(&closed.replace("://", "://user:secret@")).unwrap();
    check_upstream(&control.health().await.unwrap_err(), &closed, "cannot connect");
    check_upstream(&control.info().await.unwrap_err(), &closed, "start the engine");
    let silent = Scripted::start(|_, _| None);
    let control = Control::new(&silent.url).unwrap();
    let control = control.with_timeout(Duration::from_millis(200)).unwrap();
    check_upstream(&control.models().await.unwrap_err(), &silent.url, "no answer in time");
    let website = Scripted::start(|_, _| Some((200, "<html></html>".to_owned())));
    let control = Control::new(&website.url).unwrap();
    check_upstream(
        &control.models().await.unwrap_err(),
        &website.url,
        "is this an inference engine?",
    );
}

/// How many tokens an engine makes of a probe.
type Makes = fn(&Value) -> Option<u64>;

#[tokio::test]
async fn whether_output_lengths_can_be_forced() {
    let honours: Makes = |body| Some(if body["ignore_eos"] == true { 24 } else { 3 });
    let ignores: Makes = |_| Some(6);
    let talks: Makes = |body| Some(if body["stop"].is_array() { 2 } else { 24 });
    let holds: Makes =
        |body| Some(if body["stop"].is_array() && body["ignore_eos"] != true { 2 } else { 24 });
    let untold: Makes = |_| None;
    for (makes, expected) in [
        (honours, LengthForcing::Honoured),
        (ignores, LengthForcing::Ignored { asked: 24, given: 6 }),
        (talks, LengthForcing::Untold),
        (holds, LengthForcing::Honoured),
        (untold, LengthForcing::Untold),
    ] {
        let engine = Scripted::start(move |_, request| {
            assert_eq!(request.body["max_tokens"], 24);
            let forced = request.body["ignore_eos"] == true;
            assert_eq!(request.body["min_tokens"] == 24, forced);
            let usage = makes(&request.body).map(|count| json!({"completion_tokens": count}));
            Some((200, json!({"usage": usage}).to_string()))
        });
        let control = Control::new(&engine.url).unwrap();
        assert_eq!(control.probe_output_length(Api::Chat, "tiny").await.unwrap(), expected);
    }
    let engine = Scripted::start(|_, request| match request.line.as_str() {
        "POST /v1/messages" => Some((200, json!({"usage": {"output_tokens": 6}}).to_string())),
        _ => Some((422, json!({"detail": "ignore_eos: unknown field"}).to_string())),
    });
    let control = Control::new(&engine.url).unwrap();
    let forcing = control.probe_output_length(Api::Messages, "tiny").await.unwrap();
    assert_eq!(forcing, LengthForcing::Ignored { asked: 24, given: 6 });
    let refused = Refusal { status: 422, message: "ignore_eos: unknown field".to_owned() };
    let forcing = control.probe_output_length(Api::Chat, "tiny").await.unwrap();
    assert_eq!(forcing, LengthForcing::Refused(refused));
}

#[tokio::test]
async fn whether_token_ids_are_taken_as_they_are() {
    // What the engine counts for three ids: three, or the tokens of some text that it made of them.
    for (status, counted, expected) in [
        (200, json!(3), true),
        (200, json!(7), false),
        (200, json!(null), false),
        (400, json!(3), false),
    ] {
        let engine = Scripted::start(move |_, request| {
            assert_eq!(request.line, "POST /v1/completions");
            assert_eq!(request.body["prompt"].as_array().unwrap().len(), 3);
            Some((status, json!({"usage": {"prompt_tokens": counted}}).to_string()))
        });
        let control = Control::new(&engine.url).unwrap();
        assert_eq!(control.takes_token_ids("tiny").await.unwrap(), expected, "{status}");
    }
}
