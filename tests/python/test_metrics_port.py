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
from tests.python.progress import AGENTS, PROGRESS, UNKNOWN

import agentbench
from agentbench._cli import run as command_line
from agentbench._cli.metrics import MetricsPage

if TYPE_CHECKING:
    from agentbench._types import CapacityProgress

DOCS = Path(__file__).resolve().parents[2] / "docs"
DASHBOARD, LIVE_PAGE = DOCS / "grafana.json", DOCS / "live.md"
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


KNOWN = {
    ("agentbench_requests_total", "ok"): 1282,
    ("agentbench_requests_total", "failed"): 10,
    ("agentbench_requests_total", "cancelled"): 1,
    ("agentbench_request_failures_total", "connect"): 3,
    ("agentbench_request_failures_total", "http 503"): 7,
    ("agentbench_trajectories_total",): 22,
    ("agentbench_prompt_tokens_total",): 12_345_678,
    ("agentbench_cached_prompt_tokens_total",): 9_876_543,
    ("agentbench_output_tokens_total",): 70_123,
    ("agentbench_requests_in_flight",): 7,
    ("agentbench_simulated",): 0,
    ("agentbench_elapsed_seconds",): 12.5,
    ("agentbench_time_left_seconds",): 71.2,
    ("agentbench_recent_ttft_seconds",): 0.25,
    ("agentbench_recent_itl_seconds",): 0.0085,
    ("agentbench_recent_ttft_quantile_seconds", "0.5"): 0.2014,
    ("agentbench_recent_ttft_quantile_seconds", "0.95"): 1.502,
    ("agentbench_recent_output_speed_quantile_tokens_per_second", "0.25"): 89.04,
    ("agentbench_recent_output_speed_quantile_tokens_per_second", "0.5"): 117.3,
    ("agentbench_engine_requests_running",): 11,
    ("agentbench_engine_requests_waiting",): 13,
    ("agentbench_engine_kv_cache_usage_ratio",): 0.5678,
    ("agentbench_power_watts",): 1412.4,
    ("agentbench_phase", "ramp"): 0,
    ("agentbench_phase", "warmup"): 0,
    ("agentbench_phase", "steady"): 1,
    ("agentbench_phase", "tail"): 0,
} | {("agentbench_agents", state): n for state, n in AGENTS.items()}
SEARCH: CapacityProgress = {
    "level": 3,
    "agents": 8,
    "replay": PROGRESS,
    "level_left_s": 90.0,
    "levels": [],
    "done": False,
}
TASKS = agentbench.AgentProgress(total=12, done=5, completed=3, claimed=4, running=(), requests=dict(PROGRESS))
OF_A_SEARCH = {("agentbench_level",): 3, ("agentbench_level_agents",): 8, ("agentbench_level_left_seconds",): 90}
OF_AGENTS = {
    ("agentbench_tasks_ended_total",): 5,
    ("agentbench_tasks_completed_total",): 3,
    ("agentbench_tasks_claimed_total",): 4,
}


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        (lambda _: None, {}),
        (lambda page: page.update(PROGRESS), KNOWN),
        (lambda page: page.update({**PROGRESS, "simulated": True}), KNOWN | {("agentbench_simulated",): 1}),
        (lambda page: page.update_search(SEARCH), KNOWN | OF_A_SEARCH),
        (
            lambda page: page.update_search({**SEARCH, "level_left_s": None}),
            KNOWN | {name: value for name, value in OF_A_SEARCH.items() if name != ("agentbench_level_left_seconds",)},
        ),
        (lambda page: page.update_agents(TASKS), KNOWN | OF_AGENTS),
    ],
    ids=["nothing", "replay", "simulated", "search", "between levels", "agents"],
)
def test_the_page_has_the_progress(told: Any, expected: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with MetricsPage(0) as page:
        url = address(capfd.readouterr().err)
        told(page)
        assert samples(url) == {name: pytest.approx(value) for name, value in expected.items()}
    with pytest.raises(OSError, match="refused"):
        samples(url)


def test_what_is_not_known_is_left_out(capfd: pytest.CaptureFixture[str]) -> None:
    with MetricsPage(0) as page:
        page.update(UNKNOWN)
        known = samples(address(capfd.readouterr().err))
    left_out = {name for name, *_ in KNOWN} - {name for name, *_ in known}
    assert left_out == {
        "agentbench_request_failures_total",
        "agentbench_prompt_tokens_total",
        "agentbench_cached_prompt_tokens_total",
        "agentbench_output_tokens_total",
        "agentbench_time_left_seconds",
        "agentbench_recent_ttft_seconds",
        "agentbench_recent_itl_seconds",
        "agentbench_recent_ttft_quantile_seconds",
        "agentbench_recent_output_speed_quantile_tokens_per_second",
        "agentbench_engine_requests_running",
        "agentbench_engine_requests_waiting",
        "agentbench_engine_kv_cache_usage_ratio",
        "agentbench_power_watts",
    }


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


FAMILIES = {name for name, *_ in KNOWN | OF_A_SEARCH | OF_AGENTS}


def test_the_dashboard_asks_for_what_the_page_has() -> None:
    dashboard = json.loads(DASHBOARD.read_text())
    asked = {
        name
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for name in re.findall(r"agentbench_\w+", target["expr"])
    }
    assert asked == FAMILIES
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(set(ids)) == len(ids)
    places = [tuple(panel["gridPos"][side] for side in "xywh") for panel in dashboard["panels"]]
    cells = [(x + dx, y + dy) for x, y, w, h in places for dx in range(w) for dy in range(h)]
    assert len(set(cells)) == len(cells), "panels lie over one another"


def test_the_page_of_documentation_lists_every_family() -> None:
    listed = re.findall(r"^\| `(agentbench_\w+)` \|", LIVE_PAGE.read_text(), re.MULTILINE)
    assert sorted(listed) == sorted(FAMILIES)
