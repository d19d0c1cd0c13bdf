"""Live agents in a call: `run_agents` over tasks, `Agent` for one thing to do."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from agentbench._core import AgentRun, ConfigError, Run
from agentbench._recording import default_out

from . import loop, sandbox, tasks
from .builtin import BUILTIN
from .run import MOST_AT_ONCE, Runner, Settings
from .tasks import Task

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Sequence

    from .conversation import Reply, Result
    from .loop import Session
    from .run import AgentProgress, Worked
    from .tools import Tool

T = TypeVar("T")
LOOK_SECONDS = 0.2
SHOWN_CHARS = 400
OWN = ("max_steps", "max_tokens", "shell_timeout_s", "keep_reasoning", "system")


@dataclass(frozen=True)
class AgentResult:
    """What an agent did; shown by Jupyter as what was said and called, step by step.

    Attributes
    ----------
    outcome
        ``done``, ``max_steps``, ``time_limit``, ``failed_request`` or ``failed_tool``.
    text
        The model's last words.
    steps
        Each answer of the model with the results of its calls.
    completed
        Whether the task's checks passed; None where it has none.
    error
        What went wrong.
    run
        The run directory.
    workspace
        The files that it left, where they were kept.
    """

    __module__ = "agentbench"

    outcome: str
    text: str
    steps: tuple[tuple[Reply, tuple[Result, ...]], ...] = field(repr=False)
    completed: bool | None
    error: str | None
    run: Run
    workspace: Path | None = None

    def to_markdown(self) -> str:
        """Return the steps as Markdown."""
        checked = {True: ", its check passed", False: ", its check did not pass", None: ""}[self.completed]
        parts = [f"**{self.outcome}**{checked}: {len(self.steps)} steps, {self.run.path}"]
        parts += [f"{self.error}"] if self.error else []
        for number, (answer, results) in enumerate(self.steps, 1):
            ttft = "" if answer.ttft_ms is None else f" (TTFT {answer.ttft_ms:.0f} ms)"
            parts.append(f"{number}. {_fenced(answer.text) if answer.text else '*no text*'}{ttft}")
            for result in results:
                mark = " (malformed)" if result.malformed else " (error)" if result.is_error else ""
                called = f"`{result.call.name}` {_fenced(result.call.arguments)}"
                parts.append(f"    - {called}{mark}, {result.seconds:.2f} s: {_fenced(result.text)}")
        return "\n\n".join(parts)

    def _repr_markdown_(self) -> str:
        return self.to_markdown()


def _fenced(text: str) -> str:
    """Return a text on one line in backquotes, so that nothing in it is markup."""
    line = " ".join(text.split())
    shown = line if len(line) <= SHOWN_CHARS else f"{line[:SHOWN_CHARS]} ..."
    ticks = "`" * (max((len(run) for run in _runs_of_ticks(shown)), default=0) + 1)
    return f"{ticks} {shown} {ticks}" if shown else "``"


def _runs_of_ticks(text: str) -> list[str]:
    runs, run = [], ""
    for character in text + " ":
        if character == "`":
            run += character
        elif run:
            runs.append(run)
            run = ""
    return runs


@dataclass(frozen=True)
class Agent:
    """A model that works on a task with tools, measured and recorded like any run.

    Parameters
    ----------
    model
        The model asked for; by default the one that the engine names.
    tools
        What it may call; by default list, read, write, edit, search and shell. Functions become tools.
    url
        Base URL of the engine.
    api
        ``chat``, ``messages``, ``responses``; ``auto`` takes the first of these that answers.
    loop
        An async function that is given a `Session` and returns whether the model said that it is done; by
        default the model is asked until it answers without a call.
    settings
        ``max_steps``, ``max_tokens``, ``shell_timeout_s``, ``keep_reasoning``, ``system``, ``sandbox``, and keyword
        arguments of the recording (``api_key``, ``metrics_url``, ``poll_interval_s``, ``power``, ...).

    Examples
    --------
    >>> agent = agentbench.Agent(url="http://127.0.0.1:8000")  # doctest: +SKIP
    >>> agent.run("write fizzbuzz to app.py and run it")  # doctest: +SKIP
    """

    __module__ = "agentbench"

    model: str | None = None
    tools: Sequence[Tool | Callable[..., Any]] | None = None
    url: str = ""
    api: str = "auto"
    loop: Callable[[Session], Awaitable[bool]] | None = None
    settings: dict[str, Any] = field(default_factory=dict)

    def run(
        self,
        task: str | Task,
        *,
        out: str | os.PathLike[str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        keep_workspace: bool = False,
    ) -> AgentResult:
        """Work on one task and wait for the end.

        Parameters
        ----------
        task
            What to do, in words; or a `Task` with files and checks.
        out
            The run directory to make; by default ``results/agent-<time>``.
        workdir
            Where the workspace is made.
        keep_workspace
            Leave it there.

        Raises
        ------
        ConfigError, UpstreamError, OSError
            When it cannot start. A request that fails is an outcome, not an exception.
        """
        return _waited(self.run_async(task, out=out, workdir=workdir, keep_workspace=keep_workspace))

    async def run_async(
        self,
        task: str | Task,
        *,
        out: str | os.PathLike[str] | None = None,
        workdir: str | os.PathLike[str] | None = None,
        keep_workspace: bool = False,
    ) -> AgentResult:
        """`run` without blocking the event loop; a cancelled task ends the agent and keeps what there is."""
        given = Task("task", task) if isinstance(task, str) else task
        runner = _runner(
            [given],
            url=self.url,
            model=self.model,
            tools=self.tools,
            api=self.api,
            loop=self.loop,
            out=out,
            workdir=workdir,
            keep_workspaces=keep_workspace,
            **self.settings,
        )
        run = await runner.run()
        return _result(runner.worked[0], run)


def _result(worked: Worked, run: Run) -> AgentResult:
    steps = tuple(worked.session.steps) if worked.session else ()
    return AgentResult(
        outcome=worked.outcome,
        text=steps[-1][0].text if steps else "",
        steps=steps,
        completed=worked.verdict.passed,
        error=worked.error,
        run=run,
        workspace=worked.workspace,
    )


def run_agents(
    tasks: int | str | os.PathLike[str] | Sequence[Task] = 8,
    *,
    url: str,
    model: str | None = None,
    tools: Sequence[Tool | Callable[..., Any]] | None = None,
    api: str = "auto",
    loop: Callable[[Session], Awaitable[bool]] | None = None,
    concurrency: int | None = None,
    repeat: int = 1,
    out: str | os.PathLike[str] | None = None,
    workdir: str | os.PathLike[str] | None = None,
    keep_workspaces: bool = False,
    sandbox: str = "auto",
    on_progress: Callable[[AgentProgress], None] | None = None,
    **settings: Any,
) -> Run:
    """Let live agents work on tasks against an engine, and wait for the end.

    Parameters
    ----------
    tasks
        How many of the built-in tasks; a file of tasks (``.yaml``, ``.jsonl``, ``.json``, ``.toml``); or tasks.
    url
        Base URL of the engine.
    model
        The model asked for; by default the one that the engine names.
    tools
        What agents may call; by default list, read, write, edit, search and shell. Functions become tools.
    api
        ``chat``, ``messages``, ``responses``; ``auto`` takes the first of these that answers.
    loop
        An async function that is given a `Session` and returns whether the model said that it is done; by
        default the model is asked until it answers without a call.
    concurrency
        Tasks at once; by default all, up to 32.
    repeat
        Times that each task is worked on.
    out
        The run directory to make; by default ``results/agent-<time>``.
    workdir
        Where workspaces are made; by default the system's folder for temporary files.
    keep_workspaces
        Leave them there; without `workdir` in ``workspaces`` of the run directory.
    sandbox
        ``auto`` (bubblewrap, else a container), ``bwrap``, ``docker``, ``podman``, or ``none``: commands may then do
        what you may.
    on_progress
        Called several times a second with how far it is, and once more after the end.
    **settings
        ``max_steps`` (12), ``max_tokens`` (512), ``shell_timeout_s`` (30), ``keep_reasoning`` (False), ``system``; and
        ``api_key``, ``metrics_url``, ``poll_interval_s``, ``power``, ``gpus``, ``engine_pid``, ``idle_baseline_s``,
        ``pue``, ``argv``, ``connect_timeout_s``, ``first_byte_timeout_s``, ``idle_timeout_s``, ``request_timeout_s``
        with the meanings that they have for `Replay`.

    Returns
    -------
    Run
        With ``requests()``, ``trajectories()`` (a row for each task), ``turns()``, ``tool_calls()`` and ``summary()``;
        a replay takes it. A task that was not completed is a row, not an exception.

    Raises
    ------
    ConfigError, UpstreamError, OSError
        When it cannot start or go on.

    Examples
    --------
    >>> run = agentbench.run_agents(8, url="http://127.0.0.1:8000")  # doctest: +SKIP
    >>> run.summary()["agent"]["completed_pct"]  # doctest: +SKIP
    """
    return _waited(
        run_agents_async(
            tasks,
            url=url,
            model=model,
            tools=tools,
            api=api,
            loop=loop,
            concurrency=concurrency,
            repeat=repeat,
            out=out,
            workdir=workdir,
            keep_workspaces=keep_workspaces,
            sandbox=sandbox,
            on_progress=on_progress,
            **settings,
        )
    )


async def run_agents_async(
    tasks: int | str | os.PathLike[str] | Sequence[Task] = 8,
    *,
    on_progress: Callable[[AgentProgress], None] | None = None,
    **settings: Any,
) -> Run:
    """`run_agents` without blocking the event loop; a cancelled task ends the agents and keeps what there is."""
    runner = _runner(tasks, **settings)
    looking = asyncio.ensure_future(_look(runner, on_progress)) if on_progress else None
    try:
        run = await runner.run()
    finally:
        if looking:
            looking.cancel()
    if on_progress:
        on_progress(runner.progress())
    return run


async def _look(runner: Runner, on_progress: Callable[[AgentProgress], None]) -> None:
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        if runner.started:
            on_progress(runner.progress())


def _runner(
    given: int | str | os.PathLike[str] | Sequence[Task],
    *,
    url: str,
    tools: Sequence[Tool | Callable[..., Any]] | None = None,
    loop: Callable[[Session], Awaitable[bool]] | None = None,
    concurrency: int | None = None,
    repeat: int = 1,
    out: str | os.PathLike[str] | None = None,
    workdir: str | os.PathLike[str] | None = None,
    keep_workspaces: bool = False,
    sandbox: str = "auto",
    **settings: Any,
) -> Runner:
    """Return what a run is made by. Arguments and errors are those of `run_agents`."""
    if not url:
        raise ConfigError("url is missing: agents need an engine, such as http://127.0.0.1:8000")
    wanted = Path(given) if isinstance(given, str | os.PathLike) else given
    found, source = tasks.chosen(wanted)
    runs = tasks.named(found, repeat)
    if concurrency is not None and concurrency < 1:
        raise ConfigError(f"concurrency: {concurrency} is below 1")
    kept = Settings(
        concurrency=min(concurrency or MOST_AT_ONCE, len(runs)),
        repeat=repeat,
        **{name: settings.pop(name) for name in OWN if name in settings},
    )
    chosen = _chosen_sandbox(sandbox)
    kept = replace(kept, sandbox=chosen.name)
    offered = _offered(tools)
    told = {
        **{name: getattr(kept, name) for name in ("concurrency", "repeat", "sandbox", *OWN)},
        "tasks": source,
        "task_ids": sorted({task.id for task in found}),
        "tools": [tool.name for tool in offered],
        "own_loop": loop is not None,
    }
    handle = AgentRun(
        url=url,
        out=Path(default_out("agent") if out is None else out),
        agents=kept.concurrency,
        tasks=len(runs),
        dataset=source,
        settings={"agent": told},
        **settings,
    )
    folder = None if workdir is None else Path(workdir)
    return Runner(handle, runs, kept, offered, loop or _own_loop, chosen, folder, keep_workspaces)


def _chosen_sandbox(kind: str) -> sandbox.Sandbox:
    return sandbox.choose(kind)


async def _own_loop(session: Session) -> bool:
    return await loop.work(session)


def _offered(tools: Sequence[Tool | Callable[..., Any]] | None) -> tuple[Tool, ...]:
    from .tools import Tool, tool  # noqa: PLC0415 the names are arguments' here

    offered = BUILTIN if tools is None else tuple(each if isinstance(each, Tool) else tool(each) for each in tools)
    names = [each.name for each in offered]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"tools: two are called {twice!r}; give one of them another name")
    return offered


def _waited(work: Coroutine[Any, Any, T]) -> T:
    """Run to the end, also where an event loop runs already, as in a notebook."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    outcome: list[T] = []
    failed: list[BaseException] = []

    def beside() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:  # noqa: BLE001 raised again where it is waited for
            failed.append(error)

    thread = threading.Thread(target=beside, name="agents")
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return outcome[0]
