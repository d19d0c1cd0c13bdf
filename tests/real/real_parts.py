"""The real parts that the tests run against: how vLLM and the coding agents are started and read.

`setup.sh` must have filled the folder named by AGENTBENCH_REAL (default: `.real` in the repository).
Everything is on the loopback, keys are dummies, and only processes started here are ended here.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pandas as pd
import pytest

from agentbench import harness

if TYPE_CHECKING:
    from collections.abc import Iterator

    import agentbench as library

SESSIONS = 6
REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = Path(os.environ.get("AGENTBENCH_REAL", REPOSITORY / ".real"))
MODEL_NAME = "tiny"
VLLM_START_SECONDS = 600
BINARIES = {
    "claude-code": ROOT / "agents/node_modules/@anthropic-ai/claude-code-linux-x64/claude",
    "codex": ROOT / "agents/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex",
    "opencode": ROOT / "opencode/node_modules/opencode-linux-x64-baseline/bin/opencode",
    "mini-swe-agent": ROOT / "mini/bin/mini",
}
CLAUDE = BINARIES["claude-code"]
# As much as the model holds: how long a session gets is left to chance, and an agent that comes near its window
# begins to summarise, which this model cannot.
CONTEXT_TOKENS = 131_072
OUTPUT_TOKENS = 128
# Agents start slowly on a busy machine.
SESSION_SECONDS = 600


# No network but the loopback, no keyring, no first-run pages; the sandbox of a browser cannot be had as root.
CHROMIUM_FLAGS = [
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    *(["--no-sandbox"] if os.geteuid() == 0 else []),
]


def chromium() -> Path:
    """The browser that looks at pages."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.fail(f"no chromium; run tests/real/setup.sh {ROOT} first, or on Debian: apt-get install chromium")
    return Path(found)


def free_port() -> int:
    """A loopback port that nobody held a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def get(url: str, timeout: float = 10.0) -> str:
    """The body of a GET, without any system proxy."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=timeout) as response:
        return str(response.read().decode())


@dataclass(frozen=True)
class Counters:
    """vLLM's own counters, summed over engines."""

    requests: int
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int

    def __sub__(self, other: Counters) -> Counters:
        return Counters(
            self.requests - other.requests,
            self.prompt_tokens - other.prompt_tokens,
            self.output_tokens - other.output_tokens,
            self.cached_tokens - other.cached_tokens,
        )


@dataclass(frozen=True)
class Engine:
    """A running vLLM."""

    url: str
    pid: int

    def counters(self) -> Counters:
        """Reads the metrics page with a parser of the test's own, so that ours is checked too."""
        page = get(f"{self.url}/metrics")

        def total(name: str, label: str = "") -> int:
            pattern = rf"^{re.escape(name)}\{{[^}}]*{label}[^}}]*\}} (\S+)$"
            return round(sum(float(value) for value in re.findall(pattern, page, re.MULTILINE)))

        return Counters(
            requests=total("vllm:request_success_total"),
            prompt_tokens=total("vllm:prompt_tokens_total"),
            output_tokens=total("vllm:generation_tokens_total"),
            cached_tokens=total("vllm:prompt_tokens_by_source_total", 'source="local_cache_hit"'),
        )


def asked_by_api(engine: Engine) -> dict[str, int]:
    """Requests that vLLM answered, by path, from its own page."""
    counts: dict[str, int] = {}
    for line in get(f"{engine.url}/metrics").splitlines():
        found = re.match(r"http_requests_total\{(.*)\} (\S+)$", line)
        path = re.search(r'handler="([^"]*)"', found[1]) if found else None
        if found and path:
            counts[path[1]] = counts.get(path[1], 0) + round(float(found[2]))
    return counts


def vllm_command(port: int) -> list[str]:
    """The server as the tests need it: tools parsed, cache figures in the usage."""
    options = {
        "--model": str(ROOT / "model"),
        "--served-model-name": MODEL_NAME,
        "--host": "127.0.0.1",
        "--port": str(port),
        "--max-model-len": str(CONTEXT_TOKENS),
        "--tool-call-parser": "hermes",
    }
    flags = ["--enable-auto-tool-choice", "--enforce-eager", "--enable-prompt-tokens-details"]
    command = [str(ROOT / "vllm/bin/python"), "-m", "vllm.entrypoints.openai.api_server"]
    return command + [part for option in options.items() for part in option] + flags


VLLM_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "2",
}


def wait_healthy(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Returns once the server answers; fails with the end of its log when it ends or takes too long."""
    for _ in range(VLLM_START_SECONDS):
        with contextlib.suppress(urllib.error.URLError, OSError):
            get(f"{url}/health", timeout=2.0)
            return
        if process.poll() is not None:
            break
        time.sleep(1.0)
    pytest.fail(f"vLLM did not come up; the end of its log:\n{log.read_text()[-3000:]}")


def binary(name: str) -> Path:
    """An agent's binary, which the harnesses find by their own variable."""
    path = BINARIES[name]
    if not path.exists():
        pytest.fail(f"no {name} at {path}; run tests/real/setup.sh {ROOT} first")
    os.environ[harness.get(name).variable] = str(path)
    return path


def agent_environment(name: str, home: Path, base_url: str, model: str = MODEL_NAME) -> dict[str, str]:
    """A clean environment for an unattended agent that talks to `base_url` alone."""
    limits = harness.Limits(context_tokens=CONTEXT_TOKENS, output_tokens=OUTPUT_TOKENS)
    return harness.get(name).prepare(home, base_url, model, limits)


def with_own_path(environment: dict[str, str]) -> dict[str, str]:
    """The environment of an agent for a process that needs agentbench, where that is not installed but on a path."""
    return environment | {name: value for name, value in os.environ.items() if name == "PYTHONPATH"}


def start_agent(name: str, folder: Path, base_url: str, task: str, model: str = MODEL_NAME) -> subprocess.Popen[str]:
    """One unattended session in a folder of its own: the work tree in `work`, the scratch HOME in `home`."""
    agent = harness.get(name)
    work, home = folder / "work", folder / "home"
    work.mkdir(parents=True)
    home.mkdir()
    (work / "app.py").write_text("def add(a, b):\n    return a - b\n")
    environment = agent_environment(name, home, base_url, model)
    return subprocess.Popen(
        agent.command(binary(name), task, work, environment=environment, max_turns=None),
        cwd=work,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish_agent(name: str, process: subprocess.Popen[str]) -> str:
    """What a session printed, once it has ended well."""
    out, err = process.communicate(timeout=SESSION_SECONDS)
    ending = harness.get(name).judge(process.returncode, out.encode())
    assert ending.ok, f"{name}: {ending.reason}: {out[-2000:]} {err[-2000:]}"
    return out


def start_claude(folder: Path, base_url: str, task: str, model: str = MODEL_NAME) -> subprocess.Popen[str]:
    """One unattended session of Claude Code."""
    return start_agent("claude-code", folder, base_url, task, model)


def start_codex(folder: Path, base_url: str, task: str) -> subprocess.Popen[str]:
    """One unattended session of Codex."""
    return start_agent("codex", folder, base_url, task)


def agentbench(*arguments: str, timeout: float = 300.0) -> subprocess.CompletedProcess[str]:
    """Runs the command line as a user would."""
    return subprocess.run(
        [sys.executable, "-m", "agentbench", *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def wait_for_proxy(url: str, process: subprocess.Popen[str]) -> None:
    """Returns once requests pass through the proxy to the engine."""
    for _ in range(100):
        with contextlib.suppress(urllib.error.URLError, OSError):
            get(f"{url}/health", timeout=2.0)
            return
        if process.poll() is not None:
            break
        time.sleep(0.1)
    process.kill()
    pytest.fail(f"the capture did not come up: {process.communicate()}")


def settled(engine: Engine) -> Counters:
    """The counters once nothing runs any more: two equal readings a moment apart."""
    before = engine.counters()
    for _ in range(100):
        time.sleep(0.3)
        now = engine.counters()
        if now == before:
            return now
        before = now
    pytest.fail("vLLM's counters did not come to rest")


@dataclass
class Capturing:
    """A capture in front of an engine; what it came to is known once it has ended."""

    proxy: str
    run: Path
    counted: Counters = Counters(0, 0, 0, 0)
    output: str = ""


@contextlib.contextmanager
def capturing(engine: Engine, out: Path, *options: str) -> Iterator[Capturing]:
    """`agentbench capture` between agents and an engine, ended with Ctrl-C where the block ends.

    The run lies at `out`. A block that fails ends the capture all the same.
    """
    capture = Capturing(f"http://127.0.0.1:{free_port()}", out)
    before = settled(engine)
    command = [sys.executable, "-m", "agentbench", "capture", "--upstream", engine.url]
    process = subprocess.Popen(
        [*command, "--listen", capture.proxy.removeprefix("http://"), "--out", str(out), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        wait_for_proxy(capture.proxy, process)
        yield capture
        capture.counted = settled(engine) - before
        process.send_signal(signal.SIGINT)
        capture.output, _ = process.communicate(timeout=60)
        assert process.returncode == 0, capture.output
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()


def frame(run: library.Run, table: str) -> pd.DataFrame:
    """A table of a run in pandas."""
    result = getattr(run, table)().to_pandas()
    assert isinstance(result, pd.DataFrame)
    return result


def totals(turns: pd.DataFrame) -> Counters:
    """Our tables' figures in the form of the engine's counters."""
    return Counters(
        requests=len(turns),
        prompt_tokens=int(turns["isl"].sum()),
        output_tokens=int(turns["osl"].sum()),
        cached_tokens=int(turns["isl_cached"].sum()),
    )


@dataclass(frozen=True)
class Capture:
    """A finished capture and what vLLM counted meanwhile."""

    run: Path
    counted: Counters
    transcripts: list[list[dict[str, object]]]
    output: str
