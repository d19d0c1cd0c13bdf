"""The figures of a run that a comparison shows, in one form for every kind of run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentbench._report import levels
from agentbench._report.captured import FIELDS, engine_hits_pct, usage_hits_pct
from agentbench._report.replayed import ENGINE_TIMES, HITS, LATENCIES, POWER, RATES, STATISTICS, headline_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbench._report.fairness import Side

TASKS = (
    ("completed, by the check", "%", "completed_pct"),
    ("claimed, by the model", "%", "claimed_pct"),
    ("malformed calls", "%", "malformed_pct"),
)
Key = tuple[str, str, str]
"""Group, name and unit of a figure."""
Known = tuple[float | None, tuple[str, str] | None]
"""A figure, and the column and statistic that it is of."""


def figures_of(side: Side) -> dict[Key, Known]:
    """Return a run's figures in the order in which they are shown."""
    summary = side.summary
    if not side.settings:
        return dict(_of_a_capture(summary))
    return dict(
        (
            *_result(summary.get("capacity")),
            *_tasks(summary.get("agent")),
            *_latencies(summary),
            *_rates(summary),
            *_power(summary.get("power")),
            *_counts(summary),
        )
    )


def _result(capacity: dict[str, Any] | None) -> Iterator[tuple[Key, Known]]:
    if capacity:
        yield ("result", "agents at the service level", "agents"), (capacity["max_agents"], None)
        for label, _, figure in levels.figures_of(capacity):
            yield ("result", label, ""), (figure["value"], None)


def _tasks(agent: dict[str, Any] | None) -> Iterator[tuple[Key, Known]]:
    if agent:
        for label, unit, name in TASKS:
            yield ("tasks", label, unit), (agent[name], None)
        yield ("tasks", "steps of a task, mean", "answers"), ((agent["steps"] or {}).get("mean"), None)
        yield ("tasks", "tool time before a request, mean", "ms"), ((agent["tool_time_ms"] or {}).get("mean"), None)


def _latencies(summary: dict[str, Any]) -> Iterator[tuple[Key, Known]]:
    fields = headline_part(summary)[1]["fields"]
    for label, unit, name in LATENCIES:
        for statistic in STATISTICS if name in fields else ():
            yield ("latency", f"{label} {statistic}", unit), (fields[name][statistic], (name, statistic))
    for label, name in ENGINE_TIMES:
        yield ("latency", f"{label} mean", "ms"), ((summary["engine"] or {}).get(name), None)


def _rates(summary: dict[str, Any]) -> Iterator[tuple[Key, Known]]:
    part = headline_part(summary)[1]
    for label, unit, name in RATES:
        yield ("throughput", label, unit), (part[name], None)
    for label, name in HITS:
        yield ("prefix hit rate", label, "%"), (summary["prefix_hits"][name], None)


def _power(power: dict[str, Any] | None) -> Iterator[tuple[Key, Known]]:
    if power and power["source"]:
        for label, unit, name in POWER:
            yield ("power", label, unit), (power.get(name), None)


def _counts(summary: dict[str, Any]) -> Iterator[tuple[Key, Known]]:
    for name in ("sent", "ok", "failed", "cancelled"):
        yield ("counts", f"requests {name}", ""), (summary["requests"][name], None)
    yield ("counts", "trajectories completed", ""), (summary["trajectories"]["completed"], None)


def _of_a_capture(summary: dict[str, Any]) -> Iterator[tuple[Key, Known]]:
    totals, fields = summary["totals"], summary["fields"]
    for label, unit, name in FIELDS:
        for statistic in STATISTICS if name in fields else ():
            yield ("of a turn", f"{label} {statistic}", unit), (fields[name][statistic], None)
    yield ("prefix hit rate", "usage", "%"), (usage_hits_pct(totals), None)
    yield ("prefix hit rate", "engine", "%"), (engine_hits_pct(summary["engine"]), None)
    for name in ("turns", "failed", "sessions", "threads", "isl", "osl"):
        yield ("counts", name, ""), (totals[name], None)
