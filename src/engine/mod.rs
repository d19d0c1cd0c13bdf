//! The engine seen from outside: its metrics page, polled, and its control endpoints.
//!
//! `http::scrape` reads the text format, `catalog` knows each engine's names, `snapshot` is one page read
//! through it, `delta` what two of them say about the requests between;
//! these are pure. `poll` fetches the page every 100 ms, `control` asks the engine what it is and what
//! it honours, both by way of `http::client`. What an agent says to the engine passes through `capture`.

pub mod catalog;
#[cfg(test)]
mod catalog_tests;
pub mod control;
pub mod delta;
pub mod poll;
pub mod snapshot;

pub use catalog::{EngineKind, Quantity};
pub use control::Control;
pub use delta::{CompletionTracker, ScrapeTimes, sample_row};
pub use poll::{EngineGauges, PollConfig, PollStats, Poller};
pub use snapshot::{PageError, Snapshot, detect};
