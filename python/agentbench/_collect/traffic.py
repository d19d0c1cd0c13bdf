"""What the proxy recorded of each session so far, read from the journals of a run that still goes.

Pure but for the reading: turns and tool calls in, tokens and a split of time out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

TURNS = "turn_traces.journal.jsonl"
CALLS = "tool_calls.journal.jsonl"

OK = "ok"
# The engine's failures; a request that the end of its agent cut off is none.
ENGINE_FAILED = ("http_error", "upstream_error")

Span = tuple[float, float]


@dataclass
class Traffic:
    """The requests and tool calls of one session."""

    requests: list[Span] = field(default_factory=list)
    calls: list[Span] = field(default_factory=list)
    isl: list[int] = field(default_factory=list)
    osl: list[int] = field(default_factory=list)
    isl_cached: list[int] = field(default_factory=list)
    answered: int = 0
    last: tuple[float, str, str | None] | None = None

    def add_turn(self, row: dict[str, Any]) -> None:
        """Take in a row of ``turn_traces``."""
        start = row["request_time"]
        self.requests.append((start, row.get("response_end_time") or start))
        self.answered += row["outcome"] == OK
        if self.last is None or start >= self.last[0]:
            self.last = (start, row["outcome"], row.get("error"))
        for name in ("isl", "osl", "isl_cached"):
            if row.get(name) is not None:
                getattr(self, name).append(row[name])

    def add_call(self, row: dict[str, Any]) -> None:
        """Take in a row of ``tool_calls``; a call whose result never came took no time that is known."""
        if row.get("result_time") is not None:
            self.calls.append((row["emitted_time"], row["result_time"]))

    def refusal(self, *, timed_out: bool) -> str | None:
        """Say why a session that came to its end was none of the agent's own doing; None when it was."""
        if not self.requests:
            return "no request came through the proxy"
        if not self.answered:
            return f"no request was answered: {self._last_error()}"
        if timed_out and self.last is not None and self.last[1] in ENGINE_FAILED:
            return f"the engine failed the last request: {self._last_error()}"
        return None

    def _last_error(self) -> str:
        return (self.last[2] or self.last[1]) if self.last is not None else "unknown"

    def split(self, start: float, end: float) -> tuple[float, float, float]:
        """Return the seconds for the model, for tools and for neither between two moments."""
        within = (start, end)
        model = _length(_clipped(self.requests, within))
        busy = _length(_clipped(self.requests + self.calls, within))
        return model, busy - model, (end - start) - busy


class Journals:
    """Reads what a capture appends to its journals, each line once."""

    def __init__(self, run: Path) -> None:
        self._run = run
        self._read: dict[str, int] = {}
        self._sessions: dict[str, Traffic] = {}
        self.turns = 0

    def read(self) -> None:
        """Read what was added."""
        for row in self._added(TURNS):
            self._sessions.setdefault(row["session_id"], Traffic()).add_turn(row)
            self.turns += 1
        for row in self._added(CALLS):
            self._sessions.setdefault(row["session_id"], Traffic()).add_call(row)

    def of(self, session_id: str) -> Traffic:
        """Return what was read of a session so far."""
        return self._sessions.get(session_id, Traffic())

    def _added(self, name: str) -> Iterator[dict[str, Any]]:
        try:
            file = (self._run / name).open("rb")
        except FileNotFoundError:
            return
        with file:
            file.seek(self._read.get(name, 0))
            for line in file:
                if not line.endswith(b"\n"):
                    # It is being written: the next reading begins here.
                    return
                self._read[name] = self._read.get(name, 0) + len(line)
                try:
                    row = json.loads(line)
                except ValueError:
                    continue
                if isinstance(row, dict) and "session_id" in row:
                    yield row


def _clipped(spans: Sequence[Span], within: Span) -> list[Span]:
    cut = [(max(start, within[0]), min(end, within[1])) for start, end in spans]
    return sorted(span for span in cut if span[0] < span[1])


def _length(spans: Sequence[Span]) -> float:
    """Return the length of a union of spans, which are in order."""
    total, reached = 0.0, float("-inf")
    for start, end in spans:
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
