//! What a step costs: the cost model's four coefficients, and the named profiles that carry them.
//!
//! Pure. The coefficients are round figures that follow from a model's size and a device's data sheet
//! by rule of thumb; they are **no measurement of any hardware** and no promise about one. What a
//! simulated engine can serve follows from them, from the token budget and from the KV capacity alone.

use crate::error::{Error, Result};

/// Cost of one engine step: `base + prefill tokens + decode sequences + KV tokens read`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Timing {
    /// Every step: weights read once, launch overhead (µs).
    pub step_us: f64,
    /// Each prompt token computed in the step (µs).
    pub prefill_token_us: f64,
    /// Each sequence that decodes in the step (µs).
    pub decode_sequence_us: f64,
    /// Each token whose keys and values are read in the step (µs).
    pub kv_token_us: f64,
}

/// What one step works on, as far as its time depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepLoad {
    /// Prompt tokens computed (recomputed ones after a preemption included).
    pub prefill_tokens: u64,
    /// Sequences that decode one token.
    pub decode_sequences: u64,
    /// Tokens in the KV cache of every scheduled sequence at the end of the step.
    pub kv_tokens: u64,
}

impl Timing {
    /// Duration of a step; at least one nanosecond, so that time always moves.
    pub fn step_ns(&self, load: StepLoad) -> i64 {
        let us = self.step_us
            + self.prefill_token_us * load.prefill_tokens as f64
            + self.decode_sequence_us * load.decode_sequences as f64
            + self.kv_token_us * load.kv_tokens as f64;
        ((us * 1e3).round() as i64).max(1)
    }

    fn check(&self) -> Result<()> {
        let parts =
            [self.step_us, self.prefill_token_us, self.decode_sequence_us, self.kv_token_us];
        if parts.iter().all(|part| part.is_finite() && *part >= 0.0 && *part <= 1e9) {
            return Ok(());
        }
        Err(Error::config("coefficients of the cost model must be between 0 and 1e9 microseconds"))
    }
}

/// A simulated engine's speed and size.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Name in settings and reports.
    pub name: String,
    /// The cost model.
    pub timing: Timing,
    /// KV blocks of 16 tokens.
    pub kv_blocks: u32,
    /// Longest prompt plus output, in tokens.
    pub max_model_len: u32,
    /// Most sequences in one step.
    pub max_num_seqs: u32,
    /// Most tokens computed in one step.
    pub max_num_batched_tokens: u32,
}

/// Name, step µs, µs per prefill token, per decode sequence, per KV token, KV blocks, longest
/// sequence, sequences a step, tokens a step.
type Row = (&'static str, f64, f64, f64, f64, u32, u32, u32, u32);

/// The named profiles. Where the figures come from, by rule of thumb: the base is the time to read
/// the weights once plus some overhead; a prefill token takes two operations per parameter at half the
/// peak rate; a KV token is its bytes at the memory's bandwidth; the blocks fill the memory that the
/// weights leave. All rounded hard.
const PROFILES: [Row; 4] = [
    ("gpu-8b", 5_000.0, 30.0, 20.0, 0.03, 50_000, 131_072, 256, 8_192),
    ("gpu-70b", 20_000.0, 150.0, 50.0, 0.05, 16_000, 131_072, 256, 8_192),
    ("laptop", 40_000.0, 2_000.0, 5_000.0, 1.0, 4_096, 65_536, 8, 512),
    ("instant", 50.0, 0.05, 1.0, 0.0, 65_536, 262_144, 1_024, 65_536),
];

impl Profile {
    /// The names that [`Profile::named`] knows.
    pub fn names() -> impl Iterator<Item = &'static str> {
        PROFILES.iter().map(|row| row.0)
    }

    /// A profile by name:
    ///
    /// | name | stands for | step | per prefill token | per decode sequence | per KV token | KV tokens |
    /// |---|---|---|---|---|---|---|
    /// | `gpu-8b` | 8B parameters in 16 bit on one large GPU | 5 ms | 30 µs | 20 µs | 0.03 µs | 800,000 |
    /// | `gpu-70b` | 70B parameters in 8 bit on one large GPU | 20 ms | 150 µs | 50 µs | 0.05 µs | 256,000 |
    /// | `laptop` | a small model on a CPU | 40 ms | 2 ms | 5 ms | 1 µs | 65,536 |
    /// | `instant` | no waits worth speaking of, for tests | 0.05 ms | 0.05 µs | 1 µs | 0 | 1,048,576 |
    ///
    /// The coefficients are round figures of the cost model and no measurement of any hardware.
    pub fn named(name: &str) -> Result<Self> {
        let Some(row) = PROFILES.iter().find(|row| row.0 == name) else {
            let names: Vec<&str> = Self::names().collect();
            return Err(Error::config(format!(
                "no engine profile '{name}'; choose one of {}",
                names.join(", ")
            )));
        };
        Ok(Self {
            name: row.0.to_owned(),
            timing: Timing {
                step_us: row.1,
                prefill_token_us: row.2,
                decode_sequence_us: row.3,
                kv_token_us: row.4,
            },
            kv_blocks: row.5,
            max_model_len: row.6,
            max_num_seqs: row.7,
            max_num_batched_tokens: row.8,
        })
    }

    /// Refuses figures with which no engine can run.
    pub(crate) fn check(&self) -> Result<()> {
        self.timing.check()?;
        let sizes = [
            ("kv_blocks", self.kv_blocks),
            ("max_model_len", self.max_model_len),
            ("max_num_seqs", self.max_num_seqs),
            ("max_num_batched_tokens", self.max_num_batched_tokens),
        ];
        for (name, size) in sizes {
            if size == 0 || size > 1 << 26 {
                return Err(Error::config(format!(
                    "{name} is {size}; it must be between 1 and {}",
                    1 << 26
                )));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_is_the_sum_of_its_parts() {
        let timing = Timing {
            step_us: 5_000.0,
            prefill_token_us: 30.0,
            decode_sequence_us: 20.0,
            kv_token_us: 0.03,
        };
        let check = |prefill_tokens, decode_sequences, kv_tokens, ns| {
            let load = StepLoad { prefill_tokens, decode_sequences, kv_tokens };
            assert_eq!(timing.step_ns(load), ns, "{load:?}");
        };
        check(0, 0, 0, 5_000_000);
        check(512, 0, 0, 5_000_000 + 512 * 30_000);
        check(0, 32, 0, 5_000_000 + 32 * 20_000);
        check(0, 0, 100_000, 5_000_000 + 3_000_000);
        check(100, 2, 1_000, 5_000_000 + 3_000_000 + 40_000 + 30_000);
        let free = Timing {
            step_us: 0.0,
            prefill_token_us: 0.0,
            decode_sequence_us: 0.0,
            kv_token_us: 0.0,
        };
        assert_eq!(free.step_ns(StepLoad::default()), 1);
    }

    #[test]
    fn profiles_are_found_by_name_and_hold_their_longest_sequence() {
        for name in Profile::names() {
            let profile = Profile::named(name).unwrap();
            profile.check().unwrap();
            assert_eq!(profile.name, name);
            assert!(profile.kv_blocks * 16 >= profile.max_model_len, "{name}");
        }
        let error = Profile::named("h100").unwrap_err().to_string();
        assert_eq!(
            error,
            "no engine profile 'h100'; choose one of gpu-8b, gpu-70b, laptop, instant"
        );
        let mut broken = Profile::named("instant").unwrap();
        broken.timing.step_us = -1.0;
        assert!(broken.check().is_err());
        broken = Profile::named("instant").unwrap();
        broken.max_num_seqs = 0;
        assert_eq!(
            broken.check().unwrap_err().to_string(),
            "max_num_seqs is 0; it must be between 1 and 67108864"
        );
    }
}
