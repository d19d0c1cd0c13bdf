"""An agent's own logs of the sessions that a capture saw, and of no others: a user's HOME holds many.

Which files are a session's is for each agent's file to say. Here is what they share: what is known of a session, and
how a log's name is compared with it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@dataclass(frozen=True)
class SeenSession:
    """A session as the recording has it.

    Attributes
    ----------
    session_id
        Its name in the tables: the agent's own where it sends one.
    tokens
        Prompt and output tokens of each turn, in the order of the requests; None where no response told them.
    """

    session_id: str
    tokens: list[tuple[int | None, int | None]] = field(default_factory=list)


@dataclass(frozen=True)
class OwnLogs:
    """Logs of one session.

    Attributes
    ----------
    root
        The folder of the agent; the files' names below it are kept.
    files
        Logs of this session alone, to be copied as they are.
    extracts
        Name and text of what was taken out of a file that holds other sessions too.
    """

    root: Path
    files: list[Path] = field(default_factory=list)
    extracts: dict[str, str] = field(default_factory=dict)

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.files or self.extracts)


def first_object(path: Path) -> dict[str, Any]:
    """Return the object in the first line of a JSON-lines file; an empty one where there is none."""
    try:
        with path.open("rb") as file:
            value = json.loads(file.readline())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def objects(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON-lines file, as far as it can be read."""
    try:
        with path.open("rb") as file:
            for line in file:
                value = json.loads(line)
                if isinstance(value, dict):
                    yield value
    except (OSError, ValueError):
        return


def lines(values: Iterable[dict[str, Any]]) -> str:
    """Return objects as JSON lines."""
    return "".join(json.dumps(value, ensure_ascii=False) + "\n" for value in values)
