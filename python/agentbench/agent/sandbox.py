"""Where an agent's commands run: bubblewrap, a container, or nothing around them where the user says so.

In a sandbox a command has no network, and nothing to write to but the workspace, at ``/testbed``, and a HOME and
/tmp of the workspace's own. Everywhere a command has limits of time, memory, processes and file size, and ends with
all that it started; its output is cut in the middle where it is long. How it is ended is ``_collect.supervisor``'s
affair.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from agentbench._collect import sandbox as places
from agentbench._collect.container import ContainerError, Engine
from agentbench._collect.process import Limits, run
from agentbench._collect.sandbox import INSIDE, Bubblewrap, Place, Unsandboxed
from agentbench._core import ConfigError

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Sequence

    from agentbench._collect.process import Exit

KINDS = ("auto", "bwrap", "docker", "podman", "none")
CONTAINERS = ("docker", "podman")
# With its registry, which podman does not guess.
IMAGE = "docker.io/library/python:3.12-slim"
IMAGE_VARIABLE = "AGENTBENCH_AGENT_IMAGE"
MEMORY_BYTES = 4 << 30
FILE_BYTES = 256 << 20
PROCESSES = 256
CPUS = 2
OUTPUT_BYTES = 64_000
PULL_SECONDS = 3600.0
TIMED_OUT = 124
ENVIRONMENT = {
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "LANG": "C.UTF-8",
    "TERM": "dumb",
    "PYTHONDONTWRITEBYTECODE": "1",
}


@dataclass(frozen=True)
class Result:
    """What a command came to.

    Attributes
    ----------
    exit_code
        Its own, negative for a signal; 124 when its time was over; None when it was ended otherwise.
    output
        What it wrote, errors among it; its middle is left out where it is long.
    ended
        ``exited``, ``timed_out``, ``exceeded`` (its limits) or ``interrupted``.
    reason
        Which limit it exceeded.
    seconds
        How long it took.
    """

    exit_code: int | None
    output: str
    ended: str
    reason: str | None
    seconds: float

    @property
    def in_words(self) -> str:
        """How it ended, for the model."""
        if self.ended == "timed_out":
            return f"ended at its time limit, after {self.seconds:.0f} s"
        if self.ended == "exceeded":
            return f"ended: {self.reason}"
        return "interrupted" if self.exit_code is None else f"exit code {self.exit_code}"


class Shell(ABC):
    """Runs commands in one workspace."""

    def __init__(self, place: Place) -> None:
        self.place = place

    def run(self, command: str, limit_s: float, stop: threading.Event, *, show: Sequence[Path] = ()) -> Result:
        """Run a command line to its end.

        Parameters
        ----------
        command
            For ``sh``.
        limit_s
            Seconds that it may take.
        stop
            Ends it when set.
        show
            More folders that it may read.
        """
        call, environment, cleanup = self.call(["sh", "-c", f"exec 2>&1\n{command}"], show)
        handle, name = tempfile.mkstemp(dir=self.place.private)
        os.close(handle)
        output = Path(name)
        try:
            ended = run(
                call,
                environment=environment,
                workdir=self.place.tree,
                stdout=output,
                stderr=output.with_name(f"{output.name}.err"),
                limit_s=limit_s,
                stop=stop,
                cleanup=cleanup,
                limits=self.limits(limit_s),
            )
            self.after(ended)
            told = _head_and_tail(output) + _head_and_tail(output.with_name(f"{output.name}.err"))
            return Result(ended.exit_code, told, ended.ended, ended.reason, ended.end - ended.start)
        finally:
            for path in (output, output.with_name(f"{output.name}.err")):
                path.unlink(missing_ok=True)

    @abstractmethod
    def call(
        self, command: Sequence[str], show: Sequence[Path]
    ) -> tuple[list[str], dict[str, str], Sequence[str] | None]:
        """Return what is started, its environment, and what cleans up after it when this process is killed."""

    def limits(self, limit_s: float) -> Limits | None:
        """Return the limits that the supervisor keeps."""
        return Limits(MEMORY_BYTES, FILE_BYTES, PROCESSES, limit_s)

    def after(self, ended: Exit) -> None:
        """Do what is left to do once a command has ended; nothing where the supervisor ends all that it started."""
        del ended


class _Bare(Shell):
    def call(
        self, command: Sequence[str], show: Sequence[Path]
    ) -> tuple[list[str], dict[str, str], Sequence[str] | None]:
        del show
        environment = ENVIRONMENT | {"PATH": os.environ.get("PATH", ENVIRONMENT["PATH"]), "HOME": str(self.place.home)}
        return *Unsandboxed().wrap(command, environment, self.place), None


class _Bubblewrapped(Shell):
    def __init__(self, place: Place, program: Path) -> None:
        super().__init__(place)
        self._program = program

    def call(
        self, command: Sequence[str], show: Sequence[Path]
    ) -> tuple[list[str], dict[str, str], Sequence[str] | None]:
        sandbox = Bubblewrap(self._program, None, show, sealed=True)
        return *sandbox.wrap(command, ENVIRONMENT | {"HOME": str(self.place.home)}, self.place), None


class _Contained(Shell):
    def __init__(self, place: Place, engine: Engine, name: str) -> None:
        super().__init__(place)
        self._engine, self._name = engine, name

    def call(
        self, command: Sequence[str], show: Sequence[Path]
    ) -> tuple[list[str], dict[str, str], Sequence[str] | None]:
        # What is shown was mounted when the container was made.
        del show
        variables = [
            part for name, value in ENVIRONMENT.items() if name != "PATH" for part in ("--env", f"{name}={value}")
        ]
        program = str(self._engine.program)
        call = [program, "exec", "--workdir", str(INSIDE), *variables, self._name, *command]
        return call, dict(os.environ), [program, "rm", "--force", self._name]

    def limits(self, limit_s: float) -> Limits | None:
        # The container has its own; the client that waits for it needs none.
        del limit_s
        return None

    def after(self, ended: Exit) -> None:
        if ended.ended != "exited":
            # Files stay; the processes of the command, which its client's end does not reach, do not.
            with contextlib.suppress(ContainerError):
                self._engine.call("restart", "--time", "0", self._name)


class Sandbox(ABC):
    """How the commands of all workspaces are kept."""

    name: str

    @abstractmethod
    def opened(self, place: Place, check: Path) -> contextlib.AbstractContextManager[Shell]:
        """Return a context with the shell of one workspace; `check` is the folder that checks may read."""


@dataclass(frozen=True)
class Bare(Sandbox):
    """Nothing: a command may do what this user may."""

    name: str = "none"

    @contextlib.contextmanager
    def opened(self, place: Place, check: Path) -> Iterator[Shell]:
        """Return a shell."""
        del check
        yield _Bare(place)


@dataclass(frozen=True)
class Bubblewrapping(Sandbox):
    """Namespaces of its own for each command."""

    program: Path
    name: str = "bwrap"

    @contextlib.contextmanager
    def opened(self, place: Place, check: Path) -> Iterator[Shell]:
        """Return a shell."""
        del check
        yield _Bubblewrapped(place, self.program)


@dataclass(frozen=True)
class Containing(Sandbox):
    """A container for each workspace, without network and with a root that cannot be written to."""

    engine: Engine
    image: str
    name: str = field(default="docker")

    @contextlib.contextmanager
    def opened(self, place: Place, check: Path) -> Iterator[Shell]:
        """Make a container, return its shell, and remove it."""
        name = f"agentbench-agent-{uuid.uuid4().hex[:12]}"
        # Not with --rm: a restart, which ends a command, would remove it.
        options = [
            *("--detach", "--name", name, "--network", "none", "--read-only", "--cap-drop", "ALL"),
            *("--security-opt", "no-new-privileges", "--user", f"{os.getuid()}:{os.getgid()}"),
            *("--pids-limit", str(PROCESSES), "--memory", str(MEMORY_BYTES), "--cpus", str(CPUS)),
            *("--ulimit", f"fsize={FILE_BYTES}", "--tmpfs", "/tmp", "--env", "HOME=/tmp"),  # noqa: S108 the container's
            *("--volume", f"{place.tree}:{INSIDE}", "--volume", f"{check}:{check}:ro", "--workdir", str(INSIDE)),
            *("--entrypoint", "sleep"),
        ]
        self.engine.call("run", *options, self.image, "infinity", timeout=PULL_SECONDS)
        try:
            yield _Contained(place, self.engine, name)
        finally:
            with contextlib.suppress(ContainerError):
                self.engine.call("rm", "--force", name)


def choose(kind: str) -> Sandbox:
    """Return the sandbox of that kind; ``auto`` takes bubblewrap, else a container.

    Raises
    ------
    ConfigError
        When it does not work here, with what to do about that.
    """
    if kind not in KINDS:
        raise ConfigError(f"sandbox: {kind!r} is none of {', '.join(KINDS)}")
    if kind == "none":
        return Bare()
    if kind in CONTAINERS:
        return _container(kind)
    found = _bubblewrap()
    if isinstance(found, Sandbox):
        return found
    why = [found]
    for name in CONTAINERS if kind == "auto" else ():
        try:
            return _container(name)
        except ConfigError as error:
            why.append(str(error))
    raise ConfigError(
        f"{'; '.join(why)}: commands of the model would run with all that you may read and write within their reach;"
        f" {places.INSTALL}, or allow that with --sandbox none"
    )


def _bubblewrap() -> Sandbox | str:
    program = places.find()
    if program is None:
        return f"bubblewrap is not installed ({places.INSTALL})"
    return places.refusal(program, sealed=True) or Bubblewrapping(program)


def _container(name: str) -> Containing:
    found = shutil.which(name)
    if found is None:
        raise ConfigError(f"{name} is not installed")
    engine = Engine(Path(found))
    try:
        engine.call("version", timeout=places.TRY_SECONDS)
    except ContainerError as error:
        raise ConfigError(f"{name} does not answer ({error})") from error
    return Containing(engine, os.environ.get(IMAGE_VARIABLE, IMAGE), name)


def _head_and_tail(path: Path) -> str:
    """Return a file as text, its middle left out where it is long: the whole may not fit into memory."""
    half = OUTPUT_BYTES // 2
    with path.open("rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size <= OUTPUT_BYTES:
            return file.read().decode(errors="replace")
        head = file.read(half).decode(errors="replace")
        file.seek(size - half)
        tail = file.read(half).decode(errors="replace")
    return f"{head}\n(... {size - 2 * half} bytes left out ...)\n{tail}"
