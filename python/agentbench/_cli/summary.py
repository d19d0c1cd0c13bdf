"""A replay's summary as tables on the screen, printed from ``summary.json`` alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from .figures import UNKNOWN, count, number, percent

if TYPE_CHECKING:
    from rich.console import RenderableType

LATENCIES = (
    ("TTFT", "ms", "ttft_ms"),
    ("TPOT", "ms", "tpot_ms"),
    ("ITL per token", "ms", "itl_per_token_ms"),
    ("chunk gap", "ms", "chunk_gap_ms"),
    ("E2E", "ms", "e2e_ms"),
    ("output speed", "tokens/s", "output_tokens_per_s"),
    ("ISL", "tokens", "prompt_tokens"),
    ("ISL cached", "tokens", "cached_tokens"),
    ("OSL", "tokens", "completion_tokens"),
    ("tool wait", "ms", "tool_wait_ms"),
    ("send lag", "ms", "lag_ms"),
)
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
PERCENTILES = ("p50", "p90", "p95", "p99")


def summary_tables(summary: dict[str, Any]) -> RenderableType:
    """Return everything that a reader of the run must see, warnings first."""
    return Group(
        _headline(summary),
        *_flags(summary),
        _counts(summary),
        Text(),
        _latencies(summary),
        Text(),
        _rates(summary),
        Text(),
        _hits(summary["prefix_hits"]),
        *_power(summary.get("power")),
        *_errors(summary),
    )


def _headline(summary: dict[str, Any]) -> Text:
    settings = summary["settings"]
    engine = "SIMULATED engine" if summary["labels"]["simulated"] else "engine"
    text = (
        f"{engine}: {settings['model']} at {settings['url']}, {summary['agents']} agents, {summary['labels']['load']}"
    )
    return Text(text, style="bold")


def _flags(summary: dict[str, Any]) -> list[Text]:
    return [Text(f"! {note}", style="yellow") for note in summary["notes"]]


def _counts(summary: dict[str, Any]) -> Text:
    requests, trajectories, lengths = summary["requests"], summary["trajectories"], summary["output_length"]
    phases = ", ".join(f"{name} {requested:,}" for name, requested in summary["phases"].items())
    return Text(
        f"requests: {requests['sent']:,} sent, {requests['ok']:,} ok, {requests['failed']:,} failed,"
        f" {requests['cancelled']:,} cancelled ({phases})\n"
        f"trajectories: {trajectories['started']:,} started, {trajectories['completed']:,} completed,"
        f" {trajectories['incomplete']:,} incomplete\n"
        f"output length: {lengths['ok']:,} as recorded, {lengths['short']:,} short, {lengths['long']:,} long,"
        f" {lengths['unverified']:,} unverified"
    )


def headline_part(summary: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """Return the part whose figures stand in the table: the steady state, or the whole run without one."""
    if summary["steady"]["fields"]:
        return "steady state", summary["steady"]
    return "whole run", summary["whole"]


def _latencies(summary: dict[str, Any]) -> Table:
    name, part = headline_part(summary)
    duration = number(part["duration_s"])
    table = Table(title=f"{name}, {duration} s", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("", "unit"):
        table.add_column(heading)
    for heading in ("n", "mean", *PERCENTILES):
        table.add_column(heading, justify="right")
    for label, unit, field in LATENCIES:
        statistic = part["fields"].get(field)
        if statistic is None:
            table.add_row(label, unit, "0", *[UNKNOWN] * (1 + len(PERCENTILES)))
            continue
        values = [number(statistic[column]) for column in ("mean", *PERCENTILES)]
        table.add_row(label, unit, count(statistic["n"]), *values)
    engine = summary["engine"] or {}
    for label, field in ENGINE_TIMES:
        known = engine.get(field) is not None
        observed = count(engine.get("requests")) if known else "0"
        table.add_row(label, "ms", observed, number(engine.get(field)), *[UNKNOWN] * len(PERCENTILES))
    return table


def _rates(summary: dict[str, Any]) -> Table:
    name, part = headline_part(summary)
    parts = [(name, part)] if part is summary["whole"] else [(name, part), ("whole run", summary["whole"])]
    table = Table(title="rates", title_justify="left", title_style="bold", box=None, pad_edge=False)
    for heading in ("", "unit"):
        table.add_column(heading)
    for heading, _ in parts:
        table.add_column(heading, justify="right")
    for label, unit, field in RATES:
        table.add_row(label, unit, *[number(part[field]) for _, part in parts])
    return table


def _hits(hits: dict[str, Any]) -> Text:
    shown = {name: percent(None if hits[key] is None else hits[key] / 100) for name, key in HIT_FIGURES}
    return Text("prefix hit rate: " + ", ".join(f"{name} {value}" for name, value in shown.items()))


def _power(power: dict[str, Any] | None) -> list[Text]:
    if power is None:
        return []
    if power["source"] is None:
        return [Text(f"power: none ({power['reason']})")]
    if not power["valid"]:
        return [Text(f"power: no valid figure from {power['source']} ({power['reason']})", style="yellow")]
    return [
        Text(
            f"power ({power['source']}, boundary {power['boundary']}, {power['method']}):"
            f" {number(power['mean_power_w'])} W, {number(power['energy_j'])} J in steady state;"
            f" {number(power['joules_per_output_token'])} J per output token;"
            f" {number(power['agents_per_mw'])} agents/MW {power['load']}"
        ),
        *([Text(power["reason"], style="yellow")] if power["reason"] else []),
    ]


HIT_FIGURES = (("planned", "planned_pct"), ("usage", "usage_pct"), ("engine", "engine_pct"))


def _errors(summary: dict[str, Any]) -> list[Text]:
    return [
        Text(f"failed: {error['n']:,} x {error['kind']}, such as: {error['example']}", style="bold red")
        for error in summary["errors"]
    ]
