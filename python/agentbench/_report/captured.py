"""The figures of recorded turns as sections: a capture, or sessions that were made up."""

from __future__ import annotations

from typing import Any

from agentbench._figures import UNKNOWN, count, number, percent, seconds
from agentbench._report.sections import Section

FIELDS = (
    ("TTFT", "ms", "ttft_ms"),
    ("ITL, mean of a turn", "ms", "itl_ms_mean"),
    ("E2E", "ms", "e2e_ms"),
    ("ISL", "tokens", "isl"),
    ("ISL cached", "tokens", "isl_cached"),
    ("ISL new", "tokens", "isl_new"),
    ("OSL", "tokens", "osl"),
    ("tool time", "ms", "tool_exec_ms"),
    ("wait after children", "ms", "residual_wait_ms"),
)
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
PER_CENT = 100.0


def headline(summary: dict[str, Any], manifest: dict[str, Any]) -> str:
    """Return what was recorded, in one line."""
    totals, engine = summary["totals"], manifest.get("engine")
    recorded = f"{totals['turns']:,} turns of {totals['sessions']:,} sessions"
    if not engine:
        return recorded
    name = "SIMULATED engine" if engine["simulated"] else "engine"
    return f"{name}: {engine['model'] or 'unknown model'} at {engine['url']}, {recorded}"


def usage_hits_pct(totals: dict[str, Any]) -> float | None:
    """Return the share of prompt tokens served from cache, by the responses' usage."""
    known, cached = totals["isl_with_cached"], totals["isl_cached"]
    return cached / known * PER_CENT if known and cached is not None else None


def engine_hits_pct(engine: dict[str, Any] | None) -> float | None:
    """Return the same by the engine's counters."""
    if not engine or not engine["prompt_tokens"] or engine["cached_tokens"] is None:
        return None
    cached = engine["cached_tokens"] + (engine["external_cached_tokens"] or 0.0)
    return float(cached / engine["prompt_tokens"] * PER_CENT)


def capture_sections(summary: dict[str, Any], manifest: dict[str, Any]) -> tuple[Section, ...]:
    """Return the figures of a capture."""
    return (
        Section("recorded", tuple(_totals(summary, manifest))),
        _fields(summary["fields"]),
        *_engines(summary.get("engines") or {}),
        *_tools(summary["tools"]),
    )


def _totals(summary: dict[str, Any], manifest: dict[str, Any]) -> list[tuple[str, str]]:
    totals = summary["totals"]
    by_usage, by_engine = usage_hits_pct(totals), engine_hits_pct(summary["engine"])
    rows = [
        ("turns", count(totals["turns"])),
        ("  not answered whole", count(totals["failed"])),
        ("sessions", count(totals["sessions"])),
        ("threads", count(totals["threads"])),
        ("ISL (prompt tokens)", count(totals["isl"])),
        ("  served from cache", f"{count(totals['isl_cached'])}  ({percent(_share(by_usage))} by usage)"),
        ("  by the engine's counters", percent(_share(by_engine))),
        ("OSL (output tokens)", count(totals["osl"])),
        ("tool time", seconds(totals["tool_exec_ms"])),
        ("tool calls", count(sum(tool["calls"] for tool in summary["tools"].values()))),
        ("from first request to last response", seconds(totals["span_ms"])),
        ("rows dropped", count(sum(manifest["dropped"].values()))),
    ]
    groups = (("agents", "agents"), ("models", "models"), ("APIs", "apis"), ("turns for", "kinds"))
    for label, name in groups:
        if summary[name]:
            rows.append((label, ", ".join(f"{key} {turns:,}" for key, turns in summary[name].items())))
    return rows


def _share(pct: float | None) -> float | None:
    return None if pct is None else pct / PER_CENT


def _fields(fields: dict[str, Any]) -> Section:
    rows = []
    for label, unit, name in FIELDS:
        statistic = fields.get(name)
        if statistic is None:
            rows.append((label, unit, "0", *[UNKNOWN] * len(STATISTICS)))
        else:
            rows.append((label, unit, count(statistic["n"]), *[number(statistic[column]) for column in STATISTICS]))
    return Section("of a turn", tuple(rows), ("", "unit", "n", *STATISTICS), left=2)


ENGINE_COLUMNS = ("requests", "ISL", "cached", "OSL", "TTFT ms", "running max", "KV max %", "restarted")


def _engines(engines: dict[str, Any]) -> tuple[Section, ...]:
    """Return the counters of each engine, where there are several; of one that restarted only the gauges."""
    if not engines:
        return ()
    rows = [
        (
            name,
            count(engine["requests"]),
            count(engine["prompt_tokens"]),
            percent(_share(engine_hits_pct(engine))),
            count(engine["output_tokens"]),
            number(engine["ttft_ms_mean"]),
            count(engine["running_max"]),
            number(engine["kv_cache_usage_pct_max"]),
            "yes" if engine["counter_reset"] else "no",
        )
        for name, engine in engines.items()
    ]
    return (Section("engines, by their own counters", tuple(rows), ("engine", *ENGINE_COLUMNS)),)


def _tools(tools: dict[str, Any]) -> tuple[Section, ...]:
    if not tools:
        return ()
    rows = []
    for name, tool in sorted(tools.items(), key=lambda item: -item[1]["calls"]):
        wire = tool["wire_ms"] or {}
        rows.append(
            (name, count(tool["calls"]), count(tool["errors"]), *[number(wire.get(column)) for column in STATISTICS])
        )
    return (Section("tools, ms from call to result", tuple(rows), ("tool", "calls", "errors", *STATISTICS)),)
