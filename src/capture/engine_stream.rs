//! A connection to the engine, of which bytes can be held back from the HTTP client that owns it.
//!
//! The client reads every head; after it, whoever passes the body on may read the bytes himself and let the
//! client go on from any place on. What the bytes mean is told by who reads them.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use hyper::rt::{Read, ReadBuf, ReadBufCursor, Write};
use hyper_rustls::MaybeHttpsStream;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// So much is read at once by who passes a body on.
const READ_BYTES: usize = 16 * 1024;

/// Shared by the client and by who passes its bodies on; both belong to one task, so that nobody waits.
#[derive(Debug, Clone)]
pub(super) struct EngineStream(Arc<Mutex<Held>>);

/// What the client may read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gate {
    /// Everything.
    Open,
    /// A head, up to its empty line.
    Head(LineEnd),
    /// Nothing.
    Closed,
}

/// How near the bytes so far are to an empty line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LineEnd {
    Within,
    Newline,
    NewlineReturn,
}

/// A stream with the bytes that were read of it and not yet taken.
#[derive(Debug)]
pub(super) struct Held {
    stream: MaybeHttpsStream<TokioIo<TcpStream>>,
    gate: Gate,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// How reading ended, for the client.
    ended: Option<io::Result<()>>,
}

impl EngineStream {
    /// A stream with everything open to the client.
    pub(super) fn new(stream: MaybeHttpsStream<TokioIo<TcpStream>>) -> Self {
        let held =
            Held { stream, gate: Gate::Open, buffer: Vec::new(), start: 0, end: 0, ended: None };
        Self(Arc::new(Mutex::new(held)))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// The client gets the next head and nothing behind it.
    pub(super) fn hold_after_head(&mut self) {
        self.gate = Gate::Head(LineEnd::Within);
    }

    /// A head is through and what follows is held.
    pub(super) fn is_holding(&self) -> bool {
        self.gate == Gate::Closed
    }

    /// The client gets everything from here on. Nothing wakes it for what is there already: it must be polled.
    pub(super) fn open(&mut self) {
        self.gate = Gate::Open;
    }

    /// The same, and before all that is unread something that was not on the wire.
    pub(super) fn open_after(&mut self, before: &str) {
        if !before.is_empty() {
            let mut all = before.as_bytes().to_vec();
            all.extend_from_slice(self.unread());
            (self.start, self.end) = (0, all.len());
            self.buffer = all;
        }
        self.open();
    }

    /// Frees the buffer of a connection that idles.
    pub(super) fn shrink(&mut self) {
        if self.start == self.end {
            self.buffer = Vec::new();
            (self.start, self.end) = (0, 0);
        }
    }

    /// What was read and not taken.
    pub(super) fn unread(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    pub(super) fn take(&mut self, bytes: usize) {
        self.start += bytes;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Reads more. False where nothing more comes; how that was is kept for the client.
    pub(super) fn poll_fill(&mut self, ctx: &mut Context<'_>) -> Poll<bool> {
        if self.ended.is_some() {
            return Poll::Ready(false);
        }
        if self.start > 0 {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        if self.buffer.len() < READ_BYTES {
            self.buffer.resize(READ_BYTES, 0);
        }
        let mut into = ReadBuf::new(&mut self.buffer[self.end..]);
        let read = ready!(Pin::new(&mut self.stream).poll_read(ctx, into.unfilled()));
        let bytes = into.filled().len();
        self.end += bytes;
        if bytes == 0 || read.is_err() {
            self.ended = Some(read);
        }
        Poll::Ready(self.ended.is_none())
    }

    /// Gives the client of what is unread as much as the gate lets through.
    fn give(&mut self, into: &mut ReadBufCursor<'_>) {
        let fitting = self.unread().len().min(into.remaining());
        let mut given = fitting;
        if let Gate::Head(mut line_end) = self.gate {
            let empty_line = self.unread()[..fitting].iter().position(|byte| line_end.meets(*byte));
            given = empty_line.map_or(fitting, |at| at + 1);
            self.gate = if empty_line.is_some() { Gate::Closed } else { Gate::Head(line_end) };
        }
        into.put_slice(&self.unread()[..given]);
        self.take(given);
    }
}

impl LineEnd {
    /// Takes one byte; true for the last one of an empty line.
    fn meets(&mut self, byte: u8) -> bool {
        let is_empty_line = byte == b'\n' && *self != Self::Within;
        *self = match (byte, *self) {
            (b'\n', _) => Self::Newline,
            (b'\r', Self::Newline) => Self::NewlineReturn,
            _ => Self::Within,
        };
        is_empty_line
    }
}

impl Read for EngineStream {
    fn poll_read(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        mut into: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut held = self.lock();
        match held.gate {
            // Whoever opens the gate polls the client.
            Gate::Closed => return Poll::Pending,
            Gate::Head(_) if held.unread().is_empty() => {
                ready!(held.poll_fill(ctx));
            }
            Gate::Head(_) | Gate::Open => {}
        }
        if !held.unread().is_empty() {
            held.give(&mut into);
            return Poll::Ready(Ok(()));
        }
        match held.ended.take() {
            Some(ended) => Poll::Ready(ended),
            None => Pin::new(&mut held.stream).poll_read(ctx, into),
        }
    }
}

impl Write for EngineStream {
    fn poll_write(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.lock().stream).poll_write(ctx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_flush(ctx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.lock().stream).poll_shutdown(ctx)
    }

    fn is_write_vectored(&self) -> bool {
        self.lock().stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.lock().stream).poll_write_vectored(ctx, bytes)
    }
}
