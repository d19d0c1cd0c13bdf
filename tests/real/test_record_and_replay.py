"""The main job on real input: six Claude Code sessions against a real vLLM, recorded and replayed.

The right answers come from vLLM's own counters, read by the tests' own parser: number of requests,
prompt, output and cached tokens must agree exactly.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from real_parts import (
    MODEL_NAME,
    SESSIONS,
    Capture,
    Counters,
    Engine,
    agent_environment,
    binary,
    frame,
    free_port,
    settled,
    totals,
    with_own_path,
)
from real_parts import (
    agentbench as run_agentbench,
)

import agentbench

if TYPE_CHECKING:
    from pathlib import Path


# The first test waits for vLLM to come up, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(900)
JOIN_REACH_S = 0.1
"""A turn that ended within an interval of the poller after its tick is always linked to it."""


def test_capture_agrees_with_vllm(capture: Capture) -> None:
    run = agentbench.Run.open(capture.run)
    turns = frame(run, "turns")
    assert set(turns["outcome"]) == {"ok"}
    assert turns[["isl", "osl", "isl_cached"]].notna().all().all()
    assert capture.counted.requests >= SESSIONS
    assert totals(turns) == capture.counted
    assert run.manifest["complete"] is True
    assert sum(run.manifest["dropped"].values()) == 0


def test_engine_rows_hold_every_completion(capture: Capture) -> None:
    run = agentbench.Run.open(capture.run)
    engine, turns = frame(run, "engine"), frame(run, "turns")
    assert engine["n"].sum() == capture.counted.requests
    assert round((engine["n"] * engine["isl"]).sum()) == capture.counted.prompt_tokens
    assert round((engine["n"] * engine["osl"]).sum()) == capture.counted.output_tokens
    assert engine["prefix_cache_hits"].sum() == capture.counted.cached_tokens
    assert not engine["counter_reset"].any()
    # Every request completed while the poller looked, so every turn finds its tick, but for one whose last byte came
    # longer after vLLM had counted it than a join reaches: each such turn is missing in one tick, and ended after it.
    assert set(turns["engine_join"]) <= {"exact", "shared", "none"}
    linked = turns["engine_row"].dropna().astype(int).value_counts().reindex(range(len(engine)), fill_value=0)
    missing = engine["n"].astype(int) - linked
    late = turns[turns["engine_join"] == "none"].sort_values("response_end_time")
    assert (missing >= 0).all()
    assert missing.sum() == len(late)
    counted_at = engine[["ts", "window_end"]].max(axis="columns").repeat(missing.tolist()).tolist()
    assert all(end - ts > JOIN_REACH_S for end, ts in zip(late["response_end_time"], counted_at, strict=True))
    exact = turns[turns["engine_join"] == "exact"]
    joined = engine.iloc[exact["engine_row"].astype(int)]
    assert (joined["n"] == 1).all()
    assert joined["isl"].astype(int).tolist() == exact["isl"].astype(int).tolist()


def test_sessions_and_threads_are_the_agents_own(capture: Capture) -> None:
    turns = frame(agentbench.Run.open(capture.run), "turns")
    told = {str(transcript[0]["session_id"]) for transcript in capture.transcripts}
    assert set(turns["session_id"]) == told
    assert set(turns["agent"]) == {"claude-code"}
    for _, session in turns[turns["kind"] == "main"].groupby("session_id"):
        assert len(set(session["thread_id"])) == 1
        ordered = session.sort_values("request_time")
        assert ordered["turn"].tolist() == list(range(len(ordered)))
        assert ordered["tool_exec_ms"].isna().tolist() == [True] + [False] * (len(ordered) - 1)
        assert (ordered["tool_exec_ms"].dropna() > 0).all()
        grown = ordered["n_messages"].tolist()
        assert grown == sorted(grown)


def test_tool_calls_are_the_agents_own(capture: Capture) -> None:
    calls = frame(agentbench.Run.open(capture.run), "tool_calls")
    told: dict[str, str] = {}
    for transcript in capture.transcripts:
        for event in transcript:
            message = event.get("message")
            if event.get("type") != "assistant" or not isinstance(message, dict):
                continue
            told |= {block["id"]: block["name"] for block in message["content"] if block["type"] == "tool_use"}
    assert dict(zip(calls["call_id"], calls["name"], strict=True)) == told
    assert calls["result_time"].notna().all()
    assert (calls["wire_ms"] > 0).all()


def test_request_bodies_are_rebuilt(capture: Capture) -> None:
    run = agentbench.Run.open(capture.run)
    for turn in frame(run, "turns").itertuples():
        body = json.loads(run.request_body(str(turn.request_id)))
        assert body["model"] == MODEL_NAME
        assert len(body["messages"]) == turn.n_messages
        assert len(body["tools"]) == turn.n_tools


@pytest.fixture(scope="module")
def replay(vllm: Engine, capture: Capture, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The capture, replayed against the same vLLM."""
    out = tmp_path_factory.mktemp("replay") / "run"
    result = run_agentbench("replay", str(capture.run), "--url", vllm.url, "--agents", str(SESSIONS), "--out", str(out))
    assert result.returncode == 0, result.stdout + result.stderr
    assert "simulated" not in result.stdout.lower()
    return out


def test_replay_agrees_with_vllm(vllm: Engine, capture: Capture, replay: Path) -> None:
    run = agentbench.Run.open(replay)
    requests, samples = frame(run, "requests"), frame(run, "engine_samples")
    samples = samples[samples["error"].isna()].sort_values("ts")
    first, last = samples.iloc[0], samples.iloc[-1]
    columns = ["requests_total", "prompt_tokens_total", "generation_tokens_total", "cached_tokens_total"]
    counted = Counters(*(int(last[column] - first[column]) for column in columns))
    sent = Counters(
        requests=len(requests),
        prompt_tokens=int(requests["prompt_tokens"].sum()),
        output_tokens=int(requests["completion_tokens"].sum()),
        cached_tokens=int(requests["cached_tokens"].sum()),
    )
    assert sent == counted
    # The poller's last reading is what the test reads for itself.
    now = settled(vllm)
    assert Counters(*(int(last[column]) for column in columns)) == now
    assert len(requests) == len(frame(agentbench.Run.open(capture.run), "turns"))


def test_replay_pins_output_lengths(capture: Capture, replay: Path) -> None:
    run = agentbench.Run.open(replay)
    requests = frame(run, "requests")
    assert set(requests["status"]) == {"ok"}
    assert set(requests["output_length"]) == {"ok"}
    recorded = frame(agentbench.Run.open(capture.run), "turns").set_index("request_id")["osl"]
    assert requests["completion_tokens"].tolist() == recorded.loc[requests["source_request_id"]].tolist()


def test_replay_times_are_ordered(replay: Path) -> None:
    requests = frame(agentbench.Run.open(replay), "requests")
    streamed = requests[requests["completion_tokens"] >= 2]
    assert (streamed["ttft_ms"] > 0).all()
    assert (streamed["ttft_ms"] <= streamed["last_token_ms"]).all()
    assert (streamed["last_token_ms"] <= streamed["e2e_ms"]).all()
    expected = (streamed["last_token_ms"] - streamed["ttft_ms"]) / (streamed["completion_tokens"] - 1)
    assert (abs(expected - streamed["tpot_ms"]) < 1e-6).all()
    assert (requests["lag_ms"] >= 0).all()


def test_summary_is_recomputed_from_the_tables(replay: Path) -> None:
    summary = json.loads((replay / "summary.json").read_text())
    requests = frame(agentbench.Run.open(replay), "requests")
    whole = summary["whole"]["fields"]["ttft_ms"]
    assert whole["n"] == requests["ttft_ms"].notna().sum()
    assert whole["mean"] == pytest.approx(requests["ttft_ms"].mean())
    assert whole["p95"] == pytest.approx(requests["ttft_ms"].quantile(0.95))


def test_capture_runs_a_command(vllm: Engine, tmp_path: Path) -> None:
    """`agentbench capture -- COMMAND` points the command at the proxy, and ends with it."""
    before = settled(vllm)
    home = tmp_path / "home"
    home.mkdir()
    claude = binary("claude-code")
    environment = agent_environment("claude-code", home, "http://replaced.invalid")
    result = subprocess.run(
        [
            *[sys.executable, "-m", "agentbench", "capture", "--upstream", vllm.url],
            *["--listen", f"127.0.0.1:{free_port()}", "--out", str(tmp_path / "run"), "--"],
            *[str(claude), "-p", "say hello", "--output-format", "json", "--dangerously-skip-permissions"],
        ],
        env=with_own_path(environment),
        cwd=home,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    turns = frame(agentbench.Run.open(tmp_path / "run"), "turns")
    assert totals(turns) == settled(vllm) - before
