"""What a report is made of before anybody draws it: flags, then sections of rows of text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType


@dataclass(frozen=True)
class Flag:
    """Something that a reader must know before any figure. A grave one keeps figures from being used as they are."""

    name: str
    text: str
    grave: bool = False


@dataclass(frozen=True)
class Section:
    """A table. Without `columns` it is a list of names and values. The first `left` columns hold text."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    left: int = 1


@dataclass(frozen=True)
class Document:
    """A title, a headline, what a reader must know first, and sections."""

    title: str
    headline: str
    flags: tuple[Flag, ...]
    sections: tuple[Section, ...]

    def to_markdown(self) -> str:
        """Return it as Markdown, flags on top."""
        from agentbench._report.markdown import markdown  # noqa: PLC0415 the renderers know this module

        return markdown(self)

    def _repr_markdown_(self) -> str:
        return self.to_markdown()

    def __rich__(self) -> RenderableType:
        from agentbench._report.terminal import drawn  # noqa: PLC0415 rich is loaded where something is drawn

        return drawn(self)

    def __str__(self) -> str:
        return self.to_markdown()
