"""What charts show: each mark's columns against right answers, or against pandas over the same tables."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from tests.python.big_run import inflated

import agentbench as package
from agentbench._report.charts import capacity, frames, latency, series, shares, timeline
from agentbench._report.charts.panels import panels
from agentbench._report.verdict import MEASURES

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.python.conftest import Captured

    from agentbench._report.charts.model import Chart, Mark


@pytest.fixture(scope="module")
def replayed(
    engine: package.SimulatedEngine, captured: Captured, tmp_path_factory: pytest.TempPathFactory
) -> package.Run:
    """A replay with a steady state."""
    out = tmp_path_factory.mktemp("replayed") / "run"
    return package.replay(captured.path, url=engine.url, agents=3, duration_s=1.0, out=out, power="constant:250")


@pytest.fixture(scope="module")
def searched(
    engine: package.SimulatedEngine, captured: Captured, tmp_path_factory: pytest.TempPathFactory
) -> package.Run:
    """A search of three levels, of which none fails."""
    minimum: dict[str, Any] = {"min_trajectories": 1, "min_trajectories_per_agent": 0, "min_requests_per_agent": 1}
    out = tmp_path_factory.mktemp("searched") / "run"
    slo = ["ttft.p95<=10s", "speed.p25>=1", "errors<=0"]
    return package.capacity(
        captured.path, url=engine.url, slo=slo, max_agents=3, gpu_count=1, out=out, min_steady_s=0.2, **minimum
    )


def summary_of(run: package.Run) -> dict[str, Any]:
    found = run.summary()
    assert found is not None
    return found


def headline(run: package.Run) -> pd.DataFrame:
    """The rows behind a report's headline, by pandas alone."""
    summary, rows = summary_of(run), run.requests().to_pandas()
    rows = rows[(rows["status"] == "ok") & (rows["phase"] == "steady")]
    level = (summary.get("capacity") or {}).get("level")
    return rows if level is None else rows[rows["level"] == level]


def speeds(rows: pd.DataFrame) -> pd.Series[float]:
    span_s = (rows["last_token_ms"] - rows["ttft_ms"]) / 1e3
    known = (rows["completion_tokens"] >= 2) & (span_s > 0)
    return (rows["completion_tokens"] - 1)[known] / span_s[known]


def part_of(run: package.Run) -> pl.DataFrame:
    return frames.of_part(frames.requests(run, 0.0), summary_of(run))


def mark(chart: Chart, label: str) -> Mark:
    (found,) = [each for each in chart.marks if each.label.startswith(label)]
    return found


def same(column: Iterable[Any], expected: Iterable[Any]) -> None:
    assert np.asarray(list(column), dtype=float) == pytest.approx(np.asarray(list(expected), dtype=float), nan_ok=True)


def test_the_headlines_rows_are_the_summarys(replayed: package.Run, searched: package.Run) -> None:
    for run in (replayed, searched):
        part, fields = part_of(run), summary_of(run)["steady"]["fields"]
        assert len(part) == len(headline(run)) == fields["e2e_ms"]["n"] > 0
        for column, name, scale in (("ttft_s", "ttft_ms", 1e3), ("speed", "output_tokens_per_s", 1.0)):
            for statistic, share in (("p50", 0.5), ("p95", 0.95)):
                value = part[column].quantile(share, interpolation="linear")
                assert value is not None
                assert value * scale == pytest.approx(fields[name][statistic])


def test_a_distribution_is_its_quantiles(replayed: package.Run) -> None:
    part = part_of(replayed)
    for column, expected in (("ttft_s", headline(replayed)["ttft_ms"] / 1e3), ("speed", speeds(headline(replayed)))):
        chart = latency.distribution(part, column, "", MEASURES)
        curve = mark(chart, f"{len(expected):,} requests").data
        same(curve["x"], expected.quantile(curve["y"].to_numpy() / 100))
        assert (curve["y"][0], curve["y"][-1]) == (0.0, 100.0)


def test_thresholds_stand_in_a_distribution_where_they_are_near() -> None:
    part = pl.DataFrame({"ttft_s": [1.0, 4.0, 12.0]})
    chart = latency.distribution(part, "ttft_s", "", MEASURES)
    rules = [(each.label, each.data["x"][0]) for each in chart.marks if each.kind == "rule"]
    assert rules == [("good: <= 3 s", 3.0), ("ok: <= 10 s", 10.0), ("marginal: <= 20 s", 20.0)]
    assert chart.x.bounds == (0, 20.8)
    near = latency.distribution(pl.DataFrame({"ttft_s": [0.1]}), "ttft_s", "", MEASURES)
    assert not [each for each in near.marks if each.kind == "rule"]


def test_agents_have_their_own_percentiles(replayed: package.Run) -> None:
    chart = latency.over_agents(part_of(replayed), "ttft_s", "", "agent")
    data = mark(chart, "median").data
    by_agent = headline(replayed).groupby("agent_id")["ttft_ms"]
    assert data["p50"].is_sorted()
    same(data["x"], range(1, len(by_agent) + 1))
    for row in data.iter_rows(named=True):
        agent = row["order"]
        assert row["lane"] == f"agent {agent}"
        own = by_agent.get_group(agent) / 1e3
        assert row["n"] == len(own)
        same([row[f"p{percent}"] for percent in (5, 25, 50, 75, 95)], own.quantile([0.05, 0.25, 0.5, 0.75, 0.95]))


def test_bins_over_context_hold_equally_many() -> None:
    frame = pl.DataFrame({"isl": range(120), "ttft_s": [float(value) for value in range(120)]})
    bins = latency.binned(frame, "ttft_s")
    same(bins["n"], [10] * 12)
    same(bins["isl"], [4.5 + 10 * place for place in range(12)])
    same(bins["p50"], bins["isl"])
    same(bins["p95"], [8.55 + 10 * place for place in range(12)])
    assert len(latency.binned(frame.head(7), "ttft_s")) == 1


def test_every_request_is_a_dot_over_its_context(replayed: package.Run) -> None:
    chart = latency.over_context(part_of(replayed), "speed", "")
    rows = headline(replayed)
    expected = (
        pd.DataFrame({"isl": rows["prompt_tokens"], "speed": speeds(rows)}).dropna().sort_values(["isl", "speed"])
    )
    points = mark(chart, "a request").data.sort("isl", "speed")
    same(points["isl"], expected["isl"])
    same(points["speed"], expected["speed"])


def test_many_dots_are_thinned_and_it_is_said() -> None:
    frame = pl.DataFrame({"isl": range(30_000), "ttft_s": [1.0] * 30_000}).with_columns(
        *[pl.lit(None).alias(name) for name in ("turn", "cached", "osl", "speed")], pl.lit("a").alias("lane")
    )
    chart = latency.over_context(frame, "ttft_s", "")
    points = mark(chart, "a request").data
    assert len(points) == 10_000
    assert (points["isl"][0], points["isl"][-1]) == (0, 29_999)
    assert chart.notes == ("Drawn: 10,000 of 30,000 requests; percentiles are of all.",)
    assert mark(chart, "median").data["n"].sum() == 30_000


def test_the_timeline_holds_every_request(replayed: package.Run) -> None:
    everything = frames.requests(replayed, 0.0)
    rows = replayed.requests().to_pandas().sort_values("sent_at_ms")
    chart = timeline.timeline(everything, "", "agent", timeline.windows_of(summary_of(replayed)))
    waiting, generating = mark(chart, "until the first token"), mark(chart, "generating")
    assert waiting.data is generating.data
    ok = rows[rows["status"] == "ok"]
    same(waiting.data[waiting.x], ok["sent_at_ms"] / 1e3)
    same(waiting.data[waiting.x1], (ok["sent_at_ms"] + ok["ttft_ms"]) / 1e3)
    same(generating.data[generating.x1], (ok["sent_at_ms"] + ok["e2e_ms"]) / 1e3)
    lanes = [f"agent {agent}" for agent in sorted(rows["agent_id"].unique(), reverse=True)]
    assert list(chart.y.names) == lanes
    assert [lanes[int(place)] for place in waiting.data["y"]] == [f"agent {agent}" for agent in ok["agent_id"]]
    window = summary_of(replayed)["settings"]["window"]
    edges = [each.data["x"][0] for each in chart.marks if each.kind == "rule"]
    same(edges, [window["steady_start_ms"] / 1e3, window["steady_end_ms"] / 1e3])


def test_failed_requests_are_apart_in_the_timeline(replayed: package.Run, tmp_path: Path) -> None:
    run = inflated(replayed, tmp_path / "big", 500, failed_every=50)
    chart = timeline.timeline(frames.requests(run, 0.0), "", "agent")
    failed = mark(chart, "failed").data
    assert len(failed) == 10
    assert failed["error"][0].startswith("http 503")
    assert len(mark(chart, "generating").data) == 490


def test_many_lanes_are_thinned_and_an_unknown_first_token_is_said(replayed: package.Run) -> None:
    row = frames.requests(replayed, 0.0).head(1)
    many = pl.concat([row.with_columns(pl.lit(order).alias("order")) for order in range(200)])
    unknown = pl.lit(None, dtype=pl.Float64).alias("first_s")
    chart = timeline.timeline(many.with_columns(unknown), "", "session")
    untold = mark(chart, "answering, first token not known").data
    assert len(chart.y.names) == len(untold) == 60
    same(untold["end_s"], [row["end_s"][0]] * 60)
    assert chart.notes[1:] == ("Drawn: 60 of 200 sessions, evenly by their beginnings.",)


def test_failures_are_counted_over_time() -> None:
    failed = pl.DataFrame({"start_s": [10.0, 10.2, 13.5, 130.0]})
    bars = series.failures(failed, "").marks[0]
    same(bars.data["y"], [2, 1, 1])
    same(bars.data["x"], [10.5, 13.5, 130.5])
    assert bars.size == pytest.approx(0.9)


def test_times_sum_to_where_time_goes(replayed: package.Run) -> None:
    rows = headline(replayed)
    sums = timeline.time_sums(part_of(replayed))
    assert sums["ttft_s"] == pytest.approx(rows["ttft_ms"].sum() / 1e3)
    assert sums["generating_s"] == pytest.approx((rows["e2e_ms"] - rows["ttft_ms"]).sum() / 1e3)
    assert sums["wait_s"] == pytest.approx(rows["tool_wait_ms"].sum() / 1e3)
    chart = timeline.where_time_goes(part_of(replayed), "", "agent")
    assert sum(each.data["pct"][0] for each in chart.marks) == pytest.approx(100.0)


def test_hits_are_the_summarys(replayed: package.Run) -> None:
    hits = summary_of(replayed)["prefix_hits"]
    chart = shares.cache_hits(summary_of(replayed), "")
    for name in ("planned", "usage", "engine"):
        assert mark(chart, name).data["x1"][0] == pytest.approx(hits[f"{name}_pct"])
    rows = replayed.requests().to_pandas()
    rows = rows[rows["status"] == "ok"]
    assert mark(chart, "usage").data["x1"][0] == pytest.approx(
        rows["cached_tokens"].sum() / rows["prompt_tokens"].sum() * 100
    )
    by_context = shares.hits_by_context(part_of(replayed), "").marks[1].data
    weights = by_context["n"].to_numpy()
    assert weights.sum() == len(headline(replayed))


def test_gauges_are_the_polls(replayed: package.Run) -> None:
    start = frames.start_of(replayed, summary_of(replayed))
    polls = replayed.engine_samples().to_pandas()
    good = polls[polls["error"].isna()].sort_values("ts")
    running, kv, _, _ = series.engine_charts(replayed, start, "")
    same(mark(running, "running").data["x"], good["ts"] - start)
    same(mark(running, "running").data["y"], good["running"])
    same(mark(kv, "KV").data["y"], good["kv_cache_usage_pct"])


def test_an_envelope_loses_no_peak() -> None:
    values = [0.0] * 5_000
    values[1_234], values[4_321] = 99.0, -7.0
    rows = pl.DataFrame({"x": [float(place) for place in range(5_000)], "y": values})
    drawn = series.envelope(rows)
    assert len(drawn) == 600
    assert (drawn["high"].max(), drawn["low"].min()) == (99.0, -7.0)
    marks, said = series.lines(rows, "running", "")
    assert [each.kind for each in marks] == ["band", "line"]
    assert "from the least to the most" in said[0]
    (whole,), nothing = series.lines(rows.head(100), "running", "")
    assert (len(whole.data), nothing) == (100, ())


def test_a_counters_growth_knows_restarts() -> None:
    x = [place / 10 for place in range(101)]
    polls = pl.DataFrame({"x": x, "engine": ["a"] * 101, "total": [place * 5.0 for place in range(101)]})
    grown = series.growth(polls, "total")
    assert set(grown["y"].round(6)) == {50.0}
    assert grown["x"].is_sorted()
    restarted = polls.with_columns(
        pl.when(pl.col("x") > 5).then(pl.col("total") - 250).otherwise(pl.col("total")).alias("total")
    )
    again = series.growth(restarted, "total")
    assert set(again["y"].round(6)) == {50.0}
    assert len(again) == len(grown) - 1
    two = pl.concat([polls, polls.with_columns(pl.lit("b").alias("engine"))]).sort("x")
    assert set(series.growth(two, "total")["y"].round(6)) == {100.0}


def test_power_is_the_samples(replayed: package.Run) -> None:
    start = frames.start_of(replayed, summary_of(replayed))
    chart = series.power_chart(replayed, start, "")
    samples = replayed.power().to_pandas()
    same(chart.marks[0].data["y"], samples.sort_values("ts")["power_w"])


def test_levels_are_drawn_in_their_conditions_unit(searched: package.Run) -> None:
    charts = capacity.capacity_charts(searched, "")
    levels = searched.levels().to_pandas().sort_values(["agents", "level"])
    ttft, speed, errors, work = charts
    assert (ttft.y.title, speed.y.title, errors.y.title) == ("ttft p95 (s)", "speed p25 (tokens/s)", "errors")
    values = [json.loads(text) for text in levels["values"]]
    for chart, text, scale in (
        (ttft, "ttft.p95<=10s", 1e-3),
        (speed, "speed.p25>=1tok/s", 1.0),
        (errors, "errors<=0", 1.0),
    ):
        data = mark(chart, "level: pass").data.sort("agents", "level")
        same(data["x"], levels["agents"])
        same(data["y"], [value[text] * scale for value in values])
    assert mark(ttft, "service level").data["y"][0] == 10.0
    assert ttft.y.bounds[1] == pytest.approx(11.0)
    same(mark(work, "level: pass").data["y"], levels["output_tokens_per_s"])


def test_figures_of_one_level_say_so(searched: package.Run) -> None:
    summary = summary_of(searched)
    level = summary["capacity"]["level"]
    by_name = {chart.name: chart for panel in panels(searched, summary, MEASURES) for chart in panel.charts}
    sent = (searched.requests().to_pandas()["level"] == level).sum()
    assert by_name["hits"].conditions.startswith(f"all of level {level}, 3 agents, {sent:,} requests")
    assert by_name["ttft_s-agents"].conditions.startswith(f"steady state of level {level} (")
    assert by_name["timeline"].conditions.startswith(f"whole run, {len(searched.requests()):,} requests")
    assert all("simulated" in chart.conditions for chart in by_name.values())


def test_a_recordings_charts_are_of_its_sessions(captured: Captured) -> None:
    run = package.Run.open(captured.path)
    summary = package.report(run).summary
    turns = run.turns().to_pandas().sort_values("request_time")
    by_name = {chart.name: chart for panel in panels(run, summary, MEASURES) for chart in panel.charts}
    spans = mark(by_name["timeline"], "generating").data
    start = frames.start_of(run, summary)
    same(spans["start_s"], turns["request_time"] - start)
    same(spans["end_s"], turns["response_end_time"] - start)
    assert len(by_name["timeline"].y.names) == 2
    points = mark(by_name["ttft_s-context"], "a request").data.sort("isl")
    same(points["ttft_s"], turns.sort_values("isl")["ttft_ms"] / 1e3)


def test_an_imports_times_are_its_own(captured: Captured, tmp_path: Path) -> None:
    shutil.copytree(captured.path, tmp_path / "run")
    turns = package.Run.open(captured.path).turns().to_polars()
    year = 365.0 * 86_400.0
    known = pl.int_range(pl.len()) > 0
    times = ["request_time", "first_output_time", "last_output_time", "response_end_time"]
    earlier = turns.with_columns(
        pl.when(known).then(pl.col("request_time") - year).otherwise(0.0).alias("request_time"),
        *[(pl.col(name) - year).alias(name) for name in times[1:]],
    ).drop("changes")
    earlier.write_parquet(tmp_path / "run" / "turn_traces.parquet")
    run = package.Run.open(tmp_path / "run")
    start = frames.start_of(run, package.report(run).summary)
    assert start == pytest.approx(turns["request_time"][1:].min() - year)  # type: ignore[operator]
    chart = timeline.timeline(frames.requests(run, start), "", "session")
    spans = mark(chart, "generating").data
    assert len(spans) == len(turns) - 1
    assert 0.0 <= float(spans["start_s"].min()) <= float(spans["end_s"].max()) < 60.0  # type: ignore[arg-type]
    assert chart.notes[-1] == "Requests without a known time: 1."


def test_what_is_not_there_is_said() -> None:
    empty = pl.DataFrame(
        schema={
            "ttft_s": pl.Float64,
            "speed": pl.Float64,
            "isl": pl.Int64,
            "order": pl.Int64,
            "lane": pl.String,
            "cached": pl.Int64,
            "start_s": pl.Float64,
        }
    )
    for chart in (
        latency.distribution(empty, "ttft_s", "", MEASURES),
        latency.over_agents(empty, "speed", "", "agent"),
        latency.over_context(empty, "speed", ""),
        shares.hits_by_context(empty, ""),
        timeline.timeline(empty, "", "agent"),
    ):
        assert chart.missing
        assert not chart.marks
