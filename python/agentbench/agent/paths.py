"""Names of files within a workspace, opened so that no link and no ``..`` leads out of it.

Every step of a path is opened by itself, from the folder before, and never through a link that was not looked at: a
command that swaps a folder for a link meanwhile makes the call fail, not escape.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LINKS = 40
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
FILE_MODE = 0o644
FOLDER_MODE = 0o755


class PathError(Exception):
    """A path that cannot be used; the text says why, in words for the model."""


def outside(name: str) -> PathError:
    """Return the error of a path that leads out of the workspace."""
    return PathError(f"{name} is outside of the workspace; give a path below the current directory")


class Root:
    """A folder below which files are opened.

    Parameters
    ----------
    root
        The folder.
    seen_as
        Absolute paths by which a sandbox shows the same folder.
    """

    def __init__(self, root: Path, seen_as: tuple[Path, ...] = ()) -> None:
        self.path = root
        real = Path(os.path.realpath(root))
        self._names = [PurePosixPath(str(path)) for path in dict.fromkeys((*seen_as, root, real))]

    @contextlib.contextmanager
    def opened(self, name: str, flags: int, *, make_folders: bool = False) -> Iterator[int]:
        """Open a path and yield its descriptor.

        Raises
        ------
        PathError
            When it leads outside, is not there, or cannot be opened.
        """
        folders: list[int] = []
        try:
            descriptor = self._walk(name, flags, folders, make_folders=make_folders)
        except OSError as error:
            raise PathError(f"{name}: {_in_words(error)}") from error
        finally:
            for folder in folders:
                os.close(folder)
        try:
            yield descriptor
        finally:
            os.close(descriptor)

    def read(self, name: str, limit_bytes: int) -> bytes:
        """Return a file's content.

        Raises
        ------
        PathError
            When it is no file, or longer than the limit.
        """
        # Without waiting: a pipe would have the agent wait for its other end.
        with self.opened(name, os.O_RDONLY | os.O_NONBLOCK) as descriptor:
            size = _regular(name, descriptor)
            if size > limit_bytes:
                raise PathError(f"{name} has {size} bytes, more than the {limit_bytes} that can be read")
            with os.fdopen(os.dup(descriptor), "rb") as file:
                return file.read(limit_bytes)

    def write(self, name: str, content: bytes) -> None:
        """Replace a file's content; makes the file, and the folders that it lies in.

        Raises
        ------
        PathError
            When it cannot be written.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK
        try:
            with self.opened(name, flags, make_folders=True) as descriptor:
                _regular(name, descriptor)
                os.ftruncate(descriptor, 0)
                with os.fdopen(os.dup(descriptor), "wb") as file:
                    file.write(content)
        except OSError as error:
            raise PathError(f"{name}: {_in_words(error)}") from error

    def entries(self, name: str) -> list[tuple[str, str]]:
        """Return the names of a folder's entries and what each is: ``file``, ``folder``, ``link`` or ``other``.

        Raises
        ------
        PathError
            When it is no folder.
        """
        with self.opened(name, os.O_RDONLY | os.O_DIRECTORY) as descriptor, os.scandir(descriptor) as entries:
            return sorted((entry.name, _kind(entry)) for entry in entries)

    def check(self, name: str) -> None:
        """Do nothing where there is something by that name.

        Raises
        ------
        PathError
            Where there is not, or it lies outside.
        """
        with self.opened(name, os.O_RDONLY | os.O_NONBLOCK):
            pass

    def _relative(self, name: str) -> PurePosixPath:
        path = PurePosixPath(name)
        if "\0" in name or not name:
            raise PathError("a path has at least one character, and none of them is NUL")
        if not path.is_absolute():
            return path
        for root in self._names:
            if path.is_relative_to(root):
                return path.relative_to(root)
        raise outside(name)

    def _walk(self, name: str, flags: int, folders: list[int], *, make_folders: bool) -> int:
        steps = list(self._relative(name).parts)
        folders.append(os.open(self.path, FOLDER))
        links = 0
        while steps:
            step = steps.pop(0)
            if step == "..":
                if len(folders) == 1:
                    raise outside(name)
                os.close(folders.pop())
                continue
            target = _link(step, folders[-1])
            if target is not None:
                links += 1
                if links > LINKS:
                    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                if target.startswith("/"):
                    steps = [*self._linked(name, target), *steps]
                    while len(folders) > 1:
                        os.close(folders.pop())
                else:
                    steps = [*PurePosixPath(target).parts, *steps]
            elif steps:
                folders.append(_folder(step, folders[-1], make=make_folders))
            else:
                return os.open(step, flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE, dir_fd=folders[-1])
        # The root itself, or a path that ends in `..`.
        return os.open(".", flags | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE, dir_fd=folders[-1])

    def _linked(self, name: str, target: str) -> tuple[str, ...]:
        try:
            return self._relative(target).parts
        except PathError as error:
            raise outside(name) from error


def _link(step: str, folder: int) -> str | None:
    try:
        return os.readlink(step, dir_fd=folder)
    except OSError:
        return None


def _folder(step: str, within: int, *, make: bool) -> int:
    try:
        return os.open(step, FOLDER, dir_fd=within)
    except FileNotFoundError:
        if not make:
            raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(step, FOLDER_MODE, dir_fd=within)
    return os.open(step, FOLDER, dir_fd=within)


def _regular(name: str, descriptor: int) -> int:
    state = os.fstat(descriptor)
    if stat.S_ISDIR(state.st_mode):
        raise PathError(f"{name} is a folder")
    if not stat.S_ISREG(state.st_mode):
        raise PathError(f"{name} is no regular file")
    return state.st_size


def _kind(entry: os.DirEntry[str]) -> str:
    if entry.is_symlink():
        return "link"
    if entry.is_dir(follow_symlinks=False):
        return "folder"
    return "file" if entry.is_file(follow_symlinks=False) else "other"


def _in_words(error: OSError) -> str:
    words = {
        errno.ENOENT: "there is no such file",
        errno.ENOTDIR: "a part of the path is no folder",
        errno.EISDIR: "it is a folder",
        errno.ELOOP: "it goes through too many links, or one that has just changed",
        errno.ENAMETOOLONG: "the name is too long",
    }
    return words.get(error.errno or 0, error.strerror or str(error))
