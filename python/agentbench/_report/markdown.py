"""A document as Markdown that GitHub shows as tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from agentbench._report.sections import Document, Section

SPECIAL = re.compile(r"[\\`*|~$\[\]]|<(?=[A-Za-z/!?])|(?<!\w)_|_(?!\w)")


def markdown(document: Document) -> str:
    """Return a document as Markdown."""
    blocks = [f"# {escaped(document.title)}", escaped(document.headline)]
    if document.flags:
        blocks.append("\n".join(f"- **{escaped(flag.name)}**: {escaped(flag.text)}" for flag in document.flags))
    blocks += [block for section in document.sections for block in _blocks(section)]
    return "\n\n".join(blocks) + "\n"


def escaped(text: str) -> str:
    """Return text as it reads, in one line: nothing of it is markup."""
    return SPECIAL.sub(r"\\\g<0>", " ".join(text.split()))


def _blocks(section: Section) -> list[str]:
    blocks = [f"## {escaped(section.title)}"] if section.title else []
    if section.rows:
        blocks.append("\n".join(_table(section)))
    return blocks + [escaped(note) for note in section.notes]


def _table(section: Section) -> Iterable[str]:
    columns = section.columns or ("", "")
    yield _row(columns)
    left = section.left if section.columns else len(columns)
    yield "|" + "|".join("---" if index < left else "---:" for index in range(len(columns))) + "|"
    yield from (_row(row) for row in section.rows)


def _row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(escaped(cell) for cell in cells) + " |"
