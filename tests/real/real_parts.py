"""The real parts that the tests run against: how vLLM and Claude Code are started and read.

`setup.sh` must have filled the folder named by AGENTBENCH_REAL (default: `.real` in the repository).
Everything is on the loopback, keys are dummies, and only processes started here are ended here.
"""

from __future__ import annotations

import contextlib
import os
import re
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

if TYPE_CHECKING:
    from collections.abc import Iterator

    import agentbench as library

SESSIONS = 6
REPOSITORY = Path(__file__).resolve().parents[2]
ROOT = Path(os.environ.get("AGENTBENCH_REAL", REPOSITORY / ".real"))
MODEL_NAME = "tiny"
VLLM_START_SECONDS = 600
CLAUDE = ROOT / "agents/node_modules/@anthropic-ai/claude-code-linux-x64/claude"
CODEX = ROOT / "agents/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl/bin/codex"


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


def vllm_command(port: int) -> list[str]:
    """The server as the tests need it: tools parsed, cache figures in the usage."""
    options = {
        "--model": str(ROOT / "model"),
        "--served-model-name": MODEL_NAME,
        "--host": "127.0.0.1",
        "--port": str(port),
        "--max-model-len": "40960",
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


def claude_environment(home: Path, base_url: str, model: str = MODEL_NAME) -> dict[str, str]:
    """A clean environment for an unattended Claude Code that talks to `base_url` alone."""
    return {
        "PATH": os.environ["PATH"],
        "HOME": str(home),
        "IS_SANDBOX": "1",
        "ANTHROPIC_BASE_URL": base_url,
        "ANTHROPIC_API_KEY": "sk-dummy-for-tests",
        "ANTHROPIC_MODEL": model,
        "ANTHROPIC_SMALL_FAST_MODEL": model,
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "128",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_TELEMETRY": "1",
        "DISABLE_ERROR_REPORTING": "1",
        "DISABLE_AUTOUPDATER": "1",
    }


def start_claude(folder: Path, base_url: str, task: str, model: str = MODEL_NAME) -> subprocess.Popen[str]:
    """One unattended session in a folder of its own."""
    if not CLAUDE.exists():
        pytest.fail(f"no Claude Code at {CLAUDE}; run tests/real/setup.sh {ROOT} first")
    work = folder / "work"
    home = folder / "home"
    work.mkdir(parents=True)
    home.mkdir()
    (work / "app.py").write_text(f"# {folder.name}\n" + "def add(a, b):\n    return a - b\n" * 5)
    command = [str(CLAUDE), "-p", task, "--output-format", "stream-json", "--verbose", "--dangerously-skip-permissions"]
    return subprocess.Popen(
        command,
        cwd=work,
        env=claude_environment(home, base_url, model),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def start_codex(folder: Path, base_url: str, task: str) -> subprocess.Popen[str]:
    """One unattended session in a folder of its own; its own log lies below `folder / "home"`."""
    if not CODEX.exists():
        pytest.fail(f"no Codex at {CODEX}; run tests/real/setup.sh {ROOT} first")
    work = folder / "work"
    home = folder / "home"
    work.mkdir(parents=True)
    home.mkdir()
    (home / "config.toml").write_text(
        f'model = "{MODEL_NAME}"\nmodel_provider = "proxy"\n'
        'approval_policy = "never"\nsandbox_mode = "danger-full-access"\n'
        '[model_providers.proxy]\nname = "proxy"\nwire_api = "responses"\n'
        f'base_url = "{base_url}/v1"\nenv_key = "DUMMY_KEY"\n'
    )
    (work / "app.py").write_text("def add(a, b):\n    return a - b\n")
    return subprocess.Popen(
        [str(CODEX), "exec", "--skip-git-repo-check", "--json", task],
        cwd=work,
        env={"PATH": os.environ["PATH"], "HOME": str(home), "CODEX_HOME": str(home), "DUMMY_KEY": "sk-dummy"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


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
