"""The questions of ``agentbench analyze`` as HTML: each with its figure, headline and tables.

They stand on the page of a recording, and are a page of their own.
"""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from agentbench._report.charts.figures import charts_of
from agentbench._report.html.parts import charts_html, page, section_html
from agentbench._report.sections import Section
from agentbench.analysis._text import value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from agentbench.analysis import Answer, Headline

MOST_ROWS = 200
"""Rows of a table that the page shows; `agentbench analyze --csv` writes them all."""


def answers_page(answers: Sequence[Answer], manifests: Mapping[str, dict[str, Any]]) -> str:
    """Return a page of its own with these answers, which are of runs with these manifests."""
    contents = [(f"question-{answer.name}", answer.name) for answer in answers]
    title = " · ".join(manifests) or " · ".join(answer.title for answer in answers)
    together = f"{len(manifests)} runs, asked together" if len(manifests) > 1 else ""
    headline = f'<p class="headline">{escape(together)}</p>' if together else ""
    head = (
        f'<header>{"".join(_ribbons(manifests))}<p class="kind">agentbench analyze</p><h1>{escape(title)}</h1>'
        f"{headline}</header>"
    )
    return page(f"agentbench analyze: {title}", [head, _answers(answers)], contents)


def _ribbons(manifests: Mapping[str, dict[str, Any]]) -> Iterator[str]:
    """Yield which runs are no measurement, in words that stand on top."""
    simulated = [name for name, manifest in manifests.items() if (manifest.get("engine") or {}).get("simulated")]
    synthetic = [name for name, manifest in manifests.items() if manifest["synthetic"] and name not in simulated]
    for label, names in (
        ("SIMULATED, no figure of it says anything about any hardware", simulated),
        ("SYNTHETIC, made up after published statistics", synthetic),
    ):
        if names:
            yield f'<p class="ribbon">{label}: {escape(", ".join(names))}</p>'


def questions_html(answers: Sequence[Answer]) -> str:
    """Return a section with every question's answer."""
    return f'<section id="questions"><h2>Questions asked of the recording</h2>{_answers(answers)}</section>'


def _answers(answers: Sequence[Answer]) -> str:
    return f'<div class="answers">{"".join(map(_answer, answers))}</div>'


def _answer(answer: Answer) -> str:
    finding = f'<p class="finding">{escape(answer.finding)}</p>' if answer.finding else ""
    subtitle = f'<p class="of">{escape(answer.subtitle)}</p>' if answer.subtitle else ""
    said = "".join(
        f'<p class="note">{word}: {escape(line)}</p>'
        for word, lines in (("missing", answer.missing), ("note", answer.notes))
        for line in lines
    )
    charts = charts_html(charts_of(answer.figure(), answer.name)) if answer.draw is not None else ""
    return (
        f'<article id="question-{escape(answer.name)}" data-question="{escape(answer.name)}">'
        f"<h3>{escape(answer.title)}</h3>{finding}{subtitle}{charts}{_headline(answer)}{said}{_tables(answer)}</article>"
    )


def _headline(answer: Answer) -> str:
    rows = [(line.name, line.condition, line.published or "", _figure(line)) for line in answer.headline]
    if not rows:
        return ""
    if any(published for _, _, published, _ in rows):
        return section_html(Section("", tuple(rows), ("", "over", "published", "value"), left=3))
    return section_html(
        Section("", tuple((name, over, it) for name, over, _, it in rows), ("", "over", "value"), left=2)
    )


def _figure(line: Headline) -> str:
    # What is not known has no unit.
    return value(line.value) if line.value is None else f"{value(line.value)} {line.unit}".strip()


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
