//! Synthetic content: token ids of our own, as many as a recording that may hold counts alone.

use std::collections::BTreeMap;

use agentbench::api::Api;
use agentbench::clock::Clock;
use agentbench::replay::{ApiChoice, CacheSharing, ContentMode, OutputLengthRule, ReplayConfig};
use agentbench::simulator::{Profile, Simulator, SimulatorConfig};
use agentbench::trace::record::{RequestStatus, TurnRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};

use serde_json::json;

use super::recording::{Replayed, Running, config};
use super::simulated::synthetic as full_recording;
use super::upstream::{Manners, Upstream};

/// Candidates that are a token each in groups of four bytes: a space and three letters.
const WORDS_OF_4_BYTES: u64 = 51;

/// A recording without any text: a turn is `session isl osl [cached]`, or blocks of 16 by letters.
fn counts(dir: &std::path::Path, turns: &[(&str, u64, u64, Option<u64>, &str)]) -> Run {
    let path = dir.join("counts");
    let manifest = Manifest::new(RunKind::Capture, "counts", &Clock::start());
    let writer = RunWriter::create(&path, manifest).unwrap();
    let rows = writer.sender();
    let mut n_turns: BTreeMap<&str, u32> = BTreeMap::new();
    for (at, (session, isl, osl, cached, blocks)) in turns.iter().enumerate() {
        let turn = n_turns.entry(session).or_default();
        let row = TurnRow {
            session_id: (*session).to_owned(),
            thread_id: format!("{session}-main"),
            request_id: format!("{session}{turn}"),
            turn: *turn,
            request_time: 1e9 + at as f64 / 100.0,
            response_end_time: Some(1e9 + at as f64 / 100.0 + 0.005),
            isl: Some(*isl),
            isl_cached: *cached,
            osl: Some(*osl),
            block_hashes: (!blocks.is_empty()).then(|| blocks.chars().map(String::from).collect()),
            block_size: (!blocks.is_empty()).then_some(16),
            ..TurnRow::default()
        };
        *turn += 1;
        assert!(rows.send_blocking(row));
    }
    writer.finish().unwrap();
    Run::open(&path).unwrap()
}

fn synthetic_config(url: String, sharing: CacheSharing) -> ReplayConfig {
    ReplayConfig { content: ContentMode::Synthetic, cache_sharing: sharing, ..config(url) }
}

async fn on_embedded(run: Run, dir: tempfile::TempDir, sharing: CacheSharing) -> Replayed {
    on_embedded_as(run, dir, sharing, |_| {}).await
}

async fn on_embedded_as(
    run: Run,
    dir: tempfile::TempDir,
    sharing: CacheSharing,
    change: impl FnOnce(&mut ReplayConfig),
) -> Replayed {
    let profile = Profile::named("instant").unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let engine = Simulator::start(SimulatorConfig::new(listen, profile)).await.unwrap();
    let mut config = synthetic_config(engine.url(), sharing);
    change(&mut config);
    let running = Box::pin(Running::start_run(run, dir, config)).await.unwrap();
    let replayed = Box::pin(running.wait()).await;
    engine.stop().await;
    replayed
}

/// Every prompt has the tokens planned, and the summary says so.
#[track_caller]
fn check_exact(replayed: &Replayed, n_requests: usize) {
    check_exact_in(replayed, n_requests, "completions");
}

#[track_caller]
fn check_exact_in(replayed: &Replayed, n_requests: usize, api: &str) {
    assert_eq!(replayed.requests.len(), n_requests);
    for row in &replayed.requests {
        assert_eq!(row.status, RequestStatus::Ok, "{:?}", row.error);
        assert_eq!(row.api, api);
        assert_eq!(row.prompt_tokens, row.planned_prompt_tokens);
        assert_eq!(row.completion_tokens, row.target_output_tokens);
    }
    let deviation = replayed.summary.whole.fields["prompt_tokens_deviation"];
    assert_eq!((deviation.n, deviation.min, deviation.max), (n_requests as u64, 0.0, 0.0));
    let notes = replayed.summary.notes.join("\n");
    assert!(notes.contains("content synthetic"), "{notes}");
    assert!(!notes.contains("have not the tokens planned"), "{notes}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recording_of_counts_is_replayed_to_the_token() {
    let dir = tempfile::tempdir().unwrap();
    let turns = [("a", 100, 7, None, ""), ("a", 163, 9, None, ""), ("a", 90, 1, Some(48), "")];
    let run = counts(dir.path(), &turns);
    let replayed = on_embedded(run, dir, CacheSharing::System).await;
    check_exact(&replayed, 3);
    let rows = ["a0", "a1", "a2"].map(|id| replayed.row(id));
    assert_eq!(rows.map(|row| row.prompt_tokens), [Some(100), Some(163), Some(90)]);
    assert_eq!(rows.map(|row| row.planned_cached_tokens), [Some(0), Some(100), Some(48)]);
    // The engine's cache holds whole blocks of 16 tokens.
    assert_eq!(rows.map(|row| row.cached_tokens), [Some(0), Some(96), Some(48)]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn equal_blocks_are_hits_across_sessions() {
    let turns = [
        ("a", 60, 3, None, "xyzp"),
        ("b", 57, 3, None, "xyzq"),
        ("b", 80, 3, None, "xyzqr"),
        ("c", 32, 3, None, "zx"),
    ];
    for (sharing, expected) in [
        (CacheSharing::Recorded, [0, 48, 48, 0]),
        (CacheSharing::System, [0, 48, 48, 0]),
        (CacheSharing::Trajectory, [0, 0, 48, 0]),
        (CacheSharing::None, [0, 0, 0, 0]),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let run = counts(dir.path(), &turns);
        let replayed = on_embedded(run, dir, sharing).await;
        check_exact(&replayed, 4);
        let cached = ["a0", "b0", "b1", "c0"].map(|id| replayed.row(id).cached_tokens.unwrap());
        assert_eq!(cached, expected, "{sharing:?}");
        // By plan what is shared is told to the token, not in whole blocks.
        let planned = |id| replayed.row(id).planned_cached_tokens.unwrap();
        let first_of_others = if cached[1] > 0 { 48 } else { 0 };
        let of_thread = if sharing == CacheSharing::None { 0 } else { 57 };
        assert_eq!(
            ["a0", "b0", "b1", "c0"].map(planned),
            [0, first_of_others, of_thread, 0],
            "{sharing:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_of_our_own_is_exact_in_every_api() {
    let turns = [
        ("a", 60, 3, None, "xyzp"),
        ("b", 157, 3, None, "xyzqrstuv"),
        ("b", 180, 3, None, "xyzqrstuvwab"),
        ("c", 132, 3, None, "zxabcdefg"),
    ];
    for (api, name) in [
        (ApiChoice::Chat, "chat"),
        (ApiChoice::Messages, "messages"),
        (ApiChoice::Responses, "responses"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let run = counts(dir.path(), &turns);
        let replayed =
            on_embedded_as(run, dir, CacheSharing::System, |config| config.api = api).await;
        check_exact_in(&replayed, 4, name);
        let settings = &replayed.outcome.settings;
        let told = settings.synthetic_text.as_ref().unwrap();
        assert_eq!(
            (told.told_by.as_str(), told.words),
            ("the engine's /tokenize", WORDS_OF_4_BYTES)
        );
        assert!(told.tokens_around > 0);
        assert_eq!(settings.routes[0].recorded, "synthetic");
        // What is around a text stands before it too, so blocks of the engine begin elsewhere.
        let cached = ["b0", "b1", "c0"].map(|id| replayed.row(id).cached_tokens.unwrap());
        assert!((32..=64).contains(&cached[0]), "{cached:?}");
        assert!((144..=160).contains(&cached[1]), "{cached:?}");
        assert!(cached[2] <= 16, "{cached:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn text_by_a_tokenizer_file_goes_where_ids_would() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("tokenizer.json");
    let tokenizer = json!({"version": "1.0", "truncation": null, "padding": null,
        "added_tokens": [], "normalizer": null, "pre_tokenizer": {"type": "WhitespaceSplit"},
        "post_processor": null, "decoder": null,
        "model": {"type": "WordLevel", "vocab": {"the": 1, "[UNK]": 0}, "unk_token": "[UNK]"}});
    std::fs::write(&file, tokenizer.to_string()).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let simulated = SimulatorConfig {
        tokenizer: Some(file.clone()),
        ..SimulatorConfig::new(listen, Profile::named("instant").unwrap())
    };
    let engine = Simulator::start(simulated).await.unwrap();
    let run = small(dir.path(), "first");
    let config = ReplayConfig {
        tokenizer: Some(file.clone()),
        ..synthetic_config(engine.url(), CacheSharing::Recorded)
    };
    let replayed =
        Running::start_run(run, tempfile::tempdir().unwrap(), config.clone()).await.unwrap();
    let replayed = replayed.wait().await;
    engine.stop().await;
    check_exact(&replayed, 1);
    let told = replayed.outcome.settings.synthetic_text.clone().unwrap();
    assert!(told.told_by.starts_with("tokenizer.json (content "), "{told:?}");
    assert_eq!(told.tokens_around, 1);

    // Another engine has other tokens: words are no measure of its prompts.
    let wrong = |url| ReplayConfig { url, ..config.clone() };
    let engine = Simulator::start(SimulatorConfig::new(listen, Profile::named("instant").unwrap()));
    let engine = engine.await.unwrap();
    let run = small(dir.path(), "second");
    refused(run, wrong(engine.url()), "counts a text's words otherwise than tokenizer.json").await;
    let run = small(dir.path(), "third");
    let missing = ReplayConfig { tokenizer: Some("none.json".into()), ..wrong(engine.url()) };
    refused(run, missing, "tokenizer none.json: ").await;
    let run = small(dir.path(), "fourth");
    let recorded = ReplayConfig { content: ContentMode::Recorded, ..wrong(engine.url()) };
    refused(run, recorded, "ask for content synthetic, or leave it out").await;
    engine.stop().await;
}

/// A recording of one turn.
fn small(dir: &std::path::Path, name: &str) -> Run {
    let dir = dir.join(name);
    std::fs::create_dir(&dir).unwrap();
    counts(&dir, &[("a", 60, 3, None, "")])
}

async fn refused(run: Run, config: ReplayConfig, expected: &str) {
    let dir = tempfile::tempdir().unwrap();
    let Err(error) = Running::start_run(run, dir, config).await else { panic!("not refused") };
    assert!(error.to_string().contains(expected), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_recording_keeps_its_counts_and_its_sharing() {
    let dir = tempfile::tempdir().unwrap();
    let recorded = full_recording(dir.path(), 2);
    let turns: Vec<TurnRow> = recorded.rows().unwrap().map(Result::unwrap).collect();
    let replayed = on_embedded(recorded, dir, CacheSharing::Trajectory).await;
    check_exact(&replayed, turns.len());
    for turn in &turns {
        let row = replayed.row(&turn.request_id);
        assert_eq!(row.prompt_tokens, turn.isl);
        let planned = row.planned_cached_tokens.unwrap();
        assert_eq!(planned > 0, turn.turn > 0);
        // Threads of a trajectory share more than their own.
        assert!(row.cached_tokens.unwrap() >= planned / 16 * 16, "{}", turn.request_id);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_exact_is_refused() {
    let upstream = Upstream::start(Manners::default(), |_| Vec::new()).await;
    let cases = [
        (
            OutputLengthRule::Recorded,
            ApiChoice::Auto,
            "takes no token ids at /v1/completions and answers 404 to /tokenize, so text cannot be \
             counted; give the model's tokenizer.json",
        ),
        (
            OutputLengthRule::Recorded,
            ApiChoice::Chat,
            "answers 404 to /tokenize, so text cannot be",
        ),
        (OutputLengthRule::Natural, ApiChoice::Auto, "says nothing of an agent's"),
    ];
    for (output_length, api, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let run = counts(dir.path(), &[("a", 10, 1, None, "")]);
        let config = ReplayConfig {
            output_length,
            api,
            ..synthetic_config(upstream.url(), CacheSharing::Recorded)
        };
        let Err(error) = Running::start_run(run, dir, config).await else { panic!("not refused") };
        assert!(error.to_string().contains(expected), "{error}");
    }
    // Without synthetic content such a recording holds nothing to send.
    let dir = tempfile::tempdir().unwrap();
    let run = counts(dir.path(), &[("a", 10, 1, None, "")]);
    let Err(error) = Running::start_run(run, dir, config(upstream.url())).await else {
        panic!("not refused")
    };
    assert!(error.to_string().contains("1 unknown api"), "{error}");
    assert_eq!(Api::from_name(""), None);
}
