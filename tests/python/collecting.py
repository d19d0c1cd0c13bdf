"""What the tests of `collect` work on: a repository with a fix in its future, tasks, and an agent that does as told."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REAL = Path(os.environ.get("AGENTBENCH_REAL", Path(__file__).resolve().parents[2] / ".real"))
SECRET = "the-secret-of-the-users-own-environment"
FIX = "def add(a, b):\n    return a + b  # the fix\n"
BROKEN = "def add(a, b):\n    return a - b\n"

# Its task is a JSON object: what to do, in this order.
AGENT = '''
import json, os, subprocess, sys, time, urllib.error, urllib.request

ORPHAN = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1] + ".part", "w").write(str(os.getpid()))
os.rename(sys.argv[1] + ".part", sys.argv[1])
time.sleep(600)
"""
START = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', *sys.argv[1:]], start_new_session=True)"

def send(turn):
    content = [{"role": "user", "content": f"turn {turn}"}]
    body = {"model": todo.get("model", os.environ["AGENTBENCH_MODEL"]), "max_tokens": 16, "messages": content}
    url = os.environ["AGENTBENCH_BASE_URL"] + "/v1/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), {"content-type": "application/json"})
    try:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request).read()
    except urllib.error.HTTPError:
        # An agent that goes on all the same.
        pass

todo = json.loads(sys.argv[1])
for turn in range(todo.get("turns", 0)):
    send(turn)
for name, text in todo.get("write", {}).items():
    open(name, "w").write(text)
if "orphan" in todo:
    # A grandchild in a session of its own, whose parents are gone and that only SIGKILL ends.
    subprocess.run([sys.executable, "-c", START, ORPHAN, todo["orphan"]])
    while not os.path.exists(todo["orphan"]):
        time.sleep(0.01)
if "shell" in todo:
    subprocess.run(todo["shell"], shell=True)
if "started" in todo:
    open(todo["started"] + ".part", "w").write(str(os.getpid()))
    os.rename(todo["started"] + ".part", todo["started"])
while "until" in todo and not os.path.exists(todo["until"]):
    time.sleep(0.05)
sys.exit(todo.get("exit", 0))
'''


def git(folder: Path, *arguments: str) -> str:
    """Runs git as a person with a name would."""
    settings = ["-c", "user.name=tests", "-c", "user.email=tests@example.invalid", "-c", "init.defaultBranch=main"]
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_CONFIG_NOSYSTEM": "1"}
    result = subprocess.run(
        ["git", *settings, "-C", str(folder), *arguments], env=environment, capture_output=True, check=False
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.decode(errors="replace").strip()


@dataclass(frozen=True)
class Upstream:
    """A repository: two commits before the base, and the fix after it."""

    path: Path
    base: str
    fix: str


def upstream(folder: Path) -> Upstream:
    """Makes the repository."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet")
    (folder / "README").write_text("first\n")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "--message", "first")
    (folder / "app.py").write_text(BROKEN)
    (folder / "latin.txt").write_bytes("Käse\n".encode("latin-1"))
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "windows.bat").write_bytes(b"echo 1\r\necho 2\r\n")
    (folder / ".gitattributes").write_text("* text=auto\n*.bat text eol=crlf\n")
    (folder / ".gitignore").write_text("*.pyc\n")
    git(folder, "-c", "core.autocrlf=false", "add", ".")
    git(folder, "commit", "--quiet", "--message", "base")
    base = git(folder, "rev-parse", "HEAD")
    (folder / "app.py").write_text(FIX)
    git(folder, "commit", "--quiet", "--all", "--message", "the fix")
    git(folder, "tag", "v2")
    return Upstream(folder, base, git(folder, "rev-parse", "HEAD"))


def tasks(folder: Path, source: Upstream, todo: dict[str, dict[str, Any]]) -> Path:
    """Writes a task file: what the agent is to do, by id."""
    rows = [
        {"id": name, "repository": str(source.path), "commit": source.base, "prompt": json.dumps(what)}
        for name, what in todo.items()
    ]
    path = folder / "tasks.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def agent(folder: Path) -> str:
    """Writes the agent; returns its command line."""
    path = folder / "agent.py"
    path.write_text(AGENT)
    return f"{sys.executable} {path} {{task}}"


def session(run: Path, name: str) -> dict[str, Any]:
    """What came of an instance."""
    value: dict[str, Any] = json.loads((run / "sessions" / name / "session.json").read_text())
    return value


def predictions(run: Path) -> dict[str, str]:
    """Patches by instance."""
    rows = [json.loads(line) for line in (run / "predictions.jsonl").read_text().splitlines()]
    assert all(set(row) == {"instance_id", "model_name_or_path", "model_patch"} for row in rows)
    return {row["instance_id"]: row["model_patch"] for row in rows}


def bubblewrap() -> str | None:
    """The bubblewrap to test with: the machine's, or the one that `tests/real/setup.sh` unpacked."""
    unpacked = REAL / "bubblewrap/usr/bin/bwrap"
    return shutil.which("bwrap") or (str(unpacked) if unpacked.exists() else None)


def alive(process: int) -> bool:
    """Whether a process runs; one that has ended and was not waited for does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def running(command: str) -> list[int]:
    """Processes whose command line is this one."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            except OSError:
                continue
            if line == command and alive(int(entry.name)):
                found.append(int(entry.name))
    return found


def python_folders() -> list[Path]:
    """What this Python needs to run, where it does not lie in the system's folders."""
    folders = {Path(sys.prefix), Path(sys.base_prefix)}
    return sorted(folder for folder in folders if not folder.is_relative_to("/usr"))
