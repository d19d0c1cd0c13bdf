"""The questions of ``agentbench analyze`` on the page of a recording: each with its figure, headline and tables."""

from __future__ import annotations

import base64
import io
from html import escape
from typing import TYPE_CHECKING

from agentbench._report.html.page import section_html
from agentbench._report.sections import Section
from agentbench.analysis import analyze
from agentbench.analysis._text import value

if TYPE_CHECKING:
    from agentbench._core import Run
    from agentbench.analysis import Answer

DOTS_PER_INCH = 110
HEADLINE = ("", "over", "published", "value")
MOST_ROWS = 200
"""Rows of a table that the page shows; `agentbench analyze --csv` writes them all."""


def answers_html(run: Run) -> str:
    """Return a section with every question's answer."""
    answers = analyze(run)
    return (
        '<section id="questions"><h2>Questions asked of the recording</h2>'
        f'<div class="answers">{"".join(_answer(answer) for answer in answers.values())}</div></section>'
    )


def _answer(answer: Answer) -> str:
    subtitle = f'<p class="of">{escape(answer.subtitle)}</p>' if answer.subtitle else ""
    # A figure bears the finding as its title.
    finding = f'<p class="finding">{escape(answer.finding)}</p>' if answer.finding and answer.draw is None else ""
    rows = tuple(
        (line.name, line.condition, line.published or "", f"{value(line.value)} {line.unit}".strip())
        for line in answer.headline
    )
    headline = section_html(Section("", rows, HEADLINE, left=3)) if rows else ""
    said = "".join(
        f'<p class="note">{word}: {escape(line)}</p>'
        for word, lines in (("missing", answer.missing), ("note", answer.notes))
        for line in lines
    )
    return (
        f'<article data-question="{escape(answer.name)}"><h3>{escape(answer.title)}</h3>{subtitle}{finding}'
        f"{_figure(answer)}{headline}{said}{_tables(answer)}</article>"
    )


def _figure(answer: Answer) -> str:
    if answer.draw is None:
        return ""
    image = io.BytesIO()
    answer.figure().savefig(image, format="png", dpi=DOTS_PER_INCH)
    data = base64.b64encode(image.getvalue()).decode()
    alt = escape(answer.finding or answer.title)
    return f'<div class="scroll"><img alt="{alt}" src="data:image/png;base64,{data}"></div>'


def _tables(answer: Answer) -> str:
    sections = []
    for name, frame in answer.tables.items():
        rows = tuple(tuple(value(cell) for cell in row) for row in frame.head(MOST_ROWS).itertuples(index=False))
        notes = (f"The first {MOST_ROWS} of {len(frame)} rows.",) if len(frame) > MOST_ROWS else ()
        columns = tuple(str(column).replace("_", " ") for column in frame.columns)
        if rows:
            sections.append(section_html(Section(name.replace("_", " "), rows, columns, notes)))
    if not sections:
        return ""
    return f'<details class="table"><summary>tables</summary>{"".join(sections)}</details>'
