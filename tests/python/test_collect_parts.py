"""The parts of a collection, each alone: data sets, repositories, work trees, patches, time, processes, sandboxes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import types
from pathlib import Path
from typing import Any

import pytest
from tests.python import collecting
from tests.python.collecting import Upstream, alive, git

from agentbench import ConfigError
from agentbench._collect import datasets, logs, process, sandbox, worktree
from agentbench._collect.instances import Instance, select
from agentbench._collect.mirrors import Mirrors, RepositoryError
from agentbench._collect.traffic import Journals, Traffic

PLAIN = {"id": "a-1", "repository": "owner/name", "commit": "abc", "prompt": "do it"}
SWE = {"instance_id": "o__n-1", "repo": "o/n", "base_commit": "abc", "problem_statement": "it is broken"}
PRO = SWE | {"requirements": "R1", "interface": "I1", "dockerhub_tag": "o.n-1"}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Upstream:
    return collecting.upstream(tmp_path_factory.mktemp("upstream") / "owner" / "name")


# --- data sets


def test_plain_tasks_are_given_as_they_are(tmp_path: Path) -> None:
    for name, text in [
        ("t.jsonl", json.dumps(PLAIN) + "\n\n"),
        ("t.json", json.dumps([PLAIN])),
        ("t.yaml", "- {id: a-1, repository: owner/name, commit: abc, prompt: do it}"),
    ]:
        path = tmp_path / name
        path.write_text(text)
        assert datasets.load(str(path)) == [Instance("a-1", "owner/name", "abc", "do it")]


def test_a_repository_beside_the_task_file_is_that_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    path = tmp_path / "t.jsonl"
    path.write_text(json.dumps(PLAIN | {"repository": "mine"}))
    assert datasets.load(str(path))[0].repository == str(tmp_path / "mine")


def test_swe_bench_rows_from_parquet(tmp_path: Path) -> None:
    pa, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "t.parquet"
    parquet.write_table(pa.Table.from_pylist([dict.fromkeys(PRO) | SWE, PRO | {"instance_id": "pro"}]), path)
    first, second = datasets.load(str(path))
    assert (first.id, first.repository, first.commit) == ("o__n-1", "o/n", "abc")
    assert first.prompt.endswith("it is broken")
    assert (first.image, first.image_workdir) == ("docker.io/swebench/sweb.eval.x86_64.o_1776_n-1:latest", "/testbed")
    assert second.prompt.endswith("it is broken\n\n# Requirements\n\nR1\n\n# Interface\n\nI1")
    assert (second.image, second.image_workdir) == ("docker.io/jefzda/sweap-images:o.n-1", "/app")


def test_the_hub_is_asked_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def load_dataset(name: str, split: str) -> list[dict[str, str]]:
        asked.append((name, split))
        return [SWE]

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    assert [instance.id for instance in datasets.load("verified") + datasets.load("pro")] == ["o__n-1"] * 2
    assert asked == [("SWE-bench/SWE-bench_Verified", "test"), ("ScaleAI/SWE-bench_Pro", "test")]


def test_without_the_extra_the_text_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(ModuleNotFoundError, match=r"datasets is not installed.*agentbench-serving\[collect\]"):
        datasets.load("verified")


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def load_dataset(name: str, split: str) -> None:
        raise ConnectionError(f"no route to {name} {split}\nand more")

    monkeypatch.setitem(sys.modules, "datasets", types.SimpleNamespace(load_dataset=load_dataset))
    with pytest.raises(ConfigError, match=r"no route to .* test; give a local Parquet file$"):
        datasets.load("pro")


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("t.csv", "", "is neither verified nor pro nor a file that ends in"),
        ("t.jsonl", "{", r"t\.jsonl, line 1: no JSON"),
        ("t.jsonl", "[1]", "row 1 is no object"),
        ("t.json", "{}", "must hold a list"),
        ("t.yaml", "a: [", "no YAML"),
        ("t.jsonl", json.dumps({"id": "x"}), "row 1 has no 'repository'; it has id"),
        ("t.jsonl", json.dumps(SWE | {"base_commit": " "}), "has no 'base_commit'"),
        ("t.jsonl", json.dumps(PLAIN | {"id": "../x"}), "cannot name a folder"),
        ("t.jsonl", f"{json.dumps(PLAIN)}\n{json.dumps(PLAIN)}", "'a-1' comes twice"),
    ],
)
def test_bad_data_sets_are_one_line(tmp_path: Path, name: str, text: str, told: str) -> None:
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError, match=told) as error:
        datasets.load(str(path))
    assert "\n" not in str(error.value)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no file"):
        datasets.load(str(tmp_path / "t.jsonl"))


def chosen(**settings: Any) -> list[str]:
    instances = [Instance(str(number), "o/n", "c", "p") for number in range(8)]
    return [
        i.id for i in select(instances, **({"ids": [], "num_samples": None, "shuffle": False, "seed": 0} | settings))
    ]


def test_which_instances_a_run_takes() -> None:
    assert chosen() == list("01234567")
    assert chosen(num_samples=3) == ["0", "1", "2"]
    assert chosen(ids=["5", "2"]) == ["2", "5"]
    drawn = chosen(shuffle=True, seed=1)
    assert sorted(drawn) == chosen()
    assert drawn == chosen(shuffle=True, seed=1) != chosen(shuffle=True, seed=2)
    assert chosen(shuffle=True, seed=1, num_samples=2) == drawn[:2]
    with pytest.raises(ConfigError, match=r"no 'x' \(1 of 2 are missing\)"):
        chosen(ids=["1", "x"])


# --- repositories


def test_a_mirror_is_cloned_once_and_fetched_when_a_commit_lacks(tmp_path: Path) -> None:
    origin = collecting.upstream(tmp_path / "origin")
    mirrors = Mirrors(tmp_path / "cache", None)
    url = f"file://{origin.path}"
    path, commit = mirrors.find(url, origin.base[:12])
    assert commit == origin.base
    assert path.parent == tmp_path / "cache"
    assert git(path, "rev-parse", "--is-bare-repository") == "true"
    (origin.path / "later.txt").write_text("x")
    git(origin.path, "add", ".")
    git(origin.path, "commit", "--quiet", "--message", "later")
    later = git(origin.path, "rev-parse", "HEAD")
    assert mirrors.find(url, later) == (path, later)
    with pytest.raises(RepositoryError, match="has no commit 0000"):
        mirrors.find(url, "0" * 40)
    with pytest.raises(RepositoryError, match="cannot be mirrored"):
        mirrors.find(f"file://{tmp_path}/nothing", "abc")


def test_local_repositories_are_found_by_their_names(source: Upstream, tmp_path: Path) -> None:
    above = source.path.parents[1]
    for folder, repository in [(above, "owner/name"), (above / "owner", "owner/name"), (tmp_path, str(source.path))]:
        assert Mirrors(tmp_path, folder).find(repository, "v2") == (source.path, source.fix)
    with pytest.raises(RepositoryError, match=r"no repository of a/b: looked for .*a__b\.git"):
        Mirrors(tmp_path, above).find("a/b", source.base)
    with pytest.raises(RepositoryError, match="no repository with commit"):
        Mirrors(tmp_path, above).find("owner/name", "--all")


# --- work trees and patches


@pytest.fixture
def tree(source: Upstream, tmp_path: Path) -> Path:
    worktree.make(source.path, source.base, tmp_path / "tree")
    return tmp_path / "tree"


def test_a_work_tree_ends_at_its_commit(source: Upstream, tree: Path) -> None:
    assert (tree / "app.py").read_text() == collecting.BROKEN
    assert git(tree, "log", "--all", "--format=%s").split("\n") == ["base", "first"]
    assert git(tree, "status", "--porcelain") == ""
    assert git(tree, "tag") == git(tree, "remote") == ""
    objects = git(tree, "cat-file", "--batch-all-objects", "--batch-check").split("\n")
    assert source.fix not in "".join(objects)
    texts = git(tree, "cat-file", "--batch-all-objects", "--batch")
    assert "# the fix" not in texts
    assert str(source.path) not in (tree / ".git/config").read_text()
    assert not (tree / ".git/objects/info/alternates").exists()


def change(tree: Path) -> None:
    """Everything that a patch must carry."""
    (tree / "app.py").write_text("changed\n")
    (tree / "README").unlink()
    (tree / "run.sh").chmod(0o755)
    (tree / "latin.txt").write_bytes(b"K\xe4se und Br\xf6tchen\n")
    (tree / "windows.bat").write_bytes(b"echo 1\r\necho 3\r\n")
    (tree / "link").symlink_to("app.py")
    (tree / "folder").mkdir()
    (tree / "folder" / "binary").write_bytes(bytes(range(256)))
    (tree / "empty").write_bytes(b"")
    (tree / 'odd "name" [*]? \\x.txt').write_bytes(b"\xff\xfe")
    (tree / "umlaut-ü.txt").write_text("ü without a newline at the end")
    (tree / "ignored.pyc").write_bytes(b"x")


def content(tree: Path) -> dict[str, Any]:
    files = [path for path in tree.rglob("*") if ".git" not in path.parts and not path.is_dir()]
    return {
        str(path.relative_to(tree)): path.readlink()
        if path.is_symlink()
        else (path.read_bytes(), os.access(path, os.X_OK))
        for path in files
    }


def test_a_patch_carries_everything(source: Upstream, tree: Path, tmp_path: Path) -> None:
    patch = worktree.Patch(source.path, source.base, tree, tmp_path / "private")
    assert patch.read() == ""
    change(tree)
    text = patch.read()
    (tree / "ignored.pyc").unlink()
    fresh = tmp_path / "fresh"
    worktree.make(source.path, source.base, fresh)
    (tmp_path / "patch.diff").write_bytes(text.encode())
    git(fresh, "apply", "--whitespace=nowarn", str(tmp_path / "patch.diff"))
    assert content(fresh) == content(tree)
    # Text stays text.
    assert "+changed" in text
    assert "ü without a newline" in text


def test_what_git_cannot_take_in_is_said(source: Upstream, tree: Path, tmp_path: Path) -> None:
    patch = worktree.Patch(source.path, source.base, tree, tmp_path / "private")
    git(tree, "init", "--quiet", "nested")
    (tree / "new.txt").write_text("new\n")
    assert "+new" in patch.read()
    assert patch.error is not None
    assert "nested" in patch.error or "adding files failed" in patch.error
    subprocess.run(["rm", "-rf", tree / "nested"], check=True)
    assert "+new" in patch.read()
    assert patch.error is None


def test_what_an_agent_does_to_git_is_neither_run_nor_believed(source: Upstream, tree: Path, tmp_path: Path) -> None:
    patch = worktree.Patch(source.path, source.base, tree, tmp_path / "private")
    trap = tmp_path / "trap"
    spring = f"touch {trap} #"
    for name in ("core.fsmonitor", "core.hooksPath", "diff.external", "filter.x.clean", "diff.x.textconv"):
        git(tree, "config", name, spring)
    (tree / ".gitattributes").write_text("* filter=x diff=x\n")
    (tree / "app.py").write_text("committed\n")
    (tree / ".git/info/exclude").write_text("*\n")
    git(tree, "-c", "filter.x.clean=", "-c", "core.fsmonitor=", "-c", "diff.external=", "commit", "-qam", "mine")
    (tree / "new.txt").write_text("new\n")
    trap.unlink(missing_ok=True)
    text = patch.read()
    assert "+committed" in text
    assert "+new" in text
    assert not trap.exists()
    subprocess.run(["rm", "-rf", tree / ".git"], check=True)
    assert patch.read() == text


# --- time and tokens


@pytest.mark.parametrize(
    ("requests", "calls", "split"),
    [
        ([], [], (0, 0, 10)),
        ([(1, 3)], [], (2, 0, 8)),
        # Two at once count once; a tool beside a request is the model's time.
        ([(1, 4), (2, 5)], [(4, 7)], (4, 2, 4)),
        ([(1, 3), (5, 6)], [(3, 5), (3, 4)], (3, 2, 5)),
        # What lies outside of the session's time is cut.
        ([(-5, 1), (9, 20)], [(1, 9)], (2, 8, 0)),
    ],
)
def test_time_is_the_models_the_tools_or_nobodys(requests: Any, calls: Any, split: Any) -> None:
    assert Traffic(requests=requests, calls=calls).split(0, 10) == split


def turn(time: float, outcome: str, error: str | None = None) -> dict[str, Any]:
    return {"request_time": time, "outcome": outcome, "error": error}


@pytest.mark.parametrize(
    ("turns", "timed_out", "refusal"),
    [
        ([], False, "no request came through the proxy"),
        ([], True, "no request came through the proxy"),
        ([turn(1, "ok")], True, None),
        ([turn(1, "upstream_error", "refused")], False, "no request was answered: refused"),
        ([turn(1, "ok"), turn(2, "upstream_error")], False, None),
        # Rows come in the order in which requests end.
        (
            [turn(3, "http_error", "503"), turn(1, "ok")],
            True,
            "the engine failed the last request: 503",
        ),
        ([turn(1, "http_error"), turn(2, "ok"), turn(3, "client_cancelled")], True, None),
    ],
)
def test_an_engine_that_failed_is_no_end_of_an_agent(turns: Any, timed_out: bool, refusal: str | None) -> None:  # noqa: FBT001
    traffic = Traffic()
    for row in turns:
        traffic.add_turn(row)
    assert traffic.refusal(timed_out=timed_out) == refusal


def test_journals_are_read_as_they_grow(tmp_path: Path) -> None:
    journal = tmp_path / "turn_traces.journal.jsonl"
    row = {"session_id": "a", "outcome": "ok", "request_time": 1.0, "response_end_time": 2.0, "isl": 3, "osl": None}
    journals = Journals(tmp_path)
    journals.read()
    assert journals.turns == 0
    text = json.dumps(row)
    with journal.open("a") as file:
        file.write(f"{text}\ngarbled\n{text[:10]}")
    journals.read()
    journals.read()
    assert (journals.turns, journals.of("a").isl, journals.of("a").osl) == (1, [3], [])
    with journal.open("a") as file:
        file.write(f"{text[10:]}\n")
    journals.read()
    assert (journals.turns, journals.of("a").requests, journals.of("b").requests) == (2, [(1.0, 2.0)] * 2, [])


# --- processes


def run(tmp_path: Path, code: str, *, limit_s: float = 30.0, stop: threading.Event | None = None) -> process.Exit:
    return process.run(
        [sys.executable, "-c", code],
        environment={"PATH": os.environ["PATH"]},
        workdir=tmp_path,
        stdout=tmp_path / "stdout",
        stderr=tmp_path / "stderr",
        limit_s=limit_s,
        stop=stop or threading.Event(),
    )


def test_a_command_runs_with_nothing_inherited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINE", collecting.SECRET)
    code = (
        "import os,sys; print(dict(os.environ), os.getcwd()); sys.stderr.write(sys.stdin.read() + 'none'); sys.exit(7)"
    )
    ended = run(tmp_path, code)
    assert (ended.exit_code, ended.ended) == (7, "exited")
    assert collecting.SECRET not in (tmp_path / "stdout").read_text()
    assert str(tmp_path) in (tmp_path / "stdout").read_text()
    assert (tmp_path / "stderr").read_text() == "none"
    assert (tmp_path / "stdout").stat().st_mode & 0o777 == 0o600
    assert run(tmp_path, "import os; os.kill(os.getpid(), 9)").exit_code == -9


ESCAPED = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
code = (
    "import os,signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
    "open('pid-%s','w').write(str(os.getpid())); time.sleep(600)"
)
inner = "import subprocess,sys; subprocess.Popen([sys.executable, '-c', sys.argv[1]], start_new_session=True)"
subprocess.run([sys.executable, "-c", inner, code % "orphan"])
subprocess.Popen([sys.executable, "-c", code % "child"])
while not all(os.path.exists(name) and open(name).read() for name in ("pid-orphan", "pid-child")): time.sleep(0.01)
open("pid", "w").write(str(os.getpid()))
os.rename("pid", "pid-agent")
"""


def pids(folder: Path) -> list[int]:
    return [int((folder / f"pid-{name}").read_text()) for name in ("agent", "child", "orphan")]


def test_the_time_limit_ends_the_whole_tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.3)
    ended = run(tmp_path, f"{ESCAPED}\ntime.sleep(600)", limit_s=2.0)
    assert (ended.exit_code, ended.ended) == (124, "timed_out")
    assert not any(map(alive, pids(tmp_path)))


def test_what_an_agent_leaves_behind_ends_with_it(tmp_path: Path) -> None:
    ended = run(tmp_path, ESCAPED)
    assert (ended.exit_code, ended.ended) == (0, "exited")
    assert not any(map(alive, pids(tmp_path)))


def test_a_stop_ends_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "GRACE_SECONDS", 0.3)
    stop = threading.Event()

    def when_up() -> None:
        while not (tmp_path / "pid-agent").exists():
            time.sleep(0.01)
        stop.set()

    thread = threading.Thread(target=when_up)
    thread.start()
    ended = run(tmp_path, f"{ESCAPED}\ntime.sleep(600)", stop=stop)
    thread.join()
    assert ended.ended == "interrupted"
    assert not any(map(alive, pids(tmp_path)))


def test_a_command_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(process.ProcessError, match="cannot run /nowhere: No such file"):
        process.run(
            ["/nowhere"],
            environment={},
            workdir=tmp_path,
            stdout=tmp_path / "out",
            stderr=tmp_path / "err",
            limit_s=5,
            stop=threading.Event(),
        )


# --- logs and leftovers


def test_only_files_below_home_are_copied(tmp_path: Path) -> None:
    home, to = tmp_path / "home", tmp_path / "to"
    (home / "logs").mkdir(parents=True)
    (home / "logs" / "a.jsonl").write_text("log")
    (tmp_path / "secret").write_text("secret")
    (home / "logs" / "link").symlink_to(tmp_path / "secret")
    (home / "out").symlink_to(tmp_path)
    os.mkfifo(home / "logs" / "pipe")
    names = [home / "logs" / name for name in ("a.jsonl", "link", "pipe", "gone")]
    assert logs.copy([*names, home / "out" / "secret"], home, to) == 1
    assert [path.relative_to(to) for path in to.rglob("*") if path.is_file()] == [Path("logs/a.jsonl")]


def test_folders_go_whatever_their_permissions(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "a" / "b" / "file").write_text("x")
    (folder / "link").symlink_to(tmp_path)
    (folder / "a" / "b").chmod(0)
    (folder / "a").chmod(0)
    folder.chmod(0)
    logs.remove(folder)
    assert not folder.exists()
    assert tmp_path.exists()


# --- sandboxes


def test_what_a_program_is_installed_with(tmp_path: Path) -> None:
    package = tmp_path / "prefix/lib/node_modules/agent/bin"
    package.mkdir(parents=True)
    (package / "agent").write_text("x")
    link = tmp_path / "bin/agent"
    link.parent.mkdir()
    link.symlink_to("../prefix/lib/node_modules/agent/bin/agent")
    assert sandbox.installation(link) == [link, tmp_path / "prefix/lib/node_modules"]
    alone = tmp_path / "alone"
    alone.write_text("x")
    assert sandbox.installation(alone) == [alone]
    venv = tmp_path / "venv"
    (venv / "bin").mkdir(parents=True)
    (venv / "pyvenv.cfg").write_text("home = /x\n")
    (tmp_path / "python/bin").mkdir(parents=True)
    (tmp_path / "python/bin/python3").write_text("x")
    (venv / "bin/python").symlink_to(tmp_path / "python/bin/python3")
    (venv / "bin/mini").write_text("x")
    assert sandbox.installation(venv / "bin/mini") == [venv, tmp_path / "python"]
    assert sandbox.installation(Path("/usr/bin/env")) == []


def test_without_bubblewrap_it_is_said_plainly(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv(sandbox.VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"not installed .*would run unsandboxed.*--unsandboxed"):
        sandbox.choose(unsandboxed=False, binary=None, expose=[])
    assert sandbox.choose(unsandboxed=True, binary=None, expose=[]).name == "none"
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho 'no namespaces here' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(ConfigError, match=r"does not work here \(no namespaces here\)"):
        sandbox.choose(unsandboxed=False, binary=None, expose=[])
