"""A capacity search over recorded Claude Code sessions against a real vLLM, every number computed again.

The service level is cut between what this server does for one agent and for six, measured just before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from capacity_recomputed import Tables, check_levels, check_result
from real_parts import agentbench as run_agentbench

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

    from real_parts import Capture, Engine

pytestmark = pytest.mark.timeout(900)
FEW, MANY = 1, 6
LOAD = ["--tool-time", "none"]
"""Agents that never wait: the two cores of a test machine are busy from the first one on."""


def e2e_p50_ms(vllm: Engine, trace: Path, agents: int, out: Path) -> float:
    """The median latency in the steady state of so many agents."""
    options = ["--url", vllm.url, "--agents", str(agents), "--duration", "15s", "--out", str(out), *LOAD]
    result = run_agentbench("replay", str(trace), *options)
    assert result.returncode == 0, result.stdout + result.stderr
    requests = agentbench.Run.open(out).requests().to_pandas()
    median = requests[requests["phase"] == "steady"]["e2e_ms"].median()
    return float(median)


def test_a_search_is_recomputed_from_its_tables(vllm: Engine, capture: Capture, tmp_path: Path) -> None:
    # A machine whose load changes between the measurement and the search has another limit: then both are done again.
    for attempt in range(3):
        place = tmp_path / f"{attempt}"
        few, many = (e2e_p50_ms(vllm, capture.run, agents, place / f"{agents}") for agents in (FEW, MANY))
        slo = ["--slo", f"e2e.p50<={(few * many**2) ** (1 / 3):.0f}ms", "--slo", "ttft.p95<=300s", "--slo", "errors<=0"]
        options = ["--power", "constant:300", "--pue", "1.1", "--gpu-count", "1", "--max-agents", str(MANY), *LOAD]
        options += ["--preset", "quick", "--resolution", "2"]
        out = place / "searched"
        result = run_agentbench("capacity", str(capture.run), "--url", vllm.url, "--out", str(out), *slo, *options)
        run = agentbench.Run.open(out)
        found = (run.summary() or {})["capacity"]
        if many > 1.4 * few and result.returncode == 0 and found["saturated"]:
            break
    assert many > 1.4 * few, f"{MANY} agents at {many:.0f} ms are no load beside {FEW} at {few:.0f} ms"
    assert result.returncode == 0, result.stdout + result.stderr
    tables = Tables.of(run)
    check_levels(tables)
    check_result(tables)
    capacity = tables.capacity
    assert capacity["saturated"] is True
    assert FEW <= capacity["max_agents"] < MANY
    assert capacity["binding_condition"].startswith("e2e.p50<=")
    # 300 W times 1.1, unless the machine was too busy to sample the answer's level whole.
    assert capacity["mean_power_w"]["value"] in (None, pytest.approx(330.0))
    assert capacity["agents_per_mw"]["value"] in (None, pytest.approx(capacity["max_agents"] / 330e-6))
    assert capacity["power"]["boundary"] == "facility"
    # The engine counted at least what was sent; more where somebody else talks to it too.
    samples = run.engine_samples().to_pandas().dropna(subset=["generation_tokens_total"]).sort_values("ts")
    counted = samples[["requests_total", "generation_tokens_total"]].iloc[[0, -1]].diff().iloc[-1]
    sent = [len(tables.requests), tables.requests["completion_tokens"].sum()]
    if vllm.pid:
        assert counted.tolist() == sent
    else:
        assert (counted >= sent).all()
    assert "agents at the service level" in result.stdout
