"""``agentbench capacity``: the most agents that hold a service level."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentbench import PRESETS, TIERS, Capacity, Run, SimulatedEngine, default_out, sample_trace
from agentbench._report.levels import values_in_words

from .cluster import check_reachable, handle_for, ray_options
from .console import print_error, print_next, print_note, results
from .live import Status
from .metrics import MetricsPage, metrics_option
from .parameters import DURATION
from .power import power_options, power_settings
from .report import print_and_keep
from .run_view import drawn, line, of_search
from .sending import sending_options, sending_settings

if TYPE_CHECKING:
    from agentbench._ray import RayRun

FAILED = 1
INTERRUPTED = 130

TIER_HELP = "\n".join(f"  {name}: {conditions}" for name, conditions in TIERS.items())
HELP = f"""Search the most agents that hold a service level, by replay of a recording at rising numbers of agents.

TRACE is a run directory; without one, the bundled sample is played. Without --url the embedded engine
answers: it is simulated, and its figures say nothing about any hardware.

A condition is METRIC.STATISTIC OP VALUE: ttft, tpot, itl and e2e (with ms or s), speed (output tokens/s) with
mean, min, max or p1 to p99.9; errors is a count. All conditions must hold. A failed request counts as the worst
possible value of each.

The search starts at 2 agents, doubles to the first level that misses a condition, bisects, and tries the
answer and its successor once more. A level with too few samples is invalid, never passed. When every level
passes up to --max-agents the result is "not saturated" and no limit.

Exits with 1 when not even one agent holds the service level, no level could be judged, or a failed request
ended the search (--on-error abort), with 130 when interrupted; the run directory is written all the same.

\b
Tiers (those of AA-AgentPerf):
{TIER_HELP}
"""


@click.command("capacity", help=HELP)
@click.argument("trace", type=click.Path(path_type=Path), required=False)
@click.option(
    "--slo",
    multiple=True,
    metavar="COND",
    help="A condition, like 'ttft.p95<=10s'; may be repeated.  [default: the tier's]",
)
@click.option(
    "--tier",
    type=click.Choice(list(TIERS)),
    metavar="NAME",
    help="A published service level; see below.  [default: none]",
)
@click.option("--max-agents", type=click.IntRange(min=1), default=256, show_default=True, help="Most agents tried.")
@click.option(
    "--resolution", type=click.IntRange(min=1), default=1, show_default=True, help="End when it is known to N agents."
)
@click.option(
    "--preset",
    type=click.Choice(PRESETS),
    default=PRESETS[0],
    show_default=True,
    help="What a level must have. quick: 3 requests of each agent and 5 s of steady state, 60 s at most; a first"
    " look. agentperf: 30 trajectories, 3 of each agent, 10 minutes of steady state, 2 h at most.",
)
@click.option("--min-trajectories", type=click.IntRange(min=0), help="Trajectories a level.  [default: the preset's]")
@click.option(
    "--min-trajectories-per-agent",
    type=click.IntRange(min=0),
    help="Trajectories of each agent.  [default: the preset's]",
)
@click.option(
    "--min-requests-per-agent", type=click.IntRange(min=1), help="Requests of each agent.  [default: the preset's]"
)
@click.option("--min-steady", type=DURATION, help="Steady state of a level, like 30s.  [default: the preset's]")
@click.option("--level-time", type=DURATION, help="End a level after this time.  [default: the preset's]")
@click.option(
    "--gpu-count",
    type=click.IntRange(min=1),
    help="How many GPUs serve.  [default: those whose power is sampled, else those named by --gpus]",
)
@click.option("--out", type=click.Path(path_type=Path), help="The run directory.  [default: results/capacity-TIME]")
@metrics_option
@sending_options
@power_options
@ray_options
def command(
    trace: Path | None,
    url: str | None,
    speed: str,
    out: Path | None,
    min_steady: float | None,
    level_time: float | None,
    ray: str | None,
    workers: int,
    metrics_port: int | None,
    **settings: Any,
) -> int:
    """Search the most agents that hold a service level."""
    settings |= (
        sending_settings(settings) | power_settings(settings) | {"min_steady_s": min_steady, "level_time_s": level_time}
    )
    if not settings["slo"] and settings["tier"] is None:
        message = "a capacity search needs a service level: --slo 'ttft.p95<=10s' or --tier NAME"
        raise click.UsageError(message)
    check_reachable(ray, url)
    recording = Run.open(trace or sample_trace())
    with ExitStack() as stack:
        if url is None:
            url = stack.enter_context(SimulatedEngine(speed=speed)).url
            print_note(f"SIMULATED engine: {speed} at {url}; its figures say nothing about any hardware")
        settings |= {"url": url, "out": out or default_out("capacity")}
        handle = handle_for(Capacity, recording, ray, workers, settings)
        if "(changed:" in handle.preset:
            print_note(f"preset: {handle.preset}: not comparable with results of the preset as it is")
        run, interrupted = search(handle, stack.enter_context(MetricsPage(metrics_port)))
    return _report(run, interrupted=interrupted)


def search(handle: Capacity | RayRun, page: MetricsPage, name: str = "capacity") -> tuple[Run, bool]:
    """Run it to its end, or to Ctrl-C; the view bears the name."""
    handle.start()
    judged = 0
    try:
        with Status() as status:
            for progress in status.looks(handle):
                page.update_search(progress)
                for level in progress["levels"][judged:]:
                    status.note(_verdict(level))
                judged = len(progress["levels"])
                look = of_search(progress, name)
                status.show(drawn(look), line(look))
        return handle.wait(), False
    except KeyboardInterrupt:
        print_note(f"interrupted: writing what there is to {handle.out}")
        return handle.stop(), True


def _verdict(level: dict[str, Any]) -> str:
    reason = f" ({level['reason']})" if level["reason"] else ""
    verdict = level["verdict"] + (", speed overstated" if level["speed_overstated"] else "")
    agents = "1 agent" if level["agents"] == 1 else f"{level['agents']} agents"
    return f"level {level['level']}: {agents}: {verdict}{reason}; {values_in_words(level)}"


def _report(run: Run, *, interrupted: bool) -> int:
    summary = print_and_keep(run).summary
    results().print(f"run directory: {run.path}", soft_wrap=True, markup=False)
    if interrupted:
        print_error(f"interrupted; partial results are in {run.path}")
        return INTERRUPTED
    if summary["failed_because"]:
        print_error(f"{summary['failed_because']}; see requests.parquet in {run.path}")
        return FAILED
    if not summary["capacity"]["max_agents"]:
        print_error("the service level was missed even by the fewest agents, or could not be judged")
        return FAILED
    print_next(
        [
            f"agentbench report {run.path} --html",
            f"python -c \"import agentbench; print(agentbench.Run.open('{run.path}').levels().to_pandas())\"",
        ],
    )
    return 0
