"""The own logs of an agent that a capture ran: copied into ``sessions/<id>/logs``, and what is told of that."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING
from urllib.parse import quote

from agentbench import harness
from agentbench._collect import logs
from agentbench.harness.own_logs import SeenSession

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from agentbench import Run

FOLDER = "sessions"
LOGS = "logs"
_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")


def keep(run: Run, program: str, environment: Mapping[str, str], *, redacted: bool) -> str | None:
    """Copy the logs of the sessions in a run; return a line on it, None where the program is no known agent's."""
    agent = harness.of_program(program)
    if agent is None:
        return None
    if redacted:
        return f"{agent.name}'s own logs are not copied: nothing in them would be masked"
    sessions = seen(run)
    kept = [session for session in sessions if _keep_one(agent, session, environment, run.path)]
    if not sessions:
        return None
    if not kept:
        return f"no log of {agent.name}'s own was found for what was recorded"
    where = run.path / FOLDER
    of_them = "" if len(kept) == len(sessions) else f" of {len(sessions)}"
    return f"{agent.name}'s own logs of {len(kept)}{of_them} session{'s' * (len(sessions) > 1)}: {where}/*/{LOGS}"


def seen(run: Run) -> list[SeenSession]:
    """Return the sessions of a run with the token counts of their turns."""
    sessions: dict[str, SeenSession] = {}
    for name, isl, osl in run._turn_tokens():  # noqa: SLF001 made for this
        sessions.setdefault(name, SeenSession(name)).tokens.append((isl, osl))
    return list(sessions.values())


def _keep_one(agent: harness.Harness, session: SeenSession, environment: Mapping[str, str], run: Path) -> bool:
    own = agent.logs_of(session, environment)
    if not own:
        return False
    name = session.session_id
    folder = run / FOLDER / (name if _PLAIN.fullmatch(name) else f"_{quote(name, safe='')}") / LOGS
    kept = logs.copy(own.files, own.root, folder)
    for file, text in own.extracts.items():
        folder.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(folder / file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, logs.OWN_EYES), "wb") as sink:
            sink.write(text.encode())
        kept += 1
    return kept > 0
