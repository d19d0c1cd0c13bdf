"""`report`: what a run came to, under which conditions, and how far it may be believed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench._core import ConfigError, Run
from agentbench._report import agents, captured, replayed
from agentbench._report.conditions import conditions
from agentbench._report.flags import flags
from agentbench._report.levels import capacity_sections
from agentbench._report.sections import Document
from agentbench._report.verdict import MEASURES, Verdict, verdict, verdict_section, with_thresholds

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentbench._report.sections import Section
    from agentbench._report.verdict import Measure

REPORT = "report.md"
PAGE = "report.html"
OWN_EYES = 0o600
"""Like every file of a run directory, a report is its owner's alone."""
REPLAYED = {"replay", "capacity", "agent"}


@dataclass(frozen=True)
class Report(Document):
    """What a run came to: flags on top, then conditions, then figures.

    Printed by rich, shown by Jupyter, and Markdown otherwise. Made by `agentbench.report`.
    """

    __module__ = "agentbench"

    path: Path = field(default=Path())
    summary: dict[str, Any] = field(default_factory=dict, repr=False)
    verdict: Verdict = field(default_factory=lambda: Verdict(None))
    measures: tuple[Measure, ...] = field(default=MEASURES, repr=False)

    def to_html(self) -> str:
        """Return it as one HTML page with charts, which needs no network.

        Raises
        ------
        ModuleNotFoundError
            When a library of the extra ``report`` is missing; the text names the extra.
        TraceError
            When a table of the run cannot be read.
        """
        needed()
        from agentbench._report.html.page import run_page  # noqa: PLC0415 the libraries of an extra
        from agentbench.analysis import analyze  # noqa: PLC0415 the same

        run = Run.open(self.path)
        asked = analyze(run) if "settings" not in self.summary and len(run.turns()) else None
        return run_page(self, run, self.measures, asked)

    def write_html(self, to: str | os.PathLike[str] | None = None) -> Path:
        """Write it as HTML, by default as ``report.html`` into the run directory.

        Parameters
        ----------
        to
            The file to write in its place.

        Returns
        -------
        Path
            What was written.

        Raises
        ------
        ModuleNotFoundError
            When a library of the extra ``report`` is missing; the text names the extra.
        OSError
            When the file cannot be written.
        """
        target = self.path / PAGE if to is None else Path(to)
        write_whole(target, self.to_html())
        return target

    def write(self, to: str | os.PathLike[str] | None = None) -> Path:
        """Write it as Markdown, by default as ``report.md`` into the run directory.

        Parameters
        ----------
        to
            The file to write in its place.

        Returns
        -------
        Path
            What was written.

        Raises
        ------
        OSError
            When the file cannot be written.
        """
        target = self.path / REPORT if to is None else Path(to)
        write_whole(target, self.to_markdown())
        return target


def report(run: Run | str | os.PathLike[str], *, thresholds: Iterable[str] = ()) -> Report:
    """Report what a run came to: validity flags, a verdict, conditions, figures.

    Of a run that was killed, everything is computed anew from the rows that had reached the disk.

    Parameters
    ----------
    run
        A run of any kind, or its directory.
    thresholds
        What the words of the verdict need, such as ``ttft.good=2s``, ``speed.ok=20`` (tokens/s) or
        ``completion.good=80%``, where it is not as published.

    Returns
    -------
    Report
        With ``verdict``, ``to_markdown()``, ``write()``, ``to_html()``, ``write_html()``, and shown by Jupyter and
        rich as it is.

    Raises
    ------
    ConfigError
        When a threshold cannot be read, or thresholds are out of order.
    TraceError
        When there is no run, or it cannot be read.

    Examples
    --------
    >>> print(agentbench.report("results/mine").to_markdown())  # doctest: +SKIP
    """
    try:
        measures = with_thresholds(thresholds)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    opened = run if isinstance(run, Run) else Run.open(run)
    summary, manifest = summary_of(opened), opened.manifest
    found = flags(summary, manifest)
    judged = verdict(summary, found, measures)
    return Report(
        title=f"agentbench {_command(manifest)}: {opened.path.name or opened.path}",
        headline=_headline(summary, manifest),
        flags=found,
        sections=_sections(summary, manifest, judged),
        path=opened.path,
        summary=summary,
        verdict=judged,
        measures=measures,
    )


def summary_of(run: Run) -> dict[str, Any]:
    """Return the run's own summary; one computed from its tables where it was killed, or never has one."""
    kept = run.summary() if run.manifest["complete"] else None
    return kept if kept is not None and _is_of_today(kept) else run.summarize()


def _is_of_today(summary: dict[str, Any]) -> bool:
    """Whether a summary has what a verdict needs, which earlier versions did not keep."""
    return "steady" not in summary or "with_failures" in summary["steady"]


def write_whole(target: Path, text: str) -> None:
    """Write a file whole or not at all."""
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWN_EYES), "w") as file:
            file.write(text)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _command(manifest: dict[str, Any]) -> str:
    """Return what made a run: its kind, or the load shape of which it is a step."""
    shape = manifest["argv"][1:3]
    return " ".join(shape) if shape[:1] == ["load"] else str(manifest["kind"])


def _headline(summary: dict[str, Any], manifest: dict[str, Any]) -> str:
    if manifest["kind"] not in REPLAYED:
        return captured.headline(summary, manifest)
    if summary.get("capacity"):
        settings = summary["settings"]
        engine = "SIMULATED engine" if summary["labels"]["simulated"] else "engine"
        return f"{engine}: {settings['model']} at {settings['url']}: {summary['capacity']['result']}"
    if summary.get("agent"):
        return f"{replayed.headline(summary)}: {agents.result(summary['agent'])}"
    return replayed.headline(summary)


def _sections(summary: dict[str, Any], manifest: dict[str, Any], judged: Verdict) -> tuple[Section, ...]:
    held = conditions(summary, manifest)
    if manifest["kind"] not in REPLAYED:
        return held, *captured.capture_sections(summary, manifest)
    top = verdict_section(judged)
    if summary.get("agent"):
        return top, held, *agents.agent_sections(summary), *replayed.replay_sections(summary)
    if not summary.get("capacity"):
        return top, held, *replayed.replay_sections(summary)
    return top, held, *capacity_sections(summary["capacity"]), *_of_one_level(summary)


def needed() -> None:
    """Say in one line how to get what a page of HTML needs, where that is missing.

    Raises
    ------
    ModuleNotFoundError
        Naming the extra.
    """
    for name in ("bokeh", "polars", "pandas", "matplotlib"):
        if find_spec(name) is None:
            remedy = 'pip install "agentbench-serving[report]"'
            raise ModuleNotFoundError(
                f"{name}, which draws reports, is not installed; install it with: {remedy}", name=name
            )


def _of_one_level(summary: dict[str, Any]) -> tuple[Section, ...]:
    """Return the figures of the level that stands for the result, and say that they are."""
    level = summary["capacity"]["level"]
    if level is None:
        return ()
    first, *others = replayed.replay_sections(summary)
    named = type(first)(f"level {level} alone: {first.title}", first.rows, first.columns, first.notes, first.left)
    return named, *others
