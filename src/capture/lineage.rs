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
//! - A raw prompt (Completions) has no system and no user to be known by: it continues a thread whose
//!   whole last prompt it begins with.
//! - A compacted conversation begins with another first user unit and therefore opens a thread in its
//!   session; it becomes the session's main thread. A rewound one shares its beginning and goes on.
//!
//! Sessions are told apart by the name that the caller found (URL prefix, header, body). A request
//! without a name belongs to the session of the thread that it continues, else opens a session.
//! Pure: no clock, no I/O, no text of prompts is kept.

mod same_root;
mod text;
mod thread;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use self::same_root::ByRoot;
use self::text::{last_assistant_text, strings_of};
use self::thread::{Last, Thread};
use super::prompt::Prompt;
use crate::api::{ContentHash, Unit};
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
    /// The name of the agent that started it, where one is given.
    pub parent_agent: Option<&'a str>,
    /// The request says that a subagent sends it.
    pub subagent: bool,
    /// Not the agent's work: titles, summaries.
    pub utility: bool,
    /// Units in prompt order.
    pub units: &'a [Unit<'a>],
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
    by_root: ByRoot,
    by_agent: HashMap<(Arc<str>, String), ThreadKey>,
    /// Sessions by the subagents that are named in them.
    agent_sessions: HashMap<String, Arc<str>>,
    sessions: HashMap<Arc<str>, Session>,
    /// Those whose threads gave prompts to other agents.
    spawning: HashSet<Arc<str>>,
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

impl Lineage {
    /// Knows no thread yet; forgets those used longest ago beyond `max_threads`.
    pub fn new(max_threads: usize) -> Self {
        Self {
            threads: HashMap::new(),
            by_root: ByRoot::default(),
            by_agent: HashMap::new(),
            agent_sessions: HashMap::new(),
            sessions: HashMap::new(),
            spawning: HashSet::new(),
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

    /// The session of a subagent, by the name that it goes under.
    pub fn session_of_agent(&self, agent_id: &str) -> Option<Arc<str>> {
        self.agent_sessions.get(agent_id).cloned()
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
        if thread.agent.is_none() {
            self.by_root.follow(key, thread);
        }
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
        let candidates = self.by_root.candidates(seen.session, prompt);
        // Only needed, and only then worth its price, to tell several threads apart.
        let reply = if candidates.len() > 1 { last_assistant_text(seen.units) } else { None };
        candidates
            .iter()
            .filter_map(|key| Some((self.threads.get(key)?.fitness(seen, prompt, reply)?, *key)))
            .max()
            .map(|(_, key)| key)
    }

    fn open(&mut self, seen: &Seen<'_>, prompt: &Prompt) -> ThreadKey {
        let told_parent = self.told_parent(seen);
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
        let parent = told_parent.or(spawner).or(entry.main);
        let (kind, parent) = match (seen.utility, is_subagent) {
            (true, _) => (TurnKind::Utility, parent),
            (false, true) => (TurnKind::Subagent, parent),
            (false, false) => {
                entry.main = Some(key);
                (TurnKind::Main, None)
            }
        };
        let agent = agent_of(seen);
        let id = match &agent {
            Some((_, name)) => format!("{session}/agent-{name}"),
            None => format!("{session}/{key}"),
        };
        let root = (seen.session.map(Arc::from), prompt.root_key());
        match &agent {
            Some(agent) => {
                self.by_agent.insert(agent.clone(), key);
                self.agent_sessions.insert(agent.1.clone(), Arc::clone(&session));
            }
            None => self.by_root.add(key, root.clone()),
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
            first_answered: false,
            turn: 0,
            last: Last::default(),
            child_ends_ns: Vec::new(),
            used: self.placed,
        };
        self.threads.insert(key, thread);
        key
    }

    /// The thread that started this one, by name: the subagent's own for a side call of its.
    fn told_parent(&self, seen: &Seen<'_>) -> Option<ThreadKey> {
        let name = if seen.utility { seen.agent_id } else { seen.parent_agent };
        self.by_agent.get(&named_agent(seen, name?)).copied()
    }

    /// The thread that gave another agent the prompt with which this request begins.
    fn spawner_of(&self, seen: &Seen<'_>) -> Option<ThreadKey> {
        let known = |name: &Arc<str>| self.sessions.get(name);
        let sessions: Vec<&Session> = match seen.session {
            Some(named) => self.spawning.get(named).and_then(known).into_iter().collect(),
            None => self.spawning.iter().filter_map(known).collect(),
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
        // A title is not waited for.
        let works = |thread: &&Thread| thread.kind != TurnKind::Utility;
        let parent = self.threads.get(&key).filter(works).and_then(|thread| thread.parent);
        let Some(parent) = parent else { return };
        if let Some(parent) = self.threads.get_mut(&parent) {
            if parent.child_ends_ns.len() == REMEMBERED_CHILD_ENDS {
                parent.child_ends_ns.remove(0);
            }
            parent.child_ends_ns.push(ended_ns);
        }
    }

    fn remember_spawns(&mut self, key: ThreadKey, seen: &Seen<'_>) {
        if seen.spawned_prompts.is_empty() {
            return;
        }
        let Some(thread) = self.threads.get(&key) else { return };
        let Some(session) = self.sessions.get_mut(&thread.session) else { return };
        self.spawning.insert(Arc::clone(&thread.session));
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
            self.agent_sessions.remove(&agent.1);
        }
        self.by_root.remove(key, &thread);
        if let Some(session) = self.sessions.get_mut(&thread.session) {
            session.threads -= 1;
            if session.threads == 0 {
                self.sessions.remove(&thread.session);
                self.spawning.remove(&thread.session);
            }
        }
        Some(thread.id)
    }
}

/// The subagent whose conversation a request is part of; a side call is part of none.
fn agent_of(seen: &Seen<'_>) -> Option<(Arc<str>, String)> {
    seen.agent_id.filter(|_| !seen.utility).map(|agent| named_agent(seen, agent))
}

fn named_agent(seen: &Seen<'_>, agent: &str) -> (Arc<str>, String) {
    (Arc::from(seen.session.unwrap_or_default()), agent.to_owned())
}

#[cfg(test)]
mod tests;
