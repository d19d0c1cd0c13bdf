//! Requests that a switch changes: read whole, changed, sent on, and their answers converted back where
//! the engine was asked in another API.
//!
//! Only what a switch concerns comes here; everything else passes byte for byte in `forward`. What is
//! changed is `switches`' to say, what an answer becomes is `api`'s.

use bytes::Bytes;
use http::request::Parts;
use http::uri::PathAndQuery;
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, Request, Response, StatusCode, Version, header,
};
use http_body_util::{BodyExt, Limited};
use serde_json::{Value, json};

use super::body::{Converted, DownBody, Made, UpBody};
use super::connection::{EngineBody, RequestBody};
use super::content::ContentDecoder;
use super::exchange::{BodyCopy, Copied, Direction, Recording, Upload};
use super::forward::{Forwarder, Passing, ResponseBody, Waiting};
use super::front::Fronted;
use super::stats::Active;
use super::switches::{Change, Changed};
use super::unanswered::{answer, is_client_broken};
use crate::api::{
    Api, ChatAsMessages, ContentHash, MessageEvents, TitleCall, convert_request, message_of_reply,
    title_call, tokenize_request, tokens_counted, whole_chat_reply,
};
use crate::clock::unix_seconds;
use crate::http::headers::forwarded;
use crate::http::tee::{End, Tee};

/// Where an engine counts the tokens of a conversation.
const TOKENIZE: &str = "/tokenize";
const COUNT_TOKENS: &str = "/messages/count_tokens";
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENT_STREAM: HeaderValue = HeaderValue::from_static("text/event-stream; charset=utf-8");

/// What a switch may change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Concern {
    /// A request for a turn.
    Turn(Api),
    /// A Messages request to count tokens.
    Counting,
}

impl Concern {
    /// The API that the agent speaks.
    fn api(self) -> Api {
        match self {
            Self::Turn(api) => api,
            Self::Counting => Api::Messages,
        }
    }
}

/// A request that has been read and changed.
struct Ready {
    parts: Parts,
    body: Vec<u8>,
    /// What an answer is read back by, where the request was converted.
    conversion: Option<Conversion>,
}

/// What the agent asked for, as far as its converted answer needs that.
#[derive(Debug, Clone)]
struct Conversion {
    id: String,
    model: String,
    stream: bool,
}

/// An answer of the proxy's own in place of going on.
type Refusal = (StatusCode, String);

impl Forwarder {
    /// What of a request the switches may change; none where they are off.
    pub(super) fn concern(&self, parts: &Parts, passing: &Passing) -> Option<Concern> {
        if self.switches.are_off() || parts.method != Method::POST {
            return None;
        }
        let counts = passing.path.path().trim_end_matches('/').ends_with(COUNT_TOKENS);
        passing.api.map(Concern::Turn).or(counts.then_some(Concern::Counting))
    }

    /// Takes one request to an engine with the changes that the switches name.
    pub(super) async fn forward_changed(
        &self,
        concern: Concern,
        mut passing: Passing,
        parts: Parts,
        mut body: RequestBody,
        active: Active,
    ) -> Response<ResponseBody> {
        let mut waiting = Waiting::new(&self.counters, passing.recording.is_some());
        let body = match body.read_whole(self.max_recorded_body_bytes).await {
            Ok(body) => body,
            // The agent went away within its upload: nobody hears the answer, and the row tells so.
            Err(error) => {
                waiting.answered = true;
                return self.fail(&passing, 0, &error, true);
            }
        };
        let response = match self.read(&parts.headers, body) {
            Ok(body) if self.title_call(concern, &body).is_some() => {
                self.answer_title(concern, body, passing, active)
            }
            Ok(body) => {
                self.find_session_in(&mut passing, &body).await;
                let engine = self.engine_of(&passing);
                match self.change(concern, &mut passing, parts, body, engine) {
                    Ok(ready) => self.send_changed(concern, ready, passing, engine, active).await,
                    Err(refusal) => self.refuse(concern.api(), &refusal, passing, active),
                }
            }
            Err(refusal) => self.refuse(concern.api(), &refusal, passing, active),
        };
        waiting.answered = true;
        response
    }

    /// The decoded body; none of it is given where there is more than is recorded.
    fn read(&self, headers: &HeaderMap, body: Option<Vec<u8>>) -> Result<Vec<u8>, Refusal> {
        let limit = self.max_recorded_body_bytes;
        let Some(wire) = body else {
            let text = format!(
                "a body of more than {limit} bytes cannot be changed; capture it without switches"
            );
            return Err((StatusCode::PAYLOAD_TOO_LARGE, text));
        };
        decoded(headers, &wire, limit).map_err(|error| (StatusCode::UNSUPPORTED_MEDIA_TYPE, error))
    }

    fn title_call(&self, concern: Concern, body: &[u8]) -> Option<TitleCall> {
        match concern {
            Concern::Turn(api) if self.switches.answer_titles => title_call(api, body),
            _ => None,
        }
    }

    /// The title that an agent asks for, without an engine.
    fn answer_title(
        &self,
        concern: Concern,
        body: Vec<u8>,
        passing: Passing,
        active: Active,
    ) -> Response<ResponseBody> {
        let call = self.title_call(concern, &body);
        let recording = passing.recording;
        if let Some(recording) = &recording {
            let changes = vec![Change::AnswersLocally];
            let as_it_came = Changed { body: Vec::new(), changes, says_subagent: false };
            self.record_given(recording, &body.into(), &as_it_came);
        }
        let seconds = unix_seconds(self.clock.now_ns()) as u64;
        let id = self.new_id(recording.as_deref());
        let stream = call.as_ref().is_some_and(|call| call.stream);
        let answer = call.map(|call| call.answer(&id, seconds)).unwrap_or_default();
        let mut response = Response::new(DownBody::Made(Made::new(answer)));
        let kind = if stream { EVENT_STREAM } else { JSON };
        response.headers_mut().insert(header::CONTENT_TYPE, kind);
        self.pass_down(response, recording, 0, active)
    }

    fn change(
        &self,
        concern: Concern,
        passing: &mut Passing,
        mut parts: Parts,
        body: Vec<u8>,
        engine: usize,
    ) -> Result<Ready, Refusal> {
        let api = concern.api();
        let mut changed = match concern {
            Concern::Turn(_) => self.switches.apply(api, body),
            Concern::Counting => self.switches.for_counting().apply(api, body),
        };
        let upstream = &self.engines[engine].upstream;
        parts.headers = forwarded(&parts.headers, Some(upstream.host()));
        let given = Bytes::from(changed.body.clone());
        let mut conversion = None;
        if self.switches.converts(api) {
            let asked: Value = serde_json::from_slice(&changed.body).map_err(|error| {
                (StatusCode::BAD_REQUEST, format!("the body is no Messages request: {error}"))
            })?;
            conversion = Some(self.conversion(passing.recording.as_deref(), &asked));
            changed.body = as_asked_of_engine(concern, &asked)
                .ok_or_else(|| (StatusCode::BAD_REQUEST, "cannot be converted".to_owned()))?;
            changed.changes.push(Change::ConvertsToChat);
            passing.path = converted_path(&passing.path);
            convert_headers(&mut parts.headers);
        }
        parts.uri = upstream.uri(&passing.path).map_err(|_| {
            let text = format!("`{}` is not a path that can be passed on", passing.path);
            (StatusCode::BAD_REQUEST, text)
        })?;
        parts.version = Version::HTTP_11;
        for name in [header::TRANSFER_ENCODING, header::CONTENT_ENCODING, header::TRAILER] {
            parts.headers.remove(name);
        }
        parts.headers.remove(header::EXPECT);
        parts.headers.insert(header::CONTENT_LENGTH, changed.body.len().into());
        if let Some(recording) = &passing.recording {
            self.record_given(recording, &given, &changed);
        }
        Ok(Ready { parts, body: changed.body, conversion })
    }

    /// What is recorded is what the engine was given, before it was put into another API's form.
    fn record_given(&self, recording: &Recording, given: &Bytes, changed: &Changed) {
        for change in &changed.changes {
            self.counters.changed(*change);
        }
        let now_ns = self.clock.now_ns();
        let mut copy = BodyCopy::new(self.queue.requests(), self.max_recorded_body_bytes);
        copy.push(given, now_ns);
        let names = changed.changes.iter().map(|change| change.as_str()).collect();
        recording.set(|exchange| {
            exchange.request = Some(Copied { copy, end: End::Complete, ended_ns: now_ns });
            exchange.headers.remove(header::CONTENT_ENCODING);
            exchange.changes = names;
            exchange.says_subagent = changed.says_subagent;
        });
    }

    /// A name that no other answer has, in this capture or another.
    fn new_id(&self, recording: Option<&Recording>) -> String {
        let mut number = 0;
        if let Some(recording) = recording {
            recording.set(|exchange| number = exchange.number);
        }
        let name = format!("{}/{number}", self.clock.anchor_ns());
        ContentHash::of(name.as_bytes()).hex()[..24].to_owned()
    }

    fn conversion(&self, recording: Option<&Recording>, asked: &Value) -> Conversion {
        Conversion {
            id: format!("msg_{}", self.new_id(recording)),
            model: asked["model"].as_str().unwrap_or_default().to_owned(),
            stream: asked["stream"] == true,
        }
    }

    async fn send_changed(
        &self,
        concern: Concern,
        ready: Ready,
        mut passing: Passing,
        engine: usize,
        active: Active,
    ) -> Response<ResponseBody> {
        let Ready { parts, body, conversion } = ready;
        passing.upload = Upload::default();
        let watch = self.watch(Direction::Sent(passing.upload.clone()), None);
        let body = Tee::new(UpBody::Made(Made::new(body)), self.clock, watch);
        let request = Request::from_parts(parts, Fronted::new(body));
        let (response, engine) = match self.send(request, &passing, engine).await {
            Ok(answered) => answered,
            Err((error, engine)) => {
                return self.fail(&passing, engine, &*error, is_client_broken(&*error));
            }
        };
        match (conversion, concern) {
            (None, _) => self.respond(response, passing, engine, active),
            (Some(_), Concern::Counting) => self.respond_count(response, engine, active).await,
            (Some(conversion), Concern::Turn(_)) => {
                let answer = self.converted(response, conversion, engine).await;
                self.pass_down(answer, passing.recording, engine, active)
            }
        }
    }

    /// The engine's answer over Chat, as the agent expects it.
    async fn converted(
        &self,
        response: Response<EngineBody>,
        conversion: Conversion,
        engine: usize,
    ) -> Response<DownBody> {
        let (mut parts, body) = response.into_parts();
        let decoder = ContentDecoder::new(&parts.headers, self.max_recorded_body_bytes);
        if parts.status.is_success()
            && is_event_stream(&parts.headers)
            && let Ok(decoder) = decoder
        {
            let converter = ChatAsMessages::new(conversion.id, conversion.model);
            let stream = Converted::new(body, decoder, converter);
            own_content(&mut parts.headers, EVENT_STREAM);
            return Response::from_parts(parts, DownBody::Converted(Box::new(stream)));
        }
        let status = parts.status.as_u16();
        let whole = self.engine_whole(&parts.headers, body, engine).await;
        let (body, kind) = match whole.and_then(|whole| whole_chat_reply(status, &whole)) {
            Err((status, error)) => {
                parts.status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
                (error.into_bytes(), JSON)
            }
            Ok(reply) if conversion.stream => {
                let mut events = Vec::new();
                MessageEvents::new(conversion.id, conversion.model).finish(&reply, &mut events);
                (events, EVENT_STREAM)
            }
            Ok(reply) => {
                let message = message_of_reply(&conversion.id, &conversion.model, &reply);
                (message.to_string().into_bytes(), JSON)
            }
        };
        own_content(&mut parts.headers, kind);
        Response::from_parts(parts, DownBody::Made(Made::new(body)))
    }

    /// The count of an engine's `/tokenize`, or the plain word that this engine counts none.
    async fn respond_count(
        &self,
        response: Response<EngineBody>,
        engine: usize,
        active: Active,
    ) -> Response<ResponseBody> {
        let (mut parts, body) = response.into_parts();
        let whole = self.engine_whole(&parts.headers, body, engine).await;
        let count = whole.ok().filter(|_| parts.status.is_success());
        let Some(count) = count.and_then(|whole| tokens_counted(&whole)) else {
            let text = "the engine behind --convert chat counts no tokens of a conversation \
                        (its /tokenize gave no count)";
            return answer(Api::Messages, StatusCode::NOT_FOUND, text);
        };
        own_content(&mut parts.headers, JSON);
        let body = DownBody::Made(Made::new(json!({"input_tokens": count}).to_string()));
        self.pass_down(Response::from_parts(parts, body), None, engine, active)
    }

    async fn engine_whole(
        &self,
        headers: &HeaderMap,
        body: EngineBody,
        engine: usize,
    ) -> Result<Vec<u8>, (u16, String)> {
        let limit = self.max_recorded_body_bytes;
        let broken = |text: String| {
            self.counters.upstream_error(engine);
            let shown = self.engines[engine].upstream.shown();
            let text = format!("agentbench proxy: upstream {shown}: {text}");
            (502, crate::api::error_body(Api::Messages, 502, &text))
        };
        let whole = Limited::new(body, limit as usize).collect().await;
        let whole = whole.map_err(|error| broken(format!("the answer broke: {error}")))?;
        decoded(headers, &whole.to_bytes(), limit).map_err(broken)
    }

    /// An answer of our own to a request that cannot go on, as a row where it is a turn's.
    fn refuse(
        &self,
        api: Api,
        (status, text): &Refusal,
        passing: Passing,
        active: Active,
    ) -> Response<ResponseBody> {
        let text = format!("agentbench proxy: {text}");
        let body = Made::new(crate::api::error_body(api, status.as_u16(), &text));
        let mut response = Response::new(DownBody::Made(body));
        *response.status_mut() = *status;
        response.headers_mut().insert(header::CONTENT_TYPE, JSON);
        self.pass_down(response, passing.recording, 0, active)
    }
}

fn as_asked_of_engine(concern: Concern, asked: &Value) -> Option<Vec<u8>> {
    let mut chat = match concern {
        Concern::Counting => tokenize_request(asked),
        Concern::Turn(api) => convert_request(asked, api, Api::Chat)?,
    };
    if chat["stream"] == true {
        // Without it a Chat stream tells no counts.
        chat["stream_options"] = json!({"include_usage": true});
    }
    Some(chat.to_string().into_bytes())
}

/// Where the engine is asked instead: the query is the Messages API's own.
fn converted_path(path: &PathAndQuery) -> PathAndQuery {
    let asked = path.path().trim_end_matches('/');
    let converted = if asked.ends_with(COUNT_TOKENS) {
        // Engines offer it beside `/v1`, not below.
        TOKENIZE.to_owned()
    } else {
        format!("{}/chat/completions", asked.strip_suffix("/messages").unwrap_or("/v1"))
    };
    converted.parse().unwrap_or_else(|_| PathAndQuery::from_static("/v1/chat/completions"))
}

/// The key where engines of the Chat API look for it; nothing of the Messages API's own; no encoding that
/// would have to be undone.
fn convert_headers(headers: &mut HeaderMap) {
    if let Some(key) = headers.remove("x-api-key")
        && !headers.contains_key(header::AUTHORIZATION)
        && let Ok(key) = key.to_str()
        && let Ok(mut bearer) = HeaderValue::from_str(&format!("Bearer {key}"))
    {
        bearer.set_sensitive(true);
        headers.insert(header::AUTHORIZATION, bearer);
    }
    let own = |name: &&HeaderName| name.as_str().starts_with("anthropic-");
    for name in headers.keys().filter(own).cloned().collect::<Vec<_>>() {
        headers.remove(name);
    }
    headers.remove(header::ACCEPT_ENCODING);
    headers.insert(header::CONTENT_TYPE, JSON);
}

/// Headers of a body that is ours: what described the engine's goes.
fn own_content(headers: &mut HeaderMap, kind: HeaderValue) {
    for name in [header::CONTENT_LENGTH, header::CONTENT_ENCODING, header::TRANSFER_ENCODING] {
        headers.remove(name);
    }
    headers.insert(header::CONTENT_TYPE, kind);
}

fn is_event_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    kind.is_some_and(|kind| kind.to_ascii_lowercase().starts_with("text/event-stream"))
}

fn decoded(headers: &HeaderMap, wire: &[u8], limit: u64) -> Result<Vec<u8>, String> {
    let mut decoder = ContentDecoder::new(headers, limit)?;
    Ok(decoder.feed(wire)?.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_engine_is_asked_at_its_own_place() {
        for (asked, converted) in [
            ("/v1/messages?beta=true", "/v1/chat/completions"),
            ("/v1/messages/", "/v1/chat/completions"),
            ("/messages", "/chat/completions"),
            ("/base/v1/messages", "/base/v1/chat/completions"),
            ("/v1/messages/count_tokens?beta=true", "/tokenize"),
        ] {
            assert_eq!(converted_path(&asked.parse().unwrap()).as_str(), converted, "{asked}");
        }
    }

    #[test]
    fn the_key_goes_where_the_engine_looks_for_it() {
        let of = |pairs: &[(&'static str, &'static str)]| {
            let pair =
                |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
            let mut headers: HeaderMap = pairs.iter().map(pair).collect();
            convert_headers(&mut headers);
            headers
        };
        let converted = of(&[
            ("x-api-key", "k"),
            ("anthropic-version", "2023"),
            ("anthropic-beta", "b"),
            ("accept-encoding", "br"),
            ("user-agent", "a"),
        ]);
        assert_eq!(converted, of(&[("authorization", "Bearer k"), ("user-agent", "a")]));
        assert_eq!(
            of(&[("x-api-key", "k"), ("authorization", "Bearer own")])["authorization"],
            "Bearer own"
        );
    }
}
