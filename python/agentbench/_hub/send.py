"""A written folder to the hub: one commit, resumable, private unless asked otherwise.

Large files are uploaded before the commit, by content: a push that was cut off finds on the hub what it had sent. Where
the library sends them by Xet and that does not go through (a hub of one's own, a proxy that stands before its storage),
they go over plain HTTP, and the push says so. The commit takes the place of what an earlier push left, so that a data
set never mixes two. The token is the hub's own (``HF_TOKEN`` or ``hf auth login``); it is neither read from elsewhere
nor shown.
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from agentbench._core import ConfigError, UpstreamError

from .extra import needed

if TYPE_CHECKING:
    from pathlib import Path

OWN_FOLDER = "data/"
OWN_FILES = frozenset({"README.md", "run.json"})


@dataclass(frozen=True)
class Sent:
    """A commit on the hub."""

    url: str
    commit: str
    private: bool
    replaced: int
    """Files of an earlier push that it took away."""
    xet_refused: str | None = None
    """Why Xet did not take the files, which then went over plain HTTP; none where it did or was not asked."""


def send(folder: Path, repo: str, *, public: bool, message: str) -> Sent:
    """Send a folder's files to a data set, which is made where there is none.

    Raises
    ------
    ConfigError
        When there is no token, or the data set is public and that was not asked for.
    UpstreamError
        When the hub refuses, or cannot be reached.
    """
    hub: Any = needed("huggingface_hub")
    errors: Any = needed("huggingface_hub.errors")
    token = hub.get_token()
    if not token:
        raise ConfigError("no token for the hub: run `hf auth login`, or set HF_TOKEN")
    api = hub.HfApi(token=token)
    if not sys.stderr.isatty():
        # Its progress bars would fill a log.
        hub.utils.disable_progress_bars()
    try:
        return _send(api, hub, folder, repo, public=public, message=message)
    except (errors.HfHubHTTPError, getattr(errors, "HTTPError", OSError), OSError, ValueError, RuntimeError) as error:
        # A broken connection is an error of the HTTP library's own, one of an upload of its Rust half.
        text = " ".join(str(error).split()).replace(token, "***")
        raise UpstreamError(f"{repo}: the hub did not take it ({text}); run the same command again to go on") from error


def _send(api: Any, hub: Any, folder: Path, repo: str, *, public: bool, message: str) -> Sent:
    api.create_repo(repo, repo_type="dataset", private=not public, exist_ok=True)
    info = api.repo_info(repo, repo_type="dataset")
    if not info.private and not public:
        raise ConfigError(f"{repo}: the data set is public; say --public, or push to another one")
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [path.relative_to(folder).as_posix() for path in paths]
    additions = [
        hub.CommitOperationAdd(path_in_repo=name, path_or_fileobj=str(path))
        for name, path in zip(names, paths, strict=True)
    ]
    there = [file.rfilename for file in info.siblings or []]
    old = [name for name in there if name not in names and (name.startswith(OWN_FOLDER) or name in OWN_FILES)]
    refused = _upload(api, repo, additions)
    commit = api.create_commit(
        repo,
        [*additions, *(hub.CommitOperationDelete(path_in_repo=name) for name in old)],
        commit_message=message,
        repo_type="dataset",
        parent_commit=info.sha,
    )
    return Sent(
        url=f"hf://datasets/{repo}",
        commit=commit.oid,
        private=bool(info.private),
        replaced=len(old),
        xet_refused=refused,
    )


def _upload(api: Any, repo: str, additions: list[Any]) -> str | None:
    """Upload large files; return why Xet did not take them, where they had to go over plain HTTP."""
    errors: Any = needed("huggingface_hub.errors")
    constants: Any = needed("huggingface_hub.constants")

    def upload() -> None:
        api.preupload_lfs_files(repo, additions, repo_type="dataset", free_memory=False)

    try:
        upload()
    except errors.HfHubHTTPError:
        # The hub's own word: another way would not change it.
        raise
    except (OSError, ValueError, RuntimeError) as error:
        if constants.HF_HUB_DISABLE_XET or importlib.util.find_spec("hf_xet") is None:
            raise
        constants.HF_HUB_DISABLE_XET = True
        try:
            upload()
        finally:
            constants.HF_HUB_DISABLE_XET = False
        return " ".join(str(error).split())
    return None
