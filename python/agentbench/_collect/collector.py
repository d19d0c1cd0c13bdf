"""A collection: instances worked on by agents through one recording proxy, a few at once, to be carried on any time.

Every instance is a session of the proxy, so its turns are found by its name. What was worked on is known from
``sessions/*/session.json`` alone, so a collection that was interrupted or killed is carried on from there.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import threading
import time
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from agentbench import harness
from agentbench._core import ConfigError, Proxy, Run, engine_info
from agentbench._report import report
from agentbench.harness import Limits

from . import container, engine, git, predictions, sandbox
from .logs import remove
from .mirrors import Mirrors, default_cache
from .progress import CollectProgress, Rate
from .session import DONE, FAILED, TIMED_OUT, Session, folder_of, read
from .traffic import Journals
from .work import WORK, Bench, work

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from .instances import Instance
    from .settings import Settings

LOGGER = logging.getLogger("agentbench")
LOCK = "collect.lock"
LOOK_SECONDS = 0.2
SETTLE_SECONDS = 3.0
SETTLE_LOOK_SECONDS = 0.05


class Collector:
    """Works through instances.

    Parameters
    ----------
    run
        The run directory.
    settings, instances
        What to do.
    resumed
        Whether the directory holds an earlier part.
    recording
        Keyword arguments of `Proxy` that are no setting of the collection.

    Raises
    ------
    ConfigError
        When something that every instance needs is missing: the agent, a sandbox, the cache's reset.
    """

    def __init__(
        self, run: Path, settings: Settings, instances: Sequence[Instance], *, resumed: bool, recording: dict[str, Any]
    ) -> None:
        self._run = run
        self._settings = settings
        self._instances = list(instances)
        self._resumed = resumed
        self._recording = recording
        self._stop = threading.Event()
        self._rate = Rate()
        self._sessions: dict[str, Session] = {}
        self._running: list[str] = []
        self._guard = threading.Lock()
        self._before = 0
        self._bench = self._prepared()

    @property
    def run(self) -> Path:
        """The run directory."""
        return self._run

    @property
    def ids(self) -> list[str]:
        """The instances, in order."""
        return [instance.id for instance in self._instances]

    @property
    def sandbox(self) -> str:
        """What keeps the agents: ``bubblewrap``, ``container`` or ``none``."""
        return self._bench.kept_by

    @property
    def described(self) -> str:
        """What will be done, in words."""
        settings = self._settings
        return f"{len(self._instances)} instance(s) of {settings.dataset}, {settings.agent} on {settings.upstream}"

    def stop(self) -> None:
        """End the agents that run; `collect` then returns as after Ctrl-C."""
        self._stop.set()
        git.end_all()

    def collect(self, on_progress: Callable[[CollectProgress], None] | None) -> Run:
        """Work through all that is left and return the run.

        Raises
        ------
        KeyboardInterrupt
            Ctrl-C: what there is was written, and can be carried on.
        OSError
            The disk refused results; the same holds.
        """
        if self._resumed and not self._left() and Run.open(self._run).manifest["complete"]:
            return Run.open(self._run)
        with self._locked() if self._resumed else contextlib.nullcontext():
            return self._collect(on_progress)

    def _collect(self, on_progress: Callable[[CollectProgress], None] | None) -> Run:
        proxy = self._proxy().start()
        started = time.monotonic()
        with contextlib.ExitStack() as stack:
            if not self._resumed:
                # The proxy takes an empty directory, so the lock comes after it.
                stack.enter_context(self._locked())
            return self._through(proxy, started, on_progress)

    def _through(self, proxy: Proxy, started: float, on_progress: Callable[[CollectProgress], None] | None) -> Run:
        try:
            if not self._resumed:
                self._settings.write(self._run, self._instances)
            journals = Journals(self._run)
            journals.read()
            self._before = journals.turns
            self._work_through(proxy, journals, started, on_progress)
        finally:
            run: Run = proxy.stop()
            remove(self._run / WORK)
            predictions.write(self._run, [instance.id for instance in self._instances])
        _keep_report(run)
        return run

    def _prepared(self) -> Bench:
        """Find what every instance needs, before anything is written."""
        settings = self._settings
        agent = harness.get(settings.agent)
        binary = agent.find()
        if binary is None:
            raise ConfigError(f"agent {settings.agent!r}: {agent.program} was not found; {agent.install}")
        if settings.max_turns is not None and not agent.caps_turns:
            raise ConfigError(f"max_turns: {agent.name} cannot cap its turns")
        if settings.fresh_cache:
            refusal = engine.reset_refusal(settings.upstream)
            if refusal is not None:
                raise ConfigError(
                    f"fresh_cache: {settings.upstream} cannot empty its cache: {refusal}; {engine.REMEDY}"
                )
        expose = [Path(path) for path in settings.expose]
        chosen = None
        if not settings.container:
            chosen = sandbox.choose(unsandboxed=settings.unsandboxed, binary=binary, expose=expose)
        cache = Path(settings.cache_dir) if settings.cache_dir else default_cache()
        return Bench(
            run=self._run,
            settings=settings,
            harness=agent,
            binary=binary,
            limits=Limits(engine_info(settings.upstream)["max_model_len"], settings.max_output_tokens),
            sandbox=chosen,
            containers=container.find() if settings.container else None,
            mirrors=Mirrors(cache, Path(settings.repos) if settings.repos else None),
            stop=self._stop,
        )

    def _proxy(self) -> Proxy:
        # A command line may hold anything: it stays in collect.json, which nobody publishes.
        named = {"agent": self._bench.harness.name, "instances": len(self._instances)}
        kept = {"collect": asdict(self._settings) | named}
        return Proxy(
            self._settings.upstream,
            out=self._run,
            settings=kept,
            kind="collect",
            resume=self._resumed,
            **self._recording,
        )

    def _work_through(
        self,
        proxy: Proxy,
        journals: Journals,
        started: float,
        on_progress: Callable[[CollectProgress], None] | None,
    ) -> None:
        version = self._bench.harness.version(self._bench.binary)
        left = self._left()
        done_here: list[Session] = []
        with ThreadPoolExecutor(self._settings.concurrency, thread_name_prefix="agentbench-collect") as pool:
            begun: set[Future[Session]] = set()
            try:
                while left or begun:
                    while left and len(begun) < self._settings.concurrency:
                        instance = left.pop(0)
                        begun.add(pool.submit(self._one, instance, version, proxy))
                    ended, begun = wait(begun, LOOK_SECONDS, FIRST_COMPLETED)
                    done_here += [self._counted(future.result(), proxy, journals) for future in ended]
                    if on_progress is not None:
                        on_progress(self._progress(proxy, started))
                    if self._stop.is_set():
                        raise KeyboardInterrupt
            finally:
                self.stop()
                wait(begun)
                done_here += [future.result() for future in begun if future.exception() is None]
                self._settle(proxy, journals)
                for session in done_here:
                    self._counted(session, None, journals)
        if on_progress is not None:
            on_progress(self._progress(proxy, started))

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the run directory against other collectors; the system lets go of it when this process ends."""
        path = self._run / LOCK
        with path.open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise ConfigError(f"{self._run}: another collection works here; end it first") from error
            yield
            path.unlink()

    def _left(self) -> list[Instance]:
        """Return the instances that are not done."""
        earlier = {instance.id: read(self._run, instance.id) for instance in self._instances}
        self._sessions = {name: session for name, session in earlier.items() if session is not None and session.ended}
        return [instance for instance in self._instances if instance.id not in self._sessions]

    def _one(self, instance: Instance, version: str | None, proxy: Proxy) -> Session:
        earlier = read(self._run, instance.id)
        attempt = 1 if earlier is None else earlier.attempt + 1
        # Each attempt is a session of its own: turns of one that broke are told from those of the one that counts.
        name = instance.id if attempt == 1 else f"{instance.id}.{attempt}"
        session = Session(
            instance_id=instance.id,
            repository=instance.repository,
            commit=instance.commit,
            session_id=name,
            attempt=attempt,
            agent=self._bench.harness.name,
            agent_version=version,
            model=self._settings.model,
            sandbox=self._bench.kept_by,
        )
        with self._guard:
            self._running.append(instance.id)
        try:
            return work(self._bench, instance, session, f"{proxy.url}/s/{quote(name, safe='')}")
        finally:
            with self._guard:
                self._running.remove(instance.id)

    def _counted(self, session: Session, proxy: Proxy | None, journals: Journals) -> Session:
        """Add what the recording knows of a session and write it; with a proxy once that has come to rest."""
        if proxy is not None:
            self._settle(proxy, journals)
        traffic = journals.of(session.session_id)
        session = replace(
            session,
            turns=len(traffic.requests),
            isl=_total(traffic.isl),
            osl=_total(traffic.osl),
            isl_cached=_total(traffic.isl_cached),
        )
        if session.start is not None and session.end is not None:
            model, tool, idle = traffic.split(session.start, session.end)
            session = replace(session, model_s=model, tool_s=tool, idle_s=idle)
        refusal = traffic.refusal(timed_out=session.outcome == TIMED_OUT)
        if session.ended and refusal is not None:
            session = replace(session, outcome=FAILED, reason=refusal)
        session.write(folder_of(self._run, session.instance_id))
        self._sessions[session.instance_id] = session
        return session

    def _settle(self, proxy: Proxy, journals: Journals) -> None:
        """Wait until the turns that have ended are in the journals; requests of other sessions may go on."""
        deadline = time.monotonic() + SETTLE_SECONDS
        quiet = time.monotonic() + SETTLE_SECONDS / 3
        while time.monotonic() < deadline:
            stats = proxy.stats()
            journals.read()
            written = journals.turns - self._before >= stats["turns"]
            if written and (stats["active"] == 0 or time.monotonic() >= quiet):
                return
            time.sleep(SETTLE_LOOK_SECONDS)

    def _progress(self, proxy: Proxy, started: float) -> CollectProgress:
        stats = proxy.stats()
        outcomes = [session.outcome for session in self._sessions.values()]
        with self._guard:
            running = tuple(self._running)
        return CollectProgress(
            total=len(self._instances),
            done=outcomes.count(DONE),
            timed_out=outcomes.count(TIMED_OUT),
            failed=outcomes.count(FAILED),
            running=running,
            turns=stats["turns"],
            isl=stats["isl"],
            osl=stats["osl"],
            output_tokens_per_s=self._rate.add(stats["osl"]),
            rows_dropped=stats["rows_dropped"],
            elapsed_s=time.monotonic() - started,
        )


def _keep_report(run: Run) -> None:
    """Keep a report beside the tables; a run whose report cannot be written is a run all the same."""
    try:
        report(run).write()
    except OSError as error:
        LOGGER.warning("report.md was not written: %s", error)


def _total(tokens: list[int]) -> int | None:
    return sum(tokens) if tokens else None
