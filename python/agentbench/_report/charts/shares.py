"""Cache hits by three accounts, and how long tools take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from agentbench._figures import count
from agentbench._report.captured import engine_hits_pct, usage_hits_pct
from agentbench._report.charts.frames import columns
from agentbench._report.charts.latency import BINS, FEWEST_IN_A_BIN, PROMPT, quantile
from agentbench._report.charts.model import SERIES, Axis, Chart, Mark, Tip

if TYPE_CHECKING:
    from agentbench._core import Run

STEPS = 400
MOST_TOOLS = 15
WHAT = {
    "planned": "from the recording and the run's cache sharing",
    "usage": "from the responses' usage",
    "engine": "from the engine's counters",
}


def hits_of(summary: dict[str, Any]) -> dict[str, float | None]:
    """Return the prefix hit rate by each account, in percent of prompt tokens."""
    if "prefix_hits" in summary:
        return {name: summary["prefix_hits"][f"{name}_pct"] for name in WHAT}
    return {"usage": usage_hits_pct(summary["totals"]), "engine": engine_hits_pct(summary["engine"])}


def cache_hits(summary: dict[str, Any], conditions: str) -> Chart:
    """Return the hit rates side by side."""
    title = "prompt tokens served from cache"
    found = hits_of(summary)
    known = {name: pct for name, pct in found.items() if pct is not None}
    if not known:
        return Chart("hits", title, conditions, missing="neither plan, usage nor the engine tells it")
    names = tuple(known)[::-1]
    marks = tuple(
        Mark(
            "spans",
            pl.DataFrame({"x": [0.0], "x1": [pct], "y": [float(names.index(name))]}),
            f"{name}: {pct:.1f} % ({WHAT[name]})",
            role,
            x1="x1",
            tips=(Tip(name, "x1", "%", "0.0"),),
            size=0.6,
        )
        for (name, pct), role in zip(known.items(), SERIES, strict=False)
    )
    unknown = [name for name, pct in found.items() if pct is None]
    notes = (f"Not known: {', '.join(unknown)}.",) if unknown else ()
    height = 90 + 34 * len(names)
    return Chart(
        "hits",
        title,
        conditions,
        Axis("of prompt tokens", "%", bounds=(0, 100)),
        Axis("", names=names),
        marks,
        notes,
        height=height,
    )


def hits_by_context(frame: pl.DataFrame, conditions: str) -> Chart:
    """Return the share of prompt tokens served from cache by usage, by the prompt's length."""
    title = "cache hits by context length"
    known = frame.filter(pl.col("cached").is_not_null() & (pl.col("isl") > 0)).sort("isl", maintain_order=True)
    if not len(known):
        return Chart("hits-context", title, conditions, missing="no response's usage tells what came from cache")
    bins = max(1, min(BINS, len(known) // FEWEST_IN_A_BIN))
    by_length = (
        known.with_columns((pl.int_range(pl.len()) * bins // pl.len()).alias("bin"))
        .group_by("bin", maintain_order=True)
        .agg(
            quantile("isl", 0.5).alias("x"),
            (pl.col("cached").sum().cast(pl.Float64) / pl.col("isl").sum() * 100.0).alias("y"),
            pl.len().alias("n"),
        )
        .drop("bin")
    )
    tips = (
        Tip("prompts of about", "x", "tokens", "0,0"),
        Tip("from cache", "y", "%", "0.0"),
        Tip("requests", "n", form="0,0"),
    )
    marks = (
        Mark("line", by_length, "", "second", size=2),
        Mark("points", by_length, "a bin of equally many requests", "second", tips=tips, size=7),
    )
    return Chart("hits-context", title, conditions, PROMPT, Axis("from cache", "%", bounds=(0, 103)), marks)


def tool_time(run: Run, frame: pl.DataFrame, conditions: str) -> Chart:
    """Return how long calls of each tool took; of a replay, whose tools are waits, how long these were."""
    calls = columns(run, "tool_calls", ["name", "wire_ms"])
    if calls["wire_ms"].count():
        return _by_tool(calls, conditions)
    title = "waits for tools or a human, as replayed"
    waits = frame.filter(pl.col("wait_s") > 0)["wait_s"]
    if not len(waits):
        return Chart("tools", "tool time", conditions, missing="the run has no tool calls and no waits")
    steps = min(STEPS, max(len(waits) - 1, 1))
    shares = [index / steps for index in range(steps + 1)]
    curve = pl.DataFrame(
        {"x": [waits.quantile(share, "linear") for share in shares], "y": [share * 100.0 for share in shares]}
    )
    tips = (Tip("wait", "x", "s"), Tip("waits at or below", "y", "%", "0.[0]"))
    marks = (Mark("line", curve, f"{count(len(waits))} waits", tips=tips, size=2),)
    return Chart("tools", title, conditions, Axis("wait", "s", log=True), Axis("waits", "%", bounds=(0, 103)), marks)


def _by_tool(calls: pl.DataFrame, conditions: str) -> Chart:
    known = calls.filter(pl.col("wire_ms").is_not_null()).with_columns((pl.col("wire_ms") / 1e3).alias("s"))
    tools = (
        known.group_by("name")
        .agg(
            pl.len().alias("n"),
            pl.col("s").sum().alias("sum"),
            *[quantile("s", share).alias(name) for name, share in (("p50", 0.5), ("p95", 0.95))],
        )
        .sort("sum", "name", descending=[True, False])
    )
    shown = (
        tools.head(MOST_TOOLS)
        .reverse()
        .with_columns(pl.int_range(pl.len()).cast(pl.Float64).alias("y"), pl.lit(0.0).alias("x"))
    )
    tips = (
        Tip("", "name", form=""),
        Tip("calls", "n", form="0,0"),
        Tip("in all", "sum", "s"),
        Tip("p50", "p50", "s"),
        Tip("p95", "p95", "s"),
    )
    marks = (
        Mark(
            "spans", shown, "time of all calls, from call to result on the wire", "third", x1="sum", tips=tips, size=0.6
        ),
    )
    notes = (f"Drawn: the {MOST_TOOLS} of {len(tools)} tools with the most time.",) if len(tools) > MOST_TOOLS else ()
    height = 90 + 24 * len(shown)
    names = tuple(shown["name"].to_list())
    return Chart(
        "tools",
        "tool time by tool",
        conditions,
        Axis("time of all calls", "s", bounds=(0, None)),
        Axis("", names=names),
        marks,
        notes,
        height=height,
    )
