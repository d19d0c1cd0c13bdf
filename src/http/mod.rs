//! Bytes on their way: listening, watching bodies, chunked framing, headers, server-sent events; metrics pages and
//! the plain client that fetches them.

pub(crate) mod chunks;
pub(crate) mod client;
pub mod headers;
pub mod listen;
pub mod scrape;
pub mod sse;
pub mod tee;
