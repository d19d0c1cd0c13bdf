"""The tools that an agent has by itself: list, read, write, edit, search, shell."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from .paths import PathError
from .tools import Tool, ToolError, tool
from .workspace import Workspace  # noqa: TC001 the schemas are made of it

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .paths import Root

READ_LIMIT_BYTES = 1 << 20
SHOWN_CHARS = 16_000
SHOWN_ENTRIES = 500
SHOWN_LINES = 400
DEPTH = 3
NO_MATCH = 1


@tool(name="list")
def list_files(workspace: Workspace, path: str = ".") -> str:
    """List the files below a folder, three levels deep.

    Parameters
    ----------
    path
        The folder, from the current directory.
    """
    with _told():
        lines = list(_listed(workspace.files, path, "", DEPTH))
    more = [f"... and {len(lines) - SHOWN_ENTRIES} more"] if len(lines) > SHOWN_ENTRIES else []
    return "\n".join([*lines[:SHOWN_ENTRIES], *more]) or "(the folder is empty)"


@tool
def read(workspace: Workspace, path: str, start_line: int = 1, lines: int = SHOWN_LINES) -> str:
    """Read a text file.

    Parameters
    ----------
    path
        The file, from the current directory.
    start_line
        The first line to read, from 1.
    lines
        How many lines to read.
    """
    text = _text(workspace, path)
    whole = text.splitlines(keepends=True)
    if start_line < 1 or lines < 1:
        raise ToolError("start_line and lines begin at 1")
    if start_line > max(len(whole), 1):
        raise ToolError(f"{path} has {len(whole)} lines; there is no line {start_line}")
    shown = whole[start_line - 1 : start_line - 1 + lines]
    left = len(whole) - (start_line - 1 + len(shown))
    return clipped("".join(shown)) + (f"\n(... {left} more lines)" if left > 0 else "")


@tool
def write(workspace: Workspace, path: str, content: str) -> str:
    """Write a whole file; one that is there is replaced.

    Parameters
    ----------
    path
        The file, from the current directory.
    content
        All of its new text.
    """
    with _told():
        workspace.files.write(path, content.encode())
    return f"wrote {path}, {len(content.splitlines())} lines"


@tool
def edit(workspace: Workspace, path: str, old: str, new: str) -> str:
    """Replace a text in a file that occurs in it exactly once.

    Parameters
    ----------
    path
        The file, from the current directory.
    old
        The text to replace, exactly as it stands in the file, indentation included.
    new
        The text to put in its place.
    """
    text = _text(workspace, path)
    problem = edit_problem(text, path, old, new)
    if problem:
        raise ToolError(problem)
    with _told():
        workspace.files.write(path, text.replace(old, new).encode())
    line = text[: text.index(old)].count("\n") + 1
    return f"edited {path} at line {line}"


def edit_problem(text: str, path: str, old: str, new: str) -> str | None:
    """Say why an exact replacement cannot be made; None when it can."""
    if not old:
        return "old is empty; give the text to replace, or use write for a new file"
    if old == new:
        return "old and new are the same; nothing would change"
    found = text.count(old)
    if found > 1:
        places = ", ".join(str(line) for line in _lines_of(text, old))
        return f"old occurs {found} times in {path}, at lines {places}; give more of the lines around the right one"
    if found == 1:
        return None
    spaced = " ".join(old.split())
    if spaced and spaced in " ".join(text.split()):
        return f"old is not in {path}, but for other spaces or line breaks; copy it exactly as read shows it"
    return f"old is not in {path}; read the file and copy the text exactly"


def _lines_of(text: str, old: str) -> Iterator[int]:
    at = text.find(old)
    while at >= 0:
        yield text.count("\n", 0, at) + 1
        at = text.find(old, at + len(old))


@tool
def search(workspace: Workspace, pattern: str, path: str = ".") -> str:
    """Search files for an extended regular expression; gives file, line number and line of each match.

    Parameters
    ----------
    pattern
        The expression, as grep -E takes it.
    path
        The file or folder to search, from the current directory.
    """
    with _told():
        workspace.files.check(path)
    command = f"grep -rnIE --exclude-dir=.git -e {shlex.quote(pattern)} -- {shlex.quote(path)}"
    # In the shell's sandbox and time limit: an expression may take for ever.
    result = workspace.shell.run(command, workspace.shell_timeout_s, workspace.stop)
    if result.exit_code == NO_MATCH and not result.output.strip():
        return "no match"
    if result.exit_code != 0:
        raise ToolError(f"search failed ({result.in_words}): {result.output.strip()}")
    return clipped(result.output)


@tool
def shell(workspace: Workspace, command: str) -> str:
    """Run a shell command in the current directory, without network; gives its output and exit code.

    Parameters
    ----------
    command
        The command line, for sh.
    """
    result = workspace.shell.run(command, workspace.shell_timeout_s, workspace.stop)
    output = clipped(result.output).rstrip("\n")
    told = f"{output}\n({result.in_words})" if output else f"({result.in_words})"
    if result.exit_code != 0:
        raise ToolError(told)
    return told


BUILTIN: tuple[Tool, ...] = (list_files, read, write, edit, search, shell)


def clipped(text: str, limit: int = SHOWN_CHARS) -> str:
    """Return a text with its middle left out where it is too long."""
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n(... {len(text) - 2 * half} characters left out ...)\n{text[-half:]}"


def _text(workspace: Workspace, path: str) -> str:
    with _told():
        data = workspace.files.read(path, READ_LIMIT_BYTES)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} is no text in UTF-8") from error


def _listed(files: Root, folder: str, indent: str, depth: int) -> Iterator[str]:
    for name, kind in files.entries(folder):
        mark = {"folder": "/", "link": "@"}.get(kind, "")
        yield f"{indent}{name}{mark}"
        if kind == "folder" and depth > 1 and name != ".git":
            yield from _listed(files, f"{folder}/{name}", f"{indent}  ", depth - 1)


class _told:  # noqa: N801 reads as a statement
    """Turn errors of paths into errors for the model."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, PathError):
            raise ToolError(str(error)) from error
