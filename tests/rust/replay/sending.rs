//! What is sent and when, and the columns of an answer.

use std::time::Duration;

use agentbench::api::Api;
use agentbench::replay::settings::EndedBy;
use agentbench::replay::{ApiChoice, HumanTime, LengthForcing, OutputLengthRule};
use agentbench::trace::record::{OutputLength, Phase, RequestStatus};
use serde_json::json;

use super::recording::{Running, config, label, replay};
use super::upstream::{Manners, Step, Upstream, chat_delta, chat_end, chat_text, messages_stream};

const ONE_THREAD: [&str; 3] = ["a 0 0..1", "a 1 1.05..2 wait=50", "a 2 2.02..3 wait=20"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_follow_one_another_and_bodies_are_the_recorded_ones() {
    let upstream = Upstream::start(Manners::default(), |_| messages_stream(3, 5)).await;
    let mut config = config(upstream.url() + "/v1");
    config.api_key = Some("sk-dummy".into());
    let replayed = replay(Api::Messages, &ONE_THREAD, config).await;

    let asked = upstream.asked();
    let labels: Vec<String> = asked.iter().map(|asked| label(&asked.body)).collect();
    assert_eq!(labels, ["s a0", "s a1", "s a2"]);
    assert!(asked.iter().all(|asked| asked.path == "/v1/messages"));
    assert!(asked[0].head.contains("authorization: Bearer sk-dummy"), "{}", asked[0].head);
    assert_eq!(
        asked[1].body,
        json!({"model": "scripted", "max_tokens": 3, "min_tokens": 3, "ignore_eos": true,
            "stream": true, "system": "Be brief.", "messages": [
                {"role": "user", "content": "s a0"}, {"role": "assistant", "content": "did"},
                {"role": "user", "content": "s a1"}]})
    );

    let (first, second) = (replayed.row("a0"), replayed.row("a1"));
    // Due times hang on the end of the response before, not on a chain of waits.
    let first_end_ms = first.sent_at_ms + first.e2e_ms.unwrap();
    assert!((second.due_at_ms - first_end_ms - 50.0).abs() < 1e-3);
    assert!(second.lag_ms >= 0.0 && second.sent_at_ms >= second.due_at_ms);
    assert_eq!((first.tool_wait_ms, second.tool_wait_ms), (None, Some(50.0)));
    assert_eq!((first.planned_cached_tokens, second.planned_cached_tokens), (Some(0), Some(100)));
    assert_eq!(second.planned_prompt_tokens, Some(120));
    assert_eq!(second.output_length, OutputLength::Ok);
    assert_eq!(second.stop_reason.as_deref(), Some("max_tokens"));
    assert_eq!((first.phase, second.phase), (Phase::Warmup, Phase::Steady));

    let trajectory = &replayed.trajectories[0];
    assert!(trajectory.completed);
    assert_eq!((trajectory.n_planned, trajectory.n_sent, trajectory.n_failed), (3, 3, 0));
    assert_eq!((trajectory.prompt_tokens, trajectory.completion_tokens), (300, 9));
    assert!((trajectory.tool_wait_ms - 70.0).abs() < 1e-6);
    assert_eq!(replayed.outcome.settings.ended_by, EndedBy::Trajectories);
    assert_eq!(replayed.outcome.rows_lost, 0);
    assert_eq!(replayed.summary.requests.ok, 3);
    assert_eq!(replayed.summary.trajectories.completed, 1);
    assert_eq!(replayed.summary.labels.output_length, LengthForcing::Honoured);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_chunks_with_output_make_ttft_and_itl() {
    let upstream = Upstream::start(Manners::default(), |_| {
        vec![
            Step::Send(chat_delta(&json!({"role": "assistant", "content": ""}), Some(0))),
            Step::Wait(60),
            Step::Send(chat_text("a", Some(1))),
            Step::Wait(40),
            Step::Send(chat_text("bcde", Some(5))),
            Step::Wait(40),
            Step::Send(chat_text("fghi", Some(9))),
            Step::Wait(60),
            Step::Send(chat_end(9)),
        ]
    })
    .await;
    let replayed = replay(Api::Chat, &["a 0 0..1 osl=9"], config(upstream.url())).await;

    let asked = upstream.asked();
    assert_eq!(
        asked[0].body["stream_options"],
        json!({"include_usage": true, "continuous_usage_stats": true})
    );
    assert_eq!(asked[0].body["max_tokens"], 9);
    assert!(asked[0].body.get("max_completion_tokens").is_none());

    let row = replayed.row("a0");
    assert_eq!(row.status, RequestStatus::Ok, "{:?}", row.error);
    assert_eq!(row.chunk_tokens, [1, 4, 4]);
    assert_eq!(row.chunk_gap_ms.len(), 2);
    let (ttft_ms, last_ms) = (row.ttft_ms.unwrap(), row.last_token_ms.unwrap());
    assert!(ttft_ms >= 60.0, "the role alone counted: {ttft_ms}");
    assert!(row.e2e_ms.unwrap() - last_ms >= 55.0, "usage alone counted");
    let gaps_ms: f64 = row.chunk_gap_ms.iter().sum();
    assert!((last_ms - ttft_ms - gaps_ms).abs() < 1e-6);
    assert!((row.tpot_ms.unwrap() - gaps_ms / 8.0).abs() < 1e-6);
    assert_eq!((row.prompt_tokens, row.completion_tokens), (Some(100), Some(9)));
    assert_eq!(row.cached_tokens, Some(64));
    let itl = replayed.summary.whole.fields["itl_per_token_ms"];
    assert_eq!(itl.n, 8);
    assert!((itl.mean - gaps_ms / 8.0).abs() < 1e-6);
    assert_eq!(replayed.summary.prefix_hits.usage_pct, Some(64.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subagents_run_beside_the_parent_who_waits_for_them() {
    let upstream = Upstream::start(Manners::default(), |body| match label(body).as_str() {
        // The child takes long; the parent's own second request is due after it in the recording.
        "s b0" => messages_stream(3, 60),
        _ => messages_stream(3, 5),
    })
    .await;
    let turns = [
        "a 0 0..1",
        "b 0 1.01..1.5 parent=a",
        "c 0 1.02..9 parent=a",
        "b 1 1.6..2 parent=a wait=10",
        "a 1 2.03..3 wait=1030",
        "a 2 3.01..4 wait=10",
    ];
    let replayed = replay(Api::Messages, &turns, config(upstream.url())).await;
    assert_eq!(replayed.requests.len(), 6);
    let start = |id: &str| replayed.row(id).sent_at_ms;
    let end = |id: &str| start(id) + replayed.row(id).e2e_ms.unwrap();
    assert!(start("b0") >= end("a0") + 10.0 && start("c0") >= end("a0") + 20.0);
    assert!(start("c0") < end("b0"), "children run side by side");
    assert!(start("b1") >= end("b0") + 10.0);
    assert!((replayed.row("a1").due_at_ms - end("b1") - 30.0).abs() < 1e-3);
    assert_eq!(replayed.row("a1").tool_wait_ms.map(f64::round), Some(30.0));
    // c outlives the parent in the recording: nobody waits for it.
    assert!(start("a2") >= end("a1"));
    assert!(replayed.trajectories[0].completed);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agents_share_one_queue_of_sessions_that_starts_over() {
    let upstream = Upstream::start(Manners::default(), |_| messages_stream(1, 20)).await;
    let turns = ["a 0 0..1 session=x", "a 0 5..6 session=y", "a 0 9..10 session=z"];
    let mut config = config(upstream.url());
    config.agents = 2;
    config.trajectories = Some(7);
    let replayed = replay(Api::Messages, &turns, config).await;
    let mut played: Vec<(String, String)> = replayed
        .trajectories
        .iter()
        .map(|row| (row.trajectory_id.clone(), row.session_id.clone()))
        .collect();
    played.sort();
    let sessions: Vec<&str> = played.iter().map(|(_, session)| session.as_str()).collect();
    assert_eq!(sessions, ["x", "y", "z", "x", "y", "z", "x"]);
    for agent in 0..2 {
        let invocations: Vec<u32> = replayed
            .trajectories
            .iter()
            .filter(|row| row.agent_id == agent)
            .map(|row| row.invocation)
            .collect();
        assert_eq!(invocations, (0..invocations.len() as u32).collect::<Vec<_>>());
        assert!(!invocations.is_empty(), "agent {agent} did nothing");
    }
    assert_eq!(replayed.outcome.progress.trajectories_done, 7);
    assert_eq!(replayed.outcome.progress.trajectories_planned, Some(7));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_an_end_every_session_is_played_and_every_agent_works() {
    let upstream = Upstream::start(Manners::default(), |_| messages_stream(1, 5)).await;
    let mut many = config(upstream.url());
    many.agents = 4;
    let turns = ["a 0 0..1 session=x", "a 0 5..6 session=y"];
    assert_eq!(replay(Api::Messages, &turns, many).await.trajectories.len(), 4);
    let one = replay(Api::Messages, &turns, config(upstream.url())).await;
    assert_eq!(one.trajectories.len(), 2);
    // Fewer trajectories than agents: the agents that have work are the agents.
    let mut few = config(upstream.url());
    few.agents = 4;
    few.trajectories = Some(1);
    let few = replay(Api::Messages, &turns, few).await;
    assert_eq!((few.trajectories.len(), few.summary.agents), (1, 1));
    assert!(few.summary.notes.iter().any(|note| note.contains("4 agents were asked for")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn when_time_is_up_nothing_more_starts_and_what_is_on_its_way_ends_well() {
    let upstream = Upstream::start(Manners::default(), |_| messages_stream(4, 40)).await;
    let mut config = config(upstream.url());
    config.agents = 3;
    config.duration = Some(Duration::from_millis(500));
    let replayed = replay(Api::Messages, &["a 0 0..1"], config).await;
    let window = replayed.outcome.settings.window;
    let cut_ms = window.steady_end_ms.unwrap();
    assert_eq!(replayed.outcome.settings.ended_by, EndedBy::Duration);
    assert!(replayed.requests.len() >= 3);
    for row in &replayed.requests {
        assert_eq!(row.status, RequestStatus::Ok, "{:?}", row.error);
        assert!(row.sent_at_ms <= cut_ms);
    }
    let phases: Vec<Phase> = replayed.requests.iter().map(|row| row.phase).collect();
    assert!(!phases.contains(&Phase::Tail));
    assert_eq!(replayed.summary.steady.duration_s, window.steady_s());
    assert_eq!(replayed.summary.requests.sent, upstream.asked().len() as u64);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_goes_to_the_api_that_pins_its_lengths() {
    let manners = Manners { pins: |path| path.ends_with("completions"), ..Manners::default() };
    let upstream =
        Upstream::start(manners, |_| vec![Step::Send(chat_text("abc", Some(3)) + &chat_end(3))])
            .await;
    let replayed = replay(Api::Messages, &ONE_THREAD, config(upstream.url())).await;
    let asked = upstream.asked();
    assert!(asked.iter().all(|asked| asked.path == "/v1/chat/completions"));
    assert_eq!(asked[0].body["min_tokens"], 3);
    assert_eq!(asked[0].body["messages"][0]["role"], "system");
    let row = replayed.row("a1");
    assert_eq!((row.api.as_str(), row.output_length), ("chat", OutputLength::Ok));
    let route = &replayed.summary.settings.routes[0];
    assert_eq!((route.recorded.as_str(), route.sent.as_str()), ("messages", "chat"));
    assert!(route.reason.contains("ignored on messages"), "{}", route.reason);
    assert!(replayed.summary.labels.converted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lengths_that_are_not_pinned_are_flagged() {
    let manners = Manners { pins: |_| false, ..Manners::default() };
    let upstream = Upstream::start(manners, |_| messages_stream(2, 1)).await;
    let mut config = config(upstream.url());
    config.api = ApiChoice::Recorded;
    let replayed = replay(Api::Messages, &["a 0 0..1 osl=10"], config).await;
    assert_eq!(replayed.row("a0").output_length, OutputLength::Short);
    let summary = &replayed.summary;
    assert_eq!(summary.labels.output_length, LengthForcing::Ignored);
    assert_eq!(summary.output_length.short, 1);
    assert!(summary.notes.iter().any(|note| note.contains("on messages is ignored")));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_tells_what_is_on_its_way() {
    let upstream = Upstream::start(Manners::default(), |_| vec![Step::Hang]).await;
    let mut config = config(upstream.url());
    config.agents = 3;
    config.trajectories = Some(5);
    let running = Running::start(Api::Messages, &["a 0 0..1"], config).await.unwrap();
    while running.handle.progress().requests_in_flight < 3 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let progress = running.handle.progress();
    assert_eq!((progress.requests_sent, progress.trajectories_done), (3, 0));
    assert_eq!(progress.phase, Phase::Warmup);
    assert_eq!((progress.agents.first_token, progress.agents.total()), (3, 3));
    assert_eq!((progress.time_left_s, progress.prompt_tokens), (None, None));
    assert!(!progress.done);
    running.shutdown.cancel();
    let replayed = running.wait().await;
    let ended = &replayed.outcome.progress;
    assert!(ended.done);
    assert_eq!((ended.requests_in_flight, ended.requests_cancelled), (0, 3));
    assert_eq!((ended.agents.ended, ended.agents.total()), (3, 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_and_lengths_are_changed_as_asked_for() {
    let upstream = Upstream::start(Manners::default(), |_| {
        vec![Step::Send(chat_text("abc", Some(3)) + &chat_end(3))]
    })
    .await;
    let mut config = config(upstream.url());
    config.human_time = HumanTime::None;
    config.output_length = OutputLengthRule::Natural;
    // Every turn of these recordings brings a user's text: an hour's wait would outlast the test.
    let turns = ["a 0 0..1", "a 1 3601..3602 wait=3600000"];
    let replayed = replay(Api::Chat, &turns, config).await;
    let row = replayed.row("a1");
    assert_eq!(row.tool_wait_ms, Some(0.0));
    assert_eq!((row.target_output_tokens, row.output_length), (None, OutputLength::Unverified));
    let settings = &replayed.outcome.settings;
    assert_eq!((settings.human_waits.n, settings.tool_waits.n), (1, 0));
    assert!((settings.human_waits.recorded_s - 3600.0).abs() < 1e-9);
    let noted = |part: &str| replayed.summary.notes.iter().any(|note| note.contains(part));
    assert!(noted("human time none") && noted("natural"), "{:?}", replayed.summary.notes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_strict_replay_refuses_an_engine_that_pins_no_lengths() {
    let manners = Manners { pins: |_| false, ..Manners::default() };
    let upstream =
        Upstream::start(manners, |_| vec![Step::Send(chat_text("abc", Some(3)) + &chat_end(3))])
            .await;
    let mut config = config(upstream.url());
    config.strict = true;
    let error = Running::start(Api::Chat, &["a 0 0..1"], config.clone()).await.err().unwrap();
    assert!(error.to_string().contains("strict: pinning of output lengths on chat"), "{error}");
    config.output_length = OutputLengthRule::Natural;
    let replayed = replay(Api::Chat, &["a 0 0..1"], config).await;
    assert_eq!(replayed.summary.requests.ok, 1);
}
