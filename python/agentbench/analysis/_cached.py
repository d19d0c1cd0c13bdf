"""Tables of the question `cache`, from what prompts could reuse (`_planned`) and what usage says. Frames in and out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from ._stats import share

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ._planned import Planned

PUBLISHED_RETENTIONS = {"1 min": (60.0, "85.4 %"), "5 min": (300.0, "~94 %"), "1 h": (3_600.0, "98.6 %")}
"""Retention times with TraceLab's hits (field of coding agents, 357,161 rounds)."""
RETENTIONS_S = {
    "10 s": 10.0,
    "1 min": 60.0,
    "5 min": 300.0,
    "10 min": 600.0,
    "1 h": 3_600.0,
    "4 h": 14_400.0,
    "for ever": np.inf,
}
APPEND_CLASSES = ((0, 256), (256, 1_024), (1_024, 4_096), (4_096, 16_384), (16_384, 65_536), (65_536, None))
PAUSES_S = {"up to 1 min": 60.0, "1 to 5 min": 300.0, "5 min to 1 h": 3_600.0, "over 1 h": np.inf}
ENOUGH, NEARLY_ALL = 0.95, 0.999
CURVE_POINTS = 300
TRIGGERS = {"user": "user message", "tool": "tool result", "agent": "parent agent", "retry": "retry"}
COLUMNS = (
    "run", "thread", "turn", "trigger", "request_time", "isl", "isl_cached", "osl", "tool_exec_ms", "e2e_ms",
)  # fmt: skip


def cached_turns(plans: list[Planned]) -> pl.DataFrame:
    """Return each turn with its append, its fresh and cacheable tokens, its wait, and an endless cache's hits.

    ``fresh`` and ``cacheable`` are null without a turn before in its thread; ``append`` where usage tells no cached
    tokens; ``wait_s`` where the wait is not known.
    """
    found = [
        plan.rows.select(
            *COLUMNS,
            pl.Series("planned_isl", plan.prompt_tokens),
            pl.Series("endless", plan.reuse.ideal_hits()),
        )
        for plan in plans
    ]
    if not found:
        schema = dict.fromkeys(COLUMNS, pl.Int64) | {"planned_isl": pl.Int64, "endless": pl.Int64, "trigger": pl.String}
        found = [pl.DataFrame(schema=schema | {"tool_exec_ms": pl.Float64, "e2e_ms": pl.Float64})]
    rows = pl.concat(found).sort("thread", "turn", maintain_order=True)
    append = (pl.col("isl") - pl.col("isl_cached")).clip(lower_bound=0)
    growth = (pl.col("isl") - pl.col("isl").shift(1).over("thread")).clip(lower_bound=0)
    rows = rows.with_columns(
        append.alias("append"),
        (pl.col("tool_exec_ms") / 1e3).alias("wait_s"),
        (growth - pl.col("osl").shift(1).over("thread").fill_null(0)).clip(lower_bound=0).alias("grown"),
    )
    # Where usage does not tell the append, nothing bounds what is fresh but the growth itself.
    most = pl.coalesce("append", "isl")
    rows = rows.with_columns(pl.when(pl.col("grown") > most).then(most).otherwise(pl.col("grown")).alias("fresh"))
    return rows.with_columns((pl.col("isl") - pl.col("fresh")).alias("cacheable")).drop("grown", "tool_exec_ms")


def by_trigger(turns: pl.DataFrame) -> pl.DataFrame:
    """Return hits, appended and fresh tokens by what set the turns off, all turns last."""
    names = pl.col("trigger").replace_strict(TRIGGERS, default="not told").alias("trigger")
    order = [*TRIGGERS.values(), "not told"]
    told = turns.with_columns(names)
    made = [
        _hits_row(told.filter(pl.col("trigger") == name), name) for name in order if (told["trigger"] == name).any()
    ]
    return pl.concat([*made, _hits_row(told, "all")]) if turns.height else _hits_row(told, "all").clear()


def _hits_row(turns: pl.DataFrame, name: str) -> pl.DataFrame:
    told = pl.col("isl_cached").is_not_null()
    paired = told & pl.col("fresh").is_not_null()
    append, fresh = pl.col("append").filter(paired).sum(), pl.col("fresh").filter(paired).sum()
    any_told = told.any()
    return turns.select(
        pl.lit(name).alias("trigger"),
        pl.len().cast(pl.Int64).alias("turns"),
        _pct(pl.col("isl_cached").sum(), pl.col("isl").filter(told).sum()).alias("hits_pct"),
        (pl.col("isl_cached") / pl.col("isl") * 100.0).median().alias("hits_p50_pct"),
        _pct(pl.col("endless").sum(), pl.col("planned_isl").sum()).alias("endless_hits_pct"),
        pl.when(any_told).then(pl.col("append").sum()).alias("append_tokens"),
        pl.when(any_told).then(_pct(fresh, append)).alias("fresh_pct"),
        pl.when(any_told & (fresh > 0)).then(append / fresh).alias("amplification"),
    )


def _pct(part: pl.Expr, whole: pl.Expr) -> pl.Expr:
    return pl.when(whole > 0).then(part / whole * 100.0)


def append_sizes(turns: pl.DataFrame) -> pl.DataFrame:
    """Return turns and appended tokens by classes of the append."""
    told = turns.filter(pl.col("append").is_not_null())
    rows = []
    for low, high in APPEND_CLASSES:
        within = told.filter((pl.col("append") >= low) & ((pl.col("append") < high) if high else pl.lit(value=True)))
        label = (
            f"{_short(low)} to {_short(high)}"
            if low and high
            else f"under {_short(high)}"
            if high
            else f"{_short(low)} or more"
        )
        rows.append((label, within.height, int(within["append"].sum())))
    made = pl.DataFrame(rows, schema={"append_tokens": pl.String, "turns": pl.Int64, "tokens": pl.Int64}, orient="row")
    if not told.height:
        made = made.clear()
    return made.select(
        "append_tokens", "turns",
        _pct(pl.col("turns"), pl.col("turns").sum()).alias("turns_pct"),
        pl.col("tokens").alias("appended_tokens"),
        _pct(pl.col("tokens"), pl.col("tokens").sum()).alias("append_pct"),
    )  # fmt: skip


def _short(tokens: int | None) -> str:
    return "" if tokens is None else f"{tokens // 1_024}K" if tokens >= 1_024 else str(tokens)  # noqa: PLR2004


@dataclass(frozen=True)
class IdleRule:
    """TraceLab's rule: all that is cacheable hits within the retention time, nothing after it.

    Waits are in order; ``found`` and ``waited_s`` are running sums over them, of cacheable tokens and of seconds.
    """

    n: int
    waits_s: NDArray[np.float64]
    found: NDArray[np.float64]
    waited_s: NDArray[np.float64]
    isl: float
    fresh: float
    generation_s: float

    def _within(self, retention_s: float) -> int:
        return int(np.searchsorted(self.waits_s, retention_s, side="right"))

    def hits_pct(self, retention_s: float) -> float | None:
        """Hits in percent of prompt tokens."""
        return share(float(self.found[self._within(retention_s)]), self.isl)

    def amplification(self, retention_s: float) -> float | None:
        """Prefilled tokens over fresh ones."""
        lost = self.found[-1] - self.found[self._within(retention_s)]
        return float(self.fresh + lost) / self.fresh if self.fresh else None

    def idle_ratio(self, retention_s: float) -> float | None:
        """Time in which KV is kept without use over time in which responses are made."""
        within = self._within(retention_s)
        over = self.n - within
        kept_s = self.waited_s[within] + (over * retention_s if over else 0.0)
        return float(kept_s) / self.generation_s if self.generation_s and self.n else None


def idle_rule(turns: pl.DataFrame) -> IdleRule:
    """Prepare the rule over the turns that have a turn before in their thread and a known wait."""
    covered = turns.filter(pl.col("fresh").is_not_null() & pl.col("wait_s").is_not_null()).sort("wait_s")

    def running(column: str) -> NDArray[np.float64]:
        summed: NDArray[np.float64] = np.concatenate([[0.0], np.cumsum(covered[column].to_numpy().astype(np.float64))])
        return summed

    return IdleRule(
        n=covered.height,
        waits_s=covered["wait_s"].to_numpy().astype(np.float64),
        found=running("cacheable"),
        waited_s=running("wait_s"),
        isl=float(covered["isl"].sum()),
        fresh=float(covered["fresh"].sum()),
        generation_s=float(turns["e2e_ms"].sum() or 0.0) / 1e3,
    )


def retentions(plans: list[Planned], ruled: IdleRule) -> pl.DataFrame:
    """Return what keeping blocks for some times gives, by both rules."""
    rows = [
        (
            name, _chained_hits_pct(plans, seconds), ruled.hits_pct(seconds), ruled.amplification(seconds),
            ruled.idle_ratio(seconds) if np.isfinite(seconds) else None,
        )
        for name, seconds in RETENTIONS_S.items()
    ]  # fmt: skip
    columns = ("chained_hits_pct", "idle_rule_hits_pct", "amplification", "kv_idle_ratio")
    schema = {"kept": pl.String} | dict.fromkeys(columns, pl.Float64)
    made = pl.DataFrame(rows, schema=schema, orient="row")
    return made if plans else made.clear()


def _chained_hits_pct(plans: list[Planned], retention_s: float) -> float | None:
    hits = sum(int(plan.reuse.hits(retention_s)[plan.is_aged].sum()) for plan in plans)
    return share(hits, sum(int(plan.prompt_tokens[plan.is_aged].sum()) for plan in plans))


def retention_curve(plans: list[Planned]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return retention times and the hits of chained blocks in percent, for a figure; empty where no wait is known."""
    ages, tokens = np.zeros(0), np.zeros(0)
    for plan in plans:
        chosen = plan.reuse.in_prompt & plan.is_aged[plan.reuse.request]
        ages = np.concatenate([ages, plan.reuse.age_s[chosen]])
        tokens = np.concatenate([tokens, plan.reuse.tokens[chosen].astype(np.float64)])
    whole = sum(int(plan.prompt_tokens[plan.is_aged].sum()) for plan in plans)
    if not len(ages) or not whole:
        return np.zeros(0), np.zeros(0)
    order = np.argsort(ages, kind="stable")
    running = np.concatenate([[0.0], np.cumsum(tokens[order])])
    seconds = np.geomspace(1.0, max(float(ages.max()), 3_600.0), CURVE_POINTS)
    return seconds, running[np.searchsorted(ages[order], seconds, side="right")] / whole * 100.0


def capacities(plans: list[Planned]) -> pl.DataFrame:
    """Return the hits of caches of some sizes, up to one that holds everything."""
    schema = {"capacity_tokens": pl.Int64, "hits_pct": pl.Float64}
    if not plans:
        return pl.DataFrame(schema=schema)
    rows = [(capacity, _lru_hits_pct(plans, capacity)) for capacity in _sizes(plans)]
    return pl.DataFrame(rows, schema=schema, orient="row")


def _sizes(plans: list[Planned]) -> list[int]:
    """Powers of two from a part of the largest prompt up to a cache that has all but a thousandth of the hits."""
    largest = max(int(plan.reuse.used_tokens.max()) for plan in plans)
    enough = enough_capacity(plans, NEARLY_ALL) or largest
    low = int(np.log2(max(min(largest, enough) / 16, 1)))
    high = max(int(np.ceil(np.log2(max(enough, 1)))), low)
    return [2**power for power in range(low, high + 1)]


def _lru_hits_pct(plans: list[Planned], capacity: int) -> float | None:
    hits = sum(plan.reuse.lru_hits_in_all(capacity, plan.depth) for plan in plans)
    return share(hits, sum(int(plan.prompt_tokens.sum()) for plan in plans))


def enough_capacity(plans: list[Planned], part: float = ENOUGH) -> int | None:
    """Return the smallest cache, to a percent, that has such a part of the hits of an endless one."""
    endless = sum(int(plan.reuse.ideal_hits().sum()) for plan in plans)
    if not endless:
        return None
    # Nothing needs more than what lies above it and itself.
    low, high = 0, max(int((plan.depth + plan.reuse.tokens).max(initial=0)) for plan in plans)
    # Of a small one to a token: a percent of it is none.
    while high - low > max(high // 100, 1):
        middle = (low + high) // 2
        hits = sum(plan.reuse.lru_hits_in_all(middle, plan.depth) for plan in plans)
        low, high = (low, middle) if hits >= part * endless else (middle, high)
    return high


def pauses(turns: pl.DataFrame) -> pl.DataFrame:
    """Return what turns after a human's pause had to prefill again, by the length of the pause."""
    after = turns.filter((pl.col("trigger") == "user") & pl.col("fresh").is_not_null() & pl.col("wait_s").is_not_null())
    low, rows = -1.0, []
    for name, high in PAUSES_S.items():
        rows.append(_pause_row(after.filter((pl.col("wait_s") > low) & (pl.col("wait_s") <= high)), name))
        low = high
    made = pl.concat([*rows, _pause_row(after, "all")])
    return made if after.height else made.clear()


def _pause_row(turns: pl.DataFrame, name: str) -> pl.DataFrame:
    told = pl.col("isl_cached").is_not_null()
    known = told.any()
    lost = (pl.col("append") - pl.col("fresh")).sum()
    return turns.select(
        pl.lit(name).alias("pause"),
        pl.len().cast(pl.Int64).alias("turns"),
        _pct(pl.col("isl_cached").sum(), pl.col("isl").filter(told).sum()).alias("hits_pct"),
        pl.when(known).then(pl.col("append").sum()).alias("append_tokens"),
        pl.when(known).then(lost).alias("prefilled_again_tokens"),
        pl.when(known).then(lost / told.sum()).alias("prefilled_again_per_turn_tokens"),
    )


def sharing(plans: list[Planned]) -> pl.DataFrame:
    """Return whose earlier use an endless cache's hits are of, in percent of prompt tokens, a row for each run."""
    schema = {"run": pl.String, "hashes": pl.String} | dict.fromkeys(
        ("endless_hits_pct", "same_thread_pct", "same_session_pct", "other_sessions_pct"), pl.Float64
    )
    return pl.DataFrame([_sharing_row(plan) for plan in plans], schema=schema, orient="row")


def _sharing_row(plan: Planned) -> tuple[str, str, float | None, float | None, float | None, float | None]:
    reuse, whole = plan.reuse, int(plan.prompt_tokens.sum())
    endless = share(int(reuse.ideal_hits().sum()), whole)
    if not plan.knows_sharing:
        return plan.run, "none", endless, None, None, None
    thread, session = plan.rows["thread"].to_numpy(), plan.rows["session"].to_numpy()
    same_thread = thread[reuse.request] == thread[reuse.source]
    same_session = (session[reuse.request] == session[reuse.source]) & ~same_thread
    parts = (same_thread, same_session, ~same_thread & ~same_session)
    shares = [share(int(reuse.tokens[part & reuse.in_prompt].sum()), whole) for part in parts]
    return plan.run, plan.kind, endless, shares[0], shares[1], shares[2]
