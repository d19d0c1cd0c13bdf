//! One request through: from the agent to the engine and the response back, bytes untouched.
//!
//! Runs on the byte path. What is to be recorded is handed to an [`exchange::Recording`], which finds
//! its way to the observer by itself when both bodies have ended.
//!
//! [`exchange::Recording`]: super::exchange::Recording

use std::error::Error as StdError;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::Incoming;

use super::agent::AgentHints;
use super::agent_stream::AgentStream;
use super::body::{DownBody, UpBody};
use super::connection::{Connections, EngineBody, RequestBody, SendError, Unanswered};
use super::exchange::{
    BodyCopy, BodyWatch, Direction, Exchange, Failure, Queue, Recording, ResponseHead, Upload,
};
use super::front::{Fronted, conversation_of};
use super::routing::Router;
use super::stats::{Active, Counters, SideClass};
use super::switches::Switches;
use super::target::Target;
use super::through::Through;
use super::token::Token;
use super::unanswered::{answer, is_client_broken, is_timeout};
use super::upstream::Upstream;
use crate::api::Api;
use crate::clock::Clock;
use crate::http::headers::{forwarded, without_secrets};
use crate::http::tee::{Tee, chain};

/// How long a request is read that no engine takes.
const READ_OUT: Duration = Duration::from_secs(10);

/// What the agent gets: the engine's body, or our own words about its absence.
pub(super) type ResponseBody = Either<Through, Full<Bytes>>;

/// One engine, and the way to it.
#[derive(Debug)]
pub(super) struct Engine {
    pub(super) upstream: Upstream,
    pub(super) connections: Arc<Connections>,
}

/// Sends requests on to the engines.
#[derive(Debug)]
pub(super) struct Forwarder {
    pub(super) engines: Vec<Engine>,
    pub(super) router: Mutex<Router>,
    pub(super) token: Option<Token>,
    pub(super) switches: Switches,
    pub(super) clock: Clock,
    pub(super) counters: Arc<Counters>,
    pub(super) queue: Arc<Queue>,
    pub(super) max_recorded_body_bytes: u64,
    pub(super) received: AtomicU64,
}

/// One request on its way: where it goes and what is kept of it.
pub(super) struct Passing {
    pub(super) api: Option<Api>,
    pub(super) path: PathAndQuery,
    /// The session by which it is given an engine.
    session: Option<String>,
    pub(super) recording: Option<Arc<Recording>>,
    pub(super) upload: Upload,
    /// The agent's connection, where a response is framed there as it comes.
    agent: Option<AgentStream>,
}

impl Passing {
    /// The API in whose form the agent is told of errors.
    pub(super) fn in_words(&self) -> Api {
        self.api.unwrap_or(Api::Chat)
    }
}

impl Forwarder {
    /// Takes one request to an engine. Dropping the future cancels the request there.
    pub(super) async fn forward(
        &self,
        request: Request<Incoming>,
        agent: AgentStream,
    ) -> Response<ResponseBody> {
        let arrived_ns = self.clock.now_ns();
        let active = self.counters.request();
        let (mut parts, body) = request.into_parts();
        let target = Target::of(&parts.uri);
        let api = Api::from_path(target.path.path());
        if self.token.as_ref().is_some_and(|token| !token.admits(&mut parts.headers)) {
            let text = "the capture's token is missing or wrong; send it as the API key";
            return answer(api.unwrap_or(Api::Chat), StatusCode::UNAUTHORIZED, text);
        }
        if parts.method == Method::CONNECT {
            let text = "this proxy opens no tunnels; use it as the base URL";
            return answer(api.unwrap_or(Api::Chat), StatusCode::NOT_IMPLEMENTED, text);
        }
        let (path, session) = (target.path.clone(), self.named_session(&target, &parts));
        let recording = match api {
            Some(api) if parts.method == Method::POST => {
                Some(self.record(api, target, &parts, arrived_ns))
            }
            _ => {
                self.counters.side_request(SideClass::of(path.path()));
                None
            }
        };
        let upload = Upload::default();
        let agent = (parts.version == Version::HTTP_11).then_some(agent);
        let mut passing = Passing { api, path, session, recording, upload, agent };
        let watch = self.watch(Direction::Up(passing.upload.clone()), passing.recording.clone());
        let mut body = Fronted::new(Tee::new(UpBody::Received(body), self.clock, watch));
        if let Some(concern) = self.concern(&parts, &passing) {
            return self.forward_changed(concern, passing, parts, body, active).await;
        }
        let mut waiting = Waiting::new(&self.counters, passing.recording.is_some());
        if let Err(error) = self.find_session(&mut passing, &mut body).await {
            waiting.answered = true;
            return self.fail(&passing, 0, &error, true);
        }
        let engine = self.engine_of(&passing);
        let Ok(uri) = self.engines[engine].upstream.uri(&passing.path) else {
            waiting.answered = true;
            let text = format!("`{}` is not a path that can be passed on", passing.path);
            return answer(passing.in_words(), StatusCode::BAD_REQUEST, &text);
        };
        parts.headers = forwarded(&parts.headers, Some(self.engines[engine].upstream.host()));
        parts.uri = uri;
        parts.version = Version::HTTP_11;
        let result = self.send(Request::from_parts(parts, body), &passing, engine).await;
        waiting.answered = true;
        match result {
            Ok((response, engine)) => self.respond(response, passing, engine, active),
            Err((error, engine)) => self.fail(&passing, engine, &*error, is_client_broken(&*error)),
        }
    }

    /// The session that path or headers name, where it matters to which engine a request goes.
    fn named_session(&self, target: &Target, parts: &Parts) -> Option<String> {
        if !self.lock_router().needs_session() {
            return None;
        }
        target.session.clone().or_else(|| AgentHints::of(&parts.headers).session)
    }

    /// Where nothing else names the session of a turn, its body does: it is read whole before it goes on.
    async fn find_session<B>(
        &self,
        passing: &mut Passing,
        body: &mut Fronted<B>,
    ) -> Result<(), B::Error>
    where
        B: http_body::Body<Data = Bytes> + Unpin,
    {
        let (None, Some(api)) = (&passing.session, passing.api) else { return Ok(()) };
        if passing.recording.is_none() || !self.lock_router().needs_session() {
            return Ok(());
        }
        if let Some(whole) = body.read_whole(self.max_recorded_body_bytes).await? {
            passing.session = session_of(api, whole).await;
        }
        Ok(())
    }

    /// The same of a body that has been read already.
    pub(super) async fn find_session_in(&self, passing: &mut Passing, body: &[u8]) {
        let is_turn = passing.recording.is_some();
        if let (None, Some(api), true) = (&passing.session, passing.api, is_turn)
            && self.lock_router().needs_session()
        {
            passing.session = session_of(api, body.to_vec()).await;
        }
    }

    pub(super) fn engine_of(&self, passing: &Passing) -> usize {
        let session = passing.session.as_deref();
        let mut router = self.lock_router();
        match passing.recording {
            Some(_) => router.turn(session),
            None => router.side(session),
        }
    }

    fn lock_router(&self) -> MutexGuard<'_, Router> {
        self.router.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends a request to its engine; where nothing of it could be sent there, to the next one. Gives the
    /// engine that answered or failed with it.
    pub(super) async fn send(
        &self,
        mut request: Request<RequestBody>,
        passing: &Passing,
        first: usize,
    ) -> Result<(Response<EngineBody>, usize), (SendError, usize)> {
        let (mut engine, mut first_error) = (first, None);
        loop {
            let unanswered = match self.send_to(engine, request, passing).await {
                Ok(response) => {
                    if engine != first {
                        self.note_move(passing, first, engine);
                    }
                    return Ok((response, engine));
                }
                Err(unanswered) => unanswered,
            };
            let Some(unsent) = unanswered.unsent else { return Err((unanswered.error, engine)) };
            let error = first_error.unwrap_or(unanswered.error);
            let next = self.lock_router().after(engine, first);
            let moved = next.and_then(|next| Some((self.address(&passing.path, next)?, next)));
            // No engine is there: the request stays its own engine's.
            let Some(((uri, host), next)) = moved else {
                self.note_engine(passing, first);
                self.read_out(*unsent).await;
                return Err((error, first));
            };
            request = *unsent;
            *request.uri_mut() = uri;
            request.headers_mut().insert(header::HOST, host);
            (engine, first_error) = (next, Some(error));
        }
    }

    async fn send_to(
        &self,
        engine: usize,
        request: Request<RequestBody>,
        passing: &Passing,
    ) -> Result<Response<EngineBody>, Unanswered> {
        self.note_engine(passing, engine);
        let sent = self.engines[engine].connections.send(request, &passing.upload).await;
        if sent.as_ref().map_or_else(|unanswered| unanswered.unsent.is_none(), |_| true) {
            self.counters.sent_to(engine);
        }
        sent
    }

    fn note_engine(&self, passing: &Passing, engine: usize) {
        if let Some(recording) = &passing.recording {
            let label = Arc::clone(self.engines[engine].upstream.label());
            recording.set(|exchange| exchange.engine = Some(label));
        }
    }

    fn note_move(&self, passing: &Passing, from: usize, to: usize) {
        let shown = |engine: usize| self.engines[engine].upstream.shown();
        self.counters.request_moved(shown(from), shown(to));
        if passing.recording.is_some() {
            self.lock_router().moved(passing.session.as_deref(), to);
        }
    }

    /// Where a request goes at another engine.
    fn address(&self, path: &PathAndQuery, engine: usize) -> Option<(Uri, HeaderValue)> {
        let upstream = &self.engines[engine].upstream;
        Some((upstream.uri(path).ok()?, upstream.host().clone()))
    }

    /// Reads a request that no engine takes: the recording gets its prompt, and an agent that still sends would not see
    /// the answer, since a connection with unread bytes is reset when it closes. An agent that waits to be asked for the
    /// body is not asked.
    async fn read_out(&self, request: Request<RequestBody>) {
        if request.headers().contains_key(header::EXPECT) {
            return;
        }
        let mut body = request.into_body();
        let reading = async {
            let mut left_bytes = self.max_recorded_body_bytes;
            while let Some(Ok(frame)) = body.frame().await {
                let bytes = frame.data_ref().map_or(0, Bytes::len) as u64;
                let Some(left) = left_bytes.checked_sub(bytes) else { return };
                left_bytes = left;
            }
        };
        // An agent that sends more slowly is told without waiting for all of it.
        let _ = tokio::time::timeout(READ_OUT, reading).await;
    }

    fn record(&self, api: Api, target: Target, parts: &Parts, arrived_ns: i64) -> Arc<Recording> {
        let exchange = Exchange {
            number: self.received.fetch_add(1, Ordering::Relaxed),
            api,
            engine: None,
            session: target.session,
            path: target.path.to_string(),
            headers: without_secrets(&parts.headers),
            arrived_ns,
            request: None,
            head: None,
            response: None,
            failure: None,
            gone_ns: arrived_ns,
            was_cut: false,
            changes: Vec::new(),
            says_subagent: false,
        };
        Recording::start(exchange, Arc::clone(&self.queue), self.clock)
    }

    pub(super) fn watch(
        &self,
        direction: Direction,
        recording: Option<Arc<Recording>>,
    ) -> BodyWatch {
        let buffers = match direction {
            Direction::Up(_) | Direction::Sent(_) => self.queue.requests(),
            Direction::Down { .. } => self.queue.responses(),
        };
        let copy = |recording| (BodyCopy::new(buffers, self.max_recorded_body_bytes), recording);
        let copy = recording.map(copy);
        BodyWatch::new(direction, Arc::clone(&self.counters), copy)
    }

    pub(super) fn respond(
        &self,
        response: Response<EngineBody>,
        passing: Passing,
        engine: usize,
        active: Active,
    ) -> Response<ResponseBody> {
        let response = response.map(|body| DownBody::Engine(Box::new(body)));
        let response = self.watched(response, passing.recording, engine, active);
        response.map(|body| Either::Left(Through::new(body, passing.agent)))
    }

    /// A response of the proxy's making.
    pub(super) fn pass_down(
        &self,
        response: Response<DownBody>,
        recording: Option<Arc<Recording>>,
        engine: usize,
        active: Active,
    ) -> Response<ResponseBody> {
        let response = self.watched(response, recording, engine, active);
        response.map(|body| Either::Left(Through::new(body, None)))
    }

    /// A response that is watched on its way to the agent.
    fn watched(
        &self,
        response: Response<DownBody>,
        recording: Option<Arc<Recording>>,
        engine: usize,
        active: Active,
    ) -> Response<Tee<DownBody, BodyWatch>> {
        let (mut parts, body) = response.into_parts();
        parts.headers = forwarded(&parts.headers, None);
        parts.version = Version::HTTP_11;
        if let Some(recording) = &recording {
            let headers = without_secrets(&parts.headers);
            let head = ResponseHead { status: parts.status, headers };
            recording.set(|exchange| exchange.head = Some(head));
        }
        let watch = self.watch(Direction::Down { engine, _active: active }, recording);
        Response::from_parts(parts, Tee::new(body, self.clock, watch))
    }

    pub(super) fn fail(
        &self,
        passing: &Passing,
        engine: usize,
        error: &(dyn StdError + 'static),
        is_client_broken: bool,
    ) -> Response<ResponseBody> {
        let upstream = self.engines[engine].upstream.shown();
        let message = format!("upstream {upstream}: {}", chain(error));
        let status =
            if is_timeout(error) { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
        if is_client_broken {
            if passing.recording.is_none() {
                self.counters.client_cancelled();
            }
        } else {
            self.counters.upstream_error(engine);
        }
        if let Some(recording) = &passing.recording {
            let at_ns = self.clock.now_ns();
            let by_client = is_client_broken;
            let failure = Failure { message: message.clone(), by_client, at_ns };
            recording.set(|exchange| exchange.failure = Some(failure));
        }
        answer(passing.in_words(), status, &message)
    }
}

/// Counts a client that went away before any response: then this is dropped unanswered. Of a turn that is
/// recorded the observer counts it, which knows how it ended.
pub(super) struct Waiting<'a> {
    counters: &'a Counters,
    is_recorded: bool,
    pub(super) answered: bool,
}

impl<'a> Waiting<'a> {
    pub(super) fn new(counters: &'a Counters, is_recorded: bool) -> Self {
        Self { counters, is_recorded, answered: false }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.answered && !self.is_recorded {
            self.counters.client_cancelled();
        }
    }
}

/// What a body says of its conversation. Parsing takes its time: not on the threads that move bytes.
async fn session_of(api: Api, body: Vec<u8>) -> Option<String> {
    tokio::task::spawn_blocking(move || conversation_of(api, &body)).await.unwrap_or_default()
}
