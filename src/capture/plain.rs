//! The plain chunks of a response, read past the HTTP client and taken to the agent as they stand or as data.
//!
//! At the first piece that is none (the last chunk with its trailers, an extension, a break) the client goes on from
//! there, and what it makes of it is what the agent gets.

use std::io;
use std::task::{Context, Poll, ready};

use bytes::Bytes;

use super::agent_stream::AgentStream;
use super::engine_stream::Held;
use crate::http::chunks::{Chunks, Piece};

/// A chunked body that is read past the client.
#[derive(Debug, Default)]
pub(super) struct Plain {
    chunks: Chunks,
    /// Of what is unread, so many bytes are known to go to the agent.
    passing: usize,
    /// What of the current chunk has gone to the agent went as it stood.
    passes: bool,
}

impl Plain {
    /// Whether what comes next may go to the agent as it stands: it begins a chunk, or goes on with one that went so.
    pub(super) fn can_pass(&self) -> bool {
        self.passes || self.chunks.is_between()
    }

    /// Takes chunks to the agent as they stand. Ready when something else comes, which is the client's again, or with
    /// what the agent's connection has failed with.
    pub(super) fn poll_pass(
        &mut self,
        ctx: &mut Context<'_>,
        held: &mut Held,
        agent: &AgentStream,
        seen: &mut impl FnMut(&[u8]),
    ) -> Poll<io::Result<()>> {
        self.passes = true;
        loop {
            while self.passing > 0 {
                let written = ready!(agent.poll_pass(ctx, &held.unread()[..self.passing]))?;
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                held.take(written);
                self.passing -= written;
            }
            let is_plain = self.scan(held.unread(), seen);
            if self.passing == 0 && !(is_plain && ready!(held.poll_fill(ctx))) {
                self.give_back(held);
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Looks how far plain chunks go. False where something else follows.
    fn scan(&mut self, unread: &[u8], seen: &mut impl FnMut(&[u8])) -> bool {
        loop {
            let from = self.passing;
            match self.chunks.next(&unread[from..]) {
                Piece::Framing(bytes) => self.passing += bytes,
                Piece::Data(bytes) => {
                    self.passing += bytes;
                    seen(&unread[from..self.passing]);
                }
                Piece::Unfinished => return true,
                Piece::Other => return false,
            }
        }
    }

    /// The data of chunks; none when something else comes, which is the client's again.
    pub(super) fn poll_data(
        &mut self,
        ctx: &mut Context<'_>,
        held: &mut Held,
    ) -> Poll<Option<Bytes>> {
        self.passes = false;
        loop {
            match self.chunks.next(held.unread()) {
                Piece::Framing(bytes) => held.take(bytes),
                Piece::Data(bytes) => {
                    let data = Bytes::copy_from_slice(&held.unread()[..bytes]);
                    held.take(bytes);
                    return Poll::Ready(Some(data));
                }
                Piece::Unfinished if ready!(held.poll_fill(ctx)) => {}
                Piece::Unfinished | Piece::Other => {
                    self.give_back(held);
                    return Poll::Ready(None);
                }
            }
        }
    }

    /// Lets the client go on from here.
    fn give_back(&self, held: &mut Held) {
        let before = self.chunks.resumption(held.unread());
        held.open_after(&before);
    }
}
