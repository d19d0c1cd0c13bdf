//! Which of several engines a request goes to. Pure.
//!
//! Prefix caches are per engine, so by default a session stays with the engine that it was given first;
//! new sessions take the engines in turn. Only a request of which nothing could be sent goes to another
//! engine, and its session with it.

use std::collections::{HashMap, VecDeque};

use serde::{Deserialize, Serialize};

/// Sessions whose engine is remembered; beyond that the oldest is given one anew.
const MAX_SESSIONS: usize = 100_000;

/// How requests are spread over several engines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Routing {
    /// A session's requests all go to one engine.
    #[default]
    Session,
    /// Each request that becomes a turn goes to the next engine.
    RoundRobin,
}

/// Remembers who goes where.
#[derive(Debug)]
pub(super) struct Router {
    routing: Routing,
    engines: usize,
    next: usize,
    homes: HashMap<String, usize>,
    /// Oldest first.
    order: VecDeque<String>,
    max_sessions: usize,
}

impl Router {
    pub(super) fn new(routing: Routing, engines: usize) -> Self {
        Self::with_bound(routing, engines, MAX_SESSIONS)
    }

    fn with_bound(routing: Routing, engines: usize, max_sessions: usize) -> Self {
        let (homes, order) = (HashMap::new(), VecDeque::new());
        Self { routing, engines, next: 0, homes, order, max_sessions }
    }

    /// Whether the session of a request must be known before it can go on.
    pub(super) fn needs_session(&self) -> bool {
        self.engines > 1 && self.routing == Routing::Session
    }

    /// The engine of a request that becomes a turn. One whose session is not known takes the next.
    pub(super) fn turn(&mut self, session: Option<&str>) -> usize {
        let session = session.filter(|_| self.routing == Routing::Session);
        if let Some(home) = session.and_then(|session| self.homes.get(session)) {
            return *home;
        }
        let home = self.take_next();
        if let Some(session) = session {
            self.settle(session, home);
        }
        home
    }

    /// The engine of any other request: its session's, else the first, so that model lists and the like
    /// do not put the turns out of step.
    pub(super) fn side(&self, session: Option<&str>) -> usize {
        session.and_then(|session| self.homes.get(session)).copied().unwrap_or(0)
    }

    /// The engine to try after one to which nothing could be sent; none once all were tried.
    pub(super) fn after(&self, engine: usize, first: usize) -> Option<usize> {
        let next = (engine + 1) % self.engines;
        (next != first).then_some(next)
    }

    /// A session's request went to another engine than its own: so do those that follow.
    pub(super) fn moved(&mut self, session: Option<&str>, engine: usize) {
        if let (Routing::Session, Some(session)) = (self.routing, session) {
            self.settle(session, engine);
        }
    }

    fn take_next(&mut self) -> usize {
        let engine = self.next;
        self.next = (engine + 1) % self.engines;
        engine
    }

    fn settle(&mut self, session: &str, engine: usize) {
        if self.homes.insert(session.to_owned(), engine).is_none() {
            self.order.push_back(session.to_owned());
        }
        while self.order.len() > self.max_sessions {
            let Some(oldest) = self.order.pop_front() else { break };
            self.homes.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn turns(router: &mut Router, sessions: &[Option<&str>]) -> Vec<usize> {
        sessions.iter().map(|session| router.turn(*session)).collect()
    }

    #[test]
    fn a_session_stays_and_new_ones_take_turns() {
        let mut router = Router::new(Routing::Session, 2);
        assert!(router.needs_session());
        let asked = [Some("a"), Some("b"), Some("a"), Some("c"), Some("b"), Some("a")];
        assert_eq!(turns(&mut router, &asked), [0, 1, 0, 0, 1, 0]);
        // A side request goes with its session, and opens none.
        assert_eq!((router.side(Some("b")), router.side(Some("d")), router.side(None)), (1, 0, 0));
        assert_eq!(turns(&mut router, &[Some("d"), None, None]), [1, 0, 1]);
    }

    #[test]
    fn round_robin_takes_no_notice_of_sessions() {
        let mut router = Router::new(Routing::RoundRobin, 3);
        assert!(!router.needs_session());
        assert_eq!(turns(&mut router, &[Some("a"), Some("a"), None, Some("a")]), [0, 1, 2, 0]);
        router.moved(Some("a"), 2);
        assert_eq!(router.side(Some("a")), 0);
        assert_eq!(turns(&mut router, &[Some("a")]), [1]);
    }

    #[test]
    fn one_engine_takes_all() {
        let mut router = Router::new(Routing::Session, 1);
        assert!(!router.needs_session());
        assert_eq!(turns(&mut router, &[Some("a"), Some("b"), None]), [0, 0, 0]);
        assert_eq!(router.after(0, 0), None);
    }

    #[test]
    fn each_engine_is_tried_once_and_the_session_moves_along() {
        let mut router = Router::new(Routing::Session, 3);
        assert_eq!(turns(&mut router, &[Some("a"), Some("b")]), [0, 1]);
        assert_eq!(router.after(1, 1), Some(2));
        assert_eq!(router.after(2, 1), Some(0));
        assert_eq!(router.after(0, 1), None);
        router.moved(Some("b"), 0);
        assert_eq!(turns(&mut router, &[Some("b"), Some("a")]), [0, 0]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut router = Router::with_bound(Routing::Session, 2, 2);
        assert_eq!(turns(&mut router, &[Some("a"), Some("b"), Some("c")]), [0, 1, 0]);
        assert_eq!((router.homes.len(), router.order.len()), (2, 2));
        assert_eq!(turns(&mut router, &[Some("b"), Some("a")]), [1, 1]);
    }
}
