"""Bare mirrors of repositories: one of each in a cache, or local ones that the user names.

A mirror holds everything, the solutions too: an agent never sees it. What it sees is for ``worktree``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from .git import GitError, git

if TYPE_CHECKING:
    from collections.abc import Iterator

OWNER_AND_NAME = re.compile(r"[\w.-]+/[\w.-]+")
HOST = "https://github.com"


def default_cache() -> Path:
    """Return ``agentbench/repositories`` below the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    return Path(base).expanduser() / "agentbench" / "repositories"


class RepositoryError(Exception):
    """A repository or a commit cannot be had; the text names it and the remedy."""


class Mirrors:
    """Finds the repository of an instance, cloning it at most once.

    Parameters
    ----------
    cache_dir
        Where mirrors are kept.
    repos_dir
        Local repositories in place of clones: no network is used then. None clones.
    """

    def __init__(self, cache_dir: Path, repos_dir: Path | None) -> None:
        self._cache_dir = cache_dir
        self._repos_dir = repos_dir
        self._locks: dict[Path, threading.Lock] = {}
        self._guard = threading.Lock()

    def find(self, repository: str, commit: str) -> tuple[Path, str]:
        """Return a repository that holds the commit, and the commit's whole hash.

        Raises
        ------
        RepositoryError
            When there is none.
        """
        if Path(repository).is_absolute():
            return self._local(Path(repository), commit)
        if self._repos_dir is not None:
            return self._local(self._in_repos_dir(repository), commit)
        return self._cached(repository, commit)

    def _local(self, path: Path, commit: str) -> tuple[Path, str]:
        found = _resolved(path, commit)
        if found is None:
            raise RepositoryError(f"{path}: no repository with commit {commit}; fetch it there")
        return path, found

    def _in_repos_dir(self, repository: str) -> Path:
        folder = self._repos_dir or Path()
        bare = repository.removesuffix("/").removesuffix(".git")
        last = bare.rpartition("/")[2]
        names = [bare.replace("/", "__"), bare, last] if OWNER_AND_NAME.fullmatch(bare) else [last]
        candidates = [folder / f"{name}{suffix}" for name in names for suffix in (".git", "")]
        for candidate in candidates:
            if candidate.is_dir():
                return candidate.resolve()
        raise RepositoryError(f"no repository of {repository}: looked for {', '.join(map(str, candidates))}")

    def _cached(self, repository: str, commit: str) -> tuple[Path, str]:
        if OWNER_AND_NAME.fullmatch(repository):
            url, name = f"{HOST}/{repository}.git", repository.replace("/", "__")
        else:
            url, name = repository, f"url-{hashlib.sha256(repository.encode()).hexdigest()[:16]}"
        path = self._cache_dir / f"{name}.git"
        with self._locked(path):
            try:
                if not path.exists():
                    _clone(url, path)
                found = _resolved(path, commit) or _fetched(path, commit)
            except GitError as error:
                raise RepositoryError(f"{url} cannot be mirrored: {error}; --repos DIR takes local ones") from error
        if found is None:
            raise RepositoryError(f"{url} has no commit {commit}")
        return path.resolve(), found

    @contextmanager
    def _locked(self, path: Path) -> Iterator[None]:
        """Hold a mirror against other threads and other collections."""
        with self._guard:
            lock = self._locks.setdefault(path, threading.Lock())
        path.parent.mkdir(parents=True, exist_ok=True)
        with lock, path.with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield


def _clone(url: str, path: Path) -> None:
    # Under another name first: a clone that was killed is none.
    half = path.with_suffix(".partial")
    shutil.rmtree(half, ignore_errors=True)
    git("clone", "--quiet", "--mirror", url, half, users_config=True)
    half.rename(path)


def _fetched(path: Path, commit: str) -> str | None:
    git("-C", path, "fetch", "--quiet", "origin", users_config=True)
    found = _resolved(path, commit)
    if found is None:
        # Not on any branch any more: hosts give it by its hash all the same.
        try:
            git("-C", path, "fetch", "--quiet", "origin", commit, users_config=True)
        except GitError:
            return None
        found = _resolved(path, commit)
    return found


def _resolved(path: Path, commit: str) -> str | None:
    if commit.startswith("-"):
        return None
    try:
        told = git("-c", "safe.directory=*", "-C", path, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}")
    except GitError:
        return None
    return told.decode().strip()
