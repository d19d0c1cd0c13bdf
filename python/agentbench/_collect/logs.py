"""The agent's own logs, copied out of its scratch HOME; and the HOME taken away."""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

OWN_EYES = 0o600


def copy(logs: Iterable[Path], home: Path, to: Path) -> int:
    """Copy logs, keeping their paths below HOME; return how many.

    Only what truly lies below HOME and is a file is taken: an agent may leave links to anything.
    """
    root, copied = home.resolve(), 0
    for log in logs:
        try:
            relative = log.resolve(strict=True).relative_to(root)
            source = os.open(log, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except (OSError, ValueError):
            continue
        with os.fdopen(source, "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                continue
            target = to / relative
            target.parent.mkdir(parents=True, exist_ok=True)
            with os.fdopen(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWN_EYES), "wb") as sink:
                shutil.copyfileobj(file, sink)
            copied += 1
    return copied


def remove(folder: Path) -> None:
    """Remove a folder whatever an agent did to the permissions in it."""
    if not folder.is_dir():
        return
    folder.chmod(0o700)
    for path, folders, _ in os.walk(folder):
        for name in folders:
            below = os.path.join(path, name)  # noqa: PTH118 os.walk speaks of strings
            if not os.path.islink(below):  # noqa: PTH114 the same
                os.chmod(below, 0o700)  # noqa: PTH101 the same
    shutil.rmtree(folder, ignore_errors=True)
