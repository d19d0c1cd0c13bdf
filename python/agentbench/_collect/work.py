"""One instance from its commit to its patch: work tree, agent, time limit, judgement, results.

Runs on a thread of the collector. What a session's requests came to is for ``collector``, which reads the recording.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from . import engine, logs, process, worktree
from .files import write_whole
from .git import GitError
from .mirrors import RepositoryError
from .sandbox import Place
from .session import DONE, FAILED, INTERRUPTED, PATCH, TIMED_OUT, folder_of

if TYPE_CHECKING:
    import threading
    from pathlib import Path

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
    sandbox: Sandbox
    mirrors: Mirrors
    stop: threading.Event


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
    place = _place(bench.run, instance.id)
    try:
        session = _worked(bench, instance, session, base_url, place)
    except (RepositoryError, GitError, process.ProcessError) as error:
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


def _place(run: Path, instance_id: str) -> Place:
    base = run.resolve() / WORK / instance_id
    logs.remove(base)
    place = Place(tree=base / "tree", home=base / "home", tmp=base / "tmp", private=base / "private")
    place.make()
    return place


def _broken(session: Session, reason: str) -> Session:
    return replace(session, outcome=FAILED, reason=" ".join(reason.split()))


def _worked(bench: Bench, instance: Instance, session: Session, base_url: str, place: Place) -> Session:
    folder = folder_of(bench.run, instance.id)
    mirror, commit = bench.mirrors.find(instance.repository, instance.commit)
    worktree.make(mirror, commit, place.tree)
    patch = worktree.Patch(mirror, commit, place.tree, place.private / "git")
    session = replace(session, commit=commit)
    if bench.settings.fresh_cache:
        session = replace(session, cache_reset=engine.reset_refusal(bench.settings.upstream) is None)
    session.write(folder)
    ended = _run_agent(bench, instance, base_url, place)
    logs.copy(bench.harness.logs(place.home), place.home, folder / LOGS)
    text = patch.read()
    write_whole(folder / PATCH, text)
    session = replace(
        session, start=ended.start, end=ended.end, exit_code=ended.exit_code, patch_bytes=len(text.encode())
    )
    return _judged(bench, session, ended, folder)


def _run_agent(bench: Bench, instance: Instance, base_url: str, place: Place) -> process.Exit:
    settings, folder = bench.settings, folder_of(bench.run, instance.id)
    environment = bench.harness.prepare(place.home, base_url, settings.model, bench.limits)
    command = bench.harness.command(
        bench.binary,
        instance.prompt,
        bench.sandbox.workdir(place),
        environment=environment,
        max_turns=settings.max_turns,
    )
    call, environment = bench.sandbox.wrap(command, environment, place)
    return process.run(
        call,
        environment=environment,
        workdir=place.tree,
        stdout=folder / STDOUT,
        stderr=folder / STDERR,
        limit_s=settings.time_limit_s,
        stop=bench.stop,
    )


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
