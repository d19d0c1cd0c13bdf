//! Synthetic sessions after published statistics, written as a run directory.
//!
//! `profile` holds the figures, `planner` draws sessions in counts and times, `statistics` compares them
//! with what has been published, `text` and `tools` write words of our own, `wire` makes request bodies
//! of them and `rows` reads rows off those; `round_rows` tells plans in another project's rows. Everything below this file is pure; the same seed gives the
//! same tables. Such a run is labelled synthetic in its manifest and names no real agent or model.

#[cfg(test)]
mod consistency;
pub mod plan;
pub mod planner;
pub mod profile;
pub mod round_rows;
mod rows;
mod session;
pub mod spread;
pub mod statistics;
mod text;
mod tools;
mod wire;

use std::path::PathBuf;

use rand::RngExt;

use crate::clock::{Clock, unix_seconds};
use crate::error::{Error, Result};
use crate::shutdown::Shutdown;
use crate::trace::{HostInfo, Manifest, RunKind, RunWriter};
use plan::SessionPlan;
use planner::plan_session;
use profile::Profile;
use session::SessionWriter;

/// The start of a synthetic run where nobody names another: 2026-01-05 09:00 UTC, so that the same
/// seed gives the same bytes on any day.
pub const DEFAULT_START_NS: i64 = 1_767_603_600_000_000_000;

/// The most sessions of one run.
pub const MAX_SESSIONS: u32 = 100_000;

/// What to make.
#[derive(Debug, Clone)]
pub struct SynthesizeConfig {
    /// The run directory to make; must not exist, or be empty.
    pub out: PathBuf,
    /// Name of the run; empty: one made of profile and seed.
    pub run_id: String,
    /// The profile's name, one of `profile::PROFILE_NAMES`.
    pub profile: String,
    /// Sessions to make.
    pub sessions: u32,
    /// Same seed, same tables.
    pub seed: u64,
    /// Cuts every session's main conversation after so many requests.
    pub max_turns: Option<u32>,
    /// When the first session starts, nanoseconds since the Unix epoch.
    pub start_ns: i64,
    /// The command line, for the manifest.
    pub argv: Vec<String>,
    /// The machine, for the manifest.
    pub host: HostInfo,
}

/// Writes a synthetic run directory. A shutdown ends it after the session at hand; what is there is
/// kept, and `counts.sessions` of the manifest says how many sessions that is.
pub fn synthesize(config: &SynthesizeConfig, shutdown: &Shutdown) -> Result<Manifest> {
    let profile = Profile::by_name(&config.profile)?;
    check(config)?;
    let run_id = if config.run_id.is_empty() {
        format!("synthetic-{}-{}", profile.name, config.seed)
    } else {
        config.run_id.clone()
    };
    let writer = RunWriter::create(&config.out, manifest(config, &profile, &run_id))?;
    let rows = writer.sender();
    let mut sessions = SessionWriter::new(&profile, &run_id, config.seed);
    let mut plans: Vec<SessionPlan> = Vec::new();
    let mut start_ns = config.start_ns;
    let mut ended_ns = start_ns;
    for index in 0..config.sessions {
        if shutdown.is_cancelled() {
            break;
        }
        let plan = plan_session(&profile, config.seed, index, config.max_turns);
        for row in sessions.rows(&plan, start_ns)? {
            rows.send_blocking(row);
        }
        // Half a synthetic run is of no use to anybody, unlike half a recording.
        if rows.dropped() > 0 {
            let said = rows.last_error().unwrap_or_else(|| "rows were lost".into());
            return Err(Error::io(&config.out, std::io::Error::other(said)));
        }
        ended_ns = ended_ns.max(start_ns + duration_us(&plan) * 1000);
        start_ns += until_next_ns(&profile, config.seed, index);
        plans.push(plan);
    }
    writer.update_manifest(|manifest| {
        manifest.ended = Some(unix_seconds(ended_ns));
        manifest.counts.insert("sessions".into(), plans.len() as u64);
        let statistics = statistics::report(&plans);
        manifest.settings.insert("statistics".into(), serde_json::Value::Object(statistics));
        if (plans.len() as u32) < config.sessions {
            manifest.notes.push("Ended early: fewer sessions than asked for.".into());
        }
    })?;
    writer.finish()
}

fn check(config: &SynthesizeConfig) -> Result<()> {
    if config.sessions == 0 || config.sessions > MAX_SESSIONS {
        return Err(Error::config(format!(
            "{} sessions: choose a number from 1 to {MAX_SESSIONS}",
            config.sessions
        )));
    }
    if config.max_turns == Some(0) {
        return Err(Error::config("max_turns is 0: give at least 1, or leave it out"));
    }
    // Half of the range is room for the sessions themselves.
    if config.start_ns < 0 || config.start_ns > i64::MAX / 2 {
        return Err(Error::config("the start lies outside the years 1970 to 2116"));
    }
    Ok(())
}

fn manifest(config: &SynthesizeConfig, profile: &Profile, run_id: &str) -> Manifest {
    let mut manifest = Manifest::new(RunKind::Synthetic, run_id, &Clock::start());
    manifest.clock_anchor_ns = config.start_ns;
    manifest.synthetic = true;
    manifest.argv.clone_from(&config.argv);
    manifest.host = config.host.clone();
    manifest.dataset = Some(format!("synthetic profile {}", profile.name));
    let settings = serde_json::json!({
        "profile": profile.name,
        "about": profile.about,
        "sessions": config.sessions,
        "seed": config.seed,
        "max_turns": config.max_turns,
        "start": unix_seconds(config.start_ns),
        "chat_share": profile.chat_share,
        "compact_at_tokens": profile.compact_at_tokens,
        "keep_cache_ms": profile.keep_cache_ms,
        "first_ms": profile.speed.first_ms,
        "prefill_tokens_per_s": profile.speed.prefill_tokens_per_s,
        "token_ms": profile.speed.token_ms,
    });
    if let serde_json::Value::Object(settings) = settings {
        manifest.settings = settings;
    }
    manifest.notes = vec![
        "Synthetic: no agent, model, tool or engine ran; texts and times are made up.".into(),
        format!("Profile {}: {}.", profile.name, profile.about),
        "Sizes, waits and shapes follow statistics published by TraceLab; settings.statistics has \
         the planned figures of this run, at the profile's scale, beside the published ones."
            .into(),
        "Tokens are counted as bytes of the units' JSON in groups of 4, not by a tokenizer; real \
         models count the same text differently."
            .into(),
        "Response times and cached tokens come from the imagined engine in settings (first_ms, \
         prefill_tokens_per_s, token_ms, keep_cache_ms), not from a measurement."
            .into(),
    ];
    manifest
}

fn duration_us(plan: &SessionPlan) -> i64 {
    plan.threads
        .iter()
        .filter_map(|thread| thread.turns.last())
        .map(|turn| turn.end_us)
        .max()
        .unwrap_or(0)
}

/// From one session's start to the next one's: sessions come independently of each other.
fn until_next_ns(profile: &Profile, seed: u64, index: u32) -> i64 {
    let share: f64 = planner::generator(seed, index, 2).random_range(0.0..1.0);
    (-(1.0 - share).ln() * profile.between_sessions_ms * 1e6) as i64
}
