"""``agentbench import``: others' recordings as a run directory."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Group
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from agentbench import IMPORT_FORMATS, ImportProgress, import_traces

from .argv import masked_argv
from .console import print_error, print_next, print_note, print_warning, results
from .live import REFRESH_SECONDS, Status

if TYPE_CHECKING:
    from collections.abc import Mapping

    from agentbench import Run

INTERRUPTED = 130
PROBLEMS_SHOWN = 10


@click.command("import")
@click.argument("sources", type=click.Path(path_type=Path), nargs=-1, required=True, metavar="SOURCE...")
@click.option("--out", type=click.Path(path_type=Path), required=True, help="The run directory to make.")
@click.option(
    "--format",
    "layout",
    type=click.Choice(IMPORT_FORMATS),
    help="The format of every source.  [default: told by each file's first records]",
)
@click.option(
    "--update",
    is_flag=True,
    help="Add to the import at --out what is new: files not yet seen, and what others have grown by.  [default: off]",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads that parse.  [default: one for each CPU]")
def command(sources: tuple[Path, ...], out: Path, layout: str | None, *, update: bool, threads: int | None) -> int:
    """Make a run directory of what others have recorded: logs of agents, published data sets.

    What a format does not tell stays null, and is said for which analysis or replay it is missing. A record that
    cannot be read is left out, counted and listed with its file and line.
    """
    progress = ImportProgress()
    ended = threading.Event()
    watcher = threading.Thread(target=_watch, args=(progress, ended), daemon=True)
    watcher.start()
    try:
        run = import_traces(
            sources, out=out, format=layout, update=update, threads=threads, progress=progress, argv=masked_argv()
        )
    except KeyboardInterrupt:
        print_error("interrupted; nothing was written")
        return INTERRUPTED
    finally:
        ended.set()
        watcher.join()
    for refused in progress.refused:
        print_warning(refused)
    if progress.nothing_new:
        results().print(f"nothing new: {out} is as it was", soft_wrap=True)
        return 0
    _tell(run, out, progress)
    return 0


def _watch(progress: ImportProgress, ended: threading.Event) -> None:
    bar = Progress(
        TextColumn("importing"),
        BarColumn(bar_width=None),
        TaskProgressColumn(),
        TextColumn("{task.fields[size]}"),
        TimeRemainingColumn(compact=True),
        auto_refresh=False,
        expand=True,
    )
    task = bar.add_task("importing", total=None, size="")
    with Status() as status:
        while not ended.wait(REFRESH_SECONDS):
            counts = progress.read()
            if not counts["pieces"]:
                status.show(Text("importing: looking at the sources"), "importing: looking at the sources")
                continue
            told, size = done_so_far(counts), _size(counts)
            bar.update(task, total=counts["bytes"] or None, completed=counts["bytes_read"], size=size)
            line = Text(told, no_wrap=True, overflow="ellipsis")
            status.show(Group(bar.get_renderable(), line), f"importing: {told}, {size.strip()} read")


def done_so_far(counts: Mapping[str, int]) -> str:
    """What is read, in words."""
    done, of = counts["pieces_done"], counts["pieces"]
    words = [f"{done:,} of {of:,} sources", f"{counts['turns']:,} turns", f"{counts['tool_calls']:,} tool calls"]
    if counts["problems"]:
        words.append(f"{counts['problems']:,} records left out")
    return ", ".join(words)


def _size(counts: Mapping[str, int]) -> str:
    """How much is read; as wide at the beginning as at the end."""
    whole = f"{counts['bytes'] / 1e6:,.0f}"
    return f"{counts['bytes_read'] / 1e6:>{len(whole)},.0f} of {whole} MB"


def _tell(run: Run, out: Path, progress: ImportProgress) -> None:
    manifest = run.manifest
    rows, counts, settings = manifest["rows"], manifest["counts"], manifest["settings"]
    results().print(
        f"{', '.join(settings['formats'])}: {counts['sessions']:,} sessions, {counts['threads']:,} threads,"
        f" {rows.get('turn_traces', 0):,} turns, {rows.get('tool_calls', 0):,} tool calls written to {out}",
        soft_wrap=True,
    )
    if settings.get("updates"):
        new = progress.read()
        print_note(f"new of these: {new['turns']:,} turns, {new['tool_calls']:,} tool calls")
    if counts["turns_told_again"]:
        print_note(f"{counts['turns_told_again']:,} turns that several files tell are counted once")
    if made_up := counts.get("synthetic_turns"):
        print_note(f"{made_up:,} turns are synthetic: made up, as their source says")
    for lack in settings["lacks"]:
        print_note(f"lacks: {lack}")
    if left_out := counts["records_left_out"]:
        print_warning(f"{left_out:,} records were left out; the first of them:")
        for problem in settings["problems"][:PROBLEMS_SHOWN]:
            line = f":{problem['line']}" if problem["line"] else ""
            print_note(f"  {problem['file']}{line}: {problem['what']}")
    has_text = not any(lack.startswith("no turn has text:") for lack in settings["lacks"])
    content = "" if has_text else " --content synthetic"
    print_next([f"agentbench replay {out}{content}"])
