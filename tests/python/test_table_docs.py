"""docs/run-directory.md lists every column of every table, made from the doc comments of the row structs.

`python tests/python/test_table_docs.py` writes the file anew; the test says when it is out of date.
"""

from __future__ import annotations

import re
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "src/trace/record.rs"
TARGET = REPOSITORY / "docs/run-directory.md"

INTRODUCTION = """# The run directory

Every run is one folder: `manifest.json` (what ran, where, with which settings, how many rows, how many
were dropped), Parquet tables (zstd), `report.md`, and for a replay `summary.json`. While a run is going, its
rows are in `<table>.journal.jsonl`; a run that was killed opens all the same and says that it is partial.
`agentbench report RUN` writes `report.md` anew from the others, with `--html` a page with charts, `report.html`.

Times named `*_time`, `ts` and `due` are seconds since the Unix epoch, all from one anchor plus the
monotonic clock. `*_ms` are milliseconds. A null means unknown, never 0.

This file is made from the doc comments in `src/trace/record.rs`.
"""


def tables() -> list[tuple[str, str]]:
    """(row struct, file stem) of every table, in the order of the run directory."""
    text = SOURCE.read_text()
    stems = dict(re.findall(r'Self::(\w+) => "(\w+)"', text))
    return [(row, stems[table]) for row, table in re.findall(r"^    (\w+Row) => (\w+),$", text, re.MULTILINE)]


def struct(name: str) -> tuple[str, list[tuple[str, str, str]]]:
    """The doc line of a row struct and its fields as (name, Rust type, doc)."""
    text = SOURCE.read_text()
    found = re.search(
        rf"((?:^/// [^\n]*\n)+)#\[derive[^\n]*\n(?:#[^\n]*\n)*pub struct {name} \{{\n(.*?)^\}}",
        text,
        re.MULTILINE | re.DOTALL,
    )
    assert found, name
    doc = " ".join(line.removeprefix("/// ") for line in found[1].splitlines())
    fields = re.findall(r"((?:    /// .*\n)+)(?:    #.*\n)*    pub (\w+): (.*),\n", found[2])
    return doc, [
        (field, kind, " ".join(line.strip()[4:] for line in docs.splitlines())) for docs, field, kind in fields
    ]


def column_type(rust: str) -> str:
    """A Rust field's type in the words of the tables."""
    plain = {
        "String": "string",
        "bool": "bool",
        "f64": "float64",
        "i64": "int64",
        "u64": "uint64",
        "u32": "uint32",
        "u16": "uint16",
    }
    if inner := re.fullmatch(r"Option<(.*)>", rust):
        return f"{column_type(inner[1])}, null"
    if inner := re.fullmatch(r"Vec<(.*)>", rust):
        return f"list of {column_type(inner[1])}"
    if rust == "Attempt":
        fields = [(name, column_type(kind).replace(", null", " or null")) for name, kind, _ in struct(rust)[1]]
        return "{" + ", ".join(f"{name}: {kind}" for name, kind in fields) + "}"
    return plain.get(rust, "string")


def document() -> str:
    """The whole file."""
    parts = [INTRODUCTION]
    for row, stem in tables():
        doc, fields = struct(row)
        lines = [f"\n## `{stem}.parquet`\n", f"{doc}\n", "| column | type | meaning |", "|---|---|---|"]
        lines += [f"| `{name}` | {column_type(kind)} | {text} |" for name, kind, text in fields]
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def test_document_is_up_to_date() -> None:
    assert TARGET.read_text() == document(), "run: python tests/python/test_table_docs.py"


if __name__ == "__main__":
    TARGET.write_text(document())
