//! What prompts of different trajectories may share in the engine's prefix cache, and the salts that
//! see to it.
//!
//! Agents that replay few recordings would hit one another's private text, as agents at work on tasks
//! of their own never do. So a short text of ours, a salt, stands at two places of every prompt: at its
//! head (in front of the system text, and in the first tool's description, since some chat templates
//! render tools first) and in front of the first message. Prompts share no more than what comes before
//! the first salt in which they differ:
//!
//! | `cache_sharing` | salt at the head, one for each | salt before the first message, one for each | shared with others |
//! |---|---|---|---|
//! | `system` | pass | trajectory | in a pass: system text and tools; across passes: nothing |
//! | `trajectory` | trajectory | trajectory | nothing; the threads of a trajectory share among themselves |
//! | `none` | request | request | nothing, not even from turn to turn |
//! | `recorded` | - | - | all that is equal: the bytes are the recorded ones |
//!
//! A pass is max(sessions of the recording, agents) trajectories in the order in which they are begun,
//! so that agents who start together share a system prompt however few the recordings are. Pure: which
//! bytes of a body these places are is `api`'s to say.

use serde::{Deserialize, Serialize};

use super::tokens::seed_of;
use crate::api::{ContentHash, PromptFront};

/// Hex digits of a salt: 48 bits, so that among a million salts two are equal once in 500 runs.
const DIGITS: usize = 12;

/// What prompts of different trajectories may share in the engine's prefix cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CacheSharing {
    /// System text and tools within a pass over the recording, nothing across passes.
    #[default]
    System,
    /// Nothing; a trajectory's own requests share as recorded.
    Trajectory,
    /// Nothing at all, not even from turn to turn.
    None,
    /// All that is equal: the bytes are the recorded ones.
    Recorded,
}

impl CacheSharing {
    /// The name in settings and notes.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Trajectory => "trajectory",
            Self::None => "none",
            Self::Recorded => "recorded",
        }
    }

    /// Prompts get salts.
    pub fn has_salts(self) -> bool {
        self != Self::Recorded
    }

    /// What a reader of the figures must know, where salts are text (`longer`) or are mixed into token
    /// ids of our own.
    pub fn note(self, longer: bool) -> String {
        let what = match self {
            Self::System => {
                "trajectories of one pass share system prompt and tools in the engine's cache, and \
                 nothing else"
            }
            Self::Trajectory => "trajectories share nothing in the engine's cache",
            Self::None => "no request finds anything of another in the engine's cache",
            Self::Recorded => {
                return "cache sharing recorded: prompts are sent without salts, so agents on the \
                        same recording, and passes after the first, find each other's private text \
                        in the engine's cache: hit rates and latencies look better than those of \
                        agents on tasks of their own"
                    .to_owned();
            }
        };
        if !longer {
            return format!("cache sharing {}: {what}", self.as_str());
        }
        format!(
            "cache sharing {}: {what}; salts make each prompt up to {} bytes longer than planned \
             prompt tokens say",
            self.as_str(),
            // Before the system text, in the first tool, before the first message.
            3 * (DIGITS + 3)
        )
    }
}

/// The salts of one run, or of one level of a capacity search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Salts {
    sharing: CacheSharing,
    /// Run and level: two of them never share.
    scope: String,
    pass_size: u64,
}

/// The salts of one request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Salt {
    head: String,
    first_message: String,
}

impl Salts {
    /// Salts that follow from `seed`, which no other run against the engine may have had, and from the
    /// level; `pass_size` trajectories are a pass.
    pub(super) fn new(
        sharing: CacheSharing,
        seed: &str,
        level: Option<u32>,
        pass_size: u64,
    ) -> Self {
        let level = level.map_or_else(String::new, |level| format!(" level {level}"));
        Self { sharing, scope: format!("{seed}{level}"), pass_size: pass_size.max(1) }
    }

    /// What may be shared.
    pub(super) fn sharing(&self) -> CacheSharing {
        self.sharing
    }

    /// The pass that a trajectory belongs to.
    pub(super) fn pass(&self, trajectory: u64) -> u64 {
        trajectory / self.pass_size
    }

    /// The salts of a trajectory's request; none where the bytes stay the recorded ones.
    pub(super) fn of(&self, trajectory: u64, request: usize) -> Option<Salt> {
        let of_pass = || self.text(&format!("pass {}", self.pass(trajectory)));
        let of_trajectory = || self.text(&format!("trajectory {trajectory}"));
        let (head, first_message) = match self.sharing {
            CacheSharing::Recorded => return None,
            CacheSharing::System => (of_pass(), of_trajectory()),
            CacheSharing::Trajectory => (of_trajectory(), of_trajectory()),
            CacheSharing::None => {
                let text = self.text(&format!("trajectory {trajectory} request {request}"));
                (text.clone(), text)
            }
        };
        Some(Salt { head, first_message })
    }

    fn text(&self, whose: &str) -> String {
        let hash = ContentHash::of(format!("{} {whose}", self.scope).as_bytes()).hex();
        format!("[{}]\n", &hash[..DIGITS])
    }
}

impl Salt {
    /// Seeds for token ids of our own: of what may be shared as the prompt's head, and of the rest.
    pub(super) fn seeds(&self) -> (u64, u64) {
        (seed_of(&self.head), seed_of(&self.first_message))
    }

    /// A finished body with the salts in place.
    pub(super) fn insert(&self, body: &[u8]) -> Result<Vec<u8>, String> {
        PromptFront { head: &self.head, first_message: &self.first_message }.insert(body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHARINGS: [CacheSharing; 4] = [
        CacheSharing::System,
        CacheSharing::Trajectory,
        CacheSharing::None,
        CacheSharing::Recorded,
    ];

    /// What requests `(level, trajectory, request)` share: `all`, `head`, `nothing`.
    #[track_caller]
    fn check(a: (u32, u64, usize), b: (u32, u64, usize), expected: [&str; 4]) {
        let shared = SHARINGS.map(|sharing| {
            let salt = |(level, trajectory, request): (u32, u64, usize)| {
                Salts::new(sharing, "run", Some(level), 4).of(trajectory, request)
            };
            match (salt(a), salt(b)) {
                (a, b) if a == b => "all",
                (Some(a), Some(b)) if a.head == b.head => "head",
                _ => "nothing",
            }
        });
        assert_eq!(shared, expected, "{a:?} {b:?}");
    }

    #[test]
    fn who_shares_what() {
        check((0, 1, 0), (0, 1, 0), ["all", "all", "all", "all"]);
        // Turns and threads of a trajectory.
        check((0, 1, 0), (0, 1, 7), ["all", "all", "nothing", "all"]);
        // Two trajectories of a pass, and of two.
        check((0, 1, 0), (0, 3, 0), ["head", "nothing", "nothing", "all"]);
        check((0, 1, 0), (0, 5, 0), ["nothing", "nothing", "nothing", "all"]);
        // Two levels of a search.
        check((0, 1, 0), (1, 1, 0), ["nothing", "nothing", "nothing", "all"]);
    }

    #[test]
    fn salts_are_short_and_follow_from_the_seed() {
        let salt = |seed: &str| Salts::new(CacheSharing::System, seed, None, 1).of(0, 0).unwrap();
        assert_eq!(salt("a"), salt("a"));
        assert_ne!(salt("a"), salt("b"));
        let Salt { head, first_message } = salt("a");
        assert_ne!(head, first_message);
        for text in [head, first_message] {
            assert_eq!((text.len(), &text[..1], &text[13..]), (15, "[", "]\n"));
        }
    }

    #[test]
    fn every_sharing_says_what_it_does() {
        for sharing in SHARINGS {
            assert!(
                sharing.note(true).starts_with(&format!("cache sharing {}: ", sharing.as_str()))
            );
        }
        assert!(CacheSharing::System.note(true).contains("up to 45 bytes longer"));
    }
}
