"""The options of verbs that sample power."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .parameters import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable

SOURCE = "auto|none|nvml|dcgm:URL|rapl|constant:W"


def power_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them to a command; `power_settings` makes them arguments of the handles."""
    options = (
        click.option(
            "--power", metavar=SOURCE, default="auto", show_default=True, help="Where power readings come from."
        ),
        click.option(
            "--gpus", help="GPUs that serve, by index or UUID, with commas.  [default: those of --engine-pid, else all]"
        ),
        click.option(
            "--engine-pid",
            type=click.IntRange(min=1),
            help="The engine's process, for its CUDA_VISIBLE_DEVICES.  [default: not known]",
        ),
        click.option(
            "--idle-baseline",
            type=DURATION,
            help="Sample idle power for this long first, like 10s.  [default: no baseline]",
        ),
        click.option(
            "--pue",
            type=click.FloatRange(min=1.0),
            help="Power usage effectiveness to multiply totals by.  [default: 1, the devices alone]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def power_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options out of what a command got, as keyword arguments of a handle."""
    gpus = options.pop("gpus")
    return {
        "power": options.pop("power"),
        "gpus": None if gpus is None else [name.strip() for name in gpus.split(",")],
        "engine_pid": options.pop("engine_pid"),
        "idle_baseline_s": options.pop("idle_baseline"),
        "pue": options.pop("pue"),
    }
