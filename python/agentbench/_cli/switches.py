"""The options that change requests on their way through the proxy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from collections.abc import Callable

NAMES = ("rerole_system", "strip_billing_header", "cap_max_tokens", "model", "answer_titles", "convert")


def switch_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add them to a command; `switch_settings` makes them arguments of the handle."""
    options = (
        click.option(
            "--rerole-system",
            is_flag=True,
            help="Send messages of the role system inside `messages` as the user's.  [default: as they are]",
        ),
        click.option(
            "--strip-billing-header",
            is_flag=True,
            help="Take Claude Code's billing line out of the system prompt.  [default: as it is]",
        ),
        click.option(
            "--cap-max-tokens",
            type=click.IntRange(min=1),
            metavar="N",
            help="Let no request ask for more output tokens.  [default: as asked]",
        ),
        click.option(
            "--model",
            metavar="NAME",
            help="Send every request to this model; replies keep the engine's name of it.  [default: as asked]",
        ),
        click.option(
            "--answer-titles",
            is_flag=True,
            help="Answer calls for a session's title by its first words, without the engine.  [default: the engine's]",
        ),
        click.option(
            "--convert",
            type=click.Choice(["chat"]),
            help="Ask an engine without the Messages API over Chat, and answer in Messages.  [default: no conversion]",
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def switch_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options out of what a command got, as keyword arguments of a handle."""
    return {name: options.pop(name) for name in NAMES}
