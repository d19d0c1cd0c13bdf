"""`collect --container`: what is asked of docker or podman, and in which order.

No daemon runs where the tests do, so a script stands in for one: an image is a folder, a container a copy of its
repository, and what is executed in it runs there. What git does in it is git's own doing.
"""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.python import collecting
from tests.python.collecting import git, predictions, session

import agentbench
from agentbench._collect import container

DOCKER = """#!{python}
import json, os, shutil, subprocess, sys
images, state, arguments = {images!r}, {state!r}, sys.argv[1:]
with open(os.path.join(state, "calls"), "a") as file:
    file.write(json.dumps(arguments) + "\\n")

def options(known, rest):
    given = []
    while rest and rest[0].startswith("--"):
        name = rest.pop(0)
        given.append((name, rest.pop(0) if name in known else None))
    return given, rest

verb, rest = arguments[0], arguments[1:]
if verb == "run":
    given, rest = options(("--network", "--name", "--entrypoint", "--volume"), rest)
    image = os.path.join(images, rest[0])
    if not os.path.isdir(image):
        sys.exit("Unable to find image " + rest[0])
    shutil.copytree(image, os.path.join(state, dict(given)["--name"]), symlinks=True)
elif verb == "exec":
    given, rest = options(("--workdir", "--env"), rest)
    folder = os.path.join(state, rest[0])
    variables = dict(pair.split("=", 1) for name, pair in given if name == "--env")
    variables = {{"PATH": os.environ["PATH"], "HOME": state}} | variables
    sys.exit(subprocess.run(rest[1:], cwd=folder, env=variables).returncode)
elif verb == "rm":
    shutil.rmtree(os.path.join(state, rest[-1]))
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The script, with one image whose repository has a future and products of a build; returns its state."""
    source = collecting.upstream(tmp_path / "images" / "image")
    git(source.path, "branch", "later")
    git(source.path, "reset", "--quiet", "--hard", source.base)
    (source.path / "built.so").write_bytes(b"\x7fELF")
    state = tmp_path / "state"
    state.mkdir()
    program = tmp_path / "docker"
    program.write_text(DOCKER.format(python=sys.executable, images=str(tmp_path / "images"), state=str(state)))
    program.chmod(0o755)
    monkeypatch.setenv(container.VARIABLE, str(program))
    monkeypatch.setattr(container, "PRIVATE", str(tmp_path / "index"))
    return state


def collect(folder: Path, url: str, todo: dict[str, Any], **settings: Any) -> agentbench.Run:
    row = {
        "id": "one",
        "repository": "owner/name",
        "commit": "abc",
        "prompt": json.dumps(todo),
        "image": "image",
        "image_workdir": "/testbed",
    } | settings.pop("row", {})
    (folder / "tasks.jsonl").write_text(json.dumps(row))
    return agentbench.collect(
        folder / "tasks.jsonl",
        agent=collecting.agent(folder),
        upstream=url,
        out=folder / "run",
        container=True,
        expose=[folder / "agent.py"],
        **settings,
    )


def calls(state: Path) -> list[list[str]]:
    return [json.loads(line) for line in (state / "calls").read_text().splitlines()]


def test_an_agent_works_in_the_image(
    engine: agentbench.SimulatedEngine, docker: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET", collecting.SECRET)
    shell = "git log --all --format=%s; git cat-file --batch-all-objects --batch | grep -a 'the fix'; env"
    run = collect(tmp_path, engine.url, {"turns": 2, "write": {"app.py": "new\n", "new.txt": "x\n"}, "shell": shell})
    came = session(run.path, "one")
    assert (came["outcome"], came["sandbox"], came["turns"]) == ("done", "container", 2)
    lines = (run.path / "sessions/one/stdout.log").read_text().splitlines()
    assert lines[:2] == ["base", "first"]
    assert not [line for line in lines if "the fix" in line]
    assert not [line for line in lines if collecting.SECRET in line]
    patch = predictions(run.path)["one"]
    assert "+new" in patch
    assert "b/new.txt" in patch
    # What the image's build left is none of the agent's work.
    assert "built.so" not in patch
    asked = calls(docker)
    assert [call[0] for call in asked] == ["version", "run", "exec", "exec", "exec", "restart", "exec", "exec", "rm"]
    home = f"{tmp_path}/run/work/one/home"
    assert f"{home}:{home}" in asked[1]
    assert f"{tmp_path}/agent.py:{tmp_path}/agent.py:ro" in asked[1]
    assert asked[1][asked[1].index("--network") + 1] == "host"
    assert not [word for word in asked[4] if word.startswith(("PATH=", "TMPDIR="))]
    assert {path.name for path in docker.iterdir()} == {"calls", ".gitconfig"}


def test_content_that_is_no_text_is_kept(engine: agentbench.SimulatedEngine, docker: Path, tmp_path: Path) -> None:
    del docker
    run = collect(tmp_path, engine.url, {"turns": 1, "shell": "printf 'K\\344se' > latin.txt"})
    patch = predictions(run.path)["one"]
    assert "GIT binary patch" in patch
    fresh = tmp_path / "fresh"
    shutil.copytree(tmp_path / "images" / "image", fresh)
    (tmp_path / "patch.diff").write_text(patch)
    git(fresh, "apply", str(tmp_path / "patch.diff"))
    assert (fresh / "latin.txt").read_bytes() == b"K\xe4se"


def test_the_time_limit_ends_an_agent_in_a_container(
    engine: agentbench.SimulatedEngine, docker: Path, tmp_path: Path
) -> None:
    run = collect(tmp_path, engine.url, {"turns": 1, "write": {"half": "x\n"}, "until": "/never"}, time_limit_s=3.0)
    assert (session(run.path, "one")["outcome"], session(run.path, "one")["exit_code"]) == ("timed_out", 124)
    assert "+x" in predictions(run.path)["one"]
    assert [call[0] for call in calls(docker)][-4:] == ["restart", "exec", "exec", "rm"]


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({"image": "other"}, "docker run: Unable to find image other"),
        ({"image": None}, "the data set names no image and image_workdir for this instance"),
    ],
)
def test_an_image_that_is_not_there(
    engine: agentbench.SimulatedEngine, docker: Path, tmp_path: Path, row: dict[str, Any], reason: str
) -> None:
    del docker
    run = collect(tmp_path, engine.url, {"turns": 1}, row=row)
    assert (session(run.path, "one")["outcome"], session(run.path, "one")["reason"]) == ("failed", reason)


def test_without_a_daemon_it_is_refused(
    engine: agentbench.SimulatedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "docker"
    program.write_text("#!/bin/sh\necho Client: 1; echo 'Cannot connect to the daemon' >&2; exit 1\n")
    program.chmod(0o755)
    monkeypatch.delenv(container.VARIABLE, raising=False)
    # This machine may have a podman of its own.
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(agentbench.ConfigError) as error:
        collect(tmp_path, engine.url, {"turns": 1})
    assert str(error.value) == (
        "container: docker version: Cannot connect to the daemon; podman is not installed;"
        " start one of them, or leave --container out"
    )
    with pytest.raises(agentbench.ConfigError, match="container excludes unsandboxed and repos"):
        collect(tmp_path, engine.url, {"turns": 1}, unsandboxed=True)


def test_what_an_image_is_shown(tmp_path: Path) -> None:
    package = tmp_path / "lib/node_modules/agent/bin"
    package.mkdir(parents=True)
    (package / "agent").write_text("x")
    (tmp_path / "agent").symlink_to(package / "agent")
    binary, shown = container.agent_in(tmp_path / "agent", [])
    assert (binary, shown) == (package / "agent", [tmp_path / "lib/node_modules"])
    # The system's own programs are the image's, which may have them elsewhere.
    assert container.agent_in(Path("/usr/bin/env"), [tmp_path]) == (Path("env"), [tmp_path])
