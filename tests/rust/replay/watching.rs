//! The client watches itself: one whose runtime stands still says so, one that is well does not.

use std::time::Duration;

use agentbench::api::Api;
use agentbench::replay::{OpenLoop, ReplayConfig};
use tokio::task::JoinHandle;

use super::recording::{Replayed, config, replay};
use super::upstream::{Manners, Upstream, messages_stream};

/// Keeps a worker of the runtime from everything else, ten elevenths of the time.
pub(crate) fn stall_the_runtime() -> JoinHandle<()> {
    tokio::spawn(async {
        loop {
            std::thread::sleep(Duration::from_millis(200));
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
}

/// Arrivals for three seconds, each of one request that is answered after so long.
async fn three_seconds_of_requests(answer_ms: u64) -> Replayed {
    let upstream =
        Upstream::start(Manners::default(), move |_| messages_stream(1, answer_ms)).await;
    let arrivals = "constant:30".parse().unwrap();
    let config = ReplayConfig {
        open_loop: Some(OpenLoop { arrivals, time_scale: 1.0, max_active: None }),
        trajectories: Some(90),
        ..config(upstream.url())
    };
    replay(Api::Messages, &["a 0 0..1"], config).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_client_whose_runtime_stands_still_is_limited() {
    let stalls = stall_the_runtime();
    let replayed = three_seconds_of_requests(0).await;
    stalls.abort();
    let client = &replayed.summary.client;
    assert_eq!(client.limited, Some(true), "{client:?}");
    assert!(client.reasons[0].starts_with("timers late by p90"), "{:?}", client.reasons);
    let lag = client.timer_lag_ms.unwrap();
    assert!(lag.max >= 180.0 && lag.p90 > 100.0, "{lag:?}");
    // A stall counts by its length: of 220 ms, 200 are late.
    assert!(lag.p50 >= 40.0, "{lag:?}");
    assert!(replayed.summary.notes[0].starts_with("client-limited: timers late by p90"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_is_well_is_not_limited() {
    let replayed = three_seconds_of_requests(1000).await;
    let client = &replayed.summary.client;
    assert_eq!((client.limited, client.engine_in_process), (Some(false), Some(true)), "{client:?}");
    assert!(client.timer_lag_ms.unwrap().n >= 200);
    assert!(client.open_sockets.is_none_or(|sockets| sockets >= 30), "{:?}", client.open_sockets);
    assert!(client.cpu_cores.unwrap() > 0.0);
    let sends = client.send_lag_ms.unwrap();
    assert!((20..=90).contains(&sends.n) && sends.p50 < 1000.0, "{sends:?}");
    assert!(!replayed.summary.notes.iter().any(|note| note.starts_with("client-limited")));
}
