"""The command line as a user runs it: what it prints, where, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
import string
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.table import Table
from tests.python.traffic import agentbench, converse, free_port, send, started, wait_up

import agentbench as package
from agentbench._cli import run
from agentbench._cli.argv import masked_argv
from agentbench._cli.console import results
from agentbench._cli.parameters import DURATION

if TYPE_CHECKING:
    import subprocess

    from tests.python.conftest import Captured

VERBS = ["capacity", "capture", "compare", "doctor", "engine", "export", "import", "replay", "report", "synthesize"]
CLIENT = """
import json, os, sys, urllib.request
body = {"model": "agentbench-sim", "max_tokens": 8, "messages": [{"role": "user", "content": "hi"}]}
for url in (os.environ["ANTHROPIC_BASE_URL"] + "/v1/messages", os.environ["OPENAI_BASE_URL"] + "/chat/completions"):
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read()
assert os.environ["OPENAI_API_BASE"] == os.environ["OPENAI_BASE_URL"]
sys.exit(int(sys.argv[1]))
"""


def test_version() -> None:
    result = agentbench("--version")
    assert result.returncode == 0
    assert result.stdout.startswith(f"agentbench {package.__version__} (")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_explains_itself(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([verb, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: agentbench {verb}")
    assert "\\b" not in out


def test_the_list_of_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    out = capsys.readouterr().out
    assert all(f"  {verb}" in out for verb in VERBS)


@pytest.mark.parametrize(
    ("text", "seconds"), [("100ms", 0.1), ("60s", 60.0), ("5m", 300.0), ("1h30m", 5400.0), ("0.5s", 0.5)]
)
def test_durations(text: str, seconds: float) -> None:
    assert DURATION.convert(text, None, None) == pytest.approx(seconds)


@given(st.integers(1, 10_000), st.sampled_from([("ms", 0.001), ("s", 1.0), ("m", 60.0), ("h", 3600.0)]))
def test_any_number_of_any_unit_is_a_duration(number: int, unit: tuple[str, float]) -> None:
    assert DURATION.convert(f"{number}{unit[0]}", None, None) == pytest.approx(number * unit[1])


@given(st.text(string.ascii_letters + string.digits, min_size=8), st.sampled_from(["--api-key {}", "API_TOKEN={}"]))
def test_no_secret_is_kept(secret: str, form: str) -> None:
    assert all(secret not in word for word in masked_argv(form.format(secret).split()))


@pytest.mark.parametrize(
    ("typed", "kept"),
    [
        (["--api-key", "abc", "x"], ["--api-key", "***", "x"]),
        (["--api-key=abc"], ["--api-key=***"]),
        (["OPENAI_API_KEY=abc"], ["OPENAI_API_KEY=***"]),
        (["http://me:secret@host/v1"], ["http://***@host/v1"]),
        (["http://host/v1?api_key=abc&x=1"], ["http://host/v1?api_key=***&x=1"]),
        (["-H", "Authorization: Bearer abc"], ["-H", "Authorization: ***"]),
        (["sk-ant-0123456789abcdef"], ["***"]),
        (["--tokenizer", "t.json", "--max-tokens", "5"], ["--tokenizer", "t.json", "--max-tokens", "5"]),
        (["replay", "results/mine", "--agents", "8"], ["replay", "results/mine", "--agents", "8"]),
    ],
)
def test_secrets_are_masked_in_the_kept_command_line(typed: list[str], kept: list[str]) -> None:
    assert masked_argv(typed) == kept


def test_replay_of_the_sample_with_nothing_more(empty: Path) -> None:
    result = agentbench("replay", "--speed", "instant", "--trajectories", "2", "--duration", "20s", cwd=empty)
    assert result.returncode == 0, result.stderr
    assert "SIMULATED engine" in result.stdout
    assert "SIMULATED engine" in result.stderr
    for label in ("TTFT", "TPOT", "E2E", "output speed", "engine queue", "prefix hit rate", "p99", "new input"):
        assert label in result.stdout
    assert "\x1b" not in result.stdout + result.stderr
    (out,) = (empty / "results").iterdir()
    assert f"run directory: results/{out.name}" in result.stdout
    replayed = package.Run.open(out)
    summary = replayed.summary()
    assert summary is not None
    assert f"{summary['requests']['sent']:,} sent, {summary['requests']['ok']:,} ok" in result.stdout
    assert replayed.manifest["argv"][:2] == ["agentbench", "replay"]
    assert {path.stat().st_mode & 0o777 for path in out.iterdir()} == {0o600}
    assert {"summary.json", "report.md"} <= {path.name for path in out.iterdir()}


def test_replay_exits_with_1_when_a_request_failed(captured: Captured, empty: Path) -> None:
    """An engine whose context holds the first turn of each session alone refuses the others."""
    port = free_port()
    with started("engine", "--port", str(port), "--speed", "instant", "--max-model-len", "120") as engine:
        wait_up(f"http://127.0.0.1:{port}/health", engine)
        arguments = ["--url", f"http://127.0.0.1:{port}", "--agents", "2", "--on-error", "continue", "--out", "out"]
        arguments += ["--cache-sharing", "recorded"]  # a salt would make every prompt longer
        result = agentbench("replay", captured.path, *arguments, cwd=empty)
    assert result.returncode == 1, result.stdout + result.stderr
    assert "3 requests failed" in result.stderr
    assert "! failed requests: 3 of 5 requests failed (3 x http 400)" in result.stdout
    requests = package.Run.open(empty / "out").requests().to_polars()
    assert sorted(requests["status"]) == ["failed", "failed", "failed", "ok", "ok"]
    assert set(requests.filter(status="failed")["http_status"]) == {400}


def refusing(captured: Captured, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A replay of five requests on an engine whose context is too short for three of them."""
    port = free_port()
    with started("engine", "--port", str(port), "--speed", "instant", "--max-model-len", "120") as engine:
        wait_up(f"http://127.0.0.1:{port}/health", engine)
        verb, *options = arguments
        url = f"http://127.0.0.1:{port}"
        as_recorded = ["--cache-sharing", "recorded"]  # a salt would make every prompt longer
        return agentbench(verb, captured.path, "--url", url, "--out", "out", *as_recorded, *options, cwd=Path.cwd())


@pytest.mark.parametrize(
    ("options", "exit_code", "said"),
    [
        (["--on-error", "continue", "--max-error-rate", "60"], 0, ""),
        (["--on-error", "continue", "--max-error-rate", "59"], 1, "3 of 5 requests failed, more than 59 %"),
        (["--on-error", "abort"], 1, "the run ended early at its first failed request"),
        (["--on-error", "continue", "--max-error-rate", "10", "--trajectories", "60"], 1, "the run ended early: "),
    ],
)
def test_replay_is_held_to_its_own_condition(
    options: list[str], exit_code: int, said: str, captured: Captured, empty: Path
) -> None:
    result = refusing(captured, "replay", "--agents", "1", *options)
    assert result.returncode == exit_code, result.stdout + result.stderr
    assert said in result.stderr
    summary = package.Run.open(empty / "out").summary()
    assert summary is not None
    assert summary["requests"]["failed"] > 0
    early = summary["settings"]["ended_by"] in {"failed_request", "error_rate"}
    assert early == ("early" in said)
    assert any(note.startswith("ended early") for note in summary["notes"]) == early
    assert ("ended early" in result.stdout) == early


def test_a_failed_request_ends_a_capacity_search_where_that_is_asked_for(captured: Captured, empty: Path) -> None:
    result = refusing(captured, "capacity", "--slo", "e2e.p50<=100s", "--on-error", "abort")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "ended early: a request failed" in result.stderr
    run = package.Run.open(empty / "out")
    summary = run.summary()
    assert summary is not None
    assert summary["settings"]["ended_by"] == "failed_request"
    assert summary["capacity"]["max_agents"] is None
    assert len(run.levels()) == 0
    assert "failed" in set(run.requests().to_polars()["status"])


def test_a_level_with_too_many_failures_fails(captured: Captured, empty: Path) -> None:
    """Its service level, on the median, would hold."""
    minimum = ["--min-requests-per-agent", "5", "--min-steady", "1s"]
    options = ["--slo", "e2e.p1<=100s", "--on-error", "continue", "--max-error-rate", "10", *minimum]
    result = refusing(captured, "capacity", *options)
    assert result.returncode == 1, result.stdout + result.stderr
    run = package.Run.open(empty / "out")
    levels = run.levels().to_polars()
    assert set(levels["verdict"]) == {"fail"}
    reason = "ended early: more than 10 % of the requests failed; what was on its way was cut off"
    assert set(levels["reason"]) == {reason}
    summary = run.summary()
    assert summary is not None
    assert (summary["capacity"]["max_agents"], summary["capacity"]["saturated"]) == (0, True)
    assert summary["capacity"]["binding_condition"] == reason


def test_capture_with_a_command(engine: package.SimulatedEngine, empty: Path) -> None:
    arguments = ["--upstream", engine.url, "--listen", "127.0.0.1:0", "--out", "out"]
    result = agentbench("capture", *arguments, "--", sys.executable, "-c", CLIENT, "3", cwd=empty)
    assert result.returncode == 0, result.stderr
    assert "exit status 3" in result.stderr
    assert "run directory: out" in result.stdout
    turns = package.Run.open(empty / "out").turns().to_polars()
    assert sorted(turns["api"]) == ["chat", "messages"]
    assert f"{turns['isl'].sum():,}" in result.stdout


def test_capture_until_ctrl_c(engine: package.SimulatedEngine, empty: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    arguments = ["--upstream", engine.url, "--listen", url.removeprefix("http://"), "--out", "out"]
    with started("capture", *arguments, cwd=empty) as process:
        wait_up(f"{url}/health", process)
        converse(url, 2)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert "tool time" in out
    assert "Traceback" not in err
    assert len(package.Run.open(empty / "out").turns()) == 2


def test_capture_that_saw_nothing(engine: package.SimulatedEngine, empty: Path) -> None:
    arguments = ["--upstream", engine.url, "--listen", "127.0.0.1:0", "--out", "out"]
    result = agentbench("capture", *arguments, "--", sys.executable, "-c", "", cwd=empty)
    assert result.returncode == 1
    assert "nothing was captured: no request came" in result.stderr
    assert package.Run.open(empty / "out").manifest["complete"] is True


def test_ctrl_c_ends_a_captures_command(engine: package.SimulatedEngine, empty: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    arguments = ["--upstream", engine.url, "--listen", url.removeprefix("http://"), "--out", "out"]
    child = "import os, time, pathlib; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(600)"
    with started("capture", *arguments, "--", sys.executable, "-c", child, cwd=empty) as process:
        wait_up(f"{url}/health", process)
        converse(url, 1)
        while not (empty / "pid").exists() or not (empty / "pid").read_text():
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 130, err
    assert "interrupted; what came until then is in out" in err
    with pytest.raises(ProcessLookupError):
        os.kill(int((empty / "pid").read_text()), 0)
    assert len(package.Run.open(empty / "out").turns()) == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_replay_writes_what_there_is(empty: Path, number: signal.Signals) -> None:
    with started("replay", "--speed", "laptop", "--agents", "2", "--out", "out", cwd=empty) as process:
        while not (empty / "out" / "manifest.json").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted; partial results are in out" in err
    assert "SIMULATED engine" in out
    run = package.Run.open(empty / "out")
    assert run.manifest["complete"] is True
    assert run.summary() is not None


def rows_on_disk(table: str, out: Path) -> int:
    """Whole rows in a journal."""
    journal = out / f"{table}.journal.jsonl"
    return journal.read_bytes().count(b"\n") if journal.exists() else 0


def test_kill_9_leaves_a_replay_that_opens_with_its_rows(empty: Path) -> None:
    with started("replay", "--speed", "laptop", "--agents", "2", "--out", "out", cwd=empty) as process:
        while rows_on_disk("requests", empty / "out") < 4:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        on_disk = rows_on_disk("requests", empty / "out")
        process.kill()
        process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    run = package.Run.open(empty / "out")
    assert (run.manifest["complete"], run.manifest["partial"]) == (False, True)
    assert run.manifest["kind"] == "replay"
    requests = run.requests().to_pandas()
    assert len(requests) >= on_disk
    assert set(requests["status"]) == {"ok"}
    assert (requests["attempts"] == 1).all()
    assert all(
        log[0]["end_ms"] == e2e_ms for log, e2e_ms in zip(requests["attempt_log"], requests["e2e_ms"], strict=True)
    )
    assert len(run.engine_samples()) > 0
    assert run.manifest["settings"]["replay"]["agents"] == 2


def test_an_interrupted_capacity_search_writes_what_there_is(empty: Path) -> None:
    arguments = ["--speed", "laptop", "--slo", "e2e.p50<=1000s", "--out", "out"]
    with started("capacity", *arguments, cwd=empty) as process:
        while rows_on_disk("requests", empty / "out") < 4:
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "Traceback" not in err
    assert "interrupted; partial results are in out" in err
    assert "the search was interrupted" in out
    run = package.Run.open(empty / "out")
    assert (run.manifest["complete"], run.manifest["kind"]) == (True, "capacity")
    requests = run.requests().to_polars()
    assert len(requests) >= 4
    assert set(requests["level"]) == {0}
    summary = run.summary()
    assert summary is not None
    assert summary["capacity"]["max_agents"] is None
    assert summary["capacity"]["settings"]["interrupted"] is True
    assert summary["settings"]["ended_by"] == "shutdown"


def test_kill_9_loses_no_turn_that_ended_a_second_before(empty: Path) -> None:
    """The real signal to a real capture, with an engine in another process."""
    engine_port, proxy = free_port(), f"http://127.0.0.1:{free_port()}"
    engine_url = f"http://127.0.0.1:{engine_port}"
    with started("engine", "--port", str(engine_port), "--speed", "instant") as engine:
        wait_up(f"{engine_url}/health", engine)
        arguments = ["--upstream", engine_url, "--listen", proxy.removeprefix("http://"), "--out", "out"]
        with started("capture", *arguments, cwd=empty) as process:
            wait_up(f"{proxy}/health", process)
            before = converse(proxy, 5)
            time.sleep(1.1)
            converse(proxy, 1, session="two")
            process.kill()
            process.communicate(timeout=30)
        assert process.returncode == -signal.SIGKILL
    run = package.Run.open(empty / "out")
    assert run.manifest["complete"] is False
    assert run.manifest["partial"] is True
    turns = run.turns().to_polars().filter(session_id="one").sort("turn")
    assert [run.request_body(request_id) for request_id in turns["request_id"]] == before
    assert set(turns["outcome"]) == {"ok"}
    assert len(run.engine_samples()) > 0
    # What was recovered can be worked with like any other run.
    replayed = agentbench("replay", "out", "--speed", "instant", "--out", "again", cwd=empty)
    assert replayed.returncode == 0, replayed.stderr


def test_engine_serves_until_ctrl_c(tmp_path: Path) -> None:
    port = free_port()
    with started("engine", "--port", str(port), "--model", "mine", cwd=tmp_path) as process:
        wait_up(f"http://127.0.0.1:{port}/health", process)
        models = json.loads(send(f"http://127.0.0.1:{port}/v1/models").body)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
    assert process.returncode == 0, err
    assert [model["id"] for model in models["data"]] == ["mine"]
    assert f"SIMULATED engine (gpu-8b) at http://127.0.0.1:{port}" in err


def test_synthesize_then_export(empty: Path) -> None:
    made = agentbench("synthesize", "--out", "trace", "--profile", "small", "--sessions", "2", "--seed", "3", cwd=empty)
    assert made.returncode == 0, made.stderr
    assert "synthetic: 2 sessions" in made.stdout
    exported = agentbench("export", "trace", "--format", "jsonl", "--out", "jsonl", "--no-prompts", cwd=empty)
    assert exported.returncode == 0, exported.stderr
    assert len(list((empty / "jsonl" / "runs").iterdir())) == 2


def test_made_up_rows_of_another_format_say_that_they_are(empty: Path) -> None:
    wanted = ["--format", "tracelab", "--rounds", "300", "--profile", "small"]
    made = agentbench("synthesize", "--out", "rows/rounds.jsonl.gz", *wanted, cwd=empty)
    assert made.returncode == 0, made.stderr
    assert "synthetic: 300 rounds of " in made.stdout
    assert "agentbench import rows/rounds.jsonl.gz --out results/rounds" in made.stdout
    imported = agentbench("import", "rows/rounds.jsonl.gz", "--out", "results/rounds", cwd=empty)
    assert imported.returncode == 0, imported.stderr
    assert "300 turns are synthetic" in imported.stderr
    run = package.Run.open(empty / "results/rounds")
    assert run.manifest["synthetic"] is True
    assert len(run.turns()) == 300
    asked = agentbench("analyze", "results/rounds", "--question", "overview", cwd=empty)
    assert "rounds is synthetic: made up after published statistics" in asked.stdout
    again = agentbench("synthesize", "--out", "rows/rounds.jsonl.gz", *wanted, cwd=empty)
    assert again.returncode == 2
    assert "is there already" in again.stderr


def test_an_interrupted_synthesis_keeps_the_sessions_made(empty: Path) -> None:
    with started("synthesize", "--profile", "small", "--sessions", "100000", "--out", "out", cwd=empty) as process:
        while not (empty / "out" / "manifest.json").exists():
            assert process.poll() is None, process.communicate()
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert "interrupted; the sessions made until then are in out" in err
    run = package.Run.open(empty / "out")
    assert run.manifest["complete"] is True
    assert 0 < run.manifest["counts"]["sessions"] < 100_000


def test_doctor_tells_what_is_missing_and_how_to_get_it(empty: Path) -> None:
    result = agentbench("doctor", cwd=empty)
    assert result.returncode == 0, result.stderr
    for subject in (
        "agentbench",
        "engine",
        "claude-code",
        "codex",
        "opencode",
        "mini-swe-agent",
        "bubblewrap",
        "NVML",
        "disk",
        "polars",
    ):
        assert subject in result.stdout
    assert "agentbench doctor --url" in result.stdout


def test_doctor_looks_at_an_engine(engine: package.SimulatedEngine) -> None:
    result = agentbench("doctor", "--url", engine.url)
    assert result.returncode == 0, result.stdout
    assert "agentbench-simulated" in result.stdout
    assert "SIMULATED" in result.stdout
    assert "metrics page" in result.stdout


def test_doctor_exits_with_1_when_the_engine_is_not_there() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    result = agentbench("doctor", "--url", url)
    assert result.returncode == 1
    assert url in result.stdout


def test_brackets_in_names_are_shown_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table()
    table.add_column("session")
    table.add_row("[/red] [bold]x :smile:")
    results().print(table)
    assert "[/red] [bold]x :smile:" in capsys.readouterr().out


def test_an_open_address_needs_a_token(engine: package.SimulatedEngine, empty: Path) -> None:
    arguments = ["--upstream", engine.url, "--listen", "0.0.0.0:0", "--out", "out"]
    refused = agentbench("capture", *arguments, "--", sys.executable, "-c", "", cwd=empty)
    assert refused.returncode == 2
    assert "0.0.0.0:0 can be reached from other machines" in refused.stderr
    assert "give a token" in refused.stderr
    assert not (empty / "out").exists()
    program = (
        "import os, urllib.request as r\n"
        "url = os.environ['ANTHROPIC_BASE_URL'] + '/v1/models'\n"
        "key = os.environ['ANTHROPIC_API_KEY']\n"
        "print(r.urlopen(r.Request(url, headers={'x-api-key': key})).status)\n"
    )
    ran = agentbench("capture", *arguments, "--token", "s3cret-1", "--", sys.executable, "-c", program, cwd=empty)
    assert "200" in ran.stdout, ran.stdout + ran.stderr
    assert "s3cret-1" not in (empty / "out/manifest.json").read_text()
