//! What goes wrong becomes a row; what cannot begin becomes one clear error.

use std::time::Duration;

use agentbench::api::Api;
use agentbench::replay::settings::EndedBy;
use agentbench::replay::{ApiChoice, OnError};
use agentbench::trace::record::RequestStatus;

use super::recording::{Running, config, label, replay};
use super::upstream::{Manners, Step, Upstream, chat_end, chat_text};

/// A request that is answered so fails with this error, and what came before stays in its row.
async fn check(steps: Vec<Step>, http_status: Option<u16>, error: &str, chunks: usize) {
    let upstream = Upstream::start(Manners::default(), move |_| steps.clone()).await;
    let replayed =
        replay(Api::Chat, &["a 0 0..1", "a 1 1.01..2 wait=10"], config(upstream.url())).await;
    assert_eq!(replayed.requests.len(), 1, "the trajectory stops");
    let row = replayed.row("a0");
    assert_eq!(row.status, RequestStatus::Failed);
    let text = row.error.as_deref().unwrap();
    assert!(text.starts_with(error), "{text} does not start with {error}");
    assert!(!text.contains('\n'));
    assert_eq!(row.http_status, http_status);
    assert_eq!(row.chunk_gap_ms.len(), chunks.saturating_sub(1));
    assert_eq!(row.ttft_ms.is_some(), chunks > 0);
    let trajectory = &replayed.trajectories[0];
    assert!(!trajectory.completed);
    assert_eq!((trajectory.n_planned, trajectory.n_sent, trajectory.n_failed), (2, 1, 1));
    let summary = &replayed.summary;
    assert_eq!((summary.requests.failed, summary.errors[0].n), (1, 1));
    assert!(summary.whole.fields.is_empty(), "a failed request gives no latency");
}

fn two_chunks() -> Vec<Step> {
    vec![Step::Send(chat_text("a", Some(1))), Step::Wait(5), Step::Send(chat_text("b", Some(2)))]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statuses_are_failures() {
    let body = r#"{"error":{"message":"out of\nmemory","type":"server_error"}}"#;
    check(vec![Step::Status(500, body)], Some(500), "http 500: server_error: out of memory", 0)
        .await;
    check(vec![Step::Status(429, "slow down")], Some(429), "http 429: ", 0).await;
    check(vec![Step::Status(302, "")], Some(302), "http 302: ", 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_event_is_a_failure() {
    let error = Step::Send("data: {\"error\":{\"message\":\"gone\",\"code\":500}}\n\n".into());
    let done = Step::Send("data: [DONE]\n\n".into());
    check([two_chunks(), vec![error, done]].concat(), Some(200), "error event: gone", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_without_its_end_mark_is_a_failure() {
    check(two_chunks(), Some(200), "unfinished stream: ", 2).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_broken_connection_is_a_failure() {
    check(
        [two_chunks(), vec![Step::Wait(20), Step::Reset]].concat(),
        Some(200),
        "broken stream: ",
        2,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trajectory_goes_on_after_a_failure_when_it_is_told_to() {
    let upstream = Upstream::start(Manners::default(), |body| match label(body).as_str() {
        "s a1" => vec![Step::Status(503, "{}")],
        _ => vec![Step::Send(chat_text("abc", Some(3)) + &chat_end(3))],
    })
    .await;
    let turns = ["a 0 0..1", "a 1 1.01..2 wait=10", "a 2 2.01..3 wait=10"];
    let mut config = config(upstream.url());
    config.on_error = OnError::Continue;
    let replayed = replay(Api::Chat, &turns, config).await;
    assert_eq!(replayed.requests.len(), 3);
    assert_eq!(replayed.row("a1").status, RequestStatus::Failed);
    assert_eq!(replayed.row("a2").status, RequestStatus::Ok);
    assert!(!replayed.trajectories[0].completed);
    assert_eq!(replayed.trajectories[0].n_failed, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_cuts_off_what_is_on_its_way_and_keeps_its_row() {
    let upstream = Upstream::start(Manners::default(), |body| match label(body).as_str() {
        "s a0" => vec![Step::Send(chat_text("abc", Some(3)) + &chat_end(3))],
        _ => vec![Step::Send(chat_text("a", Some(1))), Step::Hang],
    })
    .await;
    let turns = ["a 0 0..1", "a 1 1.01..2 wait=10", "a 2 2.01..3 wait=10"];
    let running = Running::start(Api::Chat, &turns, config(upstream.url())).await.unwrap();
    while upstream.asked().len() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    running.shutdown.cancel();
    let replayed = running.wait().await;
    assert_eq!(replayed.outcome.settings.ended_by, EndedBy::Shutdown);
    assert_eq!(replayed.requests.len(), 2, "nothing more is started");
    assert_eq!(replayed.row("a0").status, RequestStatus::Ok);
    let cut = replayed.row("a1");
    assert_eq!((cut.status, cut.error.as_deref()), (RequestStatus::Cancelled, None));
    assert_eq!(replayed.trajectories[0].n_sent, 2);
    assert_eq!(replayed.summary.requests.cancelled, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_begin_is_one_clear_error() {
    let upstream =
        Upstream::start(Manners { messages: false, ..Manners::default() }, |_| Vec::new()).await;
    let error = |turns: &'static [&'static str], config| async move {
        let error = Running::start(Api::Messages, turns, config).await.err().unwrap();
        let text = error.to_string();
        assert!(!text.contains('\n'), "{text}");
        text
    };
    let turns: &[&str] = &["a 0 0..1"];
    let url = upstream.url();

    assert!(error(&[], config(url.clone())).await.contains("nothing to replay"));
    let gone = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", listener.local_addr().unwrap())
    };
    let text = error(turns, config(gone.clone())).await;
    assert!(text.starts_with(&gone), "{text}");
    let mut recorded = config(url.clone());
    recorded.api = ApiChoice::Recorded;
    assert!(error(turns, recorded).await.contains("does not offer /v1/messages"));
    let mut nobody = config(url.clone());
    nobody.agents = 0;
    assert!(error(turns, nobody).await.contains("0 agents"));
    assert!(error(turns, config("no address".into())).await.contains("address"));
    assert_eq!(upstream.asked().len(), 0);
}
