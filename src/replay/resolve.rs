//! A replay's settings as they will be: what was asked for, what follows from the plan and the engine, and
//! what a reader of the figures must know of it.

use std::time::Duration;

use super::arrivals::Arrivals;
use super::asked::Engine;
use super::content::Vocabulary;
use super::plan::Plan;
use super::settings::{
    ContentMode, EndedBy, OutputLengthRule, ReplaySettings, SyntheticText, TraceIdentity,
};
use super::start::ReplayConfig;
use super::watch::listens_here;
use super::window::Window;
use crate::api::ContentHash;
use crate::clock::Clock;
use crate::error::{Error, Result};
use crate::trace::Run;

/// Start-up of one agent after another where no ramp is asked for, and the longest such ramp.
const RAMP_PER_AGENT: Duration = Duration::from_millis(50);
const RAMP_LIMIT: Duration = Duration::from_secs(10);

/// The ramp of so many agents where none is asked for.
pub(super) fn default_ramp(agents: u32) -> Duration {
    (RAMP_PER_AGENT * agents).min(RAMP_LIMIT)
}

/// The settings, before anything is sent.
pub(super) fn settings(
    run: &Run,
    config: &ReplayConfig,
    plan: &Plan,
    engine: &Engine,
    clock: Clock,
) -> Result<ReplaySettings> {
    let sessions = plan.sessions.len() as u64;
    let trajectories = trajectories(config, plan)?;
    // An agent for which there is nothing to do would end the steady state before it begins.
    let most = trajectories.unwrap_or(u64::MAX).min(u64::from(u32::MAX)) as u32;
    let open = config.open_loop;
    let agents = if open.is_some() { 0 } else { config.agents.min(most) };
    // Agents that may be at work at once, as far as that is asked for.
    let at_once = match open {
        None => agents,
        Some(open) if open.is_burst() => open.max_active.unwrap_or(most).min(most),
        Some(open) => open.max_active.unwrap_or_default(),
    };
    let ramp = match open {
        Some(_) => Duration::ZERO,
        None => config.ramp.unwrap_or_else(|| default_ramp(agents)),
    };
    let synthetic_text = match &engine.vocabulary {
        Some(Vocabulary::Words(text)) => Some(text.told.clone()),
        Some(Vocabulary::Ids(_)) | None => None,
    };
    let notes = notes(run, config, plan, engine, (agents, synthetic_text.as_ref()));
    Ok(ReplaySettings {
        url: engine.info.url.clone(),
        model: engine.model.clone(),
        simulated: engine.info.simulated,
        live_agents: false,
        synthetic_trace: run.manifest().synthetic,
        trace: TraceIdentity::of(run, plan),
        agents,
        arrivals: open.map(|open| open.arrivals),
        time_scale: open.map(|open| open.time_scale),
        max_active: open.and_then(|open| open.max_active),
        not_admitted: None,
        seed: config.seed,
        duration_s: config.duration.map(|duration| duration.as_secs_f64()),
        trajectories,
        ramp_s: ramp.as_secs_f64(),
        on_error: config.on_error,
        max_error_rate_pct: config.max_error_rate_pct,
        max_retries: config.retries.max,
        retry_backoff_s: config.retries.backoff.as_secs_f64(),
        retry_backoff_max_s: config.retries.backoff_max.as_secs_f64(),
        connect_timeout_s: config.timeouts.connect.as_secs_f64(),
        first_byte_timeout_s: config.timeouts.first_byte.map(|time| time.as_secs_f64()),
        idle_timeout_s: config.timeouts.idle.map(|time| time.as_secs_f64()),
        request_timeout_s: config.timeouts.request.map(|time| time.as_secs_f64()),
        include_utility: config.include_utility,
        content: config.content,
        synthetic_text,
        tool_time: config.tool_time,
        human_time: config.human_time,
        tool_waits: plan.waits.tools,
        human_waits: plan.waits.humans,
        output_length: config.output_length,
        cache_sharing: config.cache_sharing,
        salt: config
            .cache_sharing
            .has_salts()
            .then(|| config.salt.clone().unwrap_or_else(|| own_salt(clock))),
        trajectories_per_pass: trajectories_per_pass(plan, at_once),
        strict: config.strict,
        api: config.api,
        routes: engine.routes.iter().map(|route| route.as_setting(config.content)).collect(),
        engine_in_process: listens_here(&engine.info.url),
        sessions,
        requests_per_pass: plan.n_requests() as u64,
        skipped: plan.skipped.clone(),
        workers: Vec::new(),
        ended_by: EndedBy::default(),
        window: Window::default(),
        clock_anchor_ns: clock.anchor_ns(),
        notes,
    })
}

/// What a reader of the figures must know, a sentence each. `made` is how many agents there will be, and
/// what text of our own is made of.
fn notes(
    run: &Run,
    config: &ReplayConfig,
    plan: &Plan,
    engine: &Engine,
    made: (u32, Option<&SyntheticText>),
) -> Vec<String> {
    let (agents, synthetic_text) = made;
    let mut notes: Vec<String> =
        engine.routes.iter().flat_map(|route| route.notes(config.content)).collect();
    notes.extend(config.content.note(synthetic_text));
    notes.extend(plan.waits.notes());
    if run.manifest().redacted {
        notes.push(
            "the recording is redacted: its texts hold masks, which differ in tokens from what they stand for, so \
             prompts are not as long as recorded"
                .to_owned(),
        );
    }
    if config.output_length != OutputLengthRule::Recorded {
        let rule = String::from(config.output_length);
        notes.push(format!("output lengths are not the recorded ones: {rule}"));
    }
    notes.push(config.cache_sharing.note(config.content != ContentMode::Synthetic));
    if let Some(salt) = config.salt.as_ref().filter(|_| config.cache_sharing.has_salts()) {
        notes.push(format!(
            "the salt {salt:?} was given: what an earlier run with the same one left in the engine's \
             cache counts as a hit"
        ));
    }
    notes.extend(pacing_notes(config, plan));
    if config.open_loop.is_none() && agents < config.agents {
        notes.push(format!(
            "{} agents were asked for; {agents} had a trajectory to work on",
            config.agents
        ));
    }
    if !plan.skipped.is_empty() {
        let skipped: Vec<String> =
            plan.skipped.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        notes.push(format!("recorded turns left out: {}", skipped.join(", ")));
    }
    notes
}

/// Trajectories after which nothing more is started; none where only time ends the run.
fn trajectories(config: &ReplayConfig, plan: &Plan) -> Result<Option<u64>> {
    let Some(open) = config.open_loop else {
        let sessions = plan.sessions.len() as u64;
        return Ok(match (config.trajectories, config.duration) {
            (None, None) => Some(sessions.max(u64::from(config.agents))),
            (trajectories, _) => trajectories,
        });
    };
    let starts_ms: Vec<f64> = plan.sessions.iter().map(|session| session.start_ms).collect();
    open.trajectories(config.trajectories, config.duration.is_some(), &starts_ms)
        .map_err(Error::config)
}

/// What of the pacing a reader would not take for granted.
fn pacing_notes(config: &ReplayConfig, plan: &Plan) -> Vec<String> {
    let mut notes = Vec::new();
    if let Some(open) = config.open_loop {
        let mut parts = vec![format!("open loop: arrivals {}", String::from(open.arrivals))];
        if open.arrivals == Arrivals::Recorded {
            let span_ms = plan.sessions.last().map_or(0.0, |session| session.start_ms);
            let sessions = plan.sessions.len();
            parts.push(format!("{sessions} sessions over {:.1} s", span_ms / 1e3));
        }
        if open.time_scale.total_cmp(&1.0).is_ne() {
            parts.push(format!("times multiplied by {}", open.time_scale));
        }
        parts.extend(open.max_active.map(|most| format!("at most {most} agents at once")));
        notes.push(parts.join(", "));
    }
    if let Some(seed) = config.seed {
        notes.push(format!("sessions are played in an order shuffled with seed {seed}"));
    }
    notes
}

/// Agents at work at once are in one pass, however few the sessions are.
pub(super) fn trajectories_per_pass(plan: &Plan, agents: u32) -> u64 {
    (plan.sessions.len() as u64).max(u64::from(agents))
}

/// A salt that no other run has: of its start, to the nanosecond. Workers of one run have one start.
fn own_salt(clock: Clock) -> String {
    let start = clock.anchor_ns().to_string();
    ContentHash::of(start.as_bytes()).hex()[..16].to_owned()
}
