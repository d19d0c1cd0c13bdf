"""`agentbench agent` and its Python calls, against answers that are written beforehand.

What tools, checks, bodies and sandboxes do is tried in tests of their own; a real engine in `tests/real`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from tests.python.scripted import BREAK, HANG, Server, answers, called, end, reasoning, said, text

import agentbench
from agentbench import CommandCheck, FileCheck, Task

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

WRITE = ("write", {"path": "a.txt", "content": "hello\n"})
TASK = Task("hello", "Write hello to a.txt.", {"b.txt": "b"}, checks=(FileCheck("a.txt", equals="hello"),))


def run_of(server: Server, out: Path, tasks: Any = (TASK,), **settings: Any) -> agentbench.Run:
    return agentbench.run_agents(tasks, url=server.url, out=out, **{"sandbox": "none", "power": "none"} | settings)


def frame(run: agentbench.Run, table: str) -> pd.DataFrame:
    return getattr(run, table)().to_pandas()  # type: ignore[no-any-return]


def worked(body: dict[str, Any]) -> Any:
    """Write the file, look at it, and say that it is done."""
    return [called(WRITE), called(("read", {"path": "a.txt"})), said("Done.")][answers(body)]


def test_a_task_is_worked_on_checked_measured_and_recorded(tmp_path: Path) -> None:
    with Server(worked).running() as server:
        run = run_of(server, tmp_path / "run")
    assert run.manifest["kind"] == "agent"
    assert run.manifest["settings"]["agent"]["max_steps"] == 12
    requests, turns = frame(run, "requests"), frame(run, "turns")
    assert list(requests["status"]) == ["ok"] * 3
    assert list(requests["turn"]) == [0, 1, 2]
    assert list(requests["finish_reason"]) == ["tool_calls", "tool_calls", "stop"]
    assert list(requests["prompt_tokens"]) == [10] * 3
    assert (requests["ttft_ms"] == requests["ttft_visible_ms"]).all()
    assert requests["ttft_reasoning_ms"].isna().all()
    assert list(requests["tool_time_ms"].isna()) == [True, False, False]
    assert (requests["tool_time_ms"].dropna() > 0).all()
    # What was measured and what was recorded are the same exchanges.
    joined = requests.merge(turns, left_on="source_request_id", right_on="request_id", suffixes=("", "_turn"))
    assert len(joined) == 3
    assert (joined["ttft_ms"] == joined["ttft_ms_turn"]).all()
    assert (joined["e2e_ms"] == joined["e2e_ms_turn"]).all()
    assert (joined["session_id"] == "hello").all()
    assert (turns["session_id"] == "hello").all()
    assert list(turns["agent"]) == ["agentbench"] * 3
    calls = frame(run, "tool_calls")
    assert list(calls["name"]) == ["write", "read"]
    assert list(calls["result_bytes"]) == [len("wrote a.txt, 1 lines"), len("hello\n")]
    assert json.loads(run.request_body(turns["request_id"][0])) == server.bodies[0]
    row = frame(run, "trajectories").iloc[0]
    assert (row["task_id"], row["outcome"], row["claimed"], row["check_passed"]) == ("hello", "done", True, True)
    assert (row["steps"], row["tool_calls"], row["tool_errors"], row["malformed_calls"]) == (3, 2, 0, 0)
    assert (row["n_sent"], row["n_failed"], row["completed"]) == (3, 0, True)
    assert row["tool_wait_ms"] == pytest.approx(requests["tool_time_ms"].sum())


def test_a_summary_can_be_recomputed_from_the_tables(tmp_path: Path) -> None:
    def script(body: dict[str, Any]) -> Any:
        prompt = body["messages"][1]["content"]
        if prompt == "lie":
            return said("Done.")
        return worked(body) if prompt != "stop" else called(("nothing", {}), ("read", {"path": "none"}))

    tasks = [
        TASK,
        Task("lie", "lie", checks=(FileCheck("a.txt"),)),
        Task("stop", "stop", checks=(CommandCheck("true"),)),
        Task("unchecked", "go"),
    ]
    with Server(script).running() as server:
        run = run_of(server, tmp_path / "run", tasks, repeat=2, concurrency=3, max_steps=3)
    summary, rows, requests = run.summary(), frame(run, "trajectories"), frame(run, "requests")
    assert summary is not None
    agent = summary["agent"]
    assert summary == run.summarize()
    assert (agent["tasks"], len(rows)) == (8, 8)
    assert agent["checked"] == rows["check_passed"].notna().sum() == 6
    assert agent["completed"] == (rows["check_passed"] == True).sum() == 4  # noqa: E712 may be null
    assert agent["completed_pct"] == pytest.approx(100 * 4 / 6)
    assert agent["claimed"] == rows["claimed"].sum() == 6
    assert agent["claimed_not_completed"] == 2
    assert agent["completed_not_claimed"] == 2
    assert agent["outcomes"] == dict(rows["outcome"].value_counts()) == {"done": 6, "max_steps": 2}
    assert agent["tool_calls"] == rows["tool_calls"].sum()
    # Three steps of two runs, each with a tool that is not there.
    assert agent["malformed_calls"] == rows["malformed_calls"].sum() == 6
    assert agent["tool_errors"] == rows["tool_errors"].sum() == 6
    assert agent["malformed_pct"] == pytest.approx(100 * 6 / rows["tool_calls"].sum())
    assert agent["steps"]["p90"] == pytest.approx(np.percentile(rows["steps"], 90))
    assert agent["task_time_ms"]["mean"] == pytest.approx((rows["end_ms"] - rows["start_ms"]).mean())
    assert agent["model_time_ms"]["mean"] == pytest.approx(requests.groupby("trajectory_id")["e2e_ms"].sum().mean())
    assert agent["tool_time_ms"]["mean"] == pytest.approx(requests["tool_time_ms"].mean())
    assert agent["by_task"]["lie"] == {
        "runs": 2,
        "completed": 0,
        "claimed": 2,
        "steps": 2,
        "tool_calls": 0,
        "note": "a.txt is not there",
    }
    assert summary["failed_because"] is None
    assert sorted(requests["agent_id"].unique()) == [0, 1, 2]
    assert sorted(rows["trajectory_id"]) == sorted(f"{task.id}{end}" for task in tasks for end in ("", "-2"))
    markdown = agentbench.report(run).to_markdown()
    assert "4 of 6 (66.7 %)" in markdown
    assert "done 6, max steps 2" in markdown
    assert "no steady state" not in markdown
    assert (run.path / "report.md").read_text() == markdown


def test_calls_of_one_answer_run_at_once(tmp_path: Path) -> None:
    together = threading.Barrier(3, timeout=20)

    @agentbench.tool
    def meet(number: int) -> int:
        """Wait for the others."""
        together.wait()
        return number

    def script(body: dict[str, Any]) -> Any:
        return [called(("meet", {"number": 1}), ("meet", {"number": 2}), ("meet", {"number": 3})), said("Done.")][
            answers(body)
        ]

    with Server(script).running() as server:
        run = run_of(server, tmp_path / "run", [Task("t", "go")], tools=[meet])
    results = [message["content"] for message in server.bodies[1]["messages"] if message["role"] == "tool"]
    assert results == ["1", "2", "3"]
    assert frame(run, "trajectories")["tool_errors"][0] == 0


def test_malformed_calls_come_back_as_errors_and_are_counted(tmp_path: Path) -> None:
    @agentbench.tool
    async def fails(why: str) -> str:
        """Fail."""
        raise ValueError(why)

    def script(body: dict[str, Any]) -> Any:
        return [
            called(("fails", "{oh"), ("fails", {"what": 1}), ("none", {}), ("fails", {"why": "so"})),
            said("Done."),
        ][answers(body)]

    with Server(script).running() as server:
        run = run_of(server, tmp_path / "run", [Task("t", "go")], tools=[fails])
    told = [message["content"] for message in server.bodies[1]["messages"] if message["role"] == "tool"]
    assert [line.split(";")[0].split(": Expecting")[0] for line in told] == [
        "Error: the arguments of fails are no JSON",
        "Error: fails: why is missing",
        "Error: there is no tool 'none'",
        "Error: ValueError: so",
    ]
    row = frame(run, "trajectories").iloc[0]
    assert (row["tool_calls"], row["malformed_calls"], row["tool_errors"]) == (4, 3, 1)


def test_an_answer_that_was_cut_off_is_no_claim(tmp_path: Path) -> None:
    def script(body: dict[str, Any]) -> Any:
        return [[text("I would"), end("length")], said("Done.")][answers(body)]

    with Server(script).running() as server:
        run = run_of(server, tmp_path / "run")
    assert server.bodies[1]["messages"][-1]["content"].startswith("Your answer was cut off")
    row = frame(run, "trajectories").iloc[0]
    assert (row["steps"], row["claimed"], row["check_passed"]) == (2, True, False)
    assert frame(run, "requests")["finish_reason"][0] == "length"
    assert run.summary()["failed_because"] == "none of 1 checked tasks was completed"  # type: ignore[index]


def test_reasoning_has_a_first_chunk_of_its_own_and_is_sent_back_on_demand(tmp_path: Path) -> None:
    def script(body: dict[str, Any]) -> Any:
        return [[reasoning("hm"), *called(WRITE)], [reasoning("so"), *said("Done.")]][answers(body)]

    for keep in (False, True):
        with Server(script, pause_s=0.02).running() as server:
            run = run_of(server, tmp_path / f"run-{keep}", keep_reasoning=keep)
        requests = frame(run, "requests")
        assert (requests["ttft_ms"] == requests["ttft_reasoning_ms"]).all()
        assert (requests["ttft_visible_ms"] >= requests["ttft_reasoning_ms"] + 10).all()
        assert server.bodies[1]["messages"][2].get("reasoning_content") == ("hm" if keep else None)
        assert run.manifest["settings"]["agent"]["keep_reasoning"] is keep


@pytest.mark.parametrize(
    ("chunks", "error", "status", "outcome"),
    [
        ([text("I wo"), BREAK], "unfinished stream", 200, "truncated"),
        (500, "http 500: scripted", 500, "http_error"),
    ],
)
def test_a_request_that_fails_is_a_row_and_ends_the_task(
    tmp_path: Path, chunks: Any, error: str, status: int, outcome: str
) -> None:
    with Server(lambda body: called(WRITE) if not answers(body) else chunks).running() as server:
        run = run_of(server, tmp_path / "run")
    requests = frame(run, "requests")
    assert list(requests["status"]) == ["ok", "failed"]
    assert requests["error"][1].startswith(error)
    assert list(requests["http_status"]) == [200, status]
    assert list(frame(run, "turns")["outcome"]) == ["ok", outcome]
    row = frame(run, "trajectories").iloc[0]
    # What it wrote before counts: the check judges, not the way there.
    assert (row["outcome"], row["claimed"], row["check_passed"], row["n_failed"]) == ("failed_request", False, True, 1)
    assert run.summary()["failed_because"] == "1 requests failed"  # type: ignore[index]


def test_a_task_ends_at_its_time_limit_and_is_checked(tmp_path: Path) -> None:
    task = Task("hello", "p", checks=TASK.checks, time_limit_s=1.5)
    with Server(lambda body: called(WRITE) if not answers(body) else [text("I"), HANG]).running() as server:
        run = run_of(server, tmp_path / "run", [task])
    requests = frame(run, "requests")
    assert list(requests["status"]) == ["ok", "cancelled"]
    assert list(frame(run, "turns")["outcome"]) == ["ok", "client_cancelled"]
    row = frame(run, "trajectories").iloc[0]
    assert (row["outcome"], row["check_passed"], row["n_sent"], row["completed"]) == ("time_limit", True, 2, False)


def test_a_command_that_runs_when_time_is_up_is_ended_before_the_check(tmp_path: Path) -> None:
    task = Task("t", "p", checks=(CommandCheck("sleep 1; test ! -e late"),), time_limit_s=1.0)
    with Server(lambda _: called(("shell", {"command": "sleep 2; touch late; sleep 60"}))).running() as server:
        run = run_of(server, tmp_path / "run", [task])
    assert frame(run, "trajectories")["check_passed"][0]


def test_a_run_is_a_recording_that_is_replayed(tmp_path: Path, engine: agentbench.SimulatedEngine) -> None:
    with Server(worked).running() as server:
        recorded = run_of(server, tmp_path / "run")
    replayed = agentbench.replay(recorded, url=engine.url, out=tmp_path / "again", api="chat", power="none")
    requests = frame(replayed, "requests")
    assert list(requests["status"]) == ["ok"] * 3
    assert list(requests["session_id"]) == ["hello"] * 3
    assert requests["tool_wait_ms"][1] >= 0


def test_an_agent_does_one_thing(tmp_path: Path) -> None:
    with Server(worked).running() as server:
        agent = agentbench.Agent(url=server.url, settings={"sandbox": "none", "power": "none"})
        result = agent.run("Write hello to a.txt.", out=tmp_path / "run", keep_workspace=True)
    assert (result.outcome, result.text, result.completed, len(result.steps)) == ("done", "Done.", None, 3)
    assert result.workspace is not None
    assert result.workspace.is_relative_to(tmp_path / "run" / "workspaces")
    assert (result.workspace / "a.txt").read_text() == "hello\n"
    shown = result._repr_markdown_()
    assert "**done**: 3 steps" in shown
    assert "`write`" in shown


async def test_an_agent_works_beside_an_event_loop(tmp_path: Path) -> None:
    with Server(worked).running() as server:
        agent = agentbench.Agent(url=server.url, settings={"sandbox": "none", "power": "none"})
        result = await agent.run_async(TASK, out=tmp_path / "async")
        assert result.completed is True
        # As in a notebook's cell, where a loop runs already.
        assert agent.run(TASK, out=tmp_path / "sync").completed is True


async def test_a_cancelled_run_keeps_what_there_is(tmp_path: Path) -> None:
    with Server(lambda body: called(WRITE) if not answers(body) else [text("I"), HANG]).running() as server:
        running = asyncio.ensure_future(
            agentbench.run_agents_async([TASK], url=server.url, out=tmp_path / "run", sandbox="none", power="none")
        )
        for _ in range(200):
            await asyncio.sleep(0.05)
            if len(server.bodies) == 2:
                break
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
    run = agentbench.Run.open(tmp_path / "run")
    assert run.manifest["complete"]
    assert list(frame(run, "requests")["status"]) == ["ok", "cancelled"]
    row = frame(run, "trajectories").iloc[0]
    assert (row["outcome"], row["check_passed"]) == ("cancelled", None)
    assert run.summary()["settings"]["ended_by"] == "shutdown"  # type: ignore[index]


async def ask_once(session: agentbench.Session) -> bool:
    """A loop of one's own: a single answer, whose calls are run."""
    answer = await session.ask()
    await session.call(answer)
    return False


def test_a_loop_of_ones_own(tmp_path: Path) -> None:
    with Server(worked).running() as server:
        run = run_of(server, tmp_path / "run", loop=ask_once)
    row = frame(run, "trajectories").iloc[0]
    assert (row["steps"], row["outcome"], row["check_passed"]) == (1, "max_steps", True)
    assert run.manifest["settings"]["agent"]["own_loop"] is True


def test_workspaces_are_removed_unless_they_are_to_be_kept(tmp_path: Path) -> None:
    with Server(worked).running() as server:
        run_of(server, tmp_path / "run", workdir=tmp_path / "work")
        assert list((tmp_path / "work").iterdir()) == []
        run_of(server, tmp_path / "kept", workdir=tmp_path / "work", keep_workspaces=True)
    assert (tmp_path / "work" / "hello" / "tree" / "a.txt").read_text() == "hello\n"


def test_progress_is_told(tmp_path: Path) -> None:
    seen: list[agentbench.AgentProgress] = []
    with Server(worked, pause_s=0.2).running() as server:
        run_of(server, tmp_path / "run", on_progress=seen.append)
    assert seen[0].total == 1
    assert ("hello",) in [progress.running for progress in seen]
    assert max(progress.requests["requests_sent"] for progress in seen) >= 1


def cli(server: str, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "agentbench", "agent", "--url", server, "--out", str(out), "--power", "none"]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=100, check=False)


def test_the_command_line(tmp_path: Path) -> None:
    task = {"id": "hello", "prompt": "p", "check": {"file": "a.txt", "equals": "hello"}}
    (tmp_path / "tasks.jsonl").write_text(json.dumps(task))
    with Server(worked).running() as server:
        done = cli(server.url, tmp_path / "run", "--task-file", str(tmp_path / "tasks.jsonl"), "--sandbox", "none")
    assert done.returncode == 0, done.stderr
    assert "1 of 1 (100.0 %)" in done.stdout
    assert "agentbench replay" in done.stdout
    assert "nothing around them" in done.stderr
    with Server(lambda _: said("Done.")).running() as server:
        lied = cli(server.url, tmp_path / "lied", "--tasks", "2", "--sandbox", "none", "--max-steps", "2")
    assert lied.returncode == 1, lied.stderr
    assert "none of 2 checked tasks was completed" in lied.stderr
    assert agentbench.Run.open(tmp_path / "lied").manifest["argv"][:2] == ["agentbench", "agent"]


def test_an_interrupted_command_line_keeps_what_there_is(tmp_path: Path) -> None:
    with Server(lambda _: [text("I"), HANG]).running() as server:
        command = [sys.executable, "-m", "agentbench", "agent", "--url", server.url, "--out", str(tmp_path / "run")]
        process = subprocess.Popen(
            [*command, "--tasks", "2", "--sandbox", "none", "--power", "none"], stderr=subprocess.PIPE, text=True
        )
        for _ in range(300):
            time.sleep(0.1)
            if len(server.bodies) == 2:
                break
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    run = agentbench.Run.open(tmp_path / "run")
    assert run.manifest["complete"]
    assert list(frame(run, "requests")["status"]) == ["cancelled"] * 2


def test_bad_settings_are_one_line_with_a_remedy(tmp_path: Path, engine: agentbench.SimulatedEngine) -> None:
    both = cli(engine.url, tmp_path / "run", "--tasks", "2", "--task-file", __file__)
    assert (both.returncode, "--tasks counts built-in tasks" in both.stderr) == (2, True)
    gone = cli("http://127.0.0.1:9", tmp_path / "run", "--sandbox", "none")
    assert gone.returncode == 2
    assert not (tmp_path / "run").exists()
    bare = {"AGENTBENCH_BWRAP": "no-such-bwrap", "PATH": str(tmp_path)}
    command = [sys.executable, "-m", "agentbench", "agent", "--url", engine.url, "--out", str(tmp_path / "run")]
    refused = subprocess.run(command, capture_output=True, text=True, env=os.environ | bare, timeout=60, check=False)
    assert refused.returncode == 2
    assert "--sandbox none" in refused.stderr
    assert not (tmp_path / "run").exists()
    refusals: list[tuple[dict[str, Any], str]] = [
        ({"url": ""}, "url is missing"),
        ({"max_steps": 0}, "max_steps"),
        ({"concurrency": 0}, "concurrency"),
        ({"api": "completions"}, "need tools"),
        ({"tools": [worked_tool, worked_tool]}, "two are called"),
        ({"shell_timeout_s": 0}, "shell_timeout_s"),
    ]
    for settings, why in refusals:
        given: dict[str, Any] = {"url": engine.url, "out": tmp_path / "run", "sandbox": "none"} | settings
        with pytest.raises(agentbench.ConfigError, match=why):
            agentbench.run_agents([TASK], **given)


def worked_tool(name: str) -> str:
    """Do something."""
    return name
