//! Connections to the engine: kept for the next request, and driven by whoever waits for them.
//!
//! The usual client drives each connection in a task of its own, and every chunk then wakes two
//! tasks one after the other. Here the task that serves the agent's connection drives the engine's
//! as well: a chunk is read and written in one go, and what has piled up goes out in one write.

use std::error::Error as StdError;
use std::io;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_rustls::{HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio_util::task::TaskTracker;
use tower_service::Service;

use super::body::UpBody;
use super::exchange::{BodyWatch, Upload};
use super::front::Fronted;
use crate::clock::Clock;
use crate::http::tee::Tee;

/// Idle connections beyond this are closed.
const MAX_IDLE: usize = 1024;
/// A connection that idled so long is closed when the next one is kept.
const MAX_IDLE_NS: i64 = 90_000_000_000;

/// A request's body on its way to the engine.
pub(super) type RequestBody = Fronted<Tee<UpBody, BodyWatch>>;
type Driver = http1::Connection<MaybeHttpsStream<TokioIo<TcpStream>>, RequestBody>;

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
                    return Ok(response.map(|body| self.body(body, connection, upload)));
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
            let (sender, driver) =
                http1::Builder::new().preserve_header_case(true).handshake(stream).await?;
            Ok(Connection { sender, driver })
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

    fn body(
        self: &Arc<Self>,
        incoming: Incoming,
        connection: Option<Connection>,
        upload: &Upload,
    ) -> EngineBody {
        let mut body = EngineBody { incoming, connection, connections: Arc::clone(self) };
        if !upload.has_ended() {
            // The response has begun within the upload: it must go on even while the agent does not
            // read, so it gets a task of its own and is not kept.
            if let Some(connection) = body.connection.take() {
                self.tasks.spawn(connection.driver);
            }
        } else if body.incoming.is_end_stream() {
            body.release(&mut Context::from_waker(Waker::noop()));
        }
        body
    }
}

type Unsent = hyper::client::conn::TrySendError<Request<RequestBody>>;

impl Connection {
    /// Sends a request and drives the connection until the response's head is there. The connection
    /// is gone where the engine has closed it by then.
    async fn exchange(
        mut self,
        request: Request<RequestBody>,
    ) -> Result<(Response<Incoming>, Option<Self>), Unsent> {
        let mut responding = pin!(self.sender.try_send_request(request));
        let mut driver = Some(self.driver);
        let result = std::future::poll_fn(|ctx| {
            if let Some(open) = &mut driver
                && Pin::new(open).poll(ctx).is_ready()
            {
                driver = None;
            }
            responding.as_mut().poll(ctx)
        })
        .await;
        let sender = self.sender;
        Ok((result?, driver.map(|driver| Self { sender, driver })))
    }
}

/// A response's body, whose reader drives the connection that it comes from.
#[derive(Debug)]
pub(super) struct EngineBody {
    incoming: Incoming,
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
            self.connections.keep(connection);
        }
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
