"""``agentbench replay``: a recording sent again."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentbench import Replay, Run, SimulatedEngine, default_out, sample_trace

from .cluster import check_reachable, handle_for, ray_options
from .console import print_error, print_next, print_note, results
from .live import Status
from .metrics import MetricsPage, metrics_option
from .parameters import DURATION
from .power import power_options, power_settings
from .report import print_and_keep
from .run_view import drawn, line, of_replay
from .sending import sending_options, sending_settings

if TYPE_CHECKING:
    from agentbench._ray import RayRun

AGENTS = 4
FAILED = 1
INTERRUPTED = 130


@dataclass(frozen=True)
class Wanted:
    """What was asked for, as typed."""

    trace: Path | None
    url: str | None
    speed: str
    out: Path
    ray: str | None
    workers: int
    metrics_port: int | None
    settings: dict[str, Any]


@click.command("replay")
@click.argument("trace", type=click.Path(path_type=Path), required=False)
@click.option("--agents", type=click.IntRange(min=1), help="Closed loop: agents at work at once.  [default: 4]")
@click.option(
    "--arrivals",
    metavar="recorded|poisson:R|constant:R|burst",
    help="Open loop: begin sessions at these arrivals, R a second, whatever the engine does.  [default: closed loop]",
)
@click.option(
    "--time-scale",
    type=click.FloatRange(min=0, min_open=True),
    help="Open loop: multiply the times of arrival by this (2: half the rate). Waits within a session have --tool-time"
    " and --human-time.  [default: 1]",
)
@click.option(
    "--max-active",
    type=click.IntRange(min=1),
    help="Open loop: most agents at work at once; who arrives beyond waits, which counts as lag.  [default: no cap]",
)
@click.option(
    "--duration", type=DURATION, help="Start nothing more after this time, like 60s or 5m.  [default: no limit]"
)
@click.option("--trajectories", type=click.IntRange(min=1), help="Sessions to play.  [default: each once]")
@click.option("--out", type=click.Path(path_type=Path), help="The run directory.  [default: results/replay-TIME]")
@metrics_option
@sending_options
@power_options
@ray_options
def command(
    trace: Path | None,
    url: str | None,
    speed: str,
    out: Path | None,
    duration: float | None,
    ray: str | None,
    workers: int,
    metrics_port: int | None,
    **settings: Any,
) -> int:
    """Send a recording again, by N agents, each of which works through one session after another.

    With --arrivals the loop is open: a session begins at its arrival, by an agent of its own.

    TRACE is a run directory; without one, the bundled sample is played. Without --url the embedded engine
    answers: it is simulated, and its figures say nothing about any hardware.

    A request that fails, time-outs included, is a row. Exits with 1 when one failed (with --max-error-rate: when
    more than that share did), with 130 when interrupted; the run directory is written all the same.
    """
    check_reachable(ray, url)
    settings |= power_settings(settings) | sending_settings(settings) | {"duration_s": duration}
    if settings["arrivals"] is None and settings["agents"] is None:
        settings["agents"] = AGENTS
    return _replay(Wanted(trace, url, speed, out or default_out("replay"), ray, workers, metrics_port, settings))


def _replay(wanted: Wanted) -> int:
    trace = Run.open(wanted.trace or sample_trace())
    with ExitStack() as stack:
        url = wanted.url
        if url is None:
            url = stack.enter_context(SimulatedEngine(speed=wanted.speed)).url
            print_note(f"SIMULATED engine: {wanted.speed} at {url}; its figures say nothing about any hardware")
        settings = wanted.settings | {"url": url, "out": wanted.out}
        handle = handle_for(Replay, trace, wanted.ray, wanted.workers, settings)
        page = stack.enter_context(MetricsPage(wanted.metrics_port))
        run, interrupted = play(handle, page)
    return _report(run, interrupted=interrupted)


def play(handle: Replay | RayRun, page: MetricsPage, name: str = "replay") -> tuple[Run, bool]:
    """Run it to its end, or to Ctrl-C; the view bears the name."""
    handle.start()
    try:
        with Status() as status:
            for progress in status.looks(handle):
                page.update(progress)
                look = of_replay(progress, name)
                status.show(drawn(look), line(look))
        return handle.wait(), False
    except KeyboardInterrupt:
        print_note(f"interrupted: writing what there is to {handle.out}")
        return handle.stop(), True


def _report(run: Run, *, interrupted: bool) -> int:
    summary = print_and_keep(run).summary
    failed_because = summary["failed_because"]
    results().print(f"run directory: {run.path}", soft_wrap=True, markup=False)
    if interrupted:
        print_error(f"interrupted; partial results are in {run.path}")
        return INTERRUPTED
    if failed_because:
        print_error(f"{failed_because}; see requests.parquet in {run.path}")
        return FAILED
    if any(worker["lost"] for worker in summary["settings"]["workers"]):
        print_error(f"a worker was lost during the run; see the notes in summary.json in {run.path}")
        return FAILED
    print_next(
        [
            f"agentbench report {run.path} --html",
            f"python -c \"import agentbench; print(agentbench.Run.open('{run.path}').requests().to_pandas())\"",
            "agentbench capture --upstream URL -- claude -p TASK",
        ]
    )
    return 0
