"""``agentbench synthesize``: a run directory of made-up sessions."""

from __future__ import annotations

from pathlib import Path

import click

from agentbench import PROFILES, synthesize

from .argv import masked_argv
from .console import print_error, print_next, results

INTERRUPTED = 130


@click.command("synthesize")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The run directory to make.")
@click.option("--sessions", type=click.IntRange(min=1), default=8, show_default=True, help="How many sessions.")
@click.option(
    "--profile", type=click.Choice(PROFILES), default=PROFILES[0], show_default=True, help="Whose statistics."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed, the same run.")
def command(out: Path, sessions: int, profile: str, seed: int) -> int:
    """Make up a run directory whose sessions follow published statistics of coding agents.

    Context growth, append and output sizes, tool waits, subagents and compaction are drawn; text is made up
    and no agent or engine was involved. The manifest says so.
    """
    try:
        run = synthesize(out, sessions=sessions, profile=profile, seed=seed, argv=masked_argv())
    except KeyboardInterrupt:
        print_error(f"interrupted; the sessions made until then are in {out}")
        return INTERRUPTED
    rows = run.manifest["rows"]
    results().print(
        f"synthetic: {sessions} sessions, {rows.get('turn_traces', 0):,} turns,"
        f" {rows.get('tool_calls', 0):,} tool calls written to {out}",
        soft_wrap=True,
    )
    print_next([f"agentbench replay {out}"])
    return 0
