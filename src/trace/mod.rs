//! What a run directory is: tables, manifest, journals, units.

pub mod manifest;
pub mod reader;
pub mod record;

pub mod totals;
pub mod writer;

pub use manifest::{EngineInfo, FORMAT_VERSION, HostInfo, Manifest, RunKind};
pub use reader::Run;
pub use record::{Record, Row, Table};
pub use totals::{TurnTotals, turn_totals};
pub use writer::{RowSender, RunWriter};
