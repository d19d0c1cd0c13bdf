"""What every agent did when: waiting for a first token, generating, waiting for tools or a human."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from agentbench._figures import count
from agentbench._report.charts.frames import thinned
from agentbench._report.charts.latency import OF_A_REQUEST
from agentbench._report.charts.model import TIME, Axis, Chart, Mark, Tip

if TYPE_CHECKING:
    from agentbench._report.charts.model import Role

MOST_REQUESTS = 12_000
MOST_LANES = 60
"""Lines above which they are too thin to be seen."""
ROW_PIXELS = 18
LEAST_PIXELS, MOST_PIXELS = 220, 620
TIPS = (
    Tip("", "lane", form=""),
    Tip("thread", "thread", form=""),
    *OF_A_REQUEST,
    Tip("waited before", "wait_s", "s"),
    Tip("sent at", "start_s", "s"),
)


def timeline(frame: pl.DataFrame, conditions: str, who: str, windows: tuple[tuple[float, float], ...] = ()) -> Chart:
    """Return one line for each agent; bars are requests, thin ones the waits before them."""
    title = f"what every {who} did when"
    requests = len(frame)
    frame = frame.filter(pl.col("start_s").is_not_null())
    if not len(frame):
        missing = "no request has a known time" if requests else "no request was sent"
        return Chart("timeline", title, conditions, missing=missing, wide=True)
    lanes_in_all = frame["order"].n_unique()
    shown = frame.filter(pl.col("order").is_in(_lanes(frame)))
    drawn = _drawn(shown)
    # The first agent on top.
    names = drawn.group_by("order", "lane").len().sort("order", descending=True)
    lanes = names.with_columns(pl.int_range(pl.len()).cast(pl.Float64).alias("y")).select("order", "y")
    placed = drawn.join(lanes, on="order", how="left").with_columns(
        (pl.col("start_s") - pl.col("wait_s")).alias("wait_from_s"),
        pl.col("end_s").fill_null(pl.col("start_s")),
    )
    failed = placed.filter(pl.col("status") != "ok").drop("order")
    answered = placed.filter(pl.col("status") == "ok").drop("order", "error", "status", "phase", "level")
    marks = [
        Mark("spans", answered, "waiting for tools or a human", "quiet", x="wait_from_s", x1="start_s", size=0.14),
        Mark("spans", answered, "until the first token", "second", x="start_s", x1="first_s", tips=TIPS, size=0.74),
        Mark("spans", answered, "generating", "first", x="first_s", x1="end_s", tips=TIPS, size=0.74),
    ]
    untold = answered.filter(pl.col("first_s").is_null())
    if len(untold):
        label = "answering, first token not known"
        marks.append(Mark("spans", untold, label, "third", x="start_s", x1="end_s", tips=TIPS, size=0.74))
    if len(failed):
        tips = (*TIPS, Tip("ended", "status", form=""), Tip("error", "error", form=""))
        marks.append(Mark("spans", failed, "failed or cut off", "poor", x="start_s", x1="end_s", tips=tips, size=0.9))
    for index, (start, end) in enumerate(windows):
        edges = pl.DataFrame({"x": [start]}), pl.DataFrame({"x": [end]})
        label = (
            ("steady state from and to" if len(windows) == 1 else "levels' steady states from and to")
            if index == 0
            else ""
        )
        marks += [
            Mark("rule", edge, label if side == 0 else "", "good", y="", dashed=True) for side, edge in enumerate(edges)
        ]
    notes = ["Drag to zoom, Ctrl with the wheel too; the round arrow shows the whole again."]
    if len(names) < lanes_in_all:
        notes.append(f"Drawn: {count(len(names))} of {count(lanes_in_all)} {who}s, evenly by their beginnings.")
    if len(drawn) < len(shown):
        notes.append(
            f"Drawn: {count(len(drawn))} of their {count(len(shown))} requests, evenly over the run; failed ones first."
        )
    if len(frame) < requests:
        notes.append(f"Requests without a known time: {count(requests - len(frame))}.")
    height = min(max(len(names) * ROW_PIXELS + 70, LEAST_PIXELS), MOST_PIXELS)
    return Chart(
        "timeline",
        title,
        conditions,
        TIME,
        Axis("", names=tuple(names["lane"].to_list())),
        tuple(marks),
        tuple(notes),
        wide=True,
        height=height,
        zoom=True,
    )


def _lanes(frame: pl.DataFrame) -> list[int]:
    lanes = frame.select(pl.col("order").unique().sort())
    return thinned(lanes, MOST_LANES)["order"].to_list()


def _drawn(frame: pl.DataFrame) -> pl.DataFrame:
    failed = frame.filter(pl.col("status") != "ok")
    kept = thinned(failed, MOST_REQUESTS // 2)
    answered = thinned(frame.filter(pl.col("status") == "ok"), MOST_REQUESTS - len(kept))
    return pl.concat([kept, answered]).sort("start_s", maintain_order=True)


def windows_of(summary: dict[str, Any]) -> tuple[tuple[float, float], ...]:
    """Return the steady windows of a run, in seconds on its clock: one, or one for each level."""
    levels = (summary.get("capacity") or {}).get("curve")
    if levels is None:
        window = summary.get("settings", {}).get("window") or {}
        levels = [{"start_ms": window.get("steady_start_ms"), "end_ms": window.get("steady_end_ms")}]
    bounds = [(level["start_ms"], level["end_ms"]) for level in levels]
    return tuple(
        (start / 1e3, end / 1e3) for start, end in bounds if start is not None and end is not None and end > start
    )


def where_time_goes(frame: pl.DataFrame, conditions: str, who: str) -> Chart:
    """Return the sums of the time that agents spent in each state, in percent."""
    title = f"where the {who}s' time goes"
    sums = time_sums(frame)
    whole = sum(sums.values())
    if not whole:
        return Chart("time", title, conditions, missing="no request has known times")
    marks, at = [], 0.0
    states: tuple[tuple[str, str, Role], ...] = (
        ("wait_s", "waiting for tools or a human", "quiet"),
        ("ttft_s", "until the first token", "second"),
        ("generating_s", "generating", "first"),
    )
    for name, label, role in states:
        pct = sums[name] / whole * 100.0
        row = pl.DataFrame({"x": [at], "x1": [at + pct], "y": [0.0], "pct": [pct], "seconds": [sums[name]]})
        tips = (Tip(label, "pct", "%", "0.0"), Tip("in all", "seconds", "s", "0,0.[0]"))
        marks.append(Mark("spans", row, f"{label}: {pct:.1f} %", role, x1="x1", tips=tips, size=0.7))
        at += pct
    note = "Of requests that were answered whole, with the waits before them; parallel ones count each."
    return Chart(
        "time",
        title,
        conditions,
        Axis("time", "%", bounds=(0, 100)),
        Axis("", names=("",)),
        tuple(marks),
        (note,),
        wide=True,
        height=130,
    )


def time_sums(frame: pl.DataFrame) -> dict[str, float]:
    """Return the seconds in each state, over requests that were answered whole."""
    known = frame.filter((pl.col("status") == "ok") & pl.col("first_s").is_not_null() & pl.col("end_s").is_not_null())
    generating = float((known["end_s"] - known["first_s"]).sum())
    return {"wait_s": float(known["wait_s"].sum()), "ttft_s": float(known["ttft_s"].sum()), "generating_s": generating}
