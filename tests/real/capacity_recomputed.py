"""A capacity search's level table and result computed again from its run directory, by pandas alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

if TYPE_CHECKING:
    import pandas as pd

    import agentbench

COLUMNS = {"ttft": "ttft_ms", "e2e": "e2e_ms", "tpot": "tpot_ms"}


@dataclass(frozen=True)
class Tables:
    """What is recomputed from."""

    levels: pd.DataFrame
    requests: pd.DataFrame
    trajectories: pd.DataFrame
    power: pd.DataFrame
    settings: dict[str, Any]
    capacity: dict[str, Any]

    @classmethod
    def of(cls, run: agentbench.Run) -> Tables:
        """Those of a run."""
        summary = run.summary()
        assert summary is not None
        frames = [table.to_pandas() for table in (run.levels(), run.requests(), run.trajectories(), run.power())]
        levels, requests, trajectories, power = frames
        return cls(levels, requests, trajectories, power, run.manifest["settings"], summary["capacity"])


@dataclass(frozen=True)
class Condition:
    """A condition with an upper bound, as the command line takes it."""

    text: str
    metric: str
    statistic: str
    bound: float

    @classmethod
    def of(cls, text: str) -> Condition:
        """Read `metric.pN<=Xms|Xs` or `errors<=N`."""
        left, right = text.split("<=")
        if left == "errors":
            return cls(text, "errors", "", float(right))
        metric, statistic = left.split(".", maxsplit=1)
        milliseconds = float(right.removesuffix("ms")) if right.endswith("ms") else float(right.removesuffix("s")) * 1e3
        return cls(text, metric, statistic, milliseconds)

    def value(self, requests: pd.DataFrame) -> float:
        """The statistic over requests."""
        if self.metric == "errors":
            return float((requests["status"] == "failed").sum())
        return float(np.percentile(requests[COLUMNS[self.metric]].dropna(), float(self.statistic.removeprefix("p"))))

    def strain(self, value: float) -> float:
        """How much of the bound is used."""
        return value / self.bound if self.bound else float(value > 0)


def check_levels(tables: Tables) -> None:
    """Every number of `levels`, and the verdicts."""
    assert len(tables.levels) > 0
    for row in tables.levels.to_dict("records"):
        _check_level(tables, {str(name): value for name, value in row.items()})


def _check_level(tables: Tables, level: dict[str, Any]) -> None:
    requests = tables.requests[tables.requests["level"] == level["level"]]
    trajectories = tables.trajectories[tables.trajectories["level"] == level["level"]]
    judged = requests[(requests["phase"] == "steady") & (requests["status"] != "cancelled")]
    seconds = (level["end_ms"] - level["start_ms"]) / 1e3
    answered = judged[judged["status"] == "ok"]
    assert set(requests["agent_id"]) == set(range(level["agents"]))
    assert judged["sent_at_ms"].between(level["start_ms"] - 1, level["end_ms"] + 1).all()
    assert level["n_requests"] == len(judged) > 0
    assert level["n_failed"] == (judged["status"] == "failed").sum()
    assert level["n_trajectories"] == (trajectories["completed"] | (trajectories["n_failed"] > 0)).sum()
    steady = trajectories["completed"] & trajectories["end_ms"].between(level["start_ms"], level["end_ms"])
    assert level["n_steady_trajectories"] == steady.sum()
    assert level["output_tokens_per_s"] == pytest.approx(answered["completion_tokens"].sum() / seconds)
    conditions = [Condition.of(text) for text in tables.capacity["settings"]["slo"]]
    values = {condition.text: condition.value(judged) for condition in conditions}
    assert json.loads(level["values"]) == pytest.approx(values)
    seen_pct = 100 * answered["last_token_ms"].sum() / answered.dropna(subset="last_token_ms")["e2e_ms"].sum()
    assert level["unseen_output_pct"] == pytest.approx(100 - seen_pct)
    looked_at = any(condition.text.startswith(("tpot", "speed")) for condition in conditions)
    overstated = level["speed_overstated"]
    assert bool(overstated) == (100 - seen_pct > 10) if looked_at else overstated is None
    _check_agents(level, judged, conditions)
    _check_verdict(level, judged, conditions, tables.capacity["settings"]["minimum"])
    energy_j = _energy_j(tables, level)
    if energy_j is None:
        # A busy machine samples late: such a level has no power figure, and says why.
        assert np.isnan(level["energy_j"])
        assert np.isnan(level["mean_power_w"])
        assert "a gap of" in level["power_reason"]
        return
    assert level["energy_j"] == pytest.approx(energy_j, rel=1e-5)
    assert level["mean_power_w"] == pytest.approx(energy_j / seconds, rel=1e-5)


def _check_agents(level: dict[str, Any], judged: pd.DataFrame, conditions: list[Condition]) -> None:
    alone = {
        agent: {condition.text: condition.value(rows) for condition in conditions}
        for agent, rows in judged.groupby("agent_id")
    }
    within = [all(values[c.text] <= c.bound for c in conditions) for values in alone.values()]
    assert level["agents_within_pct"] == pytest.approx(100 * sum(within) / level["agents"])
    strains = {agent: max(c.strain(values[c.text]) for c in conditions) for agent, values in alone.items()}
    worst = level["worst_agent"]
    assert strains[worst] == pytest.approx(max(strains.values()))
    assert json.loads(level["worst_agent_values"]) == pytest.approx(alone[worst])


def _check_verdict(
    level: dict[str, Any], judged: pd.DataFrame, conditions: list[Condition], minimum: dict[str, Any]
) -> None:
    fewest = judged.groupby("agent_id").size().reindex(range(level["agents"]), fill_value=0).min()
    held = all(condition.value(judged) <= condition.bound for condition in conditions)
    if fewest < minimum["requests_per_agent"]:
        expected = "invalid"
    elif not held:
        expected = "fail"
    else:
        long = level["end_ms"] - level["start_ms"] >= minimum["steady_s"] * 1e3
        expected = "pass" if long else "invalid"
    assert level["verdict"] == expected, level


def _energy_j(tables: Tables, level: dict[str, Any]) -> float | None:
    """Energy of the level's steady window; None where samples lie more than three intervals apart."""
    anchor = tables.settings["replay"]["clock_anchor_ns"] / 1e9
    start, end = anchor + level["start_ms"] / 1e3, anchor + level["end_ms"] / 1e3
    total = 0.0
    for device in tables.settings["power"]["devices"]:
        rows = tables.power[tables.power["device"] == device].sort_values("ts")
        near = rows["ts"][rows["ts"].shift(-1).gt(start) & rows["ts"].shift(1).lt(end)]
        if near.diff().max() > 3 * tables.settings["power"]["interval_ms"] / 1e3:
            return None
        inside = rows["ts"].between(start, end)
        edges = np.interp([start, end], rows["ts"], rows["power_w"])
        times = [start, *rows["ts"][inside], end]
        total += float(np.trapezoid([edges[0], *rows["power_w"][inside], edges[1]], times))
    return total * (tables.settings["power"]["pue"] or 1.0)


def check_result(tables: Tables) -> None:
    """The answer, and every figure that is made of its level."""
    capacity, levels = tables.capacity, tables.levels
    failed = set(levels[levels["verdict"] == "fail"]["agents"].tolist())
    held = set(levels[levels["verdict"] == "pass"]["agents"].tolist()) - failed
    answer = max((agents for agents in held if agents < min(failed, default=np.inf)), default=0)
    assert capacity["max_agents"] == answer
    assert capacity["saturated"] == bool(failed)
    if answer == 0:
        return
    level = levels[levels["agents"] == answer].iloc[-1]
    assert capacity["level"] == level["level"]
    hours = (level["end_ms"] - level["start_ms"]) / 3.6e6
    turns = level["n_requests"] - level["n_failed"]
    gpus = capacity["gpus"]["value"]
    expected = {
        "agents_per_gpu": answer / gpus,
        "output_tokens_per_s_per_gpu": level["output_tokens_per_s"] / gpus,
    }
    per_joule = {
        "agents_per_mw": answer / level["mean_power_w"] * 1e6,
        "mean_power_w": level["mean_power_w"],
        "energy_j": level["energy_j"],
        "joules_per_output_token": level["energy_j"] / (level["output_tokens_per_s"] * hours * 3600),
        "joules_per_turn": level["energy_j"] / turns,
    }
    if level["n_steady_trajectories"]:
        per_joule["joules_per_trajectory"] = level["energy_j"] / level["n_steady_trajectories"]
        expected["trajectories_per_h_per_gpu"] = level["n_steady_trajectories"] / hours / gpus
    else:
        assert capacity["joules_per_trajectory"]["reason"]
        assert capacity["trajectories_per_h_per_gpu"]["reason"]
    if np.isnan(level["mean_power_w"]):
        assert {capacity[name]["value"] for name in per_joule} == {None}
        assert {capacity[name]["reason"] for name in per_joule} == {level["power_reason"]}
    else:
        expected |= per_joule
    found = {name: capacity[name]["value"] for name in expected}
    assert found == pytest.approx(expected, rel=1e-5)
