"""The figures that a report begins with, each with its statistic and the part of the run that it is of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentbench._figures import MILLISECONDS_PER_SECOND, UNKNOWN, count, number, percent
from agentbench._report.captured import usage_hits_pct
from agentbench._report.conditions import service_level
from agentbench._report.replayed import headline_part

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbench._report.verdict import Verdict


TASKS = "tasks"
"""How the card begins that tells what live agents got done."""


@dataclass(frozen=True)
class Card:
    """A figure: its name, value, unit, and what it is of. A judged one has its word and what that needs."""

    label: str
    value: str
    unit: str
    of: str
    word: str = ""
    bounds: str = ""


def cards(summary: dict[str, Any], found: Verdict) -> tuple[Card, ...]:
    """Return the cards of a run."""
    return tuple(_of_a_replay(summary, found) if "settings" in summary else _of_turns(summary))


def _of_a_replay(summary: dict[str, Any], found: Verdict) -> Iterator[Card]:
    name, part = headline_part(summary)
    yield from _of_a_search(summary)
    if summary.get("agent"):
        # What got done is what live agents are about.
        yield from sorted(_judged(found), key=lambda card: not card.label.startswith(TASKS))
        yield from _of_live_agents(summary["agent"])
    else:
        yield from _judged(found)
    yield Card("output of all agents", number(part["output_tokens_per_s"]), "tokens/s", found.part or name)
    hits = summary["prefix_hits"]["usage_pct"]
    level = (summary.get("capacity") or {}).get("level")
    whole = "whole run" if level is None else f"all of level {level}"
    yield Card("prompt tokens from cache", *_percent(hits), f"by usage, {whole}")
    requests = summary["requests"]
    ended = f"{count(requests['failed'])} failed, {count(requests['cancelled'])} cut off"
    yield Card("requests", count(requests["sent"]), "", f"{ended}, {whole}")
    yield from _of_power(summary.get("power"))


def _judged(found: Verdict) -> Iterator[Card]:
    for judgment in found.judgments:
        measure, known = judgment.measure, judgment.value is not None
        label = f"{judgment.label} {measure.statistic}" if measure.statistic[0] == "p" else judgment.label
        bounds = ", ".join(f"{word} {measure.bound_in_words(word)}" for word, _ in measure.bounds)
        of = found.part if known else judgment.reason
        value, unit = (number(judgment.value), measure.unit) if known else (UNKNOWN, "")
        yield Card(label, value, unit, of, judgment.word or "", bounds)


def _percent(pct: float | None) -> tuple[str, str]:
    return (UNKNOWN, "") if pct is None else (percent(pct / 100).removesuffix(" %"), "%")


def _of_a_search(summary: dict[str, Any]) -> Iterator[Card]:
    capacity = summary.get("capacity")
    if not capacity:
        return
    bound = "" if capacity["saturated"] or not capacity["max_agents"] else "≥ "
    level = f"at {service_level(summary)}" + ("" if capacity["saturated"] else "; not saturated: a bound from below")
    yield Card("agents at the service level", bound + count(capacity["max_agents"]), "", level)
    for label, key in (("agents per GPU", "agents_per_gpu"), ("agents per MW", "agents_per_mw")):
        figure = capacity.get(key) or {}
        if figure.get("value") is not None:
            of = f"{level}; power {_boundary(summary)}" if "mw" in key else level
            yield Card(label, bound + number(figure["value"]), "", of)


def _of_live_agents(agent: dict[str, Any]) -> Iterator[Card]:
    claimed = f"{count(agent['claimed'])} of {count(agent['tasks'])} tasks, done or not"
    yield Card("tasks claimed done, by the model", *_percent(agent["claimed_pct"]), claimed)
    steps = agent["steps"]
    if steps:
        yield Card("steps of a task", number(steps["p50"]), "", f"median of {count(steps['n'])} tasks")


def _boundary(summary: dict[str, Any]) -> str:
    power = summary["capacity"].get("power") or {}
    return f"{power.get('source')}, boundary {power.get('boundary')}"


def _of_power(power: dict[str, Any] | None) -> Iterator[Card]:
    if not power or not power["source"]:
        return
    of = f"{power['source']}, boundary {power['boundary']}, steady state"
    if not power["valid"]:
        yield Card("mean power", UNKNOWN, "", f"no valid figure: {power['reason']}")
        return
    yield Card("mean power", number(power["mean_power_w"]), "W", of)
    yield Card("energy per output token", number(power["joules_per_output_token"]), "J", of)


def _of_turns(summary: dict[str, Any]) -> Iterator[Card]:
    totals, fields = summary["totals"], summary["fields"]
    yield Card("turns", count(totals["turns"]), "", f"{count(totals['failed'])} not answered whole")
    yield Card("sessions", count(totals["sessions"]), "", f"{count(totals['threads'])} threads")
    yield Card("prompt tokens", count(totals["isl"]), "", "all turns")
    yield Card("output tokens", count(totals["osl"]), "", "all turns")
    yield Card("prompt tokens from cache", *_percent(usage_hits_pct(totals)), "by usage, where it tells it")
    for label, name in (("TTFT", "ttft_ms"), ("tool time", "tool_exec_ms")):
        statistic = fields.get(name)
        if statistic:
            yield Card(label, *_time(statistic["p50"]), f"median of {count(statistic['n'])} turns")


def _time(milliseconds: float) -> tuple[str, str]:
    if milliseconds < MILLISECONDS_PER_SECOND:
        return number(milliseconds), "ms"
    return number(milliseconds / MILLISECONDS_PER_SECOND), "s"
