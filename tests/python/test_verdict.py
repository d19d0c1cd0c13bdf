"""Verdicts: the word of each value, with figure and thresholds beside it; failed requests are the worst value."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from tests.python.traffic import agentbench

import agentbench as package
from agentbench._cli import run as command_line
from agentbench._report.sections import Flag
from agentbench._report.verdict import MEASURES, verdict, verdict_section, with_thresholds

if TYPE_CHECKING:
    from pathlib import Path

    from tests.python.conftest import Captured


def summary(
    ttft_s: float | None = 1.0, speed: float | None = 100.0, ok: int = 100, failed: int = 0, **more: Any
) -> dict[str, Any]:
    """A summary as far as a verdict looks at it."""
    part = {
        "fields": {"ttft_ms": {}},
        "requests": {"ok": ok, "failed": failed},
        "with_failures": {
            "ttft_p95_ms": None if ttft_s is None else ttft_s * 1e3,
            "output_tokens_per_s_p25": speed,
        },
    }
    return {"settings": {}, "steady": part, "whole": part} | more


WORDS = [
    (summary(), ["good", "good", "good"], "good"),
    (summary(3.0, 30.0, ok=75, failed=25), ["good", "good", "good"], "good"),
    (summary(3.01, 29.9, ok=74, failed=26), ["ok", "ok", "ok"], "ok"),
    (summary(10.0, 15.0, ok=25, failed=75), ["ok", "ok", "ok"], "ok"),
    (summary(10.01, 14.9), ["marginal", "marginal", "good"], "marginal"),
    (summary(20.0, 5.0), ["marginal", "marginal", "good"], "marginal"),
    (summary(20.01, 100.0), ["poor", "good", "good"], "poor"),
    (summary(1.0, 4.99), ["good", "poor", "good"], "poor"),
    (summary(1.0, 100.0, ok=24, failed=76), ["good", "good", "poor"], "poor"),
    # Failed requests put the percentile beyond every bound.
    (summary(None, 100.0, ok=90, failed=10), ["poor", "good", "good"], "poor"),
    (summary(None, 100.0), [None, "good", "good"], None),
    # What is poor stays so, whatever a figure that is missing would say.
    (summary(30.0, None), ["poor", None, "good"], "poor"),
    (summary(ok=0), [None, None, None], None),
]


@pytest.mark.parametrize(("of", "words", "word"), WORDS)
def test_each_value_has_its_word_and_the_worst_counts(
    of: dict[str, Any], words: list[str | None], word: str | None
) -> None:
    found = verdict(of, [])
    assert [judgment.word for judgment in found.judgments] == words
    assert found.word == word
    assert (found.reason == "") == (None not in words)


def test_failing_is_by_the_word_or_a_worse_one() -> None:
    ok = verdict(summary(5.0), [])
    assert [ok.at_least_as_bad_as(word) for word in ("ok", "marginal", "poor")] == [True, False, False]
    none = verdict(summary(None), [])
    assert none.at_least_as_bad_as("poor")


def test_what_is_grave_stays_on_the_verdict() -> None:
    found = verdict(
        summary(), [Flag("simulated", "", grave=True), Flag("note", ""), Flag("client-limited", "", grave=True)]
    )
    assert found.caveats == ("simulated", "client-limited")
    assert found.in_words() == "good [simulated, client-limited]"


def test_only_a_load_has_a_verdict() -> None:
    assert verdict({"totals": {}}, []).word is None
    no_level = verdict(summary(capacity={"level": None}), [])
    assert (no_level.word, no_level.judgments) == (None, ())
    assert verdict(summary(capacity={"level": 3}), []).part == "steady state of level 3"


def test_a_live_agents_completion_is_its_checks() -> None:
    found = verdict(summary(agent={"completed_pct": 50.0}), [])
    assert (found.judgments[2].label, found.judgments[2].value, found.word) == (
        "tasks completed, by their checks",
        50.0,
        "ok",
    )
    unchecked = verdict(summary(agent={"completed_pct": None}), [])
    assert (unchecked.word, unchecked.judgments[2].figure) == (None, "no task has a check")


def test_few_requests_are_said() -> None:
    assert verdict(summary(ok=19), []).caveats == ("few requests",)
    assert verdict(summary(ok=15, failed=5), []).caveats == ()
    (note,) = verdict_section(verdict(summary(ok=1), [])).notes
    assert note.startswith("Of 1 request of the steady state;")


def test_thresholds_are_set_and_shown() -> None:
    measures = with_thresholds(["ttft.good=500ms", "speed.ok=20tok/s", "completion.marginal=10"])
    ttft, speed, completion = measures
    assert ttft.bounds == (("good", 0.5), ("ok", 10.0), ("marginal", 20.0))
    assert speed.bounds == (("good", 30.0), ("ok", 20.0), ("marginal", 5.0))
    assert completion.bounds == (("good", 75.0), ("ok", 25.0), ("marginal", 10.0))
    assert verdict(summary(1.0), [], measures).word == "ok"
    assert (ttft.bound_in_words("good"), speed.bound_in_words("ok")) == ("<= 0.5 s", ">= 20 tok/s")
    assert with_thresholds([]) == MEASURES


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("ttft.good", "write it like"),
        ("ttft.good=2", "a time needs a unit"),
        ("ttft.poor=2s", "no word 'poor'"),
        ("itl.good=2s", "no measure 'itl'"),
        ("speed.good=2s", "unit 's' does not fit"),
        ("ttft.good=11s", "not in order"),
        ("speed.good=10", "not in order"),
    ],
)
def test_a_bad_threshold_is_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        with_thresholds([text])


@pytest.fixture(scope="module")
def replayed(
    engine: package.SimulatedEngine, captured: Captured, tmp_path_factory: pytest.TempPathFactory
) -> package.Run:
    """A replay with a steady state."""
    out = tmp_path_factory.mktemp("replayed") / "run"
    return package.replay(captured.path, url=engine.url, agents=2, duration_s=1.0, out=out)


def test_the_verdicts_figures_follow_from_the_table(replayed: package.Run) -> None:
    rows = replayed.requests().to_pandas()
    steady = rows[(rows["phase"] == "steady") & (rows["status"] == "ok")]
    speed = (steady["completion_tokens"] - 1) / ((steady["last_token_ms"] - steady["ttft_ms"]) / 1e3)
    ttft, output_speed, completion = package.report(replayed).verdict.judgments
    assert ttft.value == pytest.approx(steady["ttft_ms"].quantile(0.95) / 1e3)
    fast = speed[(steady["completion_tokens"] >= 2) & (steady["last_token_ms"] > steady["ttft_ms"])]
    assert output_speed.value == pytest.approx(fast.quantile(0.25))
    assert completion.value == 100.0


def test_failed_requests_are_the_worst_value(replayed: package.Run, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(replayed.path, run)
    (run / "summary.json").unlink()
    rows = replayed.requests().to_pandas()
    steady = rows.index[rows["phase"] == "steady"]
    fails = set(steady[: len(steady) // 10 + 1])
    frame = replayed.requests().to_polars()
    import polars as pl

    fails_here = pl.Series([index in fails for index in range(len(frame))])
    status = pl.when(fails_here).then(pl.lit("failed")).otherwise(pl.col("status").cast(pl.String))
    frame.with_columns(status.alias("status")).write_parquet(run / "requests.parquet")
    found = package.report(run).verdict
    assert (found.word, found.judgments[0].value) == ("poor", None)
    assert "failed requests" in found.judgments[0].figure
    assert "failed requests" in found.caveats
    assert found.judgments[2].value == pytest.approx(100 * (1 - len(fails) / len(steady)))


def test_an_earlier_summary_is_computed_anew(replayed: package.Run, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(replayed.path, run)
    kept = json.loads((run / "summary.json").read_text())
    for part in ("steady", "whole"):
        del kept[part]["with_failures"]
    (run / "summary.json").write_text(json.dumps(kept))
    assert package.report(run).verdict == package.report(replayed).verdict


def test_reports_and_exit_codes_tell_the_verdict(
    replayed: package.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(replayed.path, run)
    strict = ["--threshold", "ttft.good=0ms", "--threshold", "ttft.ok=0ms", "--threshold", "ttft.marginal=0ms"]
    assert command_line(["report", str(run), "--print", "--fail-on", "ok"]) == 0
    assert "verdict: good [simulated]" in capsys.readouterr().out
    assert command_line(["report", str(run), "--print", *strict]) == 0
    assert "verdict: poor [simulated]" in capsys.readouterr().out
    assert command_line(["report", str(run), "--print", "--fail-on", "poor", *strict]) == 1
    said = capsys.readouterr()
    p95 = pd.Series(package.report(replayed).verdict.judgments[0].value).iloc[0]
    assert f"TTFT p95 {p95:.3g} s" in said.err
    markdown = package.report(run).to_markdown()
    assert markdown.index("## verdict: good") < markdown.index("## conditions")
    assert ">= 30 tok/s" in markdown


def test_bad_thresholds_are_one_line(replayed: package.Run, empty: Path) -> None:
    for value, said in (("ttft.good=fast", "ttft.good=2s"), ("ttft.good=15s", "not in order")):
        result = agentbench("report", replayed.path, "--print", "--threshold", value, cwd=empty)
        assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
        assert said in result.stderr


def test_a_recording_has_none(captured: Captured) -> None:
    made = package.report(captured.path)
    assert made.verdict.word is None
    assert "## verdict" not in made.to_markdown()
    assert command_line(["report", str(captured.path), "--print", "--fail-on", "poor"]) == 1
