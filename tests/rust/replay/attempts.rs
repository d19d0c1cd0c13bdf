//! Requests that are sent more than once: one row, whose times count from the first attempt.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use agentbench::api::Api;
use agentbench::replay::{ReplayConfig, Retries};
use agentbench::trace::record::{RequestRow, RequestStatus};
use serde_json::json;

use super::recording::{Replayed, Running, config, replay};
use super::upstream::{Manners, Step, Upstream, chat_delta, chat_end, chat_text};

const BACKOFF: Duration = Duration::from_millis(8);

fn patient(url: String, max: u32) -> ReplayConfig {
    let retries = Retries { max, backoff: BACKOFF, ..Retries::default() };
    ReplayConfig { retries, ..config(url) }
}

/// An engine that answers the first attempt by the first script, and so on; the last one again and
/// again.
async fn scripted(scripts: Vec<Vec<Step>>) -> Upstream {
    let attempts = AtomicUsize::new(0);
    Upstream::start(Manners::default(), move |_| {
        let at = attempts.fetch_add(1, Ordering::Relaxed);
        scripts[at.min(scripts.len() - 1)].clone()
    })
    .await
}

fn answer() -> Vec<Step> {
    vec![Step::Wait(5), Step::Send(chat_text("abc", Some(3)) + &chat_end(3))]
}

fn no_output() -> Step {
    Step::Send(chat_delta(&json!({"role": "assistant", "content": ""}), None))
}

fn error_event() -> Step {
    Step::Send("data: {\"error\":{\"message\":\"overloaded\",\"code\":529}}\n\n".into())
}

/// What each attempt came to: its status, and how its error begins.
type Log<'a> = &'a [(Option<u16>, Option<&'a str>)];

/// Two retries are allowed. The attempts of one request make this row.
async fn check(scripts: Vec<Vec<Step>>, status: RequestStatus, log: Log<'_>) {
    let upstream = scripted(scripts).await;
    let replayed = replay(Api::Chat, &["a 0 0..1"], patient(upstream.url(), 2)).await;
    assert_eq!(upstream.asked().len(), log.len());
    let bodies = upstream.asked().into_iter().map(|asked| asked.body).collect::<Vec<_>>();
    assert!(bodies.windows(2).all(|pair| pair[0] == pair[1]), "every attempt sends the same");
    let row = replayed.row("a0");
    assert_eq!(row.status, status);
    check_log(row, log);
    let (http_status, error) = log[log.len() - 1];
    assert_eq!(row.http_status, http_status);
    assert!(row.error.as_deref().unwrap_or_default().starts_with(error.unwrap_or_default()));
    assert_eq!(row.error.is_some(), error.is_some());
    let again = "1 requests were sent more than once";
    let noted = replayed.summary.notes.iter().any(|note| note.starts_with(again));
    assert_eq!(noted, log.len() > 1, "{:?}", replayed.summary.notes);
    assert_eq!(replayed.outcome.settings.max_retries, 2);
}

fn check_log(row: &RequestRow, log: Log<'_>) {
    assert_eq!(row.attempts as usize, log.len());
    assert_eq!(row.attempt_log.len(), log.len());
    for (attempt, (http_status, error)) in row.attempt_log.iter().zip(log) {
        assert_eq!(attempt.http_status, *http_status);
        let text = attempt.error.as_deref();
        assert!(text.unwrap_or_default().starts_with(error.unwrap_or_default()), "{text:?}");
        assert_eq!(text.is_some(), error.is_some());
        assert!(attempt.start_ms <= attempt.end_ms);
    }
    assert_eq!(row.attempt_log[0].start_ms.to_bits(), 0.0_f64.to_bits());
    for (index, pair) in row.attempt_log.windows(2).enumerate() {
        let least_ms = BACKOFF.as_secs_f64() * 1e3 * f64::from(1 << index) / 2.0;
        assert!(pair[1].start_ms - pair[0].end_ms >= least_ms, "{pair:?}");
    }
    let last = row.attempt_log.last().unwrap();
    assert_eq!(row.e2e_ms, Some(last.end_ms), "the row's time is that of all attempts");
    if let Some(ttft_ms) = row.ttft_ms {
        assert!(ttft_ms > last.start_ms, "counted from the first attempt");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_that_is_answered_in_the_end_is_one_row() {
    use RequestStatus::Ok;
    let done = (Some(200), None);
    let status = |status| vec![Step::Status(status, "{}")];
    for code in [408, 429, 500, 503, 529] {
        let log = [(Some(code), Some("http ")), done];
        check(vec![status(code), answer()], Ok, &log).await;
    }
    let log = [(Some(503), Some("http 503: ")), (Some(500), Some("http 500: ")), done];
    check(vec![status(503), status(500), answer()], Ok, &log).await;
    check(vec![vec![Step::Drop], answer()], Ok, &[(None, Some("no answer: ")), done]).await;
    let log = [(Some(200), Some("broken stream: ")), done];
    check(vec![vec![no_output(), Step::Wait(20), Step::Reset], answer()], Ok, &log).await;
    let log = [(Some(200), Some("unfinished stream: ")), done];
    check(vec![vec![no_output()], answer()], Ok, &log).await;
    let log = [(Some(200), Some("error event: overloaded")), done];
    check(vec![vec![error_event()], answer()], Ok, &log).await;
    check(vec![answer()], Ok, &[done]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_helped_is_not_tried_again() {
    use RequestStatus::Failed;
    let chunk = || Step::Send(chat_text("a", Some(1)));
    for code in [302, 400, 401, 404, 413, 422] {
        check(vec![vec![Step::Status(code, "{}")]], Failed, &[(Some(code), Some("http "))]).await;
    }
    // The engine had begun to generate.
    let log = [(Some(200), Some("broken stream: "))];
    check(vec![vec![chunk(), Step::Wait(20), Step::Reset]], Failed, &log).await;
    check(vec![vec![chunk(), error_event()]], Failed, &[(Some(200), Some("error event: "))]).await;
    check(vec![vec![chunk()]], Failed, &[(Some(200), Some("unfinished stream: "))]).await;
    let log = [(Some(503), Some("http 503: ")); 3];
    check(vec![vec![Step::Status(503, "{}")]], Failed, &log).await;
}

/// The wait between two attempts where the first answer has these headers.
async fn wait_ms(headers: &'static str, retries: Retries) -> f64 {
    let upstream = scripted(vec![vec![Step::StatusWith(429, headers)], answer()]).await;
    let replay_config = ReplayConfig { retries, ..config(upstream.url()) };
    let replayed = replay(Api::Chat, &["a 0 0..1"], replay_config).await;
    let row = replayed.row("a0");
    assert_eq!((row.status, row.attempts), (RequestStatus::Ok, 2));
    row.attempt_log[1].start_ms - row.attempt_log[0].end_ms
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_retry_after_is_waited_for_up_to_the_longest_wait() {
    let retries = Retries { max: 1, backoff: BACKOFF, ..Retries::default() };
    assert!(wait_ms("retry-after: 1\r\n", retries).await >= 1000.0);
    let dates = "date: Sun, 06 Nov 1994 08:49:37 GMT\r\n\
                 retry-after: Sun, 06 Nov 1994 08:49:38 GMT\r\n";
    assert!(wait_ms(dates, retries).await >= 1000.0);
    // That this ends at all shows that an hour is cut.
    let impatient = Retries { backoff_max: Duration::from_millis(300), ..retries };
    assert!(wait_ms("retry-after: 3600\r\n", impatient).await >= 300.0);
    assert!(wait_ms("retry-after: soon\r\n", retries).await >= 4.0);
}

async fn cut_off(config: ReplayConfig, upstream: &Upstream) -> Replayed {
    let running = Running::start(Api::Chat, &["a 0 0..1"], config).await.unwrap();
    while upstream.asked().is_empty() {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    tokio::time::sleep(Duration::from_millis(50)).await;
    running.shutdown.cancel();
    running.wait().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_ends_the_wait_for_another_attempt() {
    let upstream = scripted(vec![vec![Step::StatusWith(503, "retry-after: 3600\r\n")]]).await;
    let mut config = patient(upstream.url(), 2);
    config.retries.backoff_max = Duration::from_secs(3600);
    let replayed = cut_off(config, &upstream).await;
    let row = replayed.row("a0");
    assert_eq!((row.status, row.error.as_deref()), (RequestStatus::Cancelled, None));
    assert_eq!((row.http_status, row.attempts), (Some(503), 1));
    assert!(row.attempt_log[0].error.as_deref().unwrap().starts_with("http 503: "));
    assert!(row.e2e_ms.unwrap() > row.attempt_log[0].end_ms);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_attempt_that_is_cut_off_is_in_the_log_without_an_error() {
    let upstream = scripted(vec![vec![no_output(), Step::Hang]]).await;
    let replayed = cut_off(patient(upstream.url(), 2), &upstream).await;
    let row = replayed.row("a0");
    assert_eq!((row.status, row.attempts), (RequestStatus::Cancelled, 1));
    assert_eq!(row.attempt_log[0].error, None);
    assert_eq!(row.attempt_log[0].http_status, Some(200));
}
