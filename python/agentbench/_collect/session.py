"""``sessions/<id>/session.json``: what came of one instance, and which instances are done.

A session is written as ``running`` before its agent starts, so one whose collector was killed is told from one that
ended.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING

from .files import write_json

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "sessions"
FILE = "session.json"
PATCH = "patch.diff"
DONE = "done"
TIMED_OUT = "timed_out"
FAILED = "failed"
INTERRUPTED = "interrupted"
RUNNING = "running"
# What a resumed run does not do again.
ENDED = (DONE, TIMED_OUT)


@dataclass(frozen=True)
class Session:
    """One instance, worked on by one agent. Times are in seconds since the Unix epoch, ``*_s`` in seconds.

    Attributes
    ----------
    instance_id, repository, commit
        What was worked on; the commit as a whole hash once it is known.
    session_id
        The name of the session in the run's tables: the instance's id, with the attempt behind it from the second on.
    attempt
        From 1; a resumed run does a broken instance again.
    agent, agent_version, model
        Who worked; the version is None where the agent tells none.
    sandbox
        ``bubblewrap``, ``container`` or ``none``.
    outcome
        ``done``, ``timed_out``, ``failed``, ``interrupted`` or ``running``.
    reason
        Why it is not done, in a line.
    start, end
        Of the agent's process.
    exit_code
        The agent's, negative for a signal; 124 when its time was over; None when it did not end by itself.
    turns, isl, osl, isl_cached
        Requests that became rows, and sums of their tokens; None where no response told its usage.
    model_s, tool_s, idle_s
        The time between start and end: while a request was open; while no request was open and a tool call waited
        for its result; the rest.
    patch_bytes
        Length of ``patch.diff``; None where there is none.
    patch_error
        What could not be taken into the patch, as git says it; None when all was.
    cache_reset
        Whether the engine's cache was emptied before it; None where that was not asked for.
    """

    instance_id: str
    repository: str
    commit: str
    session_id: str
    attempt: int
    agent: str
    agent_version: str | None
    model: str
    sandbox: str
    outcome: str = RUNNING
    reason: str | None = None
    start: float | None = None
    end: float | None = None
    exit_code: int | None = None
    turns: int | None = None
    isl: int | None = None
    osl: int | None = None
    isl_cached: int | None = None
    model_s: float | None = None
    tool_s: float | None = None
    idle_s: float | None = None
    patch_bytes: int | None = None
    patch_error: str | None = None
    cache_reset: bool | None = None

    @property
    def ended(self) -> bool:
        """Whether a resumed run leaves it as it is."""
        return self.outcome in ENDED

    def write(self, folder: Path) -> None:
        """Write it into its folder."""
        write_json(folder / FILE, asdict(self))


def folder_of(run: Path, instance_id: str) -> Path:
    """Return the folder of an instance in a run directory."""
    return run / FOLDER / instance_id


def read(run: Path, instance_id: str) -> Session | None:
    """Return what came of an instance; None when it was not begun, or its file is damaged."""
    try:
        value = json.loads((folder_of(run, instance_id) / FILE).read_bytes())
        return Session(**{name: value[name] for name in NAMES if name in value})
    except (OSError, ValueError, TypeError):
        return None


NAMES = [field.name for field in fields(Session)]
