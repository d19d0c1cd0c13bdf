"""``agentbench capture``: a recording proxy before an engine."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from rich.table import Table

from agentbench import LISTEN, Proxy, Run, capture, default_out
from agentbench._figures import UNKNOWN, count, percent

from . import child
from .argv import masked_argv
from .console import print_error, print_next, print_note, print_warning, results
from .live import Status
from .parameters import DURATION, URL, URL_OR_NONE
from .power import power_options, power_settings
from .report import print_and_keep
from .switches import switch_options, switch_settings

if TYPE_CHECKING:
    from collections.abc import Callable

    from agentbench._types import CaptureStats

NOTHING_CAPTURED = 1
INTERRUPTED = 130
ROUTINGS = ("session", "round-robin")


@dataclass(frozen=True)
class Ending:
    """How a capture came to its end."""

    interrupted: bool
    exit_status: int | None


@click.command("capture", context_settings={"ignore_unknown_options": False})
@click.option(
    "--upstream", "upstreams", type=URL, multiple=True, required=True, help="The engine behind the proxy; one each."
)
@click.option("--out", type=click.Path(path_type=Path), help="The run directory.  [default: results/capture-TIME]")
@click.option("--listen", default=LISTEN, show_default=True, help="Where agents reach the proxy; port 0 picks one.")
@click.option(
    "--routing",
    type=click.Choice(ROUTINGS),
    default=ROUTINGS[0],
    show_default=True,
    help="Of several engines: a session stays with one, or each turn takes the next.",
)
@click.option(
    "--metrics-url",
    "metrics_urls",
    type=URL_OR_NONE,
    multiple=True,
    help="The engine's metrics page, one for each --upstream in its order.  [default: --upstream with /metrics]",
)
@click.option("--poll-interval", type=DURATION, default="100ms", show_default=True, help="Between two polls of it.")
@power_options
@switch_options
@click.argument("agent", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def command(
    upstreams: tuple[str, ...],
    out: Path | None,
    listen: str,
    routing: str,
    metrics_urls: tuple[str, ...],
    poll_interval: float,
    agent: tuple[str, ...],
    **options: Any,
) -> int:
    """Record the coding agents that talk to an engine.

    With a COMMAND it is run with ANTHROPIC_BASE_URL, OPENAI_BASE_URL and OPENAI_API_BASE pointed at the proxy,
    and the capture ends with it. claude, codex, opencode and mini are told the engine's model besides, unless
    your environment does so. Without a COMMAND the capture ends with Ctrl-C.

    With --upstream several times, new sessions take the engines in turn and stay where they are, since prefix
    caches are per engine. A session is known by its path (/s/NAME), its header, or what its body begins with.
    A request of which nothing could be sent goes to the next engine, which is counted; one that an engine had
    begun to receive fails, as it would without the proxy.

    Exits with 1 when no request came, with 130 when a COMMAND was interrupted; what came is written all the
    same.
    """
    _warn_when_open(listen)
    settings = power_settings(options) | switch_settings(options)
    if metrics_urls:
        settings["metrics_url"] = _pages(metrics_urls, len(upstreams))
    proxy = capture(
        upstreams,
        out=out or default_out("capture"),
        listen=listen,
        routing=routing,
        poll_interval_s=poll_interval,
        argv=masked_argv(),
        **settings,
    )
    proxy.start()
    print_note(f"recording {proxy.url} -> {' + '.join(upstreams)} to {proxy.out}")
    told = Run.open(proxy.out).manifest["notes"]
    for note in told:
        print_warning(note)
    try:
        ending = _with_agent(proxy, agent, upstreams[0]) if agent else _until_interrupted(proxy)
    except BaseException:
        proxy.stop()
        raise
    run = proxy.stop()
    for note in run.manifest["notes"]:
        if note not in told:
            print_warning(note)
    return _report(proxy, run, ending)


def _pages(urls: tuple[str, ...], engines: int) -> list[str] | None:
    if urls == ("none",):
        return None
    if "none" in urls:
        raise click.UsageError("--metrics-url none stands alone: it polls no engine at all")
    if len(urls) != engines:
        raise click.UsageError(
            f"--metrics-url is given {len(urls)} times for {engines} engines; give one for each --upstream"
        )
    return list(urls)


def _warn_when_open(listen: str) -> None:
    host = listen.rpartition(":")[0].strip("[]")
    try:
        loopback = ipaddress.ip_address(host).is_loopback
    except ValueError:
        return
    if not loopback:
        print_warning(f"{listen} can be reached from other machines: whoever connects uses the engine and is recorded")


def _until_interrupted(proxy: Proxy) -> Ending:
    print_note(f"point agents at it: ANTHROPIC_BASE_URL={proxy.url} OPENAI_BASE_URL={proxy.url}/v1; Ctrl-C ends it")
    try:
        _watch(proxy, lambda: proxy.done)
    except KeyboardInterrupt:
        # The regular end of a capture without a command.
        return Ending(interrupted=False, exit_status=None)
    return Ending(interrupted=False, exit_status=None)


def _with_agent(proxy: Proxy, agent: tuple[str, ...], upstream: str) -> Ending:
    pointed = child.point(agent, proxy.url, upstream)
    if pointed.added:
        print_note(f"set for {agent[0]}: {' '.join(pointed.added)}")
    process = child.start(pointed)
    try:
        _watch(proxy, lambda: process.poll() is not None)
    except KeyboardInterrupt:
        child.end(process)
        return Ending(interrupted=True, exit_status=process.returncode)
    return Ending(interrupted=False, exit_status=process.returncode)


def _watch(proxy: Proxy, ended: Callable[[], bool]) -> None:
    with Status() as status:
        while not ended():
            stats = proxy.stats()
            status.show(_drawn(stats), _line(stats))
            status.rest()


def _line(stats: CaptureStats) -> str:
    engine = stats["engine"]
    parts = [
        f"requests {count(stats['requests'])} ({count(stats['active'])} open)",
        f"turns {count(stats['turns'])}",
        f"sessions {count(stats['sessions'])}",
        f"threads {count(stats['threads'])}",
        f"tokens {count(stats['isl'])} in, {count(stats['osl'])} out",
    ]
    if engine is not None:
        usage = engine["kv_cache_usage_pct"]
        parts.append(
            f"engine {count(engine['running'])} running, {count(engine['waiting'])} waiting,"
            f" KV {percent(None if usage is None else usage / 100)}"
        )
    if stats["upstream_errors"]:
        parts.append(f"upstream errors {count(stats['upstream_errors'])}")
    parts.append(f"rows dropped {count(stats['rows_dropped'])}")
    return "; ".join(parts)


def _drawn(stats: CaptureStats) -> Table:
    table = Table(box=None, pad_edge=False, title=_line(stats), title_justify="left")
    for heading in ("session", "agent", "turn", "ISL", "OSL", "TTFT ms", "E2E ms", "outcome"):
        table.add_column(heading, justify="left" if heading in {"session", "agent", "outcome"} else "right")
    for turn in stats["latest"][-8:]:
        table.add_row(
            turn["session_id"][:12],
            turn["agent"] or UNKNOWN,
            str(turn["turn"]),
            count(turn["isl"]),
            count(turn["osl"]),
            count(turn["ttft_ms"]),
            count(turn["e2e_ms"]),
            turn["outcome"],
        )
    return table


def _report(proxy: Proxy, run: Run, ending: Ending) -> int:
    totals, stats = run.totals(), proxy.stats()
    if ending.exit_status:
        print_warning(f"the command ended with exit status {ending.exit_status}")
    if totals["turns"]:
        print_and_keep(run)
    results().print(f"run directory: {run.path}", soft_wrap=True, markup=False)
    if ending.interrupted:
        print_error(f"interrupted; what came until then is in {run.path}")
        return INTERRUPTED
    if not totals["turns"]:
        side = stats["side_requests"]
        seen = f"{side} requests passed that are no turns" if side else "no request came"
        print_error(f"nothing was captured: {seen}; point the agent's base URL at the proxy")
        return NOTHING_CAPTURED
    print_next([f"agentbench replay {run.path} --url URL", f"agentbench export {run.path} --format jsonl --out OUT"])
    return 0
