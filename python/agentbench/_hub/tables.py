"""The tables of a run as they leave: read as Arrow, column by column through the rules, and cut into shards.

Only columns that `columns` lists are looked at. Memory is that of some batches, but with moved times, where the order
of the rows would tell the order of the sessions: then a table of turns or tool calls is sorted as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from agentbench._export import TABLES

from . import columns

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from agentbench._core import Run, Table

    from .rules import Rules

ROW_GROUP_BYTES = 16 << 20
CHUNK_ROWS = 4096
SORTED = {
    "turn_traces": ("session_id", "request_time", "request_id"),
    "tool_calls": ("session_id", "emitted_time", "request_id", "index"),
    "messages": ("hash",),
}


@dataclass
class Written:
    """One table as it was written: its files, rows, columns with their types, and nulls of each."""

    table: str
    files: list[Path] = field(default_factory=list)
    rows: int = 0
    types: dict[str, str] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)

    @property
    def unknown(self) -> list[str]:
        """Columns that are null in every row."""
        return [name for name, count in self.nulls.items() if count == self.rows]


def table_of(run: Run, table: str) -> Table:
    """Return a table of a run by the stem of its file."""
    found: Table = getattr(run, TABLES[table])()
    return found


def write(run: Run, table: str, folder: Path, *, level: str, rules: Rules, shard_bytes: int) -> Written | None:
    """Write a table's shards into ``folder``; None where nothing of it leaves, or it has no rows."""
    leaving = columns.leaving(table, level)
    source = table_of(run, table)
    if not leaving or len(source) == 0:
        return None
    batches = _units(run, rules) if table == "messages" and level == "hashes" else _leaving(source, leaving, rules)
    if rules.shift_times and table in SORTED:
        batches = _sorted(batches, SORTED[table])
    return _shards(batches, table, folder, shard_bytes)


def _leaving(source: Table, leaving: list[tuple[str, str]], rules: Rules) -> Iterator[pa.RecordBatch]:
    for batch in pa.RecordBatchReader.from_stream(source):
        known = [(name, rule) for name, rule in leaving if name in batch.schema.names]
        arrays = [rules.apply(rule, name, batch) for name, rule in known]
        yield pa.RecordBatch.from_arrays(arrays, names=[name for name, _ in known])


def _units(run: Run, rules: Rules) -> Iterator[pa.RecordBatch]:
    """Yield a row for each chained hash of a unit: the same unit after another prompt is another block."""
    leaving = [(name, rule) for name, rule in columns.leaving("messages", "hashes") if name != "hash"]
    rows: dict[str, dict[str, object]] = {}
    for batch in pa.RecordBatchReader.from_stream(run.messages()):
        made = {name: rules.apply(rule, name, batch).to_pylist() for name, rule in leaving}
        for at, unit in enumerate(batch.column("hash").to_pylist()):
            rows[unit] = {name: values[at] for name, values in made.items()}
    schema = pa.schema(
        [
            ("hash", pa.string()),
            ("kind", pa.string()),
            ("role", pa.string()),
            ("text", pa.string()),
            ("n_bytes", pa.uint64()),
        ]
    )
    chained = [(name, unit) for name, unit in rules.chains.units.items() if unit in rows]
    for start in range(0, len(chained), CHUNK_ROWS):
        part = [{"hash": name, **rows[unit]} for name, unit in chained[start : start + CHUNK_ROWS]]
        yield pa.RecordBatch.from_pylist(part, schema)


def _sorted(batches: Iterator[pa.RecordBatch], keys: tuple[str, ...]) -> Iterator[pa.RecordBatch]:
    whole = pa.Table.from_batches(list(batches))
    by = [(key, "ascending") for key in keys if key in whole.column_names]
    yield from whole.sort_by(by).to_batches(CHUNK_ROWS)


def _cut(batches: Iterator[pa.RecordBatch], n_bytes: int) -> Iterator[pa.RecordBatch]:
    """Yield batches of that size at most, as far as rows allow."""
    for batch in batches:
        rows = max(1, batch.num_rows * n_bytes // max(batch.nbytes, 1))
        for start in range(0, batch.num_rows, rows):
            yield batch.slice(start, rows)


def _shards(batches: Iterator[pa.RecordBatch], table: str, folder: Path, shard_bytes: int) -> Written | None:
    """Write batches into files of about the size asked for, which are named once their number is known."""
    written = Written(table)
    writer: pq.ParquetWriter | None = None
    held: list[pa.RecordBatch] = []

    def flush() -> None:
        if writer is not None and held:
            writer.write_table(pa.Table.from_batches(held))
            held.clear()

    group_bytes = min(ROW_GROUP_BYTES, shard_bytes)
    for batch in _cut(batches, group_bytes):
        if writer is None:
            path = folder / f"{table}.{len(written.files)}.part"
            # No schema of Arrow's beside Parquet's own, and no names of libraries: nothing but rows leaves.
            writer = pq.ParquetWriter(path, batch.schema, compression="zstd", store_schema=False)
            written.files.append(path)
        held.append(batch)
        _count(written, batch)
        if sum(part.nbytes for part in held) >= group_bytes:
            flush()
            if written.files[-1].stat().st_size >= shard_bytes:
                writer.close()
                writer = None
    if writer is not None:
        flush()
        writer.close()
    if not written.files:
        return None
    total = len(written.files)
    for at, path in enumerate(written.files):
        written.files[at] = path.rename(folder / f"{table}-{at:05}-of-{total:05}.parquet")
    return written


def _count(written: Written, batch: pa.RecordBatch) -> None:
    written.rows += batch.num_rows
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        written.types.setdefault(name, str(column.type).replace("<element:", "<item:"))
        written.nulls[name] = written.nulls.get(name, 0) + column.null_count
