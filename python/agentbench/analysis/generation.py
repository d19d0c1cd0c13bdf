"""How fast replies are made: decode speed against context and output, time to the first token against the append."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import polars as pl

from . import style
from ._frames import Tables
from ._stats import number
from .answer import Answer, Chart, Headline

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .trace import Trace

CONTEXTS = (0, 4_096, 8_192, 16_384, 32_768, 65_536, 131_072, 262_144, 524_288)
OUTPUTS = (2, 32, 64, 128, 256, 512, 1_024, 4_096)
APPENDS = (0, 256, 1_024, 4_096, 16_384, 65_536)
DRAWN_POINTS = 4_000
FEWEST = 10
SHORTEST_S = 1e-6
"""A time that is shorter than stamps are fine is none: a speed over it is unknown."""
SPEEDS = {"decode_tokens_per_s": "decode speed", "normalized_tokens_per_s": "normalized speed"}
BY_MODEL = "by model: binned medians 50-54 (Claude), 43 falling to 29 (Codex) tokens/s (TraceLab)"


def generation(trace: Trace) -> Answer:
    """Return how fast the engines behind the recordings made replies.

    Definitions
    -----------
    decode speed
        (OSL - 1) / (last output - first output), in tokens/s; null below 2 tokens, and where the time of the first
        output is not told.
    normalized speed
        OSL / E2E, in tokens/s, waiting and prefill included: what logs allow that do not tell the first output.
        TraceLab's normalized decode speed.
    TTFT
        From the arrival of the request to the first chunk that carries output.
    context, append
        The prompt's tokens, and those of them that were not cached (``isl_new``).
    engine's times
        Prefill, queue and decode time as the engine's own counters tell them. A row of these is the mean of the
        requests that completed in one poll, and weighs as many.

    Steps without tokens or times are left out. Classes are of tokens: from the first figure up to, and without, the
    next.

    Returns
    -------
    Answer
        Tables ``generation`` (by context), ``output`` (by output), ``ttft`` (by append), ``engine`` (by append).
    """
    steps = _timed(trace)
    tables = {
        "generation": _speeds(steps, "isl", CONTEXTS, "context_tokens"),
        "output": _speeds(steps, "osl", OUTPUTS, "output_tokens"),
        "ttft": _ttfts(steps),
        "engine": _engine(trace),
    }
    return Answer(
        name="generation",
        title="Generation",
        finding=_finding(steps),
        subtitle=f"{trace.subtitle}; {steps.height:,} steps that tell tokens and times",
        tables=Tables(tables),
        headline=_headline(steps),
        missing=_missing(trace, steps, tables["engine"]),
        notes=_notes(trace),
        draw=(lambda figure: _draw(figure, steps)) if steps.height else None,
        chart=Chart("generation", "context_tokens", _speed_known(steps).replace("_tokens_per_s", "_p50_tok_s"))
        if tables["generation"].height
        else None,
    )


def _timed(trace: Trace) -> pl.DataFrame:
    """Steps with output and a duration, and their speeds."""
    decode_s = pl.col("last_output_time") - pl.col("first_output_time")
    return trace.steps.filter(
        (pl.col("osl") > 0) & ((pl.col("e2e_ms") >= SHORTEST_S * 1e3) | pl.col("ttft_ms").is_not_null())
    ).select(
        "isl",
        "isl_new",
        "osl",
        "ttft_ms",
        pl.when((pl.col("osl") > 1) & (decode_s >= SHORTEST_S))
        .then((pl.col("osl") - 1) / decode_s)
        .alias("decode_tokens_per_s"),
        pl.when(pl.col("e2e_ms") >= SHORTEST_S * 1e3)
        .then(pl.col("osl") / pl.col("e2e_ms") * 1e3)
        .alias("normalized_tokens_per_s"),
    )


def _classed(column: str, bounds: Sequence[int]) -> tuple[pl.Expr, list[str]]:
    """Return the class of a value, as its place, and the names of the classes."""
    place = pl.sum_horizontal([(pl.col(column) >= bound).cast(pl.Int64) for bound in bounds[1:]])
    names = [f"{_short(low)} to {_short(high)}" for low, high in pairwise(bounds)]
    return place.alias("place"), [*names, f"{_short(bounds[-1])} or more"]


def _short(tokens: int) -> str:
    return f"{tokens // 1_024}K" if tokens >= 1_024 else str(tokens)  # noqa: PLR2004


def _speeds(steps: pl.DataFrame, column: str, bounds: Sequence[int], label: str) -> pl.DataFrame:
    place, names = _classed(column, bounds)
    known = steps.filter(pl.col(column) >= bounds[0])
    grouped = known.group_by(place).agg(
        pl.len().cast(pl.Int64).alias("steps"),
        *(
            pl.col(speed).quantile(q, "linear").alias(f"{short}_{name}_tok_s")
            for speed, short in (("decode_tokens_per_s", "decode"), ("normalized_tokens_per_s", "normalized"))
            if steps[speed].count()
            for name, q in (("p25", 0.25), ("p50", 0.5), ("p75", 0.75))
        ),
    )
    return _named(grouped, names, label)


def _ttfts(steps: pl.DataFrame) -> pl.DataFrame:
    place, names = _classed("isl_new", APPENDS)
    known = steps.filter(pl.col("isl_new").is_not_null() & pl.col("ttft_ms").is_not_null())
    grouped = known.group_by(place).agg(
        pl.len().cast(pl.Int64).alias("steps"),
        *(pl.col("ttft_ms").quantile(q, "linear").alias(f"ttft_p{q * 100:.0f}_ms") for q in (0.25, 0.5, 0.95)),
        pl.col("isl").median().alias("context_p50_tokens"),
    )
    return _named(grouped, names, "append_tokens")


def _engine(trace: Trace) -> pl.DataFrame:
    place, names = _classed("isl_new", APPENDS)
    rows = trace.engine.filter((pl.col("n") > 0) & pl.col("isl_new").is_not_null())

    def mean(column: str) -> pl.Expr:
        known = pl.col(column).is_not_null()
        weight = pl.col("n").filter(known).sum()
        return pl.when(weight > 0).then((pl.col(column) * pl.col("n")).sum() / weight).alias(column)

    grouped = rows.group_by(place).agg(
        pl.col("n").sum().alias("requests"),
        *(mean(column) for column in ("prefill_ms", "queue_ms", "decode_ms", "itl_ms")),
    )
    return _named(grouped, names, "append_tokens")


def _named(grouped: pl.DataFrame, names: list[str], label: str) -> pl.DataFrame:
    """Put classes in order, with their names in place of their numbers."""
    classes = pl.DataFrame({"place": range(len(names)), label: names}, schema={"place": pl.Int64, label: pl.String})
    return grouped.join(classes, on="place", how="left").sort("place").select(label, pl.exclude("place", label))


def _speed_known(steps: pl.DataFrame) -> str:
    """The speed to show: that of decoding where any step tells it."""
    return "decode_tokens_per_s" if steps["decode_tokens_per_s"].count() else "normalized_tokens_per_s"


def _finding(steps: pl.DataFrame) -> str:
    shown = _speed_known(steps)
    speed, ttft_ms = number(steps[shown].median()), number(steps["ttft_ms"].median())
    said = [] if speed is None else [f"{speed:,.0f} tokens/s (median {SPEEDS[shown]})"]
    if ttft_ms is not None:
        said.append(f"first token after {style.in_words(ttft_ms / 1e3)} (median)")
    return ", ".join(said)


def _headline(steps: pl.DataFrame) -> tuple[Headline, ...]:
    def over(column: str) -> str:
        return f"{steps[column].count():,} of {steps.height:,} steps tell it"

    def median(column: str) -> float | None:
        return number(steps[column].median()) if steps.height else None

    shown = _speed_known(steps)
    return (
        Headline("median decode speed", median("decode_tokens_per_s"), "tokens/s", over("decode_tokens_per_s")),
        Headline(
            "median normalized speed",
            median("normalized_tokens_per_s"),
            "tokens/s",
            over("normalized_tokens_per_s"),
            BY_MODEL,
        ),
        Headline("median TTFT", median("ttft_ms"), "ms", over("ttft_ms")),
        _ranked(steps, "isl", shown, f"{SPEEDS[shown]} with context"),
        _ranked(steps, "osl", shown, f"{SPEEDS[shown]} with output"),
        _ranked(steps, "isl_new", "ttft_ms", "TTFT with append"),
    )


def _ranked(steps: pl.DataFrame, x: str, y: str, words: str) -> Headline:
    """Spearman's rank correlation: 1 where more of one is always more of the other, -1 where it is less."""
    both = steps.filter(pl.col(x).is_not_null() & pl.col(y).is_not_null())
    value = None
    if both.height >= FEWEST and both[x].n_unique() > 1 and both[y].n_unique() > 1:
        value = number(both.select(pl.corr(pl.col(x).rank(), pl.col(y).rank()).alias("rho")).item())
    fewest = f"{both.height:,} steps that tell both" + ("" if both.height >= FEWEST else ", too few")
    return Headline(f"rank correlation of {words}", value, "", fewest)


def _missing(trace: Trace, steps: pl.DataFrame, engine: pl.DataFrame) -> tuple[str, ...]:
    if not steps.height:
        return ("no step tells its output tokens and times: no speeds",)
    found = []
    if not steps["ttft_ms"].count():
        found.append("no step tells when its first output came: no TTFT, no decode speed")
    elif not steps["isl_new"].count():
        found.append("no step tells its cached tokens: no TTFT by append")
    if not steps["isl"].count():
        found.append("no step tells its prompt tokens: nothing by context")
    if not engine.height:
        found.append(
            "the engine's own times are not there: "
            + ("no metrics page was polled" if not trace.engine.height else "no row tells them with its new tokens")
        )
    return tuple(found)


def _notes(trace: Trace) -> tuple[str, ...]:
    found = [
        f"{label} is of a simulated engine: its times say nothing about any hardware"
        for label, run in trace.runs.items()
        if (run.manifest.get("engine") or {}).get("simulated")
    ]
    found += [
        f"{label} is synthetic: its times are made up"
        for label, run in trace.runs.items()
        if run.manifest.get("kind") == "synthetic" or run.manifest.get("synthetic")
    ]
    return tuple(found)


def _draw(figure: Figure, steps: pl.DataFrame) -> None:
    left, right = figure.subplots(1, 2)
    shown = _speed_known(steps)
    _cloud(left, steps, "isl", shown, CONTEXTS)
    left.set(title=f"{SPEEDS[shown].capitalize()} by context", xlabel="context, tokens", ylabel="tokens/s")
    if steps["ttft_ms"].count() and steps["isl_new"].count():
        _cloud(right, steps.with_columns(pl.col("ttft_ms") / 1e3), "isl_new", "ttft_ms", APPENDS)
        style.seconds_axis(right.yaxis)
        right.set(title="TTFT by append", xlabel="append, tokens", ylabel="TTFT")
    else:
        _cloud(right, steps, "osl", shown, OUTPUTS)
        right.set(title=f"{SPEEDS[shown].capitalize()} by output", xlabel="output, tokens", ylabel="tokens/s")
    style.legend_above(left, 2)
    style.legend_above(right, 2)


def _cloud(axes: Axes, steps: pl.DataFrame, x: str, y: str, bounds: Sequence[int]) -> None:
    """Draw points, thinned, and the median of each class with its quartiles."""
    known = steps.filter((pl.col(x) > 0) & (pl.col(y) > 0))
    if not known.height:
        axes.text(0.5, 0.5, "not told", ha="center", va="center", color=style.MUTED, transform=axes.transAxes)
        return
    thinned = known.gather_every(max(known.height // DRAWN_POINTS, 1))
    axes.scatter(thinned[x], thinned[y], s=5, alpha=0.25, color=style.PALETTE[4], linewidths=0, rasterized=True)
    place, _ = _classed(x, bounds)
    classes = (
        known.group_by(place)
        .agg(
            pl.len().alias("n"),
            pl.col(x).median().alias("at"),
            *(pl.col(y).quantile(q, "linear").alias(name) for name, q in (("p25", 0.25), ("p50", 0.5), ("p75", 0.75))),
        )
        # A class of few steps says nothing, unless there are only few.
        .filter(pl.col("n") >= min(FEWEST, known.height // len(bounds) + 1))
        .sort("at")
    )
    axes.plot(
        classes["at"], classes["p50"], color=style.PALETTE[0], marker="o", markersize=4, label="median of a class"
    )
    axes.fill_between(
        classes["at"],
        classes["p25"],
        classes["p75"],
        color=style.PALETTE[0],
        alpha=0.18,
        linewidth=0,
        label="p25 to p75",
    )
    style.log_axis(axes, "x")
    style.count_axis(axes.xaxis)
    axes.set_ylim(0, float(known[y].quantile(0.99, "linear") or 1.0) * 1.15)
