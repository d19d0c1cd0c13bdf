"""Where the settings of runs differ: so that a comparison is unfair, or only so that a reader should know.

A setting that this file does not know counts as one that makes it unfair: whoever adds one need not think of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentbench._figures import UNKNOWN, number
from agentbench._report.conditions import apis, engine_in_words, in_words, service_level, trace_in_words
from agentbench._report.replayed import headline_part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

ELSEWHERE = {
    "agents",
    "api",
    "clock_anchor_ns",
    "duration_s",
    "ended_by",
    "engine_in_process",
    "failed_because",
    "human_waits",
    "model",
    "not_admitted",
    "notes",
    "ramp_s",
    "requests_per_pass",
    "routes",
    "salt",
    "seed",
    "sessions",
    "simulated",
    "skipped",
    "strict",
    "synthetic_trace",
    "tool_waits",
    "trace",
    "trajectories",
    "trajectories_per_pass",
    "url",
    "window",
    "workers",
}
"""Settings of a replay that are looked at under another name, follow from others or change no figure."""

LABELS = {
    "max_retries": "retries",
    "include_utility": "utility turns sent",
    "max_active": "active agents at most",
    "synthetic_text": "text of our own",
}


@dataclass(frozen=True)
class Difference:
    """A setting, with its value in each run in the order of the runs."""

    setting: str
    by_run: tuple[str, ...]


@dataclass(frozen=True)
class Side:
    """What is known of one run."""

    summary: dict[str, Any]
    manifest: dict[str, Any]

    @property
    def settings(self) -> dict[str, Any]:
        """How it was replayed; nothing for a capture."""
        settings: dict[str, Any] = self.summary.get("settings", {})
        return settings

    @property
    def search(self) -> dict[str, Any]:
        """How it was searched; nothing for any other run."""
        search: dict[str, Any] = (self.summary.get("capacity") or {}).get("settings", {})
        return search

    @property
    def live(self) -> dict[str, Any]:
        """How live agents worked; nothing for any other run."""
        live: dict[str, Any] = self.manifest["settings"].get("agent") or {}
        return live


def unfair(sides: Sequence[Side]) -> tuple[Difference, ...]:
    """Return the settings whose difference makes a comparison unfair."""
    getters: list[tuple[str, Callable[[Side], str | None]]] = [
        ("kind of run", lambda side: str(side.manifest["kind"])),
        ("trace", _trace),
        ("engine simulated", lambda side: in_words(bool((side.manifest.get("engine") or {}).get("simulated")))),
        ("model", _model),
        ("service level", lambda side: service_level(side.summary) if side.settings else None),
        ("search", _minimum),
        ("agents", _agents),
        ("API", lambda side: apis(side.settings) if side.settings else None),
        ("length pinning", lambda side: (side.summary.get("labels") or {}).get("output_length")),
        ("figures of", lambda side: headline_part(side.summary)[0] if side.settings else None),
        ("power", _power),
    ]
    plain = sorted({name for side in sides for name in side.settings} - ELSEWHERE)
    getters += [(LABELS.get(name, name.replace("_", " ")), _plain(name)) for name in plain]
    live = sorted({name for side in sides for name in side.live})
    getters += [(f"live agents' {name.replace('_', ' ')}", _of_live(name)) for name in live]
    return _differences(sides, getters)


def _agents(side: Side) -> str | None:
    """Of a closed loop at fixed load: else their number is a result."""
    asked = side.settings and not side.search and side.settings.get("arrivals") is None
    return str(side.summary["agents"]) if asked else None


def differing(sides: Sequence[Side]) -> tuple[Difference, ...]:
    """Return what else differs: what is compared as a rule, and what changes figures a little at most."""
    getters: list[tuple[str, Callable[[Side], str | None]]] = [
        ("engine", lambda side: engine_in_words(side.manifest)),
        ("url", lambda side: (side.manifest.get("engine") or {}).get("url")),
        ("GPUs that serve", lambda side: _gpus(side.search)),
        ("most agents tried", lambda side: _or_none(side.search.get("max_agents"))),
        ("resolution", lambda side: _or_none(side.search.get("resolution"))),
        ("duration asked for", lambda side: _seconds(side.settings.get("duration_s"))),
        ("trajectories asked for", lambda side: _or_none(side.settings.get("trajectories"))),
        ("ramp", lambda side: _seconds(side.settings.get("ramp_s")) if not side.search else None),
        ("seed", lambda side: _or_none(side.settings.get("seed"))),
        ("workers", lambda side: _or_none(len(side.settings.get("workers") or ()) or None)),
        ("client", lambda side: f"{side.manifest['host'].get('platform')}, {side.manifest['host'].get('cpus')} CPUs"),
        ("agentbench", lambda side: side.manifest["tool_version"]),
    ]
    return _differences(sides, getters)


def _differences(
    sides: Sequence[Side], getters: Sequence[tuple[str, Callable[[Side], str | None]]]
) -> tuple[Difference, ...]:
    found = [Difference(name, tuple(get(side) or UNKNOWN for side in sides)) for name, get in getters]
    return tuple(difference for difference in found if len(set(difference.by_run)) > 1)


def _trace(side: Side) -> str | None:
    """The recording by its content where that is known: where it lies does not matter."""
    content = (side.settings.get("trace") or {}).get("content_hash")
    if content:
        return f"content {content}"
    return trace_in_words(side.summary, side.manifest) if side.settings else None


def _model(side: Side) -> str | None:
    return side.settings.get("model") or (side.manifest.get("engine") or {}).get("model")


def _minimum(side: Side) -> str | None:
    if not side.search:
        return None
    minimum = ", ".join(f"{name} {number(value)}" for name, value in side.search["minimum"].items())
    return f"{side.search['preset']} ({minimum}; level_time_s {number(side.search['level_time_s'])})"


def _power(side: Side) -> str | None:
    """Where power was read: only of runs that read it, for without power there is no figure to compare."""
    power = (side.manifest["settings"].get("power") or {}) | (side.summary.get("power") or {})
    if not power.get("source"):
        return None
    pue = f", PUE {number(power['pue'])}" if power.get("pue") else ""
    return f"{power['source']}, boundary {power.get('boundary')}{pue}"


def _plain(name: str) -> Callable[[Side], str | None]:
    def get(side: Side) -> str | None:
        value = side.settings.get(name)
        return None if value is None else in_words(value)

    return get


def _of_live(name: str) -> Callable[[Side], str | None]:
    def get(side: Side) -> str | None:
        value = side.live.get(name)
        if isinstance(value, list):
            return ", ".join(map(str, value))
        return None if value is None else in_words(value)

    return get


def _gpus(search: dict[str, Any]) -> str | None:
    names = search.get("gpu_names")
    return _or_none(search.get("gpu_count") or (", ".join(names) if names else None))


def _or_none(value: Any) -> str | None:
    return None if value is None else str(value)


def _seconds(value: float | None) -> str | None:
    return None if value is None else f"{number(value)} s"
