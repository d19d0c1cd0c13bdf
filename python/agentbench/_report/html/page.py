"""The page of a run: verdict and headline on top, what a reader must know, then charts and tables, then the method.

Everything that comes from a run is text: nothing of it is markup.
"""

from __future__ import annotations

import shlex
from html import escape
from typing import TYPE_CHECKING, Any

from agentbench._core import __version__
from agentbench._report.charts.panels import panels
from agentbench._report.html.answers import questions_html
from agentbench._report.html.cards import cards
from agentbench._report.html.method import DEFINITIONS, settings_rows
from agentbench._report.html.parts import flags_html, page, panel_html, section_html, signs
from agentbench._report.sections import Section

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbench._core import Run
    from agentbench._report.charts.panels import Panel
    from agentbench._report.html.cards import Card
    from agentbench._report.report import Report
    from agentbench._report.verdict import Measure, Verdict
    from agentbench.analysis import Analysis

CONDITIONS = "conditions"
FROM_PYTHON = "It was started from Python, which keeps no command; every setting that it had is below."
MOST_IN_A_ROW = 6
LONG = 10
"""Letters of a value above which it is written smaller."""


def run_page(made: Report, run: Run, measures: Sequence[Measure], asked: Analysis | None = None) -> str:
    """Return the page of a run; of a recording with what was `asked` of it."""
    parts = panels(run, made.summary, measures)
    sections = {section.title: section for section in made.sections}
    body = [
        _header(made, run.manifest, made.verdict),
        _cards(cards(made.summary, made.verdict)),
        flags_html(made.flags),
        _conditions(sections.get(CONDITIONS)),
        questions_html(tuple(asked.values())) if asked else "",
        *[panel_html(panel, (*_tables_of(panel, made.sections), *panel.sections)) for panel in parts],
        _method(made.summary, run.manifest),
    ]
    questions = [("questions", "Questions")] if asked else []
    contents = [*questions, *[(panel.name, panel.title) for panel in parts], ("method", "Method")]
    return page(made.title, body, contents)


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
    rows = -(-len(shown) // MOST_IN_A_ROW)
    in_a_row = -(-len(shown) // rows) if rows else 1
    return f'<div class="cards" style="--in-a-row: {in_a_row}">{"".join(_card(card) for card in shown)}</div>'


def _card(card: Card) -> str:
    unit = f' <span class="unit">{escape(card.unit)}</span>' if card.unit else ""
    word = f'<span class="tag {escape(card.word)}">{escape(card.word)}</span>' if card.word else ""
    long = " long" if len(card.value) > LONG else ""
    bounds = f'<p class="bounds">{signs(card.bounds)}</p>' if card.bounds else ""
    return (
        f'<div class="card" data-figure="{escape(card.label)}"><p class="label">{escape(card.label)}</p>'
        f'<p class="value{long}"><span><b>{escape(card.value)}</b>{unit}</span>{word}</p>'
        f'<p class="of">{escape(card.of)}</p>{bounds}</div>'
    )


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


def _method(summary: dict[str, Any], manifest: dict[str, Any]) -> str:
    definitions = "".join(f"<div><dt>{escape(term)}</dt><dd>{escape(text)}</dd></div>" for term, text in DEFINITIONS)
    settings = section_html(
        Section(
            "settings of the run, as kept in summary.json and manifest.json",
            tuple(settings_rows(summary, manifest)),
        )
    )
    again = shlex.join(manifest["argv"]) if manifest["argv"] else ""
    # A run that was started from Python has no command.
    how = f"<pre>{escape(again)}</pre>" if again else f"<p>{FROM_PYTHON}</p>"
    command = f"<h3>run it again</h3>{how}"
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
