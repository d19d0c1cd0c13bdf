"""Where the value of an option comes from: the command line, the environment, a file, or its default, in this order.

Every verb gets ``--config FILE`` and ``--show-config`` here; that click reads ``AGENTBENCH_<VERB>_<OPTION>`` is set
where the command line starts. What the options mean is each verb's affair.
"""

from __future__ import annotations

import difflib
import functools
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml
from click.core import ParameterSource
from rich.table import Table

from agentbench.exceptions import ConfigError

from .console import results

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "AGENTBENCH"
# Said to be set, and not what to.
SECRETS = frozenset({"token", "api_key", "tokens"})
FILE = f"{__name__}.file"
SHOW = f"{__name__}.show"


def configurable(command: click.Command, verbs: Callable[[], frozenset[str]]) -> click.Command:
    """Give a verb ``--config`` and ``--show-config``; `verbs` are those that a file may have sections for.

    A verb of two words, such as ``load conversation``, has its section under both, or one within the other.
    """
    command.params.append(
        click.Option(
            ["--config"],
            type=click.Path(path_type=Path, exists=True, dir_okay=False),
            is_eager=True,
            expose_value=False,
            callback=lambda ctx, _, path: None if path is None else _read_into(ctx, path, verbs()),
            help="YAML with options by their names, at its top or under the verb's name. The command line comes"
            f" first, then the environment ({PREFIX}_<VERB>_<OPTION>), then this file."
            "  [default: no file]",
        )
    )
    command.params.append(
        click.Option(
            ["--show-config"],
            is_flag=True,
            expose_value=False,
            callback=lambda ctx, _, shown: ctx.meta.update({SHOW: shown}),
            help="Print every option's value and where it came from, and do nothing else.",
        )
    )
    callback = command.callback
    assert callback is not None  # noqa: S101 - verbs are functions

    @functools.wraps(callback)
    def shown_or_run(*arguments: Any, **options: Any) -> Any:
        ctx = click.get_current_context()
        if ctx.meta.get(SHOW):
            results().print(_origins(ctx))
            return 0
        return callback(*arguments, **options)

    command.callback = shown_or_run
    return command


def _read_into(ctx: click.Context, path: Path, verbs: frozenset[str]) -> Path:
    """Make the file's values the defaults of the verb's options."""
    options = _options(ctx.command)
    values: dict[str, Any] = {}
    verb = ctx.command_path.removeprefix("agentbench").strip()
    for key, value in _wanted(path, verb, verbs).items():
        option = options.get(_flag(key))
        if option is None:
            raise ConfigError(f"{path}: {_unknown(key, verb, options)}")
        values[option.name or ""] = _as_typed(value, option, f"{path}: {key}")
    ctx.default_map = values
    ctx.meta[FILE] = path
    return path


def _wanted(path: Path, verb: str, verbs: frozenset[str]) -> dict[str, Any]:
    """What the file says to this verb: what stands at its top, then what stands under the verb's name."""
    document = _parsed(path)
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: options by their names are wanted, such as `agents: 8`, and this is none")
    words = {word for name in verbs for word in (name, name.partition(" ")[0])}
    first, _, second = verb.partition(" ")
    values = _plain(document, words)
    for name in dict.fromkeys((first, verb)):
        values |= _plain(document.get(name) or {}, {second})
    return values | _plain((document.get(first) or {}).get(second) or {}, set())


def _plain(section: dict[Any, Any], sections: set[str]) -> dict[str, Any]:
    """What a part of the file says by itself, less the sections in it."""
    return {
        str(key): value for key, value in section.items() if not (key in sections and isinstance(value, dict | None))
    }


def _parsed(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: this is not UTF-8 text") from error
    except yaml.YAMLError as error:
        place = getattr(error, "problem_mark", None)
        line = f":{place.line + 1}" if place is not None else ""
        raise ConfigError(f"{path}{line}: this is no YAML: {getattr(error, 'problem', None) or error}") from error


def _options(command: click.Command) -> dict[str, click.Option]:
    """Options that a file may give, by their flags."""
    return {
        flag: option
        for option in command.params
        if isinstance(option, click.Option) and option.name not in {"config", "show_config"}
        for flag in (*option.opts, *option.secondary_opts)
        if flag.startswith("--")
    }


def _as_typed(value: Any, option: click.Option, place: str) -> Any:
    """The value as if it had been typed; booleans stay for flags."""
    if value is None or isinstance(value, dict):
        raise ConfigError(f"{place}: a value is wanted, or several for an option that may be repeated")
    if option.multiple:
        return [_text(one) for one in (value if isinstance(value, list) else [value])]
    if isinstance(value, list):
        raise ConfigError(f"{place}: one value is wanted, and these are several")
    if option.is_flag and not isinstance(value, bool):
        raise ConfigError(f"{place}: this is on or off; write true or false")
    return value if option.is_flag else _text(value)


def _text(value: Any) -> str:
    """YAML reads ``none`` as text, and ``yes`` or ``no`` as booleans: none of our options takes those as words."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _unknown(key: str, verb: str, options: dict[str, click.Option]) -> str:
    near = difflib.get_close_matches(_flag(key), options, n=1)
    meant = f"; {near[0].lstrip('-')} is meant?" if near else f"; see `agentbench {verb} --help`"
    return f"{key!r} is no option of `agentbench {verb}`{meant}"


def _flag(key: Any) -> str:
    return "--" + str(key).lstrip("-").replace("_", "-")


def _variable(name: str) -> str:
    return name.upper().replace("-", "_")


def _origins(ctx: click.Context) -> Table:
    """Every option, its value, and where that came from."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("option", "value", "from"):
        table.add_column(title, overflow="fold")
    for parameter in ctx.command.params:
        name = parameter.name or ""
        if name in {"config", "show_config"}:
            continue
        value = ctx.params.get(name)
        shown = "(set)" if name in SECRETS and value else "-" if value in (None, ()) else _shown(value)
        table.add_row(max(parameter.opts, key=len), shown, _origin(ctx, parameter))
    return table


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _origin(ctx: click.Context, parameter: click.Parameter) -> str:
    source = ctx.get_parameter_source(parameter.name or "")
    if source is ParameterSource.COMMANDLINE:
        return "command line"
    if source is ParameterSource.ENVIRONMENT:
        own = f"{ctx.auto_envvar_prefix}_{_variable(parameter.name or '')}"
        names = [parameter.envvar] if isinstance(parameter.envvar, str) else [*(parameter.envvar or ())]
        return f"environment ({next((name for name in names if os.environ.get(name)), own)})"
    if source is ParameterSource.DEFAULT_MAP:
        return f"file ({ctx.meta[FILE]})"
    return "default"
