"""The command that a capture runs: pointed at the proxy, waited for, ended with the capture."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from agentbench import AgentbenchError, engine_info, harness

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agentbench._types import EngineInfo

GRACE_SECONDS = 5.0


@dataclass(frozen=True)
class Pointed:
    """A command and its environment, pointed at the proxy.

    ``added`` tells what was set beyond the base URLs: names and values, and arguments.
    """

    command: list[str]
    environment: dict[str, str]
    added: list[str]


def point(command: Sequence[str], url: str, upstream: str, token: str | None = None) -> Pointed:
    """Point a command at the proxy: every known base URL, and what a known agent needs besides.

    What this process's environment has already is the user's own choice and stays, but for base URLs, and for keys
    where the proxy wants its token in their place.
    """
    urls = {"ANTHROPIC_BASE_URL": url, "OPENAI_BASE_URL": f"{url}/v1", "OPENAI_API_BASE": f"{url}/v1"}
    if token is not None:
        urls |= {"ANTHROPIC_API_KEY": token, "OPENAI_API_KEY": token}
    agent = harness.of_program(command[0])
    info = None if agent is None else _engine(upstream)
    if agent is None or info is None or info["model"] is None:
        return Pointed(list(command), os.environ | urls, [])
    limits = harness.Limits(context_tokens=info["max_model_len"])
    variables = agent.pointing(url, info["model"], limits)
    new = {name: value for name, value in variables.items() if name not in os.environ and name not in urls}
    arguments = agent.pointing_arguments(url, info["model"], command[1:])
    return Pointed(
        [command[0], *arguments, *command[1:]],
        os.environ | new | urls,
        [*(f"{name}={value}" for name, value in sorted(new.items())), *arguments],
    )


def _engine(upstream: str) -> EngineInfo | None:
    """Return what the engine tells, None when it tells no context length: a gateway, which may serve many models."""
    try:
        info = engine_info(upstream)
    except (AgentbenchError, OSError):
        return None
    return info if info["max_model_len"] is not None else None


def start(pointed: Pointed) -> subprocess.Popen[bytes]:
    """Start the command. Its input and output are this process's own."""
    try:
        return subprocess.Popen(pointed.command, env=pointed.environment)  # noqa: S603 the user's own command
    except OSError as error:
        name = pointed.command[0]
        raise click.UsageError(f"cannot run {name!r}: {error.strerror}; check the command after --") from error


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
