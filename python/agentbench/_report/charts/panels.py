"""Which charts and tables a report shows of a run, in which order, and the conditions that each bears."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import polars as pl

from agentbench._figures import count, number
from agentbench._report.charts import capacity, frames, latency, series, shares, tasks, timeline
from agentbench._report.conditions import engine_in_words
from agentbench._report.replayed import headline_part
from agentbench._report.sections import Section

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from agentbench._core import Run
    from agentbench._report.charts.model import Chart
    from agentbench._report.verdict import Measure


@dataclass(frozen=True, eq=False)
class Panel:
    """A part of the page: charts under a heading. `tables` begin the titles of the report's sections that go here."""

    name: str
    title: str
    charts: tuple[Chart, ...] = ()
    tables: tuple[str, ...] = ()
    text: str = ""
    sections: tuple[Section, ...] = ()


def panels(run: Run, summary: dict[str, Any], measures: Sequence[Measure]) -> tuple[Panel, ...]:
    """Return the panels of a run's report."""
    manifest = run.manifest
    start = frames.start_of(run, summary)
    everything = frames.requests(run, start)
    part = frames.of_part(everything, summary)
    who = "agent" if "settings" in summary else "session"
    of_part, of_run = _conditions(summary, manifest, len(part)), _whole(summary, manifest, len(everything))
    of_summary = _of_summary(summary, manifest, of_run)
    return tuple(_panels(run, summary, measures, start, everything, part, who, of_part, of_run, of_summary))


def _panels(
    run: Run,
    summary: dict[str, Any],
    measures: Sequence[Measure],
    start: float,
    everything: pl.DataFrame,
    part: pl.DataFrame,
    who: str,
    of_part: str,
    of_run: str,
    of_summary: str,
) -> Iterator[Panel]:
    if summary.get("capacity"):
        yield Panel(
            "capacity", "Capacity", capacity.capacity_charts(run, of_run), ("capacity", "levels", "work of the levels")
        )
    if summary.get("agent"):
        yield Panel("tasks", "Tasks", (tasks.task_chart(run, of_run),), ("tasks", "of a task", "each task"))
    for column, name, title in (
        (latency.TTFT, "ttft", "Time to first token"),
        (latency.SPEED, "speed", "Output speed"),
    ):
        charts = (
            latency.distribution(part, column, of_part, measures),
            latency.over_agents(part, column, of_part, who),
            latency.over_context(part, column, of_part),
        )
        yield Panel(
            name,
            title,
            charts,
            ("steady state", "whole run", "level ", "of a turn", "throughput") if column == latency.TTFT else (),
        )
    windows = timeline.windows_of(summary)
    time = (timeline.timeline(everything, of_run, who, windows), timeline.where_time_goes(part, of_part, who))
    yield Panel("timeline", "Timeline", time, ("counts", "recorded"))
    yield Panel(
        "cache",
        "Prefix cache",
        (shares.cache_hits(summary, of_summary), shares.hits_by_context(part, of_part)),
        ("prefix hit rate",),
    )
    yield Panel("engine", "Engine and client", series.engine_charts(run, start, of_run), ("engines", "client"))
    yield Panel("power", "Power and energy", (series.power_chart(run, start, of_run),), ("power",))
    yield Panel("tools", "Tools and waits", (shares.tool_time(run, part, of_part),), ("tools",))
    failed = everything.filter(pl.col("status") == "failed")
    yield Panel(
        "failures",
        "Failures",
        (series.failures(failed, of_run),) if len(failed) else (),
        ("failed requests",),
        "" if len(failed) else "No request failed.",
        _kinds(failed) if "settings" not in summary else (),
    )


def _kinds(failed: pl.DataFrame) -> tuple[Section, ...]:
    """Return the failures of a recording by the text before the first colon, as a summary counts those of a replay."""
    if not len(failed):
        return ()
    error = pl.col("error").fill_null("unknown")
    kinds = (
        failed.with_columns(error.str.split(":").list.first().alias("kind"), error.alias("such_as"))
        .group_by("kind", maintain_order=True)
        .agg(pl.col("such_as").first(), pl.len().alias("n"))
        .sort("n", descending=True, maintain_order=True)
    )
    rows = tuple((row["kind"], row["such_as"], count(row["n"])) for row in kinds.iter_rows(named=True))
    return (Section("turns that were not answered whole", rows, ("kind", "such as", "n"), left=2),)


def _conditions(summary: dict[str, Any], manifest: dict[str, Any], shown: int) -> str:
    """Return what the figures of the headline's requests hold under."""
    if "settings" not in summary:
        return _whole(summary, manifest, shown)
    name, part = headline_part(summary)
    level = (summary.get("capacity") or {}).get("level")
    words = [name if level is None else f"{name} of level {level}"]
    if part["duration_s"] is not None:
        words[0] += f" ({number(part['duration_s'])} s)"
    return ", ".join([*words, *_agents(summary, level), f"{count(shown)} requests", *_engine(manifest)])


def _whole(summary: dict[str, Any], manifest: dict[str, Any], shown: int) -> str:
    words = ["whole run", *_agents(summary, None), f"{count(shown)} requests"]
    return ", ".join([*words, *_engine(manifest)])


def _of_summary(summary: dict[str, Any], manifest: dict[str, Any], of_run: str) -> str:
    """Return what the summary's figures outside the steady state are of: the run, or a search's one level."""
    level = (summary.get("capacity") or {}).get("level")
    if level is None:
        return of_run
    words = [f"all of level {level}", *_agents(summary, level), f"{count(summary['requests']['sent'])} requests"]
    return ", ".join([*words, *_engine(manifest)])


def _agents(summary: dict[str, Any], level: int | None) -> Iterator[str]:
    if "settings" not in summary:
        return
    search = summary.get("capacity")
    if not search:
        yield f"{count(summary['agents'])} agents"
    elif level is not None:
        yield from (f"{count(row['agents'])} agents" for row in search["curve"] if row["level"] == level)


def _engine(manifest: dict[str, Any]) -> Iterator[str]:
    engine = manifest.get("engine")
    if engine:
        where = f"on {engine_in_words(manifest)}" if engine.get("name") else f"on an unknown engine at {engine['url']}"
        yield " ".join(filter(None, [engine.get("model"), where]))
