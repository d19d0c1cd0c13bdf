"""Under which conditions the figures of a run hold: what was sent, to whom, by how many, how long, at which level.

A setting that a run did not keep, because it was made before there was one, is left out.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from agentbench._figures import count, number, seconds
from agentbench._report.agents import agent_conditions
from agentbench._report.sections import Section

if TYPE_CHECKING:
    from collections.abc import Iterator

NANOSECONDS_PER_SECOND = 1e9
MILLISECONDS_PER_SECOND = 1e3
HASH_SHOWN = 12

PLAIN = (
    ("arrivals", "arrivals"),
    ("time scale", "time_scale"),
    ("active agents at most", "max_active"),
    ("seed", "seed"),
    ("content", "content"),
    ("cache sharing", "cache_sharing"),
    ("tool time", "tool_time"),
    ("human time", "human_time"),
    ("retries at most", "max_retries"),
    ("on error", "on_error"),
    ("error rate at most, %", "max_error_rate_pct"),
    ("time to connect at most, s", "connect_timeout_s"),
    ("time to first byte at most, s", "first_byte_timeout_s"),
    ("time between chunks at most, s", "idle_timeout_s"),
    ("time of a request at most, s", "request_timeout_s"),
)
"""Settings of a replay that are shown as they are kept."""


def conditions(summary: dict[str, Any], manifest: dict[str, Any]) -> Section:
    """Return the conditions of a run."""
    rows = [*_sent(summary, manifest), *_engine(summary, manifest)]
    if summary.get("agent"):
        rows += [*_live(summary), *agent_conditions(manifest["settings"]), *_power(summary, manifest)]
    elif "settings" in summary:
        rows += [*_load(summary), *_window(summary), *_power(summary, manifest)]
    rows += _made(manifest)
    return Section("conditions", tuple(rows))


def service_level(summary: dict[str, Any]) -> str:
    """Return the service level that the figures were held against."""
    search = (summary.get("capacity") or {}).get("settings")
    if not search:
        return "none: live agents" if summary.get("agent") else "none: at fixed load"
    tier = f" (tier {search['tier']})" if search.get("tier") else ""
    return " and ".join(search["slo"]) + tier


def apis(settings: dict[str, Any]) -> str:
    """Return the APIs that were sent to, and what for."""
    routes = ", ".join(
        route["sent"] if route["sent"] == route["recorded"] else f"{route['recorded']} sent as {route['sent']}"
        for route in settings["routes"]
    )
    return f"{settings['api']}: {routes}"


def engine_in_words(manifest: dict[str, Any]) -> str | None:
    """Return the engine's name and version."""
    engine = manifest.get("engine") or {}
    words = " ".join(part for part in (engine.get("name"), engine.get("version")) if part)
    return f"{words or 'unknown'}{' (simulated)' if engine.get('simulated') else ''}" if engine else None


def trace_in_words(summary: dict[str, Any], manifest: dict[str, Any]) -> str | None:
    """Return the recording's name, run id and the start of its hash."""
    trace = summary.get("settings", {}).get("trace")
    if not trace or not trace["run_id"]:
        return manifest.get("dataset")
    return f"{trace['name']} ({trace['run_id']}), content {trace['content_hash'][:HASH_SHOWN]}"


def _sent(summary: dict[str, Any], manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    trace, settings = trace_in_words(summary, manifest), summary.get("settings")
    if summary.get("agent"):
        yield "tasks", manifest.get("dataset") or "unknown"
        return
    if trace:
        yield "trace" if settings else "made from", trace
    if settings:
        skipped = sum(settings["skipped"].values())
        left_out = f", {skipped:,} recorded turns left out" if skipped else ""
        yield (
            "one pass",
            f"{count(settings['sessions'])} sessions, {count(settings['requests_per_pass'])} requests{left_out}",
        )


def _engine(summary: dict[str, Any], manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    engine = manifest.get("engine") or {}
    model = summary.get("settings", {}).get("model") or engine.get("model")
    if engine or model:
        yield "model", model or "unknown"
    words = engine_in_words(manifest)
    if words:
        yield "engine", words
        yield "url", engine["url"]


def _load(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    settings, search = summary["settings"], (summary.get("capacity") or {}).get("settings")
    yield "service level", service_level(summary)
    if search:
        yield (
            "search",
            (
                f"up to {count(search['max_agents'])} agents, resolution {search['resolution']},"
                f" preset {search['preset']}: {_minimum(search)}"
            ),
        )
        gpus = summary["capacity"].get("gpus") or {"value": None, "reason": None}
        yield "GPUs that serve", count(gpus["value"]) + (f" ({gpus['reason']})" if gpus["reason"] else "")
    elif settings.get("arrivals") is None:
        yield "agents", f"{count(summary['agents'])}, started over {number(settings['ramp_s'])} s"
    else:
        yield "agents", f"one an arrival, {count(summary['agents'])} at once at most"
    yield "API", apis(settings)
    pinned = summary["labels"].get("output_length", "unknown")
    yield "output length", f"{settings['output_length']}, pinning {pinned}"
    for label, name in PLAIN:
        value = settings.get(name)
        if value is not None and not isinstance(value, dict | list):
            yield label, in_words(value)
    if settings.get("workers"):
        yield "workers", count(len(settings["workers"]))


def _live(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    settings = summary["settings"]
    yield "service level", service_level(summary)
    yield "agents at once", count(summary["agents"])
    route = settings["routes"][0] if settings["routes"] else {"sent": "unknown", "reason": "unknown"}
    yield "API", f"{route['sent']} ({route['reason']})"
    if settings.get("request_timeout_s") is not None:
        yield "time of a request at most, s", number(settings["request_timeout_s"])
    yield "ended by", in_words(settings["ended_by"])


def in_words(value: Any) -> str:
    """Return a setting as it is typed."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return number(value) if isinstance(value, float) else str(value).replace("_", "-")


def _minimum(search: dict[str, Any]) -> str:
    minimum = search["minimum"]
    return (
        f"at least {count(minimum['trajectories'])} trajectories ({count(minimum['trajectories_per_agent'])} of each"
        f" agent), {count(minimum['requests_per_agent'])} requests of each agent and {number(minimum['steady_s'])} s"
        f" of steady state a level; at most {number(search['level_time_s'])} s a level"
    )


def _window(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    settings = summary["settings"]
    window = settings["window"]
    start, end = window["steady_start_ms"], window["steady_end_ms"]
    if start is not None and end is not None and end > start:
        yield "steady window", f"{seconds(start)} to {seconds(end)} after the start of the run"
    else:
        yield "steady window", "none"
    if not summary.get("capacity"):
        yield "ended by", in_words(settings["ended_by"])


def _power(summary: dict[str, Any], manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    figures = summary.get("power") or (summary.get("capacity") or {}).get("power") or {}
    power = (manifest["settings"].get("power") or {}) | figures
    if not power.get("source"):
        yield "power", f"none ({power.get('reason') or 'power was not sampled'})"
        return
    pue = f", PUE {number(power['pue'])}" if power.get("pue") else ""
    yield "power", f"{power['source']}, boundary {power.get('boundary')}{pue}"
    if power.get("rule"):
        yield "devices chosen by", power["rule"]


def _made(manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    started = datetime.fromtimestamp(manifest["clock_anchor_ns"] / NANOSECONDS_PER_SECOND, UTC)
    yield "started", f"{started:%Y-%m-%d %H:%M:%S} UTC"
    host = manifest["host"]
    if host.get("platform"):
        yield "client", f"{host['platform']}, {host['cpus']} CPUs, agentbench {manifest['tool_version']}"
    if manifest["argv"]:
        yield "command", " ".join(manifest["argv"])
