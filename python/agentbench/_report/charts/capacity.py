"""The levels of a capacity search: every condition of the service level over the number of agents, with its bound."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import polars as pl

from agentbench._report.charts.model import Axis, Chart, Mark, Role, Tip
from agentbench._report.levels import IN_MILLISECONDS

if TYPE_CHECKING:
    from agentbench._core import Run

CONDITION = re.compile(
    r"(?P<metric>\w+)(?:\.(?P<statistic>[\w.]+))?\s*(?P<relation><=|>=|<|>)\s*(?P<bound>[\d.]+)\s*(?P<unit>ms|s|tok/s|)"
)
VERDICTS: tuple[tuple[str, Role], ...] = (("pass", "good"), ("fail", "poor"), ("invalid", "quiet"))
AGENTS = Axis("concurrent agents", bounds=(0, None), whole=True)


def capacity_charts(run: Run, conditions: str) -> tuple[Chart, ...]:
    """Return a chart for each condition of the service level, and one of the work done."""
    table = run.levels().to_polars().sort("agents", "level")
    if not len(table):
        return (Chart("capacity", "capacity", conditions, missing="no level was judged", wide=True),)
    values = [json.loads(text) for text in table["values"].to_list()]
    texts = list(values[0])
    charts = tuple(_of_condition(index, text, table, values, conditions) for index, text in enumerate(texts))
    return (*charts, _work(table, conditions))


def _of_condition(index: int, text: str, table: pl.DataFrame, values: list[dict[str, Any]], conditions: str) -> Chart:
    metric, unit, scale, bound = _read(text)
    levels = table.select("agents", "level", "verdict", "n_requests", "n_failed").with_columns(
        pl.Series(
            "y", [None if level.get(text) is None else level[text] * scale for level in values], dtype=pl.Float64
        ),
        pl.col("agents").cast(pl.Float64).alias("x"),
    )
    known = levels.filter(pl.col("y").is_not_null())
    axis = Axis(metric, unit, bounds=(0, _top(known, None if bound is None else bound * scale)))
    tips = (
        Tip("agents", "agents", form="0,0"),
        Tip(text, "y", unit),
        Tip("level", "level", form="0"),
        Tip("verdict", "verdict", form=""),
        Tip("requests judged", "n_requests", form="0,0"),
        Tip("failed", "n_failed", form="0,0"),
    )
    marks: list[Mark] = [Mark("line", _joined(known), "", "quiet", size=1.5)]
    for word, role in VERDICTS:
        rows = known.filter(pl.col("verdict") == word)
        if len(rows):
            marks.append(Mark("points", rows, f"level: {word}", role, tips=tips, size=9))
    if bound is not None:
        marks.append(
            Mark("rule", pl.DataFrame({"y": [bound * scale]}), f"service level: {text}", "marginal", x="", dashed=True)
        )
    lost = len(levels) - len(known)
    notes = (
        (f"{lost} levels have no value: failed requests put it beyond every bound, or no request has it.",)
        if lost
        else ()
    )
    return Chart(f"capacity-{index}", f"{text} over agents", conditions, AGENTS, axis, tuple(marks), notes, height=300)


def _top(known: pl.DataFrame, bound: float | None) -> float | None:
    """Return where the axis ends, so that the bound is seen as well."""
    highest = max([value for value in (known["y"].max(), bound) if isinstance(value, float)], default=None)
    return None if highest is None else highest * 1.1


def _joined(known: pl.DataFrame) -> pl.DataFrame:
    """Return one point for each number of agents: the mean of levels that were tried again."""
    return known.group_by("x").agg(pl.col("y").mean()).sort("x")


def _read(text: str) -> tuple[str, str, float, float | None]:
    """Return a condition's metric, the unit that it is drawn in, the factor to that from the table, and its bound."""
    match = CONDITION.fullmatch(text)
    if not match:
        return text, "", 1.0, None
    metric, unit = match["metric"], match["unit"]
    label = f"{metric} {match['statistic'] or ''}".strip()
    if metric in IN_MILLISECONDS:
        in_seconds = unit == "s"
        # The table holds milliseconds.
        return label, unit or "ms", 1e-3 if in_seconds else 1.0, float(match["bound"]) * (1e3 if in_seconds else 1.0)
    return label, "tokens/s" if metric == "speed" else "", 1.0, float(match["bound"])


def _work(table: pl.DataFrame, conditions: str) -> Chart:
    title = "output of all agents together"
    known = table.filter(pl.col("output_tokens_per_s").is_not_null()).select(
        pl.col("agents").cast(pl.Float64).alias("x"),
        pl.col("output_tokens_per_s").alias("y"),
        "agents",
        "level",
        "verdict",
        "mean_power_w",
    )
    if not len(known):
        return Chart("capacity-work", title, conditions, missing="no level has a steady state")
    tips = (
        Tip("agents", "agents", form="0,0"),
        Tip("output", "y", "tokens/s", "0,0.[0]"),
        Tip("level", "level", form="0"),
        Tip("verdict", "verdict", form=""),
        Tip("mean power", "mean_power_w", "W"),
    )
    marks: list[Mark] = [Mark("line", _joined(known), "", "quiet", size=1.5)]
    for word, role in VERDICTS:
        rows = known.filter(pl.col("verdict") == word)
        if len(rows):
            marks.append(Mark("points", rows, f"level: {word}", role, tips=tips, size=9))
    return Chart(
        "capacity-work",
        title,
        conditions,
        AGENTS,
        Axis("output", "tokens/s", bounds=(0, None)),
        tuple(marks),
        height=300,
    )
