"""What a capture shows of itself while it runs: a view for a terminal, a line for everything else."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from agentbench._figures import UNKNOWN, count, percent, seconds

if TYPE_CHECKING:
    from agentbench._types import CaptureStats, EngineTraffic, LatestTurn, PollerStats

TURNS_SHOWN = 8
NAME_SHOWN = 14
TURN_COLUMNS = ("session", "thread", "for", "agent", "turn", "ISL", "cached", "OSL", "TTFT ms", "E2E ms", "tool wait")
ENGINE_COLUMNS = ("requests", "errors", "running", "waiting", "KV", "restarts", "polls failed")
LEFT = {"session", "thread", "for", "agent", "engine", "outcome"}


def line(stats: CaptureStats) -> str:
    """Return the state as one line."""
    parts = [_traffic(stats), _tokens(stats)]
    engine = stats["engine"]
    if engine is not None:
        usage = engine["kv_cache_usage_pct"]
        gauges = f"engine {count(engine['running'])} running, {count(engine['waiting'])} waiting, KV {_share(usage)}"
        parts.append(gauges)
    return "; ".join([*parts, *_losses(stats)])


def drawn(stats: CaptureStats) -> Group:
    """Return the state as something to draw."""
    head = Text("\n".join([_traffic(stats), _tokens(stats), "; ".join(_losses(stats))]))
    return Group(head, _engines(stats["engines"]), _turns(stats["latest"][-TURNS_SHOWN:]))


def _traffic(stats: CaptureStats) -> str:
    return (
        f"requests {count(stats['requests'])} ({count(stats['active'])} open), turns {count(stats['turns'])},"
        f" sessions {count(stats['sessions'])}, threads {count(stats['threads'])}"
    )


def _tokens(stats: CaptureStats) -> str:
    hits = stats["isl_cached"] / stats["isl_with_cached"] if stats["isl_with_cached"] else None
    return (
        f"tokens {count(stats['isl'])} in ({percent(hits)} cached), {count(stats['osl'])} out,"
        f" tool waits {seconds(stats['tool_exec_ms'])}"
    )


def _losses(stats: CaptureStats) -> list[str]:
    parts = [f"rows dropped {count(stats['rows_dropped'])}"]
    if stats["upstream_errors"]:
        parts.append(f"upstream errors {count(stats['upstream_errors'])}")
    if stats["requests_moved"]:
        parts.append(f"moved to another engine {count(stats['requests_moved'])}")
    return parts


def _share(pct: float | None) -> str:
    return percent(None if pct is None else pct / 100)


def _table(columns: tuple[str, ...]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in columns:
        table.add_column(heading, justify="left" if heading in LEFT else "right", no_wrap=True)
    return table


def _engines(engines: list[EngineTraffic]) -> Table:
    table = _table(("engine", *ENGINE_COLUMNS))
    for one in engines:
        table.add_row(one["engine"], count(one["requests"]), count(one["errors"]), *_gauges(one["polled"]))
    return table


def _gauges(polled: PollerStats | None) -> list[str]:
    if polled is None:
        return [UNKNOWN] * 5
    return [
        count(polled["running"]),
        count(polled["waiting"]),
        _share(polled["kv_cache_usage_pct"]),
        count(polled["counter_resets"]),
        count(polled["failed"]),
    ]


def _turns(latest: list[LatestTurn]) -> Table:
    table = _table((*TURN_COLUMNS, "outcome"))
    for turn in latest:
        known = turn["isl"] and turn["isl_cached"] is not None
        table.add_row(
            turn["session_id"][:NAME_SHOWN],
            turn["thread_id"].removeprefix(f"{turn['session_id']}/")[-NAME_SHOWN:],
            turn["kind"],
            turn["agent"] or UNKNOWN,
            str(turn["turn"]),
            count(turn["isl"]),
            percent((turn["isl_cached"] or 0) / (turn["isl"] or 1)) if known else UNKNOWN,
            count(turn["osl"]),
            count(turn["ttft_ms"]),
            count(turn["e2e_ms"]),
            seconds(turn["tool_exec_ms"]),
            turn["outcome"],
        )
    return table
