"""A run opens, and its tables are the same rows in every library."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pyarrow as pa
import pytest

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

    from tests.python.conftest import Captured

TABLES = [
    "turns",
    "messages",
    "tool_calls",
    "engine",
    "engine_samples",
    "power",
    "requests",
    "trajectories",
    "levels",
    "client_samples",
]
FILLED = ["turns", "messages", "engine", "engine_samples"]


@pytest.mark.parametrize("table", TABLES)
def test_a_table_is_the_same_in_every_library(captured: Captured, table: str) -> None:
    rows = getattr(agentbench.Run.open(captured.path), table)()
    arrow, polars, pandas = pa.table(rows), rows.to_polars(), rows.to_pandas()
    assert arrow.num_rows == polars.height == len(pandas) == len(rows)
    assert (len(rows) > 0) == (table in FILLED)
    assert arrow.column_names == polars.columns == list(pandas.columns) == list(rows.schema)
    assert arrow.to_pylist() == polars.to_dicts()


def test_a_table_can_be_exported_again_and_again(captured: Captured) -> None:
    turns = agentbench.Run.open(captured.path).turns()
    first, second = turns.__arrow_c_stream__(), turns.__arrow_c_stream__()
    assert type(first).__name__ == "PyCapsule"
    assert '"arrow_array_stream"' in repr(first)
    assert first is not second
    assert pa.table(turns).equals(pa.table(turns))
    assert pl.DataFrame(turns).equals(pl.DataFrame(turns))


def test_bodies_come_back_byte_for_byte(captured: Captured) -> None:
    run = agentbench.Run.open(captured.path)
    turns = run.turns().to_polars().sort("request_time")
    assert [run.request_body(request_id) for request_id in turns["request_id"]] == captured.bodies


def test_isl_text_holds_all_that_was_said(captured: Captured) -> None:
    run = agentbench.Run.open(captured.path)
    turns = run.turns().to_polars().sort("request_time")
    last = turns.row(2, named=True)
    text = run.isl_text(last["request_id"])
    for said in ("careful coding agent", "Runs a command", "session one", "looking at it, step 0", "go on, step 1"):
        assert said in text
    assert "go on, step 1" in last["isl_new_text"]
    assert "looking at it, step 0" not in last["isl_new_text"]


def test_an_unknown_request_is_a_key_error(captured: Captured) -> None:
    run = agentbench.Run.open(captured.path)
    with pytest.raises(KeyError, match="no turn has the request_id"):
        run.request_body("nothing")


def test_totals_are_those_of_the_table(captured: Captured) -> None:
    run = agentbench.Run.open(captured.path)
    totals, turns = run.totals(), run.turns().to_polars()
    assert (totals["turns"], totals["failed"], totals["sessions"], totals["threads"]) == (5, 0, 2, 2)
    assert totals["isl"] == turns["isl"].sum()
    assert totals["osl"] == turns["osl"].sum()
    assert totals["tool_exec_ms"] == pytest.approx(turns["tool_exec_ms"].sum())


def test_the_manifest_tells_what_ran(captured: Captured) -> None:
    run = agentbench.Run.open(captured.path)
    assert run.path == captured.path
    written = json.loads((captured.path / "manifest.json").read_text())
    assert run.manifest | {"ended": None} == written | {"ended": None}
    assert run.manifest["ended"] == pytest.approx(written["ended"])
    assert run.manifest["kind"] == "capture"
    assert run.manifest["complete"] is True
    assert run.manifest["engine"]["simulated"] is True
    assert run.manifest["host"]["cpus"] > 0
    assert run.summary() is None


async def test_a_run_opens_in_asyncio(captured: Captured) -> None:
    run = await agentbench.Run.open_async(captured.path)
    assert run.manifest == agentbench.Run.open(captured.path).manifest


@pytest.mark.parametrize("name", ["turns", "engine_samples"])
def test_reading_a_table_says_which_extra_is_missing(
    captured: Captured, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("agentbench._frames.find_spec", lambda _: None)
    table = getattr(agentbench.Run.open(captured.path), name)()
    with pytest.raises(ModuleNotFoundError, match=r"agentbench-serving\[analysis\]"):
        table.to_polars()
    with pytest.raises(ModuleNotFoundError, match=r"agentbench-serving\[analysis\]"):
        table.to_pandas()


def test_pandas_reads_through_polars_where_pyarrow_is_missing(
    captured: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns = agentbench.Run.open(captured.path).turns()
    by_pyarrow = turns.to_pandas()
    monkeypatch.setattr("agentbench._frames.find_spec", lambda name: None if name == "pyarrow" else object())
    by_polars = turns.to_pandas()
    assert list(by_polars.columns) == list(by_pyarrow.columns)
    assert by_polars["request_id"].tolist() == by_pyarrow["request_id"].tolist()
    assert by_polars["isl"].tolist() == by_pyarrow["isl"].tolist()


def test_no_such_run(tmp_path: Path) -> None:
    with pytest.raises(agentbench.TraceError, match="nowhere"):
        agentbench.Run.open(tmp_path / "nowhere")
