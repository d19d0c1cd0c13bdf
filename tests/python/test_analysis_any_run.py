"""Whatever a run holds, every question has an answer, and no figure of it is made up or out of bounds."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.python.made_runs import make_run

from agentbench.analysis import QUESTIONS, analyze

names = st.sampled_from(["a", "b"])
counts = st.none() | st.integers(0, 200_000)
seconds = st.none() | st.floats(0.0, 1e5, allow_nan=False).map(lambda it: round(it, 3))
milliseconds = st.none() | st.floats(0.0, 1e7, allow_nan=False)


@st.composite
def some_turns(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Turns of a few threads, any of whose values may be unknown or at odds with the others."""
    rows = []
    for session in draw(st.lists(names, unique=True, max_size=2)):
        for thread in draw(st.lists(names, unique=True, max_size=2)):
            parent = draw(st.sampled_from([None, None, "parent"]))
            for turn in range(draw(st.integers(1, 5))):
                isl, cached = draw(counts), draw(counts)
                if isl is not None and cached is not None:
                    cached = min(isl, cached)
                row = {
                    "session_id": session,
                    "thread_id": thread,
                    "parent_thread_id": parent,
                    "turn": turn,
                    "agent": draw(st.sampled_from([None, "codex", "claude-code"])),
                    "model": draw(st.sampled_from([None, "m"])),
                    "kind": draw(st.sampled_from(["main", "main", "subagent", "utility"])),
                    "outcome": draw(st.sampled_from(["ok", "ok", "http_error", "client_cancelled", "truncated"])),
                    "isl": isl,
                    "isl_cached": cached,
                    "isl_new": None if isl is None or cached is None else isl - cached,
                    "osl": draw(counts),
                    "response_end_time": draw(seconds),
                    "first_output_time": draw(seconds),
                    "last_output_time": draw(seconds),
                    "tool_exec_ms": draw(milliseconds) if turn else None,
                    "ttft_ms": draw(milliseconds),
                    "e2e_ms": draw(milliseconds),
                }
                begin = draw(seconds)
                rows.append(row if begin is None else row | {"request_time": begin})
    return rows


@st.composite
def a_run(draw: st.DrawFn) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Turns, and calls of some of them; one of a turn that was not kept."""
    turns = draw(some_turns())
    calls = []
    for row in [*turns, {"session_id": "a", "thread_id": "lost", "turn": 9}]:
        for index in range(draw(st.integers(0, 2))):
            call = {
                "session_id": row["session_id"],
                "thread_id": row["thread_id"],
                "turn": row["turn"],
                "index": index,
                "name": draw(st.sampled_from(["Bash", "Read", ""])),
                "result_time": draw(seconds),
                "wire_ms": draw(milliseconds),
                "own_ms": draw(milliseconds),
                "is_error": draw(st.sampled_from([None, True, False])),
            }
            begin = draw(seconds)
            calls.append(call if begin is None else call | {"emitted_time": begin})
    return turns, calls


@given(a_run(), st.sampled_from(["import", "capture"]))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_every_question_has_an_answer(tables: tuple[list[dict[str, Any]], list[dict[str, Any]]], kind: str) -> None:
    turns, calls = tables
    with tempfile.TemporaryDirectory() as folder:
        analysis = analyze(make_run(Path(folder) / "run", turns, calls, kind=kind))
    assert list(analysis) == list(QUESTIONS)
    for answer in analysis.values():
        assert not {"nan", "None", "<NA>", "inf"} & set(answer.to_text(100).split()), answer.name
        for line in answer.headline:
            assert line.value is None or math.isfinite(line.value), line
            assert line.value is None or line.value >= 0 or "correlation" in line.name, line
            if line.unit == "%" and line.value is not None:
                assert line.value <= 100 + 1e-6, line
    time = analysis["time"].tables["shares"]
    assert ((time["share_pct"] >= -1e-6) & (time["share_pct"] <= 100 + 1e-6)).all(), time
    tools = analysis["tools"].frame
    if len(calls):
        assert tools["calls"].sum() == len(calls)
        assert abs(tools["calls_pct"].sum() - 100) < 1e-6
    loop = analysis["loop"].frame
    steps = loop[loop["of_a_user_request"] == "model steps"]
    assert len(steps) == 0 or steps["n"].iloc[0] * steps["mean"].iloc[0] <= len(turns) + 1e-6
