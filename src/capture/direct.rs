//! Exchanges that this process made itself, into the same rows as those that pass the proxy: nothing stands
//! between such a client and the engine, and what it sends and gets is told here afterwards.
//!
//! What a row means is `observe`'s affair; how a request is sent its client's.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::CaptureConfig;
use super::buffers::Buffers;
use super::exchange::{BodyCopy, Copied, Exchange, Failure, Queue, ResponseHead};
use super::observe::Observer;
use super::stats::{CaptureStats, Counters};
use crate::api::Api;
use crate::error::Result;
use crate::http::tee::End;
use crate::trace::writer::RowSender;

/// Nothing listens: only the bounds of a capture are taken from its configuration.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// One exchange with an engine, as its client knows it.
#[derive(Debug)]
pub struct DirectExchange {
    /// Its number in the run, of [`DirectCapture::next_number`].
    pub number: u64,
    /// The API.
    pub api: Api,
    /// The session that it belongs to.
    pub session: String,
    /// The request's body.
    pub body: Bytes,
    /// When it was sent.
    pub sent_ns: i64,
    /// Status and headers of the response; none where none came.
    pub head: Option<(StatusCode, HeaderMap)>,
    /// The response's body in pieces, each with its arrival.
    pub pieces: Vec<(i64, Bytes)>,
    /// How the response ended; without a response, why there is none.
    pub end: DirectEnd,
    /// When it ended.
    pub ended_ns: i64,
}

/// How an exchange ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DirectEnd {
    /// The body came to its end, whatever it says.
    Whole,
    /// The connection broke, or never came about.
    Broken(String),
    /// The client gave it up.
    GivenUp,
}

/// Takes exchanges to the observer of a run.
#[derive(Debug)]
pub struct DirectCapture {
    engine: Arc<str>,
    counters: Arc<Counters>,
    queue: Arc<Queue>,
    observer: Mutex<Option<JoinHandle<()>>>,
    limit_bytes: u64,
    agent: HeaderValue,
    next: AtomicU64,
}

impl DirectCapture {
    /// Starts the observer. `engine` is the engine's name in the rows, `agent` that of the client.
    pub fn start(
        engine: &str,
        agent: &'static str,
        run_id: String,
        rows: RowSender,
    ) -> Result<Self> {
        let CaptureConfig { max_recorded_body_bytes, queue_exchanges, queue_bytes, .. } =
            CaptureConfig::new(NOWHERE, String::new(), String::new());
        let engine: Arc<str> = engine.into();
        let counters = Arc::new(Counters::new(std::iter::once(&engine)));
        let (sender, receiver) = sync_channel(queue_exchanges);
        let queue = Arc::new(Queue::new(sender, queue_bytes, Arc::clone(&counters)));
        let observer = Observer::new(run_id, max_recorded_body_bytes, rows, &counters, None);
        let observer = observer.spawn(receiver, &queue)?;
        Ok(Self {
            engine,
            counters,
            queue,
            observer: Mutex::new(Some(observer)),
            limit_bytes: max_recorded_body_bytes,
            agent: HeaderValue::from_static(agent),
            next: AtomicU64::new(0),
        })
    }

    /// The number of the next exchange; its turn has it in its `request_id`.
    pub fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// The name that a turn of this number has.
    pub fn request_id(number: u64) -> String {
        format!("req-{number}")
    }

    /// Figures of this moment.
    pub fn stats(&self) -> CaptureStats {
        self.counters.snapshot()
    }

    /// Queues an exchange that has ended.
    pub fn record(&self, direct: DirectExchange) {
        let _active = self.counters.request();
        let copied = |buffers: &Arc<Buffers>, pieces: Vec<(i64, Bytes)>, end, ended_ns| {
            let mut copy = BodyCopy::new(buffers, self.limit_bytes);
            for (at_ns, piece) in &pieces {
                copy.push(piece, *at_ns);
            }
            Some(Copied { copy, end, ended_ns })
        };
        let mut headers = HeaderMap::new();
        headers.insert(header::USER_AGENT, self.agent.clone());
        let (end, failure) = match direct.end {
            DirectEnd::Whole => (End::Complete, None),
            DirectEnd::GivenUp => (End::Cancelled, None),
            DirectEnd::Broken(message) => (
                End::Error(message.clone()),
                Some(Failure { message, by_client: false, at_ns: direct.ended_ns }),
            ),
        };
        let response = direct.head.as_ref().map(|_| (direct.pieces, end));
        self.counters.bytes_up.fetch_add(direct.body.len() as u64, Ordering::Relaxed);
        let bytes_down = response.iter().flat_map(|(pieces, _)| pieces);
        let bytes_down: usize = bytes_down.map(|(_, piece)| piece.len()).sum();
        self.counters.bytes_down.fetch_add(bytes_down as u64, Ordering::Relaxed);
        let (requests, responses) = (self.queue.requests(), self.queue.responses());
        let body = vec![(direct.sent_ns, direct.body)];
        self.queue.offer(Box::new(Exchange {
            number: direct.number,
            api: direct.api,
            engine: Some(Arc::clone(&self.engine)),
            session: Some(direct.session),
            path: direct.api.path().to_owned(),
            headers,
            arrived_ns: direct.sent_ns,
            request: copied(requests, body, End::Complete, direct.sent_ns),
            head: direct.head.map(|(status, headers)| ResponseHead { status, headers }),
            response: response
                .and_then(|(pieces, end)| copied(responses, pieces, end, direct.ended_ns)),
            failure,
            gone_ns: direct.ended_ns,
            was_cut: false,
            changes: Vec::new(),
            says_subagent: false,
        }));
    }

    /// Waits until all that was told is rows. The figures are final.
    pub async fn stop(&self) -> CaptureStats {
        let observer = self.observer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(observer) = observer {
            let queue = Arc::clone(&self.queue);
            let ended = tokio::task::spawn_blocking(move || {
                queue.stop();
                observer.join().is_ok()
            });
            if !ended.await.unwrap_or(false) {
                tracing::error!("the observer ended early; later turns are counted as dropped");
            }
        }
        self.counters.snapshot()
    }
}
