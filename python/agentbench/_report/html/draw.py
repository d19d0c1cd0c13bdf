"""Charts drawn by Bokeh: a place in the page for each, and one script with their data for all of them.

Numbers cross as 32-bit columns in base64, so that a run of ten thousand requests stays a small file. Colours of axes
and grids are set by ``page.js``, which knows whether the reader's screen is light or dark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from bokeh.embed import components
from bokeh.plotting import figure
from bokeh.resources import Resources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbench._report.charts.model import Axis, Chart, Mark, Tip

# Its types name what it exports in a way that checkers do not follow.
models: Any = import_module("bokeh.models")

COLOURS = {
    "first": "#2f7fd0",
    "second": "#e08214",
    "third": "#2a9d8f",
    "fourth": "#a05fb4",
    "quiet": "#8b98a8",
    "good": "#1f9a74",
    "marginal": "#d9960a",
    "poor": "#d1495b",
}
"""Apart for eyes that see no red or no green, and readable on white as on near black."""
MOST_NAMES = 40
"""Positions of an axis that are named; of more, every so many."""
NAME_SHOWN = 22
BAND_ALPHA = 0.22
MANY = 2_000
"""Dots from which on they are paler, since they lie on one another."""
PADDING, ZOOM_PADDING = 0.08, 0.01


class Drawing:
    """The charts of one page, which share data where their marks do."""

    def __init__(self) -> None:
        self._figures: dict[str, Any] = {}
        self._sources: dict[int, tuple[pl.DataFrame, Any]] = {}

    def add(self, chart: Chart) -> None:
        """Draw a chart that has something to show."""
        plot = _figure(chart)
        hovered = []
        for mark in chart.marks:
            glyph = self._mark(plot, mark)
            if glyph is not None and mark.tips:
                hovered.append((glyph, mark.tips))
        for glyph, tips in hovered:
            plot.add_tools(
                models.HoverTool(
                    renderers=[glyph], tooltips=[_tooltip(tip) for tip in tips], point_policy="follow_mouse"
                )
            )
        _ranges(plot, chart)
        self._figures[chart.name] = plot

    def parts(self) -> tuple[str, dict[str, str]]:
        """Return the script with all data, and each chart's place by its name."""
        if not self._figures:
            return "", {}
        script, places = components(self._figures)
        return script, places

    def _mark(self, plot: Any, mark: Mark) -> Any:
        colour = COLOURS[mark.role]
        if mark.kind == "rule":
            dimension, column = ("width", mark.y) if mark.y else ("height", mark.x)
            place = float(mark.data[column][0])
            plot.add_layout(
                models.Span(location=place, dimension=dimension, line_color=colour, line_dash="dashed", line_width=1.5)
            )
            return None
        source = self._source(mark.data)
        if mark.kind in {"line", "step"}:
            draw = plot.step if mark.kind == "step" else plot.line
            options = {"mode": "after"} if mark.kind == "step" else {}
            dash = "dashed" if mark.dashed else "solid"
            return draw(
                mark.x, mark.y, source=source, line_color=colour, line_width=mark.size, line_dash=dash, **options
            )
        if mark.kind == "points":
            alpha = (0.55 if len(mark.data) < MANY else 0.25) if mark.role == "quiet" else 0.95
            return plot.scatter(
                mark.x, mark.y, source=source, size=mark.size, color=colour, alpha=alpha, line_color=None
            )
        if mark.kind == "band":
            return plot.varea(mark.x, mark.y, mark.y1, source=source, fill_color=colour, fill_alpha=BAND_ALPHA)
        if mark.kind == "ranges":
            return plot.vbar(
                x=mark.x, bottom=mark.y, top=mark.y1, width=mark.size, source=source, fill_color=colour, line_color=None
            )
        return plot.hbar(
            y=mark.y, left=mark.x, right=mark.x1, height=mark.size, source=source, fill_color=colour, line_color=None
        )

    def _source(self, data: pl.DataFrame) -> Any:
        # The frame is kept beside its source, so that no other one gets its id.
        if id(data) not in self._sources:
            self._sources[id(data)] = (
                data,
                models.ColumnDataSource({name: _column(data[name]) for name in data.columns}),
            )
        return self._sources[id(data)][1]


def library() -> str:
    """Return Bokeh's own script, whole, as an element of the page."""
    return str(Resources(mode="inline", components=["bokeh"]).render_js())


def _column(series: pl.Series) -> Any:
    if series.dtype.is_numeric():
        return series.cast(pl.Float64).to_numpy().astype(np.float32)
    if series.dtype == pl.Boolean:
        return series.cast(pl.UInt8).to_numpy()
    return [value if value is not None else "" for value in series.cast(pl.String).to_list()]


def _figure(chart: Chart) -> Any:
    tools = "xbox_zoom,xpan,reset,save" if chart.zoom else ""
    plot = figure(
        height=chart.height,
        sizing_mode="stretch_width",
        min_width=240,
        tools=tools,
        active_drag="xbox_zoom" if chart.zoom else None,
        toolbar_location="above" if chart.zoom else None,
        x_axis_type="log" if chart.x.log else "linear",
        y_axis_type="log" if chart.y.log else "linear",
        background_fill_color=None,
        border_fill_color=None,
        outline_line_color=None,
        name=chart.name,
    )
    if chart.zoom:
        plot.toolbar.logo = None
        plot.toolbar.autohide = True
        plot.add_tools(models.WheelZoomTool(dimensions="width", modifiers={"ctrl": True}))
    plot.min_border_right = 16
    for axis, meaning in ((plot.xaxis, chart.x), (plot.yaxis, chart.y)):
        _axis(axis, meaning)
    plot.ygrid.visible = not chart.y.names
    plot.xgrid.visible = not chart.x.names
    return plot


def _axis(axis: Any, meaning: Axis) -> None:
    axis.axis_label = meaning.title or None
    axis.axis_label_text_font_style = "normal"
    axis.axis_label_text_font_size = "12px"
    axis.major_label_text_font_size = "11px"
    axis.axis_line_color = None
    axis.minor_tick_line_color = None
    axis.major_tick_in = 0
    axis.major_tick_out = 4
    if meaning.whole:
        axis.ticker.min_interval = 1
    if meaning.names:
        every = -(-len(meaning.names) // MOST_NAMES)
        axis.ticker = models.FixedTicker(ticks=list(range(0, len(meaning.names), every)))
        shown = {index: _shortened(name) for index, name in enumerate(meaning.names) if index % every == 0}
        axis.major_label_overrides = shown
        axis.major_tick_line_color = None
    elif meaning.log:
        axis.formatter = models.CustomJSTickFormatter(
            code="return tick >= 1 ? tick.toLocaleString('en') : String(Number(tick.toPrecision(2)))"
        )
    elif meaning.unit == "%":
        axis.formatter = models.BasicTickFormatter(use_scientific=False)
    elif meaning.unit in {"tokens", "tokens/s"}:
        axis.formatter = models.NumeralTickFormatter(format="0.[00]a")
    else:
        axis.formatter = models.NumeralTickFormatter(format="0,0.[000]")


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_SHOWN else f"{name[: NAME_SHOWN - 1]}…"


def _ranges(plot: Any, chart: Chart) -> None:
    for name, axis in (("x_range", chart.x), ("y_range", chart.y)):
        low, high = (-0.6, len(axis.names) - 0.4) if axis.names else axis.bounds
        if low is not None and high is not None:
            setattr(plot, name, models.Range1d(start=low, end=high))
        elif not axis.log:
            known = getattr(plot, name)
            known.range_padding = ZOOM_PADDING if chart.zoom and name == "x_range" else PADDING
            if low is not None:
                known.start = low


def _tooltip(tip: Tip) -> tuple[str, str]:
    form = f"{{{tip.form}}}" if tip.form else ""
    unit = f" {tip.unit}" if tip.unit else ""
    return tip.label, f"@{{{tip.column}}}{form}{unit}"


def legend(chart: Chart) -> Sequence[tuple[str, str, bool]]:
    """Return label, colour and whether it is a dashed line, of every mark that has a label."""
    return [(mark.label, COLOURS[mark.role], mark.dashed) for mark in chart.marks if mark.label]
