//! Which row of `engine_metrics` a captured turn belongs to.
//!
//! The engine's metrics page does not name requests: a tick says how many completed since the tick
//! before, and their mean token counts. A turn belongs to a tick by time and by those counts. Pure:
//! values in, links out.

use std::sync::Arc;

use super::record::{EngineJoin, Outcome};

/// What is known of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnEnd {
    /// The engine that it went to; none where the recording does not tell.
    pub engine: Option<Arc<str>>,
    /// End of its response.
    pub end_time: Option<f64>,
    /// How it ended: the engine counts only what it answered.
    pub outcome: Outcome,
    /// Prompt tokens.
    pub isl: Option<u64>,
    /// Output tokens.
    pub osl: Option<u64>,
}

/// What is known of a row of `engine_metrics`.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// The engine.
    pub engine: Arc<str>,
    /// Start of the scrape that saw the completions.
    pub ts: f64,
    /// End of that scrape.
    pub window_end: f64,
    /// Completions.
    pub n: u64,
    /// Their mean prompt tokens.
    pub isl: Option<f64>,
    /// Their mean output tokens.
    pub osl: Option<f64>,
    /// Scrapes that failed since the completion before.
    pub scrapes_missed: u64,
}

/// A turn's row of `engine_metrics`, and how sure that is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Link {
    /// The row's index.
    pub row: Option<u64>,
    /// How sure.
    pub join: EngineJoin,
}

/// Links every turn, in the order given, to one of `ticks` (in table order, of each engine times rising).
/// A turn of one engine is never linked to a tick of another.
///
/// A turn may belong to the ticks whose scrape began at most `interval_s` before its end (the engine
/// counts a request before its last byte has come through the proxy) and at most two intervals after
/// it (a full one until the next scrape, one of slack); scrapes that failed widen that. `Exact`: one
/// completion, and both token counts are the turn's. `Shared`: several completions; turns whose
/// counts sum up to the tick's are taken first, then those nearest in time, never more than `n`.
pub fn link_turns(turns: &[TurnEnd], ticks: &[Tick], interval_s: f64) -> Vec<Link> {
    let mut linking = Linking::new(turns, ticks, interval_s);
    linking.link_exact();
    linking.link_sums();
    linking.link_by_time();
    linking.links
}

struct Linking<'a> {
    turns: &'a [TurnEnd],
    ticks: &'a [Tick],
    interval_s: f64,
    /// Turns that the engine counted, by end of response.
    by_end: Vec<(f64, usize)>,
    /// Completions of each tick that no turn has yet.
    room: Vec<u64>,
    links: Vec<Link>,
}

impl<'a> Linking<'a> {
    fn new(turns: &'a [TurnEnd], ticks: &'a [Tick], interval_s: f64) -> Self {
        let mut by_end: Vec<(f64, usize)> = turns
            .iter()
            .enumerate()
            .filter(|(_, turn)| turn.outcome == Outcome::Ok)
            .filter_map(|(index, turn)| Some((turn.end_time?, index)))
            .collect();
        by_end.sort_by(|left, right| left.0.total_cmp(&right.0));
        Self {
            turns,
            ticks,
            interval_s,
            by_end,
            room: ticks.iter().map(|tick| tick.n).collect(),
            links: vec![Link::default(); turns.len()],
        }
    }

    /// Turns without a link that may belong to a tick by time, by end of response.
    fn candidates(&self, tick: &Tick) -> Vec<(f64, usize)> {
        let from = tick.ts - self.interval_s * (2 + tick.scrapes_missed) as f64;
        let to = tick.ts.max(tick.window_end) + self.interval_s;
        let first = self.by_end.partition_point(|(end, _)| *end < from);
        self.by_end[first..]
            .iter()
            .take_while(|(end, _)| *end <= to)
            .filter(|(_, turn)| self.links[*turn].row.is_none())
            .filter(|(_, turn)| {
                self.turns[*turn].engine.as_ref().is_none_or(|engine| *engine == tick.engine)
            })
            .copied()
            .collect()
    }

    fn link(&mut self, turn: usize, tick: usize, join: EngineJoin) {
        self.links[turn] = Link { row: Some(tick as u64), join };
        self.room[tick] -= 1;
    }

    /// Ticks of one completion: the turn with its counts, the nearest pair first where several fit.
    fn link_exact(&mut self) {
        let mut pairs = Vec::new();
        for (row, tick) in self.ticks.iter().enumerate().filter(|(_, tick)| tick.n == 1) {
            for (end, turn) in self.candidates(tick) {
                if counts_match(tick, &[&self.turns[turn]]) {
                    pairs.push((distance(tick, end), turn, row));
                }
            }
        }
        pairs.sort_by(|left, right| left.0.total_cmp(&right.0));
        for (_, turn, row) in pairs {
            if self.links[turn].row.is_none() && self.room[row] > 0 {
                self.link(turn, row, EngineJoin::Exact);
            }
        }
    }

    /// Ticks of several completions: `n` turns in a row whose counts sum up to the tick's.
    fn link_sums(&mut self) {
        for row in self.shared_ticks() {
            let tick = &self.ticks[row];
            let candidates = self.candidates(tick);
            let found = candidates.windows(tick.n as usize).find(|group| {
                let turns: Vec<&TurnEnd> =
                    group.iter().map(|(_, turn)| &self.turns[*turn]).collect();
                counts_match(tick, &turns)
            });
            for (_, turn) in found.unwrap_or_default().to_vec() {
                self.link(turn, row, EngineJoin::Shared);
            }
        }
    }

    /// What is left, by time alone.
    fn link_by_time(&mut self) {
        for row in self.shared_ticks() {
            let tick = &self.ticks[row];
            let mut candidates = self.candidates(tick);
            candidates
                .sort_by(|left, right| distance(tick, left.0).total_cmp(&distance(tick, right.0)));
            candidates.truncate(self.room[row] as usize);
            for (_, turn) in candidates {
                self.link(turn, row, EngineJoin::Shared);
            }
        }
    }

    fn shared_ticks(&self) -> Vec<usize> {
        (0..self.ticks.len()).filter(|row| self.ticks[*row].n > 1 && self.room[*row] > 0).collect()
    }
}

/// How far a response's end lies from where a tick expects it: before the scrape's end.
fn distance(tick: &Tick, end: f64) -> f64 {
    (tick.ts.max(tick.window_end) - end).abs()
}

/// Whether the turns are as many as the tick's completions and have its token counts.
fn counts_match(tick: &Tick, turns: &[&TurnEnd]) -> bool {
    let total = |count: fn(&TurnEnd) -> Option<u64>| {
        turns.iter().map(|turn| count(turn)).sum::<Option<u64>>()
    };
    let matches = |mean: Option<f64>, total: Option<u64>| match (mean, total) {
        (Some(mean), Some(total)) => (mean * tick.n as f64 - total as f64).abs() < 0.5,
        _ => false,
    };
    turns.len() as u64 == tick.n
        && matches(tick.isl, total(|turn| turn.isl))
        && matches(tick.osl, total(|turn| turn.osl))
}

#[cfg(test)]
mod tests {
    use super::*;
    use EngineJoin::{Exact, None as NoJoin, Shared};

    fn turn(end_time: f64, isl: u64, osl: u64) -> TurnEnd {
        let (isl, osl) = (Some(isl), Some(osl));
        TurnEnd { engine: None, end_time: Some(end_time), outcome: Outcome::Ok, isl, osl }
    }

    fn turn_of(engine: &str, end_time: f64, isl: u64, osl: u64) -> TurnEnd {
        TurnEnd { engine: Some(engine.into()), ..turn(end_time, isl, osl) }
    }

    fn tick(ts: f64, n: u64, isl: f64, osl: f64) -> Tick {
        let (isl, osl) = (Some(isl), Some(osl));
        let window_end = ts + 0.005;
        Tick { engine: "a".into(), ts, window_end, n, isl, osl, scrapes_missed: 0 }
    }

    fn check(name: &str, turns: &[TurnEnd], ticks: &[Tick], want: &[(Option<u64>, EngineJoin)]) {
        let got: Vec<_> =
            link_turns(turns, ticks, 0.1).iter().map(|link| (link.row, link.join)).collect();
        assert_eq!(got, want, "{name}");
    }

    #[test]
    fn single_completions() {
        let one = [tick(10.0, 1, 100.0, 7.0)];
        check("ends before the scrape", &[turn(9.95, 100, 7)], &one, &[(Some(0), Exact)]);
        check("ends just after it", &[turn(10.04, 100, 7)], &one, &[(Some(0), Exact)]);
        check("a tick late", &[turn(9.85, 100, 7)], &one, &[(Some(0), Exact)]);
        check("too early", &[turn(9.5, 100, 7)], &one, &[(None, NoJoin)]);
        check("too late", &[turn(10.3, 100, 7)], &one, &[(None, NoJoin)]);
        check("another output", &[turn(9.95, 100, 8)], &one, &[(None, NoJoin)]);
        let unknown = TurnEnd { isl: None, ..turn(9.95, 100, 7) };
        check("counts unknown", &[unknown], &one, &[(None, NoJoin)]);
        let blind = [Tick { osl: None, ..one[0].clone() }];
        check("tick without counts", &[turn(9.95, 100, 7)], &blind, &[(None, NoJoin)]);
        let refused = TurnEnd { outcome: Outcome::HttpError, ..turn(9.95, 100, 7) };
        check("never reached the engine", &[refused], &one, &[(None, NoJoin)]);
        let endless = TurnEnd { end_time: None, ..turn(9.95, 100, 7) };
        check("no end", &[endless], &one, &[(None, NoJoin)]);
        let after_gap = [Tick { scrapes_missed: 10, ..one[0].clone() }];
        check("scrapes failed between", &[turn(9.0, 100, 7)], &after_gap, &[(Some(0), Exact)]);
        check("no ticks", &[turn(9.95, 100, 7)], &[], &[(None, NoJoin)]);
    }

    #[test]
    fn a_tick_is_used_once() {
        let ticks = [tick(10.0, 1, 100.0, 7.0), tick(10.1, 1, 100.0, 7.0)];
        let twins = [turn(10.08, 100, 7), turn(9.98, 100, 7)];
        check("twins, unsorted", &twins, &ticks, &[(Some(1), Exact), (Some(0), Exact)]);
        let three = [turn(9.98, 100, 7), turn(10.08, 100, 7), turn(10.07, 100, 7)];
        let want = [(Some(0), Exact), (Some(1), Exact), (None, NoJoin)];
        check("one more than completions", &three, &ticks, &want);
    }

    #[test]
    fn several_completions() {
        let two = [tick(10.0, 2, 150.0, 10.0)];
        let pair = [turn(9.96, 100, 5), turn(9.97, 200, 15)];
        check("sum matches", &pair, &two, &[(Some(0), Shared), (Some(0), Shared)]);
        let with_next = [turn(9.93, 100, 5), turn(9.95, 200, 15), turn(10.02, 900, 1)];
        let want = [(Some(0), Shared), (Some(0), Shared), (None, NoJoin)];
        check("the sum decides at the edge", &with_next, &two, &want);
        let unknown = [turn(9.96, 100, 5), TurnEnd { osl: None, ..turn(9.97, 0, 0) }];
        check("by time alone", &unknown, &two, &[(Some(0), Shared), (Some(0), Shared)]);
        let alone = [turn(9.97, 100, 5)];
        check("the other one was not captured", &alone, &two, &[(Some(0), Shared)]);
        let far = [turn(9.0, 100, 5)];
        check("not by time", &far, &two, &[(None, NoJoin)]);
    }

    #[test]
    fn engines_are_never_mixed() {
        let other = |tick: Tick| Tick { engine: "b".into(), ..tick };
        let ticks = [tick(10.0, 1, 100.0, 7.0), other(tick(10.0, 1, 100.0, 7.0))];
        let turns = [turn_of("b", 9.99, 100, 7), turn_of("a", 9.98, 100, 7)];
        check("equal counts", &turns, &ticks, &[(Some(1), Exact), (Some(0), Exact)]);
        let turns = [turn_of("b", 9.99, 100, 7), turn_of("b", 9.98, 100, 7)];
        check("one engine's alone", &turns, &ticks, &[(Some(1), Exact), (None, NoJoin)]);
        let ticks = [tick(10.0, 2, 150.0, 10.0), other(tick(10.0, 2, 150.0, 10.0))];
        let turns = [turn_of("a", 9.96, 100, 5), turn_of("b", 9.97, 200, 15)];
        check("sums of both", &turns, &ticks, &[(Some(0), Shared), (Some(1), Shared)]);
    }

    #[test]
    fn exact_comes_before_shared() {
        let ticks = [tick(10.0, 1, 100.0, 7.0), tick(10.1, 2, 150.0, 10.0)];
        let turns = [turn(9.99, 100, 7), turn(10.05, 100, 5), turn(10.06, 200, 15)];
        let want = [(Some(0), Exact), (Some(1), Shared), (Some(1), Shared)];
        check("mixed", &turns, &ticks, &want);
    }
}
