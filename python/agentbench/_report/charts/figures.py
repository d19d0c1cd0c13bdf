"""A figure that matplotlib drew, read back as charts: one for each axes, with its marks, its ticks and its own words.

Questions draw their figures once, as pictures for a terminal's files and for Jupyter; a page shows the same marks, with
hovering and in its own colours. What is not known here is refused: nothing of a figure is left out in silence.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from matplotlib.axes import Axes
from matplotlib.axis import Axis as FigureAxis
from matplotlib.collections import PathCollection, PolyCollection
from matplotlib.colors import to_hex, to_rgba_array
from matplotlib.container import BarContainer
from matplotlib.legend import Legend
from matplotlib.lines import Line2D
from matplotlib.spines import Spine
from matplotlib.text import Annotation, Text
from matplotlib.ticker import EngFormatter, ScalarFormatter

from agentbench._report.charts.model import Axis, Chart, Mark, Tip
from agentbench.analysis._figure import SecondsFormatter
from agentbench.analysis.style import MUTED, PALETTE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from matplotlib.artist import Artist
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    from agentbench._report.charts.model import Role, Shape

ROLES: dict[str, Role] = {
    **dict(zip(map(str.lower, PALETTE[:6]), ("first", "second", "third", "fourth", "sixth", "fifth"), strict=True)),
    PALETTE[7].lower(): "quiet",
    MUTED.lower(): "quiet",
}
SHAPES: dict[str, Shape] = {"o": "circle", "v": "inverted_triangle"}
SOLID, NOTHING = "-", {"None", "none", "", " "}
PIXELS_PER_POINT = 4 / 3
HEIGHT, BAR_HEIGHT, BARS_HEAD = 300, 34, 76
BAR_EDGE = 0.6
LETTERS_IN_A_ROW = 32
"""Of the names along an axis; of more, they lean, so that a narrow screen shows them all."""
SMALLEST_DOT = 3
NOTHING_KNOWN = "nothing of it is known"


class UnknownArtistError(TypeError):
    """A figure has something that a page cannot show."""


@dataclass(frozen=True)
class _Side:
    """An axis and how its values are written; None where they are numbers with a unit."""

    axis: Axis
    write: Callable[[float], str] | None = None

    def named(self, value: float) -> str:
        """Return the word of the tick that is nearest to a value."""
        ticks = self.axis.ticks
        return min(ticks, key=lambda tick: abs(tick[0] - value))[1] if ticks else f"{value:g}"


def charts_of(figure: Figure, name: str) -> tuple[Chart, ...]:
    """Return a figure's axes as charts that are called `name` and a number.

    Raises
    ------
    UnknownArtistError
        When the figure has something that has no place in a chart.
    """
    # The words around the axes are the answer's finding and subtitle, which the page has as text.
    for artist in figure.get_children():
        if artist is not figure.patch and not isinstance(artist, Axes | Text):
            raise UnknownArtistError(f"a {type(artist).__name__} beside the axes of a figure")
    return tuple(_chart(axes, f"{name}-{index}") for index, axes in enumerate(figure.axes))


def _chart(axes: Axes, name: str) -> Chart:
    x, y = _side(axes, "x"), _side(axes, "y")
    marks: list[Mark] = []
    said: list[str] = []
    in_bars = {id(patch): bars for bars in axes.containers if isinstance(bars, BarContainer) for patch in bars.patches}
    seen: set[int] = set()
    for artist in axes.get_children():
        if _is_frame(artist, axes):
            continue
        if id(artist) in in_bars:
            bars = in_bars[id(artist)]
            if id(bars) not in seen:
                seen.add(id(bars))
                marks += _bars(bars, x, y)
        elif isinstance(artist, Annotation):
            marks.append(_words(artist))
        elif isinstance(artist, Text):
            said.append(" ".join(artist.get_text().split()))
        else:
            marks += _marks(artist, axes, x, y)
    title = axes.get_title(loc="left") or axes.get_title()
    if not any(len(mark.data) for mark in marks):
        return Chart(name, title, "", missing="; ".join(said) or NOTHING_KNOWN)
    if said:
        raise UnknownArtistError(f"words within a chart: {said[0]!r}")
    if any(mark.kind == "spans" for mark in marks):
        names = _around_bars(y.axis)
        return Chart(name, title, "", x.axis, names, tuple(marks), height=BARS_HEAD + BAR_HEIGHT * len(names.ticks))
    return Chart(name, title, "", x.axis, y.axis, tuple(marks), height=HEIGHT)


def _is_frame(artist: Artist, axes: Axes) -> bool:
    """Whether it is what every axes has: its edge, axis, title or legend, whose words are those of marks."""
    is_title = isinstance(artist, Text) and artist not in axes.texts
    return is_title or isinstance(artist, Spine | FigureAxis | Legend) or artist is axes.patch


def _marks(artist: Artist, axes: Axes, x: _Side, y: _Side) -> Iterator[Mark]:
    if isinstance(artist, Line2D):
        yield from _line(artist, axes, x, y)
    elif isinstance(artist, PathCollection):
        yield _points(artist, x, y)
    elif isinstance(artist, PolyCollection):
        yield from _bands(artist)
    else:
        raise UnknownArtistError(f"a page cannot show the {type(artist).__name__} of a figure")


def _line(line: Line2D, axes: Axes, x: _Side, y: _Side) -> Iterator[Mark]:
    label, role, dashed = _label(line), _role(line.get_color()), line.get_linestyle() != SOLID
    in_x, in_y = line.get_transform().contains_branch_seperately(axes.transData)
    xs, ys = (np.asarray(values, dtype=float) for values in line.get_data())
    if in_x != in_y:
        column, value = ("x", xs) if in_x else ("y", ys)
        place = pl.DataFrame({column: value[:1]})
        yield Mark("rule", place, label, role, x="x" if in_x else "", y="y" if in_y else "", dashed=dashed)
        return
    alpha, shape = line.get_alpha(), line.get_marker()
    data, tips = _told(xs, ys, x, y, label)
    if line.get_linestyle() not in NOTHING:
        styles = {"default": "line", "steps-post": "step"}
        if line.get_drawstyle() not in styles:
            raise UnknownArtistError(f"a line drawn in {line.get_drawstyle()}")
        kind: Any = styles[line.get_drawstyle()]
        yield Mark(kind, data, label, role, tips=tips, size=line.get_linewidth(), dashed=dashed, alpha=alpha)
        label = ""
    if shape not in NOTHING:
        if shape not in SHAPES:
            raise UnknownArtistError(f"a marker {shape!r}")
        size = line.get_markersize() * PIXELS_PER_POINT
        yield Mark("points", data, label, role, tips=tips, size=size, alpha=alpha, shape=SHAPES[shape])


def _points(cloud: PathCollection, x: _Side, y: _Side) -> Mark:
    color = _only(set(map(to_hex, to_rgba_array(cloud.get_facecolor()))), "colours of dots")
    area = _only(set(cloud.get_sizes()), "sizes of dots")
    places = np.ma.filled(cloud.get_offsets(), np.nan)
    data, tips = _told(places[:, 0], places[:, 1], x, y, _label(cloud))
    size = max(math.sqrt(area) * PIXELS_PER_POINT, SMALLEST_DOT)
    return Mark("points", data, _label(cloud), _role(color), tips=tips, size=size, alpha=cloud.get_alpha())


def _bands(area: PolyCollection) -> Iterator[Mark]:
    """Yield what is filled between two lines, a band for each part that is known."""
    color = _only(set(map(to_hex, to_rgba_array(area.get_facecolor()))), "colours of an area")
    label = _label(area)
    for path in area.get_paths():
        corners = np.asarray(path.vertices, dtype=float)
        outline = pl.DataFrame({"x": corners[:, 0], "at": corners[:, 1]})
        edges = outline.group_by("x").agg(pl.col("at").min().alias("y"), pl.col("at").max().alias("y1")).sort("x")
        yield Mark("band", edges, label, _role(color), y1="y1", alpha=area.get_alpha())
        label = ""


def _bars(bars: BarContainer, x: _Side, y: _Side) -> Iterator[Mark]:
    """Yield the bars of a container, those of each colour together."""
    lying = bars.orientation == "horizontal"
    colors = [to_hex(patch.get_facecolor()) for patch in bars.patches]
    label = _label(bars)
    for color in dict.fromkeys(colors):
        patches = [patch for patch, its in zip(bars.patches, colors, strict=True) if its == color]
        yield _bars_of(patches, label, _role(color), (x, y) if lying else (y, x), lying=lying)
        label = ""


def _bars_of(patches: Sequence[Rectangle], label: str, role: Role, sides: tuple[_Side, _Side], *, lying: bool) -> Mark:
    along, across = sides
    boxes = np.array([patch.get_bbox().extents for patch in patches]).reshape(-1, 4)
    starts, ends, low, high = (boxes[:, at] for at in ((0, 2, 1, 3) if lying else (1, 3, 0, 2)))
    middle = (low + high) / 2
    size = _only(set(np.round(high - low, 6)), "breadths of bars")
    columns = {"from": starts, "to": ends, "at": middle, "name": [across.named(value) for value in middle]}
    tips = (Tip("", "name", form=""), Tip(label or along.axis.label, "to", along.axis.unit))
    data = pl.DataFrame(columns)
    if lying:
        return Mark("spans", data, label, role, x="from", x1="to", y="at", tips=tips, size=float(size))
    return Mark("ranges", data, label, role, x="at", y="from", y1="to", tips=tips, size=float(size))


def _words(label: Annotation) -> Mark:
    if label.xycoords != "data":
        raise UnknownArtistError(f"words beside no value: {label.get_text()!r}")
    at_x, at_y = map(float, label.xy)
    return Mark("words", pl.DataFrame({"x": [at_x], "y": [at_y], "text": [label.get_text()]}), text="text")


def _told(xs: Any, ys: Any, x: _Side, y: _Side, label: str) -> tuple[pl.DataFrame, tuple[Tip, ...]]:
    """Return points with what hovering tells of each: the label, then both values in the words of their axes."""
    columns: dict[str, Any] = {"x": xs, "y": ys}
    tips = [Tip("", "$name", form="")] if label else []
    for name, side, values in (("x", x, xs), ("y", y, ys)):
        if side.write is None:
            tips.append(Tip(side.axis.label or name, name, side.axis.unit))
        else:
            columns[f"{name}_words"] = [side.write(value) for value in values]
            tips.append(Tip(side.axis.label or name, f"{name}_words", form=""))
    return pl.DataFrame(columns), tuple(tips)


def _side(axes: Axes, which: str) -> _Side:
    """Return an axis with what it marks; where the figure leaves round numbers to chance, so does the page."""
    axis = axes.xaxis if which == "x" else axes.yaxis
    log = axis.get_scale() == "log"
    low, high = map(float, axes.get_xlim() if which == "x" else axes.get_ylim())
    label, _, unit = axis.get_label_text().rpartition(", ")
    if not label:
        label, unit = unit, ""
    formatter = axis.get_major_formatter()
    of_numbers = isinstance(formatter, ScalarFormatter | EngFormatter)
    if of_numbers and not log:
        return _Side(Axis(label, unit, bounds=(low, high)))
    places = [float(place) for place in axis.get_majorticklocs() if min(low, high) <= place <= max(low, high)]
    ticks = tuple(zip(places, formatter.format_ticks(places), strict=True))
    leaning = which == "x" and not of_numbers and not isinstance(formatter, SecondsFormatter) and _is_long(ticks)
    side = _Side(Axis(label, unit, log, bounds=(low, high), ticks=ticks, leaning=leaning))
    if of_numbers:
        return side
    return replace(side, write=formatter if isinstance(formatter, SecondsFormatter) else side.named)


def _is_long(ticks: Sequence[tuple[float, str]]) -> bool:
    return sum(len(words) for _, words in ticks) > LETTERS_IN_A_ROW


def _around_bars(axis: Axis) -> Axis:
    """Return the axis of bars' names, no longer than they need; upside down where it was."""
    low, high = axis.bounds
    places = [place for place, _ in axis.ticks]
    ends = (min(places) - BAR_EDGE, max(places) + BAR_EDGE)
    return replace(axis, bounds=ends if low is not None and high is not None and low < high else ends[::-1])


def _only(found: set[Any], what: str) -> Any:
    """Return the one value that there may be."""
    if len(found) != 1:
        raise UnknownArtistError(f"{len(found)} {what} in one")
    return next(iter(found))


def _label(artist: Any) -> str:
    """Return the label that a legend shows; matplotlib's own begin with an underscore."""
    label = str(artist.get_label())
    return "" if label.startswith("_") else label


def _role(color: Any) -> Role:
    found = ROLES.get(to_hex(color))
    if found is None:
        raise UnknownArtistError(f"a colour that is not of the style: {color}")
    return found
