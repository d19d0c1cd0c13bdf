"""``collect``: agents over a set of tasks, recorded."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench._core import ConfigError, Run, engine_info
from agentbench._recording import default_out

from . import datasets
from . import settings as kept
from .collector import Collector
from .instances import select

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from .progress import CollectProgress

PATHS = ("repos", "cache_dir")
# What may be said anew when a collection is carried on: where things are, and how many at once.
ANEW = ("upstream", "concurrency", "repos", "cache_dir")


def collect(
    dataset: str | os.PathLike[str] | None = None,
    *,
    agent: str | None = None,
    upstream: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    instances: Sequence[str] = (),
    on_progress: Callable[[CollectProgress], None] | None = None,
    **settings: Any,
) -> Run:
    """Give an agent the tasks of a data set, record it, and wait for the end.

    Parameters
    ----------
    dataset
        ``verified`` or ``pro`` (SWE-bench, from the hub; takes the extra ``agentbench-serving[collect]``), or a
        Parquet, JSON, JSONL or YAML file: rows of SWE-bench's columns, or tasks with ``id``, ``repository``,
        ``commit`` and ``prompt``.
    agent
        ``claude-code``, ``codex``, ``opencode``, ``mini-swe-agent``, or a command line with ``{task}`` in it.
    upstream
        Base URL of the engine.
    resume
        The directory of a collection that was interrupted: it is carried on with its own settings, of which only
        `upstream`, ``concurrency``, ``repos`` and ``cache_dir`` may be given anew. Instances that ended, by themselves
        or by their time limit, are left as they are; broken ones are done again.
    out
        The run directory to make; by default ``results/collect-<time>``.
    instances
        Ids of the only instances to take; by default all.
    on_progress
        Called several times a second with how far it is.
    **settings
        ``model`` (by default the engine's), ``num_samples``, ``shuffle``, ``seed``, ``concurrency``,
        ``time_limit_s``, ``max_turns``, ``max_output_tokens``, ``fresh_cache``, ``container``,
        ``unsandboxed``, ``expose``, ``repos``, ``cache_dir``; and keyword arguments of `Proxy`.

    Returns
    -------
    Run
        The recording; ``sessions/<id>/`` and ``predictions.jsonl`` lie beside its tables. An instance that failed is
        a session with its reason, not an exception.

    Raises
    ------
    ConfigError, UpstreamError, OSError
        When it cannot start or go on. What there is can be carried on with `resume`.

    Examples
    --------
    >>> run = agentbench.collect(
    ...     "tasks.jsonl", agent="claude-code", upstream="http://127.0.0.1:8000"
    ... )  # doctest: +SKIP
    >>> run.turns().to_pandas().groupby("session_id")["osl"].sum()  # doctest: +SKIP
    """
    return collector(
        dataset, agent=agent, upstream=upstream, resume=resume, out=out, instances=instances, **settings
    ).collect(on_progress)


async def collect_async(dataset: str | os.PathLike[str] | None = None, **settings: Any) -> Run:
    """`collect` without blocking the event loop; a cancelled task ends the agents and keeps what there is."""
    begun = await asyncio.to_thread(collector, dataset, **{**settings, "on_progress": None})
    working = asyncio.ensure_future(asyncio.to_thread(_quietly, begun, settings.get("on_progress")))
    try:
        run = await asyncio.shield(working)
    except asyncio.CancelledError:
        begun.stop()
        await working
        raise
    if run is None:
        raise asyncio.CancelledError
    return run


def _quietly(begun: Collector, on_progress: Callable[[CollectProgress], None] | None) -> Run | None:
    """Collect; None when it was stopped. The interrupt of a main thread is none of a worker's."""
    try:
        return begun.collect(on_progress)
    except KeyboardInterrupt:
        return None


def collector(
    dataset: str | os.PathLike[str] | None = None,
    *,
    agent: str | None = None,
    upstream: str | None = None,
    resume: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    instances: Sequence[str] = (),
    **settings: Any,
) -> Collector:
    """Return what `collect` runs. Arguments and errors are those of `collect`."""
    settings.pop("on_progress", None)
    own = {name: _plain(name, settings.pop(name)) for name in kept.NAMES if name in settings}
    own |= {} if upstream is None else {"upstream": upstream.rstrip("/")}
    if resume is not None:
        given = {"dataset": dataset, "agent": agent, "out": out, "instances": instances or None} | own
        return _resumed(Path(resume), {name: value for name, value in given.items() if value is not None}, settings)
    for name, value in {"dataset": dataset, "agent": agent, "upstream": upstream}.items():
        if value is None:
            raise ConfigError(f"{name} is missing; only resume goes without it")
    chosen = select(
        datasets.load(str(dataset)),
        ids=instances,
        num_samples=own.get("num_samples"),
        shuffle=own.get("shuffle", False),
        seed=own.get("seed", 0),
    )
    own["model"] = own.get("model") or _served(own["upstream"])
    whole = kept.Settings(dataset=str(dataset), agent=str(agent), **own)
    run = Path(default_out("collect") if out is None else out)
    return Collector(run, whole, chosen, resumed=False, recording=settings)


def _resumed(run: Path, given: dict[str, Any], recording: dict[str, Any]) -> Collector:
    whole, chosen = kept.read(run)
    other = [name for name in given if name not in ANEW]
    if other:
        raise ConfigError(f"{other[0]}: a resumed collection keeps its own; only {', '.join(ANEW)} can be given anew")
    return Collector(run, replace(whole, **given), chosen, resumed=True, recording=recording)


def _plain(name: str, value: Any) -> Any:
    """Return a setting as it is kept: paths from the root, as text."""
    if name == "expose":
        return tuple(str(Path(path).absolute()) for path in value)
    if name in PATHS and value is not None:
        return str(Path(value).expanduser().absolute())
    return value


def _served(upstream: str) -> str:
    model = engine_info(upstream)["model"]
    if model is None:
        raise ConfigError(f"model is missing: {upstream} does not tell which one it serves")
    return model
