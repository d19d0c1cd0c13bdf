//! One request through: from the agent to the engine and the response back, bytes untouched.
//!
//! Runs on the byte path. What is to be recorded is handed to an [`exchange::Recording`], which finds
//! its way to the observer by itself when both bodies have ended.
//!
//! [`exchange::Recording`]: super::exchange::Recording

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{HeaderValue, Method, Request, Response, StatusCode, Uri, Version, header};
use http_body_util::{Either, Full};
use hyper::body::Incoming;

use super::connection::{Connections, EngineBody};
use super::exchange::{
    BodyCopy, BodyWatch, Direction, Exchange, Failure, Queue, Recording, ResponseHead, Upload,
};
use super::stats::{Active, Counters, SideClass};
use super::upstream::Upstream;
use crate::api::{Api, convert};
use crate::clock::Clock;
use crate::http::headers::{forwarded, without_secrets};
use crate::http::tee::{Tee, chain};

/// What the agent gets: the engine's body, or our own words about its absence.
pub(super) type ResponseBody = Either<Tee<EngineBody, BodyWatch>, Full<Bytes>>;

/// Sends requests on to one engine.
#[derive(Debug)]
pub(super) struct Forwarder {
    pub(super) upstream: Upstream,
    pub(super) connections: Arc<Connections>,
    pub(super) clock: Clock,
    pub(super) counters: Arc<Counters>,
    pub(super) queue: Arc<Queue>,
    pub(super) max_recorded_body_bytes: u64,
    pub(super) received: AtomicU64,
}

impl Forwarder {
    /// Takes one request to the engine. Dropping the future cancels the request there.
    pub(super) async fn forward(&self, request: Request<Incoming>) -> Response<ResponseBody> {
        let arrived_ns = self.clock.now_ns();
        let active = self.counters.request();
        let (mut parts, body) = request.into_parts();
        let target = Target::of(&parts.uri);
        let api = Api::from_path(target.path.path());
        let in_words = api.unwrap_or(Api::Chat);
        if parts.method == Method::CONNECT {
            let text = "this proxy opens no tunnels; use it as the base URL";
            return answer(in_words, StatusCode::NOT_IMPLEMENTED, text);
        }
        let Ok(uri) = self.upstream.uri(&target.path) else {
            let text = format!("`{}` is not a path that can be passed on", target.path);
            return answer(in_words, StatusCode::BAD_REQUEST, &text);
        };
        let recording = match api {
            Some(api) if parts.method == Method::POST => {
                Some(self.record(api, target, &parts, arrived_ns))
            }
            _ => {
                self.counters.side_request(SideClass::of(target.path.path()));
                None
            }
        };
        parts.headers = forwarded(&parts.headers, Some(self.upstream.host()));
        parts.uri = uri;
        parts.version = Version::HTTP_11;
        let upload = Upload::default();
        let watch = self.watch(Direction::Up(upload.clone()), recording.clone());
        let request = Request::from_parts(parts, Tee::new(body, self.clock, watch));

        let mut waiting = Waiting { counters: &self.counters, answered: false };
        let result = self.connections.send(request, &upload).await;
        waiting.answered = true;
        match result {
            Ok(response) => self.respond(response, recording, active),
            Err(error) => self.fail(in_words, &*error, recording.as_ref()),
        }
    }

    fn record(&self, api: Api, target: Target, parts: &Parts, arrived_ns: i64) -> Arc<Recording> {
        let exchange = Exchange {
            number: self.received.fetch_add(1, Ordering::Relaxed),
            api,
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
        };
        Recording::start(exchange, Arc::clone(&self.queue), self.clock)
    }

    fn watch(&self, direction: Direction, recording: Option<Arc<Recording>>) -> BodyWatch {
        let copy =
            recording.map(|recording| (BodyCopy::new(self.max_recorded_body_bytes), recording));
        BodyWatch::new(direction, Arc::clone(&self.counters), copy)
    }

    fn respond(
        &self,
        response: Response<EngineBody>,
        recording: Option<Arc<Recording>>,
        active: Active,
    ) -> Response<ResponseBody> {
        let (mut parts, body) = response.into_parts();
        parts.headers = forwarded(&parts.headers, None);
        parts.version = Version::HTTP_11;
        if let Some(recording) = &recording {
            let headers = without_secrets(&parts.headers);
            let head = ResponseHead { status: parts.status, headers };
            recording.set(|exchange| exchange.head = Some(head));
        }
        let watch = self.watch(Direction::Down { _active: active }, recording);
        Response::from_parts(parts, Either::Left(Tee::new(body, self.clock, watch)))
    }

    fn fail(
        &self,
        api: Api,
        error: &(dyn StdError + 'static),
        recording: Option<&Arc<Recording>>,
    ) -> Response<ResponseBody> {
        let message = format!("upstream {}: {}", self.upstream.shown(), chain(error));
        let status =
            if is_timeout(error) { StatusCode::GATEWAY_TIMEOUT } else { StatusCode::BAD_GATEWAY };
        if is_client_broken(error) {
            self.counters.client_cancelled();
        } else {
            self.counters.upstream_error();
        }
        if let Some(recording) = recording {
            let failure = Failure { message: message.clone(), at_ns: self.clock.now_ns() };
            recording.set(|exchange| exchange.failure = Some(failure));
        }
        answer(api, status, &message)
    }
}

/// Counts a client that went away before any response: then this is dropped unanswered.
struct Waiting<'a> {
    counters: &'a Counters,
    answered: bool,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.counters.client_cancelled();
        }
    }
}

/// Where a request wants to go.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    session: Option<String>,
    path: PathAndQuery,
}

impl Target {
    /// Takes the prefix `/s/<session>` off a path; nothing else of it is changed.
    fn of(uri: &Uri) -> Self {
        let received = uri.path_and_query().cloned().unwrap_or(PathAndQuery::from_static("/"));
        let whole = Self { session: None, path: received.clone() };
        let Some(rest) = received.as_str().strip_prefix("/s/") else { return whole };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (session, path) = rest.split_at(end);
        if session.is_empty() {
            return whole;
        }
        let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
        match PathAndQuery::try_from(path) {
            Ok(path) => Self { session: Some(session.to_owned()), path },
            Err(_) => whole,
        }
    }
}

fn is_timeout(error: &(dyn StdError + 'static)) -> bool {
    caused_by(error, |io: &io::Error| io.kind() == io::ErrorKind::TimedOut)
}

/// The request's own body failed: the agent went away within its upload.
fn is_client_broken(error: &(dyn StdError + 'static)) -> bool {
    caused_by(error, hyper::Error::is_user)
}

/// Whether an error or one of its sources is of a kind.
fn caused_by<E: StdError + 'static>(
    error: &(dyn StdError + 'static),
    is_it: impl Fn(&E) -> bool,
) -> bool {
    let mut current = Some(error);
    while let Some(error) = current {
        if error.downcast_ref::<E>().is_some_and(&is_it) {
            return true;
        }
        current = error.source();
    }
    false
}

/// The proxy's own answer, in the form in which the API tells errors.
fn answer(api: Api, status: StatusCode, message: &str) -> Response<ResponseBody> {
    let message = format!("agentbench proxy: {message}");
    let body = convert::error_body(api, status.as_u16(), &message);
    let mut response = Response::new(Either::Right(Full::from(body)));
    *response.status_mut() = status;
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(header::CONTENT_TYPE, json);
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_session_prefix_is_taken_off() {
        for (uri, session, path) in [
            ("/v1/messages?beta=true", None, "/v1/messages?beta=true"),
            ("/s/one/v1/messages?beta=true", Some("one"), "/v1/messages?beta=true"),
            ("/s/one", Some("one"), "/"),
            ("/s/one?x=1", Some("one"), "/?x=1"),
            ("/s/a%20b//v1", Some("a%20b"), "//v1"),
            ("/s//v1", None, "/s//v1"),
            ("/s/", None, "/s/"),
            ("/sx/one/v1", None, "/sx/one/v1"),
            ("http://proxy/s/one/v1", Some("one"), "/v1"),
            ("*", None, "*"),
        ] {
            let target = Target::of(&uri.parse().unwrap());
            let session = session.map(str::to_owned);
            assert_eq!(target, Target { session, path: path.parse().unwrap() }, "{uri}");
        }
    }
}
