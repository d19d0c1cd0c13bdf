"""The command line. One file per verb: each parses, calls the public API and prints.

Tables go to stdout; progress, logs and errors to stderr. Exit codes: 0 fine; 1 the run finished but failed
its own conditions; 2 usage or configuration; 130 interrupted, with partial results written.
"""

from __future__ import annotations

import logging
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

import click

from agentbench._core import AgentbenchError, __version__, build_profile

from . import (
    agent,
    analyze,
    capacity,
    capture,
    collect,
    compare,
    doctor,
    engine,
    export,
    history,
    import_,
    load,
    push,
    replay,
    report,
    synthesize,
)
from .configuration import PREFIX, configurable
from .console import print_error

if TYPE_CHECKING:
    from types import FrameType

INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(__version__, prog_name="agentbench", message=f"%(prog)s %(version)s ({build_profile} build)")
def commands() -> None:
    """Record coding agents, replay them on any inference engine, count how many it serves."""


def _with_defaults(command: click.Command) -> click.Command:
    """Let the help of every flag say that it is off unless given, as that of every other option says its default."""
    for option in command.params:
        if isinstance(option, click.Option) and option.is_flag and "[default:" not in (option.help or ""):
            option.help = f"{option.help}  [default: off]"
    return command


for verb in (
    agent,
    analyze,
    capacity,
    capture,
    collect,
    compare,
    doctor,
    engine,
    export,
    history,
    import_,
    load,
    push,
    replay,
    report,
    synthesize,
):
    commands.add_command(verb.command)


def leaves() -> dict[str, click.Command]:
    """Every verb by its words, such as ``replay`` and ``load conversation``."""
    found: dict[str, click.Command] = {}
    for name, verb in commands.commands.items():
        if isinstance(verb, click.Group):
            found |= {f"{name} {shape}": command for shape, command in verb.commands.items()}
        else:
            found[name] = verb
    return found


for command in leaves().values():
    _with_defaults(configurable(command, lambda: frozenset(leaves())))


def main(arguments: list[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code."""
    _log_to_stderr()
    signal.signal(signal.SIGTERM, _as_interrupt)
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    try:
        result = commands.main(arguments, prog_name="agentbench", standalone_mode=False, auto_envvar_prefix=PREFIX)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 2
    except click.ClickException as error:
        print_error(error.format_message())
        return 2
    except (AgentbenchError, OSError, ModuleNotFoundError) as error:
        print_error(_text(error))
        return 2
    except (KeyboardInterrupt, click.Abort):
        print_error("interrupted")
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def _text(error: Exception) -> str:
    """Return our own text, which an ``OSError`` keeps beside its number."""
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error)


def _as_interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    """End like Ctrl-C when told to terminate: partial results are written."""
    raise KeyboardInterrupt


def _log_to_stderr() -> None:
    """Show the core's lifecycle events, warnings and above, on stderr as single lines."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(message)s", stream=sys.stderr)
