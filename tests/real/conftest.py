"""Fixtures of the tests against real parts: one vLLM for the whole run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import sync_playwright
from real_parts import (
    CHROMIUM_FLAGS,
    ROOT,
    SESSIONS,
    VLLM_ENVIRONMENT,
    Capture,
    Engine,
    capturing,
    chromium,
    finish_agent,
    free_port,
    start_claude,
    vllm_command,
    wait_healthy,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from playwright.sync_api import Browser

# A test run in the background of a shell inherits an ignored SIGINT and would pass it on to the captures
# that the tests end with Ctrl-C; a handler of our own is reset to the default in every child.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """One vLLM for the whole run: it takes more than a minute to start."""
    given = os.environ.get("AGENTBENCH_REAL_VLLM_URL")
    if given:
        yield Engine(given.rstrip("/"), 0)
        return
    if not (ROOT / "vllm/bin/python").exists():
        pytest.fail(f"no vLLM in {ROOT}; run tests/real/setup.sh {ROOT} first")
    port = free_port()
    log = tmp_path_factory.mktemp("vllm") / "server.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(
            vllm_command(port),
            env={"PATH": os.environ["PATH"], "HOME": str(log.parent), **VLLM_ENVIRONMENT},
            stdout=sink,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    engine = Engine(f"http://127.0.0.1:{port}", process.pid)
    try:
        wait_healthy(engine.url, process, log)
        yield engine
    finally:
        # vLLM has children of its own: the whole group that was started here is ended.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(timeout=30)


@pytest.fixture(scope="session")
def capture(vllm: Engine, tmp_path_factory: pytest.TempPathFactory) -> Capture:
    """Six sessions at once through `agentbench capture`."""
    folder = tmp_path_factory.mktemp("capture")
    with capturing(vllm, folder / "run") as recording:
        proxy = recording.proxy
        agents = [start_claude(folder / f"session-{k}", proxy, f"fix app.py, task {k}") for k in range(SESSIONS)]
        transcripts = []
        for agent in agents:
            out = finish_agent("claude-code", agent)
            transcripts.append([json.loads(line) for line in out.splitlines() if line.startswith("{")])
    return Capture(recording.run, recording.counted, transcripts, recording.output)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium; Playwright's own is never fetched."""
    with sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=str(chromium()), args=CHROMIUM_FLAGS)
        yield started
        started.close()
