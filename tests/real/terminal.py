"""A program in a pseudo terminal, what its screen shows, and keys for it: how the tests use an interactive agent.

The screen is drawn by a terminal emulator, since such programs move the cursor about instead of printing lines.
Waits are for what the screen shows and end after a while; what to wait for is for the tests to say.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import struct
import subprocess
import termios
import threading
import time
from typing import TYPE_CHECKING

import pyte
import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

# So tall that nothing of a short session leaves the screen.
ROWS, COLUMNS = 150, 160
# Programs start slowly on a busy machine, and answers come slowly from its engine.
PATIENCE_S = 240.0
GRACE_S = 30.0


class Terminal:
    """A running program and its screen."""

    def __init__(self, command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> None:
        self._screen = pyte.Screen(COLUMNS, ROWS)
        self._lock = threading.Lock()
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.process = subprocess.Popen(
            command,
            cwd=cwd,
            env={"TERM": "xterm-256color", **environment},
            stdin=slave,
            stdout=slave,
            stderr=slave,
            start_new_session=True,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        stream = pyte.ByteStream(self._screen)
        # The end of a terminal whose program is gone is an error.
        with contextlib.suppress(OSError):
            while piece := os.read(self._master, 65536):
                with self._lock:
                    stream.feed(piece)

    def shown(self) -> str:
        """The lines of the screen that are not empty."""
        with self._lock:
            return "\n".join(row.rstrip() for row in self._screen.display if row.strip())

    def wait(self, what: str, condition: Callable[[str], bool]) -> None:
        """Returns once the screen meets a condition; fails with the screen."""
        deadline = time.monotonic() + PATIENCE_S
        while not condition(self.shown()):
            if time.monotonic() > deadline or self.process.poll() is not None:
                pytest.fail(f"no {what} on the screen (exit code {self.process.poll()}):\n{self.shown()}")
            time.sleep(0.1)

    def enter(self, line: str) -> None:
        """Types a line, sees that the program took it, and sends it."""
        os.write(self._master, line.encode())
        self.wait(f"{line!r} typed", lambda shown: line in shown)
        os.write(self._master, b"\r")

    def ended(self) -> int:
        """The exit code, once the program has ended."""
        try:
            return self.process.wait(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            pytest.fail(f"the program did not end:\n{self.shown()}")

    def close(self) -> None:
        """Ends the program and all of its session that did not end by itself."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if self.process.poll() is not None:
                break
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(timeout=GRACE_S)
        self._reader.join(timeout=GRACE_S)
        os.close(self._master)


@contextlib.contextmanager
def terminal(command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> Iterator[Terminal]:
    """A program in a terminal that is closed where the block ends."""
    running = Terminal(command, cwd, environment)
    try:
        yield running
    finally:
        running.close()
