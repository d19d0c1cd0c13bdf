"""What a run shows while it goes: progress in, drawn text out; runs whose progress adds up; a terminal and a log."""

from __future__ import annotations

import io
import os
import pty
import re
import select
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import pytest
from rich.console import Console
from tests.python.progress import PROGRESS, UNKNOWN, adds_up, agents_in, equals_the_summary
from tests.python.scripted import Server, answers, called, said

import agentbench
from agentbench import FileCheck, Task
from agentbench._cli import live, run_view
from agentbench._cli import run as command_line
from agentbench._cli.run_view import drawn, line, of_agents, of_replay, of_search

if TYPE_CHECKING:
    from pathlib import Path

    from agentbench._cli.run_view import Look
    from agentbench._types import CapacityProgress, ReplayProgress

PATIENCE_S = 60.0
VIEW = """\
replay                                             steady, 12 s, about 71 s left
━━━━━━━━━━━                                                                 15 %
agents              21   requests sent     1,300    latest 100 answers
  first token        1     ok              1,282    TTFT p50           201 ms
  decode             4     failed             10    TTFT p95         1,502 ms
  tool wait          3     cancelled           1    output speed p50   117 tok/s
  human wait         2     on their way        7    output speed p25    89 tok/s
  idle               5   input tokens 12,345,678    engine running      11
  ended              6     cached      9,876,543    engine waiting      13
trajectories        22     hit rate       80.0 %    KV cache          56.8 %
  of                40   output tokens    70,123    power            1,412 W
failed     7 x http 503, 3 x connect
"""
NOTHING_KNOWN = """\
agents              21   requests sent     1,300    latest 0 answers
  first token        1     ok              1,282    TTFT p50             -
  decode             4     failed             10    TTFT p95             -
  tool wait          3     cancelled           1    output speed p50     -
  human wait         2     on their way        7    output speed p25     -
  idle               5   input tokens          -    engine running       -
  ended              6     cached              -    engine waiting       -
trajectories        22     hit rate            -    KV cache             -
  of                 -   output tokens         -    power                -
failed     none
"""
SEARCH: CapacityProgress = {
    "level": 3,
    "agents": 21,
    "replay": PROGRESS,
    "level_left_s": 587.5,
    "levels": [{}, {}, {}],
    "done": False,
}
AGENTS = agentbench.AgentProgress(
    total=12, done=5, completed=3, claimed=4, running=("a", "b", "c", "d", "e"), requests=dict(PROGRESS)
)
SIMULATED: ReplayProgress = {**PROGRESS, "simulated": True}


def text(look: Look, width: int) -> str:
    console = Console(width=width, record=True, file=io.StringIO(), color_system=None, highlight=False, markup=False)
    console.print(drawn(look))
    return "".join(f"{row.rstrip()}\n" for row in console.export_text().splitlines())


def test_every_figure_has_its_place() -> None:
    assert text(of_replay(PROGRESS), 80) == VIEW
    assert text(of_replay(UNKNOWN), 80).partition("\n\n")[2] == NOTHING_KNOWN


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize(
    ("look", "title", "work", "below"),
    [
        (of_replay(PROGRESS), "replay ", ("trajectories 22", "of 40"), []),
        (of_replay(SIMULATED), "SIMULATED replay ", ("trajectories 22", "of 40"), []),
        (of_replay(UNKNOWN), "replay ", ("trajectories 22", "of -"), []),
        (
            of_replay(PROGRESS, "load conversation-7k, run 2 of 3"),
            "load conversation-7k, run 2 of 3 ",
            ("trajectories 22", "of 40"),
            [],
        ),
        (of_search(SEARCH), "capacity, level 3: 21 agents ", ("trajectories 22", "levels judged 3"), []),
        (of_agents(AGENTS), "agent ", ("tasks ended 5/12", "completed 3"), ["at work    a, b, c, d, …"]),
    ],
    ids=["replay", "simulated", "unknown", "load", "capacity", "agent"],
)
def test_all_verbs_share_one_layout(
    look: Look, title: str, work: tuple[str, str], below: list[str], width: int
) -> None:
    rows = text(look, width).splitlines()
    assert rows[0].startswith(title)
    assert rows[0].endswith(f"steady, 12 s, {look.left}")
    assert len(rows[0]) == min(width, run_view.WIDEST)
    # The figures stand where they stand for a replay, whatever the width.
    expected = VIEW if look.progress["engine_running"] else f"\n\n{NOTHING_KNOWN}"
    assert [row[22:] for row in rows[2:11]] == [row[22:] for row in expected.splitlines()[2:11]]
    assert [" ".join(row[:22].split()) for row in rows[9:11]] == list(work)
    assert rows[11].startswith("failed     ")
    assert rows[12:] == below


@pytest.mark.parametrize(
    ("progress", "left", "share"),
    [
        (PROGRESS, "about 71 s left", 12.5 / 83.7),
        ({**PROGRESS, "time_left_s": None}, "time left -", 0.55),
        (UNKNOWN, "time left -", None),
        ({**PROGRESS, "duration_s": 60.0, "time_left_s": 47.5}, "about 48 s left", 12.5 / 60),
        ({**PROGRESS, "duration_s": 10.0, "time_left_s": None}, "last answers", 1.25),
        ({**PROGRESS, "time_left_s": 0.0, "done": True}, "ended", 1.0),
    ],
)
def test_time_left_is_told_where_there_is_a_basis(progress: ReplayProgress, left: str, share: float | None) -> None:
    look = of_replay(progress)
    assert look.left == left
    assert look.share == (None if share is None else pytest.approx(share))


@pytest.mark.parametrize(
    ("changed", "left"),
    [
        ({}, "ends within 9 min 48 s"),
        ({"level_left_s": None, "replay": {**PROGRESS, "done": True}}, "between levels"),
        ({"level_left_s": None}, "last answers of the level"),
    ],
)
def test_a_level_tells_its_bound(changed: Any, left: str) -> None:
    assert of_search({**SEARCH, **changed}).left == left


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "0 s"),
        (99.4, "99 s"),
        (99.5, "1 min 40 s"),
        (183.0, "3 min 03 s"),
        (3599.6, "1 h 00 min"),
        (7384.0, "2 h 03 min"),
    ],
)
def test_times_in_words(seconds: float, words: str) -> None:
    assert run_view.duration(seconds) == words


def test_a_line_says_the_same_without_what_is_not_known() -> None:
    assert line(of_replay(SIMULATED)) == (
        "SIMULATED replay: steady, 12 s, about 71 s left; trajectories 22 of 40;"
        " agents 21: 1 first token, 4 decode, 3 tool wait, 2 human wait, 5 idle, 6 ended;"
        " 1,300 requests sent, 1,282 ok, 10 failed, 1 cancelled, 7 on their way;"
        " input tokens 12,345,678; output tokens 70,123;"
        " TTFT p50 201 ms; TTFT p95 1,502 ms; output speed p50 117 tok/s; output speed p25 89 tok/s;"
        " engine running 11; engine waiting 13; KV cache 56.8 %; power 1,412 W; failed 7 x http 503, 3 x connect"
    )
    assert line(of_replay(UNKNOWN)) == (
        "replay: steady, 12 s, time left -; trajectories 22;"
        " agents 21: 1 first token, 4 decode, 3 tool wait, 2 human wait, 5 idle, 6 ended;"
        " 1,300 requests sent, 1,282 ok, 10 failed, 1 cancelled, 7 on their way"
    )
    assert "; trajectories 22, levels judged 3; agents 21: " in line(of_search(SEARCH))
    assert "; tasks ended 5/12 completed 3; agents 21: " in line(of_agents(AGENTS))


def looked_at(handle: Any) -> list[Any]:
    """The progress of a handle until it has ended, and after that."""
    seen = []
    with handle:
        while not handle.done:
            seen.append(handle.progress())
            time.sleep(0.02)
        seen.append(handle.progress())
    return seen


def test_a_replay_adds_up_while_it_runs_and_ends_as_its_summary(tmp_path: Path) -> None:
    with agentbench.SimulatedEngine() as engine:
        replay = agentbench.Replay(
            agentbench.sample_trace(),
            url=engine.url,
            out=tmp_path / "run",
            agents=3,
            trajectories=3,
            tool_time="150ms",
            power="constant:200",
            pue=1.5,
        )
        seen = looked_at(replay)
    assert {agents_in(progress) for progress in seen} <= {0, 3}
    running = [progress for progress in seen if not progress["done"]]
    assert {state for progress in running for state, n in progress["agents"].items() if n} >= {"decode", "tool"}
    assert {progress["power_w"] for progress in running} == {300.0}
    assert max(progress["engine_running"] for progress in running) >= 1
    assert any(progress["time_left_s"] for progress in running)
    last, run = seen[-1], agentbench.Run.open(tmp_path / "run")
    assert agents_in(last) == 3
    adds_up(last)
    equals_the_summary(last, run)
    # Fewer than a hundred answers: the latest are all there were, and stand in the table.
    speeds = run.summary()["whole"]["fields"]  # type: ignore[index]
    assert last["recent_answers"] == len(run.requests().to_pandas()) < 100
    assert last["recent_ttft_p50_ms"] == pytest.approx(speeds["ttft_ms"]["p50"])
    assert last["recent_ttft_p95_ms"] == pytest.approx(speeds["ttft_ms"]["p95"])
    assert last["recent_output_tokens_per_s_p50"] == pytest.approx(speeds["output_tokens_per_s"]["p50"])


def test_an_interrupted_replay_ends_as_its_summary(tmp_path: Path) -> None:
    with agentbench.SimulatedEngine() as engine:
        replay = agentbench.Replay(
            agentbench.sample_trace(), url=engine.url, out=tmp_path / "run", agents=3, duration_s=600, power="none"
        )
        with replay:
            while replay.progress()["requests_ok"] < 2:
                time.sleep(0.01)
            assert replay.progress()["power_w"] is None
            assert 0 < replay.progress()["time_left_s"] <= 600  # type: ignore[operator]
            run = replay.stop()
    assert run.summary()["requests"]["cancelled"] > 0  # type: ignore[index]
    equals_the_summary(replay.progress(), run)


def test_an_open_loop_shows_as_many_agents_as_there_were_at_once(
    engine: agentbench.SimulatedEngine, tmp_path: Path
) -> None:
    replay = agentbench.Replay(
        agentbench.sample_trace(), url=engine.url, out=tmp_path / "run", arrivals="poisson:20", seed=1, power="none"
    )
    seen = looked_at(replay)
    counted = [agents_in(progress) for progress in seen]
    assert counted == sorted(counted)
    assert counted[-1] == replay.wait().summary()["agents"]  # type: ignore[index]


def test_a_search_tells_its_level_and_what_it_found(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    search = agentbench.Capacity(
        agentbench.sample_trace(),
        url=engine.url,
        out=tmp_path / "run",
        slo=["ttft.p95<=10s"],
        max_agents=2,
        min_trajectories=2,
        min_trajectories_per_agent=1,
        min_steady_s=0.01,
        level_time_s=30.0,
        power="none",
    )
    seen = looked_at(search)
    last, run = seen[-1], agentbench.Run.open(tmp_path / "run")
    for progress in seen:
        level = progress["replay"]
        assert agents_in(level) in {0, progress["agents"]}
        assert progress["level_left_s"] is None or 0 < progress["level_left_s"] <= 30
        assert level["time_left_s"] is None
    assert any(progress["level_left_s"] for progress in seen)
    found: Any = run.summary()
    assert [level["level"] for level in last["levels"]] == [level["level"] for level in found["capacity"]["curve"]]
    requests = run.requests().to_pandas()
    of_last = requests[requests["level"] == last["level"]]
    assert last["replay"]["requests_sent"] == len(of_last)
    assert last["replay"]["completion_tokens"] == of_last[of_last["status"] == "ok"]["completion_tokens"].sum()


WRITE = ("write", {"path": "a.txt", "content": "hello\n"})


def agents_of(server: Server, out: Path) -> tuple[list[Any], agentbench.Run]:
    """Two agents at three tasks; what was seen of them, and their run."""
    seen: list[agentbench.AgentProgress] = []
    tasks = [Task(name, "Write hello.", checks=(FileCheck("a.txt", equals="hello"),)) for name in ("a", "b", "c")]
    settings: dict[str, Any] = {"sandbox": "none", "power": "none", "concurrency": 2}
    run = agentbench.run_agents(tasks, url=server.url, out=out, on_progress=seen.append, **settings)
    return seen, run


def test_live_agents_add_up_and_end_as_their_summary(tmp_path: Path) -> None:
    slow = ("shell", {"command": "sleep 0.4"})
    script = lambda body: [called(WRITE), called(slow), said("Done.")][answers(body)]  # noqa: E731
    with Server(script, pause_s=0.25).running() as server:
        seen, run = agents_of(server, tmp_path / "run")
    assert {agents_in(progress.requests) for progress in seen} == {2}
    assert {state for one in seen for state, n in one.requests["agents"].items() if n} >= {"decode", "tool", "ended"}
    last, summary = seen[-1], run.summary()
    assert (last.done, last.completed, last.claimed) == (3, 3, 3)
    agent: Any = summary["agent"]  # type: ignore[index]
    assert (agent["tasks"], agent["completed"], agent["claimed"]) == (3, 3, 3)
    adds_up(last.requests)
    equals_the_summary(last.requests, run)


def test_failures_are_told_by_kind(tmp_path: Path) -> None:
    with Server(lambda _: 503).running() as server:
        seen, run = agents_of(server, tmp_path / "run")
    assert seen[-1].requests["failures"] == {"http 503": 3}
    equals_the_summary(seen[-1].requests, run)


def on_a_terminal(arguments: list[str]) -> tuple[str, str]:
    """What a command shows on a terminal of 80 columns, and what it prints."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::RuntimeWarning", "-m", "agentbench", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
        env=os.environ | {"TERM": "xterm", "COLUMNS": "80", "LINES": "30", "NO_COLOR": "1"},
        text=True,
    )
    os.close(slave)
    shown, deadline = b"", time.monotonic() + PATIENCE_S
    try:
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.2)[0]:
                try:
                    shown += os.read(master, 65536)
                except OSError:
                    break
        printed, _ = process.communicate(timeout=PATIENCE_S)
    finally:
        os.close(master)
        if process.poll() is None:
            process.kill()
            process.communicate()
    return shown.decode(errors="replace"), printed


@pytest.mark.parametrize(
    ("arguments", "title"),
    [
        (["replay", "--trajectories", "2"], "SIMULATED replay "),
        (
            ["capacity", "--slo", "ttft.p95<=10s", "--max-agents", "1", "--level-time", "2s"],
            "SIMULATED capacity, level 0: 1 agent ",
        ),
        (
            ["load", "hit-rate", "--rate", "50", "--requests", "20"],
            "SIMULATED load hit-rate-50, run 2 of 2 ",
        ),
    ],
    ids=["replay", "capacity", "load"],
)
def test_a_terminal_shows_the_view(arguments: list[str], title: str, tmp_path: Path) -> None:
    shown, printed = on_a_terminal([*arguments, "--out", str(tmp_path / "run")])
    assert title in shown
    assert "first token" in shown
    assert "KV cache" in shown
    assert "first token" not in printed


def test_agents_show_the_view_and_serve_their_page(tmp_path: Path) -> None:
    script = lambda body: [called(WRITE), said("Done.")][answers(body)]  # noqa: E731
    with Server(script, pause_s=0.3).running() as server:
        arguments = ["agent", "--url", server.url, "--tasks", "2", "--sandbox", "none", "--metrics-port", "0"]
        shown, _ = on_a_terminal([*arguments, "--power", "none", "--out", str(tmp_path / "run")])
    assert "metrics: http://127.0.0.1:" in shown
    assert "at work    " in shown
    assert "tasks ended" in shown
    assert "SIMULATED" not in shown


def test_a_log_gets_a_line_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(live, "PLAIN_SECONDS", 0.5)
    assert command_line(["replay", "--trajectories", "2", "--agents", "2", "--out", str(tmp_path / "run")]) == 0
    lines = [row for row in capfd.readouterr().err.splitlines() if row.startswith("SIMULATED replay: ")]
    assert len(lines) >= 2
    form = r"SIMULATED replay: \w+, \d+ s, .+; trajectories \d of 2; agents 2: .+; \d+ requests sent, \d+ ok, 0 failed"
    assert all(re.match(form, row) for row in lines), lines


def test_judged_levels_stay_in_a_log(
    engine: agentbench.SimulatedEngine, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--url", engine.url, "--slo", "ttft.p95<=10s", "--slo", "speed.p25>=1", "--max-agents", "1"]
    short = ["--min-steady", "100ms", "--min-requests-per-agent", "1", "--out", str(tmp_path / "run")]
    assert command_line(["capacity", *arguments, *short]) == 0
    told = [row for row in capfd.readouterr().err.splitlines() if row.startswith("level ")]
    levels: Any = agentbench.Run.open(tmp_path / "run").levels().to_pandas()
    assert [row.partition("; ")[0] for row in told] == [
        f"level {level.level}: 1 agent: {level.verdict}" for level in levels.itertuples()
    ]
    assert all(re.search(r"ttft\.p95<=10s: [\d.]+ ms, speed\.p25>=1tok/s: [\d.,]+ tok/s$", row) for row in told), told
