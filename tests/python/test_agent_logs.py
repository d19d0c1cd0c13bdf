"""``capture -- AGENT`` keeps the agent's own logs of the sessions that it saw, and nothing else of a full HOME."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.traffic import agentbench as run_command

import agentbench
from agentbench import harness
from agentbench.harness.own_logs import SeenSession

if TYPE_CHECKING:
    from pathlib import Path

    from agentbench import SimulatedEngine

SEEN = "5e55a1d0-0000-4000-8000-000000000001"
CHILD = "5e55a1d0-0000-4000-8000-000000000002"
OTHER = "07e40000-0000-4000-8000-000000000003"
SECRET = "of another session"

# Agents in a few lines: each asks once, in its own session, and logs as the real one does.
ASK = """
import json, os, pathlib, sqlite3, sys, urllib.request
home = pathlib.Path(os.environ["HOME"])
def ask(url, headers):
    body = {"model": "agentbench-sim", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"} | headers)
    return json.load(urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request))
def log(path, *lines):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\\n" for line in lines))
"""
MESSAGES = 'os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages"'
CHAT = 'os.environ["OPENAI_BASE_URL"] + "/chat/completions"'
AGENTS = {
    "claude": f"""
ask({MESSAGES}, {{"x-claude-code-session-id": "{SEEN}"}})
folder = home / ".claude/projects/-tmp-x"
log(folder / "{SEEN}.jsonl", {{"type": "assistant", "sessionId": "{SEEN}"}})
log(folder / "{SEEN}/subagents/agent-a1.jsonl", {{"sessionId": "{SEEN}"}})
log(folder / "agent-b2.jsonl", {{"sessionId": "{SEEN}"}})
(folder / "{SEEN}" / "link.jsonl").symlink_to("/etc/hostname")
""",
    "codex": f"""
ask({CHAT}, {{"session-id": "{SEEN}", "thread-id": "{SEEN}"}})
day = home / ".codex/sessions/2026/01/02"
log(day / "rollout-1-{SEEN}.jsonl", {{"type": "session_meta", "payload": {{"id": "{SEEN}"}}}})
log(day / "rollout-2-{CHILD}.jsonl", {{"type": "session_meta", "payload": {{"id": "{CHILD}", "session_id": "{SEEN}"}}}})
""",
    "opencode": f"""
ask({CHAT}, {{"x-session-id": "{SEEN}"}})
with sqlite3.connect(home / ".local/share/opencode/opencode.db") as database:
    database.execute("INSERT INTO session VALUES (?, NULL)", ("{SEEN}",))
    database.execute("INSERT INTO session VALUES (?, ?)", ("{CHILD}", "{SEEN}"))
    database.execute("INSERT INTO message VALUES ('m1', ?, '{{}}')", ("{SEEN}",))
    database.execute("INSERT INTO part VALUES ('p1', ?, '{{}}')", ("{CHILD}",))
""",
    "mini": f"""
usage = ask({CHAT}, {{}})["usage"]
folder = pathlib.Path(os.environ.get("MSWEA_GLOBAL_CONFIG_DIR") or home / ".config/mini-swe-agent")
message = {{"role": "assistant", "extra": {{"response": {{"usage": usage}}}}}}
log(folder / "last_mini_run.traj.json", {{"messages": [{{"role": "user"}}, message]}})
""",
}
KEPT = {
    "claude": [
        f"projects/-tmp-x/{SEEN}.jsonl",
        f"projects/-tmp-x/{SEEN}/subagents/agent-a1.jsonl",
        "projects/-tmp-x/agent-b2.jsonl",
    ],
    "codex": [f"sessions/2026/01/02/rollout-1-{SEEN}.jsonl", f"sessions/2026/01/02/rollout-2-{CHILD}.jsonl"],
    "opencode": ["opencode-rows.jsonl"],
    "mini": ["last_mini_run.traj.json"],
}


def write(path: Path, *lines: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.fixture
def full_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A HOME with another session of every agent, and a PATH that begins with the scripted ones."""
    home = tmp_path / "home"
    write(home / f".claude/projects/-tmp-x/{OTHER}.jsonl", {"sessionId": OTHER, "text": SECRET})
    write(home / ".claude/projects/-tmp-x/agent-c3.jsonl", {"sessionId": OTHER, "text": SECRET})
    write(home / ".claude/history.jsonl", {"display": SECRET})
    write(home / f".codex/sessions/2026/01/02/rollout-0-{OTHER}.jsonl", {"payload": {"id": OTHER, "text": SECRET}})
    write(home / ".config/mini-swe-agent/last_mini_run.traj.json", {"messages": [{"role": "user", "content": SECRET}]})
    database = home / ".local/share/opencode/opencode.db"
    database.parent.mkdir(parents=True)
    with closing(sqlite3.connect(database)) as connection, connection:
        connection.execute("CREATE TABLE session (id TEXT, parent_id TEXT)")
        connection.execute("CREATE TABLE message (id TEXT, session_id TEXT, data TEXT)")
        connection.execute("CREATE TABLE part (id TEXT, session_id TEXT, data TEXT)")
        connection.execute("INSERT INTO session VALUES (?, NULL)", (OTHER,))
        connection.execute("INSERT INTO message VALUES ('m0', ?, ?)", (OTHER, SECRET))
    for name, lines in AGENTS.items():
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!{sys.executable}\n{ASK}{lines}")
        program.chmod(0o755)
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "XDG_DATA_HOME", "MSWEA_GLOBAL_CONFIG_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    return home


@pytest.mark.parametrize("agent", AGENTS)
def test_the_logs_of_the_sessions_seen_are_kept(
    engine: SimulatedEngine, full_home: Path, tmp_path: Path, agent: str
) -> None:
    del full_home
    where = ["--upstream", engine.url, "--listen", "127.0.0.1:0", "--out", str(tmp_path / "run")]
    done = run_command("capture", *where, "--", agent)
    assert done.returncode == 0, done.stderr
    sessions = sorted((tmp_path / "run" / "sessions").iterdir())
    name = "auto-1" if agent == "mini" else SEEN
    assert [session.name for session in sessions] == [name], done.stderr
    logs = sessions[0] / "logs"
    files = sorted(path for path in logs.rglob("*") if path.is_file())
    assert sorted(str(path.relative_to(logs)) for path in files) == sorted(KEPT[agent])
    assert not any(SECRET in path.read_text() for path in files)
    assert all(path.stat().st_mode & 0o077 == 0 for path in files)
    assert f"own logs of 1 session: {tmp_path / 'run' / 'sessions'}" in done.stderr
    assert set(agentbench.Run.open(tmp_path / "run").turns().to_polars()["session_id"]) == {name}
    if agent == "opencode":
        rows = [json.loads(line) for line in files[0].read_text().splitlines()]
        assert [(row["table"], row["id"]) for row in rows] == [
            ("session", SEEN),
            ("session", CHILD),
            ("message", "m1"),
            ("part", "p1"),
        ]


def test_a_redacted_run_has_none_and_says_so(engine: SimulatedEngine, full_home: Path, tmp_path: Path) -> None:
    del full_home
    where = ["--upstream", engine.url, "--listen", "127.0.0.1:0", "--out", str(tmp_path / "run"), "--redact"]
    done = run_command("capture", *where, "--", "claude")
    assert done.returncode == 0, done.stderr
    assert "claude-code's own logs are not copied: nothing in them would be masked" in done.stderr
    assert not (tmp_path / "run" / "sessions").exists()


def test_a_log_that_cannot_be_told_to_be_the_sessions_is_not_taken(full_home: Path) -> None:
    environment = {"HOME": str(full_home)}
    unseen = SeenSession("no-such-session", [(9, 8)])
    assert not any(harness.get(name).logs_of(unseen, environment) for name in harness.names())
    # Another run's trajectory has other counts than this session's turns.
    message = {"role": "assistant", "extra": {"response": {"usage": {"prompt_tokens": 9, "completion_tokens": 8}}}}
    write(full_home / ".config/mini-swe-agent/last_mini_run.traj.json", {"messages": [message, message]})
    mini = harness.get("mini-swe-agent")
    assert mini.logs_of(unseen, environment) is None
    assert mini.logs_of(SeenSession("auto-1", [(9, 8), (9, 8)]), environment)
    # A session's name is no path.
    assert not harness.get("claude-code").logs_of(SeenSession("projects", []), {"HOME": str(full_home)})


def test_an_agents_folder_may_lie_elsewhere(tmp_path: Path) -> None:
    write(tmp_path / "own/projects/p" / f"{SEEN}.jsonl", {"sessionId": SEEN})
    found = harness.get("claude-code").logs_of(SeenSession(SEEN), {"CLAUDE_CONFIG_DIR": str(tmp_path / "own")})
    assert found is not None
    assert found.files == [tmp_path / "own/projects/p" / f"{SEEN}.jsonl"]
