"""Whole collections on the embedded engine, with an agent that does as its task says."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import json
import os
import signal
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.python import collecting
from tests.python.collecting import SECRET, Upstream, alive, predictions, session, tasks
from tests.python.traffic import agentbench as run_agentbench
from tests.python.traffic import started

import agentbench
from agentbench import _collect
from agentbench._collect import files, process

if TYPE_CHECKING:
    from collections.abc import Callable

FIXED: dict[str, Any] = {"write": {"app.py": collecting.FIX}, "turns": 2}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    return collecting.upstream(tmp_path_factory.mktemp("upstream") / "repo")


def wait_for(condition: Callable[[], bool]) -> None:
    for _ in range(600):
        if condition():
            return
        time.sleep(0.05)
    pytest.fail("it never came true")


def collect(
    folder: Path, source: Upstream, engine: agentbench.SimulatedEngine, todo: dict[str, Any], **settings: Any
) -> agentbench.Run:
    """A collection through the Python function, unsandboxed."""
    return agentbench.collect(
        tasks(folder, source, todo),
        agent=collecting.agent(folder),
        upstream=engine.url,
        out=folder / "run",
        unsandboxed=True,
        **settings,
    )


def command(folder: Path, source: Upstream, url: str, todo: dict[str, Any]) -> list[str | Path]:
    """The same as a command line."""
    options: list[str | Path] = ["--dataset", tasks(folder, source, todo), "--agent", collecting.agent(folder)]
    return ["collect", *options, "--upstream", url, "--out", folder / "run", "--unsandboxed"]


def test_patches_figures_and_sessions(source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path) -> None:
    todo = {"one": FIXED, "two": {"turns": 1, "write": {"new.txt": "new\n"}}, "three": {"turns": 3}}
    seen: list[agentbench.CollectProgress] = []
    run = collect(tmp_path, source, engine, todo, concurrency=2, on_progress=seen.append)
    assert run.manifest["kind"] == "collect"
    assert run.manifest["settings"]["collect"]["agent"] == "command"
    assert run.manifest["complete"]
    turns = run.turns().to_polars()
    assert dict(turns["session_id"].value_counts().iter_rows()) == {"one": 2, "two": 1, "three": 3}
    patches = predictions(run.path)
    assert list(patches) == ["one", "two", "three"]
    assert "+    return a + b  # the fix" in patches["one"]
    assert "new file mode" in patches["two"]
    assert patches["three"] == ""
    for name in todo:
        came, own = session(run.path, name), turns.filter(turns["session_id"] == name)
        assert (came["outcome"], came["exit_code"], came["attempt"]) == ("done", 0, 1)
        assert (came["commit"], came["model"], came["sandbox"]) == (source.base, "agentbench-sim", "none")
        assert (came["turns"], came["isl"], came["osl"]) == (len(own), own["isl"].sum(), own["osl"].sum())
        assert came["model_s"] + came["tool_s"] + came["idle_s"] == pytest.approx(came["end"] - came["start"])
        assert came["model_s"] == pytest.approx((own["response_end_time"] - own["request_time"]).sum(), abs=1e-6)
        assert all(came["start"] < moment < came["end"] for moment in own["request_time"])
        assert all(came["start"] < moment < came["end"] for moment in own["response_end_time"])
        assert (run.path / "sessions" / name / "patch.diff").read_text() == patches[name]
        assert came["patch_bytes"] == len(patches[name])
    assert not {path.name for path in run.path.iterdir()} & {"work", "collect.lock"}
    assert "turns" in (run.path / "report.md").read_text()
    last = seen[-1]
    assert (last.total, last.done, last.failed, last.timed_out, last.running) == (3, 3, 0, 0, ())
    assert (last.turns, last.osl) == (6, turns["osl"].sum())
    # Two at once and never more, by what the sessions themselves say; looks at progress see no more than that.
    spans = [(session(run.path, name)["start"], session(run.path, name)["end"]) for name in todo]
    assert max(sum(start <= moment < end for start, end in spans) for moment, _ in spans) == 2
    assert 1 <= max(len(progress.running) for progress in seen) <= 2


def test_what_breaks_is_told_and_the_rest_goes_on(
    source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path
) -> None:
    arguments = command(
        tmp_path,
        source,
        engine.url,
        {
            "crash": {"turns": 1, "exit": 3, "write": {"app.py": "half\n"}},
            "silent": {"turns": 0},
            "late": {"turns": 1, "orphan": str(tmp_path / "orphan"), "until": "/never", "write": {"new": "x"}},
            "killed": {"turns": 1, "shell": "kill -9 $PPID"},
            "unanswered": {"turns": 1, "model": "no-such-model"},
            "fine": FIXED,
        },
    )
    rows = [json.loads(line) for line in (tmp_path / "tasks.jsonl").read_text().splitlines()]
    rows.append(rows[0] | {"id": "nowhere", "commit": "0" * 40})
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    result = run_agentbench(*arguments, "--time-limit", "3s", "--concurrency", "7")
    assert result.returncode == 1, result.stdout + result.stderr
    assert "5 of 7 instance(s) failed, the first: crash: exit code 3" in result.stderr
    assert "unsandboxed: all that you may read and write is within their reach" in result.stderr
    run = tmp_path / "run"
    came = {row["id"]: session(run, row["id"]) for row in rows}
    assert {name: (one["outcome"], one["exit_code"]) for name, one in came.items()} == {
        "crash": ("failed", 3),
        "silent": ("failed", 0),
        "late": ("timed_out", 124),
        "killed": ("failed", -9),
        "unanswered": ("failed", 0),
        "fine": ("done", 0),
        "nowhere": ("failed", None),
    }
    assert came["silent"]["reason"] == "no request came through the proxy"
    assert came["unanswered"]["reason"].startswith("no request was answered: ")
    assert came["late"]["reason"] == "time limit of 3 s"
    assert came["killed"]["reason"] == "killed by SIGKILL"
    assert "no repository with commit 0000" in came["nowhere"]["reason"]
    assert came["nowhere"]["turns"] == 0
    assert came["nowhere"]["isl"] is None
    assert not alive(int((tmp_path / "orphan").read_text()))
    # A time limit is an end; what broke predicts nothing.
    assert list(predictions(run)) == ["late", "fine"]
    assert "+x" in predictions(run)["late"]


def test_nothing_of_the_users_environment_is_seen_or_kept(
    source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "HF_TOKEN", "SSH_AUTH_SOCK", "GIT_DIR"):
        monkeypatch.setenv(name, SECRET)
    run = collect(tmp_path, source, engine, {"one": FIXED | {"shell": "env; cat /proc/$PPID/environ; echo ~; git log"}})
    output = (run.path / "sessions/one/stdout.log").read_text()
    assert "ANTHROPIC_API_KEY=sk-dummy" in output
    assert "HF_TOKEN" not in output
    assert f"{tmp_path}/run/work/one/home" in output
    held = [path for path in run.path.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert held == []
    modes = {path.stat().st_mode & 0o077 for path in (run.path / "sessions").rglob("*") if path.is_file()}
    assert modes == {0}


def test_a_collection_that_was_killed_is_carried_on(
    source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path
) -> None:
    go, up, orphan = tmp_path / "go", tmp_path / "up", tmp_path / "orphan"
    todo = {
        "one": FIXED,
        "two": FIXED | {"started": str(up), "orphan": str(orphan), "until": str(go)},
        "three": FIXED,
    }
    run = tmp_path / "run"
    with started(*command(tmp_path, source, engine.url, todo)) as process_:
        wait_for(up.exists)
        process_.send_signal(signal.SIGKILL)
        process_.wait()
    # The agent and what it started end though nobody was left to tell them.
    wait_for(lambda: not alive(int(up.read_text())) and not alive(int(orphan.read_text())))
    assert session(run, "one")["outcome"] == "done"
    assert session(run, "two")["outcome"] == "running"
    assert agentbench.Run.open(run).manifest["partial"]
    first = session(run, "one")
    with (run / "collect.lock").open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        result = run_agentbench("collect", "--resume", run)
        assert (result.returncode, "another collection works here" in result.stderr) == (2, True)
    go.touch()
    result = run_agentbench("collect", "--resume", run, "--concurrency", "2")
    assert result.returncode == 0, result.stdout + result.stderr
    assert session(run, "one") == first
    assert (session(run, "two")["attempt"], session(run, "two")["session_id"]) == (2, "two.2")
    assert (session(run, "two")["outcome"], session(run, "two")["turns"]) == ("done", 2)
    assert session(run, "three")["attempt"] == 1
    assert list(predictions(run)) == ["one", "two", "three"]
    whole = agentbench.Run.open(run)
    turns = whole.turns().to_polars()
    assert dict(turns["session_id"].value_counts().iter_rows()) == {"one": 2, "two": 2, "two.2": 2, "three": 2}
    assert turns["request_id"].n_unique() == len(turns)
    assert (whole.manifest["complete"], whole.manifest["partial"]) == (True, True)
    assert len(json.loads(whole.request_body(turns["request_id"][-1]))["messages"]) == 1
    # Nothing is left: nothing is done, nothing written.
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*.parquet")}
    assert run_agentbench("collect", "--resume", run).returncode == 0
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*.parquet")} == before


def test_an_interrupted_collection_is_carried_on(
    source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path
) -> None:
    go, up = tmp_path / "go", tmp_path / "up"
    run = tmp_path / "run"
    todo = {"one": FIXED | {"started": str(up), "until": str(go)}, "two": FIXED}
    with started(*command(tmp_path, source, engine.url, todo)) as process_:
        wait_for(up.exists)
        process_.send_signal(signal.SIGINT)
        _, errors = process_.communicate(timeout=60)
    assert process_.returncode == 130
    assert f"carry on with: agentbench collect --resume {run}" in errors
    assert not alive(int(up.read_text()))
    assert session(run, "one")["outcome"] == "interrupted"
    assert agentbench.Run.open(run).manifest["complete"]
    go.touch()
    whole = agentbench.collect(resume=run)
    assert [session(run, name)["outcome"] for name in todo] == ["done", "done"]
    assert whole.totals()["turns"] == 6
    assert not whole.manifest["partial"]
    assert whole.manifest["counts"]["turns"] == 6


def test_a_full_disk_leaves_what_can_be_carried_on(
    source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = files.write_whole

    def full(path: Path, content: str | bytes) -> None:
        if path.parent.name == "two":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        written(path, content)

    monkeypatch.setattr("agentbench._collect.work.write_whole", full)
    with pytest.raises(OSError, match="No space left on device"):
        collect(tmp_path, source, engine, {"one": FIXED, "two": FIXED, "three": FIXED})
    run = tmp_path / "run"
    assert session(run, "one")["outcome"] == "done"
    assert session(run, "two")["outcome"] == "failed"
    assert not (run / "sessions/three").exists()
    monkeypatch.undo()
    agentbench.collect(resume=run)
    assert [session(run, name)["outcome"] for name in ("one", "two", "three")] == ["done"] * 3


def test_what_a_resumed_collection_refuses(
    source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path
) -> None:
    run = collect(tmp_path, source, engine, {"one": FIXED}).path
    refused: list[tuple[list[str | Path], str]] = [
        (["--resume", run, "--agent", "codex"], "agent: a resumed collection keeps its own"),
        (["--resume", run, "--shuffle"], "shuffle: a resumed collection keeps its own"),
        (["--resume", tmp_path], "no collection was begun here"),
        (["--agent", "codex", "--upstream", engine.url], "dataset is missing"),
    ]
    for arguments, told in refused:
        result = run_agentbench("collect", *arguments)
        assert (result.returncode, told in result.stderr) == (2, True), result.stderr
        assert len(result.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"agent": "no-such-agent {task}"}, "no-such-agent was not found"),
        ({"agent": "neither"}, r"it has no \{task\}"),
        ({"max_turns": 3}, "command cannot cap its turns"),
        ({"fresh_cache": True, "concurrency": 2}, "fresh_cache needs concurrency 1"),
        ({"concurrency": 0}, "concurrency: 0 is below 1"),
        ({"instances": ["other"]}, "the data set has no 'other'"),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path, settings: dict[str, Any], told: str
) -> None:
    whole: dict[str, Any] = {"agent": collecting.agent(tmp_path), "unsandboxed": True} | settings
    with pytest.raises(agentbench.ConfigError, match=told):
        agentbench.collect(tasks(tmp_path, source, {"one": FIXED}), upstream=engine.url, out=tmp_path / "run", **whole)
    assert not (tmp_path / "run").exists()


def test_the_cache_is_emptied_before_each_instance(source: Upstream, tmp_path: Path) -> None:
    long = {"turns": 1, "shell": "true"}
    todo = dict.fromkeys(("one", "two"), long)

    def cached(folder: str, **settings: Any) -> tuple[list[int], list[bool]]:
        (tmp_path / folder).mkdir()
        with agentbench.SimulatedEngine(speed="instant", kv_blocks=64) as fresh:
            run = collect(tmp_path / folder, source, fresh, todo, **settings)
        came = [session(run.path, name) for name in todo]
        return [one["isl_cached"] for one in came], [one["cache_reset"] for one in came]

    # The prompts are shorter than a block of 16 tokens, so both are made longer here.
    collecting_agent = collecting.AGENT.replace('f"turn {turn}"', 'f"turn {turn} " + "word " * 200')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "AGENT", collecting_agent)
        shared, told = cached("shared")
        assert shared[0] == 0 < shared[1]
        assert told == [None, None]
        fresh, told = cached("fresh", fresh_cache=True)
    assert fresh == [0, 0]
    assert told == [True, True]


def test_an_engine_that_cannot_empty_its_cache_is_refused(
    source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agentbench._collect import engine as engines

    assert engines.reset_refusal(engine.url) is None
    assert engines.reset_refusal(f"{engine.url}/nothing") == "it answers 404"
    monkeypatch.setattr(engines, "reset_refusal", lambda _: "it answers 404")
    with pytest.raises(agentbench.ConfigError, match="cannot empty its cache: it answers 404; vLLM offers it"):
        collect(tmp_path, source, engine, {"one": FIXED}, fresh_cache=True)


async def test_a_cancelled_task_ends_the_agents(
    source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path
) -> None:
    up = tmp_path / "up"
    arguments: dict[str, Any] = {
        "agent": collecting.agent(tmp_path),
        "upstream": engine.url,
        "out": tmp_path / "run",
        "unsandboxed": True,
    }
    todo: dict[str, dict[str, Any]] = {"one": FIXED | {"started": str(up), "until": "/never"}}
    collecting_ = asyncio.ensure_future(agentbench.collect_async(tasks(tmp_path, source, todo), **arguments))
    while not up.exists():
        await asyncio.sleep(0.05)
    collecting_.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await collecting_
    assert collecting_.cancelled()
    assert not alive(int(up.read_text()))
    assert session(tmp_path / "run", "one")["outcome"] == "interrupted"
    assert agentbench.Run.open(tmp_path / "run").manifest["complete"]
    todo["one"]["until"] = str(tmp_path)
    run = await agentbench.collect_async(tasks(tmp_path, source, todo), **(arguments | {"out": tmp_path / "again"}))
    assert session(run.path, "one")["outcome"] == "done"


@pytest.fixture
def bubblewrap(monkeypatch: pytest.MonkeyPatch) -> None:
    program = collecting.bubblewrap()
    if program is None:
        pytest.skip("no bubblewrap here; tests/real/setup.sh unpacks one")
    monkeypatch.setenv("AGENTBENCH_BWRAP", program)


SEEN = """
echo pwd=$(pwd); ls -A / | tr '\\n' ' '; echo; ls -A ~ /tmp | tr '\\n' ' '; echo; git log --all --format=%s
cat /etc/passwd; ls /proc | grep -c '^[0-9]'; touch /usr/x /etc/x; mkdir -p /home/x && echo made; id -u
for f in {run} {tasks} /var /etc/shadow {here}; do test -e $f && echo "sees $f"; done
mount -o remount,rw / && echo remounted; hostname
"""


@pytest.mark.usefixtures("bubblewrap")
def test_a_sandboxed_agent_sees_its_work_tree_alone(
    source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path
) -> None:
    shell = SEEN.replace("{run}", str(tmp_path / "run/sessions")).replace("{tasks}", str(tmp_path / "tasks.jsonl"))
    shell = shell.replace("{here}", __file__)
    agent = collecting.agent(tmp_path)
    run = agentbench.collect(
        tasks(tmp_path, source, {"one": FIXED | {"shell": shell}, "two": FIXED}),
        agent=agent,
        upstream=engine.url,
        out=tmp_path / "run",
        expose=[tmp_path / "agent.py", *collecting.python_folders()],
    )
    assert [session(run.path, name)["outcome"] for name in ("one", "two")] == ["done", "done"]
    assert session(run.path, "one")["sandbox"] == "bubblewrap"
    lines = (run.path / "sessions/one/stdout.log").read_text().splitlines()
    assert lines[0] == "pwd=/testbed"
    assert "base" in lines
    assert "the fix" not in lines
    assert [line for line in lines if line.startswith("agent:")] == [
        f"agent:x:{os.getuid()}:{os.getgid()}:agent:{tmp_path}/run/work/one/home:/bin/sh"
    ]
    hidden = tuple(f"sees {path}" for path in ("/var", "/etc", tmp_path, __file__))
    assert not [line for line in lines if line.startswith(hidden)]
    assert "remounted" not in lines
    assert lines[-1] == "agent"
    assert "+    return a + b  # the fix" in predictions(run.path)["one"]
    assert not Path("/usr/x").exists()
    assert "Read-only file system" in (run.path / "sessions/one/stderr.log").read_text()


@pytest.mark.usefixtures("bubblewrap")
def test_the_time_limit_ends_a_sandboxed_tree(
    source: Upstream, engine: agentbench.SimulatedEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.3)
    mark = f"sleep 60{os.getpid()}"
    run = agentbench.collect(
        tasks(tmp_path, source, {"one": {"turns": 1, "shell": f"setsid {mark} & {mark}"}}),
        agent=collecting.agent(tmp_path),
        upstream=engine.url,
        out=tmp_path / "run",
        time_limit_s=3.0,
        expose=[tmp_path / "agent.py", *collecting.python_folders()],
    )
    assert (session(run.path, "one")["outcome"], session(run.path, "one")["exit_code"]) == ("timed_out", 124)
    assert collecting.running(mark) == []


def test_help_tells_every_default() -> None:
    result = run_agentbench("collect", "--help")
    assert "agentbench/repositories in the user's cache folder" in " ".join(result.stdout.split())
    assert _collect.Session.__doc__
