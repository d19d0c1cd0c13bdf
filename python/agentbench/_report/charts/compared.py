"""Runs side by side: differences to the first in percent, and the distributions of latencies over one another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from agentbench._figures import count
from agentbench._report.charts import frames, latency
from agentbench._report.charts.model import SERIES, Axis, Chart, Mark, Tip
from agentbench._report.charts.panels import Panel
from agentbench._report.report import summary_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbench._core import Run
    from agentbench._report.comparison import Comparison, Figure

SHOWN = (
    *[f"{label} {statistic}" for label in ("TTFT", "TPOT", "output speed", "E2E") for statistic in ("p50", "p95")],
    "requests",
    "output",
    "agents at the service level",
    "mean power",
    "energy per output token",
)
"""Figures whose differences are drawn, in this order; the tables below hold all."""
STEPS = 200
TIPS = (
    Tip("", "figure", form=""),
    Tip("difference", "pct", "%", "+0.0"),
    Tip("first run", "first", form="0,0.[000]"),
    Tip("this run", "value", form="0,0.[000]"),
    Tip("unit", "unit", form=""),
    Tip("in noise", "noise", form=""),
)


def compared_panels(made: Comparison, runs: Sequence[Run]) -> tuple[Panel, ...]:
    """Return the panels of a comparison."""
    differences = tuple(difference_chart(made, index) for index in range(1, len(runs)))
    parts = [_part(run) for run in runs]
    overlays = tuple(overlay(column, made.runs, parts) for column in (latency.TTFT, latency.SPEED))
    return (
        Panel("differences", "Differences to the first run", differences),
        Panel("distributions", "Distributions", overlays),
    )


def _part(run: Run) -> pl.DataFrame:
    summary = summary_of(run)
    return frames.of_part(frames.requests(run, frames.start_of(run, summary)), summary)


def difference_chart(made: Comparison, index: int) -> Chart:
    """Return a run's differences to the first in percent, those within noise paler."""
    title, name = f"{made.runs[index]} less {made.runs[0]}", f"differences-{index}"
    unfair = ", ".join(difference.setting for difference in made.unfair)
    conditions = f"in percent of {made.runs[0]}" + (f"; UNFAIR: {unfair}" if unfair else "")
    by_name = {figure.name: figure for figure in made.figures if figure.difference_pct(index) is not None}
    shown = [by_name[figure] for figure in SHOWN if figure in by_name][::-1]
    if not shown:
        return Chart(name, title, conditions, missing="no figure is known of both runs")
    table = pl.DataFrame([_row(figure, index, place) for place, figure in enumerate(shown)])
    marks = [Mark("rule", pl.DataFrame({"x": [0.0]}), "", "quiet", y="", dashed=True)]
    groups = (("no", "beyond noise", SERIES[0]), ("yes", "within noise", "quiet"), ("-", "noise not known", SERIES[2]))
    for noise, label, role in groups:
        rows = table.filter(pl.col("noise") == noise)
        if len(rows):
            marks.append(Mark("spans", rows, label, role, x1="pct", tips=TIPS, size=0.6))  # type: ignore[arg-type]
    known = table.filter(pl.col("low_pct").is_not_null())
    if len(known):
        marks.append(Mark("spans", known, "95 % interval", "second", x="low_pct", x1="high_pct", size=0.12))
    names = tuple(figure.name for figure in shown)
    height = 90 + 26 * len(names)
    return Chart(name, title, conditions, Axis("difference", "%"), Axis("", names=names), tuple(marks), height=height)


def _row(figure: Figure, index: int, place: int) -> dict[str, object]:
    first, interval = figure.by_run[0], figure.intervals[index - 1]
    noise = {None: "-", True: "yes", False: "no"}[figure.within_noise(index)]
    low, high = (bound / first * 100.0 for bound in interval) if interval and first else (None, None)
    return {
        "figure": figure.name,
        "y": float(place),
        "x": 0.0,
        "pct": figure.difference_pct(index),
        "first": first,
        "value": figure.by_run[index],
        "unit": figure.unit,
        "noise": noise,
        "low_pct": low,
        "high_pct": high,
    }


def overlay(column: str, names: Sequence[str], parts: Sequence[pl.DataFrame]) -> Chart:
    """Return the share of requests at or below each value, a line for each run."""
    axis = latency.AXES[column]
    title = f"{axis.label}: share of requests at or below"
    marks = []
    for name, part, role in zip(names, parts, SERIES, strict=False):
        values = part[column].drop_nulls()
        if len(values):
            shares = [step / STEPS for step in range(STEPS + 1)]
            at = [values.quantile(share, interpolation="linear") for share in shares]
            curve = pl.DataFrame({"x": at, "y": [share * 100.0 for share in shares]})
            tips = (Tip(axis.label, "x", axis.unit), Tip("at or below", "y", "%", "0.[0]"))
            marks.append(Mark("line", curve, f"{name}: {count(len(values))} requests", role, tips=tips, size=2))
    left_out = len(names) - len(SERIES)
    notes = (f"Drawn: the first {len(SERIES)} of {len(names)} runs.",) if left_out > 0 else ()
    if not marks:
        return Chart(f"{column}-runs", title, "", missing=f"no request has a known {axis.label}")
    conditions = "requests answered whole, of each run's steady state where it has one"
    return Chart(f"{column}-runs", title, conditions, axis, latency.SHARE, tuple(marks), notes)
