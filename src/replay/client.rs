//! Sends one request and stamps what comes back.
//!
//! Nothing is done behind the caller's back that would change what is measured: no system proxy, no
//! redirect, no decompression, and no second attempt but those asked for, each of which is kept. What
//! the request says is `content`'s affair, when it is sent `trajectory`'s, what is tried again
//! `attempts`'s.

use std::error::Error as _;
use std::time::{Duration, UNIX_EPOCH};

use bytes::Bytes;
use reqwest::header::{
    ACCEPT, AUTHORIZATION, CONTENT_TYPE, DATE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER,
};
use reqwest::{RequestBuilder, Response, Url};
use tokio_util::sync::CancellationToken;

use super::attempts::{Cause, Failure, RequestKey, Retries, Timeouts, retry_after};
use super::beside::{Beside, Wire};
use super::response::{Received, ResponseReader};
use super::silence::Silence;
use crate::api::{Api, parse_reply};
use crate::clock::{Clock, elapsed_ms};
use crate::error::{Error, Result};
use crate::trace::record::Attempt;

/// Longest error body that is read.
const ERROR_BODY_LIMIT_BYTES: usize = 64 << 10;

/// Longest error text in a row, in characters.
const ERROR_TEXT_LIMIT_CHARS: usize = 500;

/// Common servers close a connection after 5 s without a request; one that is closed while a request
/// is on its way fails that request for no fault of the engine. So connections end here first.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// One client for all requests of a replay.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    retries: Retries,
    timeouts: Timeouts,
    clock: Clock,
}

/// One request and its answer.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Start of the first attempt.
    pub sent_ns: i64,
    /// End of the last attempt's stream, or the moment it broke.
    pub end_ns: i64,
    /// Status of the last attempt's response; none when none came.
    pub http_status: Option<u16>,
    /// What the last attempt's stream came to; empty where none came.
    pub received: Received,
    /// Why the last attempt failed.
    pub failure: Option<Failure>,
    /// The run ended first.
    pub cancelled: bool,
    /// Every attempt, the last one too.
    pub attempts: Vec<Attempt>,
}

/// What one attempt came to.
struct Attempted {
    start_ns: i64,
    end_ns: i64,
    http_status: Option<u16>,
    retry_after: Option<Duration>,
    received: Received,
    /// None when it was cut off by the end of the run.
    outcome: Option<std::result::Result<(), Failure>>,
}

/// The head of a response, as far as it is looked at after it has passed.
#[derive(Default)]
struct Head {
    status: Option<u16>,
    retry_after: Option<Duration>,
}

impl Client {
    /// A client of the engine at `base_url` (with or without `/v1`).
    pub fn new(
        base_url: &str,
        api_key: Option<&str>,
        retries: Retries,
        timeouts: Timeouts,
        clock: Clock,
    ) -> Result<Self> {
        let base = base_url.trim().trim_end_matches('/').trim_end_matches("/v1");
        let base = Url::parse(base).map_err(|error| {
            Error::config(format!(
                "not an engine's address: {error}; give one such as http://127.0.0.1:8000"
            ))
        })?;
        // The TLS backend is compiled in without a default; an earlier installation is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(reqwest::redirect::Policy::none())
            .retry(reqwest::retry::never())
            .tcp_nodelay(true)
            .connect_timeout(timeouts.connect)
            .pool_max_idle_per_host(usize::MAX)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .user_agent(concat!("agentbench/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers(api_key)?)
            .build()
            .map_err(|error| Error::Internal(format!("no HTTP client: {}", describe(&error))))?;
        Ok(Self { http, base, retries, timeouts, clock })
    }

    fn url(&self, api: Api) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{}", self.base.path().trim_end_matches('/'), api.path()));
        url
    }

    /// Sends a request and reads its answer to the end, or until `abort` is cancelled; sends it again
    /// after a failure for as long as that is allowed.
    pub async fn send(
        &self,
        api: Api,
        body: Bytes,
        key: RequestKey,
        abort: &CancellationToken,
    ) -> Exchange {
        self.send_beside(api, body, key, abort, Beside::default()).await
    }

    /// The same, with somebody beside who is told while it comes.
    pub async fn send_beside(
        &self,
        api: Api,
        body: Bytes,
        key: RequestKey,
        abort: &CancellationToken,
        mut beside: Beside<'_>,
    ) -> Exchange {
        let mut exchange = Exchange::default();
        loop {
            let request = self.http.post(self.url(api)).body(body.clone());
            let start_ns = self.clock.now_ns();
            if exchange.attempts.is_empty() {
                exchange.sent_ns = start_ns;
            }
            let end_ns = self.timeouts.end_ns(exchange.sent_ns);
            if let Some(wire) = &mut beside.wire {
                **wire = Wire::default();
            }
            let times = (start_ns, end_ns);
            let attempted = self.attempt(api, request, times, abort, &mut beside).await;
            let retry_after = attempted.retry_after;
            exchange.keep(attempted);
            let Some(wait) = self.wait(&exchange, retry_after, key) else { return exchange };
            let until_ns = exchange.end_ns + wait.as_nanos() as i64;
            // What cannot be answered in time any more is not asked.
            if end_ns.is_some_and(|end_ns| end_ns <= until_ns) {
                return exchange;
            }
            let until = tokio::time::sleep_until(self.clock.instant_at(until_ns));
            if abort.run_until_cancelled(until).await.is_none() {
                exchange.cancelled = true;
                exchange.failure = None;
                exchange.end_ns = self.clock.now_ns();
                return exchange;
            }
        }
    }

    fn wait(
        &self,
        exchange: &Exchange,
        retry_after: Option<Duration>,
        key: RequestKey,
    ) -> Option<Duration> {
        let had_output = exchange.received.first_output_ns.is_some();
        let attempts = exchange.attempts.len() as u32;
        self.retries.wait(exchange.failure.as_ref()?, had_output, attempts, retry_after, key)
    }

    async fn attempt(
        &self,
        api: Api,
        request: RequestBuilder,
        (start_ns, end_ns): (i64, Option<i64>),
        abort: &CancellationToken,
        beside: &mut Beside<'_>,
    ) -> Attempted {
        let mut reader = ResponseReader::new(api);
        let mut head = Head::default();
        let mut silence = Silence::new(self.clock, self.timeouts, start_ns);
        let conversation = async {
            let response = silence
                .unless_too_long(request.send())
                .await?
                .map_err(|error| self.failed_send(&error))?;
            head = self.head(&response);
            if let Some(wire) = &mut beside.wire {
                wire.head = Some((response.status(), response.headers().clone()));
            }
            self.read(api, response, &mut reader, &mut silence, beside).await?;
            Ok(())
        };
        let in_time = async {
            match end_ns {
                Some(end_ns) => {
                    tokio::time::timeout_at(self.clock.instant_at(end_ns), conversation)
                        .await
                        .unwrap_or_else(|_| Err(self.timeouts.out_of_time()))
                }
                None => conversation.await,
            }
        };
        let outcome = abort.run_until_cancelled(in_time).await;
        let end_ns = self.clock.now_ns();
        let received = reader.finish();
        let outcome = outcome.map(|outcome| outcome.and_then(|()| whole(&received)));
        let Head { status, retry_after } = head;
        Attempted { start_ns, end_ns, http_status: status, retry_after, received, outcome }
    }

    fn head(&self, response: &Response) -> Head {
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok());
        let now = UNIX_EPOCH + Duration::from_nanos(self.clock.now_ns().unsigned_abs());
        Head {
            status: Some(response.status().as_u16()),
            retry_after: header(RETRY_AFTER)
                .and_then(|value| retry_after(value, header(DATE), now)),
        }
    }

    /// Whether the engine tells the running count of output tokens in each chunk when it is asked to:
    /// asks for two tokens, once. Only Chat and Completions have a word for that.
    pub async fn takes_continuous_usage(&self, api: Api, model: &str) -> bool {
        let mut body = serde_json::json!({
            "model": model,
            "max_tokens": 2,
            "stream": true,
            "stream_options": {"include_usage": true, "continuous_usage_stats": true},
        });
        match api {
            Api::Messages | Api::Responses => return false,
            Api::Chat => {
                body["messages"] = serde_json::json!([{"role": "user", "content": "Hi"}]);
            }
            Api::Completions => body["prompt"] = "Hi".into(),
        }
        let never = CancellationToken::new();
        let key = RequestKey::default();
        let exchange = self.send(api, body.to_string().into(), key, &never).await;
        exchange.failure.is_none() && !exchange.received.chunk_tokens.is_empty()
    }

    async fn read(
        &self,
        api: Api,
        mut response: Response,
        reader: &mut ResponseReader,
        silence: &mut Silence,
        beside: &mut Beside<'_>,
    ) -> std::result::Result<(), Failure> {
        if !response.status().is_success() {
            let status = response.status().as_u16();
            let body = self.error_body(response, silence, beside).await;
            let message = parse_reply(api, &body).error.unwrap_or_default();
            let text = format!("http {status}: {}", clip(&message));
            return Err(Failure::new(Cause::Status(status), text));
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        if let Some(other) = content_type.filter(|it| !it.starts_with("text/event-stream")) {
            let text = format!("no stream: the answer is {}", clip(other));
            return Err(Failure::new(Cause::NoStream, text));
        }
        let mut first_output = beside.first_output;
        loop {
            match silence.unless_too_long(response.chunk()).await? {
                Ok(Some(bytes)) => {
                    let now_ns = self.clock.now_ns();
                    silence.broken_at(now_ns);
                    reader.take(&bytes, now_ns);
                    if let Some(tell) = first_output.take_if(|_| reader.first_output_ns().is_some())
                    {
                        tell();
                    }
                    beside.piece(now_ns, bytes);
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    let text = format!("broken stream: {}", describe(&error));
                    return Err(Failure::new(Cause::Broken, text));
                }
            }
        }
    }

    /// The body of an answer that is no success, as far as it is looked at.
    async fn error_body(
        &self,
        mut response: Response,
        silence: &mut Silence,
        beside: &mut Beside<'_>,
    ) -> Vec<u8> {
        let mut body = Vec::new();
        while let Ok(Ok(Some(bytes))) = silence.unless_too_long(response.chunk()).await {
            body.extend_from_slice(&bytes);
            beside.piece(self.clock.now_ns(), bytes);
            if body.len() >= ERROR_BODY_LIMIT_BYTES {
                break;
            }
        }
        body
    }

    fn failed_send(&self, error: &reqwest::Error) -> Failure {
        match (error.is_connect(), error.is_timeout()) {
            (true, true) => self.timeouts.no_connection(),
            (true, false) => Failure::new(Cause::Connect, format!("connect: {}", describe(error))),
            (false, _) => Failure::new(Cause::NoAnswer, format!("no answer: {}", describe(error))),
        }
    }
}

impl Exchange {
    /// A request that could not even be made.
    pub(super) fn unsent(now_ns: i64, why: &str) -> Self {
        let failure = Failure::new(Cause::Body, format!("request body: {why}"));
        Self { sent_ns: now_ns, end_ns: now_ns, failure: Some(failure), ..Self::default() }
    }

    fn keep(&mut self, attempted: Attempted) {
        let failure = attempted.outcome.clone().and_then(std::result::Result::err);
        self.attempts.push(Attempt {
            start_ms: elapsed_ms(self.sent_ns, attempted.start_ns),
            end_ms: elapsed_ms(self.sent_ns, attempted.end_ns),
            http_status: attempted.http_status,
            error: failure.as_ref().map(|failure| failure.text.clone()),
        });
        self.end_ns = attempted.end_ns;
        self.http_status = attempted.http_status;
        self.received = attempted.received;
        self.cancelled = attempted.outcome.is_none();
        self.failure = failure;
    }
}

fn headers(api_key: Option<&str>) -> Result<HeaderMap> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
    headers.insert(
        HeaderName::from_static("anthropic-version"),
        HeaderValue::from_static("2023-06-01"),
    );
    if let Some(key) = api_key {
        let secret = |text: String| {
            let mut value = HeaderValue::try_from(text)
                .map_err(|_| Error::config("the API key has characters no header can carry"))?;
            value.set_sensitive(true);
            Ok::<_, Error>(value)
        };
        headers.insert(AUTHORIZATION, secret(format!("Bearer {key}"))?);
        headers.insert(HeaderName::from_static("x-api-key"), secret(key.to_owned())?);
    }
    Ok(headers)
}

/// What is wrong with a stream that was read to its end without a failure of the connection.
fn whole(received: &Received) -> std::result::Result<(), Failure> {
    if let Some(error) = &received.reply.error {
        let text = format!("error event: {}", clip(error));
        return Err(Failure::new(Cause::ErrorEvent, text));
    }
    if !received.reply.complete {
        let text = "unfinished stream: it ended without its end mark";
        return Err(Failure::new(Cause::Broken, text));
    }
    Ok(())
}

/// The deepest cause, which is what says something; the URL, which may hold credentials, stays out.
fn describe(error: &reqwest::Error) -> String {
    let mut cause = error.source();
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    match cause {
        Some(cause) => clip(&cause.to_string()),
        None if error.is_timeout() => "timed out".to_owned(),
        None => "the connection failed".to_owned(),
    }
}

/// One line of bounded length.
fn clip(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(ERROR_TEXT_LIMIT_CHARS).collect()
}
