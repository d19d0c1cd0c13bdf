"""What a load came to: one row for each measured run, and what must be known before the figures are used.

Every figure is one of the runs' own ``summary.json``; how these are computed is in `docs/run-directory.md`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentbench._figures import count, number
from agentbench._report import report
from agentbench._report.replayed import headline_part
from agentbench._report.sections import Document, Flag, Section

if TYPE_CHECKING:
    from pathlib import Path

    from agentbench._core import Run

    from .steps import Step

OUTCOME = "load.json"
REPORT = "load.md"
OWN_EYES = 0o600
COLUMNS = (
    "run",
    "requests",
    "failed",
    "TTFT p50 ms",
    "TTFT p95 ms",
    "TPOT p50 ms",
    "speed p50 tok/s",
    "output tok/s",
    "hits wanted %",
    "hits usage %",
    "hits engine %",
)
# Of the shape itself: a plan is no recording, its prompts are of our own by intent, and it plans no hits on what an
# earlier run has sent.
EXPECTED = {"converted", "prefix hits disagree", "waits changed"}
EXPECTED_NOTES = (
    "what was sent is not the recording",
    "cache sharing ",
    "sessions are played in an order",
    "open loop: ",
)


@dataclass(frozen=True)
class Row:
    """A measured run."""

    step: Step
    run: Run
    summary: dict[str, Any]

    @property
    def figures(self) -> dict[str, Any]:
        """The row's figures by name; null where the run does not tell."""
        part_name, part = headline_part(self.summary)
        ttft, tpot, speed = (part["fields"].get(name) or {} for name in ("ttft_ms", "tpot_ms", "output_tokens_per_s"))
        hits = self.summary["prefix_hits"]
        capacity = self.summary.get("capacity") or {}
        return {
            "run": self.step.name,
            "directory": self.run.path.name,
            **self.step.wanted,
            "requests_sent": self.summary["requests"]["sent"],
            "requests_failed": self.summary["requests"]["failed"],
            "of": part_name,
            "ttft_ms_p50": ttft.get("p50"),
            "ttft_ms_p95": ttft.get("p95"),
            "tpot_ms_p50": tpot.get("p50"),
            "output_speed_tokens_per_s_p50": speed.get("p50"),
            "output_tokens_per_s": part["output_tokens_per_s"],
            "prefix_hits_usage_pct": hits["usage_pct"],
            "prefix_hits_engine_pct": hits["engine_pct"],
            "max_agents": capacity.get("max_agents"),
            "saturated": capacity.get("saturated"),
        }


@dataclass(frozen=True)
class Outcome(Document):
    """What a load came to; printed by rich, shown by Jupyter, Markdown otherwise."""

    path: Path
    rows: tuple[Row, ...]

    @property
    def figures(self) -> list[dict[str, Any]]:
        """A dictionary for each measured run, as in ``load.json``."""
        return [row.figures for row in self.rows]

    def write(self) -> None:
        """Write ``load.json`` and ``load.md`` into the load's folder."""
        for name, text in ((OUTCOME, json.dumps(self.figures, indent=1) + "\n"), (REPORT, self.to_markdown())):
            target = self.path / name
            target.write_text(text, encoding="utf-8")
            target.chmod(OWN_EYES)


def outcome(shape: str, out: Path, made: list[tuple[Step, Run]]) -> Outcome:
    """Put the measured runs side by side."""
    rows = tuple(Row(step, run, report(run).summary) for step, run in made if step.measured)
    sections = [Section(f"load {shape}", tuple(_cells(row.figures) for row in rows), COLUMNS)]
    if any(row.figures["max_agents"] is not None for row in rows):
        found = tuple((row.step.name, _limit(row.figures)) for row in rows)
        sections.append(Section("agents at the service level", found))
    return Outcome(
        title=f"load {shape}",
        headline=_headline(shape, rows),
        flags=tuple(_flags(rows)),
        sections=tuple(sections),
        path=out,
        rows=rows,
    )


def _headline(shape: str, rows: tuple[Row, ...]) -> str:
    simulated = "SIMULATED engine: " if any(row.summary["labels"]["simulated"] for row in rows) else ""
    settings = rows[0].summary["settings"] if rows else {}
    return f"{simulated}{settings.get('model', '-')} at {settings.get('url', '-')}, load shape {shape}"


def _flags(rows: tuple[Row, ...]) -> list[Flag]:
    """What the runs flag, each text once with the runs that say so."""
    said: dict[tuple[str, str, bool], list[str]] = {}
    for row in rows:
        for flag in report(row.run).flags:
            if flag.name not in EXPECTED and not flag.text.startswith(EXPECTED_NOTES):
                said.setdefault((flag.name, flag.text, flag.grave), []).append(row.step.name)
    return [
        Flag(name, text if len(names) == len(rows) else f"{', '.join(names)}: {text}", grave)
        for (name, text, grave), names in said.items()
    ]


def _cells(figures: dict[str, Any]) -> tuple[str, ...]:
    wanted = figures.get("hit_rate_pct")
    return (
        figures["run"],
        count(figures["requests_sent"]),
        count(figures["requests_failed"]),
        *(
            number(figures[name])
            for name in (
                "ttft_ms_p50",
                "ttft_ms_p95",
                "tpot_ms_p50",
                "output_speed_tokens_per_s_p50",
                "output_tokens_per_s",
            )
        ),
        number(wanted),
        number(figures["prefix_hits_usage_pct"]),
        number(figures["prefix_hits_engine_pct"]),
    )


def _limit(figures: dict[str, Any]) -> str:
    if figures["max_agents"] is None:
        return "-"
    return ("" if figures["saturated"] or not figures["max_agents"] else "at least ") + count(figures["max_agents"])
