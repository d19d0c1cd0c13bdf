"""Known shapes of load, for an engine without a recording: conversations, a wanted cache hit rate, rates of arrival.

A shape is a plan (lengths, and what prompts share) that the replay plays like any recording: exact tokens, phases,
service levels and power are the replay's. `run` plays one against an engine; the command line does the same.

>>> from agentbench import load
>>> shape = load.conversation("7k", users=8)
>>> steps = load.of_conversations({"7k": shape})
>>> made = load.run(steps, url="http://127.0.0.1:8000", out="results/load")  # doctest: +SKIP
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench._core import Capacity, ConfigError, Replay

from . import distributions, plan
from .arrivals import Arrivals
from .conversation import PROFILES, SUITES, Conversation
from .distributions import Distribution, Fixed
from .hit_rate import HitRate
from .outcome import Outcome, outcome
from .plan import Request, Session
from .steps import Step, of_arrivals, of_conversations, of_hit_rates

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from agentbench._core import Run

__all__ = [
    "PROFILES",
    "SUITES",
    "Arrivals",
    "Conversation",
    "Distribution",
    "Fixed",
    "HitRate",
    "Outcome",
    "Request",
    "Session",
    "Step",
    "conversation",
    "distributions",
    "of_arrivals",
    "of_conversations",
    "of_hit_rates",
    "plan",
    "run",
]


def conversation(profile: str, *, users: int, conversations: int | None = None, **changed: Any) -> Conversation:
    """Conversations of a profile.

    Parameters
    ----------
    profile
        One of `PROFILES`.
    users
        Users, who are at work at once.
    conversations
        How many there are; two for each user by default.
    **changed
        Fields of `Conversation` in place of the profile's.

    Returns
    -------
    Conversation
        To be played with `run`.

    Raises
    ------
    ConfigError
        There is no such profile.
    """
    if profile not in PROFILES:
        raise ConfigError(f"{profile!r} is no profile; there are {', '.join(PROFILES)}")
    sizes = PROFILES[profile]
    fields: dict[str, Any] = {
        "system_tokens": sizes.system,
        "user_tokens": sizes.user,
        "limit_tokens": sizes.limit,
        "input_tokens": Fixed(sizes.input),
        "output_tokens": Fixed(sizes.output),
        "turns": Fixed(sizes.turns),
        "think_s": Fixed(0),
    }
    return Conversation(users=users, conversations=conversations or 2 * users, **(fields | changed))


def run(
    steps: Sequence[Step],
    *,
    shape: str = "of steps",
    url: str,
    out: str | os.PathLike[str],
    slo: Sequence[str] = (),
    play: Callable[[Replay | Capacity], Run] | None = None,
    **settings: Any,
) -> Outcome:
    """Play a load shape's runs one after another, and put them side by side.

    Parameters
    ----------
    steps
        Of `of_conversations`, `of_hit_rates` or `of_arrivals`.
    shape
        The shape's name, for the outcome.
    url
        The engine.
    out
        A folder to make: a run directory for each plan and each run, ``load.json`` and ``load.md``.
    slo
        A service level, as `agentbench.capacity` takes it: the most users that hold it are searched for. For
        conversations alone; the other shapes are at fixed load.
    play
        Plays a handle to its end; by default it is started and waited for.
    **settings
        Further keyword arguments of `Replay`, or with `slo` of `Capacity`.

    Returns
    -------
    Outcome
        A row for each measured run.

    Raises
    ------
    ConfigError
        A setting that cannot be, or a folder that is not empty.
    """
    folder = Path(out)
    if folder.exists() and any(folder.iterdir()):
        raise ConfigError(f"{folder} is not empty; give a new folder for the load's runs")
    folder.mkdir(parents=True, exist_ok=True)
    made: list[tuple[Step, Run]] = []
    for step in steps:
        recorded = step.write_plan(folder)
        given: dict[str, Any] = (
            {"content": "synthetic", "url": url, "out": folder / step.name} | settings | step.settings
        )
        handle: Replay | Capacity
        if slo:
            given.pop("agents", None)
            handle = Capacity(recorded, slo=list(slo), **given)
        else:
            handle = Replay(recorded, **given)
        made.append((step, (play or _play)(handle)))
        if ended_early(made[-1][1]):
            break
    result = outcome(shape, folder, made)
    result.write()
    return result


def ended_early(run: Run) -> bool:
    """Whether somebody told the run to end."""
    return ((run.summary() or {}).get("settings") or {}).get("ended_by") == "shutdown"


def _play(handle: Replay | Capacity) -> Run:
    with handle:
        return handle.wait()


def token() -> str:
    """Return a word that no other load has, so that its prompts are in no engine's cache before it begins."""
    return secrets.token_hex(4)
