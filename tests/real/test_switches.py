"""Compatibility switches with the real Claude Code on the real vLLM."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from real_parts import Capturing, Engine, asked_by_api, capturing, frame, start_claude, totals

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

ALL_SWITCHES = ["--strip-billing-header", "--model", "tiny", "--cap-max-tokens", "64", "--rerole-system"]
MOST_SESSIONS = 6


def recorded(engine: Engine, folder: Path, switches: list[str], model: str = "tiny") -> Capturing:
    """Claude Code through a capture with switches, session after session until one called a tool."""
    with capturing(engine, folder / "run", *switches) as recording:
        for k in range(MOST_SESSIONS):
            agent = start_claude(folder / f"session-{k}", recording.proxy, f"fix app.py, task {k}", model=model)
            out, err = agent.communicate(timeout=240)
            assert agent.returncode == 0, f"Claude Code failed: {out[-2000:]} {err[-2000:]}"
            if '"type":"tool_use"' in out:
                return recording
    pytest.fail(f"no tool was called in {MOST_SESSIONS} sessions")


def test_claude_code_runs_on_an_engine_asked_over_chat(vllm: Engine, tmp_path: Path) -> None:
    before = asked_by_api(vllm)
    recording = recorded(vllm, tmp_path, ["--convert", "chat"])
    run = agentbench.Run.open(recording.run)
    after = asked_by_api(vllm)
    turns = frame(run, "turns")
    assert (turns["api"] == "messages").all()
    assert (turns["outcome"] == "ok").all(), turns[["outcome", "error"]]
    assert totals(turns) == recording.counted
    assert turns["isl_cached"].max() > 0, "the cache's counts come through the conversion"
    assert [list(names) for names in turns["changes"]] == [["convert_chat"]] * len(turns)
    assert after["/v1/chat/completions"] - before.get("/v1/chat/completions", 0) == len(turns)
    assert after.get("/v1/messages", 0) == before.get("/v1/messages", 0)
    calls = frame(run, "tool_calls")
    answered = calls[calls["result_time"].notna()]
    assert (answered["name"] == "Bash").any(), calls["name"].tolist()
    assert turns["stop_reason"].isin(["end_turn", "tool_use", "max_tokens"]).all()
    assert (turns["stop_reason"] == "tool_use").any()
    assert (turns["ttft_ms"] > 0).all()
    assert run.manifest["settings"]["switches"] == {"convert": "chat"}
    assert run.manifest["counts"]["changed_convert_chat"] == len(turns)
    assert "Messages are converted to Chat and back" in recording.output


def test_claude_code_with_every_change_of_its_requests(vllm: Engine, tmp_path: Path) -> None:
    recording = recorded(vllm, tmp_path, ALL_SWITCHES, model="claude-sonnet-4-5")
    run = agentbench.Run.open(recording.run)
    turns = frame(run, "turns")
    assert (turns["outcome"] == "ok").all(), turns[["outcome", "error"]]
    assert totals(turns) == recording.counted
    assert (turns["model"] == "tiny").all()
    assert turns["osl"].max() <= 64
    bodies = [json.loads(run.request_body(name)) for name in turns["request_id"]]
    assert {body["max_tokens"] for body in bodies} == {64}
    texts = json.dumps(bodies)
    assert "x-anthropic-billing-header" not in texts
    assert all(message["role"] != "system" for body in bodies for message in body["messages"])
    names = {name for changes in turns["changes"] for name in changes}
    assert {"cap_max_tokens", "model", "strip_billing_header"} <= names
    assert run.manifest["settings"]["switches"] == {
        "rerole_system": True,
        "strip_billing_header": True,
        "cap_max_tokens": 64,
        "model": "tiny",
    }
    assert "requests are changed on their way to the engine" in recording.output
