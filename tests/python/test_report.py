"""Reports: flags on top for what keeps figures from being used, conditions, and the summary's own numbers."""

from __future__ import annotations

import json
import re
import shutil
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.traffic import agentbench, free_port, started, wait_up

import agentbench as package
from agentbench import _figures as figures
from agentbench._cli import run as command_line
from agentbench._report.markdown import escaped

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.python.conftest import Captured

    Change = Callable[[dict[str, Any], dict[str, Any]], object]

LATENCIES = {
    "TTFT": "ttft_ms",
    "TPOT": "tpot_ms",
    "ITL per token": "itl_per_token_ms",
    "chunk gap": "chunk_gap_ms",
    "E2E": "e2e_ms",
    "output speed": "output_tokens_per_s",
    "ISL": "prompt_tokens",
    "ISL cached": "cached_tokens",
    "OSL": "completion_tokens",
    "send lag": "lag_ms",
}
THREE_DIGITS = 5.1e-3


@pytest.fixture(scope="module")
def replayed(
    engine: package.SimulatedEngine, captured: Captured, tmp_path_factory: pytest.TempPathFactory
) -> package.Run:
    """A replay of the two captured sessions, long enough for a steady state."""
    out = tmp_path_factory.mktemp("replayed") / "run"
    return package.replay(captured.path, url=engine.url, agents=2, duration_s=1.0, out=out)


@pytest.fixture(scope="module")
def searched(
    engine: package.SimulatedEngine, captured: Captured, tmp_path_factory: pytest.TempPathFactory
) -> package.Run:
    """A search that never sees a failing level."""
    minimum: dict[str, Any] = {
        "min_trajectories": 1,
        "min_trajectories_per_agent": 0,
        "min_requests_per_agent": 1,
        "min_steady_s": 0.2,
    }
    out = tmp_path_factory.mktemp("searched") / "run"
    slo = ["ttft.p95<=100s", "errors<=0"]
    return package.capacity(captured.path, url=engine.url, slo=slo, max_agents=3, gpu_count=2, out=out, **minimum)


def table(markdown: str, title: str) -> dict[str, list[str]]:
    """The rows of the table under a heading, by their first cell."""
    section = re.search(rf"^## [^\n]*{re.escape(title)}[^\n]*\n\n((?:\|[^\n]*\n)+)", markdown, re.MULTILINE)
    assert section, title
    rows = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in section[1].splitlines()]
    return {row[0]: row[1:] for row in [rows[0], *rows[2:]]}


def number(cell: str) -> float:
    return float(cell.replace(",", ""))


def check_three_digits(cell: str, value: float) -> None:
    assert number(cell) == pytest.approx(value, rel=THREE_DIGITS, abs=1e-12), cell


def doctored(run: package.Run, to: Path, change: Change) -> package.Report:
    """The report of a copy of a run whose summary and manifest were changed."""
    shutil.copytree(run.path, to)
    files = [to / "summary.json", to / "manifest.json"]
    summary, manifest = (json.loads(file.read_text()) for file in files)
    change(summary, manifest)
    for file, value in zip(files, (summary, manifest), strict=True):
        file.write_text(json.dumps(value))
    return package.report(to)


def test_every_number_is_the_summarys(replayed: package.Run) -> None:
    summary, markdown = replayed.summary(), (replayed.path / "report.md").read_text()
    assert summary is not None
    assert summary["steady"]["fields"]
    latencies = table(markdown, "steady state, ")
    assert latencies[""] == ["unit", "n", "mean", "p50", "p90", "p95", "p99"]
    for label, field in LATENCIES.items():
        statistic = summary["steady"]["fields"][field]
        _, n, *values = latencies[label]
        assert number(n) == statistic["n"]
        for column, cell in zip(("mean", "p50", "p90", "p95", "p99"), values, strict=True):
            check_three_digits(cell, statistic[column])
    for label, field in {"engine TTFT": "ttft_ms_mean", "engine decode": "decode_ms_mean"}.items():
        assert number(latencies[label][1]) == summary["engine"]["requests"]
        check_three_digits(latencies[label][2], summary["engine"][field])
    rates = table(markdown, "throughput")
    for label, field in {"requests": "requests_per_s", "output": "output_tokens_per_s"}.items():
        for part, cell in zip(("steady", "whole"), rates[label][1:], strict=True):
            check_three_digits(cell, summary[part][field])
    hits = table(markdown, "prefix hit rate")
    for label in ("planned", "usage", "engine"):
        pct = summary["prefix_hits"][f"{label}_pct"]
        assert number(hits[label][0].removesuffix(" %")) == pytest.approx(pct, abs=0.0501)
    requests = summary["requests"]
    assert table(markdown, "counts")["requests"] == [
        (
            f"{requests['sent']:,} sent, {requests['ok']:,} ok, {requests['failed']:,} failed,"
            f" {requests['cancelled']:,} cancelled"
        )
    ]


def test_the_conditions_are_the_runs(replayed: package.Run, captured: Captured) -> None:
    summary, manifest = replayed.summary(), replayed.manifest
    assert summary is not None
    trace = summary["settings"]["trace"]
    recorded = package.Run.open(captured.path).manifest
    assert (trace["run_id"], trace["name"]) == (recorded["run_id"], captured.path.name)
    assert re.fullmatch("[0-9a-f]{32}", trace["content_hash"])
    conditions = table(package.report(replayed).to_markdown(), "conditions")
    expected = {
        "trace": f"{trace['name']} ({trace['run_id']}), content {trace['content_hash'][:12]}",
        "model": "agentbench-sim",
        "engine": f"agentbench-simulated {manifest['engine']['version']} (simulated)",
        "url": summary["settings"]["url"],
        "service level": "none: at fixed load",
        "tool time": "recorded",
        "human time": "none",
        "on error": "stop-trajectory",
        "ended by": "duration",
    }
    assert {name: conditions[name] for name in expected} == {name: [text] for name, text in expected.items()}
    assert conditions["agents"][0].startswith("2, ")
    assert conditions["output length"] == ["recorded, pinning honoured"]
    assert conditions["power"][0].startswith("none (")


def test_the_trace_is_the_same_wherever_it_lies(
    engine: package.SimulatedEngine, captured: Captured, replayed: package.Run, tmp_path: Path
) -> None:
    shutil.copytree(captured.path, tmp_path / "moved")
    again = package.replay(tmp_path / "moved", url=engine.url, out=tmp_path / "again")
    other = package.replay(url=engine.url, out=tmp_path / "other", trajectories=1)
    traces = [run.manifest["settings"]["replay"]["trace"] for run in (replayed, again, other)]
    assert traces[0]["content_hash"] == traces[1]["content_hash"]
    assert traces[0]["content_hash"] != traces[2]["content_hash"]
    assert traces[1]["name"] == "moved"


def test_a_level_judged_by_overstated_speed_says_so_beside_its_verdict(searched: package.Run, tmp_path: Path) -> None:
    def change(summary: dict[str, Any], _: dict[str, Any]) -> None:
        summary["capacity"]["curve"][0].update(speed_overstated=True, unseen_output_pct=34.5)

    markdown = doctored(searched, tmp_path / "run", change).to_markdown()
    verdicts = [row[1] for row in list(table(markdown, "levels").values())[1:]]
    assert verdicts[0] == "pass, speed overstated"
    assert set(verdicts[1:]) == {"pass"}
    assert "level 0: 34.5 % of the responses' time comes after their last chunk with output" in markdown


def test_a_search_reports_its_levels(searched: package.Run) -> None:
    summary, report = searched.summary(), package.report(searched)
    assert summary is not None
    markdown, capacity = report.to_markdown(), summary["capacity"]
    assert markdown == (searched.path / "report.md").read_text()
    result = table(markdown, "capacity")
    assert result["agents at the service level"] == ["at least 3"]
    assert result["saturated"][0].startswith("no")
    assert result["agents per GPU"] == ["at least 1.5"]
    # A reason that figures share is told once.
    assert capacity["mean_power_w"]["reason"] == capacity["agents_per_mw"]["reason"]
    assert result["agents per MW"] == [f"- ({capacity['agents_per_mw']['reason']})"]
    assert result["mean power, W"] == ["- (as agents per MW)"]
    check_three_digits(result["output tokens/s per GPU"][0], capacity["output_tokens_per_s_per_gpu"]["value"])
    levels, work = table(markdown, "levels"), table(markdown, "work of the levels")
    assert levels["level"] == ["agents", "verdict", "ttft.p95<=100s (ms)", "errors<=0", "requests", "failed"]
    for row in capacity["curve"]:
        agents, verdict, ttft, errors, requests, failed = levels[str(row["level"])]
        assert (number(agents), verdict) == (row["agents"], row["verdict"])
        check_three_digits(ttft, json.loads(row["values"])["ttft.p95<=100s"])
        assert (errors, number(requests), failed) == ("0", row["n_requests"], "0")
        check_three_digits(work[str(row["level"])][1], (row["end_ms"] - row["start_ms"]) / 1e3)
        check_three_digits(work[str(row["level"])][2], row["output_tokens_per_s"])
        assert work[str(row["level"])][3:5] == [figures.number(row["mean_power_w"]), figures.number(row["energy_j"])]
    conditions = table(markdown, "conditions")
    assert conditions["service level"] == ["ttft.p95<=100s and errors<=0"]
    assert conditions["GPUs that serve"] == ["2"]
    assert {"simulated", "not saturated", "a first look"} <= {flag.name for flag in report.flags}


def test_a_level_without_a_steady_state_has_no_length(searched: package.Run, tmp_path: Path) -> None:
    def change(summary: dict[str, Any], _: dict[str, Any]) -> None:
        summary["capacity"]["curve"][0]["end_ms"] = summary["capacity"]["curve"][0]["start_ms"] - 7000.0

    assert table(doctored(searched, tmp_path / "run", change).to_markdown(), "work of the levels")["0"][1] == "-"


def test_a_capture_reports_its_turns(captured: Captured) -> None:
    run = package.Run.open(captured.path)
    turns, markdown = run.turns().to_pandas(), package.report(run).to_markdown()
    recorded, of_a_turn = table(markdown, "recorded"), table(markdown, "of a turn")
    assert (recorded["turns"], recorded["sessions"], recorded["threads"]) == (["5"], ["2"], ["2"])
    assert number(recorded["ISL (prompt tokens)"][0]) == turns["isl"].sum()
    assert recorded["models"] == ["agentbench-sim 5"]
    for label, column in {"TTFT": "ttft_ms", "E2E": "e2e_ms", "ISL": "isl", "OSL": "osl"}.items():
        _, n, mean, p50, _, p95, _ = of_a_turn[label]
        assert number(n) == len(turns)
        check_three_digits(mean, float(turns[column].mean()))
        check_three_digits(p50, float(turns[column].quantile(0.5)))
        check_three_digits(p95, float(turns[column].quantile(0.95)))
    assert "## tools" not in markdown


def test_tools_are_reported_by_name() -> None:
    run = package.Run.open(package.sample_trace())
    calls = run.tool_calls().to_pandas()
    tools = table(package.report(run).to_markdown(), "tools")
    for name, of_tool in calls.groupby("name"):
        n, errors, mean, *_ = tools[str(name)]
        assert (number(n), number(errors)) == (len(of_tool), (of_tool["is_error"] == True).sum())  # noqa: E712 null is no error
        check_three_digits(mean, of_tool["wire_ms"].mean())


def test_a_sound_run_has_no_flag(replayed: package.Run, tmp_path: Path) -> None:
    def sound(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
        summary["labels"] |= {"simulated": False, "synthetic_trace": False, "converted": False}
        summary["labels"]["output_length"] = "honoured"
        summary["prefix_hits"]["disagree"] = False
        summary["notes"], manifest["notes"] = [], []
        manifest["engine"]["simulated"] = False

    assert doctored(replayed, tmp_path / "run", sound).flags == ()


def _power(summary: dict[str, Any], _manifest: dict[str, Any]) -> None:
    invalid = {"source": "nvml", "boundary": "device", "valid": False, "reason": "GPU-1: coverage 80 %"}
    summary["power"] |= invalid


def _converted(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    summary["labels"]["converted"] = True
    summary["notes"], manifest["notes"] = [], []


FOUR = ("p50", "p90", "p95", "p99")
CONDITIONS: list[tuple[str, bool, str, Change]] = [
    ("simulated", True, "simulated", lambda s, _: (s["labels"].update(simulated=True), s.update(notes=[]))),
    ("client-limited", True, "a machine of its own", lambda s, _: s["client"].update(limited=True, reasons=["late"])),
    ("interrupted", True, "told to stop", lambda s, _: s["settings"].update(ended_by="shutdown")),
    ("ended early", True, "cut off", lambda s, _: s["settings"].update(ended_by="error_rate")),
    ("rows dropped", True, "7 of requests", lambda _, m: m["dropped"].update(requests=7)),
    ("rows dropped", True, "3 of rows lost", lambda _, m: m["counts"].update(rows_lost=3)),
    (
        "failed requests",
        True,
        "2 of 9 requests failed (2 x http 500)",
        lambda s, _: s.update(
            requests={"sent": 9, "ok": 7, "failed": 2, "cancelled": 0},
            errors=[{"kind": "http 500", "n": 2, "example": "http 500: no"}],
        ),
    ),
    ("no steady state", True, "only the whole run", lambda s, _: s["steady"]["requests"].update(sent=0)),
    ("energy invalid", True, "nvml: GPU-1: coverage 80 %", _power),
    ("output lengths differ", True, "5 outputs", lambda s, _: s["output_length"].update(short=4, long=1)),
    (
        "speed overstated",
        True,
        "ends 32",
        lambda s, _: s["steady"]["fields"].update(e2e_ms={"mean": 32_600.0} | dict.fromkeys(FOUR, 1.0) | {"n": 2}),
    ),
    ("lengths not pinned", False, "ignored", lambda s, _: s["labels"].update(output_length="ignored")),
    ("lengths not verified", False, "6 outputs", lambda s, _: s["output_length"].update(unverified=6)),
    ("prefix hits disagree", False, "2 points", lambda s, _: s["prefix_hits"].update(disagree=True)),
    ("converted", False, "another API", _converted),
    ("synthetic recording", False, "made up", lambda s, _: s["labels"].update(synthetic_trace=True)),
    ("engine restarted", False, "restarted", lambda _, m: m["counts"].update(engine_restarts=1)),
    ("note", False, "something new", lambda s, _: s["notes"].append("something new")),
]


@pytest.mark.parametrize(("name", "grave", "text", "change"), CONDITIONS)
def test_what_a_reader_must_know_stands_on_top(
    replayed: package.Run, tmp_path: Path, name: str, text: str, change: Change, *, grave: bool
) -> None:
    report = doctored(replayed, tmp_path / "run", change)
    (flag,) = [flag for flag in report.flags if flag.name == name and text in flag.text]
    assert flag.grave == grave
    markdown = report.to_markdown()
    assert 0 < markdown.index(f"- **{name}**: ") < markdown.index("## conditions")
    graves = [flag.grave for flag in report.flags]
    assert graves == sorted(graves, reverse=True)


def _power_of_a_search(summary: dict[str, Any], manifest: dict[str, Any]) -> None:
    manifest["settings"]["power"] = {"source": "nvml"}
    summary["capacity"]["mean_power_w"] = {"value": None, "reason": "GPU-0: a gap"}


SEARCHED: list[tuple[str, str, Change]] = [
    (
        "client-limited",
        "there is no result: give agentbench more cores",
        lambda s, _: s["capacity"].update(client_limited=True),
    ),
    ("interrupted", "not finished", lambda s, _: s["capacity"]["settings"].update(interrupted=True)),
    ("invalid", "could not be judged", lambda s, _: s["capacity"].update(invalid=True)),
    ("invalid", "no result", lambda s, _: s["capacity"].update(max_agents=None, level=None)),
    ("not saturated", "no limit of the engine", lambda _s, _m: None),
    ("unstable", "both ways", lambda s, _: s["capacity"].update(unstable=True)),
    (
        "speed overstated",
        "the speed of level 0 is overstated",
        lambda s, _: s["notes"].append("the speed of level 0 is overstated: responses go on"),
    ),
    ("energy invalid", "from nvml: GPU-0: a gap", _power_of_a_search),
]


@pytest.mark.parametrize(("name", "text", "change"), SEARCHED)
def test_a_searchs_validity_stands_on_top(
    searched: package.Run, tmp_path: Path, name: str, text: str, change: Change
) -> None:
    report = doctored(searched, tmp_path / "run", change)
    assert [flag for flag in report.flags if flag.name == name and text in flag.text]
    markdown = report.to_markdown()
    assert markdown.index(f"- **{name}**: ") < markdown.index("## conditions")


def test_a_killed_replay_is_reported_from_its_rows(empty: Path) -> None:
    port = free_port()
    with started("engine", "--port", str(port), "--speed", "gpu-8b") as engine:
        wait_up(f"http://127.0.0.1:{port}/health", engine)
        arguments = ["--url", f"http://127.0.0.1:{port}", "--agents", "2", "--out", "out"]
        with started("replay", *arguments, cwd=empty) as process:
            deadline = time.monotonic() + 60
            while not (empty / "out" / "manifest.json").exists() or len(package.Run.open("out").requests()) < 3:
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < deadline
                time.sleep(0.1)
            process.kill()
            process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL
    run = package.Run.open(empty / "out")
    report, rows = package.report(run), run.requests().to_pandas()
    assert run.summary() is None
    assert report.flags[1].name == "killed or still running"
    assert report.summary["requests"]["sent"] == len(rows) >= 3
    whole = report.summary["whole"]["fields"]["ttft_ms"]
    assert whole["mean"] == pytest.approx(rows.loc[rows["status"] == "ok", "ttft_ms"].mean())
    assert command_line(["report", "out"]) == 0
    assert (empty / "out" / "report.md").read_text() == report.to_markdown()


def test_the_command_prints_and_writes(
    replayed: package.Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    shutil.copytree(replayed.path, run)
    (run / "report.md").unlink()
    assert command_line(["report", str(run), "--print"]) == 0
    printed = capsys.readouterr().out
    assert "SIMULATED engine" in printed.splitlines()[0]
    assert not (run / "report.md").exists()
    assert command_line(["report", str(run)]) == 0
    assert capsys.readouterr().out == printed
    assert (run / "report.md").read_text() == package.report(run).to_markdown()
    assert (run / "report.md").stat().st_mode & 0o777 == 0o600
    assert command_line(["report", str(run), "--md", "--out", str(tmp_path / "other.md")]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "other.md").read_text() == (run / "report.md").read_text()
    assert command_line(["report", str(run), "--out", "-"]) == 0
    assert capsys.readouterr().out == (run / "report.md").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.md", "run"]


def test_no_number_is_cut_on_a_narrow_terminal(
    searched: package.Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    levels = table(package.report(searched).to_markdown(), "levels")
    numbers = [cell for row in list(levels.values())[1:] for cell in row]
    for columns in (80, 40):
        monkeypatch.setenv("COLUMNS", str(columns))
        assert command_line(["report", str(searched.path), "--print"]) == 0
        shown = capsys.readouterr().out
        assert all(cell in shown.split() for cell in numbers), shown
        assert "\x1b" not in shown
        if columns == 80:
            assert max(map(len, shown.splitlines())) <= columns


def test_bad_calls_are_refused_in_one_line(replayed: package.Run, empty: Path) -> None:
    refused: list[tuple[list[str | Path], str]] = [
        (["report", "nowhere"], "nowhere"),
        (["report", replayed.path, "--print", "--md"], "--print writes nothing"),
        (["report", replayed.path, "--md", "--out", "no/such/folder/r.md"], "--out"),
    ]
    for arguments, said in refused:
        result = agentbench(*arguments, cwd=empty)
        assert result.returncode == 2, result.stderr
        assert said in result.stderr
        assert len(result.stderr.splitlines()) == 1
        assert result.stdout == ""
    assert not list(empty.iterdir())


@pytest.mark.parametrize(
    ("text", "markdown"),
    [
        ("a|b", r"a\|b"),
        ("ttft.p95<=10s", "ttft.p95<=10s"),
        ("<b>x", r"\<b>x"),
        ("rows_lost", "rows_lost"),
        ("_x_", r"\_x\_"),
        ("a\nb", "a b"),
        ("[x](y) *z* `q`", r"\[x\](y) \*z\* \`q\`"),
    ],
)
def test_text_is_no_markup(text: str, markdown: str) -> None:
    assert escaped(text) == markdown


def test_a_notebook_shows_it_as_markdown(replayed: package.Run) -> None:
    report = package.report(replayed.path)
    assert report._repr_markdown_() == str(report) == report.to_markdown()
    assert isinstance(report, package.Report)
