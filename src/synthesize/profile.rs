//! What the sessions of a synthetic run are like, as data: every figure that generation draws from.
//!
//! The figures of `tracelab` are set so that the published ones come out over many sessions
//! (`statistics.rs` lists them with their tolerances, and a test measures them). The other profiles
//! have the same shape at another scale. Figures that nobody has published are marked as chosen.

use crate::error::{Error, Result};
use crate::synthesize::spread::Spread;

/// How fast the imagined engine answers: the recorded response times follow from it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Speed {
    /// Time to first token of a request whose prompt is wholly cached.
    pub first_ms: f64,
    /// Prompt tokens computed in a second.
    pub prefill_tokens_per_s: f64,
    /// Time from one output token to the next.
    pub token_ms: f64,
}

/// A tool as the sessions use it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ToolUse {
    /// The tool's name.
    pub name: &'static str,
    /// How often it is called, beside the others.
    pub weight: f64,
    /// Tokens in its result.
    pub result_tokens: Spread,
    /// Share of its calls that take more than a minute.
    pub long_share: f64,
    /// How long the other calls take.
    pub short_ms: Spread,
}

/// Everything that generation draws from.
#[derive(Debug, Clone, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// One sentence for the manifest.
    pub about: &'static str,
    /// User requests in a session.
    pub user_requests: Spread,
    /// Model steps that a user request takes on the main thread.
    pub steps: Spread,
    /// Model steps of a subagent.
    pub subagent_steps: Spread,
    /// Share of tool steps of the main thread that hand work to subagents (chosen).
    pub delegating_share: f64,
    /// Chance that a step makes one more tool call.
    pub another_call: f64,
    /// The tools, those that start subagents excepted.
    pub tools: Vec<ToolUse>,
    /// Share of calls whose result is an error (chosen).
    pub error_share: f64,
    /// How long a call of more than a minute takes.
    pub long_ms: Spread,
    /// From the last result to the next request: the agent's own time (chosen).
    pub agent_ms: Spread,
    /// From an answer to the user's next request.
    pub human_ms: Spread,
    /// Output tokens of a step.
    pub output_tokens: Spread,
    /// Tokens of a user's request.
    pub user_tokens: Spread,
    /// Tokens that the first user message carries beside the request: notes on the project (chosen).
    pub notes_tokens: u32,
    /// Tokens of the system prompt.
    pub system_tokens: u32,
    /// Tokens of the tool definitions.
    pub tools_tokens: u32,
    /// Prompt tokens from which a conversation is compacted.
    pub compact_at_tokens: u32,
    /// Tokens of a compaction's summary (chosen).
    pub summary_tokens: Spread,
    /// How long the imagined engine keeps the KV cache of an idle conversation.
    pub keep_cache_ms: f64,
    /// The imagined engine.
    pub speed: Speed,
    /// Share of sessions that speak Chat Completions; the others speak Messages (chosen).
    pub chat_share: f64,
    /// `max_tokens` of the requests.
    pub max_output_tokens: u32,
    /// From the start of one session to the start of the next (chosen).
    pub between_sessions_ms: f64,
}

/// The names that `Profile::by_name` knows.
pub const PROFILE_NAMES: [&str; 3] = ["tracelab", "small", "sample"];

impl Profile {
    /// A profile by its name.
    pub fn by_name(name: &str) -> Result<Self> {
        match name {
            "tracelab" => Ok(Self::tracelab()),
            "small" => Ok(Self::small()),
            "sample" => Ok(Self::sample()),
            other => Err(Error::config(format!(
                "no profile {other:?}: choose one of {}",
                PROFILE_NAMES.join(", ")
            ))),
        }
    }

    /// Full scale: contexts of a coding agent at work, after `TraceLab`'s figures.
    pub fn tracelab() -> Self {
        Self {
            name: "tracelab",
            about: "full scale: the published figures come out as they are",
            user_requests: Spread::new(5.25, 1.11, 1.0, 120.0),
            steps: Spread::new(4.6, 1.03, 1.0, 120.0),
            subagent_steps: Spread::new(9.0, 0.7, 2.0, 60.0),
            delegating_share: 0.008,
            another_call: 0.285,
            tools: tools(1.0, 1.0),
            error_share: 0.04,
            long_ms: Spread::new(133_000.0, 0.68, 60_500.0, 1_800_000.0),
            agent_ms: Spread::new(25.0, 0.5, 5.0, 200.0),
            human_ms: Spread::new(86_000.0, 2.094, 1_000.0, 28_800_000.0),
            output_tokens: Spread::new(214.0, 1.05, 24.0, 16_000.0),
            user_tokens: Spread::new(60.0, 1.1, 8.0, 4_000.0),
            notes_tokens: 3_000,
            system_tokens: 2_600,
            tools_tokens: 10_500,
            compact_at_tokens: 660_000,
            summary_tokens: Spread::new(2_500.0, 0.3, 800.0, 6_000.0),
            keep_cache_ms: 420_000.0,
            speed: Speed { first_ms: 900.0, prefill_tokens_per_s: 14_000.0, token_ms: 15.0 },
            chat_share: 0.3,
            max_output_tokens: 32_000,
            between_sessions_ms: 240_000.0,
        }
    }

    /// The same shape with contexts of up to 28k tokens and waits of a tenth, for engines on a CPU.
    pub fn small() -> Self {
        let full = Self::tracelab();
        Self {
            name: "small",
            about: "the shape of tracelab in short sessions: system prompt and tools at 1/8, tool \
                    results at 1/7, output at 2/5, a quarter of the user requests, waits of 1/10; \
                    prompts stay below 28,000 tokens",
            user_requests: Spread::new(1.9, 0.6, 1.0, 8.0),
            steps: Spread::new(4.6, 1.03, 1.0, 40.0),
            subagent_steps: Spread::new(6.0, 0.6, 2.0, 20.0),
            tools: tools(0.14, 0.1),
            long_ms: full.long_ms.times(0.1),
            human_ms: full.human_ms.times(0.1),
            output_tokens: Spread::new(86.0, 0.85, 24.0, 1_500.0),
            user_tokens: Spread::new(45.0, 0.8, 8.0, 500.0),
            notes_tokens: 300,
            system_tokens: 500,
            tools_tokens: 1_250,
            compact_at_tokens: 23_000,
            summary_tokens: Spread::new(600.0, 0.3, 300.0, 1_200.0),
            keep_cache_ms: 90_000.0,
            speed: Speed { first_ms: 120.0, prefill_tokens_per_s: 12_000.0, token_ms: 6.0 },
            max_output_tokens: 2_048,
            between_sessions_ms: 24_000.0,
            ..full
        }
    }

    /// What the bundled sample is made with: contexts of 2k to 12k tokens, waits of 1/300.
    pub fn sample() -> Self {
        let full = Self::tracelab();
        Self {
            name: "sample",
            about: "a handful of short sessions with contexts of 2,000 to 12,000 tokens and waits of \
                    1/300, so that a replay ends in seconds",
            user_requests: Spread::new(2.6, 0.4, 1.0, 5.0),
            steps: Spread::new(4.2, 0.6, 1.0, 10.0),
            subagent_steps: Spread::new(3.0, 0.3, 2.0, 5.0),
            delegating_share: 0.06,
            tools: tools(0.3, 1.0 / 300.0),
            long_ms: full.long_ms.times(1.0 / 300.0),
            agent_ms: Spread::new(3.0, 0.3, 1.0, 10.0),
            human_ms: Spread::new(86_000.0, 2.094, 1_000.0, 300_000.0).times(1.0 / 300.0),
            output_tokens: Spread::new(90.0, 0.6, 24.0, 400.0),
            user_tokens: Spread::new(40.0, 0.6, 8.0, 200.0),
            notes_tokens: 250,
            system_tokens: 420,
            tools_tokens: 1_100,
            compact_at_tokens: 10_500,
            summary_tokens: Spread::new(350.0, 0.2, 200.0, 500.0),
            keep_cache_ms: 60_000.0,
            speed: Speed { first_ms: 40.0, prefill_tokens_per_s: 20_000.0, token_ms: 4.0 },
            max_output_tokens: 1_024,
            between_sessions_ms: 1_500.0,
            ..full
        }
    }
}

/// The tools of every profile. The first three hold about 83 % of calls, as published; how long and
/// how large each one's results are is set so that the totals come out.
fn tools(size: f64, time: f64) -> Vec<ToolUse> {
    let tool = |name, weight, median: f64, sigma, long_share, short_ms: f64| ToolUse {
        name,
        weight,
        result_tokens: Spread::new(median, sigma, 8.0, 24_000.0).sized(size),
        long_share,
        short_ms: Spread::new(short_ms, 1.3, 2.0, 59_000.0).times(time),
    };
    vec![
        tool("Bash", 45.0, 345.0, 1.8, 0.076, 1_150.0),
        tool("Read", 24.5, 940.0, 1.6, 0.0, 30.0),
        tool("Edit", 14.0, 150.0, 0.7, 0.0, 60.0),
        tool("Grep", 6.5, 280.0, 1.1, 0.0, 150.0),
        tool("Write", 3.5, 60.0, 0.4, 0.0, 40.0),
        tool("Glob", 3.5, 140.0, 0.9, 0.0, 120.0),
        tool("TodoWrite", 2.5, 70.0, 0.3, 0.0, 10.0),
        tool("WebFetch", 0.5, 900.0, 0.8, 0.05, 4_000.0),
    ]
}

impl Spread {
    /// Sizes scaled, with the smallest result kept as it is.
    fn sized(self, factor: f64) -> Self {
        Self { low: self.low, ..self.times(factor) }
    }
}
