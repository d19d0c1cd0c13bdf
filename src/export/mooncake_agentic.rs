//! Mooncake's form for agents: what each request waits for, how long, and which tools ran meanwhile.
//!
//! A request waits for the turn before it, and for subagents that ended before it; a subagent's first
//! request waits for the request that had ended before. After the last of these ends come `delay` and
//! `tool_wait_ms`, the union of the tools' spans. Tools stand in the row that brought their results.

use std::collections::HashMap;
use std::path::Path;

use serde::Serialize;

use super::blocks::BlockNumbers;
use super::mooncake::{BLOCK_SIZE, NO_LENGTH, timestamp};
use super::number::Plain;
use super::sessions::{Session, Survey, Turn, round_ms};
use super::sorted_lines::SortedLines;
use super::tally::{Part, Tally};
use super::{Source, TURNS, Writer};
use crate::error::Result;
use crate::trace::record::ToolCallRow;

const LOST: [Part; 8] = [
    Part::Text,
    Part::Models,
    Part::Agents,
    Part::Kinds,
    Part::Latencies,
    Part::Cached,
    Part::Reasoning,
    Part::StopReasons,
];

#[derive(Debug, Serialize)]
struct Row<'a> {
    request_id: &'a str,
    session_id: &'a str,
    input_length: u64,
    output_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    hash_ids: Option<Vec<u64>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<Plain>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay: Option<Plain>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    wait_for: Vec<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    branches: Vec<&'a str>,
    prefix_reset: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    tool_wait_ms: Option<Plain>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_events: Vec<ToolEvent<'a>>,
}

#[derive(Debug, Serialize)]
struct ToolEvent<'a> {
    tool_call_id: &'a str,
    tool_class: &'a str,
    started_at_unix_ms: u64,
    ended_at_unix_ms: u64,
    duration_ms: Plain,
    status: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    output_bytes: Option<u64>,
}

/// A turn of a session, by thread and place.
type Place = (usize, usize);

/// What waits for what in a session.
#[derive(Debug, Default)]
struct Links {
    /// Subagents' last requests that a turn came after.
    joins: HashMap<Place, Vec<Place>>,
    /// Subagents' first requests that were made after a turn.
    branches: HashMap<Place, Vec<Place>>,
    /// The turn that a subagent's first request was made after, by thread.
    spawned_by: HashMap<usize, Place>,
}

impl Links {
    fn of(session: &Session) -> Self {
        let mut links = Self::default();
        for (child, thread) in session.threads.iter().enumerate() {
            let of_id = |other: &super::sessions::Thread| Some(&other.id) == thread.parent.as_ref();
            let parent = session.threads.iter().position(of_id).filter(|parent| *parent != child);
            let (Some(parent), Some(begun)) = (parent, thread.begun()) else { continue };
            let of_parent = || session.threads[parent].turns.iter().enumerate();
            let before = of_parent().filter(|(_, turn)| turn.end().is_some_and(|end| end <= begun));
            let spawn =
                before.max_by(|a, b| a.1.end().unwrap_or(0.0).total_cmp(&b.1.end().unwrap_or(0.0)));
            if let Some((turn, _)) = spawn {
                links.branches.entry((parent, turn)).or_default().push((child, 0));
                links.spawned_by.insert(child, (parent, turn));
            }
            let ended =
                thread.turns.iter().enumerate().filter_map(|(at, turn)| Some((at, turn.end()?)));
            let Some((last, ended)) = ended.max_by(|a, b| a.1.total_cmp(&b.1)) else { continue };
            let after = |turn: &Turn| {
                turn.request.is_some_and(|request| request >= ended && request > begun)
            };
            if let Some((join, _)) = of_parent().find(|(at, turn)| *at > 0 && after(turn)) {
                links.joins.entry((parent, join)).or_default().push((child, last));
            }
        }
        links
    }

    /// The requests that one waits for, the turn before it first.
    fn waits_for(&self, place: Place) -> Vec<Place> {
        let before = place.1.checked_sub(1).map(|before| (place.0, before));
        let spawn = self.spawned_by.get(&place.0).copied().filter(|_| place.1 == 0);
        let joins = self.joins.get(&place).into_iter().flatten().copied();
        before.or(spawn).into_iter().chain(joins).collect()
    }
}

pub(super) struct MooncakeAgentic<'a> {
    rows: SortedLines,
    blocks: BlockNumbers,
    survey: &'a Survey,
}

impl<'a> MooncakeAgentic<'a> {
    pub(super) fn new(source: &'a Source<'_>, out: &Path, tally: &mut Tally) -> Result<Self> {
        let blocks = source.blocks(BLOCK_SIZE, tally)?;
        Ok(Self { rows: SortedLines::create(out)?, blocks, survey: &source.survey })
    }

    fn row<'b>(
        &mut self,
        session: &'b Session,
        name: &'b str,
        (links, place): (&Links, Place),
        tally: &mut Tally,
    ) -> Option<Row<'b>> {
        let turn_at = |(thread, at): Place| &session.threads[thread].turns[at];
        let ids = |places: &[Place]| {
            places.iter().map(|at| turn_at(*at).row.request_id.as_str()).collect()
        };
        let turn = turn_at(place);
        let Some(input_length) = turn.row.isl else {
            tally.left_out(NO_LENGTH);
            return None;
        };
        let waits_for = links.waits_for(place);
        let calls =
            place.1.checked_sub(1).map_or(&[][..], |before| &turn_at((place.0, before)).calls);
        let ends = waits_for.iter().filter_map(|place| turn_at(*place).end());
        let from = ends.max_by(f64::total_cmp);
        let gap_ms = gap_ms(turn, from, waits_for.len());
        let tool_wait_ms =
            gap_ms.and_then(|gap_ms| tool_wait_ms(calls, from, turn.request, gap_ms));
        let tool_events: Vec<ToolEvent<'b>> = calls.iter().filter_map(tool_event).collect();
        for _ in tool_events.len()..calls.len() {
            tally.left_out("tool calls whose times are not known");
        }
        tally.wrote(tool_events.len(), "tool_calls");
        let hash_ids = self.blocks.of(&turn.row);
        tally.wrote(usize::from(hash_ids.is_some()), "with_block_hashes");
        Some(Row {
            request_id: &turn.row.request_id,
            session_id: name,
            input_length,
            output_length: turn.row.osl,
            hash_ids,
            timestamp: timestamp(turn, self.survey),
            delay: gap_ms.map(|gap_ms| Plain(round_ms(gap_ms - tool_wait_ms.unwrap_or_default()))),
            wait_for: ids(&waits_for),
            branches: ids(links.branches.get(&place).map_or(&[], Vec::as_slice)),
            prefix_reset: place.1 == 0,
            tool_wait_ms: tool_wait_ms.map(|ms| Plain(round_ms(ms))),
            tool_events,
        })
    }
}

impl Writer for MooncakeAgentic<'_> {
    fn session(&mut self, session: &Session, tally: &mut Tally) -> Result<()> {
        tally.without(session, &LOST);
        let links = Links::of(session);
        for (thread_at, thread) in session.threads.iter().enumerate() {
            let name = session.thread_name(thread_at);
            if name != session.id && !links.spawned_by.contains_key(&thread_at) {
                tally.left_out("further conversations' links to their sessions");
            }
            for (at, turn) in thread.turns.iter().enumerate() {
                let Some(row) = self.row(session, &name, (&links, (thread_at, at)), tally) else {
                    continue;
                };
                tally.wrote(1, TURNS);
                let place = turn.request.or(thread.begun()).unwrap_or_default();
                self.rows.line(place, &row)?;
            }
            for _ in thread.turns.last().iter().flat_map(|last| &last.calls) {
                tally.left_out("tool calls after which no request came");
            }
        }
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<u64> {
        self.rows.publish()
    }
}

/// From the end of the last request that one waits for to itself; none where that is not known, or there is
/// nothing that it waits for.
fn gap_ms(turn: &Turn, from: Option<f64>, n_waits_for: usize) -> Option<f64> {
    if n_waits_for == 1 && turn.row.tool_exec_ms.is_some() {
        return turn.row.tool_exec_ms;
    }
    let gap_ms = (turn.request? - from?) * 1e3;
    (n_waits_for > 0).then_some(gap_ms.max(0.0))
}

/// The time within the wait in which a tool ran: the union of their spans. One tool of which only the length
/// is known ran for that long; of several such nothing follows.
fn tool_wait_ms(
    calls: &[ToolCallRow],
    from: Option<f64>,
    to: Option<f64>,
    gap_ms: f64,
) -> Option<f64> {
    let spans = calls.iter().map(|call| Some((known(call.emitted_time)?, call.result_time?)));
    let (Some(spans), Some(from), Some(to)) = (spans.collect::<Option<Vec<_>>>(), from, to) else {
        return match calls {
            [call] => call.wire_ms.map(|ms| ms.min(gap_ms)),
            _ => None,
        };
    };
    let clipped = spans.into_iter().map(|(start, end)| (start.max(from), end.min(to)));
    let ms = union_s(clipped.collect()) * 1e3;
    (ms > 0.0).then_some(ms.min(gap_ms))
}

/// The length of what spans cover together.
pub(super) fn union_s(mut spans: Vec<(f64, f64)>) -> f64 {
    // Those that lay outside are empty once they are cut.
    spans.retain(|(start, end)| end > start);
    spans.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (mut total, mut covered) = (0.0, f64::NEG_INFINITY);
    for (start, end) in spans {
        if end > covered {
            total += end - start.max(covered);
            covered = end;
        }
    }
    total
}

fn tool_event(call: &ToolCallRow) -> Option<ToolEvent<'_>> {
    let (started, ended) = (known(call.emitted_time)?, call.result_time?);
    let unix_ms = |time: f64| (time * 1e3).round().max(0.0) as u64;
    Some(ToolEvent {
        tool_call_id: &call.call_id,
        tool_class: &call.name,
        started_at_unix_ms: unix_ms(started),
        ended_at_unix_ms: unix_ms(ended),
        duration_ms: Plain(round_ms(call.wire_ms.unwrap_or((ended - started) * 1e3))),
        status: match call.is_error {
            Some(true) => "error",
            Some(false) => "succeeded",
            None => "unknown",
        },
        output_bytes: call.result_bytes,
    })
}

/// A call's time is 0 where nothing tells it.
fn known(time: f64) -> Option<f64> {
    (time != 0.0).then_some(time)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlapping_tools_are_waited_for_once() {
        for (spans, expected) in [
            (vec![], 0.0),
            (vec![(1.0, 3.0)], 2.0),
            (vec![(1.0, 3.0), (2.0, 5.0)], 4.0),
            (vec![(2.0, 3.0), (1.0, 5.0)], 4.0),
            (vec![(6.0, 7.5), (1.0, 2.0)], 2.5),
            // Empty once it is cut to the wait.
            (vec![(4.0, 3.0), (1.0, 2.0)], 1.0),
        ] {
            assert!((union_s(spans.clone()) - expected).abs() < 1e-12, "{spans:?}");
        }
    }

    #[test]
    fn the_tool_wait_lies_within_the_wait() {
        let call = |emitted: f64, result: Option<f64>, wire_ms: Option<f64>| ToolCallRow {
            emitted_time: emitted,
            result_time: result,
            wire_ms,
            ..ToolCallRow::default()
        };
        let timed = [call(9.0, Some(11.0), None), call(10.5, Some(14.0), None)];
        assert_eq!(tool_wait_ms(&timed, Some(10.0), Some(13.0), 3_000.0), Some(3_000.0));
        assert_eq!(tool_wait_ms(&timed[..1], Some(10.0), Some(13.0), 3_000.0), Some(1_000.0));
        assert_eq!(tool_wait_ms(&[], Some(10.0), Some(13.0), 3_000.0), None);
        let untimed = [call(0.0, None, Some(700.0)), call(0.0, None, Some(900.0))];
        assert_eq!(tool_wait_ms(&untimed[..1], None, None, 3_000.0), Some(700.0));
        assert_eq!(tool_wait_ms(&untimed[..1], None, None, 500.0), Some(500.0));
        assert_eq!(tool_wait_ms(&untimed, None, None, 3_000.0), None);
    }
}
