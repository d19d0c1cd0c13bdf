//! Sends one request and stamps what comes back.
//!
//! Nothing is done behind the caller's back that would change what is measured: no system proxy, no
//! redirect, no second attempt, no decompression. What the request says is `content`'s affair, when
//! it is sent `trajectory`'s.

use std::error::Error as _;
use std::time::Duration;

use bytes::Bytes;
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Response, Url};
use tokio_util::sync::CancellationToken;

use super::response::{Received, ResponseReader};
use crate::api::{Api, parse_reply};
use crate::clock::Clock;
use crate::error::{Error, Result};

/// Longest error body that is read.
const ERROR_BODY_LIMIT_BYTES: usize = 64 << 10;

/// Longest error text in a row, in characters.
const ERROR_TEXT_LIMIT_CHARS: usize = 500;

/// Common servers close a connection after 5 s without a request; one that is closed while a request
/// is on its way fails that request for no fault of the engine. So connections end here first.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Time for a connection to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// One client for all requests of a replay.
#[derive(Debug, Clone)]
pub struct Client {
    http: reqwest::Client,
    base: Url,
    clock: Clock,
}

/// One request and its answer.
#[derive(Debug, Default)]
pub struct Exchange {
    /// Start of the attempt.
    pub sent_ns: i64,
    /// End of the stream, or the moment it broke.
    pub end_ns: i64,
    /// Status of the response; none when none came.
    pub http_status: Option<u16>,
    /// What the stream came to; empty where none came.
    pub received: Received,
    /// Why the request failed: `kind: details`.
    pub failure: Option<String>,
    /// The run ended first.
    pub cancelled: bool,
}

impl Client {
    /// A client of the engine at `base_url` (with or without `/v1`).
    pub fn new(base_url: &str, api_key: Option<&str>, clock: Clock) -> Result<Self> {
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
            .connect_timeout(CONNECT_TIMEOUT)
            .pool_max_idle_per_host(usize::MAX)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .user_agent(concat!("agentbench/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers(api_key)?)
            .build()
            .map_err(|error| Error::Internal(format!("no HTTP client: {}", describe(&error))))?;
        Ok(Self { http, base, clock })
    }

    fn url(&self, api: Api) -> Url {
        let mut url = self.base.clone();
        url.set_path(&format!("{}{}", self.base.path().trim_end_matches('/'), api.path()));
        url
    }

    /// Sends a request and reads its answer to the end, or until `abort` is cancelled.
    pub async fn send(&self, api: Api, body: Bytes, abort: &CancellationToken) -> Exchange {
        let mut exchange = Exchange::default();
        let mut reader = ResponseReader::new(api);
        let request = self.http.post(self.url(api)).body(body);
        exchange.sent_ns = self.clock.now_ns();
        let conversation = async {
            let response = request.send().await.map_err(|error| failed_send(&error))?;
            exchange.http_status = Some(response.status().as_u16());
            self.read(api, response, &mut reader).await
        };
        let outcome = abort.run_until_cancelled(conversation).await;
        exchange.end_ns = self.clock.now_ns();
        exchange.received = reader.finish();
        exchange.cancelled = outcome.is_none();
        let failure = outcome.and_then(Result::err);
        exchange.failure =
            failure.or_else(|| (!exchange.cancelled).then(|| incomplete(&exchange.received))?);
        exchange
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
        let exchange = self.send(api, body.to_string().into(), &never).await;
        exchange.failure.is_none() && !exchange.received.chunk_tokens.is_empty()
    }

    async fn read(
        &self,
        api: Api,
        mut response: Response,
        reader: &mut ResponseReader,
    ) -> Result<(), String> {
        if !response.status().is_success() {
            return Err(refusal(api, response).await);
        }
        let content_type = response.headers().get(CONTENT_TYPE).and_then(|it| it.to_str().ok());
        if let Some(other) = content_type.filter(|it| !it.starts_with("text/event-stream")) {
            return Err(format!("no stream: the answer is {}", clip(other)));
        }
        loop {
            match response.chunk().await {
                Ok(Some(bytes)) => reader.take(&bytes, self.clock.now_ns()),
                Ok(None) => return Ok(()),
                Err(error) => return Err(format!("broken stream: {}", describe(&error))),
            }
        }
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
fn incomplete(received: &Received) -> Option<String> {
    if let Some(error) = &received.reply.error {
        return Some(format!("error event: {}", clip(error)));
    }
    (!received.reply.complete)
        .then(|| "unfinished stream: it ended without its end mark".to_owned())
}

/// The text of an answer that is no success.
async fn refusal(api: Api, mut response: Response) -> String {
    let status = response.status().as_u16();
    let mut body = Vec::new();
    while let Ok(Some(bytes)) = response.chunk().await {
        body.extend_from_slice(&bytes);
        if body.len() >= ERROR_BODY_LIMIT_BYTES {
            break;
        }
    }
    let message = parse_reply(api, &body).error.unwrap_or_default();
    format!("http {status}: {}", clip(&message))
}

fn failed_send(error: &reqwest::Error) -> String {
    let kind = if error.is_connect() { "connect" } else { "no answer" };
    format!("{kind}: {}", describe(error))
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
