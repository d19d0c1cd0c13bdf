"""Power on the command line and in the summaries: every figure follows from the tables."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.python import power_recomputed
from tests.python.power_recomputed import frame

import agentbench
from agentbench._cli import run as command_line

if TYPE_CHECKING:
    from tests.python.conftest import Captured

STUB = Path(__file__).parents[1] / "rust/power/nvml.c"
VERBS = ("replay", "capacity")


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A management library of two devices: one with an energy counter that stands for 300 W, one without."""
    folder = tmp_path_factory.mktemp("nvml")
    path = folder / "libnvidia-ml.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(path), str(STUB), "-ldl"], check=True)
    (folder / "state").write_text("steady 300000 290000 1\nsteady 100000 90000 0\n")
    return path


def search(
    engine: agentbench.SimulatedEngine, captured: Captured, out: Path, *options: str, slo: str = "e2e.max<=100s"
) -> agentbench.Run:
    """A small search by the command line."""
    arguments = ["capacity", str(captured.path), "--url", engine.url, "--max-agents", "2", "--slo", slo]
    arguments += ["--min-requests-per-agent", "1", "--min-steady", "400ms", "--out", str(out), *options]
    assert command_line(arguments) == 0
    return agentbench.Run.open(out)


def replay(engine: agentbench.SimulatedEngine, captured: Captured, out: Path, *options: str) -> agentbench.Run:
    """A replay of some seconds by the command line."""
    arguments = ["replay", str(captured.path), "--url", engine.url, "--agents", "2", "--duration", "1s"]
    assert command_line([*arguments, "--tool-time", "20ms", "--out", str(out), *options]) == 0
    return agentbench.Run.open(out)


def test_a_given_power_is_recomputed_from_the_tables(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--power", "constant:300", "--pue", "1.25", "--idle-baseline", "300ms")
    run = replay(engine, captured, tmp_path / "replayed", *options)
    power = power_recomputed.check_replay(run)
    assert (power["source"], power["boundary"], power["pue"]) == ("constant", "facility", 1.25)
    assert power["mean_power_w"] == pytest.approx(375.0)
    assert power["devices"][0]["idle_power_w"] == pytest.approx(300.0)
    shown = capsys.readouterr().out
    assert "boundary facility" in shown
    assert "at fixed load, no service level" in shown

    run = search(engine, captured, tmp_path / "searched", *options, "--gpus", "0,1")
    capacity = power_recomputed.check_capacity(run)
    assert capacity["gpus"]["value"] == 2
    assert capacity["agents_per_gpu"]["value"] == 1
    assert capacity["agents_per_mw"]["value"] == pytest.approx(2 / 375e-6)
    assert capacity["power"]["load"] == "at the service level e2e.max<=100s"
    shown = " ".join(capsys.readouterr().out.split())
    assert "power constant, boundary facility, PUE 1.25 devices chosen by a power that was given, not measured" in shown
    assert "agents per MW at least 5,333 " in shown
    assert "J per turn " in shown


def test_measured_power_is_recomputed_and_never_held_against_a_simulated_engine(
    engine: agentbench.SimulatedEngine, captured: Captured, library: Path, tmp_path: Path
) -> None:
    run = search(engine, captured, tmp_path / "run", "--power", f"nvml:{library}")
    summary = run.summary()
    assert summary is not None
    capacity = summary["capacity"]
    for level in frame(run, "levels").to_dict("records"):
        energy, watts = power_recomputed.window_power(run, level["start_ms"], level["end_ms"])
        power_recomputed.same(level["energy_j"], energy)
        power_recomputed.same(level["mean_power_w"], watts)
        assert watts == pytest.approx(400.0, rel=0.005)
    assert capacity["mean_power_w"]["value"] == pytest.approx(400.0, rel=0.005)
    assert [device["method"] for device in capacity["power"]["devices"]] == ["counter", "trapezoid"]
    assert capacity["power"]["boundary"] == "device"
    for name in ("agents_per_mw", "joules_per_output_token", "joules_per_turn", "joules_per_trajectory"):
        assert capacity[name]["value"] is None
        assert "the engine is simulated" in capacity[name]["reason"]
    # The GPUs of this machine are not those of a simulated engine.
    assert capacity["gpus"]["value"] is None


def test_gpus_are_chosen_by_name(
    engine: agentbench.SimulatedEngine, captured: Captured, library: Path, tmp_path: Path
) -> None:
    run = replay(engine, captured, tmp_path / "run", "--power", f"nvml:{library}", "--gpus", "GPU-1")
    summary = run.summary()
    assert summary is not None
    assert [device["device"] for device in summary["power"]["devices"]] == ["GPU-1"]
    assert summary["power"]["rule"] == "named by the caller"
    assert summary["power"]["mean_power_w"] == pytest.approx(100.0)
    assert set(frame(run, "power")["device"]) == {"GPU-1"}


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize(
    ("options", "text"),
    [
        (["--power", "steam"], '"steam" is no source'),
        (["--power", "constant:0"], "no number of watts"),
        (["--power", "dcgm"], "is no source"),
        (["--power", "dcgm:ftp://h/metrics"], "ftp"),
        (["--engine-pid", "0"], "--engine-pid"),
        (["--idle-baseline", "soon"], "--idle-baseline"),
        (["--pue", "0.5"], "--pue"),
        (["--gpus", ","], "--gpus"),
    ],
)
def test_wrong_power_options_are_refused(
    verb: str,
    options: list[str],
    text: str,
    engine: agentbench.SimulatedEngine,
    captured: Captured,
    empty: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    slo = ["--slo", "errors<=0"] if verb == "capacity" else []
    assert command_line([verb, str(captured.path), "--url", engine.url, *slo, *options]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 1
    assert text in lines[0]
    assert not [path for path in empty.rglob("*") if path.is_file()]


@pytest.mark.parametrize("verb", VERBS)
def test_a_gpu_that_is_not_there_is_refused(
    verb: str,
    engine: agentbench.SimulatedEngine,
    captured: Captured,
    library: Path,
    empty: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    slo = ["--slo", "errors<=0"] if verb == "capacity" else []
    options = ["--power", f"nvml:{library}", "--gpus", "7"]
    assert command_line([verb, str(captured.path), "--url", engine.url, *slo, *options]) == 2
    assert 'no GPU "7" (named by the caller); there are: 0 (GPU-0), 1 (GPU-1)' in capsys.readouterr().err
    assert not [path for path in empty.rglob("*") if path.is_file()]


def test_without_a_source_the_reason_stands_in_the_report(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = tmp_path / "absent.so"
    run = search(engine, captured, tmp_path / "searched", "--power", f"nvml:{missing}")
    summary = run.summary()
    assert summary is not None
    figure = summary["capacity"]["agents_per_mw"]
    assert figure["value"] is None
    assert "no NVIDIA driver library" in figure["reason"]
    assert "power none (no NVIDIA driver library" in " ".join(capsys.readouterr().out.split())
    replay(engine, captured, tmp_path / "replayed", "--power", "none")
    assert "power none (switched off)" in " ".join(capsys.readouterr().out.split())


def test_a_preset_that_was_loosened_says_so(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--preset", "agentperf", "--min-trajectories", "1", "--min-trajectories-per-agent", "0"]
    options += ["--tool-time", "none", "--level-time", "30s"]
    run = search(engine, captured, tmp_path / "run", *options)
    label = (
        "agentperf (changed: trajectories 1 instead of 30, trajectories an agent 0 instead of 3, requests an agent 1"
        " instead of 3, steady state 0.4 s instead of 600 s, level time 30 s instead of 7200 s, tool time none)"
    )
    summary = json.loads((run.path / "summary.json").read_text())
    assert summary["capacity"]["settings"]["preset"] == label
    assert f"preset {label}: not comparable with results of the preset as it is" in summary["notes"]
    assert f"preset: {label}" in capsys.readouterr().err.replace("\n", " ")
