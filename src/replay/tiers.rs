//! Service levels by name, with their published bounds.
//!
//! Pure. The tiers are those of AA-AgentPerf: the 25th percentile of the requests' output speed and the
//! 95th of their time to first token.

use super::slo::{Condition, Metric, Relation, Statistic};

/// Name, output speed in tokens/s, time to first token in seconds.
const TIERS: [(&str, f64, f64); 7] = [
    ("deepseek-v4-pro-1", 20.0, 10.0),
    ("deepseek-v4-pro-2", 60.0, 5.0),
    ("deepseek-v4-pro-3", 180.0, 3.0),
    ("gpt-oss-120b-1", 100.0, 5.0),
    ("gpt-oss-120b-2", 250.0, 3.0),
    ("gpt-oss-120b-3", 500.0, 2.0),
    ("gpt-oss-120b-4", 2000.0, 1.0),
];

/// Every tier's name and its conditions, in words.
pub fn all() -> impl Iterator<Item = (&'static str, String)> {
    TIERS.iter().map(|(name, ..)| {
        let texts: Vec<String> =
            conditions(name).unwrap_or_default().iter().map(ToString::to_string).collect();
        (*name, texts.join(" and "))
    })
}

/// The conditions of a tier; none of an unknown one.
pub fn conditions(name: &str) -> Option<Vec<Condition>> {
    let (_, speed, ttft_s) = TIERS.iter().find(|(known, ..)| *known == name)?;
    Some(vec![
        Condition {
            metric: Metric::Speed,
            statistic: Statistic::Percentile(25.0),
            relation: Relation::AtLeast,
            bound: *speed,
        },
        Condition {
            metric: Metric::Ttft,
            statistic: Statistic::Percentile(95.0),
            relation: Relation::AtMost,
            bound: ttft_s * 1e3,
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tiers_carry_the_published_bounds() {
        let all: Vec<(&str, String)> = all().collect();
        assert_eq!(all.len(), 7);
        assert_eq!(all[0], ("deepseek-v4-pro-1", "speed.p25>=20tok/s and ttft.p95<=10s".into()));
        assert_eq!(all[6], ("gpt-oss-120b-4", "speed.p25>=2000tok/s and ttft.p95<=1s".into()));
        assert_eq!(conditions("gpt-oss-120b-5"), None);
    }
}
