"""When a replay begins sessions: arrivals of the open loop, the order of the closed one, what is refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.python.test_bad_input import check
from tests.python.traffic import agentbench as run_command

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

    from tests.python.conftest import Captured


def test_an_open_loop_begins_sessions_at_their_arrivals(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    run = agentbench.replay(
        captured.path, url=engine.url, out=tmp_path / "run", arrivals="constant:20", trajectories=4, max_active=9
    )
    trajectories = run.trajectories().to_pandas().sort_values("due_at_ms")
    assert list(trajectories["due_at_ms"].diff()[1:]) == pytest.approx([50.0] * 3)
    assert set(trajectories["admission_wait_ms"]) == {0.0}
    summary = run.summary()
    assert summary is not None
    settings = summary["settings"]
    assert (settings["arrivals"], settings["time_scale"], settings["max_active"]) == ("constant:20", 1.0, 9)
    figures = summary["open_loop"]
    assert (figures["arrivals"], figures["admitted"], figures["not_admitted"]) == (4, 4, 0)
    assert figures["admitted_late"] == 0
    requests = run.requests().to_pandas()
    from_due = (requests["lag_ms"] + requests["ttft_ms"]).quantile(0.95)
    assert summary["whole"]["fields"]["ttft_from_due_ms"]["p95"] == pytest.approx(from_due)
    assert summary["agents"] == requests["agent_id"].max() + 1


def test_a_seed_gives_the_same_order_again(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    def order(name: str, seed: int) -> list[str]:
        run = agentbench.replay(
            captured.path, url=engine.url, out=tmp_path / name, trajectories=12, seed=seed, tool_time="none"
        )
        rows = run.trajectories().to_pandas().sort_values("trajectory_id")
        return list(rows["session_id"])

    first = order("a", 3)
    assert first == order("b", 3)
    assert sorted(first[:2]) == sorted(first[2:4]) == sorted(set(first))
    assert any(order(f"seed-{seed}", seed) != first for seed in (4, 5, 6))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--time-scale", "2"], "give arrivals with it"),
        (["--max-active", "2"], "max_active caps the open loop"),
        (["--arrivals", "poisson:1", "--agents", "3"], "leave agents out, or cap them with max_active"),
        (["--arrivals", "poisson:1", "--ramp", "3s"], "ramp is the closed loop's"),
        (["--arrivals", "recorded", "--seed", "3"], "a seed has nothing to choose"),
        (["--arrivals", "burst", "--time-scale", "3"], "all at once"),
        (["--arrivals", "poisson:0"], "no rate above 0"),
        (["--arrivals", "sometimes"], "none of recorded, poisson:R, constant:R and burst"),
    ],
)
def test_contradictions_are_refused_in_a_line(arguments: list[str], said: str, empty: Path) -> None:
    check(empty, ["replay", *arguments], said)


def test_the_report_of_an_open_loop_shows_latencies_from_due(captured: Captured, tmp_path: Path) -> None:
    out = tmp_path / "run"
    result = run_command(
        "replay", captured.path, "--speed", "instant", "--arrivals", "burst", "--max-active", "1", "--out", out
    )
    assert result.returncode == 0, result.stderr
    for text in ("arrivals burst (at most 1 agents at once", "TTFT from due", "E2E from due", "1 admitted late (wait"):
        assert text in " ".join(result.stdout.split()), result.stdout
