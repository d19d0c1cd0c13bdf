"""Tasks: what agents are asked to do, the files they begin with, and the check that judges the result.

Twelve are built in (``data/tasks.toml``); others come from a YAML, JSONL, JSON or TOML file or are made in Python.
How a check is run is ``checks``' affair.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from agentbench._collect import datasets
from agentbench._core import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

BUILT_IN = Path(__file__).parents[1] / "data" / "tasks.toml"
TIME_LIMIT_SECONDS = 600.0
CHECK_SECONDS = 60.0
TASK_KEYS = ("id", "prompt", "files", "folder", "check", "time_limit_s")
COMMAND_KEYS = ("command", "exit_code", "files", "time_limit_s")
FILE_KEYS = ("file", "equals", "contains", "lacks", "exists", "unchanged")


@dataclass(frozen=True)
class CommandCheck:
    """A command that must end with an exit code.

    Attributes
    ----------
    command
        For ``sh``, run in the workspace; ``$CHECK`` is a folder of the check's own.
    exit_code
        What it must end with.
    files
        Files of that folder, which the model can neither see nor change.
    time_limit_s
        Seconds that it may take.
    """

    __module__ = "agentbench"

    command: str
    exit_code: int = 0
    files: Mapping[str, str] = field(default_factory=dict)
    time_limit_s: float = CHECK_SECONDS


@dataclass(frozen=True)
class FileCheck:
    """What a file of the workspace must be; every condition that is given must hold.

    Attributes
    ----------
    path
        The file.
    equals
        Its whole text, but for spaces and line breaks at its end.
    contains, lacks
        Texts that are, and are not, in it.
    exists
        Whether it is there.
    unchanged
        Whether it is as it was before the agent began.
    """

    __module__ = "agentbench"

    path: str
    equals: str | None = None
    contains: tuple[str, ...] = ()
    lacks: tuple[str, ...] = ()
    exists: bool = True
    unchanged: bool = False


Check = CommandCheck | FileCheck


@dataclass(frozen=True)
class Task:
    """Something for an agent to do.

    Attributes
    ----------
    id
        Its name.
    prompt
        What the model is told.
    files
        Files of the workspace that it begins with, by path.
    folder
        A folder whose files are copied into the workspace first.
    checks
        What must hold afterwards; all of them. Without one, nobody says whether it was completed.
    time_limit_s
        Seconds that the agent may take.
    """

    __module__ = "agentbench"

    id: str
    prompt: str
    files: Mapping[str, str] = field(default_factory=dict)
    folder: Path | None = None
    checks: tuple[Check, ...] = ()
    time_limit_s: float = TIME_LIMIT_SECONDS


def built_in() -> list[Task]:
    """Return the tasks that agentbench brings along, twelve of them."""
    return load(BUILT_IN)


def chosen(tasks: int | str | Path | Sequence[Task]) -> tuple[list[Task], str]:
    """Return tasks and where they come from: the first so many built-in ones (over and over), a file's, or given ones.

    Raises
    ------
    ConfigError
        When there are none.
    """
    if isinstance(tasks, bool) or (isinstance(tasks, int) and tasks < 1):
        raise ConfigError(f"tasks: {tasks} is no number of tasks; give one from 1")
    if isinstance(tasks, int):
        of = built_in()
        # As many as are wanted; the runs of a task that comes again are told apart by number.
        return [of[index % len(of)] for index in range(tasks)], "built-in tasks"
    if isinstance(tasks, str | Path):
        return load(Path(tasks)), str(tasks)
    if not tasks:
        raise ConfigError("tasks: there is no task")
    _distinct([task.id for task in tasks], "tasks")
    return list(tasks), "tasks given in Python"


def load(path: Path) -> list[Task]:
    """Return the tasks of a file: ``.yaml``, ``.yml``, ``.jsonl``, ``.json`` or ``.toml``.

    Raises
    ------
    ConfigError
        When it is none of these, or holds something that is no task; the text names the place.
    ModuleNotFoundError
        When PyYAML is not installed. The text names the extra.
    """
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise ConfigError(f"task file: {path} ends in none of {', '.join(READERS)}")
    if not path.is_file():
        raise ConfigError(f"task file: there is no file {path}")
    tasks = [_task(row, f"{path}, task {number}", path.parent) for number, row in enumerate(reader(path), 1)]
    if not tasks:
        raise ConfigError(f"task file: {path} holds no task")
    _distinct([task.id for task in tasks], str(path))
    return tasks


def _toml_list(path: Path) -> Iterable[Any]:
    try:
        value = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"task file: {path}: no TOML: {error}") from error
    rows = value.get("task")
    if not isinstance(rows, list):
        raise ConfigError(f"task file: {path} has no [[task]]")
    return rows


READERS: dict[str, Callable[[Path], Iterable[Any]]] = {
    **{suffix: datasets.READERS[suffix] for suffix in (".yaml", ".yml", ".jsonl", ".json")},
    ".toml": _toml_list,
}


def _distinct(ids: Sequence[str], place: str) -> None:
    twice = next((name for name in ids if ids.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"{place}: two tasks have the id {twice!r}")


def _task(row: Any, place: str, base: Path) -> Task:
    row = _keys(row, TASK_KEYS, place)
    name = _text(row, "id", place)
    if name != Path(name).name or name.startswith(".") or "\0" in name:
        raise ConfigError(f"{place}: id {name!r} names a workspace: no / and no dot at its beginning")
    folder = (base / str(row["folder"])).expanduser() if row.get("folder") else None
    if folder is not None and not folder.is_dir():
        raise ConfigError(f"{place}: there is no folder {folder}")
    given = row.get("check")
    checks = given if isinstance(given, list) else [] if given is None else [given]
    return Task(
        id=name,
        prompt=_text(row, "prompt", place),
        files=_files(row.get("files"), place),
        folder=folder,
        checks=tuple(_check(check, f"{place}, check {number}") for number, check in enumerate(checks, 1)),
        time_limit_s=_seconds(row, place, TIME_LIMIT_SECONDS),
    )


def _check(value: Any, place: str) -> Check:
    if isinstance(value, str):
        return CommandCheck(value)
    if isinstance(value, dict) and "file" in value:
        row = _keys(value, FILE_KEYS, place)
        found = FileCheck(
            path=_text(row, "file", place),
            equals=row.get("equals"),
            contains=_texts(row.get("contains"), place),
            lacks=_texts(row.get("lacks"), place),
            exists=bool(row.get("exists", True)),
            unchanged=bool(row.get("unchanged", False)),
        )
        _below(found.path, place)
        return found
    row = _keys(value, COMMAND_KEYS, place)
    return CommandCheck(
        command=_text(row, "command", place),
        exit_code=int(row.get("exit_code", 0)),
        files=_files(row.get("files"), place),
        time_limit_s=_seconds(row, place, CHECK_SECONDS),
    )


def _keys(value: Any, known: Sequence[str], place: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{place}: no object with {', '.join(known)}")
    unknown = [str(key) for key in value if key not in known]
    if unknown:
        raise ConfigError(f"{place}: {unknown[0]!r} is not known; there are {', '.join(known)}")
    return value


def _text(row: Mapping[str, Any], key: str, place: str) -> str:
    value = row.get(key)
    if not isinstance(value, str | int | float) or not str(value).strip():
        raise ConfigError(f"{place}: {key} is missing")
    return str(value)


def _texts(value: Any, place: str) -> tuple[str, ...]:
    if value is None:
        return ()
    texts = value if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in texts):
        raise ConfigError(f"{place}: contains and lacks hold texts")
    return tuple(texts)


def _files(value: Any, place: str) -> dict[str, str]:
    if value is None:
        return {}
    if not isinstance(value, dict) or not all(isinstance(text, str) for text in value.values()):
        raise ConfigError(f"{place}: files is an object of paths and texts")
    for path in value:
        _below(str(path), place)
    return {str(path): text for path, text in value.items()}


def _below(path: str, place: str) -> None:
    parts = PurePosixPath(path)
    if parts.is_absolute() or ".." in parts.parts or not parts.parts:
        raise ConfigError(f"{place}: {path!r} does not lie in the workspace; give a path below it")


def _seconds(row: Mapping[str, Any], place: str, default: float) -> float:
    value = row.get("time_limit_s", default)
    if isinstance(value, bool) or not isinstance(value, int | float) or value <= 0:
        raise ConfigError(f"{place}: time_limit_s: {json.dumps(value, default=str)} is no time above 0 s")
    return float(value)


def named(tasks: Sequence[Task], repeat: int) -> list[tuple[str, Task]]:
    """Return every run of every task with a name of its own."""
    if repeat < 1:
        raise ConfigError(f"repeat: {repeat} is below 1")
    runs: list[tuple[str, Task]] = []
    times: dict[str, int] = {}
    for task in [task for _ in range(repeat) for task in tasks]:
        times[task.id] = times.get(task.id, 0) + 1
        number = times[task.id]
        runs.append((task.id if number == 1 else f"{task.id}-{number}", task))
    if len({name for name, _ in runs}) < len(runs):
        raise ConfigError("tasks: an id with a number at its end is the name of another task's repetition")
    return runs
