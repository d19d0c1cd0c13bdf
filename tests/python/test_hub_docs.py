"""docs/publishing.md and the meanings in data set cards are made from the allow-list and from the row structs.

`python tests/python/test_hub_docs.py` writes both files anew; the tests say when one is out of date, and when a
column of a run directory is not in the allow-list's table.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.python import test_table_docs

from agentbench._hub import columns

REPOSITORY = Path(__file__).resolve().parents[2]
TARGET = REPOSITORY / "docs/publishing.md"
MEANINGS = REPOSITORY / "python/agentbench/_hub/meanings.json"
REMEDY = "run: PYTHONPATH=python:. python tests/python/test_hub_docs.py"

INTRODUCTION = """# Publishing a run

```
agentbench push RUN --repo OWNER/NAME --license cc-by-4.0 --dry-run DIR
agentbench push RUN --repo OWNER/NAME --license cc-by-4.0
```

The first writes exactly what would be sent to a folder and shows a sample; the second sends it in one commit, to a
data set that is private unless `--public` is given.
Files that the hub's library cannot send by Xet (a hub of one's own, a proxy on the way) go over plain HTTP, and the
push says so.

## Levels

{levels}

What leaves is listed: columns by name, and of each column the values. Whatever is not in the tables below stays at
home, be it a column that a later version adds or a value that nobody thought of.

- **Pseudonyms** are keyed hashes (HMAC-SHA256) by a secret salt, `~/.config/agentbench/salt` (drawn at first, readable
  by its user alone) or `--salt-file`. The same name has the same pseudonym in every data set of one salt. Names of
  tools that come with a coding agent, of public models and of known agents stay; `--public-name` adds to them.
- **Hashes** at level `hashes` are salted and chained: the hash of a prompt's block follows from the block and all that
  stands before it. Two prompts share hashes exactly as far as they begin alike, in whatever session they stand, which
  is what a prefix cache could share. Nothing can be looked up in them, and equal texts after unequal beginnings do
  not show. In `messages` each has a row with the block's length, role and kinds.
- **Masks** at level `text-redacted` stand for e-mail addresses, keys, names of users and machines, paths, URLs,
  addresses, hosts, authors of commits, owners of files, MCP tools and whatever looks drawn; the same text has the same
  mask throughout the data set, and a secret that its field's name gives away once is masked everywhere. A name that
  nothing marks as one (a person's, a product's) cannot be found: name it with `--mask WORD`.
- **Times** are moved by `--shift-times`, each session's by an offset of its own of up to a year, to the second: gaps
  within a session stay to the last bit, dates and the order of sessions do not. Tables without sessions move by an
  offset of the run's.

## The scan

Before anything is sent, the files are read again as they would be sent. Columns without text must have the form that
their rule allows; whatever is text is searched for keys, tokens and passwords (by detect-secrets and by the masks of
`capture --redact`), e-mail addresses, home paths, private addresses and strings that look drawn; at the first three
levels also for URLs, repositories, paths, hosts, addresses and MCP tools. A finding stops the push with exit code 1 and
tells its id, file, row and column. `--allow ID` lets one finding leave, `--allow RULE` all of a rule.

## What a published run is good for

`agentbench.Run.open("hf://datasets/OWNER/NAME")` (or `…/NAME@REVISION`) opens it as a run, as it opens the folder of
`--dry-run`, any folder of Parquet files that are named after the tables, and the URL of one. What did not leave is
null there. `datasets.load_dataset("OWNER/NAME", "turn_traces")` reads a table. A replay with `content="synthetic"`
sends it again: at `counts` with the recorded sizes, at `hashes` with what the prompts share as well.

## Columns by level

This part is made from `python/agentbench/_hub/columns.py`.
"""


def document() -> str:
    """The whole file."""
    levels = "\n".join(
        [
            "| level | what leaves |",
            "|---|---|",
            *(f"| `{level}` | {columns.ABOUT[level]} |" for level in columns.LEVELS),
        ]
    )
    parts = [INTRODUCTION.replace("{levels}", levels)]
    for table, listed in columns.TABLES.items():
        heads = " | ".join(f"`{level}`" for level in columns.LEVELS)
        lines = [f"\n### `{table}`\n", f"| column | {heads} |", "|---|" + "---|" * len(columns.LEVELS)]
        for column in listed:
            cells = " | ".join(_cell(column.rule(level)) for level in columns.LEVELS)
            lines.append(f"| `{column.name}` | {cells} |")
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def _cell(rule: str | None) -> str:
    return "" if rule is None else columns.MEANING[rule.partition(":")[0]]


def meanings() -> dict[str, dict[str, str]]:
    """What each column holds, by table, less what is code's own."""
    return {
        stem: {
            name: re.sub(r"`api::\w+`|`\w+::\w+`", "the core", text) for name, _, text in test_table_docs.struct(row)[1]
        }
        for row, stem in test_table_docs.tables()
    }


def test_document_is_up_to_date() -> None:
    assert TARGET.read_text() == document(), REMEDY


def test_meanings_are_up_to_date() -> None:
    assert json.loads(MEANINGS.read_text()) == meanings(), REMEDY


def test_every_column_of_a_run_directory_has_been_thought_about() -> None:
    listed = {table: [column.name for column in known] for table, known in columns.TABLES.items()}
    assert listed == {table: list(known) for table, known in meanings().items()}


if __name__ == "__main__":
    TARGET.write_text(document())
    MEANINGS.write_text(json.dumps(meanings(), indent=1, ensure_ascii=False) + "\n")
