//! The recording proxy: agents talk to it as to their engine, and every turn becomes a row.
//!
//! Bytes pass untouched and unbuffered in both directions; a copy of them goes to an observer thread
//! when both have ended. Nothing here reads a request while it is on its way, so the proxy neither
//! slows it nor changes it, unless a compatibility switch says so. The rows' meaning is `trace::record`'s, the APIs are `api`'s.

mod agent;
mod agent_stream;
mod body;
mod buffers;
mod connection;
mod content;
mod direct;
mod engine_stream;
mod exchange;
mod forward;
mod front;
mod kept;
pub mod lineage;
mod observe;
mod plain;
mod prompt;
mod redaction;
mod response;
mod rewriting;
mod routing;
mod stats;
mod switches;
mod target;
mod through;
mod token;
mod tools;
mod unanswered;
mod upstream;

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub use direct::{DirectCapture, DirectEnd, DirectExchange};
pub use routing::Routing;
pub use stats::{CaptureStats, EngineTraffic, LatestTurn};
pub use switches::{Change, ConvertTo, Switches};

use self::agent_stream::AgentStream;
use self::exchange::Queue;
use self::forward::{Engine, Forwarder};
use self::observe::Observer;
use self::redaction::Redaction;
use self::routing::Router;
use self::stats::Counters;
use self::token::Token;
use self::upstream::Upstream;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::http::listen::listen;
use crate::redact::Masker;
use crate::shutdown::Shutdown;
use crate::trace::writer::RowSender;

/// How long connections to the engine get to notice that their requests were dropped.
const UPSTREAM_CLOSE: Duration = Duration::from_secs(1);
/// Pause after a failed accept (no file descriptors left), so that the loop does not spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(20);

/// Of each connection so much is read at once, and a head may be as long. The library's own bound is six times that,
/// which every connection that sent a long prompt would keep.
const CONNECTION_BUFFER_BYTES: usize = 64 * 1024;

/// How a capture runs.
#[derive(Debug, Clone)]
pub struct CaptureConfig {
    /// Where the proxy listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// The engines: `http` or `https`, with an optional base path.
    pub upstreams: Vec<String>,
    /// How requests are spread over several of them.
    pub routing: Routing,
    /// What masks texts before they become rows; none where they are written as they are.
    pub redact: Option<Arc<Masker>>,
    /// Name of the run, in every row.
    pub run_id: String,
    /// Number of the first request: a run that is gone on with has rows already.
    pub first_request: u64,
    /// What callers must send as their key; needed where other machines reach the proxy.
    pub token: Option<String>,
    /// What is changed of requests on their way; nothing by default.
    pub switches: Switches,
    /// Beyond this length a body passes but is not recorded, and its row says so.
    pub max_recorded_body_bytes: u64,
    /// How long connecting to the engine may take.
    pub connect_timeout: Duration,
    /// Ended requests that may wait for the observer.
    pub queue_exchanges: usize,
    /// Bytes of ended requests that may wait for the observer.
    pub queue_bytes: u64,
}

impl CaptureConfig {
    /// One engine, and the bounds that suit agents before it: bodies to 64 MB, 4,096 ended requests or 512 MB
    /// of them in the queue, 10 s for connecting.
    pub fn new(listen: SocketAddr, upstream: String, run_id: String) -> Self {
        Self {
            listen,
            upstreams: vec![upstream],
            routing: Routing::default(),
            redact: None,
            run_id,
            first_request: 0,
            token: None,
            switches: Switches::default(),
            max_recorded_body_bytes: 64 << 20,
            connect_timeout: Duration::from_secs(10),
            queue_exchanges: 4096,
            queue_bytes: 512 << 20,
        }
    }
}

/// The recording proxy.
#[derive(Debug)]
pub struct Capture;

impl Capture {
    /// Binds, and serves until the handle is stopped or `shutdown` is cancelled.
    #[expect(clippy::unused_async, reason = "what it starts needs a runtime around its caller")]
    pub async fn start(
        config: CaptureConfig,
        rows: RowSender,
        clock: Clock,
        shutdown: Shutdown,
    ) -> Result<CaptureHandle> {
        token::check(config.listen, config.token.as_deref())?;
        let upstream_tasks = TaskTracker::new();
        let engines = engines(&config, &upstream_tasks, clock)?;
        let bind = |source| Error::Bind { addr: config.listen, source };
        let listener = listen(config.listen).map_err(bind)?;
        let local_addr = listener.local_addr().map_err(bind)?;

        let counters =
            Arc::new(Counters::new(engines.iter().map(|engine| engine.upstream.label())));
        let (sender, receiver) = sync_channel(config.queue_exchanges);
        let queue = Arc::new(Queue::new(sender, config.queue_bytes, Arc::clone(&counters)));
        let redaction = config.redact.map(|masker| Redaction::new(masker, Arc::clone(&counters)));
        let limit_bytes = config.max_recorded_body_bytes;
        let observer = Observer::new(config.run_id, limit_bytes, rows, &counters, redaction);
        let observer = observer.spawn(receiver, &queue)?;
        let shown: Vec<&str> = engines.iter().map(|engine| engine.upstream.shown()).collect();
        tracing::info!(%local_addr, upstream = shown.join(" "), "capture listens");
        let forwarder = Arc::new(Forwarder {
            router: Mutex::new(Router::new(config.routing, engines.len())),
            token: config.token.as_deref().map(Token::new),
            switches: config.switches,
            engines,
            clock,
            counters: Arc::clone(&counters),
            queue: Arc::clone(&queue),
            max_recorded_body_bytes: config.max_recorded_body_bytes,
            received: AtomicU64::new(config.first_request),
        });
        let abort = CancellationToken::new();
        let accepting = accept(listener, forwarder, shutdown.clone(), abort.clone());
        shutdown.tracker().spawn(accepting);
        let observer = Some(observer);
        Ok(CaptureHandle { local_addr, counters, queue, observer, shutdown, abort, upstream_tasks })
    }
}

fn engines(config: &CaptureConfig, tasks: &TaskTracker, clock: Clock) -> Result<Vec<Engine>> {
    let mut engines: Vec<Engine> = Vec::with_capacity(config.upstreams.len());
    for url in &config.upstreams {
        let mut upstream = Upstream::parse(url)?;
        if let Some(masker) = &config.redact {
            upstream.redact_label(masker);
        }
        if engines.iter().any(|engine| engine.upstream.label() == upstream.label()) {
            return Err(Error::config(format!(
                "upstream `{}` is given twice; name each engine once",
                upstream.shown()
            )));
        }
        let connections = upstream.connections(config.connect_timeout, tasks, clock)?;
        engines.push(Engine { upstream, connections });
    }
    if engines.is_empty() {
        return Err(Error::config("no upstream; name at least one engine"));
    }
    Ok(engines)
}

/// A proxy that runs. Dropping it stops it without waiting for what is open.
#[derive(Debug)]
pub struct CaptureHandle {
    local_addr: SocketAddr,
    counters: Arc<Counters>,
    queue: Arc<Queue>,
    observer: Option<JoinHandle<()>>,
    shutdown: Shutdown,
    abort: CancellationToken,
    upstream_tasks: TaskTracker,
}

impl CaptureHandle {
    /// Where the proxy listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// Figures of this moment.
    pub fn stats(&self) -> CaptureStats {
        self.counters.snapshot()
    }

    /// Stops accepting, lets open requests end within the drain time, cuts what is left, and waits
    /// until all of it is rows. The figures are final.
    pub async fn stop(mut self) -> CaptureStats {
        self.shutdown.cancel();
        if !self.shutdown.drained().await {
            tracing::warn!("open requests are cut: the drain time is over");
            self.queue.cut();
            self.abort.cancel();
            self.shutdown.tracker().wait().await;
        }
        self.upstream_tasks.close();
        // A request that was cut ends when its connection to the engine notices.
        let _ = tokio::time::timeout(UPSTREAM_CLOSE, self.upstream_tasks.wait()).await;
        if let Some(observer) = self.observer.take() {
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

impl Drop for CaptureHandle {
    fn drop(&mut self) {
        self.shutdown.cancel();
        self.abort.cancel();
    }
}

async fn accept(
    listener: TcpListener,
    forwarder: Arc<Forwarder>,
    shutdown: Shutdown,
    abort: CancellationToken,
) {
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shutdown.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                let connection =
                    serve(stream, Arc::clone(&forwarder), shutdown.clone(), abort.clone());
                shutdown.tracker().spawn(connection);
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

/// Serves one connection of an agent. No timer: an agent may think for hours between two requests.
async fn serve(
    stream: TcpStream,
    forwarder: Arc<Forwarder>,
    shutdown: Shutdown,
    abort: CancellationToken,
) {
    // A refusal only means that small chunks may wait for each other.
    let _ = stream.set_nodelay(true);
    let stream = AgentStream::new(stream);
    let agent = stream.clone();
    let service = service_fn(move |request| {
        let (forwarder, agent) = (Arc::clone(&forwarder), agent.clone());
        async move { Ok::<_, Infallible>(forwarder.forward(request, agent).await) }
    });
    let mut connection = pin!(
        http1::Builder::new()
            .preserve_header_case(true)
            .auto_date_header(false)
            .max_buf_size(CONNECTION_BUFFER_BYTES)
            // Small chunks that piled up go out as one piece instead of a long list of pieces.
            .writev(false)
            .serve_connection(stream, service)
    );
    // How a connection ends is told by the rows of its requests.
    tokio::select! {
        _ = connection.as_mut() => return,
        () = shutdown.cancelled() => connection.as_mut().graceful_shutdown(),
    }
    tokio::select! {
        _ = connection => {}
        () = abort.cancelled() => {}
    }
}
