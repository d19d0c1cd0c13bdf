"""A capacity search by the API, through asyncio and on the command line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

import agentbench
from agentbench._cli import run as command_line

if TYPE_CHECKING:
    from pathlib import Path

    from tests.python.conftest import Captured

MINIMUM: dict[str, Any] = {
    "min_trajectories": 1,
    "min_trajectories_per_agent": 0,
    "min_requests_per_agent": 1,
    "min_steady_s": 0.2,
}
OPTIONS = ["--min-requests-per-agent", "1", "--min-steady", "200ms"]


def test_every_number_of_a_level_follows_from_the_requests(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    slo = ["ttft.p95<=100s", "errors<=0"]
    run = agentbench.capacity(
        captured.path, url=engine.url, slo=slo, max_agents=3, gpu_count=2, out=tmp_path / "run", **MINIMUM
    )
    assert run.manifest["kind"] == "capacity"
    requests, trajectories = run.requests().to_pandas(), run.trajectories().to_pandas()
    levels = run.levels().to_pandas()
    assert list(levels["agents"]) == [2, 3, 3]
    assert set(levels["verdict"]) == {"pass"}
    samples = run.client_samples().to_pandas()
    assert set(samples["level"]) == set(levels["level"])
    assert (samples.groupby("level")["cpu_s"].diff().dropna() >= 0).all()
    for level in levels.to_dict("records"):
        steady = requests[(requests["level"] == level["level"]) & (requests["phase"] == "steady")]
        assert level["n_requests"] == len(steady) > 0
        assert level["n_failed"] == 0
        assert steady["sent_at_ms"].between(level["start_ms"] - 1, level["end_ms"] + 1).all()
        values = json.loads(level["values"])
        assert values["ttft.p95<=100s"] == pytest.approx(steady["ttft_ms"].quantile(0.95))
        seconds = (level["end_ms"] - level["start_ms"]) / 1000
        assert level["output_tokens_per_s"] == pytest.approx(steady["completion_tokens"].sum() / seconds)
        of_level = trajectories[trajectories["level"] == level["level"]]
        assert level["n_trajectories"] == (of_level["completed"] | (of_level["n_failed"] > 0)).sum()
        assert level["agents_within_pct"] == 100
    summary = run.summary()
    assert summary is not None
    capacity = summary["capacity"]
    assert (capacity["max_agents"], capacity["saturated"]) == (3, False)
    assert capacity["result"].startswith("not saturated")
    assert capacity["agents_per_gpu"] == {"value": 1.5, "reason": None}
    assert capacity["gpus"] == {"value": 2, "reason": None}
    assert capacity["agents_per_mw"]["value"] is None
    assert capacity["agents_per_mw"]["reason"] == capacity["power"]["reason"]
    assert levels["mean_power_w"].isna().all()
    assert set(levels["power_reason"]) == {capacity["power"]["reason"]}
    assert capacity["client_limited"] is not True
    assert any("preset quick" in note for note in summary["notes"])


async def test_the_asyncio_twin_finds_that_not_even_one_agent_holds(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    run = await agentbench.capacity_async(
        captured.path, url=engine.url, slo=["speed.min>=1000000000"], out=tmp_path / "run", **MINIMUM
    )
    summary = run.summary()
    assert summary is not None
    assert summary["capacity"]["max_agents"] == 0
    assert summary["capacity"]["saturated"] is True
    assert summary["capacity"]["binding_condition"] == "speed.min>=1000000000tok/s"


def test_the_command_line_prints_the_levels(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["capacity", str(captured.path), "--url", engine.url, "--max-agents", "2", *OPTIONS]
    assert command_line([*arguments, "--slo", "e2e.max<=100s", "--out", str(tmp_path / "held")]) == 0
    shown = capsys.readouterr().out
    assert "SIMULATED" in shown
    assert "not saturated" in shown
    assert "e2e.max<=100s" in shown
    assert "--gpu-count N" in shown
    bound = ["--gpu-count", "2", "--tool-time", "none", "--output-length", "5", "--out", str(tmp_path / "bound")]
    assert command_line([*arguments, "--slo", "errors<=0", *bound]) == 0
    assert re.search(r"^agents per GPU +at least 1 *$", capsys.readouterr().out, re.MULTILINE)
    run = agentbench.Run.open(tmp_path / "bound")
    assert run.manifest["settings"]["replay"]["tool_time"] == "none"
    assert set(run.requests().to_polars()["completion_tokens"]) == {5}
    assert command_line([*arguments, "--slo", "e2e.max<0ms", "--out", str(tmp_path / "missed")]) == 1
    shown = capsys.readouterr().out
    assert "0 agents: not even one holds" in shown


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ([], "needs a service level"),
        (["--slo", "ttft<=1s"], "statistic is missing"),
        (["--slo", "queue.p95<=1s"], "engine's mean"),
        (["--tier", "gold"], "deepseek-v4-pro-1"),
        (["--slo", "errors<=0", "--gpu-count", "0"], "gpu-count"),
        (["--slo", "errors<=0", "--preset", "slow"], "agentperf"),
    ],
)
def test_bad_conditions_are_usage_errors(
    arguments: list[str], text: str, captured: Captured, empty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command_line(["capacity", str(captured.path), "--url", "http://127.0.0.1:1", *arguments]) == 2
    assert text in capsys.readouterr().err
    assert not list(empty.iterdir())


def test_help_lists_the_tiers(capsys: pytest.CaptureFixture[str]) -> None:
    command_line(["capacity", "--help"])
    shown = capsys.readouterr().out
    for name, conditions in agentbench.TIERS.items():
        assert f"{name}: {conditions}" in shown
