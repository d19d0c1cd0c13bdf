//! Mooncake's trace: a row for each request, by arrival.

use std::path::Path;

use serde::Serialize;

use super::blocks::BlockNumbers;
use super::number::Plain;
use super::sessions::{Session, Survey, Turn};
use super::sorted_lines::SortedLines;
use super::tally::{Part, Tally};
use super::{Source, TURNS, Writer};
use crate::error::Result;

/// Tokens in a block of Mooncake's.
pub(super) const BLOCK_SIZE: u32 = 512;
/// What a row has no place for.
const LOST: [Part; 13] = [
    Part::Text,
    Part::Models,
    Part::Agents,
    Part::Sessions,
    Part::Threads,
    Part::Parents,
    Part::Kinds,
    Part::Latencies,
    Part::Waits,
    Part::Calls,
    Part::Cached,
    Part::Reasoning,
    Part::StopReasons,
];

/// What a row of either form of Mooncake needs of a turn, or why it has none.
pub(super) const NO_LENGTH: &str = "turns whose prompt tokens are not known";

#[derive(Debug, Serialize)]
struct Row {
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Plain>,
    input_length: u64,
    output_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_ids: Option<Vec<u64>>,
}

pub(super) struct Mooncake<'a> {
    rows: SortedLines,
    blocks: BlockNumbers,
    survey: &'a Survey,
}

impl<'a> Mooncake<'a> {
    pub(super) fn new(source: &'a Source<'_>, out: &Path, tally: &mut Tally) -> Result<Self> {
        let blocks = source.blocks(BLOCK_SIZE, tally)?;
        Ok(Self { rows: SortedLines::create(out)?, blocks, survey: &source.survey })
    }
}

impl Writer for Mooncake<'_> {
    fn session(&mut self, session: &Session, tally: &mut Tally) -> Result<()> {
        tally.without(session, &LOST);
        for thread in &session.threads {
            for turn in &thread.turns {
                let Some(input_length) = turn.row.isl else {
                    tally.left_out(NO_LENGTH);
                    continue;
                };
                let hash_ids = self.blocks.of(&turn.row);
                tally.wrote(1, TURNS);
                tally.wrote(usize::from(hash_ids.is_some()), "with_block_hashes");
                let row = Row {
                    timestamp: timestamp(turn, self.survey),
                    input_length,
                    output_length: turn.row.osl,
                    hash_ids,
                };
                let place = turn.request.or(thread.begun()).unwrap_or_default();
                self.rows.line(place, &row)?;
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.rows.publish()
    }
}

/// Milliseconds after the first request of the run.
pub(super) fn timestamp(turn: &Turn, survey: &Survey) -> Option<Plain> {
    turn.request.map(|time| Plain(survey.ms_after_start(time)))
}
