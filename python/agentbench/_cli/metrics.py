"""``--metrics-port``: how a run goes, as a Prometheus page on the loopback address while it goes.

The figures are those of the handle's own progress, so page, terminal and report tell the same. Who scrapes it, and what
is drawn of it (`docs/grafana.json` is a dashboard), is others' affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, cast

import click

from agentbench.exceptions import ConfigError

from .console import print_note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from agentbench import AgentProgress
    from agentbench._types import CapacityProgress, ReplayProgress

HOST = "127.0.0.1"
MILLISECONDS_PER_SECOND = 1e3
PER_CENT = 100.0
# Name, what it is, and the field of the progress that it is taken from.
COUNTERS = (
    ("agentbench_trajectories", "Trajectories that have ended", "trajectories_done"),
    ("agentbench_prompt_tokens", "Prompt tokens of requests answered whole", "prompt_tokens"),
    ("agentbench_cached_prompt_tokens", "Of these, tokens served from the engine's cache", "cached_tokens"),
    ("agentbench_output_tokens", "Output tokens of requests answered whole", "completion_tokens"),
)
GAUGES = (
    ("agentbench_requests_in_flight", "Requests on their way", "requests_in_flight", 1.0),
    ("agentbench_simulated", "1 where the engine is a simulation", "simulated", 1.0),
    ("agentbench_elapsed_seconds", "Time since the start of the run or level", "elapsed_s", 1.0),
    ("agentbench_time_left_seconds", "Time until the run ends, where there is a basis for it", "time_left_s", 1.0),
    ("agentbench_engine_requests_running", "Requests that the engine runs", "engine_running", 1.0),
    ("agentbench_engine_requests_waiting", "Requests that wait in the engine", "engine_waiting", 1.0),
    ("agentbench_engine_kv_cache_usage_ratio", "KV-cache use of the engine", "engine_kv_cache_usage_pct", PER_CENT),
    ("agentbench_power_watts", "Power of all devices, times the PUE where one was given", "power_w", 1.0),
    ("agentbench_recent_ttft_seconds", "Mean TTFT of the latest requests", "recent_ttft_ms", MILLISECONDS_PER_SECOND),
    ("agentbench_recent_itl_seconds", "Mean ITL of the latest requests", "recent_itl_ms", MILLISECONDS_PER_SECOND),
)
# The same of families with a label for the quantile.
QUANTILES = (
    (
        "agentbench_recent_ttft_quantile_seconds",
        "TTFT of the latest requests",
        {"0.5": "recent_ttft_p50_ms", "0.95": "recent_ttft_p95_ms"},
        MILLISECONDS_PER_SECOND,
    ),
    (
        "agentbench_recent_output_speed_quantile_tokens_per_second",
        "Output speed of the latest requests",
        {"0.25": "recent_output_tokens_per_s_p25", "0.5": "recent_output_tokens_per_s_p50"},
        1.0,
    ),
)
TASKS = (
    ("agentbench_tasks_ended", "Tasks of live agents that have ended with their check", "done"),
    ("agentbench_tasks_completed", "Of these, tasks whose check passed", "completed"),
    ("agentbench_tasks_claimed", "Of these, tasks that the model said it was done with", "claimed"),
)
STATUSES = ("ok", "failed", "cancelled")
PHASES = ("ramp", "warmup", "steady", "tail")

metrics_option = click.option(
    "--metrics-port",
    type=click.IntRange(min=0, max=65535),
    metavar="PORT",
    help=f"While it runs, serve its progress as a Prometheus page at {HOST}:PORT/metrics; 0 takes a free port."
    "  [default: no page]",
)


class MetricsPage:
    """The page; a context manager. Without a port there is none, and `update` does nothing."""

    def __init__(self, port: int | None) -> None:
        self._port = port
        self._progress: ReplayProgress | None = None
        self._level: tuple[int, int, float | None] | None = None
        self._tasks: AgentProgress | None = None
        self._server: Any = None
        self._thread: Any = None

    def __enter__(self) -> Self:
        if self._port is None:
            return self
        try:
            from prometheus_client import CollectorRegistry, start_http_server  # noqa: PLC0415 - an extra
        except ImportError as error:
            raise ConfigError(
                "--metrics-port needs prometheus-client; pip install 'agentbench-serving[metrics]'"
            ) from error
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(self._port, addr=HOST, registry=registry)
        except OSError as error:
            raise ConfigError(f"--metrics-port {self._port}: {error.strerror}; give another port, or 0") from error
        print_note(f"metrics: http://{HOST}:{self._server.server_port}/metrics")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()

    def update(self, progress: ReplayProgress) -> None:
        """How a replay goes now."""
        self._progress = progress

    def update_search(self, progress: CapacityProgress) -> None:
        """How a search goes now."""
        self._level = (progress["level"], progress["agents"], progress["level_left_s"])
        self._progress = progress["replay"]

    def update_agents(self, progress: AgentProgress) -> None:
        """How live agents do now."""
        self._tasks = progress
        self._progress = cast("ReplayProgress", progress.requests)

    def collect(self) -> Iterator[Any]:
        """The families, as the page asks for them; what is not known yet is left out, never 0."""
        if self._progress is None:
            return
        yield from _requests(self._progress)
        yield from _now(self._progress)
        yield from self._of_verb()

    def _of_verb(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra

        if self._level is not None:
            level, agents, left_s = self._level
            yield GaugeMetricFamily("agentbench_level", "Level of the capacity search", value=level)
            yield GaugeMetricFamily("agentbench_level_agents", "Agents of this level", value=agents)
            if left_s is not None:
                about = "Time after which this level starts nothing more"
                yield GaugeMetricFamily("agentbench_level_left_seconds", about, value=left_s)
        if self._tasks is not None:
            for name, about, field in TASKS:
                yield CounterMetricFamily(name, about, value=getattr(self._tasks, field))


def _requests(progress: Any) -> Iterator[Any]:
    """What has come of requests so far."""
    from prometheus_client.core import CounterMetricFamily  # noqa: PLC0415 - an extra

    requests = CounterMetricFamily("agentbench_requests", "Requests that have ended", labels=["status"])
    for status in STATUSES:
        requests.add_metric([status], progress[f"requests_{status}"])
    yield requests
    failures = CounterMetricFamily("agentbench_request_failures", "Requests that failed, by kind", labels=["kind"])
    for kind, n in progress["failures"].items():
        failures.add_metric([kind], n)
    yield failures
    for name, about, field in COUNTERS:
        if progress[field] is not None:
            yield CounterMetricFamily(name, about, value=progress[field])


def _now(progress: Any) -> Iterator[Any]:
    """How the run is doing at this moment."""
    from prometheus_client.core import GaugeMetricFamily  # noqa: PLC0415 - an extra

    for name, about, field, scale in GAUGES:
        if progress[field] is not None:
            yield GaugeMetricFamily(name, about, value=progress[field] / scale)
    for name, about, fields, scale in QUANTILES:
        quantiles = GaugeMetricFamily(name, about, labels=["quantile"])
        for quantile, field in fields.items():
            if progress[field] is not None:
                quantiles.add_metric([quantile], progress[field] / scale)
        yield quantiles
    agents = GaugeMetricFamily("agentbench_agents", "Agents by what they do now", labels=["state"])
    for state, n in progress["agents"].items():
        agents.add_metric([state], n)
    yield agents
    phases = GaugeMetricFamily("agentbench_phase", "1 for the phase that the run is in", labels=["phase"])
    for phase in PHASES:
        phases.add_metric([phase], float(progress["phase"] == phase))
    yield phases
