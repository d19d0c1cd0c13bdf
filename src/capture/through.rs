//! A response's body on its way to the agent: chunks that come as the agent is to get them are written to it as they
//! stand, framing included; everything else goes by way of the HTTP server, frame by frame.
//!
//! The first frame always takes the way of the server, which writes the head with it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use super::agent_stream::AgentStream;
use super::body::DownBody;
use super::exchange::BodyWatch;
use crate::http::tee::Tee;

/// A watched body, and the agent's connection where chunks may pass as they are.
#[derive(Debug)]
pub(super) struct Through {
    tee: Tee<DownBody, BodyWatch>,
    agent: Option<AgentStream>,
    has_begun: bool,
}

impl Through {
    /// Without an agent's connection everything goes by way of the server. It is given where the server frames a body
    /// of unknown length in chunks, as it does for HTTP/1.1.
    pub(super) fn new(tee: Tee<DownBody, BodyWatch>, agent: Option<AgentStream>) -> Self {
        Self { tee, agent, has_begun: false }
    }

    /// Passes on what may pass as it is, and waits for more of it. Ready when it is the server's turn.
    fn poll_pass(&mut self, ctx: &mut Context<'_>) -> Poll<()> {
        let Some(agent) = &self.agent else { return Poll::Ready(()) };
        let (body, mut seen) = self.tee.seen();
        let DownBody::Engine(engine) = body else { return Poll::Ready(()) };
        if !engine.can_pass() || !agent.is_clear() {
            return Poll::Ready(());
        }
        if let Err(error) = ready!(engine.poll_pass(ctx, agent, &mut seen)) {
            // The server flushes when this is pending, and ends the connection.
            agent.fail(error);
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

impl Body for Through {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        ctx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if self.has_begun {
            ready!(self.poll_pass(ctx));
        }
        let frame = Pin::new(&mut self.tee).poll_frame(ctx);
        // At the first call the server holds the head, afterwards whatever it gets here.
        if let Some(agent) = &self.agent
            && (frame.is_ready() || !self.has_begun)
        {
            agent.is_taken();
        }
        self.has_begun = true;
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.tee.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.tee.size_hint()
    }
}
