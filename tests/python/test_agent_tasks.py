"""Tasks of live agents: the built-in ones and their checks, files of tasks, verdicts."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

import agentbench
from agentbench import CommandCheck, FileCheck, Task
from agentbench._collect.sandbox import Place
from agentbench.agent import Workspace, built_in, checks, tasks
from agentbench.agent.run import _laid_out
from agentbench.agent.sandbox import Bare

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

SOLUTIONS: dict[str, dict[str, str]] = {
    "fix-sum": {"app.py": "def add(a, b):\n    return a + b\n\n\ndef double(a):\n    return add(a, a)\n"},
    "fix-off-by-one": {"tail.py": "def last_lines(text, n):\n    return text.splitlines()[-n:] if n else []\n"},
    "make-test-pass": {
        "stack.py": "class Stack(list):\n    push = list.append\n",
    },
    "add-function": {
        "text.py": "import re\n\n\ndef shout(text):\n    return text.upper() + '!'\n\n\n"
        "def slug(title):\n    return re.sub('[^a-z0-9]+', '-', title.lower()).strip('-')\n"
    },
    "rename-function": {
        "shop/__init__.py": "from shop.prices import total_price\n\n__all__ = ['total_price']\n",
        "shop/prices.py": "def total_price(items):\n    return sum(price * number for price, number in items)\n",
        "shop/order.py": "from shop.prices import total_price\n\n\ndef bill(items, discount=0):\n"
        "    return total_price(items) * (100 - discount) / 100\n",
        "main.py": "from shop import total_price\nfrom shop.order import bill\n\nif __name__ == '__main__':\n"
        "    basket = [(2.5, 4), (1.0, 3)]\n    print(total_price(basket), bill(basket, 50))\n",
    },
    "parse-log": {"slow.txt": "/export\n/login\n/search\n"},
    "sum-csv": {
        "report.py": "import csv\nfrom collections import defaultdict\n\nsums = defaultdict(float)\n"
        "with open('sales.csv', newline='') as file:\n    for row in csv.DictReader(file):\n"
        "        sums[row['region']] += float(row['amount'])\n"
        "for region in sorted(sums):\n    print(region, f'{sums[region]:.2f}')\n"
    },
    "handle-error": {
        "config.py": "import json\n\n\ndef read_config(path):\n    try:\n        with open(path) as file:\n"
        "            return json.load(file)\n    except (FileNotFoundError, json.JSONDecodeError):\n        return {}\n"
    },
    "split-module": {
        "shapes.py": "def area(width, height):\n    return width * height\n\n\n"
        "def perimeter(width, height):\n    return 2 * (width + height)\n",
        "geometry.py": "from shapes import area, perimeter\n\n\ndef describe(width, height):\n"
        "    return f'{width} x {height}: {area(width, height)}'\n",
    },
    "speed-up": {
        "pairs.py": "def has_pair(numbers, target):\n    seen = set()\n    for number in numbers:\n"
        "        if target - number in seen:\n            return True\n        seen.add(number)\n    return False\n"
    },
    "write-tests": {
        "test_stats.py": "import unittest\n\nfrom stats import median\n\n\nclass MedianTest(unittest.TestCase):\n"
        "    def test_even(self):\n        self.assertEqual(median([1, 2, 3, 4]), 2.5)\n"
    },
    "fix-script": {"count.sh": '#!/bin/sh\nfind "$1" -name "*.txt" -type f | wc -l | tr -d " "\n'},
}


@contextlib.contextmanager
def placed(folder: Path, task: Task) -> Iterator[tuple[Workspace, Path]]:
    """A task's workspace without a sandbox, and the folder of its checks."""
    folder.mkdir(parents=True)
    place = Place(folder / "tree", folder / "home", folder / "tmp", folder / "private")
    _laid_out(task, place, folder / "check")
    with Bare().opened(place, folder / "check") as shell:
        yield Workspace(place.tree, shell, 10.0), folder / "check"


def judged(folder: Path, task: Task, files: Mapping[str, str]) -> checks.Verdict:
    """What the checks say once these files were written."""
    with placed(folder, task) as (workspace, check):
        was = checks.before(task.checks, workspace)
        for path, text in files.items():
            workspace.files.write(path, text.encode())
        return checks.judge(task.checks, workspace, check, was)


def test_there_are_twelve_and_a_solution_of_each() -> None:
    assert [task.id for task in built_in()] == list(SOLUTIONS)
    assert len(SOLUTIONS) == 12
    assert all(task.checks for task in built_in())


@pytest.mark.parametrize("task", built_in(), ids=lambda task: task.id)
def test_a_check_passes_with_the_solution_alone(tmp_path: Path, task: Task) -> None:
    untouched = judged(tmp_path / "untouched", task, {})
    assert untouched.passed is False, untouched
    assert untouched.note
    solved = judged(tmp_path / "solved", task, SOLUTIONS[task.id])
    assert solved.passed is True, solved


CHEATS = {
    "ends the interpreter": ("fix-sum", {"app.py": "import os\nos._exit(0)\n"}),
    "exits": ("fix-sum", {"app.py": "raise SystemExit(0)\n"}),
    "changes the tests": ("make-test-pass", {"test_stack.py": "", **SOLUTIONS["make-test-pass"]}),
    "changes what python starts with": ("fix-sum", {"sitecustomize.py": "import os\nos._exit(0)\n"}),
    "tests nothing": ("write-tests", {"test_stats.py": "import unittest\n"}),
    "renames too little": (
        "rename-function",
        {"shop/prices.py": SOLUTIONS["rename-function"]["shop/prices.py"] + "\n\ncalc = total_price\n"},
    ),
}


@pytest.mark.parametrize("name", list(CHEATS))
def test_what_is_no_solution_does_not_pass(tmp_path: Path, name: str) -> None:
    task_id, files = CHEATS[name]
    task = next(task for task in built_in() if task.id == task_id)
    assert judged(tmp_path / "x", task, files).passed is False


VERDICTS: list[tuple[list[Any], bool | None, str | None]] = [
    ([], None, "the task has no check"),
    ([CommandCheck("true")], True, None),
    ([CommandCheck("echo oh; false")], False, "exit code 1: oh"),
    ([CommandCheck("exit 3", exit_code=3)], True, None),
    ([CommandCheck("cat $CHECK/a/b", files={"a/b": "x"})], True, None),
    ([CommandCheck("test -e b")], False, "exit code 1"),
    ([CommandCheck("sleep 9", time_limit_s=0.3)], False, "ended at its time limit"),
    ([FileCheck("f.txt", equals="one")], True, None),
    ([FileCheck("f.txt", equals="two")], False, "f.txt is not as it should be: 'one"),
    ([FileCheck("f.txt", contains=("on",), lacks=("two",))], True, None),
    ([FileCheck("f.txt", contains=("two",))], False, "does not contain 'two'"),
    ([FileCheck("f.txt", lacks=("on",))], False, "contains 'on'"),
    ([FileCheck("none")], False, "none is not there"),
    ([FileCheck("none", exists=False)], True, None),
    ([FileCheck("f.txt", exists=False)], False, "f.txt is there"),
    ([FileCheck("f.txt", unchanged=True)], True, None),
    ([FileCheck("../home/x")], False, "is not there"),
    ([CommandCheck("true"), FileCheck("none")], False, "none is not there"),
]


@pytest.mark.parametrize(("wanted", "passed", "note"), VERDICTS)
def test_checks_give_their_verdict(tmp_path: Path, wanted: list[Any], passed: bool | None, note: str | None) -> None:  # noqa: FBT001 a table
    verdict = judged(tmp_path / "x", Task("t", "do", {"f.txt": "one\n"}, checks=tuple(wanted)), {})
    assert verdict.passed is passed
    assert note is None if verdict.note is None else str(note) in verdict.note


def test_a_file_that_was_to_stay_and_did_not(tmp_path: Path) -> None:
    task = Task("t", "do", {"f.txt": "one\n"}, checks=(FileCheck("f.txt", unchanged=True),))
    assert judged(tmp_path / "x", task, {"f.txt": "two\n"}).note == "f.txt was changed"


def test_an_interrupted_check_has_no_verdict(tmp_path: Path) -> None:
    task = Task("t", "do", checks=(CommandCheck("sleep 9"),))
    with placed(tmp_path / "x", task) as (workspace, check):
        stop = threading.Event()
        stop.set()
        judge = Workspace(workspace.path, workspace.shell, 5.0, stop)
        assert checks.judge(task.checks, judge, check, {}) == checks.Verdict(None, "the check was interrupted")


YAML = """
- id: one
  prompt: Write hello to a.txt
  files: {b.txt: "x"}
  check:
    - {file: a.txt, contains: hello}
    - command: test -e b.txt
      time_limit_s: 5
  time_limit_s: 20
- id: two
  prompt: Say no
  folder: start
  check: "true"
"""


def test_tasks_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "c.txt").write_text("c")
    (tmp_path / "tasks.yaml").write_text(YAML)
    one, two = tasks.load(tmp_path / "tasks.yaml")
    assert one == Task(
        "one",
        "Write hello to a.txt",
        {"b.txt": "x"},
        None,
        (FileCheck("a.txt", contains=("hello",)), CommandCheck("test -e b.txt", time_limit_s=5.0)),
        20.0,
    )
    assert two == Task("two", "Say no", {}, tmp_path / "start", (CommandCheck("true"),))
    with placed(tmp_path / "x", two) as (workspace, _):
        assert workspace.files.read("c.txt", 10) == b"c"
    (tmp_path / "tasks.jsonl").write_text(
        '{"id": "one", "prompt": "p"}\n\n{"id": "two", "prompt": "q", "check": "x"}\n'
    )
    assert [task.id for task in tasks.load(tmp_path / "tasks.jsonl")] == ["one", "two"]


BAD = [
    ("t.jsonl", '{"prompt": "p"}', "task 1: id is missing"),
    ("t.jsonl", '{"id": "a"}', "prompt is missing"),
    ("t.jsonl", '{"id": "a/b", "prompt": "p"}', "names a workspace"),
    ("t.jsonl", '{"id": ".a", "prompt": "p"}', "names a workspace"),
    ("t.jsonl", '{"id": "a", "prompt": "p"}\n{"id": "a", "prompt": "q"}', "two tasks have the id 'a'"),
    ("t.jsonl", '{"id": "a", "prompt": "p", "chek": 1}', "'chek' is not known"),
    ("t.jsonl", '{"id": "a", "prompt": "p", "check": {"comand": "x"}}', "check 1: 'comand' is not known"),
    ("t.jsonl", '{"id": "a", "prompt": "p", "check": {"file": "/etc/x"}}', "does not lie in the workspace"),
    ("t.jsonl", '{"id": "a", "prompt": "p", "files": {"../x": "y"}}', "does not lie in the workspace"),
    ("t.jsonl", '{"id": "a", "prompt": "p", "files": ["x"]}', "files is an object"),
    ("t.jsonl", '{"id": "a", "prompt": "p", "folder": "none"}', "there is no folder"),
    ("t.jsonl", '{"id": "a", "prompt": "p", "time_limit_s": 0}', "no time above 0 s"),
    ("t.jsonl", "{", "no JSON"),
    ("t.jsonl", "", "holds no task"),
    ("t.json", "{}", "must hold a list"),
    ("t.toml", "x", "no TOML"),
    ("t.toml", "x = 1", "has no [[task]]"),
    ("t.txt", "", "ends in none of"),
]


@pytest.mark.parametrize(("name", "text", "why"), BAD)
def test_bad_task_files_say_what_is_wrong(tmp_path: Path, name: str, text: str, why: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(agentbench.ConfigError) as raised:
        tasks.load(tmp_path / name)
    assert why in str(raised.value)
    with pytest.raises(agentbench.ConfigError, match="there is no file"):
        tasks.load(tmp_path / "none.jsonl")


def test_runs_of_a_task_have_names_of_their_own() -> None:
    eight, source = tasks.chosen(8)
    assert ([task.id for task in eight], source) == (list(SOLUTIONS)[:8], "built-in tasks")
    many, _ = tasks.chosen(14)
    assert [name for name, _ in tasks.named(many, 1)][11:] == ["fix-script", "fix-sum-2", "fix-off-by-one-2"]
    a, b = Task("a", "p"), Task("b", "p")
    assert [name for name, _ in tasks.named([a, b], 2)] == ["a", "b", "a-2", "b-2"]
    with pytest.raises(agentbench.ConfigError, match="another task's repetition"):
        tasks.named([a, Task("a-2", "p")], 2)
    wrong: Any
    for wrong in (0, True, []):
        with pytest.raises(agentbench.ConfigError):
            tasks.chosen(wrong)
