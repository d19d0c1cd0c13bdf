"""``agentbench agent``: live agents at work on small tasks, against an engine."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentbench import default_out, run_agents
from agentbench.agent.sandbox import KINDS

from .argv import masked_argv
from .console import print_error, print_next, print_note, print_warning, results
from .live import Status
from .metrics import MetricsPage, metrics_option
from .parameters import DURATION, URL, URL_OR_NONE
from .power import power_options, power_settings
from .report import print_and_keep
from .run_view import drawn, line, of_agents

if TYPE_CHECKING:
    from agentbench import AgentProgress, Run

TASKS = 8
FAILED = 1
INTERRUPTED = 130
APIS = ("auto", "chat", "messages", "responses")


@click.command("agent")
@click.option("--url", type=URL, required=True, help="The engine.")
@click.option(
    "--tasks",
    type=click.IntRange(min=1),
    help="So many of the built-in tasks, of which there are twelve; then over again.  [default: 8]",
)
@click.option(
    "--task-file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Tasks of your own: YAML, JSONL, JSON or TOML with id, prompt, files or folder, check, time_limit_s. See"
    " docs/agent.md.  [default: the built-in tasks]",
)
@click.option(
    "--repeat", type=click.IntRange(min=1), default=1, show_default=True, help="Times that each is worked on."
)
@click.option("--concurrency", type=click.IntRange(min=1), help="Tasks at once.  [default: all, up to 32]")
@click.option("--max-steps", type=click.IntRange(min=1), default=12, show_default=True, help="Answers for a task.")
@click.option("--max-tokens", type=click.IntRange(min=1), default=512, show_default=True, help="Tokens of an answer.")
@click.option(
    "--shell-timeout", type=DURATION, default="30s", show_default=True, help="For a command; then all it started ends."
)
@click.option("--model", help="The model asked for.  [default: the engine's]")
@click.option(
    "--api",
    type=click.Choice(APIS),
    default=APIS[0],
    show_default=True,
    help="Where requests go. auto: the first of chat, messages and responses that answers.",
)
@click.option(
    "--api-key",
    envvar="AGENTBENCH_API_KEY",
    show_envvar=True,
    help="Sent to the engine, never written down.  [default: none is sent]",
)
@click.option("--keep-reasoning", is_flag=True, help="Send the model's reasoning back with its answers.")
@click.option(
    "--sandbox",
    type=click.Choice(KINDS),
    default=KINDS[0],
    show_default=True,
    help="What keeps the model's commands. auto: bubblewrap, else docker or podman, else nothing is run. none: they may"
    " do what you may.",
)
@click.option(
    "--workdir",
    type=click.Path(path_type=Path, file_okay=False),
    help="Where workspaces are made.  [default: the system's folder for temporary files]",
)
@click.option(
    "--keep-workspaces",
    is_flag=True,
    help="Leave them there; without --workdir in workspaces/ of the run directory.",
)
@click.option("--out", type=click.Path(path_type=Path), help="The run directory.  [default: results/agent-TIME]")
@click.option(
    "--request-timeout", type=DURATION, help="From a request's start to the end of its answer.  [default: none]"
)
@click.option("--metrics-url", type=URL_OR_NONE, help="The engine's metrics page.  [default: --url with /metrics]")
@click.option("--poll-interval", type=DURATION, default="100ms", show_default=True, help="Between two polls of it.")
@metrics_option
@power_options
def command(
    tasks: int | None,
    task_file: Path | None,
    shell_timeout: float,
    request_timeout: float | None,
    metrics_url: str | None,
    poll_interval: float,
    metrics_port: int | None,
    out: Path | None,
    **options: Any,
) -> int:
    """Let a model work on small coding tasks, with tools that really run, and measure it.

    Each task has a workspace of its own and a check that runs after the agent: a task is completed when its check
    passes, whatever the model says; both are reported. The run has the tables of a replay and of a capture, and
    agentbench replay takes it. docs/agent.md tells the rest.

    Exits with 1 when no task was completed or a request failed, with 130 when interrupted; the run directory is
    written all the same.
    """
    if tasks is not None and task_file is not None:
        raise click.UsageError("--tasks counts built-in tasks; with --task-file leave it out")
    settings = power_settings(options) | options
    settings |= {
        "shell_timeout_s": shell_timeout,
        "request_timeout_s": request_timeout,
        "poll_interval_s": poll_interval,
        "argv": masked_argv(),
        "out": out or default_out("agent"),
    }
    if metrics_url is not None:
        settings["metrics_url"] = None if metrics_url == "none" else metrics_url
    return _run(task_file or tasks or TASKS, metrics_port, settings)


def _run(tasks: int | Path, metrics_port: int | None, settings: dict[str, Any]) -> int:
    if settings["sandbox"] == "none":
        print_warning("commands of the model run with nothing around them: all that you may do is within their reach")
    print_note(f"live agents against {settings['url']} to {settings['out']}")
    try:
        with MetricsPage(metrics_port) as page, Status() as status:

            def show(progress: AgentProgress) -> None:
                page.update_agents(progress)
                look = of_agents(progress)
                status.show(drawn(look), line(look))

            run = run_agents(tasks, on_progress=show, **settings)
    except KeyboardInterrupt:
        print_error(f"interrupted; partial results are in {settings['out']}")
        return INTERRUPTED
    return _report(run)


def _report(run: Run) -> int:
    report = print_and_keep(run)
    results().print(f"run directory: {run.path}", soft_wrap=True, markup=False)
    why = report.summary["failed_because"]
    if why:
        print_error(f"{why}; see {run.path}")
        return FAILED
    print_next([f"agentbench report {run.path}", f"agentbench replay {run.path} --url URL"])
    return 0
