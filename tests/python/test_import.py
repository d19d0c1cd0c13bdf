"""Others' recordings become run directories whose every figure is the source's own."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import agentbench

SAMPLES = Path(os.environ.get("AGENTBENCH_SAMPLES", Path(__file__).parents[3] / "shared" / "samples")) / "tracelab"
needs_samples = pytest.mark.skipif(
    not SAMPLES.is_dir(), reason=f"the samples of TraceLab are not at {SAMPLES}; AGENTBENCH_SAMPLES names their folder"
)


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> agentbench.Run:
    out = tmp_path_factory.mktemp("imported") / "logs"
    return agentbench.import_traces([SAMPLES / "claude", SAMPLES / "codex"], out=out)


@pytest.fixture(scope="module")
def rounds() -> list[dict[str, Any]]:
    lines = (SAMPLES / "derived_round_trace.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def by_agent(run: agentbench.Run, agent: str) -> pd.DataFrame:
    turns = run.turns().to_pandas()
    return turns[turns["agent"] == agent].sort_values("turn", ignore_index=True)


@needs_samples
@pytest.mark.parametrize(("agent", "provider"), [("claude-code", "claude"), ("codex", "codex")])
def test_raw_logs_give_tracelabs_own_rows(
    logs: agentbench.Run, rounds: list[dict[str, Any]], agent: str, provider: str
) -> None:
    expected = [row for row in rounds if row["provider"] == provider]
    turns = by_agent(logs, agent)
    assert list(turns["request_id"]) == [row["round_id"] for row in expected]
    for column, field in {
        "model": "model",
        "isl": "input_tokens_total",
        "isl_cached": "prefix_tokens",
        "isl_new": "newly_append_tokens",
        "osl": "output_tokens",
        "isl_cache_write": "claude_cache_creation_input_tokens",
        "reasoning_tokens": "reasoning_output_tokens",
    }.items():
        ours = [None if pd.isna(value) else value for value in turns[column]]
        assert ours == [row[field] for row in expected], column
    for turn, row in zip(turns.to_dict("records"), expected, strict=True):
        inputs = [it["timestamp"] for it in row["timing_events"] if it["event_type"] in {"user_message", "tool_result"}]
        outputs = [it["timestamp"] for it in row["timing_events"] if it["timestamp"] not in inputs]
        assert turn["request_time"] == pytest.approx(max(map(unix, inputs)), abs=1e-3)
        # Codex: the report of tokens ends the response, and is an event there too.
        assert turn["response_end_time"] == pytest.approx(max(map(unix, outputs)), abs=1e-3)
        assert pd.isna(turn["ttft_ms"]), "a log does not tell when the first token came"


def unix(text: str) -> float:
    return pd.Timestamp(text).timestamp()


@needs_samples
@pytest.mark.parametrize(("agent", "provider"), [("claude-code", "claude"), ("codex", "codex")])
def test_tool_calls_of_raw_logs_are_tracelabs(
    logs: agentbench.Run, rounds: list[dict[str, Any]], agent: str, provider: str
) -> None:
    expected = [tool for row in rounds if row["provider"] == provider for tool in row["tools"]]
    calls = logs.tool_calls().to_pandas()
    calls = calls[calls["request_id"].isin(by_agent(logs, agent)["request_id"])]
    calls = calls.sort_values(["turn", "index"], ignore_index=True)
    assert list(calls["call_id"]) == [tool["tool_call_id"] for tool in expected]
    assert list(calls["name"]) == [tool["tool_name"] for tool in expected]
    for call, tool in zip(calls.to_dict("records"), expected, strict=True):
        assert round(call["wire_ms"]) == tool["tool_wall_latency_ms"]
        own_ms, told_ms = call["own_ms"], tool["tool_internal_latency_ms"]
        # TraceLab rounds to whole milliseconds.
        assert (None if pd.isna(own_ms) else round(own_ms)) == told_ms
        # Claude Code leaves the mark out of results that are fine; TraceLab reads that as false, we as unknown.
        is_error = None if pd.isna(call["is_error"]) else call["is_error"]
        assert is_error == tool["is_error"] or (is_error is None and tool["is_error"] is False)
        # We count bytes, TraceLab characters.
        assert call["result_bytes"] >= tool["result_chars"]
        arguments = json.loads(call["arguments"])
        told = tool["input"]
        assert arguments == (json.loads(told) if isinstance(told, str) else told)


@needs_samples
def test_tracelabs_rows_give_the_same_turns_as_the_logs(logs: agentbench.Run, tmp_path: Path) -> None:
    rows = agentbench.import_traces([SAMPLES / "derived_round_trace.jsonl"], out=tmp_path / "rows")
    for agent in ("claude-code", "codex"):
        ours, theirs = by_agent(logs, agent), by_agent(rows, agent)
        same = ["turn", "model", "isl", "isl_cached", "isl_new", "osl", "reasoning_tokens"]
        pd.testing.assert_frame_equal(ours[same], theirs[same])
        for column in ("request_time", "response_end_time", "e2e_ms", "tool_exec_ms"):
            pd.testing.assert_series_equal(ours[column], theirs[column], atol=1e-3, rtol=0, check_exact=False)
    a, b = (run.tool_calls().to_pandas().sort_values("call_id", ignore_index=True) for run in (logs, rows))
    pd.testing.assert_frame_equal(a[["call_id", "name"]], b[["call_id", "name"]])
    lacks = rows.manifest["settings"]["lacks"]
    assert any(lack.startswith("no turn has text:") for lack in lacks)
