//! Bodies that the proxy sends on: as they come, made by itself, or converted piece by piece.
//!
//! All of them end as hyper's own do, so that whoever watches one need not know which it is.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use hyper::body::Incoming;

use super::connection::EngineBody;
use super::content::ContentDecoder;
use crate::api::ChatAsMessages;

type Polled = Poll<Option<Result<Frame<Bytes>, hyper::Error>>>;

/// A body of the proxy's own: one piece.
#[derive(Debug)]
pub(super) struct Made(Option<Bytes>);

impl Made {
    pub(super) fn new(bytes: impl Into<Bytes>) -> Self {
        Self(Some(bytes.into()).filter(|bytes| !bytes.is_empty()))
    }

    fn poll(&mut self) -> Polled {
        Poll::Ready(self.0.take().map(|bytes| Ok(Frame::data(bytes))))
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}

/// A request's body on its way to the engine.
#[derive(Debug)]
pub(super) enum UpBody {
    Received(Incoming),
    Made(Made),
}

impl Body for UpBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Polled {
        match &mut *self {
            Self::Received(body) => Pin::new(body).poll_frame(ctx),
            Self::Made(body) => body.poll(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Received(body) => body.is_end_stream(),
            Self::Made(body) => body.0.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Received(body) => body.size_hint(),
            Self::Made(body) => body.size_hint(),
        }
    }
}

/// A response's body on its way to the agent.
#[derive(Debug)]
pub(super) enum DownBody {
    Engine(Box<EngineBody>),
    Converted(Box<Converted>),
    Made(Made),
}

impl Body for DownBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, ctx: &mut Context<'_>) -> Polled {
        match &mut *self {
            Self::Engine(body) => Pin::new(&mut **body).poll_frame(ctx),
            Self::Converted(body) => body.poll(ctx),
            Self::Made(body) => body.poll(),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Engine(body) => body.is_end_stream(),
            Self::Converted(body) => body.converter.is_none(),
            Self::Made(body) => body.0.is_none(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Engine(body) => body.size_hint(),
            Self::Converted(_) => SizeHint::default(),
            Self::Made(body) => body.size_hint(),
        }
    }
}

/// An engine's Chat stream that becomes a Messages stream.
pub(super) struct Converted {
    engine: EngineBody,
    decoder: ContentDecoder,
    /// Gone once the stream has ended.
    converter: Option<ChatAsMessages>,
}

impl std::fmt::Debug for Converted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Converted").field("converter", &self.converter).finish_non_exhaustive()
    }
}

impl Converted {
    pub(super) fn new(
        engine: EngineBody,
        decoder: ContentDecoder,
        converter: ChatAsMessages,
    ) -> Self {
        Self { engine, decoder, converter: Some(converter) }
    }

    fn poll(&mut self, ctx: &mut Context<'_>) -> Polled {
        let mut out = Vec::new();
        while let Some(converter) = &mut self.converter {
            match ready!(Pin::new(&mut self.engine).poll_frame(ctx)) {
                Some(Ok(frame)) => {
                    let Some(data) = frame.data_ref() else { continue };
                    // What does not decode says nothing; the recording tells the stream's end.
                    if let Ok(text) = self.decoder.feed(data) {
                        converter.feed(&text, &mut out);
                    }
                }
                Some(Err(error)) => {
                    self.converter = None;
                    return Poll::Ready(Some(Err(error)));
                }
                None => {
                    if let Some(converter) = self.converter.take() {
                        converter.finish(&mut out);
                    }
                }
            }
            if !out.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(out.into()))));
            }
        }
        Poll::Ready(None)
    }
}
