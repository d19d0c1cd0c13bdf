"""The README's paths, followed word for word: what stands in its ```bash and ```python blocks runs, in its order.

The engine at port 8000 is the embedded one, at whatever port is free; what a reader would have at hand already (a
recording of their own) is made up before. The collector's path needs a real agent and is followed in `tests/real`.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.python.readme_blocks import ENGINE, README, REPOSITORY, blocks, commands

if TYPE_CHECKING:
    from pathlib import Path

    import agentbench

# The embedded engine solves no task, and the command says so by its exit code.
FAILS_ON_THE_EMBEDDED_ENGINE = {"agent": "none of 4 checked tasks was completed"}


def ran(arguments: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    """What Python did in a folder, with the packages of this one."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )


def follow(command: str, folder: Path, url: str) -> None:
    """Run a line as a reader would, in a folder of its own."""
    verb, *rest = shlex.split(command.replace(ENGINE, url).removeprefix("agentbench "))
    run = ran(["-m", "agentbench", verb, *rest], folder)
    if words := FAILS_ON_THE_EMBEDDED_ENGINE.get(verb):
        assert (run.returncode, words in run.stderr) == (1, True), run.stderr
    else:
        assert run.returncode == 0, f"{command}\n{run.stdout}\n{run.stderr}"


@pytest.mark.timeout(400)
def test_the_serving_engineers_path(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    lines = commands("## The serving engineer")
    verbs = [line.split()[1] for line in lines]
    assert verbs == ["doctor", "replay", "capacity", "report", "replay", "compare", "history", "load", "agent"]
    for line in lines:
        follow(line, tmp_path, engine.url)
    results = tmp_path / "results"
    written = ["eight/report.md", "most/report.html", "compare.html", "chat/load.md", "live/summary.json"]
    assert [name for name in written if not (results / name).exists()] == []


@pytest.mark.timeout(400)
def test_the_researchers_path(engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    # In the place of logs of one's own and a published data set.
    for name in ("mine", "tracelab"):
        follow(f"agentbench synthesize --sessions 3 --profile small --out results/{name}", tmp_path, engine.url)
    lines = commands("## The trace researcher")
    assert [line.split()[1] for line in lines] == ["analyze", "analyze", "push"]
    for line in lines:
        follow(line, tmp_path, engine.url)
    assert (tmp_path / "figures").is_dir()
    assert (tmp_path / "to-publish/README.md").exists()
    scripts = blocks("## The trace researcher", "python")
    assert len(scripts) == 3
    for script in scripts:
        run = ran(["-c", script], tmp_path)
        assert run.returncode == 0, f"{script}\n{run.stderr}"


def test_every_page_and_picture_that_the_readme_names_is_there() -> None:
    targets = re.findall(r"\]\(([^)#]+?)(?:#[^)]*)?\)", README)
    local = [target for target in targets if not target.startswith("http")]
    assert len(local) > 20
    assert [target for target in local if not (REPOSITORY / target).exists()] == []
    headings = {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", README, re.MULTILINE)
    }
    assert [name for name in re.findall(r"\]\(#([^)]*)\)", README) if name not in headings] == []
