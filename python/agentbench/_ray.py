"""Replay and capacity search past one machine: one Ray actor per worker, each with its share of the agents.

The Rust core plays, merges and judges; here actors are started, told the agreed instant, and asked for what they
have to tell. A worker that dies is reported and the run goes on without it.
"""

from __future__ import annotations

import asyncio
import os
import socket
import tempfile
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agentbench._core import Capacity, ConfigError, Fleet, Replay, Run, Worker

if TYPE_CHECKING:
    from types import ModuleType, TracebackType

# Between two looks at the workers.
_LOOK_S = 0.1
# A worker that says nothing for so long is taken for dead.
_SILENCE_S = 60.0
# Time for the workers to start, to get the trace and to plan.
_PREPARATION_S = 600.0
# Questions for a worker's time; the quickest answer tells its clock best.
_PINGS = 10


def import_ray() -> ModuleType:
    """Import Ray, or say how to install it."""
    try:
        import ray  # noqa: PLC0415 - an extra
    except ImportError as error:
        message = "Ray is not installed; pip install 'agentbench-serving[ray]', on every machine of the cluster"
        raise ConfigError(message) from error
    return ray


class RayRun:
    """A replay or a capacity search that workers of a Ray cluster play together.

    It has the face of `Replay` and `Capacity`: ``start()``, ``progress()``, ``done``, ``stop()``, ``wait()`` and
    ``with``. Polling of the engine, power and the run directory are this process's; agents are the workers'.

    Parameters
    ----------
    kind
        `Replay` or `Capacity`.
    trace
        A run, or its directory. It travels to workers that do not find it at the same path.
    address
        The cluster: ``auto``, ``HOST:PORT`` or ``ray://HOST:PORT``; ``local`` starts one on this machine.
    workers
        Actors; each takes one CPU of the cluster.
    **settings
        Keyword arguments of `kind`. ``url`` must be reachable from every worker.
    """

    def __init__(
        self,
        kind: type[Replay | Capacity],
        trace: Run | str | os.PathLike[str],
        *,
        address: str,
        workers: int,
        **settings: Any,
    ) -> None:
        if workers < 1:
            message = f"workers: {workers} play nothing; ask for 1 or more"
            raise ConfigError(message)
        self._trace = trace.path if isinstance(trace, Run) else Path(trace)
        if settings.get("tokenizer") is not None:
            # Workers have folders of their own.
            settings["tokenizer"] = Path(settings["tokenizer"]).absolute()
        # Every setting is checked here, before anything is started anywhere.
        self._handle = kind(self._trace, **settings)
        agents = settings.get("agents") or 1
        if kind is Replay and settings.get("arrivals") is None and agents < workers:
            message = f"{agents} agents cannot be shared by {workers} workers; ask for as many agents, or fewer workers"
            raise ConfigError(message)
        self._kind, self._address, self._workers, self._settings = kind, address, workers, settings
        self._fleet = Fleet(self._handle)
        self._actors: list[Any] = []
        self._connected = False
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._run: Run | None = None
        self._failure: BaseException | None = None

    @property
    def out(self) -> Path:
        """The run directory."""
        return self._handle.out

    @property
    def done(self) -> bool:
        """Whether it has ended."""
        return self._thread is not None and not self._thread.is_alive()

    def start(self) -> Self:
        """Start the workers, have them plan, and begin."""
        self._ray = import_ray()
        try:
            self._connect()
            plans, clocks = self._prepare()
            self._fleet.open(plans[0], clocks)
        except BaseException:
            self._close()
            raise
        self._thread = threading.Thread(target=self._drive, name="agentbench-ray", daemon=True)
        self._thread.start()
        return self

    def progress(self) -> Any:
        """How far it is, as `Replay.progress` or `Capacity.progress` tells it."""
        progress = self._fleet.progress()
        return progress if self._kind is Capacity else progress["replay"]

    def wait(self) -> Run:
        """Wait until it has ended and return the run it wrote."""
        if self._thread is None:
            message = "this run is not started; call start() first"
            raise ConfigError(message)
        while self._thread.is_alive():
            # Short, so that Ctrl-C comes through.
            self._thread.join(_LOOK_S)
        if self._failure is not None:
            raise self._failure
        assert self._run is not None  # noqa: S101 - the thread leaves one or the other
        return self._run

    def stop(self) -> Run:
        """Ask it to end, wait for that and return the run it wrote."""
        self._stopping.set()
        return self.wait()

    async def wait_async(self) -> Run:
        """Wait without blocking the event loop; a cancelled task ends the run and keeps what there is."""
        try:
            return await asyncio.to_thread(self.wait)
        except asyncio.CancelledError:
            await asyncio.to_thread(self.stop)
            raise

    async def __aenter__(self) -> Self:
        if self._thread is None:
            starting = asyncio.ensure_future(asyncio.to_thread(self.start))
            try:
                await asyncio.shield(starting)
            except asyncio.CancelledError:
                # What is being started cannot be left alone: it is started, then ended.
                with suppress(Exception):
                    await starting
                    await asyncio.to_thread(self.stop)
                raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.__exit__, kind, error, trace)

    def __enter__(self) -> Self:
        return self if self._thread is not None else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread is not None:
            self.stop()

    def _connect(self) -> None:
        if self._ray.is_initialized():
            return
        here = {"include_dashboard": False} if self._address == "local" else {}
        try:
            self._ray.init(address=self._address, log_to_driver=False, **here)
        except (ConnectionError, RuntimeError, ValueError) as error:
            message = f"no Ray cluster at {self._address!r} ({error}); start one with `ray start --head`"
            raise ConfigError(message) from error
        self._connected = True

    def _start_actors(self) -> None:
        free = self._ray.cluster_resources().get("CPU", 0)
        if free < self._workers:
            message = f"the cluster has {free:.0f} CPUs for {self._workers} workers; ask for fewer workers"
            raise ConfigError(message)
        bundle = self._ray.put(_bundle(self._trace))
        actor = self._ray.remote(num_cpus=1, max_restarts=0, scheduling_strategy="SPREAD")(_Player)
        settings = self._settings | {"out": "worker"}
        self._actors = [
            actor.remote(self._kind, str(self._trace.absolute()), bundle, settings) for _ in range(self._workers)
        ]

    def _prepare(self) -> tuple[list[bytes], list[dict[str, Any]]]:
        """Start workers; their plans, and what is known of their clocks."""
        try:
            self._start_actors()
            return self._ask_plans()
        except self._ray.exceptions.GetTimeoutError as error:
            message = (
                f"the workers did not start within {_PREPARATION_S:.0f} s; see `ray status` for what they wait for"
            )
            raise ConfigError(message) from error
        except self._ray.exceptions.RayActorError as error:
            message = f"a worker did not start: {_reason(error)}; agentbench must be installed on every machine"
            raise ConfigError(message) from error

    def _ask_plans(self) -> tuple[list[bytes], list[dict[str, Any]]]:
        hosts = self._get([actor.host.remote() for actor in self._actors], _PREPARATION_S)
        clocks = [self._ping(actor) for actor in self._actors]
        plans = self._get(
            [
                actor.prepare.remote(self._fleet.anchor_ns, ahead_ns)
                for actor, (ahead_ns, _) in zip(self._actors, clocks, strict=True)
            ],
            _PREPARATION_S,
        )
        return plans, [
            {"worker": worker, "host": host, "clock_offset_ms": ahead_ns / 1e6, "clock_error_ms": error_ns / 1e6}
            for worker, (host, (ahead_ns, error_ns)) in enumerate(zip(hosts, clocks, strict=True))
        ]

    def _ping(self, actor: Any) -> tuple[int, int]:
        """How far a worker's clock is ahead of this one, and how far that may be off, in ns."""
        best = (0, 1 << 62)
        for _ in range(_PINGS):
            asked_ns = self._fleet.now_ns()
            theirs_ns = self._get(actor.now_ns.remote())
            answered_ns = self._fleet.now_ns()
            error_ns = (answered_ns - asked_ns) // 2
            if error_ns < best[1]:
                best = (theirs_ns - (asked_ns + answered_ns) // 2, error_ns)
        return best

    def _get(self, refs: Any, timeout_s: float = _SILENCE_S) -> Any:
        """Answers of actors; what went wrong there is raised as if it had gone wrong here."""
        try:
            return self._ray.get(refs, timeout=timeout_s)
        except self._ray.exceptions.RayTaskError as error:
            raise (error.cause if isinstance(error.cause, Exception) else error) from None

    def _drive(self) -> None:
        try:
            while step := self._fleet.next_step():
                self._play(step)
                self._fleet.end_step()
            self._run = self._fleet.finish()
        except BaseException as error:  # noqa: BLE001 - handed to whoever waits
            self._failure = error
        finally:
            self._close()

    def _play(self, step: dict[str, Any]) -> None:
        """Have the workers play a replay or a level to its end."""
        telling = dict(enumerate(self._actors[: step["workers"]]))
        arguments = {"agents": step["agents"], "level": step["level"], "start_at_ns": step["start_at_ns"]}
        self._ask(
            telling,
            {worker: actor.start.remote(worker, step["workers"], arguments) for worker, actor in telling.items()},
        )
        told = ""
        while telling:
            wanted = self._wanted_end()
            # Once cut off, nothing is left to tell.
            if wanted not in {"", told} and told != "abort":
                told = wanted
                self._ask(telling, {worker: getattr(actor, told).remote() for worker, actor in telling.items()})
            for worker, report in self._ask(
                telling, {worker: actor.report.remote() for worker, actor in telling.items()}
            ).items():
                if self._fleet.take(worker, report):
                    telling.pop(worker, None)
            time.sleep(_LOOK_S)

    def _wanted_end(self) -> str:
        """What the workers are to be told now: a method of theirs, or nothing."""
        if self._stopping.is_set():
            self._fleet.interrupt()
            return "abort"
        state = self._fleet.state()
        return "abort" if state["cut"] else "start_nothing_more" if state["enough"] else ""

    def _ask(self, telling: dict[int, Any], refs: dict[int, Any]) -> dict[int, Any]:
        """The workers' answers; a worker that is gone or silent is taken out of `telling`."""
        answers = {}
        for worker, ref in refs.items():
            try:
                answers[worker] = self._get(ref)
            except self._ray.exceptions.GetTimeoutError:
                self._ray.kill(telling.pop(worker))
                self._fleet.lose(worker, f"no answer for {_SILENCE_S:.0f} s")
            except self._ray.exceptions.RayActorError as error:
                telling.pop(worker)
                self._fleet.lose(worker, _reason(error))
        return answers

    def _close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        if self._connected:
            self._ray.shutdown()
            self._connected = False


class _Player:
    """The actor: a worker of the Rust core, and the trace it plays."""

    def __init__(
        self, kind: type[Replay | Capacity], trace: str, bundle: dict[str, bytes], settings: dict[str, Any]
    ) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="agentbench-")
        path = Path(trace)
        if not _is_there(path, bundle):
            path = Path(self._folder.name) / path.name
            path.mkdir()
            for name, content in bundle.items():
                (path / name).write_bytes(content)
        self._worker = Worker(kind(path, **settings))

    def pid(self) -> int:
        return os.getpid()

    def host(self) -> str:
        return socket.gethostname()

    def now_ns(self) -> int:
        return self._worker.now_ns()

    def prepare(self, anchor_ns: int, ahead_ns: int) -> bytes:
        return self._worker.prepare(anchor_ns, ahead_ns)

    def start(self, index: int, of: int, arguments: dict[str, Any]) -> None:
        self._worker.start(index, of, **arguments)

    def report(self) -> bytes:
        return self._worker.report()

    def start_nothing_more(self) -> None:
        self._worker.start_nothing_more()

    def abort(self) -> None:
        self._worker.abort()


def _bundle(trace: Path) -> dict[str, bytes]:
    """The files of a recording by name."""
    wanted = (path for path in trace.iterdir() if path.suffix in {".json", ".jsonl", ".parquet"})
    return {path.name: path.read_bytes() for path in wanted if path.is_file()}


def _is_there(path: Path, bundle: dict[str, bytes]) -> bool:
    """Whether the same recording lies at the same path, by its manifest and the sizes of its files."""
    try:
        if (path / "manifest.json").read_bytes() != bundle["manifest.json"]:
            return False
        return all((path / name).stat().st_size == len(content) for name, content in bundle.items())
    except (OSError, KeyError):
        return False


def _reason(error: Exception) -> str:
    """The first line that says something."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0].rstrip(".") if lines else type(error).__name__
