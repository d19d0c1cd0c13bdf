"""A document on a terminal or in a pipe. Colour never carries meaning, and no number is cut."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

    from agentbench._report.sections import Document, Flag, Section

GAP = 2


def drawn(document: Document) -> RenderableType:
    """Return a document, flags on top."""
    parts: list[RenderableType] = [Text(document.headline, style="bold")]
    parts += [_flag(flag) for flag in document.flags]
    for section in document.sections:
        parts += [Text(), *_section(section)]
    return Group(*parts)


@dataclass(frozen=True)
class Rows:
    """A section's rows as a table: headings and texts are wrapped where it is too narrow, numbers never.

    Where not even that fits, its lines are longer than the terminal is wide: print it with ``crop=False``.
    """

    section: Section

    def __rich_console__(self, _console: Console, options: ConsoleOptions) -> RenderResult:
        section = self.section
        columns = section.columns or ("", "")
        table = Table(box=None, pad_edge=False, show_header=bool(section.columns))
        needed = -GAP
        for index, heading in enumerate(columns):
            left = not section.columns or index < section.left
            width = max((_longest_word(row[index]) for row in section.rows), default=0) if section.columns else 0
            needed += width + GAP
            table.add_column(Text(heading), justify="left" if left else "right", overflow="fold", min_width=width)
        for row in section.rows:
            table.add_row(*[Text(cell) for cell in row])
        if needed > options.max_width:
            table.width = needed
        yield table


def _longest_word(text: str) -> int:
    return max((len(word) for word in text.split()), default=0)


def _flag(flag: Flag) -> Text:
    style = "bold red" if flag.grave else "yellow"
    return Text.assemble((f"! {flag.name}: ", style), flag.text)


def _section(section: Section) -> Iterable[RenderableType]:
    if section.title:
        yield Text(section.title, style="bold")
    if section.rows:
        yield Rows(section)
    yield from (Text(note) for note in section.notes)
