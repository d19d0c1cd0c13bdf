"""`export`: a run in the formats of other tools.

The core writes the formats of traces; the tables themselves, as CSV or as a DuckDB file, are written here by DuckDB,
which reads them as Arrow streams.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench._core import CORE_EXPORT_FORMATS, ConfigError, Run, export_run
from agentbench._frames import _library as library

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from agentbench._core import Table

EXPORT_FORMATS: dict[str, str] = CORE_EXPORT_FORMATS | {
    "csv": "a folder: every table of the run as a CSV file; lists and objects as JSON text",
    "duckdb": "a DuckDB file: every table of the run as a table, and the manifest's top level",
}
"""What `export` writes, by name: what it is, holds and loses."""

TABLES = {
    "turn_traces": "turns",
    "messages": "messages",
    "tool_calls": "tool_calls",
    "engine_metrics": "engine",
    "engine_samples": "engine_samples",
    "power": "power",
    "requests": "requests",
    "trajectories": "trajectories",
    "levels": "levels",
    "client_samples": "client_samples",
}
"""A table's file and the method that reads it."""


@dataclass(frozen=True)
class Exported:
    """What came of an export. Made by `agentbench.export`.

    Attributes
    ----------
    path
        The file or folder.
    written
        How many of what was written, by name; ``bytes`` are those of the text, before any compression.
    left_out
        What the run has and the format cannot hold, or what lacks something that the format needs.
    notes
        What a reader of the export must know.
    """

    __module__ = "agentbench"

    path: Path
    written: dict[str, int]
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def export(run: Run | str | os.PathLike[str], *, format: str, out: str | os.PathLike[str]) -> Exported:  # noqa: A002 the word of the command line
    """Write a run in the format of another tool.

    Nothing is made up: what the run does not know is left out, or null where the format has a place for it. Prompts
    become block hashes by the run's own units and token counts, so that equal prefixes have equal numbers within and
    across sessions; recordings that were imported with block hashes keep theirs.

    Parameters
    ----------
    run
        The run, or its directory.
    format
        One of `EXPORT_FORMATS`, which say what each holds and loses.
    out
        The file or folder to make; a file must not exist, a folder must not exist or be empty. A file of JSON lines is
        gzip where its name ends in ``.gz``.

    Returns
    -------
    Exported
        What was written and what was left out.

    Raises
    ------
    ConfigError
        When the format is unknown, the run has nothing that it can hold, or something lies at ``out``.
    TraceError
        When the run cannot be read.
    ModuleNotFoundError
        When the format needs a library of the ``analysis`` extra that is not installed.
    """
    opened = run if isinstance(run, Run) else Run.open(run)
    path = Path(out)
    if format == "csv":
        return _csv(opened, path)
    if format == "duckdb":
        return _duckdb(opened, path)
    told = export_run(opened, format=format, out=path)
    return Exported(path, told["written"], told["left_out"], told["notes"])


async def export_async(
    run: Run | str | os.PathLike[str],
    *,
    format: str,  # noqa: A002 as above
    out: str | os.PathLike[str],
) -> Exported:
    """`export` without blocking the event loop."""
    return await asyncio.to_thread(export, run, format=format, out=out)


def _tables(run: Run) -> dict[str, Table]:
    """The tables that the run has rows of."""
    rows = run.manifest["rows"]
    return {stem: getattr(run, method)() for stem, method in TABLES.items() if rows.get(stem, 0) > 0}


def _csv(run: Run, out: Path) -> Exported:
    """A file for each table."""
    duckdb: Any = library("duckdb")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out}: is not empty; choose another folder, or empty it")
    tables = _tables(run)
    if not tables:
        raise ConfigError(f"run {run.manifest['run_id']} has no rows")
    written: dict[str, int] = {}
    with _beside(out) as folder, duckdb.connect() as connection:
        folder.mkdir()
        for stem, table in tables.items():
            file = folder / f"{stem}.csv"
            columns = ", ".join(_as_text(name, kind) for name, kind in table.schema.items())
            rows = _stream(connection, table)
            query = f"SELECT {columns} FROM {rows}"  # noqa: S608 names of our own
            copied = connection.execute(f"COPY ({query}) TO {_quoted(file)} (FORMAT csv, HEADER)")
            written[stem] = int(copied.fetchall()[0][0])
        written["bytes"] = sum(file.stat().st_size for file in folder.iterdir())
        if out.exists():
            out.rmdir()
        folder.replace(out)
    return Exported(out, written)


def _duckdb(run: Run, out: Path) -> Exported:
    """A database with all tables."""
    duckdb: Any = library("duckdb")
    if out.exists():
        raise ConfigError(f"{out}: is there already; choose another file, or remove it")
    tables = _tables(run)
    if not tables:
        raise ConfigError(f"run {run.manifest['run_id']} has no rows")
    written: dict[str, int] = {}
    with _beside(out) as file:
        with duckdb.connect(str(file)) as connection:
            for stem, table in tables.items():
                rows = _stream(connection, table)
                connection.execute(f'CREATE TABLE "{stem}" AS FROM {rows}')
                written[stem] = int(connection.table(stem).count("*").fetchall()[0][0])
            connection.execute("CREATE TABLE manifest (name VARCHAR, value VARCHAR)")
            top = [(name, str(value)) for name, value in run.manifest.items() if not isinstance(value, dict | list)]
            connection.executemany("INSERT INTO manifest VALUES (?, ?)", top)
        written["bytes"] = file.stat().st_size
        file.replace(out)
    return Exported(out, written)


@contextmanager
def _beside(out: Path) -> Iterator[Path]:
    """A place on the same disk for what is not whole yet; gone afterwards."""
    out.absolute().parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.absolute().parent))
    try:
        yield scratch / out.name
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _stream(connection: Any, table: Table) -> str:
    """The name under which the connection reads a table, batch by batch."""
    pyarrow: Any = library("pyarrow")
    connection.register("stream", pyarrow.RecordBatchReader.from_stream(table))
    return "stream"


def _as_text(name: str, kind: str) -> str:
    """A column as CSV holds it: what is no plain value becomes JSON."""
    is_plain = not kind.lower().startswith(("list", "struct", "large_list"))
    return f'"{name}"' if is_plain else f'to_json("{name}") AS "{name}"'


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "''") + "'"
