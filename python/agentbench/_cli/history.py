"""``agentbench history``: the runs of a folder with their headline figures."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path

import click

from agentbench import history
from agentbench._report.history import METRICS
from agentbench._report.over_time import plot

from .console import print_note, results


@click.command("history")
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.argument("file", metavar="[FILE]", type=click.Path(path_type=Path), required=False)
@click.option(
    "--plot",
    "metric",
    type=click.Choice(METRICS),
    help="Draw this figure over the runs' starts, into FILE: PNG, SVG or PDF by its ending, METRIC.png if not named."
    "  [default: nothing is drawn]",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of the table: one object for each run.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV in place of the table: one row for each run.")
def command(folder: Path, file: Path | None, metric: str | None, *, as_json: bool, as_csv: bool) -> int:
    """List the runs in DIR, to any depth, oldest first, with their headline figures.

    A run that was killed is marked partial, one that cannot be read broken, with the reason. The verdict is by the
    thresholds as published; agentbench report RUN shows its figures.
    """
    if as_json and as_csv:
        raise click.UsageError("--json and --csv are two forms of the same: give one")
    if file is not None and metric is None:
        raise click.UsageError(f"{file}: a FILE is what --plot METRIC draws into")
    listed = history(folder)
    if as_json:
        click.echo(json.dumps(listed.to_dicts(), indent=2, ensure_ascii=False))
    elif as_csv:
        rows = listed.to_dicts()
        writer = csv.DictWriter(sys.stdout, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    else:
        results().print(listed, crop=False)
    if metric is not None:
        target = file or Path(f"{metric}.png")
        drawn = plot(listed.entries, metric, target)
        print_note(f"written: {target}, {drawn} of {len(listed.entries)} runs have {metric}")
    return 0
