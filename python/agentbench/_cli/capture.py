"""``agentbench capture``: a recording proxy before an engine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from agentbench import LISTEN, Proxy, Run, capture, default_out

from . import agent_logs, child
from .argv import masked_argv
from .capture_view import drawn, line
from .console import print_error, print_next, print_note, print_warning, results
from .live import Shown, Status
from .parameters import DURATION, URL, URL_OR_NONE
from .power import power_options, power_settings
from .report import print_and_keep
from .switches import switch_options, switch_settings

if TYPE_CHECKING:
    from collections.abc import Callable


NOTHING_CAPTURED = 1
INTERRUPTED = 130
ROUTINGS = ("session", "round-robin")


@dataclass(frozen=True)
class Ending:
    """How a capture came to its end."""

    interrupted: bool
    exit_status: int | None
    environment: dict[str, str] | None = None


@click.command("capture", context_settings={"ignore_unknown_options": False})
@click.option(
    "--upstream", "upstreams", type=URL, multiple=True, required=True, help="The engine behind the proxy; one each."
)
@click.option("--out", type=click.Path(path_type=Path), help="The run directory.  [default: results/capture-TIME]")
@click.option("--listen", default=LISTEN, show_default=True, help="Where agents reach the proxy; port 0 picks one.")
@click.option(
    "--token",
    metavar="SECRET",
    help="What callers must send as their API key; needed where --listen is no loopback address.  [default: none]",
)
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
@click.option(
    "--redact",
    is_flag=True,
    help="Mask e-mail addresses, home paths, user and host names and known keys before anything is written."
    "  [default: texts as they are]",
)
@click.option("--view", is_flag=True, help="The live view also beside a COMMAND.  [default: only without one]")
@click.option("--quiet", is_flag=True, help="No live view and no lines on how it goes.  [default: shown]")
@power_options
@switch_options
@click.argument("agent", metavar="[-- COMMAND...]", nargs=-1, type=click.UNPROCESSED)
def command(
    upstreams: tuple[str, ...],
    out: Path | None,
    listen: str,
    token: str | None,
    routing: str,
    metrics_urls: tuple[str, ...],
    poll_interval: float,
    agent: tuple[str, ...],
    redact: bool,  # noqa: FBT001 a flag of the command line
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

    Of claude, codex, opencode and mini the agent's own logs are kept besides, in sessions/NAME/logs of the run: those
    of the sessions that passed here, and no others. With --redact they are left where they are, since nothing in
    them is masked.

    While it records, a terminal shows sessions, threads, turns, tokens, cache hits, tool waits and the engines'
    gauges, and a log gets a line every 10 s. A COMMAND has the terminal to itself: then the view comes only with
    --view.

    With --redact the same text has the same mask everywhere in the run, so prompts still begin with those before
    them; the engine gets them as they are, and token counts are of that. Headers that carry keys, and keys in
    query strings, are never written, with or without it.

    Exits with 1 when no request came, with 130 when a COMMAND was interrupted; what came is written all the
    same.
    """
    shown = _shown(view=options.pop("view"), quiet=options.pop("quiet"), has_command=bool(agent))
    settings = power_settings(options) | switch_settings(options)
    if metrics_urls:
        settings["metrics_url"] = _pages(metrics_urls, len(upstreams))
    proxy = capture(
        upstreams,
        out=out or default_out("capture"),
        listen=listen,
        token=token,
        routing=routing,
        redact=redact,
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
        if agent:
            ending = _with_agent(proxy, agent, upstreams[0], shown, token)
        else:
            ending = _until_interrupted(proxy, shown, token)
    except BaseException:
        proxy.stop()
        raise
    run = proxy.stop()
    for note in run.manifest["notes"]:
        if note not in told:
            print_warning(note)
    logs = agent_logs.keep(run, agent[0], ending.environment, redacted=redact) if ending.environment else None
    return _report(proxy, run, ending, logs)


def _shown(*, view: bool, quiet: bool, has_command: bool) -> Shown:
    if view and quiet:
        raise click.UsageError("--view and --quiet exclude each other")
    if quiet:
        return Shown.NOTHING
    return Shown.LINES if has_command and not view else Shown.VIEW


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


def _until_interrupted(proxy: Proxy, shown: Shown, token: str | None) -> Ending:
    keys = " with the token as their API key" if token else ""
    urls = f"ANTHROPIC_BASE_URL={proxy.url} OPENAI_BASE_URL={proxy.url}/v1"
    print_note(f"point agents at it{keys}: {urls}; Ctrl-C ends it")
    try:
        _watch(proxy, lambda: proxy.done, shown)
    except KeyboardInterrupt:
        # The regular end of a capture without a command.
        return Ending(interrupted=False, exit_status=None)
    return Ending(interrupted=False, exit_status=None)


def _with_agent(proxy: Proxy, agent: tuple[str, ...], upstream: str, shown: Shown, token: str | None) -> Ending:
    pointed = child.point(agent, proxy.url, upstream, token)
    if pointed.added:
        print_note(f"set for {agent[0]}: {' '.join(pointed.added)}")
    process = child.start(pointed)
    try:
        _watch(proxy, lambda: process.poll() is not None, shown)
    except KeyboardInterrupt:
        child.end(process)
        return Ending(interrupted=True, exit_status=process.returncode, environment=pointed.environment)
    return Ending(interrupted=False, exit_status=process.returncode, environment=pointed.environment)


def _watch(proxy: Proxy, ended: Callable[[], bool], shown: Shown) -> None:
    with Status(shown) as status:
        while not ended():
            stats = proxy.stats()
            status.show(drawn(stats), line(stats))
            status.rest()


def _report(proxy: Proxy, run: Run, ending: Ending, logs: str | None) -> int:
    totals, stats = run.totals(), proxy.stats()
    if ending.exit_status:
        print_warning(f"the command ended with exit status {ending.exit_status}")
    if totals["turns"]:
        print_and_keep(run)
    results().print(f"run directory: {run.path}", soft_wrap=True, markup=False)
    if logs is not None:
        print_note(logs)
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
