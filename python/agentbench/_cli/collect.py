"""``agentbench collect``: an agent over a set of tasks, recorded."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.table import Table

from agentbench import _collect
from agentbench._collect.session import FOLDER
from agentbench._figures import UNKNOWN, count

from .argv import masked_argv
from .console import print_error, print_next, print_note, print_warning, results
from .live import Status
from .parameters import DURATION, URL, URL_OR_NONE
from .power import power_options, power_settings

if TYPE_CHECKING:
    from agentbench import CollectProgress, Run
    from agentbench._collect import Session

FAILED = 1
INTERRUPTED = 130
SHOWN_IDS = 4


@click.command("collect")
@click.option("--dataset", help="verified, pro, or a Parquet, JSON, JSONL or YAML file.  [default: that of --resume]")
@click.option(
    "--agent",
    help="claude-code, codex, opencode, mini-swe-agent, or a command line with {task} in it."
    "  [default: that of --resume]",
)
@click.option("--upstream", type=URL, help="The engine behind the proxy.  [default: that of --resume]")
@click.option(
    "--resume",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Carry on the collection in this directory: what ended stays, what broke is done again.  [default: none]",
)
@click.option("--out", type=click.Path(path_type=Path), help="The run directory.  [default: results/collect-TIME]")
@click.option("--instances", help="Ids of the only instances to take, with commas between.  [default: all]")
@click.option("--num-samples", type=click.IntRange(min=1), help="At most so many instances.  [default: all]")
@click.option("--shuffle", is_flag=True, help="Take them in an order drawn by --seed.")
@click.option("--seed", type=click.IntRange(min=0), help="Of the order.  [default: 0]")
@click.option("--model", help="The model that agents ask for.  [default: the engine's]")
@click.option("--concurrency", type=click.IntRange(min=1), help="Instances at once.  [default: 1]")
@click.option("--time-limit", type=DURATION, help="Of each instance; then its processes are ended.  [default: 30m]")
@click.option(
    "--max-turns", type=click.IntRange(min=1), help="Turns of an agent, where it can cap them.  [default: none]"
)
@click.option(
    "--max-output-tokens", type=click.IntRange(min=1), help="Most that a request asks for.  [default: the agent's own]"
)
@click.option("--fresh-cache", is_flag=True, help="Empty the engine's prefix cache before each instance.")
@click.option(
    "--repos",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Local repositories in place of clones, as OWNER__NAME, OWNER/NAME or NAME.  [default: none]",
)
@click.option(
    "--cache-dir",
    type=click.Path(path_type=Path),
    help="Where mirrors of repositories are kept.  [default: agentbench/repositories in the user's cache folder]",
)
@click.option("--container", is_flag=True, help="Run agents in the instance's image, by docker or podman.")
@click.option("--unsandboxed", is_flag=True, help="Run agents with nothing around them where bubblewrap is missing.")
@click.option(
    "--expose",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    help="A path that agents may read besides; may be repeated.  [default: none]",
)
@click.option("--metrics-url", type=URL_OR_NONE, help="The engine's metrics page.  [default: --upstream with /metrics]")
@click.option("--poll-interval", type=DURATION, default="100ms", show_default=True, help="Between two polls of it.")
@power_options
def command(
    instances: str | None,
    time_limit: float | None,
    metrics_url: str | None,
    poll_interval: float,
    repos: Path | None,
    cache_dir: Path | None,
    expose: tuple[Path, ...],
    **options: Any,
) -> int:
    """Give a coding agent the tasks of a data set, one work tree each, and record it.

    Each instance has a clean HOME and environment, its work tree at the base commit without anything later, and
    nothing else of the machine to write to. sessions/ID/ holds its patch, figures and logs, predictions.jsonl the
    patches as the SWE-bench evaluation takes them. docs/collect.md tells the rest.

    Exits with 1 when an instance failed or nothing was recorded, with 130 when interrupted; --resume carries on.
    """
    settings = power_settings(options)
    given = {
        "instances": [name.strip() for name in instances.split(",") if name.strip()] if instances else None,
        "time_limit_s": time_limit,
        "repos": repos,
        "cache_dir": cache_dir,
        "expose": expose or None,
        **{name: value for name, value in options.items() if value is not False},
    }
    if metrics_url is not None:
        settings["metrics_url"] = None if metrics_url == "none" else metrics_url
    settings |= {"poll_interval_s": poll_interval, "argv": masked_argv()}
    collector = _collect.collector(**{name: value for name, value in given.items() if value is not None}, **settings)
    return _run(collector)


def _run(collector: _collect.Collector) -> int:
    print_note(f"{collector.described} to {collector.run}")
    if collector.sandbox == "none":
        print_warning("agents run unsandboxed: all that you may read and write is within their reach")
    try:
        with Status() as status:
            run = collector.collect(lambda progress: status.show(_drawn(progress), _line(progress)))
    except KeyboardInterrupt:
        print_error(f"interrupted; carry on with: agentbench collect --resume {collector.run}")
        return INTERRUPTED
    except OSError:
        print_note(f"carry on with: agentbench collect --resume {collector.run}")
        raise
    return _report(run, collector)


def _line(progress: CollectProgress) -> str:
    ended = progress.done + progress.timed_out + progress.failed
    rate = progress.output_tokens_per_s
    outcomes = f"{progress.done} done, {progress.timed_out} timed out, {progress.failed} failed"
    return "; ".join(
        [
            f"instances {ended}/{progress.total} ({outcomes}, {len(progress.running)} running)",
            f"turns {count(progress.turns)}",
            f"tokens {count(progress.isl)} in, {count(progress.osl)} out, {count(rate)}/s",
            f"rows dropped {count(progress.rows_dropped)}",
        ]
    )


def _drawn(progress: CollectProgress) -> Group:
    bar = Progress(TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    bar.add_task("instances", total=progress.total, completed=progress.done + progress.timed_out + progress.failed)
    shown = ", ".join(progress.running[:SHOWN_IDS]) + (", …" if len(progress.running) > SHOWN_IDS else "")
    return Group(bar, _line(progress), f"running: {shown or UNKNOWN}")


def _report(run: Run, collector: _collect.Collector) -> int:
    sessions = [session for name in collector.ids if (session := _collect.read(run.path, name)) is not None]
    results().print(_table(sessions))
    results().print(f"run directory: {run.path}", soft_wrap=True)
    dropped = sum(run.manifest["dropped"].values())
    if dropped:
        print_warning(f"{dropped} row(s) were dropped: the recording is not whole; see the manifest")
    failed = [session for session in sessions if not session.ended]
    if failed:
        print_error(
            f"{len(failed)} of {len(collector.ids)} instance(s) failed, the first: {failed[0].instance_id}:"
            f" {failed[0].reason}; see {run.path / FOLDER}, and do them again with --resume {run.path}"
        )
        return FAILED
    print_next([f"agentbench report {run.path}", f"agentbench replay {run.path} --url URL"])
    return 0


def _table(sessions: list[Session]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("instance", "outcome"):
        table.add_column(heading)
    for heading in ("turns", "ISL", "OSL", "model s", "tool s", "idle s", "exit", "patch bytes"):
        table.add_column(heading, justify="right")
    for session in sessions:
        table.add_row(
            session.instance_id,
            session.outcome,
            *(count(value) for value in (session.turns, session.isl, session.osl)),
            *(
                UNKNOWN if value is None else f"{value:.1f}"
                for value in (session.model_s, session.tool_s, session.idle_s)
            ),
            UNKNOWN if session.exit_code is None else str(session.exit_code),
            count(session.patch_bytes),
        )
    return table
