"""What became of each task of live agents: by its check, and by the model's own word."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from agentbench._figures import count
from agentbench._report.charts.model import Axis, Chart, Mark, Tip

if TYPE_CHECKING:
    from agentbench._core import Run
    from agentbench._report.charts.model import Role

MOST_TASKS = 40
ROW_PIXELS, HEAD_PIXELS = 28, 90
ENDS: tuple[tuple[str, str, Role], ...] = (
    ("completed", "completed, by the check", "good"),
    ("claimed", "claimed by the model, but the check did not pass", "poor"),
    ("neither", "neither claimed nor completed", "marginal"),
    ("unchecked", "no check told", "quiet"),
)
TITLE = "what became of each task"


def task_chart(run: Run, conditions: str) -> Chart:
    """Return a bar for each task, as long as it was worked on, in the colours of its ends."""
    rows = run.trajectories().to_polars()
    if not len(rows):
        return Chart("tasks", TITLE, conditions, missing="no task was worked on", wide=True)
    passed, claimed = pl.col("check_passed"), pl.col("claimed").fill_null(value=False)
    end = (
        pl.when(passed.is_null())
        .then(pl.lit("unchecked"))
        .when(passed)
        .then(pl.lit("completed"))
        .otherwise(pl.when(claimed).then(pl.lit("claimed")).otherwise(pl.lit("neither")))
    )
    ends = rows.with_columns(end.alias("end")).group_by("task_id").agg(pl.len().alias("runs"), pl.col("end"))
    shown = (
        ends.sort("task_id").head(MOST_TASKS).reverse().with_columns(pl.int_range(pl.len()).cast(pl.Float64).alias("y"))
    )
    marks, before = [], pl.lit(0, dtype=pl.UInt32)
    for name, label, role in ENDS:
        n = pl.col("end").list.count_matches(name)
        part = shown.select("task_id", "runs", "y", before.alias("x"), (before + n).alias("x1"), n.alias("n")).filter(
            pl.col("n") > 0
        )
        before = before + n
        if len(part):
            tips = (Tip("", "task_id", form=""), Tip(label, "n", form="0"), Tip("runs", "runs", form="0"))
            marks.append(Mark("spans", part, label, role, x1="x1", tips=tips, size=0.7))
    notes = (f"Drawn: {MOST_TASKS} of {count(len(ends))} tasks, by name.",) if len(ends) > MOST_TASKS else ()
    axis = Axis("runs of the task", bounds=(0, None), whole=True)
    names = Axis("", names=tuple(shown["task_id"].to_list()))
    height = HEAD_PIXELS + ROW_PIXELS * len(shown)
    return Chart("tasks", TITLE, conditions, axis, names, tuple(marks), notes, wide=True, height=height)
