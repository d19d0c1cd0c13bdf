"""A status on stderr: redrawn in place on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from enum import Enum
from typing import TYPE_CHECKING, Protocol, Self, TypeVar

from rich.live import Live

from .console import messages

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from rich.console import RenderableType

PLAIN_SECONDS = 10.0
REFRESH_SECONDS = 0.2
P_co = TypeVar("P_co", covariant=True)


class Going(Protocol[P_co]):
    """What runs by itself once it was started."""

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        ...

    def progress(self) -> P_co:
        """How far it is."""
        ...


class Shown(Enum):
    """How much is shown of a running thing."""

    VIEW = "view"
    """Drawn on a terminal, lines elsewhere."""
    LINES = "lines"
    """Lines where there is no terminal: one that there is belongs to somebody else."""
    NOTHING = "nothing"


class Status:
    """Show how a running thing is doing; a context manager."""

    def __init__(self, shown: Shown = Shown.VIEW) -> None:
        self._console = messages()
        self._draws = self._console.is_terminal and shown is Shown.VIEW
        self._writes = not self._console.is_terminal and shown is not Shown.NOTHING
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._next_line = time.monotonic() + PLAIN_SECONDS

    def __enter__(self) -> Self:
        if self._draws:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._draws:
            self._live.stop()

    def show(self, drawn: RenderableType, line: str) -> None:
        """Show the state as something drawn, or as a line where nothing can be redrawn."""
        if self._draws:
            self._live.update(drawn, refresh=True)
        elif self._writes and time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + PLAIN_SECONDS
            self._console.print(line, soft_wrap=True, markup=False)

    def note(self, told: str) -> None:
        """Print a line that stays: above what is drawn, or after the lines so far."""
        self._console.print(told, soft_wrap=True, markup=False)

    def rest(self) -> None:
        """Wait until the next look."""
        time.sleep(REFRESH_SECONDS)

    def looks(self, going: Going[P_co]) -> Iterator[P_co]:
        """How it goes, look after look, and once more when it is done: much may have come since the look before."""
        is_done = False
        while not is_done:
            is_done = going.done
            yield going.progress()
            if not is_done:
                self.rest()
