//! A connection of an agent, on which bytes may be written past the HTTP server that owns it.
//!
//! That is in order while the server has nothing of its own to write: it flushes only after all that it had is
//! written, and has nothing more until the body that it sends gives it a frame.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Shared by the server and the body that it sends; both belong to one task, so that nobody waits.
#[derive(Debug, Clone)]
pub(super) struct AgentStream(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    stream: TokioIo<TcpStream>,
    is_clear: bool,
    /// What went wrong past the server, for it to know.
    failure: Option<io::Error>,
}

impl AgentStream {
    pub(super) fn new(stream: TcpStream) -> Self {
        let shared = Shared { stream: TokioIo::new(stream), is_clear: false, failure: None };
        Self(Arc::new(Mutex::new(shared)))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The server has got something to write.
    pub(super) fn is_taken(&self) {
        self.lock().is_clear = false;
    }

    /// The server has written all that it had.
    pub(super) fn is_clear(&self) -> bool {
        self.lock().is_clear
    }

    /// Writes past the server.
    pub(super) fn poll_pass(&self, ctx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.lock().stream).poll_write(ctx, bytes)
    }

    /// Writing past the server failed: it gets the error when it flushes next, as if it had written itself.
    pub(super) fn fail(&self, error: io::Error) {
        self.lock().failure = Some(error);
    }
}

impl Read for AgentStream {
    fn poll_read(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_read(ctx, into)
    }
}

impl Write for AgentStream {
    fn poll_write(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let mut shared = self.lock();
        shared.is_clear = false;
        Pin::new(&mut shared.stream).poll_write(ctx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut shared = self.lock();
        if let Some(error) = shared.failure.take() {
            return Poll::Ready(Err(error));
        }
        shared.is_clear = true;
        Pin::new(&mut shared.stream).poll_flush(ctx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_shutdown(ctx)
    }
}
