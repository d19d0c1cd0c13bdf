"""The compiled half of the package. Use the names from ``agentbench``."""

from collections.abc import Awaitable, Coroutine, Mapping, Sequence
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

import pandas as pd
import polars as pl
from typing_extensions import disjoint_base

from agentbench._types import (
    CapacityProgress,
    CaptureStats,
    EngineInfo,
    Gpu,
    MetricsPage,
    PollerStats,
    PowerSamplerStats,
    ReplayProgress,
    SimulatorStats,
    TurnTotals,
    WindowEnergy,
)

__all__ = [
    "APIS",
    "CORE_EXPORT_FORMATS",
    "IMPORT_FORMATS",
    "PRESETS",
    "PROFILES",
    "SPEEDS",
    "TIERS",
    "AgentRun",
    "AgentbenchError",
    "Capacity",
    "ConfigError",
    "Fleet",
    "GpuError",
    "Handle",
    "ImportProgress",
    "Masker",
    "Poller",
    "PowerSampler",
    "Proxy",
    "Replay",
    "Run",
    "SimulatedEngine",
    "Table",
    "TraceError",
    "UpstreamError",
    "Worker",
    "__version__",
    "build_profile",
    "difference_intervals",
    "engine_info",
    "engine_info_async",
    "export_jsonl",
    "export_jsonl_async",
    "export_run",
    "import_traces",
    "import_traces_async",
    "metrics_page",
    "metrics_page_async",
    "probe_gpus",
    "synthesize",
    "synthesize_async",
    "synthesize_rounds",
    "synthesize_rounds_async",
]

__version__: str
build_profile: str
APIS: Final[tuple[str, ...]]
IMPORT_FORMATS: Final[tuple[str, ...]]
CORE_EXPORT_FORMATS: Final[dict[str, str]]
PRESETS: Final[tuple[str, ...]]
PROFILES: Final[tuple[str, ...]]
SPEEDS: Final[tuple[str, ...]]
TIERS: Final[dict[str, str]]

class AgentbenchError(Exception):
    """Base of agentbench's own exceptions."""

class ConfigError(AgentbenchError):
    """A setting is wrong; the text names it and the remedy."""

class UpstreamError(AgentbenchError):
    """The engine cannot be used; the text names its URL."""

class TraceError(AgentbenchError):
    """A run directory cannot be read; the text names the path."""

class GpuError(AgentbenchError):
    """A GPU or power source cannot be read."""

@final
class Table:
    """One table of a run, read as an Arrow stream.

    Any library that speaks the Arrow PyCapsule protocol takes it as it is, without a copy:
    ``pyarrow.table(table)``, ``polars.DataFrame(table)``. Each reading opens the file anew, so a table can be
    read any number of times. Wall times (``*_time``, ``ts``) are seconds since the Unix epoch, ``*_ms`` are
    milliseconds; what was not measured is null, never 0.
    """

    @property
    def name(self) -> str:
        """The stem of the table's file, such as ``turn_traces``."""

    @property
    def schema(self) -> dict[str, str]:
        """Column names, in order, with their Arrow types."""

    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """Export the table by the Arrow PyCapsule protocol.

        Parameters
        ----------
        requested_schema
            Not honoured, as the protocol allows.

        Returns
        -------
        PyCapsule
            Named ``arrow_array_stream``.

        Raises
        ------
        TraceError
            When the file is damaged.
        """

    def to_pandas(self) -> pd.DataFrame:
        """Read the table into pandas: one row per record, list columns as arrays or lists.

        Raises
        ------
        ModuleNotFoundError
            When pandas, or both pyarrow and polars, are missing; the text names the extra.
        TraceError
            When the file is damaged.
        """

    def to_polars(self) -> pl.DataFrame:
        """Read the table into polars.

        Raises
        ------
        ModuleNotFoundError
            When polars is missing; the text names the extra.
        TraceError
            When the file is damaged.
        """

@final
class Run:
    """An open run directory. Made by `Run.open`, and returned by whatever writes one.

    Examples
    --------
    >>> run = Run.open("results/mine")  # doctest: +SKIP
    >>> run.turns().to_pandas()[["isl", "osl", "tool_exec_ms"]].describe()  # doctest: +SKIP
    """

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Run:
        """Open a run directory. A run that was killed is recovered from its journals, and its manifest says so.

        What was published opens too, as far as the ``hub`` extra is installed: a data set (``hf://datasets/OWNER/NAME``,
        ``…/NAME@REVISION``), a folder of Parquet files without a manifest, a Parquet file, and its http(s) URL. A table
        is found by its file's name (``turn_traces.parquet``, ``turn_traces-00000-of-00002.parquet``), by its folder's,
        or by its columns; columns that are not there are null. It is fetched and laid out in the cache.

        Raises
        ------
        TraceError
            When there is no run, it is of a newer format, or it is damaged; when a data set or URL cannot be fetched,
            or a folder holds no table of a run. The text names the path and the remedy.
        ModuleNotFoundError
            When the ``hub`` extra is missing and needed; the text names it.
        """

    @classmethod
    def open_async(cls, path: str | PathLike[str]) -> Awaitable[Run]:
        """`open` without blocking the event loop."""

    @property
    def path(self) -> Path:
        """The directory."""

    @property
    def manifest(self) -> dict[str, Any]:
        """What ran: ``kind``, ``engine``, ``settings``, ``rows``, ``dropped``, ``notes``, and more.

        ``complete`` is False for a run that was killed; ``partial`` says that its last second may lack.
        """

    def summary(self) -> dict[str, Any] | None:
        """Return the content of ``summary.json``; None for a run without one.

        Every figure can be recomputed from `requests`, `trajectories` and `engine_samples`.
        """

    def summarize(self) -> dict[str, Any]:
        """Compute the summary from the tables: of a replay or a search what `summary` holds, also where it was killed.

        Of any other run, the figures of its turns: ``totals``, ``fields``, ``tools``, ``engine`` and counts.

        Raises
        ------
        TraceError
            When a table is damaged.
        """

    def _turn_tokens(self) -> list[tuple[str, int | None, int | None]]: ...
    def totals(self) -> TurnTotals:
        """Return counts and sums over the captured turns."""

    def turns(self) -> Table:
        """One row per API request captured.

        Tokens (``isl``, ``isl_cached``, ``osl``, …) are from the response's own usage. ``tool_exec_ms`` is the
        time from the end of the thread's previous response to the arrival of this request. ``ttft_ms`` is to
        the first chunk that carries output.
        """

    def messages(self) -> Table:
        """Every distinct unit of a prompt (system block, tool, message) once, by its content hash."""

    def tool_calls(self) -> Table:
        """One row per tool call that a model made, with the time until its result came."""

    def engine(self) -> Table:
        """One row per poll in which at least one request completed: means over those, from the engine's counters."""

    def engine_samples(self) -> Table:
        """Every poll of the metrics page: when it was due, when it happened, gauges and counters as read."""

    def power(self) -> Table:
        """One row per device and power sample."""

    def requests(self) -> Table:
        """One row per request that a replay sent. Times in ms from its first attempt, unless the name says else."""

    def trajectories(self) -> Table:
        """One row per trajectory: one play of one recorded session by one agent."""

    def levels(self) -> Table:
        """One row per number of agents that a capacity search tried."""

    def client_samples(self) -> Table:
        """What a replay saw of its own process, a row each half second: CPU, timer lags, sockets."""

    def isl_text(self, request_id: str) -> str:
        """Return the whole prompt of a turn, rebuilt: its units in prompt order, a line each.

        Raises
        ------
        KeyError
            When no turn has that id.
        """

    def request_body(self, request_id: str) -> bytes:
        """Return the exact bytes of the request body: as the agent sent it, unless the turn's ``changes`` say else.

        Raises
        ------
        KeyError
            When no turn has that id.
        """

@disjoint_base
class Handle:
    """A thing that runs in the background: started once, ended once.

    Used with ``with`` or ``async with`` it starts on entry and ends on exit; a handle that nobody holds any more
    ends too. Ctrl-C interrupts a call that
    waits; the thing itself goes on, and can be waited for or stopped again.
    """

    @property
    def done(self) -> bool:
        """Whether it has ended."""

    def start(self) -> Self:
        """Start it and return it.

        Raises
        ------
        ConfigError
            When a setting is wrong, or it was started before.
        UpstreamError
            When the engine cannot be used.
        OSError
            When the address is taken or the directory cannot be made.
        """

    def start_async(self) -> Awaitable[Self]:
        """`start` without blocking the event loop."""

    def stop(self) -> Any:
        """Ask it to end, wait for that, and return the run that it wrote, if it writes one."""

    def stop_async(self) -> Awaitable[Any]:
        """`stop` without blocking the event loop."""

    def wait(self) -> Any:
        """Wait until it has ended, and return the run that it wrote, if it writes one."""

    def wait_async(self) -> Awaitable[Any]:
        """`wait` without blocking the event loop."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> None: ...
    def __aenter__(self) -> Coroutine[Any, Any, Self]: ...
    def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None, /
    ) -> Coroutine[Any, Any, None]: ...

@final
class Proxy(Handle):
    """A recording proxy before one engine or several, and a poller of each one's metrics page: one run directory.

    Bytes pass untouched in both directions, unless one of the switches from `rerole_system` to `convert` is on: then
    the recording tells what the engine was given, its column ``changes`` what was changed, and the manifest which
    switches were on. What cannot be recorded in time is dropped and counted, never waited
    for. ``agentbench.capture`` makes one with the defaults of the command line.

    Parameters
    ----------
    upstream
        Base URL of the engine, http or https; or a list of several engines'.
    out
        The run directory to make; it must not exist, or be empty.
    listen
        Where agents reach the proxy, as ``address:port``; port 0 picks a free one.
    routing
        Which of several engines a request goes to. ``"session"``, the default: a session stays with the engine
        that it was given first, since prefix caches are per engine; new sessions take the engines in turn.
        ``"round-robin"``: each turn takes the next. A request of which nothing could be sent goes to the next
        engine, counted in the manifest, and its session stays there.
    metrics_url
        The engine's metrics page; ``"auto"``, the default, is `upstream` with ``/metrics``, and goes without where
        there is none; None polls nothing, and the manifest says so. Of several engines a list, one page for each.
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
        Mask e-mail addresses, home paths, names of this machine and its user, account ids and keys of known shapes
        in all texts, before anything is written. The same text has the same mask everywhere in the run, so a prompt
        still begins with the one before; the engine gets the text as it is, and token counts are of that. Masks are
        counted by kind in the manifest.
    argv
        A command line to keep in the manifest, secrets masked.
    settings
        Settings of the caller to keep in the manifest.
    kind
        ``capture``, or ``collect`` for a caller that gives the agents their tasks.
    resume
        Whether `out` holds an earlier part of this run, ended or killed: its tables are gone on with, and counts add
        up. The program that wrote it must have ended.

    Raises
    ------
    ConfigError
        When an argument is wrong.
    """

    def __new__(
        cls,
        upstream: str | Sequence[str],
        *,
        out: str | PathLike[str],
        listen: str = "127.0.0.1:0",
        routing: str = "session",
        metrics_url: str | Sequence[str] | None = ...,
        poll_interval_s: float = 0.1,
        power: str = ...,
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
        settings: Mapping[str, Any] | None = None,
        kind: str = "capture",
        resume: bool = False,
    ) -> Self: ...
    @property
    def url(self) -> str:
        """The base URL to point agents at. ``/s/NAME`` behind it gives their requests a session of that name."""

    @property
    def out(self) -> Path:
        """The run directory."""

    def stats(self) -> CaptureStats:
        """Return the figures of this moment; after the end, the final ones."""

    def stop(self) -> Run:
        """Stop accepting, let open requests end, close the tables and return the run."""

    def stop_async(self) -> Awaitable[Run]:
        """`stop` without blocking the event loop."""

    def wait(self) -> Run:
        """Wait until somebody stops it, and return the run."""

    def wait_async(self) -> Awaitable[Run]:
        """`wait` without blocking the event loop."""

@final
class Poller(Handle):
    """A poller of an engine's metrics page alone: a run directory of ``engine`` and ``engine_samples``.

    Polls are due at fixed times from the start, whatever a poll takes; one whose time has passed is skipped and
    counted, never made up for.

    Parameters
    ----------
    metrics_url
        The metrics page of vLLM, SGLang, TensorRT-LLM, llama.cpp or the embedded engine.
    out
        The run directory to make; it must not exist, or be empty.
    interval_s
        Seconds between two polls.
    argv
        A command line to keep in the manifest, secrets masked.
    settings
        Settings of the caller to keep in the manifest.
    """

    def __new__(
        cls,
        metrics_url: str,
        *,
        out: str | PathLike[str],
        interval_s: float = 0.1,
        argv: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @property
    def out(self) -> Path:
        """The run directory."""

    def stats(self) -> PollerStats:
        """Return how polling goes; after the end, the final figures."""

    def stop(self) -> Run:
        """Poll once more, close the tables and return the run."""

    def stop_async(self) -> Awaitable[Run]:
        """`stop` without blocking the event loop."""

    def wait(self) -> Run:
        """Wait until somebody stops it, and return the run."""

    def wait_async(self) -> Awaitable[Run]:
        """`wait` without blocking the event loop."""

@final
class PowerSampler(Handle):
    """A sampler of power and energy alone: a run directory of ``power``, and energy of any stretch of time.

    Samples are due at fixed times from the start, taken on a thread of their own; one whose time has passed is
    skipped and counted, never made up for. A machine without the source is no error: `stats` says why, and every
    energy is None with that reason. Readings stay in memory until the sampler is gone: about 12 MB an hour for 8
    GPUs.

    Parameters
    ----------
    out
        The run directory to make; it must not exist, or be empty.
    power
        Where power readings come from: ``auto`` (NVML, else none with the reason), ``none``, ``nvml``,
        ``dcgm:URL``, ``rapl`` or ``constant:WATTS``.
    gpus
        GPUs to sample, by index or UUID; by default those of ``CUDA_VISIBLE_DEVICES`` of `engine_pid`, else all. MIG
        instances of one GPU are that GPU, once.
    engine_pid
        The engine's process on this machine.
    idle_baseline_s
        Seconds of sampling before the start returns, as the power of idle devices; by default none.
    pue
        Power usage effectiveness, at least 1: totals are multiplied by it.
    interval_s
        Seconds between two samples, at least 0.001.
    argv
        A command line to keep in the manifest, secrets masked.
    settings
        Settings of the caller to keep in the manifest.

    Raises
    ------
    ConfigError
        When a setting is wrong.
    """

    def __new__(
        cls,
        *,
        out: str | PathLike[str],
        power: str = ...,
        gpus: Sequence[str] | None = None,
        engine_pid: int | None = None,
        idle_baseline_s: float | None = None,
        pue: float | None = None,
        interval_s: float = 0.1,
        argv: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @property
    def out(self) -> Path:
        """The run directory."""

    def stats(self) -> PowerSamplerStats:
        """Return how sampling goes, and of what; after the end, the final figures."""

    def samples(self) -> Table:
        """Return the samples, a row for each device and sample; while it runs, those that have reached the disk.

        Returns
        -------
        Table
            ``power`` of the run directory: powers in watts (``_w``), the device's energy counter in joules
            (``_j``), times in seconds since the Unix epoch.
        """

    def energy(self, start: float, end: float) -> WindowEnergy:
        """Return energy and mean power between two times, and whether they may be believed.

        Parameters
        ----------
        start, end
            Seconds since the Unix epoch, as ``time.time()`` tells them.

        Returns
        -------
        WindowEnergy
            Energy in joules, power in watts. An invalid figure is None, and ``reason`` says why: no source, samples
            that cover less than 95 % of the time, a gap of more than 3 intervals, a counter that went back or
            disagrees with the power by more than 5 %, nothing but zeros.

        Raises
        ------
        ConfigError
            When `start` is not before `end`, or the sampler is not started.
        """

    def stop(self) -> Run:
        """Sample once more, close the table and return the run."""

    def stop_async(self) -> Awaitable[Run]:
        """`stop` without blocking the event loop."""

    def wait(self) -> Run:
        """Wait until somebody stops it, and return the run."""

    def wait_async(self) -> Awaitable[Run]:
        """`wait` without blocking the event loop."""

@final
class Capacity(Handle):
    """A search for the most agents that hold a service level, and a poller of the engine: one run directory.

    Agents send a recording again, in a closed loop, level after level: from 2 doubling to the first level that
    misses the service level, then by bisection; the answer and its successor are tried twice. Judged are the
    requests of the steady state; a level with too few of them is invalid, never passed.

    Parameters
    ----------
    trace
        A run, or its directory.
    url
        Base URL of the engine.
    out
        The run directory to make; it must not exist, or be empty.
    slo
        Conditions that must all hold, like ``ttft.p95<=10s``, ``speed.p25>=20`` or ``errors<=0``.
    tier
        One of `TIERS`, whose conditions are added.
    max_agents
        Most agents tried; a search that passes there is not saturated.
    resolution
        The search ends when the limit is known to so many agents.
    preset
        One of `PRESETS`: ``quick`` takes seconds a level; ``agentperf`` 30 trajectories, 3 of each agent, and ten
        minutes of steady state.
    min_trajectories, min_trajectories_per_agent, min_requests_per_agent, min_steady_s
        The least that a level must have, in place of the preset's.
    level_time_s
        Seconds after which a level is ended, whatever it has, in place of the preset's.
    gpu_count
        How many GPUs serve, where the power source does not see them; by default those whose power is sampled, else
        as many as `gpus` names. Where none of these tells, figures per GPU are null with the reason.
    on_error
        As for `Replay`; ``abort`` ends the whole search, without a verdict of the level under way.
    max_error_rate_pct
        As for `Replay`, for each level: one that exceeds it is ended and fails.
    api, model, api_key, ramp_s, seed, max_retries, retry_backoff_s, retry_backoff_max_s, connect_timeout_s, \
    first_byte_timeout_s, idle_timeout_s, request_timeout_s, include_utility, content, tokenizer, tool_time, \
    human_time, output_length, cache_sharing, salt, strict, metrics_url, poll_interval_s, power, gpus, engine_pid, \
    idle_baseline_s, pue, argv, settings
        As for `Replay`.
    """

    def __new__(
        cls,
        trace: Run | str | PathLike[str],
        *,
        url: str,
        out: str | PathLike[str],
        slo: Sequence[str] = ...,
        tier: str | None = None,
        max_agents: int = 256,
        resolution: int = 1,
        preset: str = "quick",
        min_trajectories: int | None = None,
        min_trajectories_per_agent: int | None = None,
        min_requests_per_agent: int | None = None,
        min_steady_s: float | None = None,
        level_time_s: float | None = None,
        api: str = "auto",
        model: str | None = None,
        api_key: str | None = None,
        ramp_s: float | None = None,
        seed: int | None = None,
        on_error: str = "stop-trajectory",
        max_error_rate_pct: float | None = None,
        max_retries: int = 0,
        retry_backoff_s: float = 0.5,
        retry_backoff_max_s: float = 60.0,
        connect_timeout_s: float = 10.0,
        first_byte_timeout_s: float | None = ...,
        idle_timeout_s: float | None = ...,
        request_timeout_s: float | None = None,
        include_utility: bool = False,
        content: str = "recorded",
        tokenizer: str | PathLike[str] | None = None,
        tool_time: str = "recorded",
        human_time: str = "none",
        output_length: str = "recorded",
        cache_sharing: str = "system",
        salt: str | None = None,
        strict: bool = False,
        metrics_url: str | None = ...,
        poll_interval_s: float = 0.1,
        power: str = ...,
        gpus: Sequence[str] | None = None,
        gpu_count: int | None = None,
        engine_pid: int | None = None,
        idle_baseline_s: float | None = None,
        pue: float | None = None,
        argv: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @property
    def out(self) -> Path:
        """The run directory."""

    @property
    def preset(self) -> str:
        """The preset's name; where other arguments loosened it, followed by ``(changed: ...)``."""

    def progress(self) -> CapacityProgress:
        """Return how far it is."""

    def stop(self) -> Run:
        """Cut what is open, try no further level, close the tables and return the run."""

    def stop_async(self) -> Awaitable[Run]:
        """`stop` without blocking the event loop."""

    def wait(self) -> Run:
        """Wait until the answer is found, and return the run."""

    def wait_async(self) -> Awaitable[Run]:
        """`wait` without blocking the event loop."""

@final
class Worker:
    """One worker's end of a run that several processes make; `Fleet` is the other. Used by `RayRun`.

    Parameters
    ----------
    handle
        Bears the settings; it is not started.
    """

    def __new__(cls, handle: Replay | Capacity) -> Self: ...
    def now_ns(self) -> int:
        """Return this process's time, in nanoseconds since the Unix epoch."""

    def prepare(self, anchor_ns: int, ahead_ns: int) -> bytes:
        """Read the trace and ask the engine; the plan, for `Fleet.open`. `ahead_ns` is taken off this clock."""

    def start(self, index: int, of: int, *, agents: int, level: int | None, start_at_ns: int) -> None:
        """Set every `of`-th of `agents` agents to work, from `index`, at `start_at_ns` of the run's clock."""

    def report(self) -> bytes:
        """Return what there is to tell since the last report, for `Fleet.take`."""

    def start_nothing_more(self) -> None:
        """Answer what is on its way and start nothing more."""

    def abort(self) -> None:
        """Cut off what is on its way."""

@final
class Masker:
    """Masks of texts that leave the machine: the shapes of `capture`'s ``redact``, with a key that outlives a run.

    Parameters
    ----------
    key
        16 bytes; the same key gives the same masks.
    users, hosts
        Names to look for as words of their own; common ones (``root``, ``ubuntu``, …) are left alone.
    """

    def __new__(cls, key: bytes, *, users: Sequence[str] = ..., hosts: Sequence[str] = ...) -> Self: ...
    def text(self, text: str) -> str:
        """Return a text with its masks."""

    def find(self, text: str) -> list[tuple[str, int, int]]:
        """Return what would be masked, in order: its kind, and its first and last place in characters.

        Kinds are ``email``, ``key``, ``user``, ``host`` and ``account``.
        """

@final
class Fleet:
    """The driver's end of a run that several processes make: run directory, poller, power, search.

    Parameters
    ----------
    handle
        Bears the settings; it is not started.
    """

    def __new__(cls, handle: Replay | Capacity) -> Self: ...
    @property
    def anchor_ns(self) -> int:
        """The run clock's anchor, in nanoseconds since the Unix epoch."""

    def now_ns(self) -> int:
        """Return the run's time, in nanoseconds since the Unix epoch."""

    def open(self, plan: bytes, workers: Sequence[Mapping[str, Any]]) -> None:
        """Make the run directory; start polling and power sampling."""

    def next_step(self) -> dict[str, Any] | None:
        """Return what the workers are to play next; None when the run is over."""

    def take(self, worker: int, report: bytes) -> bool:
        """Take a worker's report; True when it was the last of the step."""

    def lose(self, worker: int, reason: str) -> None:
        """A worker is gone; what it told is kept."""

    def state(self) -> dict[str, bool]:
        """Return whether the workers have played `enough`, are to be `cut` off, and whether all have `ended`."""

    def interrupt(self) -> None:
        """Begin nothing more after this step."""

    def end_step(self) -> None:
        """Close the step that has ended: judge a level, keep a replay's window."""

    def progress(self) -> CapacityProgress:
        """Return how far the run is; of a replay, its part ``replay``."""

    def finish(self) -> Run:
        """Close the run directory and open it."""

@final
class AgentRun(Handle):
    """A run of live agents: sends the requests that Python makes, measures and records them, and polls the engine.

    Requests go to the engine without a proxy between. ``requests`` and ``trajectories`` have the meanings of a replay,
    ``turn_traces``, ``messages`` and ``tool_calls`` those of a capture. ``agentbench.run_agents`` makes one.

    Parameters
    ----------
    url
        Base URL of the engine.
    out
        The run directory to make; it must not exist, or be empty.
    agents
        Agents at work at once.
    tasks
        Tasks that they work through.
    dataset
        What is worked on, for the manifest.
    api
        ``chat``, ``messages``, ``responses``; ``auto`` takes the first of these that answers.
    model
        The model asked for; by default the one that the engine names.
    api_key
        Sent to the engine, never written down.
    connect_timeout_s, first_byte_timeout_s, idle_timeout_s, request_timeout_s
        As of `Replay`. A request that failed is not sent again.
    metrics_url, poll_interval_s, power, gpus, engine_pid, idle_baseline_s, pue, argv, settings
        As of `Proxy`.

    Raises
    ------
    ConfigError
        When an argument is wrong.
    """

    def __new__(
        cls,
        *,
        url: str,
        out: str | PathLike[str],
        agents: int,
        tasks: int,
        dataset: str,
        api: str = "auto",
        model: str | None = None,
        api_key: str | None = None,
        connect_timeout_s: float = 10.0,
        first_byte_timeout_s: float | None = ...,
        idle_timeout_s: float | None = ...,
        request_timeout_s: float | None = None,
        metrics_url: str | None = ...,
        poll_interval_s: float = 0.1,
        power: str = ...,
        gpus: Sequence[str] | None = None,
        engine_pid: int | None = None,
        idle_baseline_s: float | None = None,
        pue: float | None = None,
        argv: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @property
    def out(self) -> Path:
        """The run directory."""

    @property
    def api(self) -> str:
        """The API that requests are to speak; known once it was started, like `model` and `continuous_usage`."""

    @property
    def model(self) -> str:
        """The model that they are to name."""

    @property
    def continuous_usage(self) -> bool:
        """Whether chunks tell the tokens so far where a Chat request asks for it."""

    def progress(self) -> ReplayProgress:
        """Return how far it is; trajectories are tasks."""

    def send_async(
        self,
        body: bytes,
        *,
        trajectory_id: str,
        agent_id: int,
        invocation: int,
        turn: int,
        ready_for_s: float = 0.0,
        tool_time_ms: float | None = None,
    ) -> Awaitable[dict[str, Any]]:
        """Send a request and record it; a caller that stops waiting cuts it off.

        Parameters
        ----------
        body
            The request's body, with ``"stream": true``.
        trajectory_id, agent_id, invocation, turn
            Whose request it is, as in the table.
        ready_for_s
            Seconds since all that it is made of was there.
        tool_time_ms
            Milliseconds that the tools took whose results it brings.

        Returns
        -------
        Awaitable[dict]
            ``status``, ``error``, ``http_status``, ``stop_reason``, ``finish_reason``, ``blocks`` (what was generated,
            in order), ``items`` (of Responses, JSON each), ``ttft_ms``, ``e2e_ms``, ``prompt_tokens``,
            ``cached_tokens``, ``completion_tokens``. A request that failed is a row and an answer with its error.
        """

    def task_started(self, trajectory_id: str, agent_id: int) -> None:
        """An agent has taken up a task."""

    def task_ended_async(self, end: Mapping[str, Any]) -> Awaitable[None]:
        """Write a task's row, with what its caller knows, once none of its requests is on its way."""

    def nothing_left(self, agent_id: int) -> None:
        """An agent finds no task that is left."""

    def all_done(self) -> None:
        """Every task was worked through: the run was not told to stop."""

    def stop(self) -> Run:
        """Cut what is open, close the tables, write ``summary.json`` and return the run."""

    def stop_async(self) -> Awaitable[Run]:
        """`stop` without blocking the event loop."""

    def wait(self) -> Run:
        """Wait until somebody has stopped it, and return the run."""

    def wait_async(self) -> Awaitable[Run]:
        """`wait` without blocking the event loop."""

@final
class Replay(Handle):
    """A recording, sent again by agents, and a poller of the engine: one run directory.

    In the closed loop, the default, each agent works through one session after another in recorded order; with
    `arrivals` each session begins at its arrival. Agents wait the recorded tool time before each turn, and start
    subagents when the recording did. Output lengths are pinned to the recorded ones where the engine honours that;
    where it does not, the summary says so.

    Parameters
    ----------
    trace
        A run, or its directory.
    url
        Base URL of the engine.
    out
        The run directory to make; it must not exist, or be empty.
    agents
        Closed loop: agents at work at once; by default 1.
    arrivals
        Open loop: when sessions begin, whatever the engine does: ``recorded`` (each at its recorded start),
        ``poisson:R`` or ``constant:R`` (R a second), ``burst`` (all at once). Each is an agent of its own, and
        ``agent_id`` the number of its place: the smallest that was free.
    time_scale
        Open loop: what the times of arrival are multiplied by; waits within a session are not.
    max_active
        Open loop: most agents at work at once. Who arrives beyond waits for a place, which is the lag of its first
        request; late admissions are counted.
    seed
        Shuffles the order of sessions, anew for every pass, and draws Poisson arrivals; by default the recorded
        order, and draws from 0.
    duration_s
        Seconds after which nothing more is started.
    trajectories
        Sessions to play, over and over where the recording has fewer; by default each once and one for each agent
        of a closed loop, or as many as fit into `duration_s`.
    api
        One of `APIS`: ``auto`` sends as recorded where the engine takes it and honours output lengths there, else
        converted; ``recorded``; ``messages``, ``chat``, ``completions`` or ``responses``: all there, converted where
        the recording is of another API. There is no conversion to Completions and to Responses.
    model
        The model to ask for; by default the one that the engine serves.
    api_key
        Sent as bearer token and as ``x-api-key``; never written down.
    ramp_s
        Closed loop: seconds over which the agents' starts are spread; by default 0.05 for each agent, 10 at most.
    on_error
        What a failed request does: ``stop-trajectory`` starts nothing more of its session, ``continue`` goes on,
        ``abort`` ends the run: what is on its way becomes cancelled rows.
    max_error_rate_pct
        Percent of the requests that have ended, from 0 to 100: when more of them failed, the run is ended as by
        ``abort``, once 20 have ended. By default failures end no run.
    max_retries
        How often a failed request is sent again, at most. Sent again is what found no connection, what got no answer,
        408, 409, 429 or a status from 500, and a stream that broke, fell silent or told of an error before any
        output. It stays one row: ``attempts``, ``attempt_log``, all times from the first attempt's start.
    retry_backoff_s
        Seconds before the first retry, doubled for each further one; from half of that to the whole is waited, drawn
        by a seed. Where the response has a ``Retry-After``, at least that long is waited.
    retry_backoff_max_s
        The longest wait before a retry, a ``Retry-After`` included.
    connect_timeout_s
        Seconds until there is a connection.
    first_byte_timeout_s
        Seconds from an attempt's start to the first byte of its response's body, by default 600; None waits as long as
        it takes.
    idle_timeout_s
        Seconds between two pieces of a response, by default 300; None waits as long as it takes.
    request_timeout_s
        Seconds from the first attempt's start to the end of the request, waits included; None, the default, waits as
        long as it takes. Every time-out that is exceeded is a failed row whose error names it and its value.
    include_utility
        Whether titles, summaries and quota checks are sent too.
    content
        What the requests say: ``recorded``, the recorded history byte for byte; ``live``, the engine's own answers
        (text, reasoning, tool calls) in the place of the recorded ones in a thread's later requests (not in
        Completions, whose raw prompts do not tell who said what). Recorded tool results then follow the engine's
        calls in order; results without a call are sent as user text, calls without a result get an error result, and
        ``live`` in the summary counts both. ``synthetic``: prompts of our own, as many tokens as recorded, for
        recordings of counts or block hashes alone and for any other; equal blocks and units are equal tokens. Token
        ids to ``/v1/completions`` where the engine takes them; else, with a `tokenizer`, or where `api` names another
        API, text of words that are a token each, in one user message. ``prompt_tokens_deviation`` in the summary is
        planned - actual prompt tokens.
    tokenizer
        Synthetic content: the ``tokenizer.json`` of the model that the engine serves, by which text is made; by
        default the engine's ``/tokenize`` tells which words are a token each. An engine with neither is refused.
    tool_time
        The waits for tools: ``recorded``, ``none``, a time such as ``500ms``, ``scale:0.5``, ``cap:5s``.
    human_time
        The waits for a human: ``none``, ``recorded``, ``cap:30s``. A wait is a human's where the turn's new messages
        hold a user's text and no tool result, or where a new conversation of the session begins.
    output_length
        The length to pin outputs to: ``recorded``, a number of tokens, or ``natural``: pinned to none. Not with
        synthetic content: where an answer to random text ends says nothing of an agent's.
    cache_sharing
        What trajectories may find of each other in the engine's prefix cache. Agents that replay few recordings would
        hit one another's private text as agents on tasks of their own never do; salts, of 45 bytes a prompt in all,
        in front of the system text, in the first tool and in front of the first message keep them apart:

        - ``system``: system prompt and tools, within a pass over the recording; nothing across passes. A pass is as
          many trajectories as the recording has sessions, or as there are agents where these are more.
        - ``trajectory``: nothing; a trajectory's own requests share as recorded.
        - ``none``: nothing at all, not even from turn to turn.
        - ``recorded``: all that is equal, however often a session is played; the bytes are the recorded ones.

        Each level of a capacity search has salts of its own.
    salt
        What the salts are made of; by default the run's own, kept in its settings. A run with the salt of an earlier
        one finds in the engine's cache what that one left there.
    strict
        Whether to refuse an engine that is not known to pin output lengths.
    metrics_url
        The engine's metrics page; ``"auto"``, the default, is `url` with ``/metrics``, and goes without where there
        is none; None polls nothing.
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
    argv
        A command line to keep in the manifest, secrets masked.
    settings
        Settings of the caller to keep in the manifest.
    """

    def __new__(
        cls,
        trace: Run | str | PathLike[str],
        *,
        url: str,
        out: str | PathLike[str],
        agents: int | None = None,
        arrivals: str | None = None,
        time_scale: float | None = None,
        max_active: int | None = None,
        seed: int | None = None,
        duration_s: float | None = None,
        trajectories: int | None = None,
        api: str = "auto",
        model: str | None = None,
        api_key: str | None = None,
        ramp_s: float | None = None,
        on_error: str = "stop-trajectory",
        max_error_rate_pct: float | None = None,
        max_retries: int = 0,
        retry_backoff_s: float = 0.5,
        retry_backoff_max_s: float = 60.0,
        connect_timeout_s: float = 10.0,
        first_byte_timeout_s: float | None = ...,
        idle_timeout_s: float | None = ...,
        request_timeout_s: float | None = None,
        include_utility: bool = False,
        content: str = "recorded",
        tokenizer: str | PathLike[str] | None = None,
        tool_time: str = "recorded",
        human_time: str = "none",
        output_length: str = "recorded",
        cache_sharing: str = "system",
        salt: str | None = None,
        strict: bool = False,
        metrics_url: str | None = ...,
        poll_interval_s: float = 0.1,
        power: str = ...,
        gpus: Sequence[str] | None = None,
        engine_pid: int | None = None,
        idle_baseline_s: float | None = None,
        pue: float | None = None,
        argv: Sequence[str] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> Self: ...
    @property
    def out(self) -> Path:
        """The run directory."""

    def progress(self) -> ReplayProgress:
        """Return how far it is."""

    def stop(self) -> Run:
        """Start nothing more, cut what is open, close the tables and return the run."""

    def stop_async(self) -> Awaitable[Run]:
        """`stop` without blocking the event loop."""

    def wait(self) -> Run:
        """Wait for the end and return the run."""

    def wait_async(self) -> Awaitable[Run]:
        """`wait` without blocking the event loop."""

@final
class SimulatedEngine(Handle):
    """The embedded engine: a simulation of a vLLM server by a cost model, not a measurement of any hardware.

    Serves ``/v1/messages``, ``/v1/chat/completions``, ``/v1/models``, ``/tokenize``, ``/health`` and ``/metrics``
    on this machine, and ends with `stop`.

    Parameters
    ----------
    host
        The address to listen on.
    port
        The port; 0 picks a free one.
    speed
        The cost model, one of `SPEEDS`.
    model
        The name of the model that it serves; by default ``agentbench-sim``.
    script
        A file of answers to give instead of filler: tool calls and text, so that a real agent runs a loop.
    tokenizer
        A ``tokenizer.json`` to count tokens by; without it a token is 4 bytes.
    seed
        The same seed gives the same text.
    kv_blocks
        KV blocks of 16 tokens, instead of the profile's.
    max_model_len
        Longest prompt plus output in tokens, instead of the profile's.
    max_num_seqs
        Most sequences in one step, instead of the profile's.
    max_num_batched_tokens
        Most tokens computed in one step, instead of the profile's.
    """

    def __new__(
        cls,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        speed: str = "gpu-8b",
        model: str | None = None,
        script: str | PathLike[str] | None = None,
        tokenizer: str | PathLike[str] | None = None,
        seed: int = 0,
        kv_blocks: int | None = None,
        max_model_len: int | None = None,
        max_num_seqs: int | None = None,
        max_num_batched_tokens: int | None = None,
    ) -> Self: ...
    @property
    def url(self) -> str:
        """The base URL."""

    def stats(self) -> SimulatorStats:
        """Return its figures so far; after the end, the final ones."""

    def stop(self) -> None:
        """End it."""

    def stop_async(self) -> Awaitable[None]:
        """`stop` without blocking the event loop."""

    def wait(self) -> None:
        """Wait until somebody stops it."""

    def wait_async(self) -> Awaitable[None]:
        """`wait` without blocking the event loop."""

def difference_intervals(
    first: Run, other: Run, *, steady: bool, first_level: int | None = None, other_level: int | None = None
) -> dict[str, dict[str, tuple[float, float]]]:
    """Say by how much two runs differ beyond chance: 95 % intervals of a difference of latencies.

    A bootstrap by trajectory over requests that were answered whole. Statistics with too few trajectories (10) or
    too few values beyond a percentile (5) have no interval.

    Parameters
    ----------
    first, other
        Two replays or capacity searches.
    steady
        Whether to look at the steady state alone.
    first_level, other_level
        The level to look at, of a capacity search.

    Returns
    -------
    dict
        By column and statistic: low and high bound of the other run's figure less the first one's, in the column's
        unit.
    """

@final
class ImportProgress:
    """How far an `import_traces` is; handed to it, and read from another thread while it goes."""

    def __new__(cls) -> Self: ...
    def read(self) -> dict[str, int]:
        """Counts so far.

        Returns
        -------
        dict
            ``pieces`` (sessions of logs, files of rows) and ``pieces_done``, ``bytes`` of their files and
            ``bytes_read`` of these, ``turns`` and ``tool_calls`` written, ``problems``: records that could not be
            read.
        """
    @property
    def refused(self) -> list[str]:
        """Of an update: sources that cannot be taken in as they are now, a sentence each with what to do."""
    @property
    def nothing_new(self) -> bool:
        """Of an update: there was nothing to take in, and nothing was written."""

def import_traces(
    sources: Sequence[str | PathLike[str]],
    *,
    out: str | PathLike[str],
    format: str | None = None,  # noqa: A002
    update: bool = False,
    threads: int | None = None,
    progress: ImportProgress | None = None,
    argv: Sequence[str] | None = None,
) -> Run:
    """Make a run directory of what others have recorded.

    What a format does not tell is null in the tables; ``manifest["settings"]["lacks"]`` says for which analysis or
    replay that matters. A record that cannot be read never ends an import: ``manifest["settings"]["problems"]`` lists
    the first hundred with file and line, ``problem_counts`` counts all.

    Parameters
    ----------
    sources
        Files (plain, gzip or Parquet) and folders, searched for ``*.jsonl``, ``*.json``, ``*.csv`` (each also with
        ``.gz``), ``*.traj``, ``*.parquet`` and ``*.db``.
    out
        The run directory to make; it must not exist, or be empty, but with `update`.
    format
        One of `IMPORT_FORMATS`; by default each file's first records tell.
    update
        Add to the import at `out` what it lacks: files that are new, and files that have grown since. A file is known
        again by its path, its size and a hash of the part that was read. What is there already is never taken twice; a
        file that shrank or was changed where it had been read is left as it was imported and told in
        `ImportProgress.refused`. Without anything new nothing is written. Where nothing is at `out`, it is made.
    threads
        Threads that parse; by default one for each CPU.
    progress
        Is kept up to date.
    argv
        A command line to keep in the manifest, secrets masked.

    Returns
    -------
    Run
        Of kind ``import``.

    Raises
    ------
    ConfigError
        A source is missing, or none has a turn; `out` holds something else.
    """

def import_traces_async(
    sources: Sequence[str | PathLike[str]],
    *,
    out: str | PathLike[str],
    format: str | None = None,  # noqa: A002
    update: bool = False,
    threads: int | None = None,
    progress: ImportProgress | None = None,
    argv: Sequence[str] | None = None,
) -> Awaitable[Run]:
    """`import_traces` without blocking the event loop."""

def synthesize(
    out: str | PathLike[str],
    *,
    sessions: int = 8,
    profile: str = "tracelab",
    seed: int = 0,
    max_turns: int | None = None,
    argv: Sequence[str] | None = None,
) -> Run:
    """Make up a run directory whose sessions follow published statistics of coding agents.

    Parameters
    ----------
    out
        The run directory to make; it must not exist, or be empty.
    sessions
        How many sessions.
    profile
        Whose statistics, one of `PROFILES`.
    seed
        The same seed gives the same run.
    max_turns
        The most turns that a session may have.
    argv
        A command line to keep in the manifest, secrets masked.

    Returns
    -------
    Run
        Its manifest has ``synthetic`` set: text and times are made up.
    """

def synthesize_async(
    out: str | PathLike[str],
    *,
    sessions: int = 8,
    profile: str = "tracelab",
    seed: int = 0,
    max_turns: int | None = None,
    argv: Sequence[str] | None = None,
) -> Awaitable[Run]:
    """`synthesize` without blocking the event loop."""

def synthesize_rounds(
    out: str | PathLike[str], *, rounds: int, profile: str = "tracelab", seed: int = 0
) -> dict[str, int]:
    """Write made-up sessions as TraceLab's rows: a line of JSON for each round, counts and times without text.

    Parameters
    ----------
    out
        The file; gzip where its name ends in ``.gz``. It must not exist.
    rounds
        Rounds to write: whole sessions, of which the last one ends where they are full.
    profile
        Whose statistics, one of `PROFILES`.
    seed
        The same seed gives the same bytes.

    Returns
    -------
    dict
        How many sessions, rounds and tool calls were written, by name. Each row says that it is synthetic, and so does
        the manifest of a run that they are imported into.

    Raises
    ------
    ConfigError
        There is something at `out`, or no such profile.
    """

def synthesize_rounds_async(
    out: str | PathLike[str], *, rounds: int, profile: str = "tracelab", seed: int = 0
) -> Awaitable[dict[str, int]]:
    """`synthesize_rounds` without blocking the event loop."""

def export_jsonl(run: Run, *, out: str | PathLike[str], prompts: bool = True) -> dict[str, int]:
    """Write a run as JSON lines: ``runs/<session>/turn_traces.jsonl`` and ``engine_metrics.jsonl``.

    Parameters
    ----------
    run
        The run.
    out
        The folder to make; it must not exist, or be empty.
    prompts
        Whether every turn carries its whole prompt (``isl_text``): these grow with the square of the turns.

    Returns
    -------
    dict
        How many sessions and rows were written, by name.
    """

def export_jsonl_async(run: Run, *, out: str | PathLike[str], prompts: bool = True) -> Awaitable[dict[str, int]]:
    """`export_jsonl` without blocking the event loop."""

def export_run(run: Run, *, format: str, out: str | PathLike[str]) -> dict[str, Any]:  # noqa: A002 the word of the command line
    """Write a run in one of `CORE_EXPORT_FORMATS`; `agentbench.export` is the public door."""

def engine_info(url: str) -> EngineInfo:
    """Ask an engine what it is.

    Raises
    ------
    UpstreamError
        When nothing answers there, or what answers is no engine.
    """

def engine_info_async(url: str) -> Awaitable[EngineInfo]:
    """`engine_info` without blocking the event loop."""

def metrics_page(metrics_url: str) -> MetricsPage:
    """Read a metrics page once and say which engine's it is, and which neutral fields it gives and lacks.

    Raises
    ------
    UpstreamError
        When there is no page, or it is none of a known engine.
    """

def metrics_page_async(metrics_url: str) -> Awaitable[MetricsPage]:
    """`metrics_page` without blocking the event loop."""

def probe_gpus(library: str | PathLike[str] | None = None) -> list[Gpu]:
    """List the GPUs that NVML sees.

    Parameters
    ----------
    library
        NVIDIA's management library, where it is not on the loader's path.

    Returns
    -------
    list
        What a GPU does not tell is None; ``power_reason`` says why its power cannot be read.

    Raises
    ------
    GpuError
        When there is no NVML, or it refuses.
    """
