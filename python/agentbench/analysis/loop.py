"""How the loop of an agent goes: model steps and tool calls for a human's request, and how long it runs alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import style
from ._frames import Tables
from ._stats import number, real, spread, spreads
from .answer import Answer, Chart, Headline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .trace import Trace

UNKNOWN = "not told"
QUANTITIES = {"steps": "model steps", "calls": "tool calls", "wall_s": "wall time, s"}
NO_CALLS = "no tool call is told: which steps a human set off is unknown, and so is what a request is"


def loop(trace: Trace) -> Answer:
    """Return how many model steps and tool calls a request of a human takes.

    Definitions
    -----------
    user request
        What a human asks, and all that the agent does until the next such turn of its session, subagents included.
        A human sets off the first turn of a main conversation, and one after a reply without tool calls; a turn after
        a reply with tool calls brings their results, one after a failed turn is the agent's own retry. Where a session
        goes on in a new conversation while calls were open, or within 2 s with less than half of the prompt, its
        context was reset, and no human spoke.
    model step
        A turn of the agent's work: no utility call, and not one that failed.
    run length
        Model steps, tool calls and wall time of one user request: from its first request to the end of its last
        response. It is how long the agent runs without a human.

    The published means are TraceLab's: 8.8 model steps and 10.8 tool calls for a user request.

    Returns
    -------
    Answer
        Tables ``loop`` (run lengths), ``agents`` (the same by agent), ``run_lengths`` (requests by number of steps),
        ``sessions`` (requests of a session).
    """
    steps = trace.steps
    requests = user_requests(steps)
    main = spreads(requests, QUANTITIES, "of_a_user_request", ("p25", "p50", "p75", "p90", "p99"))
    agents = requests.group_by(pl.col("agent").fill_null(UNKNOWN)).agg(
        pl.len().alias("user_requests"),
        pl.col("steps").mean().alias("steps_mean"),
        pl.col("steps").median().alias("steps_p50"),
        pl.col("calls").mean().alias("tool_calls_mean"),
        pl.col("calls").median().alias("tool_calls_p50"),
        pl.col("wall_s").median().alias("wall_p50_s"),
    )
    sessions = requests.group_by("session").agg(pl.len().alias("requests"))
    lengths = _run_lengths(requests)
    apart = steps.filter(pl.col("user_request").is_null()).height
    told = requests.height > 0
    return Answer(
        name="loop",
        title="Steps and tool calls for a user request",
        finding=_finding(requests),
        subtitle=f"{trace.subtitle}; {requests.height:,} requests of humans" if told else trace.subtitle,
        tables=Tables(
            {
                "loop": main,
                "agents": agents.sort("user_requests", "agent", descending=[True, False]),
                "run_lengths": lengths,
                "sessions": spreads(sessions, {"requests": "user requests"}, "of_a_session"),
            }
        ),
        headline=_headline(requests),
        missing=tuple(_missing(trace, requests)),
        notes=(f"{apart:,} steps belong to no known user request and are left out",) if told and apart else (),
        draw=(lambda figure: _draw(figure, requests, lengths)) if told else None,
        chart=Chart("run_lengths", "steps", "requests_pct") if told else None,
    )


def user_requests(steps: pl.DataFrame) -> pl.DataFrame:
    """Return a row for each request of a human: ``session``, ``user_request``, ``agent``, ``steps``, ``calls``, times.

    ``start`` and ``end`` are of its first request and last response; ``wall_s`` is null where one is not known.
    """
    rows = (
        steps.filter(pl.col("user_request").is_not_null())
        .group_by("session", "user_request", maintain_order=True)
        .agg(
            pl.col("agent").first(),
            pl.len().cast(pl.Int64).alias("steps"),
            pl.col("n_calls").sum().alias("calls"),
            pl.col("request_time").min().alias("start"),
            pl.col("response_end_time").max().alias("end"),
        )
    )
    wall = pl.col("end") - pl.col("start")
    return rows.with_columns(pl.when(wall >= 0).then(wall).alias("wall_s"))


def _headline(requests: pl.DataFrame) -> tuple[Headline, ...]:
    over = f"mean over {requests.height:,} user requests"
    middle = f"median over {requests.height:,} user requests"
    return (
        Headline("model steps per user request", number(requests["steps"].mean()), "", over, "8.8 (TraceLab)"),
        Headline("tool calls per user request", number(requests["calls"].mean()), "", over, "10.8 (TraceLab)"),
        Headline("median model steps", number(requests["steps"].median()), "", middle),
        Headline("median run without a human", number(requests["wall_s"].median()), "s", middle),
    )


def _finding(requests: pl.DataFrame) -> str:
    if not requests.height:
        return ""
    steps, calls = real(requests["steps"].mean()), real(requests["calls"].mean())
    return f"{steps:.3g} model steps and {calls:.3g} tool calls for a user request (means)"


def _missing(trace: Trace, requests: pl.DataFrame) -> list[str]:
    if not trace.steps.height:
        return ["no step was recorded"]
    if not requests.height:
        return [NO_CALLS] if not trace.tells_calls else ["no turn was set off by a human"]
    untold = [label for label in trace.runs if label not in trace.runs_with_calls]
    found = [f"{', '.join(untold)}: {NO_CALLS}"] if untold else []
    return [*found, "no step has times: no wall time"] if requests["wall_s"].count() == 0 else found


def _run_lengths(requests: pl.DataFrame) -> pl.DataFrame:
    """Requests by their number of steps: 1, 2, 3-4, 5-8, …, with the share of all steps that they hold."""
    upper = 2.0 ** pl.col("steps").cast(pl.Float64).log(2.0).round(9).ceil()
    lower = pl.when(pl.col("upto") > 1).then(pl.col("upto") // 2 + 1).otherwise(1)
    label = pl.when(lower < pl.col("upto")).then(pl.format("{}-{}", lower, "upto")).otherwise(pl.format("{}", "upto"))
    return (
        requests.with_columns(upper.cast(pl.Int64).alias("upto"))
        .group_by("upto")
        .agg(pl.len().alias("requests"), pl.col("steps").sum().alias("held"), *spread("wall_s", ("p50",)))
        .sort("upto")
        .select(
            label.alias("steps"),
            "requests",
            (pl.col("requests") / pl.col("requests").sum() * 100.0).alias("requests_pct"),
            (pl.col("held") / pl.col("held").sum() * 100.0).alias("all_steps_pct"),
            pl.col("p50").alias("wall_p50_s"),
        )
    )


def _draw(figure: Figure, requests: pl.DataFrame, lengths: pl.DataFrame) -> None:
    left, right = figure.subplots(1, 2)
    at = list(range(lengths.height))
    left.bar([x - 0.2 for x in at], lengths["requests_pct"], 0.4, label="of user requests", color=style.PALETTE[0])
    left.bar([x + 0.2 for x in at], lengths["all_steps_pct"], 0.4, label="of all model steps", color=style.PALETTE[1])
    left.set_xticks(at, lengths["steps"].to_list(), rotation=45, ha="right")
    left.set(title="Run lengths without a human", xlabel="model steps of the request", ylabel="share, %")
    left.grid(visible=False, axis="x")
    style.legend_above(left, 2)
    for color, column, name in ((0, "steps", "model steps"), (2, "calls", "tool calls")):
        mean = real(requests[column].mean())
        # A request may make no call; 0 has no place on a logarithmic axis and is at its edge.
        values = requests[column].clip(lower_bound=0.9).to_numpy()
        style.ecdf(right, values, f"{name} {mean:.3g}", style.PALETTE[color])
    style.log_axis(right, "x")
    style.count_axis(right.xaxis)
    right.set_xlim(left=0.9)
    right.set(
        title="Of a user request (mean)",
        xlabel="steps or calls",
        ylabel="share of requests with at most x, %",
        ylim=(0, 102),
    )
    style.legend_above(right, 2)
