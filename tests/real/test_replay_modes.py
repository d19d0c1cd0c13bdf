"""Ways to replay against a real vLLM: contents of our own and of the engine's, arrivals, an engine that goes away.

vLLM's own usage says how many tokens a prompt has, and its own answers what a history holds. Outputs are a few
tokens long, so that each test takes seconds.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest
from real_parts import ROOT, Capture, Engine, frame, free_port
from real_parts import agentbench as run_agentbench

import agentbench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.timeout(900)
BLOCK = 128
"""Tokens of a block of the prefix cache of vLLM on a CPU, the largest there is."""
TOKENIZER = ROOT / "model/tokenizer.json"
WAIT_SECONDS = 60.0


def replayed(out: Path, trace: Path, url: str, *options: str) -> agentbench.Run:
    """A replay by the command line that ended well."""
    arguments = ["replay", str(trace), "--url", url, "--tool-time", "none", "--power", "none", "--out", str(out)]
    result = run_agentbench(*arguments, *options)
    assert result.returncode == 0, result.stdout + result.stderr
    return agentbench.Run.open(out)


@pytest.mark.parametrize(
    ("options", "sent"),
    [
        ([], "completions"),
        (["--tokenizer", str(TOKENIZER)], "completions"),
        (["--api", "chat"], "chat"),
        (["--api", "responses", "--tokenizer", str(TOKENIZER)], "responses"),
        (["--api", "messages"], "messages"),
    ],
    ids=["ids", "text", "chat", "responses", "messages"],
)
def test_synthetic_prompts_have_exactly_the_tokens_planned(
    vllm: Engine, tmp_path: Path, options: list[str], sent: str
) -> None:
    # The bundled sample holds counts that no tokenizer of this engine ever made.
    length = ["--content", "synthetic", "--output-length", "4", "--trajectories", "2", "--agents", "2"]
    run = replayed(tmp_path / "run", agentbench.sample_trace(), vllm.url, *length, *options)
    requests = frame(run, "requests")
    assert len(requests) > 10
    assert set(requests["status"]) == {"ok"}
    assert set(requests["api"]) == {sent}
    assert requests["prompt_tokens"].tolist() == requests["planned_prompt_tokens"].tolist()
    assert set(requests["completion_tokens"]) == {4}
    text = run.manifest["settings"]["replay"]["synthetic_text"]
    assert (text is None) == (not options)
    if text is not None:
        assert text["words"] >= 64
        assert text["told_by"].startswith("tokenizer.json") == ("--tokenizer" in options)
    # What a thread had sent is in the cache, but for a block that is not full, and no more than was planned.
    later = requests[requests["turn"] > 0]
    around = 0 if text is None else text["tokens_around"]
    missed = later["planned_cached_tokens"].astype(int) - later["cached_tokens"].astype(int)
    assert (missed > -around - BLOCK).all()
    assert (missed < BLOCK + around).mean() > 0.9


@pytest.fixture(scope="module")
def live(vllm: Engine, capture: Capture, tmp_path_factory: pytest.TempPathFactory) -> agentbench.Run:
    """Recorded sessions with the engine's own answers as their history."""
    out = tmp_path_factory.mktemp("live") / "run"
    options = ["--content", "live", "--agents", "3", "--cache-sharing", "trajectory"]
    return replayed(out, capture.run, vllm.url, *options)


def test_answers_of_the_engine_are_the_history(live: agentbench.Run) -> None:
    requests = frame(live, "requests")
    assert set(requests["status"]) == {"ok"}
    later = requests[requests["turn"] > 0]
    assert len(later) > 0
    # Each turn's history holds an answer for every turn before it, and none is the recorded one.
    assert later["live_answers"].tolist() == later["turn"].tolist()
    assert set(requests["recorded_answers"]) == {0}
    summary = live.summary()
    assert summary is not None
    assert summary["live"]["live_answers"] == later["live_answers"].sum()
    assert summary["live"]["live_pct"] == 100
    departures = ["results_as_text", "calls_unanswered", "results_of_other_tools", "arguments_malformed"]
    told = {name: requests[f"live_{name}"].sum() for name in departures}
    assert {name: summary["live"][name] for name in departures} == told


def test_a_live_history_is_in_the_engines_cache(live: agentbench.Run) -> None:
    requests = frame(live, "requests")
    compared = 0
    for _, thread in requests.groupby(["trajectory_id", "thread_id"]):
        rows = thread.sort_values("turn").to_dict("records")
        for before, after in pairwise(rows):
            compared += 1
            assert after["cached_tokens"] >= before["prompt_tokens"] // BLOCK * BLOCK - BLOCK
    assert compared > 0


def test_sessions_begin_at_their_arrivals(vllm: Engine, capture: Capture, tmp_path: Path) -> None:
    options = ["--arrivals", "constant:2", "--trajectories", "6", "--max-active", "4", "--output-length", "4"]
    run = replayed(tmp_path / "run", capture.run, vllm.url, *options)
    trajectories = frame(run, "trajectories").sort_values("due_at_ms")
    assert len(trajectories) == 6
    assert trajectories["completed"].all()
    gaps = trajectories["due_at_ms"].diff().dropna()
    assert gaps.tolist() == pytest.approx([500.0] * 5, abs=1e-3)
    # Nobody begins before the arrival; who waits for a place is late by that.
    assert (trajectories["start_ms"] >= trajectories["due_at_ms"]).all()
    requests = frame(run, "requests")
    assert set(requests["status"]) == {"ok"}
    late = requests["sent_at_ms"] - requests["due_at_ms"]
    assert requests["lag_ms"].tolist() == pytest.approx(late.tolist(), abs=1e-3)
    settings = run.manifest["settings"]["replay"]
    assert (settings["arrivals"], settings["max_active"]) == ("constant:2", 4)
    assert 1 <= settings["agents"] <= 4


class Relay:
    """A port in front of an engine that can be closed, with all that passes through it, and opened again."""

    def __init__(self, engine: Engine) -> None:
        host, _, port = engine.url.removeprefix("http://").partition(":")
        self._engine = (host, int(port))
        self._port = free_port()
        self.url = f"http://127.0.0.1:{self._port}"
        self._listener: socket.socket | None = None
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()

    def open(self) -> None:
        """Takes connections from now on."""
        self._listener = socket.create_server(("127.0.0.1", self._port))
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def close(self) -> None:
        """Refuses connections, and breaks those that are open."""
        with self._lock:
            sockets = [*self._open, *filter(None, [self._listener])]
            self._open.clear()
        for each in sockets:
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                engine = socket.create_connection(self._engine)
                with self._lock:
                    self._open |= {client, engine}
                for ends in ((client, engine), (engine, client)):
                    threading.Thread(target=self._pass_on, args=ends, daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def relay(vllm: Engine) -> Iterator[Relay]:
    """An open one."""
    relay = Relay(vllm)
    relay.open()
    yield relay
    relay.close()


def test_an_engine_that_comes_back_is_asked_again(relay: Relay, capture: Capture, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"agents": 4, "duration_s": 600.0, "tool_time": "none", "output_length": "4"}
    retries: dict[str, Any] = {"max_retries": 20, "retry_backoff_s": 0.2, "retry_backoff_max_s": 0.5}
    out = tmp_path / "run"
    with agentbench.Replay(
        capture.run, url=relay.url, out=out, on_error="continue", metrics_url=None, power="none", **settings, **retries
    ) as replay:
        until(lambda: replay.progress()["requests_ok"] >= 4)
        relay.close()
        answered = replay.progress()["requests_ok"]
        time.sleep(1.0)
        relay.open()
        # Every agent has an answer to what it asked for meanwhile.
        until(lambda: replay.progress()["requests_ok"] >= answered + 8)
        run = replay.stop()
    requests = frame(run, "requests")
    requests = requests[requests["status"] != "cancelled"]
    retried = requests[requests["attempts"] > 1]
    assert len(retried) > 0
    for row in retried.to_dict("records"):
        log = list(row["attempt_log"])
        assert len(log) == row["attempts"]
        assert [attempt["error"] is None for attempt in log[:-1]] == [False] * (len(log) - 1)
        # Times count from the first attempt: the answer came after all that went before.
        assert row["e2e_ms"] >= log[-1]["start_ms"] > 0
    came_back = retried[retried["status"] == "ok"]
    assert len(came_back) > 0
    assert all(list(log)[-1]["http_status"] == 200 for log in came_back["attempt_log"])
    assert {"connect"} <= {
        attempt["error"].partition(":")[0] for log in came_back["attempt_log"] for attempt in log[:-1]
    }
    # Only an answer that was cut off after it had begun is not asked for again.
    failed = requests[requests["status"] == "failed"]
    assert failed["ttft_ms"].notna().all()
    assert len(failed) <= settings["agents"]


def test_a_port_that_opens_late_is_waited_for_by_nobody(relay: Relay, capture: Capture, tmp_path: Path) -> None:
    relay.close()
    out = tmp_path / "run"
    result = run_agentbench("replay", str(capture.run), "--url", relay.url, "--out", str(out), "--max-retries", "9")
    assert result.returncode == 2
    lines = [line for line in result.stderr.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1
    assert "start the engine or correct the address" in lines[0]
    assert not out.exists()


def until(true: Any) -> None:
    """Waits for what is sure to come to pass."""
    end = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < end, "it does not come to pass"
        time.sleep(0.02)
