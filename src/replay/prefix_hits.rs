//! The prefix hit rate, three times side by side: as the recording plans it, as the responses' usage
//! tells it, as the engine's counters tell it.
//!
//! Pure. The plan counts what a request shares with its thread's earlier turns and, as far as the
//! run's cache sharing lets it, with what other threads and trajectories had sent before it, in a cache
//! that forgets nothing. A disagreement above 2 points is flagged: a cache that is too small, requests
//! that came before what they share was computed, hits left by another run, or salts that fail.

use serde::{Deserialize, Serialize};

use super::engine_figures::EngineFigures;
use crate::trace::record::{RequestRow, RequestStatus};

/// Percentage points above which two figures disagree.
const TOLERANCE_POINTS: f64 = 2.0;

/// Prompt tokens served from cache, in percent of prompt tokens; null where a figure is not known.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PrefixHits {
    /// From the recording's units and the run's cache sharing, in recorded tokens.
    pub planned_pct: Option<f64>,
    /// From the responses' usage, over the requests that tell it.
    pub usage_pct: Option<f64>,
    /// From the engine's counters, over the run.
    pub engine_pct: Option<f64>,
    /// Two of the figures are more than 2 points apart.
    pub disagree: bool,
}

/// The figures of a run.
pub fn prefix_hits(requests: &[RequestRow], engine: Option<&EngineFigures>) -> PrefixHits {
    let ok = || requests.iter().filter(|row| row.status == RequestStatus::Ok);
    let planned_pct =
        percent(ok().filter_map(|row| row.planned_cached_tokens.zip(row.planned_prompt_tokens)));
    let usage_pct = percent(ok().filter_map(|row| row.cached_tokens.zip(row.prompt_tokens)));
    let engine_pct = engine.and_then(|figures| {
        let prompt = figures.prompt_tokens.filter(|prompt| *prompt > 0.0)?;
        let cached = figures.cached_tokens? + figures.external_cached_tokens.unwrap_or_default();
        Some(cached / prompt * 100.0)
    });
    let known: Vec<f64> = [planned_pct, usage_pct, engine_pct].into_iter().flatten().collect();
    let spread = known.iter().copied().fold(f64::MIN, f64::max)
        - known.iter().copied().fold(f64::MAX, f64::min);
    let disagree = known.len() > 1 && spread > TOLERANCE_POINTS;
    PrefixHits { planned_pct, usage_pct, engine_pct, disagree }
}

/// Cached over whole, both summed, in percent.
fn percent(pairs: impl Iterator<Item = (u64, u64)>) -> Option<f64> {
    let (cached, whole) =
        pairs.fold((0, 0), |(cached, whole), pair| (cached + pair.0, whole + pair.1));
    (whole > 0).then(|| cached as f64 / whole as f64 * 100.0)
}

impl PrefixHits {
    /// What a reader must know about them.
    pub fn notes(&self) -> Option<String> {
        let show = |pct: Option<f64>| pct.map_or("unknown".to_owned(), |pct| format!("{pct:.1} %"));
        self.disagree.then(|| {
            format!(
                "prefix hit rates disagree by more than {TOLERANCE_POINTS:.0} points: planned {}, \
                 usage {}, engine {}",
                show(self.planned_pct),
                show(self.usage_pct),
                show(self.engine_pct)
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(planned: Option<u64>, isl: Option<u64>, cached: Option<u64>) -> RequestRow {
        RequestRow {
            planned_cached_tokens: planned,
            planned_prompt_tokens: isl,
            cached_tokens: cached,
            prompt_tokens: Some(1000),
            ..RequestRow::default()
        }
    }

    #[track_caller]
    fn check(
        rows: &[RequestRow],
        engine: Option<&EngineFigures>,
        expected: [Option<f64>; 3],
        disagree: bool,
    ) {
        let hits = prefix_hits(rows, engine);
        assert_eq!([hits.planned_pct, hits.usage_pct, hits.engine_pct], expected);
        assert_eq!(hits.disagree, disagree);
        assert_eq!(hits.notes().is_some(), disagree);
    }

    #[test]
    fn three_figures_stand_side_by_side() {
        let engine = |cached, external| EngineFigures {
            prompt_tokens: Some(2000.0),
            cached_tokens: Some(cached),
            external_cached_tokens: external,
            ..EngineFigures::default()
        };
        let rows = [row(Some(0), Some(500), Some(0)), row(Some(500), Some(500), Some(990))];
        let agree = [Some(50.0), Some(49.5), Some(50.0)];
        check(&rows, Some(&engine(990.0, Some(10.0))), agree, false);
        let apart = [Some(50.0), Some(49.5), Some(52.0)];
        check(&rows, Some(&engine(1040.0, None)), apart, true);
    }

    #[test]
    fn what_is_not_told_is_null_and_disagrees_with_nothing() {
        check(&[row(Some(0), None, None)], None, [None, None, None], false);
        check(&[row(Some(400), Some(500), None)], None, [Some(80.0), None, None], false);
        // Usage that tells its cache for one request of two counts that one alone.
        let rows = [row(None, None, Some(500)), row(None, None, None)];
        check(&rows, None, [None, Some(50.0), None], false);
    }
}
