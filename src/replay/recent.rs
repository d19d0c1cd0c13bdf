//! What the latest answers were like: the figures of a report, over the last hundred answers in place of a
//! part of the run.
//!
//! Pure. Requests that failed have no latency here, as in the report's tables; they are counted elsewhere.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

use super::measure::{itl_ms, output_tokens_per_s};
use super::statistics::Sorted;
use crate::trace::record::{RequestRow, RequestStatus};

/// Answers that are looked at.
pub const RECENT: usize = 100;

/// Figures of the latest answers; null where none tells them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct RecentFigures {
    /// Answers that they are of, at most 100.
    pub recent_answers: u64,
    /// Time to first token, mean.
    pub recent_ttft_ms: Option<f64>,
    /// Its median.
    pub recent_ttft_p50_ms: Option<f64>,
    /// Its 95th percentile.
    pub recent_ttft_p95_ms: Option<f64>,
    /// Inter-token latency, mean.
    pub recent_itl_ms: Option<f64>,
    /// Output speed of an answer, median.
    pub recent_output_tokens_per_s_p50: Option<f64>,
    /// Its 25th percentile: three of four answers were quicker.
    pub recent_output_tokens_per_s_p25: Option<f64>,
}

/// One answer.
#[derive(Debug, Clone, Copy)]
struct Answer {
    ttft_ms: Option<f64>,
    itl_ms: Option<f64>,
    output_tokens_per_s: Option<f64>,
}

/// The latest answers.
#[derive(Debug, Clone, Default)]
pub struct Recent(VecDeque<Answer>);

impl Recent {
    /// Takes a request that has ended.
    pub fn see(&mut self, row: &RequestRow) {
        if row.status != RequestStatus::Ok {
            return;
        }
        if self.0.len() == RECENT {
            self.0.pop_front();
        }
        self.0.push_back(Answer {
            ttft_ms: row.ttft_ms,
            itl_ms: itl_ms(row),
            output_tokens_per_s: output_tokens_per_s(row),
        });
    }

    /// What they come to.
    pub fn figures(&self) -> RecentFigures {
        let sorted = |value: fn(&Answer) -> Option<f64>| {
            Sorted::of_repeated(self.0.iter().filter_map(value).map(|value| (value, 1)))
        };
        let ttft = sorted(|answer| answer.ttft_ms);
        let speed = sorted(|answer| answer.output_tokens_per_s);
        let percentile =
            |of: &Option<Sorted>, percent| of.as_ref().map(|of| of.percentile(percent));
        RecentFigures {
            recent_answers: self.0.len() as u64,
            recent_ttft_ms: ttft.as_ref().map(Sorted::mean),
            recent_ttft_p50_ms: percentile(&ttft, 50.0),
            recent_ttft_p95_ms: percentile(&ttft, 95.0),
            recent_itl_ms: sorted(|answer| answer.itl_ms).map(|itl| itl.mean()),
            recent_output_tokens_per_s_p50: percentile(&speed, 50.0),
            recent_output_tokens_per_s_p25: percentile(&speed, 25.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An answer of 11 tokens, the rest of which took a second for each ten tokens/s.
    fn answer(ttft_ms: f64, tokens_per_s: f64) -> RequestRow {
        RequestRow {
            status: RequestStatus::Ok,
            ttft_ms: Some(ttft_ms),
            last_token_ms: Some(ttft_ms + 10.0 / tokens_per_s * 1e3),
            tpot_ms: Some(1e3 / tokens_per_s),
            completion_tokens: Some(11),
            ..RequestRow::default()
        }
    }

    #[test]
    fn figures_are_of_the_last_hundred_answers() {
        let mut recent = Recent::default();
        assert_eq!(recent.figures(), RecentFigures::default());
        // Pushed out by the hundred behind it.
        recent.see(&answer(1e6, 1e-3));
        for nth in 1..=100 {
            recent.see(&answer(f64::from(nth), 50.0));
            recent.see(&RequestRow { status: RequestStatus::Failed, ..answer(9e9, 1.0) });
        }
        let figures = recent.figures();
        assert_eq!(figures.recent_answers, 100);
        assert_eq!((figures.recent_ttft_ms, figures.recent_ttft_p50_ms), (Some(50.5), Some(50.5)));
        // As numpy has it: percentile(range(1, 101), 95).
        assert!((figures.recent_ttft_p95_ms.unwrap() - 95.05).abs() < 1e-9);
        assert!((figures.recent_itl_ms.unwrap() - 20.0).abs() < 1e-9);
    }

    #[test]
    fn speeds_are_those_of_the_slow_quarter_and_the_median() {
        let mut recent = Recent::default();
        for tokens_per_s in [40.0, 10.0, 30.0, 20.0, 50.0] {
            recent.see(&answer(100.0, tokens_per_s));
        }
        let figures = recent.figures();
        let rounded = |speed: Option<f64>| speed.map(f64::round);
        assert_eq!(rounded(figures.recent_output_tokens_per_s_p25), Some(20.0));
        assert_eq!(rounded(figures.recent_output_tokens_per_s_p50), Some(30.0));
        // One token has no speed, and no TPOT.
        let single = RequestRow { completion_tokens: Some(1), tpot_ms: None, ..answer(100.0, 1.0) };
        let mut recent = Recent::default();
        recent.see(&single);
        let figures = recent.figures();
        assert_eq!((figures.recent_answers, figures.recent_ttft_ms), (1, Some(100.0)));
        assert_eq!((figures.recent_itl_ms, figures.recent_output_tokens_per_s_p50), (None, None));
    }
}
