"""Codex over the Responses API against a real vLLM, recorded and replayed.

The right answers are Codex' own: its events, its log, and vLLM's counters.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from real_parts import Counters, Engine, capturing, finish_agent, frame, start_codex, totals
from real_parts import agentbench as run_agentbench

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

SESSIONS = 2
ATTEMPTS = 6
pytestmark = pytest.mark.timeout(900)


@dataclass(frozen=True)
class Session:
    """One Codex session as it tells of itself."""

    thread_id: str
    usage: dict[str, int]
    log: list[dict[str, Any]]


@dataclass(frozen=True)
class Recorded:
    """A finished capture, the sessions in it and what vLLM counted meanwhile."""

    run: Path
    sessions: list[Session]
    counted: Counters


def session_of(folder: Path, output: str) -> Session:
    """Reads what Codex printed and logged."""
    events = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    started = next(event for event in events if event["type"] == "thread.started")
    completed = next(event for event in events if event["type"] == "turn.completed")
    (log,) = (folder / "home/.codex/sessions").rglob("*.jsonl")
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    return Session(started["thread_id"], completed["usage"], lines)


def record(vllm: Engine, folder: Path) -> Recorded:
    """Two sessions at once through `agentbench capture`."""
    folders = [folder / f"session-{k}" for k in range(SESSIONS)]
    with capturing(vllm, folder / "run") as recording:
        agents = [start_codex(place, recording.proxy, f"fix app.py, task {k}") for k, place in enumerate(folders)]
        sessions = []
        for place, agent in zip(folders, agents, strict=True):
            sessions.append(session_of(place, finish_agent("codex", agent)))
    return Recorded(recording.run, sessions, recording.counted)


@pytest.fixture(scope="module")
def recorded(vllm: Engine, tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    """A recording in which a session has more than one turn: the model draws whether it calls a tool or ends."""
    for _ in range(ATTEMPTS):
        made = record(vllm, tmp_path_factory.mktemp("codex"))
        if made.counted.requests > SESSIONS:
            return made
    pytest.fail(f"no session of {ATTEMPTS} times {SESSIONS} went on after its first turn")


def test_capture_agrees_with_vllm_and_codex(recorded: Recorded) -> None:
    turns = frame(agentbench.Run.open(recorded.run), "turns")
    assert set(turns["outcome"]) == {"ok"}
    assert set(turns["api"]) == {"responses"}
    assert set(turns["agent"]) == {"codex"}
    assert totals(turns) == recorded.counted
    assert set(turns["session_id"]) == {session.thread_id for session in recorded.sessions}
    for session in recorded.sessions:
        own = turns[turns["session_id"] == session.thread_id]
        assert own["isl"].sum() == session.usage["input_tokens"]
        assert own["isl_cached"].sum() == session.usage["cached_input_tokens"]
        assert own["osl"].sum() == session.usage["output_tokens"]


def test_a_session_is_one_growing_main_thread(recorded: Recorded) -> None:
    turns = frame(agentbench.Run.open(recorded.run), "turns")
    assert set(turns["kind"]) == {"main"}
    for _, session in turns.groupby("session_id"):
        ordered = session.sort_values("request_time")
        assert len(set(ordered["thread_id"])) == 1
        assert ordered["turn"].tolist() == list(range(len(ordered)))
        # Each prompt is all of the one before and what came since.
        units = [list(hashes) for hashes in ordered["unit_hashes"]]
        for earlier, later, shared in zip(units, units[1:], ordered["n_shared_units"].tolist()[1:], strict=False):
            assert later[: len(earlier)] == earlier
            assert shared == len(earlier)


def test_tool_calls_are_those_of_codex_log(recorded: Recorded) -> None:
    calls = frame(agentbench.Run.open(recorded.run), "tool_calls")
    items = [
        line["payload"] for session in recorded.sessions for line in session.log if line["type"] == "response_item"
    ]
    told = {item["call_id"]: item["name"] for item in items if item["type"] == "function_call"}
    outputs = {item["call_id"]: item["output"] for item in items if item["type"] == "function_call_output"}
    assert dict(zip(calls["call_id"], calls["name"], strict=True)) == told
    sizes = dict(zip(calls["call_id"], calls["result_bytes"], strict=True))
    assert sizes == {call: len(output.encode()) for call, output in outputs.items()}
    assert (calls["wire_ms"] > 0).all()


@pytest.mark.parametrize(("api", "sent"), [("auto", "responses"), ("chat", "chat")])
def test_a_replay_pins_output_lengths(vllm: Engine, recorded: Recorded, tmp_path: Path, api: str, sent: str) -> None:
    # Without salts, so that the prompts are the recorded ones.
    options = ["--agents", str(SESSIONS), "--tool-time", "0", "--api", api, "--cache-sharing", "recorded"]
    options += ["--out", str(tmp_path / "run")]
    result = run_agentbench("replay", str(recorded.run), "--url", vllm.url, *options)
    assert result.returncode == 0, result.stdout + result.stderr
    run = agentbench.Run.open(tmp_path / "run")
    (route,) = run.manifest["settings"]["replay"]["routes"]
    assert (route["recorded"], route["sent"], route["output_length"]) == ("responses", sent, "honoured")
    requests = frame(run, "requests")
    turns = frame(agentbench.Run.open(recorded.run), "turns").set_index("request_id")
    assert set(requests["status"]) == {"ok"}
    assert len(requests) == len(turns)
    assert set(requests["output_length"]) == {"ok"}
    if sent == "responses":
        source = requests["source_request_id"]
        assert requests["prompt_tokens"].tolist() == turns.loc[source, "isl"].tolist()


def test_answers_of_the_engine_are_items_of_the_next_request(vllm: Engine, recorded: Recorded, tmp_path: Path) -> None:
    options = ["--agents", str(SESSIONS), "--tool-time", "0", "--api", "responses", "--content", "live"]
    result = run_agentbench("replay", str(recorded.run), "--url", vllm.url, "--out", str(tmp_path / "run"), *options)
    assert result.returncode == 0, result.stdout + result.stderr
    requests = frame(agentbench.Run.open(tmp_path / "run"), "requests")
    assert set(requests["status"]) == {"ok"}
    assert set(requests["api"]) == {"responses"}
    assert requests["live_answers"].tolist() == requests["turn"].tolist()
    assert requests["turn"].max() > 0
    assert set(requests["recorded_answers"]) == {0}
