"""``agentbench push``: a run as a data set of the hub."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table as Grid
from rich.text import Text

from agentbench._hub import columns
from agentbench._hub.publish import LICENSES, SHARD_MB, Push, push

from .console import messages, print_note, print_warning, results

if TYPE_CHECKING:
    from collections.abc import Iterable

SHOWN_CHARACTERS = 60
SHOWN_FINDINGS = 20


def _show_levels(context: click.Context, _parameter: click.Parameter, asked: bool) -> None:  # noqa: FBT001 click's own
    if not asked or context.resilient_parsing:
        return
    console = results()
    for level in columns.LEVELS:
        console.print(f"{level}: {columns.ABOUT[level]}")
        for table in columns.TABLES:
            leaving: dict[str, list[str]] = {}
            for name, rule in columns.leaving(table, level):
                leaving.setdefault(columns.MEANING[rule.partition(":")[0]], []).append(name)
            console.print(f"  {table}" if leaving else f"  {table}: nothing")
            for meaning, names in leaving.items():
                console.print(f"    {meaning}: {', '.join(names)}", soft_wrap=True)
    context.exit()


@click.command("push")
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--repo", required=True, metavar="OWNER/NAME", help="The data set; it is made where there is none.")
@click.option(
    "--level",
    type=click.Choice(columns.LEVELS),
    default=columns.DEFAULT_LEVEL,
    show_default=True,
    help="What leaves; --list-levels tells the columns.",
)
@click.option(
    "--license",
    "license_id",
    metavar="ID",
    help="The licence by the hub's id, as cc-by-4.0.  [default: asked for on a terminal, else required]",
)
@click.option(
    "--dry-run",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Write exactly what would be sent to a new folder, and send nothing.  [default: send it]",
)
@click.option("--public", is_flag=True, help="Let everybody see the data set; else it is private.")
@click.option("--shift-times", is_flag=True, help="Move each session's times by an offset of its own; gaps stay.")
@click.option(
    "--public-name",
    "public_names",
    multiple=True,
    metavar="NAME",
    help="A tool, model or agent whose name may stay; may be repeated.  [default: well-known ones]",
)
@click.option(
    "--mask",
    multiple=True,
    metavar="WORD",
    help="A word that must not leave, in any case; may be repeated.  [default: none]",
)
@click.option(
    "--allow",
    multiple=True,
    metavar="ID|RULE",
    help="A finding of the scan that may leave; may be repeated.  [default: none]",
)
@click.option(
    "--salt-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="The secret behind pseudonyms and hashes.  [default: ~/.config/agentbench/salt, drawn at first]",
)
@click.option(
    "--shard-mb",
    type=click.IntRange(min=1),
    default=SHARD_MB,
    show_default=True,
    help="Size at which a table goes on in another file, in MiB.",
)
@click.option(
    "--list-levels",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_levels,
    help="Show which columns leave at each level, and end.",
)
def command(run: Path, repo: str, license_id: str | None, dry_run: Path | None, **settings: Any) -> int:
    """Publish RUN as a data set of the Hugging Face hub, private by default.

    Only listed columns and values leave; names become pseudonyms. What would be sent is scanned first: a finding stops
    the push with exit code 1. The token is that of `hf auth login` or HF_TOKEN.

    \b
    counts         token counts, times, well-known tools; no text, no names
    hashes         and salted hashes of the prompts' blocks, chained over what stands before them
    text-redacted  and prompts, replies and arguments with masks
    text           everything as recorded, but for the ids
    """  # noqa: D301 click reads the backspace as: keep the next lines as they are
    if license_id is None:
        if not sys.stdin.isatty():
            raise click.UsageError("say under which licence the data set is published: --license cc-by-4.0")
        license_id = click.prompt("licence", type=click.Choice(LICENSES), show_choices=False)
    done = push(run, repo=repo, license=license_id, dry_run=dry_run, **settings)
    if done.salt_is_new:
        print_note(f"{done.salt_file}: a new salt; keep it, and keep it secret: equal pseudonyms follow from it")
    _show_files(done)
    if done.findings:
        _show_findings(done.findings)
        return 1
    if done.allowed:
        print_warning(f"{len(done.allowed)} findings were allowed")
    _show_end(done, repo)
    return 0


def _show_files(done: Push) -> None:
    console = results()
    for table, rows in done.sample.items():
        grid = Grid(title=Text(f"{table}: {done.rows[table]:,} rows, the first {len(rows)}"), title_justify="left")
        grid.add_column("column")
        for at in range(len(rows)):
            grid.add_column(f"row {at}", overflow="fold")
        for name in rows[0] if rows else ():
            grid.add_row(name, *(_short(row[name]) for row in rows))
        console.print(grid)
    console.print(f"{len(done.files)} files, {done.n_bytes:,} bytes: {', '.join(done.files)}", soft_wrap=True)


def _short(value: object) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}… ({len(text):,} characters)"


def _show_findings(findings: Iterable[Any]) -> None:
    listed = list(findings)
    grid = Grid(title=Text("must not leave"), title_justify="left")
    for heading in ("id", "rule", "first place", "what", "places"):
        grid.add_column(heading, overflow="fold")
    for finding in listed[:SHOWN_FINDINGS]:
        grid.add_row(finding.id, finding.rule, finding.place, finding.excerpt, f"{finding.places:,}")
    messages().print(grid)
    more = f" ({len(listed) - SHOWN_FINDINGS} more are not listed)" if len(listed) > SHOWN_FINDINGS else ""
    print_warning(
        f"nothing was sent: {len(listed)} findings{more}; publish at a lower level, or name what may leave with --allow"
    )


def _show_end(done: Push, repo: str) -> None:
    console = results()
    if done.sent is None:
        console.print(f"nothing was sent; what would be lies in {done.folder}", soft_wrap=True)
        return
    seen = "private" if done.sent.private else "public"
    console.print(f"sent to {done.sent.url} ({seen}), commit {done.sent.commit[:12]}", soft_wrap=True)
    if done.sent.xet_refused:
        print_note(f"Xet did not take the files ({done.sent.xet_refused}); they went over plain HTTP")
    if done.sent.replaced:
        console.print(f"{done.sent.replaced} files of an earlier push were taken away", soft_wrap=True)
    console.print(f'open it with: agentbench.Run.open("hf://datasets/{repo}")', soft_wrap=True)
