"""``agentbench report``: what a run came to, on the screen and as Markdown."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentbench import Run, report

from .console import print_error, print_note, print_warning, results

if TYPE_CHECKING:
    from agentbench import Report

NOT_WRITTEN = 2


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--print", "only_print", is_flag=True, help="Print the tables and write nothing.")
@click.option("--md", "only_markdown", is_flag=True, help="Write the Markdown and print no tables.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Where the Markdown goes; - is stdout.  [default: report.md in RUN]",
)
def command(run: Path, out: Path | None, *, only_print: bool, only_markdown: bool) -> int:
    """Report what RUN came to: validity flags on top, then conditions, then figures.

    Prints tables and writes report.md into the run directory. RUN may be of any kind; of one that was killed,
    everything is computed from the rows that had reached the disk.
    """
    if only_print and (only_markdown or out is not None):
        raise click.UsageError("--print writes nothing: leave out --md and --out, or --print")
    made = report(Run.open(run))
    to_stdout = out is not None and str(out) == "-"
    if not only_markdown and not to_stdout:
        results().print(made, crop=False)
    if to_stdout:
        sys.stdout.write(made.to_markdown())
    elif not only_print:
        try:
            print_note(f"written: {made.write(out)}")
        except OSError as error:
            print_error(f"{error.filename}: {error.strerror}; name another file with --out, or use --print")
            return NOT_WRITTEN
    return 0


def print_and_keep(run: Run) -> Report:
    """Print a run's report at its end, and keep it beside the tables."""
    made = report(run)
    results().print(made, crop=False)
    try:
        made.write()
    except OSError as error:
        print_warning(f"report.md was not written: {error.strerror}; agentbench report {run.path} --out FILE writes it")
    return made
