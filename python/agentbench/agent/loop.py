"""The work on one task: ask the model, run the tools that it calls, until it says that it is done.

`Session` is what any loop is made of: one request at a time, its calls in parallel. `work` is the loop that an agent
has by itself; another one is an async function that takes a session.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from .conversation import Call, Reply, Result
from .tools import MalformedCallError, ToolError, parsed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence
    from concurrent.futures import Executor
    from typing import Any

    from .conversation import Conversation
    from .tasks import Task
    from .tools import Tool
    from .workspace import Workspace

GO_ON = "Your answer was cut off at its longest length. Go on from there, in shorter answers."


class RequestFailedError(Exception):
    """A request of the agent failed; the text says how."""


class Sender(Protocol):
    """Who sends a body and tells what came of it."""

    def __call__(
        self, body: bytes, *, turn: int, ready_for_s: float, tool_time_ms: float | None
    ) -> Awaitable[dict[str, Any]]:
        """Send a body."""


@dataclass
class Session:
    """One agent at work on one task.

    Attributes
    ----------
    task
        What is to be done.
    workspace
        Where; None for an agent without files.
    max_steps
        Most answers of the model.
    steps
        What has been said so far: each answer with the results of its calls.
    tool_calls, tool_errors, malformed_calls
        Calls so far; errors are counted without the malformed ones.
    """

    __module__ = "agentbench"

    task: Task
    workspace: Workspace | None
    max_steps: int
    conversation: Conversation = field(repr=False)
    tools: Sequence[Tool] = field(repr=False)
    sender: Sender = field(repr=False)
    executor: Executor | None = field(default=None, repr=False)
    steps: list[tuple[Reply, tuple[Result, ...]]] = field(default_factory=list)
    tool_calls: int = 0
    tool_errors: int = 0
    malformed_calls: int = 0
    _requests: int = 0
    _ready: float = field(default_factory=time.monotonic)
    _tool_time_ms: float | None = None

    @property
    def may_ask(self) -> bool:
        """Whether the model may give another answer."""
        return len(self.steps) < self.max_steps

    def say(self, text: str) -> None:
        """Tell the model something, with the next request."""
        self.conversation.say(text)

    async def ask(self) -> Reply:
        """Send what has been said so far and return the model's answer.

        Raises
        ------
        RequestFailedError
            When the request failed; it is counted, and not sent again.
        """
        body = self.conversation.body()
        ready_for_s = time.monotonic() - self._ready
        told = await self.sender(body, turn=self._requests, ready_for_s=ready_for_s, tool_time_ms=self._tool_time_ms)
        self._requests += 1
        self._ready, self._tool_time_ms = time.monotonic(), None
        if told["status"] != "ok":
            raise RequestFailedError(told["error"] or told["status"])
        answer = self.conversation.heard(told)
        self.steps.append((answer, ()))
        return answer

    async def call(self, answer: Reply) -> tuple[Result, ...]:
        """Run all calls of an answer at once; their results go to the model with the next request."""
        start = time.monotonic()
        results = tuple(await asyncio.gather(*(self._run(call) for call in answer.calls)))
        self._ready = time.monotonic()
        self._tool_time_ms = (self._ready - start) * 1e3
        self.conversation.results(results)
        self.steps[-1] = (answer, results)
        self.tool_calls += len(results)
        self.malformed_calls += sum(result.malformed for result in results)
        self.tool_errors += sum(result.is_error and not result.malformed for result in results)
        return results

    async def _run(self, call: Call) -> Result:
        start = time.monotonic()
        try:
            found, arguments = parsed(self.tools, call.name, call.arguments)
            text = await found.run(arguments, self.workspace, self.executor)
        except MalformedCallError as error:
            return Result(call, f"Error: {error}", is_error=True, malformed=True)
        except ToolError as error:
            return Result(call, f"Error: {error}", is_error=True, seconds=time.monotonic() - start)
        except Exception as error:  # noqa: BLE001 whatever a user's tool raises is for the model
            told = f"Error: {type(error).__name__}: {error}"
            return Result(call, told, is_error=True, seconds=time.monotonic() - start)
        return Result(call, text, seconds=time.monotonic() - start)


async def work(session: Session) -> bool:
    """Go on until the model answers without a call; whether it did so before its steps were over."""
    while session.may_ask:
        answer = await session.ask()
        if answer.calls:
            await session.call(answer)
        elif answer.finish_reason == "length":
            session.say(GO_ON)
        else:
            return True
    return False
