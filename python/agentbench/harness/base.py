"""What every harness is: the interface, the cleaned environment, and the judging that all share."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .own_logs import OwnLogs, SeenSession

DUMMY_KEY = "sk-dummy-no-secret"
VERSION_SECONDS = 30.0
MAX_REASON_CHARS = 300
# What an agent may see of this process's environment: how to find programs, and language and clock.
KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ", "TMPDIR")
_VERSION = re.compile(r"\d+\.\d+\.\d+(?:[.+-]?\w+)*")


@dataclass(frozen=True)
class Ending:
    """How a session of an agent came to its end.

    Attributes
    ----------
    ok
        The agent says that it finished.
    reason
        Why not, in a line; None when it is ok.
    """

    ok: bool
    reason: str | None = None


@dataclass(frozen=True)
class Limits:
    """What the model behind the engine can take, for agents that do not ask it.

    Attributes
    ----------
    context_tokens
        Length of the model's context, in tokens; None leaves the agent's own idea.
    output_tokens
        Most tokens that a request may ask for; None leaves the agent's own idea.
    """

    context_tokens: int | None = None
    output_tokens: int | None = None


NO_LIMITS = Limits()


class Harness(ABC):
    """One coding agent: how it is found, pointed at a proxy, given a task and judged.

    A harness keeps nothing of a session: one may serve many at once.

    Attributes
    ----------
    name
        ``claude-code``, ``codex``, ``opencode``, ``mini-swe-agent`` or ``command``.
    program
        Name of its binary.
    variable
        Environment variable that names the binary, before PATH is looked at.
    install
        Command that installs it.
    api
        The API that it speaks: ``messages``, ``responses`` or ``chat``.
    caps_turns
        Whether ``max_turns`` of `command` can be given.
    """

    name: ClassVar[str]
    program: str
    variable: ClassVar[str]
    install: ClassVar[str]
    api: ClassVar[str]
    caps_turns: ClassVar[bool] = True
    places: ClassVar[tuple[str, ...]] = ()

    def find(self) -> Path | None:
        """Return the agent's binary: the one that `variable` names, one on PATH, or one where it is installed."""
        given = os.environ.get(self.variable)
        if given:
            found = shutil.which(Path(given).expanduser())
            return Path(found).absolute() if found else None
        places = [str(Path(place).expanduser()) for place in ("~/.local/bin", "~/.npm-global/bin", *self.places)]
        found = shutil.which(self.program) or shutil.which(self.program, path=os.pathsep.join(places))
        return Path(found).absolute() if found else None

    def version(self, binary: Path) -> str | None:
        """Return the version that the binary tells, None when it tells none within half a minute."""
        return self._version_told(binary, ["--version"])

    @abstractmethod
    def pointing(self, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Return the variables that point the agent at a proxy, with hints on and nothing else changed.

        `prepare` has them too; ``capture -- COMMAND`` adds them to the user's own environment.
        """

    def pointing_arguments(self, base_url: str, model: str, given: Sequence[str] = ()) -> list[str]:
        """Return arguments that must follow the binary for what variables cannot tell; none against those `given`."""
        del base_url, model, given
        return []

    @abstractmethod
    def prepare(self, home: Path, base_url: str, model: str, limits: Limits = NO_LIMITS) -> dict[str, str]:
        """Lay out a scratch HOME and return the whole environment of an unattended session.

        Parameters
        ----------
        home
            The HOME of this one session; configuration files are written below it.
        base_url
            The proxy, with a session prefix where it has one, without ``/v1``.
        model
            The engine's name of the model.
        limits
            What the model can take.

        Returns
        -------
        dict of str to str
            Nothing is inherited but PATH, language and clock: the key is a dummy, telemetry and self-update are off.
        """

    @abstractmethod
    def command(
        self, binary: Path, task: str, workdir: Path, *, environment: Mapping[str, str], max_turns: int | None
    ) -> list[str]:
        """Return the command line that gives the agent a task, unattended. It is to be run in ``workdir``.

        Parameters
        ----------
        binary
            What `find` returned.
        task
            The prompt.
        workdir
            The work tree.
        environment
            What `prepare` returned.
        max_turns
            The agent ends after that many; None sets no limit.

        Raises
        ------
        ValueError
            A limit was given that the agent does not know; see `caps_turns`.
        """

    def logs(self, home: Path) -> list[Path]:
        """Return the agent's own log files of a session, which lie below its HOME."""
        del home
        return []

    def logs_of(self, session: SeenSession, environment: Mapping[str, str]) -> OwnLogs | None:
        """Return the agent's own logs of one session, out of a HOME that holds others too.

        Parameters
        ----------
        session
            The session as it was recorded.
        environment
            The environment in which the agent ran.

        Returns
        -------
        OwnLogs or None
            None where none can be told to be this session's.
        """
        del session, environment
        return None

    def judge(self, exit_code: int | None, stdout: bytes) -> Ending:
        """Say how a session ended.

        Parameters
        ----------
        exit_code
            The process's; negative for a signal, None when it was ended from outside.
        stdout
            What it printed, or the end of that.
        """
        return self._judge_output(stdout) or judge_exit(exit_code)

    def _judge_output(self, stdout: bytes) -> Ending | None:
        """Return a failure that the output tells, whatever the exit code."""
        del stdout
        return None

    def _version_told(self, binary: Path, arguments: Sequence[str], **variables: str) -> str | None:
        # Some write files as soon as they start: those are not to lie in the user's HOME.
        with tempfile.TemporaryDirectory(prefix="agentbench-") as home:
            try:
                result = subprocess.run(  # noqa: S603 a program of the user's own PATH
                    [binary, *arguments],
                    env=clean_environment(Path(home)) | variables,
                    stdin=subprocess.DEVNULL,
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=VERSION_SECONDS,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired):
                return None
        found = _VERSION.search(result.stdout)
        return found[0] if found else None

    def _refuse_turns(self, max_turns: int | None) -> None:
        if max_turns is not None:
            raise ValueError(f"{self.name} cannot cap its turns")


def clean_environment(home: Path) -> dict[str, str]:
    """Return what every session's environment begins with."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {"LANG": "C.UTF-8", "TERM": "dumb"} | kept | {"HOME": str(home)}


def folder_of(environment: Mapping[str, str], variable: str, below_home: str) -> Path:
    """Return a folder of an agent: where a variable says, else the usual place below HOME."""
    given = environment.get(variable)
    return Path(given) if given else Path(environment.get("HOME") or Path.home()) / below_home


def judge_exit(exit_code: int | None) -> Ending:
    """Say how a process ended by its exit code alone."""
    if exit_code == 0:
        return Ending(ok=True)
    if exit_code is None:
        return Ending(ok=False, reason="ended from outside before it finished")
    if exit_code < 0:
        return Ending(ok=False, reason=f"killed by {_signal_name(-exit_code)}")
    return Ending(ok=False, reason=f"exit code {exit_code}")


def failure(text: str) -> Ending:
    """Return a failure with the first line of a text as its reason."""
    lines = text.strip().splitlines()
    return Ending(ok=False, reason=lines[0][:MAX_REASON_CHARS] if lines else "failed without a word")


def json_lines(stdout: bytes) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects among the lines that an agent printed; a cut line is none."""
    for line in stdout.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
