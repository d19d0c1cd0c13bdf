"""A progress as the tests of view and metrics page draw it, every figure another, and what holds of every run's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    import agentbench
    from agentbench._types import AgentsByState, ReplayProgress

AGENTS: AgentsByState = {"first_token": 1, "decode": 4, "tool": 3, "human": 2, "idle": 5, "ended": 6}
PROGRESS: ReplayProgress = {
    "elapsed_s": 12.5,
    "time_left_s": 71.2,
    "phase": "steady",
    "simulated": False,
    "agents": AGENTS,
    "requests_sent": 1_300,
    "requests_ok": 1_282,
    "requests_failed": 10,
    "requests_cancelled": 1,
    "requests_in_flight": 7,
    "failures": {"connect": 3, "http 503": 7},
    "trajectories_done": 22,
    "trajectories_planned": 40,
    "duration_s": None,
    "prompt_tokens": 12_345_678,
    "cached_tokens": 9_876_543,
    "prompt_tokens_with_cached": 12_345_679,
    "completion_tokens": 70_123,
    "recent_answers": 100,
    "recent_ttft_ms": 250.0,
    "recent_ttft_p50_ms": 201.4,
    "recent_ttft_p95_ms": 1_502.0,
    "recent_itl_ms": 8.5,
    "recent_output_tokens_per_s_p50": 117.3,
    "recent_output_tokens_per_s_p25": 89.04,
    "engine_running": 11.0,
    "engine_waiting": 13.0,
    "engine_kv_cache_usage_pct": 56.78,
    "power_w": 1_412.4,
    "done": False,
}
UNKNOWN: ReplayProgress = {
    **PROGRESS,
    "time_left_s": None,
    "failures": {},
    "trajectories_planned": None,
    "prompt_tokens": None,
    "cached_tokens": None,
    "prompt_tokens_with_cached": None,
    "completion_tokens": None,
    "recent_answers": 0,
    "recent_ttft_ms": None,
    "recent_ttft_p50_ms": None,
    "recent_ttft_p95_ms": None,
    "recent_itl_ms": None,
    "recent_output_tokens_per_s_p50": None,
    "recent_output_tokens_per_s_p25": None,
    "engine_running": None,
    "engine_waiting": None,
    "engine_kv_cache_usage_pct": None,
    "power_w": None,
}
"""What there is when no answer has come, nothing is polled and no power is sampled."""


def agents_in(progress: Any) -> int:
    return sum(progress["agents"].values())


def adds_up(progress: Any) -> None:
    """Every request that was sent has come to something or is on its way, and failures are of a kind."""
    came = sum(progress[f"requests_{end}"] for end in ("ok", "failed", "cancelled", "in_flight"))
    assert progress["requests_sent"] == came
    assert sum(progress["failures"].values()) == progress["requests_failed"]


def equals_the_summary(progress: Any, run: agentbench.Run) -> None:
    """The last frame's counts are the report's."""
    summary: Any = run.summary()
    requests = run.requests().to_pandas()
    answered = requests[requests["status"] == "ok"]
    counts = {end: progress[f"requests_{end}"] for end in ("sent", "ok", "failed", "cancelled")}
    assert counts == summary["requests"]
    assert progress["requests_in_flight"] == 0
    assert progress["failures"] == {error["kind"]: error["n"] for error in summary["errors"]}
    assert progress["trajectories_done"] == summary["trajectories"]["started"]
    for tokens in ("prompt_tokens", "completion_tokens"):
        assert progress[tokens] == (answered[tokens].sum() if len(answered) else None)
    if progress["cached_tokens"] is not None:
        hit_rate = 100 * progress["cached_tokens"] / progress["prompt_tokens_with_cached"]
        assert hit_rate == pytest.approx(summary["prefix_hits"]["usage_pct"])
    assert progress["agents"] == dict.fromkeys(progress["agents"], 0) | {"ended": agents_in(progress)}
    assert progress["simulated"] is summary["labels"]["simulated"]
    assert (progress["done"], progress["time_left_s"]) == (True, 0.0)
