//! `TraceLab`'s replayer workloads: a row of CSV for each round.

use std::path::Path;

use super::number::Plain;
use super::sessions::{Session, Survey};
use super::tally::{Part, Tally};
use super::{Source, TURNS, Writer};
use crate::error::{Error, Result};
use crate::out_file::OutFile;

const HEADER: &str =
    "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms\n";
const LOST: [Part; 11] = [
    Part::Text,
    Part::Models,
    Part::Agents,
    Part::Threads,
    Part::Parents,
    Part::Kinds,
    Part::Latencies,
    Part::Calls,
    Part::Reasoning,
    Part::Blocks,
    Part::StopReasons,
];

pub(super) struct Workload<'a> {
    file: OutFile,
    survey: &'a Survey,
}

impl<'a> Workload<'a> {
    pub(super) fn new(source: &'a Source<'_>, out: &Path) -> Result<Self> {
        let mut file = OutFile::create(out)?;
        file.write(HEADER.as_bytes())?;
        Ok(Self { file, survey: &source.survey })
    }
}

impl Writer for Workload<'_> {
    fn session(&mut self, session: &Session, tally: &mut Tally) -> Result<()> {
        tally.without(session, &LOST);
        for (place, thread) in session.threads.iter().enumerate() {
            let name = session.thread_name(place);
            let arrival = thread.begun().map(|time| self.survey.ms_after_start(time));
            let mut round = 0_usize;
            for (at, turn) in thread.turns.iter().enumerate() {
                let row = &turn.row;
                let (Some(isl), Some(cached), Some(osl)) = (row.isl, row.isl_cached, row.osl)
                else {
                    tally.left_out("turns whose prompt, cached or output tokens are not known");
                    continue;
                };
                // Of the last round there is nothing after; 0 is what the format says then.
                let wait_ms = match thread.turns.get(at + 1) {
                    Some(_) => thread.wait_after_ms(at).map(plain),
                    None => Some("0".to_owned()),
                };
                let prefix = cached.min(isl);
                let fields = [
                    name.clone(),
                    arrival.map(plain).unwrap_or_default(),
                    round.to_string(),
                    prefix.to_string(),
                    (isl - prefix).to_string(),
                    osl.to_string(),
                    wait_ms.unwrap_or_default(),
                ];
                self.file.write(&record(&fields)?)?;
                tally.wrote(1, TURNS);
                round += 1;
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.file.publish()
    }
}

fn plain(number: f64) -> String {
    serde_json::to_string(&Plain(number)).unwrap_or_default()
}

fn record(fields: &[String]) -> Result<Vec<u8>> {
    let odd =
        |error: &dyn std::fmt::Display| Error::Internal(format!("a row that is not CSV: {error}"));
    let mut writer = csv::WriterBuilder::new().has_headers(false).from_writer(Vec::new());
    writer.write_record(fields).map_err(|error| odd(&error))?;
    writer.into_inner().map_err(|error| odd(&error))
}
