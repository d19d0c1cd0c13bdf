"""What an import shows while it goes: a bar with what is done on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import re
import threading
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from rich.console import Console

from agentbench._cli import import_, live

if TYPE_CHECKING:
    from collections.abc import Iterator

COUNTS = {
    "pieces": 1_200,
    "pieces_done": 345,
    "turns": 12_345,
    "tool_calls": 23_456,
    "problems": 0,
    "bytes": 2_570_000_000,
    "bytes_read": 642_500_000,
}


class Going:
    """An import whose counts are given, one look after another; the last one ends it."""

    def __init__(self, *looks: dict[str, int]) -> None:
        self.ended = threading.Event()
        self._looks: Iterator[dict[str, int]] = iter(looks)
        self._left = len(looks)

    def read(self) -> dict[str, int]:
        self._left -= 1
        if not self._left:
            self.ended.set()
        return next(self._looks)


def shown(monkeypatch: pytest.MonkeyPatch, looks: list[dict[str, int]], *, width: int, terminal: bool) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, height=20, force_terminal=terminal, color_system=None)
    monkeypatch.setattr(live, "messages", lambda: console)
    monkeypatch.setattr(live, "PLAIN_SECONDS", 0.0)
    monkeypatch.setattr(import_, "REFRESH_SECONDS", 0.0)
    going = Going(*looks)
    import_._watch(going, going.ended)  # type: ignore[arg-type]
    return file.getvalue()


@pytest.mark.parametrize("width", [60, 100])
def test_a_bar_fits_its_terminal(monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    drawn = shown(monkeypatch, [COUNTS], width=width, terminal=True)
    lines = [re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", line) for line in re.split(r"[\r\n]+", drawn)]
    bar, counts = next(pair for pair in pairwise(lines) if "sources" in pair[1])
    assert len(bar) <= width
    assert bar.split() == ["importing", bar.split()[1], "25%", "642", "of", "2,570", "MB", "--:--"]
    assert set(bar.split()[1]) <= set("━╸╺")
    assert counts.strip() == "345 of 1,200 sources, 12,345 turns, 23,456 tool calls"[:width]


def test_lines_tell_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    looks = [COUNTS | {"pieces": 0}, COUNTS, COUNTS | {"problems": 2, "bytes_read": 2_570_000_000}]
    drawn = shown(monkeypatch, looks, width=40, terminal=False)
    assert drawn.splitlines() == [
        "importing: looking at the sources",
        "importing: 345 of 1,200 sources, 12,345 turns, 23,456 tool calls, 642 of 2,570 MB read",
        "importing: 345 of 1,200 sources, 12,345 turns, 23,456 tool calls, 2 records left out, 2,570 of 2,570 MB read",
    ]
