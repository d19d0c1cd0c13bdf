"""Questions asked of recordings: one file each, each a function from a `Trace` to an `Answer`.

`analyze` asks them of runs; `QUESTIONS` lists them. A question works on any run, whatever it lacks, and says what is
missing. Libraries of the extra ``analysis`` are imported when the first question is asked.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, cast

from agentbench._core import ConfigError
from agentbench._frames import REMEDY

from .answer import Analysis, Answer, Headline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from os import PathLike

    from agentbench._core import Run

    from .trace import Trace

__all__ = ["QUESTIONS", "Analysis", "Answer", "Headline", "Question", "analyze", "open_trace"]

NEEDED = ("polars", "pandas", "matplotlib")
AT_ONCE = 2
"""Polars works on all cores; a second question fills the gaps in which one does not."""
LONGEST = ("cache", "time")


@dataclass(frozen=True)
class Question:
    """A question: its name, which is that of its file and of the function in it, and what it asks."""

    name: str
    asks: str

    def __call__(self, trace: Trace, **options: Any) -> Answer:
        """Answer it of the runs that `trace` has opened, with what only this question is told."""
        function: Callable[..., Answer] = getattr(import_module(f"{__name__}.{self.name}"), self.name)
        return function(trace, **options)


QUESTIONS: dict[str, Question] = {
    question.name: question
    for question in (
        Question("overview", "what was recorded: sessions, threads, turns, tool calls, tokens, span of time"),
        Question("tokens", "tokens of a step: prompt, cached, new, output; by agent and model, and over turns"),
        Question("loop", "model steps and tool calls of a user request, and how long the agent runs without a human"),
        Question("tools", "tool calls: which, latency, where the time goes, errors, parallel calls, what follows what"),
        Question("time", "shares of human, generation, tools and idle; how long steps and waits are"),
        Question("context", "growth of contexts, compaction, and the work of subagents"),
        Question("cache", "prefix-cache hits by trigger, retention, capacity; what pauses cost, what sessions share"),
        Question("generation", "decode speed by context and output, time to the first token by append"),
        Question("cost", "cost by a price table, by class of tokens, model, session; without one, the tokens by class"),
    )
}
"""Every question by its name, in the order in which they are asked."""


def open_trace(*runs: Run | str | PathLike[str]) -> Trace:
    """Open runs to ask questions of.

    Raises
    ------
    ModuleNotFoundError
        When a library of the extra ``analysis`` is missing; the text names the remedy.
    TraceError
        When a run cannot be opened; the text names the path.
    """
    lacking = [name for name in NEEDED if find_spec(name) is None]
    if lacking:
        raise ModuleNotFoundError(
            f"{', '.join(lacking)} not installed; questions need the extra: {REMEDY}", name=lacking[0]
        )
    from .trace import Trace  # noqa: PLC0415  polars takes its time

    return Trace(*runs)


def analyze(
    *runs: Run | str | PathLike[str] | Trace,
    questions: Iterable[str] | None = None,
    prices: str | PathLike[str] | None = None,
) -> Analysis:
    """Ask questions of one run or several together.

    Parameters
    ----------
    *runs
        Open runs or paths of run directories; or one `Trace`, which has them open.
    questions
        Names from `QUESTIONS`; by default all of them.
    prices
        A price table for the question ``cost``: a YAML or JSON file with ``date``, ``currency`` and ``models``, each
        with prices of a million tokens, ``input`` and ``output``, and where they differ ``cached_read`` and
        ``cache_write``. Without one that question tells tokens.

    Returns
    -------
    Analysis
        A mapping from question to `Answer`. It shows itself on a terminal and in Jupyter.

    Raises
    ------
    ConfigError
        When there is no such question, or no run, or `prices` is no price table.
    ModuleNotFoundError
        When a library of the extra ``analysis`` is missing; the text names the remedy.
    TraceError
        When a run cannot be opened; the text names the path.

    Examples
    --------
    >>> analysis = agentbench.analyze("results/mine", questions=["tokens"])  # doctest: +SKIP
    >>> analysis["tokens"].frame  # doctest: +SKIP
    """
    names = list(QUESTIONS) if questions is None else list(questions)
    for name in names:
        if name not in QUESTIONS:
            raise ConfigError(f"there is no question {name!r}; there are {', '.join(QUESTIONS)}")
    if not runs:
        raise ConfigError("no run was given; name at least one run directory")
    first: Any = runs[0]
    # A trace is told by its steps, so that polars is imported when the first question is asked.
    trace: Trace = first if hasattr(first, "steps") else open_trace(*cast("tuple[Run | str, ...]", runs))
    return Analysis(_answers(names, trace, {"cost": {"prices": prices}}), trace.runs)


def _answers(names: list[str], trace: Trace, options: dict[str, dict[str, Any]]) -> dict[str, Answer]:
    """Ask the questions two at a time, those first that take longest; the answers are in the order of the names."""
    # What nearly all of them need is read before, and once.
    _ = trace.steps, trace.tool_calls, trace.subtitle
    with ThreadPoolExecutor(AT_ONCE) as pool:
        asked = {
            name: pool.submit(QUESTIONS[name], trace, **options.get(name, {}))
            for name in sorted(names, key=lambda name: name not in LONGEST)
        }
        return {name: asked[name].result() for name in names}
