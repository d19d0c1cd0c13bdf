//! Who stands beside a request while its answer comes: gets a copy of the bytes, is told of the first output.
//!
//! What is sent and stamped is `client`'s affair, and the same whoever stands here.

use bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::HeaderMap;

/// What came over the wire in answer to the last attempt, as it came: for whoever records it.
#[derive(Debug, Default)]
pub struct Wire {
    /// Status and headers; none where no response came.
    pub head: Option<(StatusCode, HeaderMap)>,
    /// The body's pieces, each with its arrival.
    pub pieces: Vec<(i64, Bytes)>,
}

/// Who else is told of an answer while it comes.
#[derive(Default)]
pub struct Beside<'a> {
    /// Gets a copy of what came in answer to the last attempt.
    pub wire: Option<&'a mut Wire>,
    /// Is called when an attempt's first chunk with output has come.
    pub first_output: Option<&'a (dyn Fn() + Sync)>,
}

impl Beside<'_> {
    /// A piece of an answer's body has come.
    pub(super) fn piece(&mut self, now_ns: i64, bytes: Bytes) {
        if let Some(wire) = &mut self.wire {
            wire.pieces.push((now_ns, bytes));
        }
    }
}
