//! What is exported and imported again is what was there, as far as the format can hold it.
//!
//! Runs are drawn at random; what comes back is compared turn by turn, thread by thread, up to the names that
//! formats give. How much two prompts share is compared with an oracle of its own.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agentbench::Error;
use agentbench::api::{Api, ContentHash, ReplyBlock, UnitKind, composed_template};
use agentbench::clock::Clock;
use agentbench::export::{Exported, Format, export};
use agentbench::import::{ImportConfig, ImportProgress, import};
use agentbench::shutdown::Shutdown;
use agentbench::trace::record::{Outcome, ToolCallRow, TurnKind, TurnRow, UnitRow};
use agentbench::trace::{HostInfo, Manifest, Run, RunKind, RunWriter};
use proptest::prelude::*;
use serde_json::json;

/// When drawn runs begin; whole seconds, so that milliseconds stay what they are.
const BEGUN: f64 = 1_700_000_000.0;

/// A turn to be made. Times are whole milliseconds.
#[derive(Debug, Clone)]
struct TurnSpec {
    new_tokens: usize,
    osl: u64,
    wait_ms: u32,
    ttft_ms: u32,
    decode_ms: u32,
    calls: usize,
    cached: bool,
}

#[derive(Debug, Clone)]
struct ThreadSpec {
    kind: TurnKind,
    /// The turn of the main thread after which a subagent begins.
    after: usize,
    turns: Vec<TurnSpec>,
}

fn turn_spec() -> impl Strategy<Value = TurnSpec> {
    (1..900_usize, 2..300_u64, 0..5000_u32, 1..2000_u32, 1..4000_u32, 0..3_usize, any::<bool>())
        .prop_map(|(new_tokens, osl, wait_ms, ttft_ms, decode_ms, calls, cached)| TurnSpec {
            new_tokens,
            osl,
            wait_ms,
            ttft_ms,
            decode_ms,
            calls,
            cached,
        })
}

fn session_spec() -> impl Strategy<Value = Vec<ThreadSpec>> {
    let turns = || prop::collection::vec(turn_spec(), 1..5);
    let kind =
        prop_oneof![Just(TurnKind::Subagent), Just(TurnKind::Subagent), Just(TurnKind::Utility)];
    let others = prop::collection::vec((kind, 0..4_usize, turns()), 0..3);
    (turns(), others).prop_map(|(main, others)| {
        let main = ThreadSpec { kind: TurnKind::Main, after: 0, turns: main };
        let others =
            others.into_iter().map(|(kind, after, turns)| ThreadSpec { kind, after, turns });
        std::iter::once(main).chain(others).collect()
    })
}

fn run_spec() -> impl Strategy<Value = Vec<Vec<ThreadSpec>>> {
    prop::collection::vec(session_spec(), 1..4)
}

/// A Chat message of four bytes a token.
fn message(role: &str, name: &str, tokens: usize) -> String {
    let bare = json!({"role": role, "content": name}).to_string().len();
    let fill = "x".repeat((tokens * 4).saturating_sub(bare).max(4 - bare % 4));
    let text = json!({"role": role, "content": format!("{name}{fill}")}).to_string();
    let more = (4 - text.len() % 4) % 4;
    json!({"role": role, "content": format!("{name}{fill}{}", "y".repeat(more))}).to_string()
}

/// A drawn run's rows.
#[derive(Default)]
struct Rows {
    units: BTreeMap<String, String>,
    turns: Vec<TurnRow>,
    calls: Vec<ToolCallRow>,
}

impl Rows {
    fn unit(&mut self, text: String) -> (String, u64) {
        let hash = ContentHash::of(text.as_bytes()).hex();
        let tokens = text.len() as u64 / 4;
        self.units.insert(hash.clone(), text);
        (hash, tokens)
    }

    #[allow(clippy::too_many_lines)] // a row has many columns
    fn thread(
        &mut self,
        names: (&str, &str, Option<&str>),
        spec: &ThreadSpec,
        begin: f64,
    ) -> Vec<f64> {
        let (session, thread, parent) = names;
        let mut prompt = vec![self.unit(message("system", "all agents'", 700))];
        let (mut time, mut ends) = (begin, Vec::new());
        let mut results: Vec<usize> = Vec::new();
        for (index, turn) in spec.turns.iter().enumerate() {
            let name = format!("{thread} {index}");
            let asked = self.unit(message("user", &name, turn.new_tokens));
            prompt.push(asked);
            let waited = f64::from(turn.wait_ms) / 1e3;
            let request = if index == 0 { time } else { time + waited };
            for at in results.drain(..) {
                self.calls[at].result_time = Some(request);
                self.calls[at].wire_ms = Some(waited * 1e3);
            }
            let first = request + f64::from(turn.ttft_ms) / 1e3;
            let end = first + f64::from(turn.decode_ms) / 1e3;
            let isl: u64 = prompt.iter().map(|(_, tokens)| tokens).sum();
            let cached = turn.cached.then_some(isl / 2);
            let text = format!("said {name}");
            let mut reply = vec![ReplyBlock::Text { text: text.clone() }];
            let calls: Vec<(String, String)> = (0..turn.calls)
                .map(|call| (format!("{name} {call}"), format!("tool{call}")))
                .collect();
            for (id, tool) in &calls {
                let (id, name) = (id.clone(), tool.clone());
                reply.push(ReplyBlock::ToolCall { id, name, arguments: "{}".to_owned() });
            }
            let params = json!({"model": "m", "stream": true});
            let kinds = vec![UnitKind::Message; prompt.len()];
            self.turns.push(TurnRow {
                run_id: "r".into(),
                session_id: session.into(),
                thread_id: thread.into(),
                parent_thread_id: parent.map(str::to_owned),
                turn: index as u32,
                request_id: name.clone(),
                api: "chat".into(),
                agent: Some("claude-code".into()),
                kind: spec.kind,
                model: Some("m".into()),
                stream: true,
                params: params.to_string(),
                n_messages: prompt.len() as u32,
                unit_hashes: prompt.iter().map(|(hash, _)| hash.clone()).collect(),
                body_template: composed_template(Api::Chat, &kinds, &params),
                request_time: request,
                first_output_time: Some(first),
                last_output_time: Some(end),
                response_end_time: Some(end),
                ttft_ms: Some(f64::from(turn.ttft_ms)),
                e2e_ms: Some(f64::from(turn.ttft_ms + turn.decode_ms)),
                tool_exec_ms: (index > 0).then_some(waited * 1e3),
                stop_reason: Some("stop".into()),
                isl: Some(isl),
                isl_cached: cached,
                isl_new: cached.map(|cached| isl - cached),
                osl: Some(turn.osl),
                isl_new_text: name.clone(),
                osl_text: text,
                reply_blocks: serde_json::to_string(&reply).unwrap(),
                ..TurnRow::default()
            });
            for (at, (id, tool)) in calls.iter().enumerate() {
                results.push(self.calls.len());
                self.calls.push(ToolCallRow {
                    run_id: "r".into(),
                    session_id: session.into(),
                    thread_id: thread.into(),
                    turn: index as u32,
                    request_id: name.clone(),
                    index: at as u32,
                    call_id: id.clone(),
                    name: tool.clone(),
                    arguments: "{}".into(),
                    argument_bytes: 2,
                    emitted_time: end,
                    own_ms: Some(250.0),
                    result_bytes: Some(7),
                    is_error: Some(at == 1),
                    ..ToolCallRow::default()
                });
            }
            // As the agent tells the answer in its history.
            let said = message("assistant", &text_of(&reply), 1);
            prompt.push(self.unit(said));
            ends.push(end);
            time = end;
        }
        ends
    }
}

fn text_of(reply: &[ReplyBlock]) -> String {
    match &reply[0] {
        ReplyBlock::Text { text } => text.clone(),
        _ => String::new(),
    }
}

fn rows_of(spec: &[Vec<ThreadSpec>]) -> Rows {
    let mut rows = Rows::default();
    for (index, threads) in spec.iter().enumerate() {
        let session = format!("s{index}");
        let main = format!("s{index}-t0");
        let begin = BEGUN + index as f64;
        let ends = rows.thread((&session, &main, None), &threads[0], begin);
        for (at, thread) in threads.iter().enumerate().skip(1) {
            let name = format!("s{index}-t{at}");
            let parent = (thread.kind == TurnKind::Subagent).then_some(main.as_str());
            let after = ends[thread.after.min(ends.len() - 1)];
            rows.thread((&session, &name, parent), thread, after + 0.001);
        }
    }
    // As a recording has them: in the order in which responses ended, whatever their sessions.
    rows.turns
        .sort_by(|a, b| a.response_end_time.unwrap().total_cmp(&b.response_end_time.unwrap()));
    rows
}

fn write(dir: &Path, rows: &Rows) -> Run {
    let path = dir.join("run");
    let manifest = Manifest::new(RunKind::Capture, "r", &Clock::start());
    let writer = RunWriter::create(&path, manifest).unwrap();
    let sender = writer.sender();
    for (hash, text) in &rows.units {
        let role: serde_json::Value = serde_json::from_str(text).unwrap();
        sender.send_blocking(UnitRow {
            hash: hash.clone(),
            kind: "message".into(),
            role: role["role"].as_str().unwrap().into(),
            text: text.clone(),
            n_bytes: text.len() as u64,
        });
    }
    for turn in &rows.turns {
        sender.send_blocking(turn.clone());
    }
    for call in &rows.calls {
        sender.send_blocking(call.clone());
    }
    writer.finish().unwrap();
    Run::open(&path).unwrap()
}

fn going() -> Shutdown {
    Shutdown::new(Duration::from_secs(1))
}

fn read_back(source: &Path, out: PathBuf) -> Run {
    let config = ImportConfig {
        sources: vec![source.to_owned()],
        out,
        format: None,
        run_id: "back".into(),
        threads: 1,
        argv: Vec::new(),
        host: HostInfo::default(),
        update: false,
    };
    let manifest = import(&config, &ImportProgress::default(), &going()).unwrap().manifest;
    assert_eq!(manifest.counts["records_left_out"], 0, "{:?}", manifest.settings["problems"]);
    assert!(manifest.complete);
    Run::open(&config.out).unwrap()
}

/// Exports and imports again.
fn around(run: &Run, dir: &Path, format: Format, name: &str) -> (Exported, Run) {
    let out = dir.join(name);
    let exported = export(run, format, &out, &going()).unwrap();
    (exported, read_back(&out, dir.join(format!("{name} back"))))
}

/// What is compared of a turn, as text: the same in both runs or not.
type View<'a> = dyn Fn(&TurnRow, &[ToolCallRow]) -> String + 'a;

/// The threads of a run, each as its session's name where `by_session`, its parent's view and its own turns.
fn threads(run: &Run, view: &View<'_>) -> Vec<(Vec<String>, Vec<String>)> {
    let mut turns: Vec<TurnRow> = run.rows::<TurnRow>().unwrap().map(Result::unwrap).collect();
    turns.sort_by(|a, b| (&a.thread_id, a.turn).cmp(&(&b.thread_id, b.turn)));
    let mut calls: Vec<ToolCallRow> = run.rows().unwrap().map(Result::unwrap).collect();
    calls.sort_by_key(|call| (call.turn, call.index));
    let mut views: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let mut parents: BTreeMap<String, Option<String>> = BTreeMap::new();
    for turn in &turns {
        let of_turn: Vec<ToolCallRow> = calls
            .iter()
            .filter(|call| call.thread_id == turn.thread_id && call.turn == turn.turn)
            .cloned()
            .collect();
        views.entry(turn.thread_id.clone()).or_default().push(view(turn, &of_turn));
        parents.insert(turn.thread_id.clone(), turn.parent_thread_id.clone());
    }
    let of_parent = |thread: &String| {
        let parent = parents[thread].as_ref();
        parent.and_then(|parent| views.get(parent)).cloned().unwrap_or_default()
    };
    let mut threads: Vec<_> =
        views.iter().map(|(thread, turns)| (of_parent(thread), turns.clone())).collect();
    threads.sort();
    threads
}

fn tenths(ms: Option<f64>) -> Option<i64> {
    ms.map(|ms| (ms * 10.0).round() as i64)
}

/// Tenths of a millisecond after the run's first request.
fn since(begun: f64) -> impl Fn(f64) -> i64 {
    move |time| ((time - begun) * 1e4).round() as i64
}

fn begun(run: &Run) -> f64 {
    let times = run.rows::<TurnRow>().unwrap().map(|turn| turn.unwrap().request_time);
    times.min_by(f64::total_cmp).unwrap()
}

/// Without links: those that the format has no place for.
fn unlinked(threads: Vec<(Vec<String>, Vec<String>)>) -> Vec<Vec<String>> {
    let mut own: Vec<Vec<String>> = threads.into_iter().map(|(_, turns)| turns).collect();
    own.sort();
    own
}

fn call_view(call: &ToolCallRow) -> String {
    format!(
        "{} {} {:?} {:?} {:?}",
        call.call_id,
        call.name,
        tenths(call.wire_ms),
        call.result_bytes,
        call.is_error
    )
}

fn config(cases: u32) -> ProptestConfig {
    ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(cases) }
}

#[test]
fn tracelabs_rows_come_back() {
    proptest!(config(16), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let run = write(dir.path(), &rows_of(&spec));
        let (_, back) = around(&run, dir.path(), Format::TraceLab, "rounds.jsonl");
        let view = |turn: &TurnRow, calls: &[ToolCallRow]| {
            let time = since(BEGUN);
            let times = (time(turn.request_time), turn.response_end_time.map(&time), tenths(turn.e2e_ms), tenths(turn.tool_exec_ms));
            let tokens = (turn.isl, turn.isl_cached, turn.isl_new, turn.osl, turn.reasoning_tokens);
            let calls: Vec<String> = calls.iter().map(|call| {
                let spans = (time(call.emitted_time), call.result_time.map(&time), tenths(call.own_ms));
                format!("{} {spans:?}", call_view(call))
            }).collect();
            format!("{:?} {:?} {times:?} {tokens:?} {calls:?}", turn.agent, turn.model)
        };
        prop_assert_eq!(unlinked(threads(&back, &view)), unlinked(threads(&run, &view)));
    });
}

#[test]
fn workloads_come_back() {
    proptest!(config(16), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let mut rows = rows_of(&spec);
        for turn in &mut rows.turns {
            turn.isl_cached = turn.isl.map(|isl| isl / 3);
        }
        let run = write(dir.path(), &rows);
        let (_, back) = around(&run, dir.path(), Format::TraceLabWorkload, "load.csv");
        let view = |turn: &TurnRow, _: &[ToolCallRow]| {
            format!("{:?} {:?} {:?} {:?}", turn.isl, turn.isl_cached, turn.osl, tenths(turn.tool_exec_ms))
        };
        prop_assert_eq!(unlinked(threads(&back, &view)), unlinked(threads(&run, &view)));
    });
}

#[test]
fn manifests_of_batchbench_come_back() {
    proptest!(config(16), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let run = write(dir.path(), &rows_of(&spec));
        let (_, back) = around(&run, dir.path(), Format::Batchbench, "manifest.jsonl");
        let view = |turn: &TurnRow, _: &[ToolCallRow]| {
            let who = (&turn.session_id, turn.kind, &turn.model, &turn.agent, turn.stream);
            format!("{who:?} {:?} {:?} {:?}", turn.isl, turn.osl, tenths(turn.tool_exec_ms))
        };
        prop_assert_eq!(threads(&back, &view), threads(&run, &view));
        // Exported once more, it is the same file.
        let again = dir.path().join("again.jsonl");
        export(&back, Format::Batchbench, &again, &going()).unwrap();
        let lines = |path: &Path| {
            let text = std::fs::read_to_string(path).unwrap();
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        prop_assert_eq!(lines(&again), lines(&dir.path().join("manifest.jsonl")));
    });
}

/// Units of every turn with their tokens, by what the turn is known by on both sides.
fn prompts(rows: &Rows, key: &dyn Fn(&TurnRow) -> String) -> BTreeMap<String, Vec<(String, u64)>> {
    let tokens = |hash: &String| rows.units[hash].len() as u64 / 4;
    let units =
        |turn: &TurnRow| turn.unit_hashes.iter().map(|hash| (hash.clone(), tokens(hash))).collect();
    rows.turns.iter().map(|turn| (key(turn), units(turn))).collect()
}

/// Every two prompts share as many leading blocks as lie whole in their common tokens.
fn assert_sharing(
    rows: &Rows,
    back: &Run,
    size: u64,
    partial: bool,
    key: &dyn Fn(&TurnRow) -> String,
) {
    let prompts = prompts(rows, key);
    let turns: Vec<TurnRow> = back.rows::<TurnRow>().unwrap().map(Result::unwrap).collect();
    assert_eq!(turns.len(), rows.turns.len());
    for a in &turns {
        assert_eq!(a.block_size, Some(size as u32));
        for b in &turns {
            let (of_a, of_b) = (&prompts[&key(a)], &prompts[&key(b)]);
            let common: u64 =
                of_a.iter().zip(of_b).take_while(|(a, b)| a == b).map(|(a, _)| a.1).sum();
            let whole: u64 = of_a.iter().map(|(_, tokens)| tokens).sum();
            let same = of_a == of_b;
            let n_a = if partial { whole.div_ceil(size) } else { whole / size };
            let hashes = |turn: &TurnRow| turn.block_hashes.clone().unwrap();
            assert_eq!(hashes(a).len() as u64, n_a);
            let shared =
                hashes(a).iter().zip(&hashes(b)).take_while(|(a, b)| a == b).count() as u64;
            assert_eq!(shared, if same { n_a } else { common / size }, "{} {}", key(a), key(b));
        }
    }
}

/// What a row of Mooncake's tells.
fn from_start(begun: f64, turn: &TurnRow) -> String {
    format!("{} {:?} {:?}", since(begun)(turn.request_time), turn.isl, turn.osl)
}

#[test]
fn mooncakes_rows_come_back_and_share_what_prompts_share() {
    proptest!(config(12), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let rows = rows_of(&spec);
        let run = write(dir.path(), &rows);
        let (_, back) = around(&run, dir.path(), Format::Mooncake, "trace.jsonl");
        let views = |run: &Run, begun: f64| {
            let turns = run.rows::<TurnRow>().unwrap().map(Result::unwrap);
            let mut views: Vec<String> = turns.map(|turn| from_start(begun, &turn)).collect();
            views.sort();
            views
        };
        prop_assert_eq!(views(&back, 0.0), views(&run, begun(&run)));
        let distinct: std::collections::BTreeSet<String> = views(&back, 0.0).into_iter().collect();
        // Requests of one moment and one length cannot be told apart afterwards.
        if distinct.len() == rows.turns.len() {
            let first = begun(&run);
            let key = move |turn: &TurnRow| from_start(if turn.run_id == "r" { first } else { 0.0 }, turn);
            assert_sharing(&rows, &back, 512, true, &key);
        }
    });
}

#[test]
fn agentic_mooncake_comes_back_with_links_waits_and_tools() {
    proptest!(config(16), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let rows = rows_of(&spec);
        let run = write(dir.path(), &rows);
        let (_, back) = around(&run, dir.path(), Format::MooncakeAgentic, "agents.jsonl");
        assert_sharing(&rows, &back, 512, true, &|turn| turn.request_id.clone());
        let last_turns: BTreeMap<String, u32> = rows.turns.iter().fold(BTreeMap::new(), |mut last, turn| {
            let at = last.entry(turn.thread_id.clone()).or_insert(turn.turn);
            *at = (*at).max(turn.turn);
            last
        });
        let is_last = |id: &str, turn: u32| {
            let thread = id.split(' ').next().unwrap();
            last_turns[thread] == turn
        };
        // A wait for subagents counts from their end; calls of a last turn have no row to stand in.
        let residual: std::collections::BTreeSet<String> = back.rows::<TurnRow>().unwrap()
            .map(Result::unwrap).filter(|turn| turn.residual_wait_ms.is_some()).map(|turn| turn.request_id).collect();
        let view = |turn: &TurnRow, calls: &[ToolCallRow]| {
            let wait = if residual.contains(&turn.request_id) { None } else { tenths(turn.tool_exec_ms) };
            let calls: Vec<String> = calls.iter().filter(|call| !is_last(&call.request_id, call.turn)).map(call_view).collect();
            let kind = if turn.kind == TurnKind::Subagent { "sub" } else { "" };
            format!("{} {kind} {:?} {:?} {wait:?} {calls:?}", turn.request_id, turn.isl, turn.osl)
        };
        prop_assert_eq!(threads(&back, &view), threads(&run, &view));
        for turn in back.rows::<TurnRow>().unwrap().map(Result::unwrap) {
            if turn.kind == TurnKind::Subagent {
                prop_assert_eq!(turn.session_id, turn.request_id.split('-').next().unwrap());
            }
        }
    });
}

#[test]
fn wekas_traces_come_back_and_share_across_files() {
    proptest!(config(12), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let rows = rows_of(&spec);
        let run = write(dir.path(), &rows);
        let (_, back) = around(&run, dir.path(), Format::Weka, "weka");
        let mut begun: BTreeMap<String, f64> = BTreeMap::new();
        for turn in &rows.turns {
            let first = begun.entry(turn.session_id.clone()).or_insert(f64::MAX);
            *first = first.min(turn.request_time);
        }
        let of_session = |turn: &TurnRow| if turn.run_id == "r" { begun[&turn.session_id] } else { 0.0 };
        let key = |turn: &TurnRow| {
            format!("{} {} {:?}", turn.session_id, since(of_session(turn))(turn.request_time), turn.isl)
        };
        let view = |turn: &TurnRow, _: &[ToolCallRow]| {
            let what = (&turn.session_id, turn.kind, &turn.model, turn.stream, &turn.stop_reason);
            let times = (tenths(turn.ttft_ms), tenths(turn.e2e_ms), tenths(turn.tool_exec_ms));
            format!("{} {what:?} {times:?} {:?}", key(turn), turn.osl)
        };
        prop_assert_eq!(threads(&back, &view), threads(&run, &view));
        let distinct: std::collections::BTreeSet<String> = rows.turns.iter().map(&key).collect();
        if distinct.len() == rows.turns.len() {
            assert_sharing(&rows, &back, 64, false, &key);
        }
    });
}

#[test]
fn prompts_and_replies_come_back_as_agentperf_and_mlperf_have_them() {
    proptest!(config(12), |(spec in run_spec())| {
        let dir = tempfile::tempdir().unwrap();
        let run = write(dir.path(), &rows_of(&spec));
        let (_, back) = around(&run, dir.path(), Format::Agentperf, "turns.jsonl");
        let calls = |calls: &[ToolCallRow]| -> Vec<String> {
            calls.iter().map(|call| format!("{} {} {}", call.call_id, call.name, call.arguments)).collect()
        };
        let view = |turn: &TurnRow, of_turn: &[ToolCallRow]| {
            format!("{:?} {:?} {:?} {:?} {:?}", turn.unit_hashes, turn.isl, turn.osl, tenths(turn.tool_exec_ms), calls(of_turn))
        };
        prop_assert_eq!(unlinked(threads(&back, &view)), unlinked(threads(&run, &view)));
        let (_, back) = around(&run, dir.path(), Format::Mlperf, "messages.jsonl");
        let view = |turn: &TurnRow, _: &[ToolCallRow]| {
            format!("{:?} {:?}", turn.unit_hashes, tenths(turn.tool_exec_ms))
        };
        prop_assert_eq!(unlinked(threads(&back, &view)), unlinked(threads(&run, &view)));
    });
}

#[test]
fn turns_that_nobody_answered_are_left_out_and_told() {
    let dir = tempfile::tempdir().unwrap();
    let turn = |calls| TurnSpec {
        new_tokens: 100,
        osl: 5,
        wait_ms: 10,
        ttft_ms: 5,
        decode_ms: 5,
        calls,
        cached: true,
    };
    let main =
        ThreadSpec { kind: TurnKind::Main, after: 0, turns: vec![turn(1), turn(0), turn(0)] };
    let mut rows = rows_of(&[vec![main]]);
    rows.turns[1].outcome = Outcome::HttpError;
    rows.turns[2].isl = None;
    let run = write(dir.path(), &rows);
    let exported = export(&run, Format::Mooncake, &dir.path().join("a.jsonl"), &going()).unwrap();
    assert_eq!(exported.written["turns"], 1);
    for told in [
        "1 turns that no engine answered whole",
        "1 turns whose prompt tokens are not known",
        "1 tool calls",
    ] {
        assert!(
            exported.left_out.iter().any(|line| line == told),
            "{told}: {:?}",
            exported.left_out
        );
    }
    // Nothing left to write: an error that says why, and nothing lies there.
    rows.turns[0].isl = None;
    let none = tempfile::tempdir().unwrap();
    let run = write(none.path(), &rows);
    let out = none.path().join("b.jsonl");
    let Err(Error::Config(told)) = export(&run, Format::Mooncake, &out, &going()) else {
        panic!("an error")
    };
    assert!(told.starts_with("run r has nothing that mooncake can hold: "), "{told}");
    assert!(told.contains("2 turns whose prompt tokens are not known"), "{told}");
    assert!(!out.exists());
    // What lies there stays.
    std::fs::write(&out, "mine").unwrap();
    assert!(matches!(export(&run, Format::TraceLab, &out, &going()), Err(Error::Config(_))));
    assert_eq!(std::fs::read_to_string(&out).unwrap(), "mine");
}
