//! From a recording's tables to the plan: which columns are read, and what is asked for in place of what
//! was recorded. What a plan is stands in `plan`.

use super::plan::{Plan, Planner, UnitFacts};
use super::settings::ContentMode;
use super::start::ReplayConfig;
use super::synthetic_plan::SyntheticPrompts;
use super::waits::Waits;
use crate::error::{Error, Result};
use crate::trace::record::TurnRow;
use crate::trace::{Run, TurnDigest};

/// The columns that planning looks at: the texts, which are most of the table, are not read.
const PLANNED_COLUMNS: [&str; 24] = [
    "session_id",
    "thread_id",
    "parent_thread_id",
    "turn",
    "request_id",
    "api",
    "kind",
    "outcome",
    "body_template",
    "unit_hashes",
    "n_shared_units",
    "server_history",
    "changes",
    "request_time",
    "response_end_time",
    "last_output_time",
    "e2e_ms",
    "tool_exec_ms",
    "residual_wait_ms",
    "isl",
    "isl_cached",
    "osl",
    "block_hashes",
    "block_size",
];

/// The plan of a recording. Blocks: reads its tables.
pub(super) fn plan_of(
    run: &Run,
    config: &ReplayConfig,
) -> Result<(Plan, Option<SyntheticPrompts>)> {
    let is_synthetic = config.content == ContentMode::Synthetic;
    let mut digest = TurnDigest::default();
    let mut planner = Planner::new(config.include_utility).with_cache_sharing(config.cache_sharing);
    if is_synthetic {
        planner = planner.synthetic();
    }
    // Every unit is asked for in the end; their texts are read beside the turns.
    let (turns, units) = std::thread::scope(|scope| {
        let units = scope.spawn(|| run.load_units());
        let turns = run.rows_of_columns::<TurnRow>(&PLANNED_COLUMNS).and_then(|mut turns| {
            turns.try_for_each(|turn| {
                let turn = turn?;
                digest.add(&turn);
                planner.add(turn);
                Ok(())
            })
        });
        (turns, units.join())
    });
    turns?;
    units.map_err(|_| Error::Internal("the reader of units panicked".to_owned()))??;
    let waits =
        Waits { tool_time: config.tool_time, human_time: config.human_time, ..Waits::default() };
    let mut plan = planner.finish(&|hash| unit_facts(run, hash), waits);
    plan.content_hash = digest.finish();
    for request in plan.sessions.iter_mut().flat_map(|session| &mut session.requests) {
        request.target_output_tokens = config.output_length.target(request.target_output_tokens);
    }
    if plan.sessions.is_empty() {
        let skipped: Vec<String> =
            plan.skipped.iter().map(|(reason, n)| format!("{n} {reason}")).collect();
        let why = if skipped.is_empty() {
            "it has no turns".to_owned()
        } else {
            format!("every turn is left out: {}", skipped.join(", "))
        };
        return Err(Error::config(format!(
            "recording {} has nothing to replay: {why}; give one with answered requests",
            run.manifest().run_id
        )));
    }
    let prompts = is_synthetic.then(|| {
        let bytes = |hash: &str| run.unit_bytes(hash).unwrap_or(0);
        SyntheticPrompts::of(&mut plan, config.cache_sharing, &bytes)
    });
    Ok((plan, prompts))
}

/// What planning wants of a unit. Its length is the recorded one: a published run may hold less of the text.
fn unit_facts(run: &Run, hash: &str) -> Option<UnitFacts> {
    let (text, n_bytes) = (run.unit_text(hash).ok()?, run.unit_bytes(hash).ok()?);
    Some(UnitFacts { n_bytes, ..UnitFacts::of(text) })
}
