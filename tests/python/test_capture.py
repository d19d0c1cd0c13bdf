"""A proxy before the embedded engine, driven by a client that knows nothing of agentbench."""

from __future__ import annotations

import asyncio
import gc
import http.server
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.traffic import agentbench as run_command
from tests.python.traffic import chat_body, converse, encoded, messages_body, send

import agentbench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def test_answers_pass_as_they_are(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    body = encoded(messages_body(["say something"], stream=False))
    direct = send(f"{engine.url}/v1/messages", body)
    with agentbench.Proxy(engine.url, out=tmp_path / "run") as proxy:
        through = send(f"{proxy.url}/v1/messages", body)
        missing = send(f"{proxy.url}/v1/nothing-here")
    assert (through.status, missing.status) == (direct.status, 404) == (200, 404)
    assert {name.lower() for name in through.headers} == {name.lower() for name in direct.headers}
    assert json.loads(through.body)["content"] == json.loads(direct.body)["content"]


# Kills itself, as nothing else can so surely: in mid-stream, once the first event is there.
KILLED = """
import os, signal, sys, urllib.request
url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
request = urllib.request.Request(url, sys.argv[1].encode(), {"content-type": "application/json"})
urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).readline()
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_command_that_is_killed_leaves_a_whole_run(tmp_path: Path) -> None:
    with agentbench.SimulatedEngine(speed="laptop") as engine:
        where = ["--upstream", engine.url, "--listen", "127.0.0.1:0", "--out", str(tmp_path / "run")]
        body = encoded(chat_body(["tell me all"], stream=True, max_tokens=5_000)).decode()
        done = run_command("capture", *where, "--", sys.executable, "-c", KILLED, body)
    assert done.returncode == 0, done.stderr
    assert "the command ended with exit status -9" in done.stderr
    run = agentbench.Run.open(tmp_path / "run")
    assert run.manifest["complete"] is True
    assert run.manifest["counts"]["client_cancelled"] == 1
    assert run.turns().to_polars()["outcome"].to_list() == ["client_cancelled"]


def test_a_second_capture_into_the_same_directory_is_refused(
    engine: agentbench.SimulatedEngine, tmp_path: Path
) -> None:
    with agentbench.Proxy(engine.url, out=tmp_path / "run") as proxy:
        done = run_command(
            "capture", "--upstream", engine.url, "--listen", "127.0.0.1:0", "--out", str(tmp_path / "run")
        )
        assert (done.returncode, done.stdout) == (2, "")
        assert "the output directory exists and is not empty; choose another or remove it" in done.stderr
        converse(proxy.url, 2)
    assert len(agentbench.Run.open(tmp_path / "run").turns()) == 2


@pytest.mark.parametrize("stream", [True, False])
def test_both_apis_become_turns(engine: agentbench.SimulatedEngine, tmp_path: Path, stream: bool) -> None:  # noqa: FBT001
    with agentbench.Proxy(engine.url, out=tmp_path / "run") as proxy:
        send(f"{proxy.url}/v1/messages", encoded(messages_body(["one"], stream=stream)))
        send(f"{proxy.url}/v1/chat/completions", encoded(chat_body(["two"], stream=stream)))
    turns = agentbench.Run.open(tmp_path / "run").turns().to_polars().sort("request_time")
    assert turns["api"].to_list() == ["messages", "chat"]
    assert turns["stream"].to_list() == [stream, stream]
    assert turns["outcome"].to_list() == ["ok", "ok"]
    assert turns["osl"].to_list() == [16, 16]
    assert turns["isl"].null_count() == 0
    assert turns["ttft_ms"].null_count() == (0 if stream else 2)


def test_numbers_while_it_runs_and_after(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    with agentbench.Proxy(engine.url, out=tmp_path / "run") as proxy:
        send(f"{proxy.url}/health")
        converse(proxy.url, 2)
        assert not proxy.done
        assert proxy.stats()["requests"] == 3
    stats = proxy.stats()
    assert proxy.done
    assert (stats["requests"], stats["active"], stats["turns"], stats["side_requests"]) == (3, 0, 2, 1)
    assert (stats["sessions"], stats["threads"], stats["rows_dropped"]) == (1, 1, 0)
    assert [turn["turn"] for turn in stats["latest"]] == [0, 1]
    totals = agentbench.Run.open(tmp_path / "run").totals()
    assert (stats["isl"], stats["osl"]) == (totals["isl"], totals["osl"])
    assert stats["engine"] is not None
    assert stats["engine"]["ticks"] > 0
    assert stats["engine"]["failed"] == 0


def test_engine_rows_count_every_request(captured_engine_rows: tuple[int, int, int]) -> None:
    completed, prompt_tokens, turns = captured_engine_rows
    assert completed == turns
    assert prompt_tokens > 0


@pytest.fixture
def captured_engine_rows(engine: agentbench.SimulatedEngine, tmp_path: Path) -> tuple[int, int, int]:
    with agentbench.Proxy(engine.url, out=tmp_path / "run") as proxy:
        converse(proxy.url, 3)
        run = proxy.stop()
    rows = run.engine().to_polars()
    prompt_tokens = int((rows["n"] * rows["isl"]).sum())
    assert prompt_tokens == run.totals()["isl"]
    return int(rows["n"].sum()), prompt_tokens, len(run.turns())


def test_without_a_metrics_page_there_are_no_engine_rows(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    with agentbench.Proxy(engine.url, out=tmp_path / "run", metrics_url=None) as proxy:
        converse(proxy.url, 1)
        assert proxy.stats()["engine"] is None
    run = agentbench.Run.open(tmp_path / "run")
    assert (len(run.turns()), len(run.engine()), len(run.engine_samples())) == (1, 0, 0)


async def test_the_asyncio_twin_gives_the_same_rows(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    with agentbench.Proxy(engine.url, out=tmp_path / "sync") as proxy:
        converse(proxy.url, 3)
    async with agentbench.Proxy(engine.url, out=tmp_path / "async") as proxy:
        await asyncio.to_thread(converse, proxy.url, 3)
    columns = ["session_id", "turn", "api", "n_messages", "isl", "osl", "outcome", "isl_new_text"]
    sync = agentbench.Run.open(tmp_path / "sync").turns().to_polars()
    twin = (await agentbench.Run.open_async(tmp_path / "async")).turns().to_polars()
    assert sync.select(columns).equals(twin.select(columns))


async def test_a_waiting_task_can_be_cancelled_and_the_capture_goes_on(
    engine: agentbench.SimulatedEngine, tmp_path: Path
) -> None:
    proxy = await agentbench.Proxy(engine.url, out=tmp_path / "run").start_async()
    waiting = asyncio.ensure_future(proxy.wait_async())
    await asyncio.sleep(0.1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not proxy.done
    await asyncio.to_thread(converse, proxy.url, 1)
    assert len((await proxy.stop_async()).turns()) == 1


def test_a_handle_starts_once_and_ends_as_often_as_asked(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    proxy = agentbench.Proxy(engine.url, out=tmp_path / "run")
    for call in (proxy.stop, proxy.wait, proxy.stats, lambda: proxy.url):
        with pytest.raises(agentbench.ConfigError, match="not started"):
            call()
    proxy.start()
    with pytest.raises(agentbench.ConfigError, match="started before"):
        proxy.start()
    assert proxy.stop().path == proxy.stop().path == proxy.wait().path == tmp_path / "run"


def test_a_handle_that_nobody_holds_ends_what_it_started(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    proxy = agentbench.Proxy(engine.url, out=tmp_path / "run").start()
    converse(proxy.url, 1)
    del proxy
    gc.collect()
    for _ in range(200):
        if agentbench.Run.open(tmp_path / "run").manifest["complete"]:
            break
        time.sleep(0.05)
    run = agentbench.Run.open(tmp_path / "run")
    assert run.manifest["complete"] is True
    assert len(run.turns()) == 1


def test_capture_writes_below_results_by_default(engine: agentbench.SimulatedEngine, empty: Path) -> None:
    with agentbench.capture(engine.url, listen="127.0.0.1:0") as proxy:
        converse(proxy.url, 1)
    (out,) = (empty / "results").iterdir()
    assert out.name.startswith("capture-")
    assert len(agentbench.Run.open(out).turns()) == 1


def test_a_poller_alone_writes_a_run(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    with agentbench.Poller(f"{engine.url}/metrics", out=tmp_path / "run") as poller:
        send(f"{engine.url}/v1/messages", encoded(messages_body(["one"])))
    stats = poller.stats()
    run = agentbench.Run.open(tmp_path / "run")
    assert stats["completions"] == run.engine().to_polars()["n"].sum() == 1
    assert stats["ticks"] == len(run.engine_samples())
    assert stats["engine"] == "vllm"


def test_the_engine_says_what_it_is(engine: agentbench.SimulatedEngine) -> None:
    info = agentbench.engine_info(engine.url)
    assert (info["name"], info["model"], info["simulated"]) == ("agentbench-simulated", "agentbench-sim", True)
    page = agentbench.metrics_page(f"{engine.url}/metrics")
    assert page["engine"] == "vllm"
    assert "prompt_tokens" in page["fields"]
    assert not set(page["fields"]) & set(page["missing"])


async def test_the_engine_says_so_in_asyncio_too(engine: agentbench.SimulatedEngine) -> None:
    assert await agentbench.engine_info_async(engine.url) == agentbench.engine_info(engine.url)
    page = await agentbench.metrics_page_async(f"{engine.url}/metrics")
    assert page == agentbench.metrics_page(f"{engine.url}/metrics")


@pytest.fixture(params=[401, 403, 404])
def closed_engine(request: pytest.FixtureRequest) -> Iterator[tuple[str, int]]:
    """An engine that tells nothing of itself, and answers those alone who bring a key."""
    status: int = request.param

    class Closed(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name is http.server's
            self._answer(status, b"{}")

        def do_POST(self) -> None:  # the name is http.server's
            self.rfile.read(int(self.headers["content-length"]))
            usage = {"input_tokens": 3, "output_tokens": 1}
            said = {"type": "message", "role": "assistant", "content": [], "usage": usage, "stop_reason": "end_turn"}
            self._answer(200 if self.headers["x-api-key"] == "the key" else status, json.dumps(said).encode())

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Closed) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", status
        server.shutdown()
        thread.join()


def test_an_engine_that_tells_nothing_of_itself_is_recorded(closed_engine: tuple[str, int], tmp_path: Path) -> None:
    url, status = closed_engine
    with agentbench.Proxy(url, out=tmp_path / "run") as proxy:
        body = encoded(messages_body(["one"], stream=False))
        answer = send(f"{proxy.url}/v1/messages", body, {"x-api-key": "the key"})
        assert answer.status == 200
    run = agentbench.Run.open(tmp_path / "run")
    assert (run.manifest["engine"]["model"], run.manifest["engine"]["name"]) == (None, None)
    assert any(f"/v1/models answered {status}" in note for note in run.manifest["notes"])
    assert run.turns().to_polars()["isl"].to_list() == [3]


def test_the_interval_between_polls_is_kept(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    with agentbench.Proxy(engine.url, out=tmp_path / "run", poll_interval_s=0.05):
        pass
    assert agentbench.Run.open(tmp_path / "run").manifest["settings"]["poll_interval_ms"] == 50.0


def test_switches_stand_in_the_manifest_and_at_the_start(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    switches: dict[str, Any] = {"cap_max_tokens": 3, "model": "agentbench-sim", "rerole_system": True}
    with agentbench.Proxy(engine.url, out=tmp_path / "run", **switches) as proxy:
        at_start = agentbench.Run.open(proxy.out).manifest
        body = messages_body(["one"], stream=True) | {"model": "claude"}
        answer = send(f"{proxy.url}/v1/messages", encoded(body))
        changed = proxy.stats()["changed"]
    assert answer.status == 200
    run = agentbench.Run.open(tmp_path / "run")
    assert at_start["settings"]["switches"] == run.manifest["settings"]["switches"] == switches
    assert [note for note in at_start["notes"] if "at most 3 output tokens are asked for" in note]
    turns = run.turns().to_pandas()
    assert list(turns["changes"][0]) == ["cap_max_tokens", "model"]
    assert (turns["osl"][0], turns["model"][0]) == (3, "agentbench-sim")
    assert json.loads(run.request_body(turns["request_id"][0]))["max_tokens"] == 3
    assert run.manifest["counts"]["changed_model"] == 1
    assert changed in ({}, {"cap_max_tokens": 1, "model": 1})


def test_messages_are_asked_for_over_chat(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    with agentbench.capture(engine.url, out=tmp_path / "run", listen="127.0.0.1:0", convert="chat") as proxy:
        for stream in (True, False):
            answer = send(f"{proxy.url}/v1/messages", encoded(messages_body(["one"], stream=stream)))
            assert answer.status == 200
    turns = agentbench.Run.open(tmp_path / "run").turns().to_pandas()
    assert turns["api"].tolist() == ["messages", "messages"]
    assert (turns["outcome"] == "ok").all()
    assert turns["isl"].nunique() == 1
    assert (turns["osl"] > 0).all()
    # Without a switch nothing is said of switches.
    with agentbench.Proxy(engine.url, out=tmp_path / "plain") as proxy:
        send(f"{proxy.url}/v1/messages", encoded(messages_body(["one"], stream=False)))
    plain = agentbench.Run.open(tmp_path / "plain")
    assert "switches" not in plain.manifest["settings"]
    assert plain.turns().to_pandas()["changes"].tolist() == [None]


@pytest.mark.parametrize(
    ("switch", "part"),
    [({"convert": "responses"}, "write chat"), ({"cap_max_tokens": 0}, "at least 1"), ({"model": " "}, "empty")],
)
def test_a_wrong_switch_is_refused(tmp_path: Path, switch: dict[str, Any], part: str) -> None:
    with pytest.raises(agentbench.ConfigError, match=part):
        agentbench.Proxy("http://127.0.0.1:1", out=tmp_path / "run", **switch)
