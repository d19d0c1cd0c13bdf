"""What the tokens cost by a price table, and where the money goes; without a table, the tokens by class of price."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from . import style
from ._frames import Tables
from ._planned import NOT_REACHED
from ._prices import CLASSES, Prices, read_prices
from ._stats import number, share, spread
from .answer import Answer, Chart, Headline

if TYPE_CHECKING:
    from os import PathLike

    from matplotlib.figure import Figure

    from .trace import Trace

NAMES = {
    "input": "new input",
    "cached_read": "cached input read",
    "cache_write": "input written to cache",
    "output": "output",
}
TOKENS = {
    "input": pl.col("isl") - pl.col("isl_cached") - pl.col("written"),
    "cached_read": pl.col("isl_cached"),
    "cache_write": pl.col("written"),
    "output": pl.col("osl"),
}
UNKNOWN = "not told"
PUBLISHED_SHARES = {
    "input": "26.7 % (TraceLab, with what is written)",
    "cached_read": "61.7 % (TraceLab)",
    "cache_write": None,
    "output": "11.6 % (TraceLab)",
}


def cost(trace: Trace, prices: str | PathLike[str] | Prices | None = None) -> Answer:
    """Return what the turns cost, by class of tokens, by model, and for a session, a request and a turn.

    Definitions
    -----------
    new input
        Prompt tokens that were neither read from the cache nor written to it: ISL - ISL cached - ISL cache write.
    cached input read, input written to cache
        As the responses' usage tells them. A turn that tells no writing wrote nothing that is billed apart.
    output
        OSL, reasoning included.
    session, request, turn
        A session with its subagents; the turns that work on one request of a human; one API request.

    Every turn that an engine computed something for counts, utility calls too. A turn that does not tell its prompt,
    cached or output tokens is counted apart, never priced by a guess; so is one whose model has no price. Published
    figures are TraceLab's at list prices of June 2026.

    Parameters
    ----------
    trace
        The runs.
    prices
        A price table or its file, YAML or JSON; `agentbench.analysis._prices` describes it. None: tokens only.

    Returns
    -------
    Answer
        Tables ``cost`` (by class), ``models`` (by model), ``spread`` (of a session, a request, a turn).

    Raises
    ------
    ConfigError
        When the file is no price table.
    """
    table = prices if prices is None or isinstance(prices, Prices) else read_prices(prices)
    turns = trace.turns.filter(~pl.col("outcome").is_in(NOT_REACHED))
    told = _classed(turns)
    priced = _priced(told, table)
    return Answer(
        name="cost",
        title="Cost" if table else "Tokens by class of price",
        finding=_finding(told, priced, table),
        subtitle=trace.subtitle + (f"; prices of {table.date} in {table.currency}" if table else "; no prices given"),
        tables=Tables(
            {
                "cost": _by_class(told, priced, table),
                "models": _by_model(told, priced, table),
                "spread": _spread(priced, table),
            }
        ),
        headline=_headline(priced, told, table),
        missing=_missing(turns, told, priced, table),
        notes=_notes(table),
        draw=(lambda figure: _draw(figure, told, priced, table)) if told.height else None,
        chart=Chart("cost", "class", "cost_pct" if table and priced.height else "tokens_pct") if told.height else None,
    )


def _classed(turns: pl.DataFrame) -> pl.DataFrame:
    """Turns that tell all their tokens, by class of price."""
    told = turns.filter(pl.all_horizontal(pl.col(name).is_not_null() for name in ("isl", "isl_cached", "osl")))
    told = told.with_columns(pl.col("isl_cache_write").fill_null(0).alias("written"))
    growth = (pl.col("isl") - pl.col("isl").shift(1).over("thread")).clip(lower_bound=0)
    fresh = (growth - pl.col("osl").shift(1).over("thread")).clip(lower_bound=0)
    append = (pl.col("isl") - pl.col("isl_cached")).clip(lower_bound=0)
    return told.select(
        "session", "thread", "turn", "user_request", "trigger", "model",
        *(tokens.clip(lower_bound=0).alias(name) for name, tokens in TOKENS.items()),
        (append - pl.min_horizontal(append, fresh)).alias("again"),
    )  # fmt: skip


def _priced(told: pl.DataFrame, table: Prices | None) -> pl.DataFrame:
    """Those whose model has a price, with the cost of each class."""
    if table is None:
        return told.clear()
    rows = [(model, table.of(model)) for model in told["model"].unique().drop_nulls()]
    schema = {"model": pl.String} | {f"{name}_price": pl.Float64 for name in CLASSES}
    known = [(model, *(getattr(price, name) for name in CLASSES)) for model, price in rows if price is not None]
    each = told.join(pl.DataFrame(known, schema=schema, orient="row"), on="model", how="inner", maintain_order="left")
    costs = each.with_columns((pl.col(name) * pl.col(f"{name}_price")).alias(f"{name}_cost") for name in CLASSES)
    return costs.with_columns(pl.sum_horizontal(f"{name}_cost" for name in CLASSES).alias("cost"))


def _by_class(told: pl.DataFrame, priced: pl.DataFrame, table: Prices | None) -> pl.DataFrame:
    rows = [
        (
            NAMES[name], told[name].sum(), number(priced[f"{name}_cost"].sum()) if priced.height else None,
            share(number(priced[f"{name}_cost"].sum()), number(priced["cost"].sum())) if priced.height else None,
        )
        for name in CLASSES
    ]  # fmt: skip
    spent = _spent(table)
    schema = {"class": pl.String, "tokens": pl.Int64, spent: pl.Float64, "cost_pct": pl.Float64}
    made = pl.DataFrame(rows, schema=schema, orient="row")
    made = made.select(
        "class", "tokens", (pl.col("tokens") / pl.col("tokens").sum() * 100.0).alias("tokens_pct"), spent, "cost_pct"
    )
    if not told.height:
        return made.clear()
    return made if table else made.drop(spent, "cost_pct")


def _spent(table: Prices | None) -> str:
    return f"cost_{table.currency.lower()}" if table else "cost"


def _by_model(told: pl.DataFrame, priced: pl.DataFrame, table: Prices | None) -> pl.DataFrame:
    by = pl.col("model").fill_null(UNKNOWN)
    made = told.group_by(by).agg(
        pl.len().alias("turns"), *(pl.col(name).sum().alias(f"{name}_tokens") for name in CLASSES)
    )
    if table:
        spent = (
            pl.col("cost").sum().alias(_spent(table))
            if priced.height
            else pl.lit(None, dtype=pl.Float64).alias(_spent(table))
        )
        made = made.join(priced.group_by("model").agg(spent), on="model", how="left")
    return made.sort("turns", "model", descending=[True, False])


def _spread(priced: pl.DataFrame, table: Prices | None) -> pl.DataFrame:
    """Cost of a session, of a human's request, and of a turn."""
    if table is None or not priced.height:
        return pl.DataFrame(schema={"cost_of": pl.String})
    parts = {
        "a session": priced.group_by("session").agg(pl.col("cost").sum()),
        "a request of a human": priced.filter(pl.col("user_request").is_not_null())
        .group_by("session", "user_request")
        .agg(pl.col("cost").sum()),
        "a turn": priced.select("cost"),
    }
    return pl.concat(
        frame.select(pl.lit(name).alias("cost_of"), *spread("cost")) for name, frame in parts.items() if frame.height
    )


def _finding(told: pl.DataFrame, priced: pl.DataFrame, table: Prices | None) -> str:
    if table and priced.height:
        spent, sessions = float(priced["cost"].sum()), priced["session"].n_unique()
        dearest = max(CLASSES, key=lambda name: float(priced[f"{name}_cost"].sum()))
        part = share(float(priced[f"{dearest}_cost"].sum()), spent) or 0.0
        return f"A session costs {spent / sessions:,.2f} {table.currency} (mean); {part:.1f} % of it {NAMES[dearest]}"
    whole = sum(int(told[name].sum()) for name in CLASSES)
    return f"{100 * int(told['cached_read'].sum()) / whole:.1f} % of tokens are cached input read" if whole else ""


def _headline(priced: pl.DataFrame, told: pl.DataFrame, table: Prices | None) -> tuple[Headline, ...]:
    if table is None or not priced.height:
        tokens = {name: int(told[name].sum()) for name in CLASSES}
        over = f"{told.height:,} turns that tell all their tokens"
        shares = [(NAMES[name], share(tokens[name], sum(tokens.values()))) for name in CLASSES]
        return tuple(Headline(f"{name}, share of tokens", value, "%", over) for name, value in shares)
    currency, spent, over = (
        table.currency,
        float(priced["cost"].sum()),
        f"{priced.height:,} turns whose model has a price",
    )
    asked = priced.filter(pl.col("user_request").is_not_null())
    sessions, requests = priced["session"].n_unique(), asked.select("session", "user_request").n_unique()
    of_request = float(asked["cost"].sum()) / requests if requests else None
    found = [
        Headline("cost", spent, currency, over),
        Headline("mean cost of a session", spent / sessions, currency, f"{sessions:,} sessions", "9.36 USD (TraceLab)"),
        Headline(
            "mean cost of a request of a human", of_request, currency, f"{requests:,} requests", "0.97 USD (TraceLab)"
        ),
        Headline("mean cost of a turn", spent / priced.height, currency, over, "0.11 USD (TraceLab)"),
    ]
    for name in CLASSES:
        of_class = share(float(priced[f"{name}_cost"].sum()), spent)
        found.append(Headline(f"{NAMES[name]}, share of cost", of_class, "%", over, PUBLISHED_SHARES[name]))
    cheaper = pl.col("again") * (pl.col("input_price") - pl.col("cached_read_price"))
    saved = float(priced.filter(pl.col("trigger") == "user").select(cheaper.alias("saved"))["saved"].sum())
    name = "cost that a cache kept over human pauses would save"
    return (*found, Headline(name, share(saved, spent), "%", over, "12.8 % (TraceLab)"))


def _missing(turns: pl.DataFrame, told: pl.DataFrame, priced: pl.DataFrame, table: Prices | None) -> tuple[str, ...]:
    found = []
    if not turns.height:
        return ("no turn was recorded",)
    if left_out := turns.height - told.height:
        found.append(
            f"{left_out:,} of {turns.height:,} turns do not tell their prompt, cached or output tokens: not counted"
        )
    if table is None:
        return (*found, "no price table: tokens by class of price, and no cost; --prices FILE gives one")
    unpriced = told.join(priced.select("model").unique(), on="model", how="anti") if priced.height else told
    if unpriced.height:
        names = unpriced["model"].fill_null(UNKNOWN).value_counts(sort=True)["model"].to_list()
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")  # noqa: PLR2004
        found.append(f"{unpriced.height:,} turns have a model without a price: {shown}")
    return tuple(found)


def _notes(table: Prices | None) -> tuple[str, ...]:
    if table is None:
        return ()
    of = f", {table.source}" if table.source else ""
    return (
        f"prices of {table.date} in {table.currency}{of}: today's may be others",
        "the saving prices what would be read from the cache at that price, and its writing as input",
    )


def _draw(figure: Figure, told: pl.DataFrame, priced: pl.DataFrame, table: Prices | None) -> None:
    """Shares of tokens and of cost, a bar for each class."""
    axes = figure.subplots()
    whole = sum(int(told[name].sum()) for name in CLASSES)
    bars = {"tokens": [share(int(told[name].sum()), whole) or 0.0 for name in CLASSES]}
    if table and priced.height:
        spent = float(priced["cost"].sum())
        bars["cost"] = [share(float(priced[f"{name}_cost"].sum()), spent) or 0.0 for name in CLASSES]
    height = 0.8 / len(bars)
    for index, (label, values) in enumerate(bars.items()):
        at = [place + (index - (len(bars) - 1) / 2) * height for place in range(len(CLASSES))]
        drawn = axes.barh(at, values, height=height * 0.92, color=style.PALETTE[index], label=f"share of {label}")
        axes.bar_label(drawn, [f"{value:.1f} %" for value in values], padding=4, fontsize=9.5)
    axes.set_yticks(range(len(CLASSES)), [NAMES[name] for name in CLASSES])
    axes.invert_yaxis()
    axes.set(xlabel="share, %", xlim=(0, 108))
    axes.grid(visible=False, axis="y")
    if len(bars) > 1:
        style.legend_above(axes, 2)
