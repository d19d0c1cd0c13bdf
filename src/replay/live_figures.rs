//! What became of the recorded answers in a run with live content.
//!
//! Pure; every figure is a sum over columns of `requests`, which say what each counts.

use serde::{Deserialize, Serialize};

use crate::trace::record::RequestRow;

/// Sums over all requests sent.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LiveFigures {
    /// Answers of the engine in the requests' histories.
    pub live_answers: u64,
    /// Recorded answers in the requests' histories.
    pub recorded_answers: u64,
    /// The former in percent of both; null where no request had a history.
    pub live_pct: Option<f64>,
    /// Recorded tool results sent as user text.
    pub results_as_text: u64,
    /// Calls of the engine that got an error result.
    pub calls_unanswered: u64,
    /// Recorded results that stand after a call of another tool.
    pub results_of_other_tools: u64,
    /// Calls of the engine whose arguments were no JSON object.
    pub arguments_malformed: u64,
}

/// The figures of a run; none where its content was not live.
pub fn live_figures(requests: &[RequestRow]) -> Option<LiveFigures> {
    let sum = |column: fn(&RequestRow) -> Option<u32>| -> u64 {
        requests.iter().filter_map(column).map(u64::from).sum()
    };
    requests.iter().any(|row| row.live_answers.is_some()).then(|| {
        let live = sum(|row| row.live_answers);
        let recorded = sum(|row| row.recorded_answers);
        let all = live + recorded;
        LiveFigures {
            live_answers: live,
            recorded_answers: recorded,
            live_pct: (all > 0).then(|| live as f64 / all as f64 * 100.0),
            results_as_text: sum(|row| row.live_results_as_text),
            calls_unanswered: sum(|row| row.live_calls_unanswered),
            results_of_other_tools: sum(|row| row.live_results_of_other_tools),
            arguments_malformed: sum(|row| row.live_arguments_malformed),
        }
    })
}

impl LiveFigures {
    /// What a reader must know of them; nothing where every answer fitted the recording.
    pub fn note(&self) -> Option<String> {
        let departures = [
            (self.recorded_answers, "answers of the histories stayed as recorded"),
            (self.results_as_text, "recorded tool results had no call and were sent as user text"),
            (self.calls_unanswered, "calls had no recorded result and got an error as theirs"),
            (self.results_of_other_tools, "results followed a call of another tool"),
            (self.arguments_malformed, "calls had arguments that are no JSON object"),
        ];
        let told: Vec<String> = departures
            .iter()
            .filter(|(n, _)| *n > 0)
            .map(|(n, what)| format!("{n} {what}"))
            .collect();
        (!told.is_empty()).then(|| format!("content live: {}", told.join("; ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(live: u32, recorded: u32, [text, unanswered, other, malformed]: [u32; 4]) -> RequestRow {
        RequestRow {
            live_answers: Some(live),
            recorded_answers: Some(recorded),
            live_results_as_text: Some(text),
            live_calls_unanswered: Some(unanswered),
            live_results_of_other_tools: Some(other),
            live_arguments_malformed: Some(malformed),
            ..RequestRow::default()
        }
    }

    #[test]
    fn columns_are_summed_and_departures_are_told() {
        let rows = [row(0, 0, [0; 4]), row(1, 0, [1, 0, 2, 0]), row(2, 1, [0, 3, 0, 0])];
        let figures = live_figures(&rows).unwrap();
        let expected = LiveFigures {
            live_answers: 3,
            recorded_answers: 1,
            live_pct: Some(75.0),
            results_as_text: 1,
            calls_unanswered: 3,
            results_of_other_tools: 2,
            arguments_malformed: 0,
        };
        assert_eq!(figures, expected);
        assert_eq!(
            figures.note().unwrap(),
            "content live: 1 answers of the histories stayed as recorded; 1 recorded tool results \
             had no call and were sent as user text; 3 calls had no recorded result and got an \
             error as theirs; 2 results followed a call of another tool"
        );
    }

    #[test]
    fn a_run_of_recorded_content_has_none() {
        assert_eq!(live_figures(&[RequestRow::default()]), None);
        let fitting = live_figures(&[row(0, 0, [0; 4])]).unwrap();
        assert_eq!((fitting.live_pct, fitting.note()), (None, None));
    }
}
