"""The tables of every kind of run in one form: one row for each request, with times in seconds after the run's start.

`requests` has, of a replay as of a recording: ``lane`` (the agent, or the session of a recording), ``start_s``,
``first_s`` and ``end_s`` (sent, first output, end), ``status`` (ok, failed, cancelled), ``ttft_s``, ``speed`` (output
tokens/s after the first), ``isl``, ``cached``, ``osl``, ``wait_s`` (for tools or a human, before it), ``turn``,
``thread``, ``phase``, ``level``, ``error``. What is not known is null.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from agentbench._report.replayed import headline_part

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbench._core import Run

MILLISECONDS_PER_SECOND = 1e3
NANOSECONDS_PER_SECOND = 1e9
METHODS = {"requests": "requests", "tool_calls": "tool_calls", "turn_traces": "turns"}
SENT = (
    *("agent_id", "sent_at_ms", "ttft_ms", "last_token_ms", "e2e_ms", "status", "prompt_tokens", "cached_tokens"),
    *("completion_tokens", "tool_wait_ms", "tool_time_ms", "turn", "thread_id", "phase", "level", "error"),
)
RECORDED = (
    *("session_id", "thread_id", "turn", "request_time", "first_output_time", "last_output_time", "response_end_time"),
    *("ttft_ms", "tool_exec_ms", "isl", "isl_cached", "osl", "outcome", "error", "changes"),
)
LONGEST_ERROR = 160
FEWEST_TOKENS = 2
"""Below this many output tokens a request has no speed."""
LANE_SHOWN = 12
LOCAL = "answered_locally"
STEADY = "steady state"


def start_of(run: Run, summary: dict[str, Any]) -> float:
    """Return the wall time in seconds that is 0 on the charts: the run clock's start; of a recording the first request.

    A recording that was imported is older than the run that holds it.
    """
    anchor = summary.get("settings", {}).get("clock_anchor_ns") or run.manifest["clock_anchor_ns"]
    if "settings" not in summary:
        first = columns(run, "turn_traces", ["request_time"])["request_time"]
        known = first.filter(first != 0.0)
        if len(known):
            return float(known.min())  # type: ignore[arg-type]
    return float(anchor / NANOSECONDS_PER_SECOND)


def requests(run: Run, start: float) -> pl.DataFrame:
    """Return every request of a run that sent them or recorded them, by its start."""
    if len(run.requests()):
        frame = _sent(columns(run, "requests", SENT))
    else:
        frame = _recorded(columns(run, "turn_traces", RECORDED), start)
    return frame.sort("start_s", maintain_order=True, nulls_last=True)


def columns(run: Run, table: str, wanted: Sequence[str]) -> pl.DataFrame:
    """Read some columns of a table, from its file alone where that is whole: texts of a recording stay unread.

    One that the run does not have is null.
    """
    file = Path(run.path) / f"{table}.parquet"
    if run.manifest["complete"] and file.is_file():
        frame = pl.scan_parquet(file)
    else:
        frame = getattr(run, METHODS[table])().to_polars().lazy()
    there = frame.collect_schema().names()
    found = frame.select(name for name in wanted if name in there).collect()
    return found.with_columns(pl.lit(None).alias(name) for name in wanted if name not in there)


def of_part(frame: pl.DataFrame, summary: dict[str, Any]) -> pl.DataFrame:
    """Return the requests that stand in the headline: answered whole, and of the steady state and level it is of."""
    answered = frame.filter(pl.col("status") == "ok")
    if "settings" not in summary:
        return answered
    level = (summary.get("capacity") or {}).get("level")
    if level is not None:
        answered = answered.filter(pl.col("level") == level)
    return answered.filter(pl.col("phase") == "steady") if headline_part(summary)[0] == STEADY else answered


def _sent(table: pl.DataFrame) -> pl.DataFrame:
    start = pl.col("sent_at_ms") / MILLISECONDS_PER_SECOND
    # A live agent's waits are its tools' own time.
    waits = pl.coalesce("tool_wait_ms", "tool_time_ms").cast(pl.Float64)
    return table.select(
        pl.concat_str(pl.lit("agent "), pl.col("agent_id")).alias("lane"),
        pl.col("agent_id").cast(pl.Int64).alias("order"),
        start.alias("start_s"),
        (start + pl.col("ttft_ms") / MILLISECONDS_PER_SECOND).alias("first_s"),
        (start + pl.col("e2e_ms") / MILLISECONDS_PER_SECOND).alias("end_s"),
        pl.col("status").cast(pl.String),
        (pl.col("ttft_ms") / MILLISECONDS_PER_SECOND).alias("ttft_s"),
        _speed((pl.col("last_token_ms") - pl.col("ttft_ms")) / MILLISECONDS_PER_SECOND, pl.col("completion_tokens")),
        pl.col("prompt_tokens").alias("isl"),
        pl.col("cached_tokens").alias("cached"),
        pl.col("completion_tokens").alias("osl"),
        (waits / MILLISECONDS_PER_SECOND).alias("wait_s"),
        pl.col("turn"),
        _end(pl.col("thread_id")).alias("thread"),
        pl.col("phase").cast(pl.String),
        pl.col("level"),
        _short(pl.col("error")),
    )


def _recorded(table: pl.DataFrame, start: float) -> pl.DataFrame:
    if table.schema["changes"] != pl.Null:
        local = pl.col("changes").list.contains(LOCAL).fill_null(value=False)
        table = table.filter(~local)
    # A time that is always written is 0 where it was not known.
    asked = pl.when(pl.col("request_time") != 0.0).then(pl.col("request_time"))
    cancelled = pl.col("outcome").cast(pl.String) == "client_cancelled"
    answered = pl.col("outcome").cast(pl.String) == "ok"
    lanes = table.group_by("session_id").agg(asked.min().alias("began")).sort("began", "session_id")
    lanes = lanes.with_row_index("order").select("session_id", pl.col("order").cast(pl.Int64))
    return table.join(lanes, on="session_id", how="left").select(
        pl.concat_str(pl.lit("session "), _end(pl.col("session_id"))).alias("lane"),
        pl.col("order"),
        (asked - start).alias("start_s"),
        (pl.col("first_output_time") - start).alias("first_s"),
        (pl.col("response_end_time") - start).alias("end_s"),
        pl.when(answered)
        .then(pl.lit("ok"))
        .when(cancelled)
        .then(pl.lit("cancelled"))
        .otherwise(pl.lit("failed"))
        .alias("status"),
        (pl.col("ttft_ms") / MILLISECONDS_PER_SECOND).alias("ttft_s"),
        _speed(pl.col("last_output_time") - pl.col("first_output_time"), pl.col("osl")),
        pl.col("isl"),
        pl.col("isl_cached").alias("cached"),
        pl.col("osl"),
        (pl.col("tool_exec_ms") / MILLISECONDS_PER_SECOND).alias("wait_s"),
        pl.col("turn"),
        _end(pl.col("thread_id")).alias("thread"),
        pl.lit(None, dtype=pl.String).alias("phase"),
        pl.lit(None, dtype=pl.UInt32).alias("level"),
        _short(pl.col("error")),
    )


def _end(name: pl.Expr) -> pl.Expr:
    """The end of a long name: beginnings are often alike."""
    return pl.when(name.str.len_chars() > LANE_SHOWN).then(pl.lit("…") + name.str.slice(-LANE_SHOWN)).otherwise(name)


def _speed(span_s: pl.Expr, tokens: pl.Expr) -> pl.Expr:
    known = (tokens >= FEWEST_TOKENS) & (span_s > 0)
    return pl.when(known).then((tokens.cast(pl.Float64) - 1.0) / span_s).alias("speed")


def _short(error: pl.Expr) -> pl.Expr:
    return error.cast(pl.String).str.slice(0, LONGEST_ERROR).alias("error")


def thinned(frame: pl.DataFrame, most: int) -> pl.DataFrame:
    """Return at most about `most` rows, evenly over the table, with the first and the last of it."""
    if len(frame) <= most:
        return frame
    step = (len(frame) - 1) / (most - 1)
    return frame[sorted({round(step * index) for index in range(most)})]
