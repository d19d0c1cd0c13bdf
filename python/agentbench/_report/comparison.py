"""`compare`: runs side by side, with what makes that unfair on top."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentbench._core import ConfigError, Run, difference_intervals
from agentbench._figures import UNKNOWN, number
from agentbench._frames import _library
from agentbench._report.compared import figures_of
from agentbench._report.fairness import Difference, Side, differing, unfair
from agentbench._report.flags import flags
from agentbench._report.replayed import headline_part
from agentbench._report.report import needed, summary_of
from agentbench._report.sections import Document, Flag, Section

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import pandas as pd

PER_CENT = 100.0
FEWEST = 2
INTERVAL_NOTE = (
    "In noise: 0 lies within the 95 % interval of the difference, by a bootstrap that draws whole trajectories; no: it"
    " does not; -: fewer than 10 trajectories or 5 values beyond the percentile, or no rows to draw from."
    " What differs between two runs as a whole (a warm engine, a neighbour on the machine) is not in it."
)


@dataclass(frozen=True)
class Figure:
    """A figure with its value in every run, None where a run has none, and 95 % intervals of the differences.

    Differences are to the first run, in the figure's unit. `intervals` are those of the second run onwards.
    """

    group: str
    name: str
    unit: str
    by_run: tuple[float | None, ...]
    intervals: tuple[tuple[float, float] | None, ...]

    def difference(self, run: int) -> float | None:
        """Return a run's value less the first one's; None where one of them is not known."""
        first, other = self.by_run[0], self.by_run[run]
        return None if first is None or other is None else other - first

    def difference_pct(self, run: int) -> float | None:
        """Return the difference in percent of the first run's value; None where that is 0 or not known."""
        first, difference = self.by_run[0], self.difference(run)
        return difference / first * PER_CENT if first and difference is not None else None

    def within_noise(self, run: int) -> bool | None:
        """Return whether chance alone may explain the difference; None where that cannot be told."""
        interval = self.intervals[run - 1]
        return None if interval is None else interval[0] <= 0.0 <= interval[1]


@dataclass(frozen=True)
class Comparison(Document):
    """Runs side by side: what makes that unfair on top, then figures with their differences to the first run.

    Printed by rich, shown by Jupyter, and Markdown otherwise. Made by `agentbench.compare`.
    """

    __module__ = "agentbench"

    runs: tuple[str, ...] = ()
    unfair: tuple[Difference, ...] = ()
    differing: tuple[Difference, ...] = ()
    figures: tuple[Figure, ...] = field(default=(), repr=False)
    paths: tuple[Path, ...] = field(default=(), repr=False)

    @property
    def fair(self) -> bool:
        """Whether no setting differs in a way that makes the comparison unfair."""
        return not self.unfair

    def to_html(self) -> str:
        """Return it as one HTML page with charts, which needs no network; what makes it unfair stands on top.

        Raises
        ------
        ModuleNotFoundError
            When a library of the extra ``report`` is missing; the text names the extra.
        TraceError
            When a table of a run cannot be read.
        """
        needed()
        from agentbench._report.html.compared import compared_page  # noqa: PLC0415 the libraries of an extra

        return compared_page(self, [Run.open(path) for path in self.paths])

    def to_pandas(self) -> pd.DataFrame:
        """Return a row for every figure and every run after the first.

        ``first`` and ``value`` are in ``unit``, as are ``difference``, ``low`` and ``high`` (its 95 % interval);
        ``difference_pct`` is in percent of ``first``. What is not known is missing.

        Raises
        ------
        ModuleNotFoundError
            When pandas is missing; the text names the extra.
        """
        rows = [
            {
                "group": figure.group,
                "figure": figure.name,
                "unit": figure.unit,
                "run": self.runs[run],
                "first": figure.by_run[0],
                "value": figure.by_run[run],
                "difference": figure.difference(run),
                "difference_pct": figure.difference_pct(run),
                "low": (figure.intervals[run - 1] or (None, None))[0],
                "high": (figure.intervals[run - 1] or (None, None))[1],
                "within_noise": figure.within_noise(run),
            }
            for figure in self.figures
            for run in range(1, len(self.runs))
        ]
        pandas: Any = _library("pandas")
        frame: pd.DataFrame = pandas.DataFrame(rows)
        return frame


def compare(*runs: Run | str | os.PathLike[str]) -> Comparison:
    """Put runs side by side, with absolute and relative differences to the first.

    Parameters
    ----------
    *runs
        Two or more runs, or their directories.

    Returns
    -------
    Comparison
        ``fair`` says whether a setting makes it unfair, ``unfair`` which; ``to_pandas()``, ``to_markdown()``.

    Raises
    ------
    ConfigError
        When there are fewer than two runs.
    TraceError
        When one is no run, or cannot be read.

    Examples
    --------
    >>> comparison = agentbench.compare("results/before", "results/after")  # doctest: +SKIP
    >>> comparison.fair, comparison.to_pandas()  # doctest: +SKIP
    """
    if len(runs) < FEWEST:
        raise ConfigError("a comparison needs two runs or more")
    opened = [run if isinstance(run, Run) else Run.open(run) for run in runs]
    sides = [Side(summary_of(run), run.manifest) for run in opened]
    names = _names(opened)
    unfair_settings, other_settings = unfair(sides), differing(sides)
    figures = tuple(_figures(opened, sides))
    return Comparison(
        title=f"agentbench compare: {', '.join(names)}",
        headline=_headline(names, unfair_settings),
        flags=(*_unfair_flags(names, unfair_settings), *_run_flags(names, sides)),
        sections=(*_settings(names, other_settings), *_sections(names, figures)),
        runs=names,
        unfair=unfair_settings,
        differing=other_settings,
        figures=figures,
        paths=tuple(run.path for run in opened),
    )


def _names(runs: Sequence[Run]) -> tuple[str, ...]:
    """The directories' names; where two are alike, their paths."""
    names = tuple(run.path.name or str(run.path) for run in runs)
    return names if len(set(names)) == len(names) else tuple(str(run.path) for run in runs)


def _headline(names: Sequence[str], found: Sequence[Difference]) -> str:
    fairness = (
        f"UNFAIR: {', '.join(difference.setting for difference in found)}"
        if found
        else "no setting makes the comparison unfair"
    )
    return f"{len(names)} runs, differences are to {names[0]}; {fairness}"


def _unfair_flags(names: Sequence[str], found: Sequence[Difference]) -> Iterator[Flag]:
    for difference in found:
        told = "; ".join(f"{name}: {value}" for name, value in zip(names, difference.by_run, strict=True))
        yield Flag(f"unfair, {difference.setting} differs", told, grave=True)


def _run_flags(names: Sequence[str], sides: Sequence[Side]) -> Iterator[Flag]:
    """What keeps a run's own figures from being used as they are."""
    for name, side in zip(names, sides, strict=True):
        for flag in flags(side.summary, side.manifest):
            if flag.grave or flag.name == "not saturated":
                yield Flag(f"{name}, {flag.name}", flag.text, flag.grave)


def _settings(names: Sequence[str], found: Sequence[Difference]) -> tuple[Section, ...]:
    if not found:
        return ()
    rows = tuple((difference.setting, *difference.by_run) for difference in found)
    return (Section("what else differs", rows, ("", *names), left=1 + len(names)),)


def _figures(runs: Sequence[Run], sides: Sequence[Side]) -> Iterator[Figure]:
    figures = [figures_of(side) for side in sides]
    intervals = [_intervals(runs[0], sides[0], run, side) for run, side in zip(runs[1:], sides[1:], strict=True)]
    for key in dict.fromkeys(key for of_run in figures for key in of_run):
        by_run = tuple(of_run.get(key, (None, None))[0] for of_run in figures)
        column = next(of_run[key][1] for of_run in figures if key in of_run)
        of_column = tuple(known.get(column[0], {}).get(column[1]) if column else None for known in intervals)
        # What crosses from the core is JSON, which has no tuples.
        bounds = tuple((interval[0], interval[1]) if interval else None for interval in of_column)
        yield Figure(*key, by_run, bounds)


def _intervals(first: Run, of_first: Side, other: Run, of_other: Side) -> dict[str, dict[str, tuple[float, float]]]:
    """Intervals of the differences, where both runs have rows of the same part."""
    if not of_first.settings or not of_other.settings:
        return {}
    parts = {headline_part(side.summary)[0] for side in (of_first, of_other)}
    if len(parts) > 1:
        return {}
    levels = [(side.summary.get("capacity") or {}).get("level") for side in (of_first, of_other)]
    steady = parts == {"steady state"}
    return difference_intervals(first, other, steady=steady, first_level=levels[0], other_level=levels[1])


def _sections(names: Sequence[str], figures: Sequence[Figure]) -> Iterator[Section]:
    for group in dict.fromkeys(figure.group for figure in figures):
        members = [figure for figure in figures if figure.group == group]
        judged = any(interval for figure in members for interval in figure.intervals)
        columns = ["", "unit", names[0]]
        for name in names[1:]:
            columns += [name, "difference", "%", *(["in noise"] if judged else [])]
        rows = tuple(_row(figure, judged=judged) for figure in members)
        yield Section(group, rows, tuple(columns), (INTERVAL_NOTE,) if judged else (), left=2)


def _row(figure: Figure, *, judged: bool) -> tuple[str, ...]:
    cells = [figure.name, figure.unit, number(figure.by_run[0])]
    for run in range(1, len(figure.by_run)):
        cells += [number(figure.by_run[run]), _signed(figure.difference(run)), _pct(figure.difference_pct(run))]
        if judged:
            cells.append({None: UNKNOWN, True: "yes", False: "no"}[figure.within_noise(run)])
    return tuple(cells)


def _signed(difference: float | None) -> str:
    sign = "+" if difference is not None and difference > 0 else ""
    return f"{sign}{number(difference)}"


def _pct(pct: float | None) -> str:
    return UNKNOWN if pct is None else f"{pct:+.1f}"
