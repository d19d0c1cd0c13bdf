"""The figures of a capacity search as sections, from ``summary.json`` alone."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from agentbench._figures import UNKNOWN, count, number, percent
from agentbench._report.sections import Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MILLISECONDS_PER_SECOND = 1_000.0
LABELS = {
    "agents_per_gpu": "agents per GPU",
    "agents_per_mw": "agents per MW",
    "mean_power_w": "mean power, W",
    "energy_j": "energy of the steady window, J",
    "joules_per_output_token": "J per output token",
    "joules_per_turn": "J per turn",
    "joules_per_trajectory": "J per trajectory",
    "output_tokens_per_s_per_gpu": "output tokens/s per GPU",
    "trajectories_per_h_per_gpu": "trajectories/h per GPU",
}
IN_MILLISECONDS = {"ttft", "tpot", "itl", "e2e", "queue"}
OF_THE_ANSWER = {"agents_per_gpu", "agents_per_mw"}
"""Figures that are bounds from below where no failing level was seen."""


def figures_of(capacity: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield label, name and value with reason of every figure of the result."""
    for name, figure in capacity.items():
        # How many GPUs serve is a condition of the result, and stands there.
        if name != "gpus" and isinstance(figure, dict) and figure.keys() == {"value", "reason"}:
            yield LABELS.get(name, name.replace("_", " ")), name, figure


def capacity_sections(capacity: dict[str, Any]) -> tuple[Section, ...]:
    """Return the result and the levels."""
    return (Section("capacity", tuple(_result(capacity))), *level_sections(capacity["curve"]))


def _result(capacity: dict[str, Any]) -> Iterator[tuple[str, str]]:
    bound = not capacity["saturated"]
    at_least = "at least " if bound and capacity["max_agents"] else ""
    yield "agents at the service level", at_least + count(capacity["max_agents"])
    yield "saturated", "no: no failing level was seen" if bound else "yes: a failing level was seen above it"
    if capacity["binding_condition"]:
        yield "binding condition", capacity["binding_condition"]
    said: dict[str, str] = {}
    for label, name, figure in figures_of(capacity):
        reason = f" ({said.get(figure['reason'], figure['reason'])})" if figure["reason"] else ""
        # A reason that several figures share is told once.
        said.setdefault(figure["reason"], f"as {label}")
        prefix = "at least " if name in OF_THE_ANSWER and bound and figure["value"] else ""
        yield label, f"{prefix}{number(figure['value'])}{reason}"


def level_sections(levels: Sequence[dict[str, Any]]) -> tuple[Section, ...]:
    """Return the levels in the order tried: what was judged, then by whom and how much."""
    if not levels:
        return (Section("levels", (), notes=("No level was judged.",)),)
    conditions = list(json.loads(levels[0]["values"]))
    headings = [f"{condition}{_unit(condition)}" for condition in conditions]
    judged = tuple(_judged(level, conditions) for level in levels)
    work = tuple(_work(level) for level in levels)
    notes = tuple(note for level in levels for note in _notes(level))
    return (
        Section("levels", judged, ("level", "agents", "verdict", *headings, "requests", "failed"), notes, left=0),
        Section(
            "work of the levels",
            work,
            ("level", "trajectories", "steady s", "tokens/s", "mean W", "J", "agents within", "worst agent"),
            _kept(levels),
            left=0,
        ),
    )


def _notes(level: dict[str, Any]) -> Iterator[str]:
    """Why a level has its verdict, and what it is worth."""
    if level["reason"]:
        yield f"level {level['level']}: {level['reason']}"
    if level.get("speed_overstated"):
        unseen = number(level["unseen_output_pct"])
        yield (
            f"level {level['level']}: {unseen} % of the responses' time comes after their last chunk with output: tpot"
            " and speed count tokens whose time they do not see"
        )


def _unit(condition: str) -> str:
    """The unit that a condition's value is in, which its bound need not be in."""
    metric = condition.partition(".")[0]
    return " (ms)" if metric in IN_MILLISECONDS else " (tok/s)" if metric == "speed" else ""


def values_in_words(level: dict[str, Any]) -> str:
    """Return what a level's conditions came to, each with its unit."""
    units = {"ms": IN_MILLISECONDS, "tok/s": {"speed"}}
    told = []
    for condition, value in json.loads(level["values"]).items():
        metric = condition.partition(".")[0]
        unit = next((f" {unit}" for unit, metrics in units.items() if metric in metrics), "")
        told.append(f"{condition}: {number(value)}{unit}")
    return ", ".join(told)


def _judged(level: dict[str, Any], conditions: Sequence[str]) -> tuple[str, ...]:
    values = json.loads(level["values"])
    return (
        count(level["level"]),
        count(level["agents"]),
        level["verdict"] + (", speed overstated" if level.get("speed_overstated") else ""),
        *[number(values.get(condition)) for condition in conditions],
        count(level["n_requests"]),
        count(level["n_failed"]),
    )


def _work(level: dict[str, Any]) -> tuple[str, ...]:
    within = level["agents_within_pct"]
    return (
        count(level["level"]),
        count(level["n_trajectories"]),
        number(_steady_seconds(level)),
        number(level["output_tokens_per_s"]),
        number(level.get("mean_power_w")),
        number(level.get("energy_j")),
        percent(None if within is None else within / 100),
        _worst(level),
    )


def _kept(levels: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    kept = ", ".join(count(level["level"]) for level in levels if not level["cache_reset"])
    return (f"The engine's cache was not emptied before level {kept}.",) if kept else ()


def _steady_seconds(level: dict[str, Any]) -> float | None:
    start, end = level["start_ms"], level["end_ms"]
    # A level may have ended before every agent was through its first request: then it had no steady state.
    return (
        float(end - start) / MILLISECONDS_PER_SECOND if start is not None and end is not None and end > start else None
    )


def _worst(level: dict[str, Any]) -> str:
    if level["worst_agent"] is None:
        return UNKNOWN
    values = json.loads(level["worst_agent_values"])
    return f"{level['worst_agent']}: " + ", ".join(number(value) for value in values.values())
