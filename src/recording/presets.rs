//! How thorough the levels of a capacity search are, by name, and what was changed in a preset.
//!
//! Pure. A preset that was loosened must not pass for itself: the summary names what differs.

use std::time::Duration;

use crate::replay::levels::LevelMinimum;
use crate::replay::{CacheSharing, HumanTime, OutputLengthRule, ReplayConfig, ToolTime};

/// How thorough a level is.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Preset {
    /// Its name.
    pub name: &'static str,
    /// What a level must have.
    pub minimum: LevelMinimum,
    /// A level is ended after this time.
    pub level_time: Duration,
}

/// The presets, the default one first.
pub const PRESETS: [Preset; 2] = [
    Preset {
        name: "quick",
        minimum: LevelMinimum {
            trajectories: 0,
            trajectories_per_agent: 0,
            requests_per_agent: 3,
            steady_s: 5.0,
        },
        level_time: Duration::from_secs(60),
    },
    Preset {
        name: "agentperf",
        minimum: LevelMinimum {
            trajectories: 30,
            trajectories_per_agent: 3,
            requests_per_agent: 3,
            steady_s: 600.0,
        },
        level_time: Duration::from_secs(7200),
    },
];

impl Preset {
    /// What makes a search easier than the preset, or its load another one; a phrase each.
    pub fn changes(
        &self,
        minimum: &LevelMinimum,
        level_time: Duration,
        replay: &ReplayConfig,
    ) -> Vec<String> {
        let less = |name: &str, given: f64, own: f64, unit: &str| {
            (given < own).then(|| format!("{name} {given}{unit} instead of {own}{unit}"))
        };
        let own = &self.minimum;
        let each = |n: u32| f64::from(n);
        let mut changes: Vec<String> = [
            less("trajectories", minimum.trajectories as f64, own.trajectories as f64, ""),
            less(
                "trajectories an agent",
                each(minimum.trajectories_per_agent),
                each(own.trajectories_per_agent),
                "",
            ),
            less(
                "requests an agent",
                each(minimum.requests_per_agent),
                each(own.requests_per_agent),
                "",
            ),
            less("steady state", minimum.steady_s, own.steady_s, " s"),
            less("level time", level_time.as_secs_f64(), self.level_time.as_secs_f64(), " s"),
        ]
        .into_iter()
        .flatten()
        .collect();
        if replay.tool_time != ToolTime::default() {
            changes.push(format!("tool time {}", String::from(replay.tool_time)));
        }
        if replay.human_time != HumanTime::default() {
            changes.push(format!("human time {}", String::from(replay.human_time)));
        }
        if replay.output_length != OutputLengthRule::default() {
            changes.push(format!("output length {}", String::from(replay.output_length)));
        }
        if replay.cache_sharing != CacheSharing::default() {
            changes.push(format!("cache sharing {}", replay.cache_sharing.as_str()));
        }
        changes
    }

    /// The name for the summary: that of the preset alone only where nothing was changed in it.
    pub fn label(&self, changes: &[String]) -> String {
        if changes.is_empty() {
            self.name.to_owned()
        } else {
            format!("{} (changed: {})", self.name, changes.join(", "))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn replay() -> ReplayConfig {
        ReplayConfig {
            url: "http://127.0.0.1:1".to_owned(),
            api_key: None,
            model: None,
            agents: 1,
            open_loop: None,
            seed: None,
            duration: None,
            trajectories: None,
            ramp: None,
            on_error: crate::replay::OnError::default(),
            max_error_rate_pct: None,
            retries: crate::replay::Retries::default(),
            timeouts: crate::replay::Timeouts::default(),
            include_utility: false,
            api: crate::replay::ApiChoice::default(),
            content: crate::replay::ContentMode::default(),
            tokenizer: None,
            tool_time: ToolTime::default(),
            human_time: HumanTime::default(),
            output_length: OutputLengthRule::default(),
            cache_sharing: CacheSharing::default(),
            salt: None,
            strict: false,
        }
    }

    #[test]
    fn a_loosened_preset_says_what_was_changed() {
        let preset = &PRESETS[1];
        let label = |minimum: LevelMinimum, level_s: u64, replay: &ReplayConfig| {
            preset.label(&preset.changes(&minimum, Duration::from_secs(level_s), replay))
        };
        let own = preset.minimum;
        assert_eq!(label(own, 7200, &replay()), "agentperf");
        let stricter = LevelMinimum { trajectories: 60, steady_s: 900.0, ..own };
        assert_eq!(label(stricter, 9000, &replay()), "agentperf");
        let few = LevelMinimum { trajectories: 5, ..own };
        let changed = "agentperf (changed: trajectories 5 instead of 30)";
        assert_eq!(label(few, 7200, &replay()), changed);
        let short =
            LevelMinimum { trajectories_per_agent: 1, requests_per_agent: 2, steady_s: 0.5, ..own };
        let waits = ReplayConfig {
            tool_time: "none".parse().expect("a rule"),
            human_time: "cap:30s".parse().expect("a rule"),
            output_length: "64".parse().expect("a rule"),
            cache_sharing: CacheSharing::Recorded,
            ..replay()
        };
        assert_eq!(
            label(short, 60, &waits),
            "agentperf (changed: trajectories an agent 1 instead of 3, requests an agent 2 instead \
             of 3, steady state 0.5 s instead of 600 s, level time 60 s instead of 7200 s, tool time \
             none, human time cap:30s, output length 64, cache sharing recorded)"
        );
    }
}
