//! What a reader must know of a summary's figures, a sentence each: of a replay, and of a capacity search.
//!
//! Figures and labels are `summary`'s; the client's, live content's and open loop's own sentences stand with their
//! figures.

use super::capacity_summary::{CapacityFigures, CapacitySettings};
use super::live_figures::LiveFigures;
use super::open_loop_figures::OpenLoopFigures;
use super::salts::CacheSharing;
use super::settings::ContentMode;
use super::summary::Summary;
use crate::trace::record::RequestRow;

pub(super) fn search_notes(capacity: &CapacityFigures, cache_sharing: CacheSharing) -> Vec<String> {
    let mut notes = vec![capacity.result.clone()];
    if let Some(level) = capacity.level {
        notes.push(format!("the figures beside the level table are of level {level} alone"));
    }
    notes.extend(preset_note(&capacity.settings));
    if capacity.unstable {
        notes.push("a level passed once and failed once: the lower answer is given".into());
    }
    notes.extend(overstated_note(&capacity.speed_overstated_levels));
    if capacity.curve.iter().any(|row| !row.cache_reset) {
        let apart = if cache_sharing.has_salts() {
            "salts of its own kept each level from the prompts of those before it"
        } else {
            "levels may profit from those before them"
        };
        notes.push(format!("the engine's cache was not emptied before every level: {apart}"));
    }
    notes
}

/// What a reader must know of levels that were judged by speeds that are too good.
fn overstated_note(levels: &[u32]) -> Option<String> {
    let listed: Vec<String> = levels.iter().map(u32::to_string).collect();
    (!levels.is_empty()).then(|| {
        format!(
            "the speed of level {} is overstated: responses go on for more than {} % of their time after \
             their last chunk with output, so conditions on tpot and speed count tokens whose time they do \
             not see",
            listed.join(", "),
            super::measure::UNSEEN_OUTPUT_LIMIT_PCT
        )
    })
}

/// What a reader must know of a preset that is no measurement to publish, or is not itself any more.
fn preset_note(settings: &CapacitySettings) -> Option<String> {
    let preset = &settings.preset;
    if preset.starts_with("quick") {
        Some(format!(
            "preset {preset}: levels of seconds, far below the published 30 trajectories, 3 an agent \
             and 10 minutes; a first look, not a result to publish"
        ))
    } else if settings.preset_changes.is_empty() {
        None
    } else {
        Some(format!("preset {preset}: not comparable with results of the preset as it is"))
    }
}

pub(super) fn add_notes(summary: &mut Summary, requests: &[RequestRow]) {
    let mut notes = Vec::new();
    if summary.labels.simulated {
        notes.push("the engine is simulated: no figure says anything about any hardware".into());
    }
    if summary.labels.synthetic_trace {
        notes.push("the recording is synthetic: made up after published statistics".into());
    }
    notes.extend(retries_note(requests));
    let off_length = summary.output_length.short + summary.output_length.long;
    if off_length > 0 {
        let forcing = summary.labels.output_length.as_str();
        notes.push(format!(
            "{off_length} outputs are shorter or longer than recorded (length forcing {forcing}): \
             rates and latencies are not those of the recorded lengths"
        ));
    }
    // Of live agents the whole run is told: how long a task takes is theirs to say.
    let tells_steady = summary.agent.is_none();
    if tells_steady && summary.requests.sent > 0 && summary.steady.requests.sent == 0 {
        notes.push(
            if summary.open_loop.is_some() {
                "no steady state: the last arrival was admitted, or the run's time was up, before the \
                 first trajectory had ended; only the whole run has figures"
            } else {
                "no steady state: the run ended before every agent was through its first request, or \
                 an agent had nothing left to start by then; only the whole run has figures"
            }
            .into(),
        );
    }
    notes.extend(summary.open_loop.iter().flat_map(OpenLoopFigures::notes));
    notes.extend(summary.prefix_hits.notes());
    notes.extend(synthetic_note(summary));
    notes.extend(summary.live.iter().filter_map(LiveFigures::note));
    if let Some(engine) = &summary.engine {
        if engine.counter_reset {
            notes
                .push("an engine was restarted during the run: its counters give no figure".into());
        } else if !engine.covers_end {
            notes.push(
                "no poll came after the last response: the engine's figures may lack the last \
                 requests"
                    .into(),
            );
        }
    }
    summary.notes.extend(notes);
}

/// What a reader must know of prompts of our own that had not the length planned.
fn synthetic_note(summary: &Summary) -> Option<String> {
    (summary.settings.content == ContentMode::Synthetic).then_some(())?;
    let deviation = summary.whole.fields.get("prompt_tokens_deviation")?;
    (deviation.min != 0.0 || deviation.max != 0.0).then(|| {
        format!(
            "prompts have not the tokens planned: planned - actual is {} to {} tokens, {:.1} in \
             the mean",
            deviation.min, deviation.max, deviation.mean
        )
    })
}

/// What a reader of latencies must know of requests that were sent more than once.
fn retries_note(requests: &[RequestRow]) -> Option<String> {
    let again = requests.iter().filter(|row| row.attempts > 1);
    let (n, attempts) = again.fold((0_u32, 0_u32), |(n, sum), row| (n + 1, sum + row.attempts));
    (n > 0).then(|| {
        format!(
            "{n} requests were sent more than once ({attempts} attempts): their latencies count \
             from the first one, waits included"
        )
    })
}
