"""A metric of the runs of a folder over time, drawn by matplotlib."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from agentbench._core import ConfigError
from agentbench._frames import _library

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from agentbench._report.history import Entry

COLOURS = ("#2f7fd0", "#e08214", "#2a9d8f", "#a05fb4", "#8b98a8")
TITLES = {
    "ttft_p95_s": "TTFT p95 (s)",
    "speed_p25_tok_s": "output speed p25 (tokens/s)",
    "output_tok_s": "output of all agents (tokens/s)",
    "max_agents": "agents at the service level",
    "agents": "agents",
    "failed": "failed requests",
}


def plot(entries: Sequence[Entry], metric: str, to: Path) -> int:
    """Draw a metric over the runs' starts, one colour for each kind, engine and model; return how many were drawn.

    Raises
    ------
    ConfigError
        When no run has the metric.
    ModuleNotFoundError
        When matplotlib is missing; the text names the extra.
    OSError
        When the file cannot be written.
    """
    known = [entry for entry in entries if entry.time and entry.value(metric) is not None]
    if not known:
        raise ConfigError(f"no run of the folder has {metric}")
    _library("matplotlib")
    from matplotlib.figure import Figure  # noqa: PLC0415 an extra

    figure: Any = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    groups: dict[str, list[Entry]] = {}
    for entry in known:
        groups.setdefault(_group(entry), []).append(entry)
    for index, (label, members) in enumerate(groups.items()):
        times = [datetime.fromisoformat(str(entry.time)) for entry in members]
        colour = COLOURS[index % len(COLOURS)]
        axes.plot(times, [entry.value(metric) for entry in members], "o-", color=colour, label=label, markersize=5)
    axes.set_ylabel(TITLES[metric])
    axes.set_xlabel("start of the run (UTC)")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e6e9ed")
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=8)
    figure.autofmt_xdate()
    figure.savefig(to, dpi=150)
    return len(known)


def _group(entry: Entry) -> str:
    simulated = " SIMULATED" if entry.simulated and "simulated" not in (entry.engine or "") else ""
    return f"{entry.kind}: {entry.model or 'unknown model'} on {entry.engine or 'unknown engine'}{simulated}"
