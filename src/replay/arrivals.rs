//! When trajectories begin, and which session each one plays.
//!
//! Pure and seeded: the same settings give the same times and the same order on every machine. In the
//! closed loop a trajectory begins when an agent has ended the one before, so only the order is decided
//! here; in the open loop it begins at its arrival, whatever the engine does. Who works on it is
//! `load`'s affair.

use std::str::FromStr;

use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;
use rand_distr::{Distribution, Exp1};
use serde::{Deserialize, Serialize};

/// Keeps the draws of gaps apart from those of the order under the same seed.
const GAP_SEED: u64 = 0xA076_1D64_78BD_642F;

/// The times at which trajectories arrive in the open loop.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Arrivals {
    /// Each session at its recorded start; past the last one the recording starts over after a mean gap.
    Recorded,
    /// So many a second in the mean, with independent, exponential gaps.
    Poisson(f64),
    /// So many a second, at equal gaps, the first at once.
    Constant(f64),
    /// All at once.
    Burst,
}

impl FromStr for Arrivals {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let rate = |word: &str| match word.parse::<f64>() {
            Ok(rate) if rate.is_finite() && rate > 0.0 => Ok(rate),
            _ => Err(format!("{word:?} in {text:?} is no rate above 0 trajectories per second")),
        };
        match text.split_once(':') {
            None if text == "recorded" => Ok(Self::Recorded),
            None if text == "burst" => Ok(Self::Burst),
            Some(("poisson", word)) => rate(word).map(Self::Poisson),
            Some(("constant", word)) => rate(word).map(Self::Constant),
            _ => Err(format!(
                "{text:?} is none of recorded, poisson:R, constant:R and burst (R in trajectories per \
                 second)"
            )),
        }
    }
}

impl TryFrom<String> for Arrivals {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Arrivals> for String {
    fn from(arrivals: Arrivals) -> Self {
        match arrivals {
            Arrivals::Recorded => "recorded".to_owned(),
            Arrivals::Poisson(rate) => format!("poisson:{rate}"),
            Arrivals::Constant(rate) => format!("constant:{rate}"),
            Arrivals::Burst => "burst".to_owned(),
        }
    }
}

/// An open loop as asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OpenLoop {
    /// When trajectories arrive.
    pub arrivals: Arrivals,
    /// Every arrival's time from the start of the run is multiplied by this; waits within a trajectory
    /// are not.
    pub time_scale: f64,
    /// Most agents at work at once; who arrives beyond waits for a place.
    pub max_active: Option<u32>,
}

impl OpenLoop {
    /// All trajectories arrive at once: a closed loop of as many agents as there is room for.
    pub fn is_burst(&self) -> bool {
        self.arrivals == Arrivals::Burst
    }
}

/// What a caller said of pacing, as far as it said anything.
#[derive(Debug, Clone, Copy, Default)]
pub struct PacingWords<'text> {
    /// `arrivals`.
    pub arrivals: Option<&'text str>,
    /// `time_scale`.
    pub time_scale: Option<f64>,
    /// `max_active`.
    pub max_active: Option<u32>,
    /// `agents` of the closed loop.
    pub agents: Option<u32>,
    /// The closed loop's `ramp` was given.
    pub ramp: bool,
    /// A seed was given.
    pub seed: bool,
}

impl OpenLoop {
    /// The open loop that a caller asked for; none for a closed one.
    ///
    /// # Errors
    ///
    /// Words that contradict each other or would do nothing, with the remedy.
    pub fn of(words: PacingWords<'_>) -> Result<Option<Self>, String> {
        let refuse = |text: &str| Err(text.to_owned());
        let Some(arrivals) = words.arrivals else {
            return match (words.time_scale, words.max_active) {
                (Some(_), _) => refuse("time_scale stretches arrivals; give arrivals with it"),
                (_, Some(_)) => refuse(
                    "max_active caps the open loop; give arrivals with it, or agents for a closed loop",
                ),
                _ => Ok(None),
            };
        };
        let arrivals: Arrivals = arrivals.parse().map_err(|error| format!("arrivals: {error}"))?;
        if words.agents.is_some() {
            return refuse(
                "agents is the closed loop's; with arrivals an agent begins at each of them: leave \
                 agents out, or cap them with max_active",
            );
        }
        if words.ramp {
            return refuse("ramp is the closed loop's; with arrivals these say when agents begin");
        }
        if arrivals == Arrivals::Recorded && words.seed {
            return refuse(
                "recorded arrivals begin each session at its own time; a seed has nothing to choose: \
                 leave it out",
            );
        }
        if arrivals == Arrivals::Burst && words.time_scale.is_some() {
            return refuse(
                "a burst begins all at once; there is nothing for time_scale to stretch",
            );
        }
        let time_scale = words.time_scale.unwrap_or(1.0);
        if !(time_scale.is_finite() && time_scale > 0.0) {
            return Err(format!("time_scale: {time_scale} is no factor above 0"));
        }
        if words.max_active == Some(0) {
            return refuse("max_active: 0 agents send nothing; give 1 or more, or leave it out");
        }
        Ok(Some(Self { arrivals, time_scale, max_active: words.max_active }))
    }

    /// Trajectories to begin where neither their number nor what the recording has is asked for; none
    /// where arrivals go on until time is up.
    ///
    /// # Errors
    ///
    /// More trajectories than a recording without a span has arrivals for.
    pub fn trajectories(
        &self,
        asked: Option<u64>,
        timed: bool,
        starts_ms: &[f64],
    ) -> Result<Option<u64>, String> {
        let sessions = starts_ms.len() as u64;
        let once = match self.arrivals {
            Arrivals::Recorded => period_ms(starts_ms).is_none(),
            Arrivals::Burst => true,
            Arrivals::Poisson(_) | Arrivals::Constant(_) => false,
        };
        match asked {
            Some(asked) if asked > sessions && once && self.arrivals == Arrivals::Recorded => {
                Err(format!(
                    "recorded arrivals: all {sessions} sessions begin at the same time, so they cannot \
                     start over; ask for at most {sessions} trajectories, or for other arrivals"
                ))
            }
            Some(asked) => Ok(Some(asked)),
            None if timed && !once => Ok(None),
            None => Ok(Some(sessions)),
        }
    }

    /// Times of arrival from the start of the run, in ms, without an end. `starts_ms` are the recorded
    /// sessions' starts from that of the first.
    pub fn times_ms(&self, starts_ms: Vec<f64>, seed: Option<u64>) -> ArrivalTimes {
        ArrivalTimes {
            arrivals: self.arrivals,
            time_scale: self.time_scale,
            period_ms: period_ms(&starts_ms).unwrap_or_default(),
            starts_ms,
            rng: StdRng::seed_from_u64(seed.unwrap_or_default() ^ GAP_SEED),
            poisson_ms: 0.0,
            next: 0,
        }
    }
}

/// The time after which recorded arrivals start over: their span and a mean gap. None where they have
/// no span.
fn period_ms(starts_ms: &[f64]) -> Option<f64> {
    let span_ms = starts_ms.last()? - starts_ms.first()?;
    let gaps = starts_ms.len() as f64 - 1.0;
    (span_ms > 0.0).then(|| span_ms + span_ms / gaps)
}

/// Times of arrival, in ms from the start of the run, in order.
#[derive(Debug)]
pub struct ArrivalTimes {
    arrivals: Arrivals,
    time_scale: f64,
    starts_ms: Vec<f64>,
    period_ms: f64,
    rng: StdRng,
    /// The sum of the gaps drawn so far.
    poisson_ms: f64,
    next: u64,
}

impl Iterator for ArrivalTimes {
    type Item = f64;

    fn next(&mut self) -> Option<f64> {
        let index = self.next;
        self.next += 1;
        let at_ms = match self.arrivals {
            Arrivals::Recorded => {
                let sessions = self.starts_ms.len().max(1) as u64;
                let start_ms = self.starts_ms.get((index % sessions) as usize)?;
                start_ms + (index / sessions) as f64 * self.period_ms
            }
            Arrivals::Poisson(rate) => {
                let gap: f64 = Exp1.sample(&mut self.rng);
                self.poisson_ms += gap * 1e3 / rate;
                self.poisson_ms
            }
            Arrivals::Constant(rate) => index as f64 * 1e3 / rate,
            Arrivals::Burst => 0.0,
        };
        Some(at_ms * self.time_scale)
    }
}

/// The order in which sessions are played: as recorded, or shuffled by a seed, anew for every pass.
#[derive(Debug)]
pub struct SessionOrder {
    seed: Option<u64>,
    pass: u64,
    order: Vec<usize>,
}

impl SessionOrder {
    /// The order of so many sessions.
    pub fn new(sessions: usize, seed: Option<u64>) -> Self {
        let mut order = Self { seed, pass: 0, order: (0..sessions).collect() };
        order.shuffle();
        order
    }

    /// The session that a trajectory plays, by the trajectory's number.
    pub fn session(&mut self, trajectory: u64) -> usize {
        let sessions = self.order.len().max(1) as u64;
        let pass = trajectory / sessions;
        if pass != self.pass {
            self.pass = pass;
            self.shuffle();
        }
        self.order[(trajectory % sessions) as usize]
    }

    /// Every pass is shuffled from the recorded order by its own seed, so that it does not depend on
    /// the passes asked for before.
    fn shuffle(&mut self) {
        let Some(seed) = self.seed else { return };
        self.order.sort_unstable();
        let pass_seed = seed ^ self.pass.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        self.order.shuffle(&mut StdRng::seed_from_u64(pass_seed));
    }
}

#[cfg(test)]
#[path = "arrivals_tests.rs"]
mod tests;
