"""A collection in earnest: Claude Code on a real vLLM works on three instances, is killed half-way and carried on.

The model only looks at files, so the repository has hooks of Claude Code's own that write a line for every prompt and
every tool it has run: what a patch must hold is known from the recording.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from real_parts import (
    MODEL_NAME,
    Counters,
    Engine,
    binary,
    frame,
    settled,
    totals,
)
from real_parts import (
    agentbench as run_agentbench,
)
from tests.python import collecting

import agentbench
from agentbench._collect import sandbox

if TYPE_CHECKING:
    import pandas as pd

# The first test waits for vLLM to come up, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(1500)

INSTANCES = ("owner__name-1", "owner__name-2", "owner__name-3")
SEEN = "seen.txt"
OUTPUT_TOKENS = 128
SESSION_SECONDS = 600


def hooks() -> dict[str, Any]:
    """Claude Code's own settings: a line for the prompt, and one for each tool that was run."""

    def line(word: str) -> list[dict[str, Any]]:
        return [{"hooks": [{"type": "command", "command": f'echo {word} >> "$CLAUDE_PROJECT_DIR/{SEEN}"'}]}]

    return {"hooks": {"UserPromptSubmit": line("prompt"), "PostToolUse": line("tool")}}


@dataclass(frozen=True)
class Collected:
    """The collection after it was carried on, and what is known of it from outside."""

    run: Path
    source: collecting.Upstream
    sandboxed: bool
    first: dict[str, Any]
    counted: Counters
    output: str


@pytest.fixture(scope="module")
def collected(vllm: Engine, tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """Three instances, one at a time; the collector is killed while the agent works on the second."""
    folder = tmp_path_factory.mktemp("collect")
    source = repository(folder / "mirrors" / "owner__name")
    rows = [
        {
            "instance_id": name,
            "repo": "owner/name",
            "base_commit": source.base,
            "problem_statement": f"add() subtracts ({name})",
        }
        for name in INSTANCES
    ]
    (folder / "swe.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sandboxed, environment = _environment()
    run = folder / "run"
    before = settled(vllm)
    options = ["--dataset", "swe.jsonl", "--agent", "claude-code", "--upstream", vllm.url, "--repos", "mirrors"]
    options += ["--model", MODEL_NAME, "--max-output-tokens", str(OUTPUT_TOKENS), "--out", str(run)]
    options += ["--time-limit", f"{SESSION_SECONDS}s", *([] if sandboxed else ["--unsandboxed"])]
    process = subprocess.Popen(
        [sys.executable, "-m", "agentbench", "collect", *options],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    _wait_until_the_second_works(run, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    first = collecting.session(run, INSTANCES[0])
    result = subprocess.run(
        [sys.executable, "-m", "agentbench", "collect", "--resume", str(run), "--concurrency", "2"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=3 * SESSION_SECONDS,
        check=False,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return Collected(run, source, sandboxed, first, settled(vllm) - before, result.stdout)


def repository(folder: Path) -> collecting.Upstream:
    """The repository of the other tests, with the hooks in its base commit."""
    made = collecting.upstream(folder)
    collecting.git(folder, "checkout", "--quiet", made.base)
    (folder / ".claude").mkdir()
    (folder / ".claude" / "settings.json").write_text(json.dumps(hooks()))
    collecting.git(folder, "add", ".")
    collecting.git(folder, "commit", "--quiet", "--message", "hooks")
    return collecting.Upstream(folder, collecting.git(folder, "rev-parse", "HEAD"), made.fix)


def _environment() -> tuple[bool, dict[str, str]]:
    """Whether bubblewrap works here, and an environment that names it and Claude Code."""
    environment = os.environ | {"AGENTBENCH_CLAUDE_CODE": str(binary("claude-code")), "SECRET": collecting.SECRET}
    program = collecting.bubblewrap()
    if program is None or sandbox.refusal(Path(program)) is not None:
        return False, environment
    return True, environment | {"AGENTBENCH_BWRAP": program}


def _wait_until_the_second_works(run: Path, process: subprocess.Popen[str]) -> None:
    """Returns once the second instance has had an answer of the model."""
    for _ in range(SESSION_SECONDS * 20):
        journal = run / "turn_traces.journal.jsonl"
        if journal.exists() and f'"session_id":"{INSTANCES[1]}"' in journal.read_text():
            return
        if process.poll() is not None:
            break
        time.sleep(0.05)
    process.kill()
    pytest.fail(f"the second instance did not begin: {process.communicate()}")


@pytest.fixture(scope="module")
def turns(collected: Collected) -> pd.DataFrame:
    return frame(agentbench.Run.open(collected.run), "turns")


def test_what_was_done_stays_and_what_broke_is_done_again(collected: Collected) -> None:
    came = {name: collecting.session(collected.run, name) for name in INSTANCES}
    assert [came[name]["outcome"] for name in INSTANCES] == ["done"] * 3
    assert came[INSTANCES[0]] == collected.first
    assert [came[name]["attempt"] for name in INSTANCES] == [1, 2, 1]
    assert came[INSTANCES[1]]["session_id"] == f"{INSTANCES[1]}.2"
    for session in came.values():
        assert session["agent"] == "claude-code"
        assert session["agent_version"] in str(binary("claude-code").with_name("package.json").read_text())
        assert (session["commit"], session["exit_code"]) == (collected.source.base, 0)
        assert session["sandbox"] == ("bubblewrap" if collected.sandboxed else "none")


def test_the_recording_is_one_run_and_agrees_with_vllm(collected: Collected, turns: pd.DataFrame) -> None:
    run = agentbench.Run.open(collected.run)
    assert (run.manifest["kind"], run.manifest["complete"], run.manifest["partial"]) == ("collect", True, True)
    assert set(turns["session_id"]) == {*INSTANCES, f"{INSTANCES[1]}.2"}
    assert turns["request_id"].is_unique
    # A request that the kill cut off has no row and may be counted by the engine.
    counted = totals(turns[turns["outcome"] == "ok"])
    assert 0 <= collected.counted.requests - counted.requests <= 1
    if collected.counted.requests == counted.requests:
        assert counted == collected.counted
    for name in INSTANCES:
        session = collecting.session(collected.run, name)
        own = turns[turns["session_id"] == session["session_id"]]
        assert (session["turns"], session["isl"], session["osl"]) == (len(own), own["isl"].sum(), own["osl"].sum())
        assert session["model_s"] > 0
        assert session["model_s"] + session["tool_s"] + session["idle_s"] == pytest.approx(
            session["end"] - session["start"]
        )


def test_patches_hold_what_the_agents_tools_left(collected: Collected) -> None:
    calls = frame(agentbench.Run.open(collected.run), "tool_calls")
    patches = collecting.predictions(collected.run)
    assert list(patches) == list(INSTANCES)
    for name, patch in patches.items():
        session = collecting.session(collected.run, name)
        ran = calls[(calls["session_id"] == session["session_id"]) & calls["result_time"].notna()]
        added = [line for line in patch.splitlines() if line.startswith("+") and not line.startswith("+++")]
        assert sorted(added) == sorted(["+prompt", *["+tool"] * len(ran)])
        assert (collected.run / "sessions" / name / "patch.diff").read_text() == patch
        assert (session["tool_s"] > 0) == (len(ran) > 0)


def test_patches_apply_to_the_base_commit(collected: Collected, tmp_path: Path) -> None:
    for name in INSTANCES:
        tree = tmp_path / name
        collecting.git(
            collected.source.path, "worktree", "add", "--quiet", "--detach", str(tree), collected.source.base
        )
        collecting.git(tree, "apply", str((collected.run / "sessions" / name / "patch.diff").resolve()))
        assert (tree / SEEN).read_text().startswith("prompt\n")


def test_the_agents_own_transcripts_are_kept(collected: Collected, turns: pd.DataFrame) -> None:
    for name in INSTANCES:
        folder = collected.run / "sessions" / name
        transcripts = list((folder / "logs" / ".claude" / "projects").rglob("*.jsonl"))
        assert transcripts
        lines = [json.loads(line) for line in transcripts[0].read_text().splitlines()]
        answers = {line["message"]["id"] for line in lines if line.get("type") == "assistant"}
        session_id = collecting.session(collected.run, name)["session_id"]
        own = turns[(turns["session_id"] == session_id) & (turns["kind"] == "main")]
        assert len(answers) == len(own)
        if collected.sandboxed:
            # The working directory in the prompt tells nothing of the machine.
            assert {line["cwd"] for line in lines if "cwd" in line} == {"/testbed"}


def test_nothing_of_the_users_environment_is_kept(collected: Collected) -> None:
    files = [path for path in collected.run.rglob("*") if path.is_file()]
    assert [path for path in files if collecting.SECRET.encode() in path.read_bytes()] == []


def test_the_run_is_replayed_like_any_other(vllm: Engine, collected: Collected, tmp_path: Path) -> None:
    options = ["--agents", "2", "--tool-time", "0", "--out", str(tmp_path / "run")]
    result = run_agentbench("replay", str(collected.run), "--url", vllm.url, *options, timeout=SESSION_SECONDS)
    assert result.returncode == 0, result.stdout + result.stderr
    assert set(frame(agentbench.Run.open(tmp_path / "run"), "requests")["status"]) == {"ok"}
