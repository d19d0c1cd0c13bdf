//! Rows read off synthetic requests and replies, as a recorder would read them off the wire.
//!
//! Token counts come from the text that is there, times from the plan.

use std::collections::{HashMap, HashSet};

use crate::api::{Api, ContentHash, ParsedRequest, Reply, ReplyBlock, Unit};
use crate::clock::{elapsed_ms, unix_seconds};
use crate::synthesize::plan::{SessionPlan, ThreadRole, TurnPlan};
use crate::synthesize::wire::MODEL;
use crate::trace::Row;
use crate::trace::record::{EngineJoin, Outcome, ToolCallRow, TurnKind, TurnRow, UnitRow};

/// Output tokens that come in one chunk of the recorded streams.
const TOKENS_PER_CHUNK: u64 = 4;
/// The imagined engine's cache holds whole blocks of so many tokens.
const BLOCK_TOKENS: u64 = 16;
/// The agent's name in the tables.
const AGENT: &str = "synthetic";
/// From the first byte of a stream to its first output.
const FIRST_BYTE_US: i64 = 500;

/// What earlier sessions of the run have brought.
#[derive(Debug, Default)]
pub(crate) struct UnitsKnown {
    /// Units that have been written.
    written: HashSet<ContentHash>,
    /// First units of conversations: the imagined engine has seen this system prompt.
    warm: HashSet<ContentHash>,
}

/// One request and its reply, as they stood on the wire.
#[derive(Debug)]
pub(crate) struct TurnParts<'a> {
    pub(crate) thread: usize,
    pub(crate) turn: usize,
    pub(crate) parsed: ParsedRequest<'a>,
    pub(crate) reply: Reply,
}

/// The rows of one session.
#[derive(Debug)]
pub(crate) struct SessionRows<'a> {
    run_id: &'a str,
    session_id: String,
    plan: &'a SessionPlan,
    start_ns: i64,
    known: &'a mut UnitsKnown,
    /// The units of each thread's last request.
    last_units: HashMap<usize, Vec<ContentHash>>,
    /// Calls whose results have not come, by id.
    open_calls: HashMap<String, ToolCallRow>,
    turns: Vec<TurnRow>,
    calls: Vec<ToolCallRow>,
    units: Vec<UnitRow>,
}

impl<'a> SessionRows<'a> {
    pub(crate) fn new(
        run_id: &'a str,
        session_id: &str,
        plan: &'a SessionPlan,
        start_ns: i64,
        known: &'a mut UnitsKnown,
    ) -> Self {
        Self {
            run_id,
            session_id: session_id.to_owned(),
            plan,
            start_ns,
            known,
            last_units: HashMap::new(),
            open_calls: HashMap::new(),
            turns: Vec::new(),
            calls: Vec::new(),
            units: Vec::new(),
        }
    }

    /// Turns by the end of their responses, calls by their reply, units by first use.
    pub(crate) fn finish(mut self) -> Vec<Row> {
        self.calls.extend(self.open_calls.into_values());
        self.turns.sort_by(|a, b| {
            let end = |row: &TurnRow| row.response_end_time.unwrap_or(row.request_time);
            end(a).total_cmp(&end(b)).then_with(|| a.request_id.cmp(&b.request_id))
        });
        self.calls.sort_by(|a, b| {
            a.emitted_time
                .total_cmp(&b.emitted_time)
                .then_with(|| (&a.request_id, a.index).cmp(&(&b.request_id, b.index)))
        });
        let units = self.units.into_iter().map(Row::from);
        let turns = self.turns.into_iter().map(Row::from);
        units.chain(turns).chain(self.calls.into_iter().map(Row::from)).collect()
    }

    /// Adds a turn: its row, its new units, its calls, and the results of the calls before it.
    pub(crate) fn turn(&mut self, parts: &TurnParts<'_>) {
        let plan = &self.plan.threads[parts.thread].turns[parts.turn];
        let request_time = self.time(plan.start_us);
        for result in &parts.parsed.tool_results {
            if let Some(mut call) = self.open_calls.remove(&result.call_id) {
                call.result_time = Some(request_time);
                call.wire_ms = Some(plan.wait_us.map_or(0.0, ms));
                call.result_bytes = Some(result.result_bytes);
                call.is_error = result.is_error;
                self.calls.push(call);
            }
        }
        for unit in &parts.parsed.units {
            if self.known.written.insert(unit.hash) {
                self.units.push(UnitRow::from(unit));
            }
        }
        let row = self.turn_row(parts, plan);
        self.open_calls(parts, plan, &row);
        let hashes = parts.parsed.units.iter().map(|unit| unit.hash).collect();
        self.last_units.insert(parts.thread, hashes);
        self.turns.push(row);
    }

    fn turn_row(&mut self, parts: &TurnParts<'_>, plan: &TurnPlan) -> TurnRow {
        let TurnParts { thread, turn, parsed, reply } = parts;
        let role = self.plan.threads[*thread].role;
        let n_shared = self.shared_units(*thread, &parsed.units);
        let tokens = self.tokens(parts, plan, n_shared);
        let timing = Timing::of(plan, tokens.osl);
        let new_units: Vec<&str> =
            parsed.units[n_shared..].iter().map(|unit| &*unit.text).collect();
        TurnRow {
            run_id: self.run_id.to_owned(),
            session_id: self.session_id.clone(),
            thread_id: self.thread_id(*thread),
            parent_thread_id: match role {
                ThreadRole::Subagent { parent } => Some(self.thread_id(parent)),
                ThreadRole::Main | ThreadRole::Continued => None,
            },
            turn: *turn as u32,
            request_id: self.request_id(*thread, *turn),
            api: parsed.api.as_str().to_owned(),
            agent: Some(AGENT.to_owned()),
            engine: None,
            kind: match role {
                ThreadRole::Subagent { .. } => TurnKind::Subagent,
                ThreadRole::Main | ThreadRole::Continued => TurnKind::Main,
            },
            model: Some(MODEL.to_owned()),
            stream: parsed.stream,
            path: parsed.api.path().to_owned(),
            params: parsed.params.clone(),
            n_messages: parsed.n_messages,
            n_tools: parsed.n_tools,
            unit_hashes: parsed.units.iter().map(|unit| unit.hash.hex()).collect(),
            body_template: parsed.template.clone(),
            block_hashes: None,
            block_size: None,
            n_shared_units: n_shared as u32,
            server_history: None,
            changes: None,
            request_time: self.time(plan.start_us),
            first_byte_time: Some(self.time(plan.start_us + timing.first_byte_us)),
            first_output_time: Some(self.time(plan.start_us + timing.first_us())),
            last_output_time: Some(self.time(plan.start_us + timing.last_us())),
            response_end_time: Some(self.time(plan.end_us)),
            ttft_ms: Some(ms(timing.first_us())),
            itl_ms_mean: (tokens.osl > 1)
                .then(|| ms(timing.last_us() - timing.first_us()) / (tokens.osl - 1) as f64),
            e2e_ms: Some(ms(plan.end_us - plan.start_us)),
            output_offsets_us: timing.offsets_us,
            tool_exec_ms: plan.wait_us.map(ms),
            residual_wait_ms: plan.residual_wait_us.map(ms),
            http_status: Some(200),
            outcome: Outcome::Ok,
            error: None,
            stop_reason: Some(stop_reason(parsed.api, reply).to_owned()),
            isl: Some(tokens.isl),
            isl_cached: Some(tokens.cached),
            isl_cache_write: (parsed.api == Api::Messages).then_some(tokens.isl - tokens.cached),
            isl_new: Some(tokens.isl - tokens.cached),
            osl: Some(tokens.osl),
            reasoning_tokens: None,
            isl_new_text: new_units.join("\n"),
            osl_text: reply.text(),
            reply_blocks: serde_json::to_string(&reply.blocks).unwrap_or_default(),
            engine_row: None,
            engine_join: EngineJoin::None,
        }
    }

    /// Leading units that the thread's last request had too.
    fn shared_units(&self, thread: usize, units: &[Unit<'_>]) -> usize {
        let before = self.last_units.get(&thread).map_or(&[][..], Vec::as_slice);
        units.iter().zip(before).take_while(|(unit, hash)| unit.hash == **hash).count()
    }

    /// Counts a turn's tokens. Cached is what the imagined engine still holds: the thread's last
    /// prompt, or on a first turn the system prompt and tools that another conversation has brought.
    fn tokens(&mut self, parts: &TurnParts<'_>, plan: &TurnPlan, n_shared: usize) -> Tokens {
        let units = &parts.parsed.units;
        let common = units.iter().position(|unit| unit.role == "user").unwrap_or(0);
        let warm = units.first().is_some_and(|unit| !self.known.warm.insert(unit.hash));
        let held = match (parts.turn, plan.prefix_held) {
            (0, _) if warm => common,
            (0, _) | (_, false) => 0,
            (_, true) => n_shared,
        };
        let cached: u64 = units[..held].iter().map(unit_tokens).sum();
        let bytes: usize = parts.reply.blocks.iter().map(reply_bytes).sum();
        Tokens {
            isl: units.iter().map(unit_tokens).sum(),
            cached: cached / BLOCK_TOKENS * BLOCK_TOKENS,
            osl: (bytes as u64).div_ceil(4).max(1),
        }
    }

    /// Rows of the reply's calls; they wait for their results.
    fn open_calls(&mut self, parts: &TurnParts<'_>, plan: &TurnPlan, turn: &TurnRow) {
        let calls = parts.reply.blocks.iter().filter_map(|block| match block {
            ReplyBlock::ToolCall { id, name, arguments } => Some((id, name, arguments)),
            _ => None,
        });
        for (index, ((id, name, arguments), call)) in calls.zip(&plan.calls).enumerate() {
            let row = ToolCallRow {
                run_id: turn.run_id.clone(),
                session_id: turn.session_id.clone(),
                thread_id: turn.thread_id.clone(),
                turn: turn.turn,
                request_id: turn.request_id.clone(),
                index: index as u32,
                call_id: id.clone(),
                name: name.clone(),
                arguments: arguments.clone(),
                argument_bytes: arguments.len() as u64,
                emitted_time: self.time(plan.end_us),
                result_time: None,
                wire_ms: None,
                own_ms: Some(ms(call.own_us)),
                result_bytes: None,
                is_error: None,
            };
            self.open_calls.insert(id.clone(), row);
        }
    }

    fn time(&self, offset_us: i64) -> f64 {
        unix_seconds(self.start_ns + offset_us * 1000)
    }

    fn thread_id(&self, thread: usize) -> String {
        format!("{}-t{thread}", self.session_id)
    }

    fn request_id(&self, thread: usize, turn: usize) -> String {
        format!("{}-t{thread}-{turn:04}", self.session_id)
    }
}

struct Tokens {
    isl: u64,
    cached: u64,
    osl: u64,
}

/// When the chunks of a response come.
struct Timing {
    first_byte_us: i64,
    offsets_us: Vec<i64>,
}

impl Timing {
    fn of(plan: &TurnPlan, osl: u64) -> Self {
        let chunks = osl.div_ceil(TOKENS_PER_CHUNK).max(1) as i64;
        let span_us = plan.end_us - plan.start_us - plan.ttft_us;
        // The last chunk comes one gap before the end, where the usage is told.
        let offsets_us = (0..chunks).map(|chunk| plan.ttft_us + span_us * chunk / chunks).collect();
        Self { first_byte_us: (plan.ttft_us - FIRST_BYTE_US).max(0), offsets_us }
    }

    fn first_us(&self) -> i64 {
        self.offsets_us.first().copied().unwrap_or(self.first_byte_us)
    }

    fn last_us(&self) -> i64 {
        self.offsets_us.last().copied().unwrap_or(self.first_byte_us)
    }
}

fn ms(us: i64) -> f64 {
    elapsed_ms(0, us * 1000)
}

/// Tokens of a unit: bytes of its text in groups of 4.
pub(crate) fn unit_tokens(unit: &Unit<'_>) -> u64 {
    (unit.text.len() as u64).div_ceil(4)
}

fn reply_bytes(block: &ReplyBlock) -> usize {
    match block {
        ReplyBlock::Text { text } | ReplyBlock::Reasoning { text, .. } => text.len(),
        ReplyBlock::ToolCall { name, arguments, .. } => name.len() + arguments.len(),
    }
}

fn stop_reason(api: Api, reply: &Reply) -> &'static str {
    let calls = reply.blocks.iter().any(|block| matches!(block, ReplyBlock::ToolCall { .. }));
    match (api, calls) {
        (Api::Messages, true) => "tool_use",
        (Api::Messages, false) => "end_turn",
        (Api::Chat, true) => "tool_calls",
        (Api::Chat, false) | (Api::Completions, _) => "stop",
        (Api::Responses, _) => "completed",
    }
}
