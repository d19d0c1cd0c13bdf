"""Several workers on a local Ray cluster make one run, equal to that of one process with the same agents."""

from __future__ import annotations

import asyncio
import contextlib
import http.server
import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.progress import adds_up, agents_in, equals_the_summary
from tests.python.traffic import send

import agentbench
from agentbench._cli import run as command_line
from agentbench._ray import RayRun

ray = pytest.importorskip("ray", reason="Ray is not installed: the extra agentbench-serving[ray] brings it")

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import pandas as pd
    from tests.python.conftest import Captured

AGENTS = 5
TRAJECTORIES = 40
# Sessions of three turns and of two take turns.
REQUESTS = 100
WAIT_SECONDS = 60.0
FEWEST_ENDED = 20
"""Requests that must have ended before a rate of errors says anything."""
MINIMUM: dict[str, Any] = {"min_requests_per_agent": 1, "min_steady_s": 0.2}


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A cluster of this machine alone, with room for a few workers."""
    ray.init(address="local", num_cpus=3, include_dashboard=False, log_to_driver=False, configure_logging=False)
    yield
    ray.shutdown()


def sorted_by_request(run: agentbench.Run) -> pd.DataFrame:
    keys = ["trajectory_id", "thread_id", "turn"]
    return run.requests().to_pandas().sort_values(keys, ignore_index=True)


@pytest.mark.usefixtures("cluster")
def test_two_workers_make_the_run_of_one_process(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "url": engine.url,
        "agents": AGENTS,
        "trajectories": TRAJECTORIES,
        "human_time": "recorded",
        "ramp_s": 0.01,
        "salt": "one",
    }
    alone = agentbench.replay(captured.path, out=tmp_path / "alone", **settings)
    shared = agentbench.replay(captured.path, out=tmp_path / "shared", ray="auto", workers=2, **settings)

    # What was sent and what came back is the same, request by request; only times differ.
    one, two = sorted_by_request(alone), sorted_by_request(shared)
    same = ["trajectory_id", "session_id", "thread_id", "turn", "source_request_id", "status", "prompt_tokens"]
    same += ["completion_tokens", "target_output_tokens", "output_length", "tool_wait_ms", "api"]
    assert len(two) == REQUESTS
    assert one[same].equals(two[same])
    trajectories = shared.trajectories().to_pandas()
    assert sorted(trajectories["trajectory_id"]) == [f"trajectory-{index:06}" for index in range(TRAJECTORIES)]
    assert trajectories["completed"].all()

    # Every row names its worker; agents and trajectories go round.
    assert one["worker"].isna().all()
    assert set(two["worker"]) == {0, 1}
    assert (two["worker"] == two["agent_id"] % 2).all()
    assert set(two["agent_id"]) == set(range(AGENTS))
    assert (two["worker"] == two["trajectory_id"].str[-6:].astype(int) % 2).all()
    assert (trajectories["worker"] == trajectories["agent_id"] % 2).all()

    # One clock, one window: the phases follow from when requests were sent.
    summary = shared.summary()
    assert summary is not None
    assert summary["agents"] == AGENTS
    assert summary["requests"] == {"sent": REQUESTS, "ok": REQUESTS, "failed": 0, "cancelled": 0}
    assert summary["trajectories"]["completed"] == TRAJECTORIES
    window = summary["settings"]["window"]
    first_ends = (two["sent_at_ms"] + two["e2e_ms"]).groupby(two["agent_id"]).min()
    assert window["steady_start_ms"] == pytest.approx(first_ends.max(), abs=20)
    assert window["ramp_end_ms"] <= window["steady_start_ms"] <= window["steady_end_ms"]
    bounds = [window["ramp_end_ms"], window["steady_start_ms"], window["steady_end_ms"]]
    phases = two["sent_at_ms"].apply(
        lambda sent: ["ramp", "warmup", "steady", "tail"][sum(sent >= it for it in bounds)]
    )
    assert (two["phase"] == phases).all()
    workers = summary["settings"]["workers"]
    assert [worker["worker"] for worker in workers] == [0, 1]
    assert [worker["lost"] for worker in workers] == [None, None]
    # On one machine both read one clock: what was measured of the offset is within its own error.
    assert all(abs(worker["clock_offset_ms"]) <= worker["clock_error_ms"] + 1 for worker in workers)
    manifest = shared.manifest
    assert manifest["complete"]
    assert manifest["counts"]["polls"] > 0


@pytest.mark.usefixtures("cluster")
def test_two_workers_share_the_arrivals_of_one_process(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {
        "url": engine.url,
        "arrivals": "poisson:50",
        "trajectories": TRAJECTORIES,
        "seed": 11,
        "human_time": "recorded",
        "salt": "one",
    }
    alone = agentbench.replay(captured.path, out=tmp_path / "alone", **settings)
    shared = agentbench.replay(captured.path, out=tmp_path / "shared", ray="auto", workers=2, max_active=4, **settings)

    # Each arrival is due when it is due in one process, and plays the same session.
    one, two = sorted_by_request(alone), sorted_by_request(shared)
    same = ["trajectory_id", "session_id", "thread_id", "turn", "source_request_id", "status", "prompt_tokens"]
    assert len(two) == len(one)
    assert one[same].equals(two[same])
    dues = [run.groupby("trajectory_id")["due_at_ms"].min() for run in (one, two)]
    since_first = [due - due.min() for due in dues]
    assert since_first[1].tolist() == pytest.approx(since_first[0].tolist(), abs=0.01)
    assert (two["worker"] == two["trajectory_id"].str[-6:].astype(int) % 2).all()

    # Two of the four places are each worker's; whoever found none free waited, and that is counted.
    trajectories = shared.trajectories().to_pandas()
    assert set(trajectories["agent_id"]) <= set(range(4))
    assert (trajectories["worker"] == trajectories["agent_id"] % 2).all()
    summary = shared.summary()
    assert summary is not None
    changes = sorted([(start, 1) for start in trajectories["start_ms"]] + [(end, -1) for end in trajectories["end_ms"]])
    at_once = [sum(change for _, change in changes[: index + 1]) for index in range(len(changes))]
    assert summary["agents"] == max(at_once) <= 4
    assert summary["open_loop"]["arrivals"] == summary["open_loop"]["admitted"] == TRAJECTORIES
    assert summary["open_loop"]["admitted_late"] == (trajectories["admission_wait_ms"] > 0).sum()
    assert any("shared out over 2 workers" in note for note in summary["settings"]["notes"])


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"arrivals": "burst", "trajectories": 1}, "1 arrivals cannot be shared by 2 workers"),
        ({"arrivals": "constant:9", "max_active": 1}, "1 places .* cannot be shared by 2 workers"),
    ],
)
def test_arrivals_that_cannot_be_shared_are_refused(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(agentbench.ConfigError, match=message):
        agentbench.replay(captured.path, url=engine.url, out=tmp_path / "run", ray="auto", workers=2, **settings)
    assert not (tmp_path / "run").exists()


@pytest.mark.usefixtures("cluster")
def test_levels_are_judged_over_all_workers(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    # On a machine that others load, workers are late and say so: such a level says nothing about merging.
    for attempt in range(5):
        run = agentbench.capacity(
            captured.path,
            url=engine.url,
            slo=["ttft.p95<=100s", "errors<=0"],
            max_agents=3,
            out=tmp_path / f"run-{attempt}",
            ray="auto",
            workers=2,
            **MINIMUM,
        )
        if not run.levels().to_pandas()["reason"].str.startswith("client-limited", na=False).any():
            break
    requests = run.requests().to_pandas()
    levels = run.levels().to_pandas()
    assert list(levels["agents"]) == [2, 3, 3]
    assert set(levels["verdict"]) == {"pass"}
    for level in levels.to_dict("records"):
        steady = requests[(requests["level"] == level["level"]) & (requests["phase"] == "steady")]
        assert level["n_requests"] == len(steady) > 0
        assert set(steady["worker"]) == {0, 1}
        values = json.loads(level["values"])
        assert values["ttft.p95<=100s"] == pytest.approx(steady["ttft_ms"].quantile(0.95))
    summary = run.summary()
    assert summary is not None
    assert (summary["capacity"]["max_agents"], summary["capacity"]["saturated"]) == (3, False)


@pytest.mark.usefixtures("cluster")
def test_a_worker_that_dies_makes_its_level_invalid_and_not_the_run(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    search = RayRun(
        agentbench.Capacity,
        captured.path,
        address="auto",
        workers=2,
        url=engine.url,
        slo=["ttft.p95<=100s"],
        max_agents=8,
        out=tmp_path / "run",
        min_requests_per_agent=1,
        min_steady_s=30.0,
    )
    search.start()
    # In steady state every worker has told of a request at least.
    wait_until(lambda: search.progress()["replay"]["phase"] == "steady")
    os.kill(ray.get(search._actors[1].pid.remote()), signal.SIGKILL)
    run = search.wait()
    (level,) = run.levels().to_pandas().to_dict("records")
    assert level["verdict"] == "invalid"
    assert level["reason"].startswith("worker 1 was lost")
    requests = run.requests().to_pandas()
    assert set(requests["worker"]) == {0, 1}, "what it had told is kept"
    assert len(run.trajectories().to_pandas()) > 0
    assert run.manifest["complete"]
    summary = run.summary()
    assert summary is not None
    capacity = summary["capacity"]
    assert (capacity["max_agents"], capacity["invalid"]) == (None, True)
    assert summary["settings"]["workers"][1]["lost"]
    assert any("worker 1 was lost" in note for note in summary["notes"])


@pytest.mark.usefixtures("cluster")
def test_the_command_line_plays_on_a_cluster_and_marks_a_lost_worker(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["replay", str(captured.path), "--url", engine.url, "--ray", "auto", "--agents", "2"]
    assert command_line([*arguments, "--out", str(tmp_path / "whole")]) == 0
    assert set(agentbench.Run.open(tmp_path / "whole").requests().to_pandas()["worker"]) == {0, 1}
    assert "run directory" in capsys.readouterr().out


@pytest.mark.usefixtures("cluster")
def test_a_replay_goes_on_without_a_worker_that_dies(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    replay = RayRun(
        agentbench.Replay,
        captured.path,
        address="auto",
        workers=2,
        url=engine.url,
        agents=4,
        duration_s=6.0,
        tool_time="20ms",
        out=tmp_path / "run",
    )
    replay.start()
    wait_until(lambda: replay.progress()["phase"] == "steady" and replay.progress()["requests_ok"] > 8)
    killed = time.time()
    os.kill(ray.get(replay._actors[0].pid.remote()), signal.SIGKILL)
    run = replay.wait()
    summary = run.summary()
    assert summary is not None
    assert [bool(worker["lost"]) for worker in summary["settings"]["workers"]] == [True, False]
    assert any("worker 0 was lost" in note for note in summary["notes"])
    last = replay.progress()
    assert (last["agents"]["ended"], agents_in(last), last["requests_in_flight"]) == (4, 4, 0)
    adds_up(last)
    requests = run.requests().to_pandas()
    end_ms = summary["settings"]["window"]["steady_end_ms"]
    assert end_ms <= (killed - run.manifest["clock_anchor_ns"] / 1e9) * 1000 + 1000
    after = requests[requests["sent_at_ms"] > end_ms]
    assert set(after["worker"]) == {1}
    assert set(after["phase"]) == {"tail"}


@pytest.mark.usefixtures("cluster")
def test_progress_adds_up_over_workers(engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path) -> None:
    settings: dict[str, Any] = {"url": engine.url, "agents": 4, "trajectories": 8, "out": tmp_path / "run"}
    replay = RayRun(
        agentbench.Replay, captured.path, address="auto", workers=2, power="constant:200", tool_time="200ms", **settings
    )
    seen = []
    with replay:
        while not replay.done:
            seen.append(replay.progress())
            time.sleep(0.02)
        run = replay.wait()
    assert max(agents_in(progress) for progress in seen) == 4
    assert {progress["power_w"] for progress in seen if not progress["done"]} == {200.0}
    adds_up(replay.progress())
    equals_the_summary(replay.progress(), run)


@pytest.mark.usefixtures("cluster")
def test_a_run_that_is_stopped_keeps_what_there_is(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    settings: dict[str, Any] = {"url": engine.url, "agents": 2, "duration_s": 600.0, "out": tmp_path / "run"}
    replay = RayRun(agentbench.Replay, captured.path, address="auto", workers=2, **settings)
    with replay:
        wait_until(lambda: replay.progress()["requests_ok"] > 2)
        run = replay.stop()
    summary = run.summary()
    assert summary is not None
    assert summary["settings"]["ended_by"] == "shutdown"
    assert summary["requests"]["ok"] > 2
    assert replay.done


@pytest.mark.usefixtures("cluster")
def test_too_many_failures_are_counted_over_all_workers(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    with failing_front(engine.url) as url:
        run = agentbench.replay(
            captured.path,
            url=url,
            ray="auto",
            workers=2,
            agents=2,
            duration_s=WAIT_SECONDS,
            on_error="continue",
            max_error_rate_pct=50.0,
            human_time="none",
            tool_time="none",
            out=tmp_path / "run",
        )
    summary = run.summary()
    assert summary is not None
    assert summary["settings"]["ended_by"] == "error_rate"
    assert any("more than 50 % of the requests failed" in note for note in summary["notes"])
    requests = run.requests().to_pandas()
    assert len(requests) >= FEWEST_ENDED
    # Neither had seen enough by itself to end the run.
    assert requests.groupby("worker").size().max() < FEWEST_ENDED
    assert set(requests["worker"]) == {0, 1}


@pytest.mark.usefixtures("cluster")
def test_a_cluster_plays_beside_an_event_loop(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    async def whole() -> agentbench.Run:
        settings: dict[str, Any] = {"url": engine.url, "ray": "auto", "agents": 2}
        return await agentbench.replay_async(captured.path, out=tmp_path / "whole", **settings)

    assert set(asyncio.run(whole()).requests().to_pandas()["worker"]) == {0, 1}

    async def cancelled() -> None:
        out = tmp_path / "cut"
        settings: dict[str, Any] = {"slo": ["ttft.p95<=100s"], "max_agents": 2, "min_steady_s": 600.0}
        task = asyncio.create_task(
            agentbench.capacity_async(captured.path, url=engine.url, ray="auto", out=out, **settings)
        )
        while not (out / "manifest.json").exists():
            assert not task.done()
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    run = agentbench.Run.open(tmp_path / "cut")
    summary = run.summary()
    assert run.manifest["complete"]
    assert summary is not None
    assert summary["settings"]["ended_by"] == "shutdown"


@contextlib.contextmanager
def failing_front(engine_url: str) -> Iterator[str]:
    """What the engine says of itself, and an error for every request of a recording."""

    class Front(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:  # the name is http.server's
            self.forward(None)

        def do_POST(self) -> None:  # the name is http.server's
            body = self.rfile.read(int(self.headers["content-length"]))
            asked_before_a_run = not json.loads(body).get("stream") or b'"Hi"' in body
            if asked_before_a_run:
                self.forward(body)
            else:
                self.answer(500, b'{"error": {"message": "no"}}', "application/json")

        def forward(self, body: bytes | None) -> None:
            answer = send(engine_url + self.path, body)
            headers = {name.lower(): value for name, value in answer.headers.items()}
            self.answer(answer.status, answer.body, headers["content-type"])

        def answer(self, status: int, body: bytes, content_type: str) -> None:
            self.send_response(status)
            self.send_header("content-type", content_type)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Front) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.usefixtures("cluster")
def test_what_cannot_run_is_refused_before_anything_is_written(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    with pytest.raises(agentbench.ConfigError, match="1 agents cannot be shared by 2 workers"):
        agentbench.replay(captured.path, url=engine.url, ray="auto", workers=2, agents=1, out=out)
    with pytest.raises(agentbench.ConfigError, match="3 CPUs for 9 workers"):
        agentbench.replay(captured.path, url=engine.url, ray="auto", workers=9, agents=9, out=out)
    with pytest.raises(agentbench.UpstreamError):
        agentbench.replay(captured.path, url="http://127.0.0.1:9", ray="auto", workers=2, agents=2, out=out)
    assert command_line(["replay", str(captured.path), "--ray", "auto", "--out", str(out)]) == 2
    assert "--ray needs --url" in capsys.readouterr().err
    assert not out.exists()


def wait_until(true: Any) -> None:
    end = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < end, "it does not come to pass"
        time.sleep(0.05)
