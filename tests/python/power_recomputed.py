"""Power figures computed again from a run's tables, by numpy alone: what the summary is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import pandas as pd

    import agentbench


def frame(run: agentbench.Run, table: str) -> pd.DataFrame:
    """A table of a run in pandas."""
    return getattr(run, table)().to_pandas()  # type: ignore[no-any-return]


def energy_j(power: pd.DataFrame, device: str, start: float, end: float) -> float:
    """Energy of a device from `start` to `end`: its counter's difference, else the trapezoid of its samples."""
    rows = power[power["device"] == device].dropna(subset=["power_w", "energy_j"], how="all").sort_values("ts")
    inside = rows["ts"].between(start, end)
    column = "energy_j" if rows["energy_j"].notna().any() else "power_w"
    edges = np.interp([start, end], rows["ts"], rows[column])
    if column == "energy_j":
        return float(edges[1] - edges[0])
    times = [start, *rows["ts"][inside], end]
    return float(np.trapezoid([edges[0], *rows[column][inside], edges[1]], times))


def window_power(run: agentbench.Run, start_ms: float, end_ms: float) -> tuple[float, float]:
    """Energy and mean power of all devices in a window of the run clock, with the building's share."""
    settings = run.manifest["settings"]
    anchor = settings["replay"]["clock_anchor_ns"] / 1e9
    start, end = anchor + start_ms / 1e3, anchor + end_ms / 1e3
    power = frame(run, "power")
    total = sum(energy_j(power, device, start, end) for device in settings["power"]["devices"])
    total *= settings["power"]["pue"] or 1.0
    return total, total / (end - start)


def served(run: agentbench.Run, start_ms: float, end_ms: float, level: int | None = None) -> dict[str, float]:
    """What was served in a window: output tokens, turns, trajectories completed."""
    requests, trajectories = frame(run, "requests"), frame(run, "trajectories")
    if level is not None:
        requests, trajectories = requests[requests["level"] == level], trajectories[trajectories["level"] == level]
    turns = requests[(requests["phase"] == "steady") & (requests["status"] == "ok")]
    ended = trajectories[trajectories["completed"] & trajectories["end_ms"].between(start_ms, end_ms)]
    return {
        "output_token": float(turns["completion_tokens"].sum()),
        "turn": float(len(turns)),
        "trajectory": float(len(ended)),
    }


def same(found: float | None, expected: float) -> None:
    """Equal but for rounding: the wall clock in seconds leaves a tenth of a microsecond."""
    assert found == pytest.approx(expected, rel=1e-5)


def check_replay(run: agentbench.Run) -> dict[str, Any]:
    """Hold a replay's power figures against its tables, and return them."""
    summary = run.summary()
    assert summary is not None
    power: dict[str, Any] = summary["power"]
    window = summary["settings"]["window"]
    start_ms, end_ms = window["steady_start_ms"], window["steady_end_ms"]
    energy, watts = window_power(run, start_ms, end_ms)
    same(power["energy_j"], energy)
    same(power["mean_power_w"], watts)
    same(power["agents_per_mw"], summary["agents"] / watts * 1e6)
    for name, n in served(run, start_ms, end_ms).items():
        if n:
            same(power[f"joules_per_{name}"], energy / n)
        else:
            assert power[f"joules_per_{name}"] is None
            assert power["why"][f"joules_per_{name}"]
    assert power["valid"] is True
    assert power["load"] == "at fixed load, no service level"
    return power


def check_capacity(run: agentbench.Run) -> dict[str, Any]:
    """Hold a search's power figures against its tables, and return them; its answer must be above 0."""
    summary = run.summary()
    assert summary is not None
    capacity: dict[str, Any] = summary["capacity"]
    levels = frame(run, "levels")
    assert levels["power_reason"].isna().all()
    for level in levels.to_dict("records"):
        energy, watts = window_power(run, level["start_ms"], level["end_ms"])
        same(level["energy_j"], energy)
        same(level["mean_power_w"], watts)
    answer = levels[levels["level"] == capacity["level"]].to_dict("records")[0]
    assert answer["agents"] == capacity["max_agents"]
    same(capacity["energy_j"]["value"], answer["energy_j"])
    same(capacity["mean_power_w"]["value"], answer["mean_power_w"])
    same(capacity["agents_per_mw"]["value"], answer["agents"] / answer["mean_power_w"] * 1e6)
    for name, n in served(run, answer["start_ms"], answer["end_ms"], answer["level"]).items():
        figure = capacity[f"joules_per_{name}"]
        if n:
            same(figure["value"], answer["energy_j"] / n)
        else:
            assert figure["value"] is None
            assert figure["reason"]
    return capacity
