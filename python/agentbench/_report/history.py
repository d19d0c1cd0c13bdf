"""The runs of a folder with their headline figures: what `agentbench history` lists.

A figure comes from a run's own summary; a run that was killed has none, so it is computed from its rows. What cannot
be read is listed with the reason, never left out.
"""

from __future__ import annotations

import contextlib
import json
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentbench._core import ConfigError, Run, TraceError
from agentbench._figures import UNKNOWN, count, number
from agentbench._report.conditions import NANOSECONDS_PER_SECOND, engine_in_words
from agentbench._report.flags import flags
from agentbench._report.replayed import headline_part
from agentbench._report.report import summary_of
from agentbench._report.sections import Document, Section
from agentbench._report.verdict import verdict

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

MANIFEST = "manifest.json"
MILLISECONDS_PER_SECOND = 1e3


@dataclass(frozen=True)
class Entry:
    """A run of a folder. A figure that it does not have is None.

    ``time`` is its start in UTC, ISO 8601. ``state`` is ``complete``, ``partial`` (killed, or still running), or why it
    cannot be read. ``max_agents`` is a capacity search's answer, ``agents`` how many a replay had.
    """

    run: str
    time: str | None
    kind: str | None
    engine: str | None
    model: str | None
    simulated: bool | None
    agents: int | None
    ttft_p95_s: float | None
    speed_p25_tok_s: float | None
    output_tok_s: float | None
    max_agents: int | None
    failed: int | None
    verdict: str | None
    state: str

    def value(self, metric: str) -> float | None:
        """Return a figure by its name."""
        found = getattr(self, metric)
        return None if found is None else float(found)


METRICS = ("ttft_p95_s", "speed_p25_tok_s", "output_tok_s", "max_agents", "agents", "failed")
"""Figures that can be drawn over time."""


@dataclass(frozen=True)
class History(Document):
    """The runs of a folder, oldest first. Printed by rich, shown by Jupyter, Markdown otherwise."""

    __module__ = "agentbench"

    entries: tuple[Entry, ...] = ()

    def to_dicts(self) -> list[dict[str, Any]]:
        """Return one dict for each run; what is not known is None."""
        return [asdict(entry) for entry in self.entries]


def history(folder: str | os.PathLike[str]) -> History:
    """List the runs of a folder with their headline figures, oldest first.

    Parameters
    ----------
    folder
        A folder whose folders, to any depth, are run directories.

    Returns
    -------
    History
        With ``entries`` and ``to_dicts()``, and shown by Jupyter and rich as it is.

    Raises
    ------
    ConfigError
        When there is no such folder, or no run in it.
    """
    root = Path(folder)
    if not root.is_dir():
        raise ConfigError(f"{root}: no such folder")
    found = sorted(manifest.parent for manifest in root.rglob(MANIFEST))
    if not found:
        raise ConfigError(f"{root}: no run in it: a run is a folder with a {MANIFEST}")
    entries = sorted((_entry(root, run) for run in found), key=lambda entry: (entry.time or "", entry.run))
    return History(
        title=f"agentbench history: {root.name or root}",
        headline=f"{count(len(entries))} runs in {root}, oldest first",
        flags=(),
        sections=(_section(entries),),
        entries=tuple(entries),
    )


def _entry(root: Path, path: Path) -> Entry:
    name = str(path.relative_to(root)) if path != root else path.name
    try:
        run = Run.open(path)
        manifest, summary = run.manifest, summary_of(run)
        return _known(name, manifest, summary)
    except (TraceError, OSError, KeyError, TypeError, ValueError) as error:
        # A folder of many runs outlives the versions that wrote them: one that cannot be read hides no other.
        return _broken(name, path, error)


def _broken(name: str, path: Path, error: Exception) -> Entry:
    time: str | None = None
    kind: str | None = None
    with contextlib.suppress(OSError, KeyError, TypeError, ValueError):
        manifest = json.loads((path / MANIFEST).read_text("utf-8"))
        time, kind = _time(manifest), manifest["kind"]
    unknown = dict.fromkeys(field.name for field in fields(Entry))
    said = " ".join(str(error).split()) or type(error).__name__
    return Entry(**unknown | {"run": name, "time": time, "kind": kind, "state": f"broken: {said}"})  # type: ignore[arg-type]


def _time(manifest: dict[str, Any]) -> str:
    started = datetime.fromtimestamp(manifest["clock_anchor_ns"] / NANOSECONDS_PER_SECOND, UTC)
    return started.isoformat(timespec="seconds")


def _known(name: str, manifest: dict[str, Any], summary: dict[str, Any]) -> Entry:
    engine = manifest.get("engine") or {}
    judged = verdict(summary, flags(summary, manifest))
    state = "complete" if manifest["complete"] and not manifest["partial"] else "partial"
    figures = _of_requests(summary) if "settings" in summary else _of_turns(summary)
    return Entry(
        run=name,
        time=_time(manifest),
        kind=manifest["kind"],
        engine=engine_in_words(manifest),
        model=summary.get("settings", {}).get("model") or engine.get("model"),
        simulated=bool(engine.get("simulated")),
        verdict=judged.word,
        state=state,
        **figures,
    )


def _of_requests(summary: dict[str, Any]) -> dict[str, Any]:
    _, part = headline_part(summary)
    held = part.get("with_failures") or {}
    ttft, search = held.get("ttft_p95_ms"), summary.get("capacity")
    return {
        "agents": None if search else summary["agents"],
        "ttft_p95_s": None if ttft is None else ttft / MILLISECONDS_PER_SECOND,
        "speed_p25_tok_s": held.get("output_tokens_per_s_p25"),
        "output_tok_s": part["output_tokens_per_s"],
        "max_agents": search["max_agents"] if search else None,
        "failed": summary["requests"]["failed"],
    }


def _of_turns(summary: dict[str, Any]) -> dict[str, Any]:
    ttft = summary["fields"].get("ttft_ms")
    return {
        "agents": None,
        "ttft_p95_s": ttft["p95"] / MILLISECONDS_PER_SECOND if ttft else None,
        "speed_p25_tok_s": None,
        "output_tok_s": None,
        "max_agents": None,
        "failed": summary["totals"]["failed"],
    }


COLUMNS = (
    "run",
    "started (UTC)",
    "kind",
    "engine",
    "model",
    "agents",
    "TTFT p95 s",
    "speed p25 tok/s",
    "output tok/s",
    "max agents",
    "failed",
    "verdict",
)


def _section(entries: list[Entry]) -> Section:
    rows = tuple(tuple(_row(entry)) for entry in entries)
    notes = [f"{entry.run}: {entry.state}" for entry in entries if entry.state.startswith("broken")]
    partial = [entry.run for entry in entries if entry.state == "partial"]
    if partial:
        notes.append(f"Killed or still running, figures are of the rows on disk: {', '.join(partial)}.")
    simulated = [entry.run for entry in entries if entry.simulated]
    if simulated:
        notes.append(f"Simulated, no figure says anything about any hardware: {', '.join(simulated)}.")
    return Section("", rows, COLUMNS, tuple(notes), left=5)


def _row(entry: Entry) -> Iterator[str]:
    broken = entry.state.startswith("broken")
    yield entry.run
    yield (entry.time or UNKNOWN).removesuffix("+00:00").replace("T", " ")
    yield (entry.kind or UNKNOWN) + (" (broken)" if broken else " (partial)" if entry.state == "partial" else "")
    yield entry.engine or UNKNOWN
    yield entry.model or UNKNOWN
    yield count(entry.agents)
    yield number(entry.ttft_p95_s)
    yield number(entry.speed_p25_tok_s)
    yield number(entry.output_tok_s)
    yield count(entry.max_agents)
    yield count(entry.failed)
    yield (entry.verdict or UNKNOWN) + (" (simulated)" if entry.simulated and entry.verdict else "")
