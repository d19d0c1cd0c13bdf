//! Time-outs, each by its name, and runs that end because of what failed.

use std::time::Duration;

use agentbench::api::Api;
use agentbench::clock::Clock;
use agentbench::replay::attempts::{ERROR_RATE_MIN_REQUESTS, RequestKey};
use agentbench::replay::client::Client;
use agentbench::replay::settings::EndedBy;
use agentbench::replay::{OnError, ReplayConfig, Retries, Timeouts};
use agentbench::trace::record::RequestStatus;
use tokio_util::sync::CancellationToken;

use super::recording::{Replayed, config, label, replay};
use super::upstream::{Manners, Step, Upstream, chat_end, chat_text};

const MS: Duration = Duration::from_millis(1);

fn none() -> Timeouts {
    Timeouts { first_byte: None, idle: None, request: None, ..Timeouts::default() }
}

/// An answer that comes so fails by this time-out.
async fn check(steps: Vec<Step>, timeouts: Timeouts, http_status: Option<u16>, error: &str) {
    let upstream = Upstream::start(Manners::default(), move |_| steps.clone()).await;
    let config = ReplayConfig { timeouts, ..config(upstream.url()) };
    let replayed = replay(Api::Chat, &["a 0 0..1"], config).await;
    let row = replayed.row("a0");
    assert_eq!((row.status, row.error.as_deref()), (RequestStatus::Failed, Some(error)));
    assert_eq!((row.http_status, row.attempts), (http_status, 1));
    assert_eq!(replayed.summary.errors[0].kind, error.split(':').next().unwrap());
    let settings = &replayed.summary.settings;
    assert_eq!(settings.idle_timeout_s, timeouts.idle.map(|time| time.as_secs_f64()));
    assert_eq!(settings.request_timeout_s, timeouts.request.map(|time| time.as_secs_f64()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_time_out_fails_a_row_by_its_name() {
    let chunk = || Step::Send(chat_text("a", Some(1)));
    let first_byte = Timeouts { first_byte: Some(200 * MS), ..none() };
    let error = "first-byte time-out: no byte of a response within 0.2 s";
    check(vec![Step::Silence], first_byte, None, error).await;
    check(vec![Step::Hang], first_byte, Some(200), error).await;
    let idle = Timeouts { idle: Some(200 * MS), ..none() };
    let error = "idle time-out: nothing more came for 0.2 s";
    check(vec![chunk(), Step::Wait(100), chunk(), Step::Hang], idle, Some(200), error).await;
    let request = Timeouts { request: Some(300 * MS), ..none() };
    let error = "request time-out: not answered whole within 0.3 s";
    check(vec![chunk(), Step::Hang], request, Some(200), error).await;
    let trickle = std::iter::repeat_n([chunk(), Step::Wait(20)], 500).flatten().collect();
    check(trickle, Timeouts { idle: Some(10_000 * MS), ..request }, Some(200), error).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_goes_on_outlasts_the_limits_of_silence() {
    let upstream = Upstream::start(Manners::default(), |_| {
        let mut steps = Vec::new();
        for _ in 0..8 {
            steps.extend([Step::Wait(100), Step::Send(chat_text("a", None))]);
        }
        steps.push(Step::Send(chat_end(8)));
        steps
    })
    .await;
    let timeouts = Timeouts { first_byte: Some(500 * MS), idle: Some(500 * MS), ..none() };
    let config = ReplayConfig { timeouts, ..config(upstream.url()) };
    let replayed = replay(Api::Chat, &["a 0 0..1 osl=8"], config).await;
    let row = replayed.row("a0");
    assert_eq!((row.status, row.error.as_deref()), (RequestStatus::Ok, None));
    assert!(row.e2e_ms.unwrap() >= 800.0);
}

/// A listener whose queue of connections is full answers no further one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_connection_that_does_not_come_about_is_a_time_out() {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let addr = listener.local_addr().unwrap();
    let mut held = Vec::new();
    while let Ok(Ok(stream)) =
        tokio::time::timeout(200 * MS, tokio::net::TcpStream::connect(addr)).await
    {
        held.push(stream);
        assert!(held.len() < 100, "the queue is never full");
    }
    let timeouts = Timeouts { connect: 300 * MS, ..none() };
    let retries = Retries { max: 1, backoff: MS, ..Retries::default() };
    let url = format!("http://{addr}");
    let client = Client::new(&url, None, retries, timeouts, Clock::start()).unwrap();
    let abort = CancellationToken::new();
    let exchange = client.send(Api::Chat, "{}".into(), RequestKey::default(), &abort).await;
    let error = "connect time-out: no connection within 0.3 s";
    assert_eq!(exchange.failure.unwrap().text, error);
    assert_eq!(exchange.attempts.len(), 2);
    for attempt in exchange.attempts {
        assert_eq!((attempt.error.as_deref(), attempt.http_status), (Some(error), None));
        assert!(attempt.end_ms - attempt.start_ms >= 299.0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn silence_before_output_is_tried_again_within_the_time_of_the_request() {
    let attempts = std::sync::atomic::AtomicUsize::new(0);
    let upstream = Upstream::start(Manners::default(), move |body| {
        let first = attempts.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0;
        match (label(body).as_str(), first) {
            ("s a0", true) => vec![Step::Hang],
            ("s a1", _) => vec![Step::Status(503, "{}")],
            _ => vec![Step::Send(chat_text("abc", Some(3)) + &chat_end(3))],
        }
    })
    .await;
    let config = ReplayConfig {
        timeouts: Timeouts {
            first_byte: Some(200 * MS),
            request: Some(Duration::from_secs(20)),
            ..none()
        },
        retries: Retries { max: 9, backoff: MS, ..Retries::default() },
        ..config(upstream.url())
    };
    let config = ReplayConfig { on_error: OnError::Continue, ..config };
    let replayed = replay(Api::Chat, &["a 0 0..1"], config.clone()).await;
    let row = replayed.row("a0");
    assert_eq!((row.status, row.attempts), (RequestStatus::Ok, 2));
    assert!(row.attempt_log[0].error.as_deref().unwrap().starts_with("first-byte time-out: "));
    assert!(row.ttft_ms.unwrap() >= 200.0);
    // An hour's wait does not fit into the request's 20 s: its last failure is what it failed of.
    let hour = Duration::from_secs(3600);
    let retries = Retries { max: 9, backoff: hour, backoff_max: hour, ..Retries::default() };
    let config = ReplayConfig { retries, ..config };
    let replayed = replay(Api::Chat, &["a 0 0..1", "a 1 1..2 wait=0"], config).await;
    let row = replayed.row("a1");
    assert_eq!((row.status, row.attempts), (RequestStatus::Failed, 1));
    assert_eq!(row.error.as_deref(), Some("http 503: "));
}

/// One session of so many turns; those whose number `fails` picks are refused.
async fn with_failures(
    turns: u32,
    fails: impl Fn(u32) -> bool + Send + Sync + 'static,
    change: impl FnOnce(&mut ReplayConfig),
) -> Replayed {
    let upstream = Upstream::start(Manners::default(), move |body| {
        let turn = label(body).trim_start_matches("s a").parse().unwrap();
        if fails(turn) {
            return vec![Step::Status(500, "{}")];
        }
        vec![Step::Send(chat_text("abc", Some(3)) + &chat_end(3))]
    })
    .await;
    let lines: Vec<String> =
        (0..turns).map(|turn| format!("a {turn} {turn}..{turn}.5 wait=0")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let mut config = config(upstream.url());
    change(&mut config);
    replay(Api::Chat, &lines, config).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_many_failures_end_a_run_once_there_are_enough_to_say_so() {
    let limit = |pct| {
        move |config: &mut ReplayConfig| {
            config.on_error = OnError::Continue;
            config.max_error_rate_pct = Some(pct);
        }
    };
    let all = with_failures(30, |_| true, limit(10.0)).await;
    assert_eq!(all.outcome.settings.ended_by, EndedBy::ErrorRate);
    let failed =
        all.requests.iter().filter(|row| row.status == RequestStatus::Failed).count() as u64;
    // One more may be on its way when the limit is reached.
    assert!((ERROR_RATE_MIN_REQUESTS..ERROR_RATE_MIN_REQUESTS + 2).contains(&failed), "{failed}");
    let summary = &all.summary;
    let because =
        format!("the run ended early: {failed} of {failed} requests failed, more than 10 %");
    assert_eq!(summary.failed_because.as_deref(), Some(because.as_str()));
    let note =
        "ended early: more than 10 % of the requests failed; what was on its way was cut off";
    assert!(summary.notes.iter().any(|noted| noted == note), "{:?}", summary.notes);
    assert_eq!(summary.settings.max_error_rate_pct, Some(10.0));

    let few = with_failures(30, |turn| turn % 10 == 9, limit(10.0)).await;
    assert_eq!(few.outcome.settings.ended_by, EndedBy::Trajectories);
    assert_eq!((few.requests.len(), few.summary.requests.failed), (30, 3));
    assert_eq!(few.summary.failed_because, None);
    // Below the number that makes a rate, a run is not ended, but fails its condition all the same.
    let short = with_failures(10, |turn| turn < 2, limit(10.0)).await;
    assert_eq!(short.outcome.settings.ended_by, EndedBy::Trajectories);
    let because = "2 of 10 requests failed, more than 10 %";
    assert_eq!(short.summary.failed_because.as_deref(), Some(because));
    let unlimited = with_failures(
        30,
        |turn| turn == 3,
        |config| {
            config.on_error = OnError::Continue;
        },
    );
    let because = unlimited.await.summary.failed_because;
    assert_eq!(because.as_deref(), Some("1 requests failed"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_request_ends_the_run_where_that_is_asked_for() {
    let upstream = Upstream::start(Manners::default(), |body| match label(body).as_str() {
        "s a0" => vec![Step::Send(chat_text("abc", Some(3)) + &chat_end(3))],
        "s a1" => vec![Step::Status(500, "{}")],
        _ => vec![Step::Send(chat_text("a", Some(1))), Step::Hang],
    });
    let upstream = upstream.await;
    let turns = [
        "a 0 0..1",
        "a 1 1..2 wait=300",
        "a 2 2..3 wait=0",
        "b 0 0..1 session=t",
        "b 1 1..2 wait=0 session=t",
    ];
    let config = ReplayConfig { on_error: OnError::Abort, agents: 2, ..config(upstream.url()) };
    let replayed = replay(Api::Chat, &turns, config).await;
    assert_eq!(replayed.outcome.settings.ended_by, EndedBy::FailedRequest);
    assert_eq!(replayed.requests.len(), 3, "nothing more is started");
    assert_eq!(replayed.row("a0").status, RequestStatus::Ok);
    assert_eq!(replayed.row("a1").status, RequestStatus::Failed);
    assert_eq!(replayed.row("b0").status, RequestStatus::Cancelled);
    assert_eq!(replayed.trajectories.len(), 2);
    let because = replayed.summary.failed_because.unwrap();
    assert!(because.contains("at its first failed request"), "{because}");
    let note = "ended early: a request failed, and that was to end the run";
    assert!(replayed.summary.notes.iter().any(|noted| noted.starts_with(note)));
}
