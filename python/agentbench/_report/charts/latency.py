"""TTFT and output speed: their distribution over requests, over agents and over context length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from agentbench._figures import count
from agentbench._report.charts.frames import thinned
from agentbench._report.charts.model import Axis, Chart, Mark, Tip

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbench._report.charts.model import Role
    from agentbench._report.verdict import Measure

MOST_POINTS = 10_000
STEPS = 400
BINS = 12
FEWEST_IN_A_BIN = 5
PERCENTILES = {"p5": 0.05, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p95": 0.95}
TTFT, SPEED = "ttft_s", "speed"
AXES = {TTFT: Axis("TTFT", "s", bounds=(0, None)), SPEED: Axis("output speed", "tokens/s", bounds=(0, None))}
SHARE = Axis("requests", "%", bounds=(0, 103))
PROMPT = Axis("prompt", "tokens", bounds=(0, None))
MEASURE = {TTFT: "ttft", SPEED: "speed"}
OF_A_REQUEST = (
    Tip("turn", "turn", form="0"),
    Tip("ISL", "isl", "tokens", "0,0"),
    Tip("cached", "cached", "tokens", "0,0"),
    Tip("OSL", "osl", "tokens", "0,0"),
    Tip("TTFT", "ttft_s", "s"),
    Tip("speed", "speed", "tokens/s", "0,0.[0]"),
)


def quantile(column: str, share: float) -> pl.Expr:
    """Return a percentile by linear interpolation between the closest ranks, as the summary has it."""
    return pl.col(column).quantile(share, interpolation="linear")


def distribution(frame: pl.DataFrame, column: str, conditions: str, measures: Sequence[Measure]) -> Chart:
    """Return the share of requests below each value, with the thresholds of the verdict."""
    axis = AXES[column]
    name, title = f"{column}-distribution", f"{axis.label}: share of requests at or below"
    values = frame[column].drop_nulls()
    if not len(values):
        return _nothing(name, title, conditions, f"no request has a known {axis.label}")
    steps = min(STEPS, max(len(values) - 1, 1))
    shares = [index / steps for index in range(steps + 1)]
    curve = pl.DataFrame(
        {
            "x": [values.quantile(share, interpolation="linear") for share in shares],
            "y": [share * 100.0 for share in shares],
        }
    )
    tips = (Tip(axis.label, "x", axis.unit), Tip("requests at or below", "y", "%", "0.[0]"))
    roles: tuple[Role, ...] = ("good", "marginal", "poor")
    (measure,) = [measure for measure in measures if measure.name == MEASURE[column]]
    rules = tuple(
        Mark("rule", pl.DataFrame({"x": [bound]}), f"{word}: {measure.bound_in_words(word)}", role, y="", dashed=True)
        for (word, bound), role in zip(measure.bounds, roles, strict=False)
        # A threshold far beyond the data would squeeze it into a corner.
        if curve["x"].min() * 0.2 <= bound <= curve["x"].max() * 2  # type: ignore[operator]
    )
    marks = (Mark("line", curve, f"{count(len(values))} requests", tips=tips, size=2), *rules)
    most = max(float(mark.data["x"].max()) for mark in (marks[0], *rules))  # type: ignore[arg-type]
    place = Axis(axis.label, axis.unit, bounds=(0, most * 1.04))
    return Chart(name, title, conditions, place, SHARE, marks)


def over_agents(frame: pl.DataFrame, column: str, conditions: str, who: str) -> Chart:
    """Return every agent's own median and its range, the agents in the order of their medians."""
    axis = AXES[column]
    name, title = f"{column}-agents", f"{axis.label} by {who}"
    known = frame.filter(pl.col(column).is_not_null())
    if not len(known):
        return _nothing(name, title, conditions, f"no request has a known {axis.label}")
    by_lane = (
        known.group_by("order", "lane")
        .agg(pl.len().alias("n"), *[quantile(column, share).alias(label) for label, share in PERCENTILES.items()])
        .sort("p50", "order")
        .with_columns(pl.int_range(1, pl.len() + 1).cast(pl.Float64).alias("x"))
    )
    tips = (
        Tip("", "lane", form=""),
        Tip("requests", "n", form="0,0"),
        *[Tip(label, label, axis.unit) for label in PERCENTILES],
    )
    outer = Mark("ranges", by_lane, "p5 to p95", "quiet", y="p5", y1="p95", size=0.25)
    inner = Mark("ranges", by_lane, "p25 to p75", "first", y="p25", y1="p75", size=0.6)
    middle = Mark("points", by_lane, "median", "second", y="p50", tips=tips, size=7)
    place = Axis(
        f"{count(len(by_lane))} {who}s in the order of their medians", bounds=(0.3, len(by_lane) + 0.7), whole=True
    )
    return Chart(name, title, conditions, place, axis, (outer, inner, middle))


def over_context(frame: pl.DataFrame, column: str, conditions: str) -> Chart:
    """Return the value against the prompt's length: every request, and percentiles of bins of equally many."""
    axis = AXES[column]
    name, title = f"{column}-context", f"{axis.label} by context length"
    known = frame.filter(pl.col(column).is_not_null() & pl.col("isl").is_not_null()).sort("isl", maintain_order=True)
    if not len(known):
        return _nothing(name, title, conditions, f"no request has both a known {axis.label} and a known prompt length")
    bins = binned(known, column)
    drawn = thinned(known, MOST_POINTS)
    notes = (
        (f"Drawn: {count(len(drawn))} of {count(len(known))} requests; percentiles are of all.",)
        if len(drawn) < len(known)
        else ()
    )
    of_bins = (Tip("requests", "n", form="0,0"), Tip("p50", "p50", axis.unit), Tip("p95", "p95", axis.unit))
    of_request = (Tip("", "lane", form=""), *OF_A_REQUEST)
    edge = "p95" if column == TTFT else "p25"
    points = drawn.select("lane", "turn", "isl", "cached", "osl", "ttft_s", "speed")
    marks = (
        Mark("points", points, "a request", "quiet", x="isl", y=column, tips=of_request, size=4),
        Mark("line", bins, "median of a bin", "first", x="isl", y="p50", tips=of_bins, size=2),
        Mark("line", bins, f"{edge} of a bin", "second", x="isl", y=edge, size=2, dashed=True),
    )
    return Chart(name, title, conditions, PROMPT, axis, marks, notes)


def binned(known: pl.DataFrame, column: str) -> pl.DataFrame:
    """Return percentiles of a column in bins of equally many requests by prompt length, at each bin's median length."""
    bins = max(1, min(BINS, len(known) // FEWEST_IN_A_BIN))
    place = (pl.int_range(pl.len()) * bins // pl.len()).alias("bin")
    return (
        known.sort("isl", maintain_order=True)
        .with_columns(place)
        .group_by("bin", maintain_order=True)
        .agg(
            quantile("isl", 0.5).alias("isl"),
            pl.len().alias("n"),
            *[quantile(column, share).alias(label) for label, share in PERCENTILES.items()],
        )
        .sort("isl")
    )


def _nothing(name: str, title: str, conditions: str, missing: str) -> Chart:
    return Chart(name, title, conditions, missing=missing)
