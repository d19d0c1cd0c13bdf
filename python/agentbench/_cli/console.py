"""The two consoles and what is written to them in more than one verb.

rich honours ``NO_COLOR`` and ``COLUMNS``; colour never carries meaning.
"""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import TextIO

PIPE_COLUMNS = 140
"""Width of tables that no terminal limits."""


def _console(stream: TextIO, *, stderr: bool) -> Console:
    width = None if stream.isatty() or "COLUMNS" in os.environ else PIPE_COLUMNS
    # Names of sessions, models and paths are text: brackets in them are no markup.
    return Console(stderr=stderr, width=width, highlight=False, markup=False, emoji=False)


def results() -> Console:
    """Return the console for tables: stdout."""
    return _console(sys.stdout, stderr=False)


def messages() -> Console:
    """Return the console for progress, warnings and errors: stderr."""
    return _console(sys.stderr, stderr=True)


def print_error(message: str) -> None:
    """Print an error as one line on stderr."""
    _print_line("error", "bold red", message)


def print_warning(message: str) -> None:
    """Print a warning as one line on stderr."""
    _print_line("warning", "bold yellow", message)


def print_note(message: str) -> None:
    """Print a line of information on stderr."""
    messages().print(Text(" ".join(message.split())), soft_wrap=True)


def _print_line(kind: str, style: str, message: str) -> None:
    text = Text.assemble((f"{kind}: ", style), " ".join(message.split()))
    messages().print(text, soft_wrap=True)


def print_next(commands: Iterable[str]) -> None:
    """Print commands to try next, on stdout below a table."""
    console = results()
    console.print("next:")
    for command in commands:
        console.print(Text(f"  {command}"), soft_wrap=True)
