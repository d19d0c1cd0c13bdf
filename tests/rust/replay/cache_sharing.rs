//! What agents on few recordings find of one another in an engine's cache, and the salts in what is
//! sent.

use std::collections::HashMap;
use std::time::Duration;

use agentbench::api::{Api, ContentHash};
use agentbench::clock::Clock;
use agentbench::replay::{ApiChoice, CacheSharing};
use agentbench::simulator::{Profile, Simulator, SimulatorConfig};
use agentbench::trace::record::{RequestStatus, TurnRow, UnitRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};
use serde_json::Value;

use super::recording::{Replayed, Running, config, replay};
use super::simulated::synthetic;
use super::upstream::{Manners, Upstream, messages_stream};

const AGENTS: u32 = 32;
const SESSIONS: u32 = 2;

/// 32 recordings of the shape of `run`'s two: the same system text and tools, all that was said
/// different from one to the other.
fn distinct(run: &Run, dir: &std::path::Path) -> Run {
    let manifest = Manifest::new(RunKind::Synthetic, "distinct", &Clock::start());
    let writer = RunWriter::create(dir, manifest).unwrap();
    let rows = writer.sender();
    let units: Vec<UnitRow> = run.rows().unwrap().map(Result::unwrap).collect();
    let turns: Vec<TurnRow> = run.rows().unwrap().map(Result::unwrap).collect();
    for copy in 0..(AGENTS / SESSIONS) as u8 {
        let mut hashes: HashMap<&str, String> = HashMap::new();
        for unit in &units {
            let text = if unit.kind == "message" && unit.role != "system" {
                let mut value: Value = serde_json::from_str(&unit.text).unwrap();
                rotate(&mut value, copy);
                value.to_string()
            } else {
                unit.text.clone()
            };
            assert_eq!(text.len(), unit.text.len());
            let hash = ContentHash::of(text.as_bytes()).hex();
            hashes.insert(&unit.hash, hash.clone());
            assert!(rows.send_blocking(UnitRow { hash, text, ..unit.clone() }));
        }
        for turn in &turns {
            let named = |name: &str| format!("{name}-{copy}");
            let row = TurnRow {
                session_id: named(&turn.session_id),
                thread_id: named(&turn.thread_id),
                parent_thread_id: turn.parent_thread_id.as_deref().map(named),
                request_id: named(&turn.request_id),
                unit_hashes: turn
                    .unit_hashes
                    .iter()
                    .map(|hash| hashes[hash.as_str()].clone())
                    .collect(),
                ..turn.clone()
            };
            assert!(rows.send_blocking(row));
        }
    }
    writer.finish().unwrap();
    Run::open(dir).unwrap()
}

/// Every text that was said, its letters moved on by `by`.
fn rotate(value: &mut Value, by: u8) {
    match value {
        Value::Array(values) => values.iter_mut().for_each(|value| rotate(value, by)),
        Value::Object(members) => {
            for (name, value) in members {
                match (name.as_str(), &mut *value) {
                    ("text" | "content", Value::String(text)) => {
                        let moved = |c: char| match c {
                            'a'..='z' => char::from((c as u8 - b'a' + by) % 26 + b'a'),
                            other => other,
                        };
                        *text = text.chars().map(moved).collect();
                    }
                    (_, value) => rotate(value, by),
                }
            }
        }
        _ => {}
    }
}

/// Both hit rates of 32 agents at once on an engine with an empty cache.
async fn hit_rates(run: Run, sharing: CacheSharing) -> (f64, f64) {
    let listen = "127.0.0.1:0".parse().unwrap();
    let profile = Profile::named("instant").unwrap();
    let engine = Simulator::start(SimulatorConfig::new(listen, profile)).await.unwrap();
    let mut config = config(engine.url());
    config.agents = AGENTS;
    config.trajectories = Some(u64::from(AGENTS));
    config.cache_sharing = sharing;
    // An agent starts when the prompt of the one before is computed.
    config.ramp = Some(Duration::from_secs(2));
    let dir = tempfile::tempdir().unwrap();
    let replayed = Running::start_run(run, dir, config).await.unwrap().wait().await;
    engine.stop().await;
    assert!(replayed.requests.iter().all(|row| row.status == RequestStatus::Ok));
    assert_eq!(replayed.trajectories.len(), AGENTS as usize);
    let hits = replayed.summary.prefix_hits;
    (hits.planned_pct.unwrap(), hits.usage_pct.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_two_agents_on_two_recordings_hit_what_thirty_two_on_their_own_do() {
    let dir = tempfile::tempdir().unwrap();
    let run = synthetic(dir.path(), SESSIONS);
    let distinct = distinct(&run, &dir.path().join("distinct"));
    let (_, truth) = Box::pin(hit_rates(distinct, CacheSharing::Recorded)).await;

    let again = || Run::open(&dir.path().join("fast")).unwrap();
    let (planned, system) = Box::pin(hit_rates(again(), CacheSharing::System)).await;
    assert!((system - truth).abs() < 1.0, "{system} {truth}");
    assert!((planned - system).abs() < 2.0, "{planned} {system}");

    // What the salts are there for: without them the two recordings are served from cache.
    let (planned, recorded) = Box::pin(hit_rates(again(), CacheSharing::Recorded)).await;
    assert!(recorded > truth + 5.0, "{recorded} {truth}");
    assert!((planned - recorded).abs() < 2.0, "{planned} {recorded}");

    let (planned, trajectory) = Box::pin(hit_rates(again(), CacheSharing::Trajectory)).await;
    assert!(trajectory < truth - 2.0, "{trajectory} {truth}");
    assert!((planned - trajectory).abs() < 2.0, "{planned} {trajectory}");

    // What comes before the first salt is less than a block of 16 tokens.
    let (planned, none) = Box::pin(hit_rates(again(), CacheSharing::None)).await;
    assert!(planned == 0.0 && none == 0.0, "{planned} {none}");
}

/// A session of two threads, sent three times by one agent.
async fn sent(sharing: CacheSharing, salt: Option<&str>) -> (Vec<Value>, Replayed) {
    let upstream = Upstream::start(Manners::default(), |_| messages_stream(3, 5)).await;
    let mut config = config(upstream.url());
    config.api = ApiChoice::Recorded;
    config.trajectories = Some(3);
    config.agents = 2;
    config.cache_sharing = sharing;
    config.salt = salt.map(str::to_owned);
    let turns = ["a 0 0..1", "a 1 1..2 wait=0", "b 0 2.1..3 parent=a"];
    let replayed = replay(Api::Messages, &turns, config).await;
    let bodies = upstream.asked().into_iter().map(|asked| asked.body).collect();
    (bodies, replayed)
}

/// A text without its salt, and the salt.
fn cut(text: &Value) -> (&str, &str) {
    let (salt, text) = text.as_str().unwrap().split_once('\n').unwrap();
    (text, salt)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn salts_stand_before_the_system_text_and_the_first_message_of_every_request() {
    let (bodies, replayed) = sent(CacheSharing::System, Some("fixed")).await;
    assert_eq!(bodies.len(), 9);
    let mut seen: HashMap<(&str, &str), usize> = HashMap::new();
    for body in &bodies {
        let (system, of_pass) = cut(&body["system"]);
        let (first, of_trajectory) = cut(&body["messages"][0]["content"]);
        assert_eq!(system, "Be brief.");
        assert!(first.starts_with("s a0") || first.starts_with("s b0"), "{first}");
        // All others are the recorded ones.
        let others = body["messages"].as_array().unwrap().iter().skip(1);
        assert!(others.into_iter().all(|it| !it["content"].as_str().unwrap().contains('[')));
        *seen.entry((of_pass, of_trajectory)).or_default() += 1;
    }
    // Three trajectories of three requests; with two agents a pass is two trajectories.
    assert_eq!(seen.values().copied().collect::<Vec<_>>(), [3, 3, 3]);
    let passes: std::collections::HashSet<&str> = seen.keys().map(|salts| salts.0).collect();
    assert_eq!(passes.len(), 2);

    let settings = &replayed.summary.settings;
    assert_eq!((settings.cache_sharing, settings.trajectories_per_pass), (CacheSharing::System, 2));
    assert_eq!(settings.salt.as_deref(), Some("fixed"));
    let notes = replayed.summary.notes.join("\n");
    assert!(notes.contains("cache sharing system: trajectories of one pass share"), "{notes}");
    assert!(notes.contains(r#"the salt "fixed" was given"#), "{notes}");

    // The same salt gives the same bytes, another one none of its salts.
    let salts = |bodies: &[Value]| -> std::collections::BTreeSet<String> {
        bodies.iter().map(|body| cut(&body["messages"][0]["content"]).1.to_owned()).collect()
    };
    let (same, _) = sent(CacheSharing::System, Some("fixed")).await;
    assert_eq!(salts(&same), salts(&bodies));
    let (other, replayed) = sent(CacheSharing::System, None).await;
    assert!(salts(&other).is_disjoint(&salts(&bodies)));
    assert_eq!(replayed.summary.settings.salt.unwrap().len(), 16);

    let (recorded, replayed) = sent(CacheSharing::Recorded, None).await;
    assert!(recorded.iter().all(|body| body["system"] == "Be brief."));
    assert_eq!(replayed.summary.settings.salt, None);
}
