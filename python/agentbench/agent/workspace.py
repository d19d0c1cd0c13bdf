"""What a task's agent works in: a folder, and a shell that is kept to it."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from agentbench._collect.sandbox import INSIDE

from .paths import Root

if TYPE_CHECKING:
    from pathlib import Path

    from .sandbox import Shell

SHELL_SECONDS = 30.0


@dataclass(frozen=True)
class Workspace:
    """A task's folder and shell, for tools that work in it.

    Attributes
    ----------
    path
        The folder on this machine.
    shell
        Runs commands in it, in the sandbox.
    shell_timeout_s
        Seconds that a command may take.
    stop
        Set when the agent is to end: what runs is ended.
    """

    __module__ = "agentbench"

    path: Path
    shell: Shell = field(repr=False)
    shell_timeout_s: float = SHELL_SECONDS
    stop: threading.Event = field(default_factory=threading.Event, repr=False)

    @property
    def files(self) -> Root:
        """Its files, by paths that cannot lead outside."""
        return Root(self.path, (INSIDE,))
