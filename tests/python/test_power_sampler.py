"""`PowerSampler` from Python: what it tells, what it writes, and the energy of any stretch of time."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pandas as pd
import pyarrow as pa
import pytest
from tests.python.test_power import library  # noqa: F401 a fixture

import agentbench
from agentbench import _core
from agentbench._cli import doctor

if TYPE_CHECKING:
    from pathlib import Path


def wait_for(sampler: agentbench.PowerSampler, ticks: int) -> None:
    """Wait until that many samples were made."""
    until = time.monotonic() + 60
    while sampler.stats()["ticks"] < ticks:
        assert time.monotonic() < until, sampler.stats()
        time.sleep(0.02)


def span(sampler: agentbench.PowerSampler) -> tuple[float, float]:
    """Return the times of the first and the last sample."""
    times = sampler.samples().to_pandas()["ts"]
    return float(times.min()), float(times.max())


def test_a_given_power_gives_its_energy(tmp_path: Path) -> None:
    out = tmp_path / "run"
    # Far apart, so that no busy machine makes a gap.
    with agentbench.PowerSampler(out=out, power="constant:300", pue=1.25, interval_s=0.3) as sampler:
        assert sampler.out == out
        assert not sampler.done
        wait_for(sampler, 4)
        live = sampler.stats()
        assert live["power_w"] == 300.0
        assert (live["source"], live["boundary"], live["pue"]) == ("constant", "host", 1.25)
    assert sampler.done
    stats = sampler.stats()
    assert stats["ticks"] >= live["ticks"]
    samples = sampler.samples()
    table = pa.table(samples)
    assert table.num_rows == len(samples) == stats["ticks"]
    assert set(table["power_w"].to_pylist()) == {300.0}
    pd.testing.assert_frame_equal(samples.to_pandas(), agentbench.Run.open(out).power().to_pandas())
    start, end = span(sampler)
    energy = sampler.energy(start, end)
    assert (energy["valid"], energy["reason"], energy["method"]) == (True, None, "trapezoid")
    assert energy["energy_j"] == pytest.approx(375.0 * (end - start))
    assert energy["mean_power_w"] == pytest.approx(375.0)
    assert energy["devices"][0]["mean_power_w"] == pytest.approx(300.0)

    before = sampler.energy(start - 100, end)
    assert (before["valid"], before["energy_j"], before["mean_power_w"]) == (False, None, None)
    assert before["reason"] is not None
    assert "95 % are needed" in before["reason"]
    for bounds in ((end, start), (start, start), (float("nan"), end)):
        with pytest.raises(agentbench.ConfigError, match="no span of time"):
            sampler.energy(*bounds)


def test_samples_can_be_read_while_it_runs(tmp_path: Path) -> None:
    with agentbench.PowerSampler(out=tmp_path / "run", power="constant:300", interval_s=0.05) as sampler:
        wait_for(sampler, 3)
        until = time.monotonic() + 60
        while not len(sampler.samples()):
            assert time.monotonic() < until
            time.sleep(0.05)
        assert set(sampler.samples().to_pandas()["power_w"]) == {300.0}


def test_measured_power_and_counters(library: Path, tmp_path: Path) -> None:  # noqa: F811
    sampler = agentbench.PowerSampler(
        out=tmp_path / "run", power=f"nvml:{library}", interval_s=0.3, idle_baseline_s=0.3, settings={"why": "a test"}
    )

    async def sample() -> agentbench.Run:
        async with sampler:
            await asyncio.to_thread(wait_for, sampler, 5)
            return await sampler.stop_async()

    run = asyncio.run(sample())
    stats = sampler.stats()
    assert (stats["devices"], stats["boundary"], stats["failed"]) == (["GPU-0", "GPU-1"], "device", 0)
    assert stats["idle"] is not None
    assert set(stats["idle"]["mean_power_w"]) == {"GPU-0", "GPU-1"}
    assert run.manifest["settings"]["why"] == "a test"
    assert run.manifest["settings"]["power"]["devices"] == stats["devices"]
    assert run.manifest["counts"]["power_samples"] == stats["ticks"]
    frame = run.power().to_pandas()
    assert len(frame) == 2 * stats["ticks"]
    start, end = span(sampler)
    energy = sampler.energy(start, end)
    assert energy["valid"], energy
    assert [device["method"] for device in energy["devices"]] == ["counter", "trapezoid"]
    assert energy["method"] == "mixed"
    # The counter is compared with itself in the table: a busy machine may read it after the sample's time.
    counted = frame[frame["device"] == "GPU-0"].sort_values("ts")
    joules = counted["energy_j"].iloc[-1] - counted["energy_j"].iloc[0]
    length = counted["ts"].iloc[-1] - counted["ts"].iloc[0]
    assert energy["devices"][0]["energy_j"] == pytest.approx(joules / length * (end - start), rel=1e-6)
    assert energy["devices"][1]["energy_j"] == pytest.approx(100.0 * (end - start), rel=1e-6)


def test_without_a_source_every_figure_has_the_reason(tmp_path: Path) -> None:
    missing = tmp_path / "absent.so"
    with agentbench.PowerSampler(out=tmp_path / "run", power=f"nvml:{missing}") as sampler:
        stats = sampler.stats()
        assert (stats["source"], stats["ticks"], stats["power_w"]) == (None, 0, None)
        assert stats["reason"] is not None
        assert "no NVIDIA driver library" in stats["reason"]
        now = time.time()
        energy = sampler.energy(now - 1, now)
    assert (energy["valid"], energy["energy_j"], energy["reason"]) == (False, None, stats["reason"])
    assert len(sampler.samples()) == 0
    assert any("power: none (no NVIDIA" in note for note in agentbench.Run.open(tmp_path / "run").manifest["notes"])


def test_wrong_settings_are_refused(library: Path, tmp_path: Path) -> None:  # noqa: F811
    out = tmp_path / "run"
    for arguments, text in (
        ({"power": "steam"}, '"steam" is no source'),
        ({"interval_s": 0.0}, "interval_s: 0"),
        ({"interval_s": 0.0001}, "at least 1 ms"),
        ({"pue": 0.5}, "pue: 0.5"),
        ({"idle_baseline_s": -1.0}, "idle_baseline_s"),
    ):
        with pytest.raises(agentbench.ConfigError, match=text):
            agentbench.PowerSampler(out=out, **arguments)
    sampler = agentbench.PowerSampler(out=out, power=f"nvml:{library}", gpus=["7"])
    with pytest.raises(agentbench.ConfigError, match="not started"):
        sampler.stats()
    with pytest.raises(agentbench.GpuError, match='no GPU "7"'):
        sampler.start()
    assert not [path for path in out.rglob("*") if path.is_file()]


def test_gpus_are_listed_with_what_they_tell(library: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    gpus = agentbench.probe_gpus(library)
    assert [gpu["uuid"] for gpu in gpus] == ["GPU-0", "GPU-1"]
    assert [gpu["power_w"] for gpu in gpus] == [290.0, 90.0]
    assert [gpu["has_energy_counter"] for gpu in gpus] == [True, False]
    assert {(gpu["name"], gpu["driver"], gpu["power_reason"]) for gpu in gpus} == {(None, "580.1", None)}
    with pytest.raises(agentbench.GpuError, match="no NVIDIA driver library"):
        agentbench.probe_gpus(library.parent / "absent.so")
    lost = {**gpus[1], "power_w": None, "power_reason": "the device does not support it"}
    monkeypatch.setattr(_core, "probe_gpus", lambda: [gpus[0], lost])
    findings = list(doctor._gpus())
    assert [finding.state for finding in findings] == ["ok", "missing"]
    assert "GPU-0, driver 580.1, 290 W, with energy counter" in findings[0].detail
    assert "no power: the device does not support it" in findings[1].detail
