"""Numbers of tokens, turns and seconds that a load shape draws: fixed, lognormal, or those of a recording.

Seeded: the same text and seed give the same draws on every machine. What is drawn for is the shapes' affair.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from agentbench._core import ConfigError, Run

if TYPE_CHECKING:
    import random

GRAMMAR = "N, lognormal:median=M,sigma=S[,max=X], or run:DIR"


class Distribution(Protocol):
    """Something that numbers are drawn from."""

    def draw(self, source: random.Random) -> float:
        """Draw one."""
        ...


@dataclass(frozen=True)
class Fixed:
    """Always the same."""

    value: float

    def draw(self, source: random.Random) -> float:  # noqa: ARG002 - nothing is drawn
        """Return it."""
        return self.value


@dataclass(frozen=True)
class Lognormal:
    """Heavy-tailed about a median; draws above `most` are cut to it."""

    median: float
    sigma: float
    most: float = math.inf

    def draw(self, source: random.Random) -> float:
        """Draw one."""
        return min(source.lognormvariate(math.log(self.median), self.sigma), self.most)


@dataclass(frozen=True)
class Empirical:
    """Values of a recording, each as likely as it is frequent."""

    values: tuple[float, ...] = field(repr=False)

    def draw(self, source: random.Random) -> float:
        """Draw one."""
        return source.choice(self.values)


def parse(text: str, column: str) -> Distribution:
    """Read a distribution.

    Parameters
    ----------
    text
        ``200`` (always), ``lognormal:median=200,sigma=0.8,max=4000``, or ``run:DIR``: the values of a run directory.
    column
        What is taken of a run: a column of ``turn_traces``, or ``turns`` (main turns of a thread), ``tool_exec_s``.

    Returns
    -------
    Distribution
        To draw from.

    Raises
    ------
    ConfigError
        The text is none of these, or the run tells nothing of the column.
    """
    kind, _, rest = text.partition(":")
    if kind == "lognormal":
        return _lognormal(text, rest)
    if kind == "run" and rest:
        return Empirical(_values(Path(rest), column))
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value >= 0):
        raise ConfigError(f"{text!r} is no distribution; write {GRAMMAR}")
    return Fixed(value)


def _lognormal(text: str, rest: str) -> Lognormal:
    try:
        given = {key: float(value) for key, _, value in (part.partition("=") for part in rest.split(","))}
    except ValueError:
        given = {}
    wrong = not {"median", "sigma"} <= set(given) <= {"median", "sigma", "max"}
    if wrong or given["median"] <= 0 or given["sigma"] < 0 or given.get("max", 1.0) <= 0:
        raise ConfigError(f"{text!r} is no lognormal distribution; write lognormal:median=200,sigma=0.8,max=4000")
    return Lognormal(given["median"], given["sigma"], given.get("max", math.inf))


def _values(path: Path, column: str) -> tuple[float, ...]:
    try:
        import polars as pl  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError("run:DIR needs polars; the extra agentbench-serving[analysis] brings it") from error
    turns = pl.DataFrame(Run.open(path).turns()).filter(pl.col("kind") != "utility")
    if column == "turns":
        found = turns.group_by("session_id", "thread_id").len()["len"]
    elif column == "tool_exec_s":
        found = turns["tool_exec_ms"] / 1e3
    else:
        found = turns[column]
    values = tuple(float(value) for value in found.drop_nulls())
    if not values:
        raise ConfigError(f"{path}: no turn tells {column}; give a number or another run")
    return values
