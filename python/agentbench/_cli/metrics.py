"""``--metrics-port``: how a run goes, as a Prometheus page on the loopback address while it goes.

The figures are those of the handle's own progress, so page, terminal and report tell the same. Who scrapes it, and what
is drawn of it (`docs/grafana.json` is a dashboard), is others' affair.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import click

from agentbench.exceptions import ConfigError

from .console import print_note

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from agentbench._types import CapacityProgress, ReplayProgress

HOST = "127.0.0.1"
MILLISECONDS_PER_SECOND = 1e3
# Name, what it is, and the field of the progress that it is taken from.
COUNTERS = (
    ("agentbench_trajectories", "Trajectories that have ended", "trajectories_done"),
    ("agentbench_prompt_tokens", "Prompt tokens of requests that have ended", "prompt_tokens"),
    ("agentbench_cached_prompt_tokens", "Of these, tokens served from the engine's cache", "cached_tokens"),
    ("agentbench_output_tokens", "Output tokens of requests that have ended", "completion_tokens"),
)
GAUGES = (
    ("agentbench_requests_in_flight", "Requests on their way", "requests_in_flight", 1.0),
    ("agentbench_elapsed_seconds", "Time since the start of the run or level", "elapsed_s", 1.0),
    ("agentbench_recent_ttft_seconds", "Mean TTFT of the latest requests", "recent_ttft_ms", MILLISECONDS_PER_SECOND),
    ("agentbench_recent_itl_seconds", "Mean ITL of the latest requests", "recent_itl_ms", MILLISECONDS_PER_SECOND),
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
        self._level: tuple[int, int] | None = None
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
        self._level = (progress["level"], progress["agents"])
        self._progress = progress["replay"]

    def collect(self) -> Iterator[Any]:
        """The families, as the page asks for them; what is not known yet is left out, never 0."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415 - an extra

        progress: Any = self._progress
        if progress is None:
            return
        requests = CounterMetricFamily("agentbench_requests", "Requests that have ended", labels=["status"])
        for status in STATUSES:
            requests.add_metric([status], progress[f"requests_{status}"])
        yield requests
        for name, about, field in COUNTERS:
            yield CounterMetricFamily(name, about, value=progress[field])
        for name, about, field, scale in GAUGES:
            if progress[field] is not None:
                yield GaugeMetricFamily(name, about, value=progress[field] / scale)
        phases = GaugeMetricFamily("agentbench_phase", "1 for the phase that the run is in", labels=["phase"])
        for phase in PHASES:
            phases.add_metric([phase], float(progress["phase"] == phase))
        yield phases
        if self._level is not None:
            yield GaugeMetricFamily("agentbench_level", "Level of the capacity search", value=self._level[0])
            yield GaugeMetricFamily("agentbench_level_agents", "Agents of this level", value=self._level[1])
