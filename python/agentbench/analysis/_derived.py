"""What several questions need beside what a run tells: whose step a turn is, what set it off, which request it serves.

Pure: frames in, frames out. `trace` reads the frames.
"""

from __future__ import annotations

import polars as pl

ANSWERED_LOCALLY = "answered_locally"
FAILED = ("http_error", "upstream_error", "truncated")
"""Outcomes after which an agent asks again by itself."""
RESET_WITHIN_S = 2.0
"""A new conversation that begins sooner after a far longer one ended was compacted: no human is as quick."""
RESET_TO = 0.5
"""Share of the earlier prompt below which a prompt counts as compacted."""
TURNS_AT_MOST = 1 << 32
"""More turns than a thread has."""
KEYS = ("run", "session_id", "thread_id")


def numbered_threads(turns: pl.DataFrame) -> pl.DataFrame:
    """A number for each session and each thread, so that only small tables are joined by their long names."""
    threads = turns.select(KEYS).unique(maintain_order=True).with_row_index("thread")
    sessions = threads.select(KEYS[:2]).unique(maintain_order=True).with_row_index("session")
    return threads.join(sessions, on=KEYS[:2], how="left", maintain_order="left")


def with_derived(
    turns: pl.DataFrame, calls: pl.DataFrame, threads: pl.DataFrame, runs_with_calls: list[str]
) -> pl.DataFrame:
    """Add what several questions need; see `trace.Trace.turns`. `calls` bear their thread's number."""
    n_calls = calls.group_by("thread", "turn").agg(pl.len().cast(pl.Int64).alias("n_calls"))
    locally = pl.col("changes").list.contains(ANSWERED_LOCALLY).fill_null(value=False)
    rows = (
        turns.join(threads, on=KEYS, how="left", maintain_order="left")
        .join(n_calls, on=["thread", "turn"], how="left", maintain_order="left")
        .with_columns(
            pl.when(pl.col("run").is_in(runs_with_calls)).then(pl.col("n_calls").fill_null(0)).alias("n_calls"),
            (pl.col("parent_thread_id").is_not_null() | (pl.col("kind") == "subagent")).alias("is_subagent"),
            ((pl.col("kind") != "utility") & ~locally & ~pl.col("outcome").is_in(FAILED)).alias("is_step"),
        )
        .drop("changes")
    )
    order = rows.select(pl.col("thread").cast(pl.Int64) * TURNS_AT_MOST + pl.col("turn")).to_series()
    if not order.is_sorted():
        rows = rows.sort("thread", "turn", maintain_order=True)
    rows = rows.with_row_index("row")
    asked = rows.select("row").join(_asked(rows), on="row", how="left", maintain_order="left")
    return rows.drop("row").hstack(asked.drop("row"))


def _asked(rows: pl.DataFrame) -> pl.DataFrame:
    """What set each turn off, and the human's request that it works on, by ``row``.

    A human speaks at a main conversation's first turn, and at one that follows a reply without tool calls. Where a
    session goes on in a new conversation with calls of the one before open, or at once with a far shorter prompt, its
    context was reset amid the work, and nobody spoke.
    """
    work = rows.filter(pl.col("kind") != "utility").select(
        "row", "session", "thread", "request_time", "response_end_time", "isl", "n_calls", "outcome", "is_subagent"
    )
    work = work.with_columns(
        pl.col("n_calls").shift(1).over("thread").alias("calls_before"),
        pl.col("outcome").shift(1).over("thread").alias("outcome_before"),
        (pl.col("thread") != pl.col("thread").shift(1)).fill_null(value=True).alias("is_first"),
        (pl.col("thread") != pl.col("thread").shift(-1)).fill_null(value=True).alias("is_last"),
    )
    in_time = work.sort("session", "request_time", "row", nulls_last=True)
    mains = in_time.filter(~pl.col("is_subagent")).with_columns(
        pl.col("is_last", "n_calls", "isl", "response_end_time").shift(1).over("session").name.suffix("_earlier")
    )
    since_s = pl.col("request_time") - pl.col("response_end_time_earlier")
    compacted = since_s.is_between(0.0, RESET_WITHIN_S) & (pl.col("isl") < RESET_TO * pl.col("isl_earlier"))
    goes_on = pl.col("is_last_earlier") & ((pl.col("n_calls_earlier") > 0) | compacted)
    resets = mains.select("row", (pl.col("is_first") & goes_on.fill_null(value=False)).alias("is_reset"))
    trigger = (
        pl.when(pl.col("is_first") & pl.col("is_subagent"))
        .then(pl.lit("agent"))
        .when(pl.col("is_first") & pl.col("n_calls").is_not_null())
        .then(pl.when("is_reset").then(pl.lit("tool")).otherwise(pl.lit("user")))
        .when(pl.col("outcome_before").is_in(FAILED))
        .then(pl.lit("retry"))
        .when(pl.col("calls_before") > 0)
        .then(pl.lit("tool"))
        .when((pl.col("calls_before") == 0) & pl.col("is_subagent"))
        .then(pl.lit("agent"))
        .when(pl.col("calls_before") == 0)
        .then(pl.lit("user"))
    )
    in_time = in_time.join(resets, on="row", how="left", maintain_order="left").with_columns(
        pl.col("is_reset").fill_null(value=False), trigger.alias("trigger")
    )
    number = (pl.col("trigger") == "user").fill_null(value=False).cast(pl.Int64).cum_sum().over("session")
    return in_time.select("row", "trigger", pl.when(number > 0).then(number).alias("user_request"), "is_reset")
