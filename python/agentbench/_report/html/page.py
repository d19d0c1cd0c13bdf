"""The page: verdict and headline on top, then what a reader must know, then charts and tables, then the method.

Everything that comes from a run is text: nothing of it is markup.
"""

from __future__ import annotations

import shlex
from html import escape
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from agentbench._core import __version__
from agentbench._report.charts.panels import panels
from agentbench._report.html.cards import cards
from agentbench._report.html.draw import Drawing, legend, library
from agentbench._report.html.method import DEFINITIONS, settings_rows
from agentbench._report.sections import Section

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from agentbench._core import Run
    from agentbench._report.charts.model import Chart
    from agentbench._report.charts.panels import Panel
    from agentbench._report.html.cards import Card
    from agentbench._report.report import Report
    from agentbench._report.sections import Flag
    from agentbench._report.verdict import Measure, Verdict

CONDITIONS = "conditions"
LONG = 10
"""Letters of a value above which it is written smaller."""
ALWAYS_OPEN = 24
"""Tables of more rows than this are folded until a reader opens them."""


def run_page(made: Report, run: Run, measures: Sequence[Measure], questions: str = "") -> str:
    """Return the page of a run; `questions` is what was asked of a recording, as HTML."""
    parts = panels(run, made.summary, measures)
    script, places = drawn(parts).parts()
    sections = {section.title: section for section in made.sections}
    body = [
        _header(made, run.manifest, made.verdict),
        _cards(cards(made.summary, made.verdict)),
        flags_html(made.flags),
        _conditions(sections.get(CONDITIONS)),
        questions,
        *[panel_html(panel, places, (*_tables_of(panel, made.sections), *panel.sections)) for panel in parts],
        _method(made.summary, run.manifest),
    ]
    asked = [("questions", "Questions")] if questions else []
    contents = [*asked, *[(panel.name, panel.title) for panel in parts], ("method", "Method")]
    return page(made.title, body, contents, script)


def drawn(parts: Sequence[Panel]) -> Drawing:
    """Return a drawing of every chart that has something to show."""
    drawing = Drawing()
    for panel in parts:
        for chart in panel.charts:
            if chart.marks:
                drawing.add(chart)
    return drawing


def page(title: str, body: Iterable[str], contents: Sequence[tuple[str, str]], script: str) -> str:
    """Return a whole file: styles and scripts stand in it, and it asks nobody for anything."""
    links = "".join(f'<a href="#{escape(name)}">{escape(text)}</a>' for name, text in contents)
    own = files("agentbench._report.html")
    style, behaviour = (own.joinpath(name).read_text("utf-8") for name in ("page.css", "page.js"))
    drawn = f"{library()}\n{script}" if script else ""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f'<nav aria-label="Contents">{links}</nav>\n' + "\n".join(part for part in body if part) + "\n</main>\n"
        f"{drawn}\n<script>\n{behaviour}</script>\n</body>\n</html>\n"
    )


def _header(made: Report, manifest: dict[str, Any], found: Verdict) -> str:
    simulated = bool((manifest.get("engine") or {}).get("simulated"))
    labels = ["SIMULATED: no figure here says anything about any hardware"] if simulated else []
    if manifest["synthetic"] and "settings" not in made.summary:
        labels.append("SYNTHETIC: this recording is made up after published statistics")
    ribbon = "".join(f'<p class="ribbon">{label}</p>' for label in labels)
    word = found.word or "no verdict"
    requests = f"{found.n:,} requests" if found.n != 1 else "1 request"
    worst = f"The worst of the words below, over {requests}; a failed one counts as the worst value."
    told = worst if found.word else found.reason
    caveats = f'<p class="caveats">{escape(", ".join(found.caveats))}</p>' if found.caveats else ""
    kind, _, name = made.title.partition(": ")
    return (
        f'<header>{ribbon}<div class="top"><div><p class="kind">{escape(kind)}</p><h1>{escape(name or made.title)}</h1>'
        f'<p class="headline">{escape(made.headline)}</p></div>'
        f'<div class="verdict {escape(found.word or "none")}"><p class="kind">verdict</p>'
        f'<p class="word">{escape(word)}</p>'
        f"{caveats}<p>{escape(told)}</p></div></div></header>"
    )


def _cards(shown: Sequence[Card]) -> str:
    return f'<div class="cards">{"".join(_card(card) for card in shown)}</div>'


def _card(card: Card) -> str:
    unit = f' <span class="unit">{escape(card.unit)}</span>' if card.unit else ""
    word = f'<span class="tag {escape(card.word)}">{escape(card.word)}</span>' if card.word else ""
    long = " long" if len(card.value) > LONG else ""
    bounds = f'<p class="bounds">{_signs(card.bounds)}</p>' if card.bounds else ""
    return (
        f'<div class="card" data-figure="{escape(card.label)}"><p class="label">{escape(card.label)}</p>'
        f'<p class="value{long}"><span><b>{escape(card.value)}</b>{unit}</span>{word}</p>'
        f'<p class="of">{escape(card.of)}</p>{bounds}</div>'
    )


def _signs(text: str) -> str:
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


def _conditions(section: Section | None) -> str:
    if section is None:
        return ""
    rows = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in section.rows)
    return f'<section id="conditions"><h2>Conditions</h2><dl class="pairs two">{rows}</dl></section>'


def _tables_of(panel: Panel, sections: Sequence[Section]) -> tuple[Section, ...]:
    return (
        tuple(section for section in sections if section.title != CONDITIONS and section.title.startswith(panel.tables))
        if panel.tables
        else ()
    )


def panel_html(panel: Panel, places: dict[str, str], tables: Sequence[Section]) -> str:
    """Return a panel with its charts, then tables."""
    charts = "".join(chart_html(chart, places) for chart in panel.charts)
    grid = f'<div class="charts">{charts}</div>' if charts else ""
    text = f"<p>{escape(panel.text)}</p>" if panel.text else ""
    return (
        f'<section id="{escape(panel.name)}"><h2>{escape(panel.title)}</h2>{text}{grid}'
        f"{''.join(section_html(section) for section in tables)}</section>"
    )


def chart_html(chart: Chart, places: dict[str, str]) -> str:
    """Return a chart with its title, its conditions, what its colours mean and its notes."""
    keys = "".join(
        f'<span class="key"><i class="{"dash" if dashed else "fill"}" style="--c:{colour}"></i>{_signs(label)}</span>'
        for label, colour, dashed in legend(chart)
    )
    drawn = places.get(chart.name)
    inside = drawn or f'<p class="missing">No figure: {escape(chart.missing)}.</p>'
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in chart.notes)
    return (
        f'<figure class="{"wide" if chart.wide else ""}" data-chart="{escape(chart.name)}">'
        f"<figcaption><h3>{escape(chart.title)}</h3>"
        f'<p class="of">{escape(chart.conditions)}</p>{f"<p class=keys>{keys}</p>" if keys else ""}</figcaption>'
        f'<div class="plot">{inside}</div>{notes}</figure>'
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


def _method(summary: dict[str, Any], manifest: dict[str, Any]) -> str:
    definitions = "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(text)}</dd></div>" for term, text in DEFINITIONS)
    settings = section_html(
        Section(
            "settings of the run, as kept in summary.json and manifest.json",
            tuple(settings_rows(summary, manifest)),
        )
    )
    again = shlex.join(manifest["argv"]) if manifest["argv"] else ""
    command = f"<h3>run it again</h3><pre>{escape(again)}</pre>" if again else ""
    versions = (
        f"Recorded by agentbench {manifest['tool_version']}, format {manifest['format_version']}; reported by"
        f" agentbench {__version__}. Every figure on this page follows from the tables of the run directory; charts are"
        " drawn by Bokeh, whose script stands in this file."
    )
    return (
        f'<section id="method"><h2>Method</h2><p>{escape(versions)}</p>{command}'
        f'<details class="table"><summary>definitions</summary><dl class="pairs">{definitions}</dl></details>'
        f"{settings}</section>"
    )
