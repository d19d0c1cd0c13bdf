"""Runs side by side: every setting that makes it unfair is named, differences are to the first, noise is marked."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.traffic import agentbench

import agentbench as package
from agentbench._cli import run as command_line

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.python.conftest import Captured

    Change = Callable[[dict[str, Any], dict[str, Any]], object]


@pytest.fixture(scope="module")
def replayed(
    engine: package.SimulatedEngine, captured: Captured, tmp_path_factory: pytest.TempPathFactory
) -> package.Run:
    """A replay of the two captured sessions, over and over: enough trajectories for intervals."""
    out = tmp_path_factory.mktemp("replayed") / "first"
    return package.replay(captured.path, url=engine.url, agents=2, duration_s=1.0, out=out)


def doctored(run: package.Run, to: Path, change: Change) -> Path:
    """A copy of a run whose summary and manifest were changed."""
    shutil.copytree(run.path, to)
    files = [to / "summary.json", to / "manifest.json"]
    summary, manifest = (json.loads(file.read_text()) for file in files)
    change(summary, manifest)
    for file, value in zip(files, (summary, manifest), strict=True):
        file.write_text(json.dumps(value))
    return to


def settings(**changed: Any) -> Change:
    return lambda summary, _: summary["settings"].update(changed)


def _other_trace(summary: dict[str, Any], _: dict[str, Any]) -> None:
    summary["settings"]["trace"]["content_hash"] = "0" * 32


def _real(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    summary["labels"]["simulated"] = manifest["engine"]["simulated"] = False


def _capacity(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    minimum = {"trajectories": 0, "trajectories_per_agent": 0, "requests_per_agent": 3, "steady_s": 5.0}
    search: dict[str, Any] = {
        "slo": ["ttft.p95<=10s"],
        "tier": None,
        "max_agents": 8,
        "resolution": 1,
        "gpu_count": 1,
        "gpu_names": None,
        "minimum": minimum,
    }
    search |= {"preset": "quick", "level_time_s": 60.0, "interrupted": False}
    unknown = {"value": None, "reason": "none"}
    manifest["kind"] = "capacity"
    summary["capacity"] = {"settings": search, "max_agents": 8, "level": None, "saturated": True, "invalid": False}
    summary["capacity"] |= {"result": "", "agents_per_gpu": {"value": 8.0, "reason": None}, "agents_per_mw": unknown}


UNFAIR: list[tuple[str, tuple[str, str] | None, Change]] = [
    ("trace", None, _other_trace),
    ("engine simulated", ("yes", "no"), _real),
    ("model", ("agentbench-sim", "other"), settings(model="other")),
    ("agents", ("2", "9"), lambda s, _: s.update(agents=9)),
    ("API", None, settings(routes=[{"recorded": "messages", "sent": "elsewhere"}])),
    ("length pinning", ("honoured", "ignored"), lambda s, _: s["labels"].update(output_length="ignored")),
    ("output length", ("recorded", "natural"), settings(output_length="natural")),
    ("tool time", ("recorded", "none"), settings(tool_time="none")),
    ("human time", ("none", "recorded"), settings(human_time="recorded")),
    ("on error", ("stop-trajectory", "continue"), settings(on_error="continue")),
    ("utility turns sent", ("no", "yes"), settings(include_utility=True)),
    ("cache sharing", None, settings(cache_sharing="made up")),
    ("content", None, settings(content="made up")),
    ("arrivals", None, settings(arrivals="made up")),
    ("retries", None, settings(max_retries=77)),
    ("a setting to come", ("-", "3"), settings(a_setting_to_come=3)),
    ("figures of", ("steady state", "whole run"), lambda s, _: s["steady"].update(fields={})),
    ("service level", ("none: at fixed load", "ttft.p95<=10s"), _capacity),
    ("power", ("-", "nvml, boundary device"), lambda s, _: s["power"].update(source="nvml", boundary="device")),
]


@pytest.mark.parametrize(("setting", "values", "change"), UNFAIR, ids=[name for name, *_ in UNFAIR])
def test_a_setting_that_differs_makes_it_unfair(
    replayed: package.Run, tmp_path: Path, setting: str, values: tuple[str, str] | None, change: Change
) -> None:
    comparison = package.compare(replayed, doctored(replayed, tmp_path / "other", change))
    assert not comparison.fair
    (difference,) = [difference for difference in comparison.unfair if difference.setting == setting]
    assert values is None or difference.by_run == values
    markdown = comparison.to_markdown()
    assert f"UNFAIR: {setting}" in comparison.headline or f", {setting}" in comparison.headline
    assert markdown.index(f"- **unfair, {setting} differs**: first: ") < markdown.index("## ")


FAIR: list[tuple[str, Change]] = [
    ("url", lambda _, m: m["engine"].update(url="http://10.0.0.1:8000")),
    ("engine", lambda _, m: m["engine"].update(version="99")),
    ("duration asked for", settings(duration_s=60.0)),
    ("seed", settings(seed=123456)),
    ("workers", settings(workers=[{}, {}])),
    ("agentbench", lambda _, m: m.update(tool_version="9.9")),
]


@pytest.mark.parametrize(("setting", "change"), FAIR, ids=[name for name, _ in FAIR])
def test_what_is_compared_as_a_rule_is_told_and_fair(
    replayed: package.Run, tmp_path: Path, setting: str, change: Change
) -> None:
    comparison = package.compare(replayed, doctored(replayed, tmp_path / "other", change))
    assert comparison.fair
    assert [difference.setting for difference in comparison.differing] == [setting]
    assert "no setting makes the comparison unfair" in comparison.to_markdown()


def test_a_copy_is_fair_and_differs_in_nothing(replayed: package.Run, tmp_path: Path) -> None:
    comparison = package.compare(replayed, doctored(replayed, tmp_path / "moved", lambda *_: None))
    assert (comparison.unfair, comparison.differing) == ((), ())
    frame = comparison.to_pandas()
    assert set(frame["difference"].dropna()) == {0.0}
    judged = frame[frame["figure"].isin(["TTFT p50", "TTFT mean", "E2E p90", "output speed p50"])]
    assert len(replayed.trajectories()) > 20
    assert list(judged["within_noise"]) == [True] * 4
    assert (judged["low"] <= 0).all()
    assert (judged["high"] >= 0).all()


def test_differences_are_absolute_and_relative_to_the_first(replayed: package.Run, tmp_path: Path) -> None:
    def change(summary: dict[str, Any], _: dict[str, Any]) -> None:
        summary["steady"]["fields"]["ttft_ms"] |= {"mean": 150.0, "p50": 90.0}
        summary["steady"]["requests_per_s"] = 3.0
        summary["prefix_hits"]["engine_pct"] = None

    def first(summary: dict[str, Any], _: dict[str, Any]) -> None:
        summary["steady"]["fields"]["ttft_ms"] |= {"mean": 100.0, "p50": 100.0}
        summary["steady"]["requests_per_s"] = 0.0

    runs = [doctored(replayed, tmp_path / name, how) for name, how in (("a", first), ("b", change), ("c", first))]
    comparison = package.compare(*runs)
    assert comparison.runs == ("a", "b", "c")
    figures = {figure.name: figure for figure in comparison.figures}
    assert (figures["TTFT mean"].by_run, figures["TTFT mean"].unit) == ((100.0, 150.0, 100.0), "ms")
    assert (figures["TTFT mean"].difference(1), figures["TTFT mean"].difference_pct(1)) == (50.0, 50.0)
    assert (figures["TTFT p50"].difference(1), figures["TTFT p50"].difference_pct(1)) == (-10.0, -10.0)
    assert (figures["TTFT mean"].difference(2), figures["TTFT mean"].difference_pct(2)) == (0.0, 0.0)
    assert (figures["requests"].difference(1), figures["requests"].difference_pct(1)) == (3.0, None)
    assert (figures["engine"].difference(1), figures["engine"].difference_pct(1)) == (None, None)
    markdown = comparison.to_markdown()
    assert "| TTFT mean | ms | 100 | 150 | +50 | +50.0 |" in markdown
    assert "| TTFT p50 | ms | 100 | 90 | -10 | -10.0 |" in markdown
    assert "| requests | requests/s | 0 | 3 | +3 | - |" in markdown
    frame = comparison.to_pandas()
    row = frame[(frame["figure"] == "TTFT mean") & (frame["run"] == "b")].iloc[0]
    assert (row["first"], row["value"], row["difference"], row["difference_pct"]) == (100.0, 150.0, 50.0, 50.0)


def test_what_makes_a_runs_own_figures_unusable_is_told(replayed: package.Run, tmp_path: Path) -> None:
    other = doctored(replayed, tmp_path / "other", lambda _, m: m["dropped"].update(requests=7))
    markdown = package.compare(replayed, other).to_markdown()
    assert "- **other, rows dropped**: " in markdown
    assert "- **first, simulated**: " in markdown
    assert "first, rows dropped" not in markdown


def test_captures_are_compared_too(captured: Captured, tmp_path: Path) -> None:
    shutil.copytree(captured.path, tmp_path / "other")
    comparison = package.compare(captured.path, tmp_path / "other")
    assert comparison.fair
    figures = {figure.name: figure for figure in comparison.figures}
    assert figures["turns"].by_run == (5, 5)
    assert figures["TTFT p50"].difference(1) == 0.0


def test_the_command(replayed: package.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = doctored(replayed, tmp_path / "other", settings(tool_time="none"))
    assert command_line(["compare", str(replayed.path), str(other), "--md", str(tmp_path / "c.md")]) == 0
    shown = capsys.readouterr().out
    assert shown.splitlines()[0].startswith("2 runs, differences are to first; UNFAIR: tool time")
    assert "! unfair, tool time differs: first: recorded; other: none" in shown
    assert (tmp_path / "c.md").read_text() == package.compare(replayed, other).to_markdown()
    assert command_line(["compare", str(replayed.path), str(other), "--strict"]) == 1
    assert "error: the comparison is unfair: tool time" in capsys.readouterr().err
    assert command_line(["compare", str(replayed.path), str(replayed.path), "--strict", "--md", "-"]) == 0
    assert capsys.readouterr().out.startswith("# agentbench compare: ")


def test_bad_calls_are_refused_in_one_line(replayed: package.Run, empty: Path) -> None:
    (empty / "folder").mkdir()
    refused: list[tuple[list[str | Path], str]] = [
        (["compare", replayed.path, "nowhere"], "nowhere"),
        (["compare", replayed.path, "folder"], "folder"),
        (["compare", replayed.path], "two runs or more"),
        (["compare", replayed.path, replayed.path, "--md", "no/such/folder/c.md"], "--md"),
    ]
    for arguments, said in refused:
        result = agentbench(*arguments, cwd=empty)
        assert result.returncode == 2, result.stderr
        assert said in result.stderr.splitlines()[-1]
    assert [path.name for path in empty.iterdir()] == ["folder"]
