//! What a set of session plans adds up to, beside what has been published.
//!
//! Pure. The published figures are `TraceLab`'s (357,161 rounds, 432,510 tool calls, 4,265 sessions);
//! each has the tolerance within which full-scale generation must meet it. The figures of every
//! synthetic run are written into its manifest, so nobody has to believe the profile's name.

use serde_json::{Map, Value, json};

use crate::synthesize::plan::{Cause, SessionPlan, ThreadRole, TurnPlan};

/// A published figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Published {
    /// The name of the measured value.
    pub name: &'static str,
    /// The figure.
    pub value: f64,
    /// How far full-scale generation may be off, as a share of the figure.
    pub tolerance: f64,
}

const fn published(name: &'static str, value: f64, tolerance: f64) -> Published {
    Published { name, value, tolerance }
}

/// The published figures that generation is held to.
pub const PUBLISHED: [Published; 17] = [
    published("turns_per_session", 83.7, 0.10),
    published("steps_per_user_request", 8.8, 0.05),
    published("tool_calls_per_user_request", 10.8, 0.05),
    published("prefix_tokens_p50", 119_000.0, 0.08),
    published("append_tokens_p50", 875.0, 0.05),
    published("output_tokens_p50", 214.0, 0.05),
    published("top_three_tools_pct", 82.8, 0.03),
    published("calls_over_1min_pct", 3.97, 0.08),
    published("calls_over_1min_time_pct", 84.7, 0.04),
    published("tool_time_pct_of_request", 59.8, 0.08),
    published("generation_pct_of_request", 41.0, 0.08),
    published("human_wait_s_p50", 86.0, 0.05),
    published("human_wait_s_p90", 1260.0, 0.08),
    published("prefix_hit_pct", 95.75, 0.015),
    published("hit_pct_kept_1min", 85.4, 0.04),
    published("hit_pct_kept_1h", 98.6, 0.015),
    published("compacted_sessions_pct", 4.5, 0.35),
];

/// The measured values of a set of plans, by name, in the order of `PUBLISHED`; a value that the
/// plans do not tell (no session, no call) is missing.
pub fn measure(plans: &[SessionPlan]) -> Vec<(&'static str, f64)> {
    let sums = Sums::of(plans);
    let mut values = Vec::new();
    let mut put = |name, value: Option<f64>| {
        if let Some(value) = value.filter(|value| value.is_finite()) {
            // The sum of nothing is -0.
            values.push((name, value + 0.0));
        }
    };
    let share = |part: f64, whole: f64| (whole > 0.0).then(|| part / whole * 100.0);
    let per = |part: usize, whole: f64| (whole > 0.0).then(|| part as f64 / whole);
    let sessions = plans.len() as f64;
    let requests: f64 = plans.iter().map(|plan| f64::from(plan.user_requests)).sum();
    put("turns_per_session", per(sums.prefixes.len(), sessions));
    put("steps_per_user_request", per(sums.prefixes.len(), requests));
    put("tool_calls_per_user_request", per(sums.call_us.len(), requests));
    put("prefix_tokens_p50", quantile(&sums.prefixes, 0.5));
    put("append_tokens_p50", quantile(&sums.appends, 0.5));
    put("output_tokens_p50", quantile(&sums.outputs, 0.5));
    let mut tools: Vec<f64> = sums.tools.iter().map(|(_, count)| *count).collect();
    tools.sort_by(|a, b| b.total_cmp(a));
    let calls = sums.call_us.len() as f64;
    put("top_three_tools_pct", share(tools.iter().take(3).sum(), calls));
    let long: Vec<f64> = sums.call_us.iter().copied().filter(|us| *us > 60e6).collect();
    put("calls_over_1min_pct", share(long.len() as f64, calls));
    put("calls_over_1min_time_pct", share(long.iter().sum(), sums.call_us.iter().sum()));
    put("tool_time_pct_of_request", share(sums.tool_us, sums.request_us));
    put("generation_pct_of_request", share(sums.generation_us, sums.request_us));
    put("human_wait_s_p50", quantile(&sums.human_s, 0.5));
    put("human_wait_s_p90", quantile(&sums.human_s, 0.9));
    put("prefix_hit_pct", share(sums.cached, sums.prompt));
    put("hit_pct_kept_1min", share(sums.kept_1min, sums.prompt));
    put("hit_pct_kept_1h", share(sums.kept_1h, sums.prompt));
    put("compacted_sessions_pct", share(sums.compacted, sessions));
    values
}

/// The measured values and the published ones side by side, for a manifest.
pub fn report(plans: &[SessionPlan]) -> Map<String, Value> {
    let rounded = |value: f64| (value * 100.0).round() / 100.0;
    measure(plans)
        .into_iter()
        .map(|(name, value)| {
            let figure = PUBLISHED.iter().find(|figure| figure.name == name);
            let published = figure.map(|figure| figure.value);
            (name.to_owned(), json!({"planned": rounded(value), "published": published}))
        })
        .collect()
}

/// The value below which `share` of the values lie (nearest rank).
fn quantile(values: &[f64], share: f64) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let rank = ((sorted.len() as f64 * share).ceil() as usize).max(1);
    sorted.get(rank - 1).copied()
}

#[derive(Default)]
struct Sums {
    prefixes: Vec<f64>,
    appends: Vec<f64>,
    outputs: Vec<f64>,
    tools: Vec<(&'static str, f64)>,
    call_us: Vec<f64>,
    human_s: Vec<f64>,
    prompt: f64,
    cached: f64,
    kept_1min: f64,
    kept_1h: f64,
    /// Of main conversations: from a user's request to its answer.
    request_us: f64,
    tool_us: f64,
    generation_us: f64,
    compacted: f64,
}

impl Sums {
    fn of(plans: &[SessionPlan]) -> Self {
        let mut sums = Self::default();
        for plan in plans {
            let continued = plan.threads.iter().any(|thread| thread.role == ThreadRole::Continued);
            sums.compacted += f64::from(u8::from(continued));
            for thread in &plan.threads {
                let main = !matches!(thread.role, ThreadRole::Subagent { .. });
                for turn in &thread.turns {
                    sums.add(turn, main);
                }
            }
        }
        sums
    }

    fn add(&mut self, turn: &TurnPlan, main: bool) {
        let prefix = f64::from(turn.prefix_tokens);
        self.prefixes.push(prefix);
        self.appends.push(f64::from(turn.append_tokens));
        self.outputs.push(f64::from(turn.output_tokens));
        self.prompt += f64::from(turn.prompt_tokens());
        let idle_us = turn.wait_us.unwrap_or(0);
        let kept = |held: bool| if held { prefix } else { 0.0 };
        self.cached += kept(turn.prefix_held);
        self.kept_1min += kept(idle_us <= 60_000_000);
        self.kept_1h += kept(idle_us <= 3_600_000_000);
        for call in &turn.calls {
            self.call_us.push(call.own_us as f64);
            match self.tools.iter_mut().find(|(name, _)| *name == call.tool) {
                Some((_, count)) => *count += 1.0,
                None => self.tools.push((call.tool, 1.0)),
            }
        }
        if !main {
            return;
        }
        let generation_us = (turn.end_us - turn.start_us) as f64;
        self.generation_us += generation_us;
        self.request_us += generation_us;
        match (turn.cause, turn.wait_us) {
            (Cause::User { .. }, Some(wait_us)) => self.human_s.push(wait_us as f64 / 1e6),
            (_, Some(wait_us)) => {
                self.tool_us += wait_us as f64;
                self.request_us += wait_us as f64;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthesize::planner::plan_session;
    use crate::synthesize::profile::Profile;

    fn plans(profile: &Profile, count: u32) -> Vec<SessionPlan> {
        (0..count).map(|index| plan_session(profile, 7, index, None)).collect()
    }

    #[test]
    fn two_thousand_sessions_meet_every_published_figure() {
        let values = measure(&plans(&Profile::tracelab(), 2000));
        assert_eq!(
            values.iter().map(|(name, _)| *name).collect::<Vec<_>>(),
            PUBLISHED.map(|figure| figure.name)
        );
        let mut missed = Vec::new();
        for ((name, value), figure) in values.iter().zip(PUBLISHED) {
            let off = value / figure.value - 1.0;
            println!("{name:30} {value:12.2} published {:12.2} off {:+.3}", figure.value, off);
            if off.abs() > figure.tolerance {
                missed.push(format!("{name}: {value:.2} instead of {}", figure.value));
            }
        }
        assert!(missed.is_empty(), "{missed:#?}");
    }
}
