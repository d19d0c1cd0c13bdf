"""What the prompts of a run would find in a prefix cache: from hashes where it holds them, from counts where not.

Three kinds of runs:

- *units*: prompts as units of text (recordings, imported conversations). A unit's tokens are told by its bytes: the
  run's prompt tokens over its prompts' bytes. The first new unit of a turn, where it is the assistant's, is the reply
  of the turn before.
- *blocks*: prompts as block hashes (Mooncake, Weka and their kin), of prompts alone.
- *counts*: neither. Blocks are minted for each conversation: a turn goes on from its thread's turn before and shares
  with it that turn's prompt and reply, as far as its own prompt goes; where the prompt is shorter than the one before
  (the context was cut), only what usage says was cached. What sessions share is unknown then.

Each run is a cache of its own. The arithmetic is `_reuse`'s.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ._reuse import Reuse, reuse_of_chains, reuse_of_counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .trace import Trace

MINTED_BLOCK_TOKENS = 16
"""Tokens in a block of engines as they come (vLLM's default), where a run does not tell another size."""
HASH_COLUMNS: dict[str, pl.DataType] = {
    "session_id": pl.String(),
    "thread_id": pl.String(),
    "turn": pl.UInt32(),
    "unit_hashes": pl.List(pl.String()),
    "block_hashes": pl.List(pl.String()),
    "block_size": pl.Int64(),
}
UNIT_COLUMNS: dict[str, pl.DataType] = {"hash": pl.String(), "role": pl.String(), "n_bytes": pl.Int64()}
NOT_REACHED = ("http_error", "upstream_error")
"""Outcomes of requests that no engine computed anything for."""
PLACE = ("session_id", "thread_id", "turn")


@dataclass(frozen=True)
class Planned:
    """The requests of one run in order of time, and what each could reuse.

    ``rows`` has the columns of `Trace.turns`, of the turns that reached an engine and tell their prompt tokens;
    ``reuse`` numbers requests by their place in it. ``prompt_tokens`` are theirs; of units, as the bytes tell them,
    and 0 where a run has hashes and a turn has none.
    ``kind`` is ``units``, ``blocks`` or ``counts``. ``is_timed``: the order is that of times, not that of the table.
    """

    run: str
    kind: str
    is_timed: bool
    rows: pl.DataFrame
    prompt_tokens: NDArray[np.int64]
    reuse: Reuse

    @property
    def knows_sharing(self) -> bool:
        """Whether hashes tell what conversations share."""
        return self.kind != "counts"

    @cached_property
    def depth(self) -> NDArray[np.int64]:
        """`Reuse.depth`, computed once."""
        return self.reuse.depth()

    @cached_property
    def is_aged(self) -> NDArray[np.bool_]:
        """Of each request, whether the age of all that it could reuse is known."""
        unknown = np.isnan(self.reuse.age_s) & self.reuse.in_prompt
        aged: NDArray[np.bool_] = np.bincount(self.reuse.request, weights=unknown, minlength=self.rows.height) == 0
        return aged


def planned(trace: Trace) -> list[Planned]:
    """Tell for each run of a trace what its prompts could reuse; runs without prompt tokens are left out."""
    turns = trace.turns.filter((pl.col("isl") > 0) & ~pl.col("outcome").is_in(NOT_REACHED))
    hashes = trace.read("turn_traces", HASH_COLUMNS)
    units = trace.read("messages", UNIT_COLUMNS) if hashes["unit_hashes"].list.len().sum() else None
    found = []
    for run in trace.runs:
        rows = turns.filter(pl.col("run") == run)
        if rows.height:
            of_run = pl.col("run") == run
            found.append(
                _planned_run(run, rows, hashes.filter(of_run), None if units is None else units.filter(of_run))
            )
    return found


def _planned_run(run: str, rows: pl.DataFrame, hashes: pl.DataFrame, units: pl.DataFrame | None) -> Planned:
    is_timed = rows["request_time"].null_count() == 0
    if is_timed:
        # A thread's turns stay in their order, also where its clock went back.
        at = pl.col("request_time").cum_max().over("thread").alias("at")
        rows = rows.sort("thread", "turn").with_columns(at).sort("at", maintain_order=True).drop("at")
    if hashes["block_hashes"].list.len().sum():
        prompt, reuse = _of_blocks(_with_chains(rows, hashes, "block_hashes"))
        return Planned(run, "blocks", is_timed, rows, prompt, reuse)
    if units is not None and hashes["unit_hashes"].list.len().sum():
        prompt, reuse = _of_units(_with_chains(rows, hashes, "unit_hashes"), units)
        return Planned(run, "units", is_timed, rows, prompt, reuse)
    return Planned(run, "counts", is_timed, rows, _integers(rows["isl"]), _of_counts(rows))


def _with_chains(rows: pl.DataFrame, hashes: pl.DataFrame, column: str) -> pl.DataFrame:
    chains = hashes.select(*PLACE, "block_size", pl.col(column).alias("chain")).unique(PLACE, keep="first")
    return rows.join(chains, on=PLACE, how="left", maintain_order="left").with_columns(
        pl.col("chain").fill_null([]).alias("chain")
    )


def _times(rows: pl.DataFrame) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Start and end of each request; the end is the start where only that is known."""
    end = pl.max_horizontal("response_end_time", "request_time")
    return _floats(rows["request_time"]), _floats(rows.select(end.alias("end"))["end"])


def _of_counts(rows: pl.DataFrame) -> Reuse:
    known = rows.with_row_index("place").select(
        "place", "thread", "turn", "isl", pl.col("osl").fill_null(0), pl.col("isl_cached").fill_null(0),
        "request_time", "response_end_time", "tool_exec_ms",
    )  # fmt: skip
    known = known.sort("thread", "turn", maintain_order=True)
    end = pl.max_horizontal("response_end_time", "request_time").cum_max().shift(1).over("thread")
    known = known.with_columns(
        pl.col("place").shift(1).over("thread").cast(pl.Int64).fill_null(-1).alias("before"),
        (pl.col("isl") + pl.col("osl")).shift(1).over("thread").fill_null(0).alias("left"),
        pl.col("isl").shift(1).over("thread").fill_null(0).alias("isl_before"),
        pl.coalesce(pl.col("request_time") - end, pl.col("tool_exec_ms") / 1e3).alias("age_s"),
    )
    kept = pl.when(pl.col("isl") >= pl.col("isl_before")).then(pl.min_horizontal("isl", "left")).otherwise(0)
    shared = pl.max_horizontal(kept, "isl_cached").clip(upper_bound=pl.col("left"))
    known = known.with_columns(shared.alias("shared")).sort("place")
    before, isl, osl, shared_tokens = (_integers(known[name]) for name in ("before", "isl", "osl", "shared"))
    return reuse_of_counts(before, isl, osl, shared_tokens, _floats(known["age_s"]), MINTED_BLOCK_TOKENS)


def _of_blocks(rows: pl.DataFrame) -> tuple[NDArray[np.int64], Reuse]:
    """Tokens and reuse of prompts of blocks: the last one, cut by the prompt's end, is no block of a cache."""
    sizes = rows["block_size"].drop_nulls()
    size = int(sizes.mode().sort().to_list()[0]) if len(sizes) else MINTED_BLOCK_TOKENS
    length = _integers(rows["chain"].list.len())
    isl = np.where(length > 0, _integers(rows["isl"]), 0)
    request = np.repeat(np.arange(len(length)), length)
    place = np.arange(len(request)) - np.repeat(np.cumsum(length) - length, length)
    ends = np.minimum((place + 1) * size, isl[request])
    return isl, reuse_of_chains(length, _ids(rows["chain"]), ends, isl, _times(rows), size)


def _of_units(rows: pl.DataFrame, units: pl.DataFrame) -> tuple[NDArray[np.int64], Reuse]:
    """Tokens and reuse of prompts of text: a unit is as many tokens as its share of the bytes says."""
    units = units.unique("hash", keep="first")
    replies = _replies(rows, units)
    n_prompt = _integers(rows["chain"].list.len())
    chains = rows.select(
        pl.when(replies.is_not_null()).then(pl.concat_list("chain", replies)).otherwise(pl.col("chain")).alias("chain")
    )["chain"]
    length = _integers(chains.list.len())
    flat = pl.DataFrame({"hash": _flat(chains)})
    sizes = flat.join(units.select("hash", "n_bytes"), on="hash", how="left", maintain_order="left")["n_bytes"]
    summed = np.concatenate([[0], np.cumsum(_integers(sizes.fill_null(0)))])
    first = np.concatenate([[0], np.cumsum(length)])[:-1]
    prompt_bytes = summed[first + n_prompt] - summed[first]
    isl = _integers(rows["isl"])
    tokens_per_byte = int(isl[prompt_bytes > 0].sum()) / max(int(prompt_bytes.sum()), 1)
    request = np.repeat(np.arange(len(length)), length)
    ends = ((summed[1:] - summed[first[request]]) * tokens_per_byte).astype(np.int64)
    prompt = (prompt_bytes * tokens_per_byte).astype(np.int64)
    ids = flat["hash"].hash().to_numpy()
    return prompt, reuse_of_chains(length, ids, ends, prompt, _times(rows), MINTED_BLOCK_TOKENS)


def _replies(rows: pl.DataFrame, units: pl.DataFrame) -> pl.Series:
    """Of each turn, its reply as a unit: what the next turn has right after this one's prompt, by the assistant."""
    of_thread = rows.with_row_index("place").select("place", "thread", "turn", "chain")
    of_thread = of_thread.sort("thread", "turn", maintain_order=True).with_columns(
        pl.col("chain").list.len().cast(pl.Int64).shift(1).over("thread").alias("n_before")
    )
    first_new = pl.col("chain").list.get(pl.col("n_before"), null_on_oob=True)
    found = of_thread.select("place", first_new.shift(-1).over("thread").alias("hash"))
    assistants = units.filter(pl.col("role") == "assistant").select("hash", pl.col("hash").alias("reply"))
    return found.join(assistants, on="hash", how="left").sort("place")["reply"]


def _ids(chains: pl.Series) -> NDArray[np.uint64]:
    """Numbers for hashes, in slices so that text never lies about as often as it is named."""
    rows = 20_000
    slices = [chains[start : start + rows] for start in range(0, len(chains), rows)]
    return np.concatenate([_flat(it).hash().to_numpy() for it in slices] or [np.zeros(0, dtype=np.uint64)])


def _flat(lists: pl.Series) -> pl.Series:
    return lists.filter(lists.list.len() > 0).explode()


def _integers(series: pl.Series) -> NDArray[np.int64]:
    return series.cast(pl.Int64).to_numpy().astype(np.int64)


def _floats(series: pl.Series) -> NDArray[np.float64]:
    return series.cast(pl.Float64).to_numpy().astype(np.float64)
