"""All four coding agents, unattended through their harnesses, recorded in front of a real vLLM.

The right answers are the agents' own logs and vLLM's counters: conversations, turns, tokens and tool calls agree.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from overloaded import STATUS, overloaded
from own_logs import Conversation, conversations
from real_parts import (
    BINARIES,
    MODEL_NAME,
    Counters,
    Engine,
    agent_environment,
    binary,
    capturing,
    finish_agent,
    frame,
    free_port,
    settled,
    start_agent,
    totals,
    with_own_path,
)

import agentbench
from agentbench import harness

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

# The first test waits for vLLM to come up, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(1200)

SESSIONS = 2
# Marks that the tiny model's chat template knows: two subagents that sleep, or a sleep of its own. All sessions of
# an agent have the same task, so that nothing but their course tells them apart.
TASKS = {
    "claude-code": "fix app.py [[spawn]]",
    "codex": "fix app.py [[sleep]]",
    "opencode": "fix app.py [[spawn]]",
    "mini-swe-agent": "fix app.py",
}
APIS = {"claude-code": "messages", "codex": "responses", "opencode": "chat", "mini-swe-agent": "chat"}
# Where each keeps what it logs, below its home.
LOGS = {
    "claude-code": ".claude/projects",
    "codex": ".codex/sessions",
    "opencode": ".local/share/opencode",
    "mini-swe-agent": ".config/mini-swe-agent",
}
SLEEP_MS = 2000
# An agent may start a tool when the call has come, a moment before the response ends.
EARLY_MS = 100
# What an agent does besides its tool, on a busy machine.
OVERHEAD_MS = 60_000


@dataclass(frozen=True)
class Recorded:
    """A finished capture, what vLLM counted meanwhile, and what the agents tell."""

    name: str
    run: Path
    counted: Counters
    told: list[Conversation]
    homes: list[Path]

    def turns(self) -> pd.DataFrame:
        return frame(agentbench.Run.open(self.run), "turns").sort_values("request_time")

    def calls(self) -> pd.DataFrame:
        return frame(agentbench.Run.open(self.run), "tool_calls")


@pytest.fixture(scope="module", params=list(BINARIES))
def recorded(request: pytest.FixtureRequest, vllm: Engine, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """Two sessions of an agent at once."""
    name = request.param
    folder = tmp_path_factory.mktemp(name)
    homes = [folder / f"session-{k}" for k in range(SESSIONS)]
    with capturing(vllm, folder / "run") as recording:
        agents = [start_agent(name, home, recording.proxy, TASKS[name]) for home in homes]
        try:
            for agent in agents:
                finish_agent(name, agent)
        finally:
            for agent in agents:
                if agent.poll() is None:
                    agent.kill()
                agent.communicate()
    told = [thread for home in homes for thread in conversations(name, home / "home")]
    return Recorded(name, recording.run, recording.counted, told, [home / "home" for home in homes])


def in_one_form(name: str, turns: pd.DataFrame, calls: pd.DataFrame) -> list[tuple[Any, ...]]:
    """Of each conversation: session, a subagent's name, its turns' tokens, its calls."""
    found = [
        (
            None if name == "mini-swe-agent" else str(thread["session_id"].iloc[0]),
            str(thread_id).rpartition("/agent-")[2] if "/agent-" in str(thread_id) else None,
            list(zip(thread["isl"], thread["isl_cached"], thread["osl"], strict=True)),
            dict(zip(*(calls[calls["thread_id"] == thread_id][column] for column in ("call_id", "name")), strict=True)),
        )
        for thread_id, thread in turns.groupby("thread_id")
    ]
    return sorted(found, key=str)


def test_turns_are_what_vllm_counted(recorded: Recorded) -> None:
    turns = recorded.turns()
    assert set(turns["outcome"]) == {"ok"}
    assert set(turns["api"]) == {APIS[recorded.name]}
    assert set(turns["agent"]) == {recorded.name}
    assert set(turns["stream"]) == {recorded.name != "mini-swe-agent"}
    assert totals(turns) == recorded.counted
    manifest = agentbench.Run.open(recorded.run).manifest
    assert sum(manifest["dropped"].values()) == 0
    assert manifest["counts"]["client_cancelled"] == 0


def test_conversations_are_the_agents_own(recorded: Recorded) -> None:
    turns, calls = recorded.turns(), recorded.calls()
    work = turns[turns["kind"] != "utility"]
    told = [(it.session, it.name, it.turns, it.calls) for it in recorded.told]
    assert in_one_form(recorded.name, work, calls) == sorted(told, key=str)
    # OpenCode asks for a title of each session; the others send nothing but their work here.
    titles = turns[turns["kind"] == "utility"]
    assert len(titles) == (SESSIONS if recorded.name == "opencode" else 0)
    assert titles["turn"].tolist() == [0] * len(titles)


def test_an_agents_own_log_imports_to_what_was_recorded(recorded: Recorded, tmp_path: Path) -> None:
    run = agentbench.import_traces([home / LOGS[recorded.name] for home in recorded.homes], out=tmp_path / "imported")
    assert run.manifest["settings"]["formats"] == [recorded.name]
    assert run.manifest["counts"]["records_left_out"] == 0
    theirs, calls = frame(run, "turns"), frame(run, "tool_calls")
    # OpenCode keeps no request for a title; all else that the proxy saw is in the logs.
    turns = recorded.turns()
    work = turns[turns["kind"] != "utility"]
    assert in_one_form(recorded.name, theirs, calls) == in_one_form(recorded.name, work, recorded.calls())
    assert set(theirs["agent"]) == {recorded.name}
    assert sorted(theirs["kind"]) == sorted(work["kind"])
    assert sorted(theirs["model"]) == sorted(work["model"])
    ours = recorded.calls().set_index("call_id").sort_index()
    calls = calls.set_index("call_id").sort_index()
    assert calls["arguments"].map(json.loads).tolist() == ours["arguments"].map(json.loads).tolist()
    answered, seen = calls["result_time"].notna(), ours["result_time"].notna()
    assert answered.all()
    # mini-swe-agent's last command ends it: its log has what came of it, no request does.
    assert (answered & ~seen).sum() == (SESSIONS if recorded.name == "mini-swe-agent" else 0)
    # Again, and the logs have nothing new.
    progress = agentbench.ImportProgress()
    sources = [home / LOGS[recorded.name] for home in recorded.homes]
    agentbench.import_traces(sources, out=tmp_path / "imported", update=True, progress=progress)
    assert progress.nothing_new
    assert progress.refused == []


def test_subagents_have_their_parent(recorded: Recorded) -> None:
    turns = recorded.turns()
    mains = turns[turns["kind"] == "main"]
    children = turns[turns["kind"] == "subagent"]
    assert mains["thread_id"].nunique() == SESSIONS
    assert mains["parent_thread_id"].isna().all()
    assert turns["session_id"].nunique() == SESSIONS
    spawns = "[[spawn]]" in TASKS[recorded.name]
    assert children["thread_id"].nunique() == (2 * SESSIONS if spawns else 0)
    parents = dict(zip(mains["session_id"], mains["thread_id"], strict=True))
    assert children["parent_thread_id"].tolist() == [parents[session] for session in children["session_id"]]
    if spawns:
        # The turn that comes back to the parent says how long it waited after its last child.
        assert mains["residual_wait_ms"].notna().any()


def test_each_prompt_goes_on_from_the_one_before(recorded: Recorded) -> None:
    for _, thread in recorded.turns().groupby("thread_id"):
        assert thread["turn"].tolist() == list(range(len(thread)))
        assert thread["tool_exec_ms"].isna().tolist() == [True] + [False] * (len(thread) - 1)
        sizes = [len(hashes) for hashes in thread["unit_hashes"]]
        assert sizes == sorted(sizes)
        assert (thread["n_shared_units"].iloc[1:] > 0).all()
        # vLLM found all full blocks of the turn before, which ends a few blocks short of the new prompt at most.
        assert (thread["isl"].iloc[1:] > thread["isl_cached"].iloc[1:]).all()


def test_tool_calls_are_whole(recorded: Recorded) -> None:
    turns, calls = recorded.turns(), recorded.calls()
    ends = turns.set_index("request_id")["response_end_time"]
    assert calls["name"].notna().all()
    assert (calls["argument_bytes"] == calls["arguments"].str.len()).all()
    assert calls["emitted_time"].tolist() == pytest.approx(ends[calls["request_id"]].tolist())
    # mini-swe-agent's last command ends it; all other calls are answered.
    last = calls["arguments"].str.contains("COMPLETE_TASK_AND_SUBMIT")
    assert last.sum() == (SESSIONS if recorded.name == "mini-swe-agent" else 0)
    answered = calls[~last]
    assert calls[last][["result_time", "wire_ms", "result_bytes"]].isna().all().all()
    assert answered[["result_time", "wire_ms", "result_bytes"]].notna().all().all()
    assert (answered["result_bytes"] > 0).all()
    # Only Messages tells errors, only Claude Code its tools' own times.
    claude = recorded.name == "claude-code"
    assert answered["is_error"].tolist() == [False if claude else None] * len(answered)
    assert answered["own_ms"].notna().tolist() == [claude] * len(answered)


def test_a_sleep_is_seen_on_its_turn(recorded: Recorded) -> None:
    turns, calls = recorded.turns(), recorded.calls()
    own = {call: ms for thread in recorded.told for call, ms in thread.own_ms.items()}
    own |= {call: ms for call, ms in zip(calls["call_id"], calls["own_ms"], strict=True) if ms == ms}  # noqa: PLR0124
    slept = calls[calls["arguments"].str.contains("sleep 2")]
    asked = {"claude-code": 2 * SESSIONS, "codex": SESSIONS, "opencode": 2 * SESSIONS, "mini-swe-agent": 0}
    assert len(slept) == asked[recorded.name]
    records: list[Any] = slept.to_dict("records")
    for call in records:
        following = turns[(turns["thread_id"] == call["thread_id"]) & (turns["turn"] == call["turn"] + 1)]
        (waited_ms,) = following["tool_exec_ms"]
        assert waited_ms == pytest.approx(call["wire_ms"], abs=1.0)
        assert waited_ms > SLEEP_MS - EARLY_MS
        if call["call_id"] in own:
            own_ms = own[call["call_id"]]
            assert own_ms > SLEEP_MS - EARLY_MS
            assert own_ms - EARLY_MS < waited_ms < own_ms + OVERHEAD_MS


@pytest.mark.parametrize("name", ["claude-code", "codex"])
def test_a_request_tried_again_is_one_turn(vllm: Engine, tmp_path: Path, name: str) -> None:
    with overloaded(vllm.url, refused=2) as url, capturing(Engine(url, 0), tmp_path / "run") as recording:
        finish_agent(name, start_agent(name, tmp_path / "session", recording.proxy, "fix app.py [[sleep]]"))
    (told,) = conversations(name, tmp_path / "session/home")
    turns = frame(agentbench.Run.open(recording.run), "turns").sort_values("request_time")
    assert turns["outcome"].tolist() == ["ok", "http_error"] + ["ok"] * (len(told.turns) - 1)
    assert turns["turn"].tolist() == [0, 1, *range(1, len(told.turns))]
    assert len(set(turns["thread_id"])) == 1
    refused, again = turns.iloc[1], turns.iloc[2]
    assert refused["http_status"] == STATUS
    assert list(refused["unit_hashes"]) == list(again["unit_hashes"])
    # The wait is the tool's, not the time until the second attempt.
    assert refused["tool_exec_ms"] == again["tool_exec_ms"] > SLEEP_MS - EARLY_MS
    calls = frame(agentbench.Run.open(recording.run), "tool_calls")
    assert dict(zip(calls["call_id"], calls["name"], strict=True)) == told.calls
    assert calls["wire_ms"].iloc[0] == pytest.approx(refused["tool_exec_ms"], abs=1.0)


# What a person types after `agentbench capture --`; Claude Code's own tests in a terminal have it so.
TYPED = {
    "codex": ["exec", "--skip-git-repo-check"],
    "opencode": ["run"],
    "mini-swe-agent": ["--yolo", "--exit-immediately", "--task"],
}


@pytest.mark.parametrize("name", list(TYPED))
def test_capture_points_an_agent_at_the_proxy_and_keeps_its_log(vllm: Engine, tmp_path: Path, name: str) -> None:
    """`agentbench capture -- PROGRAM` alone reaches agents that no base URL in the environment does."""
    program, agent = binary(name), harness.get(name)
    home = tmp_path / "home"
    home.mkdir()
    environment = agent_environment(name, home, "http://replaced.invalid")
    shutil.rmtree(home / ".config", ignore_errors=True)
    for variable in agent.pointing("http://replaced.invalid", MODEL_NAME):
        environment.pop(variable, None)
    before = settled(vllm)
    result = subprocess.run(
        [
            *[sys.executable, "-m", "agentbench", "capture", "--upstream", vllm.url],
            *["--listen", f"127.0.0.1:{free_port()}", "--out", str(tmp_path / "run"), "--"],
            *[str(program), *TYPED[name], "say hello"],
        ],
        env=with_own_path(environment),
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    assert "set for" in result.stderr
    turns = frame(agentbench.Run.open(tmp_path / "run"), "turns")
    assert set(turns["agent"]) == {name}
    assert totals(turns) == settled(vllm) - before
    (session,) = set(turns["session_id"])
    assert "own logs of 1 session" in result.stderr
    assert [folder.name for folder in (tmp_path / "run/sessions").iterdir()] == [session]
    kept = sorted(path for path in (tmp_path / "run/sessions" / session / "logs").rglob("*") if path.is_file())
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)
    if name == "opencode":
        # Its database holds all sessions; the rows of this one are taken out.
        rows = [json.loads(line) for path in kept for line in path.read_text().splitlines()]
        assert {row["id"] for row in rows if row["table"] == "session"} == {session}
        messages = [json.loads(row["data"]) for row in rows if row["table"] == "message"]
        work = turns[turns["kind"] != "utility"]
        assert sum(message["role"] == "assistant" for message in messages) == len(work)
    else:
        assert [path.read_bytes() for path in kept] == [path.read_bytes() for path in agent.logs(home)]
