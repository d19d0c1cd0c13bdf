//! Which conversation a request continues.
//!
//! A request continues the thread with which it shares the longest run of leading blocks of system and
//! messages, at least the system and the first user unit; else it opens a thread. Tools are not part of
//! that run: an agent that loads one more tool goes on with its conversation. Where the agent names its
//! subagent, the name decides. What the run leaves open is settled so:
//!
//! - Of several threads, one whose last tool calls the request answers comes first, then one that the
//!   request extends without any change, then the one whose reply it repeats, then the longer run, then the one used
//!   last.
//! - A thread whose last response had not ended when the request arrived is not continued, unless its
//!   client had gone away. A first prompt that a thread has already answered opens another thread: two
//!   agents at the same task are two conversations.
//! - The same body again after an attempt that failed is the same turn again: turn number, wait and
//!   shared run are those of the first attempt.
//! - A compacted conversation begins with another first user unit and therefore opens a thread in its
//!   session; it becomes the session's main thread. A rewound one shares its beginning and goes on.
//!
//! Sessions are told apart by the name that the caller found (URL prefix, header, body). A request
//! without a name belongs to the session of the thread that it continues, else opens a session.
//! Pure: no clock, no I/O, no text of prompts is kept.

use std::collections::HashMap;
use std::sync::Arc;

use super::prompt::Prompt;
use crate::api::{ContentHash, Unit, UnitKind};
use crate::clock::elapsed_ms;
use crate::trace::record::TurnKind;

/// Calls of other agents by one thread that are remembered, the newest last.
const REMEMBERED_SPAWNS: usize = 64;
/// Ends of children that are remembered until their parent's next turn.
const REMEMBERED_CHILD_ENDS: usize = 1024;

/// What is known of one finished request.
#[derive(Debug)]
pub struct Seen<'a> {
    /// The session's name, where one is given.
    pub session: Option<&'a str>,
    /// The subagent's own name, where one is given.
    pub agent_id: Option<&'a str>,
    /// The request says that a subagent sends it.
    pub subagent: bool,
    /// Not the agent's work: titles, summaries.
    pub utility: bool,
    /// Units in prompt order.
    pub units: &'a [Unit],
    /// Identity of the whole body.
    pub body: ContentHash,
    /// Arrival of the request.
    pub arrived_ns: i64,
    /// End of the response.
    pub ended_ns: i64,
    /// How it ended.
    pub end: AttemptEnd,
    /// Calls whose results it brings.
    pub answered_calls: Vec<&'a str>,
    /// Tool calls of the reply, by id.
    pub calls: Vec<&'a str>,
    /// Prompts that the reply gives to other agents.
    pub spawned_prompts: Vec<String>,
    /// Text of the reply.
    pub reply_text: &'a str,
}

/// How an attempt at a turn ended, as far as lineage minds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AttemptEnd {
    /// Answered whole.
    Answered,
    /// Refused, broken or cut.
    Failed,
    /// The client went away; it may be back before the end was noticed.
    ClientGone,
}

/// Where a request belongs.
#[derive(Debug, Clone, PartialEq)]
pub struct Place {
    /// Its session.
    pub session_id: String,
    /// Its thread; unique in the run.
    pub thread_id: String,
    /// The thread that started this one.
    pub parent_thread_id: Option<String>,
    /// What the thread is for.
    pub kind: TurnKind,
    /// Index of the turn in its thread.
    pub turn: u32,
    /// Leading units shared with the turn before.
    pub n_shared_units: u32,
    /// Indexes of units whose text the request before did not have.
    pub new_units: Vec<usize>,
    /// End of the previous response of the thread to the arrival.
    pub tool_exec_ms: Option<f64>,
    /// End of the last child's response to the arrival, where children ran.
    pub residual_wait_ms: Option<f64>,
    /// Threads that were forgotten to make room.
    pub forgotten: Vec<String>,
}

type ThreadKey = u64;

/// All threads that are known, at most as many as the cap says.
#[derive(Debug)]
pub struct Lineage {
    threads: HashMap<ThreadKey, Thread>,
    /// By named session (none: a session known by lineage alone) and root.
    by_root: HashMap<(Option<Arc<str>>, u128), Vec<ThreadKey>>,
    by_agent: HashMap<(Arc<str>, String), ThreadKey>,
    sessions: HashMap<Arc<str>, Session>,
    max_threads: usize,
    threads_opened: u64,
    sessions_opened: u64,
    unnamed_sessions: u64,
    placed: u64,
}

#[derive(Debug, Default)]
struct Session {
    main: Option<ThreadKey>,
    threads: usize,
    /// Prompts that its threads gave to other agents.
    spawns: Vec<(ThreadKey, String)>,
}

#[derive(Debug)]
struct Thread {
    id: String,
    session: Arc<str>,
    /// How the thread is found again.
    root: (Option<Arc<str>>, u128),
    agent: Option<(Arc<str>, String)>,
    parent: Option<ThreadKey>,
    parent_id: Option<String>,
    kind: TurnKind,
    first: u128,
    first_answered: bool,
    turn: u32,
    last: Last,
    child_ends_ns: Vec<i64>,
    used: u64,
}

/// The last attempt of a thread.
#[derive(Debug, Default)]
struct Last {
    prompt: Prompt,
    body: Option<ContentHash>,
    end: Option<AttemptEnd>,
    ended_ns: i64,
    calls: Vec<String>,
    reply: Option<ContentHash>,
    n_shared_units: u32,
    tool_exec_ms: Option<f64>,
    residual_wait_ms: Option<f64>,
}

impl Lineage {
    /// Knows no thread yet; forgets those used longest ago beyond `max_threads`.
    pub fn new(max_threads: usize) -> Self {
        Self {
            threads: HashMap::new(),
            by_root: HashMap::new(),
            by_agent: HashMap::new(),
            sessions: HashMap::new(),
            max_threads,
            threads_opened: 0,
            sessions_opened: 0,
            unnamed_sessions: 0,
            placed: 0,
        }
    }

    /// Sessions seen so far.
    pub fn sessions_opened(&self) -> u64 {
        self.sessions_opened
    }

    /// Threads seen so far.
    pub fn threads_opened(&self) -> u64 {
        self.threads_opened
    }

    /// Finds the place of a request that has ended. To be called in the order in which they end.
    pub fn place(&mut self, seen: &Seen<'_>) -> Place {
        let prompt = Prompt::of(seen.units);
        self.placed += 1;
        let (key, is_new) = match self.find(seen, &prompt) {
            Some(key) => (key, false),
            None => (self.open(seen, &prompt), true),
        };
        let forgotten = self.forget_beyond_cap(key);
        let placed = self.placed;
        let Some(thread) = self.threads.get_mut(&key) else {
            unreachable!("found or opened above")
        };
        thread.used = placed;
        let new_units = prompt.units_unknown_to(&thread.last.prompt);
        thread.advance(seen, prompt, is_new);
        let place = Place {
            session_id: thread.session.to_string(),
            thread_id: thread.id.clone(),
            parent_thread_id: thread.parent_id.clone(),
            kind: thread.kind,
            turn: thread.turn,
            n_shared_units: thread.last.n_shared_units,
            new_units,
            tool_exec_ms: thread.last.tool_exec_ms,
            residual_wait_ms: thread.last.residual_wait_ms,
            forgotten,
        };
        self.tell_parent(key, seen.ended_ns);
        self.remember_spawns(key, seen);
        place
    }

    fn find(&self, seen: &Seen<'_>, prompt: &Prompt) -> Option<ThreadKey> {
        if let Some(agent) = agent_of(seen) {
            return self.by_agent.get(&agent).copied();
        }
        let root = (seen.session.map(Arc::from), prompt.root_key());
        let candidates = self.by_root.get(&root)?;
        // Only needed, and only then worth its price, to tell several threads apart.
        let reply = if candidates.len() > 1 { last_assistant_text(seen.units) } else { None };
        candidates
            .iter()
            .filter_map(|key| Some((self.threads.get(key)?.fitness(seen, prompt, reply)?, *key)))
            .max()
            .map(|(_, key)| key)
    }

    fn open(&mut self, seen: &Seen<'_>, prompt: &Prompt) -> ThreadKey {
        let spawner = self.spawner_of(seen);
        let spawner_session = spawner
            .and_then(|key| self.threads.get(&key))
            .map(|thread| Arc::clone(&thread.session));
        let session = match (seen.session, spawner_session) {
            (Some(named), _) => Arc::from(named),
            (None, Some(session)) => session,
            (None, None) => {
                self.unnamed_sessions += 1;
                Arc::from(format!("auto-{}", self.unnamed_sessions))
            }
        };
        self.threads_opened += 1;
        let key = self.threads_opened;
        if !self.sessions.contains_key(&session) {
            self.sessions_opened += 1;
        }
        let entry = self.sessions.entry(Arc::clone(&session)).or_default();
        entry.threads += 1;
        let is_subagent = seen.subagent || seen.agent_id.is_some() || spawner.is_some();
        let (kind, parent) = match (seen.utility, is_subagent) {
            (true, _) => (TurnKind::Utility, spawner.or(entry.main)),
            (false, true) => (TurnKind::Subagent, spawner.or(entry.main)),
            (false, false) => {
                entry.main = Some(key);
                (TurnKind::Main, None)
            }
        };
        let id = match seen.agent_id {
            Some(agent) => format!("{session}/agent-{agent}"),
            None => format!("{session}/{key}"),
        };
        let agent = agent_of(seen);
        let root = (seen.session.map(Arc::from), prompt.root_key());
        match &agent {
            Some(agent) => {
                self.by_agent.insert(agent.clone(), key);
            }
            None => self.by_root.entry(root.clone()).or_default().push(key),
        }
        let parent_id = parent.and_then(|key| self.threads.get(&key)).map(|t| t.id.clone());
        let thread = Thread {
            id,
            session,
            root,
            agent,
            parent,
            parent_id,
            kind,
            first: prompt.fingerprint(),
            first_answered: seen.end == AttemptEnd::Answered,
            turn: 0,
            last: Last::default(),
            child_ends_ns: Vec::new(),
            used: self.placed,
        };
        self.threads.insert(key, thread);
        key
    }

    /// The thread that gave another agent the prompt with which this request begins.
    fn spawner_of(&self, seen: &Seen<'_>) -> Option<ThreadKey> {
        let known = |session: &Session| !session.spawns.is_empty();
        let sessions: Vec<&Session> = match seen.session {
            Some(named) => self.sessions.get(named).into_iter().filter(|s| known(s)).collect(),
            None => self.sessions.values().filter(|session| known(session)).collect(),
        };
        if sessions.is_empty() {
            return None;
        }
        let first = seen.units.iter().find(|unit| unit.role == "user")?;
        let text = strings_of(&first.text);
        sessions
            .iter()
            .flat_map(|session| session.spawns.iter())
            .filter(|(key, prompt)| {
                self.threads.contains_key(key) && text.contains(prompt.as_str())
            })
            .max_by_key(|(key, prompt)| (prompt.len(), *key))
            .map(|(key, _)| *key)
    }

    fn tell_parent(&mut self, key: ThreadKey, ended_ns: i64) {
        let Some(parent) = self.threads.get(&key).and_then(|thread| thread.parent) else { return };
        if let Some(parent) = self.threads.get_mut(&parent) {
            if parent.child_ends_ns.len() == REMEMBERED_CHILD_ENDS {
                parent.child_ends_ns.remove(0);
            }
            parent.child_ends_ns.push(ended_ns);
        }
    }

    fn remember_spawns(&mut self, key: ThreadKey, seen: &Seen<'_>) {
        let Some(thread) = self.threads.get(&key) else { return };
        let Some(session) = self.sessions.get_mut(&thread.session) else { return };
        session.spawns.extend(seen.spawned_prompts.iter().map(|prompt| (key, prompt.clone())));
        let surplus = session.spawns.len().saturating_sub(REMEMBERED_SPAWNS);
        session.spawns.drain(..surplus);
    }

    /// Makes room for many at once, so that the search for the oldest is rare.
    fn forget_beyond_cap(&mut self, keep: ThreadKey) -> Vec<String> {
        if self.threads.len() <= self.max_threads {
            return Vec::new();
        }
        let mut by_use: Vec<(u64, ThreadKey)> =
            self.threads.iter().map(|(key, thread)| (thread.used, *key)).collect();
        by_use.sort_unstable();
        let surplus = self.threads.len() - self.max_threads + self.max_threads / 16;
        let oldest = by_use.into_iter().map(|(_, key)| key).filter(|key| *key != keep);
        let forgotten: Vec<ThreadKey> = oldest.take(surplus).collect();
        forgotten.into_iter().filter_map(|key| self.forget(key)).collect()
    }

    fn forget(&mut self, key: ThreadKey) -> Option<String> {
        let thread = self.threads.remove(&key)?;
        if let Some(agent) = &thread.agent {
            self.by_agent.remove(agent);
        }
        if let Some(keys) = self.by_root.get_mut(&thread.root) {
            keys.retain(|other| *other != key);
            if keys.is_empty() {
                self.by_root.remove(&thread.root);
            }
        }
        if let Some(session) = self.sessions.get_mut(&thread.session) {
            session.threads -= 1;
            if session.threads == 0 {
                self.sessions.remove(&thread.session);
            }
        }
        Some(thread.id)
    }
}

/// How well a request fits a thread; the greatest wins.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Fitness {
    is_retry: bool,
    answers_its_calls: bool,
    extends: bool,
    repeats_its_reply: bool,
    run: usize,
    used: u64,
}

impl Thread {
    /// None where the request cannot continue this thread.
    fn fitness(
        &self,
        seen: &Seen<'_>,
        prompt: &Prompt,
        repeated_reply: Option<ContentHash>,
    ) -> Option<Fitness> {
        let last = &self.last;
        let run = prompt.shared_run(&last.prompt);
        let goes_on = seen.arrived_ns < last.ended_ns && last.end != Some(AttemptEnd::ClientGone);
        let begins_anew = self.first_answered
            && prompt.conversation_len() > 0
            && prompt.fingerprint() == self.first;
        if (self.kind == TurnKind::Utility) != seen.utility
            || run < last.prompt.root_len()
            || goes_on
            || begins_anew
            || (run == 0 && seen.session.is_none())
        {
            return None;
        }
        Some(Fitness {
            is_retry: self.is_retried_by(seen),
            answers_its_calls: seen
                .answered_calls
                .iter()
                .any(|call| last.calls.iter().any(|own| own == call)),
            extends: run == last.prompt.conversation_len() && run < prompt.conversation_len(),
            repeats_its_reply: last.reply.is_some() && last.reply == repeated_reply,
            run,
            used: self.used,
        })
    }

    fn is_retried_by(&self, seen: &Seen<'_>) -> bool {
        self.last.end.is_some_and(|end| end != AttemptEnd::Answered)
            && self.last.body == Some(seen.body)
    }

    /// Takes a request in: a new turn, or another attempt at the last one.
    fn advance(&mut self, seen: &Seen<'_>, prompt: Prompt, is_new: bool) {
        let is_retry = self.is_retried_by(seen);
        if !is_retry {
            let since = |from_ns: i64| elapsed_ms(from_ns, seen.arrived_ns).max(0.0);
            self.last.n_shared_units = prompt.shared_units(&self.last.prompt) as u32;
            self.last.tool_exec_ms = (!is_new).then(|| since(self.last.ended_ns));
            let ran = |end: &&i64| (self.last.ended_ns..=seen.arrived_ns).contains(*end);
            let last_child = self.child_ends_ns.iter().filter(ran).max().copied();
            self.last.residual_wait_ms = last_child.filter(|_| !is_new).map(since);
            if !is_new {
                self.turn += 1;
            }
        }
        if self.turn == 0 {
            self.first_answered = seen.end == AttemptEnd::Answered;
        }
        self.child_ends_ns.retain(|end| *end > seen.ended_ns);
        self.last.prompt = prompt;
        self.last.body = Some(seen.body);
        self.last.end = Some(seen.end);
        self.last.ended_ns = seen.ended_ns;
        self.last.calls = seen.calls.iter().map(|call| (*call).to_owned()).collect();
        let text = seen.reply_text.trim();
        self.last.reply = (!text.is_empty()).then(|| ContentHash::of(text.as_bytes()));
    }
}

fn agent_of(seen: &Seen<'_>) -> Option<(Arc<str>, String)> {
    Some((Arc::from(seen.session.unwrap_or_default()), seen.agent_id?.to_owned()))
}

/// Identity of what the last assistant message of a prompt says.
fn last_assistant_text(units: &[Unit]) -> Option<ContentHash> {
    let is_assistant = |unit: &&Unit| unit.kind == UnitKind::Message && unit.role == "assistant";
    let text = content_text(&units.iter().rev().find(is_assistant)?.text);
    Some(ContentHash::of(text.trim().as_bytes()))
}

/// Visible text of a message: a content string, or its text blocks.
fn content_text(message: &str) -> String {
    let message: serde_json::Value = serde_json::from_str(message).unwrap_or_default();
    match &message["content"] {
        serde_json::Value::String(text) => text.clone(),
        serde_json::Value::Array(blocks) => {
            blocks.iter().filter_map(|block| block["text"].as_str()).collect()
        }
        _ => String::new(),
    }
}

/// Every string in a JSON text, a line each.
fn strings_of(json: &str) -> String {
    fn walk(value: &serde_json::Value, text: &mut String) {
        match value {
            serde_json::Value::String(string) => {
                text.push_str(string);
                text.push('\n');
            }
            serde_json::Value::Array(values) => values.iter().for_each(|value| walk(value, text)),
            serde_json::Value::Object(fields) => fields.values().for_each(|v| walk(v, text)),
            _ => {}
        }
    }
    let mut text = String::new();
    walk(&serde_json::from_str(json).unwrap_or_default(), &mut text);
    text
}

#[cfg(test)]
mod tests;
