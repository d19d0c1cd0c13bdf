"""A recording sent again, by the API and through asyncio."""

from __future__ import annotations

import asyncio
import http.server
import json
import threading
from typing import TYPE_CHECKING, Any, ClassVar

import pandas as pd
import pytest

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl
    from tests.python.conftest import Captured

PLANNED = ["thread_id", "turn", "target_output_tokens", "completion_tokens", "status", "output_length"]


def planned(run: agentbench.Run) -> pl.DataFrame:
    """What every replay of a recording has in common, whenever its requests were sent."""
    return run.requests().to_polars().sort("session_id", "thread_id", "turn").select(PLANNED)


def test_a_capture_is_replayed_as_recorded(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    run = agentbench.replay(captured.path, url=engine.url, agents=2, cache_sharing="recorded", out=tmp_path / "run")
    requests = run.requests().to_polars()
    recorded = agentbench.Run.open(captured.path).turns().to_polars()
    assert sorted(requests["source_request_id"]) == sorted(recorded["request_id"])
    assert set(requests["status"]) == {"ok"}
    assert set(requests["output_length"]) == {"ok"}
    assert requests["prompt_tokens"].sum() == recorded["isl"].sum()
    assert requests["completion_tokens"].sum() == recorded["osl"].sum()
    assert len(run.trajectories()) == 2
    assert run.manifest["kind"] == "replay"
    assert run.manifest["complete"] is True


def test_the_summary_is_recomputed_from_the_tables(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    run = agentbench.replay(captured.path, url=engine.url, agents=2, out=tmp_path / "run")
    summary, requests = run.summary(), run.requests().to_pandas()
    assert summary == json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary is not None
    assert summary["labels"]["simulated"] is True
    assert summary["requests"] == {"sent": 5, "ok": 5, "failed": 0, "cancelled": 0}
    for column in ("ttft_ms", "e2e_ms", "tpot_ms", "prompt_tokens", "completion_tokens"):
        statistic = summary["whole"]["fields"][column]
        values = requests[column].dropna()
        assert statistic["n"] == len(values)
        assert statistic["mean"] == pytest.approx(values.mean())
        for percent in (50, 90, 95, 99):
            assert statistic[f"p{percent}"] == pytest.approx(values.quantile(percent / 100))


async def test_the_asyncio_twin_gives_the_same_rows(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    sync = agentbench.replay(captured.path, url=engine.url, out=tmp_path / "sync")
    twin = await agentbench.replay_async(captured.path, url=engine.url, out=tmp_path / "async")
    assert planned(sync).equals(planned(twin))


def test_the_sample_is_replayed_on_the_embedded_engine(tmp_path: Path) -> None:
    run = agentbench.replay(speed="instant", agents=2, trajectories=2, duration_s=20, out=tmp_path / "run")
    summary = run.summary()
    assert summary is not None
    assert summary["labels"]["simulated"] is True
    assert summary["labels"]["synthetic_trace"] is True
    assert summary["requests"]["failed"] == 0
    assert summary["requests"]["sent"] == len(run.requests()) > 0


def test_the_sample_says_that_it_is_synthetic() -> None:
    run = agentbench.Run.open(agentbench.sample_trace())
    assert run.manifest["synthetic"] is True
    assert run.totals()["turns"] > 0
    size = sum(file.stat().st_size for file in agentbench.sample_trace().iterdir())
    assert size < 400_000


def test_a_stopped_replay_keeps_what_there_is(tmp_path: Path) -> None:
    trace = agentbench.synthesize(tmp_path / "trace", sessions=3, profile="small")
    with agentbench.SimulatedEngine(speed="laptop") as engine:
        handle = agentbench.Replay(trace, url=engine.url, out=tmp_path / "run", agents=3, on_error="continue").start()
        while handle.progress()["requests_sent"] < 3:
            assert not handle.done
        run = handle.stop()
    assert handle.done
    assert handle.progress()["done"] is True
    assert run.manifest["complete"] is True
    requests = run.requests().to_polars()
    assert len(requests) >= 3
    assert "cancelled" in set(requests["status"])
    summary = run.summary()
    assert summary is not None
    assert summary["requests"]["sent"] == len(requests)


async def test_a_cancelled_task_stops_the_replay_and_keeps_what_there_is(tmp_path: Path) -> None:
    trace = await agentbench.synthesize_async(tmp_path / "trace", sessions=3, profile="small")
    async with agentbench.SimulatedEngine(speed="laptop") as engine:
        task = asyncio.ensure_future(agentbench.replay_async(trace, url=engine.url, out=tmp_path / "run", agents=3))
        while not (tmp_path / "run" / "manifest.json").exists():
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.2)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert agentbench.Run.open(tmp_path / "run").manifest["complete"] is True


def test_failed_requests_are_rows(captured: Captured, tmp_path: Path) -> None:
    """An engine that goes away in the middle fails requests, not the run."""
    trace = agentbench.synthesize(tmp_path / "trace", sessions=2, profile="small")
    engine = agentbench.SimulatedEngine(speed="laptop").start()
    handle = agentbench.Replay(trace, url=engine.url, out=tmp_path / "run", agents=2).start()
    while handle.progress()["requests_sent"] < 2:
        assert not handle.done
    engine.stop()
    run = handle.wait()
    summary = run.summary()
    assert summary is not None
    assert summary["requests"]["failed"] > 0
    failed = run.requests().to_polars().filter(status="failed")
    assert failed["error"].null_count() == 0
    assert captured.path.exists()


def test_synthesize_is_the_same_for_the_same_seed(tmp_path: Path) -> None:
    runs = [
        agentbench.synthesize(tmp_path / name, sessions=2, profile="small", seed=seed)
        for name, seed in {"a": 7, "b": 7, "c": 8}.items()
    ]
    columns = ["session_id", "thread_id", "turn", "isl", "osl", "tool_exec_ms", "osl_text", "unit_hashes"]
    first, same, other = (run.turns().to_polars().select(columns) for run in runs)
    assert first.equals(same)
    assert not first.equals(other)
    assert all(run.manifest["synthetic"] for run in runs)


def test_export_writes_the_seeds_layout(captured: Captured, tmp_path: Path) -> None:
    run = agentbench.Run.open(captured.path)
    counts = agentbench.export_jsonl(run, out=tmp_path / "jsonl")
    files = sorted((tmp_path / "jsonl" / "runs").glob("*/turn_traces.jsonl"))
    rows = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(files) == 2
    assert len(rows) == len(run.turns()) == 5
    for row in rows:
        assert {"request_time", "tool_exec_ms", "isl_text", "isl_new_text", "osl_text"} <= set(row)
        assert row["isl_new_text"] in row["isl_text"]
    assert 5 in counts.values()
    agentbench.export_jsonl(run, out=tmp_path / "short", prompts=False)
    for file in (tmp_path / "short" / "runs").glob("*/turn_traces.jsonl"):
        assert all(json.loads(line)["isl_text"] is None for line in file.read_text().splitlines())


def test_waits_and_output_lengths_are_settings_of_the_run(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    run = agentbench.replay(
        captured.path,
        url=engine.url,
        out=tmp_path / "run",
        tool_time="none",
        human_time="cap:1s",
        output_length="5",
        strict=True,
    )
    summary = run.summary()
    assert summary is not None
    settings = summary["settings"]
    assert (settings["tool_time"], settings["human_time"], settings["output_length"]) == ("none", "cap:1s", "5")
    assert settings["strict"] is True
    assert set(run.requests().to_polars()["completion_tokens"]) == {5}
    assert any("output lengths are not the recorded ones: 5" in note for note in summary["notes"])


def test_live_content_is_a_setting_of_the_run(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    run = agentbench.replay(captured.path, url=engine.url, out=tmp_path / "run", content="live")
    summary, requests = run.summary(), run.requests().to_polars()
    assert summary is not None
    assert summary["settings"]["content"] == "live"
    assert summary["live"]["live_answers"] == requests["live_answers"].sum() > 0
    assert summary["live"]["calls_unanswered"] == requests["live_calls_unanswered"].sum()
    assert requests["recorded_answers"].sum() == 0
    assert set(requests["status"]) == {"ok"}
    assert any("content live" in note for note in summary["notes"])


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("content", "invented"),
        ("tool_time", "often"),
        ("human_time", "5s"),
        ("output_length", "0"),
        ("tool_time", "scale:-1"),
        ("cache_sharing", "some"),
    ],
)
def test_a_wrong_rule_names_its_argument(name: str, word: str, captured: Captured, tmp_path: Path) -> None:
    rule: dict[str, Any] = {name: word}
    with pytest.raises(agentbench.ConfigError, match=name):
        agentbench.replay(captured.path, url="http://127.0.0.1:9", out=tmp_path / "run", **rule)


def test_the_sample_hits_the_cache_as_planned(tmp_path: Path) -> None:
    with agentbench.SimulatedEngine(speed="instant") as engine:
        for sharing in ("system", "trajectory", "none"):
            run = agentbench.replay(
                url=engine.url, agents=4, tool_time="none", cache_sharing=sharing, out=tmp_path / sharing
            )
            summary = run.summary()
            assert summary is not None
            assert summary["settings"]["cache_sharing"] == sharing
            hits = summary["prefix_hits"]
            assert hits["planned_pct"] == pytest.approx(hits["usage_pct"], abs=2.0)
            assert hits["disagree"] is False
            assert any(note.startswith(f"cache sharing {sharing}: ") for note in summary["notes"])


def test_a_salt_lets_a_run_find_the_cache_of_another(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    def cached(name: str, salt: str | None) -> int:
        run = agentbench.replay(captured.path, url=engine.url, salt=salt, out=tmp_path / name)
        return int(run.requests().to_polars()["cached_tokens"].sum())

    first, own, same = cached("first", "one"), cached("own", None), cached("same", "one")
    assert first == own < same


class Busy(http.server.BaseHTTPRequestHandler):
    """An engine that refuses each body the first time, and answers it then."""

    protocol_version = "HTTP/1.1"
    seen: ClassVar[set[bytes]] = set()

    def do_GET(self) -> None:  # the names are http.server's
        answers: dict[str, Any] = {
            "/health": {},
            "/v1/models": {"data": [{"id": "scripted"}]},
            "/openapi.json": {"paths": {"/v1/messages": {}}},
        }
        self._answer(200 if self.path in answers else 404, json.dumps(answers.get(self.path, {})))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        usage = {"input_tokens": 5, "output_tokens": 1}
        if not json.loads(body).get("stream"):
            self._answer(200, json.dumps({"content": [], "usage": usage}))
            return
        if body not in self.seen:
            self.seen.add(body)
            self._answer(429, "{}", retry_after="0")
            return
        delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "x"}}
        end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": usage}
        events: list[dict[str, Any]] = [delta, end, {"type": "message_stop"}]
        stream = "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
        self._answer(200, stream, content_type="text/event-stream")

    def _answer(self, status: int, text: str, **headers: str) -> None:
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        pass


def test_a_request_that_is_sent_again_is_one_row_with_its_attempts(captured: Captured, tmp_path: Path) -> None:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Busy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        url = f"http://127.0.0.1:{server.server_port}"
        run = agentbench.replay(
            captured.path, url=url, out=tmp_path / "run", metrics_url=None, max_retries=3, retry_backoff_s=0.02
        )
        server.shutdown()
        thread.join()
    requests = run.requests().to_pandas()
    assert len(requests) == 5
    assert set(requests["status"]) == {"ok"}
    assert set(requests["attempts"]) == {2}
    attempts = requests[["source_request_id", "e2e_ms", "attempt_log"]].explode("attempt_log", ignore_index=True)
    attempts = attempts.join(pd.DataFrame(attempts["attempt_log"].tolist()))
    assert len(attempts) == 10
    assert list(attempts["http_status"]) == [429, 200] * 5
    assert list(attempts["error"].isna()) == [False, True] * 5
    first, second = attempts[0::2], attempts[1::2]
    assert (first["start_ms"] == 0).all()
    assert (second["end_ms"] == second["e2e_ms"]).all()
    assert (second["start_ms"].to_numpy() - first["end_ms"].to_numpy() >= 10).all()
    by_polars = run.requests().to_polars().select("attempt_log").explode("attempt_log").unnest("attempt_log")
    assert by_polars["http_status"].to_list() == [429, 200] * 5
    summary = run.summary()
    assert summary is not None
    assert any("5 requests were sent more than once (10 attempts)" in note for note in summary["notes"])
    settings = summary["settings"]
    assert (settings["max_retries"], settings["retry_backoff_s"], settings["retry_backoff_max_s"]) == (3, 0.02, 60)


def test_time_outs_have_their_defaults_in_the_manifest(
    engine: agentbench.SimulatedEngine, captured: Captured, tmp_path: Path
) -> None:
    run = agentbench.replay(captured.path, url=engine.url, out=tmp_path / "run", idle_timeout_s=None)
    settings = run.manifest["settings"]["replay"]
    assert (settings["connect_timeout_s"], settings["first_byte_timeout_s"]) == (10, 600)
    assert (settings["idle_timeout_s"], settings["request_timeout_s"]) == (None, None)
    assert (settings["max_retries"], settings["max_error_rate_pct"]) == (0, None)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("connect_timeout_s", 0),
        ("first_byte_timeout_s", -1),
        ("idle_timeout_s", float("nan")),
        ("request_timeout_s", 1e12),
        ("retry_backoff_s", 0),
        ("retry_backoff_max_s", float("inf")),
        ("max_error_rate_pct", 101),
        ("max_error_rate_pct", float("nan")),
        ("on_error", "stop"),
    ],
)
def test_a_wrong_limit_names_its_argument(name: str, value: object, captured: Captured, tmp_path: Path) -> None:
    arguments: dict[str, Any] = {name: value}
    with pytest.raises(agentbench.ConfigError, match=name.removesuffix("_s")):
        agentbench.replay(captured.path, url="http://127.0.0.1:9", out=tmp_path / "run", **arguments)
