"""What a reader must know before any figure of a run, the gravest first.

The core says most of it in notes, whose text is kept; what a note does not say follows from the summary and the
manifest themselves, so that no flag hangs on the wording of a note.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from agentbench._figures import number
from agentbench._report.replayed import headline_part
from agentbench._report.sections import Flag

if TYPE_CHECKING:
    from collections.abc import Iterator

GRAVE = (
    "simulated",
    "client-limited",
    "killed or still running",
    "killed",
    "interrupted",
    "ended early",
    "worker lost",
    "rows dropped",
    "failed requests",
    "invalid",
    "no steady state",
    "energy invalid",
    "output lengths differ",
    "speed overstated",
)
"""Figures of a run with one of these cannot be used as they are. In the order shown."""

CAUTIONS = (
    "not saturated",
    "unstable",
    "a first look",
    "cache not emptied",
    "lengths not pinned",
    "lengths not verified",
    "prefix hits disagree",
    "engine restarted",
    "engine counters incomplete",
    "converted",
    "synthetic recording",
    "preset changed",
    "waits changed",
    "clocks not agreed",
)
OTHER = "note"
NO_API = "synthetic"
CLIENT_REMEDY = "give agentbench more cores or a machine of its own, or fewer agents"
"""What to do about a client that was the bottleneck."""
UNSEEN_SHARE = 0.1
"""Share of a response's time after its last chunk with output above which its speed is overstated."""

NAMES = (
    ("simulated", r"the engine is simulated"),
    ("client-limited", r"client[- ]limited|the client was the bottleneck"),
    ("ended early", r"ended early"),
    ("no steady state", r"no steady state"),
    ("output lengths differ", r"\d+ outputs are shorter or longer"),
    ("a first look", r"preset quick"),
    ("preset changed", r"preset \w+ \(changed"),
    ("unstable", r"a level passed once and failed once"),
    ("cache not emptied", r"the engine's cache (was not|could not be) emptied"),
    ("prefix hits disagree", r"prefix hit rates disagree"),
    ("engine restarted", r"an engine was restarted"),
    ("engine counters incomplete", r"no poll came after the last response"),
    ("converted", r"requests recorded in the \w+ API were converted"),
    ("synthetic recording", r"the recording is synthetic"),
    ("speed overstated", r"the speed of level .* is overstated"),
    ("worker lost", r"worker \d+ was lost"),
    ("clocks not agreed", r"worker \d+'s clock"),
    ("waits changed", r"waits for (tools|humans) are not as recorded"),
)
"""Which flag a note of the core is, by how it begins."""

SAID_ELSEWHERE = re.compile(r"the figures beside the level table|power: none \(")
"""Notes that the report says in another place."""


def flags(summary: dict[str, Any], manifest: dict[str, Any]) -> tuple[Flag, ...]:
    """Return the flags of a run."""
    result = (summary.get("capacity") or {}).get("result")
    notes = dict.fromkeys([*summary.get("notes", []), *manifest["notes"]])
    found = [_flag(_name_of(note), note) for note in notes if note != result and not SAID_ELSEWHERE.match(note)]
    seen = {flag.name for flag in found}
    found += [_flag(name, text) for name, text in _structural(summary, manifest) if name not in seen]
    order = [*GRAVE, *CAUTIONS, OTHER]
    return tuple(sorted(found, key=lambda flag: order.index(flag.name)))


def _flag(name: str, text: str) -> Flag:
    return Flag(name, text, grave=name in GRAVE)


def _name_of(note: str) -> str:
    return next((name for name, pattern in NAMES if re.match(pattern, note)), OTHER)


def _structural(summary: dict[str, Any], manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Flags that follow from figures; each once."""
    yield from _of_the_recording(manifest)
    if "totals" in summary:
        yield from _of_turns(summary)
        return
    yield from _of_requests(summary)
    if summary.get("capacity"):
        yield from _of_a_search(summary["capacity"], manifest)
    yield from _of_power(summary.get("power"))


def _of_the_recording(manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if (manifest.get("engine") or {}).get("simulated"):
        yield "simulated", "the engine is simulated: no figure says anything about any hardware"
    if not manifest["complete"]:
        yield (
            "killed or still running",
            "the run was never closed: its figures are of the rows that had reached the disk, its last second may lack",
        )
    elif manifest["partial"]:
        yield (
            "killed",
            "the run was killed and closed or carried on later: of the last second before that rows may lack",
        )
    lost = {table: rows for table, rows in manifest["dropped"].items() if rows}
    counts = manifest["counts"]
    lost |= {name: counts[name] for name in ("rows_lost", "turns_dropped") if counts.get(name)}
    if lost:
        listed = ", ".join(f"{rows:,} of {name.replace('_', ' ')}" for name, rows in sorted(lost.items()))
        yield "rows dropped", f"rows were lost, figures are of the others: {listed}"
    if manifest["synthetic"]:
        yield "synthetic recording", "the recording is synthetic: made up after published statistics"
    if counts.get("engine_restarts"):
        yield "engine restarted", "an engine was restarted during the run: its counters give no figure"


def _of_turns(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    totals = summary["totals"]
    if totals["failed"]:
        outcomes = ", ".join(f"{n:,} {name}" for name, n in summary["outcomes"].items() if name != "ok")
        yield (
            "failed requests",
            f"{totals['failed']:,} of {totals['turns']:,} turns were not answered whole: {outcomes}",
        )


def _of_requests(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    requests, labels = summary["requests"], summary["labels"]
    if (summary.get("client") or {}).get("limited"):
        yield "client-limited", f"the figures are the client's as much as the engine's: {CLIENT_REMEDY}"
    if summary["settings"].get("ended_by") == "shutdown":
        yield "interrupted", f"the run was told to stop: {requests['cancelled']:,} requests were cut off"
    if summary["settings"].get("ended_by") in {"failed_request", "error_rate"}:
        yield "ended early", "failed requests ended the run: what was on its way was cut off"
    if requests["failed"]:
        kinds = ", ".join(f"{error['n']:,} x {error['kind']}" for error in summary["errors"])
        told = f"{requests['failed']:,} of {requests['sent']:,} requests failed ({kinds}); latencies are of the others"
        yield "failed requests", told
    if requests["sent"] and not summary["steady"]["requests"]["sent"] and not summary.get("agent"):
        yield "no steady state", "no request was sent in a steady state: only the whole run has figures"
    yield from _of_lengths(summary)
    yield from _of_unseen_output(summary)
    if summary["prefix_hits"]["disagree"]:
        yield "prefix hits disagree", "planned, usage and engine prefix hit rates are more than 2 points apart"
    # What was imported or planned without an API is in none.
    if labels.get("converted") and any(route["recorded"] != NO_API for route in summary["settings"]["routes"]):
        yield "converted", "requests were sent in another API than the recorded one"
    if labels.get("synthetic_trace"):
        yield "synthetic recording", "the recording is synthetic: made up after published statistics"


def _of_unseen_output(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Responses that go on long after their last chunk with output: tokens come whose time is not seen."""
    # A search's levels say it themselves.
    if (summary.get("capacity") or {}).get("speed_overstated_levels"):
        return
    fields = headline_part(summary)[1]["fields"]
    if {"e2e_ms", "last_token_ms"} <= fields.keys():
        whole_ms, seen_ms = fields["e2e_ms"]["mean"], fields["last_token_ms"]["mean"]
        if whole_ms - seen_ms > UNSEEN_SHARE * whole_ms:
            told = f"the mean response ends {number((whole_ms - seen_ms) / 1e3)} s after its last chunk with output"
            yield "speed overstated", f"{told}: TPOT and output speed count tokens whose time they do not see"


def _of_lengths(summary: dict[str, Any]) -> Iterator[tuple[str, str]]:
    lengths, settings = summary["output_length"], summary["settings"]
    off = lengths["short"] + lengths["long"]
    if off:
        told = f"{off:,} outputs are shorter or longer than asked for: rates and latencies are not those of the target"
        yield "output lengths differ", told
    pinned = summary["labels"].get("output_length")
    if pinned in {"ignored", "refused", "unknown"} and settings.get("output_length") != "natural":
        yield "lengths not pinned", f"pinning of output lengths is {pinned} by the engine"
    if lengths["unverified"] and not summary.get("agent"):
        yield "lengths not verified", f"{lengths['unverified']:,} outputs have no length to hold against a target"


def _of_a_search(capacity: dict[str, Any], manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if capacity.get("client_limited"):
        yield "client-limited", f"the client was the bottleneck at a level, so there is no result: {CLIENT_REMEDY}"
    if capacity["settings"].get("interrupted"):
        yield "interrupted", "the search was not finished: more agents may be possible"
    if capacity["max_agents"] is None:
        if not capacity.get("client_limited"):
            yield "invalid", "no level could be judged: there is no result"
    elif capacity["invalid"]:
        yield "invalid", "a level could not be judged: the answer is only the most that was proved"
    elif not capacity["saturated"]:
        yield "not saturated", "no failing level was seen: the answer is the search's bound, no limit of the engine"
    if capacity.get("unstable"):
        yield "unstable", "a level was judged both ways when it was tried again: the lower answer is given"
    sampled = (manifest["settings"].get("power") or {}).get("source")
    power = capacity.get("mean_power_w") or {}
    if sampled and power.get("value") is None and capacity["max_agents"]:
        yield "energy invalid", f"no valid power figure from {sampled}: {power.get('reason')}"


def _of_power(power: dict[str, Any] | None) -> Iterator[tuple[str, str]]:
    if power and power["source"] and not power["valid"]:
        yield "energy invalid", f"no valid figure from {power['source']}: {power['reason']}"
