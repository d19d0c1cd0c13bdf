"""The runs that questions are asked of, as polars frames: read once, only the columns needed, never a prompt's text.

What a run directory tells is taken as it is. What several questions need beside it is derived here once: which
turns are steps of an agent's work, what set each of them off, which request of a human it belongs to. The questions
themselves are in files of their own.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from agentbench._core import Run

from ._derived import KEYS, numbered_threads, with_derived

if TYPE_CHECKING:
    from collections.abc import Sequence
    from os import PathLike

TURN_COLUMNS: dict[str, pl.DataType] = {
    "session_id": pl.String(),
    "thread_id": pl.String(),
    "parent_thread_id": pl.String(),
    "turn": pl.UInt32(),
    "request_id": pl.String(),
    "agent": pl.String(),
    "kind": pl.String(),
    "model": pl.String(),
    "stream": pl.Boolean(),
    "n_messages": pl.UInt32(),
    "n_tools": pl.UInt32(),
    "changes": pl.List(pl.String()),
    "request_time": pl.Float64(),
    "first_output_time": pl.Float64(),
    "last_output_time": pl.Float64(),
    "response_end_time": pl.Float64(),
    "ttft_ms": pl.Float64(),
    "itl_ms_mean": pl.Float64(),
    "e2e_ms": pl.Float64(),
    "tool_exec_ms": pl.Float64(),
    "residual_wait_ms": pl.Float64(),
    "outcome": pl.String(),
    "stop_reason": pl.String(),
    "isl": pl.Int64(),
    "isl_cached": pl.Int64(),
    "isl_cache_write": pl.Int64(),
    "isl_new": pl.Int64(),
    "osl": pl.Int64(),
    "reasoning_tokens": pl.Int64(),
    "engine_row": pl.UInt64(),
    "engine_join": pl.String(),
}
"""Columns of ``turn_traces`` that `Trace.turns` has: names, counts and times, no text."""

CALL_COLUMNS: dict[str, pl.DataType] = {
    "session_id": pl.String(),
    "thread_id": pl.String(),
    "turn": pl.UInt32(),
    "request_id": pl.String(),
    "index": pl.UInt32(),
    "name": pl.String(),
    "argument_bytes": pl.Int64(),
    "emitted_time": pl.Float64(),
    "result_time": pl.Float64(),
    "wire_ms": pl.Float64(),
    "own_ms": pl.Float64(),
    "result_bytes": pl.Int64(),
    "is_error": pl.Boolean(),
}
"""Columns of ``tool_calls`` that `Trace.tool_calls` has: no arguments."""

REPLAYED_COLUMNS: dict[str, pl.DataType] = {
    "trajectory_id": pl.String(),
    "thread_id": pl.String(),
    "turn": pl.UInt32(),
    "source_request_id": pl.String(),
    "sent_at_ms": pl.Float64(),
    "ttft_ms": pl.Float64(),
    "last_token_ms": pl.Float64(),
    "e2e_ms": pl.Float64(),
    "tpot_ms": pl.Float64(),
    "tool_wait_ms": pl.Float64(),
    "prompt_tokens": pl.Int64(),
    "cached_tokens": pl.Int64(),
    "completion_tokens": pl.Int64(),
    "status": pl.String(),
    "stop_reason": pl.String(),
}

ENGINE_COLUMNS: dict[str, pl.DataType] = {
    "ts": pl.Float64(),
    "window_end": pl.Float64(),
    "engine": pl.String(),
    "n": pl.Int64(),
    "isl": pl.Float64(),
    "osl": pl.Float64(),
    "isl_new": pl.Float64(),
    "prefill_ms": pl.Float64(),
    "decode_ms": pl.Float64(),
    "queue_ms": pl.Float64(),
    "itl_ms": pl.Float64(),
    "e2e_ms": pl.Float64(),
    "kv_cache_usage_pct_peak": pl.Float64(),
    "prefix_cache_hits": pl.Int64(),
    "external_prefix_cache_hits": pl.Int64(),
    "counter_reset": pl.Boolean(),
}

METHODS = {"turn_traces": "turns", "engine_metrics": "engine"}
"""Which method of a run gives a table, where that is not its name."""
EPOCH_FROM = 1e8
"""Times above this are of the Unix epoch; below, a source's own clock, which may begin at 0."""
RECORDED_KINDS = ("capture", "collect")
"""Runs that hold every tool call there was, so that none told is none made."""


class Trace:
    """One run or several, opened to be asked questions.

    Parameters
    ----------
    runs
        Open runs, or paths of run directories. A replay is read through its ``requests``: a trajectory counts as a
        session, and its clock starts with the run.

    Raises
    ------
    ValueError
        When there is no run.
    TraceError
        When a run cannot be opened; the text names the path.

    Examples
    --------
    >>> trace = Trace("results/mine")  # doctest: +SKIP
    >>> trace.turns.group_by("model").agg(pl.col("isl").median())  # doctest: +SKIP
    """

    def __init__(self, *runs: Run | str | PathLike[str]) -> None:
        if not runs:
            raise ValueError("no run was given")
        self._runs = [run if isinstance(run, Run) else Run.open(run) for run in runs]
        self._labels = _labels([Path(run.path) for run in self._runs])

    @property
    def runs(self) -> dict[str, Run]:
        """The runs by the label that stands in the column ``run``: their folders' names, made unique."""
        return dict(zip(self._labels, self._runs, strict=True))

    @cached_property
    def turns(self) -> pl.DataFrame:
        """One row per request, with the columns of ``turn_traces`` that hold no text.

        Added are ``run``, and numbers in place of long ids: ``session`` and ``thread``, unique over all runs.
        ``is_subagent``: its conversation was started by another one. ``is_step``: it is a step of the agent's work,
        so no title or other utility call, none that the proxy answered by itself, and not one that failed.
        ``n_calls``: tool calls of its reply; null where the run tells no calls. ``trigger`` says what set it off:
        ``user``, ``tool`` (results of its thread's calls, or a context reset amid them), ``agent`` (a subagent's
        conversation, by its parent), ``retry`` (after a failure), null where no calls are told. ``user_request``:
        which request of a human in its session it works on, from 1; null before the first and where triggers are
        unknown. ``is_reset``: a main conversation's first turn that goes on from an earlier one of its session: that
        one's last calls were open, or it ended less than 2 s before with a prompt of more than twice the length.
        Rows are in the order of threads and turns.
        """
        return with_derived(self._plain_turns, self._calls, self._threads, self.runs_with_calls)

    @cached_property
    def steps(self) -> pl.DataFrame:
        """The rows of `turns` that are steps of the agent's work."""
        return self.turns.filter("is_step")

    @cached_property
    def tool_calls(self) -> pl.DataFrame:
        """One row per tool call, without arguments, in the order of threads, turns and calls.

        Added are ``run`` and of the turn that made the call ``session``, ``thread``, ``user_request``, ``agent``,
        ``is_subagent`` and ``is_step``. ``emitted_time`` is null where it is not told; ``result_time`` is made of
        ``wire_ms`` where that alone is told.
        """
        of_turn = ["session", "user_request", "agent", "is_subagent", "is_step"]
        from_wall = pl.col("emitted_time") + pl.col("wire_ms") / 1e3
        # A damaged run may tell a turn twice; its calls are not told twice for that.
        made_by = self.turns.select("thread", "turn", *of_turn).unique(["thread", "turn"], keep="first")
        return (
            self._calls.join(made_by, on=["thread", "turn"], how="left")
            .with_columns(pl.coalesce("result_time", from_wall).alias("result_time"))
            .sort("thread", "turn", "index", maintain_order=True)
        )

    @cached_property
    def _plain_turns(self) -> pl.DataFrame:
        return pl.concat([self._turns_of(label, run) for label, run in self.runs.items()])

    @cached_property
    def _threads(self) -> pl.DataFrame:
        return numbered_threads(self._plain_turns)

    @cached_property
    def _calls(self) -> pl.DataFrame:
        """Tool calls with the number of their thread; null for those whose turn was not kept."""
        calls = self.read("tool_calls", CALL_COLUMNS).with_columns(_known_time("emitted_time"))
        return calls.join(self._threads.drop("session"), on=KEYS, how="left", maintain_order="left")

    @cached_property
    def engine(self) -> pl.DataFrame:
        """One row per poll in which requests completed, with ``run``: means over these."""
        return self.read("engine_metrics", ENGINE_COLUMNS)

    def read(self, table: str, columns: dict[str, pl.DataType]) -> pl.DataFrame:
        """Return more columns of a table, with ``run``: those that a question needs beside the ones kept here.

        Parameters
        ----------
        table
            The table's file without its ending, such as ``turn_traces``.
        columns
            Names and types; one that an older run lacks is null.
        """
        return pl.concat(
            [
                self._read(run, table, columns).select(pl.lit(label).alias("run"), pl.all())
                for label, run in self.runs.items()
            ]
        )

    def lacks(self, column: str, frame: pl.DataFrame | None = None) -> bool:
        """Return whether a column is null in every row of a frame, by default of `steps`."""
        rows = self.steps if frame is None else frame
        return rows[column].null_count() == rows.height

    @cached_property
    def subtitle(self) -> str:
        """Over what an answer is, in a line: runs, sessions, turns."""
        turns = self.turns
        runs = ", ".join(self._labels[:3]) + (f" and {len(self._labels) - 3} more" if len(self._labels) > 3 else "")  # noqa: PLR2004
        return f"{runs}: {turns.height:,} turns of {turns['session'].n_unique():,} sessions"

    @cached_property
    def is_replayed(self) -> bool:
        """Whether any run is a replay, whose waits are as its settings had them."""
        return any(self._is_replay(run) for run in self._runs)

    @property
    def tells_calls(self) -> bool:
        """Whether any run tells its tool calls."""
        return bool(self.runs_with_calls)

    @property
    def is_recorded(self) -> bool:
        """Whether all runs were recorded by the proxy, so that what they do not tell was not there."""
        return all(run.manifest.get("kind") in RECORDED_KINDS for run in self._runs)

    @cached_property
    def runs_with_calls(self) -> list[str]:
        """Labels of runs whose tool calls are known, be they none."""
        some = set(self._calls["run"].unique())
        recorded = {label for label, run in self.runs.items() if run.manifest.get("kind") in RECORDED_KINDS}
        return sorted(some | recorded)

    @staticmethod
    def _is_replay(run: Run) -> bool:
        rows = run.manifest.get("rows") or {}
        return not rows.get("turn_traces") and not len(run.turns()) and len(run.requests()) > 0

    def _turns_of(self, label: str, run: Run) -> pl.DataFrame:
        if self._is_replay(run):
            rows = _replayed(
                self._read(run, "requests", REPLAYED_COLUMNS), (run.manifest.get("engine") or {}).get("model")
            )
        else:
            rows = self._read(run, "turn_traces", TURN_COLUMNS).with_columns(
                pl.col("kind").fill_null("main"), pl.col("outcome").fill_null("ok")
            )
        starts = rows["request_time"]
        own_clock = rows.height > 0 and (starts.max() or 0.0) < EPOCH_FROM and bool((starts != 0.0).any())  # type: ignore[operator]
        if not own_clock and not self._is_replay(run):
            rows = rows.with_columns(_known_time("request_time"))
        return rows.select(pl.lit(label).alias("run"), pl.all())

    @staticmethod
    def _read(run: Run, table: str, columns: dict[str, pl.DataType]) -> pl.DataFrame:
        """Read columns of one table: from its file alone where that is whole, else through the run."""
        file = Path(run.path) / f"{table}.parquet"
        frame: pl.LazyFrame
        if run.manifest.get("complete") and file.is_file():
            frame = pl.scan_parquet(file)
        else:
            frame = getattr(run, METHODS.get(table, table))().to_polars().lazy()
        there = set(frame.collect_schema().names())
        chosen = [
            (pl.col(name) if name in there else pl.lit(None)).cast(dtype).alias(name) for name, dtype in columns.items()
        ]
        rows = frame.select(chosen).collect()
        # A frame of literals alone has one row.
        return rows if there & set(columns) else rows.clear()


def _labels(paths: Sequence[Path]) -> list[str]:
    """Name runs by their folders; of equal names the later ones bear a number."""
    labels: list[str] = []
    for path in paths:
        name = path.resolve().name or str(path)
        label, number = name, 2
        while label in labels:
            label, number = f"{name} ({number})", number + 1
        labels.append(label)
    return labels


def _known_time(column: str) -> pl.Expr:
    """Null where a time that is always written is 0 because it was not known."""
    return pl.when(pl.col(column) != 0.0).then(pl.col(column)).alias(column)


def _replayed(requests: pl.DataFrame, model: str | None) -> pl.DataFrame:
    """Requests of a replay in the shape of turns; a trajectory is a session."""
    sent_s = pl.col("sent_at_ms") / 1e3
    known = {
        "session_id": pl.col("trajectory_id"),
        "thread_id": pl.col("thread_id"),
        "turn": pl.col("turn"),
        "request_id": pl.concat_str("trajectory_id", "source_request_id", separator=" "),
        "kind": pl.lit("main"),
        "model": pl.lit(model, dtype=pl.String()),
        "request_time": sent_s,
        "first_output_time": sent_s + pl.col("ttft_ms") / 1e3,
        "last_output_time": sent_s + pl.col("last_token_ms") / 1e3,
        "response_end_time": sent_s + pl.col("e2e_ms") / 1e3,
        "ttft_ms": pl.col("ttft_ms"),
        "itl_ms_mean": pl.col("tpot_ms"),
        "e2e_ms": pl.col("e2e_ms"),
        "tool_exec_ms": pl.col("tool_wait_ms"),
        "outcome": pl.col("status").replace({"failed": "upstream_error", "cancelled": "client_cancelled"}),
        "stop_reason": pl.col("stop_reason"),
        "isl": pl.col("prompt_tokens"),
        "isl_cached": pl.col("cached_tokens"),
        "isl_new": pl.col("prompt_tokens") - pl.col("cached_tokens"),
        "osl": pl.col("completion_tokens"),
    }
    return requests.select(
        known.get(name, pl.lit(None)).cast(dtype).alias(name) for name, dtype in TURN_COLUMNS.items()
    )
