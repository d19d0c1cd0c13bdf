"""The options of verbs that send a recording's requests to an engine: ``replay`` and ``capacity``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from agentbench import APIS, SPEEDS

from .argv import masked_argv
from .parameters import CACHE_SHARINGS, DURATION, URL, URL_OR_NONE

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENTS = ("recorded", "live", "synthetic")

# Options that are arguments of the same name.
PASSED_ON = (
    "api",
    "model",
    "api_key",
    "seed",
    "include_utility",
    "content",
    "tool_time",
    "human_time",
    "output_length",
    "cache_sharing",
    "salt",
    "strict",
)


def sending_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them to a command; `sending_settings` makes them arguments of the handles."""
    options = (
        click.option("--url", type=URL, help="The engine.  [default: the embedded, simulated one]"),
        click.option(
            "--speed", type=click.Choice(SPEEDS), default=SPEEDS[0], show_default=True, help="Of the embedded engine."
        ),
        click.option("--api", type=click.Choice(APIS), default=APIS[0], show_default=True, help="The API to send to."),
        click.option("--model", help="The model to ask for.  [default: the one that the engine serves]"),
        click.option(
            "--api-key",
            envvar="AGENTBENCH_API_KEY",
            show_envvar=True,
            help="Sent to the engine, never written down.  [default: none is sent]",
        ),
        click.option(
            "--ramp", type=DURATION, help="Spread the agents' starts over this time.  [default: 50ms an agent]"
        ),
        click.option(
            "--seed",
            type=click.IntRange(min=0, max=2**64 - 1),
            help="Shuffle the order of sessions, anew for every pass; draws --arrivals poisson:R.  [default: recorded"
            " order]",
        ),
        click.option("--continue-on-error", is_flag=True, help="Go on with a session after a failed request."),
        click.option("--include-utility", is_flag=True, help="Send titles, summaries and quota checks too."),
        click.option(
            "--content",
            type=click.Choice(CONTENTS),
            default=CONTENTS[0],
            show_default=True,
            help="What requests say. live: the engine's own answers in place of the recorded ones. synthetic: token"
            " ids of our own, as many as recorded, to /v1/completions; also for recordings of counts or block hashes"
            " alone.",
        ),
        click.option(
            "--tool-time",
            default="recorded",
            show_default=True,
            metavar="recorded|none|TIME|scale:X|cap:TIME",
            help="Waits for tools.",
        ),
        click.option(
            "--human-time",
            default="none",
            show_default=True,
            metavar="none|recorded|cap:TIME",
            help="Waits before a turn that brings a user's text and no tool result.",
        ),
        click.option(
            "--output-length",
            default="recorded",
            show_default=True,
            metavar="recorded|natural|N",
            help="Tokens to pin outputs to.",
        ),
        click.option(
            "--cache-sharing",
            type=click.Choice(CACHE_SHARINGS),
            default=CACHE_SHARINGS[0],
            show_default=True,
            help="What trajectories may find of each other in the engine's cache. system: system prompt and tools,"
            " within a pass (as many trajectories as there are sessions, or agents where these are more). trajectory:"
            " nothing. none: no request finds anything. recorded: all that is equal, however often a session is"
            " played.",
        ),
        click.option(
            "--salt",
            metavar="TEXT",
            help="What the salts that keep caches apart are made of; a run with the same TEXT finds the cache of the"
            " run before.  [default: the run's own]",
        ),
        click.option(
            "--strict", is_flag=True, help="Refuse an engine that does not pin output lengths.  [default: off]"
        ),
        click.option(
            "--metrics-url", type=URL_OR_NONE, help="The engine's metrics page.  [default: --url with /metrics]"
        ),
        click.option(
            "--poll-interval", type=DURATION, default="100ms", show_default=True, help="Between two polls of it."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def sending_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options out of what a command got, as keyword arguments of a handle; not ``url`` and ``speed``."""
    settings = {
        "ramp_s": options.pop("ramp"),
        "poll_interval_s": options.pop("poll_interval"),
        "on_error": "continue" if options.pop("continue_on_error") else "stop-trajectory",
        "argv": masked_argv(),
    }
    for name in PASSED_ON:
        settings[name] = options.pop(name)
    metrics_url = options.pop("metrics_url")
    if metrics_url is not None:
        settings["metrics_url"] = None if metrics_url == "none" else metrics_url
    return settings
