"""``agentbench analyze``: the questions asked of runs, on the screen and as files."""

from __future__ import annotations

import threading
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.text import Text

from agentbench import sample_trace
from agentbench._report.report import needed
from agentbench.analysis import QUESTIONS, analyze

from .console import print_note, results

if TYPE_CHECKING:
    from click import Context, Parameter


def _import_pandas() -> None:
    # Where it is not installed, the question says so.
    with suppress(ImportError):
        import_module("pandas")


def _list(ctx: Context, _parameter: Parameter, value: object) -> None:
    if value and not ctx.resilient_parsing:
        width = max(map(len, QUESTIONS))
        for question in QUESTIONS.values():
            click.echo(f"{question.name:<{width}}  {question.asks}")
        ctx.exit()


@click.command("analyze")
@click.argument("runs", nargs=-1, metavar="[RUN]...")
@click.option(
    "--question",
    "questions",
    type=click.Choice(list(QUESTIONS)),
    multiple=True,
    help="Ask this one; may be given several times.  [default: all questions]",
)
@click.option(
    "--prices",
    type=click.Path(path_type=Path),
    help="Price table (YAML or JSON) for the question `cost`.  [default: none, tokens only]",
)
@click.option("--csv", type=click.Path(path_type=Path), help="Write every table to this folder.  [default: none]")
@click.option("--png", type=click.Path(path_type=Path), help="Write every figure to this folder.  [default: none]")
@click.option(
    "--html",
    type=click.Path(path_type=Path),
    help="Write one page of all, with charts, to this folder.  [default: none]",
)
@click.option("--list", is_flag=True, is_eager=True, expose_value=False, callback=_list, help="List the questions.")
def command(
    runs: tuple[str, ...],
    questions: tuple[str, ...],
    prices: Path | None,
    csv: Path | None,
    png: Path | None,
    html: Path | None,
) -> int:
    """Ask questions of RUNs, together: tokens, tools, waits, and more.

    Every figure says over what it was computed, and has the published one beside it where there is one. What the runs
    lack is told, with what it is missing for. Without a RUN, the bundled sample is asked.
    """
    if html is not None:
        needed()
    if not runs:
        print_note("no RUN was named: these are figures of the bundled sample, which is made up")
    # Tables are shown in pandas, whose import takes its time: it goes on while polars works.
    threading.Thread(target=_import_pandas, daemon=True).start()
    analysis = analyze(*(runs or [sample_trace()]), questions=questions or None, prices=prices)
    console = results()
    for answer in analysis.values():
        console.print(Text(answer.to_text(console.width)), soft_wrap=True)
    for directory, kind in ((csv, "csv"), (png, "png"), (html, "html")):
        if directory is not None:
            written = analysis.save(directory, csv=kind == "csv", png=kind == "png", html=kind == "html")
            print_note(
                f"written: {len(written)} files to {directory}" if len(written) > 1 else f"written: {written[0]}"
            )
    return 0
