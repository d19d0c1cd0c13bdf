"""The options of verbs that send a recording's requests to an engine: ``replay`` and ``capacity``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentbench import APIS, SPEEDS

from .argv import masked_argv
from .parameters import CACHE_SHARINGS, DURATION, DURATION_OR_NONE, URL, URL_OR_NONE

if TYPE_CHECKING:
    from collections.abc import Callable

CONTENTS = ("recorded", "live", "synthetic")
ON_ERROR = ("stop-trajectory", "continue", "abort")

# Options that are arguments of the same name.
PASSED_ON = (
    "api",
    "model",
    "api_key",
    "seed",
    "on_error",
    "max_retries",
    "include_utility",
    "content",
    "tokenizer",
    "tool_time",
    "human_time",
    "output_length",
    "cache_sharing",
    "salt",
    "strict",
)
# Options whose arguments are named with their unit.
TIMES = (
    "ramp",
    "poll_interval",
    "retry_backoff",
    "retry_backoff_max",
    "connect_timeout",
    "first_byte_timeout",
    "idle_timeout",
    "request_timeout",
)


def sending_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them to a command; `sending_settings` makes them arguments of the handles."""
    return sending_options_without()(command)


def sending_options_without(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add those that a verb does not decide by itself."""

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        for name, option in reversed(_options().items()):
            if name not in names:
                command = option(command)
        return command

    return added


def _options() -> dict[str, Callable[..., Any]]:
    """The options by the names of their values, in the order of the help."""
    return {
        "url": click.option("--url", type=URL, help="The engine.  [default: the embedded, simulated one]"),
        "speed": click.option(
            "--speed", type=click.Choice(SPEEDS), default=SPEEDS[0], show_default=True, help="Of the embedded engine."
        ),
        "api": click.option(
            "--api",
            type=click.Choice(APIS),
            default=APIS[0],
            show_default=True,
            help="The API to send to, converted where the recording is of another.",
        ),
        "model": click.option("--model", help="The model to ask for.  [default: the one that the engine serves]"),
        "api_key": click.option(
            "--api-key",
            envvar="AGENTBENCH_API_KEY",
            show_envvar=True,
            help="Sent to the engine, never written down.  [default: none is sent]",
        ),
        "ramp": click.option(
            "--ramp", type=DURATION, help="Spread the agents' starts over this time.  [default: 50ms an agent]"
        ),
        "on_error": click.option(
            "--on-error",
            type=click.Choice(ON_ERROR),
            default=ON_ERROR[0],
            show_default=True,
            help="What a failed request ends: the rest of its session, nothing, or the run.",
        ),
        "max_error_rate": click.option(
            "--max-error-rate",
            type=click.FloatRange(min=0, max=100),
            metavar="PCT",
            help="Percent of failed requests that is no failure of the run; above it, and once 20 requests have ended,"
            " the run (of a capacity search: the level) is ended.  [default: any failure is one, and none ends it]",
        ),
        "max_retries": click.option(
            "--max-retries",
            type=click.IntRange(min=0),
            default=0,
            show_default=True,
            help="Send a request again that found no connection or got no answer, 408, 409, 429, 500 or above, or a"
            " stream that failed before any output.",
        ),
        "retry_backoff": click.option(
            "--retry-backoff",
            type=DURATION,
            default="500ms",
            show_default=True,
            help="Wait before the first retry, doubled for each further one; half of it or more is waited, and no less"
            " than a Retry-After asks for.",
        ),
        "retry_backoff_max": click.option(
            "--retry-backoff-max",
            type=DURATION,
            default="60s",
            show_default=True,
            help="Longest wait before a retry, a Retry-After included.",
        ),
        "connect_timeout": click.option(
            "--connect-timeout", type=DURATION, default="10s", show_default=True, help="Until there is a connection."
        ),
        "first_byte_timeout": click.option(
            "--first-byte-timeout",
            type=DURATION_OR_NONE,
            default="10m",
            show_default=True,
            help="From an attempt's start to the first byte of its answer's body.",
        ),
        "idle_timeout": click.option(
            "--idle-timeout",
            type=DURATION_OR_NONE,
            default="5m",
            show_default=True,
            help="Between two pieces of an answer.",
        ),
        "request_timeout": click.option(
            "--request-timeout",
            type=DURATION_OR_NONE,
            default="none",
            show_default=True,
            help="From the first attempt's start to the end of the request, waits included.",
        ),
        "seed": click.option(
            "--seed",
            type=click.IntRange(min=0, max=2**64 - 1),
            help="Shuffle the order of sessions, anew for every pass; draws --arrivals poisson:R.  [default: recorded"
            " order]",
        ),
        "include_utility": click.option(
            "--include-utility", is_flag=True, help="Send titles, summaries and quota checks too."
        ),
        "content": click.option(
            "--content",
            type=click.Choice(CONTENTS),
            default=CONTENTS[0],
            show_default=True,
            help="What requests say. live: the engine's own answers in place of the recorded ones. synthetic: prompts"
            " of our own, as many tokens as recorded, also for recordings of counts or block hashes alone: token ids"
            " to /v1/completions where the engine takes them, else text.",
        ),
        "tokenizer": click.option(
            "--tokenizer",
            type=click.Path(path_type=Path),
            metavar="FILE",
            help="The model's tokenizer.json, by which --content synthetic makes text.  [default: token ids, else text"
            " by the engine's /tokenize]",
        ),
        "tool_time": click.option(
            "--tool-time",
            default="recorded",
            show_default=True,
            metavar="recorded|none|TIME|scale:X|cap:TIME",
            help="Waits for tools.",
        ),
        "human_time": click.option(
            "--human-time",
            default="none",
            show_default=True,
            metavar="none|recorded|cap:TIME",
            help="Waits before a turn that brings a user's text and no tool result.",
        ),
        "output_length": click.option(
            "--output-length",
            default="recorded",
            show_default=True,
            metavar="recorded|natural|N",
            help="Tokens to pin outputs to; natural, which --content synthetic does not take, pins none.",
        ),
        "cache_sharing": click.option(
            "--cache-sharing",
            type=click.Choice(CACHE_SHARINGS),
            default=CACHE_SHARINGS[0],
            show_default=True,
            help="What trajectories may find of each other in the engine's cache. system: system prompt and tools,"
            " within a pass (as many trajectories as there are sessions, or agents where these are more). trajectory:"
            " nothing. none: no request finds anything. recorded: all that is equal, however often a session is"
            " played.",
        ),
        "salt": click.option(
            "--salt",
            metavar="TEXT",
            help="What the salts that keep caches apart are made of; a run with the same TEXT finds the cache of the"
            " run before.  [default: the run's own]",
        ),
        "strict": click.option(
            "--strict", is_flag=True, help="Refuse an engine that does not pin output lengths.  [default: off]"
        ),
        "metrics_url": click.option(
            "--metrics-url", type=URL_OR_NONE, help="The engine's metrics page.  [default: --url with /metrics]"
        ),
        "poll_interval": click.option(
            "--poll-interval", type=DURATION, default="100ms", show_default=True, help="Between two polls of it."
        ),
    }


def sending_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options out of what a command got, as keyword arguments of a handle; not ``url`` and ``speed``."""
    settings = {
        "max_error_rate_pct": options.pop("max_error_rate"),
        "argv": masked_argv(),
    }
    settings |= {name: options.pop(name) for name in PASSED_ON if name in options}
    settings |= {f"{name}_s": options.pop(name) for name in TIMES if name in options}
    metrics_url = options.pop("metrics_url")
    if metrics_url is not None:
        settings["metrics_url"] = None if metrics_url == "none" else metrics_url
    return settings
