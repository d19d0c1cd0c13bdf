"""One instance from its commit to its patch: work tree, agent, time limit, judgement, results.

Runs on a thread of the collector. What a session's requests came to is for ``collector``, which reads the recording.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from . import container, engine, logs, process, worktree
from .files import write_whole
from .git import GitError
from .mirrors import RepositoryError
from .sandbox import Place
from .session import DONE, FAILED, INTERRUPTED, PATCH, TIMED_OUT, folder_of

if TYPE_CHECKING:
    import threading

    from agentbench.harness import Harness, Limits

    from .instances import Instance
    from .mirrors import Mirrors
    from .sandbox import Sandbox
    from .session import Session
    from .settings import Settings

WORK = "work"
LOGS = "logs"
STDOUT = "stdout.log"
STDERR = "stderr.log"
JUDGED_BYTES = 16 << 20


@dataclass(frozen=True)
class Bench:
    """What all instances of a run share."""

    run: Path
    settings: Settings
    harness: Harness
    binary: Path
    limits: Limits
    sandbox: Sandbox | None
    containers: container.Engine | None
    mirrors: Mirrors
    stop: threading.Event

    @property
    def kept_by(self) -> str:
        """What keeps an agent to its place."""
        return "container" if self.sandbox is None else self.sandbox.name


def work(bench: Bench, instance: Instance, session: Session, base_url: str) -> Session:
    """Work on one instance and return what came of it, also written to its folder.

    Raises
    ------
    OSError
        When the disk refuses results.
    """
    folder = folder_of(bench.run, instance.id)
    logs.remove(folder)
    folder.mkdir(parents=True, mode=0o700)
    session.write(folder)
    place = _place(bench.run, session.session_id)
    try:
        session = _worked(bench, instance, session, base_url, place)
    except (RepositoryError, GitError, process.ProcessError, container.ContainerError) as error:
        session = _broken(session, str(error))
    except BaseException as error:
        _broken(session, f"{type(error).__name__}: {error}").write(folder)
        raise
    finally:
        logs.remove(place.home.parent)
    if bench.stop.is_set() and not session.ended:
        session = replace(session, outcome=INTERRUPTED, reason="the collection was interrupted")
    session.write(folder)
    return session


def _place(run: Path, session_id: str) -> Place:
    # Of this attempt alone: what a killed collection left may still be ending in its own.
    base = run.resolve() / WORK / session_id
    place = Place(tree=base / "tree", home=base / "home", tmp=base / "tmp", private=base / "private")
    place.make()
    return place


def _broken(session: Session, reason: str) -> Session:
    return replace(session, outcome=FAILED, reason=" ".join(reason.split()))


def _worked(bench: Bench, instance: Instance, session: Session, base_url: str, place: Place) -> Session:
    """Lay out the repository, run the agent in it, keep what it left."""
    if bench.settings.fresh_cache:
        session = replace(session, cache_reset=engine.reset_refusal(bench.settings.upstream) is None)
    if bench.sandbox is None:
        return _in_container(bench, instance, session, base_url, place)
    mirror, commit = bench.mirrors.find(instance.repository, instance.commit)
    session = replace(session, commit=commit)
    worktree.make(mirror, commit, place.tree)
    patch = worktree.Patch(mirror, commit, place.tree, place.private / "git")
    environment, command = _command(bench, instance, base_url, place, bench.binary, bench.sandbox.workdir(place))
    call, environment = bench.sandbox.wrap(command, environment, place)
    ended = _run(bench, instance, call, environment, place.tree)
    text, session = patch.read(), replace(session, patch_error=patch.error)
    return _kept(bench, session, ended, text, place)


def _in_container(bench: Bench, instance: Instance, session: Session, base_url: str, place: Place) -> Session:
    """Do the same in the instance's image, which brings the repository."""
    if bench.containers is None:
        raise AssertionError("without a sandbox there are containers")
    binary, shown = container.agent_in(bench.binary, [Path(path) for path in bench.settings.expose])
    name = f"agentbench-{uuid.uuid4().hex[:12]}"
    with container.running(bench.containers, instance, name, place, shown) as box:
        environment, command = _command(bench, instance, base_url, place, binary, Path(box.workdir))
        call = box.command(command, environment)
        # The program's own environment: where its daemon is.
        ended = _run(bench, instance, call, dict(os.environ), place.home, box.removal())
        text = "" if ended.ended == "interrupted" else box.patch()
        return _kept(bench, session, ended, text, place)


def _command(
    bench: Bench, instance: Instance, base_url: str, place: Place, binary: Path, workdir: Path
) -> tuple[dict[str, str], list[str]]:
    """Return the agent's environment and command."""
    environment = bench.harness.prepare(place.home, base_url, bench.settings.model, bench.limits)
    command = bench.harness.command(
        binary, instance.prompt, workdir, environment=environment, max_turns=bench.settings.max_turns
    )
    return environment, command


def _run(
    bench: Bench,
    instance: Instance,
    call: list[str],
    environment: dict[str, str],
    workdir: Path,
    cleanup: list[str] | None = None,
) -> process.Exit:
    folder = folder_of(bench.run, instance.id)
    return process.run(
        call,
        environment=environment,
        workdir=workdir,
        stdout=folder / STDOUT,
        stderr=folder / STDERR,
        limit_s=bench.settings.time_limit_s,
        stop=bench.stop,
        cleanup=cleanup,
    )


def _kept(bench: Bench, session: Session, ended: process.Exit, patch: str, place: Place) -> Session:
    """Keep patch and logs, and say how it went."""
    folder = folder_of(bench.run, session.instance_id)
    logs.copy(bench.harness.logs(place.home), place.home, folder / LOGS)
    write_whole(folder / PATCH, patch)
    session = replace(
        session, start=ended.start, end=ended.end, exit_code=ended.exit_code, patch_bytes=len(patch.encode())
    )
    return _judged(bench, session, ended, folder)


def _judged(bench: Bench, session: Session, ended: process.Exit, folder: Path) -> Session:
    if ended.ended == "interrupted":
        return replace(session, outcome=INTERRUPTED, reason="the collection was interrupted")
    if ended.ended == "timed_out":
        return replace(session, outcome=TIMED_OUT, reason=f"time limit of {bench.settings.time_limit_s:g} s")
    with (folder / STDOUT).open("rb") as file:
        length = file.seek(0, 2)
        file.seek(max(0, length - JUDGED_BYTES))
        ending = bench.harness.judge(ended.exit_code, file.read())
    if ending.ok:
        return replace(session, outcome=DONE, reason=None)
    return _broken(session, ending.reason or "the agent failed")
