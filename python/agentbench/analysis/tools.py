"""The tools that agents call: which, how long they take, where the time goes, errors, parallel calls, what follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import style
from ._frames import Tables
from ._stats import covered, number, real, share, spreads
from .answer import Answer, Chart, Headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .trace import Trace

UNKNOWN = "not told"
TOP = 3
TOOLS_SHOWN = 15
FOLLOWING = 8
LONG_S = 60.0
MANY_CALLS = 5
HELD_PCT = 80.0
THRESHOLDS_S = (1.0, 10.0, 60.0, 600.0)
PUBLISHED_TOP = {"claude-code": "82.8 % (TraceLab, Claude)", "codex": "94.6 % (TraceLab, Codex)"}
LATENCIES = {"wall_s": "wall", "own_s": "own", "gap_s": "gap (wall - own)"}


def tools(trace: Trace) -> Answer:
    """Return which tools agents call and what they cost in time.

    Definitions
    -----------
    wall latency
        From the call to its result: of a recording by the proxy from the end of the response that made the call to
        the arrival of the request that brought the result (``wire_ms``), so with the agent's own doing, with a
        human's permission where that was asked, and with waiting for the slowest of parallel calls; of a log from the
        call's record to the result's.
    own latency
        The tool's own time, where the agent tells it (``own_ms``).
    gap
        Wall less own, over the calls that tell both, at least 0.
    tool time
        Sum of wall latencies: calls at once count each. The overlap says how much: that sum over the time in which at
        least one call of its conversation was open.
    tail share
        The share of calls longer than a bound and the share of tool time that they hold; and the fewest calls, the
        longest first, that hold 80 % of it.
    top three
        Share of calls of the three tools called most, by agent.
    errors
        Share of calls that the agent marked as failed, of those that have such a mark.
    parallel
        Steps with more than one call, of those with any.
    transitions
        Which tool is called next in the same conversation.

    The published figures are TraceLab's: 3.97 % of calls are over 1 min and hold 84.7 % of tool time; the top three
    tools cover 82.8 % (Claude Code) and 94.6 % (Codex) of calls.

    Returns
    -------
    Answer
        Tables ``tools`` (a row for each tool), ``latency``, ``tail``, ``agents``, ``parallelism`` and ``transitions``.
    """
    calls = _with_seconds(trace.tool_calls)
    by_tool = _by_tool(calls)
    tail = _tail(calls)
    agents = _by_agent(calls)
    timed = calls["wall_s"].count()
    tables = {
        "tools": by_tool,
        "latency": spreads(calls, LATENCIES, "latency_s", ("p25", "p50", "p75", "p90", "p99")),
        "tail": tail,
        "agents": agents,
        "parallelism": _parallelism(trace.steps),
        "transitions": _transitions(calls),
    }
    return Answer(
        name="tools",
        title="Tool calls and their time",
        finding=_finding(by_tool, tail),
        subtitle=f"{trace.subtitle}; {calls.height:,} tool calls, {timed:,} of them with a wall latency",
        tables=Tables(tables),
        headline=tuple(_headline(calls, agents, tail, trace.steps)),
        missing=tuple(_missing(trace, calls)),
        notes=_notes(calls),
        draw=(lambda figure: _draw(figure, calls, by_tool)) if calls.height else None,
        chart=Chart("tools", "tool", "calls") if calls.height else None,
    )


def _with_seconds(calls: pl.DataFrame) -> pl.DataFrame:
    gap_ms = (pl.col("wire_ms") - pl.col("own_ms")).clip(lower_bound=0.0)
    return calls.with_columns(
        (pl.col("wire_ms") / 1e3).alias("wall_s"),
        (pl.col("own_ms") / 1e3).alias("own_s"),
        (gap_ms / 1e3).alias("gap_s"),
        pl.when(pl.col("name") != "").then(pl.col("name")).otherwise(pl.lit(UNKNOWN)).alias("tool"),
        pl.col("agent").fill_null(UNKNOWN),
    )


def _by_tool(calls: pl.DataFrame) -> pl.DataFrame:
    wall = pl.col("wall_s")
    return (
        calls.group_by("tool")
        .agg(
            pl.len().alias("calls"),
            wall.median().alias("wall_p50_s"),
            wall.quantile(0.9, "linear").alias("wall_p90_s"),
            wall.quantile(0.99, "linear").alias("wall_p99_s"),
            pl.when(wall.count() > 0).then(wall.sum()).alias("wall_sum_s"),
            (pl.col("is_error").mean() * 100.0).alias("errors_pct"),
        )
        .sort("calls", "tool", descending=[True, False])
        .with_columns(
            (pl.col("calls") / pl.col("calls").sum() * 100.0).alias("calls_pct"),
            (pl.col("calls").cum_sum() / pl.col("calls").sum() * 100.0).alias("cumulative_pct"),
            _share_of_sum("wall_sum_s").alias("tool_time_pct"),
        )
        .select(
            "tool", "calls", "calls_pct", "cumulative_pct", "wall_p50_s", "wall_p90_s", "wall_p99_s", "wall_sum_s",
            "tool_time_pct", "errors_pct",
        )
    )  # fmt: skip


def _share_of_sum(column: str) -> pl.Expr:
    whole = pl.col(column).sum()
    return pl.when(whole > 0).then(pl.col(column) / whole * 100.0)


def _tail(calls: pl.DataFrame) -> pl.DataFrame:
    """Which calls hold the time: above bounds, and the fewest that hold 80 % of it."""
    wall = calls.select("wall_s").drop_nulls().sort("wall_s", descending=True)
    whole = real(wall["wall_s"].sum())
    schema = {"calls": pl.String, "calls_pct": pl.Float64, "tool_time_pct": pl.Float64, "shortest_s": pl.Float64}
    if not wall.height or not whole:
        return pl.DataFrame(schema=schema)
    groups = [(f"over {style.in_words(bound)}", wall.filter(pl.col("wall_s") > bound)) for bound in THRESHOLDS_S]
    held = wall["wall_s"].cum_sum() / whole * 100.0
    fewest = int((held < HELD_PCT).sum()) + 1
    groups.append((f"fewest with {HELD_PCT:.0f} % of time", wall.head(fewest)))
    rows = [
        (
            name,
            100.0 * part.height / wall.height,
            100.0 * real(part["wall_s"].sum()) / whole,
            number(part["wall_s"].min()),
        )
        for name, part in groups
    ]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _by_agent(calls: pl.DataFrame) -> pl.DataFrame:
    ranked = (
        calls.group_by("agent", "tool")
        .agg(pl.len().alias("calls"))
        .sort("agent", "calls", "tool", descending=[False, True, False])
    )
    top = ranked.group_by("agent").agg(
        pl.col("tool").n_unique().alias("tools"),
        (pl.col("calls").head(TOP).sum() / pl.col("calls").sum() * 100.0).alias("top_3_pct"),
        pl.col("tool").head(TOP).str.join(", ").alias("top_3"),
    )
    rest = calls.group_by("agent").agg(
        pl.len().alias("calls"),
        pl.col("wall_s").median().alias("wall_p50_s"),
        (pl.col("is_error").mean() * 100.0).alias("errors_pct"),
    )
    return rest.join(top, on="agent").sort("calls", "agent", descending=[True, False])


def _parallelism(steps: pl.DataFrame) -> pl.DataFrame:
    """Steps by the number of their calls."""
    calling = steps.filter(pl.col("n_calls") > 0)
    return (
        calling.group_by(pl.col("n_calls").clip(upper_bound=MANY_CALLS).alias("n"))
        .agg(pl.len().alias("steps"), pl.col("n_calls").sum().alias("calls"))
        .sort("n")
        .select(
            pl.when(pl.col("n") < MANY_CALLS)
            .then(pl.col("n").cast(pl.String))
            .otherwise(pl.lit(f"{MANY_CALLS} or more"))
            .alias("calls_at_once"),
            "steps",
            (pl.col("steps") / pl.col("steps").sum() * 100.0).alias("steps_pct"),
            (pl.col("calls") / pl.col("calls").sum() * 100.0).alias("calls_pct"),
        )
    )


def _transitions(calls: pl.DataFrame) -> pl.DataFrame:
    """The likeliest next tools of the tools called most."""
    pairs = calls.select("tool", pl.col("tool").shift(-1).over("thread").alias("next")).drop_nulls()
    counted = (
        pairs.group_by("tool", "next")
        .agg(pl.len().alias("times"))
        .with_columns(
            (pl.col("times") / pl.col("times").sum().over("tool") * 100.0).alias("of_its_calls_pct"),
            pl.col("times").sum().over("tool").alias("all"),
        )
    )
    ordered = counted.sort("all", "tool", "times", "next", descending=[True, False, True, False])
    firsts = ordered["tool"].unique(maintain_order=True).head(FOLLOWING)
    return (
        ordered.filter(pl.col("tool").is_in(firsts.implode()))
        .group_by("tool", maintain_order=True)
        .head(TOP)
        .select("tool", "next", "times", "of_its_calls_pct")
    )


def _overlap(calls: pl.DataFrame) -> float | None:
    spans = calls.select("thread", start="emitted_time", end="result_time").drop_nulls()
    spans = spans.filter(pl.col("end") >= pl.col("start"))
    union = real(covered(spans, "thread")["covered"].sum())
    return real((spans["end"] - spans["start"]).sum()) / union if union else None


def _headline(calls: pl.DataFrame, agents: pl.DataFrame, tail: pl.DataFrame, steps: pl.DataFrame) -> list[Headline]:
    long = tail.filter(pl.col("calls") == f"over {style.in_words(LONG_S)}")
    fewest = tail.filter(pl.col("calls").str.starts_with("fewest"))
    timed = f"{calls['wall_s'].count():,} calls with a wall latency"
    marked = calls["is_error"].count()
    calling = steps.filter(pl.col("n_calls") > 0)
    several = share(float((calling["n_calls"] > 1).sum()), float(calling.height)) if calling.height else None

    def of(rows: pl.DataFrame, column: str) -> float | None:
        return number(rows[column].item()) if rows.height else None

    return [
        Headline("tool calls over 1 min", of(long, "calls_pct"), "%", timed, "3.97 % (TraceLab)"),
        Headline("their share of tool time", of(long, "tool_time_pct"), "%", f"sum over {timed}", "84.7 % (TraceLab)"),
        Headline("calls that hold 80 % of tool time", of(fewest, "calls_pct"), "%", timed),
        *(
            Headline(f"top three tools, {agent}", top, "%", f"{n:,} calls", PUBLISHED_TOP.get(agent))
            for agent, top, n in agents.select("agent", "top_3_pct", "calls").head(5).iter_rows()
        ),
        Headline(
            "failed calls",
            share(calls["is_error"].sum(), marked),
            "%",
            f"{marked:,} calls that have such a mark",
        ),
        Headline("steps with parallel calls", several, "%", f"{calling.height:,} steps with calls"),
        Headline("overlap of calls", _overlap(calls), "x", "sum of wall latencies over their union, by conversation"),
    ]


def _finding(by_tool: pl.DataFrame, tail: pl.DataFrame) -> str:
    if not by_tool.height:
        return ""
    top = f"The {min(TOP, by_tool.height)} tools called most make {by_tool['calls_pct'].head(TOP).sum():.1f} % of calls"
    long = tail.filter((pl.col("calls") == f"over {style.in_words(LONG_S)}") & (pl.col("calls_pct") > 0))
    fewest = tail.filter(pl.col("calls").str.starts_with("fewest"))
    if not fewest.height:
        return top
    held = (long if long.height else fewest).row(0, named=True)
    over = ", those over 1 min," if long.height else ""
    return f"{top}; {held['calls_pct']:.3g} % of calls{over} hold {held['tool_time_pct']:.3g} % of tool time"


def _missing(trace: Trace, calls: pl.DataFrame) -> list[str]:
    if not calls.height:
        return ["no tool call is told" if not trace.tells_calls else "no tool was called"]
    said = [
        ("wall_s", "no call has a wall latency: no tail share, no tool time"),
        ("own_s", "no call tells the tool's own time: no own latency, no gap"),
        ("is_error", "no call is marked as failed or not: no errors"),
    ]
    return [text for column, text in said if calls[column].count() == 0]


def _notes(calls: pl.DataFrame) -> tuple[str, ...]:
    without = calls.height - calls["wall_s"].count()
    return (
        (f"{without:,} calls have no wall latency (no result was seen) and are in no time",)
        if (0 < without < calls.height)
        else ()
    )


def _draw(figure: Figure, calls: pl.DataFrame, by_tool: pl.DataFrame) -> None:
    left, right = figure.subplots(1, 2)
    shown = by_tool.head(TOOLS_SHOWN).reverse()
    at = list(range(shown.height))
    timed = calls["wall_s"].count() > 0
    height = 0.4 if timed else 0.7
    left.barh(
        [y + (0.2 if timed else 0) for y in at], shown["calls_pct"], height, label="of calls", color=style.PALETTE[0]
    )
    if timed:
        left.barh([y - 0.2 for y in at], shown["tool_time_pct"], height, label="of tool time", color=style.PALETTE[1])
    left.set_yticks(at, [name[:26] for name in shown["tool"]])
    left.set(
        title=f"The {shown.height} tools called most" if shown.height > 1 else "The tool called", xlabel="share, %"
    )
    left.grid(visible=False, axis="y")
    style.few_bars_on_top(left, shown.height)
    if timed:
        style.legend_above(left, 2)
    wall = calls["wall_s"].drop_nulls()
    wall = wall.filter(wall > 0)
    if not len(wall):
        right.set_axis_off()
        right.text(0.5, 0.5, "no call has a wall latency", ha="center", color=style.MUTED)
        return
    style.ecdf(right, wall.to_numpy(), "of calls", style.PALETTE[0])
    style.ecdf(right, wall.to_numpy(), "of tool time", style.PALETTE[1], weights=wall.to_numpy())
    style.log_seconds_axis(right, wall.min(), wall.max())
    right.set(
        title="Calls and the time they hold", xlabel="wall latency of a call", ylabel="share up to x, %", ylim=(0, 102)
    )
    right.axvline(LONG_S, color=style.MUTED, linewidth=1, linestyle=":")
    style.legend_above(right, 2)
