"""Answers as text: tables and bars for a terminal, tables for HTML. Unknown is a dash, never 0 and never NaN."""

from __future__ import annotations

import io
from html import escape
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    import pandas as pd

    from .answer import Answer, Chart

UNKNOWN = "-"
ROWS_SHOWN = 25
"""Rows of a table that a terminal shows; the frame and its CSV have them all."""
BARS_SHOWN = 15
FEW_ROWS = 3
MANY_COLUMNS = 9
WHOLE_FROM = 1_000.0


def value(it: Any) -> str:
    """Return a value as people read it: counts whole with thousands apart, others by digits that matter."""
    if isinstance(it, str):
        return it
    if it is None or str(it) in {"nan", "<NA>", "inf", "-inf"}:
        return UNKNOWN
    if isinstance(it, bool):
        return "yes" if it else "no"
    number = float(it)
    if abs(number) >= WHOLE_FROM or not isinstance(it, float):
        return f"{number:,.0f}"
    return f"{number:.4g}" if abs(number) >= 1 else f"{number:.3g}"


def answer(it: Answer, width: int) -> str:
    """Return an answer for a terminal of that many columns."""
    out = io.StringIO()
    console = Console(file=out, width=width, highlight=False, markup=False, emoji=False, color_system=None)
    console.print(Text(it.title))
    if it.finding:
        console.print(Text(it.finding))
    if it.subtitle:
        console.print(Text(it.subtitle))
    if it.headline:
        console.print()
        console.print(_headline(it))
    main = next(iter(it.tables), None)
    for name, frame in it.tables.items():
        if len(frame):
            console.print()
            console.print(Text(name if name != main else it.name))
            console.print(_table(frame))
    # A table may lack the columns of what no run tells.
    if it.chart is not None and it.chart.value in it.tables[it.chart.table]:
        console.print()
        for line in _bars(it.tables[it.chart.table], it.chart, width):
            console.print(Text(line, no_wrap=True, overflow="ellipsis"))
    for word, lines in (("missing", it.missing), ("note", it.notes)):
        for line in lines:
            console.print(Text(f"{word}: {line}"))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _headline(it: Answer) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("", overflow="fold")
    table.add_column("value", justify="right", overflow="fold")
    for title in ("unit", "published", "over"):
        table.add_column(title, overflow="fold")
    for line in it.headline:
        table.add_row(line.name, value(line.value), line.unit, line.published or "", line.condition)
    return table


def _table(frame: pd.DataFrame) -> Table:
    if len(frame) <= FEW_ROWS and len(frame.columns) > MANY_COLUMNS:
        return _on_its_side(frame)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in frame.columns:
        is_text = frame[column].map(lambda it: isinstance(it, str)).any()
        # A heading that is too long breaks between its words.
        table.add_column(
            str(column).replace("_", " "), justify="left" if is_text else "right", overflow="fold", vertical="bottom"
        )
    for row in frame.head(ROWS_SHOWN).itertuples(index=False):
        table.add_row(*map(value, row))
    if len(frame) > ROWS_SHOWN:
        table.add_row(f"and {len(frame) - ROWS_SHOWN} more", *[""] * (len(frame.columns) - 1))
    return table


def _on_its_side(frame: pd.DataFrame) -> Table:
    """Few rows of many columns: a line for each column."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    first, *rest = frame.columns
    table.add_column(str(first).replace("_", " "))
    for it in frame[first]:
        table.add_column(value(it), justify="right", overflow="fold")
    for column in rest:
        table.add_row(str(column).replace("_", " "), *map(value, frame[column]))
    return table


def _bars(frame: pd.DataFrame, chart: Chart, width: int) -> list[str]:
    """Return a bar a row, the longest as wide as there is room."""
    rows = [
        (str(label), float(number))
        for label, number in zip(frame[chart.label], frame[chart.value], strict=True)
        if value(number) != UNKNOWN
    ][:BARS_SHOWN]
    most = max((number for _, number in rows), default=0.0)
    if most <= 0:
        return []
    room_for_label = min(max(len(label) for label, _ in rows), max(width // 3, 8))
    room = max(width - room_for_label - 14, 8)
    lines = [f"{chart.value.replace('_', ' ')} by {chart.label.replace('_', ' ')}"]
    for label, number in rows:
        bar = "█" * round(number / most * room) or ("▏" if number > 0 else "")
        lines.append(f"{label[:room_for_label]:<{room_for_label}} {bar} {value(number)}")
    return lines


def answer_html(it: Answer, picture: str = "") -> str:
    """Return headline, tables, what is missing and notes as HTML, with a picture below the headline where given."""
    parts = [f"<h3>{escape(it.title)}</h3>"]
    if it.finding:
        parts.append(f"<p><b>{escape(it.finding)}</b></p>")
    if it.subtitle:
        parts.append(f"<p>{escape(it.subtitle)}</p>")
    if it.headline:
        rows = [[line.name, line.value, line.unit, line.published or "", line.condition] for line in it.headline]
        parts.append(_table_html(["", "value", "unit", "published", "over"], rows))
    parts.append(picture)
    for name, frame in it.tables.items():
        if len(frame):
            columns = [str(column).replace("_", " ") for column in frame.columns]
            rows = [list(row) for row in frame.itertuples(index=False)]
            parts += [f"<h4>{escape(name.replace('_', ' '))}</h4>", _table_html(columns, rows)]
    for word, lines in (("missing", it.missing), ("note", it.notes)):
        parts += [f"<p><b>{word}:</b> {escape(line)}</p>" for line in lines]
    return "\n".join(filter(None, parts))


def _table_html(columns: list[str], rows: list[list[Any]]) -> str:
    """Words stand at the left and figures at the right, whatever the style of the page."""
    sides = ["left" if any(isinstance(row[at], str) for row in rows) else "right" for at in range(len(columns))]

    def cells(tag: str, texts: list[str]) -> str:
        aligned = zip(texts, sides, strict=True)
        return "".join(f'<{tag} style="text-align: {side}">{escape(text)}</{tag}>' for text, side in aligned)

    body = "".join(f"<tr>{cells('td', [value(it) for it in row])}</tr>" for row in rows)
    return f"<table><thead><tr>{cells('th', columns)}</tr></thead><tbody>{body}</tbody></table>"
