"""Runs that are no run directory of this machine: data sets of the hub, folders of Parquet files, Parquet URLs.

Whatever it is, it becomes a run directory: what is far is fetched (a data set into the hub's own cache), the tables are
found by their files' names, and a folder in the cache gets a manifest and the tables, linked where they are one file
of the right types, else rewritten. `Run.open` calls this for what has no manifest.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from agentbench._core import Run, TraceError

from .columns import TABLES
from .extra import needed

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pyarrow as pa

# `pathlib` makes one slash of two.
HUB = re.compile(r"hf:/{1,2}datasets/(?P<repo>[\w.-]+/[\w.-]+?)(?:@(?P<revision>[^/\s]+))?/?")
WEB = re.compile(r"(?P<scheme>https?):/{1,2}(?P<rest>[^/\s].*)")
SHARD = re.compile(r"(?P<table>[a-z_]+?)(?:[-.]\d+)?(?:[-_.](?:train|part|of|\d+))*\.parquet")
DEPTH = 3
MANIFEST = "manifest.json"
PUBLISHED = "run.json"
TIMEOUT_S = 60
ENOUGH_COLUMNS = 3
"""Columns of a table that a file of another name must have to be taken for it."""


def run_directory(address: str) -> Path:
    """Return the run directory that an address stands for; a path that is none of these as it is.

    Raises
    ------
    TraceError
        When it cannot be fetched, or holds no table of a run. The text says what to do.
    """
    if match := HUB.fullmatch(address):
        return _laid_out(_from_hub(match["repo"], match["revision"]), address)
    if address.startswith("hf:"):
        raise TraceError(f"{address}: not a data set's address; write hf://datasets/OWNER/NAME or …/NAME@REVISION")
    if match := WEB.fullmatch(address):
        return _laid_out(_from_web(f"{match['scheme']}://{match['rest']}"), address)
    path = Path(address)
    if path.is_dir() and not any(_parquet_files(path)):
        return path
    if path.is_file() and path.suffix != ".parquet":
        return path
    return _laid_out(path, address)


def _from_hub(repo: str, revision: str | None) -> Path:
    """Fetch a data set's tables into the hub's cache."""
    hub: Any = needed("huggingface_hub")
    errors: Any = needed("huggingface_hub.errors")
    place = f"hf://datasets/{repo}" + (f"@{revision}" if revision else "")
    try:
        folder = hub.snapshot_download(
            repo,
            repo_type="dataset",
            revision=None if revision is None else unquote(revision),
            # Not all of a data set that holds other things.
            allow_patterns=[PUBLISHED, MANIFEST, *(f"*{table}*.parquet" for table in TABLES)]
            + [f"*{table}/*.parquet" for table in TABLES],
        )
    except errors.GatedRepoError as error:
        raise TraceError(f"{place}: its owner gives access on request; ask on its page, then: hf auth login") from error
    except errors.RepositoryNotFoundError as error:
        raise TraceError(f"{place}: no such data set, or a private one: check the name, or: hf auth login") from error
    except errors.RevisionNotFoundError as error:
        raise TraceError(f"{place}: the data set has no such revision; name a branch, a tag or a commit") from error
    except (errors.HfHubHTTPError, getattr(errors, "HTTPError", OSError), OSError, ValueError) as error:
        first = str(error).strip().split("\n")[0]
        raise TraceError(
            f"{place}: cannot be fetched ({first}); it was not fetched before, so the hub must be reachable "
            "(HF_HUB_OFFLINE must not be set)"
        ) from error
    return Path(folder)


def _from_web(url: str) -> Path:
    """Fetch one Parquet file into a folder of the cache."""
    name = Path(unquote(urlsplit(url).path)).name
    if not name.endswith(".parquet"):
        raise TraceError(f"{url}: not the address of a Parquet file; give one that ends in .parquet")
    folder = _cache() / "fetched" / hashlib.sha256(url.encode()).hexdigest()[:32]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with (
            urllib.request.urlopen(url, timeout=TIMEOUT_S) as response,  # noqa: S310 the scheme is http or https
            tempfile.NamedTemporaryFile(dir=folder, suffix=".part", delete=False) as part,
        ):
            shutil.copyfileobj(response, part)
    except (urllib.error.URLError, OSError) as error:
        for left in folder.glob("*.part"):
            left.unlink(missing_ok=True)
        reason = getattr(error, "reason", None) or error
        raise TraceError(f"{url}: cannot be fetched ({reason}); check the address and the network") from error
    Path(part.name).replace(folder / name)
    return folder / name


def _cache() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "agentbench"


def _parquet_files(folder: Path) -> Iterator[Path]:
    for depth in range(DEPTH):
        yield from sorted(folder.glob("*/" * depth + "*.parquet"))


def _laid_out(source: Path, address: str) -> Path:
    """Return a run directory in the cache with the tables of a file or a folder."""
    if source.is_dir() and (source / MANIFEST).exists():
        return source
    files = [source] if source.is_file() else list(_parquet_files(source))
    tables = _tables(files, address)
    manifest = _manifest(source, tables, address)
    facts = [(str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns) for path in files]
    digest = hashlib.sha256(json.dumps([facts, manifest]).encode()).hexdigest()[:32]
    # Reports and figures name a run by its folder.
    target = _cache() / "opened" / digest / _name(source, address)
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        made = Path(scratch) / "run"
        made.mkdir()
        _write_manifest(made, {**manifest, "rows": {}})
        empty = Run.open(made)
        rows = {table: _write_table(empty, table, paths, made) for table, paths in tables.items()}
        _write_manifest(made, {**manifest, "rows": rows})
        # Another process may have laid out the same meanwhile.
        try:
            made.rename(target)
        except OSError:
            if not target.exists():
                raise
    return target


def _name(source: Path, address: str) -> str:
    """Return what a run is called: its data set's name, or its folder's or file's."""
    match = HUB.fullmatch(address)
    name = match["repo"].rpartition("/")[2] if match else source.resolve().stem
    return name or "run"


def _write_manifest(folder: Path, manifest: dict[str, Any]) -> None:
    (folder / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n")


def _tables(files: list[Path], address: str) -> dict[str, list[Path]]:
    """Return the files of each table, by the file's name, its folder's name, or its columns."""
    found: dict[str, list[Path]] = {}
    for path in files:
        table = _table_of(path)
        if table is not None:
            found.setdefault(table, []).append(path)
    if not found:
        names = ", ".join(path.name for path in files[:3]) or "no Parquet file"
        raise TraceError(
            f"{address}: holds no table of a run ({names}); files are named after their tables, as in "
            "turn_traces.parquet or turn_traces-00000-of-00001.parquet; other layouts are for `agentbench import`"
        )
    return found


def _table_of(path: Path) -> str | None:
    match = SHARD.fullmatch(path.name)
    if match and match["table"] in TABLES:
        return match["table"]
    # As the hub's own conversion lays them out: turn_traces/train/0000.parquet.
    folder = next((parent.name for parent in path.parents[:2] if parent.name in TABLES), None)
    if folder is not None:
        return folder
    parquet: Any = needed("pyarrow.parquet")
    try:
        names = set(parquet.read_schema(path).names)
    except (OSError, ValueError) as error:
        raise TraceError(f"{path}: cut off or damaged ({str(error).splitlines()[0]}); fetch the file again") from error
    fits = {table: len(names & {column.name for column in columns}) for table, columns in TABLES.items()}
    best = max(fits, key=lambda table: fits[table])
    return best if fits[best] >= max(ENOUGH_COLUMNS, len(names) / 2) else None


def _manifest(source: Path, tables: dict[str, list[Path]], address: str) -> dict[str, Any]:
    """Return the published manifest, or one that says that there was none."""
    published = (source if source.is_dir() else source.parent) / PUBLISHED
    kind = "capacity" if "levels" in tables else "replay" if "requests" in tables else "import"
    manifest: dict[str, Any] = {
        "format_version": 1,
        "kind": kind,
        "run_id": _name(source, address),
        "tool_version": "",
        "clock_anchor_ns": 0,
        "complete": True,
        "notes": ["It came without a manifest: what ran, on which engine and with which settings is not known."],
    }
    if source.is_dir() and published.exists():
        try:
            manifest |= json.loads(published.read_text())
        except ValueError as error:
            raise TraceError(f"{published}: not a published run's manifest ({error}); fetch it again") from error
    return {**manifest, "complete": True, "dataset": address}


def _write_table(empty: Run, table: str, paths: list[Path], folder: Path) -> int:
    """Put a table into the run directory: a link where that will do. Return its rows."""
    pyarrow: Any = needed("pyarrow")
    parquet: Any = needed("pyarrow.parquet")
    from .tables import table_of  # noqa: PLC0415 needs pyarrow

    wanted: pa.Schema = pyarrow.RecordBatchReader.from_stream(table_of(empty, table)).schema
    target = folder / f"{table}.parquet"
    try:
        files = [parquet.ParquetFile(path) for path in paths]
        schemas = [file.schema_arrow for file in files]
        if len(paths) == 1 and _reads_as_it_is(files[0], wanted):
            target.symlink_to(paths[0].resolve())
            return int(files[0].metadata.num_rows)
        names = [name for name in wanted.names if any(name in schema.names for schema in schemas)]
        schema = pyarrow.schema([wanted.field(name) for name in names])
        with parquet.ParquetWriter(target, schema, compression="zstd") as writer:
            for file in files:
                for batch in file.iter_batches(columns=[name for name in names if name in file.schema_arrow.names]):
                    writer.write_batch(_fitted(batch, schema, paths[0]))
        return sum(int(file.metadata.num_rows) for file in files)
    except (OSError, pyarrow.ArrowInvalid) as error:
        first = str(error).split("\n")[0]
        raise TraceError(f"{paths[0]}: cut off or damaged ({first}); fetch the file again") from error


def _reads_as_it_is(file: Any, wanted: pa.Schema) -> bool:
    """Return whether the core reads a file: its columns have their types and a compression that it knows."""
    schema = file.schema_arrow
    known = [name for name in schema.names if name in wanted.names]
    groups = [file.metadata.row_group(at) for at in range(file.metadata.num_row_groups)]
    compressions = {group.column(at).compression for group in groups for at in range(group.num_columns)}
    return compressions <= {"ZSTD", "UNCOMPRESSED"} and all(
        schema.field(name).type == wanted.field(name).type for name in known
    )


def _fitted(batch: pa.RecordBatch, schema: pa.Schema, path: Path) -> pa.RecordBatch:
    """Return a batch with the columns of a schema, in its types; columns that it lacks are null."""
    pyarrow: Any = needed("pyarrow")
    columns: list[pa.Array] = []
    for field in schema:
        if field.name not in batch.schema.names:
            columns.append(pyarrow.nulls(batch.num_rows, field.type))
            continue
        try:
            columns.append(batch.column(field.name).cast(field.type))
        except (pyarrow.ArrowInvalid, pyarrow.ArrowNotImplementedError) as error:
            found = batch.column(field.name).type
            raise TraceError(
                f"{path}: column {field.name} has type {found}, not {field.type}; it is no run's"
            ) from error
    return pyarrow.RecordBatch.from_arrays(columns, schema=schema)
