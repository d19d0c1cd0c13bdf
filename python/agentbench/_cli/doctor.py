"""``agentbench doctor``: what is there and what is missing, each with the remedy."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.table import Table
from rich.text import Text

from agentbench import AgentbenchError, _core, _frames, harness
from agentbench._collect import sandbox

from .console import results
from .parameters import URL

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agentbench._types import EngineInfo

MINIMUM_FREE_BYTES = 5 * 2**30
EXTRAS = ("pandas", "pyarrow", "polars", "matplotlib")


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``state`` is ``ok``, ``missing`` or ``bad``; the remedy is for the latter two."""

    subject: str
    state: str
    detail: str
    remedy: str = ""


@click.command("doctor")
@click.option("--url", type=URL, help="An engine to look at, like http://127.0.0.1:8000.  [default: none]")
@click.option("--metrics-url", type=URL, help="Its metrics page.  [default: --url with /metrics]")
def command(url: str | None, metrics_url: str | None) -> int:
    """Say what is there and what is missing, each with the remedy.

    Exits with 0 unless an engine given by --url or a page given by --metrics-url cannot be used.
    """
    engine = list(_engine(url, metrics_url))
    findings = [*_build(), *engine, *_agents(), *_sandboxes(), *_gpus(), _disk(), *_extras()]
    results().print(_report(findings))
    return 1 if any(finding.state == "bad" for finding in engine) else 0


def _build() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    detail = f"{_core.__version__}, {_core.build_profile} build, Python {python}"
    if _core.build_profile == "release":
        yield Finding("agentbench", "ok", detail)
    else:
        remedy = "do not measure with it; run ./install.sh or maturin develop --release"
        yield Finding("agentbench", "missing", f"{detail}: built without optimisation", remedy)


def _engine(url: str | None, metrics_url: str | None) -> Iterator[Finding]:
    if url is None and metrics_url is None:
        yield Finding("engine", "missing", "none named", "agentbench doctor --url http://HOST:PORT")
        return
    if url is not None:
        try:
            yield Finding("engine", "ok", _engine_text(_core.engine_info(url)))
        except (AgentbenchError, OSError) as error:
            yield Finding("engine", "bad", str(error), "start the engine, or correct the URL")
            if metrics_url is None:
                return
    yield _metrics(metrics_url or f"{url}/metrics")


def _engine_text(info: EngineInfo) -> str:
    name = info["name"] or "an engine that does not tell its name"
    parts = [f"{name} {info['version'] or ''}".strip(), f"at {info['url']}", f"model {info['model'] or 'unknown'}"]
    if info["max_model_len"]:
        parts.append(f"context {info['max_model_len']:,} tokens")
    if info["simulated"]:
        parts.append("SIMULATED: its figures say nothing about any hardware")
    return ", ".join(parts)


def _metrics(metrics_url: str) -> Finding:
    try:
        page = _core.metrics_page(metrics_url)
    except (AgentbenchError, OSError) as error:
        remedy = "name the page with --metrics-url; some engines serve it only on request (--enable-metrics)"
        return Finding("metrics page", "bad", str(error), remedy)
    found = f"{metrics_url}: {len(page['fields'])} neutral fields"
    if page["missing"]:
        remedy = "these stay null in engine_metrics and engine_samples; a newer engine may have them"
        return Finding("metrics page", "missing", f"{found}; lacks {', '.join(page['missing'])}", remedy)
    return Finding("metrics page", "ok", found)


def _agents() -> Iterator[Finding]:
    for agent in map(harness.get, harness.names()):
        binary = agent.find()
        if binary is None:
            where = f"no {agent.program} on PATH, nor named by {agent.variable}"
            yield Finding(agent.name, "missing", where, agent.install)
        else:
            yield Finding(agent.name, "ok", f"{agent.version(binary) or 'version unknown'} at {binary}")


def _sandboxes() -> Iterator[Finding]:
    program = sandbox.find()
    if program is None:
        yield Finding("bubblewrap", "missing", f"no bwrap on PATH, nor named by {sandbox.VARIABLE}", sandbox.INSTALL)
        return
    refusal = sandbox.refusal(program)
    if refusal is not None:
        yield Finding("bubblewrap", "missing", refusal, "allow user namespaces, or run collect with --container")
    else:
        yield Finding("bubblewrap", "ok", f"works, at {program}")


def _gpus() -> Iterator[Finding]:
    try:
        gpus = _core.probe_gpus()
    except AgentbenchError as error:
        yield Finding("NVML", "missing", str(error), "install the NVIDIA driver; without it there are no power figures")
        return
    for gpu in gpus:
        parts = [gpu["name"] or f"GPU {gpu['index']}", gpu["uuid"] or "no UUID", f"driver {gpu['driver'] or 'unknown'}"]
        if gpu["power_reason"] is None:
            counter = "with" if gpu["has_energy_counter"] else "without"
            yield Finding("NVML", "ok", ", ".join([*parts, f"{gpu['power_w']:.0f} W, {counter} energy counter"]))
        else:
            detail = ", ".join([*parts, f"no power: {gpu['power_reason']}"])
            yield Finding("NVML", "missing", detail, "no power figures of this GPU; check it with nvidia-smi")


def _disk() -> Finding:
    free = shutil.disk_usage(Path.cwd()).free
    detail = f"{free / 2**30:.1f} GiB free in {Path.cwd()}"
    if free < MINIMUM_FREE_BYTES:
        return Finding("disk", "missing", detail, "free some, or write elsewhere with --out")
    return Finding("disk", "ok", detail)


def _extras() -> Iterator[Finding]:
    for name in EXTRAS:
        if find_spec(name) is None:
            yield Finding(name, "missing", "not installed: tables open without it in other libraries", _frames.REMEDY)
            continue
        try:
            yield Finding(name, "ok", version(name))
        except PackageNotFoundError:
            yield Finding(name, "ok", "version unknown")


def _report(findings: list[Finding]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("", "", "found", "remedy"):
        table.add_column(heading, overflow="fold")
    styles = {"ok": "green", "missing": "yellow", "bad": "bold red"}
    for finding in findings:
        state = Text(finding.state, style=styles[finding.state])
        table.add_row(state, finding.subject, finding.detail, finding.remedy)
    return table
