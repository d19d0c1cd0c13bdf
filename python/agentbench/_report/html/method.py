"""How a report's figures are defined, and every setting of the run as it was kept."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFINITIONS = (
    (
        "TTFT",
        "From the start of a request's first attempt to the first chunk that carries text, reasoning or a tool call.",
    ),
    ("E2E", "From the start of the first attempt to the end of the stream."),
    ("TPOT", "(last chunk with output - first chunk with output) / (output tokens - 1), from 2 tokens on."),
    ("output speed", "(output tokens - 1) / (last chunk with output - first chunk with output), for each request."),
    (
        "ITL and chunk gap",
        "A chunk gap lies between two chunks with output; the tokens of a chunk share its gap as their ITL.",
    ),
    ("ISL, OSL", "Prompt tokens and output tokens of a request, by the response's own usage."),
    (
        "steady state",
        (
            "After the ramp and every agent's first full turn, until the first agent has nothing left to start."
            " Requests sent in it count, whenever they end."
        ),
    ),
    (
        "prefix hit rate",
        (
            "Prompt tokens served from cache over prompt tokens: planned from the recording, told by the responses'"
            " usage, counted by the engine."
        ),
    ),
    ("start", "On charts over time: the start of the run's clock; of a recording its first request."),
    ("percentiles", "Linear interpolation between the closest ranks, as numpy has them by default."),
    (
        "verdict",
        "Each word needs its threshold; the worst word counts. A failed request counts as the worst possible value.",
    ),
    (
        "service level",
        "Conditions that must all hold over the judged requests; a failed request violates every latency condition.",
    ),
    (
        "energy",
        (
            "The device's energy counter where it has one, else the trapezoid over the samples; an invalid figure is"
            " none, with its reason."
        ),
    ),
    ("unknown", "A dash: not measured or not told. Never 0."),
)
NO_SETTINGS = {"notes"}


def settings_rows(summary: dict[str, Any], manifest: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield every setting by its path, as it was kept."""
    kept = dict(manifest["settings"])
    if "settings" in summary:
        kept["replay"] = summary["settings"]
    yield from _flat(kept, "")


def _flat(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            if name not in NO_SETTINGS:
                yield from _flat(inner, f"{path}.{name}" if path else name)
    else:
        yield path, value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
