"""The HTML page: figures and embedded data against summary and pandas; nothing from outside, no text as markup."""

from __future__ import annotations

import html
import json
import re
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from tests.python.big_run import inflated
from tests.python.page_parts import card, embedded, source_with
from tests.python.traffic import agentbench

import agentbench as package
from agentbench._cli import run as command_line
from agentbench._figures import number
from agentbench.analysis import QUESTIONS

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd
    from tests.python.conftest import Captured

MEGABYTE = 1e6


@pytest.fixture(scope="module")
def replayed(
    engine: package.SimulatedEngine, captured: Captured, tmp_path_factory: pytest.TempPathFactory
) -> package.Run:
    """A replay with a steady state and a given power."""
    out = tmp_path_factory.mktemp("replayed") / "run"
    return package.replay(captured.path, url=engine.url, agents=3, duration_s=1.0, out=out, power="constant:250")


@pytest.fixture(scope="module")
def page(replayed: package.Run) -> str:
    return package.report(replayed).to_html()


def steady(run: package.Run) -> pd.DataFrame:
    rows = run.requests().to_pandas()
    return rows[(rows["phase"] == "steady") & (rows["status"] == "ok")]


def test_headline_figures_follow_from_the_tables(replayed: package.Run, page: str) -> None:
    rows, summary = steady(replayed), replayed.summary()
    assert summary is not None
    span_s = (rows["last_token_ms"] - rows["ttft_ms"]) / 1e3
    speed = ((rows["completion_tokens"] - 1) / span_s)[(rows["completion_tokens"] >= 2) & (span_s > 0)]
    window_s = (summary["settings"]["window"]["steady_end_ms"] - summary["settings"]["window"]["steady_start_ms"]) / 1e3
    assert card(page, "TTFT p95") == (f"{number(float(rows['ttft_ms'].quantile(0.95) / 1e3))} s", "steady state")
    assert card(page, "output speed p25")[0] == f"{number(float(speed.quantile(0.25)))} tok/s"
    assert card(page, "requests answered whole")[0] == "100 %"
    assert (
        card(page, "output of all agents")[0] == f"{number(float(rows['completion_tokens'].sum() / window_s))} tokens/s"
    )
    ok = replayed.requests().to_pandas().query("status == 'ok'")
    hits = ok["cached_tokens"].sum() / ok["prompt_tokens"].sum() * 100
    assert card(page, "prompt tokens from cache") == (f"{hits:.1f} %", "by usage, whole run")
    assert card(page, "requests")[0] == f"{len(replayed.requests()):,}"
    assert card(page, "mean power") == ("250 W", "constant, boundary host, steady state")


def test_embedded_data_are_the_tables(replayed: package.Run, page: str) -> None:
    rows = replayed.requests().to_pandas()
    ok = rows[rows["status"] == "ok"].sort_values("sent_at_ms")
    spans = source_with(page, "start_s", "first_s", "end_s", "wait_from_s")
    assert spans["start_s"] == pytest.approx(ok["sent_at_ms"] / 1e3, rel=1e-6)
    assert spans["end_s"] == pytest.approx((ok["sent_at_ms"] + ok["e2e_ms"]) / 1e3, rel=1e-6)
    assert spans["osl"] == pytest.approx(ok["completion_tokens"])
    points = [
        source for source in embedded(page) if source.keys() >= {"isl", "ttft_s", "speed"} and "start_s" not in source
    ]
    assert len(points) == 2
    for source in points:
        assert np.sort(source["ttft_s"]) == pytest.approx(np.sort(steady(replayed)["ttft_ms"] / 1e3), rel=1e-6)
        assert source["isl"].sum() == pytest.approx(steady(replayed)["prompt_tokens"].sum())


def test_every_chart_has_its_place_and_its_conditions(page: str) -> None:
    charts = re.findall(
        r'data-chart="([^"]+)".*?<p class="of">(.*?)</p>.*?<div class="plot">(.*?)</figure>', page, re.DOTALL
    )
    assert [name for name, _, _ in charts] == [
        *[f"{column}-{kind}" for column in ("ttft_s", "speed") for kind in ("distribution", "agents", "context")],
        *["timeline", "time", "hits", "hits-context", "running", "kv", "output-rate", "prompt-rate", "power", "tools"],
    ]
    for name, conditions, inside in charts:
        assert "simulated" in conditions, name
        assert (f'<div id="chart-{name}"' in inside) != ("No figure: " in inside), name


def test_what_a_reader_must_know_stands_before_any_figure(page: str) -> None:
    ribbon, first = page.index('class="ribbon"'), page.index('class="card"')
    assert ribbon < page.index('<p class="word">good</p>') < first
    assert '<p class="caveats">simulated' in page[ribbon:first]
    assert "good ≤ 3 s, ok ≤ 10 s, marginal ≤ 20 s" in page
    assert page.index("<h2>Read this first</h2>") < page.index("<h2>Conditions</h2>") < page.index("<h2>Method</h2>")


def test_a_page_says_how_to_run_it_again(page: str) -> None:
    assert "<h3>run it again</h3><p>It was started from Python" in page
    sample = package.report(package.sample_trace()).to_html()
    assert "<h3>run it again</h3><pre>agentbench synthesize --profile sample" in sample


def test_nothing_comes_from_outside(page: str) -> None:
    own = re.sub(r"<script[^>]*>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.findall(r'(?:src|href)="(?!#)', own)
    assert "@import" not in own
    assert "url(" not in own
    assert "<script src" not in page


def test_a_large_run_stays_small_and_its_text_is_no_markup(replayed: package.Run, tmp_path: Path) -> None:
    run = inflated(replayed, tmp_path / "big", 10_000, failed_every=100)
    made = package.report(run)
    text = made.to_html()
    assert len(text.encode()) < 6 * MEGABYTE
    assert "<script>alert(1)" not in text
    assert "http 503" in text
    assert card(text, "requests") == ("10,000", "100 failed, 0 cut off, whole run")
    spans = source_with(text, "start_s", "first_s", "end_s", "wait_from_s")
    assert len(spans["start_s"]) == 9_900


def test_a_capacity_run_has_its_curve_and_says_whose_figures(
    engine: package.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    minimum: dict[str, Any] = {"min_trajectories": 1, "min_trajectories_per_agent": 0, "min_requests_per_agent": 1}
    run = package.capacity(
        captured.path,
        url=engine.url,
        slo=["ttft.p95<=10s", "errors<=0"],
        max_agents=2,
        gpu_count=1,
        out=tmp_path / "run",
        min_steady_s=0.2,
        **minimum,
    )
    text, summary = package.report(run).to_html(), run.summary()
    assert summary is not None
    level = summary["capacity"]["level"]
    assert card(text, "agents at the service level")[0] == "≥ 2"
    assert "not saturated" in card(text, "agents at the service level")[1]
    assert card(text, "requests")[1].endswith(f"all of level {level}")
    assert re.findall(r'data-chart="(capacity[^"]*)"', text) == ["capacity-0", "capacity-1", "capacity-work"]
    levels = run.levels().to_pandas()
    values = [json.loads(text)["ttft.p95<=10s"] / 1e3 for text in levels["values"]]
    drawn = [source["y"] for source in embedded(text) if {"y", "n_requests"} <= source.keys()]
    assert sorted(drawn[0]) == pytest.approx(sorted(values), rel=1e-6)


def test_a_recording_has_a_page_without_a_verdict(captured: Captured) -> None:
    text = package.report(captured.path).to_html()
    assert '<p class="word">no verdict</p>' in text
    turns = package.Run.open(captured.path).turns().to_pandas()
    assert card(text, "turns")[0] == str(len(turns))
    asked = re.findall(r'data-question="(\w+)"', text)
    assert asked == list(QUESTIONS)
    overview = package.analyze(captured.path)["overview"].headline[0]
    assert f'<td class="text">{html.escape(overview.name)}</td>' in text
    assert card(text, "prompt tokens")[0] == f"{turns['isl'].sum():,}"


def test_a_recordings_failures_are_listed_by_kind(captured: Captured, tmp_path: Path) -> None:
    shutil.copytree(captured.path, tmp_path / "run")
    turns = package.Run.open(captured.path).turns().to_polars()
    outcomes = ["http_error", "http_error", *["ok"] * (len(turns) - 2)]
    errors = ["http 500: <b>first</b>", "http 500: second", *[None] * (len(turns) - 2)]
    changed = turns.with_columns(pl.Series("outcome", outcomes), pl.Series("error", errors))
    changed.write_parquet(tmp_path / "run" / "turn_traces.parquet")
    text = package.report(tmp_path / "run").to_html()
    listed = text[text.index('<section id="failures">') :]
    row = r'<td class="text">http 500</td><td class="text">(.*?)</td><td class="figure">(.*?)</td>'
    assert re.findall(row, listed) == [("http 500: &lt;b&gt;first&lt;/b&gt;", "2")]
    assert 'data-chart="failures"' in listed


def test_the_command_writes_it(replayed: package.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = tmp_path / "run"
    shutil.copytree(replayed.path, run)
    (run / "report.md").unlink()
    assert command_line(["report", str(run), "--html"]) == 0
    assert capsys.readouterr().out == ""
    assert not (run / "report.md").exists()
    assert (run / "report.html").stat().st_mode & 0o777 == 0o600
    assert command_line(["report", str(run), "--html", str(tmp_path / "other.html"), "--fail-on", "marginal"]) == 0
    assert (tmp_path / "other.html").read_text().startswith("<!DOCTYPE html>")
    assert command_line(["report", str(run), "--html", str(tmp_path / "no/such.html")]) == 2
    assert "--html" in capsys.readouterr().err


def test_a_missing_library_is_one_line(replayed: package.Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import importlib.util as u\nfound = u.find_spec\n"
        "u.find_spec = lambda name, *a: None if name == 'bokeh' else found(name, *a)\n"
    )
    import os

    path = os.pathsep.join(filter(None, [str(tmp_path), os.environ.get("PYTHONPATH")]))
    monkeypatch.setenv("PYTHONPATH", path)
    result = agentbench("report", replayed.path, "--html", tmp_path / "r.html", cwd=tmp_path)
    assert (result.returncode, len(result.stderr.splitlines())) == (2, 1), result.stderr
    assert "agentbench-serving[report]" in result.stderr
    assert not (tmp_path / "r.html").exists()


def test_a_comparison_has_a_page_with_what_is_unfair_on_top(
    engine: package.SimulatedEngine, captured: Captured, replayed: package.Run, tmp_path: Path
) -> None:
    other = package.replay(captured.path, url=engine.url, agents=2, duration_s=1.0, out=tmp_path / "other")
    made = package.compare(replayed, other)
    text = made.to_html()
    assert '<p class="word">unfair</p>' in text
    assert text.index("unfair, agents differs") < text.index('data-chart="differences-1"')
    drawn = [source for source in embedded(text) if {"pct", "first", "value"} <= source.keys()]
    shown = {
        round(float(first), 3): (value, pct)
        for source in drawn
        for first, value, pct in zip(source["first"], source["value"], source["pct"], strict=True)
    }
    (ttft,) = [figure for figure in made.figures if figure.name == "TTFT p50"]
    expected = [run["ttft_ms"].quantile(0.5) for run in (steady(replayed), steady(other))]
    assert ttft.by_run == pytest.approx(expected)
    value, pct = shown[round(float(np.float32(expected[0])), 3)]
    assert value == pytest.approx(expected[1], rel=1e-6)
    assert pct == pytest.approx((expected[1] / expected[0] - 1) * 100, rel=1e-4)
    assert command_line(["compare", str(replayed.path), str(other.path), "--html", str(tmp_path / "c.html")]) == 0
    assert (tmp_path / "c.html").read_text().count("<!DOCTYPE html>") == 1
