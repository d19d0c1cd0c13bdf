"""``agentbench synthesize``: made-up sessions, as a run directory or in TraceLab's rows."""

from __future__ import annotations

from pathlib import Path

import click

from agentbench import PROFILES, synthesize, synthesize_rounds

from .argv import masked_argv
from .console import print_error, print_next, results

INTERRUPTED = 130
SESSIONS = 8
RUN, ROWS = "run", "tracelab"


@click.command("synthesize")
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    required=True,
    help="The run directory to make; of tracelab the file, gzip where its name ends in .gz.",
)
@click.option(
    "--format",
    "layout",
    type=click.Choice([RUN, ROWS]),
    default=RUN,
    show_default=True,
    help="A run directory, or TraceLab's rows: counts and times without text.",
)
@click.option("--sessions", type=click.IntRange(min=1), help=f"How many sessions, of run.  [default: {SESSIONS}]")
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help="How many rows, of tracelab: the last session ends where they are full.  [default: none, and required there]",
)
@click.option(
    "--profile", type=click.Choice(PROFILES), default=PROFILES[0], show_default=True, help="Whose statistics."
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="The same seed, the same run.")
def command(out: Path, layout: str, sessions: int | None, rounds: int | None, profile: str, seed: int) -> int:
    """Make up sessions that follow published statistics of coding agents.

    Context growth, append and output sizes, tool waits, subagents and compaction are drawn; text is made up
    and no agent or engine was involved. The manifest says so, and so does each row.
    """
    if layout == ROWS:
        return _rows(out, sessions, rounds, profile, seed)
    if rounds is not None:
        raise click.UsageError("--rounds is for --format tracelab; a run directory has --sessions")
    sessions = sessions or SESSIONS
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


def _rows(out: Path, sessions: int | None, rounds: int | None, profile: str, seed: int) -> int:
    if rounds is None:
        raise click.UsageError("--format tracelab needs --rounds N")
    if sessions is not None:
        raise click.UsageError("--sessions is for a run directory; --format tracelab has --rounds")
    try:
        counts = synthesize_rounds(out, rounds=rounds, profile=profile, seed=seed)
    except KeyboardInterrupt:
        print_error("interrupted; nothing was written")
        return INTERRUPTED
    results().print(
        f"synthetic: {counts['rounds']:,} rounds of {counts['sessions']:,} sessions,"
        f" {counts['tool_calls']:,} tool calls written to {out}",
        soft_wrap=True,
    )
    print_next([f"agentbench import {out} --out results/{out.name.split('.')[0]}"])
    return 0
