//! Bytes on their way: watching bodies, headers, server-sent events.

pub mod headers;
pub mod sse;
pub mod tee;
