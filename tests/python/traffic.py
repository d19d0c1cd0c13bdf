"""What the tests send and start: requests by urllib alone, and the command line as a user would run it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
UP_SECONDS = 20.0


@dataclass(frozen=True)
class Answer:
    """A response as it came."""

    status: int
    headers: dict[str, str]
    body: bytes


def send(url: str, body: bytes | None = None, headers: dict[str, str] | None = None) -> Answer:
    """GET without a body, POST with one; statuses of 400 and above are answers too."""
    request = urllib.request.Request(url, data=body, headers={"content-type": "application/json"} | (headers or {}))
    try:
        with OPENER.open(request, timeout=30) as response:
            return Answer(response.status, dict(response.headers), response.read())
    except urllib.error.HTTPError as error:
        with error:
            return Answer(error.code, dict(error.headers), error.read())


def messages_body(texts: list[str], *, stream: bool = True, max_tokens: int = 16) -> dict[str, Any]:
    """An Anthropic Messages request whose texts are user and assistant in turn."""
    roles = ["user", "assistant"]
    return {
        "model": "agentbench-sim",
        "max_tokens": max_tokens,
        "stream": stream,
        "system": [{"type": "text", "text": "You are a careful coding agent. " * 8}],
        "tools": [{"name": "bash", "description": "Runs a command", "input_schema": {"type": "object"}}],
        "messages": [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)],
    }


def chat_body(texts: list[str], *, stream: bool = True, max_tokens: int = 16) -> dict[str, Any]:
    """A chat completions request whose texts are user and assistant in turn."""
    roles = ["user", "assistant"]
    messages = [{"role": roles[index % 2], "content": text} for index, text in enumerate(texts)]
    body: dict[str, Any] = {"model": "agentbench-sim", "max_tokens": max_tokens, "stream": stream, "messages": messages}
    return body | ({"stream_options": {"include_usage": True}} if stream else {})


def encoded(body: dict[str, Any]) -> bytes:
    """A body as the bytes that go out: spaced as no serialiser of ours would."""
    return json.dumps(body, separators=(" ,", ": ")).encode()


def converse(url: str, turns: int, *, session: str = "one") -> list[bytes]:
    """One session of so many turns on Messages; returns the bodies that were sent."""
    texts = [f"fix app.py, session {session}"]
    bodies = []
    for turn in range(turns):
        body = encoded(messages_body(texts))
        answer = send(f"{url}/s/{session}/v1/messages", body)
        assert answer.status == 200, answer.body
        bodies.append(body)
        texts += [f"looking at it, step {turn}", f"go on, step {turn}"]
    return bodies


def free_port() -> int:
    """A loopback port that nobody held a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def agentbench(
    *arguments: str | Path, cwd: Path | None = None, timeout: float = 90
) -> subprocess.CompletedProcess[str]:
    """Runs the command line to its end."""
    return subprocess.run(
        [sys.executable, "-W", "ignore::RuntimeWarning", "-m", "agentbench", *map(str, arguments)],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=timeout,
        check=False,
        env=os.environ | {"NO_COLOR": "1"},
    )


@contextlib.contextmanager
def started(*arguments: str | Path, cwd: Path | None = None) -> Iterator[subprocess.Popen[str]]:
    """Starts the command line and makes sure that it is gone at the end."""
    process = subprocess.Popen(
        [sys.executable, "-W", "ignore::RuntimeWarning", "-m", "agentbench", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env=os.environ | {"NO_COLOR": "1"},
    )
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def wait_up(url: str, process: subprocess.Popen[str]) -> None:
    """Returns once something answers at `url`, which `process` is to bring up."""
    for _ in range(round(UP_SECONDS / 0.05)):
        with contextlib.suppress(OSError):
            send(url)
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    pytest.fail(f"nothing came up at {url}: {process.communicate()}")
