"""A run of many requests for the tests of reports: a short replay's tables, over and over, later and by more agents."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import polars as pl

import agentbench as package

if TYPE_CHECKING:
    from pathlib import Path

AGENTS = 40


def inflated(run: package.Run, to: Path, requests: int, failed_every: int = 0) -> package.Run:
    """Return a run of so many requests in a folder of its own, whose summary is computed anew.

    Each copy of the replay begins where the one before ended, by agents counted on. Of `failed_every` requests one
    has failed.
    """
    shutil.copytree(run.path, to)
    (to / "summary.json").unlink()
    sent = run.requests().to_polars()
    copies = -(-requests // len(sent))
    span_ms = float((sent["sent_at_ms"] + sent["e2e_ms"].fill_null(0.0)).max())  # type: ignore[arg-type]
    agents = int(sent["agent_id"].max()) + 1  # type: ignore[arg-type]
    shifted = [
        sent.with_columns(
            pl.col("sent_at_ms") + copy * span_ms,
            pl.col("due_at_ms") + copy * span_ms,
            ((pl.col("agent_id") + copy * agents) % AGENTS).cast(pl.UInt32),
        )
        for copy in range(copies)
    ]
    many = pl.concat(shifted).head(requests)
    if failed_every:
        fails = pl.int_range(pl.len()) % failed_every == 0
        many = many.with_columns(
            pl.when(fails).then(pl.lit("failed")).otherwise(pl.col("status").cast(pl.String)).alias("status"),
            pl.when(fails).then(pl.lit("http 503: </script><script>alert(1)</script> busy")).alias("error"),
        )
    many.write_parquet(to / "requests.parquet")
    polls = run.engine_samples().to_polars()
    pl.concat([polls.with_columns(pl.col("ts") + copy * span_ms / 1e3) for copy in range(copies)]).write_parquet(
        to / "engine_samples.parquet"
    )
    return package.Run.open(to)
