"""Charts drawn by Bokeh: each is a JSON document of its own, so that a page draws first what is looked at first.

Numbers cross as 32-bit columns in base64, so that a run of ten thousand requests stays a small file. Colours of axes
and grids are set by ``page.js``, which knows whether the reader's screen is light or dark.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from bokeh.core.json_encoder import serialize_json
from bokeh.embed import json_item
from bokeh.plotting import figure
from bokeh.resources import Resources

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbench._report.charts.model import Axis, Chart, Kind, Mark, Tip

# Its types name what it exports in a way that checkers do not follow.
models: Any = import_module("bokeh.models")

COLOURS = {
    "first": "#2f7fd0",
    "second": "#e08214",
    "third": "#2a9d8f",
    "fourth": "#a05fb4",
    "fifth": "#d2603a",
    "sixth": "#4fb3e8",
    "quiet": "#8b98a8",
    "good": "#1f9a74",
    "marginal": "#d9960a",
    "poor": "#d1495b",
}
"""Apart for eyes that see no red or no green, and readable on white as on near black."""
WORDS = "#6f7b88"
"""Of words beside marks, on white as on near black."""
MOST_NAMES = 40
"""Positions of an axis that are named; of more, every so many."""
NAME_SHOWN = 22
BAND_ALPHA = 0.22
DOT_ALPHA = 0.95
MANY, PALE, PALER = 2_000, 0.55, 0.25
"""Dots from which on they are paler, since they lie on one another."""
POINTER_PIXELS = 14
CORNERS, ORDER = "corner", "order of the row"
LEAN = 0.7
PADDING, ZOOM_PADDING = 0.08, 0.01


def drawn(chart: Chart) -> str:
    """Return a chart that has something to show as Bokeh's JSON, which the page's own script draws."""
    plot = _figure(chart)
    sources: dict[int, Any] = {}
    hovered = []
    for mark in chart.marks:
        # The chart keeps every frame, so that no two have one id.
        if id(mark.data) not in sources:
            sources[id(mark.data)] = _source(mark.data)
        target = _mark(plot, mark, sources[id(mark.data)])
        if target is not None and mark.tips:
            hovered.append((target, mark.tips))
    for target, tips in hovered:
        tooltips = [_tooltip(tip) for tip in tips]
        plot.add_tools(models.HoverTool(renderers=[target], tooltips=tooltips, point_policy="follow_mouse"))
    _ranges(plot, chart)
    return str(serialize_json(json_item(plot)))


def _mark(plot: Any, mark: Mark, source: Any) -> Any:
    """Draw a mark and return what hovering is to hit of it."""
    if mark.kind == "rule":
        _rule(plot, mark)
        return None
    if mark.kind == "words":
        style = {"text_color": WORDS, "text_font_size": "11px", "text_baseline": "middle", "x_offset": 6}
        return plot.text(mark.x, mark.y, mark.text, source=source, **style)
    if mark.kind in {"line", "step"}:
        return _line(plot, mark, source)
    if mark.kind == "points":
        return _points(plot, mark, source)
    return _area(plot, mark, source)


def _points(plot: Any, mark: Mark, source: Any) -> Any:
    pale = PALE if len(mark.data) < MANY else PALER
    alpha = (pale if mark.role == "quiet" else DOT_ALPHA) if mark.alpha is None else max(mark.alpha, pale)
    style = {"size": mark.size, "marker": mark.shape, "color": COLOURS[mark.role], "alpha": alpha, "line_color": None}
    return plot.scatter(mark.x, mark.y, source=source, name=mark.label, **style)


def _area(plot: Any, mark: Mark, source: Any) -> Any:
    """Draw a band or bars."""
    style = {"source": source, "name": mark.label, "fill_color": COLOURS[mark.role]}
    if mark.kind == "band":
        alpha = BAND_ALPHA if mark.alpha is None else mark.alpha
        return plot.varea(mark.x, mark.y, mark.y1, fill_alpha=alpha, **style)
    if mark.kind == "ranges":
        return plot.vbar(x=mark.x, bottom=mark.y, top=mark.y1, width=mark.size, line_color=None, **style)
    return plot.hbar(y=mark.y, left=mark.x, right=mark.x1, height=mark.size, line_color=None, **style)


def _rule(plot: Any, mark: Mark) -> None:
    dimension, column = ("width", mark.y) if mark.y else ("height", mark.x)
    place = float(mark.data[column][0])
    span = models.Span(
        location=place, dimension=dimension, line_color=COLOURS[mark.role], line_dash="dashed", line_width=1.5
    )
    plot.add_layout(span)


def _line(plot: Any, mark: Mark, source: Any) -> Any:
    """Draw a line, and a broad one that cannot be seen above it, since the pointer misses one of two pixels."""
    x = mark.x
    if mark.kind == "step":
        # Bokeh's own steps cannot be hovered over.
        x, source = CORNERS, _source(_corners(mark.data, mark.x))
    dash, alpha = "dashed" if mark.dashed else "solid", 1.0 if mark.alpha is None else mark.alpha
    style = {"line_color": COLOURS[mark.role], "line_width": mark.size, "line_dash": dash, "line_alpha": alpha}
    line = plot.line(x, mark.y, source=source, **style)
    if not mark.tips:
        return line
    return plot.line(x, mark.y, source=source, name=mark.label, line_width=POINTER_PIXELS, line_alpha=0.0)


def _corners(data: pl.DataFrame, x: str) -> pl.DataFrame:
    """Return every row twice, at its own place and at the next one's: a line through these has steps."""
    there = data.with_columns(pl.col(x).alias(CORNERS))
    ends = data.with_columns(pl.col(x).shift(-1).alias(CORNERS)).head(-1)
    return (
        pl.concat([there.with_row_index(ORDER), ends.with_row_index(ORDER)])
        .sort(ORDER, maintain_order=True)
        .drop(ORDER)
    )


def _source(data: pl.DataFrame) -> Any:
    return models.ColumnDataSource({name: _column(data[name]) for name in data.columns})


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
    plot.ygrid.visible = not _of_names(chart, "spans", chart.y)
    plot.xgrid.visible = not _of_names(chart, "ranges", chart.x)
    return plot


def _of_names(chart: Chart, bars: Kind, axis: Axis) -> bool:
    """Whether an axis has a name for each of its bars, which need no grid."""
    return bool(axis.names) or (bool(axis.ticks) and any(mark.kind == bars for mark in chart.marks))


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
    if meaning.ticks:
        axis.ticker = models.FixedTicker(ticks=[place for place, _ in meaning.ticks])
        axis.major_label_overrides = dict(meaning.ticks)
        axis.major_label_orientation = LEAN if meaning.leaning else "horizontal"
        axis.major_label_policy = models.AllLabels() if meaning.leaning else models.NoOverlap()
    elif meaning.names:
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
    column = tip.column if tip.column.startswith("$") else f"@{{{tip.column}}}"
    return tip.label, f"{column}{form}{unit}"


def legend(chart: Chart) -> Sequence[tuple[str, str, str]]:
    """Return label, colour and look (``fill``, ``pale``, ``dot`` or ``dash``) of every mark that has a label."""
    looks = {"points": "dot", "rule": "dash", "band": "pale"}
    return [
        (mark.label, COLOURS[mark.role], "dash" if mark.dashed else looks.get(mark.kind, "fill"))
        for mark in chart.marks
        if mark.label
    ]
