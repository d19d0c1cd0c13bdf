//! A request's body of which a part may have been read already, to learn whose it is.
//!
//! Needed only where several engines stand behind the proxy and nothing but the body tells a request's
//! conversation. The bytes go on as they came.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt;

use crate::api::{Api, UnitKind, parse_request};

/// A body, and what was read of it.
#[derive(Debug)]
pub(super) struct Fronted<B> {
    read: VecDeque<Frame<Bytes>>,
    rest: B,
    /// The rest was read to its end and must not be asked again.
    is_read: bool,
}

impl<B: Body<Data = Bytes> + Unpin> Fronted<B> {
    /// Nothing was read yet.
    pub(super) fn new(rest: B) -> Self {
        Self { read: VecDeque::new(), rest, is_read: false }
    }

    /// Reads on to the end, and gives the bytes; none where there are more than so many.
    pub(super) async fn read_whole(
        &mut self,
        limit_bytes: u64,
    ) -> Result<Option<Vec<u8>>, B::Error> {
        let mut whole = Vec::new();
        while let Some(frame) = self.rest.frame().await {
            let frame = frame?;
            if let Some(data) = frame.data_ref() {
                whole.extend_from_slice(data);
            }
            self.read.push_back(frame);
            if whole.len() as u64 > limit_bytes {
                return Ok(None);
            }
        }
        self.is_read = true;
        Ok(Some(whole))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Fronted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        if let Some(frame) = self.read.pop_front() {
            return Poll::Ready(Some(Ok(frame)));
        }
        if self.is_read {
            return Poll::Ready(None);
        }
        Pin::new(&mut self.rest).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.read.is_empty() && (self.is_read || self.rest.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        let read =
            self.read.iter().filter_map(Frame::data_ref).map(|data| data.len() as u64).sum::<u64>();
        let rest = if self.is_read { SizeHint::with_exact(0) } else { self.rest.size_hint() };
        let mut hint = SizeHint::new();
        hint.set_lower(rest.lower() + read);
        if let Some(upper) = rest.upper() {
            hint.set_upper(upper + read);
        }
        hint
    }
}

/// What a body tells of its conversation: the agent's own session, else what the conversation begins
/// with (system and first user message), which it keeps from turn to turn. None where it does not parse.
pub(super) fn conversation_of(api: Api, body: &[u8]) -> Option<String> {
    let request = parse_request(api, body).ok()?;
    if let Some(session) = request.session_hint {
        return Some(session);
    }
    let mut beginning = Vec::new();
    for unit in &request.units {
        let is_user = unit.role == "user" || unit.kind == UnitKind::Prompt;
        if unit.kind != UnitKind::Tool {
            // In normal form: without the marks and nonces that change from turn to turn.
            beginning
                .extend(unit.blocks.iter().filter(|block| !block.ephemeral).map(|b| b.hash.hex()));
        }
        if is_user {
            break;
        }
    }
    (!beginning.is_empty()).then(|| beginning.join("-"))
}

#[cfg(test)]
mod tests {
    use http_body_util::Full;

    use super::*;

    #[tokio::test]
    async fn what_was_read_goes_on_as_it_came() {
        for (limit, whole) in [(100, true), (5, true), (4, false)] {
            let mut body = Fronted::new(Full::from("hello"));
            let read = body.read_whole(limit).await.unwrap();
            assert_eq!(read, whole.then(|| b"hello".to_vec()));
            assert!(!body.is_end_stream());
            assert_eq!(body.size_hint().exact(), Some(5));
            assert_eq!(body.collect().await.unwrap().to_bytes(), "hello");
        }
        let mut empty = Fronted::new(Full::from(""));
        assert_eq!(empty.read_whole(9).await.unwrap(), Some(Vec::new()));
        assert!(empty.is_end_stream());
    }

    #[test]
    fn a_conversation_is_known_by_its_beginning() {
        let of = |body: &str| conversation_of(Api::Chat, body.as_bytes());
        let head = r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"u"}"#;
        let first = of(&format!("{head}]}}"));
        assert!(first.is_some());
        let more = r#",{"role":"assistant","content":"a"},{"role":"user","content":"v"}]}"#;
        assert_eq!(of(&format!("{head}{more}")), first);
        assert_ne!(of(&format!("{head}]}}").replace("\"u\"", "\"w\"")), first);
        assert_eq!(of("{"), None);
        let named = r#"{"metadata":{"user_id":"user_x_account__session_abc"},"messages":[{"role":"user","content":"u"}]}"#;
        assert_eq!(conversation_of(Api::Messages, named.as_bytes()).as_deref(), Some("abc"));
    }
}
