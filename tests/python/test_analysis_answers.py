"""Right answers: small runs whose figures were worked out by hand."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from tests.python.made_runs import call, make_run, step
from tests.python.traffic import converse

import agentbench
from agentbench.analysis import Answer, analyze, open_trace

if TYPE_CHECKING:
    from pathlib import Path


def figures(answer: Answer) -> dict[str, float | None]:
    return {line.name: line.value for line in answer.headline}


def rows(answer: Answer, table: str, *columns: str) -> list[tuple[Any, ...]]:
    frame = answer.tables[table][list(columns)]
    return [tuple(row) for row in frame.itertuples(index=False)]


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Answer]:
    """Two requests of a human in one session; the first has a subagent, and a tool beside it.

    seconds   0  2    5 6  7    9 10     15 16 18                 38 40                 110 112
    main      [t0]    [t1]                  [t2]   human: 20 s    [t3]                  [t4]
    subagent               [c0]   [c1 ]
    tools        [Bash] [Task              ]                         [Bash, 70 s        ]
                        [Read]  [Grep]
    """
    subagent: dict[str, Any] = {"thread": "c", "parent_thread_id": "t", "kind": "subagent"}
    turns = [
        step(0, 0, 2, isl=10_000, isl_cached=0, isl_new=10_000, osl=100),
        step(1, 5, 6, waited_s=3, isl=10_400, isl_cached=10_000, isl_new=400, osl=50),
        step(2, 16, 18, waited_s=10, isl=12_000, isl_cached=10_400, isl_new=1_600, osl=200),
        step(3, 38, 40, waited_s=20, isl=12_300, isl_cached=12_000, isl_new=300, osl=80),
        step(4, 110, 112, waited_s=70, isl=13_000, isl_cached=12_300, isl_new=700, osl=150),
        step(0, 7, 9, isl=2_000, isl_cached=1_000, isl_new=1_000, osl=60, **subagent),
        step(1, 10, 15, waited_s=1, isl=2_600, isl_cached=2_000, isl_new=600, osl=90, **subagent),
    ]
    calls = [
        call(0, 2, 5, own_ms=2_500, is_error=False),
        call(1, 6, 16, name="Task", is_error=False),
        call(1, 6, 7, index=1, name="Read", is_error=True),
        call(3, 40, 110, own_ms=69_000, is_error=False),
        call(0, 9, 10, thread="c", name="Grep", is_error=False),
    ]
    agent = {"agent": "claude-code", "model": "m"}
    run = make_run(tmp_path_factory.mktemp("worked") / "run", [row | agent for row in turns], calls, kind="capture")
    return dict(analyze(run))


def test_tokens_of_a_step(worked: dict[str, Answer]) -> None:
    answer = worked["tokens"]
    assert figures(answer) == {
        "median ISL": 10_400,
        "median prefix": 10_000,
        "median append": 700,
        "median output": 90,
        "prefix hits": pytest.approx(100 * 47_700 / 62_300),
    }
    assert rows(answer, "tokens", "tokens_of_a_step", "n", "mean", "p25", "p50", "p90", "max", "sum")[0] == (
        "ISL", 7, 8_900, 6_300, 10_400, pytest.approx(12_580), 13_000, 62_300,
    )  # fmt: skip
    assert rows(answer, "growth", "turn", "steps", "threads", "isl_p50_tokens") == [
        ("0", 2, 2, 6_000),
        ("1", 2, 2, 6_500),
        ("2-3", 2, 1, 12_150),
        ("4-7", 1, 1, 13_000),
    ]
    assert rows(answer, "agents", "agent", "model", "steps", "osl_p50_tokens") == [("claude-code", "m", 7, 90)]


def test_tokens_by_agent_and_model(tmp_path: Path) -> None:
    """Each agent with each of its models by itself; what one does not tell is no row."""
    told: dict[tuple[str | None, str], list[tuple[int, int | None, int | None]]] = {
        ("a", "m"): [(100, 40, 7), (300, 60, 9), (400, 80, 8), (900, 20, 2)],
        ("a", "n"): [(1_000, None, 5)],
        (None, "m"): [(50, 10, None), (70, 20, None)],
    }
    turns = [
        step(n, n, n + 0.5, thread=f"{agent}{model}", agent=agent, model=model, isl=isl, isl_new=new, osl=osl)
        for (agent, model), rounds in told.items()
        for n, (isl, new, osl) in enumerate(rounds)
    ]
    answer = analyze(make_run(tmp_path / "run", turns, [], kind="capture"), questions=["tokens"])["tokens"]
    assert rows(answer, "by_agent", "agent", "model", "tokens_of_a_step", "n", "mean", "p25", "p50", "p90", "max") == [
        ("a", "m", "ISL", 4, 425, 250, 350, pytest.approx(750), 900),
        ("a", "m", "ISL_new", 4, 50, 35, 50, 74, 80),
        ("a", "m", "OSL", 4, 6.5, 5.75, 7.5, pytest.approx(8.7), 9),
        ("a", "n", "ISL", 1, 1_000, 1_000, 1_000, 1_000, 1_000),
        ("a", "n", "OSL", 1, 5, 5, 5, 5, 5),
        ("not told", "m", "ISL", 2, 60, 55, 60, 68, 70),
        ("not told", "m", "ISL_new", 2, 15, 12.5, 15, 19, 20),
    ]
    growth = rows(answer, "growth_by_agent", "agent", "model", "turn", "steps", "threads", "isl_p50_tokens")
    assert growth == [
        ("a", "m", "0", 1, 1, 100),
        ("a", "m", "1", 1, 1, 300),
        ("a", "m", "2-3", 2, 1, 650),
        ("a", "n", "0", 1, 1, 1_000),
        ("not told", "m", "0", 1, 1, 50),
        ("not told", "m", "1", 1, 1, 70),
    ]


def test_steps_and_calls_of_a_request(worked: dict[str, Answer]) -> None:
    answer = worked["loop"]
    # The first request has five steps (two of its subagent) and four calls in 18 s, the second two and one in 74 s.
    assert figures(answer) == {
        "model steps per user request": 3.5,
        "tool calls per user request": 2.5,
        "median model steps": 3.5,
        "median run without a human": 46,
    }
    assert rows(answer, "run_lengths", "steps", "requests", "requests_pct", "all_steps_pct", "wall_p50_s") == [
        ("2", 1, 50, pytest.approx(100 * 2 / 7), 74),
        ("5-8", 1, 50, pytest.approx(100 * 5 / 7), 18),
    ]
    assert rows(answer, "sessions", "of_a_session", "n", "max") == [("user requests", 1, 2)]


def test_tools(worked: dict[str, Answer]) -> None:
    answer = worked["tools"]
    assert figures(answer) == {
        "tool calls over 1 min": 20,
        "their share of tool time": pytest.approx(100 * 70 / 85),
        "calls that hold 80 % of tool time": 20,
        "top three tools, claude-code": 80,
        "failed calls": 20,
        "steps with parallel calls": 25,
        # 84 s of calls of the main conversation in 83 s, 1 s of the subagent's in 1 s.
        "overlap of calls": pytest.approx(85 / 84),
    }
    assert rows(answer, "tools", "tool", "calls", "calls_pct", "cumulative_pct", "wall_p50_s", "errors_pct") == [
        ("Bash", 2, 40, 40, 36.5, 0),
        ("Grep", 1, 20, pytest.approx(60), 1, 0),
        ("Read", 1, 20, pytest.approx(80), 1, 100),
        ("Task", 1, 20, pytest.approx(100), 10, 0),
    ]
    assert rows(answer, "latency", "latency_s", "n", "mean", "max") == [
        ("wall", 5, 17, 70),
        ("own", 2, 35.75, 69),
        ("gap (wall - own)", 2, 0.75, 1),
    ]
    assert rows(answer, "parallelism", "calls_at_once", "steps", "calls_pct") == [
        ("1", 3, pytest.approx(60)),
        ("2", 1, pytest.approx(40)),
    ]
    assert sorted(rows(answer, "transitions", "tool", "next", "times")) == [
        ("Bash", "Task", 1),
        ("Read", "Bash", 1),
        ("Task", "Read", 1),
    ]


def test_shares_of_time_are_unions(worked: dict[str, Answer]) -> None:
    answer = worked["time"]
    assert rows(answer, "shares", "of_a", "part", "share_pct", "n") == [
        ("session", "generation", pytest.approx(100 * 16 / 112), 1),
        ("session", "tools", pytest.approx(100 * 83 / 112), 1),
        ("session", "human", pytest.approx(100 * 20 / 112), 1),
        ("session", "idle", pytest.approx(0, abs=1e-9), 1),
        ("user request", "generation", pytest.approx(100 * 16 / 92), 2),
        # 13 of 18 s, a second of the subagent's tool within the parent's; and 70 of 74 s.
        ("user request", "tools", pytest.approx(100 * 83 / 92), 2),
        ("user request", "idle", pytest.approx(0, abs=1e-9), 2),
    ]
    assert figures(answer)["human wait p50"] == 20
    assert rows(answer, "waits", "seconds_of", "n", "mean") == [
        ("a step: request to end of response", 7, pytest.approx(16 / 7)),
        ("a tool call: wall latency", 5, 17),
        ("tools: reply to next request", 4, 21),
        ("a human: reply to next request", 1, 20),
    ]


def test_contexts(worked: dict[str, Answer]) -> None:
    answer = worked["context"]
    assert figures(answer) == {
        "sessions with compaction": 0,
        "sessions with compaction, claude-code": 0,
        "median highest context": 7_800,
        "threads of a session": 2,
        "prompt tokens of subagents": pytest.approx(100 * 4_600 / 62_300),
    }
    assert rows(answer, "fragmentation", "threads_of", "threads", "steps", "steps_pct") == [
        ("main conversations", 1, 5, pytest.approx(100 * 5 / 7)),
        ("subagents", 1, 2, pytest.approx(100 * 2 / 7)),
    ]
    assert rows(answer, "context", "tokens", "n", "mean")[:3] == [
        ("ISL of a thread's first step", 2, 6_000),
        ("highest ISL of a thread", 2, 7_800),
        ("growth of ISL from step to step", 5, 720),
    ]


def test_overview(worked: dict[str, Answer]) -> None:
    row = worked["overview"].frame.iloc[0]
    assert [row[name] for name in ("sessions", "threads", "subagent_threads", "turns", "steps", "tool_calls")] == [
        1, 2, 1, 7, 7, 5,
    ]  # fmt: skip
    assert row["span_h"] == pytest.approx(112 / 3_600)


MAIN, SUB = "main", "subagent"


@pytest.mark.parametrize(
    ("turns", "expected"),
    [
        pytest.param(
            [("t", 1), ("t", 0), ("t", 0)], ["user", "tool", "user"], id="a reply without calls ends a request"
        ),
        pytest.param([("t", 1), ("t", 1, "http_error"), ("t", 0)], ["user", "tool", "retry"], id="after a failure"),
        pytest.param([("t", 0, "client_cancelled"), ("t", 0)], ["user", "user"], id="a human broke it off"),
        pytest.param([("t", 1), ("c", 1), ("c", 0), ("t", 0)], ["user", "agent", "tool", "tool"], id="a subagent"),
        pytest.param([("t", 1), ("c", 0), ("c", 0)], ["user", "agent", "agent"], id="a subagent that is asked again"),
        pytest.param([("t", 1), ("x", 0)], ["user", "tool"], id="a reset with calls open"),
        pytest.param([("t", 0), ("x", 0)], ["user", "user"], id="a new conversation"),
        pytest.param([("t", 1), ("u", 0), ("t", 0)], ["user", None, "tool"], id="a title is nobody's request"),
    ],
)
def test_what_set_a_turn_off(tmp_path: Path, turns: list[Any], expected: list[str | None]) -> None:
    made, calls, counts = [], [], dict.fromkeys("tcxu", 0)
    for at, (thread, n_calls, *outcome) in enumerate(turns):
        kind = {"c": "subagent", "u": "utility"}.get(thread, "main")
        parent = "t" if thread == "c" else None
        more: dict[str, Any] = {"kind": kind, "parent_thread_id": parent, "outcome": (outcome or ["ok"])[0]}
        made.append(step(counts[thread], 10 * at, 10 * at + 1, thread=thread, request_id=str(at), **more))
        calls += [
            call(counts[thread], 10 * at + 1, 10 * at + 9, thread=thread, index=index) for index in range(n_calls)
        ]
        counts[thread] += 1
    trace = open_trace(make_run(tmp_path / "run", made, calls, kind="capture"))
    found = trace.turns.sort("request_time")
    assert found["trigger"].to_list() == expected


@pytest.mark.parametrize(
    ("isl", "compactions"),
    [
        ([10_000, 12_000, 14_000], 0),
        ([10_000, 4_999, 6_000], 1),
        ([10_000, 5_000, 6_000], 0),  # just half
        ([4_999, 1_000, 1_200], 0),  # too short to be compacted
        ([100_000, 2_000, 101_000], 0),  # a short request in between
        ([100_000, 20_000, 70_000, 150_000, 30_000], 2),
        ([100_000, 20_000], 1),
        ([100_000, None, 20_000, 21_000], 1),  # usage of one was not told
    ],
)
def test_a_compaction_within_a_thread(tmp_path: Path, isl: list[int | None], compactions: int) -> None:
    turns = [step(turn, 10 * turn, 10 * turn + 1, isl=tokens) for turn, tokens in enumerate(isl)]
    answer = analyze(make_run(tmp_path / "run", turns), questions=["context"])["context"]
    assert rows(answer, "compaction", "compactions") == [(compactions,)]
    assert figures(answer)["sessions with compaction"] == (100 if compactions else 0)


@pytest.mark.parametrize(
    ("after_s", "isl", "calls_open", "compactions"),
    [
        (1.0, 20_000, 0, 1),  # at once, and far shorter
        (60.0, 20_000, 0, 0),  # a human cleared it
        (60.0, 20_000, 1, 1),  # amid the work
        (1.0, 60_000, 0, 0),  # not shorter
    ],
)
def test_a_compaction_into_a_new_thread(
    tmp_path: Path, after_s: float, isl: int, calls_open: int, compactions: int
) -> None:
    begin = 10 + after_s
    turns = [step(0, 0, 10, isl=100_000), step(0, begin, begin + 1, thread="new", isl=isl)]
    calls = [call(0, 10, 11)] * calls_open
    run = make_run(tmp_path / "run", turns, calls, kind="capture")
    assert rows(analyze(run)["context"], "compaction", "compactions") == [(compactions,)]
    # What was compacted goes on with the same request of a human.
    assert open_trace(run).turns["user_request"].to_list() == ([1, 1] if compactions else [1, 2])


def test_a_share_of_calls_needs_times(tmp_path: Path) -> None:
    turns = [{"turn": 0}, {"turn": 1}]
    calls = [{"turn": 0, "name": "Bash"}, {"turn": 0, "index": 1, "name": "Read"}]
    answer = analyze(make_run(tmp_path / "run", turns, calls), questions=["tools"])["tools"]
    found = figures(answer)
    assert found["tool calls over 1 min"] is None
    assert found["failed calls"] is None
    assert found["top three tools, not told"] == 100
    assert found["steps with parallel calls"] == 100
    assert answer.missing == (
        "no call has a wall latency: no tail share, no tool time",
        "no call tells the tool's own time: no own latency, no gap",
        "no call is marked as failed or not: no errors",
    )


def test_failed_turns_and_titles_are_no_steps(tmp_path: Path) -> None:
    turns = [
        step(0, 0, 1, isl=100, osl=10),
        step(1, 2, 3, isl=None, outcome="http_error"),
        step(2, 4, 5, isl=300, osl=30),
        step(0, 0, 1, thread="u", kind="utility", isl=9_000, osl=1),
        step(0, 9, 9, thread="v", kind="main", isl=None, changes=["answered_locally"]),
    ]
    trace = open_trace(make_run(tmp_path / "run", turns))
    assert trace.steps["isl"].to_list() == [100, 300]
    assert trace.turns.height == 5
    overview = analyze(trace, questions=["overview"])["overview"].frame.iloc[0]
    assert (overview["turns"], overview["steps"], overview["utility_turns"], overview["failed_turns"]) == (5, 2, 1, 1)


def test_a_sources_own_clock_may_begin_at_0(tmp_path: Path) -> None:
    turns = [{"turn": 0, "request_time": 0.0}, {"turn": 1, "request_time": 4.0}]
    own = open_trace(make_run(tmp_path / "own", turns, start=0.0)).turns["request_time"].to_list()
    assert own == [0.0, 4.0]
    untold = [row | {"request_time": 0.0} for row in turns]
    assert open_trace(make_run(tmp_path / "untold", untold, start=0.0)).turns["request_time"].to_list() == [None, None]


def test_requests_of_a_replay_are_turns(tmp_path: Path) -> None:
    requests = [
        {
            "trajectory_id": "a",
            "thread_id": "t",
            "turn": turn,
            "source_request_id": f"r{turn}",
            "sent_at_ms": 1e3 * turn,
            "ttft_ms": 100.0,
            "e2e_ms": 400.0,
            "tool_wait_ms": 600.0 if turn else None,
            "prompt_tokens": 50 + turn,
            "cached_tokens": 40,
            "completion_tokens": 7,
            "status": status,
        }
        for turn, status in enumerate(["ok", "failed", "cancelled"])
    ]
    trace = open_trace(
        make_run(
            tmp_path / "run",
            requests=requests,
            kind="replay",
            engine={"name": "e", "url": "http://127.0.0.1:1", "model": "m"},
        )
    )
    turns = trace.turns
    assert turns["outcome"].to_list() == ["ok", "upstream_error", "client_cancelled"]
    assert turns["request_time"].to_list() == [0.0, 1.0, 2.0]
    assert turns["response_end_time"].to_list() == pytest.approx([0.4, 1.4, 2.4])
    assert turns["isl_new"].to_list() == [10, 11, 12]
    assert set(turns["model"]) == {"m"}
    assert trace.is_replayed
    assert turns.schema["session"] == pl.UInt32


def test_columns_that_an_older_run_lacks_are_unknown(tmp_path: Path) -> None:
    run = make_run(tmp_path / "run", [step(0, 0, 1, isl=100), step(1, 2, 3, isl=200)])
    file = run.path / "turn_traces.parquet"
    pl.read_parquet(file).drop("kind", "outcome", "isl_cached", "agent", "changes").write_parquet(file)
    trace = open_trace(run)
    assert trace.steps["isl"].to_list() == [100, 200]
    assert trace.lacks("isl_cached")
    assert "no step tells its cached tokens: no prefix, no ISL_new, no hit rate" in analyze(trace)["tokens"].missing


def test_a_run_that_was_killed_is_read_from_its_journals(tmp_path: Path) -> None:
    with agentbench.SimulatedEngine(speed="instant") as engine:
        proxy = agentbench.Proxy(engine.url, out=tmp_path / "run").start()
        converse(proxy.url, 3)
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and not _journal_lines(tmp_path / "run"):
            time.sleep(0.05)
        shutil.copytree(tmp_path / "run", tmp_path / "killed")
        proxy.stop()
    killed = analyze(tmp_path / "killed", questions=["overview"])["overview"]
    assert killed.frame.loc[0, "turns"] == 3
    assert any("was killed" in note for note in killed.notes)


def _journal_lines(run: Path) -> bool:
    journal = run / "turn_traces.journal.jsonl"
    return journal.is_file() and len(journal.read_text().splitlines()) == 3
