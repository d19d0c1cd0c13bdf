//! Synthetic content: token ids of our own, as many as a recording that may hold counts alone.

use std::collections::BTreeMap;

use agentbench::api::Api;
use agentbench::clock::Clock;
use agentbench::replay::{CacheSharing, ContentMode, OutputLengthRule, ReplayConfig};
use agentbench::simulator::{Profile, Simulator, SimulatorConfig};
use agentbench::trace::record::{RequestStatus, TurnRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};

use super::recording::{Replayed, Running, config};
use super::simulated::synthetic as full_recording;
use super::upstream::{Manners, Upstream};

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
    let profile = Profile::named("instant").unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let engine = Simulator::start(SimulatorConfig::new(listen, profile)).await.unwrap();
    let config = synthetic_config(engine.url(), sharing);
    let replayed = Running::start_run(run, dir, config).await.unwrap().wait().await;
    engine.stop().await;
    replayed
}

/// Every prompt has the tokens planned, and the summary says so.
#[track_caller]
fn check_exact(replayed: &Replayed, n_requests: usize) {
    assert_eq!(replayed.requests.len(), n_requests);
    for row in &replayed.requests {
        assert_eq!(row.status, RequestStatus::Ok, "{:?}", row.error);
        assert_eq!(row.api, "completions");
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
    }
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
        (OutputLengthRule::Recorded, "does not offer /v1/completions"),
        (OutputLengthRule::Natural, "no output ends of itself"),
    ];
    for (output_length, expected) in cases {
        let dir = tempfile::tempdir().unwrap();
        let run = counts(dir.path(), &[("a", 10, 1, None, "")]);
        let config = ReplayConfig {
            output_length,
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
