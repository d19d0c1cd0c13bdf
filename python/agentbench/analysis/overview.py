"""What was recorded: how many sessions, threads, turns, tool calls and tokens, of whom, and over what time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import style
from ._frames import Tables
from .answer import Answer, Chart, Headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .trace import Trace

UNKNOWN = "not told"
BARS = 12


def overview(trace: Trace) -> Answer:
    """Count what the runs hold.

    Definitions
    -----------
    thread
        One growing conversation: a request continues the thread with which it shares the longest run of leading
        units, at least the system and the first user unit, else it opens one. In an import it is what the source
        calls a conversation.
    turn
        One API request with its reply; a request that was tried again is one turn.
    step
        A turn of the agent's work: no utility call (title, status line), and not one that failed.
    ISL, OSL
        Prompt and output tokens by the response's own usage; sums are over the turns that tell them.
    span
        From the first request to the end of the last response of a run.

    Returns
    -------
    Answer
        Tables ``runs`` (a row for each run) and ``agents`` (a row for each agent and model).
    """
    turns, calls = trace.turns, trace.tool_calls
    runs = _runs(trace)
    agents = (
        turns.group_by(pl.col("agent").fill_null(UNKNOWN), pl.col("model").fill_null(UNKNOWN))
        .agg(
            pl.col("session").n_unique().alias("sessions"),
            pl.len().alias("turns"),
            _known_sum("isl").alias("isl_tokens"),
            _known_sum("osl").alias("osl_tokens"),
        )
        .sort("turns", "agent", "model", descending=[True, False, False])
    )
    wholes = turns.select(_known_sum("isl").alias("isl"), _known_sum("osl").alias("osl"))
    told = len(trace.runs)
    over = "all runs" if told > 1 else "the run"
    headline = [
        Headline("sessions", turns["session"].n_unique(), "", over, "4,265 (TraceLab)"),
        Headline("turns", turns.height, "", over, "357,161 (TraceLab)"),
        Headline("tool calls", calls.height if trace.tells_calls else None, "", over, "432,510 (TraceLab)"),
        Headline("ISL", wholes["isl"].item() if turns.height else None, "tokens", "turns that tell it"),
        Headline("OSL", wholes["osl"].item() if turns.height else None, "tokens", "turns that tell it"),
    ]
    return Answer(
        name="overview",
        title="What was recorded",
        finding=_finding(trace),
        subtitle=trace.subtitle,
        tables=Tables({"runs": runs, "agents": agents}),
        headline=tuple(headline),
        missing=tuple(_missing(trace)),
        notes=tuple(_notes(trace)),
        draw=(lambda figure: _draw(figure, trace)) if turns.height else None,
        chart=Chart("agents", "model", "turns") if agents.height > 1 and agents["model"].is_unique().all() else None,
    )


def _known_sum(column: str) -> pl.Expr:
    return pl.when(pl.col(column).count() > 0).then(pl.col(column).sum())


def _runs(trace: Trace) -> pl.DataFrame:
    """A row for each run, also for one without turns."""
    last = pl.max_horizontal(pl.col("response_end_time").max(), pl.col("request_time").max())
    counted = trace.turns.group_by("run").agg(
        pl.col("session").n_unique().alias("sessions"),
        pl.col("thread").n_unique().alias("threads"),
        pl.col("thread").filter("is_subagent").n_unique().alias("subagent_threads"),
        pl.len().alias("turns"),
        pl.col("is_step").sum().alias("steps"),
        (pl.col("kind") == "utility").sum().alias("utility_turns"),
        (~pl.col("outcome").is_in(["ok", "client_cancelled"])).sum().alias("failed_turns"),
        _known_sum("isl").alias("isl_tokens"),
        _known_sum("isl_cached").alias("isl_cached_tokens"),
        _known_sum("osl").alias("osl_tokens"),
        ((last - pl.col("request_time").min()) / 3600.0).alias("span_h"),
    )
    calls = trace.tool_calls.group_by("run").agg(pl.len().alias("tool_calls"))
    counts = ["sessions", "threads", "subagent_threads", "turns", "steps", "utility_turns", "failed_turns"]
    rows = (
        pl.DataFrame({"run": list(trace.runs)}, schema={"run": pl.String})
        .join(counted, on="run", how="left", maintain_order="left")
        .join(calls, on="run", how="left", maintain_order="left")
        .with_columns(pl.col(*counts).fill_null(0))
        .with_columns(pl.when((pl.col("subagent_threads") > 0) | trace.is_recorded).then("subagent_threads"))
        .with_columns(pl.when(pl.col("run").is_in(trace.runs_with_calls)).then(pl.col("tool_calls").fill_null(0)))
    )
    return rows.select("run", *counts, "tool_calls", "isl_tokens", "isl_cached_tokens", "osl_tokens", "span_h")


def _finding(trace: Trace) -> str:
    turns = trace.turns
    if not turns.height:
        return ""
    calls = f", {trace.tool_calls.height:,} tool calls" if trace.tells_calls else ""
    return f"{turns['session'].n_unique():,} sessions, {turns.height:,} turns{calls}"


def _missing(trace: Trace) -> list[str]:
    turns = trace.turns
    if not turns.height:
        return ["no turn was recorded"]
    said = [
        ("isl", "no turn tells its prompt tokens: no ISL"),
        ("osl", "no turn tells its output tokens: no OSL"),
        ("request_time", "no turn has a time: no span"),
        ("agent", "no turn tells its agent"),
        ("model", "no turn tells its model"),
    ]
    found = [text for column, text in said if trace.lacks(column, turns)]
    return found if trace.tells_calls else [*found, "no tool call is told"]


def _notes(trace: Trace) -> list[str]:
    found = []
    if trace.is_replayed:
        found.append("of a replay a session is a trajectory, and tool waits are those that its settings replayed")
    for label, run in trace.runs.items():
        manifest = run.manifest
        if manifest.get("partial"):
            found.append(f"{label} was killed: its last second may lack")
        if dropped := sum((manifest.get("dropped") or {}).values()):
            found.append(f"{label} dropped {dropped:,} rows that it could not keep up with")
        if (manifest.get("engine") or {}).get("simulated"):
            found.append(f"{label} is of a simulated engine: its times say nothing about any hardware")
        if manifest.get("kind") == "synthetic" or manifest.get("synthetic"):
            found.append(f"{label} is synthetic: made up after published statistics")
    return found


def _draw(figure: Figure, trace: Trace) -> None:
    """Turns by model, and turns of a session."""
    left, right = figure.subplots(1, 2)
    by = (
        trace.turns.group_by(pl.col("model").fill_null(UNKNOWN))
        .agg(pl.len().alias("turns"))
        .sort("turns", "model", descending=[True, False])
        .head(BARS)
        .reverse()
    )
    left.barh([name[:28] for name in by["model"]], by["turns"], color=style.PALETTE[0], height=0.65)
    left.set(title="Turns by model", xlabel="turns")
    left.grid(visible=False, axis="y")
    style.few_bars_on_top(left, by.height)
    style.count_axis(left.xaxis)
    sizes = trace.turns.group_by("session").agg(pl.len().alias("turns"))["turns"].to_numpy()
    style.ecdf(right, sizes, "sessions", style.PALETTE[0])
    style.log_axis(right, "x")
    style.count_axis(right.xaxis)
    right.set(title="Turns of a session", xlabel="turns", ylabel="share of sessions with at most x, %", ylim=(0, 102))
