"""Recordings in one call: ``capture``, ``replay`` and ``capacity`` with the defaults of the command line."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack, ExitStack
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench._core import Capacity, ConfigError, Proxy, Replay, Run, SimulatedEngine
from agentbench._ray import RayRun
from agentbench._report import report

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

LOGGER = logging.getLogger("agentbench")
LISTEN = "127.0.0.1:8001"


def sample_trace() -> Path:
    """Return the directory of the bundled sample trace: synthetic sessions, no agent was recorded for it."""
    return Path(__file__).parent / "data" / "sample"


def default_out(kind: str) -> Path:
    """Return ``results/<kind>-<UTC timestamp>`` below the working directory, a name that is not taken."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    name = Path("results") / f"{kind}-{stamp}"
    taken = 1
    while name.exists():
        taken += 1
        name = Path("results") / f"{kind}-{stamp}-{taken}"
    return name


def capture(
    upstream: str | Sequence[str],
    *,
    out: str | os.PathLike[str] | None = None,
    listen: str = LISTEN,
    routing: str = "session",
    metrics_url: str | Sequence[str] | None = "auto",
    poll_interval_s: float = 0.1,
    power: str = "auto",
    gpus: Sequence[str] | None = None,
    engine_pid: int | None = None,
    idle_baseline_s: float | None = None,
    pue: float | None = None,
    token: str | None = None,
    rerole_system: bool = False,
    strip_billing_header: bool = False,
    cap_max_tokens: int | None = None,
    model: str | None = None,
    answer_titles: bool = False,
    convert: str | None = None,
    redact: bool = False,
    argv: Sequence[str] | None = None,
) -> Proxy:
    """Record the agents that talk to one engine or several, for as long as the returned handle runs.

    Parameters
    ----------
    upstream
        Base URL of the engine; or a list of several engines'.
    out
        The run directory to make; by default ``results/capture-<time>``.
    listen
        Where agents reach the proxy; port 0 picks a free one.
    routing
        Which of several engines a request goes to: ``"session"`` keeps a session with the engine that it was given
        first, ``"round-robin"`` gives each turn to the next. See `Proxy`.
    metrics_url
        The engine's metrics page; ``"auto"`` is `upstream` with ``/metrics`` and goes without where there is
        none; None polls nothing. Of several engines a list, one page for each.
    poll_interval_s
        Seconds between two polls.
    power
        Where power readings come from: ``auto`` (NVML, else none with the reason), ``none``, ``nvml``,
        ``dcgm:URL``, ``rapl`` or ``constant:WATTS``.
    gpus
        GPUs that serve, by index or UUID; by default those of ``CUDA_VISIBLE_DEVICES`` of `engine_pid`, else all.
    engine_pid
        The engine's process on this machine.
    idle_baseline_s
        Seconds of power sampling before anything else; by default none.
    pue
        Power usage effectiveness: totals are multiplied by it.
    token
        What callers must send as their API key (or as ``x-agentbench-token``), which goes no further; needed where
        `listen` is an address that other machines reach.
    rerole_system
        Messages of the role ``system`` inside ``messages`` are sent as the user's.
    strip_billing_header
        Claude Code's billing line is taken out of the system prompt.
    cap_max_tokens
        Most output tokens that a request may ask for; by default as asked.
    model
        The model that every request goes to; by default the one asked for.
    answer_titles
        Calls for a session's title are answered by the proxy and reach no engine.
    convert
        ``"chat"`` sends Messages to the engine as Chat and answers in Messages; by default nothing is converted.
    redact
        Mask addresses, names, home paths and keys in all texts before they are written. See `Proxy`.
    argv
        A command line to keep in the manifest, secrets masked.

    Returns
    -------
    Proxy
        Not started yet: a context manager for ``with`` and ``async with``.

    Examples
    --------
    >>> with agentbench.capture("http://127.0.0.1:8000", out="results/mine") as proxy:  # doctest: +SKIP
    ...     subprocess.run(["claude", "-p", "fix app.py"], env=os.environ | {"ANTHROPIC_BASE_URL": proxy.url})
    >>> agentbench.Run.open("results/mine").turns().to_pandas()  # doctest: +SKIP
    """
    return Proxy(
        upstream,
        out=default_out("capture") if out is None else out,
        listen=listen,
        routing=routing,
        metrics_url=metrics_url,
        poll_interval_s=poll_interval_s,
        power=power,
        gpus=gpus,
        engine_pid=engine_pid,
        idle_baseline_s=idle_baseline_s,
        pue=pue,
        token=token,
        rerole_system=rerole_system,
        strip_billing_header=strip_billing_header,
        cap_max_tokens=cap_max_tokens,
        model=model,
        answer_titles=answer_titles,
        convert=convert,
        redact=redact,
        argv=argv,
    )


def replay(
    trace: Run | str | os.PathLike[str] | None = None,
    *,
    url: str | None = None,
    ray: str | None = None,
    workers: int = 2,
    **settings: Any,
) -> Run:
    """Send a recording again and wait for the end.

    Parameters
    ----------
    trace
        A run, or its directory; by default the bundled sample.
    url
        Base URL of the engine; by default the embedded engine answers, which is simulated.
    ray
        A Ray cluster to play on: ``auto``, ``HOST:PORT`` or ``local``; by default this process plays. Takes a
        `url` that every worker reaches, the extra ``agentbench-serving[ray]``, and agentbench on every machine.
    workers
        With `ray`: actors that share the agents.
    **settings
        Keyword arguments of `Replay`; ``out`` is ``results/replay-<time>`` by default. ``speed`` picks the
        embedded engine's profile.

    Returns
    -------
    Run
        The replay's own run directory, with ``requests()``, ``trajectories()`` and ``summary()``.

    Raises
    ------
    ConfigError, UpstreamError, TraceError, OSError
        When the run cannot start or go on. A failed request is a row, not an exception.

    Examples
    --------
    >>> run = agentbench.replay(agents=4)  # doctest: +SKIP
    >>> run.summary()["whole"]["fields"]["ttft_ms"]["p95"]  # doctest: +SKIP
    """
    if ray is not None:
        settings.setdefault("out", default_out("replay"))
        return _on_ray(Replay, trace, url, ray, workers, settings)
    with ExitStack() as stack:
        engine = _embedded(settings) if url is None else None
        address = stack.enter_context(engine).url if engine else str(url)
        return _reported(_handle(trace, address, settings).start().wait())


async def replay_async(
    trace: Run | str | os.PathLike[str] | None = None,
    *,
    url: str | None = None,
    ray: str | None = None,
    workers: int = 2,
    **settings: Any,
) -> Run:
    """`replay` without blocking the event loop; a cancelled task stops the replay and keeps what there is."""
    if ray is not None:
        settings.setdefault("out", default_out("replay"))
        return await _on_ray_async(Replay, trace, url, ray, workers, settings)
    async with AsyncExitStack() as stack:
        engine = _embedded(settings) if url is None else None
        address = (await stack.enter_async_context(engine)).url if engine else str(url)
        handle = await stack.enter_async_context(_handle(trace, address, settings))
        return await asyncio.to_thread(_reported, await handle.wait_async())


def capacity(
    trace: Run | str | os.PathLike[str] | None = None,
    *,
    url: str | None = None,
    ray: str | None = None,
    workers: int = 2,
    **settings: Any,
) -> Run:
    """Search the most agents that hold a service level, and wait for the end.

    Parameters
    ----------
    trace
        A run, or its directory; by default the bundled sample.
    url
        Base URL of the engine; by default the embedded engine answers, which is simulated.
    ray, workers
        As for `replay`. A worker that is lost makes its level invalid.
    **settings
        Keyword arguments of `Capacity`; ``out`` is ``results/capacity-<time>`` by default. ``speed`` picks the
        embedded engine's profile.

    Returns
    -------
    Run
        The search's run directory, with ``levels()``, ``requests()`` and the result in ``summary()["capacity"]``.

    Raises
    ------
    ConfigError, UpstreamError, TraceError, OSError
        When the search cannot start or go on. A missed service level is a result, not an exception.

    Examples
    --------
    >>> run = agentbench.capacity(slo=["ttft.p95<=10s", "speed.p25>=20"], gpus=1)  # doctest: +SKIP
    >>> run.summary()["capacity"]["max_agents"]  # doctest: +SKIP
    """
    if ray is not None:
        settings.setdefault("out", default_out("capacity"))
        return _on_ray(Capacity, trace, url, ray, workers, settings)
    with ExitStack() as stack:
        engine = _embedded(settings) if url is None else None
        address = stack.enter_context(engine).url if engine else str(url)
        return _reported(_search(trace, address, settings).start().wait())


async def capacity_async(
    trace: Run | str | os.PathLike[str] | None = None,
    *,
    url: str | None = None,
    ray: str | None = None,
    workers: int = 2,
    **settings: Any,
) -> Run:
    """`capacity` without blocking the event loop; a cancelled task stops the search and keeps what there is."""
    if ray is not None:
        settings.setdefault("out", default_out("capacity"))
        return await _on_ray_async(Capacity, trace, url, ray, workers, settings)
    async with AsyncExitStack() as stack:
        engine = _embedded(settings) if url is None else None
        address = (await stack.enter_async_context(engine)).url if engine else str(url)
        handle = await stack.enter_async_context(_search(trace, address, settings))
        return await asyncio.to_thread(_reported, await handle.wait_async())


def _reported(run: Run) -> Run:
    """Keep a report beside the tables; a run whose report cannot be written is a run all the same."""
    try:
        report(run).write()
    except OSError as error:
        LOGGER.warning("report.md was not written: %s", error)
    return run


def _on_ray(
    kind: type[Replay | Capacity],
    trace: Run | str | os.PathLike[str] | None,
    url: str | None,
    address: str,
    workers: int,
    settings: dict[str, Any],
) -> Run:
    with _ray_run(kind, trace, url, address, workers, settings) as run:
        return _reported(run.wait())


async def _on_ray_async(
    kind: type[Replay | Capacity],
    trace: Run | str | os.PathLike[str] | None,
    url: str | None,
    address: str,
    workers: int,
    settings: dict[str, Any],
) -> Run:
    async with _ray_run(kind, trace, url, address, workers, settings) as run:
        return await asyncio.to_thread(_reported, await run.wait_async())


def _ray_run(
    kind: type[Replay | Capacity],
    trace: Run | str | os.PathLike[str] | None,
    url: str | None,
    address: str,
    workers: int,
    settings: dict[str, Any],
) -> RayRun:
    if url is None:
        message = "ray needs a url: workers on other machines do not reach the embedded engine"
        raise ConfigError(message)
    trace = sample_trace() if trace is None else trace
    return RayRun(kind, trace, address=address, workers=workers, url=url, **settings)


def _search(trace: Run | str | os.PathLike[str] | None, url: str, settings: dict[str, Any]) -> Capacity:
    settings.setdefault("out", default_out("capacity"))
    return Capacity(sample_trace() if trace is None else trace, url=url, **settings)


def _embedded(settings: dict[str, Any]) -> SimulatedEngine:
    speed = settings.pop("speed", None)
    return SimulatedEngine() if speed is None else SimulatedEngine(speed=speed)


def _handle(trace: Run | str | os.PathLike[str] | None, url: str, settings: dict[str, Any]) -> Replay:
    settings.setdefault("out", default_out("replay"))
    return Replay(sample_trace() if trace is None else trace, url=url, **settings)
