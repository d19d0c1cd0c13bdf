"""What an agent sees of the machine: its work tree and HOME alone where bubblewrap is there, all of it where not.

Inside, the work tree lies at ``/testbed`` whatever the instance, so prompts that name the working directory are equal
and tell nothing of the machine. Programs and libraries are there to be read; the network is the machine's own, since
the proxy is on it. Containers are for ``container``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentbench._core import ConfigError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

VARIABLE = "AGENTBENCH_BWRAP"
INSTALL = "apt-get install bubblewrap"
INSIDE = Path("/testbed")
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
# What programs need to resolve names, check certificates and find libraries; no accounts, no keys.
ETC = (
    "alternatives",
    "ca-certificates",
    "gai.conf",
    "host.conf",
    "hosts",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "localtime",
    "mime.types",
    "nsswitch.conf",
    "pki",
    "protocols",
    "resolv.conf",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
    "timezone",
)
TRY_SECONDS = 20.0
NODE_MODULES = "node_modules"


@dataclass(frozen=True)
class Place:
    """The folders of one instance: all of the machine that its agent may write to."""

    tree: Path
    home: Path
    tmp: Path
    private: Path

    def make(self) -> None:
        """Make the folders, but for the tree, which git makes."""
        for folder in (self.home, self.tmp, self.private):
            folder.mkdir(parents=True, mode=0o700)


class Sandbox(ABC):
    """How a command is kept to its place."""

    name: str

    @abstractmethod
    def workdir(self, place: Place) -> Path:
        """Return the work tree's path as the agent sees it."""

    @abstractmethod
    def wrap(
        self, command: Sequence[str], environment: Mapping[str, str], place: Place
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command and the environment with which it is started."""


class Unsandboxed(Sandbox):
    """Nothing keeps the agent: it may read and write what this user may."""

    name = "none"

    def workdir(self, place: Place) -> Path:
        """Return the path itself."""
        return place.tree

    def wrap(
        self, command: Sequence[str], environment: Mapping[str, str], place: Place
    ) -> tuple[list[str], dict[str, str]]:
        """Return the command as it is."""
        return list(command), {**environment, "TMPDIR": str(place.tmp)}


class Bubblewrap(Sandbox):
    """Namespaces of its own: the work tree, HOME and /tmp to write to, programs to read, no other process.

    Parameters
    ----------
    program
        The path of ``bwrap``.
    binary
        The agent's program, which is shown with what it is installed with.
    expose
        More paths to read.
    sealed
        No network, not even the machine's loopback, and a root that nothing can be written to either.
    """

    name = "bubblewrap"

    def __init__(self, program: Path, binary: Path | None, expose: Sequence[Path], *, sealed: bool = False) -> None:
        self._program = program
        self._namespaces = (*NAMESPACES, *(NO_NETWORK if sealed else ()))
        self._at_last = ("--remount-ro", "/") if sealed else ()
        self._shown = [*(installation(binary) if binary else []), *(path.absolute() for path in expose)]

    def workdir(self, place: Place) -> Path:
        """Return the same path for every instance."""
        del place
        return INSIDE

    def wrap(
        self, command: Sequence[str], environment: Mapping[str, str], place: Place
    ) -> tuple[list[str], dict[str, str]]:
        """Return a call of bubblewrap around the command."""
        accounts = self._accounts(place)
        writable = [("--bind", place.tmp, Path("/tmp")), ("--bind", place.home, place.home)]  # noqa: S108 its own
        writable.append(("--bind", place.tree, INSIDE))
        arguments = [*_system(), *accounts, *_flat(writable[:1]), *self._readable(), *_flat(writable[1:])]
        call = [
            str(self._program),
            *self._namespaces,
            *arguments,
            *self._at_last,
            "--chdir",
            str(INSIDE),
            "--",
            *command,
        ]
        return call, {**environment, "TMPDIR": "/tmp"}  # noqa: S108 its own

    def _readable(self) -> list[str]:
        arguments: list[str] = []
        for path in self._shown:
            if path.is_symlink():
                arguments += ["--symlink", str(path.readlink()), str(path)]
            else:
                arguments += ["--ro-bind", str(path), str(path)]
        return arguments

    @staticmethod
    def _accounts(place: Place) -> list[str]:
        """Write the one account that the agent sees, in place of the machine's."""
        user, group = os.getuid(), os.getgid()
        files = {
            "passwd": f"agent:x:{user}:{group}:agent:{place.home}:/bin/sh\n",
            "group": f"agent:x:{group}:\n",
        }
        arguments = []
        for name, text in files.items():
            (place.private / name).write_text(text)
            arguments += ["--ro-bind", str(place.private / name), f"/etc/{name}"]
        return arguments


NAMESPACES = (
    *("--unshare-user", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"),
    *("--hostname", "agent", "--cap-drop", "ALL", "--die-with-parent", "--new-session"),
)
NO_NETWORK = ("--unshare-net",)


def choose(*, unsandboxed: bool, binary: Path | None, expose: Sequence[Path]) -> Sandbox:
    """Return bubblewrap where it works; nothing at all only where the user says so.

    Raises
    ------
    ConfigError
        When there is none and the user did not say so.
    """
    if unsandboxed:
        return Unsandboxed()
    program = find()
    why = f"bubblewrap is not installed ({INSTALL})" if program is None else refusal(program)
    if program is None or why is not None:
        raise ConfigError(
            f"{why}: the agent would run unsandboxed, with all that you may read and write within its reach; "
            "--unsandboxed allows that, --container runs it in the instance's image"
        )
    return Bubblewrap(program, binary, expose)


def find() -> Path | None:
    """Return the path of ``bwrap``: the one that AGENTBENCH_BWRAP names, or one on PATH."""
    found = shutil.which(os.environ.get(VARIABLE) or "bwrap")
    return Path(found).absolute() if found else None


def refusal(program: Path, *, sealed: bool = False) -> str | None:
    """Say why bubblewrap does not work here, None when it does: a kernel or a container may forbid namespaces."""
    call = [str(program), *NAMESPACES, *(NO_NETWORK if sealed else ()), *_system(), "--", "true"]
    try:
        result = subprocess.run(  # noqa: S603 the user's own bubblewrap
            call, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=TRY_SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"bubblewrap does not work here ({error})"
    if result.returncode == 0:
        return None
    lines = result.stderr.strip().splitlines() or [f"it ended with {result.returncode}"]
    return f"bubblewrap does not work here ({lines[0]})"


def installation(binary: Path, there: Sequence[str] = SYSTEM) -> list[Path]:
    """Return what must be readable for a program to run: the links to it, and what it is installed with.

    A package of npm is shown with the outermost ``node_modules``, a program of a Python environment with the
    environment and the Python that it was made of, any other with nothing but its file. What lies below folders
    that are there already is left out.
    """
    shown: list[Path] = []
    path = binary.absolute()
    while path.is_symlink():
        shown.append(path)
        path = Path(os.path.normpath(path.parent / path.readlink()))
    for step in (*shown, path):
        if NODE_MODULES in step.parts:
            shown.append(Path(*step.parts[: step.parts.index(NODE_MODULES) + 1]))
        shown += _environment_of(step)
    shown.append(path)
    return _outermost([step for step in shown if not _is_below(step, [Path(folder) for folder in there])])


def _environment_of(program: Path) -> list[Path]:
    """Return the Python environment that a program lies in, and the installation below it."""
    environment = program.parent.parent
    settings = environment / "pyvenv.cfg"
    if program.parent.name != "bin" or not settings.is_file():
        return []
    python = Path(os.path.realpath(environment / "bin" / "python"))
    return [environment, *([python.parent.parent] if python.parent.name == "bin" else [python])]


def _outermost(paths: Sequence[Path]) -> list[Path]:
    """Return paths without those that lie in another, links first."""
    folders = [path for path in paths if path.is_dir() and not path.is_symlink()]
    kept = [path for path in paths if not _is_below(path, [folder for folder in folders if folder != path])]
    return list(dict.fromkeys(kept))


def _is_below(path: Path, folders: Sequence[Path]) -> bool:
    return any(folder in path.parents for folder in folders)


def _system() -> list[str]:
    arguments: list[str] = []
    for folder in map(Path, SYSTEM):
        if folder.is_symlink():
            arguments += ["--symlink", str(folder.readlink()), str(folder)]
        elif folder.is_dir():
            arguments += ["--ro-bind", str(folder), str(folder)]
    for name in ETC:
        arguments += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return [*arguments, "--proc", "/proc", "--dev", "/dev"]


def _flat(binds: Sequence[tuple[str, Path, Path]]) -> list[str]:
    return [str(part) for bind in binds for part in bind]
