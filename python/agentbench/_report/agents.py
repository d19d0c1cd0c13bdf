"""The figures of live agents as sections: what got done, by the check and by the model's own word, and what it took.

Latencies, rates and counts of requests are ``replayed``'s, of the whole run.
"""

from __future__ import annotations

from typing import Any

from agentbench._figures import UNKNOWN, count, number, percent
from agentbench._report.sections import Section

STATISTICS = ("mean", "p50", "p90", "p95", "p99")
OF_A_TASK = (
    ("steps of a task", "answers", "steps"),
    ("time of a task", "ms", "task_time_ms"),
    ("  of it the model's", "ms", "model_time_ms"),
    ("tool time before a request", "ms", "tool_time_ms"),
)
OF_A_REQUEST = (
    ("TTFT, reasoning", "ms", "ttft_reasoning_ms"),
    ("TTFT, visible", "ms", "ttft_visible_ms"),
)
NOTE_SHOWN = 60
PER_CENT = 100.0


def result(agent: dict[str, Any]) -> str:
    """Return what got done, in one line."""
    return (
        f"{agent['completed']:,} of {agent['checked']:,} checked tasks completed ({_pct(agent['completed_pct'])}),"
        f" {agent['claimed']:,} of {agent['tasks']:,} claimed by the model"
    )


def agent_sections(summary: dict[str, Any]) -> tuple[Section, ...]:
    """Return the sections that only live agents have."""
    agent = summary["agent"]
    fields = summary["whole"]["fields"]
    times = [(label, unit, agent[name]) for label, unit, name in OF_A_TASK]
    times += [(label, unit, fields.get(name)) for label, unit, name in OF_A_REQUEST]
    rows = tuple((label, unit, *_statistic(statistic)) for label, unit, statistic in times)
    return (
        Section("tasks", tuple(_counts(agent))),
        Section("of a task", rows, ("", "unit", "n", *STATISTICS), left=2),
        _by_task(agent["by_task"]),
    )


def agent_conditions(settings: dict[str, Any]) -> list[tuple[str, str]]:
    """Return how the agents worked, of the manifest's settings."""
    told = settings.get("agent") or {}
    rows = [
        ("steps of a task at most", count(told.get("max_steps"))),
        ("tokens of an answer at most", count(told.get("max_tokens"))),
        ("time of a command at most, s", number(told.get("shell_timeout_s"))),
        ("sandbox", str(told.get("sandbox") or UNKNOWN)),
        ("reasoning sent back", "yes" if told.get("keep_reasoning") else "no"),
        ("each task", f"{count(told.get('repeat'))} times"),
        ("tools", ", ".join(told.get("tools") or ()) or UNKNOWN),
    ]
    return [*rows, ("loop", "the caller's own")] if told.get("own_loop") else rows


def _counts(agent: dict[str, Any]) -> list[tuple[str, str]]:
    outcomes = ", ".join(f"{name.replace('_', ' ')} {n:,}" for name, n in agent["outcomes"].items())
    return [
        ("tasks", count(agent["tasks"])),
        ("completed, by the check", f"{agent['completed']:,} of {agent['checked']:,} ({_pct(agent['completed_pct'])})"),
        ("claimed, by the model", f"{agent['claimed']:,} of {agent['tasks']:,} ({_pct(agent['claimed_pct'])})"),
        ("  claimed, not completed", count(agent["claimed_not_completed"])),
        ("  completed, not claimed", count(agent["completed_not_claimed"])),
        ("ended by", outcomes or UNKNOWN),
        ("tool calls", count(agent["tool_calls"])),
        ("  malformed", f"{agent['malformed_calls']:,} ({_pct(agent['malformed_pct'])})"),
        ("  that failed", count(agent["tool_errors"])),
    ]


def _by_task(tasks: dict[str, Any]) -> Section:
    rows = tuple(
        (
            name,
            _shown(task["note"]),
            *(count(task[column]) for column in ("runs", "completed", "claimed", "steps", "tool_calls")),
        )
        for name, task in tasks.items()
    )
    columns = ("task", "why its check did not pass", "runs", "completed", "claimed", "steps", "calls")
    return Section("each task", rows, columns, left=2)


def _statistic(statistic: dict[str, Any] | None) -> tuple[str, ...]:
    if statistic is None:
        return ("0", *[UNKNOWN] * len(STATISTICS))
    return (count(statistic["n"]), *[number(statistic[column]) for column in STATISTICS])


def _pct(share: float | None) -> str:
    return percent(None if share is None else share / PER_CENT)


def _shown(note: str | None) -> str:
    """Return how a check ended and the last line that it printed, which is what says why."""
    lines = [" ".join(line.split()) for line in (note or UNKNOWN).splitlines() if line.strip()]
    line = lines[0] if len(lines) == 1 else f"{lines[0].partition(':')[0]}: {lines[-1]}"
    return line if len(line) <= NOTE_SHOWN else f"{line[: NOTE_SHOWN - 4]} ..."
