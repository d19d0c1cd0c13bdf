"""``agentbench compare``: runs side by side."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from agentbench import compare
from agentbench._report.report import write_whole

from .console import print_error, print_note, results

UNFAIR = 1
NOT_WRITTEN = 2


@click.command("compare")
@click.argument("runs", metavar="RUN RUN...", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option(
    "--md",
    "markdown_file",
    type=click.Path(path_type=Path, allow_dash=True),
    metavar="FILE",
    help="Write it as Markdown too; - is stdout, without the tables.  [default: not written]",
)
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write it as a page with charts too: one file that needs no network.  [default: not written]",
)
@click.option("--strict", is_flag=True, help="Exit with 1 when the comparison is unfair.")
def command(runs: tuple[Path, ...], markdown_file: Path | None, page: Path | None, *, strict: bool) -> int:
    """Put runs side by side, with absolute and relative differences to the first.

    On top stands where their settings differ in a way that makes the comparison unfair, and what keeps figures of a
    run from being used at all. Where the rows allow it, a difference that chance alone may explain is marked.
    """
    made = compare(*runs)
    if markdown_file is not None and str(markdown_file) == "-":
        sys.stdout.write(made.to_markdown())
        markdown_file = None
    else:
        results().print(made, crop=False)
    for flag, file, text in (("--md", markdown_file, made.to_markdown), ("--html", page, made.to_html)):
        if file is None:
            continue
        try:
            write_whole(file, text())
        except OSError as error:
            print_error(f"{file}: {error.strerror}; name another file with {flag}")
            return NOT_WRITTEN
        print_note(f"written: {file}")
    if strict and not made.fair:
        print_error(f"the comparison is unfair: {', '.join(difference.setting for difference in made.unfair)}")
        return UNFAIR
    return 0
