"""Load shapes on a real vLLM: the hit rate that was wanted, by its own word, and a search over users."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import agentbench
from agentbench import load
from agentbench.load import Fixed

if TYPE_CHECKING:
    from pathlib import Path

    from real_parts import Engine

pytestmark = pytest.mark.timeout(900)


def test_the_hit_rate_wanted_is_the_one_that_vllm_tells(vllm: Engine, tmp_path: Path) -> None:
    # Blocks of vLLM's cache on a CPU have 128 tokens: 75 % are six of them.
    shapes = [load.HitRate(rate, 16, 2, Fixed(1024), Fixed(4)) for rate in (0, 75)]
    steps = load.of_hit_rates(shapes, 2, load.token())
    made = load.run(steps, shape="hit-rate", url=vllm.url, out=tmp_path / "load")
    for figures, wanted in zip(made.figures, (0, 75), strict=True):
        assert figures["requests_failed"] == 0
        run = agentbench.Run.open(tmp_path / "load" / figures["directory"])
        requests = run.requests().to_pandas()
        assert set(requests["prompt_tokens"]) == {1024}
        assert set(requests["cached_tokens"]) == {1024 * wanted / 100}
        assert figures["prefix_hits_usage_pct"] == wanted


def test_users_that_hold_a_service_level(vllm: Engine, tmp_path: Path) -> None:
    shape = load.conversation("7k", users=2, turns=Fixed(2), output_tokens=Fixed(8))
    made = load.run(
        load.of_conversations({"7k": shape}),
        shape="conversation",
        url=vllm.url,
        out=tmp_path / "load",
        slo=["ttft.p95<=100s"],
        max_agents=2,
        min_requests_per_agent=1,
        min_steady_s=0.5,
    )
    (figures,) = made.figures
    levels = agentbench.Run.open(tmp_path / "load" / figures["directory"]).levels().to_pandas()
    passed = levels[levels["verdict"] == "pass"]["agents"]
    assert figures["max_agents"] == (passed.max() if len(passed) else 0)
    assert "load conversation" in made.to_markdown()
