//! A body that is watched on its way: frames pass untouched, each is stamped, the end is told once.
//!
//! What is done with a frame is the watcher's affair; it runs between two reads of the byte path, so
//! it may copy and count, never parse.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};

use crate::clock::Clock;

/// How a body ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum End {
    /// Whole.
    Complete,
    /// The side that sends it broke, with what was said.
    Error(String),
    /// The side that reads it went away first.
    Cancelled,
}

/// Sees the frames of one body go by.
pub trait Watch: Unpin {
    /// A data frame passed.
    fn data(&mut self, data: &[u8], at_ns: i64);
    /// The body ended; nothing follows.
    fn end(self, how: End, at_ns: i64);
}

/// A body that passes every frame on as it is and shows it to a watcher.
#[derive(Debug)]
pub struct Tee<B, W: Watch> {
    inner: B,
    clock: Clock,
    watch: Option<W>,
}

impl<B: Body<Data = Bytes>, W: Watch> Tee<B, W> {
    /// Watches `inner`. A body that is empty from the start ends at once, because nobody may ever
    /// poll it.
    pub fn new(inner: B, clock: Clock, watch: W) -> Self {
        let mut tee = Self { inner, clock, watch: Some(watch) };
        if tee.inner.is_end_stream() {
            tee.end(End::Complete);
        }
        tee
    }
}

impl<B, W: Watch> Tee<B, W> {
    /// The body, for who passes on more of it than it gives as frames, and what he shows that data to.
    pub fn seen(&mut self) -> (&mut B, impl FnMut(&[u8])) {
        let Self { inner, clock, watch } = self;
        let seen = move |data: &[u8]| {
            if let Some(watch) = watch {
                watch.data(data, clock.now_ns());
            }
        };
        (inner, seen)
    }

    fn end(&mut self, how: End) {
        if let Some(watch) = self.watch.take() {
            watch.end(how, self.clock.now_ns());
        }
    }
}

impl<B, W> Body for Tee<B, W>
where
    B: Body<Data = Bytes> + Unpin,
    B::Error: std::error::Error,
    W: Watch,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let tee = &mut *self;
        let frame = ready!(Pin::new(&mut tee.inner).poll_frame(cx));
        match &frame {
            Some(Ok(frame)) => {
                if let (Some(data), Some(watch)) = (frame.data_ref(), &mut tee.watch) {
                    watch.data(data, tee.clock.now_ns());
                }
                // A reader that knows the length does not poll again after the last frame.
                if tee.inner.is_end_stream() {
                    tee.end(End::Complete);
                }
            }
            Some(Err(error)) => tee.end(End::Error(chain(error))),
            None => tee.end(End::Complete),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl<B, W: Watch> Drop for Tee<B, W> {
    fn drop(&mut self) {
        self.end(End::Cancelled);
    }
}

/// An error with its sources, as one line; a source that its parent's text repeats is left out.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let part = error.to_string();
        if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
        source = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::collections::VecDeque;
    use std::io;
    use std::rc::Rc;

    use http_body_util::BodyExt;

    use super::*;

    #[derive(Debug, Default, PartialEq)]
    struct Seen {
        data: Vec<u8>,
        frames: usize,
        ends: Vec<End>,
    }

    struct Watcher(Rc<RefCell<Seen>>);

    impl Watch for Watcher {
        fn data(&mut self, data: &[u8], _at_ns: i64) {
            let mut seen = self.0.borrow_mut();
            seen.data.extend_from_slice(data);
            seen.frames += 1;
        }
        fn end(self, how: End, _at_ns: i64) {
            self.0.borrow_mut().ends.push(how);
        }
    }

    /// A body of given frames that, like hyper's, knows its end after the last one when `sized`.
    struct Frames {
        frames: VecDeque<io::Result<Frame<Bytes>>>,
        sized: bool,
    }

    impl Body for Frames {
        type Data = Bytes;
        type Error = io::Error;
        fn poll_frame(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
            Poll::Ready(self.frames.pop_front())
        }
        fn is_end_stream(&self) -> bool {
            self.sized && self.frames.is_empty()
        }
        fn size_hint(&self) -> SizeHint {
            if self.sized { SizeHint::with_exact(7) } else { SizeHint::default() }
        }
    }

    fn data(text: &'static str) -> Frame<Bytes> {
        Frame::data(Bytes::from_static(text.as_bytes()))
    }

    /// Reads `reads` frames, drops the body, and gives what the watcher saw.
    async fn check(frames: Vec<io::Result<Frame<Bytes>>>, sized: bool, reads: usize) -> Seen {
        let seen = Rc::new(RefCell::new(Seen::default()));
        let inner = Frames { frames: frames.into(), sized };
        let mut tee = Tee::new(inner, Clock::start(), Watcher(Rc::clone(&seen)));
        assert_eq!(tee.size_hint().exact(), sized.then_some(7));
        for _ in 0..reads {
            let _ = tee.frame().await;
        }
        drop(tee);
        seen.take()
    }

    #[tokio::test]
    async fn the_end_is_told_once() {
        let whole = check(vec![Ok(data("ab")), Ok(data("c"))], false, 3).await;
        assert_eq!(whole, Seen { data: b"abc".into(), frames: 2, ends: vec![End::Complete] });
        let sized = check(vec![Ok(data("ab")), Ok(data("c"))], true, 2).await;
        assert_eq!(sized.ends, [End::Complete]);
        let empty = check(vec![], true, 0).await;
        assert_eq!(empty.ends, [End::Complete]);
        let left = check(vec![Ok(data("ab")), Ok(data("c"))], false, 1).await;
        assert_eq!(left, Seen { data: b"ab".into(), frames: 1, ends: vec![End::Cancelled] });
        let untouched = check(vec![Ok(data("ab"))], false, 0).await;
        assert_eq!(untouched.ends, [End::Cancelled]);
        let broken = check(vec![Ok(data("ab")), Err(io::Error::other("reset"))], false, 2).await;
        assert_eq!(broken.ends, [End::Error("reset".into())]);
    }

    #[tokio::test]
    async fn trailers_pass_and_are_no_data() {
        let mut trailers = http::HeaderMap::new();
        trailers.insert("x-sum", http::HeaderValue::from_static("1"));
        let seen = Rc::new(RefCell::new(Seen::default()));
        let frames = VecDeque::from([Ok(data("ab")), Ok(Frame::trailers(trailers.clone()))]);
        let inner = Frames { frames, sized: false };
        let tee = Tee::new(inner, Clock::start(), Watcher(Rc::clone(&seen)));
        let collected = tee.collect().await.unwrap();
        assert_eq!(collected.trailers(), Some(&trailers));
        assert_eq!(collected.to_bytes(), "ab");
        assert_eq!(seen.borrow().frames, 1);
    }
}
