"""The parts that pages are made of: the file around them, flags, panels, charts and tables.

Everything that comes from a run is text: nothing of it is markup.
"""

from __future__ import annotations

from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING

from agentbench._report.html.draw import drawn, legend, library

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agentbench._report.charts.model import Chart
    from agentbench._report.charts.panels import Panel
    from agentbench._report.sections import Flag, Section

ALWAYS_OPEN = 24
"""Tables of more rows than this are folded until a reader opens them."""
DRAWN_BY_SCRIPT = 'type="application/json" data-drawn-by="bokeh"'
"""Marks what the page's script draws."""


def page(title: str, body: Iterable[str], contents: Sequence[tuple[str, str]]) -> str:
    """Return a whole file: styles and scripts stand in it, and it asks nobody for anything."""
    links = "".join(f'<a href="#{escape(name)}">{escape(text)}</a>' for name, text in contents)
    own = files("agentbench._report.html")
    style, behaviour = (own.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    shown = "\n".join(part for part in body if part)
    charts = library() if DRAWN_BY_SCRIPT in shown else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f'<nav aria-label="Contents">{links}</nav>\n{shown}\n</main>\n'
        f"{charts}\n<script>\n{behaviour}</script>\n</body>\n</html>\n"
    )


def signs(text: str) -> str:
    """Return text with the signs that a keyboard lacks."""
    return escape(text.replace("<=", "≤").replace(">=", "≥"))


def flags_html(found: Sequence[Flag]) -> str:
    """Return what a reader must know before any figure."""
    if not found:
        return ""
    rows = "".join(
        f'<li class="{"grave" if flag.grave else "mild"}"><b>{escape(flag.name)}</b> {escape(flag.text)}</li>'
        for flag in found
    )
    return f'<section class="flags"><h2>Read this first</h2><ul>{rows}</ul></section>'


def panel_html(panel: Panel, tables: Sequence[Section]) -> str:
    """Return a panel with its charts, then tables."""
    text = f"<p>{escape(panel.text)}</p>" if panel.text else ""
    return (
        f'<section id="{escape(panel.name)}"><h2>{escape(panel.title)}</h2>{text}{charts_html(panel.charts)}'
        f"{''.join(section_html(section) for section in tables)}</section>"
    )


def charts_html(charts: Sequence[Chart]) -> str:
    """Return charts beside one another, as many as there is room for."""
    shown = "".join(chart_html(chart) for chart in charts)
    return f'<div class="charts">{shown}</div>' if shown else ""


def chart_html(chart: Chart) -> str:
    """Return a chart with its title, its conditions, what its colours mean and its notes."""
    keys = "".join(
        f'<span class="key"><i class="{shape}" style="--c:{colour}"></i>{signs(label)}</span>'
        for label, colour, shape in legend(chart)
    )
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in chart.notes)
    conditions = f'<p class="of">{escape(chart.conditions)}</p>' if chart.conditions else ""
    return (
        f'<figure class="{"wide" if chart.wide else ""}" data-chart="{escape(chart.name)}">'
        f"<figcaption>{f'<h3>{escape(chart.title)}</h3>' if chart.title else ''}"
        f"{conditions}{f'<p class=keys>{keys}</p>' if keys else ''}</figcaption>"
        f'<div class="plot">{_inside(chart)}</div>{notes}</figure>'
    )


def _inside(chart: Chart) -> str:
    if not chart.marks:
        return f'<p class="missing">No figure: {escape(chart.missing)}.</p>'
    # Its room is kept, so that nothing moves when it is drawn; no text of a run ends the element that holds it.
    described = drawn(chart).replace("<", "\\u003c")
    return (
        f'<div id="chart-{escape(chart.name)}" style="min-height:{chart.height}px"></div>'
        f"<script {DRAWN_BY_SCRIPT}>{described}</script>"
    )


def section_html(section: Section) -> str:
    """Return a section as a table that scrolls where it is too wide; a long one is folded."""
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in section.notes)
    table = (
        f'<div class="scroll"><table>{_head(section)}<tbody>{"".join(_rows(section))}</tbody></table></div>'
        if section.rows
        else ""
    )
    title = escape(section.title)
    if len(section.rows) > ALWAYS_OPEN:
        return f'<details class="table"><summary>{title} ({len(section.rows)} rows)</summary>{table}{notes}</details>'
    return f'<div class="table">{f"<h3>{title}</h3>" if title else ""}{table}{notes}</div>'


def _head(section: Section) -> str:
    if not section.columns:
        return ""
    cells = "".join(
        f'<th class="{_side(section, index)}">{escape(name)}</th>' for index, name in enumerate(section.columns)
    )
    return f"<thead><tr>{cells}</tr></thead>"


def _rows(section: Section) -> Iterator[str]:
    for row in section.rows:
        yield (
            "<tr>"
            + "".join(f'<td class="{_side(section, index)}">{escape(cell)}</td>' for index, cell in enumerate(row))
            + "</tr>"
        )


def _side(section: Section, index: int) -> str:
    return "text" if not section.columns or index < section.left else "figure"
