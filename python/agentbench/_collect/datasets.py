"""Data sets: SWE-bench Verified and Pro from the hub, files of the same columns, and plain task files.

Each becomes a list of `Instance`. Which of them a run takes is for ``instances``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from agentbench._core import ConfigError

from .instances import Instance, check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

EXTRA = 'pip install "agentbench-serving[collect]"'
HUB = {"verified": "SWE-bench/SWE-bench_Verified", "pro": "ScaleAI/SWE-bench_Pro"}
SPLIT = "test"
VERIFIED_WORKDIR = "/testbed"
# With their registry, which podman does not guess.
VERIFIED_IMAGES = "docker.io/swebench/sweb.eval.x86_64"
PRO_IMAGES = "docker.io/jefzda/sweap-images"
PRO_WORKDIR = "/app"
# Columns of SWE-bench Pro that its agents are shown beside the problem.
PRO_SECTIONS = {"requirements": "Requirements", "interface": "Interface"}
PROMPT = (
    "The repository in the current directory has the problem that is described below. Change its files so that the "
    "problem is solved. Tests that check the solution exist and are not shown: do not change existing tests.\n\n{}"
)


def load(name: str) -> list[Instance]:
    """Return all instances of a data set, in its order.

    Parameters
    ----------
    name
        ``verified``, ``pro``, or a file: ``.parquet``, ``.jsonl``, ``.json``, ``.yaml`` or ``.yml``. Rows with
        ``instance_id``, ``repo``, ``base_commit`` and ``problem_statement`` are SWE-bench's; rows with ``id``,
        ``repository``, ``commit`` and ``prompt`` are plain tasks, whose prompt is given as it is.

    Raises
    ------
    ConfigError
        When the file is none of these, or a row lacks a column. The text names the place.
    ModuleNotFoundError
        When what reads it is not installed. The text names the extra.
    """
    if name in HUB:
        source, rows, folder = HUB[name], _hub_rows(HUB[name]), Path()
    else:
        path = Path(name)
        reader = READERS.get(path.suffix.lower())
        if reader is None:
            kinds = ", ".join(READERS)
            raise ConfigError(f"dataset: {name!r} is neither {' nor '.join(HUB)} nor a file that ends in {kinds}")
        if not path.is_file():
            raise ConfigError(f"dataset: there is no file {name!r}")
        source, rows, folder = name, reader(path), path.resolve().parent
    instances = [_instance(row, f"{source}, row {number}", folder) for number, row in enumerate(rows, 1)]
    check(instances, source)
    return instances


def _hub_rows(name: str) -> Iterable[Any]:
    try:
        import datasets  # noqa: PLC0415 an extra, and slow to import
    except ModuleNotFoundError:
        _missing("datasets", f"{name} comes from the hub")
    try:
        return list(datasets.load_dataset(name, split=SPLIT))
    except Exception as error:
        # The hub's client has a dozen kinds of errors, for a network that is not there alone.
        told = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"dataset: {name} cannot be had from the hub: {told}; give a local Parquet file") from error


def _parquet_rows(path: Path) -> Iterable[Any]:
    try:
        from pyarrow import parquet  # noqa: PLC0415 an extra, and slow to import
    except ModuleNotFoundError:
        _missing("pyarrow", f"{path} is Parquet")
    try:
        rows = parquet.read_table(path).to_pylist()
    except (OSError, ValueError) as error:
        raise ConfigError(f"dataset: {path} is no Parquet file: {str(error).splitlines()[0]}") from error
    return list(rows)


def _json_lines(path: Path) -> Iterable[Any]:
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            try:
                yield json.loads(line)
            except ValueError as error:
                raise ConfigError(f"dataset: {path}, line {number}: no JSON: {error}") from error


def _json_list(path: Path) -> Iterable[Any]:
    try:
        return _listed(json.loads(_text(path)), path)
    except ValueError as error:
        raise ConfigError(f"dataset: {path}: no JSON: {error}") from error


def _yaml_list(path: Path) -> Iterable[Any]:
    try:
        import yaml  # noqa: PLC0415 an extra
    except ModuleNotFoundError:
        _missing("yaml", f"{path} is YAML")
    try:
        return _listed(yaml.safe_load(_text(path)), path)
    except yaml.YAMLError as error:
        raise ConfigError(f"dataset: {path}: no YAML: {' '.join(str(error).split())}") from error


READERS: dict[str, Callable[[Path], Iterable[Any]]] = {
    ".parquet": _parquet_rows,
    ".jsonl": _json_lines,
    ".json": _json_list,
    ".yaml": _yaml_list,
    ".yml": _yaml_list,
}


def _missing(module: str, why: str) -> NoReturn:
    raise ModuleNotFoundError(f"{why}, and {module} is not installed: {EXTRA}", name=module)


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(f"dataset: {path} is no text in UTF-8: {error}") from error


def _listed(value: Any, path: Path) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"dataset: {path} must hold a list of tasks")
    return value


def _instance(row: Any, place: str, folder: Path) -> Instance:
    if not isinstance(row, dict):
        raise ConfigError(f"dataset: {place} is no object with columns")
    if "instance_id" in row:
        return _swe_bench(row, place)
    repository = _value(row, "repository", place)
    # A path is told from `owner/name` by being there; it is meant from where the task file lies.
    local = (folder / Path(repository).expanduser()).resolve()
    return Instance(
        id=_value(row, "id", place),
        repository=str(local) if local.is_dir() else repository,
        commit=_value(row, "commit", place),
        prompt=_value(row, "prompt", place),
        image=row.get("image"),
        image_workdir=row.get("image_workdir"),
    )


def _swe_bench(row: Mapping[str, Any], place: str) -> Instance:
    name = _value(row, "instance_id", place)
    sections = [_value(row, "problem_statement", place)]
    for column, heading in PRO_SECTIONS.items():
        if row.get(column):
            sections.append(f"# {heading}\n\n{row[column]}")
    if row.get("dockerhub_tag"):
        image, workdir = f"{PRO_IMAGES}:{row['dockerhub_tag']}", PRO_WORKDIR
    else:
        # A name of an image may not hold two underscores in a row.
        image = f"{VERIFIED_IMAGES}.{name.replace('__', '_1776_')}:latest".lower()
        workdir = VERIFIED_WORKDIR
    return Instance(
        id=name,
        repository=_value(row, "repo", place),
        commit=_value(row, "base_commit", place),
        prompt=PROMPT.format("\n\n".join(sections)),
        image=row.get("image_name") or image,
        image_workdir=workdir,
    )


def _value(row: Mapping[str, Any], column: str, place: str) -> str:
    value = row.get(column)
    if value is None or not str(value).strip():
        raise ConfigError(f"dataset: {place} has no {column!r}; it has {', '.join(map(str, row)) or 'nothing'}")
    return str(value)
