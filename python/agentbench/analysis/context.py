"""How contexts grow, when they are compacted, and how subagents split the work up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
from matplotlib.ticker import MaxNLocator

from . import style
from ._frames import Tables
from ._stats import number, real, share, spreads
from .answer import Answer, Chart, Headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .trace import Trace

UNKNOWN = "not told"
SHRUNK_TO = 0.5
STAYS_BELOW = 0.75
LEAST_TOKENS = 5_000
DRAWN_THREADS = 40
PUBLISHED = {"claude-code": "4.5 % (TraceLab, Claude)", "codex": "18.4 % (TraceLab, Codex)"}
QUANTITIES = {
    "start": "ISL of a thread's first step",
    "peak": "highest ISL of a thread",
    "growth": "growth of ISL from step to step",
    "kept": "ISL right after a compaction",
}


def context(trace: Trace) -> Answer:
    """Return how contexts grow, how often they are compacted, and what share of the work is in subagents.

    Definitions
    -----------
    context
        The prompt of a step: its ISL.
    growth
        ISL of a step less that of the step before in its thread, where it is not less than that.
    compaction
        A step whose ISL is less than half of that of the step before in its thread, from at least 5,000 tokens, where
        the step after it stays below three quarters of that (else it was a short request in between); or a main
        conversation that goes on from an earlier one of its session with less than half of its prompt: with that one's
        calls still open, or within 2 s of its end. A conversation that a human starts anew (``/clear``) is none.
    compaction share
        Sessions with at least one compaction, of those that tell their ISL.
    fragmentation
        Threads, steps and tokens of subagents, beside those of main conversations.

    Failed turns and utility calls are left out. The published compaction shares are TraceLab's: 4.5 % of sessions of
    Claude Code and 18.4 % of Codex.

    Returns
    -------
    Answer
        Tables ``context`` (tokens), ``compaction`` (by agent), ``fragmentation`` (main and subagents).
    """
    steps = _with_compactions(trace.steps)
    told = steps.filter(pl.col("isl").is_not_null())
    compaction = _compaction(told)
    parts = _fragmentation(steps)
    return Answer(
        name="context",
        title="Growth, compaction and fragmentation of contexts",
        finding=_finding(told),
        subtitle=f"{trace.subtitle}; {steps['thread'].n_unique():,} threads",
        tables=Tables(
            {
                "context": spreads(_quantities(told), QUANTITIES, "tokens", ("p25", "p50", "p75", "p90", "p99")),
                "compaction": compaction,
                "fragmentation": parts,
            }
        ),
        headline=tuple(_headline(trace, told, compaction, steps)),
        missing=tuple(_missing(trace, steps)),
        draw=(lambda figure: _draw(figure, told)) if told.height else None,
        chart=Chart("fragmentation", "threads_of", "steps") if parts.height > 1 else None,
    )


def _with_compactions(steps: pl.DataFrame) -> pl.DataFrame:
    """Add ``before`` (ISL of the step before in the thread) and ``is_compacted``."""
    steps = steps.with_row_index("row")
    known = steps.filter(pl.col("isl").is_not_null()).select(
        "row",
        pl.col("isl").shift(1).over("thread").alias("before"),
        pl.col("isl").shift(-1).over("thread").alias("after"),
    )
    rows = steps.join(known, on="row", how="left", maintain_order="left")
    shrunk = (
        (pl.col("before") >= LEAST_TOKENS)
        & (pl.col("isl") < SHRUNK_TO * pl.col("before"))
        & (pl.col("after").fill_null(0) < STAYS_BELOW * pl.col("before"))
    )
    earlier = (
        rows.filter(~pl.col("is_subagent"))
        .select("session", "row", "request_time", "isl")
        .sort("session", "request_time", nulls_last=True, maintain_order=True)
        .select("row", pl.col("isl").shift(1).over("session").alias("isl_earlier"))
    )
    anew = (
        pl.col("is_reset")
        & (pl.col("isl_earlier") >= LEAST_TOKENS)
        & (pl.col("isl") < SHRUNK_TO * pl.col("isl_earlier"))
    )
    return rows.join(earlier, on="row", how="left", maintain_order="left").with_columns(
        (shrunk.fill_null(value=False) | anew.fill_null(value=False)).alias("is_compacted"),
        pl.coalesce(pl.when(anew).then("isl_earlier"), "before").alias("from"),
    )


def _quantities(told: pl.DataFrame) -> pl.DataFrame:
    grown = pl.col("isl") - pl.col("before")
    threads = told.group_by("thread", maintain_order=True).agg(
        pl.col("isl").first().alias("start"), pl.col("isl").max().alias("peak")
    )
    growth = told.filter(grown >= 0).select(grown.alias("growth"))
    kept = told.filter("is_compacted").select(pl.col("isl").alias("kept"))
    return pl.concat([threads.select("start", "peak"), growth, kept], how="diagonal")


def _compaction(told: pl.DataFrame) -> pl.DataFrame:
    compacted = pl.col("is_compacted")
    sessions = told.group_by(pl.col("agent").fill_null(UNKNOWN), "session").agg(compacted.sum().alias("times"))
    by_agent = sessions.group_by("agent").agg(
        pl.len().alias("sessions"),
        (pl.col("times") > 0).sum().alias("compacted_sessions"),
        ((pl.col("times") > 0).mean() * 100.0).alias("compacted_sessions_pct"),
        pl.col("times").sum().alias("compactions"),
    )
    sizes = (
        told.filter(compacted)
        .group_by(pl.col("agent").fill_null(UNKNOWN))
        .agg(
            pl.col("from").median().alias("isl_before_p50_tokens"),
            pl.col("isl").median().alias("isl_after_p50_tokens"),
            (pl.col("isl") / pl.col("from") * 100.0).median().alias("kept_p50_pct"),
        )
    )
    return by_agent.join(sizes, on="agent", how="left").sort("sessions", "agent", descending=[True, False])


def _fragmentation(steps: pl.DataFrame) -> pl.DataFrame:
    def pct(column: str) -> pl.Expr:
        whole = pl.col(column).sum()
        return pl.when(whole > 0).then(pl.col(column) / whole * 100.0).alias(f"{column}_pct")

    def known_sum(column: str) -> pl.Expr:
        return pl.when(pl.col(column).count() > 0).then(pl.col(column).sum()).alias(column)

    return (
        steps.group_by("is_subagent")
        .agg(
            pl.col("thread").n_unique().alias("threads"),
            pl.len().alias("steps"),
            known_sum("isl"),
            known_sum("osl"),
            pl.col("isl").median().alias("isl_p50_tokens"),
        )
        .sort("is_subagent")
        .select(
            pl.when("is_subagent")
            .then(pl.lit("subagents"))
            .otherwise(pl.lit("main conversations"))
            .alias("threads_of"),
            "threads",
            "steps",
            pct("steps"),
            pct("isl"),
            pct("osl"),
            "isl_p50_tokens",
        )
    )


def _headline(trace: Trace, told: pl.DataFrame, compaction: pl.DataFrame, steps: pl.DataFrame) -> list[Headline]:
    sessions = told["session"].n_unique()
    compacted = told.filter("is_compacted")["session"].n_unique()
    threads = steps.group_by("thread").agg(pl.col("is_subagent").first(), pl.col("session").first())
    subagents = int(threads["is_subagent"].sum())
    subagent_isl = told.filter("is_subagent")["isl"].sum()
    peaks = told.group_by("thread").agg(pl.col("isl").max())["isl"]
    # Where no link is told, none need not be none.
    links_told = subagents > 0 or trace.is_recorded
    return [
        Headline("sessions with compaction", share(compacted, sessions), "%", f"{sessions:,} sessions"),
        *(
            Headline(f"sessions with compaction, {agent}", pct, "%", f"{n:,} sessions", PUBLISHED[agent])
            for agent, pct, n in compaction.select("agent", "compacted_sessions_pct", "sessions").iter_rows()
            if agent in PUBLISHED
        ),
        Headline("median highest context", number(peaks.median()), "tokens", f"{len(peaks):,} threads"),
        Headline(
            "threads of a session",
            threads.height / threads["session"].n_unique() if threads.height else None,
            "",
            f"mean; {subagents:,} of {threads.height:,} threads are known as subagents",
        ),
        Headline(
            "prompt tokens of subagents",
            share(subagent_isl, told["isl"].sum()) if told.height and links_told else None,
            "%",
            "of all prompt tokens",
        ),
    ]


def _finding(told: pl.DataFrame) -> str:
    if not told.height:
        return ""
    compacted = share(told.filter("is_compacted")["session"].n_unique(), told["session"].n_unique())
    peak = real(told.group_by("thread").agg(pl.col("isl").max())["isl"].median())
    return f"{compacted:.3g} % of sessions were compacted; a context grows to {peak:,.0f} tokens (median)"


def _missing(trace: Trace, steps: pl.DataFrame) -> list[str]:
    if not steps.height:
        return ["no step was recorded"]
    found = []
    if steps["isl"].count() == 0:
        found.append("no step tells its prompt tokens: no growth, no compaction")
    if not steps["is_subagent"].any() and not trace.is_recorded:
        found.append("no thread has a parent: there were no subagents, or their links are not told")
    return found


def _draw(figure: Figure, told: pl.DataFrame) -> None:
    left, right = figure.subplots(1, 2)
    lengths = (
        told.filter(~pl.col("is_subagent")).group_by("thread").len().sort("len", "thread", descending=[True, False])
    )
    chosen = lengths.head(DRAWN_THREADS)["thread"]
    for thread in chosen:
        rows = told.filter(pl.col("thread") == thread)
        left.plot(range(rows.height), rows["isl"], color=style.PALETTE[0], linewidth=1, alpha=0.45)
        marks = rows.with_row_index("at").filter("is_compacted")
        left.plot(marks["at"], marks["isl"], "v", color=style.PALETTE[5], markersize=6)
    left.plot([], [], "v", color=style.PALETTE[5], label="compaction")
    left.set(
        title=f"ISL of the {len(chosen)} longest conversations",
        xlabel="step of the thread",
        ylabel="tokens",
        ylim=(0, None),
    )
    style.count_axis(left.yaxis)
    left.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=True))
    style.legend_above(left)
    peaks = told.group_by("thread").agg(pl.col("isl").max(), pl.col("is_subagent").first()).filter(pl.col("isl") > 0)
    for color, is_subagent, name in ((0, False, "main conversations"), (1, True, "subagents")):
        values = peaks.filter(pl.col("is_subagent") == is_subagent)["isl"]
        if len(values):
            style.ecdf(right, values.to_numpy(), f"{name} ({len(values):,})", style.PALETTE[color])
    style.log_axis(right, "x")
    style.count_axis(right.xaxis)
    right.set(
        title="Highest context of a thread", xlabel="tokens", ylabel="share of threads with at most x, %", ylim=(0, 102)
    )
    style.legend_above(right)
