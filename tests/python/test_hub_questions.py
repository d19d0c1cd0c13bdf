"""What was published answers the questions that the recording answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("polars")
BY_HASHES = ("cache that has 95 % of an endless one's hits", "prompt tokens shared with other sessions")


@pytest.mark.parametrize("level", ["counts", "hashes", "text-redacted"])
def test_the_same_headline_figures(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    sample = agentbench.sample_trace()
    agentbench.push(sample, repo="owner/sample", license="odc-by", level=level, dry_run=tmp_path / "sample")
    recorded = agentbench.analyze(sample).headline.astype(str)
    published = agentbench.analyze(agentbench.Run.open(tmp_path / "sample")).headline.astype(str)
    if level == "counts":
        # What prompts share is known by counts alone, and not across sessions.
        by_hashes = recorded["name"].isin(BY_HASHES)
        assert by_hashes.sum() == len(BY_HASHES)
        recorded, published = recorded[~by_hashes], published[~by_hashes]
    assert recorded.equals(published)


def test_a_published_replay_compares_as_the_run_itself(
    engine: agentbench.SimulatedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    for name in ("first", "second"):
        run = agentbench.replay(url=engine.url, out=tmp_path / name, agents=2, trajectories=4)
        folder = tmp_path / "published" / name
        agentbench.push(run, repo="owner/replay", license="odc-by", dry_run=folder, shift_times=True)
    recorded = agentbench.Run.open(tmp_path / "first").summarize()
    published = agentbench.Run.open(tmp_path / "published/first").summarize()
    assert published["requests"] == recorded["requests"]
    assert published["steady"] == recorded["steady"]
    settings = published["settings"]
    assert (settings["agents"], settings["trajectories"], settings["url"]) == (2, 4, "")
    comparison = agentbench.compare(tmp_path / "published/first", tmp_path / "published/second")
    assert comparison.fair
