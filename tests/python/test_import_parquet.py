"""Parquet whose columns are a format's members imports as that format's lines do; our own tables as they were."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

MESSAGES = [
    {"role": "system", "content": "be good"},
    {"role": "user", "content": "do it"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "c", "function": {"name": "ls", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c", "content": "abc"},
    {"role": "assistant", "content": "done"},
]
TRACELAB = [
    {
        "provider": "codex",
        "session_id": "s",
        "round_index": index,
        "round_id": f"r{index}",
        "model": "m",
        "input_tokens_total": 100 + index,
        "prefix_tokens": 90,
        "output_tokens": 7,
        "reasoning_output_tokens": None if index else 3,
        "timing_events": [
            {"event_type": "user_message", "timestamp": f"2026-01-01T00:0{index}:00.500Z", "content_chars": 3},
            {"event_type": "text", "timestamp": f"2026-01-01T00:0{index}:02Z", "content_chars": None},
        ],
        "tools": [
            {
                "tool_name": "exec",
                "tool_call_id": f"c{index}",
                "emitted_at": f"2026-01-01T00:0{index}:02Z",
                "result_at": f"2026-01-01T00:0{index}:03Z",
                "input_chars": 5,
                "result_chars": 6,
                "tool_wall_latency_ms": 1000,
                "tool_internal_latency_ms": None,
                "is_error": False,
            }
        ],
    }
    for index in range(3)
]
NETPREME = [
    {
        "request_time": 100.0 + index,
        "tool_exec_ms": None if index == 0 else 250.0,
        "isl_new_text": "hello",
        "isl_text": "hello",
        "osl_text": "hi",
    }
    for index in range(2)
]
TICKS = [{"ts": 101.5, "n": 1, "isl": 10.0, "osl": 2.0, "kv_cache_usage_pct_peak": 3.5, "stop_reason": '{"stop": 1}'}]
SOURCES: dict[str, dict[str, list[dict[str, Any]]]] = {
    "tracelab": {"round_trace": TRACELAB},
    "messages": {"conversations": [{"id": "g", "messages": MESSAGES}, {"id": "h", "messages": MESSAGES[:3]}]},
    "netpreme": {"turn_traces": NETPREME, "engine_metrics": TICKS},
}
TABLES = ("turns", "tool_calls", "engine")
# Parquet keeps the members of a message, not their order, so texts and their hashes differ.
OTHERS = ["run_id", "unit_hashes", "isl_new_text"]


def frames(run: agentbench.Run) -> dict[str, pd.DataFrame]:
    return {name: getattr(run, name)().to_pandas().drop(columns=OTHERS, errors="ignore") for name in TABLES}


@pytest.mark.parametrize("layout", list(SOURCES))
def test_parquet_is_read_as_the_lines_are(tmp_path: Path, layout: str) -> None:
    for kind in ("lines", "parquet"):
        folder = tmp_path / kind / "recorded"
        folder.mkdir(parents=True)
        for name, records in SOURCES[layout].items():
            if kind == "lines":
                (folder / f"{name}.jsonl").write_text("".join(json.dumps(it) + "\n" for it in records))
            else:
                pq.write_table(pa.Table.from_pylist(records), folder / f"{name}.parquet")
    lines, parquet = (
        agentbench.import_traces([tmp_path / it], out=tmp_path / f"{it}-run") for it in ("lines", "parquet")
    )
    assert parquet.manifest["settings"]["formats"] == [layout]
    assert parquet.manifest["counts"]["records_left_out"] == 0
    assert parquet.manifest["rows"] == lines.manifest["rows"]
    for name, ours in frames(parquet).items():
        pd.testing.assert_frame_equal(ours, frames(lines)[name], obj=name)
    assert len(parquet.turns().to_pandas()) == {"tracelab": 3, "messages": 3, "netpreme": 2}[layout]


def test_our_own_tables_without_a_manifest_are_taken_over(tmp_path: Path) -> None:
    made = agentbench.synthesize(tmp_path / "made", sessions=2, max_turns=4, seed=3)
    plain = tmp_path / "published"
    plain.mkdir()
    for name in ("turn_traces", "messages", "tool_calls"):
        shutil.copy(tmp_path / "made" / f"{name}.parquet", plain)
    run = agentbench.import_traces([plain], out=tmp_path / "run")
    assert run.manifest["settings"]["formats"] == ["run"]
    for name in ("turns", "tool_calls"):
        ours, theirs = (getattr(it, name)().to_pandas().drop(columns="run_id") for it in (run, made))
        pd.testing.assert_frame_equal(ours, theirs, obj=name)
    request_id = made.turns().to_pandas()["request_id"].iloc[-1]
    assert run.request_body(request_id) == made.request_body(request_id)
    assert run.manifest["counts"]["sessions"] == 2


def test_a_run_directory_needs_no_import(tmp_path: Path) -> None:
    agentbench.synthesize(tmp_path / "made", sessions=1, max_turns=2)
    with pytest.raises(agentbench.ConfigError, match="needs no import"):
        agentbench.import_traces([tmp_path / "made"], out=tmp_path / "run")


def test_a_parquet_file_that_is_cut_off_is_told(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pq.write_table(pa.Table.from_pylist(TRACELAB), path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(agentbench.AgentbenchError, match="cut off or damaged"):
        agentbench.import_traces([path], out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
