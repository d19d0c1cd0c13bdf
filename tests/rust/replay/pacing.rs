//! When trajectories begin: arrivals of the open loop, the order of the closed one, and what a late
//! start does to the figures.

use std::collections::BTreeMap;
use std::time::Duration;

use agentbench::api::Api;
use agentbench::replay::settings::EndedBy;
use agentbench::replay::{OpenLoop, ReplayConfig};
use agentbench::trace::record::{Phase, RequestRow};

use super::recording::{Replayed, config, replay};
use super::upstream::{Manners, Upstream, messages_stream};

const TWO_TURNS: [&str; 2] = ["a 0 0..1", "a 1 1.02..2 wait=20"];
const THREE_SESSIONS: [&str; 3] =
    ["a 0 0..1 session=x", "a 0 5..6 session=y", "a 0 15..16 session=z"];

/// An engine whose answers take so long.
async fn engine(answer_ms: u64) -> Upstream {
    Upstream::start(Manners::default(), move |_| messages_stream(1, answer_ms)).await
}

fn open(url: String, arrivals: &str, trajectories: u64) -> ReplayConfig {
    ReplayConfig {
        open_loop: Some(OpenLoop {
            arrivals: arrivals.parse().unwrap(),
            time_scale: 1.0,
            max_active: None,
        }),
        trajectories: Some(trajectories),
        ..config(url)
    }
}

fn capped(url: String, arrivals: &str, trajectories: u64, most: u32) -> ReplayConfig {
    let mut config = open(url, arrivals, trajectories);
    config.open_loop.as_mut().unwrap().max_active = Some(most);
    config
}

/// The rows of a turn by trajectory, in the order of the arrivals.
fn of_turn(replayed: &Replayed, turn: u32) -> Vec<&RequestRow> {
    let rows = replayed.requests.iter().filter(|row| row.turn == turn);
    let by_trajectory: BTreeMap<&str, &RequestRow> =
        rows.map(|row| (row.trajectory_id.as_str(), row)).collect();
    by_trajectory.into_values().collect()
}

fn end_ms(row: &RequestRow) -> f64 {
    row.sent_at_ms + row.e2e_ms.unwrap()
}

fn same(seen: f64, expected: f64) -> bool {
    (seen - expected).abs() < 1e-3
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trajectories_begin_at_their_arrivals_whatever_the_engine_does() {
    let upstream = engine(600).await;
    let config = open(upstream.url(), "constant:20", 6);
    let replayed = replay(Api::Messages, &["a 0 0..1"], config).await;
    let rows = of_turn(&replayed, 0);
    assert_eq!(rows.len(), 6);
    for pair in rows.windows(2) {
        assert!(same(pair[1].due_at_ms - pair[0].due_at_ms, 50.0), "{}", pair[1].due_at_ms);
        assert!(pair[1].sent_at_ms < end_ms(pair[0]), "nobody waits for the one before");
    }
    // Nobody has left before the last one came: each holds a place of its own.
    assert_eq!(rows.iter().map(|row| row.agent_id).collect::<Vec<_>>(), [0, 1, 2, 3, 4, 5]);
    let (settings, summary) = (&replayed.outcome.settings, &replayed.summary);
    assert_eq!((settings.agents, settings.not_admitted), (6, Some(0)));
    let figures = summary.open_loop.as_ref().unwrap();
    assert_eq!((figures.arrivals, figures.admitted, figures.admitted_late), (6, 6, 0));
    assert_eq!(figures.admission_wait_ms, None);
    // All begun before any ended: their number never settled.
    assert_eq!((summary.steady.requests.sent, figures.active_agents_mean), (0, None));
    assert!(
        summary.notes.iter().any(|note| note.contains("before the first trajectory had ended"))
    );
    assert!(summary.notes.iter().any(|note| note == "open loop: arrivals constant:20"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_for_a_place_is_the_lag_of_the_first_request_and_of_no_other() {
    let upstream = engine(60).await;
    let config = capped(upstream.url(), "constant:100", 3, 1);
    let replayed = replay(Api::Messages, &TWO_TURNS, config).await;
    let (first, second) = (of_turn(&replayed, 0), of_turn(&replayed, 1));
    assert!(same(first[2].due_at_ms - first[0].due_at_ms, 20.0), "the due start never moves");
    // Two trajectories of two answers and a wait each came before the third.
    assert!(first[2].lag_ms > 2.0 * (60.0 + 20.0 + 60.0) - 20.0, "{}", first[2].lag_ms);
    for (first, second) in first.iter().zip(&second) {
        assert!(same(second.due_at_ms, end_ms(first) + 20.0), "due from the answer before alone");
        assert!(same(second.lag_ms, second.sent_at_ms - second.due_at_ms));
    }
    let mut places: Vec<(u32, u32)> =
        replayed.trajectories.iter().map(|row| (row.agent_id, row.invocation)).collect();
    places.sort_unstable();
    assert_eq!(places, [(0, 0), (0, 1), (0, 2)]);
    for row in &replayed.trajectories {
        let waited_ms = row.admission_wait_ms.unwrap();
        let late_ms = row.start_ms - row.due_at_ms.unwrap();
        assert!(if waited_ms > 0.0 { same(waited_ms, late_ms) } else { row.invocation == 0 });
    }
    let figures = replayed.summary.open_loop.as_ref().unwrap();
    assert_eq!((figures.arrivals, figures.admitted_late, figures.not_admitted), (3, 2, 0));
    assert_eq!(replayed.outcome.settings.agents, 1);
    // From due the wait counts, from send it does not.
    let fields = &replayed.summary.whole.fields;
    assert!(fields["ttft_from_due_ms"].max - fields["ttft_ms"].max > 200.0);
    let ttfts = replayed.requests.iter().map(|row| row.lag_ms + row.ttft_ms.unwrap());
    let mean_ms = ttfts.sum::<f64>() / replayed.requests.len() as f64;
    assert!(same(fields["ttft_from_due_ms"].mean, mean_ms));
    assert!(replayed.summary.notes.iter().any(|note| note.starts_with("2 of 3 arrivals waited")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn arrivals_that_find_no_place_before_time_is_up_are_counted() {
    let upstream = engine(600).await;
    let mut config = capped(upstream.url(), "constant:20", 1, 1);
    (config.trajectories, config.duration) = (None, Some(Duration::from_millis(275)));
    let replayed = replay(Api::Messages, &TWO_TURNS, config).await;
    assert_eq!(replayed.outcome.settings.ended_by, EndedBy::Duration);
    let figures = replayed.summary.open_loop.as_ref().unwrap();
    // Due at 0, 50, … 250 ms; later ones too where a busy machine looked late.
    assert_eq!(figures.admitted, 1);
    assert!(figures.not_admitted >= 5, "{}", figures.not_admitted);
    assert_eq!(figures.arrivals, 1 + figures.not_admitted);
    assert!(replayed.summary.notes.iter().any(|note| note.contains("found no place")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_arrivals_are_stretched_and_start_over() {
    let upstream = engine(5).await;
    let mut config = open(upstream.url(), "recorded", 4);
    config.open_loop.as_mut().unwrap().time_scale = 0.01;
    let replayed = replay(Api::Messages, &THREE_SESSIONS, config).await;
    let rows = of_turn(&replayed, 0);
    let sessions: Vec<&str> = rows.iter().map(|row| row.session_id.as_str()).collect();
    assert_eq!(sessions, ["x", "y", "z", "x"]);
    // Starts of 0, 5 and 15 s; the next pass a mean gap of 7.5 s later.
    let from_first: Vec<f64> = rows.iter().map(|row| row.due_at_ms - rows[0].due_at_ms).collect();
    for (seen, expected) in from_first.iter().zip([0.0, 50.0, 150.0, 225.0]) {
        assert!(same(*seen, expected), "{from_first:?}");
    }
    let note = "open loop: arrivals recorded, 3 sessions over 15.0 s, times multiplied by 0.01";
    assert!(replayed.summary.notes.iter().any(|seen| seen == note));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_steady_state_of_arrivals_begins_when_the_first_leaves_and_ends_with_the_last() {
    let upstream = engine(40).await;
    let config = open(upstream.url(), "constant:25", 30);
    let replayed = replay(Api::Messages, &TWO_TURNS, config).await;
    let window = replayed.outcome.settings.window;
    let first_end_ms =
        replayed.trajectories.iter().filter_map(|row| row.end_ms).reduce(f64::min).unwrap();
    assert!(window.ramp_end_ms.unwrap() >= first_end_ms);
    assert!(window.steady_start_ms >= window.ramp_end_ms);
    let last = replayed.trajectories.iter().map(|row| row.due_at_ms.unwrap()).fold(0.0, f64::max);
    assert!(window.steady_end_ms.unwrap() >= last);
    for row in &replayed.requests {
        let after = |bound: Option<f64>| row.sent_at_ms >= bound.unwrap();
        match row.phase {
            Phase::Ramp => assert!(row.sent_at_ms <= window.steady_start_ms.unwrap() + 1e3),
            Phase::Warmup => assert!(after(window.ramp_end_ms)),
            Phase::Steady => assert!(after(window.steady_start_ms)),
            Phase::Tail => assert!(after(window.steady_end_ms)),
        }
    }
    let last_row = of_turn(&replayed, 0)[29];
    assert_eq!(last_row.phase, Phase::Tail);
    assert!(replayed.summary.steady.requests.sent > 0);
    let figures = replayed.summary.open_loop.as_ref().unwrap();
    assert!(figures.active_agents_mean.unwrap() > 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_with_a_cap_is_a_closed_loop() {
    let upstream = engine(10).await;
    let config = capped(upstream.url(), "burst", 8, 2);
    let replayed = replay(Api::Messages, &TWO_TURNS, config).await;
    let window = replayed.outcome.settings.window;
    // Both agents through their first request, until one has nothing left: as with two agents.
    let first = of_turn(&replayed, 0);
    let both_ms = first[0].sent_at_ms.max(first[1].sent_at_ms);
    assert!(window.ramp_end_ms.unwrap() <= both_ms + 1e-3, "two have started: the ramp is over");
    assert!(replayed.summary.steady.requests.sent >= 8, "{:?}", replayed.summary.phases);
    let mut ends: Vec<f64> = replayed.trajectories.iter().map(|row| row.end_ms.unwrap()).collect();
    ends.sort_by(f64::total_cmp);
    assert!(window.steady_end_ms.unwrap() >= ends[6], "until an agent has nothing left to start");
    assert_eq!(replayed.summary.open_loop.as_ref().unwrap().admitted_late, 6);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_seed_fixes_the_order_of_sessions() {
    let upstream = engine(1).await;
    let turns: Vec<String> =
        (0..12).map(|index| format!("a 0 {index}..{index}.5 session=s{index:02}")).collect();
    let turns: Vec<&str> = turns.iter().map(String::as_str).collect();
    let play = async |seed| {
        let config = ReplayConfig { seed, ..config(upstream.url()) };
        let replayed = replay(Api::Messages, &turns, config).await;
        let order: Vec<String> =
            of_turn(&replayed, 0).iter().map(|row| row.session_id.clone()).collect();
        (order, replayed)
    };
    let recorded: Vec<String> = (0..12).map(|index| format!("s{index:02}")).collect();
    assert_eq!(play(None).await.0, recorded);
    let (order, replayed) = play(Some(5)).await;
    assert_ne!(order, recorded);
    assert_eq!(play(Some(5)).await.0, order);
    assert_eq!(replayed.outcome.settings.seed, Some(5));
    assert!(replayed.summary.notes.iter().any(|note| note.contains("shuffled with seed 5")));
    let mut sorted = order;
    sorted.sort();
    assert_eq!(sorted, recorded);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_arrivals_without_a_span_do_not_start_over() {
    let upstream = engine(1).await;
    let error = super::recording::Running::start(
        Api::Messages,
        &["a 0 0..1"],
        open(upstream.url(), "recorded", 2),
    )
    .await
    .err()
    .unwrap();
    assert!(error.to_string().contains("ask for at most 1 trajectories"), "{error}");
}
