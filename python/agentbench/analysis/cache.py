"""What a prefix cache gives on these prompts: hits as they were, and as one of another size and patience has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import style
from ._cached import (
    APPEND_CLASSES,
    PUBLISHED_RETENTIONS,
    IdleRule,
    append_sizes,
    by_trigger,
    cached_turns,
    capacities,
    enough_capacity,
    idle_rule,
    pauses,
    retention_curve,
    retentions,
    sharing,
)
from ._frames import Tables
from ._planned import Planned, planned
from ._stats import number, share
from .answer import Answer, Chart, Headline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .trace import Trace

WIDE_DISAGREEMENT_POINTS = 2.0
ROOM_FOR_LEGEND = 1.3
FIVE_MINUTES_S = 300.0
TRACELAB = "TraceLab"


def cache(trace: Trace) -> Answer:
    """Return what a prefix cache gives: hits by trigger, by how long blocks are kept, by how many fit, over pauses.

    Definitions
    -----------
    hits (``hits_pct``)
        Sum of ISL cached over sum of ISL, by the responses' own usage: what the engine behind the recording served.
        TraceLab's prefix hit ratio, by tokens.
    append, fresh
        Append is ISL - ISL cached: what was prefilled. Fresh is what no cache could have had: by how much the prompt
        grew over the one before in its thread, less the output of that turn, at least 0 and at most the append
        (TraceLab, "redundant prefill").
    prefill amplification
        Append over fresh: how many times more was prefilled than an endless cache would need.
    kept T, idle rule
        TraceLab's "eviction trade-off": a turn that comes within T of the end of the turn before finds all but its
        fresh tokens, a later one nothing. Over turns that have a turn before and a known wait (``tool_exec_ms``).
    kept T, chained blocks
        A block stays for T after the end of its last use, by whatever request. A prompt finds its leading blocks as
        far as they are there. Over all turns, first ones included.
    capacity
        As many tokens fit; the blocks least recently used go first, the tail of a prompt before its head.
    KV idle ratio
        Time that KV is kept without use over time in which responses are made: sum of min(wait, T) over sum of E2E.
    human pause
        The wait before a turn that a human's message set off. What it costs: append less fresh of these turns.

    Which blocks prompts share follows from their hashes where a run has them (units of text, or blocks), and from
    counts where not; the notes say which. Every run is a cache of its own. Sizes are tokens, whatever a token of KV
    takes in the engine's memory.

    Returns
    -------
    Answer
        Tables ``cache`` (by trigger), ``append_sizes``, ``retention``, ``capacity``, ``pauses``, ``sharing``.
    """
    plans = planned(trace)
    turns = cached_turns(plans)
    ruled = idle_rule(turns)
    tables = {
        "cache": by_trigger(turns),
        "append_sizes": append_sizes(turns),
        "retention": retentions(plans, ruled),
        "capacity": capacities(plans),
        "pauses": pauses(turns),
        "sharing": sharing(plans),
    }
    return Answer(
        name="cache",
        title="Prefix cache",
        finding=_finding(turns, ruled),
        subtitle=f"{trace.subtitle}; {turns.height:,} turns that tell their prompt tokens",
        tables=Tables(tables),
        headline=_headline(turns, plans, ruled, tables["sharing"]),
        missing=_missing(trace, turns, plans),
        notes=_notes(turns, plans),
        draw=(lambda figure: _draw(figure, plans, turns, tables)) if turns.height else None,
        chart=Chart("retention", "kept", "chained_hits_pct") if turns.height else None,
    )


def _headline(turns: pl.DataFrame, plans: list[Planned], ruled: IdleRule, shared: pl.DataFrame) -> tuple[Headline, ...]:
    told = turns.filter(pl.col("isl_cached").is_not_null())
    found = [
        Headline("prefix hits", _hits(told), "%", _over(told, "turns that tell cached tokens"), f"95.75 % ({TRACELAB})")
    ]
    for trigger, words in (("user", "after a user message"), ("tool", "after a tool result")):
        of_trigger = told.filter(pl.col("trigger") == trigger)
        found.append(Headline(f"prefix hits {words}", _hits(of_trigger), "%", _over(of_trigger, "such turns")))
    for words, (retention_s, published) in PUBLISHED_RETENTIONS.items():
        found.append(
            Headline(
                f"hits if KV is kept {words}", ruled.hits_pct(retention_s), "%",
                f"idle rule, {ruled.n:,} turns with a turn before and a known wait", f"{published} ({TRACELAB})",
            )
        )  # fmt: skip
    paired = told.filter(pl.col("fresh").is_not_null())
    amplification = _ratio(number(paired["append"].sum()), number(paired["fresh"].sum()))
    found.append(
        Headline(
            "prefill amplification", amplification, "x", _over(paired, "turns with a turn before"), f"5.3x ({TRACELAB})"
        )
    )
    after_human = paired.filter(pl.col("trigger") == "user")
    lost = (after_human["append"] - after_human["fresh"]).sum() if after_human.height else None
    found.append(
        Headline(
            "prefill that human pauses cost", share(number(lost), number(told["append"].sum())), "%",
            f"of all appended tokens; {after_human.height:,} turns after a human", f"45.9 % ({TRACELAB})",
        )
    )  # fmt: skip
    enough = enough_capacity(plans)
    found.append(Headline("cache that has 95 % of an endless one's hits", enough, "tokens", "LRU, chained blocks"))
    between = number(shared["other_sessions_pct"].mean()) if shared.height == 1 else None
    found.append(Headline("prompt tokens shared with other sessions", between, "%", "endless cache; of hashes only"))
    return tuple(found)


def _finding(turns: pl.DataFrame, ruled: IdleRule) -> str:
    as_was = _hits(turns.filter(pl.col("isl_cached").is_not_null()))
    kept = ruled.hits_pct(FIVE_MINUTES_S)
    said = [] if as_was is None else [f"{as_was:.1f} % of prompt tokens came from cache"]
    if kept is not None:
        said.append(f"keeping KV for 5 min gives {kept:.1f} %")
    return "; ".join(said)


def _hits(told: pl.DataFrame) -> float | None:
    return share(number(told["isl_cached"].sum()), number(told["isl"].sum())) if told.height else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return part / whole if part is not None and whole else None


def _over(turns: pl.DataFrame, words: str) -> str:
    return f"tokens of {turns.height:,} {words}"


def _missing(trace: Trace, turns: pl.DataFrame, plans: list[Planned]) -> tuple[str, ...]:
    if not turns.height:
        return ("no turn tells its prompt tokens: nothing can be said of a cache",)
    found = []
    if trace.lacks("isl_cached", turns):
        found.append(
            "no turn tells its cached tokens: no hits as they were, no append, no amplification, no cost of pauses"
        )
    if trace.lacks("trigger", turns):
        found.append("no tool calls are told: what set a turn off is unknown, so hits are not told by trigger")
    counted = [plan.run for plan in plans if not plan.knows_sharing]
    if counted:
        found.append(f"what sessions share is unknown, not 0, in {_named(counted)}: counts and no hashes")
    bare = sum(int((plan.prompt_tokens == 0).sum()) for plan in plans)
    if bare:
        found.append(f"{bare:,} turns hold no hashes, unlike others of their run: left out of what chained blocks give")
    ageless = sum(int((~plan.is_aged).sum()) for plan in plans)
    if ageless:
        found.append(f"{ageless:,} turns have no known wait: left out of the retention times")
    untimed = [plan.run for plan in plans if not plan.is_timed]
    if untimed:
        found.append(f"{_named(untimed)} has turns without times: the capacity is filled in the order of threads")
    return tuple(found)


def _notes(turns: pl.DataFrame, plans: list[Planned]) -> tuple[str, ...]:
    found = []
    words = {
        "units": "chained blocks of {names} follow from the prompts' own text; a unit's tokens from its bytes",
        "blocks": "chained blocks of {names} are the recording's hashes, of prompts alone: no reply counts as kept",
        "counts": "chained blocks of {names} are minted for each conversation, after its counts: a turn shares prompt "
        "and reply of the turn before, and after a cut only what usage says was cached",
    }
    for kind, text in words.items():
        names = [plan.run for plan in plans if plan.kind == kind]
        if names:
            found.append(text.format(names=_named(names)))
    told = turns.filter(pl.col("isl_cached").is_not_null())
    hits, endless = _hits(told), share(number(told["endless"].sum()), number(told["planned_isl"].sum()))
    if hits is not None and endless is not None and hits > endless + WIDE_DISAGREEMENT_POINTS:
        found.append(
            f"usage says {hits:.1f} % and an endless cache of these blocks would have {endless:.1f} %: the engine took "
            "for equal, or shared between sessions, what these blocks do not tell"
        )
    return tuple(found)


def _named(runs: list[str]) -> str:
    return ", ".join(runs[:3]) + (f" and {len(runs) - 3} more" if len(runs) > 3 else "")  # noqa: PLR2004


def _draw(figure: Figure, plans: list[Planned], turns: pl.DataFrame, tables: dict[str, pl.DataFrame]) -> None:
    left, middle, right = figure.subplots(1, 3)
    _draw_retention(left, plans, turns)
    _draw_capacity(middle, tables["capacity"])
    _draw_appends(right, tables["append_sizes"])


def _draw_retention(axes: Axes, plans: list[Planned], turns: pl.DataFrame) -> None:
    axes.set_title("Hits by retention")
    seconds, hits = retention_curve(plans)
    ruled = idle_rule(turns)
    if not len(seconds):
        axes.text(0.5, 0.5, "no waits are known", ha="center", va="center", color=style.MUTED, transform=axes.transAxes)
        return
    axes.plot(seconds, hits, color=style.PALETTE[0], label="chained blocks")
    if ruled.n:
        axes.plot(
            seconds,
            [ruled.hits_pct(it) or 0.0 for it in seconds],
            color=style.PALETTE[1],
            label="idle rule",
            linestyle="--",
        )
    told = turns.filter(pl.col("isl_cached").is_not_null())
    if (as_was := _hits(told)) is not None:
        axes.axhline(as_was, color=style.MUTED, linewidth=1.0, linestyle=":", label="as it was (usage)")
    style.log_seconds_axis(axes, seconds[0], seconds[-1])
    _lean(axes)
    axes.set(xlabel="kept after last use", ylabel="prompt tokens served, %", ylim=(0, 102))
    axes.legend(loc="best")


def _draw_capacity(axes: Axes, table: pl.DataFrame) -> None:
    axes.set_title("Hits by capacity (LRU)")
    axes.plot(table["capacity_tokens"], table["hits_pct"], color=style.PALETTE[2], marker="o", markersize=4)
    style.log_axis(axes, "x")
    style.count_axis(axes.xaxis)
    _lean(axes)
    axes.set(xlabel="tokens that fit", ylabel="prompt tokens served, %", ylim=(0, 102))


def _draw_appends(axes: Axes, table: pl.DataFrame) -> None:
    axes.set_title("Append sizes")
    if not table.height:
        axes.text(
            0.5,
            0.5,
            "no turn tells\nits cached tokens",
            ha="center",
            va="center",
            color=style.MUTED,
            transform=axes.transAxes,
        )
        return
    at = range(len(APPEND_CLASSES))
    axes.bar([it - 0.2 for it in at], table["turns_pct"], width=0.4, color=style.PALETTE[4], label="turns")
    axes.bar([it + 0.2 for it in at], table["append_pct"], width=0.4, color=style.PALETTE[5], label="appended tokens")
    axes.set_xticks(list(at), table["append_tokens"].to_list(), rotation=45, ha="right")
    axes.grid(visible=False, axis="x")
    most = max(*table["turns_pct"], *table["append_pct"])
    axes.set(xlabel="tokens appended by a turn", ylabel="share, %", ylim=(0, most * ROOM_FOR_LEGEND))
    axes.legend(loc="upper left")


def _lean(axes: Axes) -> None:
    for label in axes.get_xticklabels():
        label.set(rotation=45, horizontalalignment="right")
