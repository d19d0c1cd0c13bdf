//! Runs drawn at random: sessions with subagents and utility calls, in whole tokens and whole milliseconds.

use std::collections::BTreeMap;

use agentbench::api::{Api, ContentHash, ReplyBlock, UnitKind, composed_template};
use agentbench::trace::record::{ToolCallRow, TurnKind, TurnRow};
use proptest::prelude::*;
use serde_json::json;

/// When drawn runs begin; whole seconds, so that milliseconds stay what they are.
pub(super) const BEGUN: f64 = 1_700_000_000.0;

/// A turn to be made. Times are whole milliseconds.
#[derive(Debug, Clone)]
pub(super) struct TurnSpec {
    pub(super) new_tokens: usize,
    pub(super) osl: u64,
    pub(super) wait_ms: u32,
    pub(super) ttft_ms: u32,
    pub(super) decode_ms: u32,
    pub(super) calls: usize,
    pub(super) cached: bool,
}

#[derive(Debug, Clone)]
pub(super) struct ThreadSpec {
    pub(super) kind: TurnKind,
    /// The turn of the main thread after which a subagent begins.
    pub(super) after: usize,
    pub(super) turns: Vec<TurnSpec>,
}

pub(super) fn turn_spec() -> impl Strategy<Value = TurnSpec> {
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

pub(super) fn session_spec() -> impl Strategy<Value = Vec<ThreadSpec>> {
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

pub(super) fn run_spec() -> impl Strategy<Value = Vec<Vec<ThreadSpec>>> {
    prop::collection::vec(session_spec(), 1..4)
}

/// A Chat message of four bytes a token.
pub(super) fn message(role: &str, name: &str, tokens: usize) -> String {
    let bare = json!({"role": role, "content": name}).to_string().len();
    let fill = "x".repeat((tokens * 4).saturating_sub(bare).max(4 - bare % 4));
    let text = json!({"role": role, "content": format!("{name}{fill}")}).to_string();
    let more = (4 - text.len() % 4) % 4;
    json!({"role": role, "content": format!("{name}{fill}{}", "y".repeat(more))}).to_string()
}

/// A drawn run's rows.
#[derive(Default)]
pub(super) struct Rows {
    pub(super) units: BTreeMap<String, String>,
    pub(super) turns: Vec<TurnRow>,
    pub(super) calls: Vec<ToolCallRow>,
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

pub(super) fn text_of(reply: &[ReplyBlock]) -> String {
    match &reply[0] {
        ReplyBlock::Text { text } => text.clone(),
        _ => String::new(),
    }
}

pub(super) fn rows_of(spec: &[Vec<ThreadSpec>]) -> Rows {
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
