"""`agentbench agent` against a real vLLM, with commands in a real bubblewrap, in every API that agents speak.

The tiny model's first answer makes one change, which is right for one of the built-in tasks: its check passes, and
the others' do not, whatever the model says.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from opened_pages import WIDE, Opened
from real_parts import Counters, Engine, frame, settled
from tests.python import collecting

import agentbench
from agentbench._collect import sandbox as places
from agentbench._collect.sandbox import Place
from agentbench.agent import sandbox

if TYPE_CHECKING:
    from playwright.sync_api import Browser

TASKS = 8
COMPLETED = "fix-sum"


@pytest.fixture(scope="module", autouse=True)
def bubblewrap() -> None:
    """The machine's, or the one of `setup.sh`; where neither works the tests cannot say anything."""
    program = collecting.bubblewrap()
    if program is None or places.refusal(Path(program), sealed=True):
        pytest.skip("bubblewrap does not work here")
    os.environ["AGENTBENCH_BWRAP"] = program


@dataclass(frozen=True)
class Ran:
    """A run of the command line, and what vLLM counted meanwhile."""

    run: agentbench.Run
    counted: Counters
    output: str


@pytest.fixture(scope="module")
def ran(vllm: Engine, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Eight tasks at once."""
    out = tmp_path_factory.mktemp("agent") / "run"
    before = settled(vllm)
    options = ["--url", vllm.url, "--tasks", str(TASKS), "--max-steps", "6", "--sandbox", "bwrap", "--out", str(out)]
    result = subprocess.run(
        [sys.executable, "-m", "agentbench", "agent", *options, "--keep-workspaces"],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert result.returncode == 0, result.stderr + result.stdout
    return Ran(agentbench.Run.open(out), settled(vllm) - before, result.stdout)


def test_checks_judge_and_claims_are_told_apart(ran: Ran) -> None:
    rows = frame(ran.run, "trajectories").set_index("task_id")
    assert len(rows) == TASKS
    assert list(rows.index[rows["check_passed"]]) == [COMPLETED]
    assert rows["check_passed"].notna().all()
    assert (rows["outcome"].isin(["done", "max_steps"])).all()
    assert (rows["claimed"] == (rows["outcome"] == "done")).all()
    assert rows["claimed"].any()
    agent: dict[str, Any] = ran.run.summary()["agent"]  # type: ignore[index]
    assert (agent["tasks"], agent["checked"], agent["completed"]) == (TASKS, TASKS, 1)
    assert agent["completed_pct"] == 100 / TASKS
    assert f"1 of {TASKS}" in ran.output
    fixed = ran.run.path / "workspaces" / COMPLETED / "tree" / "app.py"
    assert "return a + b" in fixed.read_text()


def test_its_page_opens_in_a_browser_and_tells_what_became_of_tasks(ran: Ran, browser: Browser, tmp_path: Path) -> None:
    page = agentbench.report(ran.run).write_html(tmp_path / "live.html")
    with Opened(browser, page, WIDE, "light") as opened:
        opened.check_whole(page, WIDE)
        completed = int(frame(ran.run, "trajectories")["check_passed"].sum())
        card = opened.page.locator('[data-figure="tasks completed, by their checks"]').inner_text()
        assert f"{completed / TASKS * 100:.3g}" in card


def test_tools_really_ran(ran: Ran) -> None:
    calls, rows = frame(ran.run, "tool_calls"), frame(ran.run, "trajectories")
    assert {"list", "edit"} <= set(calls["name"])
    assert rows["tool_calls"].sum() == len(calls)
    # The edit finds nothing to replace in seven of eight workspaces.
    assert rows["tool_errors"].sum() >= TASKS - 1
    first = frame(ran.run, "turns").sort_values("turn").groupby("session_id").first()
    assert [[block["name"] for block in json.loads(blocks)] for blocks in first["reply_blocks"]] == [
        ["list", "edit"]
    ] * TASKS


def test_figures_are_those_that_vllm_counted(ran: Ran) -> None:
    requests, turns = frame(ran.run, "requests"), frame(ran.run, "turns")
    assert (requests["status"] == "ok").all()
    assert len(requests) == len(turns) <= ran.counted.requests
    assert (ran.counted.requests - len(requests)) <= 4, "what is asked before the run"
    ttft, gaps = requests["ttft_ms"], requests["last_token_ms"] - requests["ttft_ms"]
    tpot = (gaps / (requests["completion_tokens"] - 1)).where(requests["completion_tokens"] >= 2)
    pd.testing.assert_series_equal(requests["tpot_ms"].astype(float), tpot.astype(float), check_names=False)
    assert ((ttft > 0) & (ttft <= requests["e2e_ms"])).all()
    assert requests["chunk_tokens"].map(len).gt(0).all(), "vLLM tells the tokens of each chunk"
    both = requests.merge(turns, left_on="source_request_id", right_on="request_id", suffixes=("", "_turn"))
    assert len(both) == len(requests)
    for ours, theirs in (("prompt_tokens", "isl"), ("completion_tokens", "osl"), ("ttft_ms", "ttft_ms_turn")):
        assert (both[ours] == both[theirs]).all()
    # A conversation that grows finds its own beginning in the cache.
    assert turns[turns["turn"] > 0]["isl_cached"].gt(0).any() or not (turns["turn"] > 0).any()
    metrics = frame(ran.run, "engine")
    assert metrics["n"].sum() >= len(requests)


def test_the_run_is_replayed_against_vllm(ran: Ran, vllm: Engine, tmp_path: Path) -> None:
    replayed = agentbench.replay(ran.run, url=vllm.url, agents=4, out=tmp_path / "again", tool_time="none")
    again = frame(replayed, "requests")
    assert (again["status"] == "ok").all()
    assert len(again) == len(frame(ran.run, "requests"))
    planned = frame(ran.run, "turns").set_index("request_id")["isl"]
    assert (again["planned_prompt_tokens"] == again["source_request_id"].map(planned)).all()


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
@pytest.mark.parametrize("keep_reasoning", [False, True])
def test_every_api(vllm: Engine, tmp_path: Path, api: str, keep_reasoning: bool) -> None:  # noqa: FBT001 a table
    run = agentbench.run_agents(
        2, url=vllm.url, api=api, max_steps=3, keep_reasoning=keep_reasoning, sandbox="bwrap", out=tmp_path / "run"
    )
    requests, rows = frame(run, "requests"), frame(run, "trajectories").set_index("task_id")
    assert set(requests["api"]) == {api}
    assert (requests["status"] == "ok").all(), list(requests["error"])
    assert set(requests["finish_reason"]) <= {"stop", "tool_calls"}
    assert dict(rows["check_passed"]) == {COMPLETED: True, "fix-off-by-one": False}
    assert (rows["tool_calls"] >= 2).all()


@pytest.fixture
def shell(tmp_path: Path) -> Any:
    place = Place(tmp_path / "tree", tmp_path / "home", tmp_path / "tmp", tmp_path / "private")
    place.make()
    place.tree.mkdir()
    (tmp_path / "secret").write_text("secret")
    with sandbox.choose("bwrap").opened(place, tmp_path / "check") as opened:
        yield opened


def run(shell: sandbox.Shell, command: str, limit_s: float = 30.0, **settings: Any) -> sandbox.Result:
    return shell.run(command, limit_s, threading.Event(), **settings)


def test_nothing_but_the_workspace_can_be_written_to(shell: sandbox.Shell, tmp_path: Path) -> None:
    assert run(shell, "pwd; echo w > f; cat f").output == "/testbed\nw\n"
    assert (shell.place.tree / "f").read_text() == "w\n"
    for path in ("/x", "/usr/x", "/etc/x", "/usr/bin/sh"):
        assert run(shell, f"echo x > {path}").exit_code != 0, path
    # Its /tmp is its own, whatever lies in the machine's.
    run(shell, f"echo x > {tmp_path / 'x'}")
    assert not (tmp_path / "x").exists()
    assert run(shell, f"cat {tmp_path / 'secret'}").exit_code != 0
    assert run(shell, "ln -s / out; echo x > out/usr/share/x").exit_code != 0


def test_there_is_no_network(shell: sandbox.Shell) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 3)"
        result = run(shell, f'python3 -c "{code}"')
    assert result.exit_code == 1
    assert "refused" in result.output or "unreachable" in result.output
    assert run(shell, "cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '").output == "lo\n"


def test_a_command_ends_with_all_that_it_started(shell: sandbox.Shell) -> None:
    result = run(shell, "setsid sleep 61.25 & (trap '' TERM; sleep 61.25) & echo started; sleep 61.25", 1.0)
    assert (result.ended, result.output) == ("timed_out", "started\n")
    left = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert "sleep 61.25" not in left


def test_limits_hold_in_the_sandbox(shell: sandbox.Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "PROCESSES", 30)
    assert run(shell, "for i in $(seq 60); do sleep 30 & done; wait").in_words == "ended: it had more than 30 processes"
    monkeypatch.setattr(sandbox, "MEMORY_BYTES", 512 << 20)
    told = run(shell, "python3 -c 'bytearray(1 << 30)'")
    assert told.exit_code == 1
    assert "MemoryError" in told.output


def test_a_checks_files_can_be_read_and_no_more(shell: sandbox.Shell, tmp_path: Path) -> None:
    folder = tmp_path / "check" / "0"
    folder.mkdir(parents=True)
    (folder / "f").write_text("right")
    assert run(shell, f"cat {folder}/f", show=[folder]).output == "right"
    assert run(shell, f"echo wrong > {folder}/f", show=[folder]).exit_code != 0
    assert run(shell, f"cat {folder}/f").exit_code != 0
