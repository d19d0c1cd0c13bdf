"""The figures of a replay as sections, from ``summary.json`` alone. A capacity search has them of one level."""

from __future__ import annotations

from typing import Any

from agentbench._figures import UNKNOWN, count, number, percent
from agentbench._report.sections import Section

LATENCIES = (
    ("TTFT", "ms", "ttft_ms"),
    ("TTFT from due", "ms", "ttft_from_due_ms"),
    ("TPOT", "ms", "tpot_ms"),
    ("ITL per token", "ms", "itl_per_token_ms"),
    ("chunk gap", "ms", "chunk_gap_ms"),
    ("E2E", "ms", "e2e_ms"),
    ("E2E from due", "ms", "e2e_from_due_ms"),
    ("output speed", "tokens/s", "output_tokens_per_s"),
    ("ISL", "tokens", "prompt_tokens"),
    ("ISL cached", "tokens", "cached_tokens"),
    ("OSL", "tokens", "completion_tokens"),
    ("tool wait", "ms", "tool_wait_ms"),
    ("send lag", "ms", "lag_ms"),
)
FROM_DUE = {"ttft_from_due_ms", "e2e_from_due_ms"}
"""Shown where a late send matters: in an open loop, and where sends were late by more than this of the TTFT."""
NEGLIGIBLE_LAG = 0.05
"""Share of the median TTFT that 99 of 100 sends may be late by before it matters."""
ENGINE_TIMES = (
    ("engine TTFT", "ttft_ms_mean"),
    ("engine queue", "queue_ms_mean"),
    ("engine prefill", "prefill_ms_mean"),
    ("engine decode", "decode_ms_mean"),
    ("engine E2E", "e2e_ms_mean"),
)
RATES = (
    ("requests", "requests/s", "requests_per_s"),
    ("input", "tokens/s", "input_tokens_per_s"),
    ("cached input", "tokens/s", "cached_tokens_per_s"),
    ("new input", "tokens/s", "new_input_tokens_per_s"),
    ("output", "tokens/s", "output_tokens_per_s"),
)
HITS = (("planned", "planned_pct"), ("usage", "usage_pct"), ("engine", "engine_pct"))
POWER = (
    ("mean power", "W", "mean_power_w"),
    ("energy", "J", "energy_j"),
    ("output tokens per joule", "tokens/J", "output_tokens_per_joule"),
    ("energy per output token", "J", "joules_per_output_token"),
    ("energy per turn", "J", "joules_per_turn"),
    ("energy per trajectory", "J", "joules_per_trajectory"),
    ("agents per GPU", "agents", "agents_per_gpu"),
    ("agents per MW", "agents", "agents_per_mw"),
)
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


def headline(summary: dict[str, Any]) -> str:
    """Return who answered whom, in one line."""
    settings = summary["settings"]
    engine = "SIMULATED engine" if summary["labels"]["simulated"] else "engine"
    agents = f"{summary['agents']:,} agents" if settings.get("arrivals") is None else _agents_of_arrivals(summary)
    return f"{engine}: {settings['model']} at {settings['url']}, {agents}, {summary['labels']['load']}"


def _agents_of_arrivals(summary: dict[str, Any]) -> str:
    """Say how many agents an open loop had, which is a result there."""
    mean = summary["open_loop"]["active_agents_mean"]
    in_the_mean = "" if mean is None else f", {number(mean)} in the mean"
    return f"arrivals {summary['settings']['arrivals']} (at most {summary['agents']:,} agents at once{in_the_mean})"


def headline_part(summary: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the part whose figures stand in the table: the steady state, or the whole run without one."""
    # Of live agents the whole run is told: the first that ends leaves the others less to share.
    if summary["steady"]["fields"] and not summary.get("agent"):
        return "steady state", summary["steady"]
    return "whole run", summary["whole"]


def replay_sections(summary: dict[str, Any]) -> tuple[Section, ...]:
    """Return the figures of a replay."""
    return (
        _latencies(summary),
        _rates(summary),
        Section("prefix hit rate", tuple(_hits(summary["prefix_hits"]))),
        *_power(summary.get("power")),
        Section("counts", tuple(_counts(summary))),
        *_client(summary.get("client")),
        *_errors(summary),
    )


def _latencies(summary: dict[str, Any]) -> Section:
    name, part = headline_part(summary)
    rows = []
    lag_matters = _lag_matters(summary, part["fields"])
    for label, unit, field in LATENCIES:
        statistic = part["fields"].get(field)
        if field in FROM_DUE and (statistic is None or not lag_matters):
            continue
        if field == "tool_wait_ms" and summary.get("agent"):
            # Their tools ran, nobody waited for a recorded time; the figure stands with the tasks.
            continue
        if statistic is None:
            rows.append((label, unit, "0", *[UNKNOWN] * len(STATISTICS)))
        else:
            values = [number(statistic[column]) for column in STATISTICS]
            rows.append((label, unit, count(statistic["n"]), *values))
    engine = summary["engine"] or {}
    for label, field in ENGINE_TIMES:
        known = engine.get(field) is not None
        observed = count(engine.get("requests")) if known else "0"
        rows.append((label, "ms", observed, number(engine.get(field)), *[UNKNOWN] * (len(STATISTICS) - 1)))
    title = f"{name}, {number(part['duration_s'])} s"
    notes = (
        ("The engine's own times are means over all its requests, those outside the steady state included.",)
        if engine and not summary.get("agent")
        else ()
    )
    return Section(title, tuple(rows), ("", "unit", "n", *STATISTICS), notes, left=2)


def _lag_matters(summary: dict[str, Any], fields: dict[str, Any]) -> bool:
    if summary["settings"].get("arrivals") is not None:
        return True
    lag, ttft = fields.get("lag_ms"), fields.get("ttft_ms")
    return bool(lag and ttft and lag["p99"] > NEGLIGIBLE_LAG * ttft["p50"])


def _rates(summary: dict[str, Any]) -> Section:
    name, part = headline_part(summary)
    parts = [(name, part)] if part is summary["whole"] else [(name, part), ("whole run", summary["whole"])]
    rows = tuple((label, unit, *[number(figures[field]) for _, figures in parts]) for label, unit, field in RATES)
    return Section("throughput", rows, ("", "unit", *[heading for heading, _ in parts]), left=2)


def _hits(hits: dict[str, Any]) -> list[tuple[str, str]]:
    return [(label, percent(None if hits[key] is None else hits[key] / 100)) for label, key in HITS]


def _power(power: dict[str, Any] | None) -> tuple[Section, ...]:
    if not power or not power["source"]:
        return ()
    title = f"power and energy of the steady state: {power['source']}, boundary {power['boundary']}"
    if not power["valid"]:
        return (Section(title, (), notes=(f"no valid figure: {power['reason']}",)),)
    rows = [(label, unit, number(power[field])) for label, unit, field in POWER if power.get(field) is not None]
    notes = [f"valid, method {power['method']}, agents per MW {power['load']}"]
    notes += [power["reason"]] if power["reason"] else []
    return (Section(title, tuple(rows), ("", "unit", "value"), tuple(notes), left=2),)


def _counts(summary: dict[str, Any]) -> list[tuple[str, str]]:
    requests, trajectories, lengths = summary["requests"], summary["trajectories"], summary["output_length"]
    phases = ", ".join(f"{name} {sent:,}" for name, sent in summary["phases"].items())
    sent = (
        f"{requests['sent']:,} sent, {requests['ok']:,} ok, {requests['failed']:,} failed,"
        f" {requests['cancelled']:,} cancelled"
    )
    if summary.get("agent"):
        # Nothing was planned: neither lengths nor trajectories have anything to be held against.
        return [("requests", sent), ("sent in", phases or UNKNOWN)]
    return [
        *_admissions(summary.get("open_loop")),
        ("requests", sent),
        ("sent in", phases or UNKNOWN),
        (
            "trajectories",
            (
                f"{trajectories['started']:,} started, {trajectories['completed']:,} completed,"
                f" {trajectories['incomplete']:,} incomplete"
            ),
        ),
        (
            "output length",
            (
                f"{lengths['ok']:,} as asked for, {lengths['short']:,} short, {lengths['long']:,} long,"
                f" {lengths['unverified']:,} unverified"
            ),
        ),
    ]


def _admissions(arrivals: dict[str, Any] | None) -> list[tuple[str, str]]:
    if arrivals is None:
        return []
    wait = arrivals["admission_wait_ms"]
    waited = f" (wait p50 {number(wait['p50'])} ms, p99 {number(wait['p99'])} ms)" if arrivals["admitted_late"] else ""
    told = (
        f"{arrivals['arrivals']:,} due, {arrivals['admitted_late']:,} admitted late{waited},"
        f" {arrivals['not_admitted']:,} not admitted"
    )
    return [("arrivals", told)]


def _client(client: dict[str, Any] | None) -> tuple[Section, ...]:
    """Return what the client saw of itself; nothing of a run that did not watch it."""
    if client is None or client["cores"] is None:
        return ()
    shared = " (the engine's too, so not judged)" if client["engine_in_process"] is not False else ""
    told = {True: f"yes: {'; '.join(client['reasons'])}", False: "no", None: "not known: the run was too short"}
    rows = [
        ("client-limited", told[client["limited"]]),
        ("CPU", f"{number(client['cpu_cores'])} of {count(client['cores'])} cores{shared}"),
        ("open sockets at most", count(client["open_sockets"])),
    ]
    for label, name in (("timer lag", "timer_lag_ms"), ("send lag", "send_lag_ms")):
        lag = client[name]
        if lag is not None:
            rows.append((label, ", ".join(f"{key} {number(lag[key])} ms" for key in ("p50", "p90", "p99", "max"))))
    rows.append(("limited from", f"p90 {number(client['lag_limit_ms'])} ms of lag, 90 % of the cores, 90 % of files"))
    return (Section("client", tuple(rows)),)


def _errors(summary: dict[str, Any]) -> tuple[Section, ...]:
    if not summary["errors"]:
        return ()
    rows = tuple((error["kind"], error["example"], count(error["n"])) for error in summary["errors"])
    return (Section("failed requests", rows, ("kind", "such as", "n"), left=2),)
