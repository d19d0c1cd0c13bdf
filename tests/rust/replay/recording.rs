//! Recordings made of a few lines, and replays of them.

use std::sync::Arc;
use std::time::Duration;

use agentbench::api::{Api, parse_request};
use agentbench::clock::Clock;
use agentbench::error::Result;
use agentbench::replay::{
    ApiChoice, CacheSharing, ContentMode, HumanTime, OnError, OutputLengthRule, Replay,
    ReplayConfig, ReplayHandle, ReplayOutcome, Retries, Summary, Timeouts, ToolTime, summarize_run,
};
use agentbench::shutdown::Shutdown;
use agentbench::trace::record::{RequestRow, TrajectoryRow, TurnKind, TurnRow, UnitRow};
use agentbench::trace::{Manifest, Run, RunKind, RunWriter};
use serde_json::{Value, json};

/// A turn: `thread turn start..end` in seconds, then `parent=`, `wait=`, `osl=`, `isl=`, `session=`.
pub(crate) fn write_recording(dir: &std::path::Path, api: Api, turns: &[&str]) {
    let clock = Clock::start();
    let writer =
        RunWriter::create(dir, Manifest::new(RunKind::Capture, "recorded", &clock)).unwrap();
    let rows = writer.sender();
    let mut seen = std::collections::HashSet::new();
    for line in turns {
        let (row, units) = turn(api, line);
        for unit in units.into_iter().filter(|unit| seen.insert(unit.hash.clone())) {
            assert!(rows.send_blocking(unit));
        }
        assert!(rows.send_blocking(row));
    }
    writer.finish().unwrap();
}

fn turn(api: Api, line: &str) -> (TurnRow, Vec<UnitRow>) {
    let mut words = line.split_whitespace();
    let thread = words.next().unwrap().to_owned();
    let turn: u32 = words.next().unwrap().parse().unwrap();
    let (start, end) = words.next().unwrap().split_once("..").unwrap();
    let mut row = TurnRow {
        session_id: "s".into(),
        request_id: format!("{thread}{turn}"),
        api: api.as_str().into(),
        request_time: 1e9 + start.parse::<f64>().unwrap(),
        response_end_time: Some(1e9 + end.parse::<f64>().unwrap()),
        isl: Some(100 + u64::from(turn) * 20),
        osl: Some(3),
        stream: true,
        turn,
        ..TurnRow::default()
    };
    for word in words {
        match word.split_once('=').unwrap() {
            ("parent", parent) => {
                row.parent_thread_id = Some(parent.into());
                row.kind = TurnKind::Subagent;
            }
            ("wait", ms) => row.tool_exec_ms = ms.parse().ok(),
            ("osl", tokens) => row.osl = tokens.parse().ok(),
            ("isl", tokens) => row.isl = tokens.parse().ok(),
            ("session", session) => row.session_id = session.into(),
            (key, _) => panic!("unknown key {key}"),
        }
    }
    let mut messages = Vec::new();
    for index in 0..=turn {
        let label = format!("{} {thread}{index}", row.session_id);
        messages.push(json!({"role": "user", "content": label}));
        if index < turn {
            messages.push(json!({"role": "assistant", "content": "did"}));
        }
    }
    let body = body(api, &messages);
    let parsed = parse_request(api, body.as_bytes()).unwrap();
    row.unit_hashes = parsed.units.iter().map(|unit| unit.hash.hex()).collect();
    // The system unit, and a pair of messages for each turn before.
    row.n_shared_units = if turn == 0 { 0 } else { 2 * turn };
    row.body_template = parsed.template;
    row.thread_id = thread;
    let units = parsed.units.iter().map(UnitRow::from);
    (row, units.collect())
}

fn body(api: Api, messages: &[Value]) -> String {
    match api {
        Api::Messages => json!({"model": "recorded", "max_tokens": 4096, "stream": true,
            "system": "Be brief.", "messages": messages}),
        Api::Chat => {
            let mut all = vec![json!({"role": "system", "content": "Be brief."})];
            all.extend_from_slice(messages);
            json!({"model": "recorded", "max_completion_tokens": 4096, "messages": all})
        }
        Api::Responses => json!({"model": "recorded", "max_output_tokens": 4096,
            "instructions": "Be brief.", "input": messages, "stream": true}),
        Api::Completions => {
            let said = messages.iter().map(|message| message["content"].as_str().unwrap());
            let prompt: Vec<&str> = std::iter::once("Be brief.").chain(said).collect();
            json!({"model": "recorded", "max_tokens": 4096, "prompt": prompt.join("\n")})
        }
    }
    .to_string()
}

/// The last message of a request: `<session> <thread><turn>`.
pub(crate) fn label(body: &Value) -> String {
    body["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned()
}

pub(crate) fn config(url: String) -> ReplayConfig {
    ReplayConfig {
        url,
        api_key: None,
        model: None,
        agents: 1,
        open_loop: None,
        seed: None,
        duration: None,
        trajectories: None,
        ramp: Some(Duration::ZERO),
        on_error: OnError::StopTrajectory,
        max_error_rate_pct: None,
        retries: Retries::default(),
        timeouts: Timeouts::default(),
        include_utility: true,
        api: ApiChoice::Auto,
        content: ContentMode::Recorded,
        tokenizer: None,
        tool_time: ToolTime::Recorded,
        human_time: HumanTime::Recorded,
        output_length: OutputLengthRule::Recorded,
        cache_sharing: CacheSharing::Recorded,
        salt: None,
        strict: false,
    }
}

/// A replay that has ended, read back from its run directory.
pub(crate) struct Replayed {
    pub(crate) outcome: ReplayOutcome,
    pub(crate) requests: Vec<RequestRow>,
    pub(crate) trajectories: Vec<TrajectoryRow>,
    pub(crate) summary: Summary,
}

impl Replayed {
    /// The row of a recorded request, which must have been sent once.
    pub(crate) fn row(&self, source_request_id: &str) -> &RequestRow {
        let mut rows =
            self.requests.iter().filter(|row| row.source_request_id == source_request_id);
        let row = rows.next().unwrap_or_else(|| panic!("{source_request_id} was not sent"));
        assert!(rows.next().is_none(), "{source_request_id} was sent twice");
        row
    }
}

/// A replay that runs, and what it writes to.
pub(crate) struct Running {
    pub(crate) handle: ReplayHandle,
    pub(crate) shutdown: Shutdown,
    writer: RunWriter,
    dir: tempfile::TempDir,
}

impl Running {
    pub(crate) async fn start(api: Api, turns: &[&str], config: ReplayConfig) -> Result<Self> {
        let dir = tempfile::tempdir().unwrap();
        let recorded = dir.path().join("recorded");
        write_recording(&recorded, api, turns);
        Self::start_run(Run::open(&recorded)?, dir, config).await
    }

    pub(crate) async fn start_run(
        run: Run,
        dir: tempfile::TempDir,
        config: ReplayConfig,
    ) -> Result<Self> {
        let clock = Clock::start();
        let manifest = Manifest::new(RunKind::Replay, "replayed", &clock);
        let writer = RunWriter::create(&dir.path().join("replayed"), manifest)?;
        let shutdown = Shutdown::new(Duration::from_secs(5));
        let handle =
            Replay::start(Arc::new(run), config, writer.sender(), clock, shutdown.clone()).await?;
        Ok(Self { handle, shutdown, writer, dir })
    }

    pub(crate) async fn wait(self) -> Replayed {
        let outcome = self.handle.wait().await.unwrap();
        let settings = serde_json::to_value(&outcome.settings).unwrap();
        self.writer
            .update_manifest(|manifest| {
                manifest.settings.insert("replay".into(), settings);
            })
            .unwrap();
        self.writer.finish().unwrap();
        let run = Run::open(&self.dir.path().join("replayed")).unwrap();
        let requests: Vec<RequestRow> = run.rows().unwrap().map(Result::unwrap).collect();
        let trajectories = run.rows().unwrap().map(Result::unwrap).collect();
        let summary = summarize_run(&run).unwrap();
        Replayed { outcome, requests, trajectories, summary }
    }
}

/// A recording replayed to its end.
pub(crate) async fn replay(api: Api, turns: &[&str], config: ReplayConfig) -> Replayed {
    Running::start(api, turns, config).await.unwrap().wait().await
}
