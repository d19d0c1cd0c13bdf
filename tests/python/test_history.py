"""`history`: the runs of a folder with their headline figures; partial and broken ones are said."""

from __future__ import annotations

import csv
import io
import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.traffic import agentbench

import agentbench as package
from agentbench._cli import run as command_line

if TYPE_CHECKING:
    from pathlib import Path

    from tests.python.conftest import Captured


@pytest.fixture(scope="module")
def folder(engine: package.SimulatedEngine, captured: Captured, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A capture, a replay, a search, a run that was killed and one that cannot be read."""
    root = tmp_path_factory.mktemp("results")
    shutil.copytree(captured.path, root / "captured")
    package.replay(captured.path, url=engine.url, agents=2, duration_s=1.0, out=root / "deeper" / "replayed")
    minimum: dict[str, Any] = {"min_trajectories": 1, "min_trajectories_per_agent": 0, "min_requests_per_agent": 1}
    slo = ["ttft.p95<=100s"]
    package.capacity(
        captured.path, url=engine.url, slo=slo, max_agents=2, out=root / "searched", min_steady_s=0.2, **minimum
    )
    shutil.copytree(root / "deeper" / "replayed", root / "killed")
    manifest = json.loads((root / "killed" / "manifest.json").read_text())
    (root / "killed" / "manifest.json").write_text(json.dumps(manifest | {"complete": False}))
    shutil.copytree(root / "deeper" / "replayed", root / "torn")
    (root / "torn" / "summary.json").write_text('{"steady": ')
    (root / "nothing").mkdir()
    (root / "nothing" / "manifest.json").write_text("no JSON")
    return root


def test_each_run_has_its_headline_figures(folder: Path) -> None:
    entries = {entry.run: entry for entry in package.history(folder).entries}
    assert entries.keys() == {"captured", "deeper/replayed", "searched", "killed", "torn", "nothing"}
    run = package.Run.open(folder / "deeper" / "replayed")
    rows = run.requests().to_pandas()
    rows = rows[(rows["phase"] == "steady") & (rows["status"] == "ok")]
    replayed, summary = entries["deeper/replayed"], run.summary()
    assert summary is not None
    assert replayed.ttft_p95_s == pytest.approx(rows["ttft_ms"].quantile(0.95) / 1e3)
    span_s = (rows["last_token_ms"] - rows["ttft_ms"]) / 1e3
    speed = ((rows["completion_tokens"] - 1) / span_s)[(rows["completion_tokens"] >= 2) & (span_s > 0)]
    assert replayed.speed_p25_tok_s == pytest.approx(speed.quantile(0.25))
    assert replayed.output_tok_s == summary["steady"]["output_tokens_per_s"]
    assert (replayed.agents, replayed.max_agents, replayed.failed) == (2, None, 0)
    assert (replayed.kind, replayed.simulated, replayed.verdict, replayed.state) == ("replay", True, "good", "complete")
    searched = entries["searched"]
    assert (searched.kind, searched.agents, searched.max_agents) == ("capacity", None, 2)
    captured = entries["captured"]
    turns = package.Run.open(folder / "captured").turns().to_pandas()
    assert captured.ttft_p95_s == pytest.approx(turns["ttft_ms"].quantile(0.95) / 1e3)
    assert (captured.verdict, captured.output_tok_s) == (None, None)


def test_partial_and_broken_runs_are_said(folder: Path) -> None:
    listed = package.history(folder)
    entries = {entry.run: entry for entry in listed.entries}
    # Of a run that was killed, figures are computed from its rows.
    assert entries["killed"].state == "partial"
    assert entries["killed"].ttft_p95_s == pytest.approx(entries["deeper/replayed"].ttft_p95_s)
    assert entries["torn"].state.startswith("broken: ")
    assert (entries["torn"].kind, entries["torn"].ttft_p95_s) == ("replay", None)
    assert (entries["nothing"].kind, entries["nothing"].time) == (None, None)
    markdown = listed.to_markdown()
    assert "replay (partial)" in markdown
    assert "replay (broken)" in markdown
    assert "good (simulated)" in markdown


def test_json_and_csv_are_the_same(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command_line(["history", str(folder), "--json"]) == 0
    by_json = json.loads(capsys.readouterr().out)
    assert by_json == package.history(folder).to_dicts()
    assert command_line(["history", str(folder), "--csv"]) == 0
    by_csv = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [{name: "" if value is None else str(value) for name, value in row.items()} for row in by_json] == by_csv
    assert [row["time"] or "" for row in by_json] == sorted(row["time"] or "" for row in by_json)


def test_a_metric_is_drawn(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "ttft.png"
    assert command_line(["history", str(folder), "--plot", "ttft_p95_s", str(target)]) == 0
    assert target.read_bytes().startswith(b"\x89PNG")
    assert "4 of 6 runs have ttft_p95_s" in capsys.readouterr().err


def test_bad_calls_are_one_line(folder: Path, empty: Path) -> None:
    (empty / "bare").mkdir()
    refused: list[tuple[list[str | Path], str]] = [
        (["history", "nowhere"], "no such folder"),
        (["history", "bare"], "no run in it"),
        (["history", folder, "--json", "--csv"], "give one"),
        (["history", folder, "x.png"], "--plot METRIC"),
        (["history", folder / "captured", "--plot", "max_agents"], "no run of the folder has max_agents"),
    ]
    for arguments, said in refused:
        result = agentbench(*arguments, cwd=empty)
        assert result.returncode == 2, result.stderr
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1, result.stderr
