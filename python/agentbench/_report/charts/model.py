"""What a chart is before anybody draws it: axes, marks over columns of data, and the conditions that it holds under."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    import polars as pl

Kind = Literal["line", "step", "points", "band", "ranges", "spans", "rule", "words"]
Shape = Literal["circle", "inverted_triangle"]
Role = Literal["first", "second", "third", "fourth", "fifth", "sixth", "quiet", "good", "marginal", "poor"]
"""What a colour stands for; the renderer has one for each. Series use the first four in order."""
SERIES: tuple[Role, ...] = ("first", "second", "third", "fourth")


@dataclass(frozen=True)
class Axis:
    """An axis. With `names` its values are positions 0, 1, … of these."""

    label: str
    unit: str = ""
    log: bool = False
    names: tuple[str, ...] = ()
    bounds: tuple[float | None, float | None] = (None, None)
    """Where it begins and ends; None where the data do."""
    whole: bool = False
    """Whether only whole numbers are marked."""
    ticks: tuple[tuple[float, str], ...] = ()
    """What is marked, each value with its words, in place of round numbers."""
    leaning: bool = False
    """Whether the words of ticks lean, since they are long."""

    @property
    def title(self) -> str:
        """The label with its unit."""
        return f"{self.label} ({self.unit})" if self.unit else self.label


TIME = Axis("time after the start", "s")


@dataclass(frozen=True)
class Tip:
    """A line that hovering shows: a column of the data with its unit. No format: text as it is.

    The column ``$name`` is the mark's own label.
    """

    label: str
    column: str
    unit: str = ""
    form: str = "0,0.[000]"


@dataclass(frozen=True, eq=False)
class Mark:
    """Something drawn from columns of `data`.

    ``line`` and ``step`` join (`x`, `y`); ``points`` are dots there; ``band`` fills from `y` to `y1`; ``ranges`` are
    bars of their own there, one at each `x`; ``spans`` are bars along x from `x` to `x1` at position `y`; a ``rule``
    is a line across the chart at the only value of `y`, or of `x` where `y` is empty. Marks that share their data
    share the very object.
    """

    kind: Kind
    data: pl.DataFrame
    label: str = ""
    role: Role = "first"
    x: str = "x"
    y: str = "y"
    x1: str = ""
    y1: str = ""
    tips: tuple[Tip, ...] = ()
    size: float = 1.0
    """Thickness of a span in positions, of a dot in pixels, of a line in pixels."""
    dashed: bool = False
    alpha: float | None = None
    """How far it covers what lies below; None as its kind has it."""
    shape: Shape = "circle"
    text: str = ""


@dataclass(frozen=True, eq=False)
class Chart:
    """A chart. Without marks `missing` says why there is nothing to draw."""

    name: str
    title: str
    conditions: str
    x: Axis = field(default_factory=lambda: Axis(""))
    y: Axis = field(default_factory=lambda: Axis(""))
    marks: tuple[Mark, ...] = ()
    notes: tuple[str, ...] = ()
    missing: str = ""
    wide: bool = False
    height: int = 280
    zoom: bool = False
    """Whether dragging and Ctrl with the wheel zoom along x."""
