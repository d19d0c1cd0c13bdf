"""What each coding agent tells of its own session, in one form: its conversations, their tokens and tool calls.

Read from the logs that the harness names, by the agents' own formats; nothing of agentbench is asked.
"""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from agentbench import harness

if TYPE_CHECKING:
    from pathlib import Path


@dataclass
class Conversation:
    """One thread as its agent tells it.

    ``name`` is a subagent's own, None for the main conversation. ``turns`` holds prompt, cached and output tokens of
    each request; ``calls`` the tools by call id; ``own_ms`` the tools' own times where the agent keeps them.
    """

    session: str | None
    name: str | None
    turns: list[tuple[int, int, int]] = field(default_factory=list)
    calls: dict[str, str] = field(default_factory=dict)
    own_ms: dict[str, float] = field(default_factory=dict)


def conversations(name: str, home: Path) -> list[Conversation]:
    """All conversations of one session of an agent."""
    logs = harness.get(name).logs(home)
    assert logs, f"{name} left no log in {home}"
    return READERS[name](logs)


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def _claude_code(logs: list[Path]) -> list[Conversation]:
    return [_claude_thread(_lines(path)) for path in logs if path.suffix == ".jsonl"]


def _claude_thread(lines: list[dict[str, Any]]) -> Conversation:
    said = [line for line in lines if line["type"] == "assistant"]
    found = Conversation(said[0]["sessionId"], said[0].get("agentId"))
    usages: dict[str, dict[str, int]] = {}
    for line in said:
        message = line["message"]
        # A message with several blocks is several lines; the last one has its usage.
        usages[message["id"]] = message["usage"]
        found.calls |= {block["id"]: block["name"] for block in message["content"] if block["type"] == "tool_use"}
    for usage in usages.values():
        cached = usage["cache_read_input_tokens"]
        through_cache = usage["cache_creation_input_tokens"] + cached
        # Of a prompt that went through the cache whole it keeps the count that opened the stream: vLLM's is the prompt.
        prompt = through_cache + (usage["input_tokens"] if usage["input_tokens"] != through_cache else 0)
        found.turns.append((prompt, cached, usage["output_tokens"]))
    return found


def _codex(logs: list[Path]) -> list[Conversation]:
    found = []
    for path in logs:
        payloads = [line["payload"] for line in _lines(path)]
        thread = Conversation(payloads[0]["session_id"], None)
        for payload in payloads:
            if payload.get("type") == "token_count" and payload.get("info"):
                usage = payload["info"]["last_token_usage"]
                thread.turns.append((usage["input_tokens"], usage["cached_input_tokens"], usage["output_tokens"]))
            elif payload.get("type") == "function_call":
                thread.calls[payload["call_id"]] = payload["name"]
        found.append(thread)
    return found


def _opencode(logs: list[Path]) -> list[Conversation]:
    database = next(path for path in logs if path.suffix == ".db")
    with closing(sqlite3.connect(database)) as connection:
        sessions = connection.execute("SELECT id, parent_id FROM session").fetchall()
        messages = connection.execute("SELECT session_id, data FROM message ORDER BY time_created, id").fetchall()
        parts = connection.execute("SELECT session_id, data FROM part").fetchall()
    found = {own: Conversation(parent or own, own if parent else None) for own, parent in sessions}
    for session, data in messages:
        message = json.loads(data)
        if message["role"] == "assistant":
            tokens = message["tokens"]
            cached = tokens["cache"]["read"]
            prompt = tokens["input"] + cached + tokens["cache"]["write"]
            found[session].turns.append((prompt, cached, tokens["output"]))
    for session, data in parts:
        part = json.loads(data)
        if part["type"] == "tool":
            times = part["state"]["time"]
            found[session].calls[part["callID"]] = part["tool"]
            found[session].own_ms[part["callID"]] = times["end"] - times["start"]
    return list(found.values())


def _mini_swe_agent(logs: list[Path]) -> list[Conversation]:
    (path,) = logs
    found = Conversation(None, None)
    for message in json.loads(path.read_text())["messages"]:
        if message["role"] != "assistant":
            continue
        usage = message["extra"]["response"]["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        found.turns.append((usage["prompt_tokens"], cached, usage["completion_tokens"]))
        found.calls |= {call["id"]: call["function"]["name"] for call in message["tool_calls"]}
    return [found]


READERS = {
    "claude-code": _claude_code,
    "codex": _codex,
    "opencode": _opencode,
    "mini-swe-agent": _mini_swe_agent,
}
