"""The README's path for a collector, followed word for word with the real Claude Code against the real vLLM."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from real_parts import Engine, binary
from tests.python.readme_blocks import ENGINE, commands

import agentbench

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.timeout(900)


def test_the_collectors_path(vllm: Engine, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environment = {
        "PATH": f"{binary('claude-code').parent}:{os.environ['PATH']}",
        "HOME": str(home),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "ANTHROPIC_API_KEY": "sk-dummy",
        # As few tokens as the tiny model's window needs, and nothing asked of other hosts.
        "CLAUDE_CODE_MAX_OUTPUT_TOKENS": "128",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        # Any free port, in the place of 8001.
        "AGENTBENCH_CAPTURE_LISTEN": "127.0.0.1:0",
    }
    lines = commands("## The collector")
    assert [line.split()[1] for line in lines] == ["capture", "report", "replay"]
    for line in lines:
        words = shlex.split(line.replace(ENGINE, vllm.url).removeprefix("agentbench "))
        run = subprocess.run(
            [sys.executable, "-m", "agentbench", *words],
            cwd=tmp_path,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert run.returncode == 0, f"{line}\n{run.stdout}\n{run.stderr}"
    recorded = agentbench.Run.open(tmp_path / "results/six").turns().to_pandas()
    assert (len(recorded) > 0, set(recorded["outcome"]), set(recorded["kind"]) >= {"main"}) == (True, {"ok"}, True)
