//! What a recording asks a replay to send: sessions, their threads, the requests of each, what each
//! waits for and how long.
//!
//! Pure: rows in, plan out. A session becomes a graph: every request names the requests of its session
//! that must have ended (`after`) and the wait that follows the last of them. So a thread's turns come
//! one after another with the recorded tool time between them, a subagent starts when the recording
//! started it and runs beside its parent, and a parent that waited for its children waits for them
//! again. Who works on which session and when is `load`'s affair; what is sent is `content`'s.

use std::collections::{BTreeMap, HashMap};

use super::salts::CacheSharing;
use super::shared_prefix::{PrefixPlanner, PrefixTree, SharedPrefix};
use super::waits::{Brings, WaitFor, Waits, role_of, waits_for};
use crate::api::Api;
use crate::clock::elapsed_ms;
use crate::trace::record::{Outcome, ServerHistory, TurnKind, TurnRow};

/// One recorded request, ready to be sent again.
#[derive(Debug, Clone, PartialEq)]
pub struct PlannedRequest {
    /// Index of the turn in its thread, as recorded.
    pub turn: u32,
    /// The recorded request.
    pub request_id: String,
    /// The API it was recorded in.
    pub api: Api,
    /// What the turn was for.
    pub kind: TurnKind,
    /// The body with its units cut out.
    pub body_template: String,
    /// Units in prompt order, as indices into `Plan::unit_hashes`.
    pub units: Vec<u32>,
    /// Requests of the session (indices into `SessionPlan::requests`) that must have ended; empty for
    /// one that starts with the session.
    pub after: Vec<usize>,
    /// The wait, as it will be replayed, after the last of `after` ended, or after the session started.
    pub wait_ms: f64,
    /// What the wait is for.
    pub waits_for: WaitFor,
    /// Output tokens to ask for; those recorded, as planned.
    pub target_output_tokens: Option<u64>,
    /// Recorded prompt tokens.
    pub planned_prompt_tokens: Option<u64>,
    /// Recorded tokens of the leading units that the thread had sent before.
    pub planned_cached_tokens: Option<u64>,
    /// How far other threads and trajectories may share the prompt.
    pub shared_prefix: SharedPrefix,
    /// Recorded prompt tokens that came from cache, by usage.
    pub recorded_cached_tokens: Option<u64>,
    /// The units are blocks of so many tokens, of which only the hashes are known.
    pub block_size: Option<u32>,
}

/// One thread of a session: a chain of requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPlan {
    /// The recorded thread.
    pub thread_id: String,
    /// The thread that started it.
    pub parent_thread_id: Option<String>,
    /// Its requests in order, as indices into `SessionPlan::requests`.
    pub requests: std::ops::Range<usize>,
}

/// One recorded session.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPlan {
    /// The recorded session.
    pub session_id: String,
    /// Its recorded start, from that of the first session of the plan.
    pub start_ms: f64,
    /// Threads in the order in which they started.
    pub threads: Vec<ThreadPlan>,
    /// All requests, thread by thread.
    pub requests: Vec<PlannedRequest>,
}

/// A recording as it will be replayed.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    /// Sessions in recorded order.
    pub sessions: Vec<SessionPlan>,
    /// Every distinct unit of the plan by its content hash.
    pub unit_hashes: Vec<String>,
    /// Recorded turns that are left out, by reason.
    pub skipped: BTreeMap<String, u64>,
    /// What became of the recorded waits.
    pub waits: Waits,
    /// Hash of the recording's turns; see `trace::digest`.
    pub content_hash: String,
    /// What prompts have in common, as far as cache sharing lets them share it.
    pub prefixes: PrefixTree,
}

/// What planning must know of a unit's text.
#[derive(Debug, Clone, Copy, Default)]
pub struct UnitFacts {
    /// Its length.
    pub n_bytes: u64,
    /// What it says of the wait before it.
    pub brings: Brings,
    /// It is system text or a tool.
    pub is_head: bool,
}

impl UnitFacts {
    /// Of a unit's text.
    pub fn of(unit_json: &str) -> Self {
        let role = role_of(unit_json);
        Self {
            n_bytes: unit_json.len() as u64,
            brings: Brings::of(&role, unit_json),
            is_head: matches!(role.as_str(), "" | "system" | "developer"),
        }
    }
}

impl Plan {
    /// Requests in one pass over the plan.
    pub fn n_requests(&self) -> usize {
        self.sessions.iter().map(|session| session.requests.len()).sum()
    }
}

/// What planning keeps of a turn row; texts are dropped as rows stream by.
#[derive(Debug)]
struct Recorded {
    thread_id: String,
    parent_thread_id: Option<String>,
    turn: u32,
    request_id: String,
    api: Option<Api>,
    kind: TurnKind,
    outcome: Outcome,
    body_template: String,
    units: Vec<u32>,
    lost_units: bool,
    history_unknown: bool,
    n_shared_units: usize,
    start_ns: i64,
    end_ns: i64,
    tool_exec_ms: Option<f64>,
    residual_wait_ms: Option<f64>,
    isl: Option<u64>,
    isl_cached: Option<u64>,
    osl: Option<u64>,
    block_size: Option<u32>,
    /// What is sent is text of our own, for which counts are enough.
    synthetic: bool,
}

impl Recorded {
    fn left_out_because(&self) -> Option<&'static str> {
        if self.outcome != Outcome::Ok {
            Some("not answered whole")
        } else if self.synthetic {
            let is_known = self.isl.map_or(!self.units.is_empty(), |tokens| tokens > 0);
            (!is_known).then_some("unknown prompt tokens")
        } else if self.api.is_none() {
            Some("unknown api")
        } else if self.body_template.is_empty() {
            Some("no request body")
        } else if self.history_unknown {
            Some("parts of the prompt lie with the server and were not recorded")
        } else if self.lost_units {
            Some("parts of the request body were not recorded")
        } else {
            None
        }
    }
}

/// Collects turn rows, in any order, and makes the plan of them.
#[derive(Debug)]
pub struct Planner {
    include_utility: bool,
    cache_sharing: CacheSharing,
    synthetic: bool,
    sessions: HashMap<String, Vec<Recorded>>,
    unit_index: HashMap<String, u32>,
    unit_hashes: Vec<String>,
    skipped: BTreeMap<String, u64>,
}

impl Planner {
    /// A planner that keeps or leaves out turns that are not the agent's work (titles, quota checks).
    pub fn new(include_utility: bool) -> Self {
        Self {
            include_utility,
            cache_sharing: CacheSharing::default(),
            synthetic: false,
            sessions: HashMap::new(),
            unit_index: HashMap::new(),
            unit_hashes: Vec::new(),
            skipped: BTreeMap::new(),
        }
    }

    /// The same planner for a replay with this cache sharing.
    #[must_use]
    pub fn with_cache_sharing(self, cache_sharing: CacheSharing) -> Self {
        Self { cache_sharing, ..self }
    }

    /// Plans token ids of our own, sent to Completions: turns of which only counts or block hashes are
    /// known are planned too.
    #[must_use]
    pub fn synthetic(self) -> Self {
        Self { synthetic: true, ..self }
    }

    /// Takes one recorded turn.
    pub fn add(&mut self, row: TurnRow) {
        if row.is_answered_locally() {
            *self.skipped.entry("answered by the proxy".to_owned()).or_default() += 1;
            return;
        }
        if row.kind == TurnKind::Utility && !self.include_utility {
            *self.skipped.entry("utility".to_owned()).or_default() += 1;
            return;
        }
        let (units, block_size) = self.units(&row);
        let start_ns = unix_ns(row.request_time);
        let end = row
            .response_end_time
            .or(row.last_output_time)
            .or_else(|| Some(row.request_time + row.e2e_ms? / 1e3));
        let turn = Recorded {
            api: if self.synthetic { Some(Api::Completions) } else { Api::from_name(&row.api) },
            start_ns,
            end_ns: end.map_or(start_ns, unix_ns).max(start_ns),
            thread_id: row.thread_id,
            parent_thread_id: row.parent_thread_id,
            turn: row.turn,
            request_id: row.request_id,
            kind: row.kind,
            outcome: row.outcome,
            body_template: row.body_template,
            units,
            lost_units: false,
            history_unknown: row.server_history == Some(ServerHistory::Unknown),
            n_shared_units: row.n_shared_units as usize,
            tool_exec_ms: row.tool_exec_ms,
            residual_wait_ms: row.residual_wait_ms,
            isl: row.isl,
            isl_cached: row.isl_cached,
            osl: row.osl,
            block_size,
            synthetic: self.synthetic,
        };
        self.sessions.entry(row.session_id).or_default().push(turn);
    }

    /// A turn's units, or its blocks where there is no body and text of our own is to be sent.
    fn units(&mut self, row: &TurnRow) -> (Vec<u32>, Option<u32>) {
        let blocks = row.block_hashes.as_deref().zip(row.block_size).filter(|(blocks, size)| {
            self.synthetic && row.unit_hashes.is_empty() && !blocks.is_empty() && *size > 0
        });
        match blocks {
            Some((blocks, size)) => {
                let name = |hash| format!("block of {size}: {hash}");
                (blocks.iter().map(|hash| self.unit(&name(hash))).collect(), Some(size))
            }
            None => (row.unit_hashes.iter().map(|hash| self.unit(hash)).collect(), None),
        }
    }

    fn unit(&mut self, hash: &str) -> u32 {
        if let Some(index) = self.unit_index.get(hash) {
            return *index;
        }
        let index = self.unit_hashes.len() as u32;
        self.unit_hashes.push(hash.to_owned());
        self.unit_index.insert(hash.to_owned(), index);
        index
    }

    /// The plan, with the recorded waits changed by the rules of `waits`. `unit_facts` tells of a unit
    /// by its hash; none for one that the recording lost.
    pub fn finish(
        mut self,
        unit_facts: &dyn Fn(&str) -> Option<UnitFacts>,
        mut waits: Waits,
    ) -> Plan {
        let known: Vec<Option<UnitFacts>> =
            self.unit_hashes.iter().map(|hash| unit_facts(hash)).collect();
        let facts: Vec<UnitFacts> = known.iter().map(|unit| unit.unwrap_or_default()).collect();
        let mut prefixes = PrefixPlanner::new(self.cache_sharing, &facts);
        let mut sessions: Vec<(i64, SessionPlan)> = Vec::new();
        for (session_id, mut turns) in self.sessions {
            for turn in &mut turns {
                turn.lost_units = !self.synthetic
                    && turn.units.iter().any(|unit| known[*unit as usize].is_none());
            }
            let threads = threads_of(turns, &mut self.skipped);
            let Some(start_ns) = threads.iter().map(Thread::start_ns).min() else { continue };
            let session =
                plan_session(session_id, threads, start_ns, &facts, &mut waits, &mut prefixes);
            sessions.push((start_ns, session));
        }
        sessions.sort_by(|(a_start, a), (b_start, b)| {
            a_start.cmp(b_start).then_with(|| a.session_id.cmp(&b.session_id))
        });
        let first_ns = sessions.first().map_or(0, |(start_ns, _)| *start_ns);
        for (start_ns, session) in &mut sessions {
            session.start_ms = elapsed_ms(first_ns, *start_ns);
        }
        Plan {
            sessions: sessions.into_iter().map(|(_, session)| session).collect(),
            unit_hashes: self.unit_hashes,
            skipped: self.skipped,
            waits,
            content_hash: String::new(),
            prefixes: prefixes.finish(),
        }
    }
}

/// A thread's turns that will be replayed, in the order in which they were sent; never empty.
struct Thread {
    id: String,
    parent: Option<String>,
    turns: Vec<Recorded>,
}

impl Thread {
    fn start_ns(&self) -> i64 {
        self.turns.first().map_or(0, |turn| turn.start_ns)
    }

    fn end_ns(&self) -> i64 {
        self.turns.iter().map(|turn| turn.end_ns).max().unwrap_or_default()
    }

    fn is_utility(&self) -> bool {
        self.turns.iter().all(|turn| turn.kind == TurnKind::Utility)
    }
}

/// Groups a session's turns by thread; attempts at one turn become one, failed turns are left out.
fn threads_of(turns: Vec<Recorded>, skipped: &mut BTreeMap<String, u64>) -> Vec<Thread> {
    let mut by_thread: BTreeMap<String, BTreeMap<u32, Vec<Recorded>>> = BTreeMap::new();
    for turn in turns {
        let thread = by_thread.entry(turn.thread_id.clone()).or_default();
        thread.entry(turn.turn).or_default().push(turn);
    }
    let mut threads = Vec::new();
    for (id, attempts_by_turn) in by_thread {
        let mut turns: Vec<Recorded> = attempts_by_turn
            .into_values()
            .filter_map(|attempts| last_good_attempt(attempts, skipped))
            .collect();
        turns.sort_by_key(|turn| (turn.start_ns, turn.turn));
        if let Some(first) = turns.first() {
            threads.push(Thread { parent: first.parent_thread_id.clone(), id, turns });
        }
    }
    threads.sort_by(|a, b| a.start_ns().cmp(&b.start_ns()).then_with(|| a.id.cmp(&b.id)));
    threads
}

/// The last attempt that was answered whole, with the wait that came before the first attempt: the
/// client's back-off between attempts is no tool time.
fn last_good_attempt(
    mut attempts: Vec<Recorded>,
    skipped: &mut BTreeMap<String, u64>,
) -> Option<Recorded> {
    attempts.sort_by_key(|turn| turn.start_ns);
    let first_start_ns = attempts.first()?.start_ns;
    let first_tool_exec_ms = attempts.first()?.tool_exec_ms;
    let first_residual_ms = attempts.first()?.residual_wait_ms;
    let last_good = attempts.iter().rposition(|turn| turn.left_out_because().is_none());
    let mut chosen = None;
    for (index, turn) in attempts.into_iter().enumerate() {
        if Some(index) == last_good {
            chosen = Some(turn);
            continue;
        }
        let reason = match last_good {
            Some(_) => "repeated attempt",
            None => turn.left_out_because().unwrap_or("not answered whole"),
        };
        *skipped.entry(reason.to_owned()).or_default() += 1;
    }
    let mut chosen = chosen?;
    chosen.start_ns = first_start_ns;
    chosen.tool_exec_ms = first_tool_exec_ms.or(chosen.tool_exec_ms);
    chosen.residual_wait_ms = first_residual_ms.or(chosen.residual_wait_ms);
    Some(chosen)
}

/// A request's place in the recording, for finding what it waited for.
#[derive(Clone, Copy)]
struct Span {
    start_ns: i64,
    end_ns: i64,
}

fn plan_session(
    session_id: String,
    threads: Vec<Thread>,
    session_start_ns: i64,
    facts: &[UnitFacts],
    waits: &mut Waits,
    prefixes: &mut PrefixPlanner<'_>,
) -> SessionPlan {
    let spans: Vec<Span> = threads
        .iter()
        .flat_map(|thread| &thread.turns)
        .map(|turn| Span { start_ns: turn.start_ns, end_ns: turn.end_ns })
        .collect();
    let ranges = ranges_of(&threads);
    let waited_for = waited_for(&threads, &ranges);
    let starts: Vec<(Option<usize>, f64)> = (0..threads.len())
        .map(|index| thread_start(index, &threads, &ranges, &spans, session_start_ns))
        .collect();

    let mut requests = Vec::with_capacity(spans.len());
    let mut thread_plans = Vec::with_capacity(threads.len());
    for (index, thread) in threads.into_iter().enumerate() {
        let started_by_human =
            thread.parent.is_none() && thread.turns.iter().any(|turn| turn.kind == TurnKind::Main);
        thread_plans.push(ThreadPlan {
            thread_id: thread.id,
            parent_thread_id: thread.parent,
            requests: ranges[index].clone(),
        });
        let mut previous: Option<PreviousTurn> = None;
        for turn in thread.turns {
            let here = requests.len();
            let (after, wait_ms, waits_for) = if let Some(previous) = &previous {
                let children = waited_for.get(&here).map_or(&[][..], Vec::as_slice);
                let of = |unit: &u32| facts[*unit as usize].brings;
                let new_units = turn.units.iter().enumerate().skip(n_shared_units(&turn, previous));
                let brings =
                    new_units.map(|(at, unit)| of(unit).beside(previous.units.get(at).map(of)));
                let (after, wait_ms) = chained(here, &turn, children, &spans);
                (
                    after,
                    wait_ms,
                    if children.is_empty() { waits_for(brings) } else { WaitFor::Tools },
                )
            } else {
                let (anchor, offset_ms) = starts[index];
                let waits_for = match anchor {
                    None => WaitFor::Nothing,
                    Some(_) if started_by_human => WaitFor::Human,
                    Some(_) => WaitFor::Tools,
                };
                (anchor.into_iter().collect(), offset_ms, waits_for)
            };
            let wait_ms = waits.replayed_ms(waits_for, wait_ms);
            let cached = planned_cached_tokens(&turn, previous.as_ref(), facts);
            let n_known = previous.as_ref().map_or(0, |previous| n_shared_units(&turn, previous));
            let has_head = turn.api != Some(Api::Completions);
            let shared_prefix = prefixes.add(&turn.units, n_known, has_head);
            previous =
                Some(PreviousTurn { turn: turn.turn, units: turn.units.clone(), isl: turn.isl });
            requests.push(planned(turn, after, (wait_ms, waits_for), cached, shared_prefix));
        }
    }
    SessionPlan { session_id, start_ms: 0.0, threads: thread_plans, requests }
}

fn planned(
    turn: Recorded,
    after: Vec<usize>,
    (wait_ms, waits_for): (f64, WaitFor),
    planned_cached_tokens: Option<u64>,
    shared_prefix: SharedPrefix,
) -> PlannedRequest {
    PlannedRequest {
        turn: turn.turn,
        request_id: turn.request_id,
        api: turn.api.unwrap_or(Api::Chat),
        kind: turn.kind,
        body_template: turn.body_template,
        units: turn.units,
        after,
        wait_ms,
        waits_for,
        target_output_tokens: turn.osl,
        planned_prompt_tokens: turn.isl,
        planned_cached_tokens,
        shared_prefix,
        recorded_cached_tokens: turn.isl_cached,
        block_size: turn.block_size,
    }
}

fn ranges_of(threads: &[Thread]) -> Vec<std::ops::Range<usize>> {
    let mut next = 0;
    threads
        .iter()
        .map(|thread| {
            let start = next;
            next += thread.turns.len();
            start..next
        })
        .collect()
}

/// For each request that followed the end of children of its thread: their last requests. A child is
/// waited for by the first turn of its parent that started after it had ended; utility threads run
/// beside and nobody waits for them.
fn waited_for(threads: &[Thread], ranges: &[std::ops::Range<usize>]) -> HashMap<usize, Vec<usize>> {
    let by_id: HashMap<&str, usize> =
        threads.iter().enumerate().map(|(index, thread)| (thread.id.as_str(), index)).collect();
    let mut waited_for: HashMap<usize, Vec<usize>> = HashMap::new();
    for (index, child) in threads.iter().enumerate().filter(|(_, thread)| !thread.is_utility()) {
        let parent = child.parent.as_deref().and_then(|id| by_id.get(id).copied());
        let Some(parent) = parent.filter(|parent| *parent != index) else { continue };
        let last_start_ns = child.turns.last().map_or(0, |turn| turn.start_ns);
        let waiting = threads[parent]
            .turns
            .iter()
            .position(|turn| turn.start_ns >= child.end_ns() && turn.start_ns > last_start_ns);
        // A parent's first turn cannot have waited for what it had not started.
        if let Some(turn) = waiting.filter(|turn| *turn > 0) {
            waited_for.entry(ranges[parent].start + turn).or_default().push(ranges[index].end - 1);
        }
    }
    waited_for
}

/// What a thread's first request follows: the last response, of its parent where that is known, else
/// of any thread that works, that had ended before; with the recorded offset from that end. A thread
/// that nothing precedes starts at its offset from the session's start.
fn thread_start(
    index: usize,
    threads: &[Thread],
    ranges: &[std::ops::Range<usize>],
    spans: &[Span],
    session_start_ns: i64,
) -> (Option<usize>, f64) {
    let thread = &threads[index];
    let start_ns = thread.start_ns();
    let parent = threads
        .iter()
        .position(|other| thread.parent.as_deref() == Some(other.id.as_str()))
        .filter(|parent| *parent != index);
    let before = |candidates: &mut dyn Iterator<Item = usize>| {
        candidates
            // An earlier start, strictly: no circle of waits can come of rows with equal times.
            .filter(|at| spans[*at].end_ns <= start_ns && spans[*at].start_ns < start_ns)
            .max_by_key(|at| spans[*at].end_ns)
    };
    let anchor = match parent {
        Some(parent) => before(&mut ranges[parent].clone()),
        None => before(
            &mut (0..threads.len())
                .filter(|other| *other != index && !threads[*other].is_utility())
                .flat_map(|other| ranges[other].clone()),
        ),
    };
    let from_ns = anchor.map_or(session_start_ns, |at| spans[at].end_ns);
    (anchor, elapsed_ms(from_ns, start_ns).max(0.0))
}

/// What a later turn of a thread follows: the turn before it and the children it waited for. The wait
/// is the recorded one from whichever of these ended last.
fn chained(here: usize, turn: &Recorded, children: &[usize], spans: &[Span]) -> (Vec<usize>, f64) {
    let previous_end_ns = spans[here - 1].end_ns;
    let children_end_ns = children.iter().map(|child| spans[*child].end_ns).max();
    let mut after = vec![here - 1];
    after.extend_from_slice(children);
    let wait_ms = match children_end_ns.filter(|end_ns| *end_ns > previous_end_ns) {
        Some(end_ns) => turn.residual_wait_ms.unwrap_or_else(|| elapsed_ms(end_ns, turn.start_ns)),
        None => turn.tool_exec_ms.unwrap_or_else(|| elapsed_ms(previous_end_ns, turn.start_ns)),
    };
    (after, wait_ms.max(0.0))
}

struct PreviousTurn {
    turn: u32,
    units: Vec<u32>,
    isl: Option<u64>,
}

/// Leading units that a turn shares with the one sent before it in its thread.
fn n_shared_units(turn: &Recorded, previous: &PreviousTurn) -> usize {
    if previous.turn + 1 == turn.turn {
        turn.n_shared_units.min(turn.units.len())
    } else {
        // The row counts from a turn that is left out; count again from the one that was sent.
        turn.units.iter().zip(&previous.units).take_while(|(a, b)| a == b).count()
    }
}

/// Recorded tokens of the leading units that the thread had sent before: the whole previous prompt
/// where the shared run covers it, else the part of it that the shared units' bytes make up. None
/// where the recording does not tell the previous prompt's tokens; 0 on a thread's first turn.
fn planned_cached_tokens(
    turn: &Recorded,
    previous: Option<&PreviousTurn>,
    facts: &[UnitFacts],
) -> Option<u64> {
    let Some(previous) = previous else { return Some(0) };
    let n_shared = n_shared_units(turn, previous).min(previous.units.len());
    let isl = previous.isl?;
    if n_shared == previous.units.len() {
        return Some(isl);
    }
    let bytes = |units: &[u32]| units.iter().map(|unit| facts[*unit as usize].n_bytes).sum::<u64>();
    let (shared, whole) = (bytes(&previous.units[..n_shared]), bytes(&previous.units));
    if whole == 0 {
        return Some(0);
    }
    Some((isl as f64 * shared as f64 / whole as f64).round() as u64)
}

fn unix_ns(unix_seconds: f64) -> i64 {
    (unix_seconds * 1e9).round() as i64
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
