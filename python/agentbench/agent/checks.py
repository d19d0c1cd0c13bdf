"""Whether a task was completed: its checks, run after the agent has ended.

Commands run in the workspace's own sandbox, since they run what the model wrote; their files lie in a folder that is
made only now, outside of the workspace, and can be read there and no more.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .paths import PathError
from .tasks import CommandCheck

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from .tasks import Check, FileCheck
    from .workspace import Workspace

READ_LIMIT_BYTES = 16 << 20
SHOWN_CHARS = 400


@dataclass(frozen=True)
class Verdict:
    """What the checks say.

    Attributes
    ----------
    passed
        None where there is no check, or one could not run.
    note
        Why it did not pass or run.
    """

    passed: bool | None
    note: str | None = None


PASSED = Verdict(passed=True)


def before(checks: Sequence[Check], workspace: Workspace) -> dict[str, bytes | None]:
    """Return files as they are before the agent begins, as far as a check compares them; None for one not there."""
    paths = [check.path for check in checks if not isinstance(check, CommandCheck) and check.unchanged]
    return {path: _content(workspace, path) for path in paths}


def judge(checks: Sequence[Check], workspace: Workspace, folder: Path, was: Mapping[str, bytes | None]) -> Verdict:
    """Run the checks one after another, up to the first that does not pass.

    Parameters
    ----------
    checks
        What must hold.
    workspace
        As the agent left it.
    folder
        An empty folder outside of it, for the checks' files.
    was
        Files as they were, of `before`.
    """
    if not checks:
        return Verdict(None, "the task has no check")
    for number, check in enumerate(checks):
        if isinstance(check, CommandCheck):
            verdict = _of_command(check, workspace, folder / str(number))
        else:
            problem = _of_file(check, workspace, was)
            verdict = Verdict(problem is None, problem)
        if verdict.passed is not True:
            return verdict
    return PASSED


def _of_command(check: CommandCheck, workspace: Workspace, folder: Path) -> Verdict:
    folder.mkdir()
    for path, text in check.files.items():
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    command = f"export CHECK={shlex.quote(str(folder))}\n{check.command}"
    try:
        result = workspace.shell.run(command, check.time_limit_s, workspace.stop, show=[folder])
    except Exception as error:  # noqa: BLE001 whatever it is, the check said nothing
        return Verdict(None, f"the check could not run: {error}")
    if result.ended == "interrupted":
        return Verdict(None, "the check was interrupted")
    if result.exit_code == check.exit_code:
        return PASSED
    told = result.output.strip()[-SHOWN_CHARS:]
    return Verdict(passed=False, note=f"{result.in_words}: {told}" if told else result.in_words)


def _of_file(check: FileCheck, workspace: Workspace, was: Mapping[str, bytes | None]) -> str | None:
    """Say what is wrong with a file; None where nothing is."""
    content = _content(workspace, check.path)
    if content is None or not check.exists:
        return None if (content is None) != check.exists else f"{check.path} is {'not ' if check.exists else ''}there"
    if check.unchanged and was.get(check.path) != content:
        return f"{check.path} was changed"
    text = content.decode(errors="replace")
    if check.equals is not None and text.rstrip() != check.equals.rstrip():
        return f"{check.path} is not as it should be: {text[:SHOWN_CHARS]!r}"
    lacking = next((part for part in check.contains if part not in text), None)
    if lacking is not None:
        return f"{check.path} does not contain {lacking!r}"
    there = next((part for part in check.lacks if part in text), None)
    return None if there is None else f"{check.path} contains {there!r}"


def _content(workspace: Workspace, path: str) -> bytes | None:
    try:
        return workspace.files.read(path, READ_LIMIT_BYTES)
    except PathError:
        return None
