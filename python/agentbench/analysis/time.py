"""Where the time of a session and of a request goes: to a human, to generation, to tools, or to nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import style
from ._frames import Tables
from ._stats import covered, number, real, spreads
from .answer import Answer, Headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .trace import Trace

PARTS = {"generation": 0, "tools": 1, "human": 2, "idle": 7}
"""Parts of a time, with their colours in the palette."""
REQUESTS_AT_MOST = 1 << 32
"""More user requests than a session has."""
WAITS = {
    "step_s": "a step: request to end of response",
    "call_s": "a tool call: wall latency",
    "tools_s": "tools: reply to next request",
    "human_s": "a human: reply to next request",
}


def time(trace: Trace) -> Answer:
    """Return where the wall time goes, and how long steps and waits are.

    Definitions
    -----------
    session time
        From a session's first request to the end of its last response.
    request time
        The same of one user request (see `loop`), subagents included.
    generation
        The time in which at least one request of the agent's work was being answered: from request to end of response,
        so with queueing and prefill.
    tools
        The time in which at least one tool call was open, from call to result; a call that runs a subagent is open
        while that one works.
    human
        From the end of the main conversation's response to the request that a human set off next. A human's time
        within a tool call (a permission) is part of the tool's.
    idle
        The rest: none of these.

    Each is the union of its intervals, cut to the session or the request, over the wall time: what overlaps counts
    once within a part, but a second in which a tool ran and a model generated counts in both, so shares may add up to
    more than 100 %. ``share_pct`` is of all time together, ``median_pct`` is over sessions or requests.

    The published figures are TraceLab's: within a request tools take 59.8 % and generation 41.0 %; humans wait 86 s in
    the median and 21 min at p90.

    Returns
    -------
    Answer
        Tables ``shares`` and ``waits``.
    """
    humans = _human_waits(trace)
    spans = _spans(trace, humans)
    sessions = _shares(spans, "session", "session", list(PARTS))
    requests = _shares(spans, "request", "user request", ["generation", "tools", "idle"])
    shares = pl.concat([sessions, requests])
    waits = _waits(trace, humans)
    return Answer(
        name="time",
        title="Where the time goes",
        finding=_finding(shares),
        subtitle=trace.subtitle,
        tables=Tables({"shares": shares, "waits": spreads(waits, WAITS, "seconds_of")}),
        headline=_headline(shares, waits),
        missing=tuple(_missing(trace, waits)),
        notes=tuple(_notes(trace, shares)),
        draw=(lambda figure: _draw(figure, shares, waits)) if shares.height or any(_told(waits).values()) else None,
        chart=None,
    )


def _human_waits(trace: Trace) -> pl.DataFrame:
    """Turns that a human set off, with the wait before them as ``human_s`` and its ends."""
    mains = (
        trace.steps.filter(~pl.col("is_subagent"))
        .select("session", "trigger", "request_time", "response_end_time", "tool_exec_ms")
        .sort("session", "request_time", nulls_last=True, maintain_order=True)
        .with_columns(pl.col("response_end_time").shift(1).over("session").alias("earlier_end"))
    )
    since = pl.col("request_time") - pl.col("earlier_end")
    told = pl.coalesce(pl.col("tool_exec_ms") / 1e3, pl.when(since >= 0).then(since))
    return (
        mains.filter(pl.col("trigger") == "user")
        .select("session", told.alias("human_s"), pl.col("request_time").alias("end"))
        .with_columns((pl.col("end") - pl.col("human_s")).alias("start"))
    )


def _spans(trace: Trace, humans: pl.DataFrame) -> pl.DataFrame:
    """Every interval of every part: ``part``, ``session``, ``user_request``, ``start``, ``end``."""
    columns = ["part", "session", "user_request", "start", "end"]
    generation = trace.steps.select(
        pl.lit("generation").alias("part"),
        "session",
        "user_request",
        pl.col("request_time").alias("start"),
        pl.col("response_end_time").alias("end"),
    )
    tools = trace.tool_calls.select(
        pl.lit("tools").alias("part"),
        "session",
        "user_request",
        pl.col("emitted_time").alias("start"),
        pl.col("result_time").alias("end"),
    )
    human = humans.select(
        pl.lit("human").alias("part"), "session", pl.lit(None, dtype=pl.Int64).alias("user_request"), "start", "end"
    )
    found = pl.concat([part.select(columns) for part in (generation, tools, human)])
    part = pl.col("part").cast(pl.Enum(list(PARTS)))
    return found.filter(pl.col("session").is_not_null() & (pl.col("end") >= pl.col("start"))).with_columns(part)


def _shares(spans: pl.DataFrame, what: str, label: str, parts: list[str]) -> pl.DataFrame:
    """A row for each part of a session's or a request's time."""
    if what == "request":
        spans = spans.filter(pl.col("user_request").is_not_null())
        spans = spans.with_columns(
            (pl.col("session").cast(pl.Int64) * REQUESTS_AT_MOST + pl.col("user_request")).alias("of")
        )
    else:
        spans = spans.with_columns(pl.col("session").alias("of"))
    whole = (
        spans.filter(pl.col("part") == "generation")
        .group_by("of")
        .agg(pl.col("start").min().alias("begin"), pl.col("end").max().alias("finish"))
        .with_columns((pl.col("finish") - pl.col("begin")).alias("wall"))
        .filter(pl.col("wall") > 0)
    )
    inside = spans.join(whole, on="of").with_columns(
        pl.max_horizontal("start", "begin").alias("start"), pl.min_horizontal("end", "finish").alias("end")
    )
    found = set(inside["part"].unique())
    made = []
    for part in parts:
        if part == "idle":
            length = pl.col("wall") - pl.col("covered")
            lengths = whole.join(covered(inside, "of"), on="of", how="left")
        elif part not in found:
            continue
        else:
            length = pl.col("covered")
            lengths = whole.join(covered(inside.filter(pl.col("part") == part), "of"), on="of", how="left")
        lengths = lengths.with_columns(pl.col("covered").fill_null(0.0)).with_columns(length.alias("length"))
        made.append(
            lengths.select(
                pl.lit(label).alias("of_a"),
                pl.lit(part).alias("part"),
                (pl.col("length").sum() / pl.col("wall").sum() * 100.0).alias("share_pct"),
                (pl.col("length") / pl.col("wall") * 100.0).median().alias("median_pct"),
                (pl.col("length").sum() / 3600.0).alias("sum_h"),
                pl.len().alias("n"),
            ).filter(pl.col("n") > 0)
        )
    return pl.concat(made)


def _waits(trace: Trace, humans: pl.DataFrame) -> pl.DataFrame:
    """Durations in seconds, a column for each kind, below one another."""
    by_tools = (pl.col("trigger") == "tool") & ~pl.col("is_reset")
    kinds = {
        "step_s": trace.steps.select((pl.col("e2e_ms") / 1e3).alias("step_s")),
        "call_s": trace.tool_calls.select((pl.col("wire_ms") / 1e3).alias("call_s")),
        "tools_s": trace.steps.filter(by_tools).select((pl.col("tool_exec_ms") / 1e3).alias("tools_s")),
        "human_s": humans.select("human_s"),
    }
    return pl.concat(kinds.values(), how="diagonal")


def _told(waits: pl.DataFrame) -> dict[str, bool]:
    return {column: waits[column].count() > 0 for column in WAITS}


def _headline(shares: pl.DataFrame, waits: pl.DataFrame) -> tuple[Headline, ...]:
    def of(label: str, part: str) -> tuple[float | None, str]:
        row = shares.filter((pl.col("of_a") == label) & (pl.col("part") == part))
        over = "union over the time of all"
        if not row.height:
            return None, f"no {label} tells it"
        return row["share_pct"].item(), f"{over} {row['n'].item():,} {label}s"

    humans = waits["human_s"]
    over = f"{humans.count():,} waits for a human"
    tools, generation, human = of("user request", "tools"), of("user request", "generation"), of("session", "human")
    return (
        Headline("tools within a request", tools[0], "%", tools[1], "59.8 % (TraceLab)"),
        Headline("generation within a request", generation[0], "%", generation[1], "41.0 % (TraceLab)"),
        Headline("human within a session", human[0], "%", human[1]),
        Headline("human wait p50", number(humans.median()), "s", over, "86 s (TraceLab)"),
        Headline("human wait p90", number(humans.quantile(0.9, "linear")), "s", over, "21 min = 1,260 s (TraceLab)"),
    )


def _finding(shares: pl.DataFrame) -> str:
    said = [
        f"{'generation takes' if part == 'generation' else part} {pct:.1f} %"
        for of_a, part, pct in shares.select("of_a", "part", "share_pct").iter_rows()
        if of_a == "user request" and part != "idle"
    ]
    return f"Within a user request {', '.join(said)} of the time" if said else ""


def _missing(trace: Trace, waits: pl.DataFrame) -> list[str]:
    steps = trace.steps
    if not steps.height:
        return ["no step was recorded"]
    if steps["request_time"].count() == 0:
        found = ["no step has a time: no shares of a session or a request"]
    elif steps["response_end_time"].count() == 0:
        found = ["no step tells when its response ended: no generation, no shares"]
    else:
        found = []
    if not trace.tells_calls:
        return [*found, "no tool call is told: waits for tools and for humans are not told apart"]
    told = _told(waits)
    said = {"call_s": "no tool call has a wall latency: no time of tools", "human_s": "no wait for a human is told"}
    return [*found, *(text for column, text in said.items() if not told[column])]


def _notes(trace: Trace, shares: pl.DataFrame) -> list[str]:
    found = []
    if shares.height:
        found.append("tools and generation at once count in both, so shares may add up to more than 100 %")
    if trace.is_replayed:
        found.append("times of a replay are the replay's own, its waits as its settings had them")
    return found


def _draw(figure: Figure, shares: pl.DataFrame, waits: pl.DataFrame) -> None:
    left, right = figure.subplots(1, 2)
    rows = shares.reverse()
    colors = [style.PALETTE[PARTS[part]] for part in rows["part"]]
    bars = left.barh(range(rows.height), rows["share_pct"], color=colors, height=0.7)
    left.bar_label(bars, [f"{value:.1f} %" for value in rows["share_pct"]], padding=4, fontsize=9.5)
    left.set_yticks(range(rows.height), [f"{of_a}: {part}" for of_a, part in rows.select("of_a", "part").iter_rows()])
    left.set(title="Shares of the time", xlabel="share of the time of all, unions, %", xlim=(0, 122))
    left.grid(visible=False, axis="y")
    told = [column for column, is_told in _told(waits).items() if is_told]
    names = {"step_s": "step", "call_s": "tool call", "tools_s": "wait for tools", "human_s": "wait for human"}
    low: list[float] = []
    high: list[float] = []
    for color, column in zip((0, 4, 1, 2), WAITS, strict=True):
        values = waits[column].drop_nulls()
        values = values.filter(values > 0)
        if column in told and len(values):
            style.ecdf(
                right,
                values.to_numpy(),
                f"{names[column]} {style.in_words(real(values.median()))}",
                style.PALETTE[color],
            )
            low.append(real(values.min()))
            high.append(real(values.max()))
    if low:
        style.log_seconds_axis(right, min(low), max(high))
    right.set(title="Steps and waits (p50)", xlabel="duration", ylabel="share with at most x, %", ylim=(0, 102))
    if low:
        style.legend_above(right, 2)
