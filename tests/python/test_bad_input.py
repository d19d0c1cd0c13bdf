"""Bad input and faults: one line that names the place, exit code 2, nothing half-written."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from tests.python.traffic import agentbench, free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.python.conftest import Captured

    import agentbench as package


def check(cwd: Path, arguments: list[str | Path], *said: str) -> None:
    """Runs a command that must be refused."""
    before = sorted(path for path in cwd.rglob("*"))
    result = agentbench(*arguments, cwd=cwd)
    assert result.returncode == 2, result.stdout + result.stderr
    lines = [line for line in result.stderr.splitlines() if not line.startswith("SIMULATED engine")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("error: ")
    assert result.stdout == ""
    for text in said:
        assert text in lines[0]
    assert sorted(path for path in cwd.rglob("*")) == before


@pytest.fixture
def html_page() -> Iterator[str]:
    """A server that answers everything with a page for people."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:  # the name is http.server's
            body = b"<!doctype html><html><body>Welcome</body></html>"
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_no_such_run(empty: Path) -> None:
    check(empty, ["replay", "nowhere"], "nowhere")
    check(empty, ["export", "nowhere", "--format", "jsonl", "--out", "x"], "nowhere")


def test_a_folder_that_is_no_run(empty: Path) -> None:
    (empty / "folder").mkdir()
    check(empty, ["replay", "folder"], "folder")


def test_a_run_of_a_newer_format(captured: Captured, empty: Path) -> None:
    shutil.copytree(captured.path, empty / "run")
    manifest = json.loads((empty / "run" / "manifest.json").read_text())
    (empty / "run" / "manifest.json").write_text(json.dumps(manifest | {"format_version": 99}))
    check(empty, ["replay", "run"], "run", "99")


def test_a_manifest_that_is_no_json(captured: Captured, empty: Path) -> None:
    shutil.copytree(captured.path, empty / "run")
    (empty / "run" / "manifest.json").write_text("{")
    check(empty, ["replay", "run"], "manifest.json")


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_truncated_parquet(captured: Captured, empty: Path, share: float) -> None:
    shutil.copytree(captured.path, empty / "run")
    table = empty / "run" / "turn_traces.parquet"
    os.truncate(table, int(table.stat().st_size * share))
    check(empty, ["replay", "run", "--out", "out"], "turn_traces.parquet")


def test_an_empty_trace(engine: package.SimulatedEngine, empty: Path) -> None:
    arguments = ["--upstream", engine.url, "--listen", "127.0.0.1:0", "--out", "run"]
    agentbench("capture", *arguments, "--", "true", cwd=empty)
    check(empty, ["replay", "run", "--out", "out"], "run")


def test_an_engine_that_is_not_there(captured: Captured, empty: Path) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    check(empty, ["replay", captured.path, "--url", url, "--out", "out"], url)
    check(empty, ["capture", "--upstream", url, "--out", "out"], url)


def test_an_engine_that_is_no_engine(captured: Captured, empty: Path, html_page: str) -> None:
    check(empty, ["replay", captured.path, "--url", html_page, "--out", "out"], html_page)


def test_a_model_that_is_not_served(engine: package.SimulatedEngine, captured: Captured, empty: Path) -> None:
    arguments: list[str | Path] = ["replay", captured.path, "--url", engine.url, "--model", "other", "--out", "out"]
    check(empty, arguments, engine.url, "does not serve the model `other`", "it serves agentbench-sim")


def test_a_metrics_page_that_is_html(
    engine: package.SimulatedEngine, captured: Captured, empty: Path, html_page: str
) -> None:
    page = f"{html_page}/metrics"
    check(empty, ["capture", "--upstream", engine.url, "--metrics-url", page, "--out", "out"], page)
    arguments: list[str | Path] = ["replay", captured.path, "--url", engine.url, "--metrics-url", page, "--out", "out"]
    check(empty, arguments, page)


def test_a_port_in_use(engine: package.SimulatedEngine, empty: Path) -> None:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        listen = f"127.0.0.1:{port}"
        check(empty, ["capture", "--upstream", engine.url, "--listen", listen, "--out", "out"], listen)
        check(empty, ["engine", "--port", str(port)], listen)


def test_an_output_directory_that_is_not_empty(
    engine: package.SimulatedEngine, captured: Captured, empty: Path
) -> None:
    (empty / "out").mkdir()
    (empty / "out" / "mine.txt").write_text("keep")
    check(empty, ["capture", "--upstream", engine.url, "--listen", "127.0.0.1:0", "--out", "out"], "out")
    check(empty, ["replay", captured.path, "--url", engine.url, "--out", "out"], "out")
    check(empty, ["synthesize", "--out", "out"], "out")
    check(empty, ["export", captured.path, "--format", "jsonl", "--out", "out"], "out")
    assert (empty / "out" / "mine.txt").read_text() == "keep"


def test_an_output_directory_that_cannot_be_made(captured: Captured, empty: Path) -> None:
    (empty / "file").write_text("")
    check(empty, ["synthesize", "--out", "file/out"], "file")
    check(empty, ["export", captured.path, "--format", "jsonl", "--out", "file/out"], "file")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["capture"], "--upstream"),
        (["capture", "--upstream", "localhost:8000"], "localhost:8000"),
        (["capture", "--upstream", "http://127.0.0.1:1", "--listen", "here"], "here"),
        (["capture", "--upstream", "http://127.0.0.1:1", "--poll-interval", "fast"], "fast"),
        (["capture", "--upstream", "http://127.0.0.1:1", "--poll-interval", "0s"], "0s"),
        (["replay", "--agents", "0"], "agents"),
        (["replay", "--duration", "60"], "60"),
        (["replay", "--url", "nowhere"], "nowhere"),
        (["replay", "--api", "telepathy"], "telepathy"),
        (["replay", "--speed", "ludicrous"], "ludicrous"),
        (["replay", "--no-such-flag"], "--no-such-flag"),
        (["engine", "--port", "99999"], "99999"),
        (["engine", "--host", "nowhere", "--port", "0"], "nowhere"),
        (["engine", "--port", "0", "--script", "missing.jsonl"], "missing.jsonl"),
        (["engine", "--port", "0", "--tokenizer", "missing.json"], "missing.json"),
        (["synthesize", "--out", "x", "--sessions", "0"], "sessions"),
        (["synthesize", "--out", "x", "--rounds", "5"], "--rounds is for --format tracelab"),
        (["synthesize", "--out", "x", "--format", "tracelab"], "needs --rounds"),
        (["synthesize", "--out", "x", "--format", "tracelab", "--rounds", "5", "--sessions", "2"], "--sessions is for"),
        (["export", "x", "--format", "excel", "--out", "y"], "excel"),
        (["nonsense"], "nonsense"),
    ],
)
def test_arguments_that_are_wrong(empty: Path, arguments: list[str | Path], said: str) -> None:
    check(empty, arguments, said)


def test_a_command_that_is_not_there(engine: package.SimulatedEngine, empty: Path) -> None:
    arguments = ["--upstream", engine.url, "--listen", "127.0.0.1:0", "--out", "out"]
    result = agentbench("capture", *arguments, "--", "no-such-agent", cwd=empty)
    assert result.returncode == 2
    assert "error: cannot run 'no-such-agent'" in result.stderr


FULL_DISK = """
mount -t tmpfs -o size=64k tmpfs disk
dd if=/dev/zero of=disk/filler bs=4k 2>/dev/null
"$@"
code=$?
ls disk
exit $code
"""


@pytest.mark.parametrize("verb", ["synthesize", "replay", "capture"])
def test_no_disk_space(engine: package.SimulatedEngine, captured: Captured, empty: Path, verb: str) -> None:
    """A real file system that is full, in a mount namespace of its own."""
    (empty / "disk").mkdir()
    arguments: dict[str, list[str]] = {
        "synthesize": ["synthesize", "--profile", "small"],
        "replay": ["replay", str(captured.path), "--url", engine.url],
        "capture": ["capture", "--upstream", engine.url, "--listen", "127.0.0.1:0"],
    }
    command = [
        sys.executable,
        "-W",
        "ignore::RuntimeWarning",
        "-m",
        "agentbench",
        *arguments[verb],
        "--out",
        "disk/run",
    ]
    result = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", FULL_DISK, "sh", *command],
        cwd=empty,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2, result.stderr
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert "disk/run" in result.stderr
    assert "No space left" in result.stderr
    assert result.stdout.split() == ["filler"]
