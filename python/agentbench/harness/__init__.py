"""Coding agents as harnesses: how each is found, pointed at a proxy, given a task and judged.

One file per agent; ``agentbench capture -- COMMAND`` and ``agentbench collect`` share them. Starting the process,
its time limit and its sandbox are for the caller.

>>> from agentbench import harness
>>> agent = harness.get("claude-code")
>>> agent.api
'messages'
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from agentbench.exceptions import ConfigError

from .base import Ending, Harness, Limits
from .claude_code import ClaudeCode
from .codex import Codex
from .command import Command
from .mini_swe_agent import MiniSweAgent
from .opencode import OpenCode

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Ending", "Harness", "Limits", "get", "names", "of_program"]

_KNOWN: dict[str, Callable[[], Harness]] = {
    "claude-code": ClaudeCode,
    "codex": Codex,
    "opencode": OpenCode,
    "mini-swe-agent": MiniSweAgent,
}


def names() -> tuple[str, ...]:
    """Return the names of the agents that are known."""
    return tuple(_KNOWN)


def get(name_or_command: str) -> Harness:
    """Return the harness of an agent.

    Parameters
    ----------
    name_or_command
        One of `names`, or a command line with ``{task}``, and where it needs them ``{workdir}``, ``{base_url}``
        and ``{model}``. It is split as a shell splits, and then filled in; no shell runs it.

    Raises
    ------
    ConfigError
        It is neither.
    """
    known = _KNOWN.get(name_or_command)
    return known() if known is not None else _command(name_or_command)


def of_program(program: str) -> Harness | None:
    """Return the harness whose program has this name or path, None when it is no known agent's."""
    name = program.rpartition("/")[2]
    return next((agent for agent in map(get, _KNOWN) if agent.program == name), None)


def _command(text: str) -> Harness:
    try:
        return Command(text)
    except ValueError as error:
        known = ", ".join(_KNOWN)
        raise ConfigError(
            f"agent {text!r}: {error}; name one of {known}, or give a command line with {{task}} in it"
        ) from error
