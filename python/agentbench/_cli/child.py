"""The command that a capture runs: pointed at the proxy, waited for, ended with the capture."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

GRACE_SECONDS = 5.0


def point_at(url: str) -> dict[str, str]:
    """Return this process's environment with every known base URL pointing at the proxy."""
    return os.environ | {
        "ANTHROPIC_BASE_URL": url,
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_BASE": f"{url}/v1",
    }


def start(command: Sequence[str], url: str) -> subprocess.Popen[bytes]:
    """Start the command. Its input and output are this process's own."""
    try:
        return subprocess.Popen(command, env=point_at(url))  # noqa: S603 the user's own command
    except OSError as error:
        raise click.UsageError(f"cannot run {command[0]!r}: {error.strerror}; check the command after --") from error


def end(child: subprocess.Popen[bytes]) -> None:
    """End a command that still runs: it is asked, asked to terminate, then killed.

    A terminal's Ctrl-C has reached it already; one that was sent to this process alone has not.
    """
    for number in (None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if child.poll() is not None:
            return
        with contextlib.suppress(ProcessLookupError):
            if number is not None:
                child.send_signal(number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(1.0 if number is None else GRACE_SECONDS)
