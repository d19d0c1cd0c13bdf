"""The gate: a scan over exactly what would be sent, before it is sent.

It reads the folder that was written, file by file, and trusts nothing of how it was made. Columns that hold no text
are held to the form that their rule allows; texts, and whatever else is a string, are searched by `detectors`. A
finding stops the push; its id, or its rule, may be allowed.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from . import columns, forms
from .detectors import PSEUDONYM, SHORT, Detectors, merged, secrets_in
from .strings import pair, readable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from .salt import Salt

ID_DIGITS = 10
SHOWN = 2
"""Characters of a finding's beginning that are shown."""
KEPT_CHARACTERS = 4096
"""Length of texts up to which what was found is kept, since short ones come again and again."""
HASHES = frozenset({"hash", "unit_hashes", "block_hashes"})
WRITER = re.compile(r"parquet-cpp-arrow version [\d.]+")


@dataclass(frozen=True)
class Finding:
    """Something that must not leave."""

    id: str
    rule: str
    file: str
    row: int | None
    column: str | None
    excerpt: str
    places: int = 1

    @property
    def place(self) -> str:
        """Where it was seen first: file, row (from 0) or line (from 1), and column."""
        where = "" if self.row is None else f" row {self.row}" if self.column else f" line {self.row}"
        return f"{self.file}{where}" + (f" column {self.column}" if self.column else "")


class Gate:
    """The scan of one folder.

    Parameters
    ----------
    salt
        Of which the ids of findings follow, so that an id says nothing of what was found.
    detectors
        What is looked for.
    level
        The level at which the folder was written.
    public
        Names that the user calls public.
    known
        Texts that are public because the user says where to publish.
    """

    def __init__(
        self,
        salt: Salt,
        detectors: Detectors,
        *,
        level: str,
        public: frozenset[str] = frozenset(),
        known: tuple[str, ...] = (),
    ) -> None:
        self._salt = salt
        self._detectors = detectors
        self._level = level
        self._public = public
        self._known = known
        self._found: dict[str, Finding] = {}
        self._scanned: dict[tuple[str, bool], list[tuple[str, str]]] = {}

    def scan(self, folder: Path) -> list[Finding]:
        """Return what was found in a folder's files, and in their names."""
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            name = path.relative_to(folder).as_posix()
            if path.suffix == ".parquet":
                self._parquet(path, name)
            else:
                self._file(path, name)
        return sorted(self._found.values(), key=lambda finding: (finding.file, finding.row or 0, finding.rule))

    def _add(self, rule: str, value: str, file: str, row: int | None, column: str | None = None) -> None:
        digest = self._salt.digest("finding", f"{rule}\0{value}").hex()[:ID_DIGITS]
        before = self._found.get(digest)
        if before is None:
            excerpt = f"{value[:SHOWN]!r}… ({len(value)} characters)"
            self._found[digest] = Finding(digest, rule, file, row, column, excerpt)
        else:
            self._found[digest] = Finding(**{**vars(before), "places": before.places + 1})

    def _file(self, path: Path, name: str) -> None:
        if name not in {"README.md", "run.json"}:
            self._add("unknown_file", name, name, None)
        for number, line in enumerate(path.read_text("utf-8", "replace").splitlines(), 1):
            text = line
            for known in self._known:
                text = text.replace(known, "")
            for rule, value in self._look(text, in_text=False):
                self._add(rule, value, name, number)

    def _parquet(self, path: Path, name: str) -> None:
        file = pq.ParquetFile(path)
        table = path.name.partition("-")[0]
        rules = dict(columns.leaving(table, self._level)) if table in columns.TABLES else {}
        if file.metadata.metadata or not WRITER.fullmatch(file.metadata.created_by):
            self._add("unknown_metadata", f"{file.metadata.metadata} {file.metadata.created_by}", name, None)
        for column in set(file.schema_arrow.names) - set(rules):
            self._add("unknown_column", column, name, None, column)
        row = 0
        for batch in file.iter_batches():
            for column, rule in rules.items():
                if column in batch.schema.names:
                    self._column(batch.column(column), rule, (name, row, column))
            row += batch.num_rows

    def _column(self, array: pa.Array, rule: str, place: tuple[str, int, str]) -> None:
        """Hold the values of a column to its rule's form, and search what is a string."""
        file, first, column = place
        if _are_plain(array, rule, column):
            return
        holds = forms.of(rule, self._public)
        for at, value in _distinct(array):
            if holds is not None and not holds(value):
                self._add("form", str(value), file, first + at, column)
            for text in _texts(value):
                if PSEUDONYM.fullmatch(text) or (column in HASHES and forms.HASH.fullmatch(text)):
                    continue
                # What has its rule's form is of fixed words and shapes, which a path of an API is one of.
                is_plain = rule == "text" or (holds is not None and holds(value))
                for name, found in self._look(text, in_text=is_plain):
                    self._add(name, found, file, first + at, column)

    def _look(self, text: str, *, in_text: bool) -> list[tuple[str, str]]:
        """Return what is found in a text, as (rule, text), each once."""
        key = (text, in_text)
        if key in self._scanned:
            return self._scanned[key]
        found: dict[tuple[str, str], None] = {}
        for field, part in readable(text):
            places = merged(self._detectors.find(part, in_text=in_text))
            found |= dict.fromkeys((name, part[start:end]) for name, start, end in places)
            if field and len(part) <= SHORT:
                found |= dict.fromkeys((name, part) for name, _, _ in secrets_in(pair(field, part)))
        if len(text) <= KEPT_CHARACTERS:
            self._scanned[key] = list(found)
        return list(found)


def _are_plain(array: pa.Array, rule: str, column: str) -> bool:
    """Return whether a column holds nothing but pseudonyms of its kind, or nothing but hashes, seen all at once."""
    name, _, kind = rule.partition(":")
    values = array.flatten() if pa.types.is_list(array.type) else array
    if not pa.types.is_string(values.type) or not (name == "name" or column in HASHES):
        return False
    pattern = f"^{kind}-[0-9a-f]{{16}}$" if name == "name" else f"^{forms.HASH.pattern}$"
    return bool(pc.all(pc.match_substring_regex(values, pattern), min_count=0).as_py())


def _distinct(array: pa.Array) -> Iterator[tuple[int, Any]]:
    """Yield each value that is not null once, with the index of its first row; of numbers none."""
    kind = array.type
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        seen: set[str] = set()
        for at, value in enumerate(array.to_pylist()):
            if value is not None and value not in seen:
                seen.add(value)
                yield at, value
    elif pa.types.is_nested(kind) and not _is_numbers(kind):
        for at, value in enumerate(array.to_pylist()):
            if value is not None:
                yield at, value
    elif not _is_numbers(kind) and len(array) > array.null_count:
        # A type that no rule makes.
        yield 0, str(kind)


def _is_numbers(kind: pa.DataType) -> bool:
    if pa.types.is_list(kind):
        return _is_numbers(kind.value_type)
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind))


def _texts(value: Any) -> Iterator[str]:
    """Yield the strings of a value, each text once."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in dict.fromkeys(json.dumps(item) for item in value):
            yield from _texts(json.loads(item))
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)


def checked(findings: list[Finding], allowed: tuple[str, ...]) -> tuple[list[Finding], list[Finding]]:
    """Return the findings that stop a push, and those that were allowed by id or by rule."""
    is_allowed: Callable[[Finding], bool] = lambda finding: finding.id in allowed or finding.rule in allowed  # noqa: E731
    return [one for one in findings if not is_allowed(one)], [one for one in findings if is_allowed(one)]
