//! What a run directory is: tables, manifest, journals, units.
//!
//! Reading order: `record` (the rows), `schema` (their columns), `manifest`; `queue`, `journal` and
//! `writer` while a run goes; `parquet_file`, `join` and `close` when it ends, `resume` to go on with it; `bulk` for runs
//! that are written in one go; `tables`, `row_decode` and `reader` to read it, `totals` to add it up, `digest` to know it
//! again, `unit_tokens` to tell how long its units are.

pub mod bulk;
mod close;
pub mod digest;
mod files;
pub mod join;
mod journal;
pub mod manifest;
mod parquet_file;
mod queue;
pub mod reader;
pub mod record;
pub mod resume;
mod row_decode;
pub mod schema;
mod tables;
pub mod totals;
pub mod unit_tokens;
pub mod writer;

pub use bulk::BulkWriter;
pub use digest::TurnDigest;
pub(crate) use files::write_whole;
pub use manifest::{EngineInfo, FORMAT_VERSION, HostInfo, Manifest, RunKind};
pub use reader::Run;
pub use record::{Record, Row, Table};
pub use totals::{TurnTotals, turn_totals};
pub use unit_tokens::UnitTokens;
pub use writer::{RowReceiver, RowSender, RunWriter, row_channel};
