"""Rows like TraceLab's, as many as it published, made up: what `analysis.py` measures on.

A session is a chain of rounds: the context grows by the reply and by new tokens, is cut when the window is full, and
what was cached is lost when a wait was long. Distributions are round figures after the published ones; nothing here
is anybody's data. The same seed gives the same bytes.
"""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

SESSIONS, ROUNDS, CALLS = 4_265, 357_161, 432_510
ROUNDS_A_REQUEST = 8.8
TOOLS = {
    "claude": (
        ["Bash", "Read", "Edit", "Grep", "Write", "Task", "WebFetch"],
        [0.44, 0.22, 0.17, 0.08, 0.05, 0.02, 0.02],
    ),
    "codex": (["shell", "apply_patch", "update_plan", "view_image"], [0.78, 0.14, 0.06, 0.02]),
}
MODELS = {"claude": "claude-made-up-1", "codex": "gpt-made-up-1"}
WINDOW = {"claude": 400_000, "codex": 240_000}
CACHE_KEPT_S = 480.0
START_MS = 1_772_000_000_000


@dataclass
class Rounds:
    """Columns of all rounds, one session after another."""

    session: NDArray[np.int64]
    index: NDArray[np.int64]
    by_user: NDArray[np.bool_]
    n_calls: NDArray[np.int64]
    prefix: NDArray[np.int64]
    append: NDArray[np.int64]
    output: NDArray[np.int64]
    asked_ms: NDArray[np.int64]
    ended_ms: NDArray[np.int64]


def write(path: Path, seed: int = 7, share: float = 1.0) -> dict[str, int]:
    """Write the rows, gzipped; of a smaller share, as many fewer. Returns the counts."""
    rng = np.random.default_rng(seed)
    sessions, rounds, calls = (max(int(n * share), 4) for n in (SESSIONS, ROUNDS, CALLS))
    made = _rounds(rng, sessions, rounds, calls)
    with gzip.open(path, "wt", compresslevel=6, encoding="utf-8") as out:
        _write_rows(out, made, rng)
    return {"sessions": sessions, "rounds": len(made.session), "tool_calls": int(made.n_calls.sum())}


def _rounds(rng: np.random.Generator, sessions: int, rounds: int, calls: int) -> Rounds:
    weights = rng.lognormal(0.0, 1.3, sessions)
    sizes = np.maximum((weights / weights.sum() * (rounds - sessions)).astype(np.int64), 0) + 1
    sizes[: rounds - int(sizes.sum())] += 1
    session = np.repeat(np.arange(sessions), sizes)
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    index = np.arange(rounds) - first[session]
    by_user = (index == 0) | (rng.random(rounds) < 1.0 / ROUNDS_A_REQUEST)
    calls_follow = np.concatenate([~by_user[1:], [False]])
    n_calls = calls_follow.astype(np.int64)
    extra = max(calls - int(n_calls.sum()), 0)
    np.add.at(n_calls, rng.choice(np.flatnonzero(calls_follow), extra), 1)
    output = np.maximum(rng.lognormal(np.log(214), 1.25, rounds), 1).astype(np.int64)
    fresh = np.where(by_user, rng.lognormal(np.log(180), 1.1, rounds), rng.lognormal(np.log(520), 1.5, rounds))
    wait_s = np.where(by_user, rng.lognormal(np.log(86), 2.1, rounds), rng.lognormal(np.log(0.6), 2.0, rounds))
    span_s = output / rng.lognormal(np.log(45), 0.4, rounds) + rng.lognormal(np.log(1.8), 0.5, rounds)
    prefix, append = _contexts(rng, session, index, fresh.astype(np.int64), output, wait_s)
    starts = START_MS + rng.integers(0, 90 * 86_400_000, sessions)
    passed_ms = np.cumsum((wait_s + span_s) * 1e3)
    asked_ms = starts[session] + (passed_ms - span_s * 1e3 - passed_ms[first[session]]).astype(np.int64)
    ended_ms = asked_ms + np.maximum(span_s * 1e3, 40).astype(np.int64)
    return Rounds(session, index, by_user, n_calls, prefix, append, output, asked_ms, ended_ms)


def _contexts(
    rng: np.random.Generator,
    session: NDArray[np.int64],
    index: NDArray[np.int64],
    fresh: NDArray[np.int64],
    output: NDArray[np.int64],
    wait_s: NDArray[np.float64],
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Walk through every session: what was there, what came, what was still cached."""
    begin = rng.lognormal(np.log(28_000), 0.5, len(session)).astype(np.int64)
    prefix, append = np.zeros_like(fresh), np.zeros_like(fresh)
    total = 0
    for at, (place, new, kept) in enumerate(
        zip(index.tolist(), fresh.tolist(), (wait_s < CACHE_KEPT_S).tolist(), strict=True)
    ):
        if place == 0:
            had, total = int(begin[at]) // 2, int(begin[at])
        elif total > WINDOW["codex" if session[at] % 2 else "claude"]:
            had, total = 14_000, int(begin[at])
        else:
            had = total if kept else min(total, 14_000)
            total += int(output[at - 1]) + new
        prefix[at], append[at] = min(had, total - 1), max(total - had, 1)
    return prefix, append


def _scattered(number: int) -> str:
    """Return an id as long and as hard to compress as real ones."""
    low = (number + 1) * 0x9E3779B97F4A7C15F39CC0605CEDC835
    return f"{low >> 7 & (1 << 96) - 1:024x}"


def _stamps(ms: NDArray[np.int64]) -> list[str]:
    return [f"{text}Z" for text in np.datetime_as_string(ms.astype("datetime64[ms]"), unit="ms").tolist()]


def _write_rows(out: IO[str], made: Rounds, rng: np.random.Generator) -> None:
    """Write row by row; a call's result is what the next round begins with."""
    asked, ended, n_calls = _stamps(made.asked_ms), _stamps(made.ended_ms), made.n_calls.tolist()
    names = {name: iter(rng.choice(tools, len(asked) * 2, p=odds).tolist()) for name, (tools, odds) in TOOLS.items()}
    sizes = iter(rng.lognormal(np.log(700), 1.4, len(asked) * 2).astype(np.int64).tolist())
    results: list[dict[str, Any]] = []
    for at, (session, index) in enumerate(zip(made.session.tolist(), made.index.tolist(), strict=True)):
        provider = "codex" if session % 2 else "claude"
        if index == 0:
            results = []
        tools = [
            {
                "tool_index": place,
                "tool_name": next(names[provider]),
                "tool_call_id": f"toolu_{_scattered(at * 99 + place)}",
                "emitted_at": ended[at],
                "input_chars": 168,
                "result_chars": next(sizes),
                "tool_wall_latency_ms": max(int(made.asked_ms[at + 1] - made.ended_ms[at]), 1),
                "tool_internal_latency_ms": None,
                "is_error": False,
                "result_at": asked[at + 1],
            }
            for place in range(n_calls[at])
        ]
        events = results or [_event("user_message", asked[at], "user.message", content_chars=140)]
        calls = [_event("tool_call", ended[at], "assistant.content.tool_use", **_called(tool)) for tool in tools]
        said = [
            _event(kind, ended[at], f"assistant.content.{kind}", content_chars=116)
            for kind, is_there in (("reasoning", at % 6 != 0), ("text", at % 6 != 1))
            if is_there
        ]
        if provider == "codex":
            calls.append(_event("usage_report", ended[at], "event_msg.token_count"))
        row = _round(made, at, provider, f"{provider}:{_scattered(session)}")
        row |= {
            "timing_events": [*events, *said, *calls], "tools": tools, "current_input_event_count": len(events),
            "current_user_message_count": int(not results), "current_tool_result_count": len(results),
            "first_input_event_type": events[0]["event_type"], "store": f".{provider}",
            "trace_key": f"{provider}:{row['session_id']}:{row['round_id']}",
        }  # fmt: skip
        out.write(json.dumps(row, separators=(",", ":")) + "\n")
        results = [
            _event("tool_result", tool["result_at"], "user.content.tool_result", tool_call_id=tool["tool_call_id"],
                   result_chars=tool["result_chars"], is_error=False)
            for tool in tools
        ]  # fmt: skip


def _round(made: Rounds, at: int, provider: str, session_id: str) -> dict[str, Any]:
    prefix, append, output = int(made.prefix[at]), int(made.append[at]), int(made.output[at])
    is_claude = provider == "claude"
    written = append - append // 3
    return {
        "provider": provider, "project": f"project_{int(made.session[at]) % 97:08x}", "session_id": session_id,
        "round_index": int(made.index[at]), "round_id": f"msg_{_scattered(at)}", "model": MODELS[provider],
        "input_tokens_total": prefix + append, "prefix_tokens": prefix, "newly_append_tokens": append,
        "claude_uncached_input_tokens": append - written if is_claude else None,
        "claude_cache_creation_input_tokens": written if is_claude else None,
        "claude_cache_read_input_tokens": prefix if is_claude else None,
        "output_tokens": output, "reasoning_output_tokens": None if is_claude else output // 4,
    }  # fmt: skip


def _event(kind: str, at: str, source: str, **more: Any) -> dict[str, Any]:
    return {"event_type": kind, "timestamp": at, "source": source, **more}


def _called(tool: dict[str, Any]) -> dict[str, Any]:
    return {name: tool[name] for name in ("tool_call_id", "tool_name", "tool_index")}
