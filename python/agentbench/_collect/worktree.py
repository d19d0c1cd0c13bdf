"""The work tree of an instance: a repository that ends at the base commit, and the patch that an agent left.

A `git worktree` would share the mirror's objects and branches, and with them the solution. So each instance gets a
repository of its own that holds the base commit and what came before it, and nothing else: no later commit, no
branch, no tag, no remote. What the agent left is compared by a git of ours whose configuration and index lie
outside of the agent's reach: nothing that it writes into ``.git`` is run or believed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from .git import GitError, git

if TYPE_CHECKING:
    from pathlib import Path

# A mirror may be somebody else's, and serves a commit that no branch ends at.
UPLOAD_PACK = "git -c safe.directory=* -c uploadpack.allowAnySHA1InWant=true upload-pack"
QUIET = ("-c", "gc.auto=0", "-c", "maintenance.auto=false", "-c", "advice.detachedHead=false")
# Content as it is, byte for byte, whatever the attributes of the work tree say of line ends and filters.
AS_IT_IS = b"* -text -ident -filter -working-tree-encoding\n"
# Every patch applies by `git apply` alone.
DIFF = ("diff", "--cached", "--binary", "--full-index", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames")


def make(mirror: Path, commit: str, tree: Path) -> None:
    """Make a work tree at a commit with its history up to there.

    Parameters
    ----------
    mirror
        A repository that holds the commit.
    commit
        Its whole hash.
    tree
        The folder to make.
    """
    git("init", "--quiet", "--template=", "--initial-branch=main", tree)
    _set_attributes(tree / ".git", AS_IT_IS)
    fetch = ["fetch", "--quiet", "--no-tags", "--no-write-fetch-head", f"--upload-pack={UPLOAD_PACK}"]
    git(*QUIET, "-C", tree, *fetch, mirror, commit)
    git(*QUIET, "-C", tree, "reset", "--quiet", "--hard", commit)


class Patch:
    """Compares a work tree with its base commit, by a repository of our own beside it.

    Parameters
    ----------
    mirror, commit, tree
        As for `make`.
    private
        A folder of ours for index and configuration, out of the agent's reach.

    Attributes
    ----------
    error
        What the last reading could not take in, such as a repository in the tree that has no commit; else None.
    """

    error: str | None = None

    def __init__(self, mirror: Path, commit: str, tree: Path, private: Path) -> None:
        self._commit = commit
        self._tree = tree
        self._private = private
        git("init", "--quiet", "--bare", "--template=", private)
        objects = git("-c", "safe.directory=*", "-C", mirror, "rev-parse", "--git-path", "objects").decode().strip()
        _set_attributes(private, AS_IT_IS)
        (private / "objects" / "info").mkdir(parents=True, exist_ok=True)
        (private / "objects" / "info" / "alternates").write_text(f"{(mirror / objects).resolve()}\n")

    def read(self) -> str:
        """Return what was changed since the base commit, new files too.

        Files that ``.gitignore`` names are left out. Content that is no text in UTF-8 comes as binary patches, so
        the patch is text that loses nothing.
        """
        self._git("read-tree", self._commit)
        self._add()
        patch = self._git(*DIFF, self._commit)
        try:
            return patch.decode()
        except UnicodeDecodeError:
            self._mark_binary()
            return self._git(*DIFF, self._commit).decode()

    def _add(self) -> None:
        """Take in everything; what git refuses is left out, and said."""
        self.error = None
        try:
            self._git("add", "--all", ".")
        except GitError as error:
            self.error = str(error)
            with contextlib.suppress(GitError):
                self._git("add", "--all", "--ignore-errors", ".")

    def _mark_binary(self) -> None:
        """Have every file whose patch is no UTF-8 taken for binary."""
        names = self._git("diff", "--cached", "--name-only", "--no-renames", "-z", self._commit).split(b"\0")
        lines = []
        for name in filter(None, names):
            literal = b":(literal)" + name
            patch = self._git(*DIFF, self._commit, "--", literal.decode(errors="surrogateescape"))
            if not _is_text(patch):
                lines.append(_quoted(name) + b" -diff\n")
        _set_attributes(self._private, AS_IT_IS + b"".join(lines))

    def _git(self, *arguments: str) -> bytes:
        place = {"GIT_DIR": str(self._private), "GIT_WORK_TREE": str(self._tree)}
        settings = ("-c", "core.bare=false", "-c", "core.autocrlf=false", "-c", "core.safecrlf=false")
        return git("-C", self._tree, *QUIET, *settings, *arguments, variables=place)


def _set_attributes(repository: Path, lines: bytes) -> None:
    """Set attributes that go before those of the work tree."""
    (repository / "info").mkdir(exist_ok=True)
    (repository / "info" / "attributes").write_bytes(lines)


def _is_text(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _quoted(name: bytes) -> bytes:
    """Return a path as a pattern of an attributes file that matches it alone."""
    pattern = b"/" + b"".join(b"\\" + bytes([byte]) if byte in b"*?[\\" else bytes([byte]) for byte in name)
    escaped = pattern.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n").replace(b"\t", b"\\t")
    return b'"' + escaped + b'"'
