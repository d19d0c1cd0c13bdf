"""A status on stderr: redrawn in place on a terminal, a plain line now and then elsewhere."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Self

from rich.live import Live

from .console import messages

if TYPE_CHECKING:
    from types import TracebackType

    from rich.console import RenderableType

PLAIN_SECONDS = 10.0
REFRESH_SECONDS = 0.2


class Status:
    """Show how a running thing is doing; a context manager."""

    def __init__(self) -> None:
        self._console = messages()
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._next_line = time.monotonic() + PLAIN_SECONDS

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._console.is_terminal:
            self._live.stop()

    def show(self, drawn: RenderableType, line: str) -> None:
        """Show the state as something drawn, or as a line where nothing can be redrawn."""
        if self._console.is_terminal:
            self._live.update(drawn, refresh=True)
        elif time.monotonic() >= self._next_line:
            self._next_line = time.monotonic() + PLAIN_SECONDS
            self._console.print(line, soft_wrap=True, markup=False)

    def rest(self) -> None:
        """Wait until the next look."""
        time.sleep(REFRESH_SECONDS)
