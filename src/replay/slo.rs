//! Service levels: what `ttft.p95<=10s` means, and whether a set of requests holds it.
//!
//! Pure. A failed request counts as the worst possible value of every latency and speed condition, so
//! an engine cannot get better by refusing work. How many agents to try is `capacity`'s affair.

use std::fmt;
use std::str::FromStr;

use super::measure::{output_tokens_per_s, token_gaps};
use super::statistics::Sorted;
use crate::trace::record::{RequestRow, RequestStatus};

/// What a condition looks at, one value per request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Metric {
    /// Time to first token, ms.
    Ttft,
    /// Mean time per output token after the first, ms.
    Tpot,
    /// Time between tokens, pooled over requests, ms.
    Itl,
    /// End-to-end latency, ms.
    E2e,
    /// Output tokens per second after the first.
    Speed,
    /// Number of failed requests; has no statistic.
    Errors,
}

/// The statistic over the requests.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Statistic {
    /// Arithmetic mean.
    Mean,
    /// Smallest.
    Min,
    /// Largest.
    Max,
    /// Percentile, 1 to 99.9.
    Percentile(f64),
    /// The number itself (`errors`).
    Count,
}

/// How the statistic must lie to the bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Relation {
    /// `<=`
    AtMost,
    /// `<`
    Below,
    /// `>=`
    AtLeast,
    /// `>`
    Above,
}

/// One condition of a service level.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Condition {
    /// What is looked at.
    pub metric: Metric,
    /// The statistic over it.
    pub statistic: Statistic,
    /// The comparison.
    pub relation: Relation,
    /// The bound: ms, tokens/s or a count.
    pub bound: f64,
}

/// Why a text is no condition.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{text:?} is not a service-level condition: {problem}; write for example ttft.p95<=10s, speed.p25>=20 or errors<=0"
)]
pub struct ConditionError {
    text: String,
    problem: String,
}

const METRICS: [(&str, Metric); 6] = [
    ("ttft", Metric::Ttft),
    ("tpot", Metric::Tpot),
    ("itl", Metric::Itl),
    ("e2e", Metric::E2e),
    ("speed", Metric::Speed),
    ("errors", Metric::Errors),
];

// Longer signs first, so that `<=` is not read as `<`.
const RELATIONS: [(&str, Relation); 4] = [
    ("<=", Relation::AtMost),
    (">=", Relation::AtLeast),
    ("<", Relation::Below),
    (">", Relation::Above),
];

impl FromStr for Condition {
    type Err = ConditionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fail = |problem: String| ConditionError { text: text.to_owned(), problem };
        let (sign, relation, at) = RELATIONS
            .iter()
            .find_map(|(sign, relation)| Some((*sign, *relation, text.find(sign)?)))
            .ok_or_else(|| fail("it has none of <=, >=, <, >".into()))?;
        let (left, right) = (text[..at].trim(), text[at + sign.len()..].trim());
        let (name, statistic) = left.split_once('.').map_or((left, None), |(a, b)| (a, Some(b)));
        let metric = METRICS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, metric)| *metric)
            .ok_or_else(|| {
                fail(match name {
                    "queue" => "time in the queue is known only as the engine's mean, not for a \
                                request; use ttft, which contains it"
                        .into(),
                    _ => format!("no metric {name:?} (ttft, tpot, itl, e2e, speed, errors)"),
                })
            })?;
        let statistic = read_statistic(metric, statistic).map_err(fail)?;
        let bound = read_bound(metric, right).map_err(fail)?;
        Ok(Self { metric, statistic, relation, bound })
    }
}

fn read_statistic(metric: Metric, text: Option<&str>) -> Result<Statistic, String> {
    match (metric, text) {
        (Metric::Errors, None) => Ok(Statistic::Count),
        (Metric::Errors, Some(_)) => Err("errors is a count and has no statistic".into()),
        (_, None) => Err("a statistic is missing (mean, min, max, p1 to p99.9)".into()),
        (_, Some("mean")) => Ok(Statistic::Mean),
        (_, Some("min")) => Ok(Statistic::Min),
        (_, Some("max")) => Ok(Statistic::Max),
        (_, Some(text)) => text
            .strip_prefix('p')
            .and_then(|digits| digits.parse::<f64>().ok())
            .filter(|percent| (1.0..=99.9).contains(percent))
            .map(Statistic::Percentile)
            .ok_or_else(|| format!("no statistic {text:?} (mean, min, max, p1 to p99.9)")),
    }
}

fn read_bound(metric: Metric, text: &str) -> Result<f64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_alphabetic() || c == '/');
    let unit = text[digits.len()..].trim();
    let value: f64 = digits.trim().parse().map_err(|_| format!("no number in {text:?}"))?;
    let factor = match (metric, unit) {
        (Metric::Errors, "") | (Metric::Speed, "" | "tok/s") => 1.0,
        (Metric::Errors | Metric::Speed, _) => return Err(format!("unit {unit:?} does not fit")),
        (_, "ms") => 1.0,
        (_, "s") => 1000.0,
        (_, "") => return Err("a latency needs a unit, ms or s".into()),
        _ => return Err(format!("no unit {unit:?} (ms, s)")),
    };
    if value.is_finite() && value >= 0.0 {
        Ok(value * factor)
    } else {
        Err(format!("bound {text:?} is not a finite number from 0"))
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            METRICS.iter().find(|(_, metric)| *metric == self.metric).map_or("", |known| known.0);
        let sign = RELATIONS
            .iter()
            .find(|(_, relation)| *relation == self.relation)
            .map_or("", |known| known.0);
        let statistic = match self.statistic {
            Statistic::Mean => ".mean".into(),
            Statistic::Min => ".min".into(),
            Statistic::Max => ".max".into(),
            Statistic::Percentile(percent) => format!(".p{percent}"),
            Statistic::Count => String::new(),
        };
        let bound = match self.metric {
            Metric::Errors => format!("{}", self.bound),
            Metric::Speed => format!("{}tok/s", self.bound),
            _ if self.bound >= 1000.0 => format!("{}s", self.bound / 1000.0),
            _ => format!("{}ms", self.bound),
        };
        write!(formatter, "{name}{statistic}{sign}{bound}")
    }
}

impl Condition {
    /// The statistic over `requests`; none when no request has the value.
    pub fn value(&self, requests: &[&RequestRow]) -> Option<f64> {
        if self.metric == Metric::Errors {
            return Some(
                requests.iter().filter(|row| row.status == RequestStatus::Failed).count() as f64
            );
        }
        let sorted = Sorted::of_repeated(requests.iter().flat_map(|row| self.values_of(row)))?;
        Some(match self.statistic {
            Statistic::Mean => sorted.mean(),
            Statistic::Min => sorted.min(),
            Statistic::Max => sorted.max(),
            Statistic::Percentile(percent) => sorted.percentile(percent),
            Statistic::Count => sorted.n() as f64,
        })
    }

    /// Whether a value of the statistic satisfies the condition.
    pub fn holds(&self, value: f64) -> bool {
        match self.relation {
            Relation::AtMost => value <= self.bound,
            Relation::Below => value < self.bound,
            Relation::AtLeast => value >= self.bound,
            Relation::Above => value > self.bound,
        }
    }

    /// How far a value is beyond the bound: above 1 the condition does not hold, or just so at 1; the
    /// larger, the further. None for no value.
    pub fn strain(&self, value: Option<f64>) -> Option<f64> {
        let value = value?;
        let (over, under) = match self.relation {
            Relation::AtMost | Relation::Below => (value, self.bound),
            Relation::AtLeast | Relation::Above => (self.bound, value),
        };
        // A bound of 0 that is met is no strain; one that is missed is beyond measure.
        Some(match (over > 0.0, under > 0.0) {
            (false, _) => 0.0,
            (true, false) => f64::INFINITY,
            (true, true) => over / under,
        })
    }

    /// Whether the gaps between a request's chunks are needed.
    pub fn needs_gaps(&self) -> bool {
        self.metric == Metric::Itl
    }

    /// A request's values, each with the number of times that it counts.
    fn values_of(&self, row: &RequestRow) -> Vec<(f64, u64)> {
        let worst = if self.metric == Metric::Speed { 0.0 } else { f64::INFINITY };
        match row.status {
            RequestStatus::Failed => return vec![(worst, 1)],
            RequestStatus::Cancelled => return Vec::new(),
            RequestStatus::Ok => {}
        }
        let value = match self.metric {
            Metric::Ttft => row.ttft_ms,
            Metric::Tpot => row.tpot_ms,
            Metric::E2e => row.e2e_ms,
            Metric::Speed => output_tokens_per_s(row),
            Metric::Itl => return token_gaps(row),
            Metric::Errors => None,
        };
        value.map(|value| (value, 1)).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_are_read_and_written() {
        let cases = [
            (
                "ttft.p95<=10s",
                Metric::Ttft,
                Statistic::Percentile(95.0),
                Relation::AtMost,
                10_000.0,
                "ttft.p95<=10s",
            ),
            (
                "speed.p25 >= 20",
                Metric::Speed,
                Statistic::Percentile(25.0),
                Relation::AtLeast,
                20.0,
                "speed.p25>=20tok/s",
            ),
            (
                "tpot.p99.9<50ms",
                Metric::Tpot,
                Statistic::Percentile(99.9),
                Relation::Below,
                50.0,
                "tpot.p99.9<50ms",
            ),
            (
                "e2e.mean<=1.5s",
                Metric::E2e,
                Statistic::Mean,
                Relation::AtMost,
                1500.0,
                "e2e.mean<=1.5s",
            ),
            ("errors<=0", Metric::Errors, Statistic::Count, Relation::AtMost, 0.0, "errors<=0"),
        ];
        for (text, metric, statistic, relation, bound, written) in cases {
            let condition: Condition = text.parse().expect(text);
            assert_eq!(condition, Condition { metric, statistic, relation, bound });
            assert_eq!(condition.to_string(), written);
        }
    }

    #[test]
    fn what_is_no_condition_says_why() {
        let cases = [
            ("ttft.p95", "none of"),
            ("tttf.p95<=1s", "no metric"),
            ("queue.p95<=1s", "engine's mean"),
            ("ttft<=1s", "statistic is missing"),
            ("ttft.p100<=1s", "no statistic"),
            ("ttft.p95<=1", "needs a unit"),
            ("ttft.p95<=1h", "no unit"),
            ("speed.p25>=20ms", "does not fit"),
            ("errors.p95<=0", "no statistic"),
            ("ttft.p95<=fasts", "no number"),
        ];
        for (text, problem) in cases {
            let error = text.parse::<Condition>().expect_err(text).to_string();
            assert!(error.contains(problem), "{error}");
        }
    }

    fn row(ttft: f64, tpot: f64, status: RequestStatus) -> RequestRow {
        RequestRow {
            ttft_ms: Some(ttft),
            tpot_ms: Some(tpot),
            last_token_ms: Some(ttft + 10.0 * tpot),
            completion_tokens: Some(11),
            status,
            ..RequestRow::default()
        }
    }

    fn check(condition: &str, rows: &[RequestRow], expect: (f64, bool)) {
        let condition: Condition = condition.parse().expect("a condition");
        let value = condition.value(&rows.iter().collect::<Vec<_>>()).expect("a value");
        let near = (value - expect.0).abs() < 1e-9 || value.is_infinite() && expect.0.is_infinite();
        assert!(near, "{condition}: {value}");
        assert_eq!(condition.holds(value), expect.1, "{condition}");
    }

    #[test]
    fn statistics_over_requests() {
        let rows: Vec<_> = (1..=5)
            .map(|k| row(f64::from(k) * 100.0, 10.0 * f64::from(k), RequestStatus::Ok))
            .collect();
        check("ttft.p95<=480ms", &rows, (480.0, true));
        check("ttft.p95<480ms", &rows, (480.0, false));
        check("ttft.max<=1s", &rows, (500.0, true));
        check("ttft.mean<=299ms", &rows, (300.0, false));
        check("speed.min>=20", &rows, (20.0, true));
        check("errors<=0", &rows, (0.0, true));
    }

    #[test]
    fn a_failed_request_is_the_worst_of_all() {
        let mut rows: Vec<_> = (0..9).map(|_| row(100.0, 10.0, RequestStatus::Ok)).collect();
        rows.push(row(1.0, 1.0, RequestStatus::Failed));
        check("ttft.p95<=10s", &rows, (f64::INFINITY, false));
        check("ttft.p50<=10s", &rows, (100.0, true));
        check("speed.min>=1", &rows, (0.0, false));
        check("errors<=0", &rows, (1.0, false));
        rows.push(row(9e9, 9e9, RequestStatus::Cancelled));
        check("errors<=1", &rows, (1.0, true));
    }

    #[test]
    fn several_tokens_in_a_chunk_share_its_gap() {
        let rows = [RequestRow {
            chunk_gap_ms: vec![40.0, 40.0],
            chunk_tokens: vec![1, 4, 4],
            ..RequestRow::default()
        }];
        check("itl.max<=10ms", &rows, (10.0, true));
    }
}
