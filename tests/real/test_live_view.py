"""What a run shows while it goes, against a real engine: that engine's gauges, and a last frame that is the summary."""

from __future__ import annotations

import io
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from real_parts import frame
from rich.console import Console
from tests.python.progress import adds_up, agents_in, equals_the_summary

import agentbench
from agentbench._cli.run_view import drawn, of_replay

if TYPE_CHECKING:
    from pathlib import Path

    from real_parts import Engine

AGENTS = 2


def figures(progress: Any) -> dict[str, str]:
    """Every figure of a frame by its label; the states and ends of requests without their indent."""
    console = Console(width=80, record=True, file=io.StringIO(), color_system=None, highlight=False, markup=False)
    console.print(drawn(of_replay(progress)))
    rows = console.export_text().splitlines()[2:11]
    cells = [cell.strip() for row in rows for cell in (row[:22], row[25:48], row[52:])]
    return {
        " ".join(words[:-1]): words[-1] for cell in cells if (words := re.sub(r" (ms|tok/s|%|W)$", "", cell).split())
    }


@dataclass(frozen=True)
class Worked:
    """A run of live agents, and what was seen of it."""

    run: agentbench.Run
    seen: list[agentbench.AgentProgress]


@pytest.fixture(scope="module")
def worked(vllm: Engine, tmp_path_factory: pytest.TempPathFactory) -> Worked:
    """Three agents at a task each."""
    seen: list[agentbench.AgentProgress] = []
    settings: dict[str, Any] = {"max_steps": 4, "sandbox": "none", "power": "none", "on_progress": seen.append}
    return Worked(
        agentbench.run_agents(3, url=vllm.url, out=tmp_path_factory.mktemp("agents") / "run", **settings), seen
    )


def test_the_progress_of_live_agents(worked: Worked) -> None:
    gauges: list[Any] = [one.requests["engine_running"] for one in worked.seen]
    assert max(gauge for gauge in gauges if gauge is not None) >= 1
    assert {agents_in(one.requests) for one in worked.seen} == {3}
    adds_up(worked.seen[-1].requests)
    equals_the_summary(worked.seen[-1].requests, worked.run)


def test_the_view_of_a_replay(vllm: Engine, worked: Worked, tmp_path: Path) -> None:
    replay = agentbench.Replay(
        worked.run, url=vllm.url, out=tmp_path / "run", agents=AGENTS, tool_time="300ms", power="constant:150"
    )
    seen: list[Any] = []
    with replay:
        while not replay.done:
            seen.append(replay.progress())
            time.sleep(0.02)
        run = replay.wait()
    running = [progress for progress in seen if not progress["done"]]
    assert {agents_in(progress) for progress in running} <= {0, AGENTS}
    states = {state for progress in running for state, n in progress["agents"].items() if n}
    assert states >= {"first_token", "decode", "tool"}
    # No more requests run or wait in the engine than agents have sent, and some were seen there.
    gauges = [progress["engine_running"] + progress["engine_waiting"] for progress in running]
    assert 1 <= max(gauges) <= AGENTS
    assert max(progress["engine_kv_cache_usage_pct"] for progress in running) > 0
    assert {progress["power_w"] for progress in running} == {150.0}
    last, summary = replay.progress(), run.summary()
    assert last["simulated"] is False
    adds_up(last)
    equals_the_summary(last, run)
    assert summary is not None
    shown, requests = figures(last), frame(run, "requests")
    n = len(requests)
    assert n < 100, "then the latest answers are all answers"
    whole = summary["whole"]["fields"]
    assert shown["agents"] == shown["ended"] == str(AGENTS)
    assert shown["requests sent"] == shown["ok"] == str(n)
    assert shown["input tokens"] == f"{int(requests['prompt_tokens'].sum()):,}"
    assert shown["cached"] == f"{int(requests['cached_tokens'].sum()):,}"
    assert shown["output tokens"] == f"{int(requests['completion_tokens'].sum()):,}"
    assert float(shown["hit rate"]) == round(summary["prefix_hits"]["usage_pct"], 1)
    assert shown["trajectories"] == str(summary["trajectories"]["started"])
    for label, name, statistic in [
        ("TTFT p50", "ttft_ms", "p50"),
        ("TTFT p95", "ttft_ms", "p95"),
        ("output speed p50", "output_tokens_per_s", "p50"),
    ]:
        assert abs(float(shown[label].replace(",", "")) / whole[name][statistic] - 1) < 0.01, label
