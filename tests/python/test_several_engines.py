"""One proxy before two embedded engines: whose rows are whose, and what the sums come to."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import polars as pl
import pytest
from tests.python.traffic import agentbench as run_command
from tests.python.traffic import chat_body, converse, encoded, free_port, send, started, wait_up

import agentbench

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SESSIONS = {"a": 3, "b": 2, "c": 1, "d": 2}


@pytest.fixture(scope="module")
def other() -> Iterator[agentbench.SimulatedEngine]:
    """A second engine."""
    with agentbench.SimulatedEngine(speed="instant") as engine:
        yield engine


@pytest.fixture(scope="module")
def run(
    engine: agentbench.SimulatedEngine, other: agentbench.SimulatedEngine, tmp_path_factory: pytest.TempPathFactory
) -> agentbench.Run:
    """Four sessions that took the two engines in turn."""
    out = tmp_path_factory.mktemp("several") / "run"
    with agentbench.Proxy([engine.url, other.url], out=out) as proxy:
        for session, turns in SESSIONS.items():
            converse(proxy.url, turns, session=session)
        stats = proxy.stats()
    assert [one["engine"] for one in stats["engines"]] == [engine.url, other.url]
    assert [one["requests"] for one in stats["engines"]] == [4, 4]
    assert all(one["polled"] is not None and one["polled"]["ticks"] > 0 for one in stats["engines"])
    assert stats["engine"] is not None
    assert stats["engine"]["engine"] == "vllm"
    return agentbench.Run.open(out)


def test_sessions_take_the_engines_in_turn_and_stay(
    run: agentbench.Run, engine: agentbench.SimulatedEngine, other: agentbench.SimulatedEngine
) -> None:
    turns = run.turns().to_polars()
    homes = {session: set(rows["engine"]) for (session,), rows in turns.group_by("session_id")}
    assert homes == {"a": {engine.url}, "b": {other.url}, "c": {engine.url}, "d": {other.url}}


def test_rows_of_an_engine_are_its_own(run: agentbench.Run, engine: agentbench.SimulatedEngine) -> None:
    turns, rows = run.turns().to_polars(), run.engine().to_polars()
    assert set(rows["engine"]) == set(turns["engine"])
    for name in set(rows["engine"]):
        mine, counted = turns.filter(engine=name), rows.filter(engine=name)
        assert counted["n"].sum() == len(mine)
        assert round((counted["n"] * counted["isl"]).sum()) == mine["isl"].sum()
        assert round((counted["n"] * counted["osl"]).sum()) == mine["osl"].sum()
        assert counted["prefix_cache_hits"].sum() == mine["isl_cached"].sum()
    linked = turns.filter(pl.col("engine_row").is_not_null())
    assert len(linked) == len(turns)
    assert [rows["engine"][row] for row in linked["engine_row"]] == linked["engine"].to_list()
    assert engine.url in set(run.engine_samples().to_polars()["engine"])


def test_sums_and_single_engines_are_told(run: agentbench.Run) -> None:
    turns = run.turns().to_polars()
    summary = run.summarize()
    assert summary["engine"]["requests"] == len(turns)
    assert summary["engine"]["prompt_tokens"] == turns["isl"].sum()
    each = summary["engines"]
    assert sum(one["prompt_tokens"] for one in each.values()) == turns["isl"].sum()
    for name, one in each.items():
        assert one["requests"] == len(turns.filter(engine=name))
    manifest = run.manifest
    assert [one["url"] for one in manifest["engines"]] == list(each) or set(each) == {
        one["url"] for one in manifest["engines"]
    }
    assert manifest["engine"]["simulated"]
    assert manifest["engine"]["url"] == " + ".join(one["url"] for one in manifest["engines"])
    assert manifest["settings"]["routing"] == "session"
    assert manifest["counts"]["requests_moved"] == 0
    section = next(part for part in agentbench.report(run).sections if part.title.startswith("engines"))
    assert [row[0] for row in section.rows] == list(each)


def wait_counted(proxy: agentbench.Proxy, engine: str, completions: int) -> None:
    """Returns once the poller has seen so many completions of an engine."""
    for _ in range(400):
        polled = next(one["polled"] for one in proxy.stats()["engines"] if one["engine"] == engine)
        if polled is not None and polled["completions"] >= completions:
            return
        time.sleep(0.05)
    pytest.fail(f"{engine} was never seen to complete {completions}: {proxy.stats()}")


def test_a_restart_of_one_engine_is_that_ones_alone(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    start = ["engine", "--port", url.rpartition(":")[2], "--speed", "instant"]
    with started(*start) as first:
        wait_up(url, first)
        proxy = agentbench.Proxy([url, engine.url], out=tmp_path / "run").start()
        converse(proxy.url, 2, session="a")
        converse(proxy.url, 2, session="b")
        wait_counted(proxy, url, 2)
    # Nothing can be sent there: the session goes on with the other one, and that is counted.
    converse(proxy.url, 1, session="a")
    with started(*start) as again:
        wait_up(url, again)
        send(f"{url}/v1/chat/completions", encoded(chat_body(["straight to it"])))
        converse(proxy.url, 1, session="c")
        wait_counted(proxy, url, 4)
        run = proxy.stop()
    turns = run.turns().to_polars()
    homes = turns.sort("request_time").group_by("session_id", maintain_order=True).agg("engine")
    assert dict(homes.iter_rows()) == {
        "a": [url, url, engine.url],
        "b": [engine.url, engine.url],
        "c": [url],
    }
    assert run.manifest["counts"]["requests_moved"] == 1
    assert any("to which nothing could be sent" in note for note in run.manifest["notes"])
    assert run.manifest["counts"]["engine_restarts"] == 1
    assert any(note.startswith(f"engine {url}'s counters went back") for note in run.manifest["notes"])
    rows = run.engine().to_polars()
    assert set(rows.filter(counter_reset=True)["engine"]) == {url}
    each = run.summarize()["engines"]
    assert each[url]["counter_reset"]
    assert each[url]["requests"] is None
    assert not each[engine.url]["counter_reset"]
    assert each[engine.url]["requests"] == len(turns.filter(engine=engine.url))
    assert run.summarize()["engine"]["requests"] is None


def test_the_command_line_takes_several(
    engine: agentbench.SimulatedEngine, other: agentbench.SimulatedEngine, tmp_path: Path
) -> None:
    talk = (
        "import os, urllib.request as u\n"
        "for k in range(4):\n"
        '    body = b\'{"model": "agentbench-sim", "max_tokens": 3, "messages": [{"role": "user", "content": "x"}]}\'\n'
        "    u.urlopen(u.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', data=body)).read()\n"
    )
    ends = ["--", sys.executable, "-c", talk]
    several = ["--upstream", engine.url, "--upstream", other.url, "--listen", "127.0.0.1:0"]
    pages = ["--metrics-url", f"{engine.url}/metrics", "--metrics-url", f"{other.url}/metrics"]
    out = tmp_path / "run"
    done = run_command("capture", *several, *pages, "--routing", "round-robin", "--out", out, *ends)
    assert done.returncode == 0, done.stderr
    assert f"-> {engine.url} + {other.url} to" in done.stderr
    turns = agentbench.Run.open(out).turns().to_polars()
    assert turns.sort("request_time")["engine"].to_list() == [engine.url, other.url] * 2
    for wrong, part in (
        ([*several, *pages[:2]], "given 1 times for 2 engines"),
        ([*several, *pages[:2], "--metrics-url", "none"], "none stands alone"),
        ([*several, "--upstream", engine.url + "/v1"], "given twice"),
        ([*several, "--routing", "random"], "round-robin"),
    ):
        done = run_command("capture", *wrong, "--out", tmp_path / "none", *ends)
        assert done.returncode == 2, done.stderr
        assert part in done.stderr
        assert not (tmp_path / "none").exists()
