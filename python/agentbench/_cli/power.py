"""The options of verbs that sample power."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from .parameters import DURATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from click import Context, Parameter


class Gpus(click.ParamType[list[str]]):
    """Indexes or UUIDs with commas between them."""

    name = "0,1|UUIDs"

    def convert(self, value: Any, param: Parameter | None, ctx: Context | None) -> list[str]:
        """Return the names."""
        if isinstance(value, list):
            return value
        names = [name.strip() for name in value.split(",")]
        if not all(names):
            self.fail(f"{value!r} leaves a GPU without a name; write it like 0,1 or GPU-UUID,GPU-UUID", param, ctx)
        return names


GPUS = Gpus()
SOURCE = "auto|none|nvml|dcgm:URL|rapl|constant:W"


def power_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them to a command; `power_settings` makes them arguments of the handles."""
    options = (
        click.option(
            "--power", metavar=SOURCE, default="auto", show_default=True, help="Where power readings come from."
        ),
        click.option(
            "--gpus",
            type=GPUS,
            help="GPUs that serve, by index or UUID, with commas.  [default: those of --engine-pid, else all]",
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
    return {
        "power": options.pop("power"),
        "gpus": options.pop("gpus"),
        "engine_pid": options.pop("engine_pid"),
        "idle_baseline_s": options.pop("idle_baseline"),
        "pue": options.pop("pue"),
    }
