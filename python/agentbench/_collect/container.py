"""An agent in the container image of its instance, by docker or podman: the repository as the image has it.

The image brings the repository with its dependencies built, so the work tree is the image's own. What lies in its
future is taken out of it before the agent starts: every branch, tag, remote and log, and then all objects that
nothing leads to any more. The baseline of the patch is what the work tree was then, so build products of the image
are none of the agent's.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from agentbench._core import ConfigError

from .sandbox import installation

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from .instances import Instance
    from .sandbox import Place

VARIABLE = "AGENTBENCH_CONTAINER"
PROGRAMS = ("docker", "podman")
PULL_SECONDS = 3600.0
STEP_SECONDS = 600.0
# What the collector keeps in a container: beside the work tree, so that no agent's tool lists it.
PRIVATE = "/tmp/.agentbench-index"  # noqa: S108 in the container
IMAGES_OWN = ("/bin", "/sbin", "/usr/bin", "/usr/sbin", "/lib", "/lib64")
# The image's own, or this machine's and of no meaning there.
NOT_GIVEN = ("PATH", "TMPDIR")
HIDE = """
set -e
git config --global --add safe.directory '*'
git checkout --quiet --detach
git for-each-ref --format='delete %(refname)' | git update-ref --stdin
for remote in $(git remote); do git remote remove "$remote"; done
rm -f .git/FETCH_HEAD .git/ORIG_HEAD .git/packed-refs
git reflog expire --expire=now --expire-unreachable=now --all
mkdir -p .git/info
git gc --quiet --prune=now
"""
INDEX = "GIT_INDEX_FILE={private} git -c core.fsmonitor= -c core.hooksPath=/dev/null"
SNAPSHOT = f"set -e; rm -f {{private}}; {INDEX} add --all . >&2; {INDEX} write-tree"
DIFF = (
    f"{INDEX} -c core.quotePath=true diff --cached --binary --full-index --no-color --no-ext-diff --no-textconv"
    " --no-renames {baseline}"
)
# Before all other attributes: content that is no text makes the whole patch binary, so that it loses nothing.
ALL_BINARY = "echo '* -diff' >\"$(git rev-parse --git-path info/attributes)\""
TREE = re.compile(r"[0-9a-f]{40,64}")


class ContainerError(Exception):
    """A container cannot be made or used; the text is the program's last line."""


@dataclass(frozen=True)
class Engine:
    """A container program that answers.

    Attributes
    ----------
    program
        Its path.
    """

    program: Path

    def call(self, *arguments: str, timeout: float = STEP_SECONDS) -> bytes:
        """Run the program and return what it printed.

        Raises
        ------
        ContainerError
            It ended with an error, or took too long.
        """
        try:
            result = subprocess.run(  # noqa: S603 the user's own program
                [str(self.program), *arguments],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=timeout,
                check=False,
                start_new_session=True,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ContainerError(f"{self.program.name} {arguments[0]}: {error}") from error
        if result.returncode != 0:
            lines = result.stderr.decode(errors="replace").strip().splitlines()
            raise ContainerError(f"{self.program.name} {arguments[0]}: {lines[-1] if lines else result.returncode}")
        return result.stdout


@dataclass(frozen=True)
class Container:
    """A container that runs, with an instance's repository in it.

    Attributes
    ----------
    engine, name
        Where it runs, under which name.
    workdir
        The repository in it.
    baseline
        The tree of the repository before the agent began.
    """

    engine: Engine
    name: str
    workdir: str
    baseline: str

    def command(self, command: Sequence[str], environment: Mapping[str, str]) -> list[str]:
        """Return a call that runs a command in it."""
        given = {name: value for name, value in environment.items() if name not in NOT_GIVEN}
        variables = [part for name, value in given.items() for part in ("--env", f"{name}={value}")]
        return [str(self.engine.program), "exec", "--workdir", self.workdir, *variables, self.name, *command]

    def patch(self) -> str:
        """End what still runs in it and return what was changed since the baseline."""
        # Files stay; processes that the agent left behind do not.
        self.engine.call("restart", "--time", "0", self.name)
        self._git(SNAPSHOT)
        try:
            return self._git(DIFF).decode()
        except UnicodeDecodeError:
            self._git(ALL_BINARY)
            return self._git(DIFF).decode()

    def removal(self) -> list[str]:
        """Return a call that removes it."""
        return [str(self.engine.program), "rm", "--force", self.name]

    def _git(self, script: str) -> bytes:
        filled = script.format(private=PRIVATE, baseline=self.baseline)
        return self.engine.call("exec", "--workdir", self.workdir, self.name, "sh", "-c", filled)


def find() -> Engine:
    """Return docker or podman, whichever answers: the one that AGENTBENCH_CONTAINER names, or one on PATH.

    Raises
    ------
    ConfigError
        When none does, with the reason of each.
    """
    refusals = []
    for name in [os.environ[VARIABLE]] if os.environ.get(VARIABLE) else PROGRAMS:
        found = shutil.which(name)
        if found is None:
            refusals.append(f"{name} is not installed")
            continue
        engine = Engine(Path(found).absolute())
        try:
            engine.call("version")
        except ContainerError as error:
            refusals.append(str(error))
        else:
            return engine
    raise ConfigError(f"container: {'; '.join(refusals)}; start one of them, or leave --container out")


@contextlib.contextmanager
def running(engine: Engine, instance: Instance, name: str, place: Place, shown: Sequence[Path]) -> Iterator[Container]:
    """Run the image of an instance for as long as the context lasts.

    Parameters
    ----------
    engine
        Where.
    instance
        Its image is pulled where it is not there.
    name
        The container's name.
    place
        Its HOME is the agent's, at the same path.
    shown
        Paths of this machine to read, at the same paths.

    Raises
    ------
    ContainerError
        When the instance has no image, or a step fails.
    """
    if instance.image is None or instance.image_workdir is None:
        raise ContainerError("the data set names no image and image_workdir for this instance")
    mounts = [part for path in shown for part in ("--volume", f"{path.resolve()}:{path}:ro")]
    mounts += ["--volume", f"{place.home}:{place.home}"]
    # The proxy is on this machine's loopback.
    options = ["--detach", "--network", "host", "--name", name, "--entrypoint", "sleep", *mounts]
    engine.call("run", *options, instance.image, "infinity", timeout=PULL_SECONDS)
    try:
        workdir = instance.image_workdir
        engine.call("exec", "--workdir", workdir, name, "sh", "-c", HIDE)
        snapshot = SNAPSHOT.format(private=PRIVATE)
        baseline = engine.call("exec", "--workdir", workdir, name, "sh", "-c", snapshot).decode().strip()
        if not TREE.fullmatch(baseline):
            raise ContainerError(f"{workdir} of {instance.image} holds no repository")
        yield Container(engine, name, workdir, baseline)
    finally:
        with contextlib.suppress(ContainerError):
            engine.call("rm", "--force", name)


def agent_in(binary: Path, expose: Sequence[Path]) -> tuple[Path, list[Path]]:
    """Return the agent's program as a container finds it, and the paths that it must be shown.

    A program of the system's own folders is the image's, wherever it has it; any other is this machine's, shown with
    what it is installed with.
    """
    real = binary.resolve()
    more = [path.absolute() for path in expose]
    if str(real.parent) in IMAGES_OWN:
        return Path(binary.name), more
    return real, [*installation(real, IMAGES_OWN), *more]
