"""`report`: what a run came to, under which conditions, and how far it may be believed."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench._core import Run
from agentbench._report import captured, replayed
from agentbench._report.conditions import conditions
from agentbench._report.flags import flags
from agentbench._report.levels import capacity_sections
from agentbench._report.sections import Document

if TYPE_CHECKING:
    from agentbench._report.sections import Section

REPORT = "report.md"
OWN_EYES = 0o600
"""Like every file of a run directory, a report is its owner's alone."""
REPLAYED = {"replay", "capacity"}


@dataclass(frozen=True)
class Report(Document):
    """What a run came to: flags on top, then conditions, then figures.

    Printed by rich, shown by Jupyter, and Markdown otherwise. Made by `agentbench.report`.
    """

    __module__ = "agentbench"

    path: Path = field(default=Path())
    summary: dict[str, Any] = field(default_factory=dict, repr=False)

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


def report(run: Run | str | os.PathLike[str]) -> Report:
    """Report what a run came to: validity flags, conditions, figures.

    Of a run that was killed, everything is computed anew from the rows that had reached the disk.

    Parameters
    ----------
    run
        A run of any kind, or its directory.

    Returns
    -------
    Report
        With ``to_markdown()``, ``write()``, and shown by Jupyter and rich as it is.

    Raises
    ------
    TraceError
        When there is no run, or it cannot be read.

    Examples
    --------
    >>> print(agentbench.report("results/mine").to_markdown())  # doctest: +SKIP
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    summary, manifest = summary_of(opened), opened.manifest
    return Report(
        title=f"agentbench {manifest['kind']}: {opened.path.name or opened.path}",
        headline=_headline(summary, manifest),
        flags=flags(summary, manifest),
        sections=_sections(summary, manifest),
        path=opened.path,
        summary=summary,
    )


def summary_of(run: Run) -> dict[str, Any]:
    """Return the run's own summary; one computed from its tables where it was killed, or never has one."""
    kept = run.summary() if run.manifest["complete"] else None
    return kept if kept is not None else run.summarize()


def write_whole(target: Path, text: str) -> None:
    """Write a file whole or not at all."""
    unfinished = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWN_EYES), "w") as file:
            file.write(text)
        unfinished.replace(target)
    finally:
        unfinished.unlink(missing_ok=True)


def _headline(summary: dict[str, Any], manifest: dict[str, Any]) -> str:
    if manifest["kind"] not in REPLAYED:
        return captured.headline(summary, manifest)
    if summary.get("capacity"):
        settings = summary["settings"]
        engine = "SIMULATED engine" if summary["labels"]["simulated"] else "engine"
        return f"{engine}: {settings['model']} at {settings['url']}: {summary['capacity']['result']}"
    return replayed.headline(summary)


def _sections(summary: dict[str, Any], manifest: dict[str, Any]) -> tuple[Section, ...]:
    held = conditions(summary, manifest)
    if manifest["kind"] not in REPLAYED:
        return held, *captured.capture_sections(summary, manifest)
    if not summary.get("capacity"):
        return held, *replayed.replay_sections(summary)
    return held, *capacity_sections(summary["capacity"]), *_of_one_level(summary)


def _of_one_level(summary: dict[str, Any]) -> tuple[Section, ...]:
    """Return the figures of the level that stands for the result, and say that they are."""
    level = summary["capacity"]["level"]
    if level is None:
        return ()
    first, *others = replayed.replay_sections(summary)
    named = type(first)(f"level {level} alone: {first.title}", first.rows, first.columns, first.notes, first.left)
    return named, *others
