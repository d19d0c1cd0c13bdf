"""How many tokens a step reads and writes: distributions, by agent and model, and how they grow over turns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import style
from ._frames import Tables
from ._stats import QUANTILES, number, real, share, spread, spreads
from .answer import Answer, Chart, Headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .trace import Trace

QUANTITIES = {
    "isl": "ISL",
    "isl_cached": "ISL cached (prefix)",
    "isl_new": "ISL_new (append)",
    "isl_cache_write": "ISL written to cache",
    "osl": "OSL",
    "reasoning_tokens": "reasoning within OSL",
}
LACKING = {
    "isl": "no step tells its prompt tokens: no ISL, no growth",
    "isl_cached": "no step tells its cached tokens: no prefix, no ISL_new, no hit rate",
    "osl": "no step tells its output tokens: no OSL",
    "reasoning_tokens": "no step tells its reasoning tokens",
}
UNKNOWN = "not told"
WHO = ("agent", "model")
DRAWN = {"isl": "ISL", "isl_new": "ISL_new", "osl": "OSL"}
FEWEST_TO_DRAW = 5
"""Steps that a group of turns must have to be drawn in the growth over turns, unless there are few in all."""
MANY_STEPS = 25


def tokens(trace: Trace) -> Answer:
    """Return how many tokens the steps of agents read and write.

    Definitions
    -----------
    ISL
        Prompt tokens of a request, those from cache included, by the response's own usage.
    ISL cached (prefix)
        Those of them that the engine served from its prefix cache, by usage. TraceLab's ``prefix_tokens``.
    ISL_new (append)
        Prompt tokens that were computed: ISL - ISL cached; null where usage does not tell what was cached.
        TraceLab's ``newly_append_tokens``.
    OSL
        Output tokens, by usage; reasoning tokens are among them.
    prefix hits
        Sum of ISL cached over sum of ISL, over the steps that tell both.

    Failed turns and utility calls are left out. Published figures to compare with are TraceLab's (357,161 rounds of
    Claude Code and Codex) and kv-cache-tester's (59,204 requests).

    Returns
    -------
    Answer
        Tables ``tokens`` (a row for each quantity), ``agents`` (medians by agent and model), ``by_agent`` (spreads of
        ISL, ISL_new and OSL by agent and model), ``growth`` (by turn of a thread), ``growth_by_agent`` (medians by
        turn, agent and model).
    """
    steps = trace.steps
    named = steps.with_columns(pl.col("agent", "model").fill_null(UNKNOWN))
    main = spreads(steps, QUANTITIES, "tokens_of_a_step", ("p10", "p25", "p50", "p75", "p90", "p99"), total=True)
    agents = (
        named.group_by(WHO)
        .agg(
            pl.len().alias("steps"),
            *(
                pl.col(column).median().alias(f"{column}_p50_tokens")
                for column in ("isl", "isl_cached", "isl_new", "osl")
            ),
            _hit_rate_pct(),
        )
        .sort("steps", "agent", "model", descending=[True, False, False])
    )
    growth = _grouped(steps if _tells_any(steps) else steps.clear())
    tables = {
        "tokens": main,
        "agents": agents,
        "by_agent": _by_agent(named),
        "growth": growth,
        "growth_by_agent": _grouped(named if _tells_any(steps) else named.clear(), WHO, ("p50",)),
    }
    return Answer(
        name="tokens",
        title="Tokens of a step",
        finding=_finding(steps),
        subtitle=f"{trace.subtitle}; {steps.height:,} steps (no utility calls, none that failed)",
        tables=Tables(tables),
        headline=_headline(steps),
        missing=tuple(text for column, text in LACKING.items() if trace.lacks(column))
        if steps.height
        else ("no step was recorded",),
        notes=_notes(steps),
        draw=(lambda figure: _draw(figure, steps)) if _tells_any(steps) else None,
        chart=Chart("growth", "turn", "isl_p50_tokens") if growth.height > 1 else None,
    )


def _hit_rate_pct() -> pl.Expr:
    both = pl.col("isl").is_not_null() & pl.col("isl_cached").is_not_null()
    whole = pl.col("isl").filter(both).sum()
    return pl.when(whole > 0).then(pl.col("isl_cached").filter(both).sum() / whole * 100.0).alias("prefix_hits_pct")


def _headline(steps: pl.DataFrame) -> tuple[Headline, ...]:
    def median(column: str) -> float | None:
        return number(steps[column].median())

    def told(column: str) -> str:
        return f"{steps[column].count():,} of {steps.height:,} steps tell it"

    both = steps.filter(pl.col("isl").is_not_null() & pl.col("isl_cached").is_not_null())
    hits = share(both["isl_cached"].sum(), both["isl"].sum()) if both.height else None
    return (
        Headline("median ISL", median("isl"), "tokens", told("isl"), "109,903 (kv-cache-tester)"),
        Headline("median prefix", median("isl_cached"), "tokens", told("isl_cached"), "119K (TraceLab)"),
        Headline("median append", median("isl_new"), "tokens", told("isl_new"), "875 (TraceLab)"),
        Headline("median output", median("osl"), "tokens", told("osl"), "214 (TraceLab), 218 (kv-cache-tester)"),
        Headline("prefix hits", hits, "%", f"tokens of {both.height:,} steps that tell both", "95.75 % (TraceLab)"),
    )


def _finding(steps: pl.DataFrame) -> str:
    said = [
        f"{verb} {real(steps[column].median()):,.0f}{rest}"
        for column, verb, rest in (
            ("isl", "reads", " tokens"),
            ("isl_new", "computes", " of them"),
            ("osl", "writes", ""),
        )
        if steps[column].count()
    ]
    return f"A step {', '.join(said)} (medians)" if said else ""


def _notes(steps: pl.DataFrame) -> tuple[str, ...]:
    partly = [
        f"{name} is over the {steps[column].count():,} steps that tell it"
        for column, name in QUANTITIES.items()
        if 0 < steps[column].count() < steps.height and column != "isl_cache_write"
    ]
    return tuple(partly)


def _tells_any(steps: pl.DataFrame) -> bool:
    return any(steps[column].count() for column in DRAWN)


def _by_agent(steps: pl.DataFrame) -> pl.DataFrame:
    """Spreads of what is drawn, a row for each agent, model and quantity that it tells."""
    rows = [
        steps.group_by(WHO).agg(spread(column, ("p25", "p50", "p75", "p90"))).with_columns(
            pl.lit(name).alias("tokens_of_a_step"), pl.lit(at).alias("at")
        )
        for at, (column, name) in enumerate(DRAWN.items())
    ]  # fmt: skip
    ordered = pl.concat(rows).filter(pl.col("n") > 0).sort(*WHO, "at")
    return ordered.select(*WHO, "tokens_of_a_step", pl.exclude(*WHO, "tokens_of_a_step", "at"))


def _grouped(
    steps: pl.DataFrame, by: tuple[str, ...] = (), quantiles: tuple[str, ...] = ("p25", "p50", "p75")
) -> pl.DataFrame:
    """Quantiles by groups of turns: 0, 1, 2-3, 4-7, 8-15, …; by agent and model too where asked."""
    first = pl.when(pl.col("turn") > 0).then(2.0 ** pl.col("turn").cast(pl.Float64).log(2.0).floor()).otherwise(0.0)
    grouped = steps.group_by(*by, first.cast(pl.Int64).alias("from")).agg(
        pl.len().alias("steps"),
        pl.col("thread").n_unique().alias("threads"),
        *(
            pl.col(column).quantile(QUANTILES[name], "linear").alias(f"{column}_{name}_tokens")
            for column in DRAWN
            for name in quantiles
        ),
    )
    last = pl.col("from") * 2 - 1
    label = (
        pl.when(last > pl.col("from")).then(pl.format("{}-{}", "from", last)).otherwise(pl.col("from").cast(pl.String))
    )
    return grouped.sort(*by, "from").select(*by, label.alias("turn"), pl.exclude(*by, "from"))


def _draw(figure: Figure, steps: pl.DataFrame) -> None:
    left, right = figure.subplots(1, 2)
    for color, (column, name) in zip(style.PALETTE, DRAWN.items(), strict=False):
        values = steps[column].drop_nulls().filter(steps[column].drop_nulls() > 0)
        if len(values):
            median = real(steps[column].median())
            style.ecdf(left, values.to_numpy(), f"{name} {median:,.0f}", color)
    style.log_axis(left, "x")
    style.count_axis(left.xaxis)
    left.set(title="Tokens of a step (p50)", xlabel="tokens", ylabel="share of steps with at most x, %", ylim=(0, 102))
    style.legend_above(left, 3)
    growth = _grouped(steps).filter(pl.col("steps") >= min(FEWEST_TO_DRAW, 1 + steps.height // MANY_STEPS))
    at = range(growth.height)
    for color, (column, name) in zip(style.PALETTE, DRAWN.items(), strict=False):
        if steps[column].count() == 0:
            continue
        quarter, half, rest = (growth[f"{column}_{q}_tokens"].to_numpy() for q in ("p25", "p50", "p75"))
        right.plot(at, half, color=color, marker="o", markersize=4, label=name)
        right.fill_between(at, quarter, rest, color=color, alpha=0.18, linewidth=0)
    style.log_axis(right, "y")
    style.count_axis(right.yaxis)
    right.set_xticks(list(at), growth["turn"].to_list(), rotation=45, ha="right")
    right.set(title="Growth over turns (p50, p25 to p75)", xlabel="turn of the thread", ylabel="tokens")
    style.legend_above(right, 3)
