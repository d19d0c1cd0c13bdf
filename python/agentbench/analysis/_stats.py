"""Statistics that several questions share. Pure: frames in, frames out."""

from __future__ import annotations

import polars as pl

QUANTILES = {"p10": 0.1, "p25": 0.25, "p50": 0.5, "p75": 0.75, "p90": 0.9, "p99": 0.99}
USUAL = ("p50", "p90", "p99")
SECONDS_PER_MINUTE = 60.0


def spread(column: str, quantiles: tuple[str, ...] = USUAL, *, prefix: str = "", total: bool = False) -> list[pl.Expr]:
    """Return n, mean, quantiles (linear between values, numpy's default) and max of a column; nulls are left out."""
    value = pl.col(column)
    made = [
        value.count().cast(pl.Int64).alias(f"{prefix}n"),
        value.mean().alias(f"{prefix}mean"),
        *(value.quantile(QUANTILES[name], "linear").alias(f"{prefix}{name}") for name in quantiles),
        value.max().cast(pl.Float64).alias(f"{prefix}max"),
    ]
    return (
        [*made, pl.when(value.count() > 0).then(value.sum().cast(pl.Float64)).alias(f"{prefix}sum")] if total else made
    )


def spreads(
    frame: pl.DataFrame, columns: dict[str, str], label: str, quantiles: tuple[str, ...] = USUAL, *, total: bool = False
) -> pl.DataFrame:
    """Return a row of statistics for each column that any row knows, named as the mapping says."""
    rows = [
        frame.select(pl.lit(name).alias(label), *spread(column, quantiles, total=total))
        for column, name in columns.items()
        if frame[column].count() > 0
    ]
    if rows:
        return pl.concat(rows)
    return (
        frame.clear()
        .select(
            pl.lit("").alias(label), *(pl.lit(None, dtype=pl.Float64).alias(name) for name in ("n", "mean", *quantiles))
        )
        .clear()
    )


def covered(intervals: pl.DataFrame, group: str, start: str = "start", end: str = "end") -> pl.DataFrame:
    """Return the length of the union of each group's intervals, as ``covered``: what overlaps counts once.

    Intervals without both ends, or that end before they start, are left out.
    """
    whole = intervals.select(group, start, end).filter(pl.col(end) >= pl.col(start)).sort(group, start)
    reached = pl.col(end).cum_max().shift(1).over(group)
    new = pl.col(end) - pl.max_horizontal(pl.col(start), reached)
    return (
        whole.with_columns(new.clip(lower_bound=0.0).alias("covered"))
        .group_by(group, maintain_order=True)
        .agg(pl.col("covered").sum())
    )


def share(part: object, whole: object) -> float | None:
    """Return a share in percent; None where either is not known or there is nothing to share."""
    return None if part is None or not whole else 100.0 * real(part) / real(whole)


def number(value: object) -> float | None:
    """Return a statistic that may be null as a float."""
    return None if value is None else real(value)


def real(value: object) -> float:
    """Return a statistic that is known as a float; polars types what it returns as anything."""
    return float(value)  # type: ignore[arg-type]  # any number
