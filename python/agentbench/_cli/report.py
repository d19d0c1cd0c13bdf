"""``agentbench report``: what a run came to, on the screen, as Markdown and as a page of HTML."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agentbench import Run, report
from agentbench._report.verdict import WORDS

from .console import print_error, print_note, print_warning, results

if TYPE_CHECKING:
    from agentbench import Report

NOT_WRITTEN = 2
FAILED = 1
BESIDE = "report.html in RUN"


@click.command("report")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--print", "only_print", is_flag=True, help="Print the tables and write nothing.")
@click.option("--md", "only_markdown", is_flag=True, help="Write the Markdown and print no tables.")
@click.option(
    "--out",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Where the Markdown goes; - is stdout.  [default: report.md in RUN]",
)
@click.option(
    "--html",
    "page",
    type=click.Path(path_type=Path),
    is_flag=False,
    flag_value=Path(BESIDE),
    metavar="[FILE]",
    help="Write a page with charts, and print no tables. It is one file that needs no network. Without FILE it is"
    " report.html in RUN.  [default: not written]",
)
@click.option(
    "--threshold",
    "thresholds",
    multiple=True,
    metavar="MEASURE.WORD=VALUE",
    help="What a word of the verdict needs, like ttft.good=2s, speed.ok=20 or completion.good=80%; may be given again."
    "  [default: TTFT p95 3s, 10s, 20s; output speed p25 30, 15, 5 tok/s; requests answered 75%, 25%]",
)
@click.option(
    "--fail-on",
    type=click.Choice(WORDS[1:]),
    help="Exit with 1 when the verdict is this word or a worse one, or when there is none.  [default: never]",
)
def command(
    run: Path,
    out: Path | None,
    page: Path | None,
    thresholds: tuple[str, ...],
    fail_on: str | None,
    *,
    only_print: bool,
    only_markdown: bool,
) -> int:
    """Report what RUN came to: validity flags on top, then the verdict, conditions and figures.

    Prints tables and writes report.md into the run directory. RUN may be of any kind; of one that was killed,
    everything is computed from the rows that had reached the disk.
    """
    if only_print and (only_markdown or out is not None or page is not None):
        raise click.UsageError("--print writes nothing: leave out --md, --out and --html, or --print")
    made = report(Run.open(run), thresholds=thresholds)
    to_stdout = out is not None and str(out) == "-"
    if not only_markdown and not to_stdout and page is None:
        results().print(made, crop=False)
    if to_stdout:
        sys.stdout.write(made.to_markdown())
    try:
        if page is not None:
            print_note(f"written: {made.write_html(None if str(page) == BESIDE else page)}")
        if not only_print and not to_stdout and (page is None or only_markdown or out is not None):
            print_note(f"written: {made.write(out)}")
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}; name another file with --out or --html, or use --print")
        return NOT_WRITTEN
    return _judged(made, fail_on)


def _judged(made: Report, fail_on: str | None) -> int:
    if fail_on is None or not made.verdict.at_least_as_bad_as(fail_on):
        return 0
    figures = ", ".join(
        f"{judgment.measure.label} {judgment.measure.statistic} {judgment.figure}"
        for judgment in made.verdict.deciding()
    )
    print_error(f"the verdict is {made.verdict.in_words()}, --fail-on is {fail_on}{f': {figures}' if figures else ''}")
    return FAILED


def print_and_keep(run: Run) -> Report:
    """Print a run's report at its end, and keep it beside the tables."""
    made = report(run)
    results().print(made, crop=False)
    try:
        made.write()
    except OSError as error:
        print_warning(f"report.md was not written: {error.strerror}; agentbench report {run.path} --out FILE writes it")
    return made
