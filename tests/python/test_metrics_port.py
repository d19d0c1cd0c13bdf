"""``--metrics-port``: the page tells what the run's own summary tells, and the dashboard asks for what the page has."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

import agentbench
from agentbench._cli import run as command_line
from agentbench._cli.metrics import MetricsPage

if TYPE_CHECKING:
    from agentbench._types import ReplayProgress

DASHBOARD = Path(__file__).resolve().parents[2] / "docs/grafana.json"
PROGRESS: ReplayProgress = {
    "elapsed_s": 12.5,
    "phase": "steady",
    "requests_sent": 9,
    "requests_ok": 5,
    "requests_failed": 1,
    "requests_cancelled": 0,
    "requests_in_flight": 3,
    "trajectories_done": 2,
    "trajectories_planned": None,
    "duration_s": None,
    "prompt_tokens": 1000,
    "cached_tokens": 400,
    "completion_tokens": 70,
    "recent_ttft_ms": 250.0,
    "recent_itl_ms": None,
    "done": False,
}
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def samples(url: str) -> dict[tuple[str, ...], float]:
    """The page's values by name and labels."""
    with OPENER.open(url, timeout=10) as response:
        families = text_string_to_metric_families(response.read().decode())
    return {(s.name, *s.labels.values()): s.value for family in families for s in family.samples}


def address(told: str) -> str:
    found = re.search(r"metrics: (http://127\.0\.0\.1:\d+/metrics)", told)
    assert found is not None, told
    return found[1]


def test_the_page_has_the_progress_and_leaves_out_what_is_unknown(capfd: pytest.CaptureFixture[str]) -> None:
    with MetricsPage(0) as page:
        url = address(capfd.readouterr().err)
        assert samples(url) == {}
        page.update(PROGRESS)
        assert samples(url) == {
            ("agentbench_requests_total", "ok"): 5,
            ("agentbench_requests_total", "failed"): 1,
            ("agentbench_requests_total", "cancelled"): 0,
            ("agentbench_trajectories_total",): 2,
            ("agentbench_prompt_tokens_total",): 1000,
            ("agentbench_cached_prompt_tokens_total",): 400,
            ("agentbench_output_tokens_total",): 70,
            ("agentbench_requests_in_flight",): 3,
            ("agentbench_elapsed_seconds",): 12.5,
            ("agentbench_recent_ttft_seconds",): 0.25,
            ("agentbench_phase", "ramp"): 0,
            ("agentbench_phase", "warmup"): 0,
            ("agentbench_phase", "steady"): 1,
            ("agentbench_phase", "tail"): 0,
        }
        page.update_search({"level": 3, "agents": 8, "replay": PROGRESS, "levels": [], "done": False})
        assert samples(url)["agentbench_level",] == 3
        assert samples(url)["agentbench_level_agents",] == 8
    with pytest.raises(OSError, match="refused"):
        samples(url)


def test_a_replay_serves_its_page_while_it_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    seen: list[dict[tuple[str, ...], float]] = []
    told = ""
    ended = threading.Event()

    def watch() -> None:
        nonlocal told
        while not ended.is_set():
            told += capfd.readouterr().err
            if "metrics: " in told:
                try:
                    seen.append(samples(address(told)))
                except OSError:
                    return
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    out = tmp_path / "run"
    try:
        arguments = ["replay", "--trajectories", "2", "--agents", "2", "--metrics-port", "0", "--out", str(out)]
        assert command_line(arguments) == 0
    finally:
        ended.set()
        watcher.join()
    summary: Any = agentbench.Run.open(out).summary()
    last = next(page for page in reversed(seen) if page)
    assert 0 < last["agentbench_requests_total", "ok"] <= summary["requests"]["ok"]
    counted = [page["agentbench_requests_total", "ok"] for page in seen if page]
    assert counted == sorted(counted)


def test_a_port_that_is_taken_is_one_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with MetricsPage(0):
        port = address(capfd.readouterr().err).rsplit(":", 1)[1].removesuffix("/metrics")
        out = tmp_path / "run"
        assert command_line(["replay", "--trajectories", "1", "--metrics-port", port, "--out", str(out)]) == 2
        assert f"--metrics-port {port}: Address already in use; give another port, or 0" in capfd.readouterr().err
        assert not out.exists()


def test_the_dashboard_asks_for_what_the_page_has(capfd: pytest.CaptureFixture[str]) -> None:
    with MetricsPage(0) as page:
        page.update_search(
            {"level": 0, "agents": 2, "replay": {**PROGRESS, "recent_itl_ms": 9.0}, "levels": [], "done": False}
        )
        names = {name for name, *_ in samples(address(capfd.readouterr().err))}
    dashboard = json.loads(DASHBOARD.read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"agentbench_\w+", target["expr"])
    }
    assert asked <= names
    assert asked >= {"agentbench_requests_total", "agentbench_recent_ttft_seconds", "agentbench_phase"}
