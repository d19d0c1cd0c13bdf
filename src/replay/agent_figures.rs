//! What live agents came to: tasks completed by their checks and by the model's own word, steps, tool calls.
//!
//! Pure: from the rows of `trajectories` and `requests`, so that it can be recomputed. Latencies and rates
//! are the summary's as of any run.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::statistics::Statistic;
use crate::trace::record::{RequestRow, TrajectoryRow};

/// `agent` in `summary.json`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentFigures {
    /// Tasks worked on; one that was repeated counts each time.
    pub tasks: u64,
    /// Those with a check that could run: the base of `completed_pct`.
    pub checked: u64,
    /// Those whose check passed.
    pub completed: u64,
    /// Share of the checked tasks; null where none was checked.
    pub completed_pct: Option<f64>,
    /// Those that the model said it was done with.
    pub claimed: u64,
    /// Share of all tasks.
    pub claimed_pct: Option<f64>,
    /// Said to be done, and the check did not pass.
    pub claimed_not_completed: u64,
    /// The check passed, and the model never said that it was done.
    pub completed_not_claimed: u64,
    /// Tasks by what ended the work.
    pub outcomes: BTreeMap<String, u64>,
    /// Answers of the model, of a task.
    pub steps: Option<Statistic>,
    /// Tools called, malformed calls included.
    pub tool_calls: u64,
    /// Calls that came back as an error, malformed ones apart.
    pub tool_errors: u64,
    /// Calls that no tool could take.
    pub malformed_calls: u64,
    /// Share of the calls.
    pub malformed_pct: Option<f64>,
    /// Time of the tools between two requests.
    pub tool_time_ms: Option<Statistic>,
    /// Time of a task that its requests took, waits for the engine included.
    pub model_time_ms: Option<Statistic>,
    /// From taking a task up to the end of its last answer.
    pub task_time_ms: Option<Statistic>,
    /// Each task with its runs, by name.
    pub by_task: BTreeMap<String, TaskFigures>,
}

/// The runs of one task.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskFigures {
    /// Times that it was worked on.
    pub runs: u64,
    /// Times that its check passed.
    pub completed: u64,
    /// Times that the model said it was done.
    pub claimed: u64,
    /// Answers of the model, summed.
    pub steps: u64,
    /// Tools called, summed.
    pub tool_calls: u64,
    /// Why the check did not pass, the last time that it did not.
    pub note: Option<String>,
}

/// The figures of a run.
pub fn agent_figures(trajectories: &[TrajectoryRow], requests: &[RequestRow]) -> AgentFigures {
    let sum = |count: fn(&TrajectoryRow) -> Option<u32>| -> u64 {
        trajectories.iter().filter_map(count).map(u64::from).sum()
    };
    let count =
        |is: fn(&TrajectoryRow) -> bool| trajectories.iter().filter(|row| is(row)).count() as u64;
    let passed = |row: &TrajectoryRow| row.check_passed == Some(true);
    let (tasks, checked) = (trajectories.len() as u64, count(|row| row.check_passed.is_some()));
    let (completed, claimed) =
        (count(|row| row.check_passed == Some(true)), count(|row| row.claimed == Some(true)));
    let (tool_calls, malformed_calls) = (sum(|row| row.tool_calls), sum(|row| row.malformed_calls));
    let mut model_ms: BTreeMap<&str, f64> = BTreeMap::new();
    for row in requests {
        *model_ms.entry(&row.trajectory_id).or_default() += row.e2e_ms.unwrap_or_default();
    }
    let mut figures = AgentFigures {
        tasks,
        checked,
        completed,
        completed_pct: share_pct(completed, checked),
        claimed,
        claimed_pct: share_pct(claimed, tasks),
        claimed_not_completed: count(|row| {
            row.claimed == Some(true) && row.check_passed == Some(false)
        }),
        completed_not_claimed: count(|row| {
            row.claimed == Some(false) && row.check_passed == Some(true)
        }),
        steps: Statistic::of(trajectories.iter().filter_map(|row| row.steps).map(f64::from)),
        tool_calls,
        tool_errors: sum(|row| row.tool_errors),
        malformed_calls,
        malformed_pct: share_pct(malformed_calls, tool_calls),
        tool_time_ms: Statistic::of(requests.iter().filter_map(|row| row.tool_time_ms)),
        model_time_ms: Statistic::of(model_ms.into_values()),
        task_time_ms: Statistic::of(
            trajectories.iter().filter_map(|row| Some(row.end_ms? - row.start_ms)),
        ),
        ..AgentFigures::default()
    };
    for row in trajectories {
        let outcome = row.outcome.as_deref().unwrap_or("unknown");
        *figures.outcomes.entry(outcome.to_owned()).or_default() += 1;
        let name = row.task_id.as_deref().unwrap_or(&row.session_id);
        let task = figures.by_task.entry(name.to_owned()).or_default();
        task.runs += 1;
        task.completed += u64::from(passed(row));
        task.claimed += u64::from(row.claimed == Some(true));
        task.steps += u64::from(row.steps.unwrap_or_default());
        task.tool_calls += u64::from(row.tool_calls.unwrap_or_default());
        if !passed(row) {
            task.note.clone_from(&row.check_note);
        }
    }
    figures
}

fn share_pct(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 * 100.0 / whole as f64)
}

impl AgentFigures {
    /// Why the run failed beside its requests: that nobody got anything done.
    pub fn failed_because(&self) -> Option<String> {
        (self.checked > 0 && self.completed == 0)
            .then(|| format!("none of {} checked tasks was completed", self.checked))
    }

    /// What a reader must know.
    pub fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.claimed_not_completed > 0 {
            notes.push(format!(
                "{} task(s) were not completed although the model said that it was done",
                self.claimed_not_completed
            ));
        }
        let unchecked = self.tasks - self.checked;
        if unchecked > 0 {
            notes.push(format!(
                "{unchecked} of {} task(s) have no verdict of a check: whether they were completed is not known",
                self.tasks
            ));
        }
        notes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(name: &str, claimed: bool, check: Option<bool>, calls: (u32, u32)) -> TrajectoryRow {
        TrajectoryRow {
            trajectory_id: format!("{name}-{claimed}-{check:?}"),
            task_id: Some(name.to_owned()),
            outcome: Some(if claimed { "done" } else { "max_steps" }.to_owned()),
            claimed: Some(claimed),
            check_passed: check,
            check_note: (check != Some(true)).then(|| "exit code 1".to_owned()),
            start_ms: 100.0,
            end_ms: Some(600.0),
            steps: Some(3),
            tool_calls: Some(calls.0),
            malformed_calls: Some(calls.1),
            tool_errors: Some(1),
            ..TrajectoryRow::default()
        }
    }

    #[test]
    fn checks_and_claims_are_counted_apart() {
        let rows = [
            task("a", true, Some(true), (4, 1)),
            task("a", true, Some(false), (4, 0)),
            task("b", false, Some(true), (2, 0)),
            task("b", false, Some(false), (0, 0)),
            task("c", true, None, (0, 0)),
        ];
        let request = |tool_time_ms, e2e_ms| RequestRow {
            trajectory_id: rows[0].trajectory_id.clone(),
            tool_time_ms,
            e2e_ms: Some(e2e_ms),
            ..RequestRow::default()
        };
        let figures = agent_figures(&rows, &[request(None, 30.0), request(Some(8.0), 50.0)]);
        assert_eq!((figures.tasks, figures.checked, figures.completed), (5, 4, 2));
        assert_eq!((figures.completed_pct, figures.claimed), (Some(50.0), 3));
        assert_eq!(figures.claimed_pct, Some(60.0));
        assert_eq!((figures.claimed_not_completed, figures.completed_not_claimed), (1, 1));
        assert_eq!((figures.tool_calls, figures.malformed_calls, figures.tool_errors), (10, 1, 5));
        assert_eq!(figures.malformed_pct, Some(10.0));
        let mean = |statistic: Option<Statistic>| statistic.map(|statistic| statistic.mean);
        assert_eq!(mean(figures.model_time_ms), Some(80.0));
        assert_eq!(figures.tool_time_ms.unwrap().n, 1);
        assert_eq!(mean(figures.task_time_ms), Some(500.0));
        assert_eq!(figures.outcomes, BTreeMap::from([("done".into(), 3), ("max_steps".into(), 2)]));
        let a = &figures.by_task["a"];
        assert_eq!((a.runs, a.completed, a.claimed, a.steps), (2, 1, 2, 6));
        assert_eq!(a.note.as_deref(), Some("exit code 1"));
        assert_eq!(figures.failed_because(), None);
        assert_eq!(figures.notes().len(), 2);
    }

    #[test]
    fn a_run_without_a_completed_task_has_failed() {
        let figures = agent_figures(&[task("a", true, Some(false), (0, 0))], &[]);
        assert_eq!(
            figures.failed_because().as_deref(),
            Some("none of 1 checked tasks was completed")
        );
        assert_eq!(figures.malformed_pct, None);
        let unchecked = agent_figures(&[task("a", true, None, (0, 0))], &[]);
        assert_eq!((unchecked.failed_because(), unchecked.completed_pct), (None, None));
        assert_eq!(agent_figures(&[], &[]).claimed_pct, None);
    }
}
