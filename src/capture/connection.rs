//! Connections to the engine: kept for the next request, and driven by whoever waits for them.
//!
//! The usual client drives each connection in a task of its own, and every chunk then wakes two
//! tasks one after the other. Here the task that serves the agent's connection drives the engine's
//! as well: a chunk is read and written in one go, and what has piled up goes out in one write. The client
//! reads heads; plain chunks are read here, past it, and what is more than that it reads again.

use std::error::Error as StdError;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, Version, header};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::connect::HttpConnector;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::agent_stream::AgentStream;
use super::body::UpBody;
use super::engine_stream::EngineStream;
use super::exchange::{BodyWatch, Upload};
use super::front::Fronted;
use super::plain::Plain;
use crate::clock::Clock;
use crate::http::tee::Tee;

/// Idle connections beyond this are closed.
const MAX_IDLE: usize = 1024;
/// A connection that idled so long is closed when the next one is kept.
const MAX_IDLE_NS: i64 = 90_000_000_000;

/// A request's body on its way to the engine.
pub(super) type RequestBody = Fronted<Tee<UpBody, BodyWatch>>;
type Driver = http1::Connection<EngineStream, RequestBody>;

/// Why no response came.
pub(super) type SendError = Box<dyn StdError + Send + Sync>;

/// A request that got no response.
#[derive(Debug)]
pub(super) struct Unanswered {
    pub(super) error: SendError,
    /// The request, where nothing of it was written.
    pub(super) unsent: Option<Box<Request<RequestBody>>>,
}

/// Opens and keeps connections to one engine.
#[derive(Debug)]
pub(super) struct Connections {
    /// Scheme, host and port.
    origin: Uri,
    connector: HttpsConnector<HttpConnector>,
    connect_timeout: Duration,
    /// Those that finish an upload whose response is through.
    tasks: TaskTracker,
    clock: Clock,
    idle: Mutex<Vec<(i64, Connection)>>,
}

/// A connection; nothing moves on it unless its driver is polled.
#[derive(Debug)]
struct Connection {
    sender: http1::SendRequest<RequestBody>,
    driver: Driver,
    stream: EngineStream,
}

impl Connections {
    pub(super) fn new(
        origin: Uri,
        connector: HttpsConnector<HttpConnector>,
        connect_timeout: Duration,
        tasks: TaskTracker,
        clock: Clock,
    ) -> Arc<Self> {
        let idle = Mutex::new(Vec::new());
        Arc::new(Self { origin, connector, connect_timeout, tasks, clock, idle })
    }

    /// Sends one request and waits for the response's head. Dropping the future closes its
    /// connection. Only a request of which nothing was written goes on another connection, when the
    /// engine had closed a kept one: without the proxy the agent would see no error then either.
    pub(super) async fn send(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
        upload: &Upload,
    ) -> Result<Response<EngineBody>, Unanswered> {
        loop {
            let kept = self.take();
            let is_kept = kept.is_some();
            let connection = match kept {
                Some(connection) => connection,
                None => match self.open().await {
                    Ok(connection) => connection,
                    Err(error) => return Err(Unanswered { error, unsent: Some(request.into()) }),
                },
            };
            match connection.exchange(request).await {
                Ok((response, connection)) => {
                    return Ok(self.answered(response, connection, upload));
                }
                Err(mut error) => match error.take_message() {
                    Some(unsent) if is_kept => request = unsent,
                    unsent => {
                        let unsent = unsent.map(Box::new);
                        return Err(Unanswered { error: error.into_error().into(), unsent });
                    }
                },
            }
        }
    }

    /// Opens a connection, name look-up and TLS included, within the time limit.
    async fn open(&self) -> Result<Connection, SendError> {
        let opening = async {
            let stream = self.connector.clone().call(self.origin.clone()).await?;
            let stream = EngineStream::new(stream);
            let mut client = http1::Builder::new();
            let client =
                client.preserve_header_case(true).max_buf_size(super::CONNECTION_BUFFER_BYTES);
            let (sender, driver) = client.handshake(stream.clone()).await?;
            Ok(Connection { sender, driver, stream })
        };
        let opened = tokio::time::timeout(self.connect_timeout, opening).await;
        opened.unwrap_or_else(|_| {
            let text = format!("no connection within {:?}", self.connect_timeout);
            Err(io::Error::new(io::ErrorKind::TimedOut, text).into())
        })
    }

    /// A kept connection that the engine has not closed.
    fn take(&self) -> Option<Connection> {
        loop {
            let (_, mut connection) = self.lock().pop()?;
            // Polled once to notice an end that came while nobody waited for it.
            let mut ctx = Context::from_waker(Waker::noop());
            let is_open = Pin::new(&mut connection.driver).poll(&mut ctx).is_pending();
            if is_open && connection.sender.is_ready() {
                return Some(connection);
            }
        }
    }

    fn keep(&self, connection: Connection) {
        let now_ns = self.clock.now_ns();
        let mut idle = self.lock();
        idle.retain(|(since_ns, _)| now_ns - since_ns < MAX_IDLE_NS);
        if idle.len() < MAX_IDLE {
            idle.push((now_ns, connection));
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<(i64, Connection)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn answered(
        self: &Arc<Self>,
        response: Response<Incoming>,
        connection: Option<Connection>,
        upload: &Upload,
    ) -> Response<EngineBody> {
        let is_chunked = is_chunked(&response);
        response.map(|incoming| self.body(incoming, is_chunked, connection, upload))
    }

    fn body(
        self: &Arc<Self>,
        incoming: Incoming,
        is_chunked: bool,
        connection: Option<Connection>,
        upload: &Upload,
    ) -> EngineBody {
        let connections = Arc::clone(self);
        let mut body = EngineBody { incoming, plain: None, connection, connections };
        if !upload.has_ended() {
            // The response has begun within the upload: it must go on even while the agent does not
            // read, so it gets a task of its own and is not kept.
            if let Some(connection) = body.connection.take() {
                connection.stream.lock().open();
                self.tasks.spawn(connection.driver);
            }
            return body;
        }
        if let Some(connection) = &body.connection {
            let mut held = connection.stream.lock();
            if is_chunked && held.is_holding() && !body.incoming.is_end_stream() {
                body.plain = Some(Plain::default());
            } else {
                held.open();
            }
        }
        if body.incoming.is_end_stream() {
            body.release(&mut Context::from_waker(Waker::noop()));
        }
        body
    }
}

/// Whether the client certainly takes a response's body, if it has one, for a chunked one.
fn is_chunked<B>(response: &Response<B>) -> bool {
    let mut codings = response.headers().get_all(header::TRANSFER_ENCODING).iter();
    let coding = codings.next().map(HeaderValue::as_bytes);
    response.version() == Version::HTTP_11
        && coding.is_some_and(|coding| coding.eq_ignore_ascii_case(b"chunked"))
        && codings.next().is_none()
}

type Unsent = hyper::client::conn::TrySendError<Request<RequestBody>>;

impl Connection {
    /// Sends a request and drives the connection until the response's head is there. The connection
    /// is gone where the engine has closed it by then.
    async fn exchange(
        mut self,
        request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Option<Self>), Unsent> {
        self.stream.lock().hold_after_head();
        let mut responding = pin!(self.sender.try_send_request(request));
        let mut driver = Some(self.driver);
        let result = std::future::poll_fn(|ctx| {
            loop {
                if let Some(open) = &mut driver
                    && Pin::new(open).poll(ctx).is_ready()
                {
                    driver = None;
                }
                let response = responding.as_mut().poll(ctx);
                let mut held = self.stream.lock();
                if response.is_ready() || driver.is_none() || !held.is_holding() {
                    return response;
                }
                // That head was none of a response (100 Continue): on to the next.
                held.hold_after_head();
            }
        })
        .await;
        let (sender, stream) = (self.sender, self.stream);
        Ok((result?, driver.map(|driver| Self { sender, driver, stream })))
    }
}

/// A response's body, whose reader drives the connection that it comes from.
#[derive(Debug)]
pub(super) struct EngineBody {
    incoming: Incoming,
    /// While it is read past the client.
    plain: Option<Plain>,
    /// Gone once the body has ended or the engine has closed it.
    connection: Option<Connection>,
    connections: Arc<Connections>,
}

impl EngineBody {
    /// Keeps the connection for the next request, if it is in order.
    fn release(&mut self, ctx: &mut Context<'_>) {
        let Some(mut connection) = self.connection.take() else { return };
        let is_open = Pin::new(&mut connection.driver).poll(ctx).is_pending();
        if is_open && connection.sender.is_ready() {
            connection.stream.lock().shrink();
            self.connections.keep(connection);
        }
    }

    /// Whether what comes next may go to the agent as it stands: it begins a chunk, or goes on with one that went so.
    pub(super) fn can_pass(&self) -> bool {
        self.plain.as_ref().is_some_and(Plain::can_pass)
    }

    /// Takes plain chunks to the agent as they stand. Ready when something else comes, or with what the agent's
    /// connection has failed with.
    pub(super) fn poll_pass(
        &mut self,
        ctx: &mut Context<'_>,
        agent: &AgentStream,
        seen: &mut impl FnMut(&[u8]),
    ) -> Poll<io::Result<()>> {
        let (Some(plain), Some(connection)) = (&mut self.plain, &self.connection) else {
            return Poll::Ready(Ok(()));
        };
        ready!(plain.poll_pass(ctx, &mut connection.stream.lock(), agent, seen))?;
        self.plain = None;
        Poll::Ready(Ok(()))
    }

    /// The data of plain chunks; none when something else comes.
    fn poll_data(&mut self, ctx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let (Some(plain), Some(connection)) = (&mut self.plain, &self.connection) else {
            return Poll::Ready(None);
        };
        let data = ready!(plain.poll_data(ctx, &mut connection.stream.lock()));
        if data.is_none() {
            self.plain = None;
        }
        Poll::Ready(data)
    }
}

impl Body for EngineBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let body = &mut *self;
        if let Some(data) = ready!(body.poll_data(ctx)) {
            return Poll::Ready(Some(Ok(Frame::data(data))));
        }
        let mut polled = Pin::new(&mut body.incoming).poll_frame(ctx);
        if polled.is_pending()
            && let Some(connection) = &mut body.connection
        {
            if Pin::new(&mut connection.driver).poll(ctx).is_ready() {
                body.connection = None;
            }
            polled = Pin::new(&mut body.incoming).poll_frame(ctx);
        }
        let frame = ready!(polled);
        if frame.is_none() || body.incoming.is_end_stream() {
            body.release(ctx);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}
