"""``agentbench load SHAPE``: known shapes of load on an engine, without a recording."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentbench import Capacity, SimulatedEngine, default_out, load
from agentbench.load import distributions

from .capacity import search as play_search
from .console import print_error, print_note, results
from .metrics import MetricsPage, metrics_option
from .power import power_options, power_settings
from .replay import play as play_replay
from .sending import sending_options_without, sending_settings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from agentbench import Replay, Run
    from agentbench.load import Step

FAILED = 1
INTERRUPTED = 130
DISTRIBUTION = "N|lognormal:median=M,sigma=S[,max=X]|run:DIR"
# What a shape decides by itself.
DECIDED = ("content", "cache_sharing", "tool_time", "human_time", "seed", "include_utility", "salt")


class Drawn(click.ParamType[distributions.Distribution]):
    """A distribution, with the column of a run that ``run:DIR`` means."""

    name = "distribution"

    def __init__(self, column: str) -> None:
        self._column = column

    def convert(
        self, value: Any, _param: click.Parameter | None, _ctx: click.Context | None
    ) -> distributions.Distribution:
        """Return the distribution; what is wrong with one is said by its own words."""
        return distributions.parse(value, self._column) if isinstance(value, str) else value


def drawn(
    flag: str, column: str, about: str, default: str | None = None, otherwise: str = "the profile's"
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """An option that takes a distribution."""
    return click.option(
        flag,
        type=Drawn(column),
        metavar=DISTRIBUTION,
        default=default,
        show_default=default is not None,
        help=about if default is not None else f"{about}  [default: {otherwise}]",
    )


@click.group("load")
def command() -> None:
    """Put a known shape of load on an engine: no recording is needed, and no agent runs.

    Prompts are of our own, exactly as many tokens as the shape says, and everything else is as in `agentbench replay`:
    pinned output lengths, phases, power. Token counts may be drawn: a number, a lognormal distribution, or the values
    of a run directory.
    """


def common(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options of every shape."""
    options = (
        click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of all draws."),
        click.option(
            "--out", type=click.Path(path_type=Path), help="A folder for the runs.  [default: results/load-TIME]"
        ),
        metrics_option,
        sending_options_without(*DECIDED),
        power_options,
    )
    for option in reversed(options):
        function = option(function)
    return function


@command.command("conversation")
@click.option("--profile", type=click.Choice(list(load.PROFILES)), multiple=True, help="Sizes.  [default: the suite's]")
@click.option(
    "--suite",
    type=click.Choice(list(load.SUITES)),
    default="quick",
    show_default=True,
    help="Profiles by a common name: "
    + "; ".join(f"{name}: {', '.join(of)}" for name, of in load.SUITES.items())
    + ".",
)
@click.option("--users", type=click.IntRange(min=1), default=4, show_default=True, help="Users, all at work at once.")
@click.option("--conversations", type=click.IntRange(min=1), help="In all.  [default: two for each user]")
@click.option("--system-tokens", type=click.IntRange(min=0), help="Common to all users.  [default: the profile's]")
@click.option("--user-tokens", type=click.IntRange(min=0), help="Each user's own prefix.  [default: the profile's]")
@click.option(
    "--limit-tokens",
    type=click.IntRange(min=2),
    help="Longest prompt with its output; beyond it the history is compacted.  [default: the profile's]",
)
@drawn("--input-tokens", "isl_new", "Of a turn.")
@drawn("--output-tokens", "osl", "Of a turn.")
@drawn("--turns", "turns", "Of a conversation.")
@drawn("--think-time", "tool_exec_s", "Seconds before each further turn.", otherwise="0")
@click.option(
    "--slo",
    multiple=True,
    metavar="COND",
    help="Search the most users that hold these conditions, as `agentbench capacity` does.  [default: fixed load]",
)
@click.option(
    "--max-users", type=click.IntRange(min=1), default=64, show_default=True, help="With --slo: most users tried."
)
@common
def conversation(
    profile: tuple[str, ...], suite: str, users: int, conversations: int | None, slo: tuple[str, ...], **options: Any
) -> int:
    """Users who chat turn after turn, with a common system prompt and a prefix of each user's own.

    What a turn says and answers is in the next one's prompt, up to the context limit; then the history is compacted
    to a quarter of the limit. Replies in a prompt are text of our own, so that an engine does not find a turn's last
    reply in its cache, as it would in a real chat.
    """
    fields = {
        "system_tokens": options.pop("system_tokens"),
        "user_tokens": options.pop("user_tokens"),
        "limit_tokens": options.pop("limit_tokens"),
        "input_tokens": options.pop("input_tokens"),
        "output_tokens": options.pop("output_tokens"),
        "turns": options.pop("turns"),
        "think_s": options.pop("think_time"),
    }
    changed = {name: value for name, value in fields.items() if value is not None}
    most, seed = options.pop("max_users"), options.pop("seed")
    planned = most if slo else users
    shapes = {
        name: load.conversation(name, users=planned, conversations=conversations, seed=seed, **changed)
        for name in profile or load.SUITES[suite]
    }
    searched = {"slo": slo, "max_agents": most} if slo else {}
    return _run("conversation", load.of_conversations(shapes), options, searched)


@command.command("hit-rate")
@click.option(
    "--rate",
    "rates",
    type=click.FloatRange(min=0, max=99),
    multiple=True,
    default=(0.0, 50.0, 90.0),
    show_default=True,
    metavar="PCT",
    help="Percent of each prompt that is to be in the cache; a run for each.",
)
@click.option("--requests", type=click.IntRange(min=1), default=100, show_default=True, help="Measured, a rate.")
@click.option(
    "--agents", type=click.IntRange(min=1), default=4, show_default=True, help="Requests on their way at once."
)
@click.option("--prefixes", type=click.IntRange(min=1), default=4, show_default=True, help="Different prefixes.")
@drawn("--input-tokens", "isl", "Of a prompt, prefix included.", default="4000")
@drawn("--output-tokens", "osl", "Of an answer.", default="100")
@common
def hit_rate(rates: tuple[float, ...], requests: int, agents: int, prefixes: int, **options: Any) -> int:
    """Requests that find a wanted share of their prompt in the prefix cache; the share really found stands beside it.

    Each prefix is sent once before a rate is measured. An engine whose cache has no room for all prefixes, or whose
    blocks are larger than 16 tokens, gives less than was wanted.
    """
    drawn_from = {name: options.pop(name) for name in ("input_tokens", "output_tokens")}
    seed = options.pop("seed")
    shapes = [
        load.HitRate(rate_pct=rate, requests=requests, prefixes=prefixes, seed=seed, **drawn_from) for rate in rates
    ]
    return _run("hit-rate", load.of_hit_rates(shapes, agents, load.token()), options, {})


@command.command("arrivals")
@click.option(
    "--rate",
    "rates",
    type=click.FloatRange(min=0, min_open=True),
    multiple=True,
    default=(0.5, 1.0, 2.0, 4.0),
    show_default=True,
    help="Requests a second in the mean; a run for each.",
)
@click.option("--requests", type=click.IntRange(min=1), default=60, show_default=True, help="A rate.")
@click.option("--system-tokens", type=click.IntRange(min=0), default=0, show_default=True, help="Common to all.")
@drawn("--input-tokens", "isl_new", "Of a prompt, after the system prompt.", default="2000")
@drawn("--output-tokens", "osl", "Of an answer.", default="100")
@common
def arrivals(rates: tuple[float, ...], requests: int, system_tokens: int, **options: Any) -> int:
    """Requests that arrive at random, at one rate after another, whatever the engine does."""
    drawn_from = {name: options.pop(name) for name in ("input_tokens", "output_tokens")}
    shape = load.Arrivals(requests=requests, system_tokens=system_tokens, seed=options.pop("seed"), **drawn_from)
    return _run("arrivals", load.of_arrivals(shape, rates), options, {})


def _run(shape: str, steps: Sequence[Step], options: dict[str, Any], searched: dict[str, Any]) -> int:
    url, speed, out = options.pop("url"), options.pop("speed"), options.pop("out")
    page = MetricsPage(options.pop("metrics_port"))
    settings = power_settings(options) | sending_settings(options) | options | searched
    if "arrivals" in {name for step in steps for name in step.settings}:
        settings.pop("ramp_s", None)
    stopped: list[bool] = []

    def played(handle: Replay | Capacity) -> Run:
        name = f"load {Path(handle.out).name}, run {len(stopped) + 1} of {len(steps)}"
        if isinstance(handle, Capacity):
            run, interrupted = play_search(handle, page, name)
        else:
            run, interrupted = play_replay(handle, page, name)
        stopped.append(interrupted)
        return run

    with ExitStack() as stack:
        stack.enter_context(page)
        if url is None:
            url = stack.enter_context(SimulatedEngine(speed=speed)).url
            print_note(f"SIMULATED engine: {speed} at {url}; its figures say nothing about any hardware")
        made = load.run(steps, shape=shape, url=url, out=out or default_out("load"), play=played, **settings)
    results().print(made, crop=False)
    results().print(f"runs: {made.path}", soft_wrap=True, markup=False)
    if any(stopped):
        print_error(f"interrupted; partial results are in {made.path}")
        return INTERRUPTED
    failed = [row.summary["failed_because"] for row in made.rows if row.summary["failed_because"]]
    if failed:
        print_error(f"{failed[0]}; each run's own report tells more: agentbench report {made.path}/RUN")
        return FAILED
    return 0
