"""The data set's card: README.md with its YAML head, and run.json, the part of the manifest that leaves."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from agentbench._core import __version__

from . import columns, words
from .salt import OWN_SHIFT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from .rules import Rules
    from .tables import Written

RUN_FILE = "run.json"
"""The manifest as far as it leaves; `Run.open` makes a run directory of it and the tables."""
SIZES = (("n<1K", 10**3), ("1K<n<10K", 10**4), ("10K<n<100K", 10**5), ("100K<n<1M", 10**6), ("1M<n<10M", 10**7))
LARGEST = "10M<n<100M"


def meanings() -> dict[str, dict[str, str]]:
    """Return what each column of each table holds, as docs/run-directory.md says it."""
    text = files("agentbench._hub").joinpath("meanings.json").read_text()
    found: dict[str, dict[str, str]] = json.loads(text)
    return found


def published_manifest(
    manifest: dict[str, Any], written: Iterable[Written], *, level: str, rules: Rules, shift_times: bool
) -> dict[str, Any]:
    """Return the part of a manifest that leaves: fields and values of fixed lists, nothing else."""
    rows = {table.table: table.rows for table in written}
    # The clock moves with the tables that have no sessions.
    moved_s = rules.salt.shift_s(OWN_SHIFT) if shift_times else 0
    ended = manifest.get("ended")
    left: dict[str, Any] = {
        "format_version": int(manifest["format_version"]),
        "kind": manifest["kind"] if manifest["kind"] in words.KINDS else "import",
        "run_id": rules.salt.name("run", str(manifest["run_id"])),
        "tool_version": __version__,
        "clock_anchor_ns": int(manifest["clock_anchor_ns"]) + moved_s * 10**9,
        "ended": ended + moved_s if isinstance(ended, int | float) else None,
        "complete": True,
        "partial": manifest.get("partial") is True,
        "redacted": level == "text-redacted" or manifest.get("redacted") is True,
        "synthetic": manifest.get("synthetic") is True,
        "rows": rows,
        "dropped": _counts(manifest.get("dropped"), columns.TABLES),
        "counts": _counts(manifest.get("counts"), words.COUNTS),
        "host": _host(manifest.get("host")),
        "engine": _engine(manifest.get("engine"), rules),
        "settings": {
            **_settings(manifest.get("settings"), rules, moved_s),
            "published_level": level,
            "times_shifted": shift_times,
        },
        "notes": _notes(level, manifest, shift_times=shift_times),
    }
    return left


def _settings(settings: object, rules: Rules, moved_s: int) -> dict[str, Any]:
    left: dict[str, Any] = words.kept(settings, words.SETTINGS)
    replay = settings.get("replay") if isinstance(settings, dict) else None
    if isinstance(replay, dict) and "replay" in left:
        if isinstance(replay.get("model"), str):
            left["replay"]["model"] = rules.model(replay["model"])
        if isinstance(replay.get("trace"), dict):
            left["replay"]["trace"] = _trace(replay["trace"], rules)
        if isinstance(replay.get("clock_anchor_ns"), int):
            left["replay"]["clock_anchor_ns"] = replay["clock_anchor_ns"] + moved_s * 10**9
    return left


def _trace(trace: dict[str, Any], rules: Rules) -> dict[str, Any]:
    """Return which recording was sent: pseudonyms, by which runs of one recording are still seen to be of one."""
    return {
        "run_id": rules.salt.name("run", str(trace.get("run_id"))),
        "name": "",
        "content_hash": rules.salt.name("trace", str(trace.get("content_hash"))),
    }


def _host(host: object) -> dict[str, Any]:
    known: dict[str, object] = {"platform": words.PLATFORM, "cpus": float, "memory_bytes": float}
    return words.kept(host, known)


def _counts(counts: object, known: Iterable[str]) -> dict[str, Any]:
    if not isinstance(counts, dict):
        return {}
    return {name: counts[name] for name in known if words.fits(counts.get(name), float)}


def _engine(engine: object, rules: Rules) -> dict[str, Any] | None:
    if not isinstance(engine, dict):
        return None
    name, version, model = engine.get("name"), engine.get("version"), engine.get("model")
    length = engine.get("max_model_len")
    return {
        "url": "",
        "name": name if name in words.ENGINES else None,
        "version": version if isinstance(version, str) and words.VERSION.fullmatch(version) else None,
        "model": rules.model(model) if isinstance(model, str) else None,
        "max_model_len": length if words.fits(length, float) else None,
        "simulated": engine.get("simulated") is True,
    }


def _notes(level: str, manifest: dict[str, Any], *, shift_times: bool) -> list[str]:
    notes = [f"Published at level {level}: {columns.ABOUT[level]}."]
    if manifest.get("synthetic") is True:
        notes.append("Synthetic: no agent, model, tool or engine ran; texts and times are made up.")
    if isinstance(manifest.get("engine"), dict) and manifest["engine"].get("simulated") is True:
        notes.append("The engine was simulated: its figures say nothing of any hardware.")
    if shift_times:
        notes.append("Times are moved by one offset per session: gaps within a session are true, dates are not.")
    return notes


def card(manifest: dict[str, Any], written: list[Written], *, repo: str, license_id: str, level: str) -> str:
    """Return README.md."""
    from yaml import safe_dump  # noqa: PLC0415 of the extra

    turns = max((table.rows for table in written), default=0)
    tags = ["agentbench", "coding-agents", "llm-inference", "traces"]
    if level in columns.TEXT_LEVELS:
        tags.append("format:agent-traces")
    if manifest["synthetic"]:
        tags.append("synthetic")
    head = {
        "license": license_id,
        "pretty_name": repo.rpartition("/")[2],
        "size_categories": [next((name for name, bound in SIZES if turns < bound), LARGEST)],
        "tags": tags,
        "configs": [
            {
                "config_name": table.table,
                "data_files": f"data/{table.table}-*.parquet",
                **({"default": True} if at == 0 else {}),
            }
            for at, table in enumerate(written)
        ],
    }
    parts = [
        f"---\n{safe_dump(head, sort_keys=False, allow_unicode=True)}---\n",
        _introduction(manifest, written, repo, level),
        _read(written, repo),
        *(_table(table, level) for table in written),
        _gaps(manifest, written, level),
    ]
    return "\n".join(parts)


def _introduction(manifest: dict[str, Any], written: list[Written], repo: str, level: str) -> str:
    engine = manifest["engine"] or {}
    facts = [
        ("what it is", f"a run of kind {manifest['kind']}, written by agentbench {manifest['tool_version']}"),
        ("level", f"`{level}`: {columns.ABOUT[level]}"),
        ("engine", " ".join(filter(None, [engine.get("name"), engine.get("version")])) or "not told"),
        ("model", engine.get("model") or "see the column `model`, where there is one"),
        ("rows", ", ".join(f"{table.rows:,} {table.table}" for table in written)),
        ("dropped rows", ", ".join(f"{count:,} {name}" for name, count in manifest["dropped"].items()) or "none"),
    ]
    lines = [f"# {repo.rpartition('/')[2]}", "", "Traces of coding agents before an inference engine.", ""]
    lines += ["| | |", "|---|---|", *(f"| {name} | {fact} |" for name, fact in facts), ""]
    lines += [f"- {note}" for note in manifest["notes"]]
    lines.append(
        "- Ids, and names that are no public ones, are pseudonyms: keyed hashes by a salt that was not published. "
        "Equal names have equal pseudonyms in every table."
    )
    if level == "hashes":
        lines.append(
            "- `unit_hashes` and `block_hashes` are chained: two prompts have equal hashes as far as they begin alike, "
            "in whatever session. A unit after another beginning has another hash; `messages` has a row for each."
        )
    return "\n".join(lines) + "\n"


def _read(written: list[Written], repo: str) -> str:
    first = written[0].table if written else "turn_traces"
    return f"""## How to read it

```python
import datasets
turns = datasets.load_dataset("{repo}", "{first}", split="train")

import agentbench
run = agentbench.Run.open("hf://datasets/{repo}")
```

Times named `*_time` and `ts` are seconds since the Unix epoch, `*_ms` are milliseconds. A null means unknown, never 0.
ISL are prompt tokens, OSL output tokens, TTFT the time to the first output, all from the engine's own words and the
recorder's clock.
"""


def _table(table: Written, level: str) -> str:
    meaning = meanings().get(table.table, {})
    rules = {column.name: column.rule(level) or "" for column in columns.TABLES[table.table]}
    heads = "| column | type | nulls | meaning |"
    lines = [f"## {table.table}", "", f"{table.rows:,} rows.", "", heads, "|---|---|---|---|"]
    for name, kind in table.types.items():
        made = columns.MEANING[rules[name].partition(":")[0]]
        text = meaning.get(name, "").replace("|", "\\|") + (
            f" Here: {made}." if made != columns.MEANING["number"] else ""
        )
        lines.append(f"| `{name}` | {kind} | {table.nulls[name]:,} | {text} |")
    return "\n".join(lines) + "\n"


def _gaps(manifest: dict[str, Any], written: list[Written], level: str) -> str:
    there = {table.table: table for table in written}
    lines = ["## Known gaps", ""]
    for name in columns.TABLES:
        staying = columns.staying(name, level)
        if name not in there:
            kept = len(staying) == len(columns.TABLES[name])
            why = "level `" + level + "` does not publish it" if kept else "the run has no rows of it"
            lines.append(f"- `{name}` is not there: {why}.")
            continue
        if staying:
            listed = ", ".join(f"`{column}`" for column in staying)
            lines.append(f"- `{name}`: level `{level}` does not publish {listed}.")
        unknown = [
            column
            for column in there[name].unknown
            if not (column == "engine_row" and manifest["settings"]["times_shifted"])
        ]
        if unknown:
            listed = ", ".join(f"`{column}`" for column in unknown)
            lines.append(
                f"- `{name}`: null in every row, as the run does not tell it, or tells what is on no list: {listed}."
            )
        if name == "turn_traces" and manifest["settings"]["times_shifted"]:
            lines.append("- `turn_traces`: `engine_row` is null, since it would tie sessions to a common clock.")
    if "power" in there:
        lines.append(
            "- Which devices serve, and the rule of their energy, are not published: `summarize` has no power figure."
        )
    if manifest["partial"]:
        lines.append("- The run was cut off: rows of its last second may lack.")
    return "\n".join(lines) + "\n"
