"""The options of verbs that can play on a Ray cluster, and the handle that they get."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentbench._ray import RayRun

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbench import Capacity, Replay, Run


def ray_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them to a command; `handle_for` uses them."""
    options = (
        click.option(
            "--ray",
            metavar="ADDRESS",
            help="Play on a Ray cluster: auto, HOST:PORT, or local for one on this machine.  [default: this process]",
        ),
        click.option(
            "--workers",
            type=click.IntRange(min=1),
            default=2,
            show_default=True,
            help="With --ray: actors that share the agents.",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def check_reachable(ray: str | None, url: str | None) -> None:
    """Refuse workers an engine that only this machine reaches."""
    if ray is not None and url is None:
        message = "--ray needs --url: workers on other machines do not reach the embedded engine"
        raise click.UsageError(message)


def handle_for(
    kind: type[Replay | Capacity], trace: Run, ray: str | None, workers: int, settings: dict[str, Any]
) -> Any:
    """A replay or a search by this process, or by workers."""
    if ray is None:
        return kind(trace, **settings)
    return RayRun(kind, trace, address=ray, workers=workers, **settings)
