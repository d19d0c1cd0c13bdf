"""``agentbench export``: a run in the format of another tool."""

from __future__ import annotations

from pathlib import Path

import click

from agentbench import EXPORT_FORMATS, Run, export, export_jsonl

from .console import print_note, results

EARLIER_NAME = "jsonl"
"""What the netpreme layout was called before there were others."""


def _listed() -> str:
    """The formats, a paragraph each, as click leaves them."""
    lines = "\n".join(f"{name:<17} {about}" for name, about in EXPORT_FORMATS.items())
    return f"\b\n{lines}"


@click.command("export", epilog=_listed())
@click.argument("run", type=click.Path(path_type=Path))
@click.option(
    "--format",
    "layout",
    type=click.Choice([*EXPORT_FORMATS, EARLIER_NAME]),
    required=True,
    help="The format to write; jsonl is netpreme by its earlier name.",
)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="The file or folder to make; JSON lines are gzip where its name ends in .gz.",
)
@click.option(
    "--no-prompts",
    is_flag=True,
    help="netpreme alone: leave the whole prompts (isl_text) out: they grow with the square of the turns.",
)
def command(run: Path, layout: str, out: Path, *, no_prompts: bool) -> None:
    """Write RUN in the format of another tool.

    Nothing is made up. What the format cannot hold is told in the end; what it needs and the run lacks is an error.
    What has an importer is read back by `agentbench import`.
    """
    if no_prompts:
        if layout not in {"netpreme", EARLIER_NAME}:
            raise click.UsageError(f"--no-prompts is for netpreme alone, and the format is {layout}")
        written, left_out, notes = export_jsonl(Run.open(run), out=out, prompts=False), ["whole prompts"], []
    else:
        exported = export(run, format=layout, out=out)
        written, left_out, notes = exported.written, exported.left_out, exported.notes
    listed = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in written.items())
    results().print(f"{layout}: {listed} written to {out}", soft_wrap=True)
    for note in notes:
        print_note(note)
    if left_out:
        print_note(f"left out: {', '.join(left_out)}")
