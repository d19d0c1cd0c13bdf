"""Run directories made by hand: rows with the fields that a test speaks of, all others as where nothing is known."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import polars as pl

import agentbench
from agentbench.analysis.trace import CALL_COLUMNS, REPLAYED_COLUMNS, TURN_COLUMNS

if TYPE_CHECKING:
    from pathlib import Path

START = 1_760_000_000.0
"""The epoch second from which the tests count."""
TURN = {"session_id": "s", "thread_id": "t", "turn": 0, "kind": "main", "outcome": "ok", "request_time": 0.0}
CALL = {"session_id": "s", "thread_id": "t", "turn": 0, "index": 0, "name": "Bash", "emitted_time": 0.0}


def make_run(
    out: Path,
    turns: list[dict[str, Any]] | None = None,
    calls: list[dict[str, Any]] | None = None,
    requests: list[dict[str, Any]] | None = None,
    *,
    start: float = START,
    **manifest: Any,
) -> agentbench.Run:
    """Write a run directory of these rows. Times of turns and calls are given in seconds after `start`."""
    out.mkdir(parents=True)
    told = json.loads((agentbench.sample_trace() / "manifest.json").read_text())
    told |= {"kind": "import", "synthetic": False, "run_id": out.name, "rows": {}} | manifest
    tables = (
        ("turn_traces", TURN_COLUMNS, [TURN | _timed(row, start) for row in turns or []]),
        ("tool_calls", CALL_COLUMNS, [CALL | _timed(row, start) for row in calls or []]),
        ("requests", REPLAYED_COLUMNS, requests or []),
    )
    for name, schema, rows in tables:
        if rows:
            pl.DataFrame(rows, schema=schema).write_parquet(out / f"{name}.parquet")
            told["rows"][name] = len(rows)
    (out / "manifest.json").write_text(json.dumps(told))
    return agentbench.Run.open(out)


def _timed(row: dict[str, Any], start: float) -> dict[str, Any]:
    times = {name: start + it for name, it in row.items() if name.endswith("_time") and it is not None}
    return row | times


def step(
    turn: int, begin_s: float, end_s: float, *, thread: str = "t", waited_s: float | None = None, **more: Any
) -> dict[str, Any]:
    """One turn from one second to another."""
    waited_ms = None if waited_s is None else waited_s * 1e3
    row = {"thread_id": thread, "turn": turn, "request_time": begin_s, "response_end_time": end_s}
    return row | {"e2e_ms": (end_s - begin_s) * 1e3, "tool_exec_ms": waited_ms} | more


def call(
    turn: int, begin_s: float, end_s: float, *, thread: str = "t", index: int = 0, name: str = "Bash", **more: Any
) -> dict[str, Any]:
    """One tool call from one second to another."""
    row = {"thread_id": thread, "turn": turn, "index": index, "name": name, "emitted_time": begin_s}
    return row | {"result_time": end_s, "wire_ms": (end_s - begin_s) * 1e3} | more
