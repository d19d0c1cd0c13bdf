"""The shells of live agents: limits that hold without a sandbox, what containers are asked for, and refusals.

Bubblewrap itself is tried in `tests/real`; no daemon of containers runs where the tests do, so a script stands in.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from typing import TYPE_CHECKING

import pytest

import agentbench
from agentbench._collect.process import Limits
from agentbench._collect.sandbox import Place
from agentbench.agent import sandbox

if TYPE_CHECKING:
    from pathlib import Path

    from agentbench.agent.sandbox import Shell


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(tmp_path / "tree", tmp_path / "home", tmp_path / "tmp", tmp_path / "private")
    place.make()
    place.tree.mkdir()
    return place


@pytest.fixture
def shell(place: Place, tmp_path: Path) -> Shell:
    with sandbox.Bare().opened(place, tmp_path / "check") as shell:
        return shell


def run(shell: Shell, command: str, limit_s: float = 20.0) -> sandbox.Result:
    return shell.run(command, limit_s, threading.Event())


def test_a_command_has_an_environment_and_folders_of_its_own(shell: Shell) -> None:
    result = run(shell, 'pwd; echo $HOME; echo $LANG; test -n "$OPENAI_API_KEY" || echo none')
    place = shell.place
    assert result.output.splitlines() == [str(place.tree), str(place.home), "C.UTF-8", "none"]
    assert (result.exit_code, result.ended, result.in_words) == (0, "exited", "exit code 0")


def test_what_a_command_leaves_running_ends_with_it(shell: Shell) -> None:
    result = run(shell, "(sleep 60; touch late) & setsid sleep 60 & echo started")
    assert (result.output, result.exit_code) == ("started\n", 0)
    assert result.seconds < 30


def test_a_command_ends_at_its_time_limit_with_all_that_it_started(shell: Shell) -> None:
    result = run(shell, "echo before; sleep 60 & sleep 60", 0.5)
    assert (result.exit_code, result.ended) == (124, "timed_out")
    assert result.output == "before\n"
    assert result.in_words.startswith("ended at its time limit, after")


def test_a_command_ends_when_it_is_told_to(shell: Shell) -> None:
    stop = threading.Event()
    threading.Timer(0.3, stop.set).start()
    start = time.monotonic()
    result = shell.run("sleep 60", 60.0, stop)
    assert result.ended == "interrupted"
    assert time.monotonic() - start < 30


def test_long_output_loses_its_middle(shell: Shell) -> None:
    result = run(shell, "echo first; head -c 300000 /dev/zero | tr '\\0' x; echo; echo last")
    assert result.output.startswith("first\nx")
    assert result.output.endswith("x\nlast\n")
    assert "bytes left out" in result.output
    assert len(result.output) < sandbox.OUTPUT_BYTES + 200


def test_output_without_end_is_cut_on_the_disk_too(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "FILE_BYTES", 1 << 20)
    result = run(shell, "yes")
    assert result.exit_code != 0
    assert result.ended == "exited"


def test_a_command_that_takes_too_much_memory_is_ended(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    # Address space of one process.
    monkeypatch.setattr(sandbox, "MEMORY_BYTES", 256 << 20)
    result = run(shell, f"{sys.executable} -c 'x = bytearray(1 << 30)' 2>&1")
    assert result.exit_code == 1
    assert "MemoryError" in result.output


def test_processes_that_together_take_too_much_are_ended(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shell, "limits", lambda limit_s: Limits(300 << 20, 1 << 20, 100, limit_s), raising=True)
    one = f"{sys.executable} -c 'import time; x = bytearray(120 << 20); time.sleep(30)' &"
    result = run(shell, f"{one} {one} {one} wait")
    assert (result.ended, result.exit_code) == ("exceeded", None)
    assert result.in_words == "ended: it took more than 300 MiB of memory"


def test_a_command_that_starts_too_many_processes_is_ended(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "PROCESSES", 20)
    result = run(shell, "for i in $(seq 40); do sleep 30 & done; wait")
    assert result.in_words == "ended: it had more than 20 processes"


def test_a_command_that_only_computes_is_ended_by_its_processor_time(shell: Shell) -> None:
    result = run(shell, "while :; do :; done", 2.0)
    assert result.ended == "timed_out"


DOCKER = """#!{python}
import json, os, subprocess, sys
state, arguments = {state!r}, sys.argv[1:]
with open(os.path.join(state, "calls"), "a") as file:
    file.write(json.dumps(arguments) + "\\n")
if arguments[0] == "version":
    sys.exit({version})
if arguments[0] == "exec":
    tree = open(os.path.join(state, "tree")).read()
    sys.exit(subprocess.run(arguments[arguments.index("sh") :], cwd=tree).returncode)
"""


@pytest.fixture
def docker(tmp_path: Path, place: Place, monkeypatch: pytest.MonkeyPatch) -> Path:
    state = tmp_path / "state"
    (tmp_path / "bin").mkdir()
    state.mkdir()
    (state / "tree").write_text(str(place.tree))
    script = tmp_path / "bin" / "docker"
    script.write_text(DOCKER.format(python=sys.executable, state=str(state), version=0))
    script.chmod(0o755)
    (tmp_path / "bin" / "podman").write_text(DOCKER.format(python=sys.executable, state=str(state), version=1))
    (tmp_path / "bin" / "podman").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    return state


def calls(state: Path) -> list[list[str]]:
    return [json.loads(line) for line in (state / "calls").read_text().splitlines()]


def test_a_container_has_no_network_and_nothing_else_to_write_to(docker: Path, place: Place, tmp_path: Path) -> None:
    chosen = sandbox.choose("docker")
    assert chosen.name == "docker"
    (place.tree / "a.txt").write_text("a")
    with chosen.opened(place, tmp_path / "check") as shell:
        result = run(shell, "cat a.txt; exit 4")
        assert (result.output, result.exit_code) == ("a", 4)
        assert run(shell, "sleep 30", 0.5).ended == "timed_out"
    version, made, executed, _, restarted, removed = calls(docker)
    assert version == ["version"]
    name = made[made.index("--name") + 1]
    for option, value in {
        "--network": "none",
        "--cap-drop": "ALL",
        "--pids-limit": "256",
        "--memory": str(4 << 30),
        "--security-opt": "no-new-privileges",
        "--volume": f"{place.tree}:/testbed",
    }.items():
        assert made[made.index(option) + 1] == value
    assert "--read-only" in made
    assert f"{tmp_path / 'check'}:{tmp_path / 'check'}:ro" in made
    assert made[-2:] == [sandbox.IMAGE, "infinity"]
    assert executed[:3] == ["exec", "--workdir", "/testbed"]
    # What the client's end does not reach ends with the container's processes.
    assert restarted == ["restart", "--time", "0", name]
    assert removed == ["rm", "--force", name]


def test_without_a_sandbox_nothing_is_run_unless_asked_for(
    docker: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("AGENTBENCH_BWRAP", "no-such-bwrap")
    assert sandbox.choose("auto").name == "docker"
    with pytest.raises(agentbench.ConfigError, match="podman does not answer"):
        sandbox.choose("podman")
    (docker / "calls").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    with pytest.raises(agentbench.ConfigError) as raised:
        sandbox.choose("auto")
    told = str(raised.value)
    assert "bubblewrap is not installed" in told
    assert "docker is not installed" in told
    assert "--sandbox none" in told
    with pytest.raises(agentbench.ConfigError, match="apt-get install bubblewrap"):
        sandbox.choose("bwrap")
    with pytest.raises(agentbench.ConfigError, match="is none of"):
        sandbox.choose("chroot")
    assert sandbox.choose("none").name == "none"
