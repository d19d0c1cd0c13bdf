"""``agentbench export``: a run in the layout of another tool."""

from __future__ import annotations

from pathlib import Path

import click

from agentbench import Run, export_jsonl

from .console import results


@click.command("export")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--format", "layout", type=click.Choice(["jsonl"]), required=True, help="The layout to write.")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="A folder that is not there, or is empty.")
@click.option("--no-prompts", is_flag=True, help="Leave the whole prompts (isl_text) out: they grow with the square.")
def command(run: Path, layout: str, out: Path, *, no_prompts: bool) -> None:
    """Write RUN in the layout of another tool.

    \b
    jsonl   OUT/run_config.json, OUT/runs/<session>/turn_traces.jsonl and engine_metrics.jsonl
    """  # noqa: D301 click reads the backspace as: keep the next lines as they are
    counts = export_jsonl(Run.open(run), out=out, prompts=not no_prompts)
    listed = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    results().print(f"{layout}: {listed} written to {out}", soft_wrap=True)
