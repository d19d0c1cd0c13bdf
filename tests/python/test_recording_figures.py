"""Headline figures and tables of a recording's page, again from Parquet, by numpy and polars alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest
from tests.python.page_parts import cards, check_rows, same, source_with, table, tables, total

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

    from tests.python.conftest import Captured


@pytest.fixture(scope="module")
def pages(captured: Captured) -> dict[str, tuple[Path, str]]:
    """A capture and the bundled sample, each with its page."""
    paths = {"capture": captured.path, "sample": agentbench.sample_trace()}
    return {name: (path, agentbench.report(path).to_html()) for name, path in paths.items()}


RECORDED = {"TTFT": "ttft_ms", "E2E": "e2e_ms", "ISL": "isl", "ISL cached": "isl_cached", "ISL new": "isl_new"} | {
    "OSL": "osl",
    "tool time": "tool_exec_ms",
    "wait after children": "residual_wait_ms",
    "ITL, mean of a turn": "itl_ms_mean",
}


@pytest.mark.parametrize("name", ["capture", "sample"])
def test_every_card_and_table(pages: dict[str, tuple[Path, str]], name: str) -> None:
    path, page = pages[name]
    turns, found, of_tables = table(path, "turn_traces"), cards(page), tables(page)
    cached = turns.filter(pl.col("isl_cached").is_not_null())
    hits = total(cached["isl_cached"]) / total(cached["isl"]) * 100
    expected: dict[str, tuple[float, str]] = {
        "turns": (len(turns), f"{(turns['outcome'] != 'ok').sum()} not answered whole"),
        "sessions": (turns["session_id"].n_unique(), f"{turns.n_unique(['session_id', 'thread_id'])} threads"),
        "prompt tokens": (total(turns["isl"]), "all turns"),
        "output tokens": (total(turns["osl"]), "all turns"),
        "prompt tokens from cache": (hits, "by usage, where it tells it"),
        "TTFT": (float(np.median(turns["ttft_ms"].to_numpy())), f"median of {len(turns)} turns"),
        "tool time": (
            float(np.median(turns["tool_exec_ms"].drop_nulls().to_numpy())),
            f"median of {turns['tool_exec_ms'].count()} turns",
        ),
    }
    assert found.keys() == expected.keys()
    for label, (value, of) in expected.items():
        same(found[label][0], value)
        assert found[label][1] == of
    assert all(found[label][0].endswith(" ms") for label in ("TTFT", "tool time"))
    check_rows(
        of_tables["of a turn"], {label: turns[column].cast(pl.Float64).to_numpy() for label, column in RECORDED.items()}
    )
    recorded = of_tables["recorded"]
    span_s = float(turns["response_end_time"].max()) - float(turns["request_time"].min())  # type: ignore[arg-type]
    for label, value in {
        "ISL (prompt tokens)": total(turns["isl"]),
        "served from cache": total(cached["isl_cached"]),
        "OSL (output tokens)": total(turns["osl"]),
        "tool time": total(turns["tool_exec_ms"]) / 1e3,
        "from first request to last response": span_s,
    }.items():
        same(recorded[label][0], value)


def test_the_tools_of_a_recording(pages: dict[str, tuple[Path, str]]) -> None:
    path, page = pages["sample"]
    calls = table(path, "tool_calls")
    expected = (
        calls.group_by("name")
        .agg(pl.col("wire_ms").sum() / 1e3, pl.len().alias("n"))
        .sort("wire_ms", "name", descending=[True, False])
    )
    drawn = source_with(page, "sum", "p50", "p95", "n")
    assert drawn["sum"][::-1] == pytest.approx(expected["wire_ms"].to_numpy(), rel=1e-6)
    assert list(drawn["n"][::-1]) == expected["n"].to_list()


def test_engine_counters_of_a_capture(pages: dict[str, tuple[Path, str]]) -> None:
    path, page = pages["capture"]
    rows = table(path, "engine_metrics")
    # A row has the mean over the requests that ended in it.
    pct = total(rows["prefix_cache_hits"]) / total(rows["isl"] * rows["n"]) * 100
    same(tables(page)["recorded"]["by the engine's counters"][0], pct)
