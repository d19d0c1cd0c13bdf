"""How far a collection is, at one moment."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

WINDOW_SECONDS = 10.0


@dataclass(frozen=True)
class CollectProgress:
    """How far a collection is.

    Attributes
    ----------
    total
        Instances of the run.
    done, timed_out, failed
        What came of those that ended, earlier parts of a resumed run included.
    running
        Ids of those that are being worked on.
    turns, isl, osl
        Requests recorded since this part of the run began, and sums of their tokens.
    output_tokens_per_s
        Output tokens over the last ten seconds; None until there are two readings.
    rows_dropped
        Rows that the recording could not keep up with.
    elapsed_s
        Seconds since this part of the run began.
    """

    __module__ = "agentbench"

    total: int
    done: int
    timed_out: int
    failed: int
    running: tuple[str, ...]
    turns: int
    isl: int
    osl: int
    output_tokens_per_s: float | None
    rows_dropped: int
    elapsed_s: float


class Rate:
    """A count's growth per second over the last readings."""

    def __init__(self) -> None:
        self._readings: deque[tuple[float, int]] = deque()

    def add(self, count: int) -> float | None:
        """Take in a reading; return the rate over the window."""
        now = time.monotonic()
        self._readings.append((now, count))
        while len(self._readings) > 2 and self._readings[1][0] <= now - WINDOW_SECONDS:  # noqa: PLR2004 both ends
            self._readings.popleft()
        start, earlier = self._readings[0]
        return (count - earlier) / (now - start) if now > start else None
