//! Our own tables in a plain folder, as somebody published them: their rows are taken over.

use std::path::Path;

use crate::error::Result;
use crate::trace::record::{
    EngineMetricsRow, EngineSampleRow, PowerRow, ToolCallRow, TurnRow, UnitRow,
};
use crate::trace::{Record, Row, Run};

/// Hands over all rows of a folder. Those of a replay of it are not: they tell of another run.
pub(super) fn copy(folder: &Path, mut push: impl FnMut(Row) -> Result<()>) -> Result<()> {
    let run = Run::of_tables(folder)?;
    table::<UnitRow>(&run, &mut push)?;
    table::<ToolCallRow>(&run, &mut push)?;
    table::<EngineMetricsRow>(&run, &mut push)?;
    table::<EngineSampleRow>(&run, &mut push)?;
    table::<PowerRow>(&run, &mut push)?;
    table::<TurnRow>(&run, &mut push)
}

fn table<T: Record + Into<Row>>(run: &Run, push: &mut impl FnMut(Row) -> Result<()>) -> Result<()> {
    for row in run.rows::<T>()? {
        push(row?.into())?;
    }
    Ok(())
}
