"""All tasks of a run: workspaces, agents at work side by side, checks, and one run directory of it all."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import tempfile
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench._collect.sandbox import Place
from agentbench._core import AgentRun, ConfigError
from agentbench._report import report

from . import checks, loop
from .checks import Verdict
from .conversation import Conversation
from .paths import PathError, Root
from .workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from agentbench._core import Run

    from .loop import Session
    from .sandbox import Sandbox
    from .tasks import Task
    from .tools import Tool

    Loop = Callable[[Session], Awaitable[bool]]

LOGGER = logging.getLogger("agentbench")
MOST_AT_ONCE = 32
CALLS_AT_ONCE = 8
KEPT = "workspaces"
ENDING_SECONDS = 15.0
SYSTEM = (
    "You are a coding agent. You work in the current directory by calling tools: look at the files first, make the "
    "changes that the task asks for, and run what you changed. When the task is done, answer in a sentence without "
    "calling a tool; that ends your work."
)


@dataclass(frozen=True)
class Settings:
    """How agents work; kept in the manifest.

    Attributes
    ----------
    max_steps
        Most answers of the model for a task.
    max_tokens
        Most output tokens of an answer.
    shell_timeout_s
        Seconds that a command of the model may take.
    sandbox
        What keeps commands.
    keep_reasoning
        Whether the model's reasoning is sent back.
    concurrency
        Tasks at once.
    repeat
        Times that each task is worked on.
    system
        The system prompt.
    """

    max_steps: int = 12
    max_tokens: int = 512
    shell_timeout_s: float = 30.0
    sandbox: str = "auto"
    keep_reasoning: bool = False
    concurrency: int = 1
    repeat: int = 1
    system: str = SYSTEM

    def __post_init__(self) -> None:
        for name in ("max_steps", "max_tokens", "concurrency", "repeat"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name}: {getattr(self, name)} is below 1")
        if self.shell_timeout_s <= 0:
            raise ConfigError(f"shell_timeout_s: {self.shell_timeout_s} is no time above 0 s")


@dataclass(frozen=True)
class AgentProgress:
    """How far a run of live agents is.

    Attributes
    ----------
    total, done
        Tasks, and those that have ended with their check.
    completed, claimed
        Tasks whose check passed; tasks that the model said it was done with.
    running
        Names of the tasks that are being worked on.
    requests
        How the requests are doing, as of a replay.
    """

    __module__ = "agentbench"

    total: int
    done: int
    completed: int
    claimed: int
    running: tuple[str, ...]
    requests: dict[str, Any]


@dataclass(frozen=True)
class Worked:
    """What came of one task.

    Attributes
    ----------
    name
        The name of its trajectory in the tables.
    session
        What was said and done.
    outcome
        What ended the work, as the column of ``trajectories``.
    claimed
        Whether the model ended it by itself.
    verdict
        What the checks say.
    workspace
        Where it was worked on, where that was kept.
    """

    name: str
    session: Session | None
    outcome: str
    claimed: bool
    verdict: Verdict
    error: str | None = None
    workspace: Path | None = None


@dataclass
class Runner:
    """Works through the tasks of one run.

    Parameters
    ----------
    handle
        Sends, measures and records; not started yet.
    runs
        Every run of every task, by name.
    settings
        How agents work.
    tools
        What they may call.
    work
        The loop of an agent on one task.
    sandbox
        Keeps the commands.
    workdir
        Where workspaces are made; by default a folder of the system's own, or the run directory for those kept.
    keep
        Whether they are left there.
    """

    handle: AgentRun
    runs: Sequence[tuple[str, Task]]
    settings: Settings
    tools: Sequence[Tool]
    work: Loop
    sandbox: Sandbox
    workdir: Path | None = None
    keep: bool = False
    worked: list[Worked] = field(default_factory=list)
    started: bool = False
    _running: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)

    def progress(self) -> AgentProgress:
        """Return how far it is."""
        return AgentProgress(
            total=len(self.runs),
            done=len(self.worked),
            completed=sum(one.verdict.passed is True for one in self.worked),
            claimed=sum(one.claimed for one in self.worked),
            running=tuple(self._running),
            requests=dict(self.handle.progress()),
        )

    async def run(self) -> Run:
        """Work through all tasks; a cancelled task ends them and keeps what there is."""
        await self.handle.start_async()
        self.started = True
        # As many tools at once as are called: the default pool is as small as the machine.
        executor = ThreadPoolExecutor(self.settings.concurrency * CALLS_AT_ONCE, "agent-tool")
        try:
            with self._places() as places:
                try:
                    await self._all(places, executor)
                finally:
                    self._stop.set()
                    await _shut_down(executor)
            self.handle.all_done()
        except ExceptionGroup as errors:
            # What breaks a run breaks it for all agents alike: the first one's word is enough.
            raise errors.exceptions[0] from errors
        finally:
            run = await asyncio.shield(asyncio.ensure_future(self._ended()))
        return run

    async def _all(self, places: Path, executor: ThreadPoolExecutor) -> None:
        waiting = deque(self.runs)
        async with asyncio.TaskGroup() as group:
            for number in range(self.settings.concurrency):
                group.create_task(self._agent(number, waiting, places, executor))

    async def _ended(self) -> Run:
        run = await self.handle.stop_async()
        if run is None:
            raise AssertionError("a run of agents writes one")
        try:
            await asyncio.to_thread(lambda: report(run).write())
        except OSError as error:
            LOGGER.warning("report.md was not written: %s", error)
        return run

    @contextlib.contextmanager
    def _places(self) -> Any:
        """Yield the folder below which workspaces are made; one that is not kept is removed."""
        if self.keep:
            folder = Path(self.workdir or Path(self.handle.out) / KEPT).absolute()
            folder.mkdir(parents=True, exist_ok=True)
            yield folder
            return
        if self.workdir is not None:
            self.workdir.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(prefix="agentbench-", dir=self.workdir)).absolute()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, onerror=_writable)

    async def _agent(
        self, number: int, waiting: deque[tuple[str, Task]], places: Path, executor: ThreadPoolExecutor
    ) -> None:
        invocation = 0
        while waiting:
            name, task = waiting.popleft()
            self._running.append(name)
            try:
                worked = await self._one(name, task, (number, invocation), places / name, executor)
            finally:
                self._running.remove(name)
            self.worked.append(worked)
            invocation += 1
        self.handle.nothing_left(number)

    async def _one(
        self, name: str, task: Task, agent: tuple[int, int], folder: Path, executor: ThreadPoolExecutor
    ) -> Worked:
        self.handle.task_started(name, agent[0])
        worked = Worked(name, None, "cancelled", claimed=False, verdict=Verdict(None, "the run ended before its check"))
        try:
            worked = await self._in_place(name, task, agent, folder, executor)
        finally:
            await asyncio.shield(asyncio.ensure_future(self._tell(worked, task, agent)))
        return worked

    async def _in_place(
        self, name: str, task: Task, agent: tuple[int, int], folder: Path, executor: ThreadPoolExecutor
    ) -> Worked:
        place, check = Place(folder / "tree", folder / "home", folder / "tmp", folder / "private"), folder / "check"
        in_thread = asyncio.get_running_loop().run_in_executor
        kept = place.tree if self.keep else None
        try:
            await in_thread(executor, _laid_out, task, place, check)
            shell = self.sandbox.opened(place, check)
            async with _in_executor(shell, executor) as opened:
                workspace = Workspace(place.tree, opened, self.settings.shell_timeout_s)
                was = await in_thread(executor, checks.before, task.checks, workspace)
                session = self._session(name, task, agent, workspace, executor)
                try:
                    outcome, claimed, error = await self._worked(session)
                finally:
                    # What the agent left running must not meet its check.
                    workspace.stop.set()
                judged = replace(workspace, stop=self._stop)
                verdict = await in_thread(executor, checks.judge, task.checks, judged, check, was)
                return Worked(name, session, outcome, claimed, verdict, error, kept)
        except (OSError, PathError, RuntimeError) as error:
            why = f"the workspace could not be used: {error}"
            LOGGER.warning("task %s: %s", name, why)
            return Worked(name, None, "failed_tool", claimed=False, verdict=Verdict(None, why), error=why)

    async def _worked(self, session: Session) -> tuple[str, bool, str | None]:
        """Let the agent work; what ended that, whether the model said that it is done, and what went wrong."""
        try:
            async with asyncio.timeout(session.task.time_limit_s):
                done = await self.work(session)
        except TimeoutError:
            return "time_limit", False, None
        except loop.RequestFailedError as error:
            return "failed_request", False, str(error)
        return ("done" if done else "max_steps"), done, None

    def _session(
        self, name: str, task: Task, agent: tuple[int, int], workspace: Workspace, executor: ThreadPoolExecutor
    ) -> Session:
        conversation = Conversation(
            api=self.handle.api,
            model=self.handle.model,
            system=self.settings.system,
            tools=self.tools,
            max_tokens=self.settings.max_tokens,
            keep_reasoning=self.settings.keep_reasoning,
            continuous_usage=self.handle.continuous_usage,
        )
        conversation.say(task.prompt)

        def send(
            body: bytes, *, turn: int, ready_for_s: float, tool_time_ms: float | None
        ) -> Awaitable[dict[str, Any]]:
            return self.handle.send_async(
                body,
                trajectory_id=name,
                agent_id=agent[0],
                invocation=agent[1],
                turn=turn,
                ready_for_s=ready_for_s,
                tool_time_ms=tool_time_ms,
            )

        return loop.Session(task, workspace, self.settings.max_steps, conversation, self.tools, send, executor)

    async def _tell(self, worked: Worked, task: Task, agent: tuple[int, int]) -> None:
        session = worked.session
        await self.handle.task_ended_async(
            {
                "trajectory_id": worked.name,
                "agent_id": agent[0],
                "invocation": agent[1],
                "task_id": task.id,
                "outcome": worked.outcome,
                "claimed": worked.claimed,
                "check_passed": worked.verdict.passed,
                "check_note": worked.verdict.note,
                "steps": len(session.steps) if session else 0,
                "tool_calls": session.tool_calls if session else 0,
                "tool_errors": session.tool_errors if session else 0,
                "malformed_calls": session.malformed_calls if session else 0,
            }
        )


async def _shut_down(executor: ThreadPoolExecutor) -> None:
    """Wait for the tools that still run; not for ever, since some are the user's own."""
    ending = asyncio.ensure_future(asyncio.to_thread(executor.shutdown, wait=True, cancel_futures=True))
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(asyncio.shield(ending), ENDING_SECONDS)


@contextlib.asynccontextmanager
async def _in_executor(context: Any, executor: ThreadPoolExecutor) -> Any:
    """Enter and leave a context on a thread: a container takes its time."""
    in_thread = asyncio.get_running_loop().run_in_executor
    value = await in_thread(executor, context.__enter__)
    try:
        yield value
    finally:
        await asyncio.shield(asyncio.ensure_future(asyncio.to_thread(context.__exit__, None, None, None)))


def _laid_out(task: Task, place: Place, check: Path) -> None:
    """Make a task's folders and files."""
    if place.tree.exists():
        raise OSError(f"{place.tree} is there already; give another --workdir")
    place.make()
    check.mkdir()
    if task.folder is None:
        place.tree.mkdir()
    else:
        # Links are copied as they are: what they lead to stays outside.
        shutil.copytree(task.folder, place.tree, symlinks=True)
    files = Root(place.tree)
    for path, text in task.files.items():
        files.write(path, text.encode())


def _writable(remove: Callable[[str], None], path: str, _error: object) -> None:
    """Remove what a command made unwritable for itself."""
    with contextlib.suppress(OSError):
        Path(path).parent.chmod(0o700)
        Path(path).chmod(0o700)
        remove(path)
