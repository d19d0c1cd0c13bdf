"""What a run shows of itself while it goes: one view for a terminal, one line for everything else.

`replay`, `capacity`, `agent` and `load` draw the same figures at the same places, in the words of the report: counts
since the start of the run (of a search: of its level), latencies of the latest answers, what the engine and power
sampling tell now. Pure: progress in, something to draw out. Who asks for the progress and when it is drawn is `live`'s
and the verbs' affair. What is not known is a dash, never 0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Group
from rich.constrain import Constrain
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from agentbench._figures import UNKNOWN, count, number, percent

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from agentbench import AgentProgress
    from agentbench._types import CapacityProgress, ReplayProgress

COUNTS, REQUESTS, LABEL, FIGURE, UNIT = 22, 23, 16, 6, 5
"""Widths of the columns of figures, which fill 80; the third is of label, figure and unit."""
WIDEST = 100
"""A wider terminal has only a longer bar."""
State = Literal["first_token", "decode", "tool", "human", "idle", "ended"]
Count = Literal["requests_sent", "requests_ok", "requests_failed", "requests_cancelled", "requests_in_flight"]
STATES: tuple[tuple[State, str], ...] = (
    ("first_token", "first token"),
    ("decode", "decode"),
    ("tool", "tool wait"),
    ("human", "human wait"),
    ("idle", "idle"),
    ("ended", "ended"),
)
REQUEST_COUNTS: tuple[tuple[str, Count], ...] = (
    ("requests sent", "requests_sent"),
    ("ok", "requests_ok"),
    ("failed", "requests_failed"),
    ("cancelled", "requests_cancelled"),
    ("on their way", "requests_in_flight"),
)
MINUTE_S, HOUR_S, SECONDS_BELOW = 60, 3600, 100
MILLIONS_FROM = 100_000_000
SHOWN_NAMES = 4
PER_CENT = 100.0


@dataclass(frozen=True)
class Look:
    """A run at one moment: its progress, and what its verb alone knows.

    ``work`` are up to two rows on what is worked through, ``share`` how much of that is done, ``left`` says how long it
    goes on, ``more`` are lines below the figures.
    """

    name: str
    progress: ReplayProgress
    work: tuple[tuple[str, str], ...] = ()
    share: float | None = None
    left: str = ""
    more: tuple[str, ...] = field(default=())


def of_replay(progress: ReplayProgress, name: str = "replay") -> Look:
    """Return how a replay looks."""
    work = (("trajectories", count(progress["trajectories_done"])), ("  of", count(progress["trajectories_planned"])))
    return Look(name, progress, work, _share(progress), _left(progress))


def of_search(progress: CapacityProgress, name: str = "capacity") -> Look:
    """Return how a search looks; its counts are those of the level."""
    level, left_s = progress["replay"], progress["level_left_s"]
    work = (("trajectories", count(level["trajectories_done"])), ("levels judged", count(len(progress["levels"]))))
    left = "between levels" if left_s is None else f"ends within {duration(left_s)}"
    if level["elapsed_s"] and left_s is None and not level["done"]:
        left = "last answers of the level"
    agents = "1 agent" if progress["agents"] == 1 else f"{count(progress['agents'])} agents"
    return Look(f"{name}, level {progress['level']}: {agents}", level, work, None, left)


def of_agents(progress: AgentProgress) -> Look:
    """Return how live agents look."""
    requests: Any = progress.requests
    work = (
        ("tasks ended", f"{count(progress.done)}/{count(progress.total)}"),
        ("  completed", count(progress.completed)),
    )
    names = progress.running
    shown = ", ".join(names[:SHOWN_NAMES]) + (", …" if len(names) > SHOWN_NAMES else "")
    more = (f"at work    {shown or UNKNOWN}",)
    return Look("agent", requests, work, progress.done / (progress.total or 1), _left(requests), more)


def duration(seconds: float) -> str:
    """Return a time in words of one or two units."""
    whole = round(seconds)
    if whole < SECONDS_BELOW:
        return f"{whole} s"
    if whole < HOUR_S:
        return f"{whole // MINUTE_S} min {whole % MINUTE_S:02d} s"
    return f"{whole // HOUR_S} h {whole % HOUR_S // MINUTE_S:02d} min"


def drawn(look: Look) -> RenderableType:
    """Return the run as something to draw: always as many lines, each figure always at its place."""
    below = (f"failed     {_failures(look.progress) or 'none'}", *look.more)
    lines = [Text(line, no_wrap=True, overflow="ellipsis") for line in (*_figures(look), *below)]
    return Constrain(Group(_head(look), _bar(look.share), *lines), WIDEST)


def line(look: Look) -> str:
    """Return the run as one line: the same in short, and without what is not known."""
    progress = look.progress
    doing = ", ".join(
        f"{count(progress['agents'][state])} {word}" for state, word in STATES if progress["agents"][state]
    )
    parts = [
        f"{_title(look)}: {_times(look)}",
        _work(look),
        f"agents {count(_agents(progress))}" + (f": {doing}" if doing else ""),
        ", ".join(f"{count(progress[field])} {word}" for word, field in REQUEST_COUNTS),
        *[
            f"{label} {figure} {unit}".rstrip()
            for label, figure, unit in (*_token_sums(progress), *_quantities(progress)[1:])
            if figure != UNKNOWN
        ],
        *([f"failed {failed}"] if (failed := _failures(progress)) else []),
    ]
    return "; ".join(parts)


def _work(look: Look) -> str:
    told = ""
    for label, figure in look.work:
        if figure != UNKNOWN:
            # What is set in belongs to what stands before.
            told += f"{'' if label.startswith(' ') or not told else ','} {label.strip()} {figure}"
    return told.strip()


def _title(look: Look) -> str:
    return f"SIMULATED {look.name}" if look.progress["simulated"] else look.name


def _times(look: Look) -> str:
    return f"{look.progress['phase']}, {duration(look.progress['elapsed_s'])}, {look.left}"


def _head(look: Look) -> Table:
    head = Table.grid(expand=True, padding=(0, 2, 0, 0))
    head.add_column(no_wrap=True, overflow="ellipsis")
    head.add_column(justify="right", no_wrap=True)
    head.add_row(Text(_title(look), style="bold yellow" if look.progress["simulated"] else "bold"), _times(look))
    return head


def _bar(share: float | None) -> Table:
    bar = Table.grid(expand=True)
    bar.add_column(ratio=1)
    bar.add_column(justify="right", width=6)
    done = min(share or 0.0, 1.0)
    # A search goes on until it knows: no share of it is done.
    bar.add_row(
        Text() if share is None else ProgressBar(total=1.0, completed=done),
        Text("" if share is None else f"{done * PER_CENT:.0f} %"),
    )
    return bar


def _figures(look: Look) -> list[str]:
    progress = look.progress
    return [
        f"{counts:<{COUNTS}}   {requests:<{REQUESTS}}    {figures}".rstrip()
        for counts, requests, figures in zip_longest(
            _rows(_agent_rows(look), COUNTS),
            _rows(_request_rows(progress), REQUESTS),
            [_quantity(*row) for row in _quantities(progress)],
            fillvalue="",
        )
    ]


def _rows(rows: Sequence[tuple[str, str]], width: int) -> list[str]:
    return [f"{label}{figure:>{width - len(label)}}" for label, figure in rows]


def _agent_rows(look: Look) -> list[tuple[str, str]]:
    agents = look.progress["agents"]
    states = [(f"  {word}", count(agents[state])) for state, word in STATES]
    return [("agents", count(_agents(look.progress))), *states, *look.work]


def _request_rows(progress: ReplayProgress) -> list[tuple[str, str]]:
    cached, base = progress["cached_tokens"], progress["prompt_tokens_with_cached"]
    return [
        *[(f"  {word}" if at else word, count(progress[field])) for at, (word, field) in enumerate(REQUEST_COUNTS)],
        ("input tokens", _tokens(progress["prompt_tokens"])),
        ("  cached", _tokens(cached)),
        ("  hit rate", percent(cached / base if cached is not None and base else None)),
        ("output tokens", _tokens(progress["completion_tokens"])),
    ]


def _token_sums(progress: ReplayProgress) -> list[tuple[str, str, str]]:
    sums = (("input tokens", progress["prompt_tokens"]), ("output tokens", progress["completion_tokens"]))
    return [(label, _tokens(tokens), "") for label, tokens in sums]


def _quantities(progress: ReplayProgress) -> list[tuple[str, str, str]]:
    return [
        (f"latest {count(progress['recent_answers'])} answers", "", ""),
        ("TTFT p50", number(progress["recent_ttft_p50_ms"]), "ms"),
        ("TTFT p95", number(progress["recent_ttft_p95_ms"]), "ms"),
        ("output speed p50", number(progress["recent_output_tokens_per_s_p50"]), "tok/s"),
        ("output speed p25", number(progress["recent_output_tokens_per_s_p25"]), "tok/s"),
        ("engine running", count(progress["engine_running"]), ""),
        ("engine waiting", count(progress["engine_waiting"]), ""),
        ("KV cache", number(progress["engine_kv_cache_usage_pct"]), "%"),
        ("power", number(progress["power_w"]), "W"),
    ]


def _quantity(label: str, figure: str, unit: str) -> str:
    # What is not known has no unit.
    return f"{label:<{LABEL}}{figure:>{FIGURE}} {'' if figure == UNKNOWN else unit:<{UNIT}}"


def _agents(progress: ReplayProgress) -> int:
    return sum(progress["agents"][state] for state, _ in STATES)


def _failures(progress: ReplayProgress) -> str:
    kinds = sorted(progress["failures"].items(), key=lambda failed: (-failed[1], failed[0]))
    return ", ".join(f"{count(n)} x {kind}" for kind, n in kinds)


def _tokens(tokens: int | None) -> str:
    """Return a number of tokens that has a place in its column whatever it is."""
    if tokens is None or tokens < MILLIONS_FROM:
        return count(tokens)
    return f"{tokens / 1e6:,.0f} M"


def _share(progress: ReplayProgress) -> float | None:
    """How much is done, by what the time left is told by; without one, by what ends the run."""
    elapsed_s, left_s = progress["elapsed_s"], progress["time_left_s"]
    if left_s is not None and elapsed_s + left_s:
        return elapsed_s / (elapsed_s + left_s)
    if progress["duration_s"]:
        return elapsed_s / progress["duration_s"]
    planned = progress["trajectories_planned"]
    return progress["trajectories_done"] / planned if planned else None


def _left(progress: ReplayProgress) -> str:
    if progress["done"]:
        return "ended"
    if progress["time_left_s"] is not None:
        return f"about {duration(progress['time_left_s'])} left"
    limit = progress["duration_s"]
    if limit is not None and progress["elapsed_s"] >= limit:
        return "last answers"
    return f"time left {UNKNOWN}"
