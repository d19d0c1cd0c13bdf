"""A capacity search as tables on the screen, printed from ``summary.json`` alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from .figures import UNKNOWN, count, number, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

MILLISECONDS_PER_SECOND = 1_000.0
FIGURES = (
    ("agents per GPU", "agents_per_gpu"),
    ("agents per MW", "agents_per_mw"),
    ("mean GPU power, W", "mean_power_w"),
    ("output tokens/s per GPU", "output_tokens_per_s_per_gpu"),
    ("trajectories/h per GPU", "trajectories_per_h_per_gpu"),
)
OF_THE_ANSWER = {"agents_per_gpu", "agents_per_mw"}
"""Figures that are bounds from below where no failing level was seen."""


def capacity_tables(summary: dict[str, Any]) -> RenderableType:
    """Return everything that a reader of a search must see, warnings first."""
    capacity = summary["capacity"]
    return Group(
        _headline(summary),
        *[Text(f"! {note}", style="yellow") for note in summary["notes"]],
        Text(),
        level_table(capacity["curve"]),
        Text(),
        _result(capacity),
    )


def _headline(summary: dict[str, Any]) -> Text:
    settings = summary["settings"]
    engine = "SIMULATED engine" if summary["labels"]["simulated"] else "engine"
    return Text(
        f"{engine}: {settings['model']} at {settings['url']}\n{summary['capacity']['result']}",
        style="bold",
    )


def level_table(levels: Sequence[dict[str, Any]]) -> Table:
    """Return the levels in the order tried, with the value of each condition."""
    conditions = list(json.loads(levels[0]["values"])) if levels else []
    table = Table(box=None, pad_edge=False)
    for heading in ("level", "agents", "verdict"):
        table.add_column(heading, justify="left" if heading == "verdict" else "right")
    for condition in conditions:
        table.add_column(Text(condition), justify="right")
    for heading in ("requests", "failed", "trajectories", "steady s", "tokens/s", "agents within", "worst agent"):
        table.add_column(heading, justify="right")
    for level in levels:
        values = json.loads(level["values"])
        table.add_row(
            count(level["level"]),
            count(level["agents"]),
            level["verdict"],
            *[number(values.get(condition)) for condition in conditions],
            count(level["n_requests"]),
            count(level["n_failed"]),
            count(level["n_trajectories"]),
            number(_steady_seconds(level)),
            number(level["output_tokens_per_s"]),
            percent(None if level["agents_within_pct"] is None else level["agents_within_pct"] / 100),
            _worst(level),
        )
    return table


def _steady_seconds(level: dict[str, Any]) -> float | None:
    if level["start_ms"] is None or level["end_ms"] is None:
        return None
    return float(level["end_ms"] - level["start_ms"]) / MILLISECONDS_PER_SECOND


def _worst(level: dict[str, Any]) -> str:
    if level["worst_agent"] is None:
        return UNKNOWN
    values = json.loads(level["worst_agent_values"])
    return f"{level['worst_agent']}: " + ", ".join(number(value) for value in values.values())


def _result(capacity: dict[str, Any]) -> Text:
    lines = []
    if capacity["binding_condition"]:
        lines.append(f"binding condition: {capacity['binding_condition']}")
    for label, name in FIGURES:
        figure = capacity[name]
        reason = f" ({figure['reason']})" if figure["reason"] else ""
        bound = "at least " if name in OF_THE_ANSWER and not capacity["saturated"] and figure["value"] else ""
        lines.append(f"{label}: {bound}{number(figure['value'])}{reason}")
    return Text("\n".join(lines))
