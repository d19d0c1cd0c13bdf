//! Drafts as the rows of a run directory.
//!
//! Counts turns within their threads, compares each prompt with the one before it, and derives what times
//! and counts give: the same derivations as in a recording. Holds per thread the hashes of its last prompt
//! and the end of its last response, and per unit its hash.

use foldhash::{HashMap, HashSet};
use serde::{Deserialize, Serialize};

use super::draft::{CallDraft, PromptDraft, Times, Tokens, TurnDraft};
use super::links::{Linked, Told};
use crate::api::{Api, ContentHash, Reply, ReplyBlock, Unit, UnitKind, composed_template};
use crate::error::Result;
use crate::trace::Row;
use crate::trace::record::{EngineJoin, ToolCallRow, TurnRow, UnitRow};

/// Makes rows of drafts.
#[derive(Debug)]
pub(super) struct RowMaker {
    run_id: String,
    threads: HashMap<String, Thread>,
    sessions: HashSet<String>,
    /// Units that rows were made of: each is one row.
    written: HashSet<ContentHash>,
    identities: HashSet<ContentHash>,
    /// Names of requests, and how many turns bear each.
    requests: HashMap<ContentHash, u32>,
    /// Threads of turns that others go on from.
    chains: HashMap<String, String>,
    linked: Linked,
    seen: Seen,
}

/// What a thread's last turn left.
#[derive(Debug, Default)]
struct Thread {
    turns: u32,
    units: Vec<ContentHash>,
    end: Option<f64>,
    wait_after_ms: Option<f64>,
}

/// What rows hold, for telling what they lack.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct Seen {
    pub(super) turns: u64,
    pub(super) replayed: u64,
    pub(super) calls: u64,
    pub(super) with_text: u64,
    pub(super) with_blocks: u64,
    pub(super) with_times: u64,
    pub(super) with_first_output: u64,
    pub(super) with_isl: u64,
    pub(super) with_cached: u64,
    pub(super) with_osl: u64,
    pub(super) with_waits: u64,
    pub(super) later_turns: u64,
    pub(super) with_parent: u64,
    pub(super) calls_with_times: u64,
    pub(super) calls_with_own_time: u64,
    pub(super) times_went_back: u64,
    pub(super) named_again: u64,
    pub(super) synthetic: u64,
}

impl Seen {
    pub(super) fn add(&mut self, other: &Self) {
        self.turns += other.turns;
        self.replayed += other.replayed;
        self.calls += other.calls;
        self.with_text += other.with_text;
        self.with_blocks += other.with_blocks;
        self.with_times += other.with_times;
        self.with_first_output += other.with_first_output;
        self.with_isl += other.with_isl;
        self.with_cached += other.with_cached;
        self.with_osl += other.with_osl;
        self.with_waits += other.with_waits;
        self.later_turns += other.later_turns;
        self.with_parent += other.with_parent;
        self.calls_with_times += other.calls_with_times;
        self.calls_with_own_time += other.calls_with_own_time;
        self.times_went_back += other.times_went_back;
        self.named_again += other.named_again;
        self.synthetic += other.synthetic;
    }

    fn turn(&mut self, row: &TurnRow, has_time: bool) {
        let add = |counter: &mut u64, is_there: bool| *counter += u64::from(is_there);
        self.turns += 1;
        add(&mut self.with_text, !row.unit_hashes.is_empty());
        add(&mut self.with_blocks, row.block_hashes.is_some());
        add(&mut self.with_times, has_time);
        add(&mut self.with_first_output, row.ttft_ms.is_some());
        add(&mut self.with_isl, row.isl.is_some());
        add(&mut self.with_cached, row.isl_cached.is_some());
        add(&mut self.with_osl, row.osl.is_some());
        add(&mut self.with_parent, row.parent_thread_id.is_some());
        add(&mut self.later_turns, row.turn > 0);
        add(&mut self.with_waits, row.turn > 0 && row.tool_exec_ms.is_some());
    }

    fn call(&mut self, has_times: bool, has_own_time: bool) {
        self.calls += 1;
        self.calls_with_times += u64::from(has_times);
        self.calls_with_own_time += u64::from(has_own_time);
    }
}

impl RowMaker {
    pub(super) fn new(run_id: &str) -> Self {
        Self {
            run_id: run_id.to_owned(),
            threads: HashMap::default(),
            sessions: HashSet::default(),
            written: HashSet::default(),
            identities: HashSet::default(),
            requests: HashMap::default(),
            chains: HashMap::default(),
            linked: Linked::default(),
            seen: Seen::default(),
        }
    }

    pub(super) fn seen(&self) -> &Seen {
        &self.seen
    }

    pub(super) fn sessions(&self) -> usize {
        self.sessions.len()
    }

    pub(super) fn threads(&self) -> usize {
        self.threads.len()
    }

    /// Writes the rows of one turn; none of a turn that another file has told already. `conversations` are those
    /// of its drafts.
    pub(super) fn rows(
        &mut self,
        mut draft: TurnDraft,
        conversations: &[Vec<Unit<'static>>],
        mut write: impl FnMut(Row) -> Result<()>,
    ) -> Result<()> {
        self.follow(&mut draft);
        let told = self.linked.take(&mut draft);
        let units = match draft.prompt {
            PromptDraft::Units { conversation, n } => &conversations[conversation][..n],
            _ => &[],
        };
        if let Some(identity) = &draft.identity
            && !self.identities.insert(ContentHash::of(identity.as_bytes()))
        {
            self.seen.replayed += 1;
            // What comes after it goes on from here.
            let thread = self.threads.entry(draft.thread_id).or_default();
            thread.units = units.iter().map(|unit| unit.hash).collect();
            thread.end = draft.times.end;
            return Ok(());
        }
        if !self.sessions.contains(&draft.session_id) {
            self.sessions.insert(draft.session_id.clone());
        }
        for unit in units.iter().filter(|unit| self.written.insert(unit.hash)) {
            write(UnitRow::from(unit).into())?;
        }
        let mut row = self.turn_row(&mut draft, units);
        if told.waited_for_others {
            row.residual_wait_ms = row.tool_exec_ms.take();
        }
        self.count(&draft, &row);
        for call in self.calls_before(told, &row) {
            write(call.into())?;
        }
        for (index, call) in draft.calls.into_iter().enumerate() {
            write(call_row(index, call, &row).into())?;
        }
        write(row.into())
    }

    /// Rows of the tools that ran before a turn: calls of the turn before it.
    fn calls_before(&mut self, told: Told, turn: &TurnRow) -> Vec<ToolCallRow> {
        let Told { calls_before, request_before, first_index, .. } = told;
        let Some(index) = turn.turn.checked_sub(1) else { return Vec::new() };
        if calls_before.is_empty() {
            return Vec::new();
        }
        let before = TurnRow {
            turn: index,
            request_id: request_before,
            response_end_time: None,
            run_id: turn.run_id.clone(),
            session_id: turn.session_id.clone(),
            thread_id: turn.thread_id.clone(),
            ..TurnRow::default()
        };
        let calls = calls_before.into_iter().enumerate();
        calls
            .map(|(index, call)| {
                self.count_call(&call);
                call_row(first_index + index, call, &before)
            })
            .collect()
    }

    /// Puts a turn into the thread of the turn that it goes on from.
    fn follow(&mut self, draft: &mut TurnDraft) {
        let Some(chain) = draft.chain.take() else { return };
        let before = chain.goes_on_from.and_then(|before| self.chains.get(&before));
        if let Some(thread) = before {
            draft.session_id.clone_from(thread);
            draft.thread_id.clone_from(thread);
        }
        self.chains.insert(chain.own, draft.thread_id.clone());
    }

    /// Texts of the draft are moved, not copied: there are as many drafts as turns.
    fn turn_row(&mut self, draft: &mut TurnDraft, units: &[Unit<'_>]) -> TurnRow {
        let thread = entry(&mut self.threads, &draft.thread_id);
        let turn = thread.turns;
        let prompt = Prompt::of(draft, units, thread);
        let Times { request, request_unseen, first_output, last_output, end } = draft.times;
        let told_ms = draft.wait_ms.or(thread.wait_after_ms).filter(|_| turn > 0);
        let tool_exec_ms = told_ms.or_else(|| {
            let gap_ms = (request? - thread.end?) * 1e3;
            (turn > 0 && gap_ms >= 0.0).then_some(gap_ms)
        });
        if let (Some(request), Some(before)) = (request, thread.end)
            && request < before
        {
            self.seen.times_went_back += 1;
        }
        thread.turns += 1;
        thread.end = end;
        thread.wait_after_ms = draft.wait_after_ms;
        let Tokens { isl, cached, cache_write, osl, reasoning } = draft.tokens;
        let since = |time: Option<f64>| {
            Some((time? - request?) * 1e3).filter(|ms| *ms >= 0.0 && !request_unseen)
        };
        let request_id =
            draft.request_id.take().unwrap_or_else(|| format!("{}-{turn:04}", draft.thread_id));
        let request_id = self.unique(request_id);
        let decode_ms = first_output.zip(last_output).map(|(first, last)| (last - first) * 1e3);
        let reply = Reply { blocks: std::mem::take(&mut draft.reply), ..Reply::default() };
        let (isl_new_text, osl_text) =
            draft.texts.take().unwrap_or_else(|| (prompt.new_text, reply.text()));
        TurnRow {
            run_id: self.run_id.clone(),
            session_id: std::mem::take(&mut draft.session_id),
            thread_id: std::mem::take(&mut draft.thread_id),
            parent_thread_id: draft.parent_thread_id.take(),
            turn,
            request_id,
            api: draft.api.map(Api::as_str).unwrap_or_default().to_owned(),
            agent: draft.agent.take(),
            kind: draft.kind,
            model: draft.model.take(),
            stream: draft.stream,
            path: draft.api.map(Api::path).unwrap_or_default().to_owned(),
            params: prompt.params,
            n_messages: prompt.n_messages,
            n_tools: prompt.n_tools,
            unit_hashes: prompt.unit_hashes,
            body_template: prompt.template,
            block_hashes: prompt.block_hashes,
            block_size: prompt.block_size,
            n_shared_units: prompt.n_shared as u32,
            request_time: request.unwrap_or_default(),
            first_output_time: first_output,
            last_output_time: last_output,
            response_end_time: end,
            ttft_ms: draft.ttft_ms.or_else(|| since(first_output)),
            itl_ms_mean: decode_ms
                .zip(osl.filter(|osl| *osl > 1))
                .map(|(ms, n)| ms / (n - 1) as f64),
            e2e_ms: draft.e2e_ms.or_else(|| since(end)),
            tool_exec_ms,
            http_status: draft.http_status,
            outcome: draft.outcome,
            error: draft.error.take(),
            stop_reason: draft.stop_reason.take(),
            isl,
            isl_cached: cached,
            isl_cache_write: cache_write,
            isl_new: isl.zip(cached).map(|(isl, cached)| isl.saturating_sub(cached)),
            osl,
            reasoning_tokens: reasoning,
            isl_new_text,
            osl_text,
            reply_blocks: blocks_json(&reply.blocks),
            engine_join: EngineJoin::None,
            ..TurnRow::default()
        }
    }

    /// A name that no other turn has: of those that a source gives twice, the later ones end in a number.
    fn unique(&mut self, request_id: String) -> String {
        let n = self.requests.entry(ContentHash::of(request_id.as_bytes())).or_default();
        *n += 1;
        if *n == 1 {
            return request_id;
        }
        self.seen.named_again += 1;
        format!("{request_id}~{n}")
    }

    fn count(&mut self, draft: &TurnDraft, row: &TurnRow) {
        self.seen.turn(row, draft.times.request.is_some());
        self.seen.synthetic += u64::from(draft.is_synthetic);
        for call in &draft.calls {
            self.count_call(call);
        }
    }

    /// Rows that are ours already: counted, and given the run's name.
    pub(super) fn adopt(&mut self, row: &mut Row) {
        match row {
            Row::Turns(turn) => {
                turn.run_id.clone_from(&self.run_id);
                self.sessions.insert(turn.session_id.clone());
                let thread = self.threads.entry(turn.thread_id.clone()).or_default();
                thread.turns = thread.turns.max(turn.turn + 1);
                self.seen.turn(turn, turn.request_time > 0.0);
            }
            Row::ToolCalls(call) => {
                call.run_id.clone_from(&self.run_id);
                self.seen.call(call.wire_ms.is_some(), call.own_ms.is_some());
            }
            _ => {}
        }
    }

    /// A turn that the run holds already, from what its row says.
    pub(super) fn remember(&mut self, turn: &TurnRow) {
        self.sessions.insert(turn.session_id.clone());
        if let Some(agent) = &turn.agent {
            let identity = format!("{agent} {}", turn.request_id);
            self.identities.insert(ContentHash::of(identity.as_bytes()));
        }
        let name = turn.request_id.split_once('~').map_or(turn.request_id.as_str(), |it| it.0);
        *self.requests.entry(ContentHash::of(name.as_bytes())).or_default() += 1;
        let hashes = turn.unit_hashes.iter();
        let units = hashes.filter_map(|hash| u128::from_str_radix(hash, 16).ok()).map(ContentHash);
        let thread = self.threads.entry(turn.thread_id.clone()).or_default();
        if turn.turn + 1 > thread.turns {
            *thread = Thread {
                turns: turn.turn + 1,
                units: units.collect(),
                end: turn.response_end_time,
                wait_after_ms: None,
            };
        }
    }

    /// What was seen since this was asked last.
    pub(super) fn take_seen(&mut self) -> Seen {
        std::mem::take(&mut self.seen)
    }

    fn count_call(&mut self, call: &CallDraft) {
        let timed = call.wall_ms.is_some() || (call.emitted.is_some() && call.result.is_some());
        self.seen.call(timed, call.own_ms.is_some());
    }
}

/// A turn's prompt as columns.
#[derive(Default)]
struct Prompt {
    params: String,
    template: String,
    unit_hashes: Vec<String>,
    block_hashes: Option<Vec<String>>,
    block_size: Option<u32>,
    n_messages: u32,
    n_tools: u32,
    n_shared: usize,
    new_text: String,
}

impl Prompt {
    fn of(draft: &TurnDraft, units: &[Unit<'_>], thread: &mut Thread) -> Self {
        let mut prompt = match &draft.prompt {
            PromptDraft::Counts => Self::default(),
            PromptDraft::Blocks { hashes, size } => Self {
                block_hashes: Some(hashes.clone()),
                block_size: Some(*size),
                ..Self::default()
            },
            PromptDraft::Units { .. } => Self::of_units(draft, units, thread),
        };
        if prompt.params.is_empty() {
            prompt.params = params_text(draft);
        }
        prompt
    }

    fn of_units(draft: &TurnDraft, units: &[Unit<'_>], thread: &mut Thread) -> Self {
        let api = draft.api.unwrap_or(Api::Chat);
        let n_shared = units
            .iter()
            .zip(&thread.units)
            .take_while(|(unit, before)| unit.hash == **before)
            .count();
        thread.units = units.iter().map(|unit| unit.hash).collect();
        let new: Vec<&str> = units[n_shared..].iter().map(|unit| &*unit.text).collect();
        let kinds: Vec<_> = units.iter().map(|unit| unit.kind).collect();
        let params = params(draft);
        Self {
            template: composed_template(api, &kinds, &params),
            params: params.to_string(),
            unit_hashes: units.iter().map(|unit| unit.hash.hex()).collect(),
            n_messages: count(&kinds, UnitKind::Message),
            n_tools: count(&kinds, UnitKind::Tool),
            n_shared,
            new_text: new.join(api.unit_separator()),
            ..Self::default()
        }
    }
}

fn params(draft: &TurnDraft) -> serde_json::Value {
    match (&draft.params, &draft.model) {
        (Some(params), _) => params.clone(),
        (None, Some(model)) => serde_json::json!({"model": model, "stream": draft.stream}),
        (None, None) => serde_json::json!({}),
    }
}

/// The same as text: most drafts have but these two members.
fn params_text(draft: &TurnDraft) -> String {
    #[derive(Serialize)]
    struct Bare<'a> {
        model: &'a str,
        stream: bool,
    }
    match (&draft.params, &draft.model) {
        (None, Some(model)) => {
            serde_json::to_string(&Bare { model, stream: draft.stream }).unwrap_or_default()
        }
        _ => params(draft).to_string(),
    }
}

/// What is known of a thread; its name is copied only where it is new.
fn entry<'a>(threads: &'a mut HashMap<String, Thread>, thread_id: &str) -> &'a mut Thread {
    if !threads.contains_key(thread_id) {
        threads.insert(thread_id.to_owned(), Thread::default());
    }
    threads.get_mut(thread_id).unwrap_or_else(|| unreachable!("it was just put there"))
}

fn count(kinds: &[UnitKind], kind: UnitKind) -> u32 {
    kinds.iter().filter(|found| **found == kind).count() as u32
}

fn blocks_json(blocks: &[ReplyBlock]) -> String {
    if blocks.is_empty() {
        String::new()
    } else {
        serde_json::to_string(blocks).unwrap_or_default()
    }
}

fn call_row(index: usize, call: CallDraft, turn: &TurnRow) -> ToolCallRow {
    let span_ms = call.emitted.zip(call.result).map(|(emitted, result)| (result - emitted) * 1e3);
    ToolCallRow {
        run_id: turn.run_id.clone(),
        session_id: turn.session_id.clone(),
        thread_id: turn.thread_id.clone(),
        turn: turn.turn,
        request_id: turn.request_id.clone(),
        index: index as u32,
        call_id: call.id,
        name: call.name,
        argument_bytes: call.argument_bytes.unwrap_or(call.arguments.len() as u64),
        arguments: call.arguments,
        emitted_time: call.emitted.or(turn.response_end_time).unwrap_or_default(),
        result_time: call.result,
        wire_ms: call.wall_ms.or(span_ms).filter(|ms| *ms >= 0.0),
        own_ms: call.own_ms,
        result_bytes: call.result_bytes,
        is_error: call.is_error,
    }
}
