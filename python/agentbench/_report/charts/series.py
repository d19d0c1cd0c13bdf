"""Gauges and counters over time: the engine's, and the power of the devices. Long series become envelopes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from agentbench._figures import count, number
from agentbench._report.charts.model import SERIES, TIME, Axis, Chart, Mark, Tip

if TYPE_CHECKING:
    from agentbench._core import Run

MOST_SAMPLES = 1_200
"""Above this many samples of a series its smallest and largest value of each stretch are drawn."""
STRETCHES = 600
RATE_STRETCHES = 240
FAILURE_STRETCHES = 120
LEAST_STRETCH_S = 1.0
MOST_DRAWN = len(SERIES)


def engine_charts(run: Run, start: float, conditions: str) -> tuple[Chart, ...]:
    """Return running and waiting requests, use of the KV cache and tokens a second, by the engine's own page."""
    polls = run.engine_samples().to_polars()
    good = polls.filter(pl.col("error").is_null()).with_columns((pl.col("ts") - start).alias("x")).sort("ts")
    failed = len(polls) - len(good)
    said = (f"{count(failed)} of {count(len(polls))} polls gave no values.",) if failed else ()
    told = f"{conditions}; {count(len(good))} polls of the engine"
    return (
        gauges(
            "running",
            "requests in the engine",
            told,
            good,
            (("running", "running"), ("waiting", "waiting")),
            "requests",
            said,
        ),
        gauges("kv", "KV cache in use", told, good, (("kv_cache_usage_pct", "KV cache"),), "%", said),
        rates("output-rate", ("generation_tokens_total", "output tokens"), told, good, said),
        rates("prompt-rate", ("prompt_tokens_total", "prompt tokens"), told, good, said),
    )


def gauges(
    name: str,
    title: str,
    conditions: str,
    polls: pl.DataFrame,
    columns: tuple[tuple[str, str], ...],
    unit: str,
    notes: tuple[str, ...],
) -> Chart:
    """Return gauges over time, one line for each and for each engine."""
    engines = polls["engine"].unique(maintain_order=True).to_list()
    wanted = [(engine, column, label) for engine in engines for column, label in columns if polls[column].count()]
    if not wanted:
        return Chart(name, title, conditions, missing="the engine was not polled, or its page does not tell it")
    marks: list[Mark] = []
    for (engine, column, label), role in zip(wanted[:MOST_DRAWN], SERIES, strict=False):
        rows = polls.filter(pl.col("engine") == engine).select("x", pl.col(column).alias("y")).drop_nulls()
        lane = label if len(engines) == 1 else f"{label}, {engine}"
        more, said = lines(rows, lane, unit)
        marks += [
            Mark(mark.kind, mark.data, mark.label, role, y=mark.y, y1=mark.y1, tips=mark.tips, size=mark.size)
            for mark in more
        ]
        notes = (*notes, *[text for text in said if text not in notes])
    if len(wanted) > MOST_DRAWN:
        notes = (*notes, f"Drawn: {MOST_DRAWN} of {len(wanted)} series.")
    return Chart(
        name,
        title,
        conditions,
        TIME,
        Axis(title.partition(" in ")[0], unit if unit == "%" else "", bounds=(0, 103 if unit == "%" else None)),
        tuple(marks),
        notes,
        zoom=True,
    )


def lines(rows: pl.DataFrame, label: str, unit: str) -> tuple[tuple[Mark, ...], tuple[str, ...]]:
    """Return a series as it is; a long one as its mean with an envelope, and a sentence that says so."""
    if len(rows) <= MOST_SAMPLES:
        return (Mark("step", rows, label, tips=(Tip("at", "x", "s"), Tip(label, "y", unit)), size=1.5),), ()
    drawn = envelope(rows)
    tips = (
        Tip("at", "x", "s"),
        Tip(f"{label}, mean", "mean", unit),
        Tip("least", "low", unit),
        Tip("most", "high", unit),
    )
    stretch = number((rows["x"][-1] - rows["x"][0]) / STRETCHES)
    said = f"Lines are means over {stretch} s, bands reach from the least to the most of these."
    band = Mark("band", drawn, "", y="low", y1="high")
    return (band, Mark("line", drawn, label, y="mean", tips=tips, size=1.5)), (said,)


def envelope(rows: pl.DataFrame, stretches: int = STRETCHES) -> pl.DataFrame:
    """Return mean, least and most of (x, y) in stretches of equal length: no peak is lost."""
    first, last = float(rows["x"][0]), float(rows["x"][-1])
    width = (last - first) / stretches
    place = ((pl.col("x") - first) / width).floor().clip(0, stretches - 1)
    return (
        rows.group_by(place.alias("stretch"))
        .agg(
            pl.col("x").mean(),
            pl.col("y").mean().alias("mean"),
            pl.col("y").min().alias("low"),
            pl.col("y").max().alias("high"),
        )
        .sort("stretch")
        .drop("stretch")
    )


def rates(name: str, counter: tuple[str, str], conditions: str, polls: pl.DataFrame, notes: tuple[str, ...]) -> Chart:
    """Return what a counter of tokens grew by, a second; all engines together."""
    column, label = counter
    title = f"{label} a second"
    grown = growth(polls, column)
    if not len(grown):
        return Chart(name, title, conditions, missing="the engine was not polled, or its page has no such counter")
    tips = (Tip("at", "x", "s"), Tip(label, "y", "tokens/s", "0,0"))
    marks = (Mark("line", grown, f"{label}, by the engine's counter", tips=tips, size=1.5),)
    return Chart(name, title, conditions, TIME, Axis(label, "tokens/s", bounds=(0, None)), marks, notes, zoom=True)


def growth(polls: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return (x, y): a counter's growth a second over stretches of a second or more, each at its middle.

    There is none across a restart.
    """
    known = polls.select("x", "engine", pl.col(column).alias("total")).drop_nulls()
    if len(known) < 2:  # noqa: PLR2004 a difference needs two
        return pl.DataFrame({"x": [], "y": []}, schema={"x": pl.Float64, "y": pl.Float64})
    first = float(known["x"].min())  # type: ignore[arg-type]
    stretch_s = max((float(known["x"].max()) - first) / RATE_STRETCHES, LEAST_STRETCH_S)  # type: ignore[arg-type]
    by_engine = (
        known.with_columns(((pl.col("x") - first) / stretch_s).floor().alias("stretch"))
        .group_by("engine", "stretch", maintain_order=True)
        .agg(pl.col("x").last(), pl.col("total").last())
        .with_columns(
            (pl.col("total") - pl.col("total").shift(1).over("engine")).alias("grown"),
            (pl.col("x") - pl.col("x").shift(1).over("engine")).alias("passed"),
        )
        .filter((pl.col("grown") >= 0) & (pl.col("passed") >= stretch_s / 2))
        .with_columns((pl.col("grown") / pl.col("passed")).alias("y"), pl.col("x") - pl.col("passed") / 2)
    )
    return by_engine.group_by("stretch").agg(pl.col("x").mean(), pl.col("y").sum()).sort("stretch").drop("stretch")


def failures(failed: pl.DataFrame, conditions: str) -> Chart:
    """Return when requests failed: how many in each stretch of the run."""
    failed = failed.filter(pl.col("start_s").is_not_null())
    if not len(failed):
        return Chart("failures", "failed requests over time", conditions, missing="no failed request has a known time")
    first, last = float(failed["start_s"].min()), float(failed["start_s"].max())  # type: ignore[arg-type]
    width = max((last - first) / FAILURE_STRETCHES, LEAST_STRETCH_S)
    counted = (
        failed.group_by(((pl.col("start_s") - first) / width).floor().alias("stretch"))
        .agg(pl.len().alias("y"))
        .sort("stretch")
        .with_columns((pl.col("stretch") * width + first + width / 2).alias("x"), pl.lit(0.0).alias("zero"))
    )
    tips = (Tip("failed", "y", form="0,0"), Tip("at about", "x", "s"))
    mark = Mark("ranges", counted, "failed requests", "poor", y="zero", y1="y", tips=tips, size=width * 0.9)
    notes = (f"Each bar counts {number(width)} s, by when requests were sent.",)
    amount = Axis("failed", "requests", bounds=(0, None), whole=True)
    return Chart(
        "failures", "failed requests over time", conditions, TIME, amount, (mark,), notes, wide=True, height=200
    )


def power_chart(run: Run, start: float, conditions: str) -> Chart:
    """Return the power of every device over time."""
    title = "power of each device"
    table = run.power().to_polars()
    if not len(table):
        return Chart("power", title, conditions, missing="power was not sampled")
    known = table.select(
        (pl.col("ts") - start).alias("x"),
        pl.coalesce("power_w", "power_avg_w").alias("y"),
        "device",
    ).sort("x")
    devices = known["device"].unique(maintain_order=True).sort().to_list()
    marks: list[Mark] = []
    notes: tuple[str, ...] = ()
    for device, role in zip(devices[:MOST_DRAWN], SERIES, strict=False):
        rows = known.filter(pl.col("device") == device).select("x", "y").drop_nulls()
        if len(rows):
            more, said = lines(rows, device, "W")
            marks += [
                Mark(mark.kind, mark.data, mark.label, role, y=mark.y, y1=mark.y1, tips=mark.tips, size=mark.size)
                for mark in more
            ]
            notes = (*notes, *[text for text in said if text not in notes])
    if not marks:
        return Chart("power", title, conditions, missing="no sample has a reading of power")
    if len(devices) > MOST_DRAWN:
        notes = (*notes, f"Drawn: {MOST_DRAWN} of {len(devices)} devices.")
    told = f"{conditions}; {count(len(known))} samples"
    return Chart(
        "power", title, told, TIME, Axis("power", "W", bounds=(0, None)), tuple(marks), notes, wide=True, zoom=True
    )
