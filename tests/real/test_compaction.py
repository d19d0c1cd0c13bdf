"""What becomes of a conversation that its agent compacts: Claude Code, Codex and OpenCode before a real vLLM.

Claude Code and Codex ask for the summary in the conversation's last turn, OpenCode in a call of its own; mini-swe-agent
never compacts. What follows the summary belongs to the same session and has no parent.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest
from real_parts import (
    MODEL_NAME,
    Engine,
    agent_environment,
    binary,
    capturing,
    finish_agent,
    frame,
    free_port,
    get,
    start_agent,
    totals,
)

import agentbench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd

# The first test waits for vLLM to come up, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(1200)

# What the tiny model says when it is done, and so all that its summaries hold.
SUMMARY = "is finished."
# Less than Codex' first prompt, so that it compacts before it goes on.
CODEX_LIMIT = 4000
AGENT_SECONDS = 300


def go_on(place: Path, proxy: str, name: str, *arguments: str) -> None:
    """An agent once more in the work tree and the HOME of its first session."""
    result = subprocess.run(
        [str(binary(name)), *arguments],
        cwd=place / "work",
        env=agent_environment(name, place / "home", proxy),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=AGENT_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr


def recorded(run: Path) -> tuple[pd.DataFrame, list[dict[str, Any]]]:
    """The turns of a run in time, and their requests."""
    opened = agentbench.Run.open(run)
    turns = frame(opened, "turns").sort_values("request_time")
    assert set(turns["outcome"]) == {"ok"}
    assert len(set(turns["session_id"])) == 1
    return turns, [json.loads(opened.request_body(name)) for name in turns["request_id"]]


def test_claude_code_ends_a_thread_and_begins_another(vllm: Engine, tmp_path: Path) -> None:
    name, place = "claude-code", tmp_path / "session"
    with capturing(vllm, tmp_path / "run") as recording:
        finish_agent(name, start_agent(name, place, recording.proxy, "fix app.py"))
        # `[[say]]` becomes part of what asks for the summary, which is to be text.
        for task in ("/compact [[say]]", "go on"):
            go_on(place, recording.proxy, name, "-p", "--continue", "--dangerously-skip-permissions", "--", task)
    turns, _ = recorded(recording.run)
    assert totals(turns) == recording.counted
    assert set(turns["kind"]) == {"main"}
    before, after = (thread for _, thread in turns.groupby("thread_id", sort=False))
    # The request for the summary is the last turn of the first; what follows begins with the summary.
    assert before["stop_reason"].iloc[-1] == "end_turn"
    assert before["n_messages"].iloc[-1] >= before["n_messages"].iloc[-2]
    assert after["request_time"].min() > before["request_time"].max()
    assert after["isl"].iloc[0] < before["isl"].iloc[-1]
    assert after["tool_exec_ms"].isna().iloc[0]


def test_codex_keeps_what_was_asked_and_so_its_thread(vllm: Engine, tmp_path: Path) -> None:
    name, place = "codex", tmp_path / "session"
    limit = f"model_auto_compact_token_limit={CODEX_LIMIT}"
    with capturing(vllm, tmp_path / "run") as recording:
        finish_agent(name, start_agent(name, place, recording.proxy, "fix app.py [[say]]"))
        options = ["exec", "--skip-git-repo-check", "-c", limit, "resume", "--last"]
        go_on(place, recording.proxy, name, *options, "go on [[say]]")
    turns, bodies = recorded(recording.run)
    assert totals(turns) == recording.counted
    assert set(turns["kind"]) == {"main"}
    assert len(set(turns["thread_id"])) == 1
    assert turns["turn"].tolist() == [0, 1, 2]
    assert turns["n_tools"].tolist()[1] == 0
    assert "Create a handoff summary" in json.dumps(bodies[1]["input"][-1])
    # Its new prompt begins with the instructions and the first task, as its old one did.
    texts = [json.dumps(item) for item in bodies[2]["input"]]
    assert [("fix app.py [[say]]" in text, SUMMARY in text, "go on [[say]]" in text) for text in texts[-3:]] == [
        (True, False, False),
        (False, True, False),
        (False, False, True),
    ]
    assert turns["n_messages"].tolist()[2] == turns["n_messages"].tolist()[0] + 2


def test_opencode_asks_for_a_summary_beside_the_conversation(vllm: Engine, tmp_path: Path) -> None:
    with capturing(vllm, tmp_path / "run") as recording, serving(tmp_path, recording.proxy) as url:
        session = f"{url}/session/{post(f'{url}/session', {})['id']}"
        model = {"providerID": "agentbench", "modelID": MODEL_NAME}
        post(f"{session}/message", message("fix app.py [[sleep]]"))
        # As its terminal does at `/compact`.
        assert post(f"{session}/summarize", model) is True
        post(f"{session}/message", message("go on [[say]]"))
    turns, bodies = recorded(recording.run)
    assert totals(turns) == recording.counted
    side, work = turns[turns["kind"] == "utility"], turns[turns["kind"] == "main"]
    assert len(side) + len(work) == len(turns)
    assert side["n_tools"].tolist() == [0, 0]
    asked = dict(zip(turns["request_id"], (body["messages"][0]["content"] for body in bodies), strict=True))
    assert [asked[name].split(".")[0] for name in side["request_id"]] == [
        "You are a title generator",
        "You are a context summarization agent",
    ]
    before, after = (thread for _, thread in work.groupby("thread_id", sort=False))
    assert work["parent_thread_id"].isna().all()
    assert side["parent_thread_id"].tolist()[1] == before["thread_id"].iloc[0]
    assert after["turn"].tolist() == [0]
    assert SUMMARY in json.dumps(bodies[-1]["messages"][1:3])


def message(text: str) -> dict[str, Any]:
    return {"parts": [{"type": "text", "text": text}]}


def post(url: str, body: dict[str, Any]) -> Any:
    """What OpenCode's server answers once it has done what it was asked for."""
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=AGENT_SECONDS) as response:
        return json.load(response)


@contextlib.contextmanager
def serving(place: Path, proxy: str) -> Iterator[str]:
    """OpenCode's own server, behind which its terminal and its sessions are."""
    home, work = place / "home", place / "work"
    home.mkdir()
    work.mkdir()
    (work / "app.py").write_text("def add(a, b):\n    return a - b\n")
    url = f"http://127.0.0.1:{free_port()}"
    process = subprocess.Popen(
        [str(binary("opencode")), "serve", "--hostname", "127.0.0.1", "--port", url.rpartition(":")[2]],
        cwd=work,
        env=agent_environment("opencode", home, proxy),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_up(url, process)
        yield url
    finally:
        # Asked to end, it takes minutes.
        process.kill()
        process.wait(timeout=60)


def wait_up(url: str, process: subprocess.Popen[bytes]) -> None:
    """Returns once the server tells of its sessions."""
    for _ in range(AGENT_SECONDS * 5):
        with contextlib.suppress(urllib.error.URLError, OSError):
            get(f"{url}/session")
            return
        assert process.poll() is None, "the server has ended"
        time.sleep(0.2)
    pytest.fail("OpenCode's server did not come up")
