"""Any other agent: a command line with places for the task, the work tree, the proxy and the model."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

from .base import DUMMY_KEY, NO_LIMITS, Harness, Limits, clean_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

PLACES = {"task", "workdir", "base_url", "model"}
_PLACE = re.compile(r"\{([a-z_]+)\}")
BASE_URL_VARIABLE = "AGENTBENCH_BASE_URL"
MODEL_VARIABLE = "AGENTBENCH_MODEL"


class Command(Harness):
    """A command line of the user's own.

    Parameters
    ----------
    text
        Split as a shell splits; then ``{task}``, ``{workdir}``, ``{base_url}`` and ``{model}`` are filled in.

    Raises
    ------
    ValueError
        It is empty, lacks ``{task}``, or names another place.
    """

    name = "command"
    variable = "AGENTBENCH_COMMAND"
    install = "install the program that the command line names"
    api = "chat"
    caps_turns = False

    def __init__(self, text: str) -> None:
        self._words = shlex.split(text)
        if not self._words:
            raise ValueError("an empty command line")
        named = {name for word in self._words for name in _PLACE.findall(word)}
        if named - PLACES:
            raise ValueError(f"it names {{{min(named - PLACES)}}}, which is no place")
        if "task" not in named:
            raise ValueError("it has no {task}")
        self.program = self._words[0]

    def find(self) -> Path | None:
        """Return the program that the command line names."""
        found = shutil.which(Path(self.program).expanduser() if "/" in self.program else self.program)
        return Path(found).absolute() if found else None

    def version(self, binary: Path) -> str | None:
        """Return None: what an unknown program does with an option is unknown."""
        del binary
        return None

    def pointing(self, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Return every base URL that is widely known, and both places by name."""
        del limits
        return {
            "ANTHROPIC_BASE_URL": base_url,
            "OPENAI_BASE_URL": f"{base_url}/v1",
            "OPENAI_API_BASE": f"{base_url}/v1",
            BASE_URL_VARIABLE: base_url,
            MODEL_VARIABLE: model,
        }

    def prepare(self, home: Path, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Return the environment; what files the command needs is for the user."""
        keys = {"ANTHROPIC_API_KEY": DUMMY_KEY, "OPENAI_API_KEY": DUMMY_KEY}
        return clean_environment(home) | self.pointing(base_url, model, limits) | keys

    def command(
        self, binary: Path, task: str, workdir: Path, *, environment: Mapping[str, str], max_turns: int | None
    ) -> list[str]:
        """Return the command line, filled in."""
        self._refuse_turns(max_turns)
        filled = {
            "task": task,
            "workdir": str(workdir),
            "base_url": environment.get(BASE_URL_VARIABLE, ""),
            "model": environment.get(MODEL_VARIABLE, ""),
        }
        return [str(binary), *(_PLACE.sub(lambda place: filled[place[1]], word) for word in self._words[1:])]
